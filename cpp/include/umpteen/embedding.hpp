#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

/// Panels, here and in all kernels of embeddings, are dense, row by row, with a stride in floats that is a multiple
/// of this; what lies beyond the rank is zero and stays zero.
constexpr std::int64_t kEmbeddingLanes = 16;

/// Pairs of rows {i, j} and what their inner product should be, each pair once, at the lower of its rows.
struct NearPairs {
  std::vector<std::int64_t> indptr;   // n_rows + 1
  std::vector<std::int32_t> indices;  // j >= i, rising
  std::vector<float> target;
  std::vector<float> weight;  // 2 where each is among the nearest of the other, else 1
};

/// The n_near rows with the largest y_i.y_j of every row i, itself included; rows with no label in common are never
/// near. Of equal products those that come first in an order drawn from `seed`.
NearPairs find_near_pairs(const CsrView& Y, std::int64_t n_near, std::uint64_t seed, Control& control);

struct PairsView {
  std::int64_t n_rows;
  const std::int64_t* indptr;
  const std::int32_t* indices;
  const float* weight;
};

/// out = z_i.z_j - target
void pair_residuals(const PairsView& pairs, const float* Z, std::int64_t stride, const float* target, float* out,
                    Control& control);

/// The residuals along Z + tU are residual + t * first + t^2 * second. Fills first and second, and the coefficients
/// of the sum of weight * residual^2, a quartic in t, from t^0 to t^4.
void pair_line(const PairsView& pairs, const float* Z, const float* U, std::int64_t stride, const float* residual,
               float* first, float* second, double* coefficients, Control& control);

/// out = the gradient of the sum of weight * residual^2 with respect to Z.
void pair_gradient(const PairsView& pairs, const float* Z, std::int64_t stride, const float* residual, float* out,
                   Control& control);

/// out = X * panel
void multiply_panel(const CsrView& X, const float* panel, std::int64_t stride, float* out, int threads,
                    Control& control);

/// out[cluster] += sum of the cluster's rows; out is n_clusters x n_cols.
void add_rows_by_cluster(const CsrView& X, const std::int32_t* cluster, float* out, Control& control);

/// min |Z - XV|^2 + lambda |V|^2 by conjugate gradients, one per column and all side by side, scaled by the diagonal.
/// V holds the start and then the solution. Ends when every column's gradient is `tolerance` times that at V = 0, or
/// after max_iterations. Returns how many it took.
int solve_ridge(const CsrView& X, const CsrView& X_by_column, const float* Z, std::int64_t stride, double lambda,
                double tolerance, int max_iterations, float* V, Control& control);

/// The sum of A * B, entry by entry; sixty-four rows at a time in float, those sums in double.
double panel_inner(std::int64_t n_rows, const float* A, const float* B, std::int64_t stride, Control& control);

/// out = A^T B, stride_a x stride_b; 128 rows at a time in float, those sums in double.
void multiply_transposed(std::int64_t n_rows, const float* A, std::int64_t stride_a, const float* B,
                         std::int64_t stride_b, double* out, Control& control);

/// out = A * E, in float; E is stride_a x stride_out, a multiple of 16.
void multiply_dense(std::int64_t n_rows, const float* A, std::int64_t stride_a, const double* E,
                    std::int64_t stride_out, float* out, Control& control);

/// A = U diag(s) V^T for a square A, by rotations that make its rows orthogonal; s falls. A is n x n and becomes V^T;
/// U^T comes out in Ut.
void decompose(std::int64_t n, double* A, double* Ut, double* s, Control& control);

// --- prediction ----------------------------------------------------------------------------------------------------

/// One cluster of one learner.
struct EmbeddingCluster {
  std::int32_t learner;
  std::int64_t n_rows;
  std::int64_t rank;
  std::int64_t n_kept;             // features that occur in the cluster
  const std::int32_t* features;    // n_kept, rising
  const float* centre;             // n_kept
  double centre_offset;            // closeness of x is centre.x + this
  const std::uint16_t* V;          // (n_kept + 1) x stride, 16-bit floats; the last row belongs to the bias
  double scale;                    // of V
  const std::uint16_t* Z;          // blocks of sixteen rows: rank x 16, 16-bit floats, zero where rows end
  const float* offsets;            // n_rows: similarity is z.z_i + this
  const std::uint32_t* label_ptr;  // n_rows + 1
  const void* labels;              // uint16 or int32
  bool wide_labels;
};

struct EmbeddingModel {
  std::int64_t n_features;
  std::int64_t n_labels;
  double bias;
  bool cosine;
  std::int64_t knn;
  double sharpness;
  std::vector<EmbeddingCluster> clusters;
  std::vector<std::vector<std::int32_t>> learners;  // the clusters of each
};

/// The nearest cluster of every row in one learner, and the row's embedding there: clusters n_rows, out n_rows x
/// stride.
void embed_rows(const EmbeddingModel& model, std::int64_t learner, const CsrView& X, std::int64_t stride, int threads,
                std::int32_t* clusters, float* out, Control& control);

/// The knn nearest rows, best first, of each row of X in each learner's nearest cluster: n_rows x n_learners
/// clusters, n_rows x n_learners x knn rows and similarities. -1 pads; of equal ones the lower row comes first.
void find_near_rows(const EmbeddingModel& model, const CsrView& X, int threads, std::int32_t* clusters,
                    std::int32_t* rows, float* similarity, Control& control);

/// The best labels by the vote of rows found by find_near_rows. A learner's row votes for its labels with
/// exp(sharpness * (similarity - the best similarity)); allowed may be null.
void vote_near_rows(const EmbeddingModel& model, std::int64_t n_rows, const std::int32_t* clusters,
                    const std::int32_t* rows, const float* similarity, std::int64_t top_k,
                    const std::uint8_t* allowed, int threads, std::int32_t* out_labels, float* out_scores,
                    Control& control);

/// Both, some rows at a time.
void embedding_topk(const EmbeddingModel& model, const CsrView& X, std::int64_t top_k, const std::uint8_t* allowed,
                    int threads, std::int32_t* out_labels, float* out_scores, Control& control);

}  // namespace umpteen
