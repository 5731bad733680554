#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "../as_size.hpp"
#include "line_search.hpp"
#include "near_margin_rows.hpp"
#include "penalty.hpp"
#include "umpteen/newton_near_margin.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kRowsPerBlock = 64;  // of the panel's product, so that its output stays in cache
constexpr std::int64_t kBlocksPerCheck = 64;

/// The mean of all rows, which every label starts from, and how rows can be packed.
struct MeanRow {
  Floats values;  // n_features, without the constant feature
  Floats dots;    // n_rows: its product with each row
  double squared = 0;
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
  if (X.n_cols > kMostPackedFeatures || !(largest > 0) || least_of_rows < 0x1p-16F * largest) return 0;
  int exponent = 0;
  std::frexp(largest, &exponent);  // largest < 2^exponent
  return std::abs(exponent) < 100 ? std::ldexp(1.0F, 15 - exponent) : 0;
}

MeanRow find_mean_row(const CsrView& X, int threads, Control& control) {
  const NewtonKernels& kernels = newton_kernels();
  MeanRow mean;
  mean.dots.resize(as_size(X.n_rows));
  std::vector<double> sums(as_size(X.n_cols), 0);
  for (std::int64_t i = 0; i < X.indptr[X.n_rows]; ++i) sums[as_size(X.indices[i])] += X.data[i];
  mean.values.resize(sums.size());
  for (std::size_t f = 0; f < sums.size(); ++f)
    mean.values[f] = static_cast<float>(sums[f] / static_cast<double>(X.n_rows));
  mean.squared = kernels.dot_dense(mean.values.data(), mean.values.data(), X.n_cols);
  constexpr std::int64_t kRowsPerItem = 1024;
  parallel_for((X.n_rows + kRowsPerItem - 1) / kRowsPerItem, threads, control, [&](std::int64_t item, int) {
    for (std::int64_t row = item * kRowsPerItem; row < std::min((item + 1) * kRowsPerItem, X.n_rows); ++row) {
      const std::int64_t begin = X.indptr[row];
      mean.dots[as_size(row)] =
          kernels.dot_sparse(X.indices + begin, X.data + begin, X.indptr[row + 1] - begin, mean.values.data());
    }
  });
  mean.pack_scale = find_pack_scale(X);
  return mean;
}

/// One label of the panel.
struct PanelLabel {
  const std::int32_t* positives = nullptr;
  std::int64_t n_positive = 0;
  double positive_cost = 1;
  double stop = 0;    // the length of the gradient at which it is done
  double length = 0;  // of the gradient when last computed
  bool done = true;
  Floats w, direction;
  float b = 0, b_direction = 0;
  Floats m;  // 1 - margin, of all rows
};

/// Solves the labels of one panel after the other; see newton_near_margin.hpp.
class NearMarginNewton {
 public:
  NearMarginNewton(const OneVsRestProblem& problem, Penalty penalty, const MeanRow& mean, Control& control,
                   int worker)
      : problem_(problem),
        penalty_(penalty),
        X_(problem.X),
        mean_(mean),
        control_(control),
        worker_(worker),
        bias_(static_cast<float>(problem.bias)),
        labels_(kPanelLabels),
        near_(problem, penalty, mean.values, mean.pack_scale, control, worker),
        panel_(as_size(X_.n_cols) * kPanelLabels),
        block_(kRowsPerBlock * kPanelLabels),
        scores_(as_size(X_.n_rows) * kPanelLabels),
        loss_(as_size(X_.n_cols) + 1),
        is_positive_(as_size(X_.n_rows), 0),
        found_(as_size(X_.n_rows) + 16) {
    for (PanelLabel& label : labels_) {
      label.w.resize(as_size(X_.n_cols));
      label.direction.resize(as_size(X_.n_cols));
      label.m.resize(as_size(X_.n_rows));
    }
  }

