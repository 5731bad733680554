#include <algorithm>
#include <cmath>

#include "panel_lanes.hpp"

namespace umpteen {

namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Whether the products of all pairs of rows are worth keeping. A multiplication with them reads n x n numbers, one
/// with X and its transpose the entries of both, and a panel of all features that does not stay in cache. 10,000
/// labels with the shape of Amazon-670K take 5.9 s; with 16 in place of 64, 7.2 s, with 256, 6.2 s. Making the
/// products is to cost no more than some tens of multiplications: of dense rows it would.
bool keeps_products(const CsrView& X) {
  constexpr std::int64_t kMostRows = 2048;  // whose products take 17 MB
  constexpr std::int64_t kNumbersPerFeature = 64;
  constexpr std::int64_t kMostPerProduct = 100;
  const std::int64_t n = X.n_rows;
  if (n > kMostRows || n * n > kNumbersPerFeature * X.n_cols + 2 * X.indptr[n]) return false;
  std::vector<std::int64_t> counts(size(X.n_cols), 0);
  for (std::int64_t i = 0; i < X.indptr[n]; ++i) ++counts[size(X.indices[i])];
  std::int64_t cost = 0;
  for (const std::int64_t count : counts) cost += count * count;
  return cost <= kMostPerProduct * n * n;
}

/// K = X X^T: products of all pairs of rows, without the bias's; and each row's sum of them, with it.
struct Gram {
  std::int64_t n;
  Floats K;  // n x n, or empty where X is multiplied with instead
  std::vector<double> total;
  double grand = 0;

  Gram(const CsrView& X, double bias, Control& control, int worker)
      : n(X.n_rows), total(size(n), bias * bias * static_cast<double>(n)) {
    if (keeps_products(X)) multiply_rows(X, control, worker);
    std::vector<double> sum(size(X.n_cols), 0);
    for (std::int64_t i = 0; i < X.indptr[n]; ++i) sum[size(X.indices[i])] += X.data[i];
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i)
        total[size(row)] += X.data[i] * sum[size(X.indices[i])];
      grand += total[size(row)];
    }
  }

 private:
  void multiply_rows(const CsrView& X, Control& control, int worker) {
    K.assign(size(n) * size(n), 0.0F);
    // Rows by feature, ascending.
    std::vector<std::int64_t> first(size(X.n_cols) + 1, 0);
    for (std::int64_t i = 0; i < X.indptr[n]; ++i) ++first[size(X.indices[i]) + 1];
    for (std::size_t f = 1; f < first.size(); ++f) first[f] += first[f - 1];
    std::vector<std::int64_t> end(first.begin(), first.end() - 1);
    std::vector<std::int32_t> rows(size(X.indptr[n]));
    std::vector<float> values(rows.size());
    for (std::int64_t row = 0; row < n; ++row) {
      float* products = K.data() + row * n;
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) {
        const std::size_t f = size(X.indices[i]);
        rows[size(end[f])] = static_cast<std::int32_t>(row);
        values[size(end[f]++)] = X.data[i];
        for (std::int64_t k = first[f]; k < end[f]; ++k) products[rows[size(k)]] += X.data[i] * values[size(k)];
      }
      if (row % 64 == 0) control.check_in(worker);
    }
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t other = 0; other < row; ++other) K[size(other * n + row)] = K[size(row * n + other)];
  }
};

struct Shared {
  LabelQueue labels;
  Gram gram;

  Shared(const SvmProblem& problem, Control& control, int worker)
      : labels(problem), gram(problem.X, problem.bias, control, worker) {}
};

/// Newton's method as PanelSolver has it, where rows are few beside their features. Whatever it deals with, weights,
/// gradients, directions, is a combination X^T a of rows: it keeps a, and multiplies with the Gram matrix K = X X^T
/// in place of X and its transpose. Of p = X^T a and q = X^T c the product is a.Kc; the scores of p are Ka; and the
/// Hessian I + C X^T D X makes of it X^T (a + C D Ka). Conjugate gradients then need one multiplication, of K with
/// the residual, from which the others follow. K itself is kept where rows are few; else X^T and X take turns.
///
/// Panels are rows x lanes. The weights themselves are made when a label is done.
class GramSolver {
 public:
  GramSolver(const SvmProblem& problem, Shared& shared, Control& control, int worker, SvmSolution* solutions)
      : problem_(problem),
        X_(problem.X),
        n_(problem.X.n_rows),
        shared_(shared),
        control_(control),
        worker_(worker),
        solutions_(solutions),
        w_(size(X_.n_cols)) {
    for (Floats* panel : panels()) panel->assign(size(n_) * kLanes, 0.0F);
    if (shared.gram.K.empty()) by_feature_.resize(size(X_.n_cols) * kLanes);
  }

