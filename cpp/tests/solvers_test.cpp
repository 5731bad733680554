// L2-regularised squared hinge has four solvers (docs/solvers.md): one optimum, whichever solves it.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "umpteen/dual_descent.hpp"
#include "umpteen/newton_all_rows.hpp"
#include "umpteen/newton_near_margin.hpp"

using namespace umpteen;

namespace {

constexpr double kC = 2;

/// Rows with some features of their label's and some of others. The last label has no row.
struct Data {
  static constexpr std::int64_t kRows = 600;
  static constexpr std::int64_t kLabels = 40;
  static constexpr std::int32_t kFeatures = 300;
  std::vector<std::int64_t> X_indptr{0};
  std::vector<std::int32_t> X_indices;
  std::vector<float> X_data;
  std::vector<std::int64_t> label_indptr{0};
  std::vector<std::int32_t> label_rows;
  std::vector<float> costs = std::vector<float>(kLabels, 1.5F);

  Data() {
    std::mt19937 rng(5);
    std::vector<std::vector<std::int32_t>> rows_of(kLabels);
    for (std::int32_t row = 0; row < kRows; ++row) {
      const auto label = static_cast<std::int32_t>(rng() % (kLabels - 1));
      rows_of[static_cast<std::size_t>(label)].push_back(row);
      if (row % 3 == 0 && label > 0) rows_of[static_cast<std::size_t>(label) - 1].push_back(row);
      for (std::int32_t f = 0; f < kFeatures; ++f) {
        const bool own = f / 7 == label;
        if (rng() % (own ? 2 : 20) != 0) continue;
        X_indices.push_back(f);
        X_data.push_back((own ? 0.5F : 0.25F) * (f % 5 == 0 ? -1.0F : 1.0F));
      }
      X_indptr.push_back(static_cast<std::int64_t>(X_indices.size()));
    }
    for (const auto& rows : rows_of) {
      label_rows.insert(label_rows.end(), rows.begin(), rows.end());
      label_indptr.push_back(static_cast<std::int64_t>(label_rows.size()));
    }
  }

  CsrView X(std::int64_t n_features) const {
    return {kRows, n_features, X_indptr.data(), X_indices.data(), X_data.data()};
  }

  OneVsRestProblem problem(std::int64_t n_features = kFeatures) const {
    return {
        .X = X(n_features),
        .label_indptr = label_indptr.data(),
        .label_rows = label_rows.data(),
        .positive_cost = costs.data(),
        .n_labels = kLabels,
        .C = kC,
        .bias = 1,
        .eps = 1e-4,
        .prune = 0,
        .max_rounds = 200,
    };
  }

  DualProblem dual_problem(const std::vector<std::int32_t>& ids, int samples) const {
    return {
        .X = X(kFeatures),
        .label_indptr = label_indptr.data(),
        .label_rows = label_rows.data(),
        .label_ids = ids.data(),
        .positive_cost = costs.data(),
        .n_labels = kLabels,
        .squared = true,
        .lambda = 0,
        .tau = 1 / (2 * kC),
        .bias = 1,
        .eps = 1e-4,
        .prune = 0,
        .max_rounds = 200,
        .samples = samples,
        .cutoff = 0.001F,
        .seed = 1,
        .start_indptr = nullptr,
        .start_rows = nullptr,
        .start_alphas = nullptr,
        .keep_alphas = false,
    };
  }
};

/// 1/2 |w|^2 + 1/2 b^2 + C sum of squared hinges, from the weights themselves; 0 for a label without rows.
template <typename Solution>
std::vector<double> objectives(const Data& data, const std::vector<Solution>& solutions) {
  std::vector<double> out;
  for (std::size_t label = 0; label < solutions.size(); ++label) {
    const Solution& s = solutions[label];
    std::vector<double> w(Data::kFeatures, 0);
    double sum = 0.5 * double{s.bias} * s.bias;
    for (std::size_t i = 0; i < s.features.size(); ++i) {
      w[static_cast<std::size_t>(s.features[i])] = s.weights[i];
      sum += 0.5 * double{s.weights[i]} * s.weights[i];
    }
    const auto begin = data.label_rows.begin() + data.label_indptr[label];
    const auto end = data.label_rows.begin() + data.label_indptr[label + 1];
    for (std::int32_t row = 0; begin != end && row < Data::kRows; ++row) {
      double score = s.bias;
      for (std::int64_t i = data.X_indptr[static_cast<std::size_t>(row)];
           i < data.X_indptr[static_cast<std::size_t>(row) + 1]; ++i)
        score += w[static_cast<std::size_t>(data.X_indices[static_cast<std::size_t>(i)])] *
                 data.X_data[static_cast<std::size_t>(i)];
      const bool own = std::binary_search(begin, end, row);
      const double m = std::max(0.0, 1 - (own ? score : -score));
      sum += kC * (own ? data.costs[label] : 1) * m * m;
    }
    out.push_back(sum);
  }
  return out;
}

bool agree(const std::vector<double>& a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::abs(a[i] - b[i]) > 1e-3 * std::abs(a[i])) return false;
  return a.size() == b.size();
}

