#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "../as_size.hpp"
#include "label_lanes.hpp"
#include "umpteen/newton_all_rows.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kRowsPerBlock = 64;  // of a pass over X, so that what is between two kernels stays in cache

constexpr std::int64_t kBlocksPerCheck = 32;

/// Each row as often as it counts.
std::vector<double> sum_rows(const OneVsRestProblem& problem) {
  const CsrView& X = problem.X;
  std::vector<double> sum(as_size(X.n_cols), 0);
  for (std::int64_t row = 0; row < X.n_rows; ++row) {
    const double cost = cost_of_row(problem, row);
    for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) sum[as_size(X.indices[i])] += cost * X.data[i];
  }
  return sum;
}

/// Newton's method for kPanelLabels labels side by side, each lane at its own pace; a lane that is done takes the
/// next label. Panels are rows x lanes or features x lanes. The objective is convex and each step ends where it still
/// falls along the direction, or hardly rises: it falls from step to step.
///
/// A label needs two things of X: products with the Hessian while it looks for a direction, and a step along that
/// direction with the gradient at its end. Each takes one multiplication with X and one with its transpose. So lanes
/// that are at different stages still share the same two readings of X.
class AllRowsNewton {
 public:
  AllRowsNewton(const OneVsRestProblem& problem, MarginLoss loss, const std::vector<double>& total, LabelQueue& queue,
                Control& control, int worker, OneVsRestSolution* solutions)
      : problem_(problem),
        loss_(loss),
        X_(problem.X),
        total_(total),
        queue_(queue),
        control_(control),
        worker_(worker),
        solutions_(solutions),
        bias_(static_cast<float>(problem.bias)),
        block_(kRowsPerBlock * kLanes) {
    for (Floats* panel : {&weights_, &direction_, &residual_, &search_, &product_})
      panel->resize(as_size(X_.n_cols + 1) * kLanes);
    for (Floats* panel : {&u_, &change_}) panel->resize(as_size(X_.n_rows) * kLanes);
    if (keeps_curvature_) curvature_.resize(u_.size());
  }

  void solve() {
    for (int j = 0; j < kLanes; ++j) start_next(j);
    while (any_busy(lanes_)) {
      multiply();
      take_steps();
      multiply_transposed();
      advance();
    }
  }

 private:
  static std::size_t at(std::int64_t row, int lane) { return as_size(row * kLanes + lane); }
  bool has(int j, Stage stage) const { return lanes_[as_size(j)].stage == stage; }
  std::int64_t bias_row() const { return X_.n_cols; }

  /// Calls visit(row, lane) for the positives before row `end` of the lanes that `is_meant` picks.
  template <typename IsMeant, typename Visit>
  void pass_positives(std::int64_t end, const IsMeant& is_meant, const Visit& visit) {
    for (int j = 0; j < kLanes; ++j) {
      LabelLane& lane = lanes_[as_size(j)];
      if (lane.stage == Stage::kIdle || !is_meant(lane)) continue;
      for (; lane.cursor < lane.n_positive && lane.positives[lane.cursor] < end; ++lane.cursor)
        visit(lane.positives[lane.cursor], j);
    }
  }

  template <typename Body>
  void for_each_block(const Body& body) {
    for (LabelLane& lane : lanes_) lane.cursor = 0;
    for (std::int64_t begin = 0; begin < X_.n_rows; begin += kRowsPerBlock) {
      body(begin, std::min(kRowsPerBlock, X_.n_rows - begin));
      if (begin % (kRowsPerBlock * kBlocksPerCheck) == 0) control_.check_in(worker_);
    }
  }

  // --- all lanes ----------------------------------------------------------------------------------------------

  /// change_ = X search_; for lanes that take a step that is their direction, and change_ becomes the change of u.
  void multiply() {
    LaneFloats constant;
    for (int j = 0; j < kLanes; ++j) constant[as_size(j)] = bias_ * search_[at(bias_row(), j)];
    for_each_block([&](std::int64_t begin, std::int64_t n) {
      float* out = change_.data() + at(begin, 0);
      newton_.multiply_panel(n, X_.indptr + begin, X_.indices, X_.data, search_.data(), out);
      kernels_.add_constants(n, constant.data(), out);
      const auto is_meant = [](const LabelLane& lane) { return lane.stage == Stage::kStep; };
      pass_positives(begin + n, is_meant,
                     [&](std::int64_t row, int j) { change_[at(row, j)] = -change_[at(row, j)]; });
    });
  }

