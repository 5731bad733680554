#include "umpteen/ppd_sparse.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "umpteen/aligned.hpp"
#include "umpteen/random.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

using Floats = AlignedVector<float>;

constexpr std::int64_t kRowsPerBlock = 64;  // of the panel's product, so that its output stays in cache

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

float soften(float v, float limit) { return v > limit ? v - limit : v < -limit ? v + limit : 0.0F; }

/// What all labels share: X by columns, and the squared lengths of its rows.
struct Shared {
  std::vector<std::int64_t> indptr;  // n_cols + 1
  std::vector<std::int32_t> rows;
  Floats values;
  std::vector<std::uint8_t> signs;  // n_cols: 1 if a column has positive values, 2 if negative ones, 3 if both
  Floats squared;                   // n_rows
  float longest = 0;                // the largest sum of |x| of a row
};

/// Rows rise within a column; where searches are sampled, sizes of values fall instead.
Shared prepare(const PpdProblem& problem, int threads, Control& control) {
  const CsrView& X = problem.X;
  Shared shared;
  shared.indptr.assign(size(X.n_cols) + 1, 0);
  shared.rows.resize(size(X.indptr[X.n_rows]));
  shared.values.resize(shared.rows.size());
  shared.signs.assign(size(X.n_cols), 0);
  shared.squared.resize(size(X.n_rows));
  for (std::int64_t i = 0; i < X.indptr[X.n_rows]; ++i) ++shared.indptr[size(X.indices[i]) + 1];
  std::partial_sum(shared.indptr.begin(), shared.indptr.end(), shared.indptr.begin());
  std::vector<std::int64_t> ends(shared.indptr.begin(), shared.indptr.end() - 1);
  for (std::int64_t row = 0; row < X.n_rows; ++row) {
    double squared = 0;
    double absolute = 0;
    for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) {
      const std::int64_t at = ends[size(X.indices[i])]++;
      shared.rows[size(at)] = static_cast<std::int32_t>(row);
      shared.values[size(at)] = X.data[i];
      shared.signs[size(X.indices[i])] |= X.data[i] > 0 ? 1 : 2;
      squared += double{X.data[i]} * X.data[i];
      absolute += std::abs(double{X.data[i]});
    }
    shared.squared[size(row)] = static_cast<float>(squared);
    shared.longest = std::max(shared.longest, static_cast<float>(absolute));
  }
  if (problem.samples == 0) return shared;
  parallel_for(X.n_cols, threads, control, [&](std::int64_t f, int) {
    const std::int64_t begin = shared.indptr[size(f)];
    const std::int64_t end = shared.indptr[size(f) + 1];
    std::vector<std::pair<float, std::int32_t>> entries;
    for (std::int64_t i = begin; i < end; ++i) entries.emplace_back(shared.values[size(i)], shared.rows[size(i)]);
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
    for (std::int64_t i = begin; i < end; ++i)
      std::tie(shared.values[size(i)], shared.rows[size(i)]) = entries[size(i - begin)];
  });
  return shared;
}

/// A row of the active set.
struct Active {
  std::int32_t row;
  float sign;
  float alpha;
  float cost;
  float curvature;  // an upper bound of the dual's second derivative along alpha
};

/// A row a search found.
struct Hit {
  std::int32_t row;
  float score;
};

/// What a search looks for.
enum class Phase { kNearest, kSampled, kExact };

/// One label on its way to the optimum.
struct LabelState {
  std::int64_t label = 0;
  const std::int32_t* positives = nullptr;
  std::int64_t n_positive = 0;
  Phase phase = Phase::kNearest;
  Random random{0};                   // of the label alone: not of which labels came before
  Floats v;                           // the sum of alpha_i s_i x_i; in the first search, the mean of the label's rows
  double v0 = 0;                      // the sum of alpha_i s_i
  std::vector<std::int32_t> touched;  // features that v may differ from 0 at, unless all are meant
  std::vector<std::uint8_t> is_touched;  // by feature
  std::vector<Active> active;
  double tolerance = 0;          // the gap on the active set at which descent may stop
  double shift = 0;              // of the bias, off what the alphas say
  double last_gap = 0;           // at the search before
  int stalls = 0;                // searches that found the gap hardly smaller
  std::vector<Hit> hits;         // what the search found
  std::int64_t n_unreached = 0;  // rows in no column that was read: their score is that of an empty row, or less
  std::vector<std::int32_t> unreached;  // violators among them
  double unreached_loss = 0;            // what they cost, from a few of them
  double unreached_bound = 0;           // and at most
};

