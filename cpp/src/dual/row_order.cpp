#include "row_order.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "../as_size.hpp"

namespace umpteen::dual {

namespace {

constexpr std::size_t kKeyFeatures = 3;  // of a row: the most frequent ones
constexpr int kKeyBits = 21;             // for each
constexpr std::uint64_t kLastRank = (std::uint64_t{1} << kKeyBits) - 1;

/// By feature: how many features are more frequent. Features that more than half of the rows have come last: they say
/// nothing about which rows are alike.
std::vector<std::uint64_t> rank_features(const CsrView& X) {
  std::vector<std::int64_t> counts(as_size(X.n_cols), 0);
  for (std::int64_t i = 0; i < X.indptr[X.n_rows]; ++i) ++counts[as_size(X.indices[i])];
  for (std::int64_t& count : counts)
    if (count > X.n_rows / 2) count = 0;
  std::vector<std::int32_t> features(counts.size());
  std::iota(features.begin(), features.end(), 0);
  std::stable_sort(features.begin(), features.end(),
                   [&](std::int32_t a, std::int32_t b) { return counts[as_size(a)] > counts[as_size(b)]; });
  std::vector<std::uint64_t> ranks(counts.size());
  for (std::size_t r = 0; r < features.size(); ++r)
    ranks[as_size(features[r])] = std::min(static_cast<std::uint64_t>(r), kLastRank);
  return ranks;
}

/// The ranks of a row's most frequent features, the most frequent one first.
std::uint64_t make_key(const CsrView& X, std::int64_t row, const std::vector<std::uint64_t>& ranks) {
  std::array<std::uint64_t, kKeyFeatures> best;
  best.fill(kLastRank);
  for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) {
    std::uint64_t rank = ranks[as_size(X.indices[i])];
    for (std::uint64_t& at : best)
      if (rank < at) std::swap(rank, at);
  }
  std::uint64_t key = 0;
  for (const std::uint64_t rank : best) key = key << kKeyBits | rank;
  return key;
}

}  // namespace

OrderedProblem::OrderedProblem(const DualProblem& problem) : view_(problem) {
  find_order(problem.X);
  copy_rows(problem.X);
  copy_labels(problem);
  if (problem.start_indptr != nullptr) copy_starts(problem);
}

void OrderedProblem::find_order(const CsrView& X) {
  const std::vector<std::uint64_t> ranks = rank_features(X);
  std::vector<std::pair<std::uint64_t, std::int32_t>> keys(as_size(X.n_rows));
  for (std::int64_t row = 0; row < X.n_rows; ++row)
    keys[as_size(row)] = {make_key(X, row, ranks), static_cast<std::int32_t>(row)};
  std::sort(keys.begin(), keys.end());
  order_.resize(keys.size());
  place_.resize(keys.size());
  for (std::size_t k = 0; k < keys.size(); ++k) {
    order_[k] = keys[k].second;
    place_[as_size(keys[k].second)] = static_cast<std::int32_t>(k);
  }
}

void OrderedProblem::copy_rows(const CsrView& X) {
  indptr_.assign(1, 0);
  indptr_.reserve(order_.size() + 1);
  indices_.resize(as_size(X.indptr[X.n_rows]));
  data_.resize(indices_.size());
  for (const std::int32_t row : order_) {
    const std::int64_t begin = X.indptr[row];
    const std::int64_t n = X.indptr[row + 1] - begin;
    std::copy_n(X.indices + begin, n, indices_.begin() + indptr_.back());
    std::copy_n(X.data + begin, n, data_.begin() + indptr_.back());
    indptr_.push_back(indptr_.back() + n);
  }
  view_.X = {X.n_rows, X.n_cols, indptr_.data(), indices_.data(), data_.data()};
}

void OrderedProblem::copy_labels(const DualProblem& problem) {
  if (problem.row_cost != nullptr) {
    for (const std::int32_t row : order_) row_cost_.push_back(problem.row_cost[row]);
    view_.row_cost = row_cost_.data();
  }
  const std::int64_t* const ends = problem.label_indptr;
  label_rows_.resize(as_size(ends[problem.n_labels]));
  for (std::size_t i = 0; i < label_rows_.size(); ++i) label_rows_[i] = place_[as_size(problem.label_rows[i])];
  for (std::int64_t l = 0; l < problem.n_labels; ++l)
    std::sort(label_rows_.begin() + ends[l], label_rows_.begin() + ends[l + 1]);
  view_.label_rows = label_rows_.data();
}

void OrderedProblem::copy_starts(const DualProblem& problem) {
  std::vector<std::pair<std::int32_t, float>> start;
  for (std::int64_t l = 0; l < problem.n_labels; ++l) {
    start.clear();
    for (std::int64_t i = problem.start_indptr[l]; i < problem.start_indptr[l + 1]; ++i)
      start.emplace_back(place_[as_size(problem.start_rows[i])], problem.start_alphas[i]);
    std::sort(start.begin(), start.end());
    for (const auto& [row, alpha] : start) {
      start_rows_.push_back(row);
      start_alphas_.push_back(alpha);
    }
  }
  view_.start_rows = start_rows_.data();
  view_.start_alphas = start_alphas_.data();
}

void OrderedProblem::restore_rows(DualSolution& solution) const {
  std::vector<std::pair<std::int32_t, float>> found;
  for (std::size_t k = 0; k < solution.rows.size(); ++k)
    found.emplace_back(order_[as_size(solution.rows[k])], solution.alphas[k]);
  std::sort(found.begin(), found.end());
  for (std::size_t k = 0; k < found.size(); ++k) std::tie(solution.rows[k], solution.alphas[k]) = found[k];
}

}  // namespace umpteen::dual
