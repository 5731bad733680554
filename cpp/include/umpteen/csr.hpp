#pragma once

#include <cstdint>

namespace umpteen {

/// A view of a sparse matrix: 64-bit row offsets, 32-bit columns sorted within a row, no duplicates.
struct CsrView {
  std::int64_t n_rows;
  std::int64_t n_cols;
  const std::int64_t* indptr;   // n_rows + 1
  const std::int32_t* indices;  // indptr[n_rows]
  const float* data;            // indptr[n_rows]; may be null where only the pattern matters
};

}  // namespace umpteen
