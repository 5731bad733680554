#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/linear_shard.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

// --- clusters of labels -----------------------------------------------------------------------------------------

/// Groups of vectors, each to be split into clusters of its own.
struct ClusterProblem {
  CsrView V;                       // one row per label, of length 1 or 0
  const std::int64_t* group_ptr;   // n_groups + 1
  const std::int32_t* members;     // rows of V, group by group
  const std::int32_t* n_clusters;  // n_groups: how many each is split into, at most; at least 1
  const std::int64_t* most;        // n_groups: members a cluster may have; at least its share
  const std::uint64_t* seeds;      // n_groups
  std::int64_t n_groups;
  int max_iterations;  // at most
};

/// Spherical k-means: each member goes to the cluster whose mean direction is most like it, the lower one in a tie,
/// then the directions are recomputed, until the mean similarity hardly grows. Where `most` is less than all, the
/// members that care most choose first, and a cluster that is full takes no more; where it is the share, rounded up,
/// no cluster is smaller than the share, rounded down. clusters[i] is that of members[i]; similarity (n_groups) the
/// mean similarity of members to their cluster's direction before that was recomputed. Neither depends on the
/// threads.
void cluster_labels(const ClusterProblem& problem, int threads, Control& control, std::int32_t* clusters,
                    double* similarity);

// --- the classifiers of nodes -----------------------------------------------------------------------------------

/// Nodes of a tree of labels. A node's children are ranges of `order`; its rows are those that have a label of any of
/// them. One classifier per child separates it from its siblings, on the node's rows and with squared hinge loss
/// (newton_all_rows.hpp): s_i = +1 for rows that have a label of the child, -1 for the others.
struct NodeProblem {
  CsrView X;
  const std::int64_t* label_indptr;  // the rows of each label, rising
  const std::int32_t* label_rows;
  const float* row_cost = nullptr;  // X.n_rows: how many times each row counts; null if all count once
  const std::int32_t* order;        // labels
  const std::int64_t* child_ptr;    // n_nodes + 1
  const std::int64_t* child_begin;  // by child: where its labels begin in `order`,
  const std::int64_t* child_end;    // and end
  std::int64_t n_nodes;
  // rows that are negative examples for all of a node's children, beyond its own, rising; may be null
  const std::int64_t* extra_ptr;
  const std::int32_t* extra_rows;
  double C;
  double bias;
  double eps;
  float prune;
  int max_rounds;
  float near;  // which margin makes one of the node's rows that lacks the child's labels near to it; +inf for none
};

/// A node's weights as they are stored: a LinearShard over the features it has weights for.
struct NodeWeights {
  std::vector<std::int32_t> features;  // rising
  std::vector<std::uint32_t> indptr, position_ptr;
  std::vector<std::uint16_t> positions, weights;  // float16
  float scale = 1;
  std::vector<float> bias;                // by child; -inf for one without rows
  std::vector<double> objective;          // by child
  std::vector<double> gradient;           // by child: relative to the bound at which it stops
  std::vector<std::int64_t> near_counts;  // by child: how many rows are near to it,
  std::vector<std::int32_t> near_rows;    // and which, rising
};

std::vector<NodeWeights> solve_nodes(const NodeProblem& problem, int threads, Control& control);

// --- beam search ------------------------------------------------------------------------------------------------

/// A node as the search sees it.
struct TreeNode {
  LinearShard shard;             // its features numbered as in `features`; label_ids unused
  const std::int32_t* features;  // shard.n_features of them, rising
  const std::int32_t* children;  // shard.n_labels of them: a label, or ~node
};

/// What a child's margin adds to the score of its path. Cubic, of our own trees: -(1 - margin)^3, or (margin - 1) /
/// 100 beyond 1. Cubed and squared: -(1 - margin)^3 and ^2, or 0 beyond 1. Logistic: -log(1 + e^-margin).
enum class Link { cubic, cubed, squared, logistic };

/// The nodes of some trees. A child's number is larger than its parent's.
struct LabelForest {
  Link link = Link::cubic;
  std::vector<TreeNode> nodes;
  std::vector<std::int32_t> roots;  // one per tree
};

/// The best labels of every row: from each root on, level by level, the `beam` best nodes are followed. A path's
/// score is the sum over its nodes of what the link makes of their margins; a label's the logarithm of the mean over
/// the trees of e^score, 0 where a tree did not reach it. `allowed` (n_labels; null for all) says which
/// labels may be ranked; nodes without any are not followed. Output as of linear_topk. A row's scores do not depend
/// on the rows around it.
void search_labels(const LabelForest& forest, const CsrView& X, std::int64_t top_k, std::int64_t beam,
                   const std::uint8_t* allowed, int threads, std::int32_t* out_labels, float* out_scores,
                   Control& control);

}  // namespace umpteen
