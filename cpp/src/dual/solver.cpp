#include "solver.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "row_order.hpp"

namespace umpteen::dual {

namespace {

constexpr int kMostSampled = 10;  // sampled searches per label
constexpr double kFewFound =
    0.05;                      // a sampled search that adds no more to the active set than this share is the last
constexpr int kMostRough = 2;  // rough searches per label
constexpr std::int64_t kRarePart = 100;  // a label is rare if it has less than one row in so many
constexpr int kMostStalls = 8;
constexpr double kStalled = 0.5;  // a gap above this share of the last one is a stall

// How far descent goes before the next search: to a share of the gap that is small enough, or of what the search
// found outside the active set; less with every stall.
constexpr double kShareOfEnough = 0.3;
constexpr double kShareOfOutside = 0.02;
constexpr double kFactorPerStall = 0.25;

constexpr std::int64_t kLeastAdded = 100;  // rows a search may make active, beside as many as there are

bool is_idle(const ActiveRow& a) { return a.sign < 0 && a.alpha == 0; }

}  // namespace

// --- one label ------------------------------------------------------------------------------------------------

void Solver::add(std::int64_t label, DualSolution& solution) {
  if (problem_.label_indptr[label] == problem_.label_indptr[label + 1]) return;
  const Job job{take_state(), &solution};
  start(*job.state, label);
  advance(job);
}

LabelState* Solver::take_state() {
  if (free_.empty()) {
    states_.push_back(std::make_unique<LabelState>());
    states_.back()->v.assign(as_size(problem_.X.n_cols), 0.0F);
    if (formulas_.lists_features) states_.back()->touched_at.assign(as_size(problem_.X.n_cols), -1);
    free_.push_back(states_.back().get());
  }
  LabelState* state = free_.back();
  free_.pop_back();
  return state;
}

void Solver::start(LabelState& state, std::int64_t label) {
  const std::int64_t begin = problem_.label_indptr[label];
  state.label = label;
  state.positives = problem_.label_rows + begin;
  state.n_positive = problem_.label_indptr[label + 1] - begin;
  state.random = Random{problem_.seed * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(problem_.label_ids[label])};
  state.random.next();
  state.phase = Phase::kNearest;
  state.v0 = 0;
  state.active.clear();
  state.tolerance = 0;
  state.last_gap = std::numeric_limits<double>::infinity();
  state.stalls = 0;
  state.rough_left = problem_.samples > 0 ? 0 : std::min(kMostRough, problem_.max_rounds - 1);
  state.is_rough = false;
  for (std::int64_t r = 0; r < state.n_positive; ++r)
    activate(state, state.positives[r], 1, problem_.positive_cost[label]);
  if (problem_.start_indptr != nullptr && problem_.start_indptr[label] < problem_.start_indptr[label + 1])
    warm_start(state);
}

/// From the alphas given for the label.
void Solver::warm_start(LabelState& state) {
  state.phase = problem_.samples > 0 ? Phase::kSampled : Phase::kExact;
  state.rough_left = 0;  // the start may be the optimum
  std::int64_t r = 0;
  for (std::int64_t i = problem_.start_indptr[state.label]; i < problem_.start_indptr[state.label + 1]; ++i) {
    const std::int32_t row = problem_.start_rows[i];
    while (r < state.n_positive && state.positives[r] < row) ++r;
    const bool positive = r < state.n_positive && state.positives[r] == row;
    if (!positive) activate(state, row, -1);
    ActiveRow& a = positive ? state.active[as_size(r)] : state.active.back();
    a.alpha = std::max(problem_.start_alphas[i], 0.0F);
    if (!problem_.squared) a.alpha = std::min(a.alpha, a.cost);
    formulas_.add_row(state, formulas_.row(a.row), a.sign * a.alpha);
    state.v0 += double{a.sign} * a.alpha;
  }
}

void Solver::activate(LabelState& state, std::int32_t row, float sign, float times) {
  const float cost = times * formulas_.row_cost(row);
  const auto curvature = (formulas_.columns.squared[as_size(row)] + problem_.bias * problem_.bias) / problem_.tau +
                         (problem_.squared ? 1 / cost : 0);
  state.active.push_back({row, sign, 0.0F, cost, static_cast<float>(curvature)});
  if (!formulas_.lists_features) return;
  const CsrView& X = problem_.X;
  for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i)
    if (state.touched_at[as_size(X.indices[i])] < 0) {
      state.touched_at[as_size(X.indices[i])] = static_cast<std::int32_t>(state.touched.size());
      state.touched.push_back(X.indices[i]);
    }
}

void Solver::put_mean(LabelState& state) {
  const float share = 1.0F / static_cast<float>(state.n_positive);
  for (const ActiveRow& a : state.active) formulas_.add_row(state, formulas_.row(a.row), share);
}

