#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "feature_vector.hpp"
#include "umpteen/pd_sparse.hpp"

namespace umpteen::pd {

/// A random order of 0, ..., n - 1.
std::vector<std::uint32_t> permute(std::int64_t n, std::uint64_t seed);

/// A label that a row lacks, in the row's active set.
struct ActiveLabel {
  std::int32_t label;
  float alpha;
};

/// The data, the dual variables alpha, and V, which follows from them.
struct Variables {
  explicit Variables(const PdProblem& problem);

  std::int64_t count_positives(std::int64_t row) const { return Y.indptr[row + 1] - Y.indptr[row]; }
  bool has_label(std::int64_t row, std::int32_t label) const {
    return std::binary_search(Y.indices + Y.indptr[row], Y.indices + Y.indptr[row + 1], label);
  }
  /// Whether a row has a loss at all.
  bool counts(std::int64_t row) const {
    return count_positives(row) > 0 && count_positives(row) < static_cast<std::int64_t>(labels.size());
  }

  /// w_k . x_i
  float score(std::int64_t row, std::int32_t label) const {
    const std::int64_t begin = X.indptr[row];
    return vectors[as_size(label)].dot_soft(hash.data(), X.indices + begin, X.data + begin, X.indptr[row + 1] - begin,
                                            limit);
  }
  /// How many times a row counts.
  double cost(std::int64_t row) const { return row_costs.empty() ? 1.0 : double{row_costs[as_size(row)]}; }

  /// v_k += change * x_i
  void move(std::int64_t row, std::int32_t label, float change) {
    const std::int64_t begin = X.indptr[row];
    const std::int64_t n = X.indptr[row + 1] - begin;
    if (frozen)
      vectors[as_size(label)].add_to_support(hash.data(), X.indices + begin, X.data + begin, n, change);
    else
      vectors[as_size(label)].add(hash.data(), X.n_cols, X.indices + begin, X.data + begin, n, change);
  }

  CsrView X;
  CsrView Y;
  float limit;  // lambda
  double C;
  std::vector<float> row_costs;                  // empty if all are 1
  bool frozen = false;                           // whether V keeps its support
  std::vector<std::int32_t> labels;              // that rows have, rising
  std::int64_t most_labels = 0;                  // of a row
  std::vector<std::uint32_t> hash;               // by feature
  std::vector<FeatureVector> vectors;            // by label: v_k
  std::vector<std::vector<ActiveLabel>> active;  // by row
  std::vector<float> positive_alphas;            // as Y's entries
  std::vector<double> squared;                   // by row: its squared length
  std::vector<float> bars;                       // by row: what a label must score to enter the active set
};

}  // namespace umpteen::pd