  /// Lanes with a direction go to the least of the objective along it, up to its end.
  void take_steps() {
    if (!any_at(lanes_, Stage::kStep)) return;
    LaneDoubles wd{};
    LaneDoubles dd{};
    kernels_.dot_lanes(X_.n_cols + 1, weights_.data(), search_.data(), wd.data());
    kernels_.dot_lanes(X_.n_cols + 1, search_.data(), search_.data(), dd.data());

    const LaneFloats t = find_steps(problem_, loss_, lanes_, wd, dd, u_.data(), change_.data(), control_, worker_);
    for (int j = 0; j < kLanes; ++j)
      if (has(j, Stage::kStep) && t[as_size(j)] <= 0 && !lanes_[as_size(j)].is_aimed()) finish(j);
    kernels_.add_lanes(X_.n_cols + 1, weights_.data(), t.data(), search_.data(), weights_.data());
    kernels_.add_lanes(X_.n_rows, u_.data(), t.data(), change_.data(), u_.data());
  }

  /// product_ = H search_ for lanes that look for a direction; minus the gradient for those that took a step.
  void multiply_transposed() {
    LaneFloats stepped;
    LaneFloats of_weights;
    LaneFloats of_search;
    for (int j = 0; j < kLanes; ++j) {
      stepped[as_size(j)] = has(j, Stage::kStep) ? 1.0F : 0.0F;
      of_weights[as_size(j)] = -stepped[as_size(j)];
      of_search[as_size(j)] = 1 - stepped[as_size(j)];
    }
    kernels_.combine_lanes(X_.n_cols + 1, of_weights.data(), weights_.data(), of_search.data(), search_.data(),
                           product_.data());
    LaneDoubles sums{};
    const auto C = static_cast<float>(problem_.C);
    for_each_block([&](std::int64_t begin, std::int64_t n) {
      const std::size_t first = at(begin, 0);
      of_loss_.weigh_rows(n, stepped.data(), C, u_.data() + first, change_.data() + first,
                          keeps_curvature_ ? curvature_.data() + first : nullptr, block_.data());
      const auto is_meant = [&](const LabelLane& lane) {
        return lane.stage == Stage::kStep || (!keeps_curvature_ && lane.cost != 1);
      };
      pass_positives(begin + n, is_meant, [&](std::int64_t row, int j) {
        const auto cost = static_cast<float>(lanes_[as_size(j)].cost);
        block_[at(row - begin, j)] *= has(j, Stage::kStep) ? -cost : cost;
        if (keeps_curvature_) curvature_[at(row, j)] *= cost;
      });
      if (problem_.row_cost != nullptr) weigh_by_cost(begin, n, stepped);
      kernels_.add_up(n, block_.data(), sums.data());
      kernels_.add_panel_rows(n, X_.indptr + begin, X_.indices, X_.data, block_.data(), product_.data());
    });
    for (int j = 0; j < kLanes; ++j)
      product_[at(bias_row(), j)] += static_cast<float>(problem_.bias * sums[as_size(j)]);
  }

  /// Rows count as often as their costs say. A kept curvature does already, but where it is new.
  void weigh_by_cost(std::int64_t begin, std::int64_t n, const LaneFloats& stepped) {
    for (std::int64_t row = begin; row < begin + n; ++row)
      for (int j = 0; j < kLanes; ++j) {
        if (keeps_curvature_ && stepped[as_size(j)] == 0) continue;
        block_[at(row - begin, j)] *= problem_.row_cost[row];
        if (keeps_curvature_) curvature_[at(row, j)] *= problem_.row_cost[row];
      }
  }