/// Descent and search in turns, until the label is done or has to wait for a shared search.
void Solver::advance(const Job& job) {
  LabelState& state = *job.state;
  while (true) {
    if (state.phase == Phase::kNearest)
      put_mean(state);
    else
      descent_.run(state, *job.solution);
    control_.check_in(worker_);
    formulas_.collect_features(state, features_);
    column_search_.plan(state, features_);
    if (column_search_.panel_is_cheaper()) {
      // By a panel a rough search costs no less than an exact one. It only spares labels nearly all rows as hits.
      if (state.n_positive * kRarePart > problem_.X.n_rows) state.is_rough = false;
      waiting_.push_back(job);
      return;
    }
    column_search_.run(state, features_, *job.solution);
    if (absorb(state, *job.solution)) {
      free_.push_back(job.state);
      return;
    }
  }
}

void Solver::share_search() {
  std::vector<Job> jobs;
  jobs.swap(waiting_);
  std::vector<LabelState*> states;
  for (const Job& job : jobs) states.push_back(job.state);
  panel_search_.run(states, features_);
  for (const Job& job : jobs) {
    ++job.solution->panel_passes;
    if (absorb(*job.state, *job.solution))
      free_.push_back(job.state);
    else
      advance(job);
  }
}

// --- after a search -------------------------------------------------------------------------------------------

/// True if the label is done; then its solution is written.
bool Solver::absorb(LabelState& state, DualSolution& solution) {
  drop_active_hits(state);
  switch (state.phase) {
    case Phase::kNearest:
      clear(state);
      add_best(state, kLeastAdded + 2 * state.n_positive);
      state.phase = problem_.samples > 0 ? Phase::kSampled : Phase::kExact;
      return false;
    case Phase::kSampled:
      ++solution.rounds;
      absorb_sampled(state, solution);
      return false;
    default:
      ++solution.rounds;
      if (!state.is_rough) return absorb_exact(state, solution);
      absorb_rough(state, solution);
      return false;
  }
}

void Solver::drop_active_hits(LabelState& state) {
  for (const ActiveRow& a : state.active) is_marked_[as_size(a.row)] = 1;
  std::erase_if(state.hits, [&](const Hit& hit) { return is_marked_[as_size(hit.row)] != 0; });
  for (const ActiveRow& a : state.active) is_marked_[as_size(a.row)] = 0;
}

void Solver::absorb_sampled(LabelState& state, DualSolution& solution) {
  const auto found = static_cast<double>(state.hits.size() + state.unreached.size());
  if (found <= kFewFound * static_cast<double>(state.active.size()) || solution.rounds >= kMostSampled)
    state.phase = Phase::kExact;
  if (found > 0) renew_active(state, solution);
}

/// The gap is not known, but far from small enough.
void Solver::absorb_rough(LabelState& state, DualSolution& solution) {
  --state.rough_left;
  const auto found = static_cast<double>(state.hits.size() + state.unreached.size());
  if (found <= kFewFound * static_cast<double>(state.active.size())) state.rough_left = 0;
  double loss = state.unreached_loss;
  for (const Hit& hit : state.hits) loss += formulas_.loss(1 + double{hit.score}, formulas_.row_cost(hit.row));
  state.tolerance = kShareOfOutside * loss;
  renew_active(state, solution);
}

bool Solver::absorb_exact(LabelState& state, DualSolution& solution) {
  formulas_.collect_features(state, features_);
  const Gap gap = gap_finder_.find(state, features_);
  solution.objective = gap.primal;
  solution.gap = gap.total();
  if (problem_.samples > 0 && std::isinf(state.last_gap)) solution.missed = count_missed(state);
  const double enough = problem_.eps * gap.primal;
  const double likely = gap.total() - (state.shift == 0 ? state.unreached_bound - state.unreached_loss : 0);
  // Where the gap hardly shrinks, descent goes further; both that and float32 have an end.
  if (likely > kStalled * state.last_gap) ++state.stalls;
  if (solution.gap <= enough || solution.rounds >= problem_.max_rounds || state.stalls > kMostStalls) {
    finish(state, solution);
    return true;
  }
  // A rough search never is the last.
  state.rough_left = std::min(state.rough_left, problem_.max_rounds - static_cast<int>(solution.rounds) - 1);
  state.last_gap = likely;
  state.tolerance = std::max(kShareOfEnough * enough, kShareOfOutside * (likely - gap.inside)) *
                    std::pow(kFactorPerStall, state.stalls);
  renew_active(state, solution);
  return false;
}

/// Violators by more than eps among rows that sampled searches left inactive.
std::int64_t Solver::count_missed(const LabelState& state) const {
  const auto counts = [&](double score) { return 1 + score > problem_.eps; };
  std::int64_t n = state.unreached_bound > 0 && counts(formulas_.offset(state)) ? state.n_unreached : 0;
  for (const Hit& hit : state.hits) n += counts(hit.score) ? 1 : 0;
  return n;
}

