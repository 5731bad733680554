#include "label_lanes.hpp"

#include "../as_size.hpp"

namespace umpteen {

namespace {

constexpr int kMostCgSteps = 200;

/// The line searches of all lanes: Newton's method kept inside a bracket. The derivative along a direction rises, and
/// the search starts at the direction's end, which mostly is near enough.
struct LineSearches {
  static constexpr int kMostTries = 30;
  static constexpr double kNearEnough = 0.1;  // of the slope at 0
  static constexpr float kLeastStep = 1e-4F;  // below, float32 sees no descent

  std::array<bool, kLanes> searching{};
  LaneFloats t{};
  LaneDoubles low{};
  LaneDoubles high;

  explicit LineSearches(const LabelLanes& lanes) {
    high.fill(1);
    for (std::size_t j = 0; j < kLanes; ++j) {
      searching[j] = lanes[j].stage == Stage::kStep && lanes[j].fall > 0;
      t[j] = searching[j] ? 1 : 0;
    }
  }

  bool any() const {
    return std::any_of(searching.begin(), searching.end(), [](bool searches) { return searches; });
  }

  /// Goes on from t, where the objective has these derivatives and at 0 fell as steeply as `fall`.
  void advance(std::size_t j, double slope, double bend, double fall) {
    if (std::abs(slope) <= kNearEnough * fall || (t[j] >= 1 && slope <= 0)) {
      searching[j] = false;
      return;
    }
    (slope > 0 ? high : low)[j] = t[j];
    const double newton = t[j] - slope / bend;
    t[j] = static_cast<float>(newton > low[j] && newton < high[j] ? newton : (low[j] + high[j]) / 2);
    searching[j] = t[j] >= kLeastStep;
    if (!searching[j]) t[j] = 0;
  }
};

/// First and second derivative of the summed losses along each lane's direction, as if no row had the lane's label.
void add_line_derivatives(const OneVsRestProblem& problem, const PanelLossKernels& of_loss, const float* u,
                          const float* change, const LaneFloats& t, LaneDoubles& first, LaneDoubles& second) {
  if (problem.row_cost == nullptr) {
    of_loss.line_derivatives(problem.X.n_rows, u, change, t.data(), first.data(), second.data());
    return;
  }
  for (std::int64_t row = 0; row < problem.X.n_rows; ++row) {
    LaneDoubles slope{};
    LaneDoubles bend{};
    of_loss.line_derivatives(1, u + row * kLanes, change + row * kLanes, t.data(), slope.data(), bend.data());
    for (std::size_t j = 0; j < kLanes; ++j) {
      first[j] += problem.row_cost[row] * slope[j];
      second[j] += problem.row_cost[row] * bend[j];
    }
  }
}

}  // namespace

LabelLane make_lane(const OneVsRestProblem& problem, std::int64_t label, Stage stage, OneVsRestSolution* solutions) {
  LabelLane lane;
  lane.stage = stage;
  lane.label = label;
  lane.positives = problem.label_rows + problem.label_indptr[label];
  lane.n_positive = problem.label_indptr[label + 1] - problem.label_indptr[label];
  lane.cost = problem.positive_cost[label];
  lane.solution = solutions + label;
  lane.own_cost = static_cast<double>(lane.n_positive);
  lane.all_cost = static_cast<double>(problem.X.n_rows);
  if (problem.row_cost != nullptr) {
    lane.own_cost = lane.all_cost = 0;
    for (std::int64_t r = 0; r < lane.n_positive; ++r) lane.own_cost += problem.row_cost[lane.positives[r]];
    for (std::int64_t i = 0; i < problem.X.n_rows; ++i) lane.all_cost += problem.row_cost[i];
  }
  return lane;
}

double short_enough(const OneVsRestProblem& problem, const LabelLane& lane, double at_zero) {
  const double one_row = lane.all_cost / static_cast<double>(problem.X.n_rows);
  const double fewer = std::max(std::min(lane.own_cost, lane.all_cost - lane.own_cost), one_row);
  return problem.eps * fewer / lane.all_cost * at_zero;
}

bool is_direction_good(const LabelLane& lane, double rho) {
  constexpr double kShareOfGradient = 0.1;
  constexpr double kShareOfStop = 0.5;
  const double enough = std::max(kShareOfGradient * lane.length, kShareOfStop * lane.stop);
  return rho <= enough * enough || lane.cg_steps == kMostCgSteps;
}

double end_lane(const OneVsRestProblem& problem, MarginLoss loss, LabelLane& lane, const float* u) {
  lane.stage = Stage::kIdle;
  OneVsRestSolution& solution = *lane.solution;
  solution.gradient = lane.stop > 0 ? lane.length / lane.stop : 0;
  solution.active_rows = problem.X.n_rows * solution.gradients;
  solution.checked_rows = problem.X.n_rows * solution.newton_steps;
  const auto value = [&](std::int64_t row) {
    return cost_of_row(problem, row) * loss_at(loss, u[row * kLanes]).value;
  };
  double sum = 0;
  if (problem.row_cost == nullptr)
    sum = loss_kernels(loss).sum_losses(problem.X.n_rows, u);
  else
    for (std::int64_t row = 0; row < problem.X.n_rows; ++row) sum += value(row);
  if (lane.cost != 1)
    for (std::int64_t r = 0; r < lane.n_positive; ++r) sum += (lane.cost - 1) * value(lane.positives[r]);
  return sum;
}

LaneFloats find_steps(const OneVsRestProblem& problem, MarginLoss loss, const LabelLanes& lanes,
                      const LaneDoubles& wd, const LaneDoubles& dd, const float* u, const float* change,
                      Control& control, int worker) {
  const PanelLossKernels& of_loss = loss_kernels(loss);
  LineSearches searches(lanes);
  for (int i = 0; i < LineSearches::kMostTries && searches.any(); ++i) {
    LaneDoubles first{};
    LaneDoubles second{};
    add_line_derivatives(problem, of_loss, u, change, searches.t, first, second);
    control.check_in(worker);
    for (std::size_t j = 0; j < kLanes; ++j) {
      if (!searches.searching[j]) continue;
      const LabelLane& lane = lanes[j];
      const double t = searches.t[j];
      // Positives stand in these sums once, but count `cost` times.
      for (std::int64_t r = 0; lane.cost != 1 && r < lane.n_positive; ++r) {
        const std::size_t cell = as_size(lane.positives[r]) * kLanes + j;
        const double d = change[cell];
        const LossAt there = loss_at(loss, u[cell] + t * d);
        const double extra = (lane.cost - 1) * cost_of_row(problem, lane.positives[r]);
        first[j] += extra * there.slope * d;
        second[j] += extra * there.bend * d * d;
      }
      searches.advance(j, wd[j] + t * dd[j] + problem.C * first[j], dd[j] + problem.C * second[j], lane.fall);
    }
  }
  return searches.t;
}

Aim find_aim(const OneVsRestProblem& problem, const LabelLane& lane, double pp, double pg, double gg) {
  constexpr double kParallel = 1e-2;
  constexpr double kFar = -2;
  const double det = pp * gg - pg * pg;
  // Means nearly parallel would need huge factors of opposite signs; and what is not a number is no direction.
  if (!(det > kParallel * pp * gg) || !std::isfinite(det)) return {};
  Aim aim{(gg - kFar * pg) / det, (kFar * pp - pg) / det};
  // At 0 the gradient is 2 C (n g - n+ (cost + 1) p).
  const double a = lane.own_cost * (lane.cost + 1);
  aim.fall = -2 * problem.C * (lane.all_cost * (aim.own * pg + aim.all * gg) - a * (aim.own * pp + aim.all * pg));
  return aim;
}

}  // namespace umpteen
