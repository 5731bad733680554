// The innermost loops of embeddings. Compiled once per instruction set.
#include "lanes.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

/// Registers of sixteen that a sum over rows may hold.
#if defined(__AVX512F__)
constexpr int kSums = 8;
#else
constexpr int kSums = 4;
#endif

template <int N>
void multiply_rows_part(std::int64_t n_rows, const std::int64_t* indptr, const std::int32_t* indices,
                        const float* data, const float* panel, std::int64_t stride, float* out) {
  for (std::int64_t row = 0; row < n_rows; ++row) {
    Lanes sums[N];
    for (int k = 0; k < N; ++k) sums[k] = broadcast(0);
    for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i) {
      const float* cells = panel + std::int64_t{indices[i]} * stride;
      const Lanes x = broadcast(data[i]);
      for (int k = 0; k < N; ++k) sums[k] = multiply_add(x, load(cells + 16 * k), sums[k]);
    }
    for (int k = 0; k < N; ++k) store(out + row * stride + 16 * k, sums[k]);
  }
}

/// out[row] = sum over the row's entries of x * panel[column]
void multiply_rows(std::int64_t n_rows, const std::int64_t* indptr, const std::int32_t* indices, const float* data,
                   const float* panel, std::int64_t stride, float* out) {
  std::int64_t at = 0;
  for (; at + 16 * kSums <= stride; at += 16 * kSums)
    multiply_rows_part<kSums>(n_rows, indptr, indices, data, panel + at, stride, out + at);
  switch ((stride - at) / 16) {
    case 1:
      return multiply_rows_part<1>(n_rows, indptr, indices, data, panel + at, stride, out + at);
    case 2:
      return multiply_rows_part<2>(n_rows, indptr, indices, data, panel + at, stride, out + at);
    case 3:
      return multiply_rows_part<3>(n_rows, indptr, indices, data, panel + at, stride, out + at);
#if defined(__AVX512F__)
    case 4:
      return multiply_rows_part<4>(n_rows, indptr, indices, data, panel + at, stride, out + at);
    case 5:
      return multiply_rows_part<5>(n_rows, indptr, indices, data, panel + at, stride, out + at);
    case 6:
      return multiply_rows_part<6>(n_rows, indptr, indices, data, panel + at, stride, out + at);
    case 7:
      return multiply_rows_part<7>(n_rows, indptr, indices, data, panel + at, stride, out + at);
#endif
    default:
      return;
  }
}

/// out[k] = z.Z[indices[k]]
void dot_rows(std::int64_t n, const std::int32_t* indices, const float* z, const float* Z, std::int64_t stride,
              float* out) {
  for (std::int64_t k = 0; k < n; ++k) {
    const float* other = Z + std::int64_t{indices[k]} * stride;
    Lanes sums = broadcast(0);
    for (std::int64_t d = 0; d < stride; d += 16) sums = multiply_add(load(z + d), load(other + d), sums);
    out[k] = sum(sums);
  }
}

/// first[k] = z.U[j] + u.Z[j], second[k] = u.U[j], j = indices[k]
void dot_rows_along(std::int64_t n, const std::int32_t* indices, const float* z, const float* u, const float* Z,
                    const float* U, std::int64_t stride, float* first, float* second) {
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t at = std::int64_t{indices[k]} * stride;
    Lanes a = broadcast(0);
    Lanes b = broadcast(0);
    Lanes c = broadcast(0);
    for (std::int64_t d = 0; d < stride; d += 16) {
      const Lanes uj = load(U + at + d);
      const Lanes ui = load(u + d);
      a = multiply_add(load(z + d), uj, a);
      b = multiply_add(ui, load(Z + at + d), b);
      c = multiply_add(ui, uj, c);
    }
    first[k] = sum(add(a, b));
    second[k] = sum(c);
  }
}

