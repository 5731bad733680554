#pragma once

#include <cstdint>
#include <vector>

#include "variables.hpp"

namespace umpteen::pd {

/// The minimum of the dual over one row's active set, with curvature |x_i|^2.
class RowStep {
 public:
  explicit RowStep(Variables& variables) : variables_(variables) {}

  void run(std::int64_t row, PdWork& work);

 private:
  void settle_empty_row(std::int64_t row);
  double find_targets(std::int64_t row, PdWork& work);
  void take_targets(std::int64_t row, PdWork& work);

  Variables& variables_;
  std::vector<double> targets_;  // -alpha of the active labels, then alpha of the row's own, before projection
};

}  // namespace umpteen::pd
