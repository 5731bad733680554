#include "umpteen/linear_shard.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace umpteen {

std::int64_t count_positions(std::int64_t n_features, std::int64_t n_labels, const std::uint32_t* indptr) {
  std::int64_t n = 0;
  for (std::int64_t f = 0; f < n_features; ++f)
    n += std::min<std::int64_t>(indptr[f + 1] - indptr[f], chunks_of(n_labels));
  return n;
}

void pack_positions(std::int64_t n_features, std::int64_t n_labels, const std::uint32_t* indptr,
                    const std::int32_t* labels, std::uint32_t* position_ptr, std::uint16_t* positions) {
  const std::int64_t n_chunks = chunks_of(n_labels);
  position_ptr[0] = 0;
  for (std::int64_t f = 0; f < n_features; ++f) {
    const std::int32_t* first = labels + indptr[f];
    const std::int64_t nnz = indptr[f + 1] - indptr[f];
    std::uint16_t* out = positions + position_ptr[f];
    if (nnz >= n_chunks) {
      std::fill_n(out, n_chunks, std::uint16_t{0});
      for (std::int64_t i = 0; i < nnz; ++i)
        out[first[i] / 16] = static_cast<std::uint16_t>(out[first[i] / 16] | 1U << first[i] % 16);
    } else {
      for (std::int64_t i = 0; i < nnz; ++i) out[i] = static_cast<std::uint16_t>(first[i]);
    }
    position_ptr[f + 1] = static_cast<std::uint32_t>(position_ptr[f] + std::min(nnz, n_chunks));
  }
}

void unpack_positions(const LinearShard& shard, std::int32_t* labels) {
  const std::int64_t n_chunks = chunks_of(shard.n_labels);
  for (std::int64_t f = 0; f < shard.n_features; ++f) {
    const std::uint16_t* in = shard.positions + shard.position_ptr[f];
    std::int32_t* out = labels + shard.indptr[f];
    std::int32_t* const end = labels + shard.indptr[f + 1];
    if (end - out < n_chunks) {
      while (out < end) *out++ = *in++;
      continue;
    }
    for (std::int64_t chunk = 0; chunk < n_chunks; ++chunk)
      for (unsigned mask = in[chunk]; mask != 0; mask &= mask - 1) {
        if (out == end) throw std::invalid_argument("a shard has more labels than weights");
        *out++ = static_cast<std::int32_t>(chunk * 16 + std::countr_zero(mask));
      }
    if (out != end) throw std::invalid_argument("a shard has fewer labels than weights");
  }
}

}  // namespace umpteen