template <int N>
void add_pairs_part(std::int64_t n, const std::int32_t* indices, const float* factors, std::int64_t row,
                    const float* Z, std::int64_t stride, float* out) {
  Lanes z[N];
  Lanes sums[N];
  for (int k = 0; k < N; ++k) {
    z[k] = load(Z + row * stride + 16 * k);
    sums[k] = broadcast(0);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = std::int64_t{indices[i]} * stride;
    const Lanes factor = broadcast(factors[i]);
    for (int k = 0; k < N; ++k) {
      sums[k] = multiply_add(factor, load(Z + at + 16 * k), sums[k]);
      store(out + at + 16 * k, multiply_add(factor, z[k], load(out + at + 16 * k)));
    }
  }
  for (int k = 0; k < N; ++k) store(out + row * stride + 16 * k, add(sums[k], load(out + row * stride + 16 * k)));
}

/// out[row] += sum of factors[i] * Z[indices[i]], and out[indices[i]] += factors[i] * Z[row]
void add_pairs(std::int64_t n, const std::int32_t* indices, const float* factors, std::int64_t row, const float* Z,
               std::int64_t stride, float* out) {
  std::int64_t at = 0;
  for (; at + 64 <= stride; at += 64) add_pairs_part<4>(n, indices, factors, row, Z + at, stride, out + at);
  for (; at + 32 <= stride; at += 32) add_pairs_part<2>(n, indices, factors, row, Z + at, stride, out + at);
  for (; at < stride; at += 16) add_pairs_part<1>(n, indices, factors, row, Z + at, stride, out + at);
}

/// out[d] += sum over rows of a[row][d] * b[row][d]; sixty-four rows are summed in float.
void add_column_dots(std::int64_t n_rows, const float* a, const float* b, std::int64_t stride, double* out) {
  for (std::int64_t d = 0; d < stride; d += 16)
    for (std::int64_t begin = 0; begin < n_rows; begin += 64) {
      const std::int64_t end = begin + 64 < n_rows ? begin + 64 : n_rows;
      Lanes sums = broadcast(0);
      for (std::int64_t row = begin; row < end; ++row)
        sums = multiply_add(load(a + row * stride + d), load(b + row * stride + d), sums);
      alignas(64) float parts[16];
      store(parts, sums);
      for (int k = 0; k < 16; ++k) out[d + k] += static_cast<double>(parts[k]);
    }
}

/// out[row][d] = factor_a[d] * a[row][d] + factor_b[d] * b[row][d]
void combine_columns(std::int64_t n_rows, const float* factor_a, const float* a, const float* factor_b,
                     const float* b, std::int64_t stride, float* out) {
  const Lanes zero = broadcast(0);
  for (std::int64_t row = 0; row < n_rows; ++row)
    for (std::int64_t d = 0; d < stride; d += 16) {
      const std::int64_t at = row * stride + d;
      const Lanes first = multiply_add(load(factor_a + d), load(a + at), zero);
      store(out + at, multiply_add(load(factor_b + d), load(b + at), first));
    }
}

/// out += A^T B over rows of panels: four columns of A by sixteen of B at a time, 128 rows summed in float.
void add_outer(std::int64_t n_rows, const float* A, std::int64_t stride_a, const float* B, std::int64_t stride_b,
               double* out) {
  alignas(64) float parts[16];
  for (std::int64_t begin = 0; begin < n_rows; begin += 128) {
    const std::int64_t end = begin + 128 < n_rows ? begin + 128 : n_rows;
    for (std::int64_t i = 0; i < stride_a; i += 4)
      for (std::int64_t j = 0; j < stride_b; j += 16) {
        Lanes sums[4] = {broadcast(0), broadcast(0), broadcast(0), broadcast(0)};
        for (std::int64_t row = begin; row < end; ++row) {
          const Lanes b = load(B + row * stride_b + j);
          for (int k = 0; k < 4; ++k) sums[k] = multiply_add(broadcast(A[row * stride_a + i + k]), b, sums[k]);
        }
        for (int k = 0; k < 4; ++k) {
          store(parts, sums[k]);
          for (int lane = 0; lane < 16; ++lane)
            out[(i + k) * stride_b + j + lane] += static_cast<double>(parts[lane]);
        }
      }
  }
}

