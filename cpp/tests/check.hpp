// The smallest test harness that serves: CHECK counts and reports, main returns the verdict.
#pragma once

#include <cstdio>
#include <exception>

inline int n_checks = 0;
inline int n_failures = 0;

#define CHECK(condition)                                                        \
  do {                                                                          \
    ++n_checks;                                                                 \
    if (!(condition)) {                                                         \
      ++n_failures;                                                             \
      std::printf("%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
    }                                                                           \
  } while (false)

/// Checks that an expression throws this type.
#define CHECK_THROWS(expression, Type) \
  do {                                 \
    bool thrown = false;               \
    try {                              \
      (void)(expression);              \
    } catch (const Type&) {            \
      thrown = true;                   \
    }                                  \
    CHECK(thrown);                     \
  } while (false)

inline int report() {
  std::printf("%d checks, %d failures\n", n_checks, n_failures);
  return n_failures == 0 ? 0 : 1;
}
