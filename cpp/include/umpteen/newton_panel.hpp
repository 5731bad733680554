#pragma once

#include <vector>

#include "umpteen/newton_svm.hpp"

namespace umpteen {

enum class PanelLoss { kLogistic, kSquaredHinge };

/// One-vs-rest problems with L2 penalty, one per label, kPanelLabels of them side by side:
///
///     min over (w, b)   1/2 |w|^2 + 1/2 b^2 + C sum_i c_i loss(s_i (w.x_i + b * bias))
///
/// where the loss of a margin m is log(1 + exp(-m)) or max(0, 1 - m)^2. Every row takes part in every step, so a
/// round is a Newton step and all rows are active: for logistic loss there is no other way, for squared hinge loss it
/// is the faster one where rows are few; and where they are few beside their features, it works on combinations of
/// rows in place of weights (gram_panel.cpp). A label's solution depends on itself only: not on the threads, nor on
/// the labels around it. With worker >= 0 it is part of a work item of parallel_for, and all is done by that worker.
std::vector<SvmSolution> solve_panels(const SvmProblem& problem, PanelLoss loss, int threads, Control& control,
                                      int worker = -1);

/// Ends a training whose sums are no numbers any more.
[[noreturn]] void refuse_overflow();

}  // namespace umpteen
