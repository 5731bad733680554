#pragma once

#include <bit>
#include <cstdint>

namespace umpteen {

/// The nearest float16, ties to even, of a number below 65520 in magnitude.
inline std::uint16_t float_to_half(float value) {
  // Scaled down by 2^112 a float's exponent is a half's, and what are small halves become small floats.
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value * 0x1p-112F);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  return static_cast<std::uint16_t>(((magnitude + 0xfffU + ((magnitude >> 13) & 1U)) >> 13) | (bits >> 16 & 0x8000U));
}

/// The value of a finite float16.
inline float half_to_float(std::uint16_t half) {
  const auto bits = static_cast<std::uint32_t>(half & 0x7fff) << 13 | static_cast<std::uint32_t>(half & 0x8000) << 16;
  return std::bit_cast<float>(bits) * 0x1p112F;
}

}  // namespace umpteen
