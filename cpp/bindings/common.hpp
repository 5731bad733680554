// What every register_*.cpp shares: array types, owned results, sparse matrices checked at the edge, Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "umpteen/csr.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen {

namespace nb = nanobind;

template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using NumpyVector = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;
template <typename T>
using NumpyMatrix = nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig>;

/// Hands an array to Python, which frees it.
template <typename T>
NumpyVector<T> to_numpy(std::unique_ptr<T[]> array, std::int64_t size) {
  T* data = array.release();
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return NumpyVector<T>(data, {static_cast<std::size_t>(size)}, owner);
}

template <typename T>
NumpyMatrix<T> to_numpy(std::unique_ptr<T[]> array, std::int64_t n_rows, std::int64_t n_cols) {
  T* data = array.release();
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return NumpyMatrix<T>(data, {static_cast<std::size_t>(n_rows), static_cast<std::size_t>(n_cols)}, owner);
}

template <typename T>
std::unique_ptr<T[]> make_array(std::int64_t size) {
  return std::unique_ptr<T[]>(new T[static_cast<std::size_t>(size)]);
}

template <typename T>
NumpyVector<T> copy_to_numpy(const std::vector<T>& values) {
  auto out = make_array<T>(static_cast<std::int64_t>(values.size()));
  std::copy(values.begin(), values.end(), out.get());
  return to_numpy(std::move(out), static_cast<std::int64_t>(values.size()));
}

/// A view of SciPy's arrays. Throws where a kernel would read out of bounds; costs one pass over the indices.
inline CsrView view_csr(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices, const float* data,
                        std::int64_t n_cols) {
  if (indptr.size() == 0) throw std::invalid_argument("a CSR matrix's indptr must not be empty");
  const auto n_rows = static_cast<std::int64_t>(indptr.size()) - 1;
  const std::int64_t* p = indptr.data();
  bool good = p[0] == 0 && p[n_rows] == static_cast<std::int64_t>(indices.size());
  for (std::int64_t row = 0; good && row < n_rows; ++row) good = p[row] <= p[row + 1];
  if (!good) throw std::invalid_argument("a CSR matrix's indptr must rise from 0 to the number of its indices");
  const std::int32_t* columns = indices.data();
  std::int32_t lowest = 0;
  std::int32_t highest = -1;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    lowest = columns[i] < lowest ? columns[i] : lowest;
    highest = columns[i] > highest ? columns[i] : highest;
  }
  if (lowest < 0 || highest >= n_cols)
    throw std::out_of_range("a CSR matrix's column indices must be in [0, " + std::to_string(n_cols) +
                            "), but one is " + std::to_string(lowest < 0 ? lowest : highest));
  return {n_rows, n_cols, p, columns, data};
}

inline CsrView view_csr(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices,
                        const Vector<float>& data, std::int64_t n_cols) {
  if (data.size() != indices.size())
    throw std::invalid_argument("a CSR matrix must have the same number of values and indices, but has " +
                                std::to_string(data.size()) + " and " + std::to_string(indices.size()));
  return view_csr(indptr, indices, data.data(), n_cols);
}

/// For a kernel that runs with the GIL released: stops on the token, or on Ctrl-C in the main thread.
inline Control make_control(const CancelToken* token) {
  return Control(token, [] {
    const nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

}  // namespace umpteen
