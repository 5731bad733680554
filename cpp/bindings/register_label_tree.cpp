#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "one_vs_rest.hpp"
#include "shard_view.hpp"
#include "umpteen/label_tree.hpp"

namespace umpteen {

namespace {

nb::tuple cluster_labels_binding(const Vector<std::int64_t>& indptr, const Vector<std::int32_t>& indices,
                                 const Vector<float>& data, std::int64_t n_features,
                                 const Vector<std::int64_t>& group_ptr, const Vector<std::int32_t>& members,
                                 const Vector<std::int32_t>& n_clusters, const Vector<std::int64_t>& most,
                                 const Vector<std::uint64_t>& seeds, int max_iterations, int threads,
                                 const CancelToken* token) {
  const CsrView V = view_csr(indptr, indices, data, n_features);
  const CsrView groups = view_csr(group_ptr, members, nullptr, V.n_rows);
  if (static_cast<std::int64_t>(n_clusters.size()) != groups.n_rows || most.size() != n_clusters.size() ||
      seeds.size() != n_clusters.size())
    throw std::invalid_argument("there must be one n_clusters, one most and one seed per group");
  for (std::int64_t g = 0; g < groups.n_rows; ++g)
    if (n_clusters.data()[g] < 1 ||
        most.data()[g] < (groups.indptr[g + 1] - groups.indptr[g] - 1) / n_clusters.data()[g] + 1)
      throw std::invalid_argument("clusters must have room for all members");
  const ClusterProblem problem{
      .V = V,
      .group_ptr = groups.indptr,
      .members = groups.indices,
      .n_clusters = n_clusters.data(),
      .most = most.data(),
      .seeds = seeds.data(),
      .n_groups = groups.n_rows,
      .max_iterations = max_iterations,
  };
  const auto n = static_cast<std::int64_t>(members.size());
  auto clusters = make_array<std::int32_t>(n);
  auto similarity = make_array<double>(groups.n_rows);
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    cluster_labels(problem, threads, control, clusters.get(), similarity.get());
  }
  return nb::make_tuple(to_numpy(std::move(clusters), n), to_numpy(std::move(similarity), groups.n_rows));
}

/// One field of all nodes as an array, followed by `padding` zeros; frees the fields on the way.
template <typename T>
NumpyVector<T> join(std::vector<NodeWeights>& nodes, std::vector<T> NodeWeights::* field, std::int64_t padding = 0) {
  std::int64_t n = padding;
  for (const NodeWeights& node : nodes) n += static_cast<std::int64_t>((node.*field).size());
  auto out = make_array<T>(n);
  T* at = out.get();
  for (NodeWeights& node : nodes) {
    at = std::copy((node.*field).begin(), (node.*field).end(), at);
    (node.*field) = {};
  }
  std::fill(at, out.get() + n, T{});
  return to_numpy(std::move(out), n);
}

template <typename T>
NumpyVector<std::int64_t> join_ends(const std::vector<NodeWeights>& nodes, std::vector<T> NodeWeights::* field) {
  const auto n = static_cast<std::int64_t>(nodes.size());
  auto out = make_array<std::int64_t>(n + 1);
  out[0] = 0;
  for (std::int64_t i = 0; i < n; ++i)
    out[i + 1] = out[i] + static_cast<std::int64_t>((nodes[static_cast<std::size_t>(i)].*field).size());
  return to_numpy(std::move(out), n + 1);
}

nb::dict solve_nodes_binding(const Vector<std::int64_t>& X_indptr, const Vector<std::int32_t>& X_indices,
                             const Vector<float>& X_data, std::int64_t n_features,
                             const Vector<std::int64_t>& label_indptr, const Vector<std::int32_t>& label_rows,
                             const Vector<std::int32_t>& order, const Vector<std::int64_t>& child_ptr,
                             const Vector<std::int64_t>& child_begin, const Vector<std::int64_t>& child_end,
                             const Vector<std::int64_t>& extra_ptr, const Vector<std::int32_t>& extra_rows, double C,
                             double bias, double eps, float prune, int max_rounds, float near, int threads,
                             const CancelToken* token, const std::optional<Vector<float>>& row_cost) {
  const CsrView X = view_csr(X_indptr, X_indices, X_data, n_features);
  const CsrView labels = view_csr(label_indptr, label_rows, nullptr, X.n_rows);
  const auto n_children = static_cast<std::int64_t>(child_begin.size());
  const auto n_nodes = static_cast<std::int64_t>(child_ptr.size()) - 1;
  bool good = n_nodes >= 0 && child_end.size() == child_begin.size() && child_ptr.data()[0] == 0 &&
              child_ptr.data()[n_nodes] == n_children;
  for (std::int64_t n = 0; good && n < n_nodes; ++n) {
    const std::int64_t width = child_ptr.data()[n + 1] - child_ptr.data()[n];
    good = width >= 0 && width <= 65536;
  }
  for (std::int64_t c = 0; good && c < n_children; ++c)
    good = child_begin.data()[c] >= 0 && child_begin.data()[c] <= child_end.data()[c] &&
           child_end.data()[c] <= static_cast<std::int64_t>(order.size());
  for (std::size_t i = 0; good && i < order.size(); ++i)
    good = order.data()[i] >= 0 && order.data()[i] < labels.n_rows;
  if (!good) throw std::invalid_argument("the children of nodes must be ranges of the order of labels");
  const CsrView extra = view_csr(extra_ptr, extra_rows, nullptr, X.n_rows);
  if (extra.n_rows != n_nodes) throw std::invalid_argument("there must be one list of extra rows per node");
  const NodeProblem problem{
      .X = X,
      .label_indptr = labels.indptr,
      .label_rows = labels.indices,
      .row_cost = view_row_cost(row_cost, X.n_rows),
      .order = order.data(),
      .child_ptr = child_ptr.data(),
      .child_begin = child_begin.data(),
      .child_end = child_end.data(),
      .n_nodes = n_nodes,
      .extra_ptr = extra.indptr,
      .extra_rows = extra.indices,
      .C = C,
      .bias = bias,
      .eps = eps,
      .prune = prune,
      .max_rounds = max_rounds,
      .near = near,
  };
  std::vector<NodeWeights> nodes;
  {
    Control control = make_control(token);
    const nb::gil_scoped_release release;
    nodes = solve_nodes(problem, threads, control);
  }
  auto scale = make_array<float>(n_nodes);
  for (std::int64_t n = 0; n < n_nodes; ++n) scale[n] = nodes[static_cast<std::size_t>(n)].scale;
  nb::dict out;
  out["scale"] = to_numpy(std::move(scale), n_nodes);
  out["feature_ptr"] = join_ends(nodes, &NodeWeights::features);
  out["position_start"] = join_ends(nodes, &NodeWeights::positions);
  out["weight_start"] = join_ends(nodes, &NodeWeights::weights);
  out["features"] = join(nodes, &NodeWeights::features);
  out["indptr"] = join(nodes, &NodeWeights::indptr);
  out["position_ptr"] = join(nodes, &NodeWeights::position_ptr);
  out["positions"] = join(nodes, &NodeWeights::positions);
  out["weights"] = join(nodes, &NodeWeights::weights, kWeightPadding);
  out["bias"] = join(nodes, &NodeWeights::bias);
  out["objective"] = join(nodes, &NodeWeights::objective);
  out["gradient"] = join(nodes, &NodeWeights::gradient);
  out["near_counts"] = join(nodes, &NodeWeights::near_counts);
  out["near_rows"] = join(nodes, &NodeWeights::near_rows);
  return out;
}

/// The parts of a model, checked once; it keeps their arrays (usually file mappings) alive.
class LabelTreeScorer {
 public:
  LabelTreeScorer(std::int64_t n_features, std::int64_t n_labels, const std::string& link)
      : n_features_(n_features), n_labels_(n_labels) {
    if (link == "cubed")
      forest_.link = Link::cubed;
    else if (link == "squared")
      forest_.link = Link::squared;
    else if (link == "logistic")
      forest_.link = Link::logistic;
    else if (link != "cubic")
      throw std::invalid_argument("link must be cubic, cubed, squared or logistic, but is " + link);
  }

