#include "umpteen/linear_scorer.hpp"

#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "umpteen/simd.hpp"

using namespace umpteen;

namespace {

/// A dense little model written feature by feature, and its plain evaluation.
struct Model {
  static constexpr std::int64_t kFeatures = 40;
  static constexpr std::int32_t kLabels = 1300;  // several tiles
  std::vector<std::uint32_t> indptr{0};
  std::vector<std::uint32_t> position_ptr = std::vector<std::uint32_t>(kFeatures + 1);
  std::vector<std::uint16_t> positions;
  std::vector<std::int32_t> labels;
  std::vector<float> weights;
  std::vector<float> bias = std::vector<float>(kLabels);
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(kLabels);
  std::vector<std::vector<float>> dense = std::vector<std::vector<float>>(kLabels, std::vector<float>(kFeatures));

  explicit Model(std::mt19937& rng) {
    // Multiples of 1/4: every sum is exact, whatever the order and the instruction set.
    const auto quarter = [&] { return static_cast<float>(static_cast<int>(rng() % 17) - 8) / 4; };
    for (std::int64_t f = 0; f < kFeatures; ++f) {
      for (std::int32_t l = 0; l < kLabels; ++l) {
        if (rng() % (f % 2 ? 3 : 40) != 0) continue;  // dense runs become masks, thin ones lists
        dense[static_cast<std::size_t>(l)][static_cast<std::size_t>(f)] = quarter();
        labels.push_back(l);
        weights.push_back(dense[static_cast<std::size_t>(l)][static_cast<std::size_t>(f)]);
      }
      indptr.push_back(static_cast<std::uint32_t>(labels.size()));
    }
    positions.resize(static_cast<std::size_t>(count_positions(kFeatures, kLabels, indptr.data())));
    pack_positions(kFeatures, kLabels, indptr.data(), labels.data(), position_ptr.data(), positions.data());
    weights.resize(weights.size() + kWeightPadding);
    for (std::int32_t l = 0; l < kLabels; ++l) {
      bias[static_cast<std::size_t>(l)] = quarter();
      ids[static_cast<std::size_t>(l)] = 2 * l;
    }
  }

  LinearShard shard() const {
    return {kFeatures,      kLabels, indptr.data(), position_ptr.data(), positions.data(),
            weights.data(), false,   1.0F,          bias.data(),         ids.data()};
  }
};

void finds_the_best_labels(const std::string& simd) {
  use_simd(simd);
  std::mt19937 rng(3);
  const Model model(rng);
  std::vector<std::int64_t> indptr{0};
  std::vector<std::int32_t> indices;
  std::vector<float> data;
  constexpr std::int64_t kRows = 50;
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int32_t f = 0; f < Model::kFeatures; ++f)
      if (rng() % 4 == 0) indices.push_back(f), data.push_back(static_cast<float>(rng() % 8) / 4);
    indptr.push_back(static_cast<std::int64_t>(indices.size()));
  }
  const CsrView X{kRows, Model::kFeatures, indptr.data(), indices.data(), data.data()};
  for (const int threads : {1, 3}) {
    constexpr std::int64_t kTop = 7;
    std::vector<std::int32_t> labels(kRows * kTop);
    std::vector<float> scores(kRows * kTop);
    Control control;
    linear_topk({model.shard()}, X, kTop, threads, labels.data(), scores.data(), control);
    for (std::int64_t i = 0; i < kRows; ++i) {
      std::vector<float> all = model.bias;
      for (std::size_t l = 0; l < all.size(); ++l)
        for (std::int64_t j = indptr[static_cast<std::size_t>(i)]; j < indptr[static_cast<std::size_t>(i) + 1]; ++j)
          all[l] += model.dense[l][static_cast<std::size_t>(indices[static_cast<std::size_t>(j)])] *
                    data[static_cast<std::size_t>(j)];
      for (std::int64_t r = 0; r < kTop; ++r) {
        std::size_t best = 0;
        for (std::size_t l = 1; l < all.size(); ++l)
          if (all[l] > all[best]) best = l;
        CHECK(labels[static_cast<std::size_t>(i * kTop + r)] == model.ids[best]);
        CHECK(scores[static_cast<std::size_t>(i * kTop + r)] == all[best]);
        all[best] = -1e30F;
      }
    }
  }
}

void merges_by_score_then_id() {
  float a_scores[4] = {5, 3, 1, 0};
  std::int32_t a_labels[4] = {8, 2, 9, 0};
  float b_scores[3] = {5, 3, 3};
  std::int32_t b_labels[3] = {4, 1, 7};
  float scratch_scores[4];
  std::int32_t scratch_labels[4];
  RankedList into{a_scores, a_labels, 3};
  merge_ranked(into, {b_scores, b_labels, 3}, 4, scratch_scores, scratch_labels);
  CHECK(into.size == 4);
  CHECK(a_labels[0] == 4 && a_labels[1] == 8 && a_labels[2] == 1 && a_labels[3] == 2);
}

}  // namespace

int main() {
  for (const std::string& simd : available_simd()) finds_the_best_labels(simd);
  CHECK_THROWS(use_simd("mmx"), std::invalid_argument);
  merges_by_score_then_id();
  return report();
}
