// What the two layouts of newton_all_rows.hpp share: labels side by side, each in a lane of its own and at its own
// pace.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "umpteen/aligned.hpp"
#include "umpteen/newton_all_rows.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

constexpr int kLanes = kPanelLabels;
using LaneFloats = std::array<float, kLanes>;
using LaneDoubles = std::array<double, kLanes>;

/// The value of a loss at u = -s (w.x + b bias), and its derivatives.
struct LossAt {
  double value;
  double slope;
  double bend;
};

inline LossAt loss_at(MarginLoss loss, double u) {
  if (loss == MarginLoss::kSquaredHinge) {
    const double m = std::max(0.0, 1 + u);
    return {m * m, 2 * m, m > 0 ? 2.0 : 0.0};
  }
  const double s = 1 / (1 + std::exp(-u));
  return {std::max(u, 0.0) + std::log1p(std::exp(-std::abs(u))), s, s * (1 - s)};
}

inline const PanelLossKernels& loss_kernels(MarginLoss loss) {
  return loss == MarginLoss::kLogistic ? panel_kernels().logistic : panel_kernels().squared_hinge;
}

/// The labels that are left, most rows first.
class LabelQueue {
 public:
  explicit LabelQueue(const OneVsRestProblem& problem) {
    const std::int64_t* indptr = problem.label_indptr;
    for (std::int64_t l = 0; l < problem.n_labels; ++l)
      if (indptr[l + 1] > indptr[l]) order_.push_back(l);
    std::stable_sort(order_.begin(), order_.end(), [&](std::int64_t a, std::int64_t b) {
      return indptr[a + 1] - indptr[a] > indptr[b + 1] - indptr[b];
    });
  }

  /// The next label, or -1. Safe to call from any thread.
  std::int64_t take() {
    const std::size_t place = next_.fetch_add(1, std::memory_order_relaxed);
    return place < order_.size() ? order_[place] : -1;
  }
  std::int64_t size() const { return static_cast<std::int64_t>(order_.size()); }

 private:
  std::vector<std::int64_t> order_;
  std::atomic<std::size_t> next_{0};
};

/// A lane has no label; has a gradient whose length is not known yet; looks for a direction; or is about to take a
/// step along it.
enum class Stage { kIdle, kNew, kDirection, kStep };

struct LabelLane {
  Stage stage = Stage::kIdle;
  std::int64_t label = 0;
  const std::int32_t* positives = nullptr;
  std::int64_t n_positive = 0;
  std::int64_t cursor = 0;  // the first positive not yet passed
  double cost = 1;          // how many times a row counts for the label if it has it, beside its own cost
  double own_cost = 0;      // the summed row costs of the label's rows: their number where each counts once
  double all_cost = 0;      // of all rows
  double stop = 0;          // the length of the gradient at which it is done
  double length = 0;        // of the gradient when last computed
  double rho = 0;           // the squared length of the residual of conjugate gradients
  double fall = 0;          // how steeply the objective falls at the start of the direction
  int cg_steps = 0;         // for the direction at hand
  bool stuck = false;       // float32 sees no curvature
  OneVsRestSolution* solution = nullptr;

  /// At a step: whether the direction is find_aim's. If that leads nowhere, conjugate gradients still may.
  bool is_aimed() const { return cg_steps == 0; }
};

using LabelLanes = std::array<LabelLane, kLanes>;

inline bool any_busy(const LabelLanes& lanes) {
  return std::any_of(lanes.begin(), lanes.end(), [](const LabelLane& lane) { return lane.stage != Stage::kIdle; });
}
inline bool any_at(const LabelLanes& lanes, Stage stage) {
  return std::any_of(lanes.begin(), lanes.end(), [&](const LabelLane& lane) { return lane.stage == stage; });
}

/// How many times a row counts for a label it lacks.
inline float cost_of_row(const OneVsRestProblem& problem, std::int64_t row) {
  return problem.row_cost != nullptr ? problem.row_cost[row] : 1.0F;
}

/// A lane with a new label.
LabelLane make_lane(const OneVsRestProblem& problem, std::int64_t label, Stage stage, OneVsRestSolution* solutions);

inline bool is_done(const OneVsRestProblem& problem, const LabelLane& lane) {
  return lane.length <= lane.stop || lane.solution->rounds >= problem.max_rounds;
}

/// The length of a gradient that is short enough, by LIBLINEAR's rule.
double short_enough(const OneVsRestProblem& problem, const LabelLane& lane, double at_zero);

/// Whether conjugate gradients have found a good direction; rho is the squared length of their residual. That is
/// about the gradient after the step, so it is made no shorter than it has to be.
bool is_direction_good(const LabelLane& lane, double rho);

/// Frees the lane and records its counts. Returns the sum of its rows' losses; u is the lane's first cell.
double end_lane(const OneVsRestProblem& problem, MarginLoss loss, LabelLane& lane, const float* u);

/// How far each lane that is at Stage::kStep goes along its direction d: to the least of its objective, up to 1.
/// 0 in all others, and where float32 sees no descent. wd and dd are the products w.d and d.d; u and change are rows
/// x lanes, change being what u gains by the whole direction.
LaneFloats find_steps(const OneVsRestProblem& problem, MarginLoss loss, const LabelLanes& lanes,
                      const LaneDoubles& wd, const LaneDoubles& dd, const float* u, const float* change,
                      Control& control, int worker);

/// The direction from 0 towards a combination of two means: that of the label's rows is to score 1, that of all rows
/// is to lie beyond the negatives' margin. It is the first step of a support vector machine, in place of one by
/// conjugate gradients, and saves a sixth of all steps.
struct Aim {
  double own = 0;   // the factor of the mean of the label's rows
  double all = 0;   // the factor of the mean of all rows
  double fall = 0;  // how steeply the objective falls; 0 where it does not, or where the means are nearly parallel
};
/// From the products of the two means, the bias's included: own with own, own with all, all with all.
Aim find_aim(const OneVsRestProblem& problem, const LabelLane& lane, double pp, double pg, double gg);

/// Calls solve(worker) on each thread, which takes labels until none is left. With worker >= 0 that worker takes all.
template <typename Solve>
void share_labels(std::int64_t n_labels, int threads, Control& control, int worker, Solve solve) {
  if (worker >= 0) return solve(worker);
  const std::int64_t n_panels = (n_labels + kLanes - 1) / kLanes;
  parallel_for(clamp_threads(n_panels, threads), threads, control, [&](std::int64_t, int id) { solve(id); });
}

/// Whether combinations of rows are cheaper to compute with than weights.
bool prefers_gram(const CsrView& X);

/// solve_all_rows for squared hinge loss, with combinations of rows in place of weights.
std::vector<OneVsRestSolution> solve_by_gram(const OneVsRestProblem& problem, int threads, Control& control,
                                             int worker);

}  // namespace umpteen
