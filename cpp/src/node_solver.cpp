#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "as_size.hpp"
#include "half.hpp"
#include "local_rows.hpp"
#include "umpteen/aligned.hpp"
#include "umpteen/label_tree.hpp"
#include "umpteen/newton_all_rows.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

/// Solves nodes one after the other; what it has allocated stays from node to node.
class NodeSolver {
 public:
  explicit NodeSolver(const NodeProblem& problem)
      : problem_(problem), local_(problem.X), place_(as_size(problem.X.n_rows), -1) {}

  /// On all threads, or with worker >= 0 as part of that worker's item.
  NodeWeights solve(std::int64_t node, int threads, Control& control, int worker) {
    const auto check_in = [&] { control.check_in(std::max(worker, 0)); };
    find_rows(node);
    check_in();
    local_.gather(rows_.data(), static_cast<std::int64_t>(rows_.size()));
    check_in();
    costs_.assign(positive_ptr_.size() - 1, 1.0F);
    row_costs_.clear();
    for (std::size_t r = 0; problem_.row_cost != nullptr && r < rows_.size(); ++r)
      row_costs_.push_back(problem_.row_cost[rows_[r]]);
    const std::vector<OneVsRestSolution> solutions = solve_children(threads, control, worker);
    NodeWeights out = pack(solutions);
    check_in();
    if (problem_.near < std::numeric_limits<float>::infinity()) find_near(node, solutions, out, check_in);
    return out;
  }

 private:
  /// The rows of each child, then those of the node, by which the former are numbered.
  void find_rows(std::int64_t node) {
    positives_.clear();
    positive_ptr_.assign(1, 0);
    for (std::int64_t c = problem_.child_ptr[node]; c < problem_.child_ptr[node + 1]; ++c) {
      const auto first = static_cast<std::ptrdiff_t>(positives_.size());
      for (std::int64_t at = problem_.child_begin[c]; at < problem_.child_end[c]; ++at) {
        const std::int32_t label = problem_.order[at];
        positives_.insert(positives_.end(), problem_.label_rows + problem_.label_indptr[label],
                          problem_.label_rows + problem_.label_indptr[label + 1]);
      }
      if (problem_.child_end[c] - problem_.child_begin[c] > 1) {
        std::sort(positives_.begin() + first, positives_.end());
        positives_.erase(std::unique(positives_.begin() + first, positives_.end()), positives_.end());
      }
      positive_ptr_.push_back(static_cast<std::int64_t>(positives_.size()));
    }
    rows_ = positives_;
    if (problem_.extra_ptr != nullptr)
      rows_.insert(rows_.end(), problem_.extra_rows + problem_.extra_ptr[node],
                   problem_.extra_rows + problem_.extra_ptr[node + 1]);
    std::sort(rows_.begin(), rows_.end());
    rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
    for (std::size_t r = 0; r < rows_.size(); ++r) place_[as_size(rows_[r])] = static_cast<std::int32_t>(r);
    for (std::int32_t& row : positives_) row = place_[as_size(row)];
  }

  std::vector<OneVsRestSolution> solve_children(int threads, Control& control, int worker) const {
    const OneVsRestProblem svms{
        .X = local_.view(),
        .label_indptr = positive_ptr_.data(),
        .label_rows = positives_.data(),
        .positive_cost = costs_.data(),
        .row_cost = problem_.row_cost != nullptr ? row_costs_.data() : nullptr,
        .n_labels = static_cast<std::int64_t>(costs_.size()),
        .C = problem_.C,
        .bias = problem_.bias,
        .eps = problem_.eps,
        .prune = problem_.prune,
        .max_rounds = problem_.max_rounds,
    };
    return solve_all_rows(svms, MarginLoss::kSquaredHinge, threads, control, worker);
  }