  /// A step of conjugate gradients, without a preconditioner; or, after a step, on to the next direction or label.
  void advance() {
    const std::int64_t n = X_.n_cols + 1;
    LaneDoubles bend{};
    kernels_.dot_lanes(n, search_.data(), product_.data(), bend.data());
    const Moves moves = plan_moves(bend);
    LaneDoubles rho{};
    kernels_.step_lanes(n, moves.keep.data(), moves.forward.data(), search_.data(), direction_.data(),
                        moves.back.data(), product_.data(), residual_.data(), rho.data());
    const Turns turns = plan_turns(moves, rho);
    kernels_.turn_lanes(n, turns.beta.data(), residual_.data(), turns.ready.data(), direction_.data(),
                        search_.data());
    for (int j = 0; j < kLanes; ++j) {
      if (has(j, Stage::kDirection) && is_done(problem_, lanes_[as_size(j)])) finish(j);
      if (has(j, Stage::kIdle)) start_next(j);
    }
  }

  /// Factors by which the vectors of conjugate gradients move.
  struct Moves {
    LaneFloats keep{};     // of residual_ and direction_
    LaneFloats forward{};  // of search_, to direction_
    LaneFloats back{};     // of product_, to residual_
  };
  Moves plan_moves(const LaneDoubles& bend) {
    Moves moves;
    for (int k = 0; k < kLanes; ++k) {
      const std::size_t j = as_size(k);
      if (has(k, Stage::kStep)) moves.back[j] = 1;
      if (!has(k, Stage::kDirection)) continue;
      moves.keep[j] = 1;
      if (!(bend[j] > 0)) continue;
      moves.forward[j] = static_cast<float>(lanes_[j].rho / bend[j]);
      lanes_[j].fall += lanes_[j].rho * lanes_[j].rho / bend[j];
      moves.back[j] = -moves.forward[j];
    }
    return moves;
  }

  /// What search_ becomes: the residual plus beta times itself, or, where it is ready, the direction.
  struct Turns {
    LaneFloats beta{};
    LaneFloats ready{};
  };
  Turns plan_turns(const Moves& moves, const LaneDoubles& rho) {
    Turns turns;
    for (std::size_t j = 0; j < kLanes; ++j) {
      LabelLane& lane = lanes_[j];
      if (lane.stage == Stage::kDirection) {
        ++lane.solution->cg_steps;
        ++lane.cg_steps;
        if (is_direction_good(lane, rho[j]) || moves.forward[j] == 0) {
          lane.stage = Stage::kStep;
          turns.ready[j] = 1;
        } else {
          turns.beta[j] = static_cast<float>(rho[j] / lane.rho);
        }
      } else if (lane.stage == Stage::kStep) {
        ++lane.solution->gradients;
        ++lane.solution->newton_steps;
        ++lane.solution->rounds;
        lane.stage = Stage::kDirection;
        lane.length = std::sqrt(rho[j]);
        lane.cg_steps = 0;
        lane.fall = 0;
      }
      lane.rho = rho[j];
    }
    return turns;
  }

  // --- one lane -----------------------------------------------------------------------------------------------

  /// The next label that is not done where it starts, if there is one.
  void start_next(int j) {
    while (has(j, Stage::kIdle)) {
      const std::int64_t label = queue_.take();
      if (label < 0) return;
      start(j, label);
      if (is_done(problem_, lanes_[as_size(j)])) finish(j);
      control_.check_in(worker_);
    }
  }

  /// w = 0 and the best b for it. Then u has two values only, and the gradient follows from the sums of rows.
  void start(int j, std::int64_t label) {
    LabelLane& lane = lanes_[as_size(j)];
    lane = make_lane(problem_, label, Stage::kDirection, solutions_);
    ++lane.solution->gradients;
    const auto b = static_cast<float>(best_constant(lane.cost * lane.own_cost, lane.all_cost - lane.own_cost));
    const float u = b * bias_;
    const LossAt positive = loss_at(loss_, -u);
    const LossAt negative = loss_at(loss_, u);
    sum_own_rows(j);
    set_gradient(j, b, lane.cost * positive.slope, negative.slope);
    if (loss_ == MarginLoss::kSquaredHinge && !is_done(problem_, lane) && aim(j)) {
      fill(u_, j, 0, 0);
      return;
    }
    fill(u_, j, -u, u);
    if (!keeps_curvature_) return;
    fill(curvature_, j, static_cast<float>(problem_.C * lane.cost * positive.bend),
         static_cast<float>(problem_.C * negative.bend));
    for (std::int64_t i = 0; problem_.row_cost != nullptr && i < X_.n_rows; ++i)
      curvature_[at(i, j)] *= problem_.row_cost[i];
  }

