#pragma once

#include <cstdint>
#include <string>

#include "umpteen/csr.hpp"

namespace umpteen {

/// How rows are written; the mirror of TextGrammar.
struct TextLayout {
  bool labels = true;
  std::int32_t first_feature = 0;
  std::int32_t first_label = 0;
};

/// The lines of rows [begin, end). Values are the shortest decimals that read back as the same float32. A row
/// with nothing in it is a single space, so that it stays a row.
std::string format_rows(const CsrView& X, const CsrView& Y, std::int64_t begin, std::int64_t end,
                        const TextLayout& layout);

}  // namespace umpteen
