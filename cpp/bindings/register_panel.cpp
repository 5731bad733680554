#include "one_vs_rest.hpp"
#include "umpteen/newton_panel.hpp"
#include "umpteen/simd.hpp"

namespace umpteen {

namespace {

nb::dict solve_panels_binding(const Vector<std::int64_t>& X_indptr, const Vector<std::int32_t>& X_indices,
                              const Vector<float>& X_data, std::int64_t n_features,
                              const Vector<std::int64_t>& label_indptr, const Vector<std::int32_t>& label_rows,
                              const Vector<float>& positive_cost, double C, double bias, double eps, float prune,
                              int max_rounds, bool squared_hinge, int threads, const CancelToken* token) {
  const CsrView X = view_csr(X_indptr, X_indices, X_data, n_features);
  const CsrView labels = view_csr(label_indptr, label_rows, nullptr, X.n_rows);
  if (static_cast<std::int64_t>(positive_cost.size()) != labels.n_rows)
    throw std::invalid_argument("there must be one positive_cost per label");
  SvmProblem problem{};
  problem.X = X;
  problem.label_indptr = labels.indptr;
  problem.label_rows = labels.indices;
  problem.positive_cost = positive_cost.data();
  problem.n_labels = labels.n_rows;
  problem.C = C;
  problem.bias = bias;
  problem.eps = eps;
  problem.prune = prune;
  problem.max_rounds = max_rounds;
  std::vector<SvmSolution> solutions;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    solutions =
        solve_panels(problem, squared_hinge ? PanelLoss::kSquaredHinge : PanelLoss::kLogistic, threads, control);
  }
  return solutions_to_dict(std::move(solutions));
}

NumpyVector<float> exponentials_binding(const Vector<float>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  auto out = make_array<float>(n);
  panel_kernels().exponentials(x.data(), n, out.get());
  return to_numpy(std::move(out), n);
}

}  // namespace

void register_panel(nb::module_& m) {
  m.def("solve_panels", &solve_panels_binding, nb::arg("X_indptr").noconvert(), nb::arg("X_indices").noconvert(),
        nb::arg("X_data").noconvert(), nb::arg("n_features"), nb::arg("label_indptr").noconvert(),
        nb::arg("label_rows").noconvert(), nb::arg("positive_cost").noconvert(), nb::arg("C"), nb::arg("bias"),
        nb::arg("eps"), nb::arg("prune"), nb::arg("max_rounds"), nb::arg("squared_hinge"), nb::arg("threads"),
        nb::arg("token") = nb::none(),
        "One problem with logistic or squared hinge loss per label: weights as CSR (labels x features), biases, and "
        "what it took.");
  m.def("exponentials", &exponentials_binding, nb::arg("x").noconvert(), "e^x as the kernels compute it, for tests.");
}

}  // namespace umpteen
