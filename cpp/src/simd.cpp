#include "umpteen/simd.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

namespace umpteen {

namespace baseline {
extern const Kernels kKernels;
}
#ifdef UMPTEEN_HAS_avx2
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
#endif

namespace {

std::vector<const Kernels*> runnable() {
  std::vector<const Kernels*> found{&baseline::kKernels};
#ifdef UMPTEEN_HAS_avx2
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    found.push_back(&avx2::kKernels);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      found.push_back(&avx512::kKernels);
  }
#endif
  return found;
}

const Kernels* find(const std::string& name) {
  std::string known;
  for (const Kernels* table : runnable()) {
    if (name == table->name) return table;
    known += std::string(known.empty() ? "" : ", ") + table->name;
  }
  throw std::invalid_argument("the SIMD instruction set must be one this machine runs (" + known + "), but is '" +
                              name + "'");
}

std::atomic<const Kernels*>& current() {
  static std::atomic<const Kernels*> table = [] {
    const char* wanted = std::getenv("UMPTEEN_SIMD");
    return wanted != nullptr && *wanted != '\0' ? find(wanted) : runnable().back();
  }();
  return table;
}

}  // namespace

const Kernels& kernels() { return *current().load(std::memory_order_relaxed); }

std::vector<std::string> available_simd() {
  std::vector<std::string> names;
  for (const Kernels* table : runnable()) names.emplace_back(table->name);
  return names;
}

void use_simd(const std::string& name) { current().store(find(name), std::memory_order_relaxed); }

}  // namespace umpteen
