// What the bindings of one-vs-rest solvers share.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "common.hpp"
#include "umpteen/newton_svm.hpp"

namespace umpteen {

/// Weights as CSR (labels x features), biases, and what it took, one array each.
inline nb::dict solutions_to_dict(std::vector<SvmSolution> solutions) {
  std::int64_t nnz = 0;
  for (const SvmSolution& s : solutions) nnz += static_cast<std::int64_t>(s.features.size());
  const auto n = static_cast<std::int64_t>(solutions.size());
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

}  // namespace umpteen
