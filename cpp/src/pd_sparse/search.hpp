#pragma once

#include <cstdint>
#include <vector>

#include "published.hpp"
#include "umpteen/random.hpp"
#include "variables.hpp"

namespace umpteen::pd {

/// Finds labels for the active sets of rows, among the published weights.
class LabelSearch {
 public:
  LabelSearch(Variables& variables, const PublishedWeights& published, std::uint64_t seed)
      : variables_(variables), published_(published), seed_(seed) {}

  /// Returns how many weights it read.
  std::int64_t run(const std::int32_t* rows, std::int64_t n_rows, const PdSearch& how, int threads, Control& control);

 private:
  /// Rows on their way to the scorer.
  struct Gathered {
    std::vector<std::int32_t> rows;
    std::vector<std::int64_t> indptr;
    std::vector<std::int32_t> indices;
    std::vector<float> data;

    void clear() {
      rows.clear();
      indptr.assign(1, 0);
      indices.clear();
      data.clear();
    }
    CsrView view(std::int64_t n_cols) const {
      return {static_cast<std::int64_t>(rows.size()), n_cols, indptr.data(), indices.data(), data.data()};
    }
  };

  Random make_random(std::int32_t row, std::uint64_t draw) const;
  void gather(std::int32_t row, Gathered& out) const;
  void gather_sample(std::int32_t row, std::int64_t rate, Random& random, Gathered& out) const;
  std::int64_t search(const Gathered& gathered, std::int64_t group, std::int64_t n_found, int threads,
                      Control& control);
  std::int64_t rank(const Gathered& gathered, const std::vector<LinearShard>& shards, std::int64_t n_found,
                    int threads, Control& control);
  void add_labels(std::int32_t row, const std::int32_t* ranked, std::int64_t top_k, std::int64_t n_found);

  Variables& variables_;
  const PublishedWeights& published_;
  const std::uint64_t seed_;
  std::vector<std::int32_t> ranked_labels_;
  std::vector<float> ranked_scores_;
  std::vector<float> floors_;
};

}  // namespace umpteen::pd
