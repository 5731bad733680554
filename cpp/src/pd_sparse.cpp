#include "umpteen/pd_sparse.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "umpteen/aligned.hpp"
#include "umpteen/linear_scorer.hpp"
#include "umpteen/random.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

using Floats = AlignedVector<float>;

constexpr std::int64_t kRowsPerSearch = 4096;  // gathered at a time
constexpr std::int64_t kRowsPerCheck = 64;     // between looks for a cancelled call
constexpr std::int64_t kLabelsPerShard = 1024;
constexpr std::int64_t kMostLabelsPerShard = 16384;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

float soften(float v, float limit) { return v > limit ? v - limit : v < -limit ? v + limit : 0.0F; }

std::vector<std::uint32_t> permute(std::int64_t n, std::uint64_t seed) {
  std::vector<std::uint32_t> out(size(n));
  std::iota(out.begin(), out.end(), 0U);
  Random random{seed};
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[random.below(i)]);
  return out;
}

/// One v_k: a hash table from features to values, or, where that would take no less room, an array over all features.
/// The hash of feature f is hash[f], a permutation shared by all tables, cut to the table's size.
class FeatureVector {
 public:
  bool dense() const { return dense_; }
  std::int64_t bytes() const {
    return static_cast<std::int64_t>(values_.capacity() * sizeof(float) + keys_.capacity() * sizeof(std::int32_t));
  }
  void clear() { *this = FeatureVector(); }

  float dot_soft(const std::uint32_t* hash, const std::int32_t* indices, const float* data, std::int64_t n,
                 float limit) const {
    if (values_.empty()) return 0;
    if (dense_) return dual_kernels().dot_soft(indices, data, n, values_.data(), limit);
    double total = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::size_t slot = find(hash, indices[i]);
      if (keys_[slot] >= 0) total += data[i] * soften(values_[slot], limit);
    }
    return static_cast<float>(total);
  }

  void add(const std::uint32_t* hash, std::int64_t n_features, const std::int32_t* indices, const float* data,
           std::int64_t n, float factor) {
    if (dense_) {
      newton_kernels().add_sparse(indices, data, n, factor, values_.data());
      return;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      if (4 * (count_ + 1) > 3 * keys_.size()) {
        grow(hash, n_features);
        if (dense_) {
          newton_kernels().add_sparse(indices + i, data + i, n - i, factor, values_.data());
          return;
        }
      }
      const std::size_t slot = find(hash, indices[i]);
      if (keys_[slot] < 0) {
        keys_[slot] = indices[i];
        ++count_;
      }
      values_[slot] += factor * data[i];
    }
  }

  /// The same, where only features with a value other than 0 count.
  void add_to_support(const std::uint32_t* hash, const std::int32_t* indices, const float* data, std::int64_t n,
                      float factor) {
    if (values_.empty()) return;
    for (std::int64_t i = 0; i < n; ++i) {
      float& value = values_[dense_ ? size(indices[i]) : find(hash, indices[i])];
      value = value != 0 ? value + factor * data[i] : 0.0F;
    }
  }

  /// Calls visit(feature, w) for every w = soft(v, limit) other than 0, in no particular order.
  template <typename Visit>
  void each(float limit, Visit visit) const {
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (values_[i] > limit || values_[i] < -limit)
        visit(dense_ ? static_cast<std::int32_t>(i) : keys_[i], soften(values_[i], limit));
  }

  /// Sets values with |v| <= limit to 0.
  void keep_above(float limit) {
    for (float& value : values_)
      if (value <= limit && value >= -limit) value = 0;
  }

 private:
  /// Where a feature is, or the empty slot where it would go.
  std::size_t find(const std::uint32_t* hash, std::int32_t feature) const {
    const std::size_t mask = keys_.size() - 1;
    std::size_t slot = hash[feature] & mask;
    while (keys_[slot] != feature && keys_[slot] >= 0) slot = (slot + 1) & mask;
    return slot;
  }

  void make_table(std::size_t room) {
    keys_.assign(room, -1);
    values_.assign(room, 0.0F);
  }

  void grow(const std::uint32_t* hash, std::int64_t n_features) {
    const std::vector<std::int32_t> keys = std::move(keys_);
    const Floats values = std::move(values_);
    const std::size_t room = keys.empty() ? 8 : 2 * keys.size();
    dense_ = 2 * room >= size(n_features);
    if (dense_) {
      keys_ = {};
      values_.assign(size(n_features), 0.0F);
    } else {
      make_table(room);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] < 0) continue;
      const std::size_t slot = dense_ ? size(keys[i]) : find(hash, keys[i]);
      if (!dense_) keys_[slot] = keys[i];
      values_[slot] = values[i];
    }
  }

  bool dense_ = false;
  std::size_t count_ = 0;           // features in the table
  std::vector<std::int32_t> keys_;  // -1 where a slot is empty; a power of two of them
  Floats values_;
};

