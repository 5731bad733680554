// The innermost loops of Newton's method on panels: kPanelLabels labels side by side, lanes innermost. Every
// lane sees the same operations in the same order, so what it computes does not depend on its neighbours. Compiled
// once per instruction set; the loops over lanes are written for the compiler to vectorise.
#include "lanes.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

constexpr int kLanes = kPanelLabels;
constexpr std::int64_t kRowsPerSum = 256;  // float32 sums this short lose a few units in the last place at most

/// A loss of u = -(margin): its value, and its first and second derivative.
struct Logistic {
  static constexpr bool kKeepsBend = true;
  static float value(float u) { return softplus(u); }
  static float slope(float u) { return 1.0F / (1.0F + exponential(-u)); }
  static float bend(float, float slope) { return slope * (1.0F - slope); }
};

struct SquaredHinge {
  static constexpr bool kKeepsBend = false;
  static float value(float u) { return u > -1.0F ? (1.0F + u) * (1.0F + u) : 0.0F; }
  static float slope(float u) { return u > -1.0F ? 2.0F * (1.0F + u) : 0.0F; }
  static float bend(float u, float) { return u > -1.0F ? 2.0F : 0.0F; }
};

void exponentials(const float* x, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = exponential(x[i]);
}

/// out[feature][lane] += x * factors[row][lane] over the rows' entries.
void add_panel_rows(std::int64_t n_rows, const std::int64_t* indptr, const std::int32_t* indices, const float* data,
                    const float* factors, float* out) {
  static_assert(kLanes == 32);
  for (std::int64_t row = 0; row < n_rows; ++row) {
    const Lanes low = load(factors + row * kLanes);
    const Lanes high = load(factors + row * kLanes + 16);
    for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i) {
      float* cells = out + std::int64_t{indices[i]} * kLanes;
      const Lanes x = broadcast(data[i]);
      store(cells, multiply_add(x, low, load(cells)));
      store(cells + 16, multiply_add(x, high, load(cells + 16)));
    }
  }
}