/// Solves labels. Each alternates between descent on its active set and a search of all rows for violators. A search
/// goes down the columns of the features in w where they are few; where they are many, the label waits until it can
/// share one reading of X with others, at a thirtieth of the price.
class Solver {
 public:
  Solver(const PpdProblem& problem, const Shared& shared, Control& control, int worker)
      : problem_(problem),
        X_(problem.X),
        shared_(shared),
        control_(control),
        worker_(worker),
        list_features_(X_.n_cols > kListAbove),
        bias_(problem.bias),
        limit_(static_cast<float>(problem.lambda)),
        inverse_tau_(static_cast<float>(1 / problem.tau)),
        is_marked_(size(X_.n_rows), 0),
        is_reached_(size(X_.n_rows), 0),
        scores_(size(X_.n_rows), 0.0F) {}

  /// Starts a label and takes it as far as it gets alone.
  void add(std::int64_t label, PpdSolution& solution) {
    if (problem_.label_indptr[label] == problem_.label_indptr[label + 1]) return;
    if (free_.empty()) {
      states_.push_back(std::make_unique<LabelState>());
      states_.back()->v.assign(size(X_.n_cols), 0.0F);
      if (list_features_) states_.back()->is_touched.assign(size(X_.n_cols), 0);
      free_.push_back(states_.back().get());
    }
    Job job{free_.back(), &solution};
    free_.pop_back();
    start(*job.state, label);
    advance(job);
  }

  bool full() const { return waiting_.size() >= kPanelLabels; }
  bool idle() const { return waiting_.empty(); }

  /// Searches for all labels that wait, in one reading of X, and takes each as far as it gets.
  void share_search() {
    std::vector<Job> jobs;
    jobs.swap(waiting_);
    score_panel(jobs);
    for (const Job& job : jobs) {
      ++job.solution->panel_passes;
      if (absorb(*job.state, *job.solution))
        free_.push_back(job.state);
      else
        advance(job);
    }
  }

 private:
  struct Job {
    LabelState* state;
    PpdSolution* solution;
  };

  /// Above so many features, those a label has touched are listed; below, looking at all is as fast.
  static constexpr std::int64_t kListAbove = 16384;
  static constexpr std::int64_t kGatherAtMost = 1 << 17;  // entries: 1 MB
  static constexpr int kMostEpochs = 200;
  static constexpr int kMostSampled = 10;
  static constexpr int kMostStalls = 8;

  // --- one label ----------------------------------------------------------------------------------------------

  void start(LabelState& state, std::int64_t label) {
    const std::int64_t begin = problem_.label_indptr[label];
    state.label = label;
    state.positives = problem_.label_rows + begin;
    state.n_positive = problem_.label_indptr[label + 1] - begin;
    state.random =
        Random{problem_.seed * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(problem_.label_ids[label])};
    state.random.next();
    state.phase = Phase::kNearest;
    state.v0 = 0;
    state.active.clear();
    state.tolerance = 0;
    state.last_gap = std::numeric_limits<double>::infinity();
    state.stalls = 0;
    for (std::int64_t r = 0; r < state.n_positive; ++r)
      activate(state, state.positives[r], 1, problem_.positive_cost[label]);
    if (problem_.start_indptr == nullptr) return;
    const std::int64_t first = problem_.start_indptr[label];
    const std::int64_t last = problem_.start_indptr[label + 1];
    if (first == last) return;
    state.phase = problem_.samples > 0 ? Phase::kSampled : Phase::kExact;
    std::int64_t r = 0;
    for (std::int64_t i = first; i < last; ++i) {
      const std::int32_t row = problem_.start_rows[i];
      while (r < state.n_positive && state.positives[r] < row) ++r;
      const bool positive = r < state.n_positive && state.positives[r] == row;
      if (!positive) activate(state, row, -1);
      Active& a = positive ? state.active[size(r)] : state.active.back();
      a.alpha = std::max(problem_.start_alphas[i], 0.0F);
      if (!problem_.squared) a.alpha = std::min(a.alpha, a.cost);
      add_row(state, row_of_X(a.row), a.sign * a.alpha);
      state.v0 += double{a.sign} * a.alpha;
    }
  }

