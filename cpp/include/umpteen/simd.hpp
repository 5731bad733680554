#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace umpteen {

struct CsrView;
struct LinearShard;

/// Rows scored side by side; one AVX-512 register of float32.
constexpr int kPanelRows = 16;

/// The best labels of one row within one shard, best first. Only scores above `threshold` may enter.
struct TopList {
  float* scores;
  std::int32_t* positions;  // of the labels in the shard
  std::int32_t capacity;
  std::int32_t size;
  float threshold;
};

/// Up to sixteen rows as a dense panel over the features any of them has.
struct RowPanel {
  std::int64_t n_features;             // of the union
  const std::int32_t* features;        // rising
  const float* x;                      // n_features x kPanelRows, zero where the row lacks the feature
  const std::uint16_t* const* labels;  // n_features: the labels of each feature's run in the shard at hand
  std::uint32_t* cursors;              // n_features: how many weights of each feature's run have been read
};

/// The innermost loops, one table per instruction set. The code is in src/simd/, compiled once for each.
struct Kernels {
  const char* name;
  /// What add_row takes for sixteen labels given by a mask, in cycles, measured.
  std::int64_t row_mask_cycles;
  /// The labels of a run that is stored as masks: nnz of them, with room for sixteen more.
  void (*list_labels)(const std::uint16_t* masks, std::int64_t n_chunks, std::int64_t nnz, std::uint16_t* out);
  /// acc[label - tile_begin][row] += w * x[row] over the labels of one tile, for all features of the panel.
  /// tile_size is a power of two of at least 16; acc has tile_size x kPanelRows floats.
  void (*add_panel)(const LinearShard& shard, const RowPanel& panel, std::int32_t tile_begin, std::int32_t tile_size,
                    float* acc);
  /// The weights of n features with masks, without gaps and sixteen labels at a time: out[chunk][feature][label].
  void (*spread_weights)(const LinearShard& shard, std::int32_t first_feature, std::int32_t n, float* out);
  /// acc[label][row] += w[feature][label] * x[feature][row] over n features in order: sixteen labels, sixteen rows.
  void (*add_spread)(const float* w, const float* x, std::int32_t n, float* acc);
  /// acc[label] += w * x over one row. acc has 65536 floats.
  void (*add_row)(const LinearShard& shard, std::int64_t nnz, const std::int32_t* features, const float* x,
                  float* acc);
  /// Moves what beats the thresholds from acc (n_labels x kPanelRows) into the rows' lists.
  void (*select_panel)(const float* acc, std::int32_t first_position, std::int32_t n_labels, int n_rows,
                       TopList* lists);
  void (*select_row)(const float* acc, std::int32_t n_labels, TopList& list);
};

/// Labels trained side by side.
constexpr int kPanelLabels = 32;

/// For training; src/simd/newton.cpp documents each.
struct NewtonKernels {
  void (*multiply_panel)(std::int64_t n_rows, const std::int64_t* indptr, const std::int32_t* indices,
                         const float* data, const float* panel, float* out);
  float (*dot_sparse)(const std::int32_t* indices, const float* data, std::int64_t n, const float* v);
  void (*add_sparse)(const std::int32_t* indices, const float* data, std::int64_t n, float factor, float* out);
  void (*pack_row)(const std::int32_t* indices, const float* data, std::int64_t n, float scale, std::uint16_t* out);
  float (*dot_packed)(const std::uint16_t* row, std::int64_t n, const float* v);
  void (*add_packed)(const std::uint16_t* row, std::int64_t n, float factor, float* out);
  double (*dot_dense)(const float* a, const float* b, std::int64_t n);
  void (*add_dense)(const float* a, float factor, const float* b, std::int64_t n, float* out);
  void (*line_derivatives)(const float* m, const float* d, std::int64_t n, float t, double* first, double* second);
  std::int64_t (*find_above)(const float* value, std::int64_t n, float limit, std::int32_t* out);
};

/// A row of an active set in the dual, as descent visits it.
struct DualRow {
  const std::int32_t* indices;
  const float* data;
  std::int32_t n;
  float sign;
  float alpha;
  float cost;
  float curvature;  // an upper bound of the dual's second derivative along alpha
};

