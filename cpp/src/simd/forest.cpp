// The innermost loops of walking down trees. Compiled once per instruction set.
#include "lanes.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

#if defined(__AVX512F__)

/// Up to sixteen stored weights at a time: their features by a running sum of the gaps, without waiting for each
/// other.
struct Sixteen {
  __mmask16 some;    // which lanes hold one
  __m512i features;  // none above n_features
  const std::uint16_t* halves;

  __m512 weights() const { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, halves)); }
};

inline __m512i load_gaps(__mmask16 some, const std::uint8_t* gaps) {
  return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(some, gaps));
}
inline __m512i load_gaps(__mmask16 some, const std::uint16_t* gaps) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, gaps));
}

template <typename Gap, typename Put>
void for_sixteens(const ForestNode& node, std::uint32_t n_features, const Put& put) {
  const auto* gaps = static_cast<const Gap*>(node.gaps);
  const __m512i zero = _mm512_setzero_si512();
  const __m512i last = _mm512_set1_epi32(15);
  const __m512i most = _mm512_set1_epi32(static_cast<int>(n_features));
  __m512i before = zero;
  for (std::int64_t k = 0; k < node.n_weights; k += 16) {
    const std::int64_t left = node.n_weights - k;
    const auto some = static_cast<__mmask16>(left >= 16 ? 0xffff : (1U << left) - 1);
    __m512i sums = load_gaps(some, gaps + k);
    sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 15));
    sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 14));
    sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 12));
    sums = _mm512_add_epi32(sums, _mm512_alignr_epi32(sums, zero, 8));
    sums = _mm512_add_epi32(sums, before);
    before = _mm512_permutexvar_epi32(last, sums);
    put(k, Sixteen{some, _mm512_min_epu32(sums, most), node.weights + k});
  }
}

template <typename Put>
void for_sixteens(const ForestNode& node, std::uint32_t n_features, const Put& put) {
  if (node.wide)
    for_sixteens<std::uint16_t>(node, n_features, put);
  else
    for_sixteens<std::uint8_t>(node, n_features, put);
}

// Where a damaged file names a feature twice, the later weight stays, as in the loops below.

void spread(const ForestNode& node, std::uint32_t n_features, float* dense, std::uint32_t* places) {
  for_sixteens(node, n_features, [&](std::int64_t k, const Sixteen& found) {
    _mm512_mask_storeu_epi32(places + k, found.some, found.features);
    _mm512_mask_i32scatter_ps(dense, found.some, found.features, found.weights(), 4);
  });
}

/// The weights of a row's features, which rise as those of the node do, and of the constant behind them. Compares
/// rather than gathers: a row has few features beside a node, and gathering took longer where it was measured.
void find_weights(const ForestNode& node, const ForestRow& row, std::uint32_t n_features, float* found) {
  std::int64_t i = 0;
  for_sixteens(node, n_features, [&](std::int64_t, const Sixteen& stored) {
    const auto last = static_cast<std::uint32_t>(
        _mm_extract_epi32(_mm512_extracti32x4_epi32(stored.features, 3), 3));  // of all that are there
    const auto find = [&](std::uint32_t feature, float* weight) {
      const __m512i wanted = _mm512_set1_epi32(static_cast<int>(feature));
      const std::uint32_t here = _mm512_mask_cmpeq_epi32_mask(stored.some, stored.features, wanted);
      if (here != 0) *weight = half_to_float(stored.halves[31 - __builtin_clz(here)]);
    };
    for (; i < row.n && static_cast<std::uint32_t>(row.features[i]) < last; ++i)
      find(static_cast<std::uint32_t>(row.features[i]), found + i);
    // The last may go on in the next sixteen, in a damaged file.
    if (i < row.n && static_cast<std::uint32_t>(row.features[i]) == last) find(last, found + i);
    if (last == n_features) find(n_features, found + row.n);
  });
}

#else

/// Calls put(number, feature, weight) for each stored weight. Even in a damaged file, no feature is above
/// n_features.
template <typename Gap, typename Put>
void for_weights(const ForestNode& node, std::uint32_t n_features, const Put& put) {
  const auto* gaps = static_cast<const Gap*>(node.gaps);
  std::uint32_t feature = 0;
  for (std::int64_t k = 0; k < node.n_weights; ++k) {
    feature += gaps[k];
    put(k, feature < n_features ? feature : n_features, half_to_float(node.weights[k]));
  }
}

template <typename Put>
void for_weights(const ForestNode& node, std::uint32_t n_features, const Put& put) {
  if (node.wide)
    for_weights<std::uint16_t>(node, n_features, put);
  else
    for_weights<std::uint8_t>(node, n_features, put);
}

void spread(const ForestNode& node, std::uint32_t n_features, float* dense, std::uint32_t* places) {
  for_weights(node, n_features, [&](std::int64_t k, std::uint32_t feature, float weight) {
    dense[feature] = weight;
    places[k] = feature;
  });
}

void find_weights(const ForestNode& node, const ForestRow& row, std::uint32_t n_features, float* found) {
  std::int64_t i = 0;
  std::uint32_t next = row.n > 0 ? static_cast<std::uint32_t>(row.features[0]) : n_features;
  for_weights(node, n_features, [&](std::int64_t, std::uint32_t feature, float weight) {
    while (next < feature) {
      ++i;
      next = i < row.n ? static_cast<std::uint32_t>(row.features[i]) : n_features;
    }
    if (next == feature) found[i] = weight;
  });
}

#endif

/// Sixteen sums side by side, then what is left, then the constant.
template <typename Weights>
float score(const ForestRow& row, float constant, const Weights& weights_at) {
  Lanes sums = broadcast(0);
  std::int64_t i = 0;
  for (; i + 16 <= row.n; i += 16) sums = multiply_add(load(row.values + i), weights_at.sixteen(i), sums);
  float total = sum(sums);
  for (; i < row.n; ++i) total = multiply_add(row.values[i], weights_at.one(i), total);
  return multiply_add(row.constant, constant, total);
}

struct SpreadWeights {
  const float* dense;
  const std::int32_t* features;
  Lanes sixteen(std::int64_t i) const { return gather(dense, features + i); }
  float one(std::int64_t i) const { return dense[features[i]]; }
};

struct FoundWeights {
  const float* found;
  Lanes sixteen(std::int64_t i) const { return load(found + i); }
  float one(std::int64_t i) const { return found[i]; }
};

float score_row(const ForestRow& row, std::uint32_t n_features, const float* dense) {
  return score(row, dense[n_features], SpreadWeights{dense, row.features});
}

float score_alone(const ForestRow& row, const ForestNode& node, std::uint32_t n_features, float* found) {
  for (std::int64_t i = 0; i <= row.n; ++i) found[i] = 0;
  find_weights(node, row, n_features, found);
  return score(row, found[row.n], FoundWeights{found});
}

}  // namespace

extern const ForestKernels kForestKernels;
const ForestKernels kForestKernels{spread, score_row, score_alone};

}  // namespace umpteen::UMPTEEN_ISA
