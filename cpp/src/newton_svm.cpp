#include "umpteen/newton_svm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "umpteen/line_search.hpp"
#include "umpteen/near_rows.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kRowsPerBlock = 64;  // of the panel's product, so that its output stays in cache

/// What all labels share: the mean row and its scores.
struct Shared {
  Floats mean;      // n_features, without the constant feature
  Floats mean_dot;  // n_rows: mean.x_i
  double mean_squared = 0;
  float pack_scale = 0;  // a power of two that brings X into the range of 16-bit floats; 0 if none does
};

/// Packed rows have 16-bit features and 16-bit values. One power of two for all values, if the largest value of every
/// row then keeps all its bits.
float find_pack_scale(const CsrView& X) {
  float largest = 0;
  float least_of_rows = std::numeric_limits<float>::max();
  for (std::int64_t row = 0; row < X.n_rows; ++row) {
    float row_largest = 0;
    for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i)
      row_largest = std::max(row_largest, std::abs(X.data[i]));
    largest = std::max(largest, row_largest);
    if (row_largest > 0) least_of_rows = std::min(least_of_rows, row_largest);
  }
  if (X.n_cols > 65536 || !(largest > 0) || least_of_rows < 0x1p-16F * largest) return 0;
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent
  return std::abs(exponent) < 100 ? std::ldexp(1.0F, 15 - exponent) : 0;
}

Shared prepare(const SvmProblem& problem, int threads, Control& control) {
  const CsrView& X = problem.X;
  const NewtonKernels& kernels = newton_kernels();
  Shared shared;
  shared.mean_dot.resize(static_cast<std::size_t>(X.n_rows));
  std::vector<double> sums(static_cast<std::size_t>(X.n_cols), 0);
  for (std::int64_t i = 0; i < X.indptr[X.n_rows]; ++i) sums[static_cast<std::size_t>(X.indices[i])] += X.data[i];
  shared.mean.resize(sums.size());
  for (std::size_t f = 0; f < sums.size(); ++f)
    shared.mean[f] = static_cast<float>(sums[f] / static_cast<double>(X.n_rows));
  shared.mean_squared = kernels.dot_dense(shared.mean.data(), shared.mean.data(), X.n_cols);
  constexpr std::int64_t kRowsPerItem = 1024;
  parallel_for((X.n_rows + kRowsPerItem - 1) / kRowsPerItem, threads, control, [&](std::int64_t item, int) {
    for (std::int64_t row = item * kRowsPerItem; row < std::min((item + 1) * kRowsPerItem, X.n_rows); ++row) {
      const std::int64_t begin = X.indptr[row];
      const std::int64_t n = X.indptr[row + 1] - begin;
      const float* data = X.data + begin;
      shared.mean_dot[static_cast<std::size_t>(row)] =
          kernels.dot_sparse(X.indices + begin, data, n, shared.mean.data());
    }
  });
  shared.pack_scale = find_pack_scale(X);
  return shared;
}

/// One label on its way to the optimum.
struct LabelState {
  const std::int32_t* positives = nullptr;
  std::int64_t n_positive = 0;
  double positive_cost = 1;
  double stop = 0;    // the length of the gradient at which it is done
  double length = 0;  // and what it is now
  bool done = true;
  Floats w, direction;
  float b = 0, b_direction = 0;
  Floats m;  // of all rows
};

