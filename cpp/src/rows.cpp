#include "umpteen/rows.hpp"

#include <algorithm>
#include <cmath>

namespace umpteen {

void normalize_rows(const CsrView& X, float* out, int threads, Control& control) {
  constexpr std::int64_t kRowsPerItem = 1024;
  const std::int64_t n_items = (X.n_rows + kRowsPerItem - 1) / kRowsPerItem;
  parallel_for(n_items, threads, control, [&](std::int64_t item, int) {
    const std::int64_t end = std::min((item + 1) * kRowsPerItem, X.n_rows);
    for (std::int64_t row = item * kRowsPerItem; row < end; ++row) {
      double squares = 0;
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) squares += double{X.data[i]} * X.data[i];
      const double factor = squares > 0 ? 1 / std::sqrt(squares) : 1;
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i)
        out[i] = static_cast<float>(X.data[i] * factor);
    }
  });
}

}  // namespace umpteen