  void activate(LabelState& state, std::int32_t row, float sign, float cost = 1) {
    const auto curvature =
        (shared_.squared[size(row)] + bias_ * bias_) / problem_.tau + (problem_.squared ? 1 / cost : 0);
    state.active.push_back({row, sign, 0.0F, cost, static_cast<float>(curvature)});
    if (!list_features_) return;
    for (std::int64_t i = X_.indptr[row]; i < X_.indptr[row + 1]; ++i)
      if (!state.is_touched[size(X_.indices[i])]) {
        state.is_touched[size(X_.indices[i])] = 1;
        state.touched.push_back(X_.indices[i]);
      }
  }

  /// Descent and search in turns, until the label is done or has to wait for a shared search.
  void advance(const Job& job) {
    LabelState& state = *job.state;
    while (true) {
      if (state.phase == Phase::kNearest)
        put_mean(state);
      else
        descend(state, *job.solution);
      control_.check_in(worker_);
      collect_features(state);
      if (state.phase != Phase::kSampled) {
        split_features(state);
        if (panel_is_cheaper()) {
          waiting_.push_back(job);
          return;
        }
      }
      search_columns(state, *job.solution);
      if (absorb(state, *job.solution)) {
        free_.push_back(job.state);
        return;
      }
    }
  }

  void put_mean(LabelState& state) {
    const float share = 1.0F / static_cast<float>(state.n_positive);
    for (const Active& a : state.active) add_row(state, row_of_X(a.row), share);
  }

  /// A row's features, in X or in a copy.
  struct Row {
    const std::int32_t* indices;
    const float* data;
    std::int64_t n;
  };
  Row row_of_X(std::int32_t row) const {
    const std::int64_t begin = X_.indptr[row];
    return {X_.indices + begin, X_.data + begin, X_.indptr[row + 1] - begin};
  }

  void add_row(LabelState& state, const Row& row, float factor) {
    newton_.add_sparse(row.indices, row.data, row.n, factor, state.v.data());
  }

  /// What the constant feature adds to each score.
  float offset(const LabelState& state) const {
    return state.phase == Phase::kNearest ? 0.0F : static_cast<float>(state.v0 * bias_ * bias_ / problem_.tau);
  }
  float weight(const LabelState& state, std::size_t f) const {
    return state.phase == Phase::kNearest ? state.v[f] : soften(state.v[f], limit_) * inverse_tau_;
  }
  float score(const LabelState& state, const Row& row) const {
    return ppd_.dot_soft(row.indices, row.data, row.n, state.v.data(), limit_) * inverse_tau_ + offset(state);
  }
  float score(const LabelState& state, std::int32_t row) const { return score(state, row_of_X(row)); }

  // The gap is a sum over rows, none of them negative: a row's loss at its margin 1 - violation, its share
  // alpha^2 / 2c of the dual, less alpha times violation; since w.v = sum of alpha_i s_i w.x_i.
  double loss(double violation, double cost = 1) const {
    if (violation <= 0) return 0;
    return cost * (problem_.squared ? 0.5 * violation * violation : violation);
  }
  double gap(double violation, const Active& a) const {
    const double alpha = a.alpha;
    if (violation <= 0) return (problem_.squared ? 0.5 * alpha * alpha / a.cost : 0) - alpha * violation;
    const double short_of = a.cost * violation - alpha;
    return problem_.squared ? 0.5 * short_of * short_of / a.cost : (a.cost - alpha) * violation;
  }

  // --- descent ------------------------------------------------------------------------------------------------

  /// Finds the active rows, and copies them side by side where that makes them fit into cache: descent visits each
  /// some ten times, in random order, and X may be far larger.
  void gather_rows(const LabelState& state) {
    gathered_.clear();
    std::int64_t total = 0;
    for (const Active& a : state.active) {
      gathered_.push_back(row_of_X(a.row));
      total += gathered_.back().n;
    }
    if (total > kGatherAtMost || total * 4 > X_.indptr[X_.n_rows]) return;
    gathered_indices_.resize(kGatherAtMost);
    gathered_data_.resize(kGatherAtMost);
    std::int64_t end = 0;
    for (Row& row : gathered_) {
      std::copy_n(row.indices, row.n, gathered_indices_.data() + end);
      std::copy_n(row.data, row.n, gathered_data_.data() + end);
      row.indices = gathered_indices_.data() + end;
      row.data = gathered_data_.data() + end;
      end += row.n;
    }
  }

