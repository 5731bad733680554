#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common.hpp"
#include "umpteen/embedding.hpp"

namespace umpteen {

namespace {

template <typename T>
std::int64_t rows_of(const T& panel) {
  return static_cast<std::int64_t>(panel.shape(0));
}

/// Checks that a panel has this many rows; its stride.
std::int64_t check_panel(const Matrix<float>& panel, std::int64_t n_rows, const char* name) {
  const auto stride = static_cast<std::int64_t>(panel.shape(1));
  if (rows_of(panel) != n_rows || stride == 0 || stride % kEmbeddingLanes != 0)
    throw std::invalid_argument(std::string(name) + " must have " + std::to_string(n_rows) +
                                " rows and a multiple of 16 columns, but has " + std::to_string(rows_of(panel)) +
                                " and " + std::to_string(stride));
  return stride;
}

/// Pairs of rows, checked once. Keeps its arrays alive.
class PairsBinding {
 public:
  PairsBinding(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices, const Vector<float>& target,
               const Vector<float>& weight)
      : indptr_(indptr), indices_(indices), target_(target), weight_(weight) {
    const CsrView pattern = view_csr(indptr, indices, nullptr, static_cast<std::int64_t>(indptr.size()) - 1);
    if (target.size() != indices.size() || weight.size() != indices.size())
      throw std::invalid_argument("pairs need a target and a weight each");
    view_ = {pattern.n_rows, pattern.indptr, pattern.indices, weight.data()};
  }

  NumpyVector<float> residuals(const Matrix<float>& Z, const CancelToken* token) const {
    const std::int64_t stride = check_panel(Z, view_.n_rows, "Z");
    auto out = make_array<float>(size());
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      pair_residuals(view_, Z.data(), stride, target_.data(), out.get(), control);
    }
    return to_numpy(std::move(out), size());
  }

  nb::tuple along(const Matrix<float>& Z, const Matrix<float>& U, const Vector<float>& residual,
                  const CancelToken* token) const {
    const std::int64_t stride = check_panel(Z, view_.n_rows, "Z");
    if (check_panel(U, view_.n_rows, "U") != stride) throw std::invalid_argument("Z and U must have the same shape");
    check_residual(residual);
    auto first = make_array<float>(size());
    auto second = make_array<float>(size());
    auto coefficients = make_array<double>(5);
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      pair_line(view_, Z.data(), U.data(), stride, residual.data(), first.get(), second.get(), coefficients.get(),
                control);
    }
    return nb::make_tuple(to_numpy(std::move(first), size()), to_numpy(std::move(second), size()),
                          to_numpy(std::move(coefficients), 5));
  }

  NumpyMatrix<float> gradient(const Matrix<float>& Z, const Vector<float>& residual, const CancelToken* token) const {
    const std::int64_t stride = check_panel(Z, view_.n_rows, "Z");
    check_residual(residual);
    auto out = make_array<float>(view_.n_rows * stride);
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      pair_gradient(view_, Z.data(), stride, residual.data(), out.get(), control);
    }
    return to_numpy(std::move(out), view_.n_rows, stride);
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(indices_.size()); }
  void check_residual(const Vector<float>& residual) const {
    if (residual.size() != indices_.size()) throw std::invalid_argument("there must be one residual per pair");
  }

  Vector<std::int64_t> indptr_;
  Vector<std::int32_t> indices_;
  Vector<float> target_, weight_;
  PairsView view_{};
};

nb::tuple find_near_pairs_binding(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices,
                                  const Vector<float>& data, std::int64_t n_labels, std::int64_t n_near,
                                  std::uint64_t seed, const CancelToken* token) {
  const CsrView Y = view_csr(indptr, indices, data, n_labels);
  if (n_near < 1) throw std::invalid_argument("n_near must be at least 1");
  NearPairs pairs;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    pairs = find_near_pairs(Y, n_near, seed, control);
  }
  return nb::make_tuple(copy_to_numpy(pairs.indptr), copy_to_numpy(pairs.indices), copy_to_numpy(pairs.target),
                        copy_to_numpy(pairs.weight));
}

