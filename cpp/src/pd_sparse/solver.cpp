#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "published.hpp"
#include "search.hpp"
#include "step.hpp"
#include "umpteen/linear_scorer.hpp"
#include "umpteen/pd_sparse.hpp"
#include "variables.hpp"

namespace umpteen {

using pd::ActiveLabel;
using pd::FeatureVector;
using pd::Variables;

namespace {

constexpr std::int64_t kRowsPerCheck = 64;    // between looks for a cancelled call
constexpr std::int64_t kRowsPerBatch = 4096;  // scored at a time for the objectives

/// Adds the losses of rows [begin, end), over C, to a sum. `labels` and `scores` are their top_k best.
double add_losses(double losses, const Variables& v, std::int64_t begin, std::int64_t end, std::int64_t top_k,
                  const std::int32_t* labels, const float* scores) {
  for (std::int64_t row = begin; row < end; ++row) {
    if (!v.counts(row)) continue;
    std::int64_t k = (row - begin) * top_k;
    while (v.has_label(row, labels[k])) ++k;
    double lowest = std::numeric_limits<double>::infinity();
    for (std::int64_t i = v.Y.indptr[row]; i < v.Y.indptr[row + 1]; ++i)
      lowest = std::min<double>(lowest, v.score(row, v.Y.indices[i]));
    losses += v.cost(row) * std::max(0.0, 1 + double{scores[k]} - lowest);
  }
  return losses;
}

}  // namespace

struct PdSolver::Parts {
  explicit Parts(const PdProblem& problem)
      : variables(problem),
        published(variables, problem.n_groups, problem.seed + 1),
        search(variables, published, problem.seed),
        step(variables) {}