  /// Dual coordinate descent over the active set in random order, until its gap is small enough. A step goes to the
  /// least of a parabola that lies above the dual (the threshold only lessens its curvature), so the dual never
  /// rises.
  void descend(LabelState& state, PpdSolution& solution) {
    gather_rows(state);
    order_.resize(state.active.size());
    std::iota(order_.begin(), order_.end(), 0);
    float beyond = std::numeric_limits<float>::infinity();
    for (int epoch = 0; epoch < kMostEpochs; ++epoch) {
      double gap_seen = 0;
      double alphas = 0;
      float largest = 0;
      std::size_t n = order_.size();
      for (std::size_t i = 0; i < n;) {
        std::swap(order_[i], order_[i + state.random.below(n - i)]);
        Active& a = state.active[size(order_[i])];
        const Row& row = gathered_[size(order_[i])];
        const float violation = 1 - a.sign * score(state, row);
        gap_seen += gap(violation, a);
        ++solution.visited;
        const float slope = problem_.squared ? violation - a.alpha / a.cost : violation;
        // Far on the right side of where it stands: not looked at again before the next search.
        const bool stays = a.alpha == 0 ? slope <= 0 : !problem_.squared && a.alpha == a.cost && slope >= 0;
        if (stays) {
          if (std::abs(slope) > beyond) {
            order_[i] = order_[--n];
            continue;
          }
        } else {
          float alpha = a.curvature > 0 ? std::max(a.alpha + slope / a.curvature, 0.0F) : a.cost;
          if (!problem_.squared) alpha = std::min(alpha, a.cost);
          largest = std::max(largest, std::abs(slope));
          add_row(state, row, a.sign * (alpha - a.alpha));
          state.v0 += double{a.sign} * (alpha - a.alpha);
          a.alpha = alpha;
        }
        alphas += a.alpha;
        ++i;
      }
      order_.resize(n);
      beyond = largest;
      ++solution.epochs;
      control_.check_in(worker_);
      // Before the first search: the primal is at least half the sum of alphas, near the optimum.
      if (gap_seen <= (state.tolerance > 0 ? state.tolerance : 0.05 * problem_.eps * alphas)) break;
    }
  }

  // --- search -------------------------------------------------------------------------------------------------

  /// The features of w.
  void collect_features(const LabelState& state) {
    features_.clear();
    const auto look = [&](std::int32_t f) {
      if (weight(state, size(f)) != 0) features_.push_back(f);
    };
    if (list_features_)
      for (const std::int32_t f : state.touched) look(f);
    else
      for (std::int32_t f = 0; f < X_.n_cols; ++f) look(f);
  }

  /// Splits them: columns that may make a row a hit, and those that cannot. A column cannot if it only lowers scores;
  /// nor if its weight is so small that a row with none but such features, the longest even, is lifted no more than
  /// half the way from the bias to a hit.
  void split_features(const LabelState& state) {
    column_entries_ = 0;
    hit_above_ = hit_above(state);
    const float way = hit_above_ - offset(state);
    const float small = way > 0 && shared_.longest > 0 ? 0.5F * way / shared_.longest : 0.0F;
    left_out_ = 0;
    lowering_.clear();
    std::erase_if(features_, [&](std::int32_t f) {
      const float w = weight(state, size(f));
      const bool raises = (shared_.signs[size(f)] & (w > 0 ? 1 : 2)) != 0;
      if (raises && std::abs(w) > small) {
        column_entries_ += shared_.indptr[size(f) + 1] - shared_.indptr[size(f)];
        return false;
      }
      if (raises) left_out_ = 0.51F * way;  // rounding is far less than the hundredth
      lowering_.push_back(f);
      return true;
    });
  }

  /// By count, never by clock: an entry read for one label costs as much as this many read for a whole panel's.
  bool panel_is_cheaper() const {
    const std::int64_t ratio = X_.n_cols > kListAbove ? 6 : 24;
    return column_entries_ * ratio > X_.indptr[X_.n_rows] + X_.n_rows;
  }

  /// Which score makes a row a hit.
  float hit_above(const LabelState& state) const {
    if (state.phase != Phase::kNearest) return -1;
    double squared = 0;
    for (const std::int32_t f : features_) squared += double{state.v[size(f)]} * state.v[size(f)];
    return static_cast<float>(0.3 * squared);
  }