template <typename Solution>
bool same_bytes(const std::vector<Solution>& a, const std::vector<Solution>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Solution& x, const Solution& y) {
    return x.features == y.features && x.weights == y.weights && x.bias == y.bias;
  });
}

/// Features that no row has, so that rows are few in comparison. With that many, combinations of rows are used in
/// place of weights; with some more, their products are kept too.
constexpr std::int64_t kManyFeatures = 8 * Data::kRows;
constexpr std::int64_t kMoreFeatures = 10 * Data::kRows;

void four_solvers_have_one_optimum() {
  const Data data;
  Control control;
  const auto near_margin = objectives(data, solve_near_margin(data.problem(), Penalty::kL2, 2, control));
  const auto all_rows = solve_all_rows(data.problem(), MarginLoss::kSquaredHinge, 2, control);
  CHECK(agree(objectives(data, all_rows), near_margin));
  for (const std::int64_t n_features : {kManyFeatures, kMoreFeatures}) {
    const auto gram = solve_all_rows(data.problem(n_features), MarginLoss::kSquaredHinge, 2, control);
    CHECK(!same_bytes(all_rows, gram));  // else both were the same solver
    CHECK(agree(objectives(data, gram), near_margin));
  }
  std::vector<std::int32_t> ids(Data::kLabels, 0);
  for (const int samples : {0, 20})
    CHECK(agree(objectives(data, solve_dual(data.dual_problem(ids, samples), 2, control)), near_margin));
}

void threads_change_nothing() {
  const Data data;
  Control control;
  const auto all_rows = [&](MarginLoss loss, std::int64_t n_features, int threads) {
    return solve_all_rows(data.problem(n_features), loss, threads, control);
  };
  CHECK(same_bytes(solve_near_margin(data.problem(), Penalty::kL2, 1, control),
                   solve_near_margin(data.problem(), Penalty::kL2, 3, control)));
  CHECK(same_bytes(solve_near_margin(data.problem(), Penalty::kL1, 1, control),
                   solve_near_margin(data.problem(), Penalty::kL1, 3, control)));
  for (const MarginLoss loss : {MarginLoss::kLogistic, MarginLoss::kSquaredHinge})
    CHECK(same_bytes(all_rows(loss, Data::kFeatures, 1), all_rows(loss, Data::kFeatures, 3)));
  for (const std::int64_t n_features : {kManyFeatures, kMoreFeatures})
    CHECK(same_bytes(all_rows(MarginLoss::kSquaredHinge, n_features, 1),
                     all_rows(MarginLoss::kSquaredHinge, n_features, 3)));
  std::vector<std::int32_t> ids(Data::kLabels, 0);
  for (const int samples : {0, 20})
    CHECK(same_bytes(solve_dual(data.dual_problem(ids, samples), 1, control),
                     solve_dual(data.dual_problem(ids, samples), 3, control)));
}

void a_cancelled_call_ends() {
  const Data data;
  CancelToken token;
  token.cancel();
  Control control(&token);
  const std::vector<std::int32_t> ids(Data::kLabels, 0);
  CHECK_THROWS(solve_near_margin(data.problem(), Penalty::kL2, 2, control), Cancelled);
  CHECK_THROWS(solve_all_rows(data.problem(), MarginLoss::kLogistic, 2, control), Cancelled);
  CHECK_THROWS(solve_all_rows(data.problem(kManyFeatures), MarginLoss::kSquaredHinge, 2, control), Cancelled);
  CHECK_THROWS(solve_dual(data.dual_problem(ids, 0), 2, control), Cancelled);
}

}  // namespace

int main() {
  four_solvers_have_one_optimum();
  threads_change_nothing();
  a_cancelled_call_ends();
  return report();
}