/// A label of a row's active set.
struct Active {
  std::int32_t label;
  float alpha;
};

/// Some labels' published weights, feature by feature.
struct Block {
  std::vector<std::int32_t> label_ids;  // rising
  std::vector<std::uint32_t> indptr;
  std::vector<std::uint32_t> position_ptr;
  std::vector<std::uint16_t> positions;
  Floats weights;
  std::vector<float> bias;  // zeros
  double squared = 0;       // the sum of their squares
};

/// Rows on their way to the scorer.
struct Gathered {
  std::vector<std::int32_t> rows;
  std::vector<std::int64_t> indptr;
  std::vector<std::int32_t> indices;
  std::vector<float> data;
  void clear() {
    rows.clear();
    indptr.assign(1, 0);
    indices.clear();
    data.clear();
  }
  CsrView view(std::int64_t n_cols) const {
    return {static_cast<std::int64_t>(rows.size()), n_cols, indptr.data(), indices.data(), data.data()};
  }
};

void sort_falling(std::vector<double>& values) { std::sort(values.begin(), values.end(), std::greater<>()); }

}  // namespace

double project_two_simplices(double* b, std::int64_t n_b, double* c, std::int64_t n_c, double C) {
  thread_local std::vector<double> sorted_b;
  thread_local std::vector<double> sorted_c;
  sorted_b.assign(b, b + n_b);
  sorted_c.assign(c, c + n_c);
  if (n_b == 0 || n_c == 0) {
    std::fill_n(b, n_b, 0.0);
    std::fill_n(c, n_c, 0.0);
    return std::numeric_limits<double>::infinity();
  }
  sort_falling(sorted_b);
  sort_falling(sorted_c);
  double shift_c = sorted_c[0];  // q and p, where the sum is 0: nothing is positive
  double shift_b = -shift_c;
  if (sorted_b[0] > shift_b) {
    // With n and m entries positive: p = (sum_b - t) / n and q = (sum_c - t) / m.
    std::size_t n = 1;
    std::size_t m = 1;
    double sum_b = sorted_b[0];
    double sum_c = sorted_c[0];
    while (true) {
      const double most = std::numeric_limits<double>::infinity();
      // The sum at which one more entry becomes positive.
      const double next_b = n < sorted_b.size() ? sum_b - static_cast<double>(n) * sorted_b[n] : most;
      const double next_c = m < sorted_c.size() ? sum_c - static_cast<double>(m) * sorted_c[m] : most;
      const auto n_d = static_cast<double>(n);
      const auto m_d = static_cast<double>(m);
      const double t = std::min((m_d * sum_b + n_d * sum_c) / (n_d + m_d), C);
      if (t <= std::min(next_b, next_c)) {
        shift_b = (sum_b - t) / n_d;
        shift_c = (sum_c - t) / m_d;
        break;
      }
      if (next_b <= next_c)
        sum_b += sorted_b[n++];
      else
        sum_c += sorted_c[m++];
    }
  }
  for (std::int64_t i = 0; i < n_b; ++i) b[i] = std::max(b[i] - shift_b, 0.0);
  for (std::int64_t i = 0; i < n_c; ++i) c[i] = std::max(c[i] - shift_c, 0.0);
  return shift_b;
}

