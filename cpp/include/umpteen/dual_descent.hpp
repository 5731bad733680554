#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

/// One-vs-rest with primal and dual sparsity (PPD-Sparse), one problem per label:
///
///     min over (w, b)   lambda |w|_1 + tau/2 (|w|^2 + b^2) + sum_i c_i loss(s_i (w.x_i + b * bias))
///
/// s_i = +1 for the label's rows and -1 for all others; c_i = row_cost of the row, times positive_cost of the label
/// if s_i = +1; the loss of a margin m is max(0, 1 - m) or half its square. Its dual is over one alpha_i >= 0 per row
/// (<= c_i for the plain hinge):
///
///     min   tau/2 (|w|^2 + b^2) - sum_i alpha_i [+ 1/2 sum_i alpha_i^2 / c_i for the square]
///     v = sum_i alpha_i s_i x_i,   w = soft(v, lambda) / tau,   b = bias / tau * sum_i alpha_i s_i
///
/// The sum of both objectives is the duality gap: 0 at the optimum, and never less than what is left to gain. With
/// the square, lambda = 0 and tau = 1 / (2C) this is the problem of one_vs_rest.hpp divided by 2C.
struct DualProblem {
  CsrView X;
  const std::int64_t* label_indptr;  // n_labels + 1
  const std::int32_t* label_rows;    // the rows of each label, rising
  const std::int32_t* label_ids;     // n_labels: each label's random numbers are drawn from this and the seed
  const float* positive_cost;        // n_labels
  const float* row_cost = nullptr;   // n_rows, above 0; null if all are 1
  std::int64_t n_labels;
  bool squared;
  double lambda;
  double tau;
  double bias;              // the value of the constant feature; 0 for none
  double eps;               // stop at a gap of eps * the primal objective
  float prune;              // weights smaller than this are dropped
  int max_rounds;           // searches for violators per label at most
  int samples;              // features drawn from w for a sampled search; 0 searches exactly
  double sample_error = 0;  // above 0: as many are drawn as keep a score's expected error below this, if samples > 0
  float cutoff;             // a sampled search reads no product w_j x_ij smaller than this
  std::uint64_t seed;
  // where to start from: the alphas of each label's rows, rising; may be null
  const std::int64_t* start_indptr;
  const std::int32_t* start_rows;
  const float* start_alphas;
  bool keep_alphas;
};

/// The weights that are left, and what it took to find them.
struct DualSolution {
  std::vector<std::int32_t> features;
  std::vector<float> weights;
  float bias = 0;                  // added to every score: b * problem.bias
  std::vector<std::int32_t> rows;  // with alpha > 0, rising; where asked for
  std::vector<float> alphas;
  double objective = 0;             // primal, at most
  double gap = 0;                   // how far that is from the optimum, at most
  std::int64_t nnz = 0;             // weights before pruning
  std::int64_t support = 0;         // rows with alpha > 0
  std::int64_t active = 0;          // rows in the active set when it was largest
  std::int64_t rounds = 0;          // searches for violators
  std::int64_t epochs = 0;          // passes over the active set
  std::int64_t visited = 0;         // rows visited in them
  std::int64_t missed = 0;          // violators the sampled searches missed, found by the first exact one
  std::int64_t column_entries = 0;  // entries of X read by searches down the columns
  std::int64_t panel_passes = 0;    // searches shared by a panel of labels
};

/// Dual coordinate descent on an active set. Each label alternates between descent on its active rows
/// (dual/descent.cpp) and a search of all rows for those that violate their margin, which become active. A search
/// goes down the columns of the features in w where they are few (dual/column_search.cpp). Where they are many, the
/// label waits until kPanelLabels labels can share one reading of X (dual/panel_search.cpp), at a thirtieth of the
/// price. All of it works on a copy of X in which rows that share frequent features lie side by side
/// (dual/row_order.cpp). A label stops when its duality gap is small enough (dual/gap.cpp), after max_rounds
/// searches, or when float32 makes no progress.
///
/// A solution depends on its label and X only: not on the labels around it, nor on the threads.
std::vector<DualSolution> solve_dual(const DualProblem& problem, int threads, Control& control);

}  // namespace umpteen
