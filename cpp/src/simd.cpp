#include "umpteen/simd.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

namespace umpteen {

namespace baseline {
extern const Kernels kKernels;
extern const NewtonKernels kNewtonKernels;
extern const DualKernels kDualKernels;
extern const PanelKernels kPanelKernels;
extern const L1Kernels<std::uint16_t> kNarrowL1Kernels;
extern const L1Kernels<std::int32_t> kL1Kernels;
extern const ForestKernels kForestKernels;
extern const EmbeddingKernels kEmbeddingKernels;
}  // namespace baseline
#ifdef UMPTEEN_HAS_avx2
namespace avx2 {
extern const Kernels kKernels;
extern const NewtonKernels kNewtonKernels;
extern const DualKernels kDualKernels;
extern const PanelKernels kPanelKernels;
extern const L1Kernels<std::uint16_t> kNarrowL1Kernels;
extern const L1Kernels<std::int32_t> kL1Kernels;
extern const ForestKernels kForestKernels;
extern const EmbeddingKernels kEmbeddingKernels;
}  // namespace avx2
namespace avx512 {
extern const Kernels kKernels;
extern const NewtonKernels kNewtonKernels;
extern const DualKernels kDualKernels;
extern const PanelKernels kPanelKernels;
extern const L1Kernels<std::uint16_t> kNarrowL1Kernels;
extern const L1Kernels<std::int32_t> kL1Kernels;
extern const ForestKernels kForestKernels;
extern const EmbeddingKernels kEmbeddingKernels;
}  // namespace avx512
#endif

namespace {

/// All the tables of one instruction set.
struct Tables {
  const Kernels* scoring;
  const NewtonKernels* newton;
  const DualKernels* dual;
  const PanelKernels* panel;
  const L1Kernels<std::uint16_t>* narrow_l1;
  const L1Kernels<std::int32_t>* l1;
  const ForestKernels* forest;
  const EmbeddingKernels* embedding;
};

std::vector<Tables> runnable() {
  std::vector<Tables> found{{&baseline::kKernels, &baseline::kNewtonKernels, &baseline::kDualKernels,
                             &baseline::kPanelKernels, &baseline::kNarrowL1Kernels, &baseline::kL1Kernels,
                             &baseline::kForestKernels, &baseline::kEmbeddingKernels}};
#ifdef UMPTEEN_HAS_avx2
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
      __builtin_cpu_supports("f16c")) {
    found.push_back({&avx2::kKernels, &avx2::kNewtonKernels, &avx2::kDualKernels, &avx2::kPanelKernels,
                     &avx2::kNarrowL1Kernels, &avx2::kL1Kernels, &avx2::kForestKernels, &avx2::kEmbeddingKernels});
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      found.push_back({&avx512::kKernels, &avx512::kNewtonKernels, &avx512::kDualKernels, &avx512::kPanelKernels,
                       &avx512::kNarrowL1Kernels, &avx512::kL1Kernels, &avx512::kForestKernels,
                       &avx512::kEmbeddingKernels});
  }
#endif
  return found;
}

/// The place of an instruction set among those that run here.
std::size_t find(const std::string& name) {
  const std::vector<Tables> all = runnable();
  std::string known;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (name == all[i].scoring->name) return i;
    known += std::string(known.empty() ? "" : ", ") + all[i].scoring->name;
  }
  throw std::invalid_argument("the SIMD instruction set must be one this machine runs (" + known + "), but is '" +
                              name + "'");
}

std::atomic<std::size_t>& current() {
  static std::atomic<std::size_t> place = [] {
    const char* wanted = std::getenv("UMPTEEN_SIMD");
    return wanted != nullptr && *wanted != '\0' ? find(wanted) : runnable().size() - 1;
  }();
  return place;
}

const Tables& tables() {
  static const std::vector<Tables> all = runnable();
  return all[current().load(std::memory_order_relaxed)];
}

}  // namespace

const Kernels& kernels() { return *tables().scoring; }
const NewtonKernels& newton_kernels() { return *tables().newton; }
const DualKernels& dual_kernels() { return *tables().dual; }
const PanelKernels& panel_kernels() { return *tables().panel; }
template <>
const L1Kernels<std::uint16_t>& l1_kernels() {
  return *tables().narrow_l1;
}
template <>
const L1Kernels<std::int32_t>& l1_kernels() {
  return *tables().l1;
}
const ForestKernels& forest_kernels() { return *tables().forest; }
const EmbeddingKernels& embedding_kernels() { return *tables().embedding; }

std::vector<std::string> available_simd() {
  std::vector<std::string> names;
  for (const Tables& table : runnable()) names.emplace_back(table.scoring->name);
  return names;
}

void use_simd(const std::string& name) { current().store(find(name), std::memory_order_relaxed); }

}  // namespace umpteen
