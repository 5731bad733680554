#include "penalty.hpp"

#include <cmath>

#include "umpteen/simd.hpp"

namespace umpteen {

std::pair<double, double> penalty_derivatives(Penalty penalty, const float* w, const float* d, std::int64_t n,
                                              double t) {
  if (penalty == Penalty::kL2) {
    const NewtonKernels& kernels = newton_kernels();
    const double dd = kernels.dot_dense(d, d, n);
    return {kernels.dot_dense(w, d, n) + t * dd, dd};
  }
  double first = 0;
  const auto tf = static_cast<float>(t);
  for (std::int64_t f = 0; f < n; ++f) {
    if (d[f] == 0) continue;
    const float v = w[f] + tf * d[f];
    if (v != 0)
      first += v > 0 ? d[f] : -d[f];
    else  // at the kink: the derivative from the left, or at t = 0 from the right
      first += t > 0 ? -std::abs(d[f]) : std::abs(d[f]);
  }
  return {first, 0};
}

}  // namespace umpteen
