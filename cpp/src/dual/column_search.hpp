#pragma once

#include <cstdint>
#include <vector>

#include "formulas.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen::dual {

/// A search for one label down the columns of the features in w.
///
/// Most rows without a feature that raises scores need no look: at a bias below -1 they violate nothing. Above it
/// each is taken for an empty row where that costs little; else some are looked at, and where those suggest that the
/// end may be near, the other columns are read too.
class ColumnSearch {
 public:
  /// `is_marked` is scratch by row, all 0 between calls.
  ColumnSearch(const Formulas& formulas, std::vector<std::uint8_t>& is_marked, Control& control, int worker)
      : formulas_(formulas),
        is_marked_(is_marked),
        control_(control),
        worker_(worker),
        is_reached_(as_size(formulas.X.n_rows), 0),
        scores_(as_size(formulas.X.n_rows), 0.0F) {}

  /// Decides which columns to read. Removes from `features`, those of w, all that cannot make a row a hit.
  void plan(const LabelState& state, std::vector<std::int32_t>& features);
  /// Whether the planned search costs more than a share of a panel's. By count, never by clock.
  bool panel_is_cheaper() const;

  /// Finds hits and unreached rows. `features` are those that `plan` left; a sampled search replaces them.
  void run(LabelState& state, std::vector<std::int32_t>& features, DualSolution& solution);

 private:
  void read_features(LabelState& state, std::vector<std::int32_t>& features, DualSolution& solution);
  void read_column(const LabelState& state, std::int32_t feature, float w, DualSolution& solution);
  void sample_features(LabelState& state, std::vector<std::int32_t>& features);
  bool look_beyond(LabelState& state, float b, DualSolution& solution);
  void collect_hits(LabelState& state, float b, bool complete);
  bool shift_is_cheap(const LabelState& state, float b, double enough) const;
  void estimate_unreached(LabelState& state, float b);
  double weigh_unreached(const LabelState& state) const;
  void pick_unreached(LabelState& state);

  const Formulas& formulas_;
  std::vector<std::uint8_t>& is_marked_;  // by row
  Control& control_;
  const int worker_;

  // the plan
  float hit_above_ = 0;                 // the least score that makes a row a hit
  float left_out_ = 0;                  // what columns that are not read may add to a score at most
  std::int64_t planned_entries_ = 0;    // of the columns to read
  std::vector<std::int32_t> lowering_;  // features of w that cannot make a row a hit

  // the current search
  std::vector<std::int32_t> reached_;  // rows in a column that was read
  std::vector<std::uint8_t> is_reached_;
  Floats scores_;
  std::vector<double> cumulative_;
  std::vector<std::int32_t> drawn_;
  std::vector<float> sampled_weights_;
};

}  // namespace umpteen::dual
