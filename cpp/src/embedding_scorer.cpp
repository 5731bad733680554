#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "half.hpp"
#include "umpteen/aligned.hpp"
#include "umpteen/embedding.hpp"
#include "umpteen/ranking.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kRowsPerItem = 64;
constexpr std::int64_t kBlock = 16;
constexpr std::int64_t kBlocksPerCheck = 1024;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
std::int64_t pad(std::int64_t rank) { return (rank + kEmbeddingLanes - 1) / kEmbeddingLanes * kEmbeddingLanes; }

/// Everything one worker needs.
class NearRowSearcher {
 public:
  NearRowSearcher(const EmbeddingModel& model, const CsrView& X, Control& control, int worker)
      : model_(model), X_(X), control_(control), worker_(worker) {}

  /// The cluster of a learner with the nearest centre; the first one in a tie.
  std::int32_t nearest_cluster(std::int64_t row, std::int64_t learner) const {
    const auto& clusters = model_.learners[at(learner)];
    std::int32_t best = clusters.front();
    if (clusters.size() == 1) return best;
    double most = -std::numeric_limits<double>::infinity();
    for (const std::int32_t c : clusters) {
      const EmbeddingCluster& cluster = model_.clusters[at(c)];
      double closeness = cluster.centre_offset;
      for_entries(cluster, row, [&](std::int64_t kept, float x) { closeness += double{x} * cluster.centre[kept]; });
      if (closeness > most) {
        most = closeness;
        best = c;
      }
    }
    return best;
  }

  /// The row's embedding: pad(rank) floats.
  void embed(const EmbeddingCluster& cluster, std::int64_t row, float* out) const {
    const std::int64_t stride = pad(cluster.rank);
    std::fill_n(out, stride, 0.0F);
    for_entries(cluster, row, [&](std::int64_t kept, float x) {
      kernels_.add_half_row(cluster.V + kept * stride, x, stride, out);
    });
    kernels_.add_half_row(cluster.V + cluster.n_kept * stride, static_cast<float>(model_.bias), stride, out);
    double factor = cluster.scale;
    if (model_.cosine) {
      double squares = 0;
      for (std::int64_t d = 0; d < stride; ++d) squares += double{out[d]} * out[d];
      factor = squares > 0 ? 1 / std::sqrt(squares) : 0;
    }
    for (std::int64_t d = 0; d < stride; ++d) out[d] = static_cast<float>(out[d] * factor);
  }

