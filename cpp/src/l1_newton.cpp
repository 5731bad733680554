#include "umpteen/l1_newton.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace umpteen {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSufficient = 0.01;  // a step must give this part of the decrease the model promises
constexpr int kMaxHalvings = 20;

/// How far a column's gradient is from optimal.
float violation_of(float w, float gradient) {
  if (w > 0) return std::abs(gradient + 1);
  if (w < 0) return std::abs(gradient - 1);
  return std::max(std::abs(gradient) - 1, 0.0F);
}

double sum_of_magnitudes(const float* w, std::int64_t n) {
  double total = 0;
  for (std::int64_t j = 0; j < n; ++j) total += std::abs(double{w[j]});
  return total;
}

}  // namespace

L1Report L1Newton::solve(L1Loss loss, const L1Problem& problem, const L1Options& options, float* w, Control& control,
                         int worker) {
  const ColumnsView& X = problem.X;
  const auto n_rows = static_cast<std::size_t>(X.n_rows);
  const auto n_cols = static_cast<std::size_t>(X.n_cols);
  wx_.assign(n_rows, 0.0F);
  direction_.assign(n_rows, 0.0F);
  slope_.resize(n_rows);
  root_.resize(n_rows);
  root_cost_.resize(n_rows);
  for (std::size_t i = 0; i < n_rows; ++i) root_cost_[i] = std::sqrt(problem.cost[i]);
  gradient_.resize(n_cols);
  active_.resize(n_cols);
  std::iota(active_.begin(), active_.end(), 0);
  inner_eps_ = 1;
  random_ = Random(options.seed);

  const auto total_loss = [&](float step) {
    return kernels_.total_loss(loss, X.n_rows, wx_.data(), direction_.data(), step, problem.sign, problem.cost);
  };
  L1Report report;
  double shrink = kInfinity;
  double at_zero = -1;  // the violations there; not known yet
  double length = sum_of_magnitudes(w, X.n_cols);
  if (length > 0) {
    start_w_.assign(n_cols, 0.0F);
    kernels_.derivatives(loss, X.n_rows, wx_.data(), problem.sign, problem.cost, root_cost_.data(), slope_.data(),
                         root_.data());
    at_zero = find_violations(problem, start_w_.data(), shrink);
    for (std::size_t c = 0; c < n_cols; ++c)
      if (w[c] != 0)
        kernels_.add_column(X.start[c + 1] - X.start[c], X.rows + X.start[c], X.values + X.start[c], w[c],
                            wx_.data());
  }
  double value = total_loss(0);
  for (;;) {
    control.check_in(worker);
    kernels_.derivatives(loss, X.n_rows, wx_.data(), problem.sign, problem.cost, root_cost_.data(), slope_.data(),
                         root_.data());
    const double violations = find_violations(problem, w, shrink);
    if (at_zero < 0) at_zero = violations;
    report.violation = at_zero > 0 ? violations / at_zero : 0;
    if (violations <= options.eps * at_zero) {
      report.converged = active_.size() == n_cols;
      if (report.converged) break;
      // Done as far as one can see: look at all columns again.
      active_.resize(n_cols);
      std::iota(active_.begin(), active_.end(), 0);
      shrink = kInfinity;
      continue;
    }
    if (report.outer == options.max_outer) break;
    ++report.outer;
    shrink = largest_violation_ / static_cast<double>(X.n_rows);

    choose_columns(problem, w);
    const int passes = descend(problem, options, at_zero);
    report.inner += passes;
    if (passes == 1) inner_eps_ *= 0.25;

    // The direction, by column and by row; what the model promises along it.
    std::fill(direction_.begin(), direction_.end(), 0.0F);
    double promise = 0;
    double new_length = 0;
    for (std::size_t k = 0; k < chosen_.size(); ++k) {
      new_length += std::abs(double{new_[k]});
      const float step = new_[k] - old_[k];
      if (step == 0) continue;
      const std::int64_t begin = X.start[chosen_[k]];
      promise += double{model_gradient_[k]} * step;
      kernels_.add_column(X.start[chosen_[k] + 1] - begin, X.rows + begin, X.values + begin, step, direction_.data());
    }
    promise += new_length - length;

    float step = 1;
    int halvings = 0;
    for (; halvings < kMaxHalvings; ++halvings, step *= 0.5F) {
      if (halvings > 0) {
        new_length = 0;
        for (std::size_t k = 0; k < chosen_.size(); ++k)
          new_length += std::abs(double{old_[k] + step * (new_[k] - old_[k])});
      }
      const double trial = total_loss(step);
      if (trial + new_length - value - length > kSufficient * step * promise) continue;
      value = trial;
      length = new_length;
      for (std::size_t k = 0; k < chosen_.size(); ++k)
        w[chosen_[k]] = halvings == 0 ? new_[k] : old_[k] + step * (new_[k] - old_[k]);
      for (std::size_t i = 0; i < n_rows; ++i) wx_[i] += step * direction_[i];
      break;
    }
    if (halvings == kMaxHalvings) break;  // as low as these digits go
  }
  report.objective = value + sum_of_magnitudes(w, X.n_cols);
  return report;
}