  /// Feature by feature, over the features that are left.
  NodeWeights pack(const std::vector<OneVsRestSolution>& solutions) {
    NodeWeights out;
    const float largest = count_weights(solutions, out);
    if (largest > 0) out.scale = std::ldexp(1.0F, std::ilogb(largest) - 14);  // just below the largest float16
    out.indptr.assign(1, 0);
    for (std::size_t f = 0; f < counts_.size(); ++f) {
      if (counts_[f] == 0) continue;
      out.features.push_back(local_.features()[f]);
      const std::uint32_t begin = out.indptr.back();
      out.indptr.push_back(begin + counts_[f]);
      counts_[f] = begin;  // from here on: where its next weight goes
    }
    const std::int64_t nnz = out.indptr.back();
    children_.resize(as_size(nnz));
    out.weights.resize(as_size(nnz));
    for (std::size_t c = 0; c < solutions.size(); ++c)
      for (std::size_t i = 0; i < solutions[c].features.size(); ++i) {
        const std::size_t at = counts_[as_size(solutions[c].features[i])]++;
        children_[at] = static_cast<std::int32_t>(c);
        out.weights[at] = float_to_half(solutions[c].weights[i] / out.scale);
      }
    const auto n_features = static_cast<std::int64_t>(out.features.size());
    const auto n_children = static_cast<std::int64_t>(solutions.size());
    out.position_ptr.resize(as_size(n_features) + 1);
    out.positions.resize(as_size(count_positions(n_features, n_children, out.indptr.data())));
    pack_positions(n_features, n_children, out.indptr.data(), children_.data(), out.position_ptr.data(),
                   out.positions.data());
    return out;
  }

  /// Fills what there is one of per child, and counts_ by feature. Returns the largest weight's magnitude.
  float count_weights(const std::vector<OneVsRestSolution>& solutions, NodeWeights& out) {
    counts_.assign(local_.features().size(), 0);
    float largest = 0;
    bool finite = true;
    for (std::size_t c = 0; c < solutions.size(); ++c) {
      const OneVsRestSolution& s = solutions[c];
      for (const std::int32_t f : s.features) ++counts_[as_size(f)];
      for (const float w : s.weights) {
        largest = std::max(largest, std::abs(w));
        finite &= std::isfinite(w);
      }
      finite &= std::isfinite(s.bias);
      const bool trained = positive_ptr_[c + 1] > positive_ptr_[c];
      out.bias.push_back(trained ? s.bias : -std::numeric_limits<float>::infinity());
      out.objective.push_back(s.objective);
      out.gradient.push_back(s.gradient);
    }
    if (!finite) refuse_overflow();
    return largest;
  }

  /// The node's rows that a child's classifier takes for its own, or nearly so, though they are not. None for a child
  /// that is a label: nothing is below it.
  template <typename CheckIn>
  void find_near(std::int64_t node, const std::vector<OneVsRestSolution>& solutions, NodeWeights& out,
                 const CheckIn& check_in) {
    out.near_counts.assign(solutions.size(), 0);
    list_inner(node, solutions.size());
    if (inner_.empty()) return;
    const CsrView X = local_.view();
    panel_.assign(as_size(X.n_cols) * kPanelLabels, 0.0F);
    scores_.resize(as_size(X.n_rows) * kPanelLabels);
    for (std::size_t first = 0; first < inner_.size(); first += kPanelLabels) {
      const std::size_t n = std::min<std::size_t>(kPanelLabels, inner_.size() - first);
      score_panel(first, n, solutions, check_in);
      for (std::size_t lane = 0; lane < n; ++lane) collect_near(inner_[first + lane], lane, solutions, out);
    }
  }

  /// inner_ = the node's children that are nodes with rows
  void list_inner(std::int64_t node, std::size_t n_children) {
    const auto first_child = as_size(problem_.child_ptr[node]);
    inner_.clear();
    for (std::size_t c = 0; c < n_children; ++c)
      if (problem_.child_end[first_child + c] - problem_.child_begin[first_child + c] > 1 &&
          positive_ptr_[c] < positive_ptr_[c + 1])
        inner_.push_back(c);
  }

  /// scores_[row][lane] of n inner children from `first` on, without the bias
  template <typename CheckIn>
  void score_panel(std::size_t first, std::size_t n, const std::vector<OneVsRestSolution>& solutions,
                   const CheckIn& check_in) {
    constexpr std::int64_t kRowsPerCheck = 8192;
    const CsrView X = local_.view();
    const auto put = [&](bool zero) {
      for (std::size_t lane = 0; lane < n; ++lane) {
        const OneVsRestSolution& s = solutions[inner_[first + lane]];
        for (std::size_t i = 0; i < s.features.size(); ++i)
          panel_[as_size(s.features[i]) * kPanelLabels + lane] = zero ? 0.0F : s.weights[i];
      }
    };
    put(false);
    for (std::int64_t row = 0; row < X.n_rows; row += kRowsPerCheck) {
      kernels_.multiply_panel(std::min(kRowsPerCheck, X.n_rows - row), X.indptr + row, X.indices, X.data,
                              panel_.data(), scores_.data() + row * kPanelLabels);
      check_in();
    }
    put(true);
  }

