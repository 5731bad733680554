#pragma once

#include <cstdint>

#include "umpteen/csr.hpp"

namespace umpteen {

/// Walks the rows in the given order and moves each to the held-out part unless one of its labels would then
/// have fewer than `keep` rows left; stops at n_heldout rows. Sets heldout[row] to 1 or 0 and returns how
/// many were moved.
std::int64_t hold_out_rows(const CsrView& Y, const std::int64_t* order, std::int64_t n_heldout, std::int64_t keep,
                           std::uint8_t* heldout);

}  // namespace umpteen
