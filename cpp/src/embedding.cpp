#include "umpteen/embedding.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "umpteen/aligned.hpp"
#include "umpteen/random.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kRowsPerCheck = 256;  // between two looks at the token

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Near {
  float product;
  std::int32_t row;
};

}  // namespace

NearPairs find_near_pairs(const CsrView& Y, std::int64_t n_near, std::uint64_t seed, Control& control) {
  const std::int64_t n = Y.n_rows;
  // The rows of each label.
  std::vector<std::int64_t> begin(at(Y.n_cols + 1), 0);
  for (std::int64_t i = 0; i < Y.indptr[n]; ++i) ++begin[at(Y.indices[i]) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<std::int32_t> rows(at(Y.indptr[n]));
  std::vector<float> values(rows.size());
  std::vector<std::int64_t> next(begin.begin(), begin.end() - 1);
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t i = Y.indptr[row]; i < Y.indptr[row + 1]; ++i) {
      const std::int64_t place = next[at(Y.indices[i])]++;
      rows[at(place)] = static_cast<std::int32_t>(row);
      values[at(place)] = Y.data[i];
    }
  std::vector<std::int32_t> rank(at(n));  // the order among equals
  std::iota(rank.begin(), rank.end(), 0);
  Random random(seed);
  for (std::int64_t i = n - 1; i > 0; --i)
    std::swap(rank[at(i)], rank[random.below(static_cast<std::uint64_t>(i + 1))]);

  std::vector<float> products(at(n), 0.0F);
  std::vector<Near> near;
  std::vector<std::vector<Near>> pairs(at(n));  // at the lower row, each as often as it was found
  for (std::int64_t row = 0; row < n; ++row) {
    if (row % kRowsPerCheck == 0) control.check_in(0);
    near.clear();
    for (std::int64_t i = Y.indptr[row]; i < Y.indptr[row + 1]; ++i) {
      const auto label = at(Y.indices[i]);
      for (std::int64_t k = begin[label]; k < begin[label + 1]; ++k) {
        float& product = products[at(rows[at(k)])];
        if (product == 0) near.push_back({0, rows[at(k)]});
        product += Y.data[i] * values[at(k)];
      }
    }
    for (Near& other : near) {
      other.product = products[at(other.row)];
      products[at(other.row)] = 0;
    }
    if (static_cast<std::int64_t>(near.size()) > n_near) {
      std::nth_element(near.begin(), near.begin() + n_near, near.end(), [&](const Near& a, const Near& b) {
        return a.product != b.product ? a.product > b.product : rank[at(a.row)] < rank[at(b.row)];
      });
      near.resize(at(n_near));
    }
    for (const Near& other : near) {
      const auto low = std::min(static_cast<std::int32_t>(row), other.row);
      const auto high = std::max(static_cast<std::int32_t>(row), other.row);
      pairs[at(low)].push_back({other.product, high});
    }
  }

  NearPairs out;
  out.indptr.reserve(at(n + 1));
  out.indptr.push_back(0);
  for (std::vector<Near>& list : pairs) {
    std::sort(list.begin(), list.end(), [](const Near& a, const Near& b) { return a.row < b.row; });
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0 && list[i].row == list[i - 1].row) {
        out.weight.back() = 2;
        continue;
      }
      out.indices.push_back(list[i].row);
      out.target.push_back(list[i].product);
      out.weight.push_back(1);
    }
    out.indptr.push_back(static_cast<std::int64_t>(out.indices.size()));
    std::vector<Near>().swap(list);
  }
  return out;
}

void pair_residuals(const PairsView& pairs, const float* Z, std::int64_t stride, const float* target, float* out,
                    Control& control) {
  const EmbeddingKernels& kernels = embedding_kernels();
  for (std::int64_t row = 0; row < pairs.n_rows; ++row) {
    if (row % kRowsPerCheck == 0) control.check_in(0);
    const std::int64_t begin = pairs.indptr[row];
    const std::int64_t end = pairs.indptr[row + 1];
    kernels.dot_rows(end - begin, pairs.indices + begin, Z + row * stride, Z, stride, out + begin);
    for (std::int64_t i = begin; i < end; ++i) out[i] -= target[i];
  }
}