struct PdSolver::State {
  explicit State(const PdProblem& problem)
      : X(problem.X),
        Y(problem.Y),
        limit(static_cast<float>(problem.lambda)),
        C(problem.C),
        seed(problem.seed),
        n_groups(problem.n_groups),
        hash(permute(X.n_cols, problem.seed)),
        vectors(size(Y.n_cols)),
        active(size(Y.n_rows)),
        positive_alphas(size(Y.indptr[Y.n_rows]), 0.0F),
        squared(size(X.n_rows)) {
    for (std::int64_t row = 0; row < X.n_rows; ++row) {
      double sum = 0;
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) sum += double{X.data[i]} * X.data[i];
      squared[size(row)] = sum;
      most_labels = std::max(most_labels, count_positives(row));
    }
    bars.assign(size(X.n_rows), -std::numeric_limits<float>::infinity());
    deal_labels();
  }

  std::int64_t count_positives(std::int64_t row) const { return Y.indptr[row + 1] - Y.indptr[row]; }
  bool has_label(std::int64_t row, std::int32_t label) const {
    return std::binary_search(Y.indices + Y.indptr[row], Y.indices + Y.indptr[row + 1], label);
  }
  /// Whether a row has a loss at all.
  bool counts(std::int64_t row) const { return count_positives(row) > 0 && count_positives(row) < n_labels; }

  /// Labels that rows have, at random into groups, and groups into blocks.
  void deal_labels() {
    std::vector<std::uint8_t> seen(size(Y.n_cols), 0);
    for (std::int64_t i = 0; i < Y.indptr[Y.n_rows]; ++i) seen[size(Y.indices[i])] = 1;
    n_labels = std::accumulate(seen.begin(), seen.end(), std::int64_t{0});
    n_groups = std::max<std::int64_t>(1, std::min(n_groups, n_labels));
    const std::int64_t per_block = std::clamp((n_labels + 15) / 16, kLabelsPerShard, kMostLabelsPerShard);
    const std::int64_t per_group = (n_labels + n_groups * per_block - 1) / (n_groups * per_block);
    blocks.resize(size(n_groups * std::max<std::int64_t>(1, per_group)));
    const std::vector<std::uint32_t> places = permute(Y.n_cols, seed + 1);
    std::vector<std::pair<std::uint32_t, std::int32_t>> order;
    for (std::int32_t label = 0; label < Y.n_cols; ++label)
      if (seen[size(label)]) order.emplace_back(places[size(label)], label);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size(); ++i) blocks[i % blocks.size()].label_ids.push_back(order[i].second);
    for (Block& block : blocks) {
      std::sort(block.label_ids.begin(), block.label_ids.end());
      block.bias.assign(block.label_ids.size(), 0.0F);
    }
  }

  LinearShard view(const Block& block) const {
    return {X.n_cols,
            static_cast<std::int32_t>(block.label_ids.size()),
            block.indptr.data(),
            block.position_ptr.data(),
            block.positions.data(),
            block.weights.data(),
            false,
            1.0F,
            block.bias.data(),
            block.label_ids.data()};
  }
  /// The published blocks of a group; of all groups if it is negative.
  std::vector<LinearShard> shards_of(std::int64_t group) const {
    std::vector<LinearShard> out;
    for (std::size_t i = 0; i < blocks.size(); ++i)
      if (group < 0 || static_cast<std::int64_t>(i) % n_groups == group) out.push_back(view(blocks[i]));
    return out;
  }

  void publish(Block& block) const {
    block.indptr.assign(size(X.n_cols) + 1, 0);
    block.squared = 0;
    for (const std::int32_t label : block.label_ids)
      vectors[size(label)].each(limit, [&](std::int32_t f, float w) {
        ++block.indptr[size(f) + 1];
        block.squared += double{w} * w;
      });
    std::partial_sum(block.indptr.begin(), block.indptr.end(), block.indptr.begin());
    const std::size_t nnz = block.indptr.back();
    block.weights.assign(nnz + kWeightPadding, 0.0F);
    std::vector<std::int32_t> labels(nnz);
    std::vector<std::uint32_t> ends(block.indptr.begin(), block.indptr.end() - 1);
    for (std::size_t place = 0; place < block.label_ids.size(); ++place)
      vectors[size(block.label_ids[place])].each(limit, [&](std::int32_t f, float w) {
        const std::uint32_t at = ends[size(f)]++;
        labels[at] = static_cast<std::int32_t>(place);
        block.weights[at] = w;
      });
    const auto n = static_cast<std::int64_t>(block.label_ids.size());
    block.position_ptr.resize(size(X.n_cols) + 1);
    block.positions.resize(size(count_positions(X.n_cols, n, block.indptr.data())));
    pack_positions(X.n_cols, n, block.indptr.data(), labels.data(), block.position_ptr.data(),
                   block.positions.data());
  }

  // --- search -------------------------------------------------------------------------------------------------

  void gather(std::int32_t row, Gathered& out) const {
    const std::int64_t begin = X.indptr[row];
    const std::int64_t end = X.indptr[row + 1];
    out.rows.push_back(row);
    out.indices.insert(out.indices.end(), X.indices + begin, X.indices + end);
    out.data.insert(out.data.end(), X.data + begin, X.data + end);
    out.indptr.push_back(static_cast<std::int64_t>(out.indices.size()));
  }

  /// Features with probability |x_ij| / |x_i|_1, evenly spaced from a random start, so that the mean is x_i.
  void gather_sample(std::int32_t row, std::int64_t rate, Random& random, Gathered& out) const {
    const std::int64_t begin = X.indptr[row];
    const std::int64_t end = X.indptr[row + 1];
    double total = 0;
    for (std::int64_t i = begin; i < end; ++i) total += std::abs(X.data[i]);
    const double step = total / static_cast<double>((end - begin + rate - 1) / rate);
    double next = random.unit() * step;
    double passed = 0;
    out.rows.push_back(row);
    for (std::int64_t i = begin; i < end; ++i) {
      passed += std::abs(X.data[i]);
      double value = 0;
      for (; next < passed; next += step) value += step;
      if (value == 0) continue;
      out.indices.push_back(X.indices[i]);
      out.data.push_back(static_cast<float>(X.data[i] > 0 ? value : -value));
    }
    out.indptr.push_back(static_cast<std::int64_t>(out.indices.size()));
  }

  /// Ranks labels for the gathered rows and adds the first that each row has not to its active set. Returns how many
  /// weights were read.
  std::int64_t search(const Gathered& found, std::int64_t group, std::int64_t n_found, int threads,
                      Control& control) {
    if (found.rows.empty()) return 0;
    std::int64_t most = 0;
    floors.clear();
    for (const std::int32_t row : found.rows) {
      most = std::max(most, count_positives(row) + static_cast<std::int64_t>(active[size(row)].size()));
      floors.push_back(bars[size(row)]);
    }
    const std::int64_t top_k = std::min(n_found + most, n_labels);
    const std::vector<LinearShard> shards = shards_of(group);
    ranked_labels.resize(found.rows.size() * size(top_k));
    ranked_scores.resize(ranked_labels.size());
    linear_topk(shards, found.view(X.n_cols), top_k, threads, ranked_labels.data(), ranked_scores.data(), control,
                floors.data());
    for (std::size_t r = 0; r < found.rows.size(); ++r) {
      std::vector<Active>& negatives = active[size(found.rows[r])];
      const std::size_t known = negatives.size();
      const std::int32_t* ranked = ranked_labels.data() + r * size(top_k);
      std::int64_t left = n_found;
      for (std::int64_t k = 0; k < top_k && ranked[k] >= 0 && left > 0; ++k) {
        const auto is_it = [&](const Active& a) { return a.label == ranked[k]; };
        const auto end = negatives.begin() + static_cast<std::ptrdiff_t>(known);
        if (has_label(found.rows[r], ranked[k]) || std::any_of(negatives.begin(), end, is_it)) continue;
        negatives.push_back({ranked[k], 0.0F});
        --left;
      }
    }
    std::int64_t read = 0;
    for (const LinearShard& shard : shards)
      for (const std::int32_t f : found.indices) read += shard.indptr[f + 1] - shard.indptr[f];
    return read;
  }

  // --- steps --------------------------------------------------------------------------------------------------

  float score(std::int64_t row, std::int32_t label) const {
    const std::int64_t begin = X.indptr[row];
    return vectors[size(label)].dot_soft(hash.data(), X.indices + begin, X.data + begin, X.indptr[row + 1] - begin,
                                         limit);
  }
  void move(std::int64_t row, std::int32_t label, float change) {
    const std::int64_t begin = X.indptr[row];
    const std::int64_t n = X.indptr[row + 1] - begin;
    if (frozen)
      vectors[size(label)].add_to_support(hash.data(), X.indices + begin, X.data + begin, n, change);
    else
      vectors[size(label)].add(hash.data(), X.n_cols, X.indices + begin, X.data + begin, n, change);
  }

  void step(std::int64_t row, PdWork& work) {
    std::vector<Active>& negatives = active[size(row)];
    if (!counts(row)) return;
    const std::int32_t* positives = Y.indices + Y.indptr[row];
    float* positive_alpha = positive_alphas.data() + Y.indptr[row];
    const std::size_t n_positive = size(count_positives(row));
    if (squared[size(row)] == 0) {  // every score is 0 whatever W is: the loss is C, and so is the dual's share
      if (negatives.empty()) return;
      positive_alpha[0] = static_cast<float>(C);
      negatives.erase(negatives.begin() + 1, negatives.end());
      negatives[0].alpha = -static_cast<float>(C);
      bars[size(row)] = std::numeric_limits<float>::infinity();
      return;
    }
    const double curvature = squared[size(row)];  // an upper bound: most features of x_i are not in w_k
    target.clear();
    double highest = -std::numeric_limits<double>::infinity();
    double lowest = -highest;
    for (const Active& a : negatives) {
      const float z = score(row, a.label);
      highest = std::max<double>(highest, z);
      work.gap += a.alpha * (z + 1.0);
      target.push_back((z + 1.0) / curvature - a.alpha);
    }
    for (std::size_t i = 0; i < n_positive; ++i) {
      const float z = score(row, positives[i]);
      lowest = std::min<double>(lowest, z);
      work.gap += double{positive_alpha[i]} * z;
      target.push_back(positive_alpha[i] - z / curvature);
    }
    work.gap += C * std::max(0.0, 1 + highest - lowest);
    for (const double value : target)
      if (!std::isfinite(value))
        throw std::invalid_argument("scores must be finite; are values of X close to the largest 32-bit float?");
    bars[size(row)] = static_cast<float>(lowest - 1);
    work.entries += static_cast<std::int64_t>(target.size()) * (X.indptr[row + 1] - X.indptr[row]);
    if (negatives.empty()) return;
    double* const own = target.data() + negatives.size();
    const double shift = project_two_simplices(target.data(), static_cast<std::int64_t>(negatives.size()), own,
                                               static_cast<std::int64_t>(n_positive), C);
    bars[size(row)] = static_cast<float>(shift * curvature - 1);
    const auto change = [&](std::int32_t label, float& alpha, double to) {
      const auto wanted = static_cast<float>(to);
      if (wanted == alpha) return;
      move(row, label, wanted - alpha);
      alpha = wanted;
      work.entries += X.indptr[row + 1] - X.indptr[row];
    };
    for (std::size_t i = 0; i < negatives.size(); ++i) change(negatives[i].label, negatives[i].alpha, -target[i]);
    for (std::size_t i = 0; i < n_positive; ++i) change(positives[i], positive_alpha[i], own[i]);
    std::erase_if(negatives, [](const Active& a) { return a.alpha == 0; });
  }

  CsrView X;
  CsrView Y;
  float limit;
  double C;
  std::uint64_t seed;
  std::int64_t n_groups;
  std::int64_t n_labels = 0;     // that rows have
  std::int64_t most_labels = 0;  // of a row
  bool frozen = false;
  std::vector<std::uint32_t> hash;          // by feature
  std::vector<FeatureVector> vectors;       // by label: v_k
  std::vector<std::vector<Active>> active;  // by row: labels it has not
  std::vector<float> positive_alphas;       // as Y's entries
  std::vector<double> squared;              // by row
  std::vector<Block> blocks;                // block i belongs to group i % n_groups
  std::vector<float> bars;                  // by row: what a label must score to enter the active set
  std::vector<double> target;               // of the row at hand
  std::vector<std::int32_t> ranked_labels;
  std::vector<float> ranked_scores;
  std::vector<float> floors;
};

