#include "one_vs_rest.hpp"
#include "umpteen/pd_sparse.hpp"

namespace umpteen {

namespace {

/// The two arrays, moved onto the pair of simplices.
nb::tuple project_two_simplices_binding(const Vector<double>& b, const Vector<double>& c, double C) {
  const auto n_b = static_cast<std::int64_t>(b.size());
  const auto n_c = static_cast<std::int64_t>(c.size());
  auto x = make_array<double>(n_b);
  auto y = make_array<double>(n_c);
  std::copy_n(b.data(), n_b, x.get());
  std::copy_n(c.data(), n_c, y.get());
  project_two_simplices(x.get(), n_b, y.get(), n_c, C);
  return nb::make_tuple(to_numpy(std::move(x), n_b), to_numpy(std::move(y), n_c));
}

/// A solver and the matrices it looks at.
class PdSolverBinding {
 public:
  PdSolverBinding(const Vector<std::int64_t>& X_indptr, const Vector<std::int32_t>& X_indices,
                  const Vector<float>& X_data, std::int64_t n_features, const Vector<std::int64_t>& Y_indptr,
                  const Vector<std::int32_t>& Y_indices, std::int64_t n_labels, double lambda, double C,
                  std::int64_t n_groups, std::uint64_t seed, const std::optional<Vector<float>>& row_cost)
      : X_(view_csr(X_indptr, X_indices, X_data, n_features)),
        Y_(view_csr(Y_indptr, Y_indices, nullptr, n_labels)),
        owners_(nb::make_tuple(X_indptr, X_indices, X_data, Y_indptr, Y_indices)),
        solver_(PdProblem{
            .X = check_rows(X_, Y_),
            .Y = Y_,
            .lambda = lambda,
            .C = C,
            .row_cost = view_row_cost(row_cost, X_.n_rows),
            .n_groups = n_groups,
            .seed = seed,
        }) {}

  double publish(int threads, const CancelToken* token) {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    return solver_.publish(threads, control);
  }
  std::int64_t search(const Vector<std::int32_t>& rows, std::int64_t n_found, bool sampled, std::int64_t rate,
                      std::uint64_t draw, int threads, const CancelToken* token) {
    check(rows);
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    const PdSearch how{.n_found = n_found, .sampled = sampled, .rate = rate, .draw = draw};
    return solver_.search(rows.data(), static_cast<std::int64_t>(rows.size()), how, threads, control);
  }
  nb::tuple step(const Vector<std::int32_t>& rows, const CancelToken* token) {
    check(rows);
    PdWork work;
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      work = solver_.step(rows.data(), static_cast<std::int64_t>(rows.size()), control);
    }
    return nb::make_tuple(work.entries, work.gap);
  }
  nb::tuple objectives(int threads, const CancelToken* token) {
    PdObjectives out;
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      out = solver_.objectives(threads, control);
    }
    return nb::make_tuple(out.primal, out.dual);
  }
  void keep_support() { solver_.keep_support(); }

  nb::tuple alphas() const {
    auto indptr = make_array<std::int64_t>(X_.n_rows + 1);
    solver_.count_alphas(indptr.get());
    auto labels = make_array<std::int32_t>(indptr[X_.n_rows]);
    auto values = make_array<float>(indptr[X_.n_rows]);
    solver_.copy_alphas(indptr.get(), labels.get(), values.get());
    return to_csr(std::move(values), std::move(labels), std::move(indptr), X_.n_rows);
  }
  void set_alphas(const Vector<float>& values, const Vector<std::int32_t>& labels,
                  const Vector<std::int64_t>& indptr) {
    const CsrView alphas = view_csr(indptr, labels, values, Y_.n_cols);
    if (alphas.n_rows != X_.n_rows) throw std::invalid_argument("there must be alphas for every row");
    solver_.set_alphas(alphas.indptr, alphas.indices, alphas.data);
  }
  nb::tuple weights() const {
    auto indptr = make_array<std::int64_t>(Y_.n_cols + 1);
    solver_.count_weights(indptr.get());
    auto features = make_array<std::int32_t>(indptr[Y_.n_cols]);
    auto values = make_array<float>(indptr[Y_.n_cols]);
    solver_.copy_weights(indptr.get(), features.get(), values.get());
    return to_csr(std::move(values), std::move(features), std::move(indptr), Y_.n_cols);
  }
  std::int64_t table_bytes() const { return solver_.table_bytes(); }

