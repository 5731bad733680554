#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

/// Projects (b, c) onto the set {x, y >= 0, sum x = sum y <= C} and writes the nearest point over them:
///
///     min over (x, y)   |x - b|^2 + |y - c|^2
///
/// x is max(b - p, 0) and y is max(c - q, 0), where p and q fall as the common sum t rises, in straight pieces that
/// end wherever one more entry becomes positive. The objective's slope along t is -2(p + q), so t stops in the first
/// piece where p + q reaches 0, or at C. One sort each: O(n log n). Returns p: a further entry of b changes the
/// answer only if it exceeds p.
double project_two_simplices(double* b, std::int64_t n_b, double* c, std::int64_t n_c, double C);

/// One max-margin problem over all labels, sparse in the primal (L1) and in the dual (few labels are confused):
///
///     min over W   sum_k 1/2 |w_k|^2 + lambda |w_k|_1 + C sum_i c_i max(0, 1 + max_n w_n.x_i - min_p w_p.x_i)
///
/// c_i is the row's cost; p over the labels of row i, n over all others; rows without labels, or with all of them,
/// have no loss. Labels that no row has are left out. The dual, with v_k = sum_i alpha_ik x_i, w_k = soft(v_k,
/// lambda), e_ik = 1 for the n:
///
///     min over alpha   G = 1/2 sum_k |w_k|^2 + sum_i e_i.alpha_i
///     alpha_ip >= 0,  alpha_in <= 0,  sum_p alpha_ip = -sum_n alpha_in <= C c_i
///
/// The sum of both objectives is the duality gap, a sum over rows of C c_i loss_i + sum_k alpha_ik (w_k.x_i + e_ik),
/// none of them negative.
struct PdProblem {
  CsrView X;
  CsrView Y;  // labels of each row, rising; no values
  double lambda;
  double C;
  const float* row_cost = nullptr;  // X.n_rows, above 0; null if all are 1
  std::int64_t n_groups;            // labels are dealt into so many, at random; a sampled search looks at one
  std::uint64_t seed;
};

/// How a search looks for labels.
struct PdSearch {
  std::int64_t n_found;  // labels a row gets at most
  bool sampled;          // one group of labels drawn per row, and one in `rate` of its features
  std::int64_t rate;
  std::uint64_t draw;  // groups and features are drawn from this, the row and the seed
};

/// What steps over some rows did.
struct PdWork {
  std::int64_t entries = 0;  // of W and V read and written
  double gap = 0;            // of the rows on their active sets, each just before its step
};

struct PdObjectives {
  double primal;
  double dual;
};

/// Fully-corrective block-coordinate Frank-Wolfe, in parts: a search adds labels to the active sets of some rows
/// (pd_sparse/search.cpp), then steps go over some rows in order (pd_sparse/step.cpp). The caller decides when to
/// stop. Each v_k is a hash table of features until an array of all of them is no larger; one random permutation of
/// the features is the hash of all tables (pd_sparse/feature_vector.hpp).
///
/// Searches look at W as `publish` copied it (pd_sparse/published.cpp), so that they can run side by side and read it
/// feature by feature; steps always see the newest W, one after the other. So the dual never rises, and nothing
/// depends on threads.
class PdSolver {
 public:
  explicit PdSolver(const PdProblem& problem);
  ~PdSolver();
  PdSolver(const PdSolver&) = delete;
  PdSolver& operator=(const PdSolver&) = delete;

  /// Copies W out of V, by feature, for searches; returns 1/2 sum |w_k|^2.
  double publish(int threads, Control& control);
  /// Adds the best labels that each row lacks to its active set; returns how many weights it read.
  std::int64_t search(const std::int32_t* rows, std::int64_t n_rows, const PdSearch& how, int threads,
                      Control& control);
  /// Minimises the dual over the active set of each row in turn, with curvature |x_i|^2, and drops labels left at 0.
  PdWork step(const std::int32_t* rows, std::int64_t n_rows, Control& control);
  /// Both objectives; publishes.
  PdObjectives objectives(int threads, Control& control);

  /// Keeps only features with w != 0 and labels with alpha != 0, and drops lambda; no search may follow.
  void keep_support();

  /// alpha as CSR, rows x labels, labels rising.
  void count_alphas(std::int64_t* indptr) const;
  void copy_alphas(const std::int64_t* indptr, std::int32_t* labels, float* alphas) const;
  /// Replaces all alphas.
  void set_alphas(const std::int64_t* indptr, const std::int32_t* labels, const float* alphas);
  /// W as CSR, labels x features, features rising.
  void count_weights(std::int64_t* indptr) const;
  void copy_weights(const std::int64_t* indptr, std::int32_t* features, float* weights) const;
  /// Bytes that hold V.
  std::int64_t table_bytes() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace umpteen
