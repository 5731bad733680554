#include "umpteen/linear_scorer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "umpteen/aligned.hpp"
#include "umpteen/ranking.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

constexpr std::int64_t kMaxLabelsPerShard = 65536;
constexpr std::int64_t kMaxRowsPerItem = 128;
constexpr std::int32_t kMinTile = 512;   // x 16 rows x 4 bytes: 32 KB, the first-level cache
constexpr std::int32_t kMaxTile = 8192;  // 512 KB, the second
constexpr std::int32_t kFewestDense = 16;
constexpr std::int64_t kMostSpread = 1 << 22;  // 16 MB of dense weights per worker

/// Sixteen rows gathered into a panel.
struct Panel {
  std::vector<std::int32_t> features;
  AlignedVector<float> x;
  AlignedVector<float> scaled;  // x * shard.scale
  std::vector<const std::uint16_t*> labels;
  std::vector<std::uint32_t> cursors;
};

/// How a shard is scored for the rows of a panel.
enum class Way {
  kRows,           // row by row
  kPanel,          // all at once
  kRowsThenDense,  // row by row, but the last, dense features of all at once
};

/// Everything one worker needs, allocated once per call.
class Scorer {
 public:
  Scorer(const std::vector<LinearShard>& shards, const CsrView& X, std::int64_t top_k, const float* floors,
         Control& control, int worker)
      : shards_(shards),
        X_(X),
        top_k_(top_k),
        floors_(floors),
        control_(control),
        worker_(worker),
        local_scores_(static_cast<std::size_t>(kPanelRows * top_k)),
        local_positions_(local_scores_.size()),
        merged_scores_(static_cast<std::size_t>(top_k)),
        merged_labels_(static_cast<std::size_t>(top_k)) {}

  /// Scores rows [begin, end), shard by shard so that a shard stays in cache over the rows.
  void score_rows(std::int64_t begin, std::int64_t end, std::int32_t* out_labels, float* out_scores) {
    std::fill(out_labels + begin * top_k_, out_labels + end * top_k_, -1);
    std::fill(out_scores + begin * top_k_, out_scores + end * top_k_, kNoScore);
    sizes_.assign(static_cast<std::size_t>(end - begin), 0);
    const std::int64_t n_panels = (end - begin + kPanelRows - 1) / kPanelRows;
    panels_.resize(static_cast<std::size_t>(n_panels));
    for (std::int64_t p = 0; p < n_panels; ++p) {
      const std::int64_t first = begin + p * kPanelRows;
      build_panel(first, std::min(first + kPanelRows, end), panels_[static_cast<std::size_t>(p)]);
    }
    for (const LinearShard& shard : shards_) {
      n_dense_ = count_dense(shard);
      spread_ready_ = false;
      for (std::int64_t p = 0; p < n_panels; ++p) {
        control_.check_in(worker_);
        const std::int64_t first = begin + p * kPanelRows;
        const auto n_rows = static_cast<int>(std::min<std::int64_t>(kPanelRows, end - first));
        open_lists(first - begin, n_rows, floors_ == nullptr ? nullptr : floors_ + first,
                   out_scores + first * top_k_);
        Panel& panel = panels_[static_cast<std::size_t>(p)];
        switch (choose_way(shard, panel, first, first + n_rows)) {
          case Way::kRows:
            for (int r = 0; r < n_rows; ++r) score_row(shard, first + r, lists_[r]);
            break;
          case Way::kPanel:
            score_panel(shard, panel, n_rows);
            break;
          case Way::kRowsThenDense:
            score_rows_then_dense(shard, panel, first, n_rows);
            break;
        }
        close_lists(shard, first - begin, n_rows, out_labels + first * top_k_, out_scores + first * top_k_);
      }
    }
  }

