#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

constexpr float kNoScore = -std::numeric_limits<float>::infinity();

struct Ranked {
  float score;
  std::int32_t label;
};

/// The order of every ranking: higher scores first, then lower ids.
inline bool is_better(const Ranked& a, const Ranked& b) {
  return a.score != b.score ? a.score > b.score : a.label < b.label;
}

/// Writes the best top_k of a list, best first, -1 and -inf where it has fewer; the list is left in another order.
inline void write_best(std::vector<Ranked>& list, std::int64_t top_k, std::int32_t* labels, float* scores) {
  const std::int64_t n = std::min(top_k, static_cast<std::int64_t>(list.size()));
  std::partial_sort(list.begin(), list.begin() + n, list.end(), is_better);
  for (std::int64_t k = 0; k < top_k; ++k) {
    labels[k] = k < n ? list[static_cast<std::size_t>(k)].label : -1;
    scores[k] = k < n ? list[static_cast<std::size_t>(k)].score : kNoScore;
  }
}

/// hits[i * top_k + r] = 1 where labels[i * top_k + r] is one of row i's labels in Y, else 0. Ids outside Y,
/// such as the -1 that pads a short list, are no hits.
void find_hits(const CsrView& Y, const std::int32_t* labels, std::int64_t top_k, std::uint8_t* hits, int threads,
               Control& control);

}  // namespace umpteen
