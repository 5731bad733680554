#include "common.hpp"
#include "umpteen/ranking.hpp"
#include "umpteen/rows.hpp"
#include "umpteen/split.hpp"

namespace umpteen {

namespace {

NumpyMatrix<std::uint8_t> find_hits_binding(const Vector<std::int64_t>& Y_indptr,
                                            const Vector<std::int32_t>& Y_indices, std::int64_t n_labels,
                                            const Matrix<std::int32_t>& labels, int threads) {
  const CsrView Y = view_csr(Y_indptr, Y_indices, nullptr, n_labels);
  const auto top_k = static_cast<std::int64_t>(labels.shape(1));
  if (static_cast<std::int64_t>(labels.shape(0)) != Y.n_rows)
    throw std::invalid_argument("predictions have " + std::to_string(labels.shape(0)) + " rows, but Y has " +
                                std::to_string(Y.n_rows));
  auto hits = make_array<std::uint8_t>(Y.n_rows * top_k);
  {
    Control control = make_control(nullptr);
    const nb::gil_scoped_release release;
    find_hits(Y, labels.data(), top_k, hits.get(), threads, control);
  }
  return to_numpy(std::move(hits), Y.n_rows, top_k);
}

NumpyVector<std::uint8_t> hold_out_rows_binding(const Vector<std::int64_t>& Y_indptr,
                                                const Vector<std::int32_t>& Y_indices, std::int64_t n_labels,
                                                const Vector<std::int64_t>& order, std::int64_t n_heldout,
                                                std::int64_t keep) {
  const CsrView Y = view_csr(Y_indptr, Y_indices, nullptr, n_labels);
  if (static_cast<std::int64_t>(order.size()) != Y.n_rows)
    throw std::invalid_argument("the order must name every row once");
  for (std::size_t i = 0; i < order.size(); ++i)
    if (order.data()[i] < 0 || order.data()[i] >= Y.n_rows) throw std::out_of_range("the order names no such row");
  auto heldout = make_array<std::uint8_t>(Y.n_rows);
  {
    const nb::gil_scoped_release release;
    hold_out_rows(Y, order.data(), n_heldout, keep, heldout.get());
  }
  return to_numpy(std::move(heldout), Y.n_rows);
}

NumpyVector<float> normalize_rows_binding(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices,
                                          const Vector<float>& data, std::int64_t n_cols, int threads) {
  const CsrView X = view_csr(indptr, indices, data, n_cols);
  auto out = make_array<float>(X.indptr[X.n_rows]);
  {
    Control control = make_control(nullptr);
    const nb::gil_scoped_release release;
    normalize_rows(X, out.get(), threads, control);
  }
  return to_numpy(std::move(out), X.indptr[X.n_rows]);
}

}  // namespace

void register_rows(nb::module_& m) {
  m.def("find_hits", &find_hits_binding, nb::arg("Y_indptr").noconvert(), nb::arg("Y_indices").noconvert(),
        nb::arg("n_labels"), nb::arg("labels").noconvert(), nb::arg("threads"),
        "1 where a predicted label is one of the row's labels, else 0.");
  m.def("hold_out_rows", &hold_out_rows_binding, nb::arg("Y_indptr").noconvert(), nb::arg("Y_indices").noconvert(),
        nb::arg("n_labels"), nb::arg("order").noconvert(), nb::arg("n_heldout"), nb::arg("keep"),
        "1 for rows that may be held out, walking them in order, so that every label keeps `keep` rows.");
  m.def("normalize_rows", &normalize_rows_binding, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("data").noconvert(), nb::arg("n_cols"), nb::arg("threads"),
        "The values of a CSR matrix with its rows scaled to length 1.");
}

}  // namespace umpteen
