#include "umpteen/newton_svm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "umpteen/aligned.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

using Floats = AlignedVector<float>;

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

/// A row that takes part in a product: its entries, features possibly renumbered.
struct SparseRow {
  const std::int32_t* indices;
  const float* data;
  std::int64_t n;
  float factor;                 // 2 C c_i
  const std::uint16_t* packed;  // the same in half the bytes, or null
};

/// One label on its way to the optimum.
struct LabelState {
  std::int64_t label = 0;
  const std::int32_t* positives = nullptr;
  std::int64_t n_positive = 0;
  double positive_cost = 1;
  double stop = 0;    // the length of the gradient at which it is done
  double length = 0;  // and what it is now
  bool done = true;
  Floats w, w_reference, direction;
  float b = 0, b_reference = 0, b_direction = 0;
  Floats m_reference;                         // of all rows, at w_reference
  std::vector<std::int32_t> rows;             // those looked at now, positives last
  Floats m;                                   // of rows, at w
  std::vector<std::int32_t> positive_places;  // where positives stand in rows
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
        renumber_(X_.n_cols > kRenumberAbove),
        bias_(static_cast<float>(problem.bias)),
        unpack_(shared.pack_scale > 0 ? 1 / shared.pack_scale : 0),
        states_(kPanelLabels),
        panel_(size(X_.n_cols) * kPanelLabels),
        block_(kRowsPerBlock * kPanelLabels),
        scores_(size(X_.n_rows) * kPanelLabels),
        gradient_(size(X_.n_cols) + 1),
        is_positive_(size(X_.n_rows), 0),
        found_(size(X_.n_rows) + 16),
        local_of_(renumber_ ? size(X_.n_cols) : 0, -1) {
    for (LabelState& state : states_) {
      for (Floats* v : {&state.w, &state.w_reference, &state.direction}) v->resize(size(X_.n_cols));
      state.m_reference.resize(size(X_.n_rows));
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
        if (!states_[size(lane)].done) take_full_step(states_[size(lane)], lane, solutions[lane]);
    }
    for (std::int64_t lane = 0; lane < n_labels; ++lane) finish(states_[size(lane)], solutions[lane]);
  }

 private:
  /// Above so many features, conjugate gradients work on those that active rows have, renumbered; below, renumbering
  /// costs more than the longer vectors do.
  static constexpr std::int64_t kRenumberAbove = 16384;
  static constexpr std::int64_t kShare = 8;  // rows looked at between two looks at all: one in so many
  static constexpr int kStepsPerRound = 5;
  static constexpr int kPackedRounds = 4;                 // whose directions come from rows in 16 bits
  static constexpr std::size_t kMostPacked = 16'000'000;  // 16-bit words: so much memory a thread may take

  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  SparseRow row_of(std::int32_t row) const {
    const std::int64_t begin = X_.indptr[row];
    return {X_.indices + begin, X_.data + begin, X_.indptr[row + 1] - begin, 0, nullptr};
  }
  float dot(const SparseRow& row, const float* v) const {
    if (row.packed != nullptr) return kernels_.dot_packed(row.packed, row.n, v) * unpack_;
    return kernels_.dot_sparse(row.indices, row.data, row.n, v);
  }
  void add(const SparseRow& row, float factor, float* out) const {
    if (row.packed != nullptr)
      kernels_.add_packed(row.packed, row.n, factor * unpack_, out);
    else
      kernels_.add_sparse(row.indices, row.data, row.n, factor, out);
  }
  double squared_length(const Floats& v) const { return kernels_.dot_dense(v.data(), v.data(), X_.n_cols); }

  // --- all labels of the panel --------------------------------------------------------------------------------