/// out[row][lane] = the sum over the others of K[row][other] * value[other][lane], for some rows at a time: what is
/// read of the others serves them all.
template <int kRows>
void multiply_some(std::int64_t n_rows, const float* K, const float* value, float* out) {
  Lanes low[kRows];
  Lanes high[kRows];
  for (int r = 0; r < kRows; ++r) low[r] = high[r] = broadcast(0);
  for (std::int64_t other = 0; other < n_rows; ++other) {
    const Lanes a = load(value + other * kLanes);
    const Lanes b = load(value + other * kLanes + 16);
    for (int r = 0; r < kRows; ++r) {
      const Lanes x = broadcast(K[r * n_rows + other]);
      low[r] = multiply_add(x, a, low[r]);
      high[r] = multiply_add(x, b, high[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    store(out + r * kLanes, low[r]);
    store(out + r * kLanes + 16, high[r]);
  }
}

void multiply_gram(std::int64_t n_rows, const float* K, const float* value, float* out) {
  std::int64_t row = 0;
  for (; row + 4 <= n_rows; row += 4) multiply_some<4>(n_rows, K + row * n_rows, value, out + row * kLanes);
  for (; row < n_rows; ++row) multiply_some<1>(n_rows, K + row * n_rows, value, out + row * kLanes);
}

/// value[row][lane] += constant[lane]
void add_constants(std::int64_t n_rows, const float* constant, float* value) {
  const Lanes low = load(constant);
  const Lanes high = load(constant + 16);
  for (float* cells = value; cells < value + n_rows * kLanes; cells += kLanes) {
    store(cells, add(load(cells), low));
    store(cells + 16, add(load(cells + 16), high));
  }
}

/// Where stepped[lane] > 0, the loss's derivatives by u: out = -C times the first, and curvature = C times the
/// second. In the other lanes out = curvature * change. A loss whose second derivative is a constant or 0 keeps none.
template <typename Loss>
void weigh_rows(std::int64_t n_rows, const float* stepped, float C, const float* u, const float* change,
                float* curvature, float* out) {
  for (std::int64_t row = 0; row < n_rows; ++row)
    for (int j = 0; j < kLanes; ++j) {
      const std::int64_t i = row * kLanes + j;
      const bool step = stepped[j] > 0;
      const float s = Loss::slope(u[i]);
      const float bend = step || !Loss::kKeepsBend ? C * Loss::bend(u[i], s) : curvature[i];
      out[i] = step ? -C * s : bend * change[i];
      if constexpr (Loss::kKeepsBend) curvature[i] = bend;
    }
}

/// Adds up value[row][lane] over the rows.
void add_up(std::int64_t n_rows, const float* value, double* sums) {
  for (std::int64_t begin = 0; begin < n_rows; begin += kRowsPerSum) {
    const std::int64_t end = begin + kRowsPerSum < n_rows ? begin + kRowsPerSum : n_rows;
    float part[kLanes] = {};
    for (std::int64_t row = begin; row < end; ++row)
      for (int j = 0; j < kLanes; ++j) part[j] += value[row * kLanes + j];
    for (int j = 0; j < kLanes; ++j) sums[j] += part[j];
  }
}

/// First and second derivative at t[lane] of the sum over the rows of loss(u + t d).
template <typename Loss>
void line_derivatives(std::int64_t n_rows, const float* u, const float* d, const float* t, double* first,
                      double* second) {
  for (std::int64_t begin = 0; begin < n_rows; begin += kRowsPerSum) {
    const std::int64_t end = begin + kRowsPerSum < n_rows ? begin + kRowsPerSum : n_rows;
    float part1[kLanes] = {};
    float part2[kLanes] = {};
    for (std::int64_t row = begin; row < end; ++row)
      for (int j = 0; j < kLanes; ++j) {
        const float slope = d[row * kLanes + j];
        const float there = multiply_add(t[j], slope, u[row * kLanes + j]);
        const float s = Loss::slope(there);
        part1[j] += s * slope;
        part2[j] += Loss::bend(there, s) * slope * slope;
      }
    for (int j = 0; j < kLanes; ++j) first[j] += part1[j];
    for (int j = 0; j < kLanes; ++j) second[j] += part2[j];
  }
}

/// The sum over the rows of loss(u) in one lane; u points at its first cell.
template <typename Loss>
double sum_losses(std::int64_t n_rows, const float* u) {
  double total = 0;
  for (std::int64_t begin = 0; begin < n_rows; begin += kRowsPerSum) {
    const std::int64_t n = begin + kRowsPerSum < n_rows ? kRowsPerSum : n_rows - begin;
    float loss[kRowsPerSum];
    for (std::int64_t i = 0; i < n; ++i) loss[i] = u[(begin + i) * kLanes];
    for (std::int64_t i = 0; i < n; ++i) loss[i] = Loss::value(loss[i]);
    for (std::int64_t i = 0; i < n; ++i) total += loss[i];
  }
  return total;
}

/// sums[lane] += a . b
void dot_lanes(std::int64_t n_rows, const float* a, const float* b, double* sums) {
  for (std::int64_t begin = 0; begin < n_rows; begin += kRowsPerSum) {
    const std::int64_t end = begin + kRowsPerSum < n_rows ? begin + kRowsPerSum : n_rows;
    Lanes low = broadcast(0);
    Lanes high = broadcast(0);
    for (std::int64_t row = begin; row < end; ++row) {
      low = multiply_add(load(a + row * kLanes), load(b + row * kLanes), low);
      high = multiply_add(load(a + row * kLanes + 16), load(b + row * kLanes + 16), high);
    }
    float part[kLanes];
    store(part, low);
    store(part + 16, high);
    for (int j = 0; j < kLanes; ++j) sums[j] += part[j];
  }
}

/// out[row][lane] = a + factor[lane] * b
void add_lanes(std::int64_t n_rows, const float* a, const float* factor, const float* b, float* out) {
  const Lanes low = load(factor);
  const Lanes high = load(factor + 16);
  for (std::int64_t row = 0; row < n_rows; ++row) {
    const std::int64_t at = row * kLanes;
    store(out + at, multiply_add(low, load(b + at), load(a + at)));
    store(out + at + 16, multiply_add(high, load(b + at + 16), load(a + at + 16)));
  }
}

/// out[row][lane] = factor_a[lane] * a + factor_b[lane] * b
void combine_lanes(std::int64_t n_rows, const float* factor_a, const float* a, const float* factor_b, const float* b,
                   float* out) {
  for (std::int64_t row = 0; row < n_rows; ++row)
    for (int j = 0; j < kLanes; ++j) {
      const std::int64_t i = row * kLanes + j;
      out[i] = multiply_add(factor_a[j], a[i], factor_b[j] * b[i]);
    }
}

/// direction = keep direction + forward search, residual = keep residual + back product, and squares += the latter's.
void step_lanes(std::int64_t n_rows, const float* keep, const float* forward, const float* search, float* direction,
                const float* back, const float* product, float* residual, double* squares) {
  for (std::int64_t begin = 0; begin < n_rows; begin += kRowsPerSum) {
    const std::int64_t end = begin + kRowsPerSum < n_rows ? begin + kRowsPerSum : n_rows;
    for (int half = 0; half < kLanes; half += 16) {
      const Lanes kept = load(keep + half);
      const Lanes forth = load(forward + half);
      const Lanes backward = load(back + half);
      const Lanes zero = broadcast(0);
      Lanes sums = zero;
      for (std::int64_t at = begin * kLanes + half; at < end * kLanes; at += kLanes) {
        store(direction + at, multiply_add(kept, load(direction + at), multiply_add(forth, load(search + at), zero)));
        const Lanes left = multiply_add(kept, load(residual + at), multiply_add(backward, load(product + at), zero));
        store(residual + at, left);
        sums = multiply_add(left, left, sums);
      }
      float part[16];
      store(part, sums);
      for (int j = 0; j < 16; ++j) squares[half + j] += part[j];
    }
  }
}

/// search = residual + beta search, or where ready[lane] > 0 the direction.
void turn_lanes(std::int64_t n_rows, const float* beta, const float* residual, const float* ready,
                const float* direction, float* search) {
  for (std::int64_t row = 0; row < n_rows; ++row)
    for (int j = 0; j < kLanes; ++j) {
      const std::int64_t i = row * kLanes + j;
      search[i] = ready[j] > 0 ? direction[i] : multiply_add(beta[j], search[i], residual[i]);
    }
}

}  // namespace

extern const PanelKernels kPanelKernels;
const PanelKernels kPanelKernels{
    exponentials,
    add_panel_rows,
    multiply_gram,
    add_constants,
    add_up,
    dot_lanes,
    add_lanes,
    combine_lanes,
    step_lanes,
    turn_lanes,
    {weigh_rows<Logistic>, sum_losses<Logistic>, line_derivatives<Logistic>},
    {weigh_rows<SquaredHinge>, sum_losses<SquaredHinge>, line_derivatives<SquaredHinge>},
};

}  // namespace umpteen::UMPTEEN_ISA
