#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/l1_newton.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

/// What a node's two rankings are judged by.
enum class SplitLoss { ndcg, ndcg5, precision5 };

/// What a tree is grown from, shared by all trees.
struct TreeProblem {
  CsrView X;
  CsrView Y;
  const float*
      label_gain;         // n_labels: what a label in its place is worth; 1 in FastXML, 1 / propensity in PfastreXML
  const float* row_cost;  // n_rows: how many times each row counts, above 0; null where each counts once
  bool ideal;             // whether a row's gain is divided by the best it could be: the n of nDCG
  double leaf_scale;      // the leaf score that is stored as 65535
  double bias;            // the value of the constant feature

  double cost_of(std::int32_t row) const { return row_cost == nullptr ? 1.0 : double{row_cost[row]}; }
};

struct TreeOptions {
  std::int64_t max_leaf;
  std::int64_t labels_per_leaf;
  double C_delta;
  double C_r;
  bool balance;   // whether the two sides count alike in the loss, whatever their sizes
  int w_updates;  // how often w is trained at a node
  SplitLoss loss;
  L1Options solver;
};

/// How a node's rows were split: feature n_features is the constant.
struct NodeSplit {
  std::vector<std::int32_t> features;  // rising
  std::vector<float> weights;
  std::vector<std::int8_t> delta;   // by row of the node
  std::vector<double> objective;    // after the start and after every step
  std::vector<std::uint8_t> steps;  // which step: 0 start, 1 rankings, 2 delta, 3 w
  L1Report solver;                  // the last w
};

/// Splits one node: rows are rising ids.
NodeSplit split_node(const TreeProblem& problem, const TreeOptions& options, const std::vector<std::int32_t>& rows,
                     std::uint64_t seed, Control& control);

/// A tree as it is stored; forest.hpp specifies the arrays.
struct Tree {
  std::vector<std::int32_t> children;
  std::vector<std::uint32_t> weight_ptr{0};
  std::vector<std::uint16_t> gaps;
  bool wide = false;  // whether a gap may need 16 bits; else 8 hold it
  std::vector<std::uint16_t> weights;
  std::vector<std::uint32_t> leaf_ptr{0};
  std::vector<std::int32_t> leaf_labels;
  std::vector<std::uint16_t> leaf_scores;
  std::vector<std::int32_t> leaf_rows;  // how many training rows each leaf has
};

Tree grow_tree(const TreeProblem& problem, const TreeOptions& options, std::uint64_t seed, Control& control);

}  // namespace umpteen
