#include "column_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace umpteen::dual {

namespace {

// How many entries read for a whole panel cost as much as one read for one label. Above so many features the panel no
// longer stays in cache.
constexpr std::int64_t kPanelRatio = 24;
constexpr std::int64_t kLargePanelRatio = 6;
constexpr std::int64_t kLargePanelAbove = 16384;

// The columns left out may lift a row this share of the way from the bias to its margin; rounding adds far less than
// a thousandth.
constexpr float kLeftOutShare = 0.6F;
constexpr float kSlack = 1.001F;

// What scoring a row again costs, in entries read down a column: for the row, and for each of its features.
constexpr std::int64_t kEntriesPerRow = 8;
constexpr std::int64_t kEntriesPerFeature = 2;

// Where more than one entry for so many rows is read, looking at all scores is faster than listing those reached.
constexpr std::int64_t kRowsPerEntry = 8;

// Shares of the gap that is small enough: what a shift of the bias may cost; what unreached rows may cost unseen;
// below what the end may be near; and what a shift of the bias costs where the end is far.
constexpr double kCheapShift = 0.2;
constexpr double kNegligible = 0.1;
constexpr double kNearTheEnd = 2;
constexpr double kFarFromTheEnd = 2;

constexpr std::size_t kRowsAhead = 8;  // of the row that is scored again

constexpr std::int64_t kLeastPicked = 100;  // rows that no column reached, looked at one by one

}  // namespace

void ColumnSearch::plan(LabelState& state, std::vector<std::int32_t>& features) {
  planned_entries_ = 0;
  state.is_rough = may_be_rough(state);
  hit_above_ = formulas_.hit_above(state, features);
  left_out_ = 0;
  is_dense_ = false;
  lowering_.clear();
  if (state.phase == Phase::kSampled) return;
  const FeatureColumns& columns = formulas_.columns;
  std::erase_if(features, [&](std::int32_t f) {
    const bool raises =
        (columns.signs[as_size(f)] & (formulas_.weight(state, as_size(f)) > 0 ? FeatureColumns::kHasPositive
                                                                              : FeatureColumns::kHasNegative)) != 0;
    if (!raises) lowering_.push_back(f);
    return !raises;
  });
  const float way = hit_above_ - formulas_.offset(state);
  if (way > 0 && columns.longest > 0) leave_out(state, way, features);
  for (const std::int32_t f : features) planned_entries_ += columns.size(as_size(f));
  is_dense_ = planned_entries_ * kRowsPerEntry > formulas_.X.n_rows;
}

/// Leaves out the columns with most entries for their weight.
void ColumnSearch::leave_out(const LabelState& state, float way, std::vector<std::int32_t>& features) {
  const FeatureColumns& columns = formulas_.columns;
  by_worth_.clear();
  for (const std::int32_t f : features) {
    const float w = formulas_.weight(state, as_size(f));
    by_worth_.emplace_back(w * w / static_cast<float>(columns.size(as_size(f))), f);
  }
  std::sort(by_worth_.begin(), by_worth_.end());
  const double most = std::pow(double{kLeftOutShare} * way / columns.longest, 2);
  double squared = 0;
  std::size_t n = 0;
  for (; n < by_worth_.size(); ++n) {
    const double w = formulas_.weight(state, as_size(by_worth_[n].second));
    if (squared + w * w > most) break;
    squared += w * w;
    lowering_.push_back(by_worth_[n].second);
  }
  if (n == 0) return;
  left_out_ = kSlack * columns.longest * static_cast<float>(std::sqrt(squared));
  features.clear();
  for (; n < by_worth_.size(); ++n) features.push_back(by_worth_[n].second);
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
  const bool exact = state.phase == Phase::kExact && !state.is_rough;
  read_features(state, features, solution);
  // Rows near the mean: by the columns that were read, which are those of rarer features.
  if (!exact) left_out_ = 0;
  bool complete = !exact;
  if (exact && b > hit_above_ && look_beyond(state, b, solution)) complete = true;
  if (!complete && columns_are_cheaper(b)) {
    read_others(state, solution);
    complete = true;
  }
  // Sampled scores only name candidates: what is noise would keep a label searching.
  collect_hits(state, b, complete && state.phase != Phase::kSampled);
  if (complete && state.phase != Phase::kNearest && (b > hit_above_ || state.is_rough)) {
    estimate_unreached(state, b);
    state.unreached_loss = state.unreached_bound;
  }
  clear_scores();
}

