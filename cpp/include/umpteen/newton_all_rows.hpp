#pragma once

#include <vector>

#include "umpteen/one_vs_rest.hpp"
#include "umpteen/parallel.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

/// Newton's method in the primal where every row takes part in every step, with an L2 penalty. For logistic loss,
/// log(1 + exp(-m)), to which every row contributes; and for squared hinge loss, max(0, 1 - m)^2, where rows are few,
/// as at the nodes of a label tree.
///
/// kPanelLabels labels share each reading of X, each at its own pace; a label that is done makes room for the next. A
/// round is one Newton step. A label stops when its gradient is short enough, or after max_rounds rounds.
///
/// Two layouts: panels of features x labels (newton/all_rows.cpp), or, with squared hinge loss and rows few beside
/// their features, panels of rows x labels multiplied with the Gram matrix (newton/gram.cpp). The shape of X alone
/// chooses.
///
/// A solution depends on its label only: not on the threads, nor on the labels around it. With worker >= 0 this is
/// part of a work item of parallel_for, and that worker does it all.
std::vector<OneVsRestSolution> solve_all_rows(const OneVsRestProblem& problem, MarginLoss loss, int threads,
                                              Control& control, int worker = -1);

/// Throws std::overflow_error: sums of X's values are not finite.
[[noreturn]] void refuse_overflow();

}  // namespace umpteen
