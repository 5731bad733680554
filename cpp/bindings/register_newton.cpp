#include "one_vs_rest.hpp"
#include "umpteen/newton_all_rows.hpp"
#include "umpteen/newton_by_columns.hpp"
#include "umpteen/newton_near_margin.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

/// Weights as CSR (labels x features), biases and counts, one array each.
nb::dict to_dict(std::vector<OneVsRestSolution> solutions) {
  const nb::tuple weights = collect_rows(solutions, &OneVsRestSolution::features, &OneVsRestSolution::weights);
  nb::dict out;
  out["data"] = weights[0];
  out["indices"] = weights[1];
  out["indptr"] = weights[2];
  out["bias"] = collect(solutions, &OneVsRestSolution::bias);
  out["objective"] = collect(solutions, &OneVsRestSolution::objective);
  out["gradient"] = collect(solutions, &OneVsRestSolution::gradient);
  out["rounds"] = collect(solutions, &OneVsRestSolution::rounds);
  out["gradients"] = collect(solutions, &OneVsRestSolution::gradients);
  out["newton_steps"] = collect(solutions, &OneVsRestSolution::newton_steps);
  out["cg_steps"] = collect(solutions, &OneVsRestSolution::cg_steps);
  out["active_rows"] = collect(solutions, &OneVsRestSolution::active_rows);
  out["checked_rows"] = collect(solutions, &OneVsRestSolution::checked_rows);
  return out;
}

nb::dict solve_near_margin_binding(const Vector<std::int64_t>& X_indptr, const Vector<std::int32_t>& X_indices,
                                   const Vector<float>& X_data, std::int64_t n_features,
                                   const Vector<std::int64_t>& label_indptr, const Vector<std::int32_t>& label_rows,
                                   const Vector<float>& positive_cost, double C, double bias, double eps, float prune,
                                   int max_rounds, bool l1, int threads, const CancelToken* token) {
  const CsrView X = view_csr(X_indptr, X_indices, X_data, n_features);
  const CsrView labels = view_labels(label_indptr, label_rows, positive_cost, X.n_rows);
  const OneVsRestProblem problem{
      .X = X,
      .label_indptr = labels.indptr,
      .label_rows = labels.indices,
      .positive_cost = positive_cost.data(),
      .n_labels = labels.n_rows,
      .C = C,
      .bias = bias,
      .eps = eps,
      .prune = prune,
      .max_rounds = max_rounds,
  };
  std::vector<OneVsRestSolution> solutions;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    solutions = solve_near_margin(problem, l1 ? Penalty::kL1 : Penalty::kL2, threads, control);
  }
  return to_dict(std::move(solutions));
}

nb::dict solve_all_rows_binding(const Vector<std::int64_t>& X_indptr, const Vector<std::int32_t>& X_indices,
                                const Vector<float>& X_data, std::int64_t n_features,
                                const Vector<std::int64_t>& label_indptr, const Vector<std::int32_t>& label_rows,
                                const Vector<float>& positive_cost, double C, double bias, double eps, float prune,
                                int max_rounds, bool squared_hinge, int threads, const CancelToken* token,
                                const std::optional<Vector<float>>& row_cost, bool l1) {
  const CsrView X = view_csr(X_indptr, X_indices, X_data, n_features);
  const CsrView labels = view_labels(label_indptr, label_rows, positive_cost, X.n_rows);
  const OneVsRestProblem problem{
      .X = X,
      .label_indptr = labels.indptr,
      .label_rows = labels.indices,
      .positive_cost = positive_cost.data(),
      .row_cost = view_row_cost(row_cost, X.n_rows),
      .n_labels = labels.n_rows,
      .C = C,
      .bias = bias,
      .eps = eps,
      .prune = prune,
      .max_rounds = max_rounds,
  };
  const MarginLoss loss = squared_hinge ? MarginLoss::kSquaredHinge : MarginLoss::kLogistic;
  std::vector<OneVsRestSolution> solutions;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    solutions =
        l1 ? solve_by_columns(problem, loss, threads, control) : solve_all_rows(problem, loss, threads, control);
  }
  return to_dict(std::move(solutions));
}

NumpyVector<float> exponentials_binding(const Vector<float>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  auto out = make_array<float>(n);
  panel_kernels().exponentials(x.data(), n, out.get());
  return to_numpy(std::move(out), n);
}

}  // namespace

void register_newton(nb::module_& m) {
  m.def("solve_svms", &solve_near_margin_binding, nb::arg("X_indptr").noconvert(), nb::arg("X_indices").noconvert(),
        nb::arg("X_data").noconvert(), nb::arg("n_features"), nb::arg("label_indptr").noconvert(),
        nb::arg("label_rows").noconvert(), nb::arg("positive_cost").noconvert(), nb::arg("C"), nb::arg("bias"),
        nb::arg("eps"), nb::arg("prune"), nb::arg("max_rounds"), nb::arg("l1"), nb::arg("threads"),
        nb::arg("token") = nb::none(),
        "One squared-hinge SVM per label, by Newton's method on the rows near its margin: weights as CSR (labels x "
        "features), biases and counts.");
  m.def("solve_panels", &solve_all_rows_binding, nb::arg("X_indptr").noconvert(), nb::arg("X_indices").noconvert(),
        nb::arg("X_data").noconvert(), nb::arg("n_features"), nb::arg("label_indptr").noconvert(),
        nb::arg("label_rows").noconvert(), nb::arg("positive_cost").noconvert(), nb::arg("C"), nb::arg("bias"),
        nb::arg("eps"), nb::arg("prune"), nb::arg("max_rounds"), nb::arg("squared_hinge"), nb::arg("threads"),
        nb::arg("token") = nb::none(), nb::arg("row_cost").noconvert() = nb::none(), nb::arg("l1") = false,
        "One problem with logistic or squared hinge loss per label, by Newton's method on all rows, with an L1 "
        "penalty by "
        "columns: weights as CSR (labels x features), biases and counts.");
  m.def("exponentials", &exponentials_binding, nb::arg("x").noconvert(), "e^x as the kernels compute it, for tests.");
}

}  // namespace umpteen