/// Moves the n best hits to the active set; the lower row wins a tie.
void Solver::add_best(LabelState& state, std::int64_t n) {
  auto& hits = state.hits;
  if (static_cast<std::int64_t>(hits.size()) > n) {
    std::nth_element(hits.begin(), hits.begin() + n, hits.end(), [](const Hit& a, const Hit& b) {
      return a.score > b.score || (a.score == b.score && a.row < b.row);
    });
    hits.resize(as_size(n));
  }
  std::sort(hits.begin(), hits.end(), [](const Hit& a, const Hit& b) { return a.row < b.row; });
  for (const Hit& hit : hits) activate(state, hit.row, -1);
}

/// Rows at rest leave the active set, violators enter it.
void Solver::renew_active(LabelState& state, DualSolution& solution) {
  std::erase_if(state.active, is_idle);
  add_best(state, kLeastAdded + static_cast<std::int64_t>(state.active.size()));
  for (const std::int32_t row : state.unreached) activate(state, row, -1);
  solution.active = std::max(solution.active, static_cast<std::int64_t>(state.active.size()));
}

void Solver::clear(LabelState& state) {
  if (formulas_.lists_features)
    for (const std::int32_t f : state.touched) state.v[as_size(f)] = 0;
  else
    std::fill(state.v.begin(), state.v.end(), 0.0F);
}

// --- the end --------------------------------------------------------------------------------------------------

void Solver::finish(LabelState& state, DualSolution& solution) {
  solution.active = std::max(solution.active, static_cast<std::int64_t>(state.active.size()));
  write_weights(state, solution);
  write_alphas(state, solution);
  clear(state);
  for (const std::int32_t f : state.touched) state.touched_at[as_size(f)] = -1;
  state.touched.clear();
}

/// From features_, which are those of w.
void Solver::write_weights(const LabelState& state, DualSolution& solution) {
  std::sort(features_.begin(), features_.end());
  solution.nnz = static_cast<std::int64_t>(features_.size());
  for (const std::int32_t f : features_) {
    const float w = formulas_.weight(state, as_size(f));
    if (std::abs(w) < problem_.prune) continue;
    solution.features.push_back(f);
    solution.weights.push_back(w);
  }
  solution.bias = static_cast<float>(formulas_.offset(state) + state.shift);
}

void Solver::write_alphas(LabelState& state, DualSolution& solution) {
  std::erase_if(state.active, [](const ActiveRow& a) { return a.alpha == 0; });
  solution.support = static_cast<std::int64_t>(state.active.size());
  if (!problem_.keep_alphas) return;
  std::sort(state.active.begin(), state.active.end(),
            [](const ActiveRow& a, const ActiveRow& b) { return a.row < b.row; });
  for (const ActiveRow& a : state.active) {
    solution.rows.push_back(a.row);
    solution.alphas.push_back(a.alpha);
  }
}

}  // namespace umpteen::dual

namespace umpteen {

namespace {

/// The label with most rows first, so that the last to end is a small one.
std::vector<std::int64_t> order_labels(const DualProblem& problem) {
  std::vector<std::int64_t> order(as_size(problem.n_labels));
  std::iota(order.begin(), order.end(), 0);
  const auto count = [&](std::int64_t l) { return problem.label_indptr[l + 1] - problem.label_indptr[l]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return count(a) > count(b); });
  return order;
}

}  // namespace

std::vector<DualSolution> solve_dual(const DualProblem& given, int threads, Control& control) {
  const dual::OrderedProblem ordered(given);
  const DualProblem& problem = ordered.view();
  std::vector<DualSolution> solutions(as_size(problem.n_labels));
  const dual::FeatureColumns columns = dual::transpose(problem, threads, control);
  const std::vector<std::int64_t> order = order_labels(problem);
  std::atomic<std::size_t> next{0};
  // A worker takes labels until a panel of them waits for a shared search: items of parallel_for would each end with
  // a search that few share.
  const int n_workers = clamp_threads((problem.n_labels + kPanelLabels - 1) / kPanelLabels, threads);
  parallel_for(n_workers, n_workers, control, [&](std::int64_t, int worker) {
    dual::Solver solver(problem, columns, control, worker);
    bool left = true;
    while (left || !solver.idle()) {
      while (left && !solver.full()) {
        const std::size_t at = next.fetch_add(1, std::memory_order_relaxed);
        left = at < order.size();
        if (left) solver.add(order[at], solutions[as_size(order[at])]);
        control.check_in(worker);
      }
      if (!solver.idle()) solver.share_search();
    }
  });
  for (DualSolution& solution : solutions) ordered.restore_rows(solution);
  return solutions;
}

}  // namespace umpteen
