#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "formulas.hpp"
#include "umpteen/parallel.hpp"

namespace umpteen::dual {

/// A search for one label down the columns of the features in w.
///
/// As in a search engine, columns that cannot lift a row from the bias to its margin need not be read: not those that
/// lower scores, nor a set of frequent features whose weights together are short. By Cauchy and Schwarz they add no
/// more to a score than the length of their weights times that of the row. Rows that the other columns lift far
/// enough are scored in full.
///
/// Where the bias is far above -1, nearly all rows are violators. A label is not near its end then, and a rough
/// search looks only for rows that score far above the bias, down columns that may lift them there; they are not
/// scored again.
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
        found_(kRowsPerBlock + 16),
        scores_(as_size(formulas.X.n_rows), 0.0F) {}

  /// Decides which columns to read. Removes from `features`, those of w, all that cannot make a row a hit.
  void plan(LabelState& state, std::vector<std::int32_t>& features);
  /// Whether the planned search costs more than a share of a panel's. By count, never by clock.
  bool panel_is_cheaper() const;

  /// Finds hits and unreached rows. `features` are those that `plan` left; a sampled search replaces them.
  void run(LabelState& state, std::vector<std::int32_t>& features, DualSolution& solution);

 private:
  static constexpr std::int64_t kRowsPerBlock = 4096;  // of a look at all scores

  void leave_out(const LabelState& state, float way, std::vector<std::int32_t>& features);
  void read_features(LabelState& state, std::vector<std::int32_t>& features, DualSolution& solution);
  void read_column(const LabelState& state, std::int32_t feature, float w, DualSolution& solution);
  std::int64_t count_samples(const LabelState& state, const std::vector<std::int32_t>& features) const;
  void sample_features(LabelState& state, std::int64_t samples, std::vector<std::int32_t>& features);
  bool look_beyond(LabelState& state, float b, DualSolution& solution);
  void read_others(const LabelState& state, DualSolution& solution);
  bool columns_are_cheaper(float b);
  template <typename Visit>
  void visit_candidates(float b, const Visit& visit);
  std::int64_t count_reached() const;
  bool is_reached(std::int32_t row) const {
    return is_dense_ ? scores_[as_size(row)] != 0 : is_reached_[as_size(row)] != 0;
  }
  void collect_hits(LabelState& state, float b, bool complete);
  void clear_scores();
  bool may_be_rough(const LabelState& state) const;
  double find_enough(const LabelState& state) const;
  double find_shift_cost(const LabelState& state, float b) const;
  void estimate_unreached(LabelState& state, float b);
  double weigh_unreached(const LabelState& state) const;
  void pick_unreached(LabelState& state);

  const Formulas& formulas_;
  const NewtonKernels& kernels_ = newton_kernels();
  std::vector<std::uint8_t>& is_marked_;  // by row
  Control& control_;
  const int worker_;

  // the plan
  float hit_above_ = 0;                 // the score that makes a row a hit
  float left_out_ = 0;                  // what columns that are not read may add to a score at most
  std::int64_t planned_entries_ = 0;    // of the columns to read
  std::vector<std::int32_t> lowering_;  // features of w that are not read
  bool is_dense_ = false;  // many entries: rows are reached where their score is not 0, and none is listed
  std::vector<std::pair<float, std::int32_t>> by_worth_;

  // the current search
  std::vector<std::int32_t> reached_;  // rows in a column that was read
  std::vector<std::uint8_t> is_reached_;
  std::vector<std::int32_t> found_;
  std::vector<std::int32_t> candidates_;  // rows that may be hits
  Floats scores_;                         // all 0 between calls
  std::vector<double> cumulative_;
  std::vector<std::int32_t> drawn_;
  std::vector<float> sampled_weights_;
};

}  // namespace umpteen::dual