/// Solves the labels of a panel side by side, in rounds. In a round each label takes some Newton steps looking only
/// at the rows nearest to its margin. Then all rows are scored for all labels together, at the price of one reading
/// of X, and the way each label came is searched for the least of its whole objective: that falls from round to
/// round, and the gradient it ends with is that over all rows.
class PanelSolver {
 public:
  PanelSolver(const SvmProblem& problem, const Shared& shared, Control& control, int worker)
      : problem_(problem),
        X_(problem.X),
        shared_(shared),
        control_(control),
        worker_(worker),
        bias_(static_cast<float>(problem.bias)),
        states_(kPanelLabels),
        near_(problem, shared.mean, shared.pack_scale, control, worker),
        panel_(size(X_.n_cols) * kPanelLabels),
        block_(kRowsPerBlock * kPanelLabels),
        scores_(size(X_.n_rows) * kPanelLabels),
        loss_(size(X_.n_cols) + 1),
        is_positive_(size(X_.n_rows), 0),
        found_(size(X_.n_rows) + 16) {
    for (LabelState& state : states_) {
      state.w.resize(size(X_.n_cols));
      state.direction.resize(size(X_.n_cols));
      state.m.resize(size(X_.n_rows));
    }
  }

  void solve(std::int64_t first_label, std::int64_t n_labels, SvmSolution* solutions) {
    gather_positive_means(first_label, n_labels);
    score_panel();
    for (std::int64_t lane = 0; lane < n_labels; ++lane) start(first_label + lane, lane);
    while (true) {
      for (std::int64_t lane = 0; lane < n_labels; ++lane)
        if (!states_[size(lane)].done) improve(states_[size(lane)], solutions[lane]);
      if (std::all_of(states_.begin(), states_.end(), [](const LabelState& state) { return state.done; })) break;
      score_directions();
      for (std::int64_t lane = 0; lane < n_labels; ++lane)
        if (!states_[size(lane)].done) take_step(states_[size(lane)], lane, solutions[lane]);
    }
    for (std::int64_t lane = 0; lane < n_labels; ++lane) finish(states_[size(lane)], solutions[lane]);
  }

 private:
  static constexpr std::int64_t kShare = 8;  // rows looked at between two looks at all: one in so many

  /// How far beyond the margin to look: as far as the share allows.
  static constexpr float kBeyond[] = {1.0F, 0.5F, 0.25F, 0.125F, 0.06F, 0.03F, 0.015F, 8e-3F, 4e-3F};

  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

  // --- all labels of the panel --------------------------------------------------------------------------------

