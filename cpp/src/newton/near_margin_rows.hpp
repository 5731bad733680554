#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "../as_size.hpp"
#include "umpteen/aligned.hpp"
#include "umpteen/newton_near_margin.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

/// Rows can be packed where their features fit 16 bits.
constexpr std::int64_t kMostPackedFeatures = 65536;

/// Negatives far from the margin, all taken to be the mean row, at a distance of their own.
struct RestGroup {
  float m;
  float factor;  // 2 C times how many
};

/// A label's problem restricted to the rows nearest to its margin. All other rows enter in two ways: by their exact
/// gradient where the round begins, and as a few heavy rows, which keep the steps from pushing them all over the
/// margin. So the direction found is one of descent for all rows, though the near rows are few and rounded.
class NearMarginRows {
 public:
  NearMarginRows(const OneVsRestProblem& problem, Penalty penalty, const Floats& mean, float pack_scale,
                 Control& control, int worker);

  /// Begins a round without rows.
  void clear();
  /// Rows that follow in `add` count `cost` times, for or against the label.
  void begin(double cost, bool positive);
  /// m = 1 - s (w.x + b bias)
  void add(std::int32_t row, float m);
  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }

  /// Newton steps from (w, b) until the gradient is no longer than `enough`. The result is the change of w and b.
  /// `loss_gradient` is that of the loss over all rows at (w, b), the bias last; `rest` stands for the rows that were
  /// not added.
  void improve(const Floats& w, float b, const Floats& loss_gradient, const std::vector<RestGroup>& rest,
               double enough, Floats& direction, float& b_direction, OneVsRestSolution& solution);

 private:
  struct Row {
    const std::int32_t* indices;  // local ones after number_features
    const float* data;
    const std::uint16_t* packed;  // the same in half the bytes, or null
    std::int64_t n;
    float factor;  // 2 C c_i
    float toward;  // +1 if m rises with the score: -s
  };

  void number_features();
  void pack();
  void take_local(const Floats& from, float bias, Floats& to) const;
  void write_direction(const Floats& w, float b, const Floats& loss_gradient, Floats& direction, float& b_direction);
  void compute_gradient();
  double gradient_length() const;
  int compute_newton_direction();
  int compute_sparse_direction();
  void gather_columns();
  double sweep_columns();
  bool take_step();
  std::pair<double, double> line_derivatives(double at, double linear, float rest_slope) const;

  float mean_at(std::int32_t feature) const { return feature == n_local_ ? bias_ : local_mean_[as_size(feature)]; }
  float dot(const Row& row, const float* v) const {
    if (row.packed != nullptr) return kernels_.dot_packed(row.packed, row.n, v) * unpack_;
    return kernels_.dot_sparse(row.indices, row.data, row.n, v);
  }
  void add_to(const Row& row, float factor, float* out) const {
    if (row.packed != nullptr)
      kernels_.add_packed(row.packed, row.n, factor * unpack_, out);
    else
      kernels_.add_sparse(row.indices, row.data, row.n, factor, out);
  }

  const OneVsRestProblem& problem_;
  const Penalty penalty_;
  const CsrView& X_;
  const Floats& mean_;
  Control& control_;
  const int worker_;
  const bool renumber_;
  const float bias_;
  const float pack_scale_;
  const float unpack_;
  const NewtonKernels& kernels_ = newton_kernels();

  std::vector<Row> rows_;
  Floats m_, slope_;
  struct Range {
    std::int64_t begin;
    float factor;
    float toward;
  };
  std::vector<Range> ranges_;  // rows of the same cost and side
  std::vector<RestGroup> rest_;
  float rest_curvature_ = 0;  // summed factors of the groups inside the margin

  // local features, the bias last
  std::int64_t n_local_ = 0;
  std::vector<std::int32_t> features_, local_of_, local_indices_;
  AlignedVector<std::uint16_t> packed_;
  Floats local_mean_, w_, loss_, correction_, gradient_, direction_;
  std::vector<std::int32_t> active_;  // places of rows with m > 0

  Floats residual_, search_, product_;  // of conjugate gradients

  // of coordinate descent
  std::vector<std::int32_t> order_;                      // the features that may move
  std::vector<std::int32_t> listed_;                     // those of order_ that have not come to rest at 0
  std::vector<std::int32_t> column_of_;                  // place in order_ by feature; -1 elsewhere and between steps
  std::vector<std::int64_t> column_ptr_;                 // by place in order_
  std::vector<std::pair<std::int32_t, float>> columns_;  // place in active_, value
  std::vector<std::pair<std::int32_t, std::pair<std::int32_t, float>>> entries_;  // the same by rows
  std::vector<double> curvatures_;                                                // of the model, by place in order_
  Floats factors_, force_;  // of the active rows: their factor, and it times the change of their score
  double rest_change_ = 0;  // of the rest groups' score
};

}  // namespace umpteen
