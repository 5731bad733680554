// The innermost loops of walking down trees. Compiled once per instruction set.
#include "lanes.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

/// Calls put(feature, weight) for each stored weight. Whatever a damaged file says, no feature is above n_features.
template <typename Gap, typename Put>
void for_weights(const ForestNode& node, std::uint32_t n_features, const Put& put) {
  const auto* gaps = static_cast<const Gap*>(node.gaps);
  std::uint32_t feature = 0;
  for (std::int64_t k = 0; k < node.n_weights; ++k) {
    feature += gaps[k];
    put(k, feature < n_features ? feature : n_features, half_to_float(node.weights[k]));
  }
}

template <typename Put>
void for_weights(const ForestNode& node, std::uint32_t n_features, const Put& put) {
  if (node.wide)
    for_weights<std::uint16_t>(node, n_features, put);
  else
    for_weights<std::uint8_t>(node, n_features, put);
}

void spread(const ForestNode& node, std::uint32_t n_features, float* dense, std::uint32_t* places) {
  for_weights(node, n_features, [&](std::int64_t k, std::uint32_t feature, float weight) {
    dense[feature] = weight;
    places[k] = feature;
  });
}

/// Sixteen sums side by side, then what is left, then the constant.
template <typename Weights>
float score(const ForestRow& row, float constant, const Weights& weights_at) {
  Lanes sums = broadcast(0);
  std::int64_t i = 0;
  for (; i + 16 <= row.n; i += 16) sums = multiply_add(load(row.values + i), weights_at.sixteen(i), sums);
  float total = sum(sums);
  for (; i < row.n; ++i) total = multiply_add(row.values[i], weights_at.one(i), total);
  return multiply_add(row.constant, constant, total);
}

struct SpreadWeights {
  const float* dense;
  const std::int32_t* features;
  Lanes sixteen(std::int64_t i) const { return gather(dense, features + i); }
  float one(std::int64_t i) const { return dense[features[i]]; }
};

struct FoundWeights {
  const float* found;
  Lanes sixteen(std::int64_t i) const { return load(found + i); }
  float one(std::int64_t i) const { return found[i]; }
};

float score_row(const ForestRow& row, std::uint32_t n_features, const float* dense) {
  return score(row, dense[n_features], SpreadWeights{dense, row.features});
}

float score_alone(const ForestRow& row, const ForestNode& node, std::uint32_t n_features, const std::int32_t* places,
                  float* found) {
  for (std::int64_t i = 0; i < row.n + 2; ++i) found[i] = 0;
  for_weights(node, n_features,
              [&](std::int64_t, std::uint32_t feature, float weight) { found[places[feature]] = weight; });
  return score(row, found[row.n + 1], FoundWeights{found + 1});
}

}  // namespace

extern const ForestKernels kForestKernels;
const ForestKernels kForestKernels{spread, score_row, score_alone};

}  // namespace umpteen::UMPTEEN_ISA
