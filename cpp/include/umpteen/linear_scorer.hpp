#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/linear_shard.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

/// The top_k labels of every row of X over all shards, best first, ties by lower id, written to out_labels
/// and out_scores (n_rows x top_k); short lists are padded with -1 and -inf. Labels with a score of -inf are
/// left out, and so are those below the row's floor where `floors` (n_rows) has one.
///
/// Rows are scored sixteen side by side where that saves work, else one by one: both add a row's features in
/// rising order with the same operations, so a row's scores do not depend on the rows around it or on the
/// threads. Memory-safe for any content of `labels`; indptr must rise and stay inside the arrays (the caller
/// checks).
void linear_topk(const std::vector<LinearShard>& shards, const CsrView& X, std::int64_t top_k, int threads,
                 std::int32_t* out_labels, float* out_scores, Control& control, const float* floors = nullptr);

/// As linear_topk, of the labels listed for each row, n_candidates, padded with -1; rows of W (n_labels x
/// n_features) are its labels. For lists so short that looking at all labels would be a waste.
void rank_candidates(const CsrView& W, const float* bias, const CsrView& X, const std::int32_t* candidates,
                     std::int64_t n_candidates, std::int64_t top_k, int threads, std::int32_t* out_labels,
                     float* out_scores, Control& control);

/// Two sorted lists of (score, label id) into the best top_k of both: higher score first, then lower id.
struct RankedList {
  float* scores;
  std::int32_t* labels;
  std::int64_t size;
};
void merge_ranked(RankedList& into, const RankedList& from, std::int64_t top_k, float* scratch_scores,
                  std::int32_t* scratch_labels);

}  // namespace umpteen
