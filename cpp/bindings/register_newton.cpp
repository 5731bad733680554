#include "common.hpp"
#include "umpteen/newton_svm.hpp"

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
  std::int64_t nnz = 0;
  for (const SvmSolution& s : solutions) nnz += static_cast<std::int64_t>(s.features.size());
  const std::int64_t n = labels.n_rows;
  auto indptr = make_array<std::int64_t>(n + 1);
  auto indices = make_array<std::int32_t>(nnz);
  auto data = make_array<float>(nnz);
  auto biases = make_array<float>(n);
  auto objective = make_array<double>(n);
  auto gradient = make_array<double>(n);
  auto rounds = make_array<std::int64_t>(n);
  auto gradients = make_array<std::int64_t>(n);
  auto newton_steps = make_array<std::int64_t>(n);
  auto cg_steps = make_array<std::int64_t>(n);
  auto active_rows = make_array<std::int64_t>(n);
  auto checked_rows = make_array<std::int64_t>(n);
  indptr[0] = 0;
  for (std::int64_t l = 0; l < n; ++l) {
    SvmSolution& s = solutions[static_cast<std::size_t>(l)];
    std::copy(s.features.begin(), s.features.end(), indices.get() + indptr[l]);
    std::copy(s.weights.begin(), s.weights.end(), data.get() + indptr[l]);
    indptr[l + 1] = indptr[l] + static_cast<std::int64_t>(s.features.size());
    biases[l] = s.bias;
    objective[l] = s.objective;
    gradient[l] = s.gradient;
    rounds[l] = s.rounds;
    gradients[l] = s.gradients;
    newton_steps[l] = s.newton_steps;
    cg_steps[l] = s.cg_steps;
    active_rows[l] = s.active_rows;
    checked_rows[l] = s.checked_rows;
    s = {};  // two copies of one label at a time, not of all
  }
  nb::dict out;
  out["indptr"] = to_numpy(std::move(indptr), n + 1);
  out["indices"] = to_numpy(std::move(indices), nnz);
  out["data"] = to_numpy(std::move(data), nnz);
  out["bias"] = to_numpy(std::move(biases), n);
  out["objective"] = to_numpy(std::move(objective), n);
  out["gradient"] = to_numpy(std::move(gradient), n);
  out["rounds"] = to_numpy(std::move(rounds), n);
  out["gradients"] = to_numpy(std::move(gradients), n);
  out["newton_steps"] = to_numpy(std::move(newton_steps), n);
  out["cg_steps"] = to_numpy(std::move(cg_steps), n);
  out["active_rows"] = to_numpy(std::move(active_rows), n);
  out["checked_rows"] = to_numpy(std::move(checked_rows), n);
  return out;
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