  /// Nodes are numbered through all parts in the order they are added; `children` has labels, or ~node counted from
  /// the root of the tree, which is the first node of a part that begins a tree.
  void add_part(bool begins_tree, const Vector<std::int64_t>& child_ptr, const Vector<std::int32_t>& children,
                const Vector<std::int64_t>& feature_ptr, const Vector<std::int32_t>& features,
                const Vector<std::uint32_t>& indptr, const Vector<std::uint32_t>& position_ptr,
                const Vector<std::int64_t>& position_start, const Vector<std::uint16_t>& positions,
                const Vector<std::int64_t>& weight_start, const Weights& weights, const Vector<float>& bias,
                const Vector<float>& scale) {
    const auto n_nodes = static_cast<std::int64_t>(scale.size());
    if (weights.itemsize() != 2 || weights.dtype().code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float))
      throw std::invalid_argument("the weights of a label tree must be float16");
    const auto n_weights = static_cast<std::int64_t>(weights.size()) - kWeightPadding;
    check(child_ptr, n_nodes, static_cast<std::int64_t>(children.size()));
    check(feature_ptr, n_nodes, static_cast<std::int64_t>(features.size()));
    check(position_start, n_nodes, static_cast<std::int64_t>(positions.size()));
    check(weight_start, n_nodes, n_weights);
    if (bias.size() != children.size() || indptr.size() != features.size() + size(n_nodes) ||
        position_ptr.size() != indptr.size())
      throw std::invalid_argument("a label tree needs a bias per child, and offsets for its features");
    if (begins_tree) {
      forest_.roots.push_back(static_cast<std::int32_t>(forest_.nodes.size()));
    } else if (forest_.roots.empty()) {
      throw std::invalid_argument("the first part of a label tree must begin one");
    }
    const auto root = static_cast<std::int64_t>(forest_.roots.back());
    translated_.emplace_back(children.data(), children.data() + children.size());
    for (std::int32_t& child : translated_.back()) {
      if (child >= n_labels_)
        throw std::invalid_argument("a label of a label tree must be below " + std::to_string(n_labels_) +
                                    ", but is " + std::to_string(child));
      if (child >= 0) continue;
      const std::int64_t node = root + ~child;
      if (node > std::numeric_limits<std::int32_t>::max())
        throw std::invalid_argument("a label tree has too many nodes");
      child = ~static_cast<std::int32_t>(node);
    }
    for (std::int64_t n = 0; n < n_nodes; ++n) {
      const std::int64_t first = feature_ptr.data()[n];
      const std::int64_t n_local = feature_ptr.data()[n + 1] - first;
      const std::int64_t n_children = child_ptr.data()[n + 1] - child_ptr.data()[n];
      const std::uint32_t* p = indptr.data() + first + n;
      const std::uint32_t* q = position_ptr.data() + first + n;
      bool good = n_children <= 65536 && p[0] == 0 && q[0] == 0 &&
                  p[n_local] == weight_start.data()[n + 1] - weight_start.data()[n] &&
                  q[n_local] == position_start.data()[n + 1] - position_start.data()[n];
      for (std::int64_t f = 0; good && f < n_local; ++f) {
        const std::int32_t feature = features.data()[first + f];
        good = p[f] <= p[f + 1] &&
               q[f + 1] == q[f] + std::min<std::int64_t>(p[f + 1] - p[f], chunks_of(n_children)) && feature >= 0 &&
               feature < n_features_ && (f == 0 || feature > features.data()[first + f - 1]);
      }
      if (!good) throw std::invalid_argument("a node's features must rise, and its offsets end where its weights do");
      const LinearShard shard{
          .n_features = n_local,
          .n_labels = static_cast<std::int32_t>(n_children),
          .indptr = p,
          .position_ptr = q,
          .positions = positions.data() + position_start.data()[n],
          .weights = static_cast<const std::uint16_t*>(weights.data()) + weight_start.data()[n],
          .half = true,
          .scale = scale.data()[n],
          .bias = bias.data() + child_ptr.data()[n],
          .label_ids = nullptr,
      };
      forest_.nodes.push_back({
          .shard = shard,
          .features = features.data() + first,
          .children = translated_.back().data() + child_ptr.data()[n],
      });
    }
    owners_.push_back(nb::make_tuple(child_ptr, feature_ptr, features, indptr, position_ptr, position_start,
                                     positions, weight_start, weights, bias, scale));
  }

