#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/linear_shard.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

/// One tree, as it lies in its files. Inner nodes and leaves are numbered apart; a child comes after its parent.
///
/// A row goes to an inner node's first child if w.x > 0, else to its second; only the sign counts, so each node's
/// weights have a scale of their own that is stored nowhere. The features of a node's weights rise; each is stored as
/// its distance from the one before (the first from feature 0), 8 or 16 bits wide. Where a distance does not fit, a
/// weight of 0 as far away as fits stands between. Feature n_features is the constant.
struct ForestTree {
  std::int64_t n_inner;
  std::int64_t n_leaves;
  const std::int32_t* children;     // 2 n_inner: an inner node, or ~leaf
  const std::uint32_t* weight_ptr;  // n_inner + 1
  const void* gaps;                 // uint16 if `wide`, else uint8
  bool wide;
  const std::uint16_t* weights;   // float16
  const std::uint32_t* leaf_ptr;  // n_leaves + 1
  const void* leaf_labels;        // int32 if `wide_labels`, else uint16
  bool wide_labels;
  const std::uint16_t* leaf_scores;  // in units of 1/65535 of the forest's scale
};

/// A label's centroid speaks too: score = trees^alpha * (1 / (1 + exp(gamma |x/|x| - m|^2)))^(1 - alpha).
struct CentroidVote {
  std::vector<LinearShard> shards;  // m, with a bias of -|m|^2 / 2; none to let the trees decide alone
  double alpha = 1;
  double gamma = 0;
  std::int64_t candidates = 0;  // of the labels the trees name, only so many best are looked at
};

struct Forest {
  std::int64_t n_features;
  std::int64_t n_labels;
  double bias;   // the value of the constant feature
  double scale;  // the leaf score that 65535 stands for
  std::vector<ForestTree> trees;
  CentroidVote centroids;
};

/// The top_k labels of every row, best first, ties by lower id; short lists are padded with -1 and -inf. A label's
/// score is the mean over the trees of its score in the leaf the row falls into; labels in none of them are left out,
/// as are those with allowed[label] == 0, where `allowed` is given. Safe for any content of gaps, weights and labels.
void forest_topk(const Forest& forest, const CsrView& X, std::int64_t top_k, const std::uint8_t* allowed, int threads,
                 std::int32_t* out_labels, float* out_scores, Control& control);

/// The same if trees elsewhere have voted: each row comes with n_given labels, padded with -1, and their means over
/// the trees, and the forest's centroids vote.
void forest_revote(const Forest& forest, const CsrView& X, const std::int32_t* labels, const float* scores,
                   std::int64_t n_given, std::int64_t top_k, int threads, std::int32_t* out_labels, float* out_scores,
                   Control& control);

/// The leaf each row falls into, by tree: n_rows x n_trees.
void find_leaves(const Forest& forest, const CsrView& X, int threads, std::int32_t* out, Control& control);

}  // namespace umpteen
