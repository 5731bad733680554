#include "umpteen/ranking.hpp"

#include <algorithm>

namespace umpteen {

void find_hits(const CsrView& Y, const std::int32_t* labels, std::int64_t top_k, std::uint8_t* hits, int threads,
               Control& control) {
  constexpr std::int64_t kRowsPerItem = 4096;
  const std::int64_t n_items = (Y.n_rows + kRowsPerItem - 1) / kRowsPerItem;
  parallel_for(n_items, threads, control, [&](std::int64_t item, int) {
    const std::int64_t end = std::min((item + 1) * kRowsPerItem, Y.n_rows);
    for (std::int64_t row = item * kRowsPerItem; row < end; ++row) {
      const std::int32_t* first = Y.indices + Y.indptr[row];
      const std::int32_t* last = Y.indices + Y.indptr[row + 1];
      for (std::int64_t i = row * top_k; i < (row + 1) * top_k; ++i)
        hits[i] = std::binary_search(first, last, labels[i]);
    }
  });
}

}  // namespace umpteen
