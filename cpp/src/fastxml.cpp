#include "umpteen/fastxml.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "umpteen/half.hpp"
#include "umpteen/random.hpp"

namespace umpteen {

namespace {

double log1p_exp(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// Splits nodes, one after the other, with scratch space that is allocated once.
class Splitter {
 public:
  Splitter(const TreeProblem& problem, const TreeOptions& options, Control& control)
      : problem_(problem),
        options_(options),
        control_(control),
        label_place_(static_cast<std::size_t>(problem.Y.n_cols), -1),
        column_size_(static_cast<std::size_t>(problem.X.n_cols) + 1, 0) {
    std::int64_t most = 1;
    for (std::int64_t i = 0; i < problem.Y.n_rows; ++i)
      most = std::max(most, problem.Y.indptr[i + 1] - problem.Y.indptr[i]);
    inverse_ideal_.resize(static_cast<std::size_t>(most) + 1, 0.0);
    double ideal = 0;
    for (std::int64_t l = 1; l <= most; ++l) {
      ideal += discount(l - 1);
      inverse_ideal_[static_cast<std::size_t>(l)] =
          problem.ideal && options.loss != SplitLoss::precision5 ? 1 / ideal : 1;
    }
  }

  /// The paper's Algorithm 2. With `trace` the objective is recorded after every step.
  void split(const std::vector<std::int32_t>& rows, std::uint64_t seed, bool trace, NodeSplit& out) {
    rows_ = &rows;
    seed_ = seed;
    out.objective.clear();
    out.steps.clear();
    list_labels();
    start_at_random(seed, out.delta);
    pull_.assign(rows.size(), 0.0);
    n_columns_ = 0;
    length_ = 0;
    cost_[0] = cost_[1] = options_.C_delta;
    if (trace) {
      rank_labels(out.delta);
      record(out, 0);
    }
    for (int update = 0; update < options_.w_updates; ++update) {
      const std::vector<std::int8_t> before = out.delta;
      alternate(trace, out);
      if (update > 0 && out.delta == before) break;
      if (n_columns_ == 0) {
        build_columns();
        w_.assign(static_cast<std::size_t>(n_columns_), 0.0F);
      }
      train_w(out);
      if (trace) record(out, 3);
    }
    for (const std::int32_t label : labels_) label_place_[static_cast<std::size_t>(label)] = -1;
    // Only what is not zero, by rising feature.
    order_.clear();
    for (std::int32_t c = 0; c < n_columns_; ++c)
      if (w_[static_cast<std::size_t>(c)] != 0) order_.push_back(c);
    std::sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) {
      return features_[static_cast<std::size_t>(a)] < features_[static_cast<std::size_t>(b)];
    });
    out.features.clear();
    out.weights.clear();
    for (const std::int32_t c : order_) {
      out.features.push_back(features_[static_cast<std::size_t>(c)]);
      out.weights.push_back(w_[static_cast<std::size_t>(c)]);
    }
  }

  /// w.x of the node's rows with some weights for the columns that split() left, in the order it left them.
  void score(const std::vector<float>& weights, std::vector<float>& scores) const {
    scores.assign(rows_->size(), 0.0F);
    for (std::size_t k = 0; k < order_.size(); ++k) {
      const auto c = static_cast<std::size_t>(order_[k]);
      l1_kernels().add_column(start_[c + 1] - start_[c], column_rows_.data() + start_[c], values_.data() + start_[c],
                              weights[k], scores.data());
    }
  }

 private:
  /// What a label at this place of the ranking (from 0) is worth.
  double discount(std::int64_t place) const {
    if (options_.loss != SplitLoss::ndcg && place >= 5) return 0;
    return options_.loss == SplitLoss::precision5 ? 0.2 : 1 / std::log2(static_cast<double>(place) + 2);
  }

  /// The node's labels, numbered through by rising id, and the rows' labels by those numbers.
  void list_labels() {
    const CsrView& Y = problem_.Y;
    labels_.clear();
    for (const std::int32_t row : *rows_)
      for (std::int64_t i = Y.indptr[row]; i < Y.indptr[row + 1]; ++i) {
        std::int32_t& place = label_place_[static_cast<std::size_t>(Y.indices[i])];
        if (place < 0) labels_.push_back(Y.indices[i]);
        place = 0;
      }
    std::sort(labels_.begin(), labels_.end());
    const std::size_t n = labels_.size();
    label_gain_.resize(n);
    for (std::size_t l = 0; l < n; ++l) {
      label_place_[static_cast<std::size_t>(labels_[l])] = static_cast<std::int32_t>(l);
      label_gain_[l] = problem_.label_gain[labels_[l]];
    }
    row_start_.assign(1, 0);
    row_labels_.clear();
    for (const std::int32_t row : *rows_) {
      for (std::int64_t i = Y.indptr[row]; i < Y.indptr[row + 1]; ++i)
        row_labels_.push_back(label_place_[static_cast<std::size_t>(Y.indices[i])]);
      row_start_.push_back(static_cast<std::int64_t>(row_labels_.size()));
    }
    for (auto& side : side_gain_) side.resize(n);
    for (auto& side : side_score_) side.resize(n);
    for (std::size_t place = places_.size(); place < n; ++place)
      places_.push_back(discount(static_cast<std::int64_t>(place)));
  }

