#include "step.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace umpteen::pd {

void RowStep::run(std::int64_t row, PdWork& work) {
  if (!variables_.counts(row)) return;
  const double curvature = variables_.squared[as_size(row)];  // an upper bound: most features of x_i are not in w_k
  if (curvature == 0) {
    settle_empty_row(row);
    return;
  }
  const double lowest = find_targets(row, work);
  float& bar = variables_.bars[as_size(row)];
  bar = static_cast<float>(lowest - 1);
  const CsrView& X = variables_.X;
  work.entries += static_cast<std::int64_t>(targets_.size()) * (X.indptr[row + 1] - X.indptr[row]);
  const auto n_negative = static_cast<std::int64_t>(variables_.active[as_size(row)].size());
  if (n_negative == 0) return;
  const double shift = project_two_simplices(targets_.data(), n_negative, targets_.data() + n_negative,
                                             variables_.count_positives(row), variables_.C * variables_.cost(row));
  bar = static_cast<float>(shift * curvature - 1);
  take_targets(row, work);
}

/// Every score is 0 whatever W is: the loss is C c_i, and so is the dual's share.
void RowStep::settle_empty_row(std::int64_t row) {
  std::vector<ActiveLabel>& negatives = variables_.active[as_size(row)];
  if (negatives.empty()) return;
  const auto C = static_cast<float>(variables_.C * variables_.cost(row));
  variables_.positive_alphas[as_size(variables_.Y.indptr[row])] = C;
  negatives.erase(negatives.begin() + 1, negatives.end());
  negatives[0].alpha = -C;
  variables_.bars[as_size(row)] = std::numeric_limits<float>::infinity();
}

/// targets_ = where the parabola above the dual is least, without constraints; adds the row's gap. Returns the lowest
/// score of the row's own labels.
double RowStep::find_targets(std::int64_t row, PdWork& work) {
  const CsrView& Y = variables_.Y;
  const double curvature = variables_.squared[as_size(row)];
  targets_.clear();
  double highest = -std::numeric_limits<double>::infinity();
  double lowest = -highest;
  for (const ActiveLabel& a : variables_.active[as_size(row)]) {
    const float z = variables_.score(row, a.label);
    highest = std::max<double>(highest, z);
    work.gap += a.alpha * (z + 1.0);
    targets_.push_back((z + 1.0) / curvature - a.alpha);
  }
  for (std::int64_t i = Y.indptr[row]; i < Y.indptr[row + 1]; ++i) {
    const float alpha = variables_.positive_alphas[as_size(i)];
    const float z = variables_.score(row, Y.indices[i]);
    lowest = std::min<double>(lowest, z);
    work.gap += double{alpha} * z;
    targets_.push_back(alpha - z / curvature);
  }
  work.gap += variables_.C * variables_.cost(row) * std::max(0.0, 1 + highest - lowest);
  for (const double value : targets_)
    if (!std::isfinite(value))
      throw std::invalid_argument("scores must be finite; are values of X close to the largest 32-bit float?");
  return lowest;
}

/// Sets the alphas to the projected targets, and drops active labels left at 0.
void RowStep::take_targets(std::int64_t row, PdWork& work) {
  const CsrView& X = variables_.X;
  const CsrView& Y = variables_.Y;
  std::vector<ActiveLabel>& negatives = variables_.active[as_size(row)];
  const auto change = [&](std::int32_t label, float& alpha, double to) {
    const auto wanted = static_cast<float>(to);
    if (wanted == alpha) return;
    variables_.move(row, label, wanted - alpha);
    alpha = wanted;
    work.entries += X.indptr[row + 1] - X.indptr[row];
  };
  for (std::size_t i = 0; i < negatives.size(); ++i) change(negatives[i].label, negatives[i].alpha, -targets_[i]);
  const double* own = targets_.data() + negatives.size();
  for (std::int64_t i = Y.indptr[row]; i < Y.indptr[row + 1]; ++i)
    change(Y.indices[i], variables_.positive_alphas[as_size(i)], *own++);
  std::erase_if(negatives, [](const ActiveLabel& a) { return a.alpha == 0; });
}

}  // namespace umpteen::pd
