#include <algorithm>
#include <cmath>
#include <limits>

#include "../as_size.hpp"
#include "label_lanes.hpp"
#include "umpteen/l1_newton.hpp"
#include "umpteen/newton_all_rows.hpp"
#include "umpteen/newton_by_columns.hpp"

namespace umpteen {

namespace {

constexpr int kMostPasses = 1000;    // over the coordinates of one quadratic model
constexpr double kLeastFall = 1e-6;  // of the objective, as a part of it, for which another start is worth while

/// X by columns, the constant feature last if there is one.
class Columns {
 public:
  explicit Columns(const OneVsRestProblem& problem) : n_rows_(problem.X.n_rows) {
    const CsrView& X = problem.X;
    const bool has_bias = problem.bias != 0;
    n_cols_ = X.n_cols + (has_bias ? 1 : 0);
    start_.assign(as_size(n_cols_) + 1, 0);
    const std::int64_t n_entries = X.indptr[X.n_rows];
    for (std::int64_t i = 0; i < n_entries; ++i) ++start_[as_size(X.indices[i]) + 1];
    if (has_bias) start_.back() = X.n_rows;
    for (std::size_t c = 1; c < start_.size(); ++c) start_[c] += start_[c - 1];
    rows_.resize(as_size(start_.back()));
    values_.resize(as_size(start_.back()));
    std::vector<std::int64_t> next(start_.begin(), start_.end() - 1);
    const auto put = [&](std::int64_t column, std::int64_t row, float value) {
      const std::size_t at = as_size(next[as_size(column)]++);
      rows_[at] = static_cast<std::int32_t>(row);
      values_[at] = value;
    };
    for (std::int64_t row = 0; row < X.n_rows; ++row) {
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) put(X.indices[i], row, X.data[i]);
      if (has_bias) put(X.n_cols, row, static_cast<float>(problem.bias));
    }
  }

  ColumnsView<std::int32_t> view() const { return {n_rows_, n_cols_, start_.data(), rows_.data(), values_.data()}; }

 private:
  std::int64_t n_rows_;
  std::int64_t n_cols_ = 0;
  std::vector<std::int64_t> start_;
  std::vector<std::int32_t> rows_;
  std::vector<float> values_;
};

/// Solves labels one after the other.
class ColumnsSolver {
 public:
  ColumnsSolver(const OneVsRestProblem& problem, MarginLoss loss, const ColumnsView<std::int32_t>& X)
      : problem_(problem), loss_(loss), X_(X) {}

  OneVsRestSolution solve(std::int64_t label, Control& control, int worker) {
    OneVsRestSolution found;
    const std::int64_t begin = problem_.label_indptr[label];
    const std::int64_t n_positive = problem_.label_indptr[label + 1] - begin;
    if (n_positive == 0) return found;  // nothing to learn from
    sign_.assign(as_size(X_.n_rows), -1.0F);
    cost_.resize(as_size(X_.n_rows));
    for (std::int64_t row = 0; row < X_.n_rows; ++row)
      cost_[as_size(row)] = static_cast<float>(problem_.C) * cost_of_row(problem_, row);
    for (std::int64_t r = begin; r < begin + n_positive; ++r) {
      const std::size_t row = as_size(problem_.label_rows[r]);
      sign_[row] = 1;
      cost_[row] *= problem_.positive_cost[label];
    }
    const std::int64_t fewer = std::max<std::int64_t>(std::min(n_positive, X_.n_rows - n_positive), 1);
    L1Options options;
    options.eps = problem_.eps * static_cast<double>(fewer) / static_cast<double>(X_.n_rows);
    options.max_inner = kMostPasses;
    w_.assign(as_size(X_.n_cols), 0.0F);
    found.objective = std::numeric_limits<double>::infinity();
    // A solver whose step fails stops, even if it has put columns aside that should move by now: a new start looks at
    // all of them again.
    while (found.rounds < problem_.max_rounds) {
      options.max_outer = problem_.max_rounds - static_cast<int>(found.rounds);
      const L1Report report =
          solver_.solve(loss_, {X_, sign_.data(), cost_.data(), {}}, options, w_.data(), control, worker);
      if (!std::isfinite(report.objective)) refuse_overflow();
      const bool fell = report.objective < (1 - kLeastFall) * found.objective;
      found.objective = report.objective;
      found.gradient = report.violation / options.eps;
      found.rounds += std::max(report.outer, 1);
      if (report.converged || !fell) break;
    }
    found.newton_steps = found.rounds;
    for (std::int64_t f = 0; f < problem_.X.n_cols; ++f) {
      const float weight = w_[as_size(f)];
      if (weight == 0 || std::abs(weight) < problem_.prune) continue;
      found.features.push_back(static_cast<std::int32_t>(f));
      found.weights.push_back(weight);
    }
    if (X_.n_cols > problem_.X.n_cols) found.bias = w_.back() * static_cast<float>(problem_.bias);
    return found;
  }

 private:
  const OneVsRestProblem& problem_;
  const MarginLoss loss_;
  const ColumnsView<std::int32_t> X_;
  L1Newton<std::int32_t> solver_;
  std::vector<float> sign_, cost_;  // by row
  std::vector<float> w_;            // by column
};

}  // namespace

std::vector<OneVsRestSolution> solve_by_columns(const OneVsRestProblem& problem, MarginLoss loss, int threads,
                                                Control& control) {
  const Columns columns(problem);
  std::vector<OneVsRestSolution> solutions(as_size(problem.n_labels));
  std::vector<ColumnsSolver> solvers;
  for (int i = 0; i < clamp_threads(problem.n_labels, threads); ++i)
    solvers.emplace_back(problem, loss, columns.view());
  parallel_for(problem.n_labels, threads, control, [&](std::int64_t label, int worker) {
    solutions[as_size(label)] = solvers[as_size(worker)].solve(label, control, worker);
  });
  return solutions;
}

}  // namespace umpteen
