#include "published.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace umpteen::pd {

namespace {

// Labels per block: about a sixteenth of all, within these bounds.
constexpr std::int64_t kBlocks = 16;
constexpr std::int64_t kLeastPerBlock = 1024;
constexpr std::int64_t kMostPerBlock = 16384;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

PublishedWeights::PublishedWeights(const Variables& variables, std::int64_t n_groups, std::uint64_t seed)
    : variables_(variables),
      n_groups_(std::max<std::int64_t>(1, std::min(n_groups, static_cast<std::int64_t>(variables.labels.size())))) {
  deal_labels(seed);
}

void PublishedWeights::deal_labels(std::uint64_t seed) {
  const auto n_labels = static_cast<std::int64_t>(variables_.labels.size());
  const std::int64_t per_block = std::clamp(divide_up(n_labels, kBlocks), kLeastPerBlock, kMostPerBlock);
  const std::int64_t per_group = std::max<std::int64_t>(1, divide_up(n_labels, n_groups_ * per_block));
  blocks_.resize(as_size(n_groups_ * per_group));
  const std::vector<std::uint32_t> places = permute(variables_.Y.n_cols, seed);
  std::vector<std::pair<std::uint32_t, std::int32_t>> order;
  for (const std::int32_t label : variables_.labels) order.emplace_back(places[as_size(label)], label);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) blocks_[i % blocks_.size()].label_ids.push_back(order[i].second);
  for (LabelBlock& block : blocks_) {
    std::sort(block.label_ids.begin(), block.label_ids.end());
    block.bias.assign(block.label_ids.size(), 0.0F);
  }
}

double PublishedWeights::publish(int threads, Control& control) {
  parallel_for(static_cast<std::int64_t>(blocks_.size()), threads, control,
               [&](std::int64_t i, int) { publish(blocks_[as_size(i)]); });
  double total = 0;
  for (const LabelBlock& block : blocks_) total += block.squared;
  return total / 2;
}

void PublishedWeights::publish(LabelBlock& block) const {
  const std::int64_t n_features = variables_.X.n_cols;
  const float limit = variables_.limit;
  block.indptr.assign(as_size(n_features) + 1, 0);
  block.squared = 0;
  for (const std::int32_t label : block.label_ids)
    variables_.vectors[as_size(label)].each(limit, [&](std::int32_t f, float w) {
      ++block.indptr[as_size(f) + 1];
      block.squared += double{w} * w;
    });
  std::partial_sum(block.indptr.begin(), block.indptr.end(), block.indptr.begin());
  const std::size_t nnz = block.indptr.back();
  block.weights.assign(nnz + kWeightPadding, 0.0F);
  std::vector<std::int32_t> labels(nnz);
  std::vector<std::uint32_t> ends(block.indptr.begin(), block.indptr.end() - 1);
  for (std::size_t place = 0; place < block.label_ids.size(); ++place)
    variables_.vectors[as_size(block.label_ids[place])].each(limit, [&](std::int32_t f, float w) {
      const std::uint32_t at = ends[as_size(f)]++;
      labels[at] = static_cast<std::int32_t>(place);
      block.weights[at] = w;
    });
  const auto n = static_cast<std::int64_t>(block.label_ids.size());
  block.position_ptr.resize(as_size(n_features) + 1);
  block.positions.resize(as_size(count_positions(n_features, n, block.indptr.data())));
  pack_positions(n_features, n, block.indptr.data(), labels.data(), block.position_ptr.data(),
                 block.positions.data());
}

LinearShard PublishedWeights::view(const LabelBlock& block) const {
  return {
      .n_features = variables_.X.n_cols,
      .n_labels = static_cast<std::int32_t>(block.label_ids.size()),
      .indptr = block.indptr.data(),
      .position_ptr = block.position_ptr.data(),
      .positions = block.positions.data(),
      .weights = block.weights.data(),
      .half = false,
      .scale = 1.0F,
      .bias = block.bias.data(),
      .label_ids = block.label_ids.data(),
  };
}

std::vector<LinearShard> PublishedWeights::shards_of(std::int64_t group) const {
  std::vector<LinearShard> out;
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    if (group < 0 || static_cast<std::int64_t>(i) % n_groups_ == group) out.push_back(view(blocks_[i]));
  return out;
}

}  // namespace umpteen::pd
