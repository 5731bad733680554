#include <nanobind/stl/optional.h>

#include <optional>

#include "common.hpp"
#include "umpteen/ppd_sparse.hpp"

namespace umpteen {

namespace {

/// One field of all solutions as an array.
template <typename T>
NumpyVector<T> collect(const std::vector<PpdSolution>& solutions, T PpdSolution::* field) {
  auto out = make_array<T>(static_cast<std::int64_t>(solutions.size()));
  for (std::size_t l = 0; l < solutions.size(); ++l) out[l] = solutions[l].*field;
  return to_numpy(std::move(out), static_cast<std::int64_t>(solutions.size()));
}

/// Some sparse rows as the three arrays of a CSR matrix; frees them as it goes.
nb::tuple collect_rows(std::vector<PpdSolution>& solutions, std::vector<std::int32_t> PpdSolution::* columns,
                       std::vector<float> PpdSolution::* values) {
  const auto n = static_cast<std::int64_t>(solutions.size());
  auto indptr = make_array<std::int64_t>(n + 1);
  indptr[0] = 0;
  for (std::int64_t l = 0; l < n; ++l)
    indptr[l + 1] = indptr[l] + static_cast<std::int64_t>((solutions[static_cast<std::size_t>(l)].*columns).size());
  const std::int64_t nnz = indptr[n];
  auto indices = make_array<std::int32_t>(nnz);
  auto data = make_array<float>(nnz);
  for (std::int64_t l = 0; l < n; ++l) {
    PpdSolution& s = solutions[static_cast<std::size_t>(l)];
    std::copy((s.*columns).begin(), (s.*columns).end(), indices.get() + indptr[l]);
    std::copy((s.*values).begin(), (s.*values).end(), data.get() + indptr[l]);
    (s.*columns) = {};
    (s.*values) = {};
  }
  return nb::make_tuple(to_numpy(std::move(data), nnz), to_numpy(std::move(indices), nnz),
                        to_numpy(std::move(indptr), n + 1));
}

nb::dict solve_ppd_binding(
    const Vector<std::int64_t>& X_indptr, const Vector<std::int32_t>& X_indices, const Vector<float>& X_data,
    std::int64_t n_features, const Vector<std::int64_t>& label_indptr, const Vector<std::int32_t>& label_rows,
    const Vector<std::int32_t>& label_ids, const Vector<float>& positive_cost, bool squared, double lambda,
    double tau, double bias, double eps, float prune, int max_rounds, int samples, float cutoff, std::uint64_t seed,
    const std::optional<Vector<std::int64_t>>& start_indptr, const std::optional<Vector<std::int32_t>>& start_rows,
    const std::optional<Vector<float>>& start_alphas, bool keep_alphas, int threads, const CancelToken* token) {
  const CsrView X = view_csr(X_indptr, X_indices, X_data, n_features);
  const CsrView labels = view_csr(label_indptr, label_rows, nullptr, X.n_rows);
  if (static_cast<std::int64_t>(label_ids.size()) != labels.n_rows)
    throw std::invalid_argument("there must be one id per label");
  if (static_cast<std::int64_t>(positive_cost.size()) != labels.n_rows)
    throw std::invalid_argument("there must be one positive_cost per label");
  PpdProblem problem{X,
                     labels.indptr,
                     labels.indices,
                     label_ids.data(),
                     positive_cost.data(),
                     labels.n_rows,
                     squared,
                     lambda,
                     tau,
                     bias,
                     eps,
                     prune,
                     max_rounds,
                     samples,
                     cutoff,
                     seed,
                     nullptr,
                     nullptr,
                     nullptr,
                     keep_alphas};
  if (start_indptr && start_rows && start_alphas) {
    const CsrView start = view_csr(*start_indptr, *start_rows, *start_alphas, X.n_rows);
    if (start.n_rows != labels.n_rows) throw std::invalid_argument("there must be one start per label");
    problem.start_indptr = start.indptr;
    problem.start_rows = start.indices;
    problem.start_alphas = start.data;
  }
  std::vector<PpdSolution> solutions;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    solutions = solve_ppd(problem, threads, control);
  }
  nb::dict out;
  out["weights"] = collect_rows(solutions, &PpdSolution::features, &PpdSolution::weights);
  if (keep_alphas) out["alphas"] = collect_rows(solutions, &PpdSolution::rows, &PpdSolution::alphas);
  out["bias"] = collect(solutions, &PpdSolution::bias);
  out["objective"] = collect(solutions, &PpdSolution::objective);
  out["gap"] = collect(solutions, &PpdSolution::gap);
  out["nnz"] = collect(solutions, &PpdSolution::nnz);
  out["support"] = collect(solutions, &PpdSolution::support);
  out["active"] = collect(solutions, &PpdSolution::active);
  out["rounds"] = collect(solutions, &PpdSolution::rounds);
  out["epochs"] = collect(solutions, &PpdSolution::epochs);
  out["visited"] = collect(solutions, &PpdSolution::visited);
  out["missed"] = collect(solutions, &PpdSolution::missed);
  out["column_entries"] = collect(solutions, &PpdSolution::column_entries);
  out["panel_passes"] = collect(solutions, &PpdSolution::panel_passes);
  return out;
}

}  // namespace

void register_ppd(nb::module_& m) {
  m.def("solve_ppd", &solve_ppd_binding, nb::arg("X_indptr").noconvert(), nb::arg("X_indices").noconvert(),
        nb::arg("X_data").noconvert(), nb::arg("n_features"), nb::arg("label_indptr").noconvert(),
        nb::arg("label_rows").noconvert(), nb::arg("label_ids").noconvert(), nb::arg("positive_cost").noconvert(),
        nb::arg("squared"), nb::arg("lambda_"), nb::arg("tau"), nb::arg("bias"), nb::arg("eps"), nb::arg("prune"),
        nb::arg("max_rounds"), nb::arg("samples"), nb::arg("cutoff"), nb::arg("seed"),
        nb::arg("start_indptr").noconvert() = nb::none(), nb::arg("start_rows").noconvert() = nb::none(),
        nb::arg("start_alphas").noconvert() = nb::none(), nb::arg("keep_alphas") = false, nb::arg("threads") = 1,
        nb::arg("token") = nb::none(),
        "One elastic-net SVM per label, in the dual: weights as the parts of a CSR matrix, and what it took.");
}

}  // namespace umpteen
