#include "column_search.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace umpteen::dual {

namespace {

// How many entries read for a whole panel cost as much as one read for one label. Above so many features the panel no
// longer stays in cache.
constexpr std::int64_t kPanelRatio = 24;
constexpr std::int64_t kLargePanelRatio = 6;
constexpr std::int64_t kLargePanelAbove = 16384;

// Columns whose weights are too small to lift any row this share of the way from the bias to a hit are left
// out. What they add is bounded by a little more: rounding is far less than the hundredth.
constexpr float kLeftOutShare = 0.5F;
constexpr float kLeftOutBound = 0.51F;

// Shares of the gap that is small enough: what a shift of the bias may cost; what unreached rows may cost unseen; and
// below what the end may be near.
constexpr double kCheapShift = 0.2;
constexpr double kNegligible = 0.1;
constexpr double kNearTheEnd = 2;

constexpr std::int64_t kLeastPicked = 100;  // rows that no column reached, looked at one by one

}  // namespace

/// A column cannot make a row a hit if it only lowers scores; nor if its weight is so small that a row with none but
/// such features, even the longest, is lifted no more than half the way from the bias to a hit.
void ColumnSearch::plan(const LabelState& state, std::vector<std::int32_t>& features) {
  planned_entries_ = 0;
  hit_above_ = formulas_.hit_above(state, features);
  left_out_ = 0;
  lowering_.clear();
  if (state.phase == Phase::kSampled) return;
  const FeatureColumns& columns = formulas_.columns;
  const float way = hit_above_ - formulas_.offset(state);
  const float small = way > 0 && columns.longest > 0 ? kLeftOutShare * way / columns.longest : 0.0F;
  std::erase_if(features, [&](std::int32_t f) {
    const float w = formulas_.weight(state, as_size(f));
    const bool raises =
        (columns.signs[as_size(f)] & (w > 0 ? FeatureColumns::kHasPositive : FeatureColumns::kHasNegative)) != 0;
    if (raises && std::abs(w) > small) {
      planned_entries_ += columns.size(as_size(f));
      return false;
    }
    if (raises) left_out_ = kLeftOutBound * way;
    lowering_.push_back(f);
    return true;
  });
}

bool ColumnSearch::panel_is_cheaper() const {
  const CsrView& X = formulas_.X;
  const std::int64_t ratio = X.n_cols > kLargePanelAbove ? kLargePanelRatio : kPanelRatio;
  return planned_entries_ * ratio > X.indptr[X.n_rows] + X.n_rows;
}

void ColumnSearch::run(LabelState& state, std::vector<std::int32_t>& features, DualSolution& solution) {
  state.forget_search();
  reached_.clear();
  const float b = formulas_.offset(state);
  const bool exact = state.phase == Phase::kExact;
  read_features(state, features, solution);
  bool complete = !exact && left_out_ == 0;
  if (exact && b > hit_above_ && look_beyond(state, b, solution)) complete = true;
  collect_hits(state, b, complete);
  if (complete && state.phase != Phase::kNearest && b > hit_above_) {
    estimate_unreached(state, b);
    state.unreached_loss = state.unreached_bound;
  }
  for (const std::int32_t row : reached_) {
    is_reached_[as_size(row)] = 0;
    scores_[as_size(row)] = 0;
  }
}

void ColumnSearch::read_features(LabelState& state, std::vector<std::int32_t>& features, DualSolution& solution) {
  const int samples = formulas_.problem.samples;
  const bool sampled = state.phase == Phase::kSampled && static_cast<int>(features.size()) > samples;
  if (sampled) sample_features(state, features);
  for (std::size_t k = 0; k < features.size(); ++k)
    read_column(state, features[k], sampled ? sampled_weights_[k] : formulas_.weight(state, as_size(features[k])),
                solution);
}

/// Adds w times the column to the scores of its rows. A sampled search stops at entries below the cutoff.
void ColumnSearch::read_column(const LabelState& state, std::int32_t feature, float w, DualSolution& solution) {
  const FeatureColumns& columns = formulas_.columns;
  const float least = state.phase == Phase::kSampled ? formulas_.problem.cutoff / std::abs(w) : 0.0F;
  const std::int64_t begin = columns.indptr[as_size(feature)];
  const std::int64_t end = columns.indptr[as_size(feature) + 1];
  const float* const values = columns.values.data();
  const std::int32_t* const rows = columns.rows.data();
  std::uint8_t* const is_reached = is_reached_.data();
  float* const scores = scores_.data();
  std::int64_t i = begin;
  for (; i < end; ++i) {
    const float x = values[i];
    if (std::abs(x) < least) break;
    const std::int32_t row = rows[i];
    if (!is_reached[row]) {
      is_reached[row] = 1;
      reached_.push_back(row);
    }
    scores[row] += w * x;
  }
  solution.column_entries += i - begin;
  control_.check_in(worker_);
}

