"""Label trees: clusters, classifiers and search against slow twins; shards, threads, damage, accuracy."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen import _native
from umpteen.data.matrix import as_csr, offsets
from umpteen.engines.base import Resources
from umpteen.errors import ModelCorruptError, ParamError, ShardError
from umpteen.methods.label_tree import LabelTree, _take
from umpteen.methods.training_data import TrainingData
from umpteen.models.label_tree import LabelTreeModel, TreePart

from .reference import cluster_labels, search_tree, svm_gradient, svm_objective


@pytest.fixture(scope="module")
def some() -> umpteen.Dataset:
    return umpteen.make_synthetic(600, 250, 120, labels_per_row=3, features_per_row=20, seed=5)


@pytest.fixture(scope="module", params=["rows", "features", "far more features"])
def more(request, some) -> umpteen.Dataset:
    """More rows than features, or the other way round, which is solved in terms of rows: with their products, or
    where these would be many by multiplying twice."""
    if request.param == "rows":
        return some
    shape = (301, 4000) if request.param == "features" else (2100, 17_000)
    return umpteen.make_synthetic(*shape, 120, labels_per_row=3, features_per_row=20, seed=6)


@pytest.fixture(scope="module")
def deep(some) -> LabelTree:
    """Two trees of several levels, in several shards."""
    return LabelTree(n_trees=2, branching=3, max_leaf=6, labels_per_shard=40).fit(some.X, some.Y)


def training_data(method: LabelTree, data: umpteen.Dataset) -> TrainingData:
    steps = method.preprocessing()
    return TrainingData(steps.transform(as_csr(data.X, "X")), as_csr(data.Y, "Y", values=False), steps.bias)


def split(V, k, most=None, *, seed=3, iterations=20, threads=2):
    V = as_csr(V, "V")
    n = V.shape[0]
    clusters, similarity = _native.cluster_labels(
        offsets(V), V.indices, V.data, V.shape[1], np.array([0, n]), np.arange(n, dtype=np.int32),
        np.array([k], np.int32), np.array([n if most is None else most]), np.array([seed], np.uint64), iterations,
        threads,
    )  # fmt: skip
    return clusters, similarity[0]


def first_members(n, k, seed):
    """What the kernel draws: SplitMix64, and a shuffle's first k."""
    picked, state, mask = list(range(n)), seed, 2**64 - 1
    for c in range(k):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        other = c + (((z ^ (z >> 31)) >> 32) * (n - c) >> 32)
        picked[c], picked[other] = picked[other], picked[c]
    return picked[:k]


