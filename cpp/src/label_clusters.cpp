#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

#include "local_rows.hpp"
#include "umpteen/aligned.hpp"
#include "umpteen/label_tree.hpp"
#include "umpteen/random.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Runs body(item, worker) for all items, on this thread or on several.
using Runner = std::function<void(std::int64_t n_items, const std::function<void(std::int64_t, int)>& body)>;

class Clusterer {
 public:
  explicit Clusterer(const ClusterProblem& problem) : problem_(problem), local_(problem.V) {}

  double split(std::int64_t group, std::int32_t* clusters, const Runner& run, int n_workers) {
    const std::int64_t begin = problem_.group_ptr[group];
    n_ = problem_.group_ptr[group + 1] - begin;
    k_ = std::min<std::int64_t>(problem_.n_clusters[group], n_);
    most_ = problem_.most[group];
    clusters_ = clusters + begin;
    std::fill_n(clusters_, n_, 0);
    if (k_ <= 1) return 1;
    local_.gather(problem_.members + begin, n_);
    V_ = local_.view();
    stride_ = (k_ + 15) / 16 * 16;
    directions_.assign(size(V_.n_cols * stride_), 0.0F);
    scores_.resize(size(n_ * stride_));
    sums_.resize(size(n_workers));
    touched_.resize(size(n_workers));
    for (auto& sums : sums_) sums.assign(size(V_.n_cols), 0.0);

    pick_first(problem_.seeds[group]);
    double last = -1;
    for (int i = 0; i < problem_.max_iterations; ++i) {
      score(run);
      const double similarity = most_ < n_ ? assign_up_to_most() : assign();
      if (similarity - last < 1e-4) return std::max(similarity, last);
      last = similarity;
      if (i + 1 < problem_.max_iterations) update(run);
    }
    return last;
  }

 private:
  static constexpr std::int64_t kRowsPerBlock = 64;
  static constexpr std::int64_t kFeaturesPerBlock = 4096;

  /// The first directions are those of k different members.
  void pick_first(std::uint64_t seed) {
    Random random(seed);
    picked_.resize(size(n_));
    std::iota(picked_.begin(), picked_.end(), 0);
    for (std::int64_t c = 0; c < k_; ++c) {
      std::swap(picked_[size(c)], picked_[size(c) + random.below(size(n_ - c))]);
      for (std::int64_t i = V_.indptr[picked_[size(c)]]; i < V_.indptr[picked_[size(c)] + 1]; ++i)
        directions_[size(V_.indices[i] * stride_ + c)] = V_.data[i];
    }
  }

  /// scores_[member][cluster] = member . direction
  void score(const Runner& run) {
    run((n_ + kRowsPerBlock - 1) / kRowsPerBlock, [&](std::int64_t block, int) {
      const std::int64_t begin = block * kRowsPerBlock;
      kernels_.multiply_rows(std::min(kRowsPerBlock, n_ - begin), V_.indptr + begin, V_.indices, V_.data,
                             directions_.data(), stride_, scores_.data() + begin * stride_);
    });
  }

  double assign() {
    double sum = 0;
    for (std::int64_t i = 0; i < n_; ++i) {
      const float* s = scores_.data() + i * stride_;
      const auto best = std::max_element(s, s + k_) - s;
      clusters_[i] = static_cast<std::int32_t>(best);
      sum += s[best];
    }
    return sum / static_cast<double>(n_);
  }

  /// Sorts members by the lead of their best cluster over their second.
  double assign_up_to_most() {
    ahead_.resize(size(n_));
    for (std::int64_t i = 0; i < n_; ++i) {
      const float* s = scores_.data() + i * stride_;
      float first = s[0];
      float second = -2;
      for (std::int64_t c = 1; c < k_; ++c) {
        second = std::max(second, std::min(first, s[c]));
        first = std::max(first, s[c]);
      }
      ahead_[size(i)] = first - second;
      picked_[size(i)] = static_cast<std::int32_t>(i);
    }
    std::stable_sort(picked_.begin(), picked_.begin() + n_,
                     [&](std::int32_t a, std::int32_t b) { return ahead_[size(a)] > ahead_[size(b)]; });
    // With room for no more than the share, the first n % k clusters that are full have one more than the others: all
    // sizes then differ by one at most.
    room_.assign(size(k_), most_);
    std::int64_t larger = most_ > (n_ + k_ - 1) / k_ ? -1 : n_ % k_ == 0 ? k_ : n_ % k_;
    double sum = 0;
    for (std::int64_t r = 0; r < n_; ++r) {
      const std::int64_t i = picked_[size(r)];
      const float* s = scores_.data() + i * stride_;
      std::int64_t best = -1;
      for (std::int64_t c = 0; c < k_; ++c)
        if (room_[size(c)] > 0 && (best < 0 || s[c] > s[best])) best = c;
      clusters_[i] = static_cast<std::int32_t>(best);
      sum += s[best];
      if (--room_[size(best)] == 0 && --larger == 0)
        for (std::int64_t& room : room_) room = std::max<std::int64_t>(room - 1, 0);
    }
    return sum / static_cast<double>(n_);
  }