/// The gradient of the active columns and the sum of their violations. Columns at zero whose gradient lies well
/// inside [-1, 1] are no longer active.
double L1Newton::find_violations(const L1Problem& problem, const float* w, double shrink) {
  const ColumnsView& X = problem.X;
  kernels_.column_dots(static_cast<std::int64_t>(active_.size()), active_.data(), X.start, X.rows, X.values,
                       slope_.data(), gradient_.data());
  double total = 0;
  largest_violation_ = 0;
  const auto inside = static_cast<float>(1 - shrink);
  std::size_t n_left = 0;
  for (const std::int32_t c : active_) {
    const float violation = violation_of(w[c], gradient_[static_cast<std::size_t>(c)]);
    total += double{violation};
    largest_violation_ = std::max(largest_violation_, double{violation});
    if (w[c] != 0 || std::abs(gradient_[static_cast<std::size_t>(c)]) >= inside) active_[n_left++] = c;
  }
  active_.resize(n_left);
  return total;
}

/// The columns whose weights may move: those that are not zero, and of those that want to leave it the ones that want
/// it most. The others stay where they are; the next gradient will show them.
void L1Newton::choose_columns(const L1Problem& problem, const float* w) {
  const ColumnsView& X = problem.X;
  chosen_.clear();
  leaving_.clear();
  for (const std::int32_t c : active_) {
    if (w[c] != 0)
      chosen_.push_back(c);
    else if (std::abs(gradient_[static_cast<std::size_t>(c)]) > 1)
      leaving_.push_back(c);
  }
  // No more new ones at a time than there are rows or old ones: a solution seldom needs more, and a short list is
  // quick.
  const std::size_t most = std::max({std::size_t{32}, static_cast<std::size_t>(X.n_rows), chosen_.size()});
  if (leaving_.size() > most) {
    std::nth_element(leaving_.begin(), leaving_.begin() + static_cast<std::ptrdiff_t>(most), leaving_.end(),
                     [&](std::int32_t a, std::int32_t b) {
                       const float ga = std::abs(gradient_[static_cast<std::size_t>(a)]);
                       const float gb = std::abs(gradient_[static_cast<std::size_t>(b)]);
                       return ga != gb ? ga > gb : a < b;
                     });
    leaving_.resize(most);
  }
  chosen_.insert(chosen_.end(), leaving_.begin(), leaving_.end());
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
int L1Newton::descend(const L1Problem& problem, const L1Options& options, double at_zero) {
  const std::size_t n = chosen_.size();
  moving_.resize(n);
  std::iota(moving_.begin(), moving_.end(), 0);
  std::fill(direction_.begin(), direction_.end(), 0.0F);
  L1Pass pass{start_.data(),
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
    // In random order: columns that lie side by side are often alike, and who comes first takes it all.
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

}  // namespace umpteen
