#pragma once

#include <vector>

#include "umpteen/one_vs_rest.hpp"
#include "umpteen/parallel.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

/// The problem with an L1 penalty where rows count more or less than once: a label at a time by `L1Newton`, which
/// goes through X by columns. newton_near_margin.hpp is quicker where every row counts once.
///
/// A round is one quadratic model. A label stops when its violations, summed over columns, are short enough beside
/// those at zero, which is LIBLINEAR's rule too. A solution depends on its label only.
std::vector<OneVsRestSolution> solve_by_columns(const OneVsRestProblem& problem, MarginLoss loss, int threads,
                                                Control& control);

}  // namespace umpteen