 private:
  /// Gathers rows into a panel; of too few rows it stays empty.
  void build_panel(std::int64_t begin, std::int64_t end, Panel& panel) {
    panel.features.clear();
    if (end - begin < 4) return;
    if (slots_.empty()) slots_.assign(static_cast<std::size_t>(X_.n_cols), -1);
    for (std::int64_t i = X_.indptr[begin]; i < X_.indptr[end]; ++i) {
      std::int32_t& slot = slots_[static_cast<std::size_t>(X_.indices[i])];
      if (slot < 0) panel.features.push_back(X_.indices[i]);
      slot = 0;
    }
    std::sort(panel.features.begin(), panel.features.end());
    const std::size_t n = panel.features.size();
    for (std::size_t f = 0; f < n; ++f)
      slots_[static_cast<std::size_t>(panel.features[f])] = static_cast<std::int32_t>(f);
    panel.x.assign(n * kPanelRows, 0.0F);
    panel.scaled.resize(n * kPanelRows);
    panel.cursors.resize(n);
    panel.labels.resize(n);
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t i = X_.indptr[row]; i < X_.indptr[row + 1]; ++i) {
        const std::int32_t slot = slots_[static_cast<std::size_t>(X_.indices[i])];
        panel.x[static_cast<std::size_t>(slot * kPanelRows + (row - begin))] = X_.data[i];
      }
    for (const std::int32_t f : panel.features) slots_[static_cast<std::size_t>(f)] = -1;
  }

  /// How many of a shard's last features have weights for most labels, such as those of a dense block.
  static std::int32_t count_dense(const LinearShard& shard) {
    const std::int64_t n_chunks = chunks_of(shard.n_labels);
    const std::int64_t most = std::min(shard.n_features, kMostSpread / std::max<std::int64_t>(16 * n_chunks, 1));
    std::int32_t n = 0;
    while (n < most) {
      const std::int64_t nnz = count_weights(shard, static_cast<std::int32_t>(shard.n_features - 1 - n));
      if (nnz < n_chunks || 2 * nnz < shard.n_labels) break;
      ++n;
    }
    return n < kFewestDense ? 0 : n;
  }

  /// How many of the panel's features are the shard's dense ones: all of them, or none.
  std::int32_t count_dense(const LinearShard& shard, const Panel& panel) const {
    const std::size_t n = panel.features.size();
    const auto n_dense = static_cast<std::size_t>(n_dense_);
    const bool all = n_dense > 0 && n >= n_dense && panel.features[n - n_dense] == shard.n_features - n_dense_;
    return all ? n_dense_ : 0;
  }

  /// Which way is cheapest for this shard and the rows of the panel. In cycles, measured: a weight of a list takes 2
  /// for a row and 3 for a panel; a mask, with all its weights, row_mask_cycles for a row, and for a panel 3 for each
  /// of its weights after 6 for spelling it out; a dense feature 1 for each label, and what rows have summed before
  /// it 1 for each label and row.
  Way choose_way(const LinearShard& shard, const Panel& panel, std::int64_t begin, std::int64_t end) const {
    if (panel.features.empty()) return Way::kRows;
    const std::int64_t n_chunks = chunks_of(shard.n_labels);
    const std::int64_t n_dense = count_dense(shard, panel);
    const std::int64_t first_dense = shard.n_features - n_dense;
    std::int64_t sparse_by_row = 0;
    std::int64_t dense_by_row = 0;
    for (std::int64_t i = X_.indptr[begin]; i < X_.indptr[end]; ++i) {
      const std::int64_t cycles =
          std::min(2 * count_weights(shard, X_.indices[i]), kernels_.row_mask_cycles * n_chunks);
      (X_.indices[i] < first_dense ? sparse_by_row : dense_by_row) += cycles;
    }
    std::int64_t sparse_by_panel = 0;
    for (std::size_t i = 0; i < panel.features.size() - static_cast<std::size_t>(n_dense); ++i) {
      const std::int64_t nnz = count_weights(shard, panel.features[i]);
      sparse_by_panel += 3 * nnz + (nnz >= n_chunks ? 6 * n_chunks : 0);
    }
    const std::int64_t dense_by_panel = n_dense * shard.n_labels;
    const std::int64_t rows = sparse_by_row + dense_by_row;
    const std::int64_t panels = sparse_by_panel + dense_by_panel;
    const std::int64_t both = sparse_by_row + (end - begin) * shard.n_labels + dense_by_panel;
    if (n_dense > 0 && both < std::min(rows, panels)) return Way::kRowsThenDense;
    return panels < rows ? Way::kPanel : Way::kRows;
  }

  static std::int64_t count_weights(const LinearShard& shard, std::int32_t feature) {
    return std::int64_t{shard.indptr[feature + 1]} - shard.indptr[feature];
  }

  /// Finds the labels of the panel's first n features in this shard, spelling out masks.
  void list_labels(const LinearShard& shard, std::size_t n, Panel& panel) {
    const std::int64_t n_chunks = chunks_of(shard.n_labels);
    std::int64_t size = 16;
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t nnz = count_weights(shard, panel.features[i]);
      if (nnz >= n_chunks) size += nnz;
    }
    if (static_cast<std::int64_t>(spelled_.size()) < size) spelled_.resize(static_cast<std::size_t>(size));
    std::uint16_t* out = spelled_.data();
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t f = panel.features[i];
      const std::int64_t nnz = count_weights(shard, f);
      panel.labels[i] = shard.positions + shard.position_ptr[f];
      if (nnz < n_chunks) continue;
      kernels_.list_labels(panel.labels[i], n_chunks, nnz, out);
      panel.labels[i] = out;
      out += nnz;
    }
  }

  /// Tiles large enough that an average run within a tile is worth its start-up, small enough for the cache.
  static std::int32_t tile_size_for(const LinearShard& shard) {
    const double runs = static_cast<double>(shard.n_features) * shard.n_labels;
    const double density = static_cast<double>(shard.indptr[shard.n_features]) / std::max(runs, 1.0);
    const double wanted = density > 0 ? 8 / density : kMaxTile;
    const auto tile = static_cast<std::uint32_t>(std::clamp<double>(wanted, kMinTile, kMaxTile));
    const auto whole = static_cast<std::uint32_t>(std::max(shard.n_labels, 16));
    return static_cast<std::int32_t>(std::min(std::bit_ceil(tile), std::bit_ceil(whole)));
  }

  void score_panel(const LinearShard& shard, Panel& panel, int n_rows) {
    const std::int32_t n_dense = count_dense(shard, panel);
    const std::size_t n_sparse = panel.features.size() - static_cast<std::size_t>(n_dense);
    list_labels(shard, n_sparse, panel);
    if (n_dense > 0) spread(shard);
    const std::int32_t tile_size = tile_size_for(shard);
    const std::size_t n_acc = static_cast<std::size_t>(tile_size) * kPanelRows;
    if (acc_.size() < n_acc) acc_.resize(n_acc);
    const float* const scaled = scale_panel(shard, panel);
    for (std::size_t f = 0; f < n_sparse; ++f) panel.cursors[f] = 0;
    const RowPanel rows{static_cast<std::int64_t>(n_sparse), panel.features.data(), scaled, panel.labels.data(),
                        panel.cursors.data()};
    for (std::int32_t begin = 0; begin < shard.n_labels; begin += tile_size) {
      const std::int32_t n_labels = std::min(tile_size, shard.n_labels - begin);
      for (std::int32_t l = 0; l < n_labels; ++l)
        std::fill_n(acc_.data() + static_cast<std::ptrdiff_t>(l) * kPanelRows, kPanelRows, shard.bias[begin + l]);
      kernels_.add_panel(shard, rows, begin, tile_size, acc_.data());
      for (std::int32_t l = 0; n_dense > 0 && l < n_labels; l += 16)
        kernels_.add_spread(spread_.data() + std::ptrdiff_t{(begin + l) / 16} * n_dense * 16,
                            scaled + n_sparse * kPanelRows, n_dense, acc_.data() + std::ptrdiff_t{l} * kPanelRows);
      kernels_.select_panel(acc_.data(), begin, n_labels, n_rows, lists_);
    }
  }

  /// Sums the sparse features row by row, then the dense ones for all rows at once: the same sums in the same order.
  void score_rows_then_dense(const LinearShard& shard, Panel& panel, std::int64_t first_row, int n_rows) {
    const std::int32_t n_dense = count_dense(shard, panel);
    const auto first_dense = static_cast<std::int32_t>(shard.n_features - n_dense);
    spread(shard);
    const float* const dense =
        scale_panel(shard, panel) + (panel.features.size() - static_cast<std::size_t>(n_dense)) * kPanelRows;
    const std::size_t n_acc = static_cast<std::size_t>(chunks_of(shard.n_labels)) * 16 * kPanelRows;
    if (panel_acc_.size() < n_acc) panel_acc_.resize(n_acc);
    for (int r = 0; r < n_rows; ++r) {
      const std::int32_t* const begin = X_.indices + X_.indptr[first_row + r];
      const std::int32_t* const end = X_.indices + X_.indptr[first_row + r + 1];
      add_row(shard, first_row + r, std::lower_bound(begin, end, first_dense) - begin);
      float* cell = panel_acc_.data() + r;
      for (std::int32_t l = 0; l < shard.n_labels; ++l, cell += kPanelRows) *cell = acc_[static_cast<std::size_t>(l)];
    }
    for (std::int32_t l = 0; l < shard.n_labels; l += 16)
      kernels_.add_spread(spread_.data() + std::ptrdiff_t{l / 16} * n_dense * 16, dense, n_dense,
                          panel_acc_.data() + std::ptrdiff_t{l} * kPanelRows);
    kernels_.select_panel(panel_acc_.data(), 0, shard.n_labels, n_rows, lists_);
  }

  static const float* scale_panel(const LinearShard& shard, Panel& panel) {
    for (std::size_t i = 0; i < panel.x.size(); ++i) panel.scaled[i] = panel.x[i] * shard.scale;
    return panel.scaled.data();
  }

  /// Lays out the weights of a shard's dense features, once for all panels of an item.
  void spread(const LinearShard& shard) {
    if (spread_ready_) return;
    const std::int64_t size = chunks_of(shard.n_labels) * n_dense_ * 16;
    if (static_cast<std::int64_t>(spread_.size()) < size) spread_.resize(static_cast<std::size_t>(size));
    kernels_.spread_weights(shard, static_cast<std::int32_t>(shard.n_features - n_dense_), n_dense_, spread_.data());
    spread_ready_ = true;
  }

  void score_row(const LinearShard& shard, std::int64_t row, TopList& list) {
    add_row(shard, row, X_.indptr[row + 1] - X_.indptr[row]);
    kernels_.select_row(acc_.data(), shard.n_labels, list);
  }

  /// Sums the first entries of a row.
  void add_row(const LinearShard& shard, std::int64_t row, std::int64_t n_entries) {
    // A corrupt label is any 16-bit number: with room for all of them no check is needed.
    if (acc_.size() < kMaxLabelsPerShard) acc_.resize(kMaxLabelsPerShard);
    std::copy_n(shard.bias, shard.n_labels, acc_.data());
    const std::int64_t begin = X_.indptr[row];
    kernels_.add_row(shard, n_entries, X_.indices + begin, X_.data + begin, acc_.data());
  }

  /// Empty lists for this shard, whose threshold is what the shards before it already reached: a score must
  /// at least equal the row's current last place, since an equal score with a lower id still wins; and its floor.
  void open_lists(std::int64_t first_row, int n_rows, const float* floors, const float* out_scores) {
    for (int r = 0; r < n_rows; ++r) {
      const bool full = sizes_[static_cast<std::size_t>(first_row + r)] == top_k_;
      float last = full ? out_scores[(r + 1) * top_k_ - 1] : kNoScore;
      if (floors != nullptr) last = std::max(last, floors[r]);
      lists_[r] = TopList{local_scores_.data() + r * top_k_, local_positions_.data() + r * top_k_,
                          static_cast<std::int32_t>(top_k_), 0, std::nextafter(last, kNoScore)};
    }
  }

  void close_lists(const LinearShard& shard, std::int64_t first_row, int n_rows, std::int32_t* out_labels,
                   float* out_scores) {
    for (int r = 0; r < n_rows; ++r) {
      const TopList& list = lists_[r];
      if (list.size == 0) continue;
      for (std::int32_t i = 0; i < list.size; ++i) list.positions[i] = shard.label_ids[list.positions[i]];
      auto& size = sizes_[static_cast<std::size_t>(first_row + r)];
      RankedList into{out_scores + r * top_k_, out_labels + r * top_k_, size};
      merge_ranked(into, {list.scores, list.positions, list.size}, top_k_, merged_scores_.data(),
                   merged_labels_.data());
      size = into.size;
    }
  }

  const std::vector<LinearShard>& shards_;
  const CsrView& X_;
  const std::int64_t top_k_;
  const float* const floors_;
  Control& control_;
  const int worker_;
  const Kernels& kernels_ = kernels();
  std::vector<float> local_scores_;
  std::vector<std::int32_t> local_positions_;
  std::vector<float> merged_scores_;
  std::vector<std::int32_t> merged_labels_;
  std::vector<std::int32_t> slots_;  // feature -> its place in the panel being built, -1 if none
  std::vector<Panel> panels_;
  std::vector<std::uint16_t> spelled_;  // labels of the runs a panel reads as masks
  AlignedVector<float> acc_;
  AlignedVector<float> panel_acc_;
  std::int32_t n_dense_ = 0;     // of the shard at hand, last features with weights for most labels
  AlignedVector<float> spread_;  // their weights, by 16 labels, feature and label
  bool spread_ready_ = false;
  std::vector<std::int64_t> sizes_;  // how many labels each row's output list holds
  TopList lists_[kPanelRows];
};

}  // namespace

