#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common.hpp"
#include "shard_view.hpp"
#include "umpteen/linear_scorer.hpp"

namespace umpteen {

namespace {

nb::tuple pack_positions_binding(const Vector<std::uint32_t>& indptr, const Vector<std::int32_t>& labels,
                                 std::int64_t n_labels) {
  const auto n_features = static_cast<std::int64_t>(indptr.size()) - 1;
  const std::uint32_t* p = indptr.data();
  bool good = n_features >= 0 && p[0] == 0 && p[n_features] == labels.size();
  for (std::int64_t f = 0; good && f < n_features; ++f) good = p[f] <= p[f + 1];
  for (std::size_t i = 0; good && i < labels.size(); ++i) good = labels.data()[i] >= 0 && labels.data()[i] < n_labels;
  if (!good || n_labels > 65536) throw std::invalid_argument("labels to pack must be in range, their offsets rise");
  const std::int64_t n_positions = count_positions(n_features, n_labels, p);
  auto position_ptr = make_array<std::uint32_t>(n_features + 1);
  auto positions = make_array<std::uint16_t>(n_positions);
  pack_positions(n_features, n_labels, p, labels.data(), position_ptr.get(), positions.get());
  return nb::make_tuple(to_numpy(std::move(position_ptr), n_features + 1),
                        to_numpy(std::move(positions), n_positions));
}

NumpyVector<std::int32_t> unpack_positions_binding(const Vector<std::uint32_t>& indptr,
                                                   const Vector<std::uint32_t>& position_ptr,
                                                   const Vector<std::uint16_t>& positions, const Weights& weights,
                                                   std::int64_t n_labels) {
  const auto n_features = static_cast<std::int64_t>(indptr.size()) - 1;
  const LinearShard shard = view_shard(n_features, n_labels, indptr, position_ptr, positions, weights, 1);
  const std::int64_t nnz = shard.indptr[n_features];
  auto labels = make_array<std::int32_t>(nnz);
  unpack_positions(shard, labels.get());
  return to_numpy(std::move(labels), nnz);
}

/// The shards of a model, checked once; it keeps their arrays (usually file mappings) alive.
class LinearScorer {
 public:
  LinearScorer(std::int64_t n_features, std::int64_t n_labels) : n_features_(n_features), n_labels_(n_labels) {}

  void add_shard(const Vector<std::uint32_t>& indptr, const Vector<std::uint32_t>& position_ptr,
                 const Vector<std::uint16_t>& positions, const Weights& weights, const Vector<float>& bias,
                 const Vector<std::int32_t>& label_ids, float scale) {
    LinearShard shard = view_shard(n_features_, static_cast<std::int64_t>(label_ids.size()), indptr, position_ptr,
                                   positions, weights, scale);
    if (bias.size() != label_ids.size()) throw std::invalid_argument("a shard needs one bias per label");
    const std::int32_t* ids = label_ids.data();
    for (std::size_t i = 0; i < label_ids.size(); ++i)
      if (ids[i] < 0 || ids[i] >= n_labels_ || (i > 0 && ids[i] <= ids[i - 1]))
        throw std::invalid_argument("a shard's label ids must rise and be below " + std::to_string(n_labels_));
    shard.bias = bias.data();
    shard.label_ids = ids;
    shards_.push_back(shard);
    owners_.push_back(nb::make_tuple(indptr, position_ptr, positions, weights, bias, label_ids));
  }

  std::pair<NumpyMatrix<std::int32_t>, NumpyMatrix<float>> topk(
      const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices, const Vector<float>& data,
      std::int64_t top_k, int threads, const std::optional<std::vector<Vector<float>>>& biases,
      const CancelToken* token) const {
    const CsrView X = view_csr(indptr, indices, data, n_features_);
    if (top_k < 1 || top_k > n_labels_)
      throw std::invalid_argument("top_k must be between 1 and the number of labels, but is " +
                                  std::to_string(top_k));
    std::vector<LinearShard> shards = shards_;
    if (biases) {
      if (biases->size() != shards.size()) throw std::invalid_argument("one bias per shard is needed");
      for (std::size_t s = 0; s < shards.size(); ++s) {
        if (static_cast<std::int32_t>((*biases)[s].size()) != shards[s].n_labels)
          throw std::invalid_argument("a bias must have one entry per label");
        shards[s].bias = (*biases)[s].data();
      }
    }
    auto labels = make_array<std::int32_t>(X.n_rows * top_k);
    auto scores = make_array<float>(X.n_rows * top_k);
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      linear_topk(shards, X, top_k, threads, labels.get(), scores.get(), control);
    }
    return {to_numpy(std::move(labels), X.n_rows, top_k), to_numpy(std::move(scores), X.n_rows, top_k)};
  }

