// What the bindings of one-vs-rest solvers share.
#pragma once

#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "common.hpp"

namespace umpteen {

/// The rows of each label, with one cost per label.
inline CsrView view_labels(const Vector<std::int64_t>& label_indptr, const Vector<std::int32_t>& label_rows,
                           const Vector<float>& positive_cost, std::int64_t n_rows) {
  const CsrView labels = view_csr(label_indptr, label_rows, nullptr, n_rows);
  if (static_cast<std::int64_t>(positive_cost.size()) != labels.n_rows)
    throw std::invalid_argument("there must be one positive_cost per label, but there are " +
                                std::to_string(positive_cost.size()) + " for " + std::to_string(labels.n_rows));
  return labels;
}

/// How many times each row counts; null if all count once.
inline const float* view_row_cost(const std::optional<Vector<float>>& row_cost, std::int64_t n_rows) {
  if (!row_cost) return nullptr;
  if (static_cast<std::int64_t>(row_cost->size()) != n_rows)
    throw std::invalid_argument("there must be one row_cost per row, but there are " +
                                std::to_string(row_cost->size()) + " for " + std::to_string(n_rows));
  for (std::int64_t i = 0; i < n_rows; ++i)
    if (!(row_cost->data()[i] > 0) || !std::isfinite(row_cost->data()[i]))
      throw std::invalid_argument("every row_cost must be finite and above 0");
  return row_cost->data();
}

/// One field of all solutions as an array.
template <typename Solution, typename T>
NumpyVector<T> collect(const std::vector<Solution>& solutions, T Solution::* field) {
  const auto n = static_cast<std::int64_t>(solutions.size());
  auto out = make_array<T>(n);
  for (std::size_t l = 0; l < solutions.size(); ++l) out[l] = solutions[l].*field;
  return to_numpy(std::move(out), n);
}

/// One sparse row per solution, as the data, indices and indptr of a CSR matrix. Frees the rows as it goes: two
/// copies of one label at a time, not of all.
template <typename Solution>
nb::tuple collect_rows(std::vector<Solution>& solutions, std::vector<std::int32_t> Solution::* columns,
                       std::vector<float> Solution::* values) {
  const auto n = static_cast<std::int64_t>(solutions.size());
  auto indptr = make_array<std::int64_t>(n + 1);
  indptr[0] = 0;
  for (std::int64_t l = 0; l < n; ++l)
    indptr[l + 1] = indptr[l] + static_cast<std::int64_t>((solutions[static_cast<std::size_t>(l)].*columns).size());
  const std::int64_t nnz = indptr[n];
  auto indices = make_array<std::int32_t>(nnz);
  auto data = make_array<float>(nnz);
  for (std::int64_t l = 0; l < n; ++l) {
    Solution& s = solutions[static_cast<std::size_t>(l)];
    std::copy((s.*columns).begin(), (s.*columns).end(), indices.get() + indptr[l]);
    std::copy((s.*values).begin(), (s.*values).end(), data.get() + indptr[l]);
    (s.*columns) = {};
    (s.*values) = {};
  }
  return nb::make_tuple(to_numpy(std::move(data), nnz), to_numpy(std::move(indices), nnz),
                        to_numpy(std::move(indptr), n + 1));
}

}  // namespace umpteen
