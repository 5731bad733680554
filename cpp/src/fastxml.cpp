#include "umpteen/fastxml.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "column_stack.hpp"
#include "half.hpp"
#include "node_splitter.hpp"
#include "umpteen/random.hpp"

namespace umpteen {

namespace {

/// Appends a leaf: the mean of its rows' labels, each as often as the row counts, the best labels_per_leaf of them,
/// by label.
void add_leaf(const TreeProblem& problem, const TreeOptions& options, const std::vector<std::int32_t>& rows,
              std::vector<double>& sums, Tree& tree) {
  const CsrView& Y = problem.Y;
  std::vector<std::int32_t> labels;
  double n_rows = 0;
  for (const std::int32_t row : rows) {
    const double cost = problem.cost_of(row);
    n_rows += cost;
    for (std::int64_t i = Y.indptr[row]; i < Y.indptr[row + 1]; ++i) {
      double& sum = sums[static_cast<std::size_t>(Y.indices[i])];
      if (sum == 0) labels.push_back(Y.indices[i]);
      sum += cost * double{problem.label_gain[Y.indices[i]]};
    }
  }
  if (static_cast<std::int64_t>(labels.size()) > options.labels_per_leaf) {
    const auto middle = labels.begin() + options.labels_per_leaf;
    std::nth_element(labels.begin(), middle, labels.end(), [&](std::int32_t a, std::int32_t b) {
      const double sum_a = sums[static_cast<std::size_t>(a)];
      const double sum_b = sums[static_cast<std::size_t>(b)];
      return sum_a != sum_b ? sum_a > sum_b : a < b;
    });
    for (auto it = middle; it != labels.end(); ++it) sums[static_cast<std::size_t>(*it)] = 0;
    labels.erase(middle, labels.end());
  }
  std::sort(labels.begin(), labels.end());
  const double unit = 65535 / problem.leaf_scale / n_rows;
  for (const std::int32_t label : labels) {
    double& sum = sums[static_cast<std::size_t>(label)];
    tree.leaf_labels.push_back(label);
    // A label that is there is never stored as not there.
    tree.leaf_scores.push_back(static_cast<std::uint16_t>(std::clamp(std::round(sum * unit), 1.0, 65535.0)));
    sum = 0;
  }
  tree.leaf_ptr.push_back(static_cast<std::uint32_t>(tree.leaf_labels.size()));
  tree.leaf_rows.push_back(static_cast<std::int32_t>(rows.size()));
}

/// A node's weights as they are stored, 16 bits wide at the node's own scale; those that vanish are left out.
struct StoredWeights {
  std::vector<std::int32_t> features;
  std::vector<std::uint16_t> weights;

