// The innermost loops of training in the dual. Compiled once per instruction set.
#include "lanes.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

/// sum of data[i] * soft(v[indices[i]], limit): the threshold is applied where v is read, so that one array is kept
/// current and not two.
float dot_soft(const std::int32_t* indices, const float* data, std::int64_t n, const float* v, float limit) {
  std::int64_t i = 0;
  float total = 0;
  if (n >= 16) {
    Lanes sums[2] = {broadcast(0), broadcast(0)};
    for (; i + 32 <= n; i += 32)
      for (int j = 0; j < 2; ++j)
        sums[j] = multiply_add(load(data + i + 16 * j), soften(gather(v, indices + i + 16 * j), limit), sums[j]);
    if (i + 16 <= n) {
      sums[0] = multiply_add(load(data + i), soften(gather(v, indices + i), limit), sums[0]);
      i += 16;
    }
    total = sum(add(sums[0], sums[1]));
  }
  for (; i < n; ++i) total = multiply_add(data[i], soften(v[indices[i]], limit), total);
  return total;
}

/// The weight of a feature, times tau.
template <bool kSoft>
inline float weigh(float v, float limit) {
  return kSoft ? soften(v, limit) : v;
}

/// A row's score, times tau, without the constant feature. Most rows are short: by scalar loads, in four sums, since
/// one would wait for each multiply-add to end.
template <bool kSoft>
inline float dot_row(const DualRow& row, std::int32_t n, const float* v, float limit) {
  const std::int32_t* const indices = row.indices;
  const float* const data = row.data;
  float sums[4] = {};
  std::int32_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; ++j) sums[j] = multiply_add(data[i + j], weigh<kSoft>(v[indices[i + j]], limit), sums[j]);
  for (; i < n; ++i) sums[0] = multiply_add(data[i], weigh<kSoft>(v[indices[i]], limit), sums[0]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// The same for consecutive columns, a multiple of 16: no gathering.
template <bool kSoft>
inline float dot_tail(const float* data, const float* v, std::int32_t n, float limit) {
  Lanes sums[2] = {broadcast(0), broadcast(0)};
  for (std::int32_t i = 0; i < n; i += 16) {
    const Lanes w = load(v + i);
    sums[i / 16 % 2] = multiply_add(load(data + i), kSoft ? soften(w, limit) : w, sums[i / 16 % 2]);
  }
  return sum(add(sums[0], sums[1]));
}

template <bool kSoft, bool kSquared>
std::int64_t descend_as(std::int64_t n, std::int32_t* order, DualPass& pass) {
  float* const v = pass.v;
  const float limit = pass.limit;
  const float beyond = pass.beyond;
  const std::int32_t tail = pass.tail;
  double v0 = pass.v0;
  double gap = 0;
  double alphas = 0;
  float largest = 0;
  std::int64_t kept = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    if (k + 1 < n) {
      const DualRow& next = pass.rows[order[k + 1]];
      __builtin_prefetch(next.indices);
      __builtin_prefetch(next.data);
    }
    const std::int32_t place = order[k];
    DualRow& row = pass.rows[place];
    const std::int32_t n_sparse = row.n - tail;
    float product = dot_row<kSoft>(row, n_sparse, v, limit);
    if (tail > 0) product += dot_tail<kSoft>(row.data + n_sparse, pass.v_tail, tail, limit);
    const float score = product * pass.inverse_tau + static_cast<float>(v0 * pass.constant);
    const float violation = 1 - row.sign * score;
    const float alpha = row.alpha;
    const float short_of = row.cost * violation - alpha;  // of where a squared loss alone would put alpha
    if (violation > 0)
      gap += kSquared ? 0.5F * short_of * short_of / row.cost : (row.cost - alpha) * violation;
    else
      gap += (kSquared ? 0.5F * alpha * alpha / row.cost : 0) - alpha * violation;
    const float slope = kSquared ? short_of / row.cost : violation;
    const bool stays = alpha == 0 ? slope <= 0 : !kSquared && alpha == row.cost && slope >= 0;
    const float steep = slope < 0 ? -slope : slope;
    if (stays) {
      if (steep > beyond) continue;
      alphas += alpha;
      order[kept++] = place;
      continue;
    }
    largest = steep > largest ? steep : largest;
    float moved = row.curvature > 0 ? alpha + slope / row.curvature : row.cost;
    moved = moved > 0 ? moved : 0;
    if (!kSquared && moved > row.cost) moved = row.cost;
    const float change = row.sign * (moved - alpha);
    for (std::int32_t i = 0; i < n_sparse; ++i)
      v[row.indices[i]] = multiply_add(change, row.data[i], v[row.indices[i]]);
    for (std::int32_t i = 0; i < tail; i += 16) {
      float* const cells = pass.v_tail + i;
      store(cells, multiply_add(broadcast(change), load(row.data + n_sparse + i), load(cells)));
    }
    v0 += double{change};
    row.alpha = moved;
    alphas += moved;
    order[kept++] = place;
  }
  pass.v0 = v0;
  pass.gap = gap;
  pass.alphas = alphas;
  pass.largest = largest;
  return kept;
}

/// Dual coordinate descent: visits the rows whose places are in `order` once, in that order. Each goes to the least
/// of a parabola that lies above the dual along its alpha. Rows that are dropped leave `order`; returns how many are
/// left.
std::int64_t descend(std::int64_t n, std::int32_t* order, DualPass& pass) {
  if (pass.limit > 0)
    return pass.squared ? descend_as<true, true>(n, order, pass) : descend_as<true, false>(n, order, pass);
  return pass.squared ? descend_as<false, true>(n, order, pass) : descend_as<false, false>(n, order, pass);
}

/// Writes row * kPanelLabels + lane wherever panel[row][lane] > limits[lane], rows rising; returns how many.
std::int64_t find_in_panel(const float* panel, std::int64_t n_rows, const float* limits, std::int32_t* out) {
  static_assert(kPanelLabels == 32);
  std::int32_t* const begin = out;
  const Lanes low = load(limits);
  const Lanes high = load(limits + 16);
  for (std::int64_t row = 0; row < n_rows; ++row) {
    const float* cells = panel + row * kPanelLabels;
    std::uint32_t mask = greater(load(cells), low) | greater(load(cells + 16), high) << 16;
    for (; mask != 0; mask &= mask - 1) *out++ = static_cast<std::int32_t>(row * kPanelLabels + __builtin_ctz(mask));
  }
  return out - begin;
}

}  // namespace

extern const DualKernels kDualKernels;
const DualKernels kDualKernels{descend, dot_soft, find_in_panel};

}  // namespace umpteen::UMPTEEN_ISA
