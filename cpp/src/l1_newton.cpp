#include "umpteen/l1_newton.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace umpteen {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSufficient = 0.01;  // a step must give this part of the decrease the model promises
constexpr int kMaxHalvings = 20;

constexpr int kDriftingSteps = 16;         // after so many steps the rows' scores are summed anew
constexpr std::int64_t kShortColumn = 16;  // below this mean length gradients are found by rows

/// How far a column's gradient is from optimal. Without branches, which would be unpredictable.
float violation_of(float w, float gradient) {
  const float at_zero = std::max(std::abs(gradient) - 1, 0.0F);
  const float elsewhere = std::abs(gradient + std::copysign(1.0F, w));
  return w == 0 ? at_zero : elsewhere;
}

double sum_of_magnitudes(const float* w, std::int64_t n) {
  double total = 0;
  for (std::int64_t j = 0; j < n; ++j) total += std::abs(double{w[j]});
  return total;
}

}  // namespace

template <typename Row>
L1Report L1Newton<Row>::solve(MarginLoss loss, const L1Problem<Row>& problem, const L1Options& options, float* w,
                              Control& control, int worker) {
  const auto n_cols = static_cast<std::size_t>(problem.X.n_cols);
  reset(problem, options);
  L1Report report;
  double shrink = kInfinity;
  double at_zero = -1;  // the violations there; not known yet
  Objective now{0, sum_of_magnitudes(w, problem.X.n_cols)};
  if (now.length > 0) {
    start_w_.assign(n_cols, 0.0F);
    find_derivatives(loss, problem);
    at_zero = find_violations(problem, start_w_.data(), shrink);
    find_scores(problem, w);
  }
  now.loss = total_loss(loss, problem, 0);
  for (;;) {
    control.check_in(worker);
    find_derivatives(loss, problem);
    const double violations = find_violations(problem, w, shrink);
    if (at_zero < 0) at_zero = violations;
    report.violation = at_zero > 0 ? violations / at_zero : 0;
    if (violations <= options.eps * at_zero) {
      report.converged = active_.size() == n_cols;
      if (report.converged) break;
      // Done as far as the active columns show: look at all again.
      activate_all(n_cols);
      shrink = kInfinity;
      continue;
    }
    if (report.outer == options.max_outer) break;
    ++report.outer;
    shrink = largest_violation_ / static_cast<double>(problem.X.n_rows);

    choose_columns(problem, w);
    const int passes = descend(problem, options, at_zero);
    report.inner += passes;
    if (passes == 1) inner_eps_ *= 0.25;
    if (!take_step(loss, problem, w, now)) break;  // as low as these digits go
    if (report.outer % kDriftingSteps == 0) {
      find_scores(problem, w);
      now.loss = total_loss(loss, problem, 0);
    }
  }
  report.objective = now.loss + sum_of_magnitudes(w, problem.X.n_cols);
  return report;
}

template <typename Row>
void L1Newton<Row>::reset(const L1Problem<Row>& problem, const L1Options& options) {
  const auto n_rows = static_cast<std::size_t>(problem.X.n_rows);
  const auto n_cols = static_cast<std::size_t>(problem.X.n_cols);
  wx_.assign(n_rows, 0.0F);
  direction_.assign(n_rows, 0.0F);
  slope_.resize(n_rows);
  root_.resize(n_rows);
  root_cost_.resize(n_rows);
  for (std::size_t i = 0; i < n_rows; ++i) root_cost_[i] = std::sqrt(problem.cost[i]);
  gradient_.resize(n_cols);
  activate_all(n_cols);
  inner_eps_ = 1;
  random_ = Random(options.seed);
}

template <typename Row>
void L1Newton<Row>::activate_all(std::size_t n_cols) {
  active_.resize(n_cols);
  std::iota(active_.begin(), active_.end(), 0);
}

/// Slopes and roots of curvatures by row, at the scores.
template <typename Row>
void L1Newton<Row>::find_derivatives(MarginLoss loss, const L1Problem<Row>& problem) {
  kernels_.derivatives(loss, problem.X.n_rows, wx_.data(), problem.sign, problem.cost, root_cost_.data(),
                       slope_.data(), root_.data());
}

/// At `step` along the direction.
template <typename Row>
double L1Newton<Row>::total_loss(MarginLoss loss, const L1Problem<Row>& problem, float step) const {
  return kernels_.total_loss(loss, problem.X.n_rows, wx_.data(), direction_.data(), step, problem.sign, problem.cost);
}

