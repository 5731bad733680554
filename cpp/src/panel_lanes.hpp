// What the two solvers of panels share: labels side by side, each in a lane of its own and at its own pace.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "umpteen/aligned.hpp"
#include "umpteen/newton_panel.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

using Floats = AlignedVector<float>;
constexpr int kLanes = kPanelLabels;
using LaneFloats = std::array<float, kLanes>;
using LaneDoubles = std::array<double, kLanes>;

constexpr int kMostCgSteps = 200;

/// A loss of u = -s (w.x + b bias), and its derivatives.
struct LossAt {
  double value;
  double slope;
  double bend;
};

inline LossAt loss_at(PanelLoss loss, double u) {
  if (loss == PanelLoss::kSquaredHinge) {
    const double m = std::max(0.0, 1 + u);
    return {m * m, 2 * m, m > 0 ? 2.0 : 0.0};
  }
  const double s = 1 / (1 + std::exp(-u));
  return {std::max(u, 0.0) + std::log1p(std::exp(-std::abs(u))), s, s * (1 - s)};
}

/// The labels that are left, most rows first.
class LabelQueue {
 public:
  explicit LabelQueue(const SvmProblem& problem) {
    const std::int64_t* indptr = problem.label_indptr;
    for (std::int64_t l = 0; l < problem.n_labels; ++l)
      if (indptr[l + 1] > indptr[l]) order_.push_back(l);
    std::stable_sort(order_.begin(), order_.end(), [&](std::int64_t a, std::int64_t b) {
      return indptr[a + 1] - indptr[a] > indptr[b + 1] - indptr[b];
    });
  }

  /// The next label, or -1; for any thread.
  std::int64_t take() {
    const std::size_t place = next_.fetch_add(1, std::memory_order_relaxed);
    return place < order_.size() ? order_[place] : -1;
  }
  std::int64_t size() const { return static_cast<std::int64_t>(order_.size()); }

 private:
  std::vector<std::int64_t> order_;
  std::atomic<std::size_t> next_{0};
};

/// Where a label is on its way to the optimum: nowhere; with a gradient whose length is not known yet; looking for a
/// direction; about to take a step along it.
enum class Stage { kIdle, kNew, kDirection, kStep };

struct Lane {
  Stage stage = Stage::kIdle;
  std::int64_t label = 0;
  const std::int32_t* positives = nullptr;
  std::int64_t n_positive = 0;
  std::int64_t cursor = 0;  // the first positive not yet passed
  double cost = 1;
  double stop = 0;     // the length of the gradient at which it is done
  double length = 0;   // and what it was when last computed
  double rho = 0;      // the squared length of the residual of conjugate gradients
  double fall = 0;     // how steeply the objective falls along the direction, at its begin
  int cg_steps = 0;    // for the direction at hand
  bool stuck = false;  // where float32 sees no curvature
  SvmSolution* solution = nullptr;

  /// At a step, that its direction is find_aim's. Where that leads nowhere, conjugate gradients still may.
  bool is_aimed() const { return cg_steps == 0; }
};

using Lanes = std::array<Lane, kLanes>;

/// A label's lane at its begin.
inline Lane make_lane(const SvmProblem& problem, std::int64_t label, Stage stage, SvmSolution* solutions) {
  Lane lane;
  lane.stage = stage;
  lane.label = label;
  lane.positives = problem.label_rows + problem.label_indptr[label];
  lane.n_positive = problem.label_indptr[label + 1] - problem.label_indptr[label];
  lane.cost = problem.positive_cost[label];
  lane.solution = solutions + label;
  return lane;
}

inline bool is_done(const SvmProblem& problem, const Lane& lane) {
  return lane.length <= lane.stop || lane.solution->rounds >= problem.max_rounds;
}

/// The length of a gradient that is short enough, by LIBLINEAR's rule.
inline double short_enough(const SvmProblem& problem, const Lane& lane, double at_zero) {
  const std::int64_t n_negative = problem.X.n_rows - lane.n_positive;
  const auto fewer = static_cast<double>(std::max(std::min(lane.n_positive, n_negative), std::int64_t{1}));
  return problem.eps * fewer / static_cast<double>(problem.X.n_rows) * at_zero;
}

/// How far each lane that is at Stage::kStep goes along its direction d: to the least of its objective, up to 1.
/// 0 in all others, and where there is no descent that float32 sees. wd and dd are the products w.d and d.d; u and
/// change are rows x lanes, change being what u gains by the whole direction.
LaneFloats find_steps(const SvmProblem& problem, PanelLoss loss, const Lanes& lanes, const LaneDoubles& wd,
                      const LaneDoubles& dd, const float* u, const float* change, Control& control, int worker);

/// The direction from 0 towards a combination of the mean of a label's rows, which is to score 1, and that of all
/// rows, which is to be beyond the negatives' margin; a support vector machine's first step, in place of one by
/// conjugate gradients. It spares a sixth of all steps.
struct Aim {
  double own = 0;   // the factor of the mean of the label's rows
  double all = 0;   // and of that of all rows
  double fall = 0;  // how steeply the objective falls; 0 where it does not, or where the means are nearly parallel
};
/// From the products of the two means, the bias's included: own with own, own with all, all with all.
Aim find_aim(const SvmProblem& problem, const Lane& lane, double pp, double pg, double gg);

/// Lets each thread, or the one worker it is part of the work of, take labels by solve(worker) until none is left.
template <typename Solve>
void share_panels(std::int64_t n_labels, int threads, Control& control, int worker, Solve solve) {
  if (worker >= 0) return solve(worker);
  const std::int64_t n_panels = (n_labels + kLanes - 1) / kLanes;
  parallel_for(clamp_threads(n_panels, threads), threads, control, [&](std::int64_t, int who) { solve(who); });
}

/// Whether labels are sooner solved in terms of rows than of features.
bool prefers_gram(const SvmProblem& problem);

/// solve_panels in terms of rows, for squared hinge loss. With worker >= 0 as part of that worker's item.
std::vector<SvmSolution> solve_by_gram(const SvmProblem& problem, int threads, Control& control, int worker);

}  // namespace umpteen