void pair_line(const PairsView& pairs, const float* Z, const float* U, std::int64_t stride, const float* residual,
               float* first, float* second, double* coefficients, Control& control) {
  const EmbeddingKernels& kernels = embedding_kernels();
  std::fill_n(coefficients, 5, 0.0);
  for (std::int64_t row = 0; row < pairs.n_rows; ++row) {
    if (row % kRowsPerCheck == 0) control.check_in(0);
    const std::int64_t begin = pairs.indptr[row];
    const std::int64_t end = pairs.indptr[row + 1];
    kernels.dot_rows_along(end - begin, pairs.indices + begin, Z + row * stride, U + row * stride, Z, U, stride,
                           first + begin, second + begin);
    double sums[5] = {};
    for (std::int64_t i = begin; i < end; ++i) {
      const double w = pairs.weight[i];
      const double r = residual[i];
      const double a = first[i];
      const double b = second[i];
      sums[0] += w * r * r;
      sums[1] += 2 * w * r * a;
      sums[2] += w * (a * a + 2 * r * b);
      sums[3] += 2 * w * a * b;
      sums[4] += w * b * b;
    }
    for (int k = 0; k < 5; ++k) coefficients[k] += sums[k];
  }
}

void pair_gradient(const PairsView& pairs, const float* Z, std::int64_t stride, const float* residual, float* out,
                   Control& control) {
  const EmbeddingKernels& kernels = embedding_kernels();
  std::fill_n(out, pairs.n_rows * stride, 0.0F);
  std::vector<float> factors;
  for (std::int64_t row = 0; row < pairs.n_rows; ++row) {
    if (row % kRowsPerCheck == 0) control.check_in(0);
    const std::int64_t begin = pairs.indptr[row];
    const std::int64_t n = pairs.indptr[row + 1] - begin;
    factors.resize(at(n));
    for (std::int64_t i = 0; i < n; ++i) factors[at(i)] = 2 * pairs.weight[begin + i] * residual[begin + i];
    kernels.add_pairs(n, pairs.indices + begin, factors.data(), row, Z, stride, out);
  }
}

void multiply_panel(const CsrView& X, const float* panel, std::int64_t stride, float* out, int threads,
                    Control& control) {
  const std::int64_t n_items = (X.n_rows + kRowsPerCheck - 1) / kRowsPerCheck;
  parallel_for(n_items, threads, control, [&](std::int64_t item, int) {
    const std::int64_t begin = item * kRowsPerCheck;
    const std::int64_t end = std::min(begin + kRowsPerCheck, X.n_rows);
    embedding_kernels().multiply_rows(end - begin, X.indptr + begin, X.indices, X.data, panel, stride,
                                      out + begin * stride);
  });
}

void add_rows_by_cluster(const CsrView& X, const std::int32_t* cluster, float* out, Control& control) {
  for (std::int64_t row = 0; row < X.n_rows; ++row) {
    if (row % kRowsPerCheck == 0) control.check_in(0);
    float* sums = out + cluster[row] * X.n_cols;
    for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) sums[X.indices[i]] += X.data[i];
  }
}

