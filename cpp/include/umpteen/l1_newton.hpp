#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/aligned.hpp"
#include "umpteen/csr.hpp"
#include "umpteen/parallel.hpp"
#include "umpteen/random.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

/// A view of a sparse matrix by columns: column j has the rows rows[start[j]] ... rows[start[j + 1]).
template <typename Row>
struct ColumnsView {
  std::int64_t n_rows;
  std::int64_t n_cols;
  const std::int64_t* start;  // n_cols + 1
  const Row* rows;
  const float* values;
};

/// The same matrix by rows: some rows of a larger one, which has many columns more, and a constant column at the end.
struct RowsView {
  const CsrView* X = nullptr;              // null where there is none
  const std::int32_t* ids = nullptr;       // by row: which row of X
  const std::int32_t* features = nullptr;  // by column: which column of X; X.n_cols is the constant
  float constant = 0;
};

/// min over w   |w|_1 + sum_i cost_i loss(sign_i w.x_i)
///
/// with loss(m) = log(1 + exp(-m)) (LIBLINEAR's -s 6) or max(0, 1 - m)^2 (its -s 5).
template <typename Row>
struct L1Problem {
  ColumnsView<Row> X;
  const float* sign;  // n_rows: +1 or -1
  const float* cost;  // n_rows, above 0
  RowsView by_rows;   // may be given too: gradients are found faster by rows where columns are short
};

struct L1Options {
  double eps = 0.01;       // stop when the violations have shrunk to this part of those at zero
  int max_outer = 10;      // quadratic models at most
  int max_inner = 10;      // passes over one model's coordinates at most
  std::uint64_t seed = 0;  // of the order of coordinates
};

struct L1Report {
  double objective = 0;
  double violation = 0;  // sum over columns of how far the gradient is from optimal, as a part of that at zero
  int outer = 0;
  int inner = 0;
  bool converged = false;  // the violation fell below eps
};

/// Coordinate Newton with line search (newGLMNET; Yuan, Ho and Lin, JMLR 2012): a quadratic model of the loss is
/// minimised together with |w|_1 by a few passes over the coordinates, then a step is taken towards its minimiser
/// which is halved until the objective falls enough. So the objective never rises.
///
/// An object holds scratch space: reuse it for many problems.
template <typename Row>
class L1Newton {
 public:
  /// Starts at w (n_cols) and leaves the result there.
  L1Report solve(MarginLoss loss, const L1Problem<Row>& problem, const L1Options& options, float* w, Control& control,
                 int worker);

  /// w.x of every row, for the last problem solved.
  const float* scores() const { return wx_.data(); }

 private:
  /// The two terms of the objective.
  struct Objective {
    double loss;
    double length;  // |w|_1
  };

  void reset(const L1Problem<Row>& problem, const L1Options& options);
  void activate_all(std::size_t n_cols);
  void find_derivatives(MarginLoss loss, const L1Problem<Row>& problem);
  double total_loss(MarginLoss loss, const L1Problem<Row>& problem, float step) const;
  bool take_step(MarginLoss loss, const L1Problem<Row>& problem, float* w, Objective& now);
  void find_gradient(const L1Problem<Row>& problem);
  double find_violations(const L1Problem<Row>& problem, const float* w, double shrink);
  void choose_columns(const L1Problem<Row>& problem, const float* w);
  int descend(const L1Problem<Row>& problem, const L1Options& options, double at_zero);
  void find_scores(const L1Problem<Row>& problem, const float* w);

  const L1Kernels<Row>& kernels_ = l1_kernels<Row>();
  AlignedVector<float> wx_, direction_, slope_, root_, root_cost_;  // by row
  std::vector<std::int32_t> active_;                                // columns not shrunk away
  std::vector<float> gradient_;                                     // by column
  std::vector<float> by_feature_;                                   // by column of the larger matrix
  double largest_violation_ = 0;
  double inner_eps_ = 1;
  Random random_{0};
  // The columns of the quadratic model, scaled by the roots of its diagonal and packed.
  std::vector<std::int32_t> chosen_;
  std::vector<std::uint64_t> leaving_;
  std::vector<std::int64_t> start_;
  std::vector<const Row*> rows_;
  std::vector<float> start_w_, values_, diagonal_, model_gradient_, old_, new_;
  std::vector<std::int32_t> moving_;
};

}  // namespace umpteen
