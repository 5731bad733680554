#include "near_margin_rows.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../as_size.hpp"
#include "../soften.hpp"
#include "line_search.hpp"
#include "penalty.hpp"

namespace umpteen {

namespace {

/// Above this many features, the local ones are renumbered; below, that costs more than longer vectors do.
constexpr std::int64_t kRenumberAbove = 16384;
constexpr std::size_t kMostPacked = 16'000'000;  // 16-bit words: so much memory a thread may take
constexpr int kMostSteps = 5;
constexpr int kMostProducts = 200;
constexpr int kMostSweeps = 50;
constexpr double kDirectionAccuracy = 0.1;  // how far a direction's residual, or violation, is to fall
constexpr double kLeastCurvature = 1e-6;

std::size_t packed_size(std::int64_t n) { return as_size(2 * ((n + 15) / 16 * 16)); }

}  // namespace

NearMarginRows::NearMarginRows(const OneVsRestProblem& problem, Penalty penalty, const Floats& mean, float pack_scale,
                               Control& control, int worker)
    : problem_(problem),
      penalty_(penalty),
      X_(problem.X),
      mean_(mean),
      control_(control),
      worker_(worker),
      renumber_(X_.n_cols > kRenumberAbove),
      bias_(static_cast<float>(problem.bias)),
      // Coordinate descent reads columns, and its few rows only once a step.
      pack_scale_(penalty == Penalty::kL2 ? pack_scale : 0),
      unpack_(pack_scale > 0 ? 1 / pack_scale : 0),
      local_of_(renumber_ ? as_size(X_.n_cols) : 0, -1) {}

void NearMarginRows::clear() {
  rows_.clear();
  m_.clear();
  ranges_.clear();
}

void NearMarginRows::begin(double cost, bool positive) {
  ranges_.push_back({size(), static_cast<float>(2 * problem_.C * cost), positive ? -1.0F : 1.0F});
}

void NearMarginRows::add(std::int32_t row, float m) {
  const std::int64_t begin = X_.indptr[row];
  rows_.push_back({X_.indices + begin, X_.data + begin, nullptr, X_.indptr[row + 1] - begin, ranges_.back().factor,
                   ranges_.back().toward});
  m_.push_back(m);
}

/// Gives the features of the rows consecutive numbers, where most features of X are in none of them.
void NearMarginRows::number_features() {
  n_local_ = X_.n_cols;
  if (!renumber_) {
    if (local_mean_.empty()) local_mean_ = mean_;  // the same for every label
    return;
  }
  features_.clear();
  local_indices_.clear();
  for (const Row& row : rows_)
    for (std::int64_t i = 0; i < row.n; ++i) {
      std::int32_t& local = local_of_[as_size(row.indices[i])];
      if (local < 0) {
        local = static_cast<std::int32_t>(features_.size());
        features_.push_back(row.indices[i]);
      }
      local_indices_.push_back(local);
    }
  std::int64_t at = 0;
  for (Row& row : rows_) {
    row.indices = local_indices_.data() + at;
    at += row.n;
  }
  n_local_ = static_cast<std::int64_t>(features_.size());
  local_mean_.resize(features_.size());
  for (std::size_t f = 0; f < features_.size(); ++f) {
    local_of_[as_size(features_[f])] = -1;
    local_mean_[f] = mean_[as_size(features_[f])];
  }
}

/// Copies the rows side by side into half the bytes: the steps read them many times.
void NearMarginRows::pack() {
  std::size_t total = 0;
  for (const Row& row : rows_) total += packed_size(row.n);
  if (pack_scale_ == 0 || n_local_ > kMostPackedFeatures || total > kMostPacked) return;
  packed_.resize(total);
  std::uint16_t* at = packed_.data();
  for (Row& row : rows_) {
    kernels_.pack_row(row.indices, row.data, row.n, pack_scale_, at);
    row.packed = at;
    at += packed_size(row.n);
  }
}

void NearMarginRows::improve(const Floats& w, float b, const Floats& loss_gradient,
                             const std::vector<RestGroup>& rest, double enough, Floats& direction, float& b_direction,
                             OneVsRestSolution& solution) {
  number_features();
  pack();
  const std::size_t n = as_size(n_local_) + 1;
  take_local(w, b, w_);
  rest_ = rest;
  correction_.assign(n, 0.0F);
  compute_gradient();
  // The part of the gradient that is due to other rows.
  take_local(loss_gradient, loss_gradient.back(), correction_);
  for (std::size_t f = 0; f < n; ++f) correction_[f] -= loss_[f];
  compute_gradient();
  for (int step = 0; step < kMostSteps && gradient_length() > enough; ++step) {
    ++solution.newton_steps;
    solution.cg_steps += penalty_ == Penalty::kL2 ? compute_newton_direction() : compute_sparse_direction();
    solution.checked_rows += size();
    if (!take_step()) break;
    compute_gradient();
    control_.check_in(worker_);
  }
  write_direction(w, b, loss_gradient, direction, b_direction);
}

/// A vector over all features, restricted to the local ones.
void NearMarginRows::take_local(const Floats& from, float bias, Floats& to) const {
  const std::size_t n = as_size(n_local_) + 1;
  to.resize(n);
  if (renumber_)
    for (std::size_t f = 0; f < features_.size(); ++f) to[f] = from[as_size(features_[f])];
  else
    std::copy_n(from.begin(), n_local_, to.begin());
  to[n - 1] = bias;
}

/// The change from (w, b) to (w_, its bias).
void NearMarginRows::write_direction(const Floats& w, float b, const Floats& loss_gradient, Floats& direction,
                                     float& b_direction) {
  b_direction = w_[as_size(n_local_)] - b;
  if (!renumber_) {
    kernels_.add_dense(w_.data(), -1, w.data(), X_.n_cols, direction.data());
    return;
  }
  // Features that none of these rows have: one step with curvature 1, that of the penalty.
  for (std::size_t f = 0; f < direction.size(); ++f)
    direction[f] = penalty_ == Penalty::kL2 ? -(w[f] + loss_gradient[f]) : soften(w[f] - loss_gradient[f], 1) - w[f];
  for (std::size_t f = 0; f < features_.size(); ++f)
    direction[as_size(features_[f])] = w_[f] - w[as_size(features_[f])];
}

/// loss_ = gradient of the loss, gradient_ = that of the objective.
void NearMarginRows::compute_gradient() {
  const std::size_t n = as_size(n_local_) + 1;
  loss_ = correction_;
  double bias_sum = 0;
  active_.clear();
  for (std::size_t k = 0; k < rows_.size(); ++k) {
    if (m_[k] <= 0) continue;
    active_.push_back(static_cast<std::int32_t>(k));
    const float factor = rows_[k].factor * rows_[k].toward * m_[k];
    add_to(rows_[k], factor, loss_.data());
    bias_sum += double{factor} * bias_;
  }
  rest_curvature_ = 0;
  float rest_force = 0;
  for (const RestGroup& group : rest_)
    if (group.m > 0) rest_curvature_ += group.factor, rest_force += group.factor * group.m;
  if (rest_curvature_ > 0) {
    kernels_.add_dense(loss_.data(), rest_force, local_mean_.data(), n_local_, loss_.data());
    bias_sum += double{rest_force} * bias_;
  }
  loss_[n - 1] += static_cast<float>(bias_sum);
  gradient_.resize(n);
  if (penalty_ == Penalty::kL2)
    kernels_.add_dense(w_.data(), 1, loss_.data(), n_local_ + 1, gradient_.data());
  else
    for (std::size_t f = 0; f < n; ++f) gradient_[f] = least_gradient(penalty_, w_[f], loss_[f]);
  if (bias_ == 0) gradient_[n - 1] = 0;
}

double NearMarginRows::gradient_length() const {
  return std::sqrt(kernels_.dot_dense(gradient_.data(), gradient_.data(), n_local_ + 1));
}

/// Conjugate gradients for H d = -g. Without a preconditioner: the diagonal of H takes twice the steps.
int NearMarginRows::compute_newton_direction() {
  const std::int64_t n = n_local_ + 1;
  direction_.assign(as_size(n), 0.0F);
  residual_.resize(as_size(n));
  for (std::size_t f = 0; f < as_size(n); ++f) residual_[f] = -gradient_[f];
  search_ = residual_;
  double rho = kernels_.dot_dense(residual_.data(), residual_.data(), n);
  const double enough = kDirectionAccuracy * kDirectionAccuracy * rho;
  int steps = 0;
  for (; steps < kMostProducts && rho > enough; ++steps) {
    product_ = search_;
    const float search_bias = search_[as_size(n_local_)] * bias_;
    double bias_sum = search_[as_size(n_local_)];
    for (const std::int32_t k : active_) {
      const Row& row = rows_[as_size(k)];
      const float factor = row.factor * (dot(row, search_.data()) + search_bias);
      add_to(row, factor, product_.data());
      bias_sum += double{factor} * bias_;
    }
    if (rest_curvature_ > 0) {
      const auto score = static_cast<float>(kernels_.dot_dense(local_mean_.data(), search_.data(), n_local_));
      const float factor = rest_curvature_ * (score + search_bias);
      kernels_.add_dense(product_.data(), factor, local_mean_.data(), n_local_, product_.data());
      bias_sum += double{factor} * bias_;
    }
    product_[as_size(n_local_)] = static_cast<float>(bias_sum);
    const double curvature = kernels_.dot_dense(search_.data(), product_.data(), n);
    if (!(curvature > 0)) break;
    const auto alpha = static_cast<float>(rho / curvature);
    kernels_.add_dense(direction_.data(), alpha, search_.data(), n, direction_.data());
    kernels_.add_dense(residual_.data(), -alpha, product_.data(), n, residual_.data());
    const double next = kernels_.dot_dense(residual_.data(), residual_.data(), n);
    kernels_.add_dense(residual_.data(), static_cast<float>(next / rho), search_.data(), n, search_.data());
    rho = next;
  }
  return steps;
}

/// With an L1 penalty: coordinate descent on the quadratic model of the loss plus the penalty of w + d, over the
/// features that have a weight or whose slope is too steep to stay at 0. The others stay there for this step: should
/// it make them too steep, the next one takes them in.
int NearMarginRows::compute_sparse_direction() {
  const std::size_t n = as_size(n_local_) + 1;
  order_.clear();
  for (std::size_t f = 0; f + 1 < n; ++f)
    if (w_[f] != 0 || gradient_[f] != 0) order_.push_back(static_cast<std::int32_t>(f));
  if (bias_ > 0) order_.push_back(static_cast<std::int32_t>(n - 1));
  gather_columns();
  direction_.assign(n, 0.0F);
  force_.assign(active_.size(), 0.0F);
  rest_change_ = 0;
  const double enough = kDirectionAccuracy * gradient_length();
  int sweeps = 0;
  for (; sweeps < kMostSweeps; ++sweeps) {
    const double violation = sweep_columns();
    control_.check_in(worker_);
    if (std::sqrt(violation) <= enough) break;
  }
  return sweeps;
}

/// The columns of the features in order_, over the active rows.
void NearMarginRows::gather_columns() {
  const std::size_t n = order_.size();
  column_of_.resize(std::max(column_of_.size(), as_size(n_local_) + 1), -1);
  for (std::size_t c = 0; c < n; ++c) column_of_[as_size(order_[c])] = static_cast<std::int32_t>(c);
  entries_.clear();
  column_ptr_.assign(n + 1, 0);
  factors_.resize(active_.size());
  for (std::size_t a = 0; a < active_.size(); ++a) {
    const Row& row = rows_[as_size(active_[a])];
    factors_[a] = row.factor;
    for (std::int64_t i = 0; i < row.n; ++i) {
      const std::int32_t column = column_of_[as_size(row.indices[i])];
      if (column < 0) continue;
      entries_.push_back({column, {static_cast<std::int32_t>(a), row.data[i]}});
      ++column_ptr_[as_size(column) + 1];
    }
    if (bias_ > 0) {
      entries_.push_back({static_cast<std::int32_t>(n - 1), {static_cast<std::int32_t>(a), bias_}});
      ++column_ptr_[n];
    }
  }
  for (const std::int32_t f : order_) column_of_[as_size(f)] = -1;
  for (std::size_t c = 0; c < n; ++c) column_ptr_[c + 1] += column_ptr_[c];
  columns_.resize(entries_.size());
  curvatures_.assign(n, kLeastCurvature);
  std::vector<std::int64_t> at(column_ptr_.begin(), column_ptr_.end() - 1);
  for (const auto& [column, entry] : entries_) {
    columns_[as_size(at[as_size(column)]++)] = entry;
    curvatures_[as_size(column)] += double{factors_[as_size(entry.first)]} * entry.second * entry.second;
  }
  for (std::size_t c = 0; c < n; ++c) {
    const double x = mean_at(order_[c]);
    curvatures_[c] += rest_curvature_ * x * x;
  }
  listed_.resize(n);
  std::iota(listed_.begin(), listed_.end(), 0);
}

/// Moves the weight of each listed column to the least of the model along it. Features that are and stay 0 leave the
/// list. Returns the sum of squared violations.
double NearMarginRows::sweep_columns() {
  double violation = 0;
  double rest_change = rest_change_;
  std::size_t kept = 0;
  for (const std::int32_t c : listed_) {
    const std::size_t j = as_size(order_[as_size(c)]);
    const auto* begin = columns_.data() + column_ptr_[as_size(c)];
    const auto* end = columns_.data() + column_ptr_[as_size(c) + 1];
    const double rest_x = mean_at(order_[as_size(c)]);
    const double curvature = curvatures_[as_size(c)];
    double slope = loss_[j] + rest_curvature_ * rest_x * rest_change;
    for (const auto* e = begin; e < end; ++e) slope += double{e->second} * force_[as_size(e->first)];
    const float here = w_[j] + direction_[j];
    const float wrong = least_gradient(penalty_, here, static_cast<float>(slope));
    if (here == 0 && wrong == 0) continue;
    listed_[kept++] = c;
    violation += double{wrong} * wrong;
    const float next = soften(static_cast<float>(here - slope / curvature), static_cast<float>(1 / curvature));
    const float step = next - here;
    if (step == 0) continue;
    direction_[j] = next - w_[j];
    for (const auto* e = begin; e < end; ++e)
      force_[as_size(e->first)] += step * factors_[as_size(e->first)] * e->second;
    rest_change += rest_x * step;
  }
  listed_.resize(kept);
  rest_change_ = rest_change;
  return violation;
}

/// To the least of the objective along the direction. False if float32 sees no descent.
bool NearMarginRows::take_step() {
  const float constant = direction_[as_size(n_local_)] * bias_;
  slope_.resize(rows_.size());
  for (std::size_t k = 0; k < rows_.size(); ++k)
    slope_[k] = rows_[k].toward * (dot(rows_[k], direction_.data()) + constant);
  const float rest_slope =
      static_cast<float>(kernels_.dot_dense(local_mean_.data(), direction_.data(), n_local_)) + constant;
  const double linear = kernels_.dot_dense(correction_.data(), direction_.data(), n_local_ + 1);
  const float t = search_line([&](double at) { return line_derivatives(at, linear, rest_slope); });
  if (t <= 0) return false;
  kernels_.add_dense(m_.data(), t, slope_.data(), size(), m_.data());
  for (RestGroup& group : rest_) group.m += t * rest_slope;
  kernels_.add_dense(w_.data(), t, direction_.data(), n_local_ + 1, w_.data());
  return true;
}

/// First and second derivative of the objective at `at` along the direction. `linear` is the direction's product with
/// the correction, `rest_slope` how m of the rest groups changes.
std::pair<double, double> NearMarginRows::line_derivatives(double at, double linear, float rest_slope) const {
  auto [first, second] = penalty_derivatives(penalty_, w_.data(), direction_.data(), n_local_ + 1, at);
  first += linear;
  for (std::size_t r = 0; r < ranges_.size(); ++r) {
    const std::int64_t begin = ranges_[r].begin;
    const std::int64_t end = r + 1 < ranges_.size() ? ranges_[r + 1].begin : size();
    double loss_first = 0;
    double loss_second = 0;
    kernels_.line_derivatives(m_.data() + begin, slope_.data() + begin, end - begin, static_cast<float>(at),
                              &loss_first, &loss_second);
    first += ranges_[r].factor * loss_first;
    second += ranges_[r].factor * loss_second;
  }
  for (const RestGroup& group : rest_) {
    const double m = group.m + at * rest_slope;
    if (m > 0) first += group.factor * m * rest_slope, second += double{group.factor} * rest_slope * rest_slope;
  }
  return {first, second};
}

}  // namespace umpteen