int solve_ridge(const CsrView& X, const CsrView& X_by_column, const float* Z, std::int64_t stride, double lambda,
                double tolerance, int max_iterations, float* V, Control& control) {
  const EmbeddingKernels& kernels = embedding_kernels();
  const std::int64_t n = X.n_rows;
  const std::int64_t d = X.n_cols;
  AlignedVector<float> residual(at(n * stride));
  AlignedVector<float> image(at(n * stride));
  AlignedVector<float> gradient(at(d * stride));
  AlignedVector<float> scaled(at(d * stride));
  AlignedVector<float> direction(at(d * stride));
  AlignedVector<float> one(at(stride), 1.0F);
  AlignedVector<float> minus_lambda(at(stride), static_cast<float>(-lambda));
  AlignedVector<float> step(at(stride));
  AlignedVector<float> back(at(stride));
  std::vector<float> diagonal(at(d));
  for (std::int64_t f = 0; f < d; ++f) {
    double squares = lambda;
    for (std::int64_t i = X_by_column.indptr[f]; i < X_by_column.indptr[f + 1]; ++i)
      squares += double{X_by_column.data[i]} * X_by_column.data[i];
    diagonal[at(f)] = static_cast<float>(squares > 0 ? 1 / squares : 0);
  }
  const auto scale_gradient = [&] {
    for (std::int64_t f = 0; f < d; ++f)
      for (std::int64_t k = 0; k < stride; ++k)
        scaled[at(f * stride + k)] = diagonal[at(f)] * gradient[at(f * stride + k)];
  };
  const auto dots = [&](const AlignedVector<float>& a, const AlignedVector<float>& b, std::int64_t rows) {
    std::vector<double> out(at(stride), 0.0);
    kernels.add_column_dots(rows, a.data(), b.data(), stride, out.data());
    return out;
  };
  /// gradient = X^T residual - lambda V
  const auto find_gradient = [&] {
    multiply_panel(X_by_column, residual.data(), stride, gradient.data(), 1, control);
    kernels.combine_columns(d, one.data(), gradient.data(), minus_lambda.data(), V, stride, gradient.data());
  };

  // The gradient at V = 0 is the scale by which it is judged small.
  std::copy_n(Z, n * stride, residual.data());
  multiply_panel(X_by_column, residual.data(), stride, gradient.data(), 1, control);
  scale_gradient();
  const std::vector<double> at_zero = dots(gradient, scaled, d);
  if (std::any_of(V, V + d * stride, [](float v) { return v != 0; })) {
    multiply_panel(X, V, stride, image.data(), 1, control);
    for (std::int64_t i = 0; i < n * stride; ++i) residual[at(i)] = Z[i] - image[at(i)];
    find_gradient();
    scale_gradient();
  }
  direction = scaled;
  std::vector<double> slope = dots(gradient, scaled, d);
  int iteration = 0;
  for (; iteration < max_iterations; ++iteration) {
    bool done = true;
    for (std::int64_t k = 0; k < stride; ++k) done = done && slope[at(k)] <= tolerance * tolerance * at_zero[at(k)];
    if (done) break;
    multiply_panel(X, direction.data(), stride, image.data(), 1, control);
    const std::vector<double> curvature = dots(image, image, n);
    const std::vector<double> length = dots(direction, direction, d);
    for (std::int64_t k = 0; k < stride; ++k) {
      const double bend = curvature[at(k)] + lambda * length[at(k)];
      step[at(k)] = static_cast<float>(bend > 0 ? slope[at(k)] / bend : 0);
      back[at(k)] = -step[at(k)];
    }
    kernels.combine_columns(d, one.data(), V, step.data(), direction.data(), stride, V);
    kernels.combine_columns(n, one.data(), residual.data(), back.data(), image.data(), stride, residual.data());
    find_gradient();
    scale_gradient();
    std::vector<double> next = dots(gradient, scaled, d);
    for (std::int64_t k = 0; k < stride; ++k)
      step[at(k)] = static_cast<float>(slope[at(k)] > 0 ? next[at(k)] / slope[at(k)] : 0);
    kernels.combine_columns(d, one.data(), scaled.data(), step.data(), direction.data(), stride, direction.data());
    slope.swap(next);
  }
  return iteration;
}

void multiply_transposed(std::int64_t n_rows, const float* A, std::int64_t stride_a, const float* B,
                         std::int64_t stride_b, double* out, Control& control) {
  std::fill_n(out, stride_a * stride_b, 0.0);
  for (std::int64_t row = 0; row < n_rows; row += kRowsPerCheck) {
    control.check_in(0);
    embedding_kernels().add_outer(std::min(kRowsPerCheck, n_rows - row), A + row * stride_a, stride_a,
                                  B + row * stride_b, stride_b, out);
  }
}

