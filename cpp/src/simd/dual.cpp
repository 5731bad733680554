// The innermost loops of training in the dual. Compiled once per instruction set.
#include "lanes.hpp"
#include "umpteen/simd.hpp"

namespace umpteen::UMPTEEN_ISA {
namespace {

/// sum of data[i] * soft(v[indices[i]], limit): the threshold is applied where v is read, so that one array is kept
/// current and not two.
float dot_soft(const std::int32_t* indices, const float* data, std::int64_t n, const float* v, float limit) {
  std::int64_t i = 0;
  float total = 0;
  if (n >= 16) {
    Lanes sums[2] = {broadcast(0), broadcast(0)};
    for (; i + 32 <= n; i += 32)
      for (int j = 0; j < 2; ++j)
        sums[j] = multiply_add(load(data + i + 16 * j), soften(gather(v, indices + i + 16 * j), limit), sums[j]);
    if (i + 16 <= n) {
      sums[0] = multiply_add(load(data + i), soften(gather(v, indices + i), limit), sums[0]);
      i += 16;
    }
    total = sum(add(sums[0], sums[1]));
  }
  for (; i < n; ++i) total = multiply_add(data[i], soften(v[indices[i]], limit), total);
  return total;
}

/// Writes row * kPanelLabels + lane wherever panel[row][lane] > limits[lane], rows rising; returns how many.
std::int64_t find_in_panel(const float* panel, std::int64_t n_rows, const float* limits, std::int32_t* out) {
  static_assert(kPanelLabels == 32);
  std::int32_t* const begin = out;
  const Lanes low = load(limits);
  const Lanes high = load(limits + 16);
  for (std::int64_t row = 0; row < n_rows; ++row) {
    const float* cells = panel + row * kPanelLabels;
    std::uint32_t mask = greater(load(cells), low) | greater(load(cells + 16), high) << 16;
    for (; mask != 0; mask &= mask - 1) *out++ = static_cast<std::int32_t>(row * kPanelLabels + __builtin_ctz(mask));
  }
  return out - begin;
}

}  // namespace

extern const DualKernels kDualKernels;
const DualKernels kDualKernels{dot_soft, find_in_panel};

}  // namespace umpteen::UMPTEEN_ISA