template <int N>
void multiply_square_rows(const float* A, std::int64_t stride_a, const float* E, std::int64_t stride_out,
                          float* out) {
  for (std::int64_t j = 0; j < stride_out; j += 16) {
    Lanes sums[N];
    for (int k = 0; k < N; ++k) sums[k] = broadcast(0);
    for (std::int64_t i = 0; i < stride_a; ++i) {
      const Lanes e = load(E + i * stride_out + j);
      for (int k = 0; k < N; ++k) sums[k] = multiply_add(broadcast(A[k * stride_a + i]), e, sums[k]);
    }
    for (int k = 0; k < N; ++k) store(out + k * stride_out + j, sums[k]);
  }
}

/// out = A * E
void multiply_square(std::int64_t n_rows, const float* A, std::int64_t stride_a, const float* E,
                     std::int64_t stride_out, float* out) {
  std::int64_t row = 0;
  for (; row + 4 <= n_rows; row += 4)
    multiply_square_rows<4>(A + row * stride_a, stride_a, E, stride_out, out + row * stride_out);
  for (; row < n_rows; ++row)
    multiply_square_rows<1>(A + row * stride_a, stride_a, E, stride_out, out + row * stride_out);
}

double dot_double(const double* a, const double* b, std::int64_t n) {
  double sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// (a, b) <- (c a - s b, s a + c b)
void rotate(double* a, double* b, std::int64_t n, double c, double s) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = a[i];
    const double y = b[i];
    a[i] = c * x - s * y;
    b[i] = s * x + c * y;
  }
}

/// out[d] += x * v[d] over a stored row
void add_half_row(const std::uint16_t* v, float x, std::int64_t stride, float* out) {
  const Lanes factor = broadcast(x);
  for (std::int64_t d = 0; d < stride; d += 16)
    store(out + d, multiply_add(factor, load_weights(v + d), load(out + d)));
}

void widen(const std::uint16_t* in, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; i += 16) store(out + i, load_weights(in + i));
}

/// Even and odd dimensions in two sums, so that neither waits for the other; the same for one query as for four.
template <int N>
void score_block_part(const float* block, const float* offsets, std::int64_t rank, const float* queries,
                      std::int64_t stride, float* out) {
  Lanes even[N];
  Lanes odd[N];
  for (int q = 0; q < N; ++q) {
    even[q] = load(offsets);
    odd[q] = broadcast(0);
  }
  std::int64_t d = 0;
  for (; d + 2 <= rank; d += 2) {
    const Lanes first = load(block + 16 * d);
    const Lanes second = load(block + 16 * d + 16);
    for (int q = 0; q < N; ++q) {
      even[q] = multiply_add(broadcast(queries[q * stride + d]), first, even[q]);
      odd[q] = multiply_add(broadcast(queries[q * stride + d + 1]), second, odd[q]);
    }
  }
  if (d < rank)
    for (int q = 0; q < N; ++q)
      even[q] = multiply_add(broadcast(queries[q * stride + d]), load(block + 16 * d), even[q]);
  for (int q = 0; q < N; ++q) store(out + 16 * q, add(even[q], odd[q]));
}

/// out[query][i] = query.z_i + offsets[i] for a block of sixteen rows, rank x 16
void score_block(const float* block, const float* offsets, std::int64_t rank, const float* queries,
                 std::int64_t n_queries, std::int64_t stride, float* out) {
  std::int64_t q = 0;
  for (; q + 4 <= n_queries; q += 4)
    score_block_part<4>(block, offsets, rank, queries + q * stride, stride, out + 16 * q);
  for (; q < n_queries; ++q) score_block_part<1>(block, offsets, rank, queries + q * stride, stride, out + 16 * q);
}

/// Bit i is set where scores[i] > limit.
std::uint32_t find_greater(const float* scores, float limit) { return greater(load(scores), broadcast(limit)); }

}  // namespace

extern const EmbeddingKernels kEmbeddingKernels;
const EmbeddingKernels kEmbeddingKernels{multiply_rows,   dot_rows,  dot_rows_along,  add_pairs,   add_column_dots,
                                         combine_columns, add_outer, multiply_square, dot_double,  rotate,
                                         add_half_row,    widen,     score_block,     find_greater};

}  // namespace umpteen::UMPTEEN_ISA
