#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "umpteen/fastxml.hpp"
#include "umpteen/random.hpp"

namespace umpteen {

inline double log1p_exp(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

/// Splits nodes, one after the other, with scratch space that is allocated once.
template <typename Row>
class NodeSplitter {
 public:
  NodeSplitter(const TreeProblem& problem, const TreeOptions& options, Control& control)
      : problem_(problem),
        options_(options),
        control_(control),
        label_place_(static_cast<std::size_t>(problem.Y.n_cols), -1) {
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

  /// The paper's Algorithm 2; `features` are those of X's columns. With `trace` the objective is recorded after every
  /// step.
  void split(const std::vector<std::int32_t>& rows, const ColumnsView<Row>& X, const std::int32_t* features,
             std::uint64_t seed, bool trace, NodeSplit& out) {
    rows_ = &rows;
    X_ = X;
    features_ = features;
    seed_ = seed;
    out.objective.clear();
    out.steps.clear();
    list_labels();
    times_.resize(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) times_[i] = problem_.cost_of(rows[i]);
    start_at_random(seed, out.delta);
    pull_.assign(rows.size(), 0.0);
    w_.assign(static_cast<std::size_t>(X.n_cols), 0.0F);
    trained_ = false;
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
      train_w(out);
      if (trace) record(out, 3);
    }
    for (const std::int32_t label : labels_) label_place_[static_cast<std::size_t>(label)] = -1;
    out.features.clear();
    out.weights.clear();
    for (std::size_t c = 0; c < w_.size(); ++c)
      if (w_[c] != 0) {
        out.features.push_back(features[c]);
        out.weights.push_back(w_[c]);
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
      const double ideal = times_[i] * inverse_ideal(i);
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
      value += times_[i] * (side > 0 ? plus : minus);
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

  /// Step 3: L1-regularised logistic regression of delta on x.
  void train_w(NodeSplit& out) {
    const std::size_t n = rows_->size();
    double size[2] = {0, 0};  // of the sides
    for (std::size_t i = 0; i < n; ++i) size[out.delta[i] > 0] += times_[i];
    const double total = size[0] + size[1];
    if (options_.balance)
      for (int side = 0; side < 2; ++side)
        cost_[side] = options_.C_delta * total / (size[side] > 0 ? size[side] : total / static_cast<double>(n));
    sign_.resize(n);
    row_cost_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      sign_[i] = out.delta[i];
      row_cost_[i] = static_cast<float>(times_[i] * cost_[out.delta[i] > 0]);
    }
    L1Options solver = options_.solver;
    solver.seed = seed_;
    const double smaller = std::min(size[0], size[1]);
    solver.eps *= smaller > 0 ? smaller / total : 1 / static_cast<double>(n);
    out.solver = solver_.solve(MarginLoss::kLogistic,
                               {X_,
                                sign_.data(),
                                row_cost_.data(),
                                {&problem_.X, rows_->data(), features_, static_cast<float>(problem_.bias)}},
                               solver, w_.data(), control_, 0);
    trained_ = true;
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
      const double wx = trained_ ? solver_.scores()[i] : 0.0;
      total += times_[i] * (cost_[side] * log1p_exp(side ? -wx : wx) - options_.C_r * gain(i, side));
    }
    out.objective.push_back(total);
    out.steps.push_back(step);
  }

  const TreeProblem& problem_;
  const TreeOptions& options_;
  Control& control_;
  L1Newton<Row> solver_;
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
  std::vector<double> times_;  // by row: how many times it counts
  std::vector<double> pull_;   // by row: how much less the loss is on the side +1
  double cost_[2];             // C_delta(-1), C_delta(+1)
  double length_ = 0;          // |w|_1
  std::uint64_t seed_ = 0;
  ColumnsView<Row> X_{};  // the node's rows
  const std::int32_t* features_ = nullptr;
  bool trained_ = false;
  std::vector<float> w_, sign_, row_cost_;
};

}  // namespace umpteen