  /// As find_near_rows, for rows [begin, end); the outputs are those of row `begin`.
  void search(std::int64_t begin, std::int64_t end, std::int32_t* clusters, std::int32_t* rows, float* similarity) {
    const auto n_learners = static_cast<std::int64_t>(model_.learners.size());
    for (std::int64_t learner = 0; learner < n_learners; ++learner) {
      members_.clear();
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int32_t cluster = nearest_cluster(row, learner);
        clusters[(row - begin) * n_learners + learner] = cluster;
        members_.push_back({cluster, row});
      }
      std::sort(members_.begin(), members_.end());
      for (std::size_t first = 0; first < members_.size();) {
        std::size_t last = first;
        while (last < members_.size() && members_[last].first == members_[first].first) ++last;
        search_cluster(first, last);
        for (std::size_t m = first; m < last; ++m) {
          const std::int64_t place = ((members_[m].second - begin) * n_learners + learner) * model_.knn;
          const auto list = static_cast<std::int64_t>(m - first) * model_.knn;
          std::copy_n(found_rows_.data() + list, model_.knn, rows + place);
          std::copy_n(found_.data() + list, model_.knn, similarity + place);
        }
        first = last;
      }
    }
  }

 private:
  /// Calls body(place among the cluster's features, value) for a row's features that the cluster has.
  template <typename Body>
  void for_entries(const EmbeddingCluster& cluster, std::int64_t row, const Body& body) const {
    const std::int64_t begin = X_.indptr[row];
    const std::int64_t end = X_.indptr[row + 1];
    if (cluster.n_kept == model_.n_features) {  // all of them
      for (std::int64_t i = begin; i < end; ++i) body(std::int64_t{X_.indices[i]}, X_.data[i]);
      return;
    }
    const std::int32_t* from = cluster.features;
    const std::int32_t* const last = cluster.features + cluster.n_kept;
    for (std::int64_t i = begin; i < end; ++i) {
      from = std::lower_bound(from, last, X_.indices[i]);
      if (from == last) return;
      if (*from == X_.indices[i]) body(from - cluster.features, X_.data[i]);
    }
  }

  /// The knn nearest of members_[first, last), all of one cluster, into found_ and found_rows_.
  void search_cluster(std::size_t first, std::size_t last) {
    const EmbeddingCluster& cluster = model_.clusters[at(members_[first].first)];
    const auto n = static_cast<std::int64_t>(last - first);
    const std::int64_t stride = pad(cluster.rank);
    const std::int64_t knn = model_.knn;
    queries_.resize(at(n * stride));
    for (std::int64_t q = 0; q < n; ++q) embed(cluster, members_[first + at(q)].second, queries_.data() + q * stride);
    found_.assign(at(n * knn), kNoScore);
    found_rows_.assign(at(n * knn), -1);
    sizes_.assign(at(n), 0);
    block_.resize(at(cluster.rank * kBlock));
    scores_.resize(at(n * kBlock));
    for (std::int64_t b = 0; b * kBlock < cluster.n_rows; ++b) {
      if (b % kBlocksPerCheck == 0) control_.check_in(worker_);
      const std::int64_t base = b * kBlock;
      const std::int64_t here = std::min(kBlock, cluster.n_rows - base);
      float offsets[kBlock] = {};
      std::copy_n(cluster.offsets + base, here, offsets);
      kernels_.widen(cluster.Z + base * cluster.rank, cluster.rank * kBlock, block_.data());
      kernels_.score_block(block_.data(), offsets, cluster.rank, queries_.data(), n, stride, scores_.data());
      const std::uint32_t valid = (1U << here) - 1;
      for (std::int64_t q = 0; q < n; ++q) {
        const float* scores = scores_.data() + q * kBlock;
        // While a list is not full its last place holds -inf.
        std::uint32_t better = kernels_.find_greater(scores, found_[at((q + 1) * knn - 1)]) & valid;
        for (; better != 0; better &= better - 1) {
          const int lane = __builtin_ctz(better);
          insert(q, scores[lane], static_cast<std::int32_t>(base + lane));
        }
      }
    }
  }

  /// Keeps a query's list sorted; rows come in rising order, so an equal one goes after it.
  void insert(std::int64_t q, float score, std::int32_t row) {
    const std::int64_t knn = model_.knn;
    float* list = found_.data() + q * knn;
    std::int32_t* rows = found_rows_.data() + q * knn;
    if (!(score > list[knn - 1])) return;
    std::int64_t& size = sizes_[at(q)];
    std::int64_t place = std::upper_bound(list, list + size, score, std::greater<>()) - list;
    if (size < knn) ++size;
    std::copy_backward(list + place, list + size - 1, list + size);
    std::copy_backward(rows + place, rows + size - 1, rows + size);
    list[place] = score;
    rows[place] = row;
  }

  const EmbeddingModel& model_;
  const CsrView& X_;
  Control& control_;
  const int worker_;
  const EmbeddingKernels& kernels_ = embedding_kernels();
  std::vector<std::pair<std::int32_t, std::int64_t>> members_;  // cluster, row
  AlignedVector<float> queries_, block_, scores_;
  std::vector<float> found_;
  std::vector<std::int32_t> found_rows_;
  std::vector<std::int64_t> sizes_;
};

/// Sums votes and ranks labels.
class Voter {
 public:
  Voter(const EmbeddingModel& model, const std::uint8_t* allowed)
      : model_(model), allowed_(allowed), sums_(at(model.n_labels), 0.0) {}

  void rank(const std::int32_t* clusters, const std::int32_t* rows, const float* similarity, std::int64_t top_k,
            std::int32_t* out_labels, float* out_scores) {
    found_.clear();
    const auto n_learners = static_cast<std::int64_t>(model_.learners.size());
    for (std::int64_t learner = 0; learner < n_learners; ++learner) {
      if (clusters[learner] < 0) continue;
      const EmbeddingCluster& cluster = model_.clusters[at(clusters[learner])];
      for (std::int64_t k = learner * model_.knn; k < (learner + 1) * model_.knn && rows[k] >= 0; ++k) {
        const double near = double{similarity[k]} - double{similarity[learner * model_.knn]};
        const double vote = std::exp(model_.sharpness * near);
        if (cluster.wide_labels)
          add(cluster, rows[k], vote, static_cast<const std::int32_t*>(cluster.labels));
        else
          add(cluster, rows[k], vote, static_cast<const std::uint16_t*>(cluster.labels));
      }
    }
    ranked_.clear();
    for (const std::int32_t label : found_) {
      ranked_.push_back({static_cast<float>(sums_[at(label)]), label});
      sums_[at(label)] = 0;
    }
    write_best(ranked_, top_k, out_labels, out_scores);
  }

 private:
  template <typename Label>
  void add(const EmbeddingCluster& cluster, std::int64_t row, double vote, const Label* labels) {
    for (std::uint32_t i = cluster.label_ptr[row]; i < cluster.label_ptr[row + 1]; ++i) {
      const auto label = static_cast<std::int64_t>(labels[i]);
      if (label < 0 || label >= model_.n_labels || vote == 0) continue;
      if (allowed_ != nullptr && allowed_[label] == 0) continue;
      if (sums_[at(label)] == 0) found_.push_back(static_cast<std::int32_t>(label));
      sums_[at(label)] += vote;
    }
  }

