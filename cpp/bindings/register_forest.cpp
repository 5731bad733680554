#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common.hpp"
#include "one_vs_rest.hpp"
#include "shard_view.hpp"
#include "umpteen/fastxml.hpp"
#include "umpteen/forest.hpp"
#include "umpteen/l1_newton.hpp"

namespace umpteen {

namespace {

nb::dict describe(const L1Report& report) {
  nb::dict out;
  out["objective"] = report.objective;
  out["violation"] = report.violation;
  out["outer"] = report.outer;
  out["inner"] = report.inner;
  out["converged"] = report.converged;
  return out;
}

nb::dict solve_l1_binding(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& rows,
                          const Vector<float>& values, const Vector<float>& sign, const Vector<float>& cost,
                          const std::string& loss, double eps, int max_outer, int max_inner,
                          const CancelToken* token) {
  const auto n_rows = static_cast<std::int64_t>(sign.size());
  const CsrView columns = view_csr(indptr, rows, values, n_rows);
  if (cost.size() != sign.size()) throw std::invalid_argument("there must be one cost per row");
  if (loss != "logistic" && loss != "squared_hinge")
    throw std::invalid_argument("loss must be one of logistic, squared_hinge, but is '" + loss + "'");
  auto w = make_array<float>(columns.n_rows);
  std::fill_n(w.get(), columns.n_rows, 0.0F);
  L1Report report;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    report = L1Newton<std::int32_t>().solve(loss == "logistic" ? MarginLoss::kLogistic : MarginLoss::kSquaredHinge,
                                            {
                                                .X = {.n_rows = n_rows,
                                                      .n_cols = columns.n_rows,
                                                      .start = columns.indptr,
                                                      .rows = columns.indices,
                                                      .values = columns.data},
                                                .sign = sign.data(),
                                                .cost = cost.data(),
                                                .by_rows = {},
                                            },
                                            {.eps = eps, .max_outer = max_outer, .max_inner = max_inner, .seed = 0},
                                            w.get(), control, 0);
  }
  nb::dict out = describe(report);
  out["w"] = to_numpy(std::move(w), columns.n_rows);
  return out;
}

SplitLoss split_loss_of(const std::string& name) {
  if (name == "ndcg") return SplitLoss::ndcg;
  if (name == "ndcg5") return SplitLoss::ndcg5;
  if (name == "precision5") return SplitLoss::precision5;
  throw std::invalid_argument("split_loss must be one of ndcg, ndcg5, precision5, but is '" + name + "'");
}

/// The problem and the options of a tree, from Python's arrays. Keeps the arrays alive.
struct TreeInput {
  TreeInput(Vector<std::int64_t> X_indptr, Vector<std::int32_t> X_indices, Vector<float> X_data,
            std::int64_t n_features, Vector<std::int64_t> Y_indptr, Vector<std::int32_t> Y_indices,
            Vector<float> label_gain, bool ideal, double leaf_scale, double bias, std::int64_t max_leaf,
            std::int64_t labels_per_leaf, double C_delta, double C_r, bool balance, int w_updates,
            const std::string& split_loss, double eps, int max_outer, int max_inner,
            const std::optional<Vector<float>>& row_cost)
      : arrays{nb::make_tuple(X_indptr, X_indices, X_data, Y_indptr, Y_indices, label_gain, row_cost)},
        problem{
            .X = view_csr(X_indptr, X_indices, X_data, n_features),
            .Y = view_csr(Y_indptr, Y_indices, nullptr, static_cast<std::int64_t>(label_gain.size())),
            .label_gain = label_gain.data(),
            .row_cost = view_row_cost(row_cost, X_indptr.size() - 1),
            .ideal = ideal,
            .leaf_scale = leaf_scale,
            .bias = bias,
        },
        options{
            .max_leaf = max_leaf,
            .labels_per_leaf = labels_per_leaf,
            .C_delta = C_delta,
            .C_r = C_r,
            .balance = balance,
            .w_updates = w_updates,
            .loss = split_loss_of(split_loss),
            .solver = {.eps = eps, .max_outer = max_outer, .max_inner = max_inner, .seed = 0},
        } {
    if (problem.X.n_rows != problem.Y.n_rows || problem.X.n_rows == 0)
      throw std::invalid_argument("X and Y must have the same number of rows, at least one");
    if (max_leaf < 1 || labels_per_leaf < 1 || w_updates < 1)
      throw std::invalid_argument("max_leaf, labels_per_leaf and w_updates must be at least 1");
  }
  nb::tuple arrays;
  TreeProblem problem;
  TreeOptions options;
};

nb::dict grow_tree_binding(const TreeInput& input, std::uint64_t seed, const CancelToken* token) {
  Tree tree;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    tree = grow_tree(input.problem, input.options, seed, control);
  }
  nb::dict out;
  out["children"] = copy_to_numpy(tree.children);
  out["weight_ptr"] = copy_to_numpy(tree.weight_ptr);
  if (tree.wide)
    out["gaps"] = copy_to_numpy(tree.gaps);
  else
    out["gaps"] = copy_to_numpy(std::vector<std::uint8_t>(tree.gaps.begin(), tree.gaps.end()));
  out["weights"] = copy_to_numpy(tree.weights);
  out["leaf_ptr"] = copy_to_numpy(tree.leaf_ptr);
  if (input.problem.Y.n_cols > 65536)
    out["leaf_labels"] = copy_to_numpy(tree.leaf_labels);
  else
    out["leaf_labels"] = copy_to_numpy(std::vector<std::uint16_t>(tree.leaf_labels.begin(), tree.leaf_labels.end()));
  out["leaf_scores"] = copy_to_numpy(tree.leaf_scores);
  out["leaf_rows"] = copy_to_numpy(tree.leaf_rows);
  return out;
}