PdSolver::PdSolver(const PdProblem& problem) : state_(std::make_unique<State>(problem)) {}
PdSolver::~PdSolver() = default;

double PdSolver::publish(int threads, Control& control) {
  State& s = *state_;
  parallel_for(static_cast<std::int64_t>(s.blocks.size()), threads, control,
               [&](std::int64_t i, int) { s.publish(s.blocks[size(i)]); });
  double total = 0;
  for (const Block& block : s.blocks) total += block.squared;
  return total / 2;
}

PdWork PdSolver::search(const std::int32_t* rows, std::int64_t n_rows, const PdSearch& how, int threads,
                        Control& control) {
  State& s = *state_;
  PdWork work;
  std::vector<Gathered> groups(size(how.sampled ? s.n_groups : 1));
  for (std::int64_t begin = 0; begin < n_rows; begin += kRowsPerSearch) {
    for (Gathered& group : groups) group.clear();
    for (std::int64_t i = begin; i < std::min(begin + kRowsPerSearch, n_rows); ++i) {
      if (!s.counts(rows[i])) continue;
      if (!how.sampled) {
        s.gather(rows[i], groups[0]);
        continue;
      }
      Random random{(s.seed * 0x9e3779b97f4a7c15U + how.draw) * 0xbf58476d1ce4e5b9U +
                    static_cast<std::uint64_t>(rows[i])};
      random.next();
      Gathered& group = groups[random.below(groups.size())];
      s.gather_sample(rows[i], how.rate, random, group);
    }
    for (std::size_t g = 0; g < groups.size(); ++g)
      work.entries +=
          s.search(groups[g], how.sampled ? static_cast<std::int64_t>(g) : -1, how.n_found, threads, control);
  }
  return work;
}

