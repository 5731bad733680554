#pragma once

#include <vector>

#include "umpteen/newton_svm.hpp"

namespace umpteen {

/// One-vs-rest logistic regressions, one per label. As solve_svms, with the loss log(1 + exp(-s_i (w.x_i + b *
/// bias))) in place of the squared hinge:
///
///     min over (w, b)   1/2 |w|^2 + 1/2 b^2 + C sum_i c_i log(1 + exp(-s_i (w.x_i + b * bias)))
///
/// Every row takes part in every step, so a round is a Newton step and all rows are active. A label's solution
/// depends on itself only: not on the threads, nor on the labels around it.
std::vector<SvmSolution> solve_logistic(const SvmProblem& problem, int threads, Control& control);

}  // namespace umpteen
