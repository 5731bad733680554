#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/aligned.hpp"
#include "umpteen/dual_descent.hpp"

namespace umpteen::dual {

/// X by columns, and the lengths of its rows. All labels share it.
struct FeatureColumns {
  std::vector<std::int64_t> indptr;  // n_cols + 1
  std::vector<std::int32_t> rows;
  Floats values;
  std::vector<std::uint8_t> signs;  // n_cols: kHasPositive, kHasNegative, or both
  Floats squared;                   // n_rows: squared lengths
  float longest = 0;                // the largest length of a row
  std::int32_t tail = 0;  // the last columns that every row has, such as those of a dense block; a multiple of 16

  static constexpr std::uint8_t kHasPositive = 1;
  static constexpr std::uint8_t kHasNegative = 2;

  std::int64_t size(std::size_t f) const { return indptr[f + 1] - indptr[f]; }
};

/// Rows rise within a column; where searches are sampled, magnitudes of values fall instead.
FeatureColumns transpose(const DualProblem& problem, int threads, Control& control);

}  // namespace umpteen::dual
