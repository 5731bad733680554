#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "../as_size.hpp"
#include "../soften.hpp"
#include "columns.hpp"
#include "label.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::dual {

/// A row's features, in X or in a copy.
struct SparseRow {
  const std::int32_t* indices;
  const float* data;
  std::int64_t n;
};

/// The problem's formulas: weights and scores from v, losses and gaps from scores.
class Formulas {
 public:
  Formulas(const DualProblem& of, const FeatureColumns& columns_of_X)
      : problem(of),
        X(of.X),
        columns(columns_of_X),
        lists_features(of.X.n_cols > kListAbove),
        total_cost(sum_costs(of)),
        limit_(static_cast<float>(of.lambda)),
        inverse_tau_(static_cast<float>(1 / of.tau)) {}

  static constexpr float kMargin = -1;  // of a row that lacks the label

  const DualProblem& problem;
  const CsrView& X;
  const FeatureColumns& columns;
  const bool lists_features;  // the touched ones of each label; where features are few, looking at all is as fast
  const double total_cost;    // of all rows, as if each lacked the label

  /// How many times a row counts for a label it lacks.
  float row_cost(std::int32_t id) const { return problem.row_cost != nullptr ? problem.row_cost[id] : 1.0F; }

  SparseRow row(std::int32_t id) const {
    const std::int64_t begin = X.indptr[id];
    return {X.indices + begin, X.data + begin, X.indptr[id + 1] - begin};
  }

  void add_row(LabelState& state, const SparseRow& row, float factor) const {
    newton_.add_sparse(row.indices, row.data, row.n, factor, state.v.data());
  }

  /// What the constant feature adds to each score.
  float offset(const LabelState& state) const {
    if (state.phase == Phase::kNearest) return 0;
    return static_cast<float>(state.v0 * (problem.bias * problem.bias / problem.tau));
  }
  float weight(const LabelState& state, std::size_t f) const {
    return state.phase == Phase::kNearest ? state.v[f] : soften(state.v[f], limit_) * inverse_tau_;
  }
  float score(const LabelState& state, const SparseRow& row) const {
    const float* const v = state.v.data();
    // Without a threshold, and in more sums than dot_soft has for short rows.
    const float product = limit_ == 0 ? newton_.dot_sparse(row.indices, row.data, row.n, v)
                                      : dual_.dot_soft(row.indices, row.data, row.n, v, limit_);
    return product * inverse_tau_ + offset(state);
  }
  float score(const LabelState& state, std::int32_t id) const { return score(state, row(id)); }

  /// The features with a weight other than 0, in no particular order.
  void collect_features(const LabelState& state, std::vector<std::int32_t>& features) const {
    if (state.phase == Phase::kNearest)
      collect(state, [](float v) { return v; }, features);
    else
      collect(
          state, [limit = limit_, factor = inverse_tau_](float v) { return soften(v, limit) * factor; }, features);
  }

  /// The least score that makes a row a hit, given the features of w.
  float hit_above(const LabelState& state, const std::vector<std::int32_t>& features) const {
    if (state.phase != Phase::kNearest) return state.is_rough ? offset(state) + kRoughScore : kMargin;
    double squared = 0;
    for (const std::int32_t f : features) squared += double{state.v[as_size(f)]} * state.v[as_size(f)];
    return static_cast<float>(kNearShare * squared);
  }

  // The gap is a sum over rows, none of them negative: a row's loss at its margin 1 - violation, its share
  // alpha^2 / 2c of the dual, less alpha times violation; since w.v = sum of alpha_i s_i w.x_i.
  double loss(double violation, double cost = 1) const {
    if (violation <= 0) return 0;
    return cost * (problem.squared ? 0.5 * violation * violation : violation);
  }
  double gap(double violation, const ActiveRow& a) const {
    const double alpha = a.alpha;
    if (violation <= 0) return (problem.squared ? 0.5 * alpha * alpha / a.cost : 0) - alpha * violation;
    const double short_of = a.cost * violation - alpha;
    return problem.squared ? 0.5 * short_of * short_of / a.cost : (a.cost - alpha) * violation;
  }

 private:
  static double sum_costs(const DualProblem& problem) {
    if (problem.row_cost == nullptr) return static_cast<double>(problem.X.n_rows);
    double sum = 0;
    for (std::int64_t i = 0; i < problem.X.n_rows; ++i) sum += problem.row_cost[i];
    return sum;
  }

  template <typename Weigh>
  void collect(const LabelState& state, const Weigh& weigh, std::vector<std::int32_t>& features) const {
    const float* v = state.v.data();
    features.resize(lists_features ? state.touched.size() : as_size(X.n_cols));
    std::int32_t* out = features.data();
    const auto look = [&](std::int32_t f) {
      *out = f;
      out += weigh(v[f]) != 0 ? 1 : 0;
    };
    if (lists_features)
      for (const std::int32_t f : state.touched) look(f);
    else
      for (std::int32_t f = 0, n = static_cast<std::int32_t>(X.n_cols); f < n; ++f) look(f);
    features.resize(as_size(out - features.data()));
  }

  static constexpr std::int64_t kListAbove = 16384;  // features
  static constexpr float kRoughScore = 0.25F;        // without the bias, of rows that a rough search finds
  static constexpr double kNearShare = 0.3;          // of the mean's own score: which rows are near it

  const float limit_;
  const float inverse_tau_;
  const NewtonKernels& newton_ = newton_kernels();
  const DualKernels& dual_ = dual_kernels();
};

}  // namespace umpteen::dual