  /// Most rows without a feature that raises scores need no look: at a bias below -1 they violate nothing. Above it
  /// each is taken for an empty row where that costs little; else some are looked at, and where those say that the
  /// end may be near, the other columns are read too.
  void search_columns(LabelState& state, PpdSolution& solution) {
    state.hits.clear();
    state.unreached.clear();
    state.unreached_loss = state.unreached_bound = 0;
    reached_.clear();
    const float b = offset(state);
    const bool exact = state.phase == Phase::kExact;
    const bool sampled = state.phase == Phase::kSampled && static_cast<int>(features_.size()) > problem_.samples;
    if (state.phase == Phase::kSampled) left_out_ = 0;
    const float above = state.phase == Phase::kSampled ? -1.0F : hit_above_;
    if (sampled) sample_features(state);
    for (std::size_t k = 0; k < features_.size(); ++k)
      read_column(state, features_[k], sampled ? sampled_weights_[k] : weight(state, size(features_[k])), solution);
    bool complete = !exact && left_out_ == 0;
    if (exact && b > above) {
      double alphas = 0;
      for (const Active& a : state.active) alphas += a.alpha;
      const double enough = problem_.eps * alphas;  // of the order of what the gap may be
      const bool count_all = problem_.samples > 0 && std::isinf(state.last_gap);
      const bool leave = !count_all && shift_is_cheap(state, b, enough);
      if (leave)
        state.unreached_bound = state.unreached_loss = static_cast<double>(X_.n_rows) * loss(1 + double{b});
      else
        judge_unreached(state, b);
      if (count_all || (!leave && state.unreached_bound > 0.1 * enough && state.unreached_loss <= 2 * enough)) {
        for (const std::int32_t f : lowering_) read_column(state, f, weight(state, size(f)), solution);
        complete = true;
      }
    }
    for (const std::int32_t row : reached_) {
      float s = scores_[size(row)] + b;
      if (s + left_out_ > above && !complete) s = score(state, row);
      if (s > above) state.hits.push_back({row, s});
    }
    if (complete && state.phase != Phase::kNearest && b > above) {
      judge_unreached(state, b);
      state.unreached_loss = state.unreached_bound;
    }
    for (const std::int32_t row : reached_) {
      is_reached_[size(row)] = 0;
      scores_[size(row)] = 0;
    }
  }

  /// Whether the bias is so little above -1 that lowering it costs the gap less than looking at rows would be worth:
  /// half a square for each active row, since the gap is flat near the optimum.
  bool shift_is_cheap(const LabelState& state, float b, double enough) const {
    if (!problem_.squared || bias_ == 0) return false;
    double costs = problem_.tau / (bias_ * bias_);
    for (const Active& a : state.active) costs += a.cost;
    return 0.5 * costs * std::pow(1 + double{b}, 2) <= 0.2 * enough;
  }

  void read_column(const LabelState& state, std::int32_t feature, float w, PpdSolution& solution) {
    const std::size_t f = size(feature);
    const float least = state.phase == Phase::kSampled ? problem_.cutoff / std::abs(w) : 0.0F;
    std::int64_t i = shared_.indptr[f];
    for (; i < shared_.indptr[f + 1]; ++i) {
      const float x = shared_.values[size(i)];
      if (std::abs(x) < least) break;
      const std::int32_t row = shared_.rows[size(i)];
      if (!is_reached_[size(row)]) {
        is_reached_[size(row)] = 1;
        reached_.push_back(row);
      }
      scores_[size(row)] += w * x;
    }
    solution.column_entries += i - shared_.indptr[f];
    control_.check_in(worker_);
  }

  /// What rows no column has reached may cost, by their number and by looking at some; those are kept as violators.
  void judge_unreached(LabelState& state, float b) {
    state.n_unreached = X_.n_rows - static_cast<std::int64_t>(reached_.size());
    for (const Active& a : state.active) state.n_unreached -= is_reached_[size(a.row)] ? 0 : 1;
    state.unreached.clear();
    state.unreached_loss = 0;
    state.unreached_bound = static_cast<double>(state.n_unreached) * loss(1 + double{b});
    if (state.n_unreached == 0) return;
    pick_unreached(state);
    const auto n = static_cast<double>(state.unreached.size());
    double sum = 0;
    std::erase_if(state.unreached, [&](std::int32_t row) {
      const double violation = 1 + double{score(state, row)};
      sum += loss(violation);
      return violation <= 0;
    });
    state.unreached_loss = sum / n * static_cast<double>(state.n_unreached);
  }