/// Draws features by |w|, so that the mean of the drawn vector is w. `features` becomes those drawn.
void ColumnSearch::sample_features(LabelState& state, std::vector<std::int32_t>& features) {
  const int samples = formulas_.problem.samples;
  double total = 0;
  cumulative_.clear();
  for (const std::int32_t f : features) cumulative_.push_back(total += std::abs(formulas_.weight(state, as_size(f))));
  drawn_.assign(features.size(), 0);
  for (int r = 0; r < samples; ++r) {
    const auto at = std::upper_bound(cumulative_.begin(), cumulative_.end(), state.random.unit() * total);
    ++drawn_[std::min(as_size(at - cumulative_.begin()), features.size() - 1)];
  }
  sampled_weights_.clear();
  std::size_t n = 0;
  for (std::size_t k = 0; k < drawn_.size(); ++k) {
    if (drawn_[k] == 0) continue;
    const double w = total / samples * drawn_[k];
    sampled_weights_.push_back(static_cast<float>(formulas_.weight(state, as_size(features[k])) > 0 ? w : -w));
    features[n++] = features[k];
  }
  features.resize(n);
}

/// Estimates what unreached rows cost, where an empty row violates its margin. True if that made it read the columns
/// left out by the plan.
bool ColumnSearch::look_beyond(LabelState& state, float b, DualSolution& solution) {
  const DualProblem& problem = formulas_.problem;
  double alphas = 0;
  for (const ActiveRow& a : state.active) alphas += a.alpha;
  const double enough = problem.eps * alphas;  // of the order of what the gap may be
  const bool count_all = problem.samples > 0 && std::isinf(state.last_gap);
  const bool leave = !count_all && shift_is_cheap(state, b, enough);
  if (leave)
    state.unreached_bound = state.unreached_loss = formulas_.loss(1 + double{b}, formulas_.total_cost);
  else
    estimate_unreached(state, b);
  const bool near_the_end =
      !leave && state.unreached_bound > kNegligible * enough && state.unreached_loss <= kNearTheEnd * enough;
  if (!count_all && !near_the_end) return false;
  for (const std::int32_t f : lowering_) read_column(state, f, formulas_.weight(state, as_size(f)), solution);
  return true;
}

/// If not all columns were read, rows that may be hits are scored again.
void ColumnSearch::collect_hits(LabelState& state, float b, bool complete) {
  for (const std::int32_t row : reached_) {
    float s = scores_[as_size(row)] + b;
    if (s + left_out_ > hit_above_ && !complete) s = formulas_.score(state, row);
    if (s > hit_above_) state.hits.push_back({row, s});
  }
}

/// Whether the bias is so little above -1 that lowering it costs the gap less than looking at rows would be worth:
/// half a square for each active row, since the gap is flat near the optimum.
bool ColumnSearch::shift_is_cheap(const LabelState& state, float b, double enough) const {
  const DualProblem& problem = formulas_.problem;
  if (!problem.squared || problem.bias == 0) return false;
  double costs = problem.tau / (problem.bias * problem.bias);
  for (const ActiveRow& a : state.active) costs += a.cost;
  return 0.5 * costs * std::pow(1 + double{b}, 2) <= kCheapShift * enough;
}

/// Bounds what unreached rows may cost by their summed costs, and estimates it by looking at some. The violators
/// among those are kept.
void ColumnSearch::estimate_unreached(LabelState& state, float b) {
  state.n_unreached = formulas_.X.n_rows - static_cast<std::int64_t>(reached_.size());
  for (const ActiveRow& a : state.active) state.n_unreached -= is_reached_[as_size(a.row)] ? 0 : 1;
  state.unreached.clear();
  state.unreached_loss = 0;
  const double cost = weigh_unreached(state);
  state.unreached_bound = formulas_.loss(1 + double{b}, cost);
  if (state.n_unreached == 0) return;
  pick_unreached(state);
  double seen = 0;
  double sum = 0;
  std::erase_if(state.unreached, [&](std::int32_t row) {
    const double violation = 1 + double{formulas_.score(state, row)};
    seen += formulas_.row_cost(row);
    sum += formulas_.loss(violation, formulas_.row_cost(row));
    return violation <= 0;
  });
  state.unreached_loss = sum / seen * cost;
}

/// The summed costs of the rows that no column reached and that are not active.
double ColumnSearch::weigh_unreached(const LabelState& state) const {
  if (formulas_.problem.row_cost == nullptr) return static_cast<double>(state.n_unreached);
  double sum = formulas_.total_cost;
  for (const std::int32_t row : reached_) sum -= formulas_.row_cost(row);
  for (const ActiveRow& a : state.active) sum -= is_reached_[as_size(a.row)] ? 0 : formulas_.row_cost(a.row);
  return std::max(sum, 0.0);
}

/// Some of the rows that no column reached, spread over X.
void ColumnSearch::pick_unreached(LabelState& state) {
  const std::int64_t n_rows = formulas_.X.n_rows;
  for (const ActiveRow& a : state.active) is_marked_[as_size(a.row)] = 1;
  const auto most = kLeastPicked + static_cast<std::int64_t>(state.active.size());
  const auto pick = [&](std::int64_t step) {
    for (auto row = static_cast<std::int64_t>(state.random.below(as_size(step))); row < n_rows; row += step)
      if (!is_reached_[as_size(row)] && !is_marked_[as_size(row)])
        state.unreached.push_back(static_cast<std::int32_t>(row));
  };
  pick(std::max<std::int64_t>(n_rows / most, 1));
  if (state.unreached.empty()) pick(1);
  for (const ActiveRow& a : state.active) is_marked_[as_size(a.row)] = 0;
}

}  // namespace umpteen::dual
