#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>

#include "umpteen/aligned.hpp"
#include "umpteen/forest.hpp"
#include "umpteen/ranking.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kRowsPerItem = 2048;  // a node's weights are spread once for so many rows

/// Everything one worker needs, allocated once per call.
class ForestScorer {
 public:
  ForestScorer(const Forest& forest, const CsrView& X, Control& control, int worker)
      : forest_(forest),
        X_(X),
        control_(control),
        worker_(worker),
        n_features_(static_cast<std::uint32_t>(X.n_cols)),
        dense_(static_cast<std::size_t>(X.n_cols) + 1, 0.0F) {}

  /// leaves_[row - begin][tree] for rows [begin, end).
  void walk(std::int64_t begin, std::int64_t end) {
    const std::size_t n_trees = forest_.trees.size();
    leaves_.assign(static_cast<std::size_t>(end - begin) * n_trees, 0);
    for (std::size_t t = 0; t < n_trees; ++t) {
      control_.check_in(worker_);
      walk_tree(forest_.trees[t], begin, end, leaves_.data() + t);
    }
  }

  const std::int32_t* leaves() const { return leaves_.data(); }

  /// The best labels of one row, given its leaves.
  void rank(std::int64_t row, const std::int32_t* leaves, std::int64_t top_k, const std::uint8_t* allowed,
            std::int32_t* out_labels, float* out_scores) {
    sums_.resize(static_cast<std::size_t>(forest_.n_labels), 0);
    found_.clear();
    for (std::size_t t = 0; t < forest_.trees.size(); ++t) {
      const ForestTree& tree = forest_.trees[t];
      if (tree.wide_labels)
        add_leaf(tree, leaves[t], static_cast<const std::int32_t*>(tree.leaf_labels), allowed);
      else
        add_leaf(tree, leaves[t], static_cast<const std::uint16_t*>(tree.leaf_labels), allowed);
    }
    ranked_.clear();
    const double unit = forest_.scale / 65535 / static_cast<double>(std::max<std::size_t>(forest_.trees.size(), 1));
    for (const std::int32_t label : found_) {
      ranked_.push_back(
          {static_cast<float>(static_cast<double>(sums_[static_cast<std::size_t>(label)]) * unit), label});
      sums_[static_cast<std::size_t>(label)] = 0;
    }
    if (!forest_.centroids.shards.empty()) vote(row);
    write_best(ranked_, top_k, out_labels, out_scores);
  }

  /// The best labels of one row, given what the trees say of it.
  void revote(std::int64_t row, const std::int32_t* labels, const float* scores, std::int64_t n_given,
              std::int64_t top_k, std::int32_t* out_labels, float* out_scores) {
    ranked_.clear();
    for (std::int64_t i = 0; i < n_given; ++i)
      if (labels[i] >= 0) ranked_.push_back({scores[i], labels[i]});
    vote(row);
    write_best(ranked_, top_k, out_labels, out_scores);
  }

 private:
  ForestRow row_at(std::int64_t row) const {
    const std::int64_t begin = X_.indptr[row];
    return {X_.indptr[row + 1] - begin, X_.indices + begin, X_.data + begin, static_cast<float>(forest_.bias)};
  }

  static ForestNode node_at(const ForestTree& tree, std::int32_t node) {
    const std::uint32_t begin = tree.weight_ptr[node];
    const void* gaps = tree.wide ? static_cast<const void*>(static_cast<const std::uint16_t*>(tree.gaps) + begin)
                                 : static_cast<const void*>(static_cast<const std::uint8_t*>(tree.gaps) + begin);
    return {std::int64_t{tree.weight_ptr[node + 1]} - begin, gaps, tree.wide, tree.weights + begin};
  }