  /// Some of the rows that no column raised, spread over X.
  void pick_unreached(LabelState& state) {
    for (const Active& a : state.active) is_marked_[size(a.row)] = 1;
    const auto most = 100 + static_cast<std::int64_t>(state.active.size());
    const auto pick = [&](std::int64_t step) {
      for (auto row = static_cast<std::int64_t>(state.random.below(size(step))); row < X_.n_rows; row += step)
        if (!is_reached_[size(row)] && !is_marked_[size(row)])
          state.unreached.push_back(static_cast<std::int32_t>(row));
    };
    pick(std::max<std::int64_t>(X_.n_rows / most, 1));
    if (state.unreached.empty()) pick(1);
    for (const Active& a : state.active) is_marked_[size(a.row)] = 0;
  }

  /// Draws features by |w|: the mean of the drawn vector is w. features_ becomes those drawn.
  void sample_features(LabelState& state) {
    double total = 0;
    cumulative_.clear();
    for (const std::int32_t f : features_) cumulative_.push_back(total += std::abs(weight(state, size(f))));
    drawn_.assign(features_.size(), 0);
    for (int r = 0; r < problem_.samples; ++r) {
      const auto at = std::upper_bound(cumulative_.begin(), cumulative_.end(), state.random.unit() * total);
      ++drawn_[std::min(size(at - cumulative_.begin()), features_.size() - 1)];
    }
    sampled_weights_.clear();
    std::size_t n = 0;
    for (std::size_t k = 0; k < drawn_.size(); ++k) {
      if (drawn_[k] == 0) continue;
      const double w = total / problem_.samples * drawn_[k];
      sampled_weights_.push_back(static_cast<float>(weight(state, size(features_[k])) > 0 ? w : -w));
      features_[n++] = features_[k];
    }
    features_.resize(n);
  }

  /// The search of all labels that wait: X is read once, 32 scores side by side.
  void score_panel(const std::vector<Job>& jobs) {
    panel_.resize(size(X_.n_cols) * kPanelLabels, 0.0F);
    block_.resize(kRowsPerBlock * kPanelLabels);
    found_.resize(kRowsPerBlock * kPanelLabels);
    alignas(64) float above[kPanelLabels];
    std::fill_n(above, kPanelLabels, std::numeric_limits<float>::infinity());
    for (std::size_t lane = 0; lane < jobs.size(); ++lane) {
      LabelState& state = *jobs[lane].state;
      state.hits.clear();
      state.unreached.clear();
      state.unreached_loss = state.unreached_bound = 0;
      collect_features(state);
      for (const std::int32_t f : features_) panel_[size(f) * kPanelLabels + lane] = weight(state, size(f));
      above[lane] = hit_above(state) - offset(state);
    }
    for (std::int64_t begin = 0; begin < X_.n_rows; begin += kRowsPerBlock) {
      const std::int64_t n = std::min(kRowsPerBlock, X_.n_rows - begin);
      newton_.multiply_panel(n, X_.indptr + begin, X_.indices, X_.data, panel_.data(), block_.data());
      const std::int64_t n_found = ppd_.find_in_panel(block_.data(), n, above, found_.data());
      for (std::int64_t k = 0; k < n_found; ++k) {
        const std::int32_t at = found_[size(k)];
        LabelState& state = *jobs[size(at % kPanelLabels)].state;
        state.hits.push_back(
            {static_cast<std::int32_t>(begin) + at / kPanelLabels, block_[size(at)] + offset(state)});
      }
      if (begin % (kRowsPerBlock * 64) == 0) control_.check_in(worker_);
    }
    for (std::size_t lane = 0; lane < jobs.size(); ++lane) {
      collect_features(*jobs[lane].state);
      for (const std::int32_t f : features_) panel_[size(f) * kPanelLabels + lane] = 0;
    }
  }

  // --- what a search means for a label ------------------------------------------------------------------------

  /// True if the label is done; then its solution is written.
  bool absorb(LabelState& state, PpdSolution& solution) {
    for (const Active& a : state.active) is_marked_[size(a.row)] = 1;
    std::erase_if(state.hits, [&](const Hit& hit) { return is_marked_[size(hit.row)] != 0; });
    for (const Active& a : state.active) is_marked_[size(a.row)] = 0;
    switch (state.phase) {
      case Phase::kNearest:
        clear(state);
        add_best(state, 100 + 2 * state.n_positive);
        state.phase = problem_.samples > 0 ? Phase::kSampled : Phase::kExact;
        return false;
      case Phase::kSampled:
        ++solution.rounds;
        absorb_sampled(state, solution);
        return false;
      default:
        ++solution.rounds;
        return absorb_exact(state, solution);
    }
  }

