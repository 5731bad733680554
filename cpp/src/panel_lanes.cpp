#include "panel_lanes.hpp"

namespace umpteen {

LaneFloats find_steps(const SvmProblem& problem, PanelLoss loss, const Lanes& lanes, const LaneDoubles& wd,
                      const LaneDoubles& dd, const float* u, const float* change, Control& control, int worker) {
  const PanelKernels& kernels = panel_kernels();
  const PanelLossKernels& of_loss = loss == PanelLoss::kLogistic ? kernels.logistic : kernels.squared_hinge;
  std::array<bool, kLanes> searching;
  LaneFloats t{};
  LaneDoubles low{};
  LaneDoubles high;
  high.fill(1);
  bool any = false;
  for (std::size_t j = 0; j < kLanes; ++j) {
    searching[j] = lanes[j].stage == Stage::kStep && lanes[j].fall > 0;
    t[j] = searching[j] ? 1 : 0;
    any |= searching[j];
  }
  // The derivative along the direction rises: Newton's method kept inside a bracket comes near its zero, from the
  // end on, which mostly is near enough.
  constexpr int kMostTries = 30;
  constexpr double kNearEnough = 0.1;
  constexpr float kLeastStep = 1e-4F;  // where float32 sees no descent any more
  for (int i = 0; any && i < kMostTries; ++i) {
    LaneDoubles first{};
    LaneDoubles second{};
    of_loss.line_derivatives(problem.X.n_rows, u, change, t.data(), first.data(), second.data());
    control.check_in(worker);
    any = false;
    for (std::size_t j = 0; j < kLanes; ++j) {
      if (!searching[j]) continue;
      // Positives stand in these sums once, but count `cost` times.
      const Lane& lane = lanes[j];
      for (std::int64_t r = 0; lane.cost != 1 && r < lane.n_positive; ++r) {
        const std::size_t cell = static_cast<std::size_t>(lane.positives[r]) * kLanes + j;
        const double d = change[cell];
        const LossAt there = loss_at(loss, u[cell] + double{t[j]} * d);
        first[j] += (lane.cost - 1) * there.slope * d;
        second[j] += (lane.cost - 1) * there.bend * d * d;
      }
      const double slope = wd[j] + t[j] * dd[j] + problem.C * first[j];
      const double bend = dd[j] + problem.C * second[j];
      if (std::abs(slope) <= kNearEnough * lane.fall || (t[j] >= 1 && slope <= 0)) {
        searching[j] = false;
      } else {
        (slope > 0 ? high : low)[j] = t[j];
        const double newton = t[j] - slope / bend;
        t[j] = static_cast<float>(newton > low[j] && newton < high[j] ? newton : (low[j] + high[j]) / 2);
        searching[j] = t[j] >= kLeastStep;
        if (!searching[j]) t[j] = 0;
      }
      any |= searching[j];
    }
  }
  return t;
}

Aim find_aim(const SvmProblem& problem, const Lane& lane, double pp, double pg, double gg) {
  const double det = pp * gg - pg * pg;
  // Means nearly parallel would need huge factors of opposite signs; and what is not a number is no direction.
  if (!(det > 1e-2 * pp * gg) || !std::isfinite(det)) return {};
  constexpr double kFar = -2;
  Aim aim{(gg - kFar * pg) / det, (kFar * pp - pg) / det};
  // At 0 the gradient is 2 C (n g - n+ (cost + 1) p).
  const auto n = static_cast<double>(problem.X.n_rows);
  const double a = static_cast<double>(lane.n_positive) * (lane.cost + 1);
  aim.fall = -2 * problem.C * (n * (aim.own * pg + aim.all * gg) - a * (aim.own * pp + aim.all * pg));
  return aim;
}

}  // namespace umpteen