  StoredWeights() = default;
  explicit StoredWeights(const NodeSplit& split) {
    float largest = 0;
    for (const float w : split.weights) largest = std::max(largest, std::abs(w));
    if (largest == 0) return;
    const int exponent = 14 - std::ilogb(largest);
    for (std::size_t k = 0; k < split.weights.size(); ++k) {
      const std::uint16_t half = float_to_half(std::scalbn(split.weights[k], exponent));
      if (half_to_float(half) == 0) continue;
      features.push_back(split.features[k]);
      weights.push_back(half);
    }
  }
};

/// All nodes' weights with gaps between features instead of features: 8 bits wide, or 16 where that is shorter.
void pack_weights(const std::vector<StoredWeights>& nodes, Tree& tree) {
  const auto count = [&](std::int32_t reach) {
    std::size_t n = 0;
    for (const StoredWeights& node : nodes) {
      std::int32_t last = 0;
      for (const std::int32_t feature : node.features) {
        n += 1 + static_cast<std::size_t>((feature - last) / reach) -
             ((feature - last) % reach == 0 && feature > last);
        last = feature;
      }
    }
    return n;
  };
  tree.wide = count(255) * 3 > count(65535) * 4;
  const std::int32_t reach = tree.wide ? 65535 : 255;
  for (const StoredWeights& node : nodes) {
    std::int32_t last = 0;
    for (std::size_t k = 0; k < node.features.size(); ++k) {
      std::int32_t gap = node.features[k] - last;
      for (; gap > reach; gap -= reach) {
        tree.gaps.push_back(static_cast<std::uint16_t>(reach));
        tree.weights.push_back(0);
      }
      tree.gaps.push_back(static_cast<std::uint16_t>(gap));
      tree.weights.push_back(node.weights[k]);
      last = node.features[k];
    }
    tree.weight_ptr.push_back(static_cast<std::uint32_t>(tree.weights.size()));
  }
}

template <typename Row>
Tree grow(const TreeProblem& problem, const TreeOptions& options, std::uint64_t seed, Control& control) {
  struct Pending {
    std::vector<std::int32_t> rows;
    std::int64_t slot;  // where in tree.children its number goes; -1 for the root
  };
  Tree tree;
  NodeSplitter<Row> splitter(problem, options, control);
  ColumnStack<Row> columns;
  Random random(seed);
  NodeSplit split;
  std::vector<StoredWeights> nodes;
  const ForestKernels& kernels = forest_kernels();
  const auto n_features = static_cast<std::uint32_t>(problem.X.n_cols);
  std::vector<float> dense(static_cast<std::size_t>(problem.X.n_cols) + 1, 0.0F);
  std::vector<std::uint32_t> places;
  std::vector<double> sums(static_cast<std::size_t>(problem.Y.n_cols), 0.0);
  // A stack of our own: a tree may be as deep as it has rows.
  std::vector<Pending> stack(1);
  stack[0].rows.resize(static_cast<std::size_t>(problem.X.n_rows));
  std::iota(stack[0].rows.begin(), stack[0].rows.end(), 0);
  stack[0].slot = -1;
  columns.start(problem.X, stack[0].rows, problem.bias);
  const auto is_small = [&](const std::vector<std::int32_t>& rows) {
    return static_cast<std::int64_t>(rows.size()) <= options.max_leaf;
  };
  while (!stack.empty()) {
    const Pending node = std::move(stack.back());
    stack.pop_back();
    control.check_in(0);
    std::vector<std::int32_t> sides[2];
    StoredWeights stored;
    if (!is_small(node.rows)) {
      splitter.split(node.rows, columns.top(static_cast<std::int64_t>(node.rows.size())), columns.features(),
                     random.next(), false, split);
      // By the weights as they are stored, summed as at prediction: each row will find the leaf it helped to make.
      stored = StoredWeights(split);
      for (std::size_t k = 0; k < stored.features.size(); ++k)
        dense[static_cast<std::size_t>(stored.features[k])] = half_to_float(stored.weights[k]);
      places.resize(node.rows.size());
      for (std::size_t i = 0; i < node.rows.size(); ++i) {
        const std::int64_t begin = problem.X.indptr[node.rows[i]];
        const ForestRow row{problem.X.indptr[node.rows[i] + 1] - begin, problem.X.indices + begin,
                            problem.X.data + begin, static_cast<float>(problem.bias)};
        const bool side = kernels.score_row(row, n_features, dense.data()) > 0;
        places[i] = static_cast<std::uint32_t>(sides[side].size()) << 1 | static_cast<std::uint32_t>(side);
        sides[side].push_back(node.rows[i]);
      }
      for (const std::int32_t feature : stored.features) dense[static_cast<std::size_t>(feature)] = 0;
    }
    const bool leaf = sides[0].empty() || sides[1].empty();
    if (node.slot >= 0)
      tree.children[static_cast<std::size_t>(node.slot)] =
          leaf ? ~static_cast<std::int32_t>(tree.leaf_rows.size()) : static_cast<std::int32_t>(nodes.size());
    if (leaf) {
      add_leaf(problem, options, node.rows, sums, tree);
      columns.pop();
      continue;
    }
    const auto slot = static_cast<std::int64_t>(tree.children.size());
    tree.children.resize(tree.children.size() + 2);
    nodes.push_back(std::move(stored));
    columns.deal(places, !is_small(sides[0]), !is_small(sides[1]));
    stack.push_back({std::move(sides[0]), slot + 1});
    stack.push_back({std::move(sides[1]), slot});
  }
  pack_weights(nodes, tree);
  return tree;
}

}  // namespace

NodeSplit split_node(const TreeProblem& problem, const TreeOptions& options, const std::vector<std::int32_t>& rows,
                     std::uint64_t seed, Control& control) {
  ColumnStack<std::int32_t> columns;
  columns.start(problem.X, rows, problem.bias);
  NodeSplit split;
  NodeSplitter<std::int32_t>(problem, options, control)
      .split(rows, columns.top(static_cast<std::int64_t>(rows.size())), columns.features(), seed, true, split);
  return split;
}

Tree grow_tree(const TreeProblem& problem, const TreeOptions& options, std::uint64_t seed, Control& control) {
  return problem.X.n_rows <= 65536 ? grow<std::uint16_t>(problem, options, seed, control)
                                   : grow<std::int32_t>(problem, options, seed, control);
}

}  // namespace umpteen