PdWork PdSolver::step(const std::int32_t* rows, std::int64_t n_rows, Control& control) {
  PdWork work;
  for (std::int64_t i = 0; i < n_rows; ++i) {
    if (i % kRowsPerCheck == 0) control.check_in(0);
    state_->step(rows[i], work);
  }
  return work;
}

PdObjectives PdSolver::objectives(int threads, Control& control) {
  State& s = *state_;
  const double half = publish(threads, control);
  double absolute = 0;
  for (const FeatureVector& v : s.vectors) v.each(s.limit, [&](std::int32_t, float w) { absolute += std::abs(w); });
  const std::int64_t top_k = std::max<std::int64_t>(1, std::min(s.most_labels + 1, s.n_labels));
  const std::vector<LinearShard> shards = s.shards_of(-1);
  double losses = 0;
  double linear = 0;
  std::vector<std::int32_t> labels(size(std::min(kRowsPerSearch, s.X.n_rows) * top_k));
  std::vector<float> scores(labels.size());
  for (std::int64_t begin = 0; begin < s.X.n_rows; begin += kRowsPerSearch) {
    const std::int64_t end = std::min(begin + kRowsPerSearch, s.X.n_rows);
    const CsrView part{end - begin, s.X.n_cols, s.X.indptr + begin, s.X.indices, s.X.data};
    linear_topk(shards, part, top_k, threads, labels.data(), scores.data(), control);
    for (std::int64_t row = begin; row < end; ++row) {
      if (!s.counts(row)) continue;
      const std::int64_t first = (row - begin) * top_k;
      std::int64_t k = 0;
      while (s.has_label(row, labels[size(first + k)])) ++k;
      double lowest = std::numeric_limits<double>::infinity();
      for (std::int64_t i = s.Y.indptr[row]; i < s.Y.indptr[row + 1]; ++i)
        lowest = std::min<double>(lowest, s.score(row, s.Y.indices[i]));
      losses += std::max(0.0, 1 + double{scores[size(first + k)]} - lowest);
      for (const Active& a : s.active[size(row)]) linear += a.alpha;
    }
  }
  return {half + s.limit * absolute + s.C * losses, half + linear};
}

