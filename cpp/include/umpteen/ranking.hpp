#pragma once

#include <cstdint>

#include "umpteen/csr.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

/// hits[i * top_k + r] = 1 where labels[i * top_k + r] is one of row i's labels in Y, else 0. Ids outside Y,
/// such as the -1 that pads a short list, are no hits.
void find_hits(const CsrView& Y, const std::int32_t* labels, std::int64_t top_k, std::uint8_t* hits, int threads,
               Control& control);

}  // namespace umpteen
