// The innermost loops of L1-regularised training. Compiled once per instruction set.
#include "lanes.hpp"
#include "umpteen/csr.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

inline float magnitude(float x) { return x < 0 ? -x : x; }
inline float larger(float a, float b) { return a > b ? a : b; }

struct Logistic {
  static float value(float m) { return softplus(-m); }
  /// -loss'(m), and the root of loss''(m)
  static void derivatives(float m, float* slope, float* root) {
    const float h = exponential(-0.5F * magnitude(m));  // the root of exp(-|m|)
    const float e = h * h;
    const float inverse = 1.0F / (1.0F + e);
    *slope = (m > 0 ? e : 1.0F) * inverse;
    *root = h * inverse;
  }
};

struct SquaredHinge {
  static float value(float m) {
    const float u = larger(1.0F - m, 0.0F);
    return u * u;
  }
  static void derivatives(float m, float* slope, float* root) {
    *slope = 2 * larger(1.0F - m, 0.0F);
    *root = m < 1 ? 1.41421356F : 0.0F;
  }
};

/// The diagonal may not vanish: a row far on its right side would leave the model without curvature.
constexpr float kSmallestRoot = 1e-3F;

template <typename Loss>
void derivatives_of(std::int64_t n, const float* __restrict wx, const float* __restrict sign,
                    const float* __restrict cost, const float* __restrict root_cost, float* __restrict slope,
                    float* __restrict root) {
  for (std::int64_t i = 0; i < n; ++i) {
    float s;
    float r;
    Loss::derivatives(sign[i] * wx[i], &s, &r);
    slope[i] = -cost[i] * sign[i] * s;
    root[i] = root_cost[i] * larger(r, kSmallestRoot);
  }
}

template <typename Loss>
double total_of(std::int64_t n, const float* __restrict wx, const float* __restrict direction, float step,
                const float* __restrict sign, const float* __restrict cost) {
  constexpr std::int64_t kBlock = 256;
  float values[kBlock];
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t size = n - begin < kBlock ? n - begin : kBlock;
    for (std::int64_t i = 0; i < size; ++i) {
      const float score = multiply_add(step, direction[begin + i], wx[begin + i]);
      values[i] = cost[begin + i] * Loss::value(sign[begin + i] * score);
    }
    for (std::int64_t i = 0; i < size; ++i) total += double{values[i]};
  }
  return total;
}

/// slope[i] = d loss / d score of row i, and root[i] = the root of its second derivative.
void derivatives(MarginLoss loss, std::int64_t n, const float* wx, const float* sign, const float* cost,
                 const float* root_cost, float* slope, float* root) {
  (loss == MarginLoss::kLogistic ? derivatives_of<Logistic> : derivatives_of<SquaredHinge>)(n, wx, sign, cost,
                                                                                            root_cost, slope, root);
}

/// sum over rows of cost * loss(sign * (wx + step * direction))
double total_loss(MarginLoss loss, std::int64_t n, const float* wx, const float* direction, float step,
                  const float* sign, const float* cost) {
  return (loss == MarginLoss::kLogistic ? total_of<Logistic> : total_of<SquaredHinge>)(n, wx, direction, step, sign,
                                                                                       cost);
}

/// By scalar loads: gather instructions were no faster where measured.
template <typename Row>
inline float dot(std::int64_t n, const Row* rows, const float* values, const float* v) {
  std::int64_t i = 0;
  float total = 0;
  if (n >= 8) {
    float sums[8] = {};
    for (; i + 8 <= n; i += 8)
      for (int j = 0; j < 8; ++j) sums[j] = multiply_add(values[i + j], v[rows[i + j]], sums[j]);
    total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }
  for (; i < n; ++i) total = multiply_add(values[i], v[rows[i]], total);
  return total;
}

/// out[c] = sum over the entries of column c of value * v[row], for the columns listed.
template <typename Row>
void column_dots(std::int64_t n, const std::int32_t* columns, const std::int64_t* start, const Row* rows,
                 const float* values, const float* v, float* out) {
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int32_t c = columns[k];
    out[c] = dot(start[c + 1] - start[c], rows + start[c], values + start[c], v);
  }
}

/// out[column] += factor * value over the entries of the rows listed.
void add_rows(std::int64_t n, const std::int32_t* ids, const CsrView& X, const float* factors, float* out) {
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t end = X.indptr[ids[k] + 1];
    for (std::int64_t i = X.indptr[ids[k]]; i < end; ++i)
      out[X.indices[i]] = multiply_add(factors[k], X.data[i], out[X.indices[i]]);
  }
}

/// out = values * root[row]; returns the sum of its squares.
template <typename Row>
float scale_column(std::int64_t n, const Row* rows, const float* values, const float* root, float* out) {
  float sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; ++j) {
      out[i + j] = values[i + j] * root[rows[i + j]];
      sums[j] = multiply_add(out[i + j], out[i + j], sums[j]);
    }
  for (; i < n; ++i) {
    out[i] = values[i] * root[rows[i]];
    sums[0] = multiply_add(out[i], out[i], sums[0]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// out[row] += factor * value
template <typename Row>
void add_column(std::int64_t n, const Row* rows, const float* values, float factor, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[rows[i]] = multiply_add(factor, values[i], out[rows[i]]);
}

/// Moves each listed column's weight to the minimum of |w|_1 + model along it. Columns that are and will stay zero
/// leave the list; returns how many are left, in order.
template <typename Row>
std::int64_t descend(std::int64_t n, std::int32_t* columns, L1Pass<Row>& pass) {
  double violations = 0;
  double largest = 0;
  std::int64_t n_left = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int32_t c = columns[k];
    const std::int64_t begin = pass.start[c];
    const std::int64_t size = pass.start[c + 1] - begin;
    const float gradient = pass.gradient[c] + dot(size, pass.rows[c], pass.values + begin, pass.moved);
    const float above = gradient + 1;  // the derivative for w > 0
    const float below = gradient - 1;  // and for w < 0
    const float w = pass.w[c];
    float violation;
    if (w == 0) {
      violation = larger(larger(-above, below), 0.0F);
      if (above > pass.shrink && below < -pass.shrink) continue;
    } else {
      violation = magnitude(w > 0 ? above : below);
    }
    columns[n_left++] = c;
    violations += double{violation};
    largest = largest < double{violation} ? double{violation} : largest;
    const float curvature = pass.diagonal[c];
    float step = -w;
    if (above < curvature * w)
      step = -above / curvature;
    else if (below > curvature * w)
      step = -below / curvature;
    if (magnitude(step) < 1e-12F) continue;
    step = step < -10 ? -10 : step > 10 ? 10 : step;
    pass.w[c] = w + step;
    add_column(size, pass.rows[c], pass.values + begin, step, pass.moved);
  }
  pass.violations = violations;
  pass.largest = largest;
  return n_left;
}

}  // namespace

extern const L1Kernels<std::uint16_t> kNarrowL1Kernels;
extern const L1Kernels<std::int32_t> kL1Kernels;
const L1Kernels<std::uint16_t> kNarrowL1Kernels{derivatives,  total_loss, column_dots, add_rows,
                                                scale_column, add_column, descend};
const L1Kernels<std::int32_t> kL1Kernels{derivatives,  total_loss, column_dots, add_rows,
                                         scale_column, add_column, descend};

}  // namespace umpteen::UMPTEEN_ISA
