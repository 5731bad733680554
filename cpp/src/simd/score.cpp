// The innermost loops of prediction. Compiled once per instruction set (see CMakeLists.txt).
#include "lanes.hpp"
#include "umpteen/linear_shard.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

/// Writes the labels a run's masks stand for. Never more than nnz of them, and exactly nnz: what corrupt masks leave
/// open is filled with 0. Writes up to sixteen beyond.
void list_labels(const std::uint16_t* masks, std::int64_t n_chunks, std::int64_t nnz, std::uint16_t* out) {
  std::uint16_t* const end = out + nnz;
  for (std::int64_t chunk = 0; chunk < n_chunks; ++chunk) {
    const std::uint32_t mask = masks[chunk];
    if (__builtin_popcount(mask) > end - out) break;
    out = write_set_bits(mask, static_cast<std::uint32_t>(chunk * 16), out);
  }
  while (out < end) *out++ = 0;
}

/// acc[label][row] += w * x[row] for n <= 16 weights of one run. With n a constant the loop is unrolled.
template <typename Weight>
inline void add_entries(const std::uint16_t* labels, const Weight* weights, int n, Lanes x, std::uint32_t tile_begin,
                        std::uint32_t wrap, float* acc) {
  alignas(64) float w[16];
  store(w, load_weights(weights));
  for (int j = 0; j < n; ++j) {
    float* cell = acc + std::size_t{(labels[j] - tile_begin) & wrap} * kPanelRows;
    store(cell, multiply_add(broadcast(w[j]), x, load(cell)));
  }
}

/// How many of n rising labels are below the limit.
inline std::uint32_t count_below(const std::uint16_t* labels, std::uint32_t n, std::int32_t limit) {
  std::uint32_t low = 0;
  while (n > 0) {
    const std::uint32_t half = n / 2;
    const bool below = labels[low + half] < limit;
    low += below ? half + 1 : 0;
    n = below ? n - half - 1 : half;
  }
  return low;
}

template <typename Weight>
void add_panel_as(const LinearShard& shard, const Weight* weights, const RowPanel& panel, std::int32_t tile_begin,
                  std::int32_t tile_size, float* acc) {
  const std::uint32_t* const indptr = shard.indptr;
  const std::int32_t tile_end = tile_begin + tile_size;
  const bool last_tile = tile_end >= shard.n_labels;
  const auto first = static_cast<std::uint32_t>(tile_begin);
  const auto wrap = static_cast<std::uint32_t>(tile_size - 1);  // keeps a corrupt label inside acc
  for (std::int64_t f = 0; f < panel.n_features; ++f) {
    const std::int32_t feature = panel.features[f];
    const std::uint16_t* const labels = panel.labels[f];
    const Weight* const run = weights + indptr[feature];
    const std::uint32_t nnz = indptr[feature + 1] - indptr[feature];
    std::uint32_t i = panel.cursors[f];
    std::uint32_t stop = nnz;
    if (!last_tile) stop = i + count_below(labels + i, nnz - i, tile_end);
    panel.cursors[f] = stop;
    const Lanes x = load(panel.x + f * kPanelRows);
    for (; stop - i >= 16; i += 16) add_entries(labels + i, run + i, 16, x, first, wrap, acc);
    add_entries(labels + i, run + i, static_cast<int>(stop - i), x, first, wrap, acc);
  }
}

template <typename Weight>
void spread_as(const LinearShard& shard, const Weight* weights, std::int32_t first_feature, std::int32_t n,
               float* out) {
  const auto n_chunks = static_cast<std::uint32_t>(chunks_of(shard.n_labels));
  for (std::int32_t f = 0; f < n; ++f) {
    const std::int32_t feature = first_feature + f;
    const std::uint32_t begin = shard.indptr[feature];
    const std::uint32_t nnz = shard.indptr[feature + 1] - begin;
    const std::uint16_t* const masks = shard.positions + shard.position_ptr[feature];
    std::uint32_t i = 0;
    for (std::uint32_t chunk = 0; chunk < n_chunks; ++chunk) {
      const auto bits = static_cast<std::uint32_t>(__builtin_popcount(masks[chunk]));
      const std::uint32_t mask = bits > nnz - i ? 0 : masks[chunk];  // corrupt: more labels than weights
      store(out + (std::size_t{chunk} * static_cast<std::size_t>(n) + static_cast<std::size_t>(f)) * 16,
            expand_weights(weights + begin + i, mask));
      i += mask == 0 ? 0 : bits;
    }
  }
}