  /// To be called when all parts are there.
  void finish() {
    std::vector<std::uint8_t> has_parent(forest_.nodes.size(), 0);
    for (const std::int32_t root : forest_.roots)
      if (size(root) < forest_.nodes.size()) has_parent[size(root)] = 1;
    for (std::size_t n = 0; n < forest_.nodes.size(); ++n)
      for (std::int32_t c = 0; c < forest_.nodes[n].shard.n_labels; ++c) {
        const std::int32_t child = forest_.nodes[n].children[c];
        if (child >= 0) continue;
        if (size(~child) <= n || size(~child) >= forest_.nodes.size() || has_parent[size(~child)])
          throw std::invalid_argument("a node of a label tree must come after its only parent");
        has_parent[size(~child)] = 1;
      }
    if (std::find(has_parent.begin(), has_parent.end(), 0) != has_parent.end())
      throw std::invalid_argument("a node of a label tree has no parent");
    check_labels();
  }

  std::pair<NumpyMatrix<std::int32_t>, NumpyMatrix<float>> topk(const Vector<std::int64_t>& indptr,
                                                                const Vector<std::int32_t>& indices,
                                                                const Vector<float>& data, std::int64_t top_k,
                                                                int threads, std::int64_t beam,
                                                                const std::optional<Vector<std::uint8_t>>& allowed,
                                                                const CancelToken* token) const {
    const CsrView X = view_csr(indptr, indices, data, n_features_);
    if (top_k < 1 || top_k > n_labels_)
      throw std::invalid_argument("top_k must be between 1 and the number of labels, but is " +
                                  std::to_string(top_k));
    if (beam < 1) throw std::invalid_argument("beam must be at least 1, but is " + std::to_string(beam));
    if (allowed && static_cast<std::int64_t>(allowed->size()) != n_labels_)
      throw std::invalid_argument("allowed must have one entry per label");
    auto labels = make_array<std::int32_t>(X.n_rows * top_k);
    auto scores = make_array<float>(X.n_rows * top_k);
    {
      Control control = make_control(token);
      const nb::gil_scoped_release release;
      search_labels(forest_, X, top_k, beam, allowed ? allowed->data() : nullptr, threads, labels.get(), scores.get(),
                    control);
    }
    return {to_numpy(std::move(labels), X.n_rows, top_k), to_numpy(std::move(scores), X.n_rows, top_k)};
  }

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