  void solve(std::int64_t first_label, std::int64_t n_labels, OneVsRestSolution* solutions) {
    gather_positive_means(first_label, n_labels);
    score_panel();
    for (std::int64_t lane = 0; lane < n_labels; ++lane) start(first_label + lane, lane);
    while (true) {
      for (std::int64_t lane = 0; lane < n_labels; ++lane)
        if (!labels_[as_size(lane)].done) improve(labels_[as_size(lane)], solutions[lane]);
      if (std::all_of(labels_.begin(), labels_.end(), [](const PanelLabel& label) { return label.done; })) break;
      score_directions();
      for (std::int64_t lane = 0; lane < n_labels; ++lane)
        if (!labels_[as_size(lane)].done) take_step(labels_[as_size(lane)], lane, solutions[lane]);
    }
    for (std::int64_t lane = 0; lane < n_labels; ++lane) finish(labels_[as_size(lane)], solutions[lane]);
  }

 private:
  static constexpr std::int64_t kNearShare = 8;  // rows near the margin: at most one in so many

  /// How far beyond the margin rows may be and count as near; the first that leaves few enough.
  static constexpr float kBeyond[] = {1.0F, 0.5F, 0.25F, 0.125F, 0.06F, 0.03F, 0.015F, 8e-3F, 4e-3F};

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
          panel_[as_size(X_.indices[i]) * kPanelLabels + as_size(lane)] += share * X_.data[i];
      }
    }
  }

  /// scores_[lane][i] = direction.x_i for the labels that are not done
  void score_directions() {
    for (std::int64_t lane = 0; lane < kPanelLabels; ++lane) {
      const PanelLabel& label = labels_[as_size(lane)];
      for (std::int64_t f = 0; f < X_.n_cols; ++f)
        panel_[as_size(f * kPanelLabels + lane)] = label.done ? 0.0F : label.direction[as_size(f)];
    }
    score_panel();
  }

  /// Turns the scores of a change of w into the change of m = 1 - s * score.
  void complete_slopes(const PanelLabel& label, std::int64_t lane, float constant) {
    float* slopes = scores_.data() + lane * X_.n_rows;
    for (std::int64_t i = 0; i < X_.n_rows; ++i) slopes[i] += constant;
    for (std::int64_t r = 0; r < label.n_positive; ++r) slopes[label.positives[r]] = -slopes[label.positives[r]];
  }

  /// scores_[lane][i] = panel[lane].x_i for all rows
  void score_panel() {
    for (std::int64_t begin = 0; begin < X_.n_rows; begin += kRowsPerBlock) {
      const std::int64_t n = std::min(kRowsPerBlock, X_.n_rows - begin);
      kernels_.multiply_panel(n, X_.indptr + begin, X_.indices, X_.data, panel_.data(), block_.data());
      for (std::int64_t lane = 0; lane < kPanelLabels; ++lane)
        for (std::int64_t i = 0; i < n; ++i)
          scores_[as_size(lane * X_.n_rows + begin + i)] = block_[as_size(i * kPanelLabels + lane)];
      if (begin % (kRowsPerBlock * kBlocksPerCheck) == 0) control_.check_in(worker_);
    }
  }

  // --- one label ----------------------------------------------------------------------------------------------

  /// Products of the mean p of the label's rows and the mean g of all rows, the bias included, and the gradient at 0.
  struct StartProducts {
    double pp;
    double pg;
    double squared_gradient;
  };

  /// From the mean of the label's rows in panel_. The gradient of the loss at 0 is 2 C (n g - a p).
  StartProducts multiply_means(std::int64_t lane, double n, double a) const {
    const double b2 = problem_.bias * problem_.bias;
    const auto least_at_zero = [&](double g) {
      const double least = least_gradient(penalty_, 0, static_cast<float>(2 * problem_.C * g));
      return least * least;
    };
    StartProducts out{b2, b2, least_at_zero((n - a) * problem_.bias)};
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      const double p = panel_[as_size(f * kPanelLabels + lane)];
      const double g = mean_.values[as_size(f)];
      out.pp += p * p;
      out.pg += p * g;
      out.squared_gradient += least_at_zero(n * g - a * p);
    }
    return out;
  }

  /// Finds where to begin and where to stop.
  void start(std::int64_t id, std::int64_t lane) {
    PanelLabel& label = labels_[as_size(lane)];
    label.positives = problem_.label_rows + problem_.label_indptr[id];
    label.n_positive = problem_.label_indptr[id + 1] - problem_.label_indptr[id];
    label.positive_cost = problem_.positive_cost[id];
    label.done = label.n_positive == 0;
    if (label.done) return;
    const auto n = static_cast<double>(X_.n_rows);
    const auto n_positive = static_cast<double>(label.n_positive);
    const StartProducts at = multiply_means(lane, n, n_positive * (label.positive_cost + 1));
    label.stop =
        problem_.eps * std::max(std::min(n_positive, n - n_positive), 1.0) / n * std::sqrt(at.squared_gradient);
    begin_between_means(label, lane, at);
  }

  /// Begins at a combination u p + v g of the two means, or at the bias alone.
  void begin_between_means(PanelLabel& label, std::int64_t lane, const StartProducts& at) {
    // Means that are nearly parallel would need huge u and v of opposite signs. Then, and where weights are to be
    // few, the bias alone puts all negatives a little beyond their margin: on it, all would count as near.
    constexpr double kParallel = 1e-2;
    constexpr float kBeyondMargin = 1.1F;
    const double gg = mean_.squared + problem_.bias * problem_.bias;
    const double det = at.pp * gg - at.pg * at.pg;
    if (det <= kParallel * at.pp * gg || penalty_ == Penalty::kL1) {
      begin_at(label, lane, 0, 0, bias_ > 0 ? -kBeyondMargin / bias_ : 0.0F);
      return;
    }
    // The mean of the label's rows is to score 1. Aiming the mean of all rows far beyond the margin of -1 leaves few
    // negatives inside it, and only those cost anything later.
    constexpr double kFar = -3;
    const double u = (gg - kFar * at.pg) / det;
    const double v = (kFar * at.pp - at.pg) / det;
    begin_at(label, lane, static_cast<float>(u), static_cast<float>(v), static_cast<float>((u + v) * problem_.bias));
  }

  /// w = u * (mean of positives) + v * (mean of all), and the m of all rows.
  void begin_at(PanelLabel& label, std::int64_t lane, float u, float v, float b) {
    label.b = b;
    for (std::int64_t f = 0; f < X_.n_cols; ++f)
      label.w[as_size(f)] = u * panel_[as_size(f * kPanelLabels + lane)] + v * mean_.values[as_size(f)];
    const float* dots = scores_.data() + lane * X_.n_rows;
    for (std::int64_t i = 0; i < X_.n_rows; ++i)
      label.m[as_size(i)] = 1 + (u * dots[i] + v * mean_.dots[as_size(i)] + b * bias_);
    for (std::int64_t r = 0; r < label.n_positive; ++r) {
      float& m = label.m[as_size(label.positives[r])];
      m = 2 - m;
    }
  }

  /// Some Newton steps on the rows nearest to the margin; their sum is the direction. Or done, if the gradient over
  /// all rows is short enough.
  void improve(PanelLabel& label, OneVsRestSolution& solution) {
    compute_gradient(label, solution);
    label.done = label.length <= label.stop || solution.rounds >= problem_.max_rounds;
    if (label.done) return;
    find_near(label);
    // No shorter than this round can use: the gradient over all rows will differ.
    constexpr double kShareOfStop = 0.5;
    constexpr double kShareOfGradient = 0.05;
    const double enough = std::max(kShareOfStop * label.stop, kShareOfGradient * label.length);
    near_.improve(label.w, label.b, loss_, rest_, enough, label.direction, label.b_direction, solution);
  }

  /// Hands to near_ the positives, and of the negatives those inside the margin and as far beyond it as possible
  /// without exceeding their share of the rows. The others are grouped into rest_.
  void find_near(const PanelLabel& label) {
    near_.clear();
    rest_.clear();
    for (std::int64_t r = 0; r < label.n_positive; ++r) is_positive_[as_size(label.positives[r])] = 1;
    std::int64_t n = X_.n_rows;
    float edge = 0;
    for (const float level : kBeyond) {
      const std::int64_t before = n;
      n = kernels_.find_above(label.m.data(), X_.n_rows, -level, found_.data());
      group_rest(label, level, edge, before - n);
      edge = level;
      if (n * kNearShare <= X_.n_rows) break;
    }
    near_.begin(1, false);
    for (std::int64_t k = 0; k < n; ++k)
      if (!is_positive_[as_size(found_[as_size(k)])])
        near_.add(found_[as_size(k)], label.m[as_size(found_[as_size(k)])]);
    near_.begin(label.positive_cost, true);
    for (std::int64_t r = 0; r < label.n_positive; ++r) {
      near_.add(label.positives[r], label.m[as_size(label.positives[r])]);
      is_positive_[as_size(label.positives[r])] = 0;
    }
  }

  /// n negatives between `level` and `edge` beyond the margin, taken to be in the middle; those beyond the first
  /// level, to be where the mean row is.
  void group_rest(const PanelLabel& label, float level, float edge, std::int64_t n) {
    if (n == 0) return;
    float m = -(level + edge) / 2;
    if (edge == 0) {
      const double score =
          kernels_.dot_dense(label.w.data(), mean_.values.data(), X_.n_cols) + double{label.b} * bias_;
      m = std::min(-level, static_cast<float>(1 + score));
    }
    rest_.push_back({m, static_cast<float>(2 * problem_.C * static_cast<double>(n))});
  }

  /// loss_ = gradient of the loss over all rows, the bias last; the label's length = that of the whole gradient.
  void compute_gradient(PanelLabel& label, OneVsRestSolution& solution) {
    std::fill(loss_.begin(), loss_.end(), 0.0F);
    const std::int64_t n_active = kernels_.find_above(label.m.data(), X_.n_rows, 0, found_.data());
    double bias_sum = 0;
    const auto add_row = [&](std::int32_t row, double cost) {
      const auto factor = static_cast<float>(2 * problem_.C * cost * label.m[as_size(row)]);
      const std::int64_t begin = X_.indptr[row];
      kernels_.add_sparse(X_.indices + begin, X_.data + begin, X_.indptr[row + 1] - begin, factor, loss_.data());
      bias_sum += double{factor} * bias_;
    };
    for (std::int64_t k = 0; k < n_active; ++k) add_row(found_[as_size(k)], 1);
    // Those of positives were added as if they were negatives.
    for (std::int64_t r = 0; r < label.n_positive; ++r)
      if (label.m[as_size(label.positives[r])] > 0) add_row(label.positives[r], -1 - label.positive_cost);
    loss_.back() = static_cast<float>(bias_sum);
    label.length = measure_gradient(label);
    solution.active_rows += n_active;
    ++solution.gradients;
  }

  double measure_gradient(const PanelLabel& label) const {
    double squared = 0;
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      const double least = least_gradient(penalty_, label.w[as_size(f)], loss_[as_size(f)]);
      squared += least * least;
    }
    const double least = bias_ > 0 ? least_gradient(penalty_, label.b, loss_.back()) : 0;
    return std::sqrt(squared + least * least);
  }

  /// To the least of the objective over all rows along the direction.
  void take_step(PanelLabel& label, std::int64_t lane, OneVsRestSolution& solution) {
    complete_slopes(label, lane, label.b_direction * bias_);
    const float* slopes = scores_.data() + lane * X_.n_rows;
    solution.checked_rows += X_.n_rows;
    ++solution.rounds;
    const float t = search_line([&](double at) { return line_derivatives(label, slopes, at); });
    label.done = t <= 0;  // float32 sees no descent any more
    if (label.done) return;
    kernels_.add_dense(label.m.data(), t, slopes, X_.n_rows, label.m.data());
    kernels_.add_dense(label.w.data(), t, label.direction.data(), X_.n_cols, label.w.data());
    label.b += t * label.b_direction;
  }

  /// First and second derivative of the objective over all rows, at `at` along the direction.
  std::pair<double, double> line_derivatives(const PanelLabel& label, const float* slopes, double at) const {
    auto [first, second] = penalty_derivatives(penalty_, label.w.data(), label.direction.data(), X_.n_cols, at);
    const auto [bias_first, bias_second] = penalty_derivatives(penalty_, &label.b, &label.b_direction, 1, at);
    double loss_first = 0;
    double loss_second = 0;
    kernels_.line_derivatives(label.m.data(), slopes, X_.n_rows, static_cast<float>(at), &loss_first, &loss_second);
    first += bias_first + 2 * problem_.C * loss_first;
    second += bias_second + 2 * problem_.C * loss_second;
    const double extra = 2 * problem_.C * (label.positive_cost - 1);
    for (std::int64_t r = 0; extra != 0 && r < label.n_positive; ++r) {
      const double d = slopes[label.positives[r]];
      const double value = label.m[as_size(label.positives[r])] + at * d;
      if (value > 0) first += extra * value * d, second += extra * d * d;
    }
    return {first, second};
  }

  void finish(const PanelLabel& label, OneVsRestSolution& solution) {
    if (label.n_positive == 0) return;
    solution.gradient = label.stop > 0 ? label.length / label.stop : 0;
    double loss = 0;
    for (const float m : label.m) loss += m > 0 ? double{m} * m : 0;
    for (std::int64_t r = 0; r < label.n_positive; ++r) {
      const float m = label.m[as_size(label.positives[r])];
      loss += m > 0 ? (label.positive_cost - 1) * double{m} * m : 0;
    }
    const auto weigh = [&](double w) { return penalty_ == Penalty::kL2 ? 0.5 * w * w : std::abs(w); };
    solution.objective = weigh(label.b) + problem_.C * loss;
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      const float w = label.w[as_size(f)];
      if (w == 0) continue;
      solution.objective += weigh(w);
      if (std::abs(w) < problem_.prune) continue;
      solution.features.push_back(static_cast<std::int32_t>(f));
      solution.weights.push_back(w);
    }
    solution.bias = label.b * bias_;
  }

  const OneVsRestProblem& problem_;
  const Penalty penalty_;
  const CsrView& X_;
  const MeanRow& mean_;
  Control& control_;
  const int worker_;
  const float bias_;
  const NewtonKernels& kernels_ = newton_kernels();

  std::vector<PanelLabel> labels_;
  NearMarginRows near_;
  Floats panel_, block_, scores_;
  std::vector<RestGroup> rest_;            // of the label at hand
  Floats loss_;                            // of the label at hand
  std::vector<std::uint8_t> is_positive_;  // by row
  std::vector<std::int32_t> found_;
};

}  // namespace

std::vector<OneVsRestSolution> solve_near_margin(const OneVsRestProblem& problem, Penalty penalty, int threads,
                                                 Control& control) {
  std::vector<OneVsRestSolution> solutions(as_size(problem.n_labels));
  const MeanRow mean = find_mean_row(problem.X, threads, control);
  const std::int64_t n_panels = (problem.n_labels + kPanelLabels - 1) / kPanelLabels;
  std::vector<std::unique_ptr<NearMarginNewton>> solvers(as_size(clamp_threads(n_panels, threads)));
  parallel_for(n_panels, threads, control, [&](std::int64_t item, int worker) {
    auto& solver = solvers[as_size(worker)];
    if (!solver) solver = std::make_unique<NearMarginNewton>(problem, penalty, mean, control, worker);
    const std::int64_t first = item * kPanelLabels;
    solver->solve(first, std::min<std::int64_t>(kPanelLabels, problem.n_labels - first), solutions.data() + first);
  });
  return solutions;
}

}  // namespace umpteen
