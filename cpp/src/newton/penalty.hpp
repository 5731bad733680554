// The penalties of newton_near_margin.hpp.
#pragma once

#include <cstdint>
#include <utility>

#include "../soften.hpp"
#include "umpteen/newton_near_margin.hpp"

namespace umpteen {

/// First and second derivative at t of the penalty of w + t d.
std::pair<double, double> penalty_derivatives(Penalty penalty, const float* w, const float* d, std::int64_t n,
                                              double t);

/// The shortest subgradient at a weight w, where the loss has the derivative `loss`.
inline float least_gradient(Penalty penalty, float w, float loss) {
  if (penalty == Penalty::kL2) return w + loss;
  if (w == 0) return soften(loss, 1);
  return w > 0 ? loss + 1 : loss - 1;
}

}  // namespace umpteen
