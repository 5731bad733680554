#pragma once

#include <vector>

#include "umpteen/one_vs_rest.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

enum class Penalty { kL2, kL1 };

/// Newton's method in the primal for squared hinge loss, max(0, 1 - m)^2 of a margin m, with an L2 or L1 penalty. For
/// many rows of which few lie near a label's margin: most steps read only those.
///
/// kPanelLabels labels are solved side by side, in rounds. In a round each label takes a few Newton steps on the rows
/// nearest to its margin; then one reading of X scores all rows for all labels of the panel, and a line search along
/// the way each label came finds the least of its whole objective. The objective falls from round to round, and a
/// label stops when its gradient over all rows is short enough, or after max_rounds rounds.
///
/// The last bits of a solution depend on the labels in its panel, never on the threads.
std::vector<OneVsRestSolution> solve_near_margin(const OneVsRestProblem& problem, Penalty penalty, int threads,
                                                 Control& control);

}  // namespace umpteen
