// What bindings that take texts share.
#pragma once

#include <nanobind/stl/optional.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common.hpp"
#include "umpteen/tfidf.hpp"

namespace umpteen {

template <typename T>
NumpyVector<T> to_numpy(std::vector<T>&& values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const std::size_t size = owned->size();
  const nb::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return NumpyVector<T>(data, {size}, owner);
}

/// Views of Python's own bytes. A str must be ASCII and is raw; bytes are UTF-8 that Python made ready. The list must
/// stay as it is while the views are used.
inline std::vector<TextView> view_texts(const nb::list& texts) {
  std::vector<TextView> out;
  out.reserve(texts.size());
  for (const nb::handle item : texts) {
    Py_ssize_t size = 0;
    if (PyUnicode_Check(item.ptr())) {
      const char* data = PyUnicode_AsUTF8AndSize(item.ptr(), &size);
      if (data == nullptr) throw nb::python_error();
      out.push_back({std::string_view(data, static_cast<std::size_t>(size)), true});
    } else {
      char* data = nullptr;
      if (PyBytes_AsStringAndSize(item.ptr(), &data, &size) != 0) throw nb::python_error();
      out.push_back({std::string_view(data, static_cast<std::size_t>(size)), false});
    }
  }
  return out;
}

inline WordTable view_word_table(const std::optional<Vector<std::uint32_t>>& table, std::size_t n_tables = 1) {
  if (!table) return nullptr;
  if (table->size() != n_tables * kWordTableSize)
    throw std::invalid_argument("a word table must have a bit per character");
  return table->data();
}

}  // namespace umpteen