nb::dict split_node_binding(const TreeInput& input, const Vector<std::int32_t>& rows, std::uint64_t seed) {
  const std::vector<std::int32_t> ids(rows.data(), rows.data() + rows.size());
  if (ids.empty()) throw std::invalid_argument("a node must have rows");
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= input.problem.X.n_rows || (i > 0 && ids[i] <= ids[i - 1]))
      throw std::invalid_argument("a node's rows must rise and be rows of X");
  NodeSplit split;
  {
    Control control = make_control(nullptr);
    const nb::gil_scoped_release release;
    split = split_node(input.problem, input.options, ids, seed, control);
  }
  nb::dict out;
  out["features"] = copy_to_numpy(split.features);
  out["weights"] = copy_to_numpy(split.weights);
  out["delta"] = copy_to_numpy(split.delta);
  out["objective"] = copy_to_numpy(split.objective);
  out["steps"] = copy_to_numpy(split.steps);
  out["solver"] = describe(split.solver);
  return out;
}

using AnyVector = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

bool is_unsigned(const AnyVector& array, std::size_t itemsize) {
  return array.dtype().code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt) &&
         array.itemsize() == itemsize;
}

/// The trees of a model, checked once; it keeps their arrays (usually file mappings) alive.
class ForestScorerBinding {
 public:
  ForestScorerBinding(std::int64_t n_features, std::int64_t n_labels, double bias, double scale)
      : forest_{
            .n_features = n_features,
            .n_labels = n_labels,
            .bias = bias,
            .scale = scale,
            .trees = {},
            .centroids = {},
        } {}