/// Moves towards the model's minimiser by a step that is halved until the objective falls enough. False if it never
/// does.
template <typename Row>
bool L1Newton<Row>::take_step(MarginLoss loss, const L1Problem<Row>& problem, float* w, Objective& now) {
  // What the model promises along the direction; by row, what has moved is the direction scaled.
  double promise = 0;
  double new_length = 0;
  for (std::size_t k = 0; k < chosen_.size(); ++k) {
    new_length += std::abs(double{new_[k]});
    promise += double{model_gradient_[k]} * (new_[k] - old_[k]);
  }
  promise += new_length - now.length;
  for (std::size_t i = 0; i < wx_.size(); ++i) direction_[i] /= root_[i];

  float step = 1;
  for (int halvings = 0; halvings < kMaxHalvings; ++halvings, step *= 0.5F) {
    if (halvings > 0) {
      new_length = 0;
      for (std::size_t k = 0; k < chosen_.size(); ++k)
        new_length += std::abs(double{old_[k] + step * (new_[k] - old_[k])});
    }
    const double trial = total_loss(loss, problem, step);
    if (trial + new_length - now.loss - now.length > kSufficient * step * promise) continue;
    now = {trial, new_length};
    for (std::size_t k = 0; k < chosen_.size(); ++k)
      w[chosen_[k]] = halvings == 0 ? new_[k] : old_[k] + step * (new_[k] - old_[k]);
    for (std::size_t i = 0; i < wx_.size(); ++i) wx_[i] += step * direction_[i];
    return true;
  }
  return false;
}

/// w.x of every row, from nothing.
template <typename Row>
void L1Newton<Row>::find_scores(const L1Problem<Row>& problem, const float* w) {
  const ColumnsView<Row>& X = problem.X;
  std::fill(wx_.begin(), wx_.end(), 0.0F);
  for (std::int64_t c = 0; c < X.n_cols; ++c)
    if (w[c] != 0)
      kernels_.add_column(X.start[c + 1] - X.start[c], X.rows + X.start[c], X.values + X.start[c], w[c], wx_.data());
}

/// The gradient of the active columns, and maybe of others.
template <typename Row>
void L1Newton<Row>::find_gradient(const L1Problem<Row>& problem) {
  const ColumnsView<Row>& X = problem.X;
  const RowsView& by_rows = problem.by_rows;
  if (by_rows.X == nullptr || X.start[X.n_cols] >= kShortColumn * X.n_cols) {
    kernels_.column_dots(static_cast<std::int64_t>(active_.size()), active_.data(), X.start, X.rows, X.values,
                         slope_.data(), gradient_.data());
    return;
  }
  by_feature_.resize(static_cast<std::size_t>(by_rows.X->n_cols) + 1);
  for (std::int64_t c = 0; c < X.n_cols; ++c) by_feature_[static_cast<std::size_t>(by_rows.features[c])] = 0;
  kernels_.add_rows(X.n_rows, by_rows.ids, *by_rows.X, slope_.data(), by_feature_.data());
  by_feature_.back() = by_rows.constant * std::accumulate(slope_.begin(), slope_.end(), 0.0F);
  for (std::int64_t c = 0; c < X.n_cols; ++c)
    gradient_[static_cast<std::size_t>(c)] = by_feature_[static_cast<std::size_t>(by_rows.features[c])];
}

/// The sum of the active columns' violations. Columns at zero whose gradient lies well inside [-1, 1] are no longer
/// active.
template <typename Row>
double L1Newton<Row>::find_violations(const L1Problem<Row>& problem, const float* w, double shrink) {
  find_gradient(problem);
  double total = 0;
  float largest = 0;
  const auto inside = static_cast<float>(1 - shrink);
  std::size_t n_left = 0;
  for (const std::int32_t c : active_) {
    const float gradient = gradient_[static_cast<std::size_t>(c)];
    const float violation = violation_of(w[c], gradient);
    total += double{violation};
    largest = std::max(largest, violation);
    active_[n_left] = c;
    n_left += static_cast<std::size_t>(w[c] != 0) | static_cast<std::size_t>(std::abs(gradient) >= inside);
  }
  largest_violation_ = double{largest};
  active_.resize(n_left);
  return total;
}