  void start_at_random(std::uint64_t seed, std::vector<std::int8_t>& delta) const {
    Random random(seed);
    delta.resize(rows_->size());
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < delta.size(); ++i, bits >>= 1) {
      if (i % 64 == 0) bits = random.next();
      delta[i] = (bits & 1) != 0 ? 1 : -1;
    }
  }

  /// r+ and r-: each side's labels by the sum of I(y) over its rows, ties by id; labels the side lacks come after.
  /// Leaves in side_gain_ what each label is worth where it stands.
  void rank_labels(const std::vector<std::int8_t>& delta) {
    for (auto& side : side_score_) std::fill(side.begin(), side.end(), 0.0);
    for (std::size_t i = 0; i < delta.size(); ++i) {
      auto& score = side_score_[delta[i] > 0];
      const double ideal = inverse_ideal(i);
      for (std::int64_t j = row_start_[i]; j < row_start_[i + 1]; ++j)
        score[static_cast<std::size_t>(row_labels_[static_cast<std::size_t>(j)])] += ideal;
    }
    for (int s = 0; s < 2; ++s) {
      const auto& score = side_score_[s];
      keys_.clear();
      for (std::size_t l = 0; l < score.size(); ++l)
        if (score[l] > 0) {
          // Positive floats sort as their bits do.
          const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(score[l] * label_gain_[l]));
          keys_.push_back(static_cast<std::uint64_t>(~bits) << 32 | l);
        }
      std::sort(keys_.begin(), keys_.end());
      std::size_t place = 0;
      for (const std::uint64_t key : keys_) {
        const auto l = static_cast<std::size_t>(key & 0xffffffffU);
        side_gain_[s][l] = label_gain_[l] * places_[place++];
      }
      for (std::size_t l = 0; l < score.size(); ++l)
        if (!(score[l] > 0)) side_gain_[s][l] = label_gain_[l] * places_[place++];
    }
  }

  double inverse_ideal(std::size_t i) const {
    return inverse_ideal_[static_cast<std::size_t>(row_start_[i + 1] - row_start_[i])];
  }

  /// nDCG of a row under the ranking of one side.
  double gain(std::size_t i, int side) const {
    double total = 0;
    for (std::int64_t j = row_start_[i]; j < row_start_[i + 1]; ++j)
      total += side_gain_[side][static_cast<std::size_t>(row_labels_[static_cast<std::size_t>(j)])];
    return total * inverse_ideal(i);
  }

  /// delta_i = sign(v-_i - v+_i); a tie keeps it. Returns whether any changed; `value` is what delta then is worth.
  bool assign_rows(std::vector<std::int8_t>& delta, double& value) const {
    bool changed = false;
    value = 0;
    for (std::size_t i = 0; i < delta.size(); ++i) {
      const double plus = options_.C_r * gain(i, 1) + pull_[i];
      const double minus = options_.C_r * gain(i, 0);
      const std::int8_t side = plus > minus ? 1 : plus < minus ? -1 : delta[i];
      changed |= side != delta[i];
      delta[i] = side;
      value += side > 0 ? plus : minus;
    }
    return changed;
  }

  /// Steps 1 and 2 until no row changes sides. Each change raises the value, so this ends; should rounding ever say
  /// otherwise it ends too.
  void alternate(bool trace, NodeSplit& out) {
    double best = -1e300;
    for (;;) {
      control_.check_in(0);
      rank_labels(out.delta);
      if (trace) record(out, 1);
      double value;
      const bool changed = assign_rows(out.delta, value);
      if (trace) record(out, 2);
      if (!changed || value <= best) return;
      best = value;
    }
  }

  /// The node's part of X by columns, with the constant feature as the last one.
  void build_columns() {
    const CsrView& X = problem_.X;
    const auto constant = static_cast<std::int32_t>(X.n_cols);
    features_.clear();
    std::int64_t nnz = 0;
    for (const std::int32_t row : *rows_) nnz += X.indptr[row + 1] - X.indptr[row];
    features_.resize(static_cast<std::size_t>(std::min(nnz, X.n_cols)) + 2);
    std::size_t n = 0;
    for (const std::int32_t row : *rows_)
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) {
        features_[n] = X.indices[i];
        n += column_size_[static_cast<std::size_t>(X.indices[i])]++ == 0;
      }
    features_[n++] = constant;
    features_.resize(n);
    const auto n_rows = static_cast<std::int64_t>(rows_->size());
    column_size_[static_cast<std::size_t>(constant)] = n_rows;
    start_.resize(n + 1);
    start_[0] = 0;
    for (std::size_t c = 0; c < n; ++c) {
      std::int64_t& size = column_size_[static_cast<std::size_t>(features_[c])];
      start_[c + 1] = start_[c] + size;
      size = start_[c];  // from here on, where its next entry goes
    }
    column_rows_.resize(static_cast<std::size_t>(start_[n]));
    values_.resize(static_cast<std::size_t>(start_[n]));
    std::int32_t local = 0;
    for (const std::int32_t row : *rows_) {
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) {
        const std::int64_t at = column_size_[static_cast<std::size_t>(X.indices[i])]++;
        column_rows_[static_cast<std::size_t>(at)] = local;
        values_[static_cast<std::size_t>(at)] = X.data[i];
      }
      ++local;
    }
    std::iota(column_rows_.begin() + start_[n - 1], column_rows_.end(), 0);
    std::fill(values_.begin() + start_[n - 1], values_.end(), static_cast<float>(problem_.bias));
    for (const std::int32_t feature : features_) column_size_[static_cast<std::size_t>(feature)] = 0;
    n_columns_ = static_cast<std::int32_t>(n);
  }

  /// Step 3: L1-regularised logistic regression of delta on x.
  void train_w(NodeSplit& out) {
    const std::size_t n = rows_->size();
    const auto n_plus = static_cast<double>(std::count(out.delta.begin(), out.delta.end(), 1));
    const double n_minus = static_cast<double>(n) - n_plus;
    if (options_.balance) {
      cost_[1] = options_.C_delta * static_cast<double>(n) / std::max(n_plus, 1.0);
      cost_[0] = options_.C_delta * static_cast<double>(n) / std::max(n_minus, 1.0);
    }
    sign_.resize(n);
    row_cost_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      sign_[i] = out.delta[i];
      row_cost_[i] = static_cast<float>(cost_[out.delta[i] > 0]);
    }
    const ColumnsView columns{static_cast<std::int64_t>(n), n_columns_, start_.data(), column_rows_.data(),
                              values_.data()};
    L1Options solver = options_.solver;
    solver.seed = seed_;
    solver.eps *= std::max(std::min(n_plus, n_minus), 1.0) / static_cast<double>(n);
    out.solver =
        solver_.solve(L1Loss::logistic, {columns, sign_.data(), row_cost_.data()}, solver, w_.data(), control_, 0);
    length_ = 0;
    for (const float w : w_) length_ += std::abs(double{w});
    const float* wx = solver_.scores();
    for (std::size_t i = 0; i < n; ++i) pull_[i] = cost_[0] * log1p_exp(wx[i]) - cost_[1] * log1p_exp(-wx[i]);
  }

  /// The objective as it stands.
  void record(NodeSplit& out, std::uint8_t step) const {
    double total = length_;
    for (std::size_t i = 0; i < out.delta.size(); ++i) {
      const int side = out.delta[i] > 0;
      const double wx = n_columns_ > 0 ? solver_.scores()[i] : 0.0;
      total += cost_[side] * log1p_exp(side ? -wx : wx) - options_.C_r * gain(i, side);
    }
    out.objective.push_back(total);
    out.steps.push_back(step);
  }

  const TreeProblem& problem_;
  const TreeOptions& options_;
  Control& control_;
  L1Newton solver_;
  const std::vector<std::int32_t>* rows_ = nullptr;
  std::vector<double> inverse_ideal_;  // I(y) by the number of labels
  std::vector<double> places_;         // discount by place
  // The node's labels.
  std::vector<std::int32_t> label_place_;  // by label: its number in the node, -1 for none
  std::vector<std::int32_t> labels_;
  std::vector<double> label_gain_;
  std::vector<std::int64_t> row_start_;
  std::vector<std::int32_t> row_labels_;
  std::array<std::vector<double>, 2> side_score_;
  std::array<std::vector<double>, 2> side_gain_;
  std::vector<std::uint64_t> keys_;
  std::vector<double> pull_;  // by row: how much less the loss is on the side +1
  double cost_[2];            // C_delta(-1), C_delta(+1)
  double length_ = 0;         // |w|_1
  std::uint64_t seed_ = 0;
  // The node's columns.
  std::vector<std::int64_t> column_size_;  // by feature; zero between nodes
  std::int32_t n_columns_ = 0;
  std::vector<std::int32_t> features_;
  std::vector<std::int64_t> start_;
  std::vector<std::int32_t> column_rows_;
  std::vector<float> values_;
  std::vector<float> w_, sign_, row_cost_;
  std::vector<std::int32_t> order_;
};

}  // namespace

