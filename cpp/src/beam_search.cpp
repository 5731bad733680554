#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "umpteen/aligned.hpp"
#include "umpteen/label_tree.hpp"
#include "umpteen/ranking.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

constexpr std::size_t kMaxChildren = 65536;
constexpr std::int64_t kMostRowsPerItem = 1024;
constexpr std::int64_t kCandidatesPerItem = 1 << 21;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Leaves the n best, in no order.
void keep_best(std::vector<Ranked>& list, std::int64_t n) {
  if (static_cast<std::int64_t>(list.size()) <= n) return;
  std::nth_element(list.begin(), list.begin() + n, list.end(), is_better);
  list.resize(size(n));
}

/// A row that has come to a node.
struct Visit {
  std::int32_t node;
  std::int32_t row;
  float score;
};

/// What a child's margin adds to the score of its path. Of our own trees beyond 1 a little too: else all that are
/// sure would tie.
float judge(Link link, float margin) {
  const float lack = 1 - margin;
  if (link == Link::cubic) return lack > 0 ? -lack * lack * lack : -0.01F * lack;
  if (link == Link::cubed) return lack > 0 ? -lack * lack * lack : 0;
  if (link == Link::squared) return lack > 0 ? -lack * lack : 0;
  return std::min(margin, 0.0F) - std::log1p(std::exp(-std::abs(margin)));
}

/// Takes a block of rows down all trees at once, level by level and node by node, so that a node's weights are read
/// for all rows that come to it.
class BeamSearcher {
 public:
  BeamSearcher(const LabelForest& forest, const CsrView& X, std::int64_t top_k, std::int64_t beam,
               const std::uint8_t* allowed, const std::uint8_t* followed, Control& control, int worker)
      : forest_(forest),
        X_(X),
        top_k_(top_k),
        beam_(beam),
        allowed_(allowed),
        followed_(followed),
        control_(control),
        worker_(worker),
        // A corrupt position is any 16-bit number: with room for all of them no check is needed.
        acc_(kMaxChildren) {}

  void search(std::int64_t begin, std::int64_t end, std::int32_t* out_labels, float* out_scores) {
    const std::int64_t n = end - begin;
    found_.resize(size(n));
    next_.resize(size(n));
    for (auto& found : found_) found.clear();
    for (const std::int32_t root : forest_.roots) {
      visits_.clear();
      if (followed_ == nullptr || followed_[root])
        for (std::int64_t r = 0; r < n; ++r) visits_.push_back({root, static_cast<std::int32_t>(r), 0});
      while (!visits_.empty()) {
        for (std::size_t first = 0; first < visits_.size();) {
          std::size_t last = first + 1;
          while (last < visits_.size() && visits_[last].node == visits_[first].node) ++last;
          visit(begin, visits_.data() + first, visits_.data() + last);
          control_.check_in(worker_);
          first = last;
        }
        follow(n);
      }
    }
    for (std::int64_t r = 0; r < n; ++r)
      finish(found_[size(r)], out_labels + (begin + r) * top_k_, out_scores + (begin + r) * top_k_);
  }

