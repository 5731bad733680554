#pragma once

#include <cstdint>
#include <vector>

#include "formulas.hpp"

namespace umpteen::dual {

/// The duality gap of a label's solution.
struct Gap {
  double inside = 0;   // of the active set
  double outside = 0;  // of other rows, and of a bias other than the alphas'
  double primal = 0;   // the primal objective
  double total() const { return inside + outside; }
};

/// Finds the gap after an exact search.
///
/// Rows by the hundred thousand may each violate their margin by next to nothing, all by the same: the bias is a
/// little too high. Moving it by `shift` off the one that follows from the alphas settles them at once. That is a
/// primal solution like any other; the gap to the same dual solution grows by tau / 2 times the square of the
/// constant feature's change.
class GapFinder {
 public:
  explicit GapFinder(const Formulas& formulas) : formulas_(formulas) {}

  /// Sets state.shift to whichever of the two gives the smaller gap. `features` are those of w.
  Gap find(LabelState& state, const std::vector<std::int32_t>& features);

 private:
  double sum_penalty(const LabelState& state, const std::vector<std::int32_t>& features) const;
  Gap measure(const LabelState& state, double penalty) const;

  const Formulas& formulas_;
  std::vector<double> violations_;  // by active row, without the shift
};

}  // namespace umpteen::dual