  /// panel_[feature][lane] = mean of the label's rows
  void gather_positive_means(std::int64_t first_label, std::int64_t n_labels) {
    std::fill(panel_.begin(), panel_.end(), 0.0F);
    for (std::int64_t lane = 0; lane < n_labels; ++lane) {
      const std::int64_t begin = problem_.label_indptr[first_label + lane];
      const std::int64_t end = problem_.label_indptr[first_label + lane + 1];
      const float share = 1.0F / static_cast<float>(std::max<std::int64_t>(end - begin, 1));
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int32_t row = problem_.label_rows[r];
        for (std::int64_t i = X_.indptr[row]; i < X_.indptr[row + 1]; ++i)
          panel_[size(X_.indices[i]) * kPanelLabels + size(lane)] += share * X_.data[i];
      }
    }
  }

  /// scores_[lane][i] = direction.x_i for the labels that are not done
  void score_directions() {
    for (std::int64_t lane = 0; lane < kPanelLabels; ++lane) {
      const LabelState& state = states_[size(lane)];
      for (std::int64_t f = 0; f < X_.n_cols; ++f)
        panel_[size(f * kPanelLabels + lane)] = state.done ? 0.0F : state.direction[size(f)];
    }
    score_panel();
  }

  /// Turns the scores of a change of w into the change of m = 1 - s * score.
  void complete_slopes(const LabelState& state, std::int64_t lane, float constant) {
    float* slopes = scores_.data() + lane * X_.n_rows;
    for (std::int64_t i = 0; i < X_.n_rows; ++i) slopes[i] += constant;
    for (std::int64_t r = 0; r < state.n_positive; ++r) slopes[state.positives[r]] = -slopes[state.positives[r]];
  }

  /// scores_[lane][i] = panel[lane].x_i for all rows
  void score_panel() {
    for (std::int64_t begin = 0; begin < X_.n_rows; begin += kRowsPerBlock) {
      const std::int64_t n = std::min(kRowsPerBlock, X_.n_rows - begin);
      kernels_.multiply_panel(n, X_.indptr + begin, X_.indices, X_.data, panel_.data(), block_.data());
      for (std::int64_t lane = 0; lane < kPanelLabels; ++lane)
        for (std::int64_t i = 0; i < n; ++i)
          scores_[size(lane * X_.n_rows + begin + i)] = block_[size(i * kPanelLabels + lane)];
      if (begin % (kRowsPerBlock * 64) == 0) control_.check_in(worker_);
    }
  }

  // --- one label ----------------------------------------------------------------------------------------------

  /// Where to begin and where to stop, from the mean of the positives (in panel_) and that of all rows.
  void start(std::int64_t label, std::int64_t lane) {
    LabelState& state = states_[size(lane)];
    state.positives = problem_.label_rows + problem_.label_indptr[label];
    state.n_positive = problem_.label_indptr[label + 1] - problem_.label_indptr[label];
    state.positive_cost = problem_.positive_cost[label];
    state.done = state.n_positive == 0;
    if (state.done) return;

    // The gradient of the loss at 0 is 2 C (n * mean of all - a * mean of positives).
    const auto n = static_cast<double>(X_.n_rows);
    const auto np = static_cast<double>(state.n_positive);
    const double a = np * (state.positive_cost + 1);
    const double b2 = problem_.bias * problem_.bias;
    double pp = b2;
    double pg = b2;
    const auto least_at_zero = [&](double g) {
      const double least = least_gradient(problem_.penalty, 0, static_cast<float>(2 * problem_.C * g));
      return least * least;
    };
    double squared = least_at_zero((n - a) * problem_.bias);
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      const double p = panel_[size(f * kPanelLabels + lane)];
      const double g = shared_.mean[size(f)];
      pp += p * p;
      pg += p * g;
      squared += least_at_zero(n * g - a * p);
    }
    state.stop = problem_.eps * std::max(std::min(np, n - np), 1.0) / n * std::sqrt(squared);

    // Means that are nearly parallel would need huge u and v of opposite signs. Then, and where weights are to be
    // few, the bias alone puts all negatives on their margin.
    const double gg = shared_.mean_squared + b2;
    const double det = pp * gg - pg * pg;
    if (det <= 1e-2 * pp * gg || problem_.penalty == Penalty::kL1) {
      begin_at(state, lane, 0, 0, bias_ > 0 ? -1 / bias_ : 0.0F);
      return;
    }
    // The positives' mean is to score 1. Aiming the mean of all rows far beyond the margin of -1 leaves few negatives
    // inside it, and only those cost anything later.
    constexpr double kFar = -3;
    const double u = (gg - kFar * pg) / det;
    const double v = (kFar * pp - pg) / det;
    begin_at(state, lane, static_cast<float>(u), static_cast<float>(v), static_cast<float>((u + v) * problem_.bias));
  }

  /// w = u * (mean of positives) + v * (mean of all), and the m of all rows.
  void begin_at(LabelState& state, std::int64_t lane, float u, float v, float b) {
    state.b = b;
    for (std::int64_t f = 0; f < X_.n_cols; ++f)
      state.w[size(f)] = u * panel_[size(f * kPanelLabels + lane)] + v * shared_.mean[size(f)];
    const float* dots = scores_.data() + lane * X_.n_rows;
    for (std::int64_t i = 0; i < X_.n_rows; ++i)
      state.m[size(i)] = 1 + (u * dots[i] + v * shared_.mean_dot[size(i)] + b * bias_);
    for (std::int64_t r = 0; r < state.n_positive; ++r) {
      float& m = state.m[size(state.positives[r])];
      m = 2 - m;
    }
  }

  /// Some Newton steps on the rows nearest to the margin, the whole way of which is the direction; or done, if the
  /// gradient over all rows is short enough.
  void improve(LabelState& state, SvmSolution& solution) {
    compute_gradient(state, solution);
    state.done = state.length <= state.stop || solution.rounds >= problem_.max_rounds;
    if (state.done) return;
    find_near(state);
    near_.improve(state.w, state.b, loss_, rest_, std::max(0.5 * state.stop, 0.05 * state.length), state.direction,
                  state.b_direction, solution);
  }

  /// Hands to near_ the positives, and of the negatives those inside the margin and as far beyond it as lets see what
  /// comes without being more than a share of the rows. What is further away is grouped into rest_.
  void find_near(const LabelState& state) {
    near_.clear();
    rest_.clear();
    for (std::int64_t r = 0; r < state.n_positive; ++r) is_positive_[size(state.positives[r])] = 1;
    std::int64_t n = X_.n_rows;
    float edge = 0;
    for (const float level : kBeyond) {
      const std::int64_t before = n;
      n = kernels_.find_above(state.m.data(), X_.n_rows, -level, found_.data());
      group_rest(state, level, edge, before - n);
      edge = level;
      if (n * kShare <= X_.n_rows) break;
    }
    near_.begin(1, false);
    for (std::int64_t k = 0; k < n; ++k)
      if (!is_positive_[size(found_[size(k)])]) near_.add(found_[size(k)], state.m[size(found_[size(k)])]);
    near_.begin(state.positive_cost, true);
    for (std::int64_t r = 0; r < state.n_positive; ++r) {
      near_.add(state.positives[r], state.m[size(state.positives[r])]);
      is_positive_[size(state.positives[r])] = 0;
    }
  }

  /// n negatives between `level` and `edge` beyond the margin; those beyond the first level are where the mean says.
  void group_rest(const LabelState& state, float level, float edge, std::int64_t n) {
    if (n == 0) return;
    float m = -(level + edge) / 2;
    if (edge == 0) {
      const double score =
          kernels_.dot_dense(state.w.data(), shared_.mean.data(), X_.n_cols) + double{state.b} * bias_;
      m = std::min(-level, static_cast<float>(1 + score));
    }
    rest_.push_back({m, static_cast<float>(2 * problem_.C * static_cast<double>(n))});
  }

  /// loss_ = gradient of the loss over all rows, the bias last; the label's length = that of the whole gradient.
  void compute_gradient(LabelState& state, SvmSolution& solution) {
    std::fill(loss_.begin(), loss_.end(), 0.0F);
    const std::int64_t n_active = kernels_.find_above(state.m.data(), X_.n_rows, 0, found_.data());
    double bias_sum = 0;
    const auto add_row = [&](std::int32_t row, double cost) {
      const auto factor = static_cast<float>(2 * problem_.C * cost * state.m[size(row)]);
      const std::int64_t begin = X_.indptr[row];
      kernels_.add_sparse(X_.indices + begin, X_.data + begin, X_.indptr[row + 1] - begin, factor, loss_.data());
      bias_sum += double{factor} * bias_;
    };
    for (std::int64_t k = 0; k < n_active; ++k) add_row(found_[size(k)], 1);
    // Those of positives were added as if they were negatives.
    for (std::int64_t r = 0; r < state.n_positive; ++r)
      if (state.m[size(state.positives[r])] > 0) add_row(state.positives[r], -1 - state.positive_cost);
    loss_.back() = static_cast<float>(bias_sum);
    double squared = 0;
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      const double least = least_gradient(problem_.penalty, state.w[size(f)], loss_[size(f)]);
      squared += least * least;
    }
    const double least = bias_ > 0 ? least_gradient(problem_.penalty, state.b, loss_.back()) : 0;
    state.length = std::sqrt(squared + least * least);
    solution.active_rows += n_active;
    ++solution.gradients;
  }

  /// To the least of the objective over all rows along the direction.
  void take_step(LabelState& state, std::int64_t lane, SvmSolution& solution) {
    complete_slopes(state, lane, state.b_direction * bias_);
    const float* slopes = scores_.data() + lane * X_.n_rows;
    solution.checked_rows += X_.n_rows;
    ++solution.rounds;
    const double extra = 2 * problem_.C * (state.positive_cost - 1);
    const float t = search_line([&](double at) {
      auto [first, second] =
          penalty_derivatives(problem_.penalty, state.w.data(), state.direction.data(), X_.n_cols, at);
      const auto [bias_first, bias_second] =
          penalty_derivatives(problem_.penalty, &state.b, &state.b_direction, 1, at);
      double loss_first = 0;
      double loss_second = 0;
      kernels_.line_derivatives(state.m.data(), slopes, X_.n_rows, static_cast<float>(at), &loss_first, &loss_second);
      first += bias_first + 2 * problem_.C * loss_first;
      second += bias_second + 2 * problem_.C * loss_second;
      for (std::int64_t r = 0; extra != 0 && r < state.n_positive; ++r) {
        const double d = slopes[state.positives[r]];
        const double value = state.m[size(state.positives[r])] + at * d;
        if (value > 0) first += extra * value * d, second += extra * d * d;
      }
      return std::pair<double, double>(first, second);
    });
    state.done = t <= 0;  // float32 sees no descent any more
    if (state.done) return;
    kernels_.add_dense(state.m.data(), t, slopes, X_.n_rows, state.m.data());
    kernels_.add_dense(state.w.data(), t, state.direction.data(), X_.n_cols, state.w.data());
    state.b += t * state.b_direction;
  }

  void finish(const LabelState& state, SvmSolution& solution) {
    if (state.n_positive == 0) return;
    solution.gradient = state.stop > 0 ? state.length / state.stop : 0;
    double loss = 0;
    for (const float m : state.m) loss += m > 0 ? double{m} * m : 0;
    for (std::int64_t r = 0; r < state.n_positive; ++r) {
      const float m = state.m[size(state.positives[r])];
      loss += m > 0 ? (state.positive_cost - 1) * double{m} * m : 0;
    }
    const auto weigh = [&](double w) { return problem_.penalty == Penalty::kL2 ? 0.5 * w * w : std::abs(w); };
    solution.objective = weigh(state.b) + problem_.C * loss;
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      const float w = state.w[size(f)];
      if (w == 0) continue;
      solution.objective += weigh(w);
      if (std::abs(w) < problem_.prune) continue;
      solution.features.push_back(static_cast<std::int32_t>(f));
      solution.weights.push_back(w);
    }
    solution.bias = state.b * bias_;
  }

  const SvmProblem& problem_;
  const CsrView& X_;
  const Shared& shared_;
  Control& control_;
  const int worker_;
  const float bias_;
  const NewtonKernels& kernels_ = newton_kernels();

  std::vector<LabelState> states_;
  NearRows near_;
  Floats panel_, block_, scores_;
  std::vector<RestGroup> rest_;            // of the label at hand
  Floats loss_;                            // of the label at hand
  std::vector<std::uint8_t> is_positive_;  // by row
  std::vector<std::int32_t> found_;
};

}  // namespace

std::vector<SvmSolution> solve_svms(const SvmProblem& problem, int threads, Control& control) {
  std::vector<SvmSolution> solutions(static_cast<std::size_t>(problem.n_labels));
  const Shared shared = prepare(problem, threads, control);
  const std::int64_t n_panels = (problem.n_labels + kPanelLabels - 1) / kPanelLabels;
  std::vector<std::unique_ptr<PanelSolver>> solvers(static_cast<std::size_t>(clamp_threads(n_panels, threads)));
  parallel_for(n_panels, threads, control, [&](std::int64_t item, int worker) {
    auto& solver = solvers[static_cast<std::size_t>(worker)];
    if (!solver) solver = std::make_unique<PanelSolver>(problem, shared, control, worker);
    const std::int64_t first = item * kPanelLabels;
    solver->solve(first, std::min<std::int64_t>(kPanelLabels, problem.n_labels - first), solutions.data() + first);
  });
  return solutions;
}

}  // namespace umpteen
