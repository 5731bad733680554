#include "umpteen/text_writer.hpp"

#include <charconv>

namespace umpteen {

namespace {

template <typename Number>
void append(std::string& out, Number value) {
  char buffer[48];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

}  // namespace

std::string format_rows(const CsrView& X, const CsrView& Y, std::int64_t begin, std::int64_t end,
                        const TextLayout& layout) {
  std::string out;
  out.reserve(static_cast<std::size_t>(X.indptr[end] - X.indptr[begin]) * 14 + 64);
  for (std::int64_t row = begin; row < end; ++row) {
    const std::size_t line_start = out.size();
    if (layout.labels) {
      for (std::int64_t i = Y.indptr[row]; i < Y.indptr[row + 1]; ++i) {
        if (i > Y.indptr[row]) out += ',';
        append(out, Y.indices[i] + std::int64_t{layout.first_label});
      }
    }
    for (std::int64_t i = X.indptr[row]; i < X.indptr[row + 1]; ++i) {
      if (layout.labels || i > X.indptr[row]) out += ' ';
      append(out, X.indices[i] + std::int64_t{layout.first_feature});
      out += ':';
      append(out, X.data[i]);
    }
    if (out.size() == line_start) out += ' ';
    out += '\n';
  }
  return out;
}

}  // namespace umpteen
