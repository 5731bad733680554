// The innermost loops of Newton's method for one-vs-rest training. Compiled once per instruction set.
#include "lanes.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

/// out[row][lane] = sum over the row's features of x * panel[feature][lane].
///
/// The panel is read at random and mostly not from the first-level cache: two registers per feature, so that each
/// wait serves twice the work, and two sums per register, since one would wait for each multiply-add to end.
void multiply_panel(std::int64_t n_rows, const std::int64_t* indptr, const std::int32_t* indices, const float* data,
                    const float* panel, float* out) {
  static_assert(kPanelLabels == 32);
  for (std::int64_t row = 0; row < n_rows; ++row) {
    Lanes low[2] = {broadcast(0), broadcast(0)};
    Lanes high[2] = {broadcast(0), broadcast(0)};
    const auto add_entry = [&](std::int64_t i, int j) {
      const float* cells = panel + std::int64_t{indices[i]} * kPanelLabels;
      const Lanes x = broadcast(data[i]);
      low[j] = multiply_add(x, load(cells), low[j]);
      high[j] = multiply_add(x, load(cells + 16), high[j]);
    };
    std::int64_t i = indptr[row];
    const std::int64_t end = indptr[row + 1];
    for (; i + 2 <= end; i += 2) {
      add_entry(i, 0);
      add_entry(i + 1, 1);
    }
    if (i < end) add_entry(i, 0);
    store(out + row * kPanelLabels, add(low[0], low[1]));
    store(out + row * kPanelLabels + 16, add(high[0], high[1]));
  }
}

/// sum of data[i] * v[indices[i]], in eight sums. By scalar loads: gather instructions were no faster where measured.
float dot_sparse(const std::int32_t* indices, const float* data, std::int64_t n, const float* v) {
  float sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] = multiply_add(data[i + j], v[indices[i + j]], sums[j]);
  for (; i < n; ++i) sums[0] = multiply_add(data[i], v[indices[i]], sums[0]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// out[indices[i]] += factor * data[i]
void add_sparse(const std::int32_t* indices, const float* data, std::int64_t n, float factor, float* out) {
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; ++j) out[indices[i + j]] = multiply_add(factor, data[i + j], out[indices[i + j]]);
  for (; i < n; ++i) out[indices[i]] = multiply_add(factor, data[i], out[indices[i]]);
}

/// A packed row: its features in 16 bits, then its values times `scale` as 16-bit floats, both filled up with zeros
/// to a multiple of sixteen. scale * |value| must be below 2^15.
void pack_row(const std::int32_t* indices, const float* data, std::int64_t n, float scale, std::uint16_t* out) {
  const std::int64_t padded = (n + 15) / 16 * 16;
  std::uint16_t* const values = out + padded;
  const Lanes scales = broadcast(scale);
  const Lanes zero = broadcast(0);
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<std::uint16_t>(indices[i]);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) store_half(values + i, multiply_add(scales, load(data + i), zero));
  for (; i < n; ++i) values[i] = float_to_half(scale * data[i]);
  for (; i < padded; ++i) out[i] = values[i] = 0;
}

float dot_packed(const std::uint16_t* row, std::int64_t n, const float* v) {
  const std::int64_t padded = (n + 15) / 16 * 16;
  const std::uint16_t* const values = row + padded;
  Lanes sums = broadcast(0);
  for (std::int64_t i = 0; i < padded; i += 16)
    sums = multiply_add(load_weights(values + i), gather(v, row + i), sums);
  return sum(sums);
}

void add_packed(const std::uint16_t* row, std::int64_t n, float factor, float* out) {
  const std::int64_t padded = (n + 15) / 16 * 16;
  const std::uint16_t* const values = row + padded;
  alignas(64) float terms[16];
  const Lanes factors = broadcast(factor);
  const Lanes zero = broadcast(0);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    store(terms, multiply_add(factors, load_weights(values + i), zero));
    for (int j = 0; j < 16; ++j) out[row[i + j]] += terms[j];
  }
  for (; i < n; ++i) out[row[i]] += factor * half_to_float(values[i]);
}

double dot_dense(const float* a, const float* b, std::int64_t n) {
  double total = 0;
  std::int64_t i = 0;
  while (i + 16 <= n) {
    // Blocks short enough that float32 sums stay exact to a few units in the last place.
    const std::int64_t stop = i + 1024 < n ? i + 1024 : n;
    Lanes sums = broadcast(0);
    for (; i + 16 <= stop; i += 16) sums = multiply_add(load(a + i), load(b + i), sums);
    total += sum(sums);
  }
  for (; i < n; ++i) total += double{a[i]} * b[i];
  return total;
}

/// out = a + factor * b
void add_dense(const float* a, float factor, const float* b, std::int64_t n, float* out) {
  const Lanes factors = broadcast(factor);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, multiply_add(factors, load(b + i), load(a + i)));
  for (; i < n; ++i) out[i] = multiply_add(factor, b[i], a[i]);
}

/// First and second derivative at t of sum of max(0, m + t d)^2 / 2, both summed where m + t d > 0.
void line_derivatives(const float* m, const float* d, std::int64_t n, float t, double* first, double* second) {
  *first = *second = 0;
  const Lanes ts = broadcast(t);
  const Lanes zero = broadcast(0);
  std::int64_t i = 0;
  while (i + 16 <= n) {
    const std::int64_t stop = i + 1024 < n ? i + 1024 : n;
    Lanes sum1 = zero;
    Lanes sum2 = zero;
    for (; i + 16 <= stop; i += 16) {
      const Lanes slope = load(d + i);
      const Lanes value = multiply_add(ts, slope, load(m + i));
      const Lanes counted = keep_positive(value, slope);
      sum1 = multiply_add(value, counted, sum1);
      sum2 = multiply_add(counted, counted, sum2);
    }
    *first += sum(sum1);
    *second += sum(sum2);
  }
  for (; i < n; ++i) {
    const float value = multiply_add(t, d[i], m[i]);
    if (value <= 0) continue;
    *first += double{value} * d[i];
    *second += double{d[i]} * d[i];
  }
}

/// Writes the places where value[i] > limit, rising, and returns how many.
std::int64_t find_above(const float* value, std::int64_t n, float limit, std::int32_t* out) {
  std::int32_t* const begin = out;
  const Lanes limits = broadcast(limit);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    std::uint32_t mask = greater(load(value + i), limits);
    for (; mask != 0; mask &= mask - 1) *out++ = static_cast<std::int32_t>(i + __builtin_ctz(mask));
  }
  for (; i < n; ++i)
    if (value[i] > limit) *out++ = static_cast<std::int32_t>(i);
  return out - begin;
}

}  // namespace

extern const NewtonKernels kNewtonKernels;
const NewtonKernels kNewtonKernels{multiply_panel, dot_sparse, add_sparse, pack_row,         dot_packed,
                                   add_packed,     dot_dense,  add_dense,  line_derivatives, find_above};

}  // namespace umpteen::UMPTEEN_ISA
