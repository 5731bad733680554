// The innermost loop of walking down trees. Compiled once per instruction set.
#include "lanes.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

/// One sum per row, so that a row's sum is the same whichever rows are beside it and however the gaps are stored.
template <typename Gap>
std::uint32_t find_sides_of(const ForestNode& node) {
  static_assert(kForestRows == 32);
  const auto* gaps = static_cast<const Gap*>(node.gaps);
  Lanes low = broadcast(0);
  Lanes high = broadcast(0);
  std::uint32_t feature = 0;
  for (std::int64_t k = 0; k < node.n_weights; ++k) {
    feature += gaps[k];
    // Whatever a damaged file says, no read leaves the table.
    const std::uint32_t safe = feature < node.n_slots ? feature : node.n_slots - 1;
    const float* x = node.panel + std::int64_t{node.slots[safe]} * kForestRows;
    const Lanes w = broadcast(half_to_float(node.weights[k]));
    low = multiply_add(w, load(x), low);
    high = multiply_add(w, load(x + 16), high);
  }
  const Lanes zero = broadcast(0);
  return greater(low, zero) | greater(high, zero) << 16;
}

std::uint32_t find_sides(const ForestNode& node) {
  return node.wide ? find_sides_of<std::uint16_t>(node) : find_sides_of<std::uint8_t>(node);
}

}  // namespace

extern const ForestKernels kForestKernels;
const ForestKernels kForestKernels{find_sides};

}  // namespace umpteen::UMPTEEN_ISA
