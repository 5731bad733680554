#pragma once

#include <cstdint>
#include <vector>

#include "formulas.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen::dual {

/// A search for up to kPanelLabels labels in one reading of X, their scores side by side.
class PanelSearch {
 public:
  PanelSearch(const Formulas& formulas, Control& control, int worker)
      : formulas_(formulas), control_(control), worker_(worker) {}

  /// Finds the hits of each label; no row is left unreached. `features` is scratch.
  void run(const std::vector<LabelState*>& states, std::vector<std::int32_t>& features);

 private:
  void find_hits(const std::vector<LabelState*>& states, const float* above);

  const Formulas& formulas_;
  Control& control_;
  const int worker_;
  const NewtonKernels& newton_ = newton_kernels();
  const DualKernels& dual_ = dual_kernels();
  Floats panel_;  // features x lanes: weights; all 0 between calls
  Floats block_;  // some rows x lanes: scores
  std::vector<std::int32_t> found_;
};

}  // namespace umpteen::dual
