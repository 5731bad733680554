#pragma once

#include <cmath>
#include <utility>

namespace umpteen {

/// Where in (0, 1] a convex function is least; 0 if float32 sees no descent at 0. `derivatives(t)` gives its first
/// and second derivative. The first rises, so Newton's method kept inside a bracket finds its zero.
template <typename Derivatives>
float search_line(const Derivatives& derivatives) {
  constexpr int kMostTries = 30;
  constexpr double kFlatEnough = 1e-3;
  const double at_zero = derivatives(0.0).first;
  if (!(at_zero < 0)) return 0;
  double low = 0;
  double high = 1;
  double t = 1;
  for (int i = 0; i < kMostTries; ++i) {
    const auto [first, second] = derivatives(t);
    if (std::abs(first) <= kFlatEnough * std::abs(at_zero) || (t >= 1 && first <= 0)) break;
    (first > 0 ? high : low) = t;
    const double newton = t - first / second;  // outside, or not a number, where the curvature is 0
    t = newton > low && newton < high ? newton : (low + high) / 2;
  }
  return static_cast<float>(t);
}

}  // namespace umpteen