  /// A label that stood twice in a tree would be ranked twice.
  void check_labels() const {
    std::vector<std::int32_t> last_tree(size(n_labels_), -1);
    std::int32_t tree = -1;
    for (std::size_t n = 0; n < forest_.nodes.size(); ++n) {
      if (size(tree + 1) < forest_.roots.size() && size(forest_.roots[size(tree + 1)]) == n) ++tree;
      for (std::int32_t c = 0; c < forest_.nodes[n].shard.n_labels; ++c) {
        const std::int32_t label = forest_.nodes[n].children[c];
        if (label < 0) continue;
        if (last_tree[size(label)] == tree)
          throw std::invalid_argument("a label must be in a tree only once, but label " + std::to_string(label) +
                                      " is there twice");
        last_tree[size(label)] = tree;
      }
    }
  }

  static void check(const Vector<std::int64_t>& starts, std::int64_t n, std::int64_t total) {
    const std::int64_t* p = starts.data();
    bool good = static_cast<std::int64_t>(starts.size()) == n + 1 && p[0] == 0 && p[n] == total;
    for (std::int64_t i = 0; good && i < n; ++i) good = p[i] <= p[i + 1];
    if (!good) throw std::invalid_argument("the offsets of a label tree must rise and end where its arrays do");
  }

