// A linear model's shard, checked at the edge.
#pragma once

#include <algorithm>

#include "common.hpp"
#include "umpteen/linear_shard.hpp"

namespace umpteen {

using Weights = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// A shard's arrays, checked so that no kernel can read outside of them; bias and label ids are the caller's to set.
inline LinearShard view_shard(std::int64_t n_features, std::int64_t n_labels, const Vector<std::uint32_t>& indptr,
                              const Vector<std::uint32_t>& position_ptr, const Vector<std::uint16_t>& positions,
                              const Weights& weights, float scale) {
  const bool half = weights.itemsize() == 2;
  if (weights.dtype().code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) ||
      (!half && weights.itemsize() != 4))
    throw std::invalid_argument("a shard's weights must be float16 or float32");
  if (n_labels > 65536)
    throw std::invalid_argument("a shard must have at most 65536 labels, but has " + std::to_string(n_labels));
  if (static_cast<std::int64_t>(indptr.size()) != n_features + 1 || position_ptr.size() != indptr.size())
    throw std::invalid_argument("a shard's offsets must be one more than the features");
  const std::uint32_t* p = indptr.data();
  const std::uint32_t* q = position_ptr.data();
  bool good = p[0] == 0 && q[0] == 0 && p[n_features] + kWeightPadding == static_cast<std::int64_t>(weights.size()) &&
              q[n_features] == positions.size();
  for (std::int64_t f = 0; good && f < n_features; ++f)
    good = p[f] <= p[f + 1] && q[f + 1] == q[f] + std::min<std::int64_t>(p[f + 1] - p[f], chunks_of(n_labels));
  if (!good) throw std::invalid_argument("a shard's offsets must rise and end where its weights and positions do");
  return {
      .n_features = n_features,
      .n_labels = static_cast<std::int32_t>(n_labels),
      .indptr = p,
      .position_ptr = q,
      .positions = positions.data(),
      .weights = weights.data(),
      .half = half,
      .scale = scale,
      .bias = nullptr,
      .label_ids = nullptr,
  };
}

}  // namespace umpteen
