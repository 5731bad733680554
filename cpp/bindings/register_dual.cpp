#include "one_vs_rest.hpp"
#include "umpteen/dual_descent.hpp"

namespace umpteen {

namespace {

nb::dict solve_dual_binding(
    const Vector<std::int64_t>& X_indptr, const Vector<std::int32_t>& X_indices, const Vector<float>& X_data,
    std::int64_t n_features, const Vector<std::int64_t>& label_indptr, const Vector<std::int32_t>& label_rows,
    const Vector<std::int32_t>& label_ids, const Vector<float>& positive_cost, bool squared, double lambda,
    double tau, double bias, double eps, float prune, int max_rounds, int samples, float cutoff, std::uint64_t seed,
    const std::optional<Vector<std::int64_t>>& start_indptr, const std::optional<Vector<std::int32_t>>& start_rows,
    const std::optional<Vector<float>>& start_alphas, bool keep_alphas, int threads, const CancelToken* token,
    const std::optional<Vector<float>>& row_cost, double sample_error) {
  const CsrView X = view_csr(X_indptr, X_indices, X_data, n_features);
  const CsrView labels = view_labels(label_indptr, label_rows, positive_cost, X.n_rows);
  if (static_cast<std::int64_t>(label_ids.size()) != labels.n_rows)
    throw std::invalid_argument("there must be one id per label");
  CsrView start{};
  if (start_indptr && start_rows && start_alphas) {
    start = view_csr(*start_indptr, *start_rows, *start_alphas, X.n_rows);
    if (start.n_rows != labels.n_rows) throw std::invalid_argument("there must be one start per label");
  }
  const DualProblem problem{
      .X = X,
      .label_indptr = labels.indptr,
      .label_rows = labels.indices,
      .label_ids = label_ids.data(),
      .positive_cost = positive_cost.data(),
      .row_cost = view_row_cost(row_cost, X.n_rows),
      .n_labels = labels.n_rows,
      .squared = squared,
      .lambda = lambda,
      .tau = tau,
      .bias = bias,
      .eps = eps,
      .prune = prune,
      .max_rounds = max_rounds,
      .samples = samples,
      .sample_error = sample_error,
      .cutoff = cutoff,
      .seed = seed,
      .start_indptr = start.indptr,
      .start_rows = start.indices,
      .start_alphas = start.data,
      .keep_alphas = keep_alphas,
  };
  std::vector<DualSolution> solutions;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    solutions = solve_dual(problem, threads, control);
  }
  nb::dict out;
  out["weights"] = collect_rows(solutions, &DualSolution::features, &DualSolution::weights);
  if (keep_alphas) out["alphas"] = collect_rows(solutions, &DualSolution::rows, &DualSolution::alphas);
  out["bias"] = collect(solutions, &DualSolution::bias);
  out["objective"] = collect(solutions, &DualSolution::objective);
  out["gap"] = collect(solutions, &DualSolution::gap);
  out["nnz"] = collect(solutions, &DualSolution::nnz);
  out["support"] = collect(solutions, &DualSolution::support);
  out["active"] = collect(solutions, &DualSolution::active);
  out["rounds"] = collect(solutions, &DualSolution::rounds);
  out["epochs"] = collect(solutions, &DualSolution::epochs);
  out["visited"] = collect(solutions, &DualSolution::visited);
  out["missed"] = collect(solutions, &DualSolution::missed);
  out["column_entries"] = collect(solutions, &DualSolution::column_entries);
  out["panel_passes"] = collect(solutions, &DualSolution::panel_passes);
  return out;
}

}  // namespace

void register_dual(nb::module_& m) {
  m.def("solve_ppd", &solve_dual_binding, nb::arg("X_indptr").noconvert(), nb::arg("X_indices").noconvert(),
        nb::arg("X_data").noconvert(), nb::arg("n_features"), nb::arg("label_indptr").noconvert(),
        nb::arg("label_rows").noconvert(), nb::arg("label_ids").noconvert(), nb::arg("positive_cost").noconvert(),
        nb::arg("squared"), nb::arg("lambda_"), nb::arg("tau"), nb::arg("bias"), nb::arg("eps"), nb::arg("prune"),
        nb::arg("max_rounds"), nb::arg("samples"), nb::arg("cutoff"), nb::arg("seed"),
        nb::arg("start_indptr").noconvert() = nb::none(), nb::arg("start_rows").noconvert() = nb::none(),
        nb::arg("start_alphas").noconvert() = nb::none(), nb::arg("keep_alphas") = false, nb::arg("threads") = 1,
        nb::arg("token") = nb::none(), nb::arg("row_cost").noconvert() = nb::none(), nb::arg("sample_error") = 0.0,
        "One elastic-net SVM per label, by coordinate descent in the dual: weights as the parts of a CSR matrix, "
        "biases and "
        "counts.");
}

}  // namespace umpteen