  void add_tree(const Vector<std::int32_t>& children, const Vector<std::uint32_t>& weight_ptr, const AnyVector& gaps,
                const AnyVector& weights, const Vector<std::uint32_t>& leaf_ptr, const AnyVector& leaf_labels,
                const Vector<std::uint16_t>& leaf_scores) {
    const bool narrow_gaps = is_unsigned(gaps, 1);
    if (!narrow_gaps && !is_unsigned(gaps, 2)) throw std::invalid_argument("a tree's gaps must be uint8 or uint16");
    if (weights.dtype().code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) || weights.itemsize() != 2)
      throw std::invalid_argument("a tree's weights must be float16");
    const bool narrow_labels = is_unsigned(leaf_labels, 2);
    if (!narrow_labels && (leaf_labels.dtype().code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int) ||
                           leaf_labels.itemsize() != 4))
      throw std::invalid_argument("a tree's labels must be uint16 or int32");
    const auto n_inner = static_cast<std::int64_t>(weight_ptr.size()) - 1;
    const auto n_leaves = static_cast<std::int64_t>(leaf_ptr.size()) - 1;
    if (n_inner < 0 || n_leaves != n_inner + 1 || static_cast<std::int64_t>(children.size()) != 2 * n_inner)
      throw std::invalid_argument(
          "a tree must have one leaf more than inner nodes, and two children for each of those");
    for (std::int64_t i = 0; i < 2 * n_inner; ++i) {
      const std::int64_t child = children.data()[i];
      if (child >= 0 ? child <= i / 2 || child >= n_inner : ~child >= n_leaves)
        throw std::invalid_argument("a tree's children must be its leaves, or inner nodes that come after them");
    }
    check_offsets(weight_ptr, gaps.size(), "weights");
    check_offsets(leaf_ptr, leaf_labels.size(), "labels");
    if (weights.size() != gaps.size() || leaf_scores.size() != leaf_labels.size())
      throw std::invalid_argument("a tree needs a weight per gap and a score per label");
    forest_.trees.push_back({
        .n_inner = n_inner,
        .n_leaves = n_leaves,
        .children = children.data(),
        .weight_ptr = weight_ptr.data(),
        .gaps = gaps.data(),
        .wide = !narrow_gaps,
        .weights = static_cast<const std::uint16_t*>(weights.data()),
        .leaf_ptr = leaf_ptr.data(),
        .leaf_labels = leaf_labels.data(),
        .wide_labels = !narrow_labels,
        .leaf_scores = leaf_scores.data(),
    });
    owners_.push_back(nb::make_tuple(children, weight_ptr, gaps, weights, leaf_ptr, leaf_labels, leaf_scores));
  }

  void add_centroids(const Vector<std::uint32_t>& indptr, const Vector<std::uint32_t>& position_ptr,
                     const Vector<std::uint16_t>& positions, const Weights& weights, const Vector<float>& bias,
                     const Vector<std::int32_t>& label_ids, float scale) {
    LinearShard shard = view_shard(forest_.n_features, static_cast<std::int64_t>(label_ids.size()), indptr,
                                   position_ptr, positions, weights, scale);
    if (bias.size() != label_ids.size()) throw std::invalid_argument("a shard needs one bias per label");
    for (std::size_t i = 0; i < label_ids.size(); ++i)
      if (label_ids.data()[i] < 0 || label_ids.data()[i] >= forest_.n_labels)
        throw std::invalid_argument("a shard's label ids must be below " + std::to_string(forest_.n_labels));
    shard.bias = bias.data();
    shard.label_ids = label_ids.data();
    forest_.centroids.shards.push_back(shard);
    owners_.push_back(nb::make_tuple(indptr, position_ptr, positions, weights, bias, label_ids));
  }

  void set_vote(double alpha, double gamma, std::int64_t candidates) {
    if (!(alpha >= 0 && alpha <= 1) || !(gamma >= 0) || candidates < 1)
      throw std::invalid_argument("alpha must be in [0, 1], gamma at least 0 and candidates at least 1");
    forest_.centroids.alpha = alpha;
    forest_.centroids.gamma = gamma;
    forest_.centroids.candidates = candidates;
  }

  std::pair<NumpyMatrix<std::int32_t>, NumpyMatrix<float>> topk(const Vector<std::int64_t>& indptr,
                                                                const Vector<std::int32_t>& indices,
                                                                const Vector<float>& data, std::int64_t top_k,
                                                                int threads,
                                                                const std::optional<Vector<std::uint8_t>>& allowed,
                                                                const CancelToken* token) const {
    const CsrView X = view_csr(indptr, indices, data, forest_.n_features);
    if (top_k < 1 || top_k > forest_.n_labels)
      throw std::invalid_argument("top_k must be between 1 and the number of labels, but is " +
                                  std::to_string(top_k));
    if (allowed && static_cast<std::int64_t>(allowed->size()) != forest_.n_labels)
      throw std::invalid_argument("allowed must have one entry per label");
    auto labels = make_array<std::int32_t>(X.n_rows * top_k);
    auto scores = make_array<float>(X.n_rows * top_k);
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      forest_topk(forest_, X, top_k, allowed ? allowed->data() : nullptr, threads, labels.get(), scores.get(),
                  control);
    }
    return {to_numpy(std::move(labels), X.n_rows, top_k), to_numpy(std::move(scores), X.n_rows, top_k)};
  }

  std::pair<NumpyMatrix<std::int32_t>, NumpyMatrix<float>> revote(
      const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices, const Vector<float>& data,
      const Matrix<std::int32_t>& given, const Matrix<float>& means, std::int64_t top_k, int threads) const {
    const CsrView X = view_csr(indptr, indices, data, forest_.n_features);
    const auto n_given = static_cast<std::int64_t>(given.shape(1));
    if (static_cast<std::int64_t>(given.shape(0)) != X.n_rows || means.shape(0) != given.shape(0) ||
        means.shape(1) != given.shape(1) || top_k < 1 || forest_.centroids.shards.empty())
      throw std::invalid_argument("a vote needs centroids, and labels and means for each row");
    for (std::int64_t i = 0; i < X.n_rows * n_given; ++i)
      if (given.data()[i] >= forest_.n_labels) throw std::out_of_range("there is no such label");
    auto labels = make_array<std::int32_t>(X.n_rows * top_k);
    auto scores = make_array<float>(X.n_rows * top_k);
    {
      Control control = make_control(nullptr);
      const nb::gil_scoped_release release;
      forest_revote(forest_, X, given.data(), means.data(), n_given, top_k, threads, labels.get(), scores.get(),
                    control);
    }
    return {to_numpy(std::move(labels), X.n_rows, top_k), to_numpy(std::move(scores), X.n_rows, top_k)};
  }

  NumpyMatrix<std::int32_t> leaves(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices,
                                   const Vector<float>& data, int threads) const {
    const CsrView X = view_csr(indptr, indices, data, forest_.n_features);
    const auto n_trees = static_cast<std::int64_t>(forest_.trees.size());
    auto out = make_array<std::int32_t>(X.n_rows * n_trees);
    {
      Control control = make_control(nullptr);
      const nb::gil_scoped_release release;
      find_leaves(forest_, X, threads, out.get(), control);
    }
    return to_numpy(std::move(out), X.n_rows, n_trees);
  }

 private:
  static void check_offsets(const Vector<std::uint32_t>& offsets, std::size_t end, const char* what) {
    const std::uint32_t* p = offsets.data();
    bool good = p[0] == 0 && p[offsets.size() - 1] == end;
    for (std::size_t i = 0; good && i + 1 < offsets.size(); ++i) good = p[i] <= p[i + 1];
    if (!good)
      throw std::invalid_argument(std::string("a tree's offsets must rise and end where its ") + what + " do");
  }

  Forest forest_;
  std::vector<nb::object> owners_;
};

}  // namespace