@pytest.mark.parametrize("clustering", ["plain", "balanced", "capped"])
@pytest.mark.parametrize("k", [2, 7, 20])
def test_clusters_are_those_of_the_twin(some, simd, clustering, k):
    method = LabelTree()
    V = method.represent_labels(training_data(method, some))
    n = V.shape[0]
    most = {"plain": n, "balanced": -(-n // k), "capped": -(-3 * n // (2 * k))}[clustering]
    want, history = cluster_labels(V, first_members(n, k, 3), most, 20)
    got, similarity = split(V, k, most)
    assert np.bincount(got).max() <= most
    np.testing.assert_array_equal(got, want)
    assert similarity == pytest.approx(max(history), abs=1e-5)


def test_clustering_never_loses_similarity(some):
    method = LabelTree()
    V = method.represent_labels(training_data(method, some))
    history = [split(V, 8, iterations=i)[1] for i in range(1, 12)]
    assert (np.diff(history) >= -1e-6).all()
    assert history[-1] > history[0] + 0.01


@pytest.mark.parametrize("n", [8, 9, 23, 100])
def test_balanced_clusters_have_one_size(n):
    rng = np.random.default_rng(n)
    V = sp.csr_matrix(rng.random((n, 30)) * (rng.random((n, 30)) < 0.3))
    clusters, _ = split(V, 7, -(-n // 7))
    sizes = np.bincount(clusters, minlength=7)
    assert sizes.sum() == n
    assert sizes.max() - sizes.min() <= 1


def test_labels_that_look_alike_are_split_all_the_same(some):
    Y = sp.hstack([some.Y[:, :1]] * 50, format="csr")  # the same rows: no direction tells them apart
    model = LabelTree(n_trees=1, branching=4, max_leaf=5).fit(some.X, Y)
    assert model.model_.scorer.n_nodes > 4
    assert sorted(model.predict_topk(some.X[:1], 50)[0][0].tolist()) != [-1] * 50


def test_a_tree_holds_each_trained_label_once(some, deep):
    trained = set(np.flatnonzero(np.diff(some.Y.tocsc().indptr)).tolist())
    trees = deep.model_.scorer._trees
    assert len(trees) == 2
    for tree in trees:
        labels = [c for part in tree.parts for c in part.children.tolist() if c >= 0]
        assert sorted(labels) == sorted(trained)
        assert all(len(part.children_of(n)) <= 6 for part in tree.parts for n in range(part.n_nodes))
    assert deep.model_.scorer.describe()["mean_depth"] > 2


@pytest.mark.parametrize("near", [None, -0.8])
@pytest.mark.parametrize("C", [0.3, 3.0])
def test_nodes_are_solved_to_their_optimum(some, simd, C, near):
    """Each on the rows that have a label below it, and on those its parent takes for such, and on no others."""
    method = LabelTree(branching=8, max_leaf=60, near=near, prune=0.0, eps=1e-3, C=C)
    data = training_data(method, some)
    (task,) = method.plan(data)
    nodes = task.plan[0]
    assert nodes.depth.max() == 1
    tree = TreePart.from_part(method.train_shard(data, task, Resources(2, _native.CancelToken())))
    _, mistaken = method.train_nodes(data, _take(nodes, np.array([0])), 0, {}, 1)
    assert (len(mistaken) > 0) == (near is not None)
    for node in range(tree.n_nodes):
        span = slice(nodes.child_ptr[node], nodes.child_ptr[node + 1])
        groups = [nodes.order[a:b] for a, b in zip(nodes.child_begin[span], nodes.child_end[span], strict=True)]
        own = np.array([np.asarray(data.Y[:, group].sum(axis=1)).ravel() > 0 for group in groups])
        rows = own.any(axis=0)
        rows[mistaken.get(node, [])] = True
        features, shard = tree.node(node)
        W = np.zeros((len(groups), data.X.shape[1]))
        W[:, features] = shard.to_weights()[0].toarray()
        X = data.X[rows].astype(np.float64)
        for child, y in enumerate(own[:, rows]):
            objective = svm_objective(X, y, W[child], shard.bias[child], C, 1.0)
            g, gb = svm_gradient(X, y, W[child], shard.bias[child], C, 1.0)
            # strongly convex: the optimum is no further below than |gradient|² / 2; weights are stored in 16 bits
            assert 0.5 * (g @ g + gb * gb) < 1e-3 * max(objective, 1e-3)
            number = ~int(tree.children_of(node)[child])
            if number >= 0 and near is not None:
                margins = np.where(rows & ~own[child], data.X @ W[child] + shard.bias[child], -np.inf)
                found = np.isin(np.arange(len(rows)), mistaken.get(number, []))
                assert found[margins > near + 1e-2].all()
                assert not found[margins < near - 1e-2].any()


def panels(X, Y, cost, **settings):
    columns = sp.csc_matrix(Y)
    return _native.solve_panels(
        offsets(X), X.indices, X.data, X.shape[1], columns.indptr.astype(np.int64), columns.indices.astype(np.int32),
        np.full(columns.shape[1], cost, np.float32), bias=1.0, prune=0.0, squared_hinge=True,
        **{"threads": 2} | settings,
    )  # fmt: skip


@pytest.mark.parametrize("cost", [1.0, 2.5])
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_support_vector_machines_side_by_side_come_to_their_optimum(more, simd, C, cost):
    X = training_data(LabelTree(), more).X
    out = panels(X, more.Y[:, :50], cost, C=C, eps=1e-3, max_rounds=100)
    assert (out["gradient"] <= 1).all()
    W = sp.csr_matrix((out["data"], out["indices"], out["indptr"]), (50, X.shape[1])).toarray()
    for label in range(50):
        y = more.Y[:, label].toarray().ravel() > 0
        objective = svm_objective(X, y, W[label], out["bias"][label], C, 1.0, cost)
        assert out["objective"][label] == pytest.approx(objective, rel=1e-4)
        at_zero = np.append(*svm_gradient(X, y, np.zeros(X.shape[1]), 0.0, C, 1.0, cost))
        here = np.append(*svm_gradient(X, y, W[label], out["bias"][label], C, 1.0, cost))
        # LIBLINEAR's rule, and what sums in float32 lose
        bound = 1e-3 * max(min(y.sum(), (~y).sum()), 1) / len(y) + 3e-6 + 4e-9 * len(y)
        assert np.linalg.norm(here) <= bound * np.linalg.norm(at_zero)


@pytest.mark.slow
@pytest.mark.parametrize("cost", [1.0, 2.5])
def test_no_step_raises_the_objective(more, cost):
    X = training_data(LabelTree(), more).X
    runs = [panels(X, more.Y[:, :50], cost, C=10.0, eps=1e-3, max_rounds=n)["objective"] for n in range(1, 15)]
    for before, after in itertools.pairwise(runs):
        assert (after <= before * (1 + 1e-5)).all()
    assert (runs[-1] < 0.9 * runs[0]).any()


def test_lanes_do_not_depend_on_threads_nor_on_their_neighbours(more):
    X = training_data(LabelTree(), more).X
    settings = {"C": 1.0, "eps": 0.01, "max_rounds": 100}
    one, two = (panels(X, more.Y, 1.0, threads=threads, **settings) for threads in (1, 2))
    assert all((one[name] == two[name]).all() for name in one)
    some_of_them = np.array([3, 50, 119])
    few = panels(X, more.Y[:, some_of_them], 1.0, **settings)
    for i, label in enumerate(some_of_them):
        mine, theirs = (slice(*out["indptr"][at : at + 2]) for out, at in ((few, i), (one, label)))
        assert (few["data"][mine] == one["data"][theirs]).all()
        assert few["bias"][i] == one["bias"][label]


def test_few_rows_are_solved_in_terms_of_rows_to_the_same_optimum(some):
    """Features that no row has change nothing but which of the two solvers is taken."""
    X = training_data(LabelTree(), some).X
    padded = sp.csr_matrix((X.data, X.indices, X.indptr), (X.shape[0], 250 + 360_000 // 64))
    settings = {"C": 1.0, "eps": 1e-4, "max_rounds": 200}
    by_features, by_rows = (panels(each, some.Y, 1.0, **settings) for each in (X, padded))
    assert not np.array_equal(by_features["data"], by_rows["data"])
    assert by_rows["objective"] == pytest.approx(by_features["objective"], rel=1e-5)
    assert by_rows["bias"] == pytest.approx(by_features["bias"], abs=1e-3)


@pytest.mark.parametrize(("branching", "most"), [(100, 10), (4, 60)])
def test_capped_clusters_are_leaves_where_there_is_room(some, branching, most):
    """120 labels: 48 clusters of up to 10, or 4 of up to twice 30."""
    method = LabelTree(branching=branching, max_leaf=10)
    data = training_data(method, some)
    nodes = method.plan(data)[0].plan[0]
    sizes = (nodes.child_end - nodes.child_begin)[: nodes.child_ptr[1]]
    assert sizes.max() <= most
    assert len(set(sizes.tolist())) > 1


@pytest.mark.parametrize("beam", [1, 3, 1000])
def test_search_is_that_of_the_twin(some, deep, simd, beam):
    deep.set_params(beam=beam)
    X = deep.preprocessing_.transform(some.X[:25])
    labels, scores = deep.predict_topk(some.X[:25], 120)
    for i in range(25):
        trees = [search_tree(tree.parts, X[i].toarray().ravel(), beam) for tree in deep.model_.scorer._trees]
        reached = sorted(set().union(*trees))
        want = {c: np.log(np.mean([np.exp(tree.get(c, -np.inf)) for tree in trees])) for c in reached}
        got = dict(zip(labels[i].tolist(), scores[i].tolist(), strict=True))
        got.pop(-1, None)
        assert got.keys() == want.keys()
        for label in want:
            assert got[label] == pytest.approx(want[label], rel=2e-3, abs=2e-3)
        assert (np.diff(scores[i][labels[i] >= 0]) <= 0).all()
    deep.set_params(beam=10)


def test_full_beam_equals_exhaustive_search(some, deep):
    """Every label that was trained is scored, and as along its one path."""
    deep.set_params(beam=deep.model_.scorer.n_nodes)
    labels, scores = deep.predict_topk(some.X[:40], 120)
    trained = np.flatnonzero(np.diff(some.Y.tocsc().indptr))
    for i in range(40):
        assert sorted(labels[i][labels[i] >= 0].tolist()) == trained.tolist()
    for i, label in ((0, trained[0]), (3, trained[50]), (7, trained[-1])):
        explanation = deep.explain(some.X[i], int(label))
        alone = np.log(np.mean([np.exp(vote["score"]) for vote in explanation.votes]))
        assert scores[i][labels[i] == label][0] == pytest.approx(alone, rel=2e-3, abs=2e-3)
        assert explanation.score == scores[i][labels[i] == label][0]
        margins = np.mean([sum(step["margin"] for step in vote["path"]) for vote in explanation.votes])
        assert explanation.explained == pytest.approx(margins, rel=1e-4, abs=1e-4)
    deep.set_params(beam=10)


def test_restricted_searches_follow_only_what_is_left(some, deep):
    deep.set_params(beam=1)
    trained = np.flatnonzero(np.diff(some.Y.tocsc().indptr))
    for label in trained[
        [4, -4]
    ].tolist():  # a beam of one comes to a label wherever it is, if it alone may be ranked
        labels, _ = deep.predict_topk(some.X[:10], 3, include=[label])
        assert (labels[:, 0] == label).all()
        assert (labels[:, 1:] == -1).all()
        assert label not in deep.predict_topk(some.X[:10], 100, exclude=[label])[0]
    deep.set_params(beam=10)


def test_shards_are_subtrees_and_their_bytes_do_not_depend_on_threads(some, deep):
    parts = deep.model_.scorer.to_parts()
    assert [part.scalars["begins_tree"] for part in parts].count(True) == 2
    assert len(parts) > 6
    one = LabelTree(n_trees=2, branching=3, max_leaf=6, labels_per_shard=40, threads=1).fit(some.X, some.Y)
    for a, b in zip(parts, one.model_.scorer.to_parts(), strict=True):
        for name, array in a.arrays.items():
            np.testing.assert_array_equal(array, b.arrays[name], err_msg=name)
    whole = LabelTree(n_trees=2, branching=3, max_leaf=6, labels_per_shard=1000).fit(some.X, some.Y)
    assert len(whole.model_.scorer.parts) == 2
    for a, b in zip(whole.predict_topk(some.X, 5), deep.predict_topk(some.X, 5), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_damaged_tree_is_refused(deep):
    first, *others = deep.model_.scorer.parts
    n_labels = deep.n_labels_
    broken = {
        "children": first.children + n_labels,
        "child_ptr": first.child_ptr + 1,
        "features": first.features[::-1].copy(),
        "weights": first.weights[:-1],
        "weight_start": first.weight_start * 2,
        "indptr": first.indptr + 1,
        "begins_tree": False,
    }
    for name, value in broken.items():
        part = dataclasses.replace(first, **{name: value})
        with pytest.raises(ModelCorruptError, match="a label tree is not usable"):
            LabelTreeModel([part, *others], deep.n_features_in_, n_labels)
    cycle = first.children.copy()
    cycle[cycle < 0] = ~0  # back to the root
    with pytest.raises(ModelCorruptError, match="must come after its only parent"):
        LabelTreeModel([dataclasses.replace(first, children=cycle), *others], deep.n_features_in_, n_labels)
    twice = next(i for i, part in enumerate(deep.model_.scorer.parts) if (part.children >= 0).sum() > 1)
    children = deep.model_.scorer.parts[twice].children.copy()
    children[children >= 0] = children[children >= 0][0]
    parts = list(deep.model_.scorer.parts)
    parts[twice] = dataclasses.replace(parts[twice], children=children)
    with pytest.raises(ModelCorruptError, match="a label must be in a tree only once, but label .* is there twice"):
        LabelTreeModel(parts, deep.n_features_in_, n_labels)
    with pytest.raises(ModelCorruptError, match="has no parent|after its only parent"):
        LabelTreeModel([first, *others[1:]], deep.n_features_in_, n_labels)


def test_parameters_are_checked(some):
    for params, message in [
        ({"clustering": "round"}, "clustering must be one of capped, plain, balanced, but is 'round'"),
        ({"branching": 1}, "branching must be an integer of at least 2"),
        ({"beam": 0}, "beam must be an integer of at least 1, but is 0"),
        ({"prune": -1}, "prune must be"),
    ]:
        with pytest.raises(ParamError, match=message):
            LabelTree(**params).fit(some.X, some.Y)


@pytest.mark.parametrize("params", [{"branching": 2, "clustering": "balanced"}, {}])
def test_accuracy_on_bibtex(bibtex, params):
    """omikuji's trees have 63.1 and 28.0 there."""
    train, test = bibtex
    model = LabelTree(**params).fit(train.X, train.Y)
    metrics = umpteen.evaluate(test.Y, model.predict_topk(test.X, 5)[0])
    assert metrics["P@1"] > 62.5
    assert metrics["P@5"] > 27.5


@pytest.mark.parametrize("prune", [0.0, 0.01])
def test_the_estimate_covers_model_and_memory(more, prune):
    model = LabelTree(n_trees=2, branching=3, max_leaf=6, prune=prune)
    estimate = model.estimate(as_csr(more.X, "X"), as_csr(more.Y, "Y"))
    model.fit(more.X, more.Y)
    stored = sum(array.nbytes for part in model.model_.scorer.to_parts() for array in part.arrays.values())
    assert stored <= estimate.model_bytes <= estimate.peak_bytes


def test_values_that_no_sum_can_hold_are_refused(more):
    X = more.X.copy()
    X.data[:] = 3e38
    with pytest.raises(ShardError, match="weights must be finite; are values of X close to the largest 32-bit float"):
        LabelTree(normalize=False).fit(X, more.Y)


# --- DiSMEC(candidate_tree=tree) ------------------------------------------------------------------------------------


def test_candidates_are_ranked_by_the_linear_model(some, deep, tmp_path):
    exact = umpteen.DiSMEC().fit(some.X, some.Y)
    all_of_them = umpteen.DiSMEC(candidate_tree=deep.set_params(beam=10_000), n_candidates=120).fit(some.X, some.Y)
    want, got = exact.predict_topk(some.X, 7), all_of_them.predict_topk(some.X, 7)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-5)
    assert (got[0] == want[0]).mean() > 0.999  # scores are summed in another order
    deep.set_params(beam=10)
    few = umpteen.DiSMEC(candidate_tree=deep, n_candidates=8).fit(some.X, some.Y)
    proposed, _ = deep.predict_topk(some.X, 8)
    labels, scores = few.predict_topk(some.X, 3)
    W, bias = few.model_.scorer.to_weights()
    X = few.preprocessing_.transform(some.X)
    dense = X @ W.T.toarray() + bias
    for i in range(50):
        best = sorted(proposed[i].tolist(), key=lambda label: -dense[i, label])[:3]
        assert labels[i].tolist() == best
        np.testing.assert_allclose(scores[i], dense[i, best], rtol=1e-4, atol=1e-5)
    few.save(tmp_path / "m")
    for a, b in zip(umpteen.load(tmp_path / "m").predict_topk(some.X, 3), (labels, scores), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_unfitted_tree_is_trained_along(some):
    model = umpteen.DiSMEC(candidate_tree=LabelTree(branching=4, max_leaf=10)).fit(some.X, some.Y)
    assert not hasattr(model.candidate_tree, "model_")
    assert model.model_.candidate_tree.n_labels == 120
    assert (model.predict_topk(some.X, 5, exclude=[3])[0] != 3).all()
    assert model.predict_topk(some.X[:2], 200)[0].shape == (2, 200)
    with pytest.raises(ParamError, match="labels can only be added to a model without a candidate_tree"):
        model.add_labels(some.X, some.Y[:, :1])
    with pytest.raises(ParamError, match="candidate_tree must be a LabelTree or None, but is 'tree'"):
        umpteen.DiSMEC(candidate_tree="tree").fit(some.X, some.Y)


def test_a_tree_of_another_shape_is_refused(some, tiny):
    tree = LabelTree().fit(tiny.X, tiny.Y)
    with pytest.raises(ParamError, match="candidate_tree must have 250 features and 120 labels, but has 200 and 40"):
        umpteen.DiSMEC(candidate_tree=tree).fit(some.X, some.Y)