void spread_weights(const LinearShard& shard, std::int32_t first_feature, std::int32_t n, float* out) {
  if (shard.half)
    spread_as(shard, static_cast<const std::uint16_t*>(shard.weights), first_feature, n, out);
  else
    spread_as(shard, static_cast<const float*>(shard.weights), first_feature, n, out);
}

/// As many labels at a time as registers hold sums for.
void add_spread(const float* w, const float* x, std::int32_t n, float* acc) {
  for (int first = 0; first < 16; first += kSumsInRegisters) {
    Lanes sums[kSumsInRegisters];
    float* const cells = acc + first * kPanelRows;
    for (int j = 0; j < kSumsInRegisters; ++j) sums[j] = load(cells + j * kPanelRows);
    for (std::int32_t f = 0; f < n; ++f) {
      const Lanes values = load(x + std::ptrdiff_t{f} * kPanelRows);
      const float* const weights = w + std::ptrdiff_t{f} * 16 + first;
      for (int j = 0; j < kSumsInRegisters; ++j) sums[j] = multiply_add(broadcast(weights[j]), values, sums[j]);
    }
    for (int j = 0; j < kSumsInRegisters; ++j) store(cells + j * kPanelRows, sums[j]);
  }
}

/// A row's runs lie far apart: asked for a few features ahead, their first lines are there when they are needed, and
/// the hardware follows from there.
constexpr std::int64_t kAhead = 4;
template <typename Weight>
inline void prefetch_run(const Weight* weights, const std::uint16_t* positions) {
  for (int line = 0; line < 4; ++line) __builtin_prefetch(reinterpret_cast<const char*>(weights) + 64 * line);
  __builtin_prefetch(positions);
}

template <typename Weight>
void add_row_as(const LinearShard& shard, const Weight* weights, std::int64_t n_entries, const std::int32_t* features,
                const float* values, float* acc) {
  const std::uint32_t* const indptr = shard.indptr;
  const auto n_chunks = static_cast<std::uint32_t>(chunks_of(shard.n_labels));
  for (std::int64_t f = 0; f < n_entries; ++f) {
    const std::int32_t feature = features[f];
    const std::uint32_t nnz = indptr[feature + 1] - indptr[feature];
    const Weight* const run = weights + indptr[feature];
    const std::uint16_t* const positions = shard.positions + shard.position_ptr[feature];
    const float value = values[f] * shard.scale;
    if (f + kAhead < n_entries) {
      const std::int32_t next = features[f + kAhead];
      prefetch_run(weights + indptr[next], shard.positions + shard.position_ptr[next]);
    }
    if (nnz >= n_chunks) {
      const Lanes x = broadcast(value);
      std::uint32_t i = 0;
      for (std::uint32_t chunk = 0; chunk < n_chunks; ++chunk) {
        const std::uint32_t mask = positions[chunk];
        const auto n = static_cast<std::uint32_t>(__builtin_popcount(mask));
        if (n > nnz - i) break;  // corrupt: more labels than weights
        float* cells = acc + std::size_t{chunk} * 16;
        store(cells, multiply_add(expand_weights(run + i, mask), x, load(cells)));
        i += n;
      }
    } else {
      for (std::uint32_t i = 0; i < nnz; ++i)
        acc[positions[i]] = multiply_add(to_float(run[i]), value, acc[positions[i]]);
    }
  }
}

void add_panel(const LinearShard& shard, const RowPanel& panel, std::int32_t tile_begin, std::int32_t tile_size,
               float* acc) {
  if (shard.half)
    add_panel_as(shard, static_cast<const std::uint16_t*>(shard.weights), panel, tile_begin, tile_size, acc);
  else
    add_panel_as(shard, static_cast<const float*>(shard.weights), panel, tile_begin, tile_size, acc);
}

void add_row(const LinearShard& shard, std::int64_t nnz, const std::int32_t* features, const float* x, float* acc) {
  if (shard.half)
    add_row_as(shard, static_cast<const std::uint16_t*>(shard.weights), nnz, features, x, acc);
  else
    add_row_as(shard, static_cast<const float*>(shard.weights), nnz, features, x, acc);
}

/// Positions come in rising order, so an equal score goes after those already there: ties go to the lower id.
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

void select_panel(const float* acc, std::int32_t first_position, std::int32_t n_labels, int n_rows, TopList* lists) {
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
const Kernels kKernels{UMPTEEN_QUOTE(UMPTEEN_ISA),
                       kRowMaskCycles,
                       list_labels,
                       add_panel,
                       spread_weights,
                       add_spread,
                       add_row,
                       select_panel,
                       select_row};

}  // namespace umpteen::UMPTEEN_ISA