  /// product_ = the sum of the label's rows
  void sum_own_rows(int j) {
    const LabelLane& lane = lanes_[as_size(j)];
    for (std::int64_t f = 0; f <= X_.n_cols; ++f) product_[at(f, j)] = 0;
    for (std::int64_t r = 0; r < lane.n_positive; ++r) {
      const std::int64_t row = lane.positives[r];
      const float cost = cost_of_row(problem_, row);
      for (std::int64_t i = X_.indptr[row]; i < X_.indptr[row + 1]; ++i)
        product_[at(X_.indices[i], j)] += cost * X_.data[i];
    }
  }

  /// The gradient at (0, b), and when it is short enough. With P and T the sums of the label's rows and of all, and
  /// s+ and s- the loss's slopes: minus the gradient is C (s+ P - s- (T - P)) - (0, b), and at zero C s0 (cost P - (T
  /// - P)).
  void set_gradient(int j, float b, double s_positive, double s_negative) {
    LabelLane& lane = lanes_[as_size(j)];
    double here = 0;
    double at_zero = 0;
    const double s_zero = loss_at(loss_, 0).slope;
    const auto set = [&](std::int64_t f, double own, double total, double weight) {
      const double zero = problem_.C * s_zero * ((lane.cost + 1) * own - total);
      const double descent = problem_.C * ((s_positive + s_negative) * own - s_negative * total) - weight;
      at_zero += zero * zero;
      here += descent * descent;
      weights_[at(f, j)] = static_cast<float>(weight);
      direction_[at(f, j)] = 0;
      residual_[at(f, j)] = search_[at(f, j)] = static_cast<float>(descent);
    };
    for (std::int64_t f = 0; f < X_.n_cols; ++f) set(f, product_[at(f, j)], total_[as_size(f)], 0);
    set(bias_row(), problem_.bias * lane.own_cost, problem_.bias * lane.all_cost, b);
    if (!std::isfinite(at_zero)) refuse_overflow();
    lane.stop = short_enough(problem_, lane, std::sqrt(at_zero));
    lane.length = std::sqrt(here);
    lane.rho = here;
  }

  /// The values of a lane's rows, positive and negative ones.
  void fill(Floats& panel, int j, float positive, float negative) const {
    const LabelLane& lane = lanes_[as_size(j)];
    for (std::int64_t i = 0; i < X_.n_rows; ++i) panel[at(i, j)] = negative;
    if (positive != negative)
      for (std::int64_t r = 0; r < lane.n_positive; ++r) panel[at(lane.positives[r], j)] = positive;
  }