  /// Directions of the sums of members, cluster by cluster; one without members keeps none.
  void update(const Runner& run) {
    member_ptr_.assign(size(k_) + 1, 0);
    for (std::int64_t i = 0; i < n_; ++i) ++member_ptr_[size(clusters_[i]) + 1];
    std::partial_sum(member_ptr_.begin(), member_ptr_.end(), member_ptr_.begin());
    std::vector<std::int64_t> ends(member_ptr_.begin(), member_ptr_.end() - 1);
    for (std::int64_t i = 0; i < n_; ++i) picked_[size(ends[size(clusters_[i])]++)] = static_cast<std::int32_t>(i);
    run((V_.n_cols + kFeaturesPerBlock - 1) / kFeaturesPerBlock, [&](std::int64_t block, int) {
      const std::int64_t begin = block * kFeaturesPerBlock;
      const std::int64_t end = std::min(begin + kFeaturesPerBlock, V_.n_cols);
      std::fill(directions_.begin() + begin * stride_, directions_.begin() + end * stride_, 0.0F);
    });
    run(k_, [&](std::int64_t c, int worker) {
      std::vector<double>& sums = sums_[size(worker)];
      auto& touched = touched_[size(worker)];
      touched.clear();
      for (std::int64_t m = member_ptr_[size(c)]; m < member_ptr_[size(c) + 1]; ++m)
        for (std::int64_t i = V_.indptr[picked_[size(m)]]; i < V_.indptr[picked_[size(m)] + 1]; ++i) {
          double& sum = sums[size(V_.indices[i])];
          if (sum == 0) touched.emplace_back(V_.indices[i], 0.0);
          sum += V_.data[i];
        }
      double squared = 0;
      for (auto& [f, sum] : touched) {  // one that came back to 0 is here twice, and adds its sum once
        std::swap(sum, sums[size(f)]);
        squared += sum * sum;
      }
      const double share = squared > 0 ? 1 / std::sqrt(squared) : 0;
      for (const auto& [f, sum] : touched)
        if (sum != 0) directions_[size(f * stride_ + c)] = static_cast<float>(sum * share);
    });
  }

  const ClusterProblem& problem_;
  LocalRows local_;
  CsrView V_{};
  std::int64_t n_ = 0, k_ = 0, most_ = 0, stride_ = 0;
  std::int32_t* clusters_ = nullptr;
  const EmbeddingKernels& kernels_ = embedding_kernels();
  AlignedVector<float> directions_, scores_;                           // n_features x stride, n x stride
  std::vector<std::vector<double>> sums_;                              // by worker
  std::vector<std::vector<std::pair<std::int32_t, double>>> touched_;  // features of a cluster, and their sums
  std::vector<std::int32_t> picked_;
  std::vector<float> ahead_;
  std::vector<std::int64_t> room_, member_ptr_;
};

}  // namespace

void cluster_labels(const ClusterProblem& problem, int threads, Control& control, std::int32_t* clusters,
                    double* similarity) {
  std::vector<std::unique_ptr<Clusterer>> workers(size(std::max(threads, 1)));
  const auto clusterer = [&](int worker) -> Clusterer& {
    auto& mine = workers[size(worker)];
    if (!mine) mine = std::make_unique<Clusterer>(problem);
    return *mine;
  };
  if (problem.n_groups < 2 * threads) {
    const Runner together = [&](std::int64_t n, const std::function<void(std::int64_t, int)>& body) {
      parallel_for(n, threads, control, body);
    };
    for (std::int64_t g = 0; g < problem.n_groups; ++g)
      similarity[g] = clusterer(0).split(g, clusters, together, std::max(threads, 1));
    return;
  }
  parallel_for(problem.n_groups, threads, control, [&](std::int64_t g, int worker) {
    const Runner alone = [&](std::int64_t n, const std::function<void(std::int64_t, int)>& body) {
      for (std::int64_t item = 0; item < n; ++item) body(item, 0);
      control.check_in(worker);
    };
    similarity[g] = clusterer(worker).split(g, clusters, alone, 1);
  });
}

}  // namespace umpteen