  void clear(LabelState& state) {
    if (list_features_)
      for (const std::int32_t f : state.touched) state.v[size(f)] = 0;
    else
      std::fill(state.v.begin(), state.v.end(), 0.0F);
  }

  /// Moves the n best hits to the active set; the lower row wins a tie.
  void add_best(LabelState& state, std::int64_t n) {
    auto& hits = state.hits;
    if (static_cast<std::int64_t>(hits.size()) > n) {
      std::nth_element(hits.begin(), hits.begin() + n, hits.end(), [](const Hit& a, const Hit& b) {
        return a.score > b.score || (a.score == b.score && a.row < b.row);
      });
      hits.resize(size(n));
    }
    std::sort(hits.begin(), hits.end(), [](const Hit& a, const Hit& b) { return a.row < b.row; });
    for (const Hit& hit : hits) activate(state, hit.row, -1);
  }

  void absorb_sampled(LabelState& state, PpdSolution& solution) {
    const bool last = (state.hits.empty() && state.unreached.empty()) || solution.rounds >= kMostSampled;
    if (last) {
      state.phase = Phase::kExact;
      return;
    }
    std::erase_if(state.active, [](const Active& a) { return a.sign < 0 && a.alpha == 0; });
    grow(state, solution);
  }

  /// What a solution is worth.
  struct Worth {
    double inside = 0;   // the gap of the active set
    double outside = 0;  // what other rows, and a bias that is not the alphas', add to it
    double primal = 0;
    double gap() const { return inside + outside; }
  };

  /// Rows by the hundred thousand may each violate their margin by next to nothing, all by the same: the bias is a
  /// little too high. Moving it by `shift` off the alphas' own settles them at once. It is a primal solution like any
  /// other; the gap to the same dual one then grows by tau / 2 times the square of the constant feature's change.
  Worth judge(const LabelState& state, double penalty) const {
    Worth worth;
    worth.outside = state.shift == 0 ? state.unreached_bound : 0;
    for (const Hit& hit : state.hits) worth.outside += loss(1 + double{hit.score} + state.shift);
    worth.primal = penalty + worth.outside;
    for (std::size_t k = 0; k < violations_.size(); ++k) {
      const Active& a = state.active[k];
      const double violation = violations_[k] - a.sign * state.shift;
      worth.inside += gap(violation, a);
      worth.primal += loss(violation, a.cost);
    }
    if (bias_ > 0) {
      worth.primal += 0.5 * problem_.tau * std::pow(state.v0 * bias_ / problem_.tau + state.shift / bias_, 2);
      worth.outside += 0.5 * problem_.tau * std::pow(state.shift / bias_, 2);
    }
    return worth;
  }

  bool absorb_exact(LabelState& state, PpdSolution& solution) {
    const float b = offset(state);
    violations_.clear();
    for (const Active& a : state.active) violations_.push_back(1 - double{a.sign} * score(state, a.row));
    collect_features(state);
    double penalty = 0;
    for (const std::int32_t f : features_) {
      const double w = weight(state, size(f));
      penalty += problem_.lambda * std::abs(w) + 0.5 * problem_.tau * w * w;
    }
    state.shift = 0;
    Worth worth = judge(state, penalty);
    if (state.unreached_bound > 0 && bias_ > 0 && problem_.squared) {
      state.shift = -(1 + double{b});
      const Worth shifted = judge(state, penalty);
      if (shifted.gap() < worth.gap())
        worth = shifted;
      else
        state.shift = 0;
    }
    solution.objective = worth.primal;
    solution.gap = worth.gap();
    if (problem_.samples > 0 && std::isinf(state.last_gap)) {
      const auto counts = [&](double s) { return 1 + s > problem_.eps; };
      solution.missed = state.unreached_bound > 0 && counts(b) ? state.n_unreached : 0;
      for (const Hit& hit : state.hits) solution.missed += counts(hit.score) ? 1 : 0;
    }
    const double enough = problem_.eps * worth.primal;
    // Descent is told to go further where it did not get far; that has an end, and so has float32.
    const double likely = worth.gap() - (state.shift == 0 ? state.unreached_bound - state.unreached_loss : 0);
    if (likely > 0.5 * state.last_gap) ++state.stalls;
    if (solution.gap <= enough || solution.rounds >= problem_.max_rounds || state.stalls > kMostStalls) {
      finish(state, solution);
      return true;
    }
    state.last_gap = likely;
    state.tolerance = std::max(0.3 * enough, 0.02 * (likely - worth.inside)) * std::pow(0.25, state.stalls);
    std::erase_if(state.active, [](const Active& a) { return a.sign < 0 && a.alpha == 0; });
    grow(state, solution);
    return false;
  }