NumpyMatrix<float> multiply_panel_binding(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices,
                                          const Vector<float>& data, const Matrix<float>& panel, int threads,
                                          const CancelToken* token) {
  const CsrView X = view_csr(indptr, indices, data, rows_of(panel));
  const std::int64_t stride = check_panel(panel, X.n_cols, "the panel");
  auto out = make_array<float>(X.n_rows * stride);
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    multiply_panel(X, panel.data(), stride, out.get(), threads, control);
  }
  return to_numpy(std::move(out), X.n_rows, stride);
}

NumpyMatrix<float> add_rows_by_cluster_binding(const Vector<std::int64_t>& indptr,
                                               const Vector<std::int32_t>& indices, const Vector<float>& data,
                                               std::int64_t n_cols, const Vector<std::int32_t>& cluster,
                                               std::int64_t n_clusters) {
  const CsrView X = view_csr(indptr, indices, data, n_cols);
  if (static_cast<std::int64_t>(cluster.size()) != X.n_rows)
    throw std::invalid_argument("there must be one cluster per row");
  for (std::size_t i = 0; i < cluster.size(); ++i)
    if (cluster.data()[i] < 0 || cluster.data()[i] >= n_clusters) throw std::out_of_range("there is no such cluster");
  auto out = make_array<float>(n_clusters * n_cols);
  std::fill_n(out.get(), n_clusters * n_cols, 0.0F);
  {
    Control control = make_control(nullptr);
    const nb::gil_scoped_release release;
    add_rows_by_cluster(X, cluster.data(), out.get(), control);
  }
  return to_numpy(std::move(out), n_clusters, n_cols);
}

std::pair<NumpyMatrix<float>, int> solve_ridge_binding(const Vector<std::int64_t>& indptr,
                                                       const Vector<std::int32_t>& indices, const Vector<float>& data,
                                                       const Vector<std::int64_t>& column_indptr,
                                                       const Vector<std::int32_t>& column_indices,
                                                       const Vector<float>& column_data, const Matrix<float>& Z,
                                                       const Matrix<float>& start, double lambda, double tolerance,
                                                       int max_iterations, const CancelToken* token) {
  const auto d = static_cast<std::int64_t>(column_indptr.size()) - 1;
  const CsrView X = view_csr(indptr, indices, data, d);
  const CsrView by_column = view_csr(column_indptr, column_indices, column_data, X.n_rows);
  const std::int64_t stride = check_panel(Z, X.n_rows, "Z");
  if (check_panel(start, d, "the start") != stride)
    throw std::invalid_argument("Z and the start must have the same number of columns");
  auto V = make_array<float>(d * stride);
  std::copy_n(start.data(), d * stride, V.get());
  int iterations = 0;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    iterations = solve_ridge(X, by_column, Z.data(), stride, lambda, tolerance, max_iterations, V.get(), control);
  }
  return {to_numpy(std::move(V), d, stride), iterations};
}

double panel_inner_binding(const Matrix<float>& A, const Matrix<float>& B) {
  const std::int64_t stride = check_panel(A, rows_of(A), "A");
  if (check_panel(B, rows_of(A), "B") != stride) throw std::invalid_argument("A and B must have the same shape");
  Control control = make_control(nullptr);
  const nb::gil_scoped_release release;
  return panel_inner(rows_of(A), A.data(), B.data(), stride, control);
}

NumpyMatrix<double> multiply_transposed_binding(const Matrix<float>& A, const Matrix<float>& B,
                                                const CancelToken* token) {
  const std::int64_t stride_a = check_panel(A, rows_of(A), "A");
  const std::int64_t stride_b = check_panel(B, rows_of(A), "B");
  auto out = make_array<double>(stride_a * stride_b);
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    multiply_transposed(rows_of(A), A.data(), stride_a, B.data(), stride_b, out.get(), control);
  }
  return to_numpy(std::move(out), stride_a, stride_b);
}

