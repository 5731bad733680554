#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "umpteen/pd_sparse.hpp"

namespace umpteen {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What entries of b and c are lowered by: p and q.
struct Shifts {
  double b;
  double c;
};

/// Follows the common sum t as it rises from 0, piece by piece. With n and m entries positive, p = (sum_b - t) / n
/// and q = (sum_c - t) / m. Both lists fall.
Shifts find_shifts(const std::vector<double>& b, const std::vector<double>& c, double C) {
  if (!(b[0] > -c[0])) return {-c[0], c[0]};  // the sum is 0: nothing is positive
  std::size_t n = 1;
  std::size_t m = 1;
  double sum_b = b[0];
  double sum_c = c[0];
  while (true) {
    const auto n_d = static_cast<double>(n);
    const auto m_d = static_cast<double>(m);
    // The sum at which one more entry becomes positive.
    const double next_b = n < b.size() ? sum_b - n_d * b[n] : kInfinity;
    const double next_c = m < c.size() ? sum_c - m_d * c[m] : kInfinity;
    const double t = std::min((m_d * sum_b + n_d * sum_c) / (n_d + m_d), C);
    if (t <= std::min(next_b, next_c)) return {(sum_b - t) / n_d, (sum_c - t) / m_d};
    if (next_b <= next_c)
      sum_b += b[n++];
    else
      sum_c += c[m++];
  }
}

}  // namespace

double project_two_simplices(double* b, std::int64_t n_b, double* c, std::int64_t n_c, double C) {
  if (n_b == 0 || n_c == 0) {
    std::fill_n(b, n_b, 0.0);
    std::fill_n(c, n_c, 0.0);
    return kInfinity;
  }
  thread_local std::vector<double> sorted_b;
  thread_local std::vector<double> sorted_c;
  sorted_b.assign(b, b + n_b);
  sorted_c.assign(c, c + n_c);
  std::sort(sorted_b.begin(), sorted_b.end(), std::greater<>());
  std::sort(sorted_c.begin(), sorted_c.end(), std::greater<>());
  const Shifts shifts = find_shifts(sorted_b, sorted_c, C);
  for (std::int64_t i = 0; i < n_b; ++i) b[i] = std::max(b[i] - shifts.b, 0.0);
  for (std::int64_t i = 0; i < n_c; ++i) c[i] = std::max(c[i] - shifts.c, 0.0);
  return shifts.b;
}

}  // namespace umpteen