  void grow(LabelState& state, PpdSolution& solution) {
    add_best(state, 100 + static_cast<std::int64_t>(state.active.size()));
    for (const std::int32_t row : state.unreached) activate(state, row, -1);
    solution.active = std::max(solution.active, static_cast<std::int64_t>(state.active.size()));
  }

  void finish(LabelState& state, PpdSolution& solution) {
    std::sort(features_.begin(), features_.end());
    solution.nnz = static_cast<std::int64_t>(features_.size());
    solution.active = std::max(solution.active, static_cast<std::int64_t>(state.active.size()));
    for (const std::int32_t f : features_) {
      const float w = weight(state, size(f));
      if (std::abs(w) < problem_.prune) continue;
      solution.features.push_back(f);
      solution.weights.push_back(w);
    }
    solution.bias = static_cast<float>(offset(state) + state.shift);
    std::erase_if(state.active, [](const Active& a) { return a.alpha == 0; });
    solution.support = static_cast<std::int64_t>(state.active.size());
    if (problem_.keep_alphas) {
      std::sort(state.active.begin(), state.active.end(),
                [](const Active& a, const Active& c) { return a.row < c.row; });
      for (const Active& a : state.active) {
        solution.rows.push_back(a.row);
        solution.alphas.push_back(a.alpha);
      }
    }
    clear(state);
    for (const std::int32_t f : state.touched) state.is_touched[size(f)] = 0;
    state.touched.clear();
  }

  const PpdProblem& problem_;
  const CsrView& X_;
  const Shared& shared_;
  Control& control_;
  const int worker_;
  const bool list_features_;
  const double bias_;
  const float limit_;
  const float inverse_tau_;
  const NewtonKernels& newton_ = newton_kernels();
  const DualKernels& ppd_ = dual_kernels();

  std::vector<std::unique_ptr<LabelState>> states_;
  std::vector<LabelState*> free_;
  std::vector<Job> waiting_;

  // scratch of the label or the panel at hand
  std::vector<std::int32_t> order_, features_, lowering_, reached_, found_, drawn_;
  std::vector<Row> gathered_;  // of the active set
  AlignedVector<std::int32_t> gathered_indices_;
  Floats gathered_data_;
  std::int64_t column_entries_ = 0;
  float hit_above_ = 0;                               // which score makes a row a hit
  float left_out_ = 0;                                // what columns that are not read may add to a score at most
  std::vector<std::uint8_t> is_marked_, is_reached_;  // by row
  Floats scores_;                                     // by row
  std::vector<double> cumulative_, violations_;
  std::vector<float> sampled_weights_;
  Floats panel_, block_;
};

}  // namespace

std::vector<PpdSolution> solve_ppd(const PpdProblem& problem, int threads, Control& control) {
  std::vector<PpdSolution> solutions(size(problem.n_labels));
  const Shared shared = prepare(problem, threads, control);
  // The label with most rows first, so that the last to end is a small one.
  std::vector<std::int64_t> order(size(problem.n_labels));
  std::iota(order.begin(), order.end(), 0);
  const auto count = [&](std::int64_t l) { return problem.label_indptr[l + 1] - problem.label_indptr[l]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return count(a) > count(b); });
  std::atomic<std::size_t> next{0};
  // A worker takes labels until 32 wait for a shared search: items of parallel_for would each end with a search that
  // few share.
  const int n_workers = clamp_threads((problem.n_labels + kPanelLabels - 1) / kPanelLabels, threads);
  parallel_for(n_workers, n_workers, control, [&](std::int64_t, int worker) {
    Solver solver(problem, shared, control, worker);
    bool left = true;
    while (left || !solver.idle()) {
      while (left && !solver.full()) {
        const std::size_t at = next.fetch_add(1, std::memory_order_relaxed);
        left = at < order.size();
        if (left) solver.add(order[at], solutions[size(order[at])]);
        control.check_in(worker);
      }
      if (!solver.idle()) solver.share_search();
    }
  });
  return solutions;
}

}  // namespace umpteen
