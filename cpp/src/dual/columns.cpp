#include "columns.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "../as_size.hpp"

namespace umpteen::dual {

namespace {

void fill_columns(const CsrView& X, FeatureColumns& columns) {
  std::vector<std::int64_t> ends(columns.indptr.begin(), columns.indptr.end() - 1);
  for (std::int64_t row = 0; row < X.n_rows; ++row) {
    double squared = 0;
    for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) {
      const std::int64_t at = ends[as_size(X.indices[i])]++;
      columns.rows[as_size(at)] = static_cast<std::int32_t>(row);
      columns.values[as_size(at)] = X.data[i];
      columns.signs[as_size(X.indices[i])] |=
          X.data[i] > 0 ? FeatureColumns::kHasPositive : FeatureColumns::kHasNegative;
      squared += double{X.data[i]} * X.data[i];
    }
    columns.squared[as_size(row)] = static_cast<float>(squared);
    columns.longest = std::max(columns.longest, static_cast<float>(std::sqrt(squared)));
  }
}

/// How many of the last columns every row has, cut to whole vectors. Columns rise within a row, each at most once.
std::int32_t find_tail(const CsrView& X) {
  std::int64_t tail = X.n_cols;
  for (std::int64_t row = 0; row < X.n_rows && tail > 0; ++row) {
    const std::int64_t n = std::min(tail, X.indptr[row + 1] - X.indptr[row]);
    std::int64_t same = 0;
    while (same < n && X.indices[X.indptr[row + 1] - 1 - same] == X.n_cols - 1 - same) ++same;
    tail = same;
  }
  return static_cast<std::int32_t>(tail / 16 * 16);
}

void sort_by_magnitude(FeatureColumns& columns, std::int64_t column) {
  const std::int64_t begin = columns.indptr[as_size(column)];
  const std::int64_t end = columns.indptr[as_size(column) + 1];
  std::vector<std::pair<float, std::int32_t>> entries;
  for (std::int64_t i = begin; i < end; ++i)
    entries.emplace_back(columns.values[as_size(i)], columns.rows[as_size(i)]);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  for (std::int64_t i = begin; i < end; ++i)
    std::tie(columns.values[as_size(i)], columns.rows[as_size(i)]) = entries[as_size(i - begin)];
}

}  // namespace

FeatureColumns transpose(const DualProblem& problem, int threads, Control& control) {
  const CsrView& X = problem.X;
  FeatureColumns columns;
  columns.indptr.assign(as_size(X.n_cols) + 1, 0);
  columns.rows.resize(as_size(X.indptr[X.n_rows]));
  columns.values.resize(columns.rows.size());
  columns.signs.assign(as_size(X.n_cols), 0);
  columns.squared.resize(as_size(X.n_rows));
  for (std::int64_t i = 0; i < X.indptr[X.n_rows]; ++i) ++columns.indptr[as_size(X.indices[i]) + 1];
  std::partial_sum(columns.indptr.begin(), columns.indptr.end(), columns.indptr.begin());
  fill_columns(X, columns);
  columns.tail = find_tail(X);
  if (problem.samples > 0)
    parallel_for(X.n_cols, threads, control, [&](std::int64_t f, int) { sort_by_magnitude(columns, f); });
  return columns;
}

}  // namespace umpteen::dual