void register_forest(nb::module_& m) {
  m.def("solve_l1", &solve_l1_binding, nb::arg("indptr").noconvert(), nb::arg("rows").noconvert(),
        nb::arg("values").noconvert(), nb::arg("sign").noconvert(), nb::arg("cost").noconvert(), nb::arg("loss"),
        nb::arg("eps") = 0.01, nb::arg("max_outer") = 10, nb::arg("max_inner") = 10, nb::arg("token") = nb::none(),
        "min |w|_1 + sum of cost * loss(sign * w.x) over a matrix by columns; w and what it took.");
  nb::class_<TreeInput>(m, "TreeInput", "What trees are grown from.")
      .def(nb::init<Vector<std::int64_t>, Vector<std::int32_t>, Vector<float>, std::int64_t, Vector<std::int64_t>,
                    Vector<std::int32_t>, Vector<float>, bool, double, double, std::int64_t, std::int64_t, double,
                    double, bool, int, const std::string&, double, int, int, const std::optional<Vector<float>>&>(),
           nb::arg("X_indptr").noconvert(), nb::arg("X_indices").noconvert(), nb::arg("X_data").noconvert(),
           nb::arg("n_features"), nb::arg("Y_indptr").noconvert(), nb::arg("Y_indices").noconvert(),
           nb::arg("label_gain").noconvert(), nb::arg("ideal"), nb::arg("leaf_scale"), nb::arg("bias"),
           nb::arg("max_leaf"), nb::arg("labels_per_leaf"), nb::arg("C_delta"), nb::arg("C_r"), nb::arg("balance"),
           nb::arg("w_updates"), nb::arg("split_loss"), nb::arg("eps"), nb::arg("max_outer"), nb::arg("max_inner"),
           nb::arg("row_cost").noconvert() = nb::none());
  nb::class_<ForestScorerBinding>(m, "ForestScorer", "Top-k over the trees of a forest.")
      .def(nb::init<std::int64_t, std::int64_t, double, double>(), nb::arg("n_features"), nb::arg("n_labels"),
           nb::arg("bias"), nb::arg("scale"))
      .def("add_tree", &ForestScorerBinding::add_tree, nb::arg("children").noconvert(),
           nb::arg("weight_ptr").noconvert(), nb::arg("gaps").noconvert(), nb::arg("weights").noconvert(),
           nb::arg("leaf_ptr").noconvert(), nb::arg("leaf_labels").noconvert(), nb::arg("leaf_scores").noconvert())
      .def("add_centroids", &ForestScorerBinding::add_centroids, nb::arg("indptr").noconvert(),
           nb::arg("position_ptr").noconvert(), nb::arg("positions").noconvert(), nb::arg("weights").noconvert(),
           nb::arg("bias").noconvert(), nb::arg("label_ids").noconvert(), nb::arg("scale"))
      .def("set_vote", &ForestScorerBinding::set_vote, nb::arg("alpha"), nb::arg("gamma"), nb::arg("candidates"))
      .def("topk", &ForestScorerBinding::topk, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("data").noconvert(), nb::arg("top_k"), nb::arg("threads"),
           nb::arg("allowed").noconvert() = nb::none(), nb::arg("token") = nb::none(),
           "(labels, scores), each n_rows x top_k, best first; -1 and -inf pad.")
      .def("revote", &ForestScorerBinding::revote, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("data").noconvert(), nb::arg("labels").noconvert(), nb::arg("scores").noconvert(),
           nb::arg("top_k"), nb::arg("threads"),
           "(labels, scores) as topk gives them, from the trees' means for some labels of each row.")
      .def("leaves", &ForestScorerBinding::leaves, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("data").noconvert(), nb::arg("threads"), "The leaf of every row in every tree.");
  m.def("grow_tree", &grow_tree_binding, nb::arg("input"), nb::arg("seed"), nb::arg("token") = nb::none(),
        "One tree, as arrays; see fastxml.hpp.");
  m.def("split_node", &split_node_binding, nb::arg("input"), nb::arg("rows").noconvert(), nb::arg("seed"),
        "How some rows are split, with the objective after every step.");
}

}  // namespace umpteen
