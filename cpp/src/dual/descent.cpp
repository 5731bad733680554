#include "descent.hpp"

#include <limits>
#include <numeric>
#include <utility>

namespace umpteen::dual {

namespace {

constexpr int kMostEpochs = 200;
constexpr std::int64_t kMostGathered = 1 << 17;  // entries: 1 MB
constexpr std::int64_t kGatheredShare = 4;       // of X: at most one entry in so many is copied
constexpr double kFirstTolerance = 0.05;         // of eps, before the first search

}  // namespace

void Descent::run(LabelState& state, DualSolution& solution) {
  const bool local = gather_rows(state);
  if (local) {
    local_v_.resize(state.touched.size());
    for (std::size_t k = 0; k < state.touched.size(); ++k) local_v_[k] = state.v[as_size(state.touched[k])];
  }
  const DualProblem& problem = formulas_.problem;
  DualPass pass{};
  pass.rows = rows_.data();
  pass.v = local ? local_v_.data() : state.v.data();
  // A label's first row lists the columns of the tail one after the other, so they stand so in local_v_ too.
  pass.tail = formulas_.columns.tail;
  if (pass.tail > 0) {
    const auto first = static_cast<std::size_t>(formulas_.X.n_cols - pass.tail);
    pass.v_tail = pass.v + (local ? as_size(state.touched_at[first]) : first);
  }
  pass.v0 = state.v0;
  pass.constant = problem.bias * problem.bias / problem.tau;
  pass.limit = static_cast<float>(problem.lambda);
  pass.inverse_tau = static_cast<float>(1 / problem.tau);
  pass.squared = problem.squared;
  pass.beyond = std::numeric_limits<float>::infinity();
  order_.resize(rows_.size());
  std::iota(order_.begin(), order_.end(), 0);
  for (int epoch = 0; epoch < kMostEpochs; ++epoch) {
    shuffle(state.random);
    const auto n = static_cast<std::int64_t>(order_.size());
    order_.resize(as_size(kernels_.descend(n, order_.data(), pass)));
    pass.beyond = pass.largest;
    solution.visited += n;
    ++solution.epochs;
    control_.check_in(worker_);
    // Before the first search: the primal is at least half the sum of alphas, near the optimum.
    const double first = kFirstTolerance * problem.eps * pass.alphas;
    if (pass.gap <= (state.tolerance > 0 ? state.tolerance : first)) break;
  }
  state.v0 = pass.v0;
  for (std::size_t k = 0; k < rows_.size(); ++k) state.active[k].alpha = rows_[k].alpha;
  if (local)
    for (std::size_t k = 0; k < state.touched.size(); ++k) state.v[as_size(state.touched[k])] = local_v_[k];
}

void Descent::shuffle(Random& random) {
  for (std::size_t n = order_.size(); n > 1; --n) std::swap(order_[n - 1], order_[random.below(n)]);
}

/// Finds the active rows, and copies them side by side where that makes them fit into cache: descent visits each
/// some ten times, in random order, and X may be far larger. True if their features are places in `touched`.
bool Descent::gather_rows(const LabelState& state) {
  rows_.clear();
  std::int64_t total = 0;
  for (const ActiveRow& a : state.active) {
    const SparseRow row = formulas_.row(a.row);
    rows_.push_back({row.indices, row.data, static_cast<std::int32_t>(row.n), a.sign, a.alpha, a.cost, a.curvature});
    total += row.n;
  }
  const CsrView& X = formulas_.X;
  if (total > kMostGathered || total * kGatheredShare > X.indptr[X.n_rows]) return false;
  gathered_indices_.resize(kMostGathered);
  gathered_data_.resize(kMostGathered);
  std::int32_t* indices = gathered_indices_.data();
  float* data = gathered_data_.data();
  for (DualRow& row : rows_) {
    if (formulas_.lists_features)
      for (std::int32_t i = 0; i < row.n; ++i) indices[i] = state.touched_at[as_size(row.indices[i])];
    else
      std::copy_n(row.indices, row.n, indices);
    std::copy_n(row.data, row.n, data);
    row.indices = indices;
    row.data = data;
    indices += row.n;
    data += row.n;
  }
  return formulas_.lists_features;
}

}  // namespace umpteen::dual