void PdSolver::keep_support() {
  State& s = *state_;
  for (FeatureVector& v : s.vectors) v.keep_above(s.limit);
  for (std::vector<Active>& labels : s.active) std::erase_if(labels, [](const Active& a) { return a.alpha == 0; });
  s.limit = 0;
  s.frozen = true;
}

void PdSolver::count_alphas(std::int64_t* indptr) const {
  const State& s = *state_;
  indptr[0] = 0;
  for (std::int64_t row = 0; row < s.X.n_rows; ++row) {
    std::int64_t n = 0;
    for (const Active& a : s.active[size(row)]) n += a.alpha != 0;
    for (std::int64_t i = s.Y.indptr[row]; i < s.Y.indptr[row + 1]; ++i) n += s.positive_alphas[size(i)] != 0;
    indptr[row + 1] = indptr[row] + n;
  }
}

void PdSolver::copy_alphas(const std::int64_t* indptr, std::int32_t* labels, float* alphas) const {
  const State& s = *state_;
  std::vector<Active> all;
  for (std::int64_t row = 0; row < s.X.n_rows; ++row) {
    all = s.active[size(row)];
    for (std::int64_t i = s.Y.indptr[row]; i < s.Y.indptr[row + 1]; ++i)
      all.push_back({s.Y.indices[i], s.positive_alphas[size(i)]});
    std::sort(all.begin(), all.end(), [](const Active& x, const Active& y) { return x.label < y.label; });
    std::int64_t at = indptr[row];
    for (const Active& a : all) {
      if (a.alpha == 0) continue;
      labels[at] = a.label;
      alphas[at++] = a.alpha;
    }
  }
}

