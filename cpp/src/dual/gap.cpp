#include "gap.hpp"

#include <cmath>

namespace umpteen::dual {

Gap GapFinder::find(LabelState& state, const std::vector<std::int32_t>& features) {
  const DualProblem& problem = formulas_.problem;
  violations_.clear();
  for (const ActiveRow& a : state.active) violations_.push_back(1 - double{a.sign} * formulas_.score(state, a.row));
  const double penalty = sum_penalty(state, features);
  state.shift = 0;
  const Gap gap = measure(state, penalty);
  if (!(state.unreached_bound > 0 && problem.bias > 0 && problem.squared)) return gap;
  state.shift = -(1 + double{formulas_.offset(state)});
  const Gap shifted = measure(state, penalty);
  if (shifted.total() < gap.total()) return shifted;
  state.shift = 0;
  return gap;
}

/// That of w, without the bias.
double GapFinder::sum_penalty(const LabelState& state, const std::vector<std::int32_t>& features) const {
  const DualProblem& problem = formulas_.problem;
  double penalty = 0;
  for (const std::int32_t f : features) {
    const double w = formulas_.weight(state, as_size(f));
    penalty += problem.lambda * std::abs(w) + 0.5 * problem.tau * w * w;
  }
  return penalty;
}

Gap GapFinder::measure(const LabelState& state, double penalty) const {
  const DualProblem& problem = formulas_.problem;
  Gap gap;
  gap.outside = state.shift == 0 ? state.unreached_bound : 0;
  for (const Hit& hit : state.hits)
    gap.outside += formulas_.loss(1 + double{hit.score} + state.shift, formulas_.row_cost(hit.row));
  gap.primal = penalty + gap.outside;
  for (std::size_t k = 0; k < violations_.size(); ++k) {
    const ActiveRow& a = state.active[k];
    const double violation = violations_[k] - a.sign * state.shift;
    gap.inside += formulas_.gap(violation, a);
    gap.primal += formulas_.loss(violation, a.cost);
  }
  if (problem.bias > 0) {
    const double b = state.v0 * problem.bias / problem.tau;
    gap.primal += 0.5 * problem.tau * std::pow(b + state.shift / problem.bias, 2);
    gap.outside += 0.5 * problem.tau * std::pow(state.shift / problem.bias, 2);
  }
  return gap;
}

}  // namespace umpteen::dual
