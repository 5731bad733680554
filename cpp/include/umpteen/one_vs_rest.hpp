#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/csr.hpp"

namespace umpteen {

/// One linear classifier per label, each a convex problem of its own:
///
///     min over (w, b)   penalty(w, b) + C sum_i c_i loss(s_i (w.x_i + b * bias))
///
/// s_i = +1 for the label's rows and -1 for all others; c_i = row_cost of the row, times positive_cost of the
/// label if s_i = +1. The penalty is 1/2 |w|^2 + 1/2 b^2 (L2) or the sum of |w_f| and |b| (L1). With L2 the problem
/// is strictly convex, so it has one optimum, and every solver finds the same one.
///
/// Three solvers take this problem. newton_near_margin.hpp: squared hinge loss, L2 or L1, many rows.
/// newton_all_rows.hpp: logistic or squared hinge loss, L2, few rows. newton_by_columns.hpp: L1, rows that count more
/// or less than once. A fourth, dual_descent.hpp, takes the same problem with squared hinge loss and L2 in another
/// scale. docs/solvers.md compares them.
struct OneVsRestProblem {
  CsrView X;
  const std::int64_t* label_indptr;  // n_labels + 1
  const std::int32_t* label_rows;    // the rows of each label, rising
  const float* positive_cost;        // n_labels
  const float* row_cost = nullptr;   // n_rows, above 0; null if all are 1. newton_near_margin.hpp takes none
  std::int64_t n_labels;
  double C;
  double bias;     // the value of the constant feature; 0 for none
  double eps;      // stop at |gradient| <= eps * max(min(n+, n-), 1) / n_rows * |gradient at 0|, LIBLINEAR's rule
  float prune;     // weights smaller than this are dropped
  int max_rounds;  // per label at most; what a round is depends on the solver
};

/// The weights that are left, and what it took to find them.
struct OneVsRestSolution {
  std::vector<std::int32_t> features;
  std::vector<float> weights;
  float bias = 0;  // added to every score: b * problem.bias
  double objective = 0;
  double gradient = 0;  // its length at the end, relative to the bound at which it stops: <= 1 if converged
  std::int64_t rounds = 0;
  std::int64_t gradients = 0;  // times the gradient was computed
  std::int64_t newton_steps = 0;
  std::int64_t cg_steps = 0;
  std::int64_t active_rows = 0;   // rows inside the margin, summed over gradients
  std::int64_t checked_rows = 0;  // rows whose score was computed, summed over rounds and steps
};

}  // namespace umpteen