void ColumnSearch::read_features(LabelState& state, std::vector<std::int32_t>& features, DualSolution& solution) {
  const std::int64_t samples = state.phase == Phase::kSampled ? count_samples(state, features) : 0;
  const bool sampled = samples > 0 && static_cast<std::int64_t>(features.size()) > samples;
  if (sampled) sample_features(state, samples, features);
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
  if (is_dense_)
    for (; i < end; ++i) scores[rows[i]] += w * values[i];
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

/// How many features to draw: the number given, or the paper's 2 |w|² / δ² with the 1-norm of w.
std::int64_t ColumnSearch::count_samples(const LabelState& state, const std::vector<std::int32_t>& features) const {
  const double error = formulas_.problem.sample_error;
  if (error <= 0) return formulas_.problem.samples;
  double norm = 0;
  for (const std::int32_t f : features) norm += std::abs(formulas_.weight(state, as_size(f)));
  const double wanted = std::ceil(2 * std::pow(norm / error, 2));
  // As many as there are features is as good as all: the caller then reads them without drawing.
  return static_cast<std::int64_t>(std::clamp(wanted, 1.0, static_cast<double>(features.size() + 1)));
}

/// Draws features by |w|, so that the mean of the drawn vector is w. `features` becomes those drawn.
void ColumnSearch::sample_features(LabelState& state, std::int64_t samples, std::vector<std::int32_t>& features) {
  double total = 0;
  cumulative_.clear();
  for (const std::int32_t f : features) cumulative_.push_back(total += std::abs(formulas_.weight(state, as_size(f))));
  drawn_.assign(features.size(), 0);
  for (std::int64_t r = 0; r < samples; ++r) {
    const auto at = std::upper_bound(cumulative_.begin(), cumulative_.end(), state.random.unit() * total);
    ++drawn_[std::min(as_size(at - cumulative_.begin()), features.size() - 1)];
  }
  sampled_weights_.clear();
  std::size_t n = 0;
  for (std::size_t k = 0; k < drawn_.size(); ++k) {
    if (drawn_[k] == 0) continue;
    const double w = total / static_cast<double>(samples) * drawn_[k];
    sampled_weights_.push_back(static_cast<float>(formulas_.weight(state, as_size(features[k])) > 0 ? w : -w));
    features[n++] = features[k];
  }
  features.resize(n);
}

/// Estimates what unreached rows cost, where an empty row violates its margin. True if that made it read the columns
/// left out by the plan.
bool ColumnSearch::look_beyond(LabelState& state, float b, DualSolution& solution) {
  const DualProblem& problem = formulas_.problem;
  const double enough = find_enough(state);
  const bool count_all = problem.samples > 0 && std::isinf(state.last_gap);
  const bool leave = !count_all && find_shift_cost(state, b) <= kCheapShift * enough;
  if (leave)
    state.unreached_bound = state.unreached_loss = formulas_.loss(1 + double{b}, formulas_.total_cost);
  else
    estimate_unreached(state, b);
  const bool near_the_end =
      !leave && state.unreached_bound > kNegligible * enough && state.unreached_loss <= kNearTheEnd * enough;
  if (!count_all && !near_the_end) return false;
  read_others(state, solution);
  return true;
}

/// Reads the columns that the plan left out, so that all scores are complete.
void ColumnSearch::read_others(const LabelState& state, DualSolution& solution) {
  std::int64_t entries = 0;
  for (const std::int32_t f : lowering_) entries += formulas_.columns.size(as_size(f));
  is_dense_ = is_dense_ || entries * kRowsPerEntry > formulas_.X.n_rows;
  for (const std::int32_t f : lowering_) read_column(state, f, formulas_.weight(state, as_size(f)), solution);
  left_out_ = 0;
}

/// Whether to complete the scores of all rows costs less than to score those again that may be hits.
bool ColumnSearch::columns_are_cheaper(float b) {
  const CsrView& X = formulas_.X;
  const std::int64_t per_row = kEntriesPerRow + kEntriesPerFeature * (X.indptr[X.n_rows] / X.n_rows);
  std::int64_t entries = 0;
  for (const std::int32_t f : lowering_) entries += formulas_.columns.size(as_size(f));
  std::int64_t n = 0;
  visit_candidates(b, [&](std::int32_t, float) { ++n; });
  return n * per_row > entries;
}

/// Calls visit(row, score) for reached rows that may be hits; the score is without the bias.
template <typename Visit>
void ColumnSearch::visit_candidates(float b, const Visit& visit) {
  const float limit = hit_above_ - b - left_out_;
  if (!is_dense_) {
    for (const std::int32_t row : reached_)
      if (scores_[as_size(row)] > limit) visit(row, scores_[as_size(row)]);
    return;
  }
  const std::int64_t n_rows = formulas_.X.n_rows;
  for (std::int64_t begin = 0; begin < n_rows; begin += kRowsPerBlock) {
    const float* scores = scores_.data() + begin;
    const std::int64_t n = kernels_.find_above(scores, std::min(kRowsPerBlock, n_rows - begin), limit, found_.data());
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int32_t at = found_[as_size(k)];
      if (scores[at] != 0) visit(static_cast<std::int32_t>(begin) + at, scores[at]);
    }
  }
}

