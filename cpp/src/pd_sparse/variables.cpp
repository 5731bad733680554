#include "variables.hpp"

#include <limits>
#include <numeric>

#include "umpteen/random.hpp"

namespace umpteen::pd {

std::vector<std::uint32_t> permute(std::int64_t n, std::uint64_t seed) {
  std::vector<std::uint32_t> out(as_size(n));
  std::iota(out.begin(), out.end(), 0U);
  Random random{seed};
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[random.below(i)]);
  return out;
}

Variables::Variables(const PdProblem& problem)
    : X(problem.X),
      Y(problem.Y),
      limit(static_cast<float>(problem.lambda)),
      C(problem.C),
      row_costs(problem.row_cost, problem.row_cost != nullptr ? problem.row_cost + X.n_rows : nullptr),
      hash(permute(X.n_cols, problem.seed)),
      vectors(as_size(Y.n_cols)),
      active(as_size(Y.n_rows)),
      positive_alphas(as_size(Y.indptr[Y.n_rows]), 0.0F),
      squared(as_size(X.n_rows)),
      bars(as_size(X.n_rows), -std::numeric_limits<float>::infinity()) {
  for (std::int64_t row = 0; row < X.n_rows; ++row) {
    double sum = 0;
    for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) sum += double{X.data[i]} * X.data[i];
    squared[as_size(row)] = sum;
    most_labels = std::max(most_labels, count_positives(row));
  }
  std::vector<std::uint8_t> seen(as_size(Y.n_cols), 0);
  for (std::int64_t i = 0; i < Y.indptr[Y.n_rows]; ++i) seen[as_size(Y.indices[i])] = 1;
  for (std::int32_t label = 0; label < Y.n_cols; ++label)
    if (seen[as_size(label)]) labels.push_back(label);
}

}  // namespace umpteen::pd
