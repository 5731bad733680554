#include "umpteen/pd_sparse.hpp"

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "check.hpp"

using namespace umpteen;

namespace {

/// Rows with a few features out of many, so that some labels keep a table and some turn into arrays. Each label has
/// features of its own.
struct Data {
  static constexpr std::int64_t kRows = 200;
  static constexpr std::int64_t kFeatures = 300;
  static constexpr std::int32_t kLabels = 30;
  std::vector<std::int64_t> X_indptr{0};
  std::vector<std::int32_t> X_indices;
  std::vector<float> X_data;
  std::vector<std::int64_t> Y_indptr{0};
  std::vector<std::int32_t> Y_indices;

  Data() {
    std::mt19937 rng(1);
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto label = static_cast<std::int32_t>(rng() % kLabels);
      for (std::int32_t f = 0; f < kFeatures; ++f) {
        const bool own = f / 10 == label;
        if (rng() % (own ? 2 : 30) != 0) continue;
        X_indices.push_back(f);
        X_data.push_back(own ? 0.6F : 0.3F);
      }
      X_indptr.push_back(static_cast<std::int64_t>(X_indices.size()));
      if (row % 20 != 0) Y_indices.push_back(label);
      if (row % 3 == 0 && label + 1 < kLabels && row % 20 != 0) Y_indices.push_back(label + 1);
      Y_indptr.push_back(static_cast<std::int64_t>(Y_indices.size()));
    }
  }

  PdProblem problem() const {
    return {
        .X = {kRows, kFeatures, X_indptr.data(), X_indices.data(), X_data.data()},
        .Y = {kRows, kLabels, Y_indptr.data(), Y_indices.data(), nullptr},
        .lambda = 0.02,
        .C = 1.0,
        .n_groups = 3,
        .seed = 7,
    };
  }
};

std::vector<float> weights_of(const PdSolver& solver) {
  std::vector<std::int64_t> indptr(Data::kLabels + 1);
  solver.count_weights(indptr.data());
  std::vector<std::int32_t> features(static_cast<std::size_t>(indptr.back()));
  std::vector<float> weights(features.size());
  solver.copy_weights(indptr.data(), features.data(), weights.data());
  return weights;
}

std::vector<float> train(const Data& data, bool sampled, int passes, int threads) {
  PdSolver solver(data.problem());
  Control control;
  std::vector<std::int32_t> rows(Data::kRows);
  std::iota(rows.begin(), rows.end(), 0);
  double before = 0;
  for (int pass = 0; pass < passes; ++pass) {
    solver.publish(threads, control);
    const PdSearch how{.n_found = 4, .sampled = sampled, .rate = 2, .draw = static_cast<std::uint64_t>(pass)};
    solver.search(rows.data(), Data::kRows, how, threads, control);
    solver.step(rows.data(), Data::kRows, control);
    const PdObjectives now = solver.objectives(threads, control);
    CHECK(now.dual <= before + 1e-5 * std::abs(before));
    CHECK(now.primal + now.dual >= -1e-4 * now.primal);
    before = now.dual;
    if (pass + 1 == passes) CHECK(now.primal + now.dual <= 0.02 * now.primal);
  }
  const std::vector<float> weights = weights_of(solver);
  CHECK(!weights.empty());
  solver.keep_support();
  solver.step(rows.data(), Data::kRows, control);
  CHECK(weights_of(solver).size() <= weights.size());
  return weights;
}

void solves_the_problem_whatever_the_threads() {
  const Data data;
  for (const bool sampled : {false, true}) {
    const std::vector<float> one = train(data, sampled, sampled ? 120 : 40, 1);
    CHECK(train(data, sampled, sampled ? 120 : 40, 3) == one);
  }
}

void stops_when_cancelled() {
  const Data data;
  PdSolver solver(data.problem());
  CancelToken token;
  token.cancel();
  Control control(&token);
  const std::int32_t row = 1;
  CHECK_THROWS(solver.publish(2, control), Cancelled);
  CHECK_THROWS(solver.step(&row, 1, control), Cancelled);
}

/// The nearest point: no feasible direction leads nearer.
void projects() {
  std::mt19937 rng(3);
  std::uniform_real_distribution<double> number(-2, 2);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> b(1 + rng() % 6);
    std::vector<double> c(1 + rng() % 4);
    for (double& value : b) value = number(rng);
    for (double& value : c) value = number(rng);
    std::vector<double> x = b;
    std::vector<double> y = c;
    const double p = project_two_simplices(x.data(), static_cast<std::int64_t>(x.size()), y.data(),
                                           static_cast<std::int64_t>(y.size()), 1.0);
    const double sum_x = std::accumulate(x.begin(), x.end(), 0.0);
    const double sum_y = std::accumulate(y.begin(), y.end(), 0.0);
    CHECK(std::abs(sum_x - sum_y) < 1e-12);
    CHECK(sum_x <= 1 + 1e-12);
    for (std::size_t i = 0; i < b.size(); ++i) CHECK(std::abs(x[i] - std::max(b[i] - p, 0.0)) < 1e-12);
    double q = -1e300;  // what y was moved by, where it is positive
    for (std::size_t i = 0; i < c.size(); ++i)
      if (y[i] > 0) q = c[i] - y[i];
    if (sum_x > 1e-9) CHECK(sum_x > 1 - 1e-9 ? p + q >= -1e-9 : std::abs(p + q) < 1e-9);
  }
}

}  // namespace

int main() {
  projects();
  solves_the_problem_whatever_the_threads();
  stops_when_cancelled();
  return report();
}