NumpyMatrix<float> multiply_dense_binding(const Matrix<float>& A, const Matrix<double>& E, const CancelToken* token) {
  const std::int64_t stride = check_panel(A, rows_of(A), "A");
  const auto width = static_cast<std::int64_t>(E.shape(1));
  if (rows_of(E) != stride || width % kEmbeddingLanes != 0)
    throw std::invalid_argument("A must have one column per row of E, and E a multiple of 16 columns");
  auto out = make_array<float>(rows_of(A) * width);
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    multiply_dense(rows_of(A), A.data(), stride, E.data(), width, out.get(), control);
  }
  return to_numpy(std::move(out), rows_of(A), width);
}

nb::tuple decompose_binding(const Matrix<double>& A, const CancelToken* token) {
  const std::int64_t n = rows_of(A);
  if (static_cast<std::int64_t>(A.shape(1)) != n) throw std::invalid_argument("A must be square");
  auto Vt = make_array<double>(n * n);
  auto Ut = make_array<double>(n * n);
  auto s = make_array<double>(n);
  std::copy_n(A.data(), n * n, Vt.get());
  if (!std::all_of(Vt.get(), Vt.get() + n * n, [](double a) { return std::isfinite(a); }))
    throw std::invalid_argument("A must be finite");
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    decompose(n, Vt.get(), Ut.get(), s.get(), control);
  }
  return nb::make_tuple(to_numpy(std::move(Ut), n, n), to_numpy(std::move(s), n), to_numpy(std::move(Vt), n, n));
}

using AnyVector = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using AnyCube = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

template <typename Array>
bool is_half(const Array& array) {
  return array.dtype().code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) && array.itemsize() == 2;
}

/// The clusters of a model, checked once; it keeps their arrays (usually file mappings) alive.
class EmbeddingScorer {
 public:
  EmbeddingScorer(std::int64_t n_features, std::int64_t n_labels, std::int64_t n_learners, double bias, bool cosine,
                  std::int64_t knn, double sharpness)
      : model_{
            .n_features = n_features,
            .n_labels = n_labels,
            .bias = bias,
            .cosine = cosine,
            .knn = knn,
            .sharpness = sharpness,
            .clusters = {},
            .learners = {},
        } {
    if (knn < 1 || n_learners < 1 || !(sharpness >= 0))
      throw std::invalid_argument("knn and the learners must be at least 1, sharpness at least 0");
    model_.learners.resize(static_cast<std::size_t>(n_learners));
  }