  /// The first step of a support vector machine, from 0. product_ has the sum of the label's rows. False where there
  /// is no such direction; where there is one, u must be 0.
  bool aim(int j) {
    LabelLane& lane = lanes_[as_size(j)];
    const double own = 1 / lane.own_cost;
    const double share = 1 / lane.all_cost;
    const double b2 = problem_.bias * problem_.bias;
    double pp = b2;
    double pg = b2;
    double gg = b2;
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      const double p = product_[at(f, j)] * own;
      const double g = total_[as_size(f)] * share;
      pp += p * p;
      pg += p * g;
      gg += g * g;
    }
    const Aim aim = find_aim(problem_, lane, pp, pg, gg);
    if (aim.fall <= 0) return false;
    lane.fall = aim.fall;
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      weights_[at(f, j)] = 0;
      search_[at(f, j)] =
          static_cast<float>(aim.own * product_[at(f, j)] * own + aim.all * total_[as_size(f)] * share);
    }
    weights_[at(bias_row(), j)] = 0;
    search_[at(bias_row(), j)] = static_cast<float>((aim.own + aim.all) * problem_.bias);
    lane.stage = Stage::kStep;
    return true;
  }

  /// Where 1/2 b^2 + C (positive loss(-b bias) + negative loss(b bias)) is least.
  double best_constant(double positive, double negative) const {
    if (problem_.bias == 0) return 0;
    constexpr int kMostTries = 100;
    constexpr double kPrecision = 1e-9;
    constexpr double kLargest = 1e3;
    // The derivative rises, and without the regulariser its zero may be infinite: with logistic loss, the log odds.
    double low = -kLargest / problem_.bias;
    double high = -low;
    double b = 0;
    for (int i = 0; i < kMostTries && high - low > kPrecision * (1 + std::abs(b)); ++i) {
      const LossAt of_negatives = loss_at(loss_, b * problem_.bias);
      const LossAt of_positives = loss_at(loss_, -b * problem_.bias);
      const double slope =
          b + problem_.C * problem_.bias * (negative * of_negatives.slope - positive * of_positives.slope);
      const double bend = 1 + problem_.C * problem_.bias * problem_.bias *
                                  (negative * of_negatives.bend + positive * of_positives.bend);
      (slope > 0 ? high : low) = b;
      const double newton = b - slope / bend;
      if (std::abs(newton - b) <= kPrecision * (1 + std::abs(b))) break;
      b = newton > low && newton < high ? newton : (low + high) / 2;
    }
    return b;
  }

  void finish(int j) {
    LabelLane& lane = lanes_[as_size(j)];
    OneVsRestSolution& solution = *lane.solution;
    const double loss = end_lane(problem_, loss_, lane, u_.data() + j);
    const float* const weights = weights_.data() + j;
    const float prune = problem_.prune;
    const std::int64_t n = bias_row();
    double squared = 0;
    for (std::int64_t f = 0; f <= n; ++f) {
      const float w = weights[f * kLanes];
      squared += double{w} * w;
      if (f == n || std::abs(w) < prune || w == 0) continue;
      solution.features.push_back(static_cast<std::int32_t>(f));
      solution.weights.push_back(w);
    }
    solution.objective = 0.5 * squared + problem_.C * loss;
    solution.bias = weights_[at(bias_row(), j)] * bias_;
  }

  const OneVsRestProblem& problem_;
  const MarginLoss loss_;
  const CsrView& X_;
  const std::vector<double>& total_;  // n_features: the sum of all rows
  LabelQueue& queue_;
  Control& control_;
  const int worker_;
  OneVsRestSolution* const solutions_;
  const float bias_;
  const bool keeps_curvature_ = loss_ == MarginLoss::kLogistic;
  const NewtonKernels& newton_ = newton_kernels();
  const PanelKernels& kernels_ = panel_kernels();
  const PanelLossKernels& of_loss_ = loss_kernels(loss_);

  LabelLanes lanes_;
  // n_features + 1 rows, the bias's last: w, and conjugate gradients' vectors
  Floats weights_, direction_, residual_, search_, product_;
  // n_rows rows: u = -s (w.x + b bias), minus the margin; how it changes; the loss's second derivative, unless that
  // is as quick to compute as to read
  Floats u_, change_, curvature_;
  Floats block_;
};

}  // namespace

void refuse_overflow() {
  throw std::overflow_error("weights must be finite; are values of X close to the largest 32-bit float?");
}

std::vector<OneVsRestSolution> solve_all_rows(const OneVsRestProblem& problem, MarginLoss loss, int threads,
                                              Control& control, int worker) {
  if (loss == MarginLoss::kSquaredHinge && prefers_gram(problem.X))
    return solve_by_gram(problem, threads, control, worker);
  std::vector<OneVsRestSolution> solutions(as_size(problem.n_labels));
  LabelQueue queue(problem);
  const std::vector<double> total = sum_rows(problem);
  share_labels(queue.size(), threads, control, worker,
               [&](int id) { AllRowsNewton(problem, loss, total, queue, control, id, solutions.data()).solve(); });
  return solutions;
}

}  // namespace umpteen