 private:
  static const CsrView& check_rows(const CsrView& X, const CsrView& Y) {
    if (X.n_rows != Y.n_rows)
      throw std::invalid_argument("X and Y must have the same number of rows, but have " + std::to_string(X.n_rows) +
                                  " and " + std::to_string(Y.n_rows));
    return X;
  }
  void check(const Vector<std::int32_t>& rows) const {
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (rows.data()[i] < 0 || rows.data()[i] >= X_.n_rows)
        throw std::out_of_range("rows must be in [0, " + std::to_string(X_.n_rows) + "), but one is " +
                                std::to_string(rows.data()[i]));
  }
  /// The arrays of a CSR matrix as SciPy takes them.
  static nb::tuple to_csr(std::unique_ptr<float[]> values, std::unique_ptr<std::int32_t[]> columns,
                          std::unique_ptr<std::int64_t[]> indptr, std::int64_t n_rows) {
    const std::int64_t nnz = indptr[n_rows];
    return nb::make_tuple(to_numpy(std::move(values), nnz), to_numpy(std::move(columns), nnz),
                          to_numpy(std::move(indptr), n_rows + 1));
  }

  CsrView X_;
  CsrView Y_;
  nb::tuple owners_;
  PdSolver solver_;
};

}  // namespace

void register_pd(nb::module_& m) {
  m.def("project_two_simplices", &project_two_simplices_binding, nb::arg("b").noconvert(), nb::arg("c").noconvert(),
        nb::arg("C"), "The nearest (x, y) with x, y >= 0 and sum x = sum y <= C.");
  nb::class_<PdSolverBinding>(m, "PdSolver",
                              "Block-coordinate Frank-Wolfe for a loss over all labels; see pd_sparse.hpp.")
      .def(nb::init<const Vector<std::int64_t>&, const Vector<std::int32_t>&, const Vector<float>&, std::int64_t,
                    const Vector<std::int64_t>&, const Vector<std::int32_t>&, std::int64_t, double, double,
                    std::int64_t, std::uint64_t, const std::optional<Vector<float>>&>(),
           nb::arg("X_indptr").noconvert(), nb::arg("X_indices").noconvert(), nb::arg("X_data").noconvert(),
           nb::arg("n_features"), nb::arg("Y_indptr").noconvert(), nb::arg("Y_indices").noconvert(),
           nb::arg("n_labels"), nb::arg("lambda_"), nb::arg("C"), nb::arg("n_groups"), nb::arg("seed"),
           nb::arg("row_cost").noconvert() = nb::none())
      .def("publish", &PdSolverBinding::publish, nb::arg("threads") = 1, nb::arg("token") = nb::none(),
           "Copies the newest W for searches; returns half its squared norm.")
      .def("search", &PdSolverBinding::search, nb::arg("rows").noconvert(), nb::arg("n_found"), nb::arg("sampled"),
           nb::arg("rate"), nb::arg("draw"), nb::arg("threads") = 1, nb::arg("token") = nb::none(),
           "Adds labels to the rows' active sets; returns how many weights it read.")
      .def("step", &PdSolverBinding::step, nb::arg("rows").noconvert(), nb::arg("token") = nb::none(),
           "Steps over the rows in order: (entries read and written, the gap seen on the active sets).")
      .def("objectives", &PdSolverBinding::objectives, nb::arg("threads") = 1, nb::arg("token") = nb::none(),
           "(primal, dual); their sum is the duality gap.")
      .def("keep_support", &PdSolverBinding::keep_support,
           "Keeps the support of W and drops lambda; no search may follow.")
      .def("alphas", &PdSolverBinding::alphas, "CSR, rows x labels.")
      .def("set_alphas", &PdSolverBinding::set_alphas, nb::arg("data").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("indptr").noconvert(), "Replaces all alphas.")
      .def("weights", &PdSolverBinding::weights, "CSR, labels x features.")
      .def("table_bytes", &PdSolverBinding::table_bytes, "Bytes that hold V.");
}

}  // namespace umpteen
