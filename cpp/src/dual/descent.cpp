#include "descent.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace umpteen::dual {

namespace {

constexpr int kMostEpochs = 200;
constexpr std::int64_t kMostGathered = 1 << 17;  // entries: 1 MB
constexpr std::int64_t kGatheredShare = 4;       // of X: at most one entry in so many is copied
constexpr double kFirstTolerance = 0.05;         // of eps, before the first search

/// To the least of the parabola along alpha.
void move(const Formulas& formulas, LabelState& state, ActiveRow& a, const SparseRow& row, float slope) {
  float alpha = a.curvature > 0 ? std::max(a.alpha + slope / a.curvature, 0.0F) : a.cost;
  if (!formulas.problem.squared) alpha = std::min(alpha, a.cost);
  formulas.add_row(state, row, a.sign * (alpha - a.alpha));
  state.v0 += double{a.sign} * (alpha - a.alpha);
  a.alpha = alpha;
}

}  // namespace

void Descent::run(LabelState& state, DualSolution& solution) {
  gather_rows(state);
  order_.resize(state.active.size());
  std::iota(order_.begin(), order_.end(), 0);
  float beyond = std::numeric_limits<float>::infinity();
  for (int epoch = 0; epoch < kMostEpochs; ++epoch) {
    const Pass seen = pass(state, beyond, solution);
    beyond = seen.largest;
    ++solution.epochs;
    control_.check_in(worker_);
    // Before the first search: the primal is at least half the sum of alphas, near the optimum.
    const double first = kFirstTolerance * formulas_.problem.eps * seen.alphas;
    if (seen.gap <= (state.tolerance > 0 ? state.tolerance : first)) break;
  }
}

/// Finds the active rows, and copies them side by side where that makes them fit into cache: descent visits each
/// some ten times, in random order, and X may be far larger.
void Descent::gather_rows(const LabelState& state) {
  gathered_.clear();
  std::int64_t total = 0;
  for (const ActiveRow& a : state.active) {
    gathered_.push_back(formulas_.row(a.row));
    total += gathered_.back().n;
  }
  const CsrView& X = formulas_.X;
  if (total > kMostGathered || total * kGatheredShare > X.indptr[X.n_rows]) return;
  gathered_indices_.resize(kMostGathered);
  gathered_data_.resize(kMostGathered);
  std::int64_t end = 0;
  for (SparseRow& row : gathered_) {
    std::copy_n(row.indices, row.n, gathered_indices_.data() + end);
    std::copy_n(row.data, row.n, gathered_data_.data() + end);
    row.indices = gathered_indices_.data() + end;
    row.data = gathered_data_.data() + end;
    end += row.n;
  }
}

/// Visits every row of order_ once. A row at its bound whose slope keeps it there by more than `beyond` leaves order_
/// until the next search.
Descent::Pass Descent::pass(LabelState& state, float beyond, DualSolution& solution) {
  const bool squared = formulas_.problem.squared;
  std::int32_t* const order = order_.data();
  ActiveRow* const active = state.active.data();
  Pass seen;
  std::size_t n = order_.size();
  for (std::size_t i = 0; i < n;) {
    std::swap(order[i], order[i + state.random.below(n - i)]);
    ActiveRow& a = active[order[i]];
    const SparseRow& row = gathered_[as_size(order[i])];
    const float violation = 1 - a.sign * formulas_.score(state, row);
    seen.gap += formulas_.gap(violation, a);
    ++solution.visited;
    const float slope = squared ? violation - a.alpha / a.cost : violation;
    const bool stays = a.alpha == 0 ? slope <= 0 : !squared && a.alpha == a.cost && slope >= 0;
    if (stays && std::abs(slope) > beyond) {
      order[i] = order[--n];
      continue;
    }
    if (!stays) {
      seen.largest = std::max(seen.largest, std::abs(slope));
      move(formulas_, state, a, row, slope);
    }
    seen.alphas += a.alpha;
    ++i;
  }
  order_.resize(n);
  return seen;
}

}  // namespace umpteen::dual
