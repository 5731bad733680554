#include "panel_search.hpp"

#include <algorithm>
#include <limits>

namespace umpteen::dual {

namespace {

constexpr std::int64_t kRowsPerBlock = 64;  // of the panel's product, so that its output stays in cache
constexpr std::int64_t kBlocksPerCheck = 64;

}  // namespace

void PanelSearch::run(const std::vector<LabelState*>& states, std::vector<std::int32_t>& features) {
  panel_.resize(as_size(formulas_.X.n_cols) * kPanelLabels, 0.0F);
  block_.resize(kRowsPerBlock * kPanelLabels);
  found_.resize(kRowsPerBlock * kPanelLabels);
  alignas(64) float above[kPanelLabels];
  std::fill_n(above, kPanelLabels, std::numeric_limits<float>::infinity());
  for (std::size_t lane = 0; lane < states.size(); ++lane) {
    LabelState& state = *states[lane];
    state.forget_search();
    formulas_.collect_features(state, features);
    for (const std::int32_t f : features)
      panel_[as_size(f) * kPanelLabels + lane] = formulas_.weight(state, as_size(f));
    above[lane] = formulas_.hit_above(state, features) - formulas_.offset(state);
  }
  find_hits(states, above);
  for (std::size_t lane = 0; lane < states.size(); ++lane) {
    formulas_.collect_features(*states[lane], features);
    for (const std::int32_t f : features) panel_[as_size(f) * kPanelLabels + lane] = 0;
  }
}

/// `above` is, by lane, what a row's score without the bias must exceed.
void PanelSearch::find_hits(const std::vector<LabelState*>& states, const float* above) {
  const CsrView& X = formulas_.X;
  for (std::int64_t begin = 0; begin < X.n_rows; begin += kRowsPerBlock) {
    const std::int64_t n = std::min(kRowsPerBlock, X.n_rows - begin);
    newton_.multiply_panel(n, X.indptr + begin, X.indices, X.data, panel_.data(), block_.data());
    const std::int64_t n_found = dual_.find_in_panel(block_.data(), n, above, found_.data());
    for (std::int64_t k = 0; k < n_found; ++k) {
      const std::int32_t at = found_[as_size(k)];
      LabelState& state = *states[as_size(at % kPanelLabels)];
      const std::int32_t row = static_cast<std::int32_t>(begin) + at / kPanelLabels;
      state.hits.push_back({row, block_[as_size(at)] + formulas_.offset(state)});
    }
    if (begin % (kRowsPerBlock * kBlocksPerCheck) == 0) control_.check_in(worker_);
  }
}

}  // namespace umpteen::dual