void multiply_dense(std::int64_t n_rows, const float* A, std::int64_t stride_a, const double* E,
                    std::int64_t stride_out, float* out, Control& control) {
  const AlignedVector<float> factors(E, E + stride_a * stride_out);
  for (std::int64_t row = 0; row < n_rows; row += kRowsPerCheck) {
    control.check_in(0);
    embedding_kernels().multiply_square(std::min(kRowsPerCheck, n_rows - row), A + row * stride_a, stride_a,
                                        factors.data(), stride_out, out + row * stride_out);
  }
}

double panel_inner(std::int64_t n_rows, const float* A, const float* B, std::int64_t stride, Control& control) {
  std::vector<double> sums(at(stride), 0.0);
  for (std::int64_t row = 0; row < n_rows; row += kRowsPerCheck) {
    control.check_in(0);
    embedding_kernels().add_column_dots(std::min(kRowsPerCheck, n_rows - row), A + row * stride, B + row * stride,
                                        stride, sums.data());
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void decompose(std::int64_t n, double* A, double* Ut, double* s, Control& control) {
  // Rotations Q from the left make the rows of QA orthogonal: QA = diag(s) V^T, so that U^T = Q.
  constexpr int kMaxSweeps = 60;
  constexpr double kOrthogonal = 1e-13;  // the cosine of two rows; rounding alone makes some 1e-15
  const EmbeddingKernels& kernels = embedding_kernels();
  std::fill_n(Ut, n * n, 0.0);
  for (std::int64_t i = 0; i < n; ++i) Ut[i * n + i] = 1;
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += kernels.dot_double(A + i * n, A + i * n, n);
  const double nothing = total * 1e-32;  // rows this short are zero but for rounding
  std::vector<double> squares(at(n));
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    bool rotated = false;
    for (std::int64_t i = 0; i < n; ++i) squares[at(i)] = kernels.dot_double(A + i * n, A + i * n, n);
    for (std::int64_t i = 0; i + 1 < n; ++i) {
      control.check_in(0);
      for (std::int64_t j = i + 1; j < n; ++j) {
        double& aa = squares[at(i)];
        double& bb = squares[at(j)];
        if (aa <= nothing || bb <= nothing) continue;
        const double ab = kernels.dot_double(A + i * n, A + j * n, n);
        if (ab * ab <= kOrthogonal * kOrthogonal * aa * bb) continue;
        rotated = true;
        const double zeta = (bb - aa) / (2 * ab);
        const double t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double c = 1 / std::sqrt(1 + t * t);
        kernels.rotate(A + i * n, A + j * n, n, c, c * t);
        kernels.rotate(Ut + i * n, Ut + j * n, n, c, c * t);
        aa -= t * ab;
        bb += t * ab;
      }
    }
    if (!rotated) break;
  }
  std::vector<double> norm(at(n));
  for (std::int64_t i = 0; i < n; ++i) norm[at(i)] = std::sqrt(kernels.dot_double(A + i * n, A + i * n, n));
  std::vector<std::int64_t> order(at(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return norm[at(a)] > norm[at(b)]; });
  std::vector<double> V(at(n * n));
  std::vector<double> U(at(n * n));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t from = order[at(i)];
    s[i] = norm[at(from)];
    const double scale = norm[at(from)] * norm[at(from)] > nothing ? 1 / norm[at(from)] : 0;
    for (std::int64_t k = 0; k < n; ++k) V[at(i * n + k)] = A[from * n + k] * scale;
    std::copy_n(Ut + from * n, n, U.begin() + i * n);
  }
  std::copy(V.begin(), V.end(), A);
  std::copy(U.begin(), U.end(), Ut);
}

}  // namespace umpteen