void merge_ranked(RankedList& into, const RankedList& from, std::int64_t top_k, float* scratch_scores,
                  std::int32_t* scratch_labels) {
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t n = 0;
  for (; n < top_k && (a < into.size || b < from.size); ++n) {
    const bool take_a =
        b >= from.size || (a < into.size && (into.scores[a] > from.scores[b] ||
                                             (into.scores[a] == from.scores[b] && into.labels[a] < from.labels[b])));
    scratch_scores[n] = take_a ? into.scores[a] : from.scores[b];
    scratch_labels[n] = take_a ? into.labels[a] : from.labels[b];
    ++(take_a ? a : b);
  }
  std::copy_n(scratch_scores, n, into.scores);
  std::copy_n(scratch_labels, n, into.labels);
  into.size = n;
}

void linear_topk(const std::vector<LinearShard>& shards, const CsrView& X, std::int64_t top_k, int threads,
                 std::int32_t* out_labels, float* out_scores, Control& control, const float* floors) {
  // A few items per thread for balance, each a whole number of panels.
  const std::int64_t share = X.n_rows / (4 * std::max(threads, 1)) / kPanelRows * kPanelRows;
  const std::int64_t rows_per_item = std::clamp<std::int64_t>(share, kPanelRows, kMaxRowsPerItem);
  const std::int64_t n_items = (X.n_rows + rows_per_item - 1) / rows_per_item;
  std::vector<std::unique_ptr<Scorer>> scorers(static_cast<std::size_t>(clamp_threads(n_items, threads)));
  parallel_for(n_items, threads, control, [&](std::int64_t item, int worker) {
    auto& scorer = scorers[static_cast<std::size_t>(worker)];
    if (!scorer) scorer = std::make_unique<Scorer>(shards, X, top_k, floors, control, worker);
    const std::int64_t begin = item * rows_per_item;
    scorer->score_rows(begin, std::min(begin + rows_per_item, X.n_rows), out_labels, out_scores);
  });
}

