#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/linear_shard.hpp"
#include "umpteen/parallel.hpp"
#include "variables.hpp"

namespace umpteen::pd {

/// A copy of W, feature by feature, for searches. Labels are dealt at random into groups, and groups into blocks.
class PublishedWeights {
 public:
  PublishedWeights(const Variables& variables, std::int64_t n_groups, std::uint64_t seed);

  /// Copies W out of V; returns 1/2 sum |w_k|^2.
  double publish(int threads, Control& control);

  std::int64_t n_groups() const { return n_groups_; }
  /// The blocks of a group; of all groups if it is negative.
  std::vector<LinearShard> shards_of(std::int64_t group) const;

 private:
  /// Some labels' weights.
  struct LabelBlock {
    std::vector<std::int32_t> label_ids;  // rising
    std::vector<std::uint32_t> indptr;
    std::vector<std::uint32_t> position_ptr;
    std::vector<std::uint16_t> positions;
    Floats weights;
    std::vector<float> bias;  // zeros
    double squared = 0;       // the sum of squared weights
  };

  void deal_labels(std::uint64_t seed);
  void publish(LabelBlock& block) const;
  LinearShard view(const LabelBlock& block) const;

  const Variables& variables_;
  const std::int64_t n_groups_;
  std::vector<LabelBlock> blocks_;  // block i belongs to group i % n_groups
};

}  // namespace umpteen::pd