  void collect_near(std::size_t child, std::size_t lane, const std::vector<OneVsRestSolution>& solutions,
                    NodeWeights& out) const {
    const float above = problem_.near - solutions[child].bias;
    const std::size_t before = out.near_rows.size();
    const std::int64_t n_rows = local_.view().n_rows;
    std::int64_t r = positive_ptr_[child];
    for (std::int64_t row = 0; row < n_rows; ++row) {
      while (r < positive_ptr_[child + 1] && positives_[as_size(r)] < row) ++r;
      const bool own = r < positive_ptr_[child + 1] && positives_[as_size(r)] == row;
      if (!own && scores_[as_size(row) * kPanelLabels + lane] > above) out.near_rows.push_back(rows_[as_size(row)]);
    }
    out.near_counts[child] = static_cast<std::int64_t>(out.near_rows.size() - before);
  }

  const NodeProblem& problem_;
  LocalRows local_;
  const NewtonKernels& kernels_ = newton_kernels();
  AlignedVector<float> panel_, scores_;
  std::vector<std::int32_t> place_;  // by row: its number in the node at hand
  std::vector<std::int32_t> rows_, positives_, children_;
  std::vector<std::int64_t> positive_ptr_;
  std::vector<std::size_t> inner_;
  std::vector<float> costs_, row_costs_;
  std::vector<std::uint32_t> counts_;
};

/// About how much work a node is: entries of its children's rows, once for each panel of children.
std::vector<double> weigh_nodes(const NodeProblem& problem) {
  std::vector<double> costs(as_size(problem.n_nodes));
  for (std::int64_t n = 0; n < problem.n_nodes; ++n) {
    std::int64_t rows = problem.extra_ptr == nullptr ? 0 : problem.extra_ptr[n + 1] - problem.extra_ptr[n];
    for (std::int64_t c = problem.child_ptr[n]; c < problem.child_ptr[n + 1]; ++c)
      for (std::int64_t at = problem.child_begin[c]; at < problem.child_end[c]; ++at)
        rows += problem.label_indptr[problem.order[at] + 1] - problem.label_indptr[problem.order[at]];
    costs[as_size(n)] = static_cast<double>(rows * (problem.child_ptr[n + 1] - problem.child_ptr[n] + 8));
  }
  return costs;
}

}  // namespace

std::vector<NodeWeights> solve_nodes(const NodeProblem& problem, int threads, Control& control) {
  std::vector<NodeWeights> out(as_size(problem.n_nodes));
  const std::vector<double> costs = weigh_nodes(problem);
  const double fair = std::accumulate(costs.begin(), costs.end(), 0.0) / (2.0 * threads);
  std::vector<std::int64_t> order(as_size(problem.n_nodes));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return costs[as_size(a)] > costs[as_size(b)]; });
  // Nodes that are too large for one thread share all of them; the others each have one.
  std::size_t n_large = 0;
  std::vector<std::unique_ptr<NodeSolver>> solvers(as_size(std::max(threads, 1)));
  for (; threads > 1 && n_large < order.size() && costs[as_size(order[n_large])] > fair; ++n_large) {
    if (!solvers[0]) solvers[0] = std::make_unique<NodeSolver>(problem);
    out[as_size(order[n_large])] = solvers[0]->solve(order[n_large], threads, control, -1);
  }
  const auto n_small = static_cast<std::int64_t>(order.size() - n_large);
  parallel_for(n_small, threads, control, [&](std::int64_t item, int worker) {
    auto& solver = solvers[as_size(worker)];
    if (!solver) solver = std::make_unique<NodeSolver>(problem);
    const std::int64_t node = order[n_large + as_size(item)];
    out[as_size(node)] = solver->solve(node, 1, control, worker);
    control.check_in(worker);
  });
  return out;
}

}  // namespace umpteen