  /// panel_[feature][lane] = mean of the label's rows
  void gather_positive_means(std::int64_t first_label, std::int64_t n_labels) {
    std::fill(panel_.begin(), panel_.end(), 0.0F);
    for (std::int64_t lane = 0; lane < n_labels; ++lane) {
      const std::int64_t begin = problem_.label_indptr[first_label + lane];
      const std::int64_t end = problem_.label_indptr[first_label + lane + 1];
      const float share = 1.0F / static_cast<float>(std::max<std::int64_t>(end - begin, 1));
      for (std::int64_t r = begin; r < end; ++r) {
        const SparseRow row = row_of(problem_.label_rows[r]);
        for (std::int64_t i = 0; i < row.n; ++i)
          panel_[size(row.indices[i]) * kPanelLabels + size(lane)] += share * row.data[i];
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

  /// w = u * (mean of positives) + v * (mean of all), with u, v such that the two means score +1 and kFar. Aiming
  /// the average row beyond the margin of -1 leaves few negatives inside it, and only those cost anything later.
  void start(std::int64_t label, std::int64_t lane) {
    constexpr double kFar = -3;
    LabelState& state = states_[size(lane)];
    state.label = label;
    state.positives = problem_.label_rows + problem_.label_indptr[label];
    state.n_positive = problem_.label_indptr[label + 1] - problem_.label_indptr[label];
    state.positive_cost = problem_.positive_cost[label];
    state.done = state.n_positive == 0;
    if (state.done) return;

    const double b2 = problem_.bias * problem_.bias;
    double pp = b2;
    double pg = b2;
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      const double p = panel_[size(f * kPanelLabels + lane)];
      pp += p * p;
      pg += p * shared_.mean[size(f)];
    }
    const double gg = shared_.mean_squared + b2;
    const double det = pp * gg - pg * pg;
    double u = 0;
    double v = 0;
    // Means that are nearly parallel would need huge u and v of opposite signs; then zero is the better start.
    if (det > 1e-2 * pp * gg) {
      u = (gg - kFar * pg) / det;
      v = (kFar * pp - pg) / det;
    }
    const auto uf = static_cast<float>(u);
    const auto vf = static_cast<float>(v);
    for (std::int64_t f = 0; f < X_.n_cols; ++f)
      state.w[size(f)] = uf * panel_[size(f * kPanelLabels + lane)] + vf * shared_.mean[size(f)];
    state.b = static_cast<float>((u + v) * problem_.bias);
    float* dots = scores_.data() + lane * X_.n_rows;
    for (std::int64_t i = 0; i < X_.n_rows; ++i)
      state.m_reference[size(i)] = 1 + (uf * dots[i] + vf * shared_.mean_dot[size(i)] + state.b * bias_);
    for (std::int64_t r = 0; r < state.n_positive; ++r) {
      float& m = state.m_reference[size(state.positives[r])];
      m = 2 - m;
    }
    state.w_reference = state.w;
    state.b_reference = state.b;

    // |gradient at 0| = 2 C |sum of c_i s_i x_i|, from the two means.
    const auto n = static_cast<double>(X_.n_rows);
    const auto np = static_cast<double>(state.n_positive);
    const double a = np * (state.positive_cost + 1);
    const double squared = a * a * pp - 2 * a * n * pg + n * n * gg;
    state.stop =
        problem_.eps * std::max(std::min(np, n - np), 1.0) / n * 2 * problem_.C * std::sqrt(std::max(squared, 0.0));
  }

  /// Where m_reference is that of w: the rows to look at are those inside the margin, or no further than `beyond`.
  void look_at(LabelState& state, float beyond) {
    const std::int64_t n = kernels_.find_above(state.m_reference.data(), X_.n_rows, -beyond, found_.data());
    state.rows.clear();
    state.m.clear();
    state.positive_places.clear();
    entries_.clear();
    const auto add_row = [&](std::int32_t row) {
      state.rows.push_back(row);
      state.m.push_back(state.m_reference[size(row)]);
      entries_.push_back(row_of(row));
    };
    for (std::int64_t k = 0; k < n; ++k)
      if (!is_positive_[size(found_[size(k)])]) add_row(found_[size(k)]);
    for (std::int64_t r = 0; r < state.n_positive; ++r) {
      state.positive_places.push_back(static_cast<std::int32_t>(state.rows.size()));
      add_row(state.positives[r]);
    }
  }

  /// Copies the rows looked at side by side into half the bytes: the steps of a round read them many times.
  void pack_rows() {
    std::size_t total = 0;
    for (const SparseRow& row : entries_) total += packed_size(row.n);
    if (total > kMostPacked) return;
    packed_.resize(total);
    std::uint16_t* at = packed_.data();
    for (SparseRow& row : entries_) {
      kernels_.pack_row(row.indices, row.data, row.n, shared_.pack_scale, at);
      row.packed = at;
      at += packed_size(row.n);
    }
  }
  static std::size_t packed_size(std::int64_t n) { return size(2 * ((n + 15) / 16 * 16)); }

  void mark_positives(const LabelState& state, std::uint8_t mark) {
    for (std::int64_t r = 0; r < state.n_positive; ++r) is_positive_[size(state.positives[r])] = mark;
  }

  /// Some Newton steps on the rows nearest to the margin. Ends at the reference, with the whole way as direction; or
  /// done, if the gradient over all rows is short enough.
  void improve(LabelState& state, SvmSolution& solution) {
    mark_positives(state, 1);
    look_at(state, 0);
    find_gradient(state, solution);
    state.done = state.length <= state.stop || solution.rounds >= problem_.max_rounds;
    if (!state.done) {
      // Far enough beyond the margin to see what comes, but not more than a share of the rows.
      float beyond = 1;
      while (beyond > 1e-3F &&
             kernels_.find_above(state.m_reference.data(), X_.n_rows, -beyond, found_.data()) * kShare > X_.n_rows)
        beyond /= 2;
      look_at(state, beyond);
      // What rounding to 16 bits does to a direction is far below what the first rounds leave to do.
      if (!renumber_ && unpack_ > 0 && solution.rounds < kPackedRounds) pack_rows();
      const double enough = std::max(0.5 * state.stop, 0.05 * state.length);
      for (int step = 0; step < kStepsPerRound && state.length > enough; ++step) {
        ++solution.newton_steps;
        solution.cg_steps += compute_direction(state);
        if (!take_step(state, solution)) break;
        find_gradient(state, solution);
        control_.check_in(worker_);
      }
      kernels_.add_dense(state.w.data(), -1, state.w_reference.data(), X_.n_cols, state.direction.data());
      state.b_direction = state.b - state.b_reference;
      state.w = state.w_reference;
      state.b = state.b_reference;
    }
    mark_positives(state, 0);
  }

  void find_gradient(LabelState& state, SvmSolution& solution) {
    gather_active(state);
    solution.active_rows += static_cast<std::int64_t>(active_.size());
    ++solution.gradients;
    state.length = compute_gradient(state);
  }

  /// Rows with m > 0 as sparse rows; features_ says which features their numbers mean.
  void gather_active(const LabelState& state) {
    active_.clear();
    active_m_.clear();
    features_.clear();
    local_indices_.clear();
    for (std::size_t k = 0; k < state.rows.size(); ++k) {
      if (state.m[k] <= 0) continue;
      SparseRow row = entries_[k];
      const bool positive = is_positive_[size(state.rows[k])] != 0;
      row.factor = static_cast<float>(2 * problem_.C * (positive ? state.positive_cost : 1));
      active_.push_back(row);
      active_m_.push_back(positive ? -state.m[k] : state.m[k]);  // -s m
      if (!renumber_) continue;
      for (std::int64_t i = 0; i < row.n; ++i) {
        std::int32_t& local = local_of_[size(row.indices[i])];
        if (local < 0) {
          local = static_cast<std::int32_t>(features_.size());
          features_.push_back(row.indices[i]);
        }
        local_indices_.push_back(local);
      }
    }
    n_local_ = renumber_ ? static_cast<std::int64_t>(features_.size()) : X_.n_cols;
    std::int64_t at = 0;
    if (renumber_)
      for (SparseRow& row : active_) {
        row.indices = local_indices_.data() + at;
        at += row.n;
      }
    for (const std::int32_t f : features_) local_of_[size(f)] = -1;
  }

  /// gradient_ = that of the local features, the bias's last. Returns its length over all features: on those no
  /// active row has it is w.
  double compute_gradient(const LabelState& state) {
    gradient_.resize(size(n_local_) + 1);
    if (renumber_)
      for (std::size_t f = 0; f < features_.size(); ++f) gradient_[f] = state.w[size(features_[f])];
    else
      std::copy(state.w.begin(), state.w.end(), gradient_.begin());
    gradient_[size(n_local_)] = 0;
    const double outside =
        renumber_ ? squared_length(state.w) - kernels_.dot_dense(gradient_.data(), gradient_.data(), n_local_) : 0;
    double bias_sum = state.b;
    for (std::size_t a = 0; a < active_.size(); ++a) {
      const float factor = active_[a].factor * active_m_[a];
      add(active_[a], factor, gradient_.data());
      bias_sum += double{factor} * bias_;
    }
    gradient_[size(n_local_)] = bias_ > 0 ? static_cast<float>(bias_sum) : 0.0F;
    return std::sqrt(std::max(outside, 0.0) + kernels_.dot_dense(gradient_.data(), gradient_.data(), n_local_ + 1));
  }

  /// Conjugate gradients for H d = -g on the local features; on the others H is 1 and d = -w. Without a
  /// preconditioner: the diagonal of H takes twice the steps.
  int compute_direction(LabelState& state) {
    const std::int64_t n = n_local_ + 1;
    solution_.assign(size(n), 0.0F);
    residual_.resize(size(n));
    for (std::size_t f = 0; f < size(n); ++f) residual_[f] = -gradient_[f];
    search_ = residual_;
    product_.resize(size(n));
    double rho = kernels_.dot_dense(residual_.data(), residual_.data(), n);
    const double enough = 0.1 * 0.1 * state.length * state.length;
    constexpr int kMostSteps = 200;
    int steps = 0;
    for (; steps < kMostSteps && rho > enough; ++steps) {
      product_ = search_;
      const float search_bias = search_[size(n_local_)];
      double bias_sum = search_bias;
      for (const SparseRow& row : active_) {
        const float factor = row.factor * (dot(row, search_.data()) + bias_ * search_bias);
        add(row, factor, product_.data());
        bias_sum += double{factor} * bias_;
      }
      product_[size(n_local_)] = static_cast<float>(bias_sum);
      const double curvature = kernels_.dot_dense(search_.data(), product_.data(), n);
      if (!(curvature > 0)) break;
      const auto alpha = static_cast<float>(rho / curvature);
      kernels_.add_dense(solution_.data(), alpha, search_.data(), n, solution_.data());
      kernels_.add_dense(residual_.data(), -alpha, product_.data(), n, residual_.data());
      const double next = kernels_.dot_dense(residual_.data(), residual_.data(), n);
      kernels_.add_dense(residual_.data(), static_cast<float>(next / rho), search_.data(), n, search_.data());
      rho = next;
    }
    if (renumber_) {
      for (std::int64_t f = 0; f < X_.n_cols; ++f) state.direction[size(f)] = -state.w[size(f)];
      for (std::size_t f = 0; f < features_.size(); ++f) state.direction[size(features_[f])] = solution_[f];
    } else {
      std::copy_n(solution_.begin(), X_.n_cols, state.direction.begin());
    }
    state.b_direction = bias_ > 0 ? solution_[size(n_local_)] : 0.0F;
    return steps;
  }

  /// To the least of the objective over the rows looked at along the direction. False if float32 sees no descent.
  bool take_step(LabelState& state, SvmSolution& solution) {
    const auto n = static_cast<std::int64_t>(state.rows.size());
    slope_.resize(size(n));
    const float constant = state.b_direction * bias_;
    for (std::int64_t k = 0; k < n; ++k) slope_[size(k)] = dot(entries_[size(k)], state.direction.data()) + constant;
    for (const std::int32_t place : state.positive_places) slope_[size(place)] = -slope_[size(place)];
    solution.checked_rows += n;
    const float t = search_line(state, state.m.data(), slope_.data(), n, state.positive_places.data());
    if (t <= 0) return false;
    kernels_.add_dense(state.m.data(), t, slope_.data(), n, state.m.data());
    move(state, t);
    return true;
  }

  /// The same over all rows, whose scores are there.
  void take_full_step(LabelState& state, std::int64_t lane, SvmSolution& solution) {
    complete_slopes(state, lane, state.b_direction * bias_);
    const float* slopes = scores_.data() + lane * X_.n_rows;
    solution.checked_rows += X_.n_rows;
    ++solution.rounds;
    const float t = search_line(state, state.m_reference.data(), slopes, X_.n_rows, state.positives);
    state.done = t <= 0;  // float32 sees no descent any more
    if (state.done) return;
    kernels_.add_dense(state.m_reference.data(), t, slopes, X_.n_rows, state.m_reference.data());
    move(state, t);
    state.w_reference = state.w;
    state.b_reference = state.b;
  }

  void move(LabelState& state, float t) {
    kernels_.add_dense(state.w.data(), t, state.direction.data(), X_.n_cols, state.w.data());
    state.b += t * state.b_direction;
  }

  /// Where in (0, 1] the objective along the direction is least; 0 if float32 sees no descent any more. The
  /// derivative is piecewise linear and rises, so Newton's method kept inside a bracket finds its zero. `positives`
  /// are the places of the label's rows in m and slope: they count positive_cost times.
  float search_line(const LabelState& state, const float* m, const float* slope, std::int64_t n,
                    const std::int32_t* positives) {
    const double wd =
        kernels_.dot_dense(state.w.data(), state.direction.data(), X_.n_cols) + double{state.b} * state.b_direction;
    const double dd = squared_length(state.direction) + double{state.b_direction} * state.b_direction;
    const double extra = state.positive_cost - 1;
    const auto derivatives = [&](double t) {
      double first = 0;
      double second = 0;
      kernels_.line_derivatives(m, slope, n, static_cast<float>(t), &first, &second);
      for (std::int64_t r = 0; extra != 0 && r < state.n_positive; ++r) {
        const double d = slope[positives[r]];
        const double value = m[positives[r]] + t * d;
        if (value > 0) first += extra * value * d, second += extra * d * d;
      }
      return std::pair<double, double>(wd + t * dd + 2 * problem_.C * first, dd + 2 * problem_.C * second);
    };
    const double at_zero = derivatives(0).first;
    if (!(at_zero < 0)) return 0;
    double low = 0;
    double high = 1;
    double t = 1;
    for (int i = 0; i < 30; ++i) {
      const auto [first, second] = derivatives(t);
      if (std::abs(first) <= 1e-3 * std::abs(at_zero) || (t >= 1 && first <= 0)) break;
      (first > 0 ? high : low) = t;
      const double newton = t - first / second;
      t = newton > low && newton < high ? newton : (low + high) / 2;
    }
    return static_cast<float>(t);
  }

  void finish(const LabelState& state, SvmSolution& solution) {
    if (state.n_positive == 0) return;
    solution.gradient = state.stop > 0 ? state.length / state.stop : 0;
    double loss = 0;
    for (const float m : state.m_reference) loss += m > 0 ? double{m} * m : 0;
    for (std::int64_t r = 0; r < state.n_positive; ++r) {
      const float m = state.m_reference[size(state.positives[r])];
      loss += m > 0 ? (state.positive_cost - 1) * double{m} * m : 0;
    }
    solution.objective = 0.5 * (squared_length(state.w) + double{state.b} * state.b) + problem_.C * loss;
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      const float w = state.w[size(f)];
      if (std::abs(w) < problem_.prune || w == 0) continue;
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
  const bool renumber_;
  const float bias_;
  const float unpack_;  // what a packed value is multiplied by; 0 if rows are not packed
  const NewtonKernels& kernels_ = newton_kernels();

  std::vector<LabelState> states_;
  Floats panel_, block_, scores_;

  // scratch of the label at hand
  Floats gradient_, solution_, residual_, search_, product_;
  std::vector<SparseRow> entries_;  // of the rows looked at
  AlignedVector<std::uint16_t> packed_;
  std::vector<SparseRow> active_;
  std::vector<float> active_m_;
  std::int64_t n_local_ = 0;
  std::vector<std::uint8_t> is_positive_;  // by row
  std::vector<std::int32_t> found_;
  std::vector<std::int32_t> features_, local_of_, local_indices_;
  Floats slope_;
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