  const EmbeddingModel& model_;
  const std::uint8_t* allowed_;
  std::vector<double> sums_;  // by label; zero between rows
  std::vector<std::int32_t> found_;
  std::vector<Ranked> ranked_;
};

/// Calls body(searcher, worker, begin, end) over pieces of the rows.
void for_rows(const EmbeddingModel& model, const CsrView& X, int threads, Control& control,
              const std::function<void(NearRowSearcher&, int, std::int64_t, std::int64_t)>& body) {
  const std::int64_t share = X.n_rows / (4 * std::max(threads, 1));
  const std::int64_t rows_per_item = std::clamp<std::int64_t>(share, 8, kRowsPerItem);
  const std::int64_t n_items = (X.n_rows + rows_per_item - 1) / rows_per_item;
  std::vector<std::unique_ptr<NearRowSearcher>> searchers(at(clamp_threads(n_items, threads)));
  parallel_for(n_items, threads, control, [&](std::int64_t item, int worker) {
    auto& searcher = searchers[at(worker)];
    if (!searcher) searcher = std::make_unique<NearRowSearcher>(model, X, control, worker);
    const std::int64_t begin = item * rows_per_item;
    body(*searcher, worker, begin, std::min(begin + rows_per_item, X.n_rows));
  });
}

}  // namespace

void embed_rows(const EmbeddingModel& model, std::int64_t learner, const CsrView& X, std::int64_t stride, int threads,
                std::int32_t* clusters, float* out, Control& control) {
  for_rows(model, X, threads, control, [&](NearRowSearcher& searcher, int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      clusters[row] = searcher.nearest_cluster(row, learner);
      std::fill_n(out + row * stride, stride, 0.0F);
      searcher.embed(model.clusters[at(clusters[row])], row, out + row * stride);
    }
  });
}

void find_near_rows(const EmbeddingModel& model, const CsrView& X, int threads, std::int32_t* clusters,
                    std::int32_t* rows, float* similarity, Control& control) {
  const auto n_learners = static_cast<std::int64_t>(model.learners.size());
  for_rows(model, X, threads, control, [&](NearRowSearcher& searcher, int, std::int64_t begin, std::int64_t end) {
    const std::int64_t place = begin * n_learners;
    searcher.search(begin, end, clusters + place, rows + place * model.knn, similarity + place * model.knn);
  });
}

void vote_near_rows(const EmbeddingModel& model, std::int64_t n_rows, const std::int32_t* clusters,
                    const std::int32_t* rows, const float* similarity, std::int64_t top_k,
                    const std::uint8_t* allowed, int threads, std::int32_t* out_labels, float* out_scores,
                    Control& control) {
  const auto n_learners = static_cast<std::int64_t>(model.learners.size());
  const std::int64_t n_items = (n_rows + kRowsPerItem - 1) / kRowsPerItem;
  std::vector<std::unique_ptr<Voter>> voters(at(clamp_threads(n_items, threads)));
  parallel_for(n_items, threads, control, [&](std::int64_t item, int worker) {
    auto& voter = voters[at(worker)];
    if (!voter) voter = std::make_unique<Voter>(model, allowed);
    for (std::int64_t row = item * kRowsPerItem; row < std::min((item + 1) * kRowsPerItem, n_rows); ++row)
      voter->rank(clusters + row * n_learners, rows + row * n_learners * model.knn,
                  similarity + row * n_learners * model.knn, top_k, out_labels + row * top_k,
                  out_scores + row * top_k);
  });
}

void embedding_topk(const EmbeddingModel& model, const CsrView& X, std::int64_t top_k, const std::uint8_t* allowed,
                    int threads, std::int32_t* out_labels, float* out_scores, Control& control) {
  const auto n_learners = static_cast<std::int64_t>(model.learners.size());
  struct Found {
    Voter voter;
    std::vector<std::int32_t> clusters, rows;
    std::vector<float> similarity;
  };
  std::vector<std::unique_ptr<Found>> all(at(clamp_threads(X.n_rows, threads)));
  for_rows(model, X, threads, control,
           [&](NearRowSearcher& searcher, int worker, std::int64_t begin, std::int64_t end) {
             auto& found = all[at(worker)];
             if (!found) {
               found = std::make_unique<Found>(Found{Voter(model, allowed), {}, {}, {}});
               found->clusters.resize(at(kRowsPerItem * n_learners));
               found->rows.resize(at(kRowsPerItem * n_learners * model.knn));
               found->similarity.resize(found->rows.size());
             }
             searcher.search(begin, end, found->clusters.data(), found->rows.data(), found->similarity.data());
             for (std::int64_t row = begin; row < end; ++row) {
               const std::int64_t place = (row - begin) * n_learners;
               found->voter.rank(found->clusters.data() + place, found->rows.data() + place * model.knn,
                                 found->similarity.data() + place * model.knn, top_k, out_labels + row * top_k,
                                 out_scores + row * top_k);
             }
           });
}

}  // namespace umpteen
