#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "column_search.hpp"
#include "descent.hpp"
#include "formulas.hpp"
#include "gap.hpp"
#include "panel_search.hpp"

namespace umpteen::dual {

/// Solves labels on one thread: descent and search in turns, until the gap is small enough.
class Solver {
 public:
  Solver(const DualProblem& problem, const FeatureColumns& columns, Control& control, int worker)
      : formulas_(problem, columns),
        problem_(problem),
        control_(control),
        worker_(worker),
        is_marked_(as_size(problem.X.n_rows), 0),
        descent_(formulas_, control, worker),
        column_search_(formulas_, is_marked_, control, worker),
        panel_search_(formulas_, control, worker),
        gap_finder_(formulas_) {}
  Solver(const Solver&) = delete;  // its parts refer to each other
  Solver& operator=(const Solver&) = delete;

  /// Starts a label and advances it until it is done or waits for a shared search.
  void add(std::int64_t label, DualSolution& solution);

  bool full() const { return waiting_.size() >= kPanelLabels; }
  bool idle() const { return waiting_.empty(); }

  /// Searches for all labels that wait, in one reading of X, and advances each.
  void share_search();

 private:
  struct Job {
    LabelState* state;
    DualSolution* solution;
  };

  LabelState* take_state();
  void start(LabelState& state, std::int64_t label);
  void warm_start(LabelState& state);
  /// A row that counts `times` as often as its row_cost says.
  void activate(LabelState& state, std::int32_t row, float sign, float times = 1);
  void put_mean(LabelState& state);
  void advance(const Job& job);

  bool absorb(LabelState& state, DualSolution& solution);
  void absorb_sampled(LabelState& state, DualSolution& solution);
  void absorb_rough(LabelState& state, DualSolution& solution);
  bool absorb_exact(LabelState& state, DualSolution& solution);
  void drop_active_hits(LabelState& state);
  std::int64_t count_missed(const LabelState& state) const;
  void add_best(LabelState& state, std::int64_t n);
  void renew_active(LabelState& state, DualSolution& solution);
  void clear(LabelState& state);
  void finish(LabelState& state, DualSolution& solution);
  void write_weights(const LabelState& state, DualSolution& solution);
  void write_alphas(LabelState& state, DualSolution& solution);

  const Formulas formulas_;
  const DualProblem& problem_;
  Control& control_;
  const int worker_;

  std::vector<std::unique_ptr<LabelState>> states_;
  std::vector<LabelState*> free_;
  std::vector<Job> waiting_;

  std::vector<std::int32_t> features_;   // of the label at hand
  std::vector<std::uint8_t> is_marked_;  // by row; all 0 between uses
  Descent descent_;
  ColumnSearch column_search_;
  PanelSearch panel_search_;
  GapFinder gap_finder_;
};

}  // namespace umpteen::dual