void rank_candidates(const CsrView& W, const float* bias, const CsrView& X, const std::int32_t* candidates,
                     std::int64_t n_candidates, std::int64_t top_k, int threads, std::int32_t* out_labels,
                     float* out_scores, Control& control) {
  constexpr std::int64_t kRowsPerItem = 16;
  struct Scratch {
    AlignedVector<float> x;  // the row, dense; all 0 between rows
    std::vector<Ranked> ranked;
  };
  const NewtonKernels& kernels = newton_kernels();
  const std::int64_t n_items = (X.n_rows + kRowsPerItem - 1) / kRowsPerItem;
  std::vector<Scratch> scratch(static_cast<std::size_t>(clamp_threads(n_items, threads)));
  parallel_for(n_items, threads, control, [&](std::int64_t item, int worker) {
    auto& [x, ranked] = scratch[static_cast<std::size_t>(worker)];
    if (x.empty()) x.assign(static_cast<std::size_t>(X.n_cols), 0.0F);
    for (std::int64_t row = item * kRowsPerItem; row < std::min((item + 1) * kRowsPerItem, X.n_rows); ++row) {
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i)
        x[static_cast<std::size_t>(X.indices[i])] = X.data[i];
      ranked.clear();
      for (std::int64_t k = row * n_candidates; k < (row + 1) * n_candidates; ++k) {
        const std::int32_t label = candidates[k];
        if (label < 0) continue;
        const std::int64_t begin = W.indptr[label];
        const float score = bias[label] + kernels.dot_sparse(W.indices + begin, W.data + begin,
                                                             W.indptr[label + 1] - begin, x.data());
        if (score > kNoScore) ranked.push_back({score, label});
      }
      for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) x[static_cast<std::size_t>(X.indices[i])] = 0;
      write_best(ranked, top_k, out_labels + row * top_k, out_scores + row * top_k);
    }
    control.check_in(worker);
  });
}

}  // namespace umpteen
