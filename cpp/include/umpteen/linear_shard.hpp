#pragma once

#include <cstdint>

namespace umpteen {

/// One block of labels of a linear model, as it lies in its files: the weights feature by feature, because a
/// row touches few features, and each touched feature then reads one contiguous run of weights.
///
/// Which labels a run's weights belong to stands in `positions`, in whichever form is shorter: the labels
/// themselves (their places in this shard, rising), or one 16-bit mask per 16 labels of the shard. So a run
/// of nnz weights has min(nnz, n_chunks) positions, and it is masks if nnz >= n_chunks.
struct LinearShard {
  std::int64_t n_features;
  std::int32_t n_labels;              // at most 65536
  const std::uint32_t* indptr;        // n_features + 1: where each feature's weights start
  const std::uint32_t* position_ptr;  // n_features + 1: where its positions start
  const std::uint16_t* positions;
  const void* weights;  // float16 if `half`, else float32, then kWeightPadding unused; w = weights[i] * scale
  bool half;
  float scale;                    // a power of two, so that float16 keeps its precision whatever the size of w
  const float* bias;              // n_labels: where each score starts; -inf for a label that must not be ranked
  const std::int32_t* label_ids;  // n_labels, rising: the label's id in the whole model
};

/// Kernels read weights sixteen at a time, so that many must follow the last one.
constexpr std::int64_t kWeightPadding = 16;

inline std::int64_t chunks_of(std::int64_t n_labels) { return (n_labels + 15) / 16; }

/// Positions of a shard whose weights have these labels: fills position_ptr (n_features + 1) and positions
/// (count_positions of them).
void pack_positions(std::int64_t n_features, std::int64_t n_labels, const std::uint32_t* indptr,
                    const std::int32_t* labels, std::uint32_t* position_ptr, std::uint16_t* positions);
std::int64_t count_positions(std::int64_t n_features, std::int64_t n_labels, const std::uint32_t* indptr);

/// The other way: the label of every weight. Throws std::invalid_argument if masks and weights disagree in
/// number.
void unpack_positions(const LinearShard& shard, std::int32_t* labels);

}  // namespace umpteen