  void solve() {
    for (int j = 0; j < kLanes; ++j) start_next(j);
    while (std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.stage != Stage::kIdle; })) {
      multiply();
      judge();
      take_steps();
      advance();
      control_.check_in(worker_);
    }
  }

 private:
  static std::size_t at(std::int64_t row, int lane) { return size(row * kLanes + lane); }
  std::array<Floats*, 9> panels() {
    return {&weights_, &residual_, &image_, &search_, &search_image_, &direction_, &direction_image_, &u_, &block_};
  }

  template <typename Body>
  void for_each_block(const Body& body) {
    constexpr std::int64_t kRows = 2048;
    for (std::int64_t row = 0; row < n_; row += kRows) {
      body(row, std::min(kRows, n_ - row));
      control_.check_in(worker_);
    }
  }

  /// image_ = (K + bias^2) residual_. The bias apart: it would drown the rest of a sum in float32.
  void multiply() {
    if (by_feature_.empty()) {
      kernels_.multiply_gram(n_, shared_.gram.K.data(), residual_.data(), image_.data());
    } else {
      std::fill(by_feature_.begin(), by_feature_.end(), 0.0F);
      for_each_block([&](std::int64_t row, std::int64_t n) {
        kernels_.add_panel_rows(n, X_.indptr + row, X_.indices, X_.data, residual_.data() + at(row, 0),
                                by_feature_.data());
      });
      for_each_block([&](std::int64_t row, std::int64_t n) {
        newton_.multiply_panel(n, X_.indptr + row, X_.indices, X_.data, by_feature_.data(),
                               image_.data() + at(row, 0));
      });
    }
    LaneDoubles sums{};
    kernels_.add_up(n_, residual_.data(), sums.data());
    LaneFloats of_bias;
    for (std::size_t j = 0; j < kLanes; ++j) of_bias[j] = static_cast<float>(problem_.bias * problem_.bias * sums[j]);
    kernels_.add_constants(n_, of_bias.data(), image_.data());
  }

  /// What the residuals say: a gradient is short enough, or a direction good enough, or what to search next.
  void judge() {
    LaneDoubles rho{};
    kernels_.dot_lanes(n_, residual_.data(), image_.data(), rho.data());
    LaneFloats beta{};
    for (int k = 0; k < kLanes; ++k) {
      const std::size_t j = size(k);
      Lane& lane = lanes_[j];
      if (lane.stage == Stage::kNew) {
        lane.length = std::sqrt(std::max(rho[j], 0.0));
        ++lane.solution->gradients;
        const bool at_zero = lane.solution->gradients == 1;
        if (at_zero && !std::isfinite(rho[j])) refuse_overflow();
        if (at_zero) lane.stop = short_enough(problem_, lane, lane.length);
        if (is_done(problem_, lane)) {
          finish(k);
          start_next(k);
          continue;
        }
        lane.stage = Stage::kDirection;
        lane.cg_steps = 0;
        lane.fall = 0;
        if (at_zero) aim(k);
      } else if (lane.stage == Stage::kDirection) {
        ++lane.cg_steps;
        ++lane.solution->cg_steps;
        // The residual is about what the gradient will be after the step: no shorter than it has to be.
        const double enough = std::max(0.1 * lane.length, 0.5 * lane.stop);
        if (rho[j] <= enough * enough || lane.stuck || lane.cg_steps == kMostCgSteps)
          lane.stage = Stage::kStep;
        else
          beta[j] = static_cast<float>(rho[j] / lane.rho);
      }
      lane.rho = rho[j];
    }
    kernels_.add_lanes(n_, residual_.data(), beta.data(), search_.data(), search_.data());
    kernels_.add_lanes(n_, image_.data(), beta.data(), search_image_.data(), search_image_.data());
  }

  /// Lanes with a direction go to the least of the objective along it, up to its end.
  void take_steps() {
    if (std::none_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.stage == Stage::kStep; }))
      return;
    LaneDoubles wd{};
    LaneDoubles dd{};
    kernels_.dot_lanes(n_, weights_.data(), direction_image_.data(), wd.data());
    kernels_.dot_lanes(n_, direction_.data(), direction_image_.data(), dd.data());
    for (int j = 0; j < kLanes; ++j) {  // what scores gain becomes what u gains
      const Lane& lane = lanes_[size(j)];
      if (lane.stage != Stage::kStep) continue;
      for (std::int64_t r = 0; r < lane.n_positive; ++r) {
        float& cell = direction_image_[at(lane.positives[r], j)];
        cell = -cell;
      }
    }
    const LaneFloats t = find_steps(problem_, PanelLoss::kSquaredHinge, lanes_, wd, dd, u_.data(),
                                    direction_image_.data(), control_, worker_);
    for (int j = 0; j < kLanes; ++j)
      if (lanes_[size(j)].stage == Stage::kStep && t[size(j)] <= 0 && !lanes_[size(j)].is_aimed()) {
        finish(j);
        start_next(j);
      }
    kernels_.add_lanes(n_, weights_.data(), t.data(), direction_.data(), weights_.data());
    kernels_.add_lanes(n_, u_.data(), t.data(), direction_image_.data(), u_.data());
  }

  /// A step of conjugate gradients; or after a step of Newton's method the gradient there.
  void advance() {
    LaneFloats stepped{};
    for (std::size_t j = 0; j < kLanes; ++j) stepped[j] = lanes_[j].stage == Stage::kStep ? 1.0F : 0.0F;
    of_loss_.weigh_rows(n_, stepped.data(), static_cast<float>(problem_.C), u_.data(), search_image_.data(), nullptr,
                        block_.data());
    for (int j = 0; j < kLanes; ++j) {
      const Lane& lane = lanes_[size(j)];
      const auto cost = static_cast<float>(lane.cost);
      if (stepped[size(j)] == 0 && (lane.cost == 1 || lane.stage != Stage::kDirection)) continue;
      for (std::int64_t r = 0; r < lane.n_positive; ++r)
        block_[at(lane.positives[r], j)] *= stepped[size(j)] > 0 ? -cost : cost;
    }
    LaneDoubles bend{};
    kernels_.dot_lanes(n_, search_.data(), search_image_.data(), bend.data());
    kernels_.dot_lanes(n_, search_image_.data(), block_.data(), bend.data());

    LaneFloats keep;       // of what there was
    LaneFloats forward{};  // of search_
    LaneFloats back{};     // of search_, to the residual
    LaneFloats of_block{};
    LaneFloats of_weights{};
    keep.fill(1);
    for (std::size_t j = 0; j < kLanes; ++j) {
      Lane& lane = lanes_[j];
      if (lane.stage == Stage::kStep) {
        ++lane.solution->newton_steps;
        ++lane.solution->rounds;
        lane.stage = Stage::kNew;
        keep[j] = 0;
        of_block[j] = 1;
        of_weights[j] = -1;
      } else if (lane.stage == Stage::kDirection) {
        lane.stuck = !(bend[j] > 0);
        if (lane.stuck) continue;
        forward[j] = static_cast<float>(lane.rho / bend[j]);
        back[j] = of_block[j] = -forward[j];
        lane.fall += lane.rho * lane.rho / bend[j];
      }
    }
    kernels_.combine_lanes(n_, keep.data(), direction_.data(), forward.data(), search_.data(), direction_.data());
    kernels_.combine_lanes(n_, keep.data(), direction_image_.data(), forward.data(), search_image_.data(),
                           direction_image_.data());
    kernels_.combine_lanes(n_, keep.data(), residual_.data(), back.data(), search_.data(), residual_.data());
    kernels_.add_lanes(n_, residual_.data(), of_block.data(), block_.data(), residual_.data());
    kernels_.add_lanes(n_, residual_.data(), of_weights.data(), weights_.data(), residual_.data());
  }

  // --- one lane -----------------------------------------------------------------------------------------------

  /// The next label, from 0, where every row is inside the margin.
  void start_next(int j) {
    Lane& lane = lanes_[size(j)];
    const std::int64_t label = shared_.labels.take();
    if (label < 0) return;
    lane = make_lane(problem_, label, Stage::kNew, solutions_);
    for (Floats* panel : panels())
      for (std::int64_t i = 0; i < n_; ++i) (*panel)[at(i, j)] = 0;
    const auto slope = static_cast<float>(2 * problem_.C);
    for (std::int64_t i = 0; i < n_; ++i) residual_[at(i, j)] = -slope;
    for (std::int64_t r = 0; r < lane.n_positive; ++r)
      residual_[at(lane.positives[r], j)] = slope * static_cast<float>(lane.cost);
  }

  /// The first step, if there is such a direction.
  void aim(int j) {
    Lane& lane = lanes_[size(j)];
    const Gram& gram = shared_.gram;
    // The sum of the label's rows, times all rows.
    std::fill(w_.begin(), w_.end(), 0.0F);
    for (std::int64_t r = 0; r < lane.n_positive; ++r) add_row(lane.positives[r], 1);
    own_.assign(size(n_), problem_.bias * problem_.bias * static_cast<double>(lane.n_positive));
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t k = X_.indptr[i]; k < X_.indptr[i + 1]; ++k)
        own_[size(i)] += double{X_.data[k]} * w_[size(X_.indices[k])];
    const double own = 1 / static_cast<double>(lane.n_positive);
    const double share = 1 / static_cast<double>(n_);
    double pp = 0;
    double pg = 0;
    for (std::int64_t r = 0; r < lane.n_positive; ++r) {
      pp += own_[size(lane.positives[r])];
      pg += gram.total[size(lane.positives[r])];
    }
    const Aim aim = find_aim(problem_, lane, pp * own * own, pg * own * share, gram.grand * share * share);
    control_.check_in(worker_);
    if (aim.fall <= 0) return;
    lane.fall = aim.fall;
    lane.stage = Stage::kStep;
    for (std::int64_t i = 0; i < n_; ++i) {
      direction_[at(i, j)] = static_cast<float>(aim.all * share);
      direction_image_[at(i, j)] =
          static_cast<float>(aim.own * own * own_[size(i)] + aim.all * share * gram.total[size(i)]);
    }
    for (std::int64_t r = 0; r < lane.n_positive; ++r)
      direction_[at(lane.positives[r], j)] += static_cast<float>(aim.own * own);
  }

  /// w_ += factor times a row
  void add_row(std::int64_t row, float factor) {
    for (std::int64_t k = X_.indptr[row]; k < X_.indptr[row + 1]; ++k) w_[size(X_.indices[k])] += factor * X_.data[k];
  }

  void finish(int j) {
    Lane& lane = lanes_[size(j)];
    lane.stage = Stage::kIdle;
    SvmSolution& solution = *lane.solution;
    solution.gradient = lane.stop > 0 ? lane.length / lane.stop : 0;
    solution.active_rows = n_ * solution.gradients;
    solution.checked_rows = n_ * solution.newton_steps;
    double loss = of_loss_.sum_losses(n_, u_.data() + j);
    if (lane.cost != 1)
      for (std::int64_t r = 0; r < lane.n_positive; ++r)
        loss += (lane.cost - 1) * loss_at(PanelLoss::kSquaredHinge, u_[at(lane.positives[r], j)]).value;
    double b = 0;
    std::fill(w_.begin(), w_.end(), 0.0F);
    for (std::int64_t i = 0; i < n_; ++i) {
      const float a = weights_[at(i, j)];
      if (a == 0) continue;
      b += a * problem_.bias;
      add_row(i, a);
    }
    double squared = b * b;
    for (std::int64_t f = 0; f < X_.n_cols; ++f) {
      const float w = w_[size(f)];
      squared += double{w} * w;
      if (std::abs(w) < problem_.prune || w == 0) continue;
      solution.features.push_back(static_cast<std::int32_t>(f));
      solution.weights.push_back(w);
    }
    solution.objective = 0.5 * squared + problem_.C * loss;
    solution.bias = static_cast<float>(b * problem_.bias);
    control_.check_in(worker_);
  }

  const SvmProblem& problem_;
  const CsrView& X_;
  const std::int64_t n_;
  Shared& shared_;
  Control& control_;
  const int worker_;
  SvmSolution* const solutions_;
  const NewtonKernels& newton_ = newton_kernels();
  const PanelKernels& kernels_ = panel_kernels();
  const PanelLossKernels& of_loss_ = kernels_.squared_hinge;

  Lanes lanes_;
  // Combinations of rows: weights, residual, search and direction of conjugate gradients; images are K times them.
  Floats weights_, residual_, image_, search_, search_image_, direction_, direction_image_;
  Floats u_;  // -s (w.x + b bias), of which the loss is
  Floats block_;
  Floats by_feature_;  // a combination of rows itself, where there is no K
  std::vector<float> w_;
  std::vector<double> own_;
};

}  // namespace

bool prefers_gram(const SvmProblem& problem) {
  // Where X is read as often as without, only vectors that are much shorter pay. With 1 in place of 8, Tate-Subjects
  // takes 18.5 in place of 14.8 s.
  return keeps_products(problem.X) || 8 * problem.X.n_rows <= problem.X.n_cols;
}

std::vector<SvmSolution> solve_by_gram(const SvmProblem& problem, int threads, Control& control, int worker) {
  std::vector<SvmSolution> solutions(size(problem.n_labels));
  Shared shared(problem, control, std::max(worker, 0));
  share_panels(shared.labels.size(), threads, control, worker,
               [&](int who) { GramSolver(problem, shared, control, who, solutions.data()).solve(); });
  return solutions;
}

}  // namespace umpteen
