#include "umpteen/split.hpp"

#include <algorithm>
#include <vector>

namespace umpteen {

std::int64_t hold_out_rows(const CsrView& Y, const std::int64_t* order, std::int64_t n_heldout, std::int64_t keep,
                           std::uint8_t* heldout) {
  std::vector<std::int64_t> rows_left(static_cast<std::size_t>(Y.n_cols), 0);
  for (std::int64_t i = 0; i < Y.indptr[Y.n_rows]; ++i) ++rows_left[static_cast<std::size_t>(Y.indices[i])];
  std::fill_n(heldout, Y.n_rows, std::uint8_t{0});
  std::int64_t n_moved = 0;
  for (std::int64_t i = 0; i < Y.n_rows && n_moved < n_heldout; ++i) {
    const std::int64_t row = order[i];
    const std::int32_t* first = Y.indices + Y.indptr[row];
    const std::int32_t* last = Y.indices + Y.indptr[row + 1];
    const bool spare = std::all_of(
        first, last, [&](std::int32_t label) { return rows_left[static_cast<std::size_t>(label)] > keep; });
    if (!spare) continue;
    for (const auto* label = first; label != last; ++label) --rows_left[static_cast<std::size_t>(*label)];
    heldout[row] = 1;
    ++n_moved;
  }
  return n_moved;
}

}  // namespace umpteen
