#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string_view>

#include "common.hpp"
#include "umpteen/text_reader.hpp"
#include "umpteen/text_writer.hpp"

namespace umpteen {

namespace {

nb::dict parse_text_binding(const nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& text,
                            bool labels, bool header, bool comments, int first_feature, int first_label,
                            std::int64_t n_features, std::int64_t n_labels, const std::string& column_kind,
                            int threads, const CancelToken* token) {
  const TextGrammar grammar{
      .labels = labels,
      .header = header,
      .comments = comments,
      .first_feature = first_feature,
      .first_label = first_label,
      .n_features = n_features,
      .n_labels = n_labels,
      .column_kind = column_kind.c_str(),
  };
  const std::string_view view(reinterpret_cast<const char*>(text.data()), text.size());
  ParsedText parsed;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    parsed = parse_text(view, grammar, threads, control);
  }
  nb::dict out;
  out["n_rows"] = parsed.n_rows;
  out["n_features"] = parsed.n_features;
  out["n_labels"] = parsed.n_labels;
  out["has_header"] = parsed.has_header;
  // Trailing empty lines were counted as rows when the offsets were allocated; Python sees only the real
  // rows.
  out["X_indptr"] = to_numpy(std::move(parsed.X.indptr), parsed.n_rows + 1);
  out["X_indices"] = to_numpy(std::move(parsed.X.indices), parsed.X.nnz);
  out["X_data"] = to_numpy(std::move(parsed.X_data), parsed.X.nnz);
  if (labels) {
    out["Y_indptr"] = to_numpy(std::move(parsed.Y.indptr), parsed.n_rows + 1);
    out["Y_indices"] = to_numpy(std::move(parsed.Y.indices), parsed.Y.nnz);
  }
  return out;
}

nb::bytes format_rows_binding(const Vector<std::int64_t>& X_indptr, const Vector<std::int32_t>& X_indices,
                              const Vector<float>& X_data, std::int64_t n_features,
                              const Vector<std::int64_t>& Y_indptr, const Vector<std::int32_t>& Y_indices,
                              std::int64_t n_labels, bool labels, int first_feature, int first_label,
                              std::int64_t begin, std::int64_t end) {
  const CsrView X = view_csr(X_indptr, X_indices, X_data, n_features);
  const CsrView Y = labels ? view_csr(Y_indptr, Y_indices, nullptr, n_labels) : CsrView{};
  if (begin < 0 || end > X.n_rows || begin > end || (labels && Y.n_rows != X.n_rows))
    throw std::invalid_argument("rows to format must lie within both matrices");
  std::string text;
  {
    const nb::gil_scoped_release release;
    text =
        format_rows(X, Y, begin, end, {.labels = labels, .first_feature = first_feature, .first_label = first_label});
  }
  return nb::bytes(text.data(), text.size());
}

}  // namespace

void register_text(nb::module_& m) {
  static nb::exception<ParseError> parse_error(m, "ParseError", PyExc_ValueError);
  // Replaces the translator made above: the exception carries (line, message).
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const ParseError& e) {
      PyErr_SetObject(parse_error.ptr(), nb::make_tuple(e.line, e.what()).ptr());
    }
  });

  m.def("parse_text", &parse_text_binding, nb::arg("text").noconvert(), nb::arg("labels"), nb::arg("header"),
        nb::arg("comments"), nb::arg("first_feature"), nb::arg("first_label"), nb::arg("n_features"),
        nb::arg("n_labels"), nb::arg("column_kind"), nb::arg("threads"), nb::arg("token") = nb::none(),
        "Parses a file held in memory; see text_reader.hpp for the grammar.");
  m.def("format_rows", &format_rows_binding, nb::arg("X_indptr").noconvert(), nb::arg("X_indices").noconvert(),
        nb::arg("X_data").noconvert(), nb::arg("n_features"), nb::arg("Y_indptr").noconvert(),
        nb::arg("Y_indices").noconvert(), nb::arg("n_labels"), nb::arg("labels"), nb::arg("first_feature"),
        nb::arg("first_label"), nb::arg("begin"), nb::arg("end"), "The text of some rows, as bytes.");
}

}  // namespace umpteen
