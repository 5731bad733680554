#include "one_vs_rest.hpp"

namespace umpteen {

namespace {

nb::dict solve_svms_binding(const Vector<std::int64_t>& X_indptr, const Vector<std::int32_t>& X_indices,
                            const Vector<float>& X_data, std::int64_t n_features,
                            const Vector<std::int64_t>& label_indptr, const Vector<std::int32_t>& label_rows,
                            const Vector<float>& positive_cost, double C, double bias, double eps, float prune,
                            int max_rounds, bool l1, int threads, const CancelToken* token) {
  const CsrView X = view_csr(X_indptr, X_indices, X_data, n_features);
  const CsrView labels = view_csr(label_indptr, label_rows, nullptr, X.n_rows);
  if (static_cast<std::int64_t>(positive_cost.size()) != labels.n_rows)
    throw std::invalid_argument("there must be one positive_cost per label");
  const SvmProblem problem{X,
                           labels.indptr,
                           labels.indices,
                           positive_cost.data(),
                           labels.n_rows,
                           C,
                           bias,
                           eps,
                           prune,
                           max_rounds,
                           l1 ? Penalty::kL1 : Penalty::kL2};
  std::vector<SvmSolution> solutions;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    solutions = solve_svms(problem, threads, control);
  }
  return solutions_to_dict(std::move(solutions));
}

}  // namespace

void register_newton(nb::module_& m) {
  m.def("solve_svms", &solve_svms_binding, nb::arg("X_indptr").noconvert(), nb::arg("X_indices").noconvert(),
        nb::arg("X_data").noconvert(), nb::arg("n_features"), nb::arg("label_indptr").noconvert(),
        nb::arg("label_rows").noconvert(), nb::arg("positive_cost").noconvert(), nb::arg("C"), nb::arg("bias"),
        nb::arg("eps"), nb::arg("prune"), nb::arg("max_rounds"), nb::arg("l1"), nb::arg("threads"),
        nb::arg("token") = nb::none(),
        "One squared-hinge SVM per label: weights as CSR (labels x features), biases, and what it took.");
}

}  // namespace umpteen