  void add_cluster(std::int64_t learner, const Vector<std::int32_t>& features, const Vector<float>& centre,
                   double centre_offset, const AnyMatrix& V, double scale, const AnyCube& Z,
                   const Vector<float>& offsets, const Vector<std::uint32_t>& label_ptr, const AnyVector& labels) {
    if (learner < 0 || learner >= static_cast<std::int64_t>(model_.learners.size()))
      throw std::invalid_argument("there is no such learner");
    const auto n_kept = static_cast<std::int64_t>(features.size());
    for (std::int64_t i = 0; i < n_kept; ++i)
      if (features.data()[i] < 0 || features.data()[i] >= model_.n_features ||
          (i > 0 && features.data()[i] <= features.data()[i - 1]))
        throw std::invalid_argument("a cluster's features must rise and be below " +
                                    std::to_string(model_.n_features));
    const auto n_rows = static_cast<std::int64_t>(offsets.size());
    const auto rank = static_cast<std::int64_t>(Z.shape(1));
    const auto stride = static_cast<std::int64_t>(V.shape(1));
    if (!is_half(V) || !is_half(Z)) throw std::invalid_argument("a cluster's V and Z must be float16");
    if (static_cast<std::int64_t>(centre.size()) != n_kept || static_cast<std::int64_t>(V.shape(0)) != n_kept + 1)
      throw std::invalid_argument("a cluster needs a centre and V for each of its features, and V for the bias");
    if (rank < 1 || stride != (rank + 15) / 16 * 16 || Z.shape(2) != 16 ||
        static_cast<std::int64_t>(Z.shape(0)) != (n_rows + 15) / 16)
      throw std::invalid_argument("a cluster's Z must be blocks of sixteen rows, as wide as V");
    const bool narrow = labels.dtype().code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt);
    if (narrow
            ? labels.itemsize() != 2
            : labels.dtype().code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int) || labels.itemsize() != 4)
      throw std::invalid_argument("a cluster's labels must be uint16 or int32");
    const std::uint32_t* p = label_ptr.data();
    bool good = static_cast<std::int64_t>(label_ptr.size()) == n_rows + 1 && p[0] == 0 && p[n_rows] == labels.size();
    for (std::int64_t i = 0; good && i < n_rows; ++i) good = p[i] <= p[i + 1];
    if (!good) throw std::invalid_argument("a cluster's label offsets must rise and end where its labels do");
    auto& clusters = model_.learners[static_cast<std::size_t>(learner)];
    clusters.push_back(static_cast<std::int32_t>(model_.clusters.size()));
    model_.clusters.push_back({
        .learner = static_cast<std::int32_t>(learner),
        .n_rows = n_rows,
        .rank = rank,
        .n_kept = n_kept,
        .features = features.data(),
        .centre = centre.data(),
        .centre_offset = centre_offset,
        .V = static_cast<const std::uint16_t*>(V.data()),
        .scale = scale,
        .Z = static_cast<const std::uint16_t*>(Z.data()),
        .offsets = offsets.data(),
        .label_ptr = p,
        .labels = labels.data(),
        .wide_labels = !narrow,
    });
    owners_.push_back(nb::make_tuple(features, centre, V, Z, offsets, label_ptr, labels));
  }

  nb::tuple embed(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices, const Vector<float>& data,
                  std::int64_t learner, int threads) const {
    const CsrView X = view(indptr, indices, data);
    std::int64_t stride = 0;
    for (const EmbeddingCluster& cluster : model_.clusters) stride = std::max(stride, (cluster.rank + 15) / 16 * 16);
    if (learner < 0 || learner >= static_cast<std::int64_t>(model_.learners.size()))
      throw std::invalid_argument("there is no such learner");
    auto clusters = make_array<std::int32_t>(X.n_rows);
    auto out = make_array<float>(X.n_rows * stride);
    {
      Control control = make_control(nullptr);
      const nb::gil_scoped_release release;
      embed_rows(model_, learner, X, stride, threads, clusters.get(), out.get(), control);
    }
    return nb::make_tuple(to_numpy(std::move(clusters), X.n_rows), to_numpy(std::move(out), X.n_rows, stride));
  }

  nb::tuple near(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices, const Vector<float>& data,
                 int threads) const {
    const CsrView X = view(indptr, indices, data);
    const auto n_learners = static_cast<std::int64_t>(model_.learners.size());
    auto clusters = make_array<std::int32_t>(X.n_rows * n_learners);
    auto rows = make_array<std::int32_t>(X.n_rows * n_learners * model_.knn);
    auto similarity = make_array<float>(X.n_rows * n_learners * model_.knn);
    {
      Control control = make_control(nullptr);
      const nb::gil_scoped_release release;
      find_near_rows(model_, X, threads, clusters.get(), rows.get(), similarity.get(), control);
    }
    return nb::make_tuple(to_numpy(std::move(clusters), X.n_rows, n_learners),
                          to_numpy(std::move(rows), X.n_rows, n_learners * model_.knn),
                          to_numpy(std::move(similarity), X.n_rows, n_learners * model_.knn));
  }

  /// `rows` and `similarity` may hold another number of rows than knn, and another sharpness may be tried.
  std::pair<NumpyMatrix<std::int32_t>, NumpyMatrix<float>> vote(const Matrix<std::int32_t>& clusters,
                                                                const Matrix<std::int32_t>& rows,
                                                                const Matrix<float>& similarity, std::int64_t top_k,
                                                                int threads,
                                                                const std::optional<Vector<std::uint8_t>>& allowed,
                                                                const std::optional<double>& sharpness) const {
    check(top_k, allowed);
    EmbeddingModel model = model_;
    model.sharpness = sharpness.value_or(model_.sharpness);
    const std::int64_t n = rows_of(clusters);
    const auto n_learners = static_cast<std::int64_t>(model.learners.size());
    model.knn = static_cast<std::int64_t>(rows.shape(1)) / n_learners;
    if (static_cast<std::int64_t>(clusters.shape(1)) != n_learners || rows_of(rows) != n || model.knn < 1 ||
        static_cast<std::int64_t>(rows.shape(1)) != n_learners * model.knn || rows_of(similarity) != n ||
        similarity.shape(1) != rows.shape(1))
      throw std::invalid_argument("a vote needs the same number of rows and similarities from every learner");
    for (std::int64_t i = 0; i < n * n_learners; ++i) {
      const std::int64_t cluster = clusters.data()[i];
      if (cluster >= static_cast<std::int64_t>(model.clusters.size()))
        throw std::out_of_range("there is no such cluster");
      const std::int64_t most = cluster < 0 ? 0 : model.clusters[static_cast<std::size_t>(cluster)].n_rows;
      for (std::int64_t k = i * model.knn; k < (i + 1) * model.knn; ++k)
        if (rows.data()[k] >= most) throw std::out_of_range("a cluster has no such row");
    }
    auto labels = make_array<std::int32_t>(n * top_k);
    auto scores = make_array<float>(n * top_k);
    {
      Control control = make_control(nullptr);
      const nb::gil_scoped_release release;
      vote_near_rows(model, n, clusters.data(), rows.data(), similarity.data(), top_k,
                     allowed ? allowed->data() : nullptr, threads, labels.get(), scores.get(), control);
    }
    return {to_numpy(std::move(labels), n, top_k), to_numpy(std::move(scores), n, top_k)};
  }

  std::pair<NumpyMatrix<std::int32_t>, NumpyMatrix<float>> topk(const Vector<std::int64_t>& indptr,
                                                                const Vector<std::int32_t>& indices,
                                                                const Vector<float>& data, std::int64_t top_k,
                                                                int threads,
                                                                const std::optional<Vector<std::uint8_t>>& allowed,
                                                                const CancelToken* token) const {
    const CsrView X = view(indptr, indices, data);
    check(top_k, allowed);
    auto labels = make_array<std::int32_t>(X.n_rows * top_k);
    auto scores = make_array<float>(X.n_rows * top_k);
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      embedding_topk(model_, X, top_k, allowed ? allowed->data() : nullptr, threads, labels.get(), scores.get(),
                     control);
    }
    return {to_numpy(std::move(labels), X.n_rows, top_k), to_numpy(std::move(scores), X.n_rows, top_k)};
  }

 private:
  CsrView view(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices,
               const Vector<float>& data) const {
    for (const auto& clusters : model_.learners)
      if (clusters.empty()) throw std::invalid_argument("every learner needs at least one cluster");
    return view_csr(indptr, indices, data, model_.n_features);
  }

  void check(std::int64_t top_k, const std::optional<Vector<std::uint8_t>>& allowed) const {
    if (top_k < 1 || top_k > model_.n_labels)
      throw std::invalid_argument("top_k must be between 1 and the number of labels, but is " +
                                  std::to_string(top_k));
    if (allowed && static_cast<std::int64_t>(allowed->size()) != model_.n_labels)
      throw std::invalid_argument("allowed must have one entry per label");
  }

  EmbeddingModel model_;
  std::vector<nb::object> owners_;
};

}  // namespace