 private:
  /// Scores a node's children for the rows that have come to it.
  void visit(std::int64_t begin, const Visit* first, const Visit* last) {
    const TreeNode& node = forest_.nodes[size(first->node)];
    const std::int64_t n_features = node.shard.n_features;
    std::int64_t entries = 0;
    for (const Visit* v = first; v != last; ++v) entries += X_.indptr[begin + v->row + 1] - X_.indptr[begin + v->row];
    // One search costs about as much as so many places that are written and cleared again.
    const auto steps = static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n_features)));
    const bool spread = 2 * n_features < entries * steps;
    if (spread) {
      if (places_.empty()) places_.assign(size(X_.n_cols), -1);
      for (std::int64_t f = 0; f < n_features; ++f) places_[size(node.features[f])] = static_cast<std::int32_t>(f);
    }
    for (const Visit* v = first; v != last; ++v) {
      if (spread)
        look_up(begin + v->row);
      else
        search_features(node, begin + v->row);
      std::copy_n(node.shard.bias, node.shard.n_labels, acc_.data());
      kernels_.add_row(node.shard, static_cast<std::int64_t>(features_.size()), features_.data(), values_.data(),
                       acc_.data());
      list_children(node, *v);
    }
    if (spread)
      for (std::int64_t f = 0; f < n_features; ++f) places_[size(node.features[f])] = -1;
  }

  void look_up(std::int64_t row) {
    features_.clear();
    values_.clear();
    for (std::int64_t i = X_.indptr[row]; i < X_.indptr[row + 1]; ++i) {
      const std::int32_t place = places_[size(X_.indices[i])];
      if (place < 0) continue;
      features_.push_back(place);
      values_.push_back(X_.data[i]);
    }
  }

  /// The same without places: both lists rise, so each search begins where the last one ended.
  void search_features(const TreeNode& node, std::int64_t row) {
    features_.clear();
    values_.clear();
    const std::int32_t* const first = node.features;
    const std::int32_t* const end = first + node.shard.n_features;
    const std::int32_t* at = first;
    for (std::int64_t i = X_.indptr[row]; i < X_.indptr[row + 1] && at != end; ++i) {
      const std::int32_t feature = X_.indices[i];
      std::ptrdiff_t step = 1;
      while (end - at > step && at[step] < feature) step *= 2;
      at = std::lower_bound(at, std::min(at + step + 1, end), feature);
      if (at == end || *at != feature) continue;
      features_.push_back(static_cast<std::int32_t>(at - first));
      values_.push_back(X_.data[i]);
    }
  }

  void list_children(const TreeNode& node, const Visit& v) {
    for (std::int32_t c = 0; c < node.shard.n_labels; ++c) {
      const float margin = acc_[size(c)];
      if (margin == kNoScore) continue;
      const std::int32_t child = node.children[c];
      if (child >= 0) {
        if (allowed_ == nullptr || allowed_[child])
          found_[size(v.row)].push_back({v.score + judge(forest_.link, margin), child});
      } else if (followed_ == nullptr || followed_[~child]) {
        next_[size(v.row)].push_back({v.score + judge(forest_.link, margin), ~child});
      }
    }
  }

  /// On to the best nodes of each row, node by node.
  void follow(std::int64_t n_rows) {
    visits_.clear();
    for (std::int64_t r = 0; r < n_rows; ++r) {
      keep_best(next_[size(r)], beam_);
      for (const Ranked& node : next_[size(r)])
        visits_.push_back({node.label, static_cast<std::int32_t>(r), node.score});
      next_[size(r)].clear();
    }
    std::sort(visits_.begin(), visits_.end(),
              [](const Visit& a, const Visit& b) { return a.node < b.node || (a.node == b.node && a.row < b.row); });
  }

  /// The mean over the trees, and the best of it.
  void finish(std::vector<Ranked>& found, std::int32_t* labels, float* scores) {
    if (forest_.roots.size() > 1) average(found);
    write_best(found, top_k_, labels, scores);
  }

  void average(std::vector<Ranked>& found) const {
    std::sort(found.begin(), found.end(), [](const Ranked& a, const Ranked& b) {
      return a.label < b.label || (a.label == b.label && a.score > b.score);
    });
    const auto n_trees = static_cast<double>(forest_.roots.size());
    std::size_t n = 0;
    for (std::size_t first = 0; first < found.size();) {
      double sum = 0;  // relative to the largest, which comes first
      std::size_t last = first;
      for (; last < found.size() && found[last].label == found[first].label; ++last)
        sum += std::exp(double{found[last].score} - found[first].score);
      found[n++] = {static_cast<float>(found[first].score + std::log(sum / n_trees)), found[first].label};
      first = last;
    }
    found.resize(n);
  }

  const LabelForest& forest_;
  const CsrView& X_;
  const std::int64_t top_k_, beam_;
  const std::uint8_t* const allowed_;
  const std::uint8_t* const followed_;
  Control& control_;
  const int worker_;
  const Kernels& kernels_ = kernels();
  AlignedVector<float> acc_;
  std::vector<Visit> visits_;
  std::vector<std::vector<Ranked>> found_, next_;  // by row: labels, and nodes of the next level in their place
  std::vector<std::int32_t> places_;               // by feature: its place among those of the node at hand, or -1
  std::vector<std::int32_t> features_;             // of the row at hand, those the node has
  std::vector<float> values_;
};

/// Which nodes have an allowed label below them. Children come after their parents.
std::vector<std::uint8_t> find_followed(const LabelForest& forest, const std::uint8_t* allowed) {
  std::vector<std::uint8_t> followed(forest.nodes.size(), 0);
  for (std::size_t n = forest.nodes.size(); n-- > 0;) {
    const TreeNode& node = forest.nodes[n];
    for (std::int32_t c = 0; c < node.shard.n_labels && !followed[n]; ++c)
      followed[n] = node.children[c] >= 0 ? allowed[node.children[c]] : followed[size(~node.children[c])];
  }
  return followed;
}

}  // namespace

void search_labels(const LabelForest& forest, const CsrView& X, std::int64_t top_k, std::int64_t beam,
                   const std::uint8_t* allowed, int threads, std::int32_t* out_labels, float* out_scores,
                   Control& control) {
  std::vector<std::uint8_t> followed;
  if (allowed != nullptr) followed = find_followed(forest, allowed);
  std::int64_t widest = 1;
  if (X.n_rows > 1)
    for (const TreeNode& node : forest.nodes) widest = std::max<std::int64_t>(widest, node.shard.n_labels);
  // Nodes are read once per block of rows: large blocks, as far as their candidates stay in cache, and several per
  // thread.
  const auto n_trees = static_cast<std::int64_t>(forest.roots.size());
  const std::int64_t n_nodes = std::min(beam, static_cast<std::int64_t>(forest.nodes.size()));
  const std::int64_t fitting = kCandidatesPerItem / std::max<std::int64_t>(n_nodes * widest * n_trees, 1);
  const std::int64_t share = (X.n_rows + 2 * threads - 1) / std::max(2 * threads, 1);
  const std::int64_t rows_per_item = std::clamp<std::int64_t>(std::min(fitting, share), 1, kMostRowsPerItem);
  const std::int64_t n_items = (X.n_rows + rows_per_item - 1) / rows_per_item;
  std::vector<std::unique_ptr<BeamSearcher>> searchers(size(clamp_threads(n_items, threads)));
  parallel_for(n_items, threads, control, [&](std::int64_t item, int worker) {
    auto& searcher = searchers[size(worker)];
    if (!searcher)
      searcher = std::make_unique<BeamSearcher>(forest, X, top_k, beam, allowed,
                                                allowed == nullptr ? nullptr : followed.data(), control, worker);
    const std::int64_t begin = item * rows_per_item;
    searcher->search(begin, std::min(begin + rows_per_item, X.n_rows), out_labels, out_scores);
  });
}

}  // namespace umpteen
