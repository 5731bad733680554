// The innermost loops of prediction. Compiled once per instruction set (see CMakeLists.txt).
#include "lanes.hpp"
#include "umpteen/linear_scorer.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

/// cell[label] += w * x for n <= 16 entries of one run. With n a constant the loop is unrolled and the
/// weights stay in registers or one cache line.
template <typename Weight>
inline void add_entries(const std::uint16_t* labels, const Weight* weights, int n, Lanes x,
                        std::uint32_t tile_begin, std::uint32_t wrap, float* acc) {
  alignas(64) float w[16];
  unpack(weights, n, w);
  for (int j = 0; j < n; ++j) {
    float* cell = acc + std::size_t{(labels[j] - tile_begin) & wrap} * kPanelRows;
    store(cell, multiply_add(broadcast(w[j]), x, load(cell)));
  }
}

template <typename Weight>
void add_panel_as(const LinearShard& shard, const Weight* weights, const RowPanel& panel,
                  std::int32_t tile_begin, std::int32_t tile_size, float* acc) {
  const std::uint32_t* const indptr = shard.indptr;
  const std::uint16_t* const labels = shard.labels;
  const std::int32_t tile_end = tile_begin + tile_size;
  const bool last_tile = tile_end >= shard.n_labels;
  const auto first = static_cast<std::uint32_t>(tile_begin);
  const auto wrap = static_cast<std::uint32_t>(tile_size - 1);  // keeps a corrupt label inside acc
  for (std::int64_t f = 0; f < panel.n_features; ++f) {
    const std::uint32_t end = indptr[panel.features[f] + 1];
    std::uint32_t i = panel.cursors[f];
    std::uint32_t stop = end;
    if (!last_tile)
      for (stop = i; stop < end && labels[stop] < tile_end;) ++stop;
    panel.cursors[f] = stop;
    const Lanes x = load(panel.x + f * kPanelRows);
    for (; stop - i >= 16; i += 16) add_entries(labels + i, weights + i, 16, x, first, wrap, acc);
    add_entries(labels + i, weights + i, static_cast<int>(stop - i), x, first, wrap, acc);
  }
}

template <typename Weight>
inline void add_row_entries(const std::uint16_t* labels, const Weight* weights, int n, float x, float* acc) {
  alignas(64) float w[16];
  unpack(weights, n, w);
  for (int j = 0; j < n; ++j) acc[labels[j]] = multiply_add(w[j], x, acc[labels[j]]);
}

template <typename Weight>
void add_row_as(const LinearShard& shard, const Weight* weights, std::int64_t nnz,
                const std::int32_t* features, const float* x, float* acc) {
  const std::uint32_t* const indptr = shard.indptr;
  const std::uint16_t* const labels = shard.labels;
  const float scale = shard.scale;
  for (std::int64_t f = 0; f < nnz; ++f) {
    const std::uint32_t end = indptr[features[f] + 1];
    const float value = x[f] * scale;
    std::uint32_t i = indptr[features[f]];
    for (; end - i >= 16; i += 16) add_row_entries(labels + i, weights + i, 16, value, acc);
    add_row_entries(labels + i, weights + i, static_cast<int>(end - i), value, acc);
  }
}

void add_panel(const LinearShard& shard, const RowPanel& panel, std::int32_t tile_begin,
               std::int32_t tile_size, float* acc) {
  if (shard.half)
    add_panel_as(shard, static_cast<const std::uint16_t*>(shard.weights), panel, tile_begin, tile_size, acc);
  else
    add_panel_as(shard, static_cast<const float*>(shard.weights), panel, tile_begin, tile_size, acc);
}

void add_row(const LinearShard& shard, std::int64_t nnz, const std::int32_t* features, const float* x,
             float* acc) {
  if (shard.half)
    add_row_as(shard, static_cast<const std::uint16_t*>(shard.weights), nnz, features, x, acc);
  else
    add_row_as(shard, static_cast<const float*>(shard.weights), nnz, features, x, acc);
}

/// Positions come in rising order, so an equal score goes behind those already there: ties by lower id.
void insert(TopList& list, float score, std::int32_t position) {
  std::int32_t i = list.size < list.capacity ? list.size++ : list.capacity - 1;
  for (; i > 0 && list.scores[i - 1] < score; --i) {
    list.scores[i] = list.scores[i - 1];
    list.positions[i] = list.positions[i - 1];
  }
  list.scores[i] = score;
  list.positions[i] = position;
  if (list.size == list.capacity) list.threshold = list.scores[list.capacity - 1];
}

void select_panel(const float* acc, std::int32_t first_position, std::int32_t n_labels, int n_rows,
                  TopList* lists) {
  constexpr float kNever = __builtin_inff();
  float thresholds[kPanelRows];
  for (int r = 0; r < kPanelRows; ++r) thresholds[r] = r < n_rows ? lists[r].threshold : kNever;
  for (std::int32_t label = 0; label < n_labels; ++label) {
    std::uint32_t mask = greater(load(acc + label * kPanelRows), load(thresholds));
    for (; mask != 0; mask &= mask - 1) {
      const int r = __builtin_ctz(mask);
      insert(lists[r], acc[label * kPanelRows + r], first_position + label);
      thresholds[r] = lists[r].threshold;
    }
  }
}

void select_row(const float* acc, std::int32_t n_labels, TopList& list) {
  std::int32_t label = 0;
  for (; label + 16 <= n_labels; label += 16) {
    std::uint32_t mask = greater(load(acc + label), broadcast(list.threshold));
    for (; mask != 0; mask &= mask - 1) {
      const std::int32_t hit = label + __builtin_ctz(mask);
      if (acc[hit] > list.threshold) insert(list, acc[hit], hit);
    }
  }
  for (; label < n_labels; ++label)
    if (acc[label] > list.threshold) insert(list, acc[label], label);
}

#define UMPTEEN_QUOTE_(name) #name
#define UMPTEEN_QUOTE(name) UMPTEEN_QUOTE_(name)

}  // namespace

extern const Kernels kKernels;
const Kernels kKernels{UMPTEEN_QUOTE(UMPTEEN_ISA), add_panel, add_row, select_panel, select_row};

}  // namespace umpteen::UMPTEEN_ISA