void register_embedding(nb::module_& m) {
  nb::class_<PairsBinding>(m, "Pairs", "Pairs of rows and what their inner products should be.")
      .def(nb::init<const Vector<std::int64_t>&, const Vector<std::int32_t>&, const Vector<float>&,
                    const Vector<float>&>(),
           nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("target").noconvert(),
           nb::arg("weight").noconvert())
      .def("residuals", &PairsBinding::residuals, nb::arg("Z").noconvert(), nb::arg("token") = nb::none())
      .def("along", &PairsBinding::along, nb::arg("Z").noconvert(), nb::arg("U").noconvert(),
           nb::arg("residual").noconvert(), nb::arg("token") = nb::none(),
           "(first, second, coefficients) of residuals and objective along Z + tU.")
      .def("gradient", &PairsBinding::gradient, nb::arg("Z").noconvert(), nb::arg("residual").noconvert(),
           nb::arg("token") = nb::none());
  m.def("find_near_pairs", &find_near_pairs_binding, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("data").noconvert(), nb::arg("n_labels"), nb::arg("n_near"), nb::arg("seed"),
        nb::arg("token") = nb::none(), "The arrays of Pairs: every row with the n_near rows most like it.");
  m.def("multiply_panel", &multiply_panel_binding, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("data").noconvert(), nb::arg("panel").noconvert(), nb::arg("threads") = 1,
        nb::arg("token") = nb::none(), "X times a dense panel.");
  m.def("add_rows_by_cluster", &add_rows_by_cluster_binding, nb::arg("indptr").noconvert(),
        nb::arg("indices").noconvert(), nb::arg("data").noconvert(), nb::arg("n_cols"),
        nb::arg("cluster").noconvert(), nb::arg("n_clusters"), "The sum of each cluster's rows.");
  m.def("solve_ridge", &solve_ridge_binding, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("data").noconvert(), nb::arg("column_indptr").noconvert(), nb::arg("column_indices").noconvert(),
        nb::arg("column_data").noconvert(), nb::arg("Z").noconvert(), nb::arg("start").noconvert(),
        nb::arg("lambda_"), nb::arg("tolerance"), nb::arg("max_iterations"), nb::arg("token") = nb::none(),
        "(V, iterations) of min |Z - XV|^2 + lambda |V|^2.");
  m.def("panel_inner", &panel_inner_binding, nb::arg("A").noconvert(), nb::arg("B").noconvert(),
        "The sum of A * B, entry by entry.");
  m.def("multiply_transposed", &multiply_transposed_binding, nb::arg("A").noconvert(), nb::arg("B").noconvert(),
        nb::arg("token") = nb::none(), "A^T B in double.");
  m.def("multiply_dense", &multiply_dense_binding, nb::arg("A").noconvert(), nb::arg("E").noconvert(),
        nb::arg("token") = nb::none(), "A E in float.");
  m.def("decompose", &decompose_binding, nb::arg("A").noconvert(), nb::arg("token") = nb::none(),
        "(U^T, s, V^T) with A = U diag(s) V^T.");
  nb::class_<EmbeddingScorer>(m, "EmbeddingScorer", "Top-k by the votes of the nearest rows of each learner.")
      .def(nb::init<std::int64_t, std::int64_t, std::int64_t, double, bool, std::int64_t, double>(),
           nb::arg("n_features"), nb::arg("n_labels"), nb::arg("n_learners"), nb::arg("bias"), nb::arg("cosine"),
           nb::arg("knn"), nb::arg("sharpness"))
      .def("add_cluster", &EmbeddingScorer::add_cluster, nb::arg("learner"), nb::arg("features").noconvert(),
           nb::arg("centre").noconvert(), nb::arg("centre_offset"), nb::arg("V").noconvert(), nb::arg("scale"),
           nb::arg("Z").noconvert(), nb::arg("offsets").noconvert(), nb::arg("label_ptr").noconvert(),
           nb::arg("labels").noconvert())
      .def("embed", &EmbeddingScorer::embed, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("data").noconvert(), nb::arg("learner"), nb::arg("threads"),
           "(cluster of each row, embedding of each row) in one learner.")
      .def("near", &EmbeddingScorer::near, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("data").noconvert(), nb::arg("threads"),
           "(clusters, rows, similarities) of the nearest rows in each learner.")
      .def("vote", &EmbeddingScorer::vote, nb::arg("clusters").noconvert(), nb::arg("rows").noconvert(),
           nb::arg("similarity").noconvert(), nb::arg("top_k"), nb::arg("threads"),
           nb::arg("allowed").noconvert() = nb::none(), nb::arg("sharpness") = nb::none(),
           "(labels, scores) by the vote of given rows.")
      .def("topk", &EmbeddingScorer::topk, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("data").noconvert(), nb::arg("top_k"), nb::arg("threads"),
           nb::arg("allowed").noconvert() = nb::none(), nb::arg("token") = nb::none(),
           "(labels, scores), each n_rows x top_k, best first; -1 and -inf pad.");
}

}  // namespace umpteen