/// One pass over an active set; src/simd/dual.cpp documents it.
struct DualPass {
  DualRow* rows;
  float* v;           // the sum of alpha_i s_i x_i, moved
  float* v_tail;      // where v has the columns of the tail
  std::int32_t tail;  // every row ends with so many consecutive columns, the same for all; a multiple of 16
  double v0;          // the sum of alpha_i s_i, moved
  double constant;    // what v0 is multiplied by in a score
  float limit;        // lambda
  float inverse_tau;
  bool squared;   // the hinge's square
  float beyond;   // a row at its bound is dropped if its slope keeps it there by more
  double gap;     // out: of the active set, each row as it was seen
  double alphas;  // out: their sum
  float largest;  // out: the largest slope of a row that moved
};

/// For training in the dual; src/simd/dual.cpp documents each.
struct DualKernels {
  std::int64_t (*descend)(std::int64_t n, std::int32_t* order, DualPass& pass);
  float (*dot_soft)(const std::int32_t* indices, const float* data, std::int64_t n, const float* v, float limit);
  std::int64_t (*find_in_panel)(const float* panel, std::int64_t n_rows, const float* limits, std::int32_t* out);
};

/// For Newton's method on panels of rows x kPanelLabels; src/simd/panel.cpp documents each.
struct PanelLossKernels {
  void (*weigh_rows)(std::int64_t n_rows, const float* stepped, float C, const float* u, const float* change,
                     float* curvature, float* out);
  double (*sum_losses)(std::int64_t n_rows, const float* u);
  void (*line_derivatives)(std::int64_t n_rows, const float* u, const float* d, const float* t, double* first,
                           double* second);
};
struct PanelKernels {
  void (*exponentials)(const float* x, std::int64_t n, float* out);
  void (*add_panel_rows)(std::int64_t n_rows, const std::int64_t* indptr, const std::int32_t* indices,
                         const float* data, const float* factors, float* out);
  void (*multiply_gram)(std::int64_t n_rows, const float* K, const float* value, float* out);
  void (*add_constants)(std::int64_t n_rows, const float* constant, float* value);
  void (*add_up)(std::int64_t n_rows, const float* value, double* sums);
  void (*dot_lanes)(std::int64_t n_rows, const float* a, const float* b, double* sums);
  void (*add_lanes)(std::int64_t n_rows, const float* a, const float* factor, const float* b, float* out);
  void (*combine_lanes)(std::int64_t n_rows, const float* factor_a, const float* a, const float* factor_b,
                        const float* b, float* out);
  void (*step_lanes)(std::int64_t n_rows, const float* keep, const float* forward, const float* search,
                     float* direction, const float* back, const float* product, float* residual, double* squares);
  void (*turn_lanes)(std::int64_t n_rows, const float* beta, const float* residual, const float* ready,
                     const float* direction, float* search);
  PanelLossKernels logistic;
  PanelLossKernels squared_hinge;
};

/// A row's loss at its margin m = sign * score: log(1 + exp(-m)), or max(0, 1 - m)^2.
enum class MarginLoss { kLogistic, kSquaredHinge };

/// One pass of coordinate descent over a quadratic model; src/simd/l1.cpp documents it.
template <typename Row>
struct L1Pass {
  const std::int64_t* start;  // by column: where its values are, already scaled by the roots of the diagonal
  const float* values;
  const Row* const* rows;  // by column: the rows of its values
  const float* gradient;   // by column: of the loss, where the model was made
  const float* diagonal;   // by column: of the model
  float* w;                // by column, moved
  float* moved;            // by row: scaled columns times what w has moved
  float shrink;            // a column at zero whose gradient is this far inside [-1, 1] is dropped
  double violations;       // out: their sum
  double largest;          // out
};

/// The innermost loops of L1-regularised training, for rows numbered in 16 or 32 bits.
template <typename Row>
struct L1Kernels {
  void (*derivatives)(MarginLoss loss, std::int64_t n, const float* wx, const float* sign, const float* cost,
                      const float* root_cost, float* slope, float* root);
  double (*total_loss)(MarginLoss loss, std::int64_t n, const float* wx, const float* direction, float step,
                       const float* sign, const float* cost);
  void (*column_dots)(std::int64_t n, const std::int32_t* columns, const std::int64_t* start, const Row* rows,
                      const float* values, const float* v, float* out);
  void (*add_rows)(std::int64_t n, const std::int32_t* ids, const CsrView& X, const float* factors, float* out);
  float (*scale_column)(std::int64_t n, const Row* rows, const float* values, const float* root, float* out);
  void (*add_column)(std::int64_t n, const Row* rows, const float* values, float factor, float* out);
  std::int64_t (*descend)(std::int64_t n, std::int32_t* columns, L1Pass<Row>& pass);
};