  Variables variables;
  pd::PublishedWeights published;
  pd::LabelSearch search;
  pd::RowStep step;
};

PdSolver::PdSolver(const PdProblem& problem) : parts_(std::make_unique<Parts>(problem)) {}
PdSolver::~PdSolver() = default;

double PdSolver::publish(int threads, Control& control) { return parts_->published.publish(threads, control); }

std::int64_t PdSolver::search(const std::int32_t* rows, std::int64_t n_rows, const PdSearch& how, int threads,
                              Control& control) {
  return parts_->search.run(rows, n_rows, how, threads, control);
}

PdWork PdSolver::step(const std::int32_t* rows, std::int64_t n_rows, Control& control) {
  PdWork work;
  for (std::int64_t i = 0; i < n_rows; ++i) {
    if (i % kRowsPerCheck == 0) control.check_in(0);
    parts_->step.run(rows[i], work);
  }
  return work;
}

PdObjectives PdSolver::objectives(int threads, Control& control) {
  const Variables& v = parts_->variables;
  const double half = publish(threads, control);
  double absolute = 0;
  for (const FeatureVector& w : v.vectors) w.each(v.limit, [&](std::int32_t, float x) { absolute += std::abs(x); });
  const std::int64_t top_k =
      std::max<std::int64_t>(1, std::min(v.most_labels + 1, static_cast<std::int64_t>(v.labels.size())));
  const std::vector<LinearShard> shards = parts_->published.shards_of(-1);
  std::vector<std::int32_t> labels(as_size(std::min(kRowsPerBatch, v.X.n_rows) * top_k));
  std::vector<float> scores(labels.size());
  double losses = 0;
  for (std::int64_t begin = 0; begin < v.X.n_rows; begin += kRowsPerBatch) {
    const std::int64_t end = std::min(begin + kRowsPerBatch, v.X.n_rows);
    const CsrView part{end - begin, v.X.n_cols, v.X.indptr + begin, v.X.indices, v.X.data};
    linear_topk(shards, part, top_k, threads, labels.data(), scores.data(), control);
    losses = add_losses(losses, v, begin, end, top_k, labels.data(), scores.data());
  }
  double linear = 0;
  for (std::int64_t row = 0; row < v.X.n_rows; ++row)
    if (v.counts(row))
      for (const ActiveLabel& a : v.active[as_size(row)]) linear += a.alpha;
  return {half + v.limit * absolute + v.C * losses, half + linear};
}

void PdSolver::keep_support() {
  Variables& v = parts_->variables;
  for (FeatureVector& w : v.vectors) w.keep_above(v.limit);
  for (std::vector<ActiveLabel>& labels : v.active)
    std::erase_if(labels, [](const ActiveLabel& a) { return a.alpha == 0; });
  v.limit = 0;
  v.frozen = true;
}

void PdSolver::count_alphas(std::int64_t* indptr) const {
  const Variables& v = parts_->variables;
  indptr[0] = 0;
  for (std::int64_t row = 0; row < v.X.n_rows; ++row) {
    std::int64_t n = 0;
    for (const ActiveLabel& a : v.active[as_size(row)]) n += a.alpha != 0;
    for (std::int64_t i = v.Y.indptr[row]; i < v.Y.indptr[row + 1]; ++i) n += v.positive_alphas[as_size(i)] != 0;
    indptr[row + 1] = indptr[row] + n;
  }
}

void PdSolver::copy_alphas(const std::int64_t* indptr, std::int32_t* labels, float* alphas) const {
  const Variables& v = parts_->variables;
  std::vector<ActiveLabel> all;
  for (std::int64_t row = 0; row < v.X.n_rows; ++row) {
    all = v.active[as_size(row)];
    for (std::int64_t i = v.Y.indptr[row]; i < v.Y.indptr[row + 1]; ++i)
      all.push_back({v.Y.indices[i], v.positive_alphas[as_size(i)]});
    std::sort(all.begin(), all.end(), [](const ActiveLabel& x, const ActiveLabel& y) { return x.label < y.label; });
    std::int64_t at = indptr[row];
    for (const ActiveLabel& a : all) {
      if (a.alpha == 0) continue;
      labels[at] = a.label;
      alphas[at++] = a.alpha;
    }
  }
}

void PdSolver::set_alphas(const std::int64_t* indptr, const std::int32_t* labels, const float* alphas) {
  Variables& v = parts_->variables;
  for (FeatureVector& w : v.vectors) w.clear();
  std::fill(v.positive_alphas.begin(), v.positive_alphas.end(), 0.0F);
  for (std::int64_t row = 0; row < v.X.n_rows; ++row) {
    v.active[as_size(row)].clear();
    const std::int32_t* begin = v.Y.indices + v.Y.indptr[row];
    const std::int32_t* end = v.Y.indices + v.Y.indptr[row + 1];
    for (std::int64_t i = indptr[row]; i < indptr[row + 1]; ++i) {
      const std::int32_t* at = std::lower_bound(begin, end, labels[i]);
      if (at != end && *at == labels[i])
        v.positive_alphas[as_size(at - v.Y.indices)] = alphas[i];
      else
        v.active[as_size(row)].push_back({labels[i], alphas[i]});
      if (v.squared[as_size(row)] > 0) v.move(row, labels[i], alphas[i]);
    }
  }
}

void PdSolver::count_weights(std::int64_t* indptr) const {
  const Variables& v = parts_->variables;
  indptr[0] = 0;
  for (std::size_t label = 0; label < v.vectors.size(); ++label) {
    std::int64_t n = 0;
    v.vectors[label].each(v.limit, [&](std::int32_t, float) { ++n; });
    indptr[label + 1] = indptr[label] + n;
  }
}

void PdSolver::copy_weights(const std::int64_t* indptr, std::int32_t* features, float* weights) const {
  const Variables& v = parts_->variables;
  std::vector<std::pair<std::int32_t, float>> row;
  for (std::size_t label = 0; label < v.vectors.size(); ++label) {
    row.clear();
    v.vectors[label].each(v.limit, [&](std::int32_t f, float w) { row.emplace_back(f, w); });
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
  for (const FeatureVector& w : parts_->variables.vectors) total += w.bytes();
  return total;
}

}  // namespace umpteen
