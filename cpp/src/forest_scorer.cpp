#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "umpteen/aligned.hpp"
#include "umpteen/forest.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kPanelsPerItem = 4;  // a tree stays in cache over so many panels
constexpr float kNoScore = -std::numeric_limits<float>::infinity();

/// Rows side by side: the values of every feature any of them has.
struct WalkingPanel {
  std::vector<std::int32_t> slots;  // by feature; 0 where no row has it
  AlignedVector<float> x;           // slots x kForestRows
};

/// Everything one worker needs, allocated once per call.
class ForestScorer {
 public:
  ForestScorer(const Forest& forest, const CsrView& X, Control& control, int worker)
      : forest_(forest), X_(X), control_(control), worker_(worker) {}

  /// leaves_[row - begin][tree] for rows [begin, end), tree by tree so that a tree stays in cache over the rows.
  void walk(std::int64_t begin, std::int64_t end) {
    const auto n_trees = static_cast<std::int64_t>(forest_.trees.size());
    leaves_.assign(static_cast<std::size_t>((end - begin) * n_trees), 0);
    const std::int64_t n_panels = (end - begin + kForestRows - 1) / kForestRows;
    for (std::int64_t p = 0; p < n_panels; ++p)
      fill_panel(begin + p * kForestRows, std::min(begin + (p + 1) * kForestRows, end), panels_[p]);
    for (std::int64_t t = 0; t < n_trees; ++t) {
      control_.check_in(worker_);
      for (std::int64_t p = 0; p < n_panels; ++p) {
        const std::int64_t n_rows = std::min<std::int64_t>(kForestRows, end - begin - p * kForestRows);
        walk_tree(forest_.trees[static_cast<std::size_t>(t)], panels_[p], n_rows,
                  leaves_.data() + p * kForestRows * n_trees + t, n_trees);
      }
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
    const auto n = std::min<std::int64_t>(top_k, static_cast<std::int64_t>(ranked_.size()));
    std::partial_sort(ranked_.begin(), ranked_.begin() + n, ranked_.end(), better);
    for (std::int64_t r = 0; r < top_k; ++r) {
      out_labels[r] = r < n ? ranked_[static_cast<std::size_t>(r)].label : -1;
      out_scores[r] = r < n ? ranked_[static_cast<std::size_t>(r)].score : kNoScore;
    }
  }

 private:
  struct Ranked {
    float score;
    std::int32_t label;
  };
  static bool better(const Ranked& a, const Ranked& b) {
    return a.score != b.score ? a.score > b.score : a.label < b.label;
  }

  void fill_panel(std::int64_t begin, std::int64_t end, WalkingPanel& panel) const {
    panel.slots.assign(static_cast<std::size_t>(X_.n_cols) + 1, 0);
    std::int32_t n = 1;
    for (std::int64_t i = X_.indptr[begin]; i < X_.indptr[end]; ++i) {
      std::int32_t& slot = panel.slots[static_cast<std::size_t>(X_.indices[i])];
      if (slot == 0) slot = n++;
    }
    panel.slots.back() = n++;
    panel.x.assign(static_cast<std::size_t>(n) * kForestRows, 0.0F);
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t i = X_.indptr[row]; i < X_.indptr[row + 1]; ++i)
        panel.x[static_cast<std::size_t>(panel.slots[static_cast<std::size_t>(X_.indices[i])]) * kForestRows +
                static_cast<std::size_t>(row - begin)] = X_.data[i];
    std::fill_n(panel.x.end() - kForestRows, kForestRows, static_cast<float>(forest_.bias));
  }

  /// All rows of a panel go down together; a node is visited once, with the rows that reach it.
  void walk_tree(const ForestTree& tree, const WalkingPanel& panel, std::int64_t n_rows, std::int32_t* leaves,
                 std::int64_t stride) {
    const std::uint32_t all = n_rows == 32 ? ~0U : (1U << n_rows) - 1;
    if (tree.n_inner == 0) return;  // everybody is in leaf 0
    stack_.assign(1, {0, all});
    while (!stack_.empty()) {
      const Visit visit = stack_.back();
      stack_.pop_back();
      if (visit.node < 0) {
        for (std::uint32_t rows = visit.rows; rows != 0; rows &= rows - 1)
          leaves[__builtin_ctz(rows) * stride] = ~visit.node;
        continue;
      }
      const std::uint32_t begin = tree.weight_ptr[visit.node];
      const void* gaps = tree.wide ? static_cast<const void*>(static_cast<const std::uint16_t*>(tree.gaps) + begin)
                                   : static_cast<const void*>(static_cast<const std::uint8_t*>(tree.gaps) + begin);
      const std::uint32_t first =
          visit.rows & kernels_.find_sides({std::int64_t{tree.weight_ptr[visit.node + 1]} - begin, gaps, tree.wide,
                                            tree.weights + begin, panel.slots.data(),
                                            static_cast<std::uint32_t>(panel.slots.size()), panel.x.data()});
      if (first != 0) stack_.push_back({tree.children[2 * visit.node], first});
      if (first != visit.rows) stack_.push_back({tree.children[2 * visit.node + 1], visit.rows & ~first});
    }
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
      std::nth_element(ranked_.begin(), cut, ranked_.end(), better);
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
    std::uint32_t rows;
  };

  const Forest& forest_;
  const CsrView& X_;
  Control& control_;
  const int worker_;
  const ForestKernels& kernels_ = forest_kernels();
  WalkingPanel panels_[kPanelsPerItem];
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
  const std::int64_t share = X.n_rows / (4 * std::max(threads, 1)) / kForestRows * kForestRows;
  const std::int64_t rows_per_item = std::clamp<std::int64_t>(share, kForestRows, kPanelsPerItem * kForestRows);
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

void find_leaves(const Forest& forest, const CsrView& X, int threads, std::int32_t* out, Control& control) {
  const auto n_trees = static_cast<std::int64_t>(forest.trees.size());
  for_rows(forest, X, threads, control, [&](ForestScorer& scorer, std::int64_t begin, std::int64_t end) {
    std::copy_n(scorer.leaves(), (end - begin) * n_trees, out + begin * n_trees);
  });
}

}  // namespace umpteen
