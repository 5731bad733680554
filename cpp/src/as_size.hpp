#pragma once

#include <cstddef>
#include <cstdint>

namespace umpteen {

/// A count or place that is known not to be negative, as the standard containers take it.
constexpr std::size_t as_size(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace umpteen
