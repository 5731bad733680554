#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

enum class Penalty { kL2, kL1 };

/// One-vs-rest support vector machines with squared hinge loss, one per label:
///
///     min over (w, b)   penalty(w, b) + C sum_i c_i max(0, m_i)^2,   m_i = 1 - s_i (w.x_i + b * bias)
///
/// The penalty is 1/2 |w|^2 + 1/2 b^2 (L2) or the sum of |w_f| and |b| (L1).
/// s_i = +1 for the label's rows and -1 for all others; c_i = positive_cost of the label, or 1. With L2
/// strictly convex: the optimum is one, whatever the route.
struct SvmProblem {
  CsrView X;
  const std::int64_t* label_indptr;  // n_labels + 1
  const std::int32_t* label_rows;    // the rows of each label, rising
  const float* positive_cost;        // n_labels
  std::int64_t n_labels;
  double C;
  double bias;     // the value of the constant feature; 0 for none
  double eps;      // stop at |gradient| <= eps * max(min(n+, n-), 1) / n_rows * |gradient at 0|, LIBLINEAR's rule
  float prune;     // weights smaller than this are dropped
  int max_rounds;  // looks at all rows per label at most
  Penalty penalty;
};

/// The weights that are left, and what it took to find them.
struct SvmSolution {
  std::vector<std::int32_t> features;
  std::vector<float> weights;
  float bias = 0;  // what is added to every score: b * problem.bias
  double objective = 0;
  double gradient = 0;  // its length at the end, relative to the bound at which it stops: <= 1 if converged
  int rounds = 0;       // looks at all rows
  int gradients = 0;    // times the gradient was computed
  int newton_steps = 0;
  int cg_steps = 0;
  std::int64_t active_rows = 0;   // rows with m > 0, summed over gradients
  std::int64_t checked_rows = 0;  // rows whose score was computed, all in all
};

/// Solves every label. The solution's last bits depend on the labels around it, never on the threads.
std::vector<SvmSolution> solve_svms(const SvmProblem& problem, int threads, Control& control);

}  // namespace umpteen
