#pragma once

#include <cstdint>
#include <vector>

#include "formulas.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen::dual {

/// Dual coordinate descent over a label's active set in random order, until its gap is small enough. A step goes to
/// the least of a parabola that lies above the dual (the threshold only lessens its curvature), so the dual never
/// rises.
class Descent {
 public:
  Descent(const Formulas& formulas, Control& control, int worker)
      : formulas_(formulas), control_(control), worker_(worker) {}

  void run(LabelState& state, DualSolution& solution);

 private:
  bool gather_rows(const LabelState& state);
  void shuffle(Random& random);

  const Formulas& formulas_;
  Control& control_;
  const int worker_;

  const DualKernels& kernels_ = dual_kernels();

  std::vector<std::int32_t> order_;  // places in the active set
  std::vector<DualRow> rows_;        // of the active set
  AlignedVector<std::int32_t> gathered_indices_;
  Floats gathered_data_;
  Floats local_v_;  // v of the touched features
};

}  // namespace umpteen::dual