/// If not all columns were read, rows that may be hits are scored again.
void ColumnSearch::collect_hits(LabelState& state, float b, bool complete) {
  if (complete) {
    visit_candidates(b, [&](std::int32_t row, float score) {
      if (score + b > hit_above_) state.hits.push_back({row, score + b});
    });
    return;
  }
  // They lie far apart in X: each is fetched while some before it are scored, first where it begins, then its
  // entries.
  candidates_.clear();
  visit_candidates(b, [&](std::int32_t row, float) { candidates_.push_back(row); });
  const CsrView& X = formulas_.X;
  const std::size_t n = candidates_.size();
  for (std::size_t k = 0; k < n; ++k) {
    if (k + 2 * kRowsAhead < n) __builtin_prefetch(X.indptr + candidates_[k + 2 * kRowsAhead]);
    if (k + kRowsAhead < n) {
      const SparseRow ahead = formulas_.row(candidates_[k + kRowsAhead]);
      __builtin_prefetch(ahead.indices);
      __builtin_prefetch(ahead.data);
    }
    const float score = formulas_.score(state, candidates_[k]);
    if (score > hit_above_) state.hits.push_back({candidates_[k], score});
  }
}

void ColumnSearch::clear_scores() {
  if (is_dense_) std::fill(scores_.begin(), scores_.end(), 0.0F);
  for (const std::int32_t row : reached_) {
    is_reached_[as_size(row)] = 0;
    scores_[as_size(row)] = 0;
  }
}

std::int64_t ColumnSearch::count_reached() const {
  if (!is_dense_) return static_cast<std::int64_t>(reached_.size());
  return formulas_.X.n_rows - std::count(scores_.begin(), scores_.end(), 0.0F);
}

/// Of the order of what the gap may be.
double ColumnSearch::find_enough(const LabelState& state) const {
  double alphas = 0;
  for (const ActiveRow& a : state.active) alphas += a.alpha;
  return formulas_.problem.eps * alphas;
}

/// What lowering the bias to -1 costs the gap: half a square for each active row, since the gap is flat near the
/// optimum.
double ColumnSearch::find_shift_cost(const LabelState& state, float b) const {
  const DualProblem& problem = formulas_.problem;
  if (!problem.squared || problem.bias == 0) return std::numeric_limits<double>::infinity();
  double costs = problem.tau / (problem.bias * problem.bias);
  for (const ActiveRow& a : state.active) costs += a.cost;
  return 0.5 * costs * std::pow(1 + double{b}, 2);
}

/// Where the bias is far above -1, nearly all rows violate their margin, and the label is not near its end: the worst
/// violators are enough then, and they are found by fewer columns.
bool ColumnSearch::may_be_rough(const LabelState& state) const {
  const float b = formulas_.offset(state);
  return state.phase == Phase::kExact && state.rough_left > 0 && b > Formulas::kMargin &&
         find_shift_cost(state, b) > kFarFromTheEnd * find_enough(state);
}

/// Bounds what unreached rows may cost by their summed costs, and estimates it by looking at some. The violators
/// among those are kept.
void ColumnSearch::estimate_unreached(LabelState& state, float b) {
  state.n_unreached = formulas_.X.n_rows - count_reached();
  for (const ActiveRow& a : state.active) state.n_unreached -= is_reached(a.row) ? 0 : 1;
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
  double sum = 0;
  for (std::int32_t row = 0; row < formulas_.X.n_rows; ++row) sum += is_reached(row) ? 0 : formulas_.row_cost(row);
  for (const ActiveRow& a : state.active) sum -= is_reached(a.row) ? 0 : formulas_.row_cost(a.row);
  return std::max(sum, 0.0);
}

/// Some of the rows that no column reached, spread over X.
void ColumnSearch::pick_unreached(LabelState& state) {
  const std::int64_t n_rows = formulas_.X.n_rows;
  for (const ActiveRow& a : state.active) is_marked_[as_size(a.row)] = 1;
  const auto most = kLeastPicked + static_cast<std::int64_t>(state.active.size());
  const auto pick = [&](std::int64_t step) {
    for (auto row = static_cast<std::int64_t>(state.random.below(as_size(step))); row < n_rows; row += step)
      if (!is_reached(static_cast<std::int32_t>(row)) && !is_marked_[as_size(row)])
        state.unreached.push_back(static_cast<std::int32_t>(row));
  };
  pick(std::max<std::int64_t>(n_rows / most, 1));
  if (state.unreached.empty()) pick(1);
  for (const ActiveRow& a : state.active) is_marked_[as_size(a.row)] = 0;
}

}  // namespace umpteen::dual
