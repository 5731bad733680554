#include "search.hpp"

#include <algorithm>
#include <cmath>

#include "umpteen/linear_scorer.hpp"

namespace umpteen::pd {

namespace {

constexpr std::int64_t kRowsPerSearch = 4096;  // gathered at a time

}  // namespace

std::int64_t LabelSearch::run(const std::int32_t* rows, std::int64_t n_rows, const PdSearch& how, int threads,
                              Control& control) {
  std::int64_t read = 0;
  std::vector<Gathered> groups(as_size(how.sampled ? published_.n_groups() : 1));
  for (std::int64_t begin = 0; begin < n_rows; begin += kRowsPerSearch) {
    for (Gathered& group : groups) group.clear();
    for (std::int64_t i = begin; i < std::min(begin + kRowsPerSearch, n_rows); ++i) {
      if (!variables_.counts(rows[i])) continue;
      if (!how.sampled) {
        gather(rows[i], groups[0]);
        continue;
      }
      Random random = make_random(rows[i], how.draw);
      Gathered& group = groups[random.below(groups.size())];
      gather_sample(rows[i], how.rate, random, group);
    }
    for (std::size_t g = 0; g < groups.size(); ++g)
      read += search(groups[g], how.sampled ? static_cast<std::int64_t>(g) : -1, how.n_found, threads, control);
  }
  return read;
}

Random LabelSearch::make_random(std::int32_t row, std::uint64_t draw) const {
  Random random{(seed_ * 0x9e3779b97f4a7c15U + draw) * 0xbf58476d1ce4e5b9U + static_cast<std::uint64_t>(row)};
  random.next();
  return random;
}

void LabelSearch::gather(std::int32_t row, Gathered& out) const {
  const CsrView& X = variables_.X;
  const std::int64_t begin = X.indptr[row];
  const std::int64_t end = X.indptr[row + 1];
  out.rows.push_back(row);
  out.indices.insert(out.indices.end(), X.indices + begin, X.indices + end);
  out.data.insert(out.data.end(), X.data + begin, X.data + end);
  out.indptr.push_back(static_cast<std::int64_t>(out.indices.size()));
}

/// Features with probability |x_ij| / |x_i|_1, evenly spaced from a random start, so that the mean is x_i.
void LabelSearch::gather_sample(std::int32_t row, std::int64_t rate, Random& random, Gathered& out) const {
  const CsrView& X = variables_.X;
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

/// Ranks the labels of a group, or of all groups if it is negative, for the gathered rows, and adds the first n_found
/// that each row lacks to its active set. Returns how many weights were read.
std::int64_t LabelSearch::search(const Gathered& gathered, std::int64_t group, std::int64_t n_found, int threads,
                                 Control& control) {
  if (gathered.rows.empty()) return 0;
  const std::vector<LinearShard> shards = published_.shards_of(group);
  const std::int64_t top_k = rank(gathered, shards, n_found, threads, control);
  for (std::size_t r = 0; r < gathered.rows.size(); ++r)
    add_labels(gathered.rows[r], ranked_labels_.data() + r * as_size(top_k), top_k, n_found);
  std::int64_t read = 0;
  for (const LinearShard& shard : shards)
    for (const std::int32_t f : gathered.indices) read += shard.indptr[f + 1] - shard.indptr[f];
  return read;
}

/// Fills ranked_labels_: enough per row to find n_found beyond those it has. Returns how many per row.
std::int64_t LabelSearch::rank(const Gathered& gathered, const std::vector<LinearShard>& shards, std::int64_t n_found,
                               int threads, Control& control) {
  std::int64_t most = 0;
  floors_.clear();
  for (const std::int32_t row : gathered.rows) {
    const auto n_active = static_cast<std::int64_t>(variables_.active[as_size(row)].size());
    most = std::max(most, variables_.count_positives(row) + n_active);
    floors_.push_back(variables_.bars[as_size(row)]);
  }
  const std::int64_t top_k = std::min(n_found + most, static_cast<std::int64_t>(variables_.labels.size()));
  ranked_labels_.resize(gathered.rows.size() * as_size(top_k));
  ranked_scores_.resize(ranked_labels_.size());
  linear_topk(shards, gathered.view(variables_.X.n_cols), top_k, threads, ranked_labels_.data(),
              ranked_scores_.data(), control, floors_.data());
  return top_k;
}

void LabelSearch::add_labels(std::int32_t row, const std::int32_t* ranked, std::int64_t top_k, std::int64_t n_found) {
  std::vector<ActiveLabel>& negatives = variables_.active[as_size(row)];
  const auto known = static_cast<std::ptrdiff_t>(negatives.size());
  std::int64_t left = n_found;
  for (std::int64_t k = 0; k < top_k && ranked[k] >= 0 && left > 0; ++k) {
    const auto is_it = [&](const ActiveLabel& a) { return a.label == ranked[k]; };
    if (variables_.has_label(row, ranked[k]) || std::any_of(negatives.begin(), negatives.begin() + known, is_it))
      continue;
    negatives.push_back({ranked[k], 0.0F});
    --left;
  }
}

}  // namespace umpteen::pd