 private:
  std::int64_t n_features_;
  std::int64_t n_labels_;
  std::vector<LinearShard> shards_;
  std::vector<nb::object> owners_;
};

/// Weights by label, looked over once: a row alone needs few of them.
class CandidateScorer {
 public:
  CandidateScorer(Vector<std::int64_t> indptr, Vector<std::int32_t> indices, Vector<float> data, Vector<float> bias,
                  std::int64_t n_features)
      : indptr_(std::move(indptr)),
        indices_(std::move(indices)),
        data_(std::move(data)),
        bias_(std::move(bias)),
        W_(view_csr(indptr_, indices_, data_, n_features)) {
    if (static_cast<std::int64_t>(bias_.size()) != W_.n_rows)
      throw std::invalid_argument("there must be one bias per label");
  }

  std::pair<NumpyMatrix<std::int32_t>, NumpyMatrix<float>> topk(
      const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices, const Vector<float>& data,
      const Matrix<std::int32_t>& candidates, std::int64_t top_k, int threads, const CancelToken* token) const {
    const CsrView X = view_csr(indptr, indices, data, W_.n_cols);
    bool good = static_cast<std::int64_t>(candidates.shape(0)) == X.n_rows;
    for (std::size_t i = 0; good && i < candidates.size(); ++i)
      good = candidates.data()[i] >= -1 && candidates.data()[i] < W_.n_rows;
    if (!good) throw std::invalid_argument("candidates must be labels of the model or -1, one list per row");
    if (top_k < 1) throw std::invalid_argument("top_k must be at least 1, but is " + std::to_string(top_k));
    auto labels = make_array<std::int32_t>(X.n_rows * top_k);
    auto scores = make_array<float>(X.n_rows * top_k);
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      rank_candidates(W_, bias_.data(), X, candidates.data(), static_cast<std::int64_t>(candidates.shape(1)), top_k,
                      threads, labels.get(), scores.get(), control);
    }
    return {to_numpy(std::move(labels), X.n_rows, top_k), to_numpy(std::move(scores), X.n_rows, top_k)};
  }

 private:
  Vector<std::int64_t> indptr_;
  Vector<std::int32_t> indices_;
  Vector<float> data_;
  Vector<float> bias_;
  CsrView W_;
};

}  // namespace

void register_linear(nb::module_& m) {
  m.attr("WEIGHT_PADDING") = kWeightPadding;
  m.def("pack_positions", &pack_positions_binding, nb::arg("indptr").noconvert(), nb::arg("labels").noconvert(),
        nb::arg("n_labels"), "(position_ptr, positions) of a shard; see linear_shard.hpp for the layout.");
  m.def("unpack_positions", &unpack_positions_binding, nb::arg("indptr").noconvert(),
        nb::arg("position_ptr").noconvert(), nb::arg("positions").noconvert(), nb::arg("weights").noconvert(),
        nb::arg("n_labels"), "The label of every weight of a shard.");
  nb::class_<CandidateScorer>(m, "CandidateScorer", "Top-k of each row's candidate labels, from weights by label.")
      .def(nb::init<Vector<std::int64_t>, Vector<std::int32_t>, Vector<float>, Vector<float>, std::int64_t>(),
           nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("data").noconvert(),
           nb::arg("bias").noconvert(), nb::arg("n_features"))
      .def("topk", &CandidateScorer::topk, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("data").noconvert(), nb::arg("candidates").noconvert(), nb::arg("top_k"), nb::arg("threads"),
           nb::arg("token") = nb::none(), "(labels, scores), each n_rows x top_k, best first; -1 and -inf pad.");
  nb::class_<LinearScorer>(m, "LinearScorer", "Exact top-k over the shards of a linear model.")
      .def(nb::init<std::int64_t, std::int64_t>(), nb::arg("n_features"), nb::arg("n_labels"))
      .def("add_shard", &LinearScorer::add_shard, nb::arg("indptr").noconvert(), nb::arg("position_ptr").noconvert(),
           nb::arg("positions").noconvert(), nb::arg("weights").noconvert(), nb::arg("bias").noconvert(),
           nb::arg("label_ids").noconvert(), nb::arg("scale"))
      .def("topk", &LinearScorer::topk, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("data").noconvert(), nb::arg("top_k"), nb::arg("threads"),
           nb::arg("biases").noconvert() = nb::none(), nb::arg("token") = nb::none(),
           "(labels, scores), each n_rows x top_k, best first; -1 and -inf pad.");
}

}  // namespace umpteen
