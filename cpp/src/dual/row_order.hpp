#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/aligned.hpp"
#include "umpteen/dual_descent.hpp"

namespace umpteen::dual {

/// A problem whose rows stand in another order: those that share frequent features lie side by side.
///
/// A search adds to the scores of rows that share a feature with the label's, scores some of them again, and makes
/// some active. In the order in which rows came, each is a jump in memory.
class OrderedProblem {
 public:
  explicit OrderedProblem(const DualProblem& problem);
  OrderedProblem(const OrderedProblem&) = delete;  // the view refers to the arrays
  OrderedProblem& operator=(const OrderedProblem&) = delete;

  const DualProblem& view() const { return view_; }
  /// Gives the rows of a solution their own numbers again.
  void restore_rows(DualSolution& solution) const;

 private:
  void find_order(const CsrView& X);
  void copy_rows(const CsrView& X);
  void copy_labels(const DualProblem& problem);
  void copy_starts(const DualProblem& problem);

  DualProblem view_;
  std::vector<std::int32_t> order_;  // by place: the row that stands there
  std::vector<std::int32_t> place_;  // by row
  std::vector<std::int64_t> indptr_;
  std::vector<std::int32_t> indices_;
  Floats data_;
  Floats row_cost_;
  std::vector<std::int32_t> label_rows_;
  std::vector<std::int32_t> start_rows_;
  Floats start_alphas_;
};

}  // namespace umpteen::dual