  /// All rows go down together: a node is visited once, with the rows that reach it.
  void walk_tree(const ForestTree& tree, std::int64_t begin, std::int64_t end, std::int32_t* leaves) {
    if (tree.n_inner == 0) return;  // everybody is in leaf 0
    const std::size_t n_trees = forest_.trees.size();
    rows_.resize(static_cast<std::size_t>(end - begin));
    std::iota(rows_.begin(), rows_.end(), 0);
    second_.resize(rows_.size());
    stack_.assign(1, {0, 0, rows_.size()});
    while (!stack_.empty()) {
      const Visit visit = stack_.back();
      stack_.pop_back();
      if (visit.node < 0) {
        for (std::size_t i = visit.begin; i < visit.end; ++i)
          leaves[static_cast<std::size_t>(rows_[i]) * n_trees] = ~visit.node;
        continue;
      }
      const ForestNode node = node_at(tree, visit.node);
      if (visit.end - visit.begin == 1) {
        const std::int32_t row = rows_[visit.begin];
        const ForestRow alone = row_at(begin + row);
        if (node.n_weights > alone.n) {
          leaves[static_cast<std::size_t>(row) * n_trees] = find_leaf(tree, visit.node, alone);
          continue;
        }
      }
      touched_.resize(std::max(touched_.size(), static_cast<std::size_t>(node.n_weights)));
      kernels_.spread(node, n_features_, dense_.data(), touched_.data());
      std::size_t n_first = 0;
      std::size_t n_second = 0;
      for (std::size_t i = visit.begin; i < visit.end; ++i) {
        const std::int32_t row = rows_[i];
        const bool first = kernels_.score_row(row_at(begin + row), n_features_, dense_.data()) > 0;
        rows_[visit.begin + n_first] = row;
        second_[n_second] = row;
        n_first += first;
        n_second += !first;
      }
      for (std::int64_t k = 0; k < node.n_weights; ++k) dense_[touched_[static_cast<std::size_t>(k)]] = 0;
      const std::size_t middle = visit.begin + n_first;
      std::copy_n(second_.begin(), n_second, rows_.begin() + static_cast<std::ptrdiff_t>(middle));
      if (n_second > 0) stack_.push_back({tree.children[2 * visit.node + 1], middle, visit.end});
      if (n_first > 0) stack_.push_back({tree.children[2 * visit.node], visit.begin, middle});
    }
  }

  /// The leaf below a node that a row finds alone.
  std::int32_t find_leaf(const ForestTree& tree, std::int32_t node, const ForestRow& row) {
    found_weights_.resize(std::max(found_weights_.size(), static_cast<std::size_t>(row.n) + 1));
    while (node >= 0) {
      const float score = kernels_.score_alone(row, node_at(tree, node), n_features_, found_weights_.data());
      node = tree.children[2 * node + (score > 0 ? 0 : 1)];
    }
    return ~node;
  }

  template <typename Label>
  void add_leaf(const ForestTree& tree, std::int32_t leaf, const Label* labels, const std::uint8_t* allowed) {
    for (std::uint32_t i = tree.leaf_ptr[leaf]; i < tree.leaf_ptr[leaf + 1]; ++i) {
      const auto label = static_cast<std::int64_t>(labels[i]);
      if (label < 0 || label >= forest_.n_labels || tree.leaf_scores[i] == 0) continue;
      if (allowed != nullptr && allowed[label] == 0) continue;
      std::uint64_t& sum = sums_[static_cast<std::size_t>(label)];
      if (sum == 0) found_.push_back(static_cast<std::int32_t>(label));
      sum += tree.leaf_scores[i];
    }
  }

  /// Lets the centroids speak about the best labels the trees name.
  void vote(std::int64_t row) {
    const CentroidVote& centroids = forest_.centroids;
    if (centroids.candidates < static_cast<std::int64_t>(ranked_.size())) {
      const auto cut = ranked_.begin() + centroids.candidates;
      std::nth_element(ranked_.begin(), cut, ranked_.end(), is_better);
      ranked_.erase(cut, ranked_.end());
    }
    const std::int64_t begin = X_.indptr[row];
    const std::int64_t nnz = X_.indptr[row + 1] - begin;
    double squares = 0;
    for (std::int64_t i = 0; i < nnz; ++i) squares += double{X_.data[begin + i]} * X_.data[begin + i];
    const double factor = squares > 0 ? 1 / std::sqrt(squares) : 1;
    unit_.resize(static_cast<std::size_t>(nnz));
    for (std::int64_t i = 0; i < nnz; ++i)
      unit_[static_cast<std::size_t>(i)] = static_cast<float>(X_.data[begin + i] * factor);
    closeness_.resize(static_cast<std::size_t>(forest_.n_labels), kNoScore);
    acc_.resize(65536);  // room for any 16-bit label a damaged shard may name
    for (const LinearShard& shard : centroids.shards) {
      std::copy_n(shard.bias, shard.n_labels, acc_.data());
      umpteen::kernels().add_row(shard, nnz, X_.indices + begin, unit_.data(), acc_.data());
      for (std::int32_t l = 0; l < shard.n_labels; ++l)
        closeness_[static_cast<std::size_t>(shard.label_ids[l])] = acc_[static_cast<std::size_t>(l)];
    }
    for (Ranked& label : ranked_) {
      // |x - m|^2 = 1 - 2 (m.x - |m|^2 / 2) for x of length 1
      const double distance = 1 - 2 * double{closeness_[static_cast<std::size_t>(label.label)]};
      const double near = 1 / (1 + std::exp(centroids.gamma * distance));
      label.score =
          static_cast<float>(std::pow(double{label.score}, centroids.alpha) * std::pow(near, 1 - centroids.alpha));
    }
  }