NodeSplit split_node(const TreeProblem& problem, const TreeOptions& options, const std::vector<std::int32_t>& rows,
                     std::uint64_t seed, Control& control) {
  NodeSplit split;
  Splitter(problem, options, control).split(rows, seed, true, split);
  return split;
}

namespace {

/// Appends a leaf: the mean of its rows' labels, the best labels_per_leaf of them, by label.
void add_leaf(const TreeProblem& problem, const TreeOptions& options, const std::vector<std::int32_t>& rows,
              std::vector<double>& sums, Tree& tree) {
  const CsrView& Y = problem.Y;
  std::vector<std::int32_t> labels;
  for (const std::int32_t row : rows)
    for (std::int64_t i = Y.indptr[row]; i < Y.indptr[row + 1]; ++i) {
      double& sum = sums[static_cast<std::size_t>(Y.indices[i])];
      if (sum == 0) labels.push_back(Y.indices[i]);
      sum += double{problem.label_gain[Y.indices[i]]};
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
  const double unit = 65535 / problem.leaf_scale / static_cast<double>(rows.size());
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

  void round(const NodeSplit& split, std::vector<float>& rounded) {
    features.clear();
    weights.clear();
    rounded.assign(split.weights.size(), 0.0F);
    float largest = 0;
    for (const float w : split.weights) largest = std::max(largest, std::abs(w));
    if (largest == 0) return;
    const int exponent = 14 - std::ilogb(largest);
    for (std::size_t k = 0; k < split.weights.size(); ++k) {
      const std::uint16_t half = float_to_half(std::scalbn(split.weights[k], exponent));
      rounded[k] = half_to_float(half);
      if (rounded[k] == 0) continue;
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

}  // namespace

Tree grow_tree(const TreeProblem& problem, const TreeOptions& options, std::uint64_t seed, Control& control) {
  struct Pending {
    std::vector<std::int32_t> rows;
    std::int64_t slot;  // where in tree.children its number goes; -1 for the root
  };
  Tree tree;
  Splitter splitter(problem, options, control);
  Random random(seed);
  NodeSplit split;
  std::vector<StoredWeights> nodes;
  std::vector<float> rounded;
  std::vector<float> scores;
  std::vector<double> sums(static_cast<std::size_t>(problem.Y.n_cols), 0.0);
  // A stack of our own: a tree may be as deep as it has rows.
  std::vector<Pending> stack(1);
  stack[0].rows.resize(static_cast<std::size_t>(problem.X.n_rows));
  std::iota(stack[0].rows.begin(), stack[0].rows.end(), 0);
  stack[0].slot = -1;
  while (!stack.empty()) {
    const Pending node = std::move(stack.back());
    stack.pop_back();
    control.check_in(0);
    std::vector<std::int32_t> sides[2];
    StoredWeights stored;
    if (static_cast<std::int64_t>(node.rows.size()) > options.max_leaf) {
      splitter.split(node.rows, random.next(), false, split);
      // By the weights as they are stored, summed as at prediction: each row will find the leaf it helped to make.
      stored.round(split, rounded);
      splitter.score(rounded, scores);
      for (std::size_t i = 0; i < node.rows.size(); ++i) sides[scores[i] > 0].push_back(node.rows[i]);
    }
    const bool leaf = sides[0].empty() || sides[1].empty();
    if (node.slot >= 0)
      tree.children[static_cast<std::size_t>(node.slot)] =
          leaf ? ~static_cast<std::int32_t>(tree.leaf_rows.size()) : static_cast<std::int32_t>(nodes.size());
    if (leaf) {
      add_leaf(problem, options, node.rows, sums, tree);
      continue;
    }
    const auto slot = static_cast<std::int64_t>(tree.children.size());
    tree.children.resize(tree.children.size() + 2);
    nodes.push_back(std::move(stored));
    stack.push_back({std::move(sides[0]), slot + 1});
    stack.push_back({std::move(sides[1]), slot});
  }
  pack_weights(nodes, tree);
  return tree;
}

}  // namespace umpteen
