#pragma once

#include <cstdint>
#include <vector>

#include "umpteen/aligned.hpp"
#include "umpteen/random.hpp"

namespace umpteen::dual {

/// A row of a label's active set.
struct ActiveRow {
  std::int32_t row;
  float sign;
  float alpha;
  float cost;
  float curvature;  // an upper bound of the dual's second derivative along alpha
};

/// A row a search found.
struct Hit {
  std::int32_t row;
  float score;
};

/// What a search looks for: rows near the mean of the label's own; violators, by some features; violators, by all.
enum class Phase { kNearest, kSampled, kExact };

/// One label on its way to the optimum.
struct LabelState {
  std::int64_t label = 0;
  const std::int32_t* positives = nullptr;
  std::int64_t n_positive = 0;
  Phase phase = Phase::kNearest;
  Random random{0};  // of the label alone: it does not depend on which labels came before
  Floats v;          // the sum of alpha_i s_i x_i; in the phase kNearest, the mean of the label's rows
  double v0 = 0;     // the sum of alpha_i s_i
  std::vector<std::int32_t> touched;     // features where v may differ from 0, if those are listed
  std::vector<std::int32_t> touched_at;  // by feature, if they are listed: the place in touched, or -1
  std::vector<ActiveRow> active;
  double tolerance = 0;   // the gap on the active set at which descent may stop; 0 before the first search
  double shift = 0;       // added to the bias that follows from the alphas
  double last_gap = 0;    // at the search before; infinite before the first exact one
  int stalls = 0;         // searches that found the gap hardly smaller
  int rough_left = 0;     // rough searches that may still be made
  bool is_rough = false;  // the search at hand looks for rows far above the bias only

  // The last search:
  std::vector<Hit> hits;
  std::int64_t n_unreached = 0;  // rows in no column that was read: their score is that of an empty row, or less
  std::vector<std::int32_t> unreached;  // violators among them
  double unreached_loss = 0;            // their loss, estimated from a few of them
  double unreached_bound = 0;           // their loss at most

  void forget_search() {
    hits.clear();
    unreached.clear();
    unreached_loss = unreached_bound = 0;
  }
};

}  // namespace umpteen::dual