  struct Visit {
    std::int32_t node;  // or ~leaf
    std::size_t begin;  // of its rows in rows_
    std::size_t end;
  };

  const Forest& forest_;
  const CsrView& X_;
  Control& control_;
  const int worker_;
  const ForestKernels& kernels_ = forest_kernels();
  const std::uint32_t n_features_;
  std::vector<float> dense_;  // by feature: a node's weights; zero between nodes
  std::vector<std::uint32_t> touched_;
  std::vector<float> found_weights_;
  std::vector<std::int32_t> rows_, second_;  // from the item's first row; node after node
  std::vector<Visit> stack_;
  std::vector<std::int32_t> leaves_;
  std::vector<std::uint64_t> sums_;  // by label; zero between rows
  std::vector<std::int32_t> found_;
  std::vector<Ranked> ranked_;
  std::vector<float> unit_, closeness_, acc_;
};

/// Calls body(scorer, begin, end) over pieces of the rows.
void for_rows(const Forest& forest, const CsrView& X, int threads, Control& control,
              const std::function<void(ForestScorer&, std::int64_t, std::int64_t)>& body) {
  // As many at a time as leave every thread some work: the more rows share a visit to a node, the cheaper it is.
  const std::int64_t share = (X.n_rows + threads - 1) / std::max(threads, 1);
  const std::int64_t rows_per_item = std::clamp<std::int64_t>(share, 1, kRowsPerItem);
  const std::int64_t n_items = (X.n_rows + rows_per_item - 1) / rows_per_item;
  std::vector<std::unique_ptr<ForestScorer>> scorers(static_cast<std::size_t>(clamp_threads(n_items, threads)));
  parallel_for(n_items, threads, control, [&](std::int64_t item, int worker) {
    auto& scorer = scorers[static_cast<std::size_t>(worker)];
    if (!scorer) scorer = std::make_unique<ForestScorer>(forest, X, control, worker);
    const std::int64_t begin = item * rows_per_item;
    const std::int64_t end = std::min(begin + rows_per_item, X.n_rows);
    scorer->walk(begin, end);
    body(*scorer, begin, end);
  });
}

}  // namespace

void forest_topk(const Forest& forest, const CsrView& X, std::int64_t top_k, const std::uint8_t* allowed, int threads,
                 std::int32_t* out_labels, float* out_scores, Control& control) {
  const auto n_trees = static_cast<std::int64_t>(forest.trees.size());
  for_rows(forest, X, threads, control, [&](ForestScorer& scorer, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      scorer.rank(row, scorer.leaves() + (row - begin) * n_trees, top_k, allowed, out_labels + row * top_k,
                  out_scores + row * top_k);
  });
}

void forest_revote(const Forest& forest, const CsrView& X, const std::int32_t* labels, const float* scores,
                   std::int64_t n_given, std::int64_t top_k, int threads, std::int32_t* out_labels, float* out_scores,
                   Control& control) {
  for_rows(forest, X, threads, control, [&](ForestScorer& scorer, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      scorer.revote(row, labels + row * n_given, scores + row * n_given, n_given, top_k, out_labels + row * top_k,
                    out_scores + row * top_k);
  });
}

void find_leaves(const Forest& forest, const CsrView& X, int threads, std::int32_t* out, Control& control) {
  const auto n_trees = static_cast<std::int64_t>(forest.trees.size());
  for_rows(forest, X, threads, control, [&](ForestScorer& scorer, std::int64_t begin, std::int64_t end) {
    std::copy_n(scorer.leaves(), (end - begin) * n_trees, out + begin * n_trees);
  });
}

}  // namespace umpteen