void PdSolver::set_alphas(const std::int64_t* indptr, const std::int32_t* labels, const float* alphas) {
  State& s = *state_;
  for (FeatureVector& v : s.vectors) v.clear();
  std::fill(s.positive_alphas.begin(), s.positive_alphas.end(), 0.0F);
  for (std::int64_t row = 0; row < s.X.n_rows; ++row) {
    s.active[size(row)].clear();
    const std::int32_t* begin = s.Y.indices + s.Y.indptr[row];
    const std::int32_t* end = s.Y.indices + s.Y.indptr[row + 1];
    for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i) {
      const std::int32_t* at = std::lower_bound(begin, end, labels[i]);
      if (at != end && *at == labels[i])
        s.positive_alphas[size(at - s.Y.indices)] = alphas[i];
      else
        s.active[size(row)].push_back({labels[i], alphas[i]});
      if (s.squared[size(row)] > 0) s.move(row, labels[i], alphas[i]);
    }
  }
}

void PdSolver::count_weights(std::int64_t* indptr) const {
  indptr[0] = 0;
  for (std::size_t label = 0; label < state_->vectors.size(); ++label) {
    std::int64_t n = 0;
    state_->vectors[label].each(state_->limit, [&](std::int32_t, float) { ++n; });
    indptr[label + 1] = indptr[label] + n;
  }
}

void PdSolver::copy_weights(const std::int64_t* indptr, std::int32_t* features, float* weights) const {
  std::vector<std::pair<std::int32_t, float>> row;
  for (std::size_t label = 0; label < state_->vectors.size(); ++label) {
    row.clear();
    state_->vectors[label].each(state_->limit, [&](std::int32_t f, float w) { row.emplace_back(f, w); });
    std::sort(row.begin(), row.end());
    std::int64_t at = indptr[label];
    for (const auto& [f, w] : row) {
      features[at] = f;
      weights[at++] = w;
    }
  }
}

std::int64_t PdSolver::table_bytes() const {
  std::int64_t total = 0;
  for (const FeatureVector& v : state_->vectors) total += v.bytes();
  return total;
}

}  // namespace umpteen