/// The columns whose weights may move: those that are not zero, and of those that would leave it the ones that would
/// it most. The others stay where they are; the next gradient will show them.
template <typename Row>
void L1Newton<Row>::choose_columns(const L1Problem<Row>& problem, const float* w) {
  const ColumnsView<Row>& X = problem.X;
  chosen_.resize(active_.size());
  leaving_.resize(active_.size());
  std::size_t n_chosen = 0;
  std::size_t n_leaving = 0;
  for (const std::int32_t c : active_) {
    const float size = std::abs(gradient_[static_cast<std::size_t>(c)]);
    chosen_[n_chosen] = c;
    n_chosen += w[c] != 0;
    // By falling gradient, then by column: positive floats sort as their bits do.
    leaving_[n_leaving] =
        static_cast<std::uint64_t>(~std::bit_cast<std::uint32_t>(size)) << 32 | static_cast<std::uint32_t>(c);
    n_leaving += static_cast<std::size_t>(w[c] == 0) & static_cast<std::size_t>(size > 1);
  }
  chosen_.resize(n_chosen);
  leaving_.resize(n_leaving);
  // No more new ones at a time than there are rows or old ones: a solution seldom needs more, and a short list is
  // quick.
  const std::size_t most = std::max({std::size_t{32}, static_cast<std::size_t>(X.n_rows), n_chosen});
  if (n_leaving > most) {
    std::nth_element(leaving_.begin(), leaving_.begin() + static_cast<std::ptrdiff_t>(most), leaving_.end());
    leaving_.resize(most);
  }
  for (const std::uint64_t key : leaving_) chosen_.push_back(static_cast<std::int32_t>(key & 0xffffffffU));
  start_.assign(1, 0);
  for (const std::int32_t c : chosen_) start_.push_back(start_.back() + X.start[c + 1] - X.start[c]);
  const std::size_t n = chosen_.size();
  rows_.resize(n);
  values_.resize(static_cast<std::size_t>(start_.back()));
  diagonal_.resize(n);
  model_gradient_.resize(n);
  old_.resize(n);
  for (std::size_t k = 0; k < n; ++k) {
    const std::int32_t c = chosen_[k];
    const std::int64_t begin = X.start[c];
    const std::int64_t size = X.start[c + 1] - begin;
    rows_[k] = X.rows + begin;
    diagonal_[k] =
        kernels_.scale_column(size, X.rows + begin, X.values + begin, root_.data(), values_.data() + start_[k]) +
        1e-12F;
    model_gradient_[k] = gradient_[static_cast<std::size_t>(c)];
    old_[k] = w[c];
  }
  new_ = old_;
}

/// Passes over the chosen columns until the model's own violations are small; returns how many it took.
template <typename Row>
int L1Newton<Row>::descend(const L1Problem<Row>& problem, const L1Options& options, double at_zero) {
  const std::size_t n = chosen_.size();
  moving_.resize(n);
  std::iota(moving_.begin(), moving_.end(), 0);
  std::fill(direction_.begin(), direction_.end(), 0.0F);
  L1Pass<Row> pass{start_.data(),
                   values_.data(),
                   rows_.data(),
                   model_gradient_.data(),
                   diagonal_.data(),
                   new_.data(),
                   direction_.data(),
                   std::numeric_limits<float>::infinity(),
                   0,
                   0};
  int passes = 0;
  while (passes < options.max_inner) {
    // In random order: neighbouring columns are often alike, and the first visited takes all the weight.
    for (std::size_t i = 0; i + 1 < moving_.size(); ++i)
      std::swap(moving_[i], moving_[i + random_.below(moving_.size() - i)]);
    const std::int64_t n_left = kernels_.descend(static_cast<std::int64_t>(moving_.size()), moving_.data(), pass);
    ++passes;
    moving_.resize(static_cast<std::size_t>(n_left));
    if (pass.violations <= inner_eps_ * at_zero) {
      if (moving_.size() == n) break;
      moving_.resize(n);
      std::iota(moving_.begin(), moving_.end(), 0);
      pass.shrink = std::numeric_limits<float>::infinity();
      continue;
    }
    pass.shrink = static_cast<float>(pass.largest / static_cast<double>(problem.X.n_rows));
  }
  return passes;
}

template class L1Newton<std::uint16_t>;
template class L1Newton<std::int32_t>;

}  // namespace umpteen