  std::int64_t n_features_;
  std::int64_t n_labels_;
  LabelForest forest_;
  std::vector<std::vector<std::int32_t>> translated_;  // children by their numbers in the forest
  std::vector<nb::object> owners_;
};

}  // namespace

void register_label_tree(nb::module_& m) {
  m.def("cluster_labels", &cluster_labels_binding, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
        nb::arg("data").noconvert(), nb::arg("n_features"), nb::arg("group_ptr").noconvert(),
        nb::arg("members").noconvert(), nb::arg("n_clusters").noconvert(), nb::arg("most").noconvert(),
        nb::arg("seeds").noconvert(), nb::arg("max_iterations"), nb::arg("threads"), nb::arg("token") = nb::none(),
        "(cluster of each member, mean similarity of each group): spherical k-means of groups of unit vectors.");
  m.def("solve_nodes", &solve_nodes_binding, nb::arg("X_indptr").noconvert(), nb::arg("X_indices").noconvert(),
        nb::arg("X_data").noconvert(), nb::arg("n_features"), nb::arg("label_indptr").noconvert(),
        nb::arg("label_rows").noconvert(), nb::arg("order").noconvert(), nb::arg("child_ptr").noconvert(),
        nb::arg("child_begin").noconvert(), nb::arg("child_end").noconvert(), nb::arg("extra_ptr").noconvert(),
        nb::arg("extra_rows").noconvert(), nb::arg("C"), nb::arg("bias"), nb::arg("eps"), nb::arg("prune"),
        nb::arg("max_rounds"), nb::arg("near"), nb::arg("threads"), nb::arg("token") = nb::none(),
        nb::arg("row_cost").noconvert() = nb::none(),
        "The weights of nodes of a label tree: each child against its siblings, on the rows of the node.");
  nb::class_<LabelTreeScorer>(m, "LabelTreeScorer", "Beam search over label trees.")
      .def(nb::init<std::int64_t, std::int64_t, const std::string&>(), nb::arg("n_features"), nb::arg("n_labels"),
           nb::arg("link") = "cubic")
      .def("add_part", &LabelTreeScorer::add_part, nb::arg("begins_tree"), nb::arg("child_ptr").noconvert(),
           nb::arg("children").noconvert(), nb::arg("feature_ptr").noconvert(), nb::arg("features").noconvert(),
           nb::arg("indptr").noconvert(), nb::arg("position_ptr").noconvert(), nb::arg("position_start").noconvert(),
           nb::arg("positions").noconvert(), nb::arg("weight_start").noconvert(), nb::arg("weights").noconvert(),
           nb::arg("bias").noconvert(), nb::arg("scale").noconvert())
      .def("finish", &LabelTreeScorer::finish)
      .def("topk", &LabelTreeScorer::topk, nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(),
           nb::arg("data").noconvert(), nb::arg("top_k"), nb::arg("threads"), nb::arg("beam"),
           nb::arg("allowed").noconvert() = nb::none(), nb::arg("token") = nb::none(),
           "(labels, scores), each n_rows x top_k, best first; -1 and -inf pad.");
}

}  // namespace umpteen