/// A node's weights as they are stored; see forest.hpp.
struct ForestNode {
  std::int64_t n_weights;
  const void* gaps;
  bool wide;
  const std::uint16_t* weights;
};

/// A sparse row: its entries, and the value of the constant feature.
struct ForestRow {
  std::int64_t n;
  const std::int32_t* features;
  const float* values;
  float constant;
};

/// Both ways to find w.x add the same numbers in the same order, whatever other rows there are.
struct ForestKernels {
  /// Writes the weights to their features' places in `dense`, of n_features + 1, and lists the places.
  void (*spread)(const ForestNode& node, std::uint32_t n_features, float* dense, std::uint32_t* places);
  /// w.x from weights that are spread: for many rows at one node.
  float (*score_row)(const ForestRow& row, std::uint32_t n_features, const float* dense);
  /// w.x from the weights as they are stored: for one row, whose features rise, at many nodes. `found` has room for
  /// n + 1.
  float (*score_alone)(const ForestRow& row, const ForestNode& node, std::uint32_t n_features, float* found);
};

/// For embeddings; src/simd/embedding.cpp documents each.
struct EmbeddingKernels {
  void (*multiply_rows)(std::int64_t n_rows, const std::int64_t* indptr, const std::int32_t* indices,
                        const float* data, const float* panel, std::int64_t stride, float* out);
  void (*dot_rows)(std::int64_t n, const std::int32_t* indices, const float* z, const float* Z, std::int64_t stride,
                   float* out);
  void (*dot_rows_along)(std::int64_t n, const std::int32_t* indices, const float* z, const float* u, const float* Z,
                         const float* U, std::int64_t stride, float* first, float* second);
  void (*add_pairs)(std::int64_t n, const std::int32_t* indices, const float* factors, std::int64_t row,
                    const float* Z, std::int64_t stride, float* out);
  void (*add_column_dots)(std::int64_t n_rows, const float* a, const float* b, std::int64_t stride, double* out);
  void (*combine_columns)(std::int64_t n_rows, const float* factor_a, const float* a, const float* factor_b,
                          const float* b, std::int64_t stride, float* out);
  void (*add_outer)(std::int64_t n_rows, const float* A, std::int64_t stride_a, const float* B, std::int64_t stride_b,
                    double* out);
  void (*multiply_square)(std::int64_t n_rows, const float* A, std::int64_t stride_a, const float* E,
                          std::int64_t stride_out, float* out);
  double (*dot_double)(const double* a, const double* b, std::int64_t n);
  void (*rotate)(double* a, double* b, std::int64_t n, double c, double s);
  void (*add_half_row)(const std::uint16_t* v, float x, std::int64_t stride, float* out);
  void (*widen)(const std::uint16_t* in, std::int64_t n, float* out);
  void (*score_block)(const float* block, const float* offsets, std::int64_t rank, const float* queries,
                      std::int64_t n_queries, std::int64_t stride, float* out);
  std::uint32_t (*find_greater)(const float* scores, float limit);
};

/// The kernels in use: the best this machine can run, unless the environment variable UMPTEEN_SIMD names
/// another.
const Kernels& kernels();
const NewtonKernels& newton_kernels();
const DualKernels& dual_kernels();
const PanelKernels& panel_kernels();
template <typename Row>
const L1Kernels<Row>& l1_kernels();  // of std::uint16_t or std::int32_t
const ForestKernels& forest_kernels();
const EmbeddingKernels& embedding_kernels();

/// Names of the instruction sets this build has and this machine can run, plainest first.
std::vector<std::string> available_simd();

/// Switches to another instruction set, for tests and measurements. Throws std::invalid_argument if it cannot
/// run.
void use_simd(const std::string& name);

}  // namespace umpteen
