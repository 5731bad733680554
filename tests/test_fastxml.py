"""FastXML and PfastreXML: the solver, the splits, the trees, degenerate data, accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen import _native
from umpteen.data.matrix import as_csr, offsets
from umpteen.data.propensity import propensities
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.methods.training_data import TrainingData
from umpteen.models.forest import leaf_depths

from .files import read_files
from .reference import forest_scores, l1_objective, rank_sides, split_rows


def with_constant(X):
    return sp.hstack([X, np.ones((X.shape[0], 1), np.float32)], format="csr")


def tree_input(X, Y, row_costs=None, **params):
    data = TrainingData(as_csr(X, "X"), as_csr(Y, "Y", values=False), 1.0, row_costs=row_costs)
    return umpteen.FastXML(**params).tree_input(data)


# --- the solver -----------------------------------------------------------------------------------------------------


def solve(X, sign, cost, loss, **options):
    columns = sp.csc_matrix(X, dtype=np.float32)
    return _native.solve_l1(
        columns.indptr.astype(np.int64), columns.indices.astype(np.int32), columns.data,
        np.asarray(sign, np.float32), np.asarray(cost, np.float32), loss, **options,
    )  # fmt: skip


def liblinear_objective(X, sign, loss, eps, cost=(1.0, 1.0)):
    """What LIBLINEAR's own solver reaches, in our objective. X already has its constant column."""
    from liblinear.liblinearutil import parameter, problem, train

    kind = {"logistic": 6, "squared_hinge": 5}[loss]
    model = train(
        problem(np.asarray(sign, float), sp.csr_matrix(X, dtype=np.float64)),
        parameter(f"-s {kind} -c 1 -e {eps} -w1 {cost[1]} -w-1 {cost[0]} -q"),
    )
    w = np.array(model.get_decfun()[0]) * model.get_labels()[0]
    return l1_objective(X, sign, np.where(np.asarray(sign) > 0, cost[1], cost[0]), w, loss)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("cost", [(1.0, 1.0), (0.6, 3.0)])
def test_the_solver_reaches_liblinears_objective_on_bibtex(simd, bibtex, loss, cost):
    train, _ = bibtex
    X = with_constant(train.X)
    for label in (3, 40, 100):
        sign = np.where(train.Y[:, label].toarray().ravel() > 0, 1.0, -1.0)
        costs = np.where(sign > 0, cost[1], cost[0])
        rarer = min((sign > 0).mean(), (sign < 0).mean())  # LIBLINEAR's eps is taken times this
        out = solve(X, sign, costs, loss, eps=1e-4 * rarer, max_outer=1000, max_inner=100)
        ours = l1_objective(X, sign, costs, out["w"], loss)
        assert out["converged"]
        assert out["objective"] == pytest.approx(ours, rel=1e-4)
        assert ours <= liblinear_objective(X, sign, loss, 1e-3, cost) * 1.001


def test_gradients_of_zero_weights_stay_inside_and_of_others_vanish(tiny):
    sign = np.where(tiny.Y[:, 5].toarray().ravel() > 0, 1.0, -1.0)
    out = solve(tiny.X, sign, np.full(300, 5.0), "logistic", eps=1e-6, max_outer=500, max_inner=100)
    w = out["w"].astype(np.float64)
    m = sign * (tiny.X.astype(np.float64) @ w)
    gradient = tiny.X.T.astype(np.float64) @ (-5.0 * sign / (1 + np.exp(m)))
    assert 0 < (w != 0).sum() < tiny.X.shape[1]
    assert (np.abs(gradient[w == 0]) <= 1.01).all()
    np.testing.assert_allclose(gradient[w != 0], -np.sign(w[w != 0]), atol=0.01)


def test_the_objective_falls_with_every_model(bibtex):
    train, _ = bibtex
    sign = np.where(train.Y[:, 3].toarray().ravel() > 0, 1.0, -1.0)
    found = [
        solve(train.X, sign, np.ones(len(sign)), "logistic", eps=1e-6, max_outer=n)["objective"] for n in range(9)
    ]
    assert found[0] == pytest.approx(len(sign) * np.log(2), rel=1e-6)
    assert (np.diff(found) <= 1e-6 * found[0]).all()
    assert found[-1] < 0.5 * found[0]


def test_the_solver_refuses_what_it_cannot_use():
    with pytest.raises(ValueError, match="loss must be one of logistic, squared_hinge, but is 'hinge'"):
        solve(np.eye(3), np.ones(3), np.ones(3), "hinge")
    with pytest.raises(ValueError, match="there must be one cost per row"):
        solve(np.eye(3), np.ones(3), np.ones(2), "logistic")


# --- the split of a node --------------------------------------------------------------------------------------------


def real_nodes(data, count=12):
    """Rows of the same label: what nodes look like below the root."""
    rng = np.random.default_rng(0)
    columns = data.Y.tocsc()
    sizes = np.diff(columns.indptr)
    for label in rng.permutation(np.flatnonzero((sizes > 30) & (sizes < 500)))[:count]:
        yield columns.indices[columns.indptr[label] : columns.indptr[label + 1]].astype(np.int32)
    yield np.sort(rng.permutation(data.n_rows)[:800]).astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bibtex", "eurlex"])
@pytest.mark.parametrize("params", [{}, {"w_updates": 3}, {"split_loss": "ndcg5"}, {"split_loss": "precision5"}])
def test_no_step_raises_a_nodes_objective(request, name, params):
    train, _ = request.getfixturevalue(name)
    data = tree_input(train.X, train.Y, balance_sides=False, **params)
    falls = np.zeros(4, int)
    for seed, rows in enumerate(real_nodes(train)):
        split = _native.split_node(data, rows, seed)
        objective, steps = split["objective"], split["steps"]
        assert steps[0] == 0
        assert 3 in steps
        changes = np.diff(objective)
        assert (changes <= 1e-5 * np.abs(objective[:-1])).all()
        for step in (1, 2, 3):
            falls[step] += (changes[steps[1:] == step] < -1e-6).sum()
    assert (falls[1:] > 0).all()  # every kind of step lowers it somewhere


def test_the_recorded_objective_is_the_papers(bibtex):
    train, _ = bibtex
    rows = next(real_nodes(train))
    split = _native.split_node(tree_input(train.X, train.Y, balance_sides=False, C_delta=2.0, C_r=3.0), rows, 5)
    X, Y = with_constant(train.X[rows]), train.Y[rows].toarray()
    w = np.zeros(X.shape[1])
    w[split["features"]] = split["weights"]
    delta = split["delta"]
    worth = rank_sides(Y, delta, np.ones(Y.shape[1]))
    gain = 0.0
    for i, row in enumerate(Y):
        ideal = sum(1 / np.log2(place + 2) for place in range(int(row.sum())))
        gain += worth[(delta[i] + 1) // 2] @ row / ideal
    expected = l1_objective(X, delta, np.full(len(rows), 2.0), w, "logistic") - 3.0 * gain
    assert split["objective"][-1] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["bibtex", "eurlex"])
def test_sides_are_those_of_the_slow_twin(request, name):
    """The start is not told, but a split that ended must be a fixed point of the twin's steps."""
    train, _ = request.getfixturevalue(name)
    data = tree_input(train.X, train.Y)
    for seed, rows in enumerate(real_nodes(train, 5)):
        delta = _native.split_node(data, rows, seed)["delta"]
        assert set(np.unique(delta)) == {-1, 1}
        Y = train.Y[rows].toarray()
        Y = Y[:, Y.any(axis=0)]
        np.testing.assert_array_equal(split_rows(Y, delta, np.ones(Y.shape[1])), delta)


@pytest.mark.parametrize(
    ("limits", "worse"),
    [({"eps": 0.001, "max_outer": 50, "max_inner": 20}, 1.005), ({}, 1.03)],
    ids=["at leisure", "as trees are grown"],
)
def test_w_is_as_good_as_liblinears_at_real_nodes(bibtex, limits, worse):
    """LIBLINEAR at a tolerance where the order of its coordinates, which is random, does not matter."""
    train, _ = bibtex
    for balance in (False, True):
        data = tree_input(train.X, train.Y, balance_sides=balance, **limits)
        for seed, rows in enumerate(real_nodes(train, 6)):
            split = _native.split_node(data, rows, seed)
            X, delta = with_constant(train.X[rows]), split["delta"].astype(float)
            n_plus = (delta > 0).sum()
            cost = (len(rows) / (len(rows) - n_plus), len(rows) / n_plus) if balance else (1.0, 1.0)
            best = liblinear_objective(X, delta, "logistic", 1e-4, cost)
            assert split["solver"]["objective"] <= best * worse, (balance, len(rows))


def test_sides_count_alike_when_balanced(tiny):
    """A row of the smaller side counts more: its cost is n / n_side."""
    rows = np.arange(300, dtype=np.int32)
    split = _native.split_node(tree_input(tiny.X, tiny.Y, balance_sides=True), rows, 1)
    w = np.zeros(tiny.X.shape[1] + 1)
    w[split["features"]] = split["weights"]
    delta = split["delta"].astype(float)
    cost = np.where(delta > 0, 300 / (delta > 0).sum(), 300 / (delta < 0).sum())
    X = with_constant(tiny.X)
    assert split["solver"]["objective"] == pytest.approx(l1_objective(X, delta, cost, w, "logistic"), rel=1e-4)


# --- rows that count more or less than once -------------------------------------------------------------------------


@pytest.mark.parametrize("balance", [False, True])
def test_a_weighted_nodes_objective_is_that_of_repeated_rows(bibtex, balance):
    train, _ = bibtex
    times = np.random.default_rng(1).integers(1, 4, train.n_rows).astype(np.float32)
    exact = {"balance_sides": balance, "eps": 1e-4, "max_outer": 300, "max_inner": 50}
    data = tree_input(train.X, train.Y, times, **exact)
    for seed, rows in enumerate(real_nodes(train, 4)):
        split = _native.split_node(data, rows, seed)
        delta, own = split["delta"].astype(float), times[rows]
        Y = train.Y[rows].toarray()
        Y = Y[:, Y.any(axis=0)]
        np.testing.assert_array_equal(split_rows(Y, delta, np.ones(Y.shape[1]), times=own), delta)
        again = np.repeat(np.arange(len(rows)), own.astype(int))
        sides = [(delta[again] < 0).sum(), (delta[again] > 0).sum()]
        cost = np.where(delta > 0, len(again) / sides[1], len(again) / sides[0]) if balance else np.ones(len(rows))
        X, w = with_constant(train.X[rows]), np.zeros(train.X.shape[1] + 1)
        w[split["features"]] = split["weights"]
        assert split["solver"]["objective"] == pytest.approx(
            l1_objective(X[again], delta[again], cost[again], w, "logistic"), rel=1e-4
        )
        repeated = solve(X[again], delta[again], cost[again], "logistic", eps=1e-4, max_outer=300, max_inner=50)
        assert split["solver"]["objective"] == pytest.approx(repeated["objective"], rel=2e-3)
        once = solve(X, delta, np.ones(len(rows)), "logistic", eps=1e-4, max_outer=300, max_inner=50)
        assert abs(once["objective"] - repeated["objective"]) > 0.05 * repeated["objective"]  # so weights matter


def test_no_step_raises_a_weighted_nodes_objective(bibtex):
    train, _ = bibtex
    times = np.random.default_rng(1).gamma(1.0, 1.0, train.n_rows).astype(np.float32) + np.float32(0.01)
    data = tree_input(train.X, train.Y, times, balance_sides=False, w_updates=3)
    for seed, rows in enumerate(real_nodes(train, 4)):
        objective = _native.split_node(data, rows, seed)["objective"]
        assert (np.diff(objective) <= 1e-5 * np.abs(objective[:-1])).all()
        assert objective[-1] < objective[0]


@pytest.mark.parametrize("cls", [umpteen.FastXML, umpteen.PfastreXML])
def test_a_leaf_of_weighted_rows_is_that_of_repeated_ones(tiny, cls):
    """Trees of one leaf: nothing is drawn at random, so the models are the same. Of PfastreXML only the centroids are
    looked at, as propensities count rows once."""
    times = np.random.default_rng(0).integers(0, 4, tiny.n_rows)
    again = np.repeat(np.arange(tiny.n_rows), times)
    settings = {"n_trees": 1, "max_leaf": 10**6}
    if cls is umpteen.PfastreXML:
        settings |= {"alpha": 0.0, "gamma": 1.0}
    weighted = cls(**settings).fit(tiny.X, tiny.Y, sample_weight=times)
    repeated = cls(**settings).fit(tiny.X[again], tiny.Y[again])
    once = cls(**settings).fit(tiny.X, tiny.Y)
    scores = [model.decision_function(tiny.X) for model in (weighted, repeated, once)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=2e-3, atol=1e-4)
    assert np.abs(scores[2] - scores[1]).max() > 0.01


def test_costs_of_one_grow_the_same_tree(tiny):
    trees = [
        _native.grow_tree(tree_input(tiny.X, tiny.Y, costs), 3, _native.CancelToken())
        for costs in (None, np.ones(300, np.float32))
    ]
    for name, array in trees[0].items():
        np.testing.assert_array_equal(array, trees[1][name])
    with pytest.raises(ValueError, match="every row_cost must be finite and above 0"):
        tree_input(tiny.X, tiny.Y, np.zeros(300, np.float32))


def test_trees_are_added_with_the_same_weights(tiny, tmp_path):
    weights = np.random.default_rng(0).integers(0, 4, tiny.n_rows)
    whole = umpteen.FastXML(n_trees=5).fit(tiny.X, tiny.Y, tmp_path / "whole", sample_weight=weights)
    umpteen.FastXML(n_trees=3).fit(tiny.X, tiny.Y, tmp_path / "part", sample_weight=weights)
    part = umpteen.FastXML.from_model(umpteen.load(tmp_path / "part"))
    with pytest.raises(DataError, match="needs the (data|sample_weight)"):
        part.add_trees(2, tiny.X, tiny.Y)
    with pytest.raises(DataError, match="needs the sample_weight the forest was trained with"):
        part.add_trees(2, tiny.X, tiny.Y, sample_weight=2 * weights)
    part.add_trees(2, tiny.X, tiny.Y, sample_weight=weights)
    assert np.array_equal(part.decision_function(tiny.X), whole.decision_function(tiny.X))


# --- trees ----------------------------------------------------------------------------------------------------------


def test_training_rows_find_the_leaves_they_made(simd, tiny):
    """Leaves keep the mean of the rows that end in them: routing at prediction is routing at training."""
    model = umpteen.FastXML(n_trees=3, labels_per_leaf=1000).fit(tiny.X, tiny.Y).model_.scorer
    leaves = model.find_leaves(tiny.X)
    Y = tiny.Y.toarray()
    for t, tree in enumerate(model.trees):
        assert set(leaves[:, t]) == set(range(tree.n_leaves))
        for leaf in range(tree.n_leaves):
            mean = Y[leaves[:, t] == leaf].mean(axis=0)
            run = slice(int(tree.leaf_ptr[leaf]), int(tree.leaf_ptr[leaf + 1]))
            np.testing.assert_array_equal(tree.leaf_labels[run], np.flatnonzero(mean))
            np.testing.assert_allclose(tree.leaf_scores[run] / 65535, mean[mean > 0], atol=1e-5)


def test_prediction_is_that_of_the_slow_twin(simd, bibtex):
    train, test = bibtex
    model = umpteen.FastXML(n_trees=4, threads=2).fit(train.X[:1500], train.Y[:1500])
    X = test.X[:200]
    labels, scores = model.predict_topk(X, 159)
    want = forest_scores(model.model_.scorer.trees, X, 159)
    for i in range(200):
        n = (want[i] > 0).sum()
        assert (labels[i, n:] == -1).all()
        np.testing.assert_allclose(scores[i, :n], want[i][labels[i, :n]], rtol=1e-5)
        order = np.lexsort((labels[i, :n], -scores[i, :n]))
        np.testing.assert_array_equal(order, np.arange(n))


def test_wide_ids_where_there_are_many_features_and_labels():
    rng = np.random.default_rng(3)
    n, d, n_labels = 200, 70_000, 70_000
    group = rng.integers(0, 10, n)
    X = sp.csr_matrix(
        (np.ones(2 * n), (np.repeat(np.arange(n), 2), np.c_[group * 7000, group * 6999 + 1].ravel())), (n, d)
    )
    Y = sp.csr_matrix((np.ones(n), (np.arange(n), group * 6990 + 5)), (n, n_labels))
    model = umpteen.FastXML(n_trees=5, max_leaf=2).fit(X, Y)
    tree = model.model_.scorer.trees[0]
    assert tree.gaps.dtype == np.uint16
    assert tree.leaf_labels.dtype == np.int32
    assert (model.predict_topk(X, 1)[0][:, 0] == group * 6990 + 5).mean() > 0.9
    np.testing.assert_allclose(
        model.predict_topk(X[:20], 1)[1][:, 0],
        forest_scores(model.model_.scorer.trees, X[:20], n_labels).max(axis=1),
        rtol=1e-5,
    )


def test_leaves_have_few_rows_and_the_best_labels(tiny):
    model = umpteen.FastXML(n_trees=2, max_leaf=25, labels_per_leaf=2).fit(tiny.X, tiny.Y).model_.scorer
    leaves = model.find_leaves(tiny.X)
    Y = tiny.Y.toarray()
    for t, tree in enumerate(model.trees):
        assert np.bincount(leaves[:, t]).max() <= 25
        for leaf in range(tree.n_leaves):
            counts = Y[leaves[:, t] == leaf].sum(axis=0)
            best = np.sort(np.lexsort((np.arange(40), -counts))[:2])
            run = slice(int(tree.leaf_ptr[leaf]), int(tree.leaf_ptr[leaf + 1]))
            np.testing.assert_array_equal(tree.leaf_labels[run], best[counts[best] > 0])
        assert tree.mean_depth == pytest.approx(leaf_depths(tree.children)[leaves[:, t]].mean())


def test_seeds_make_trees_and_threads_do_not(tmp_path, tiny):
    trees = {}
    for threads in (1, 2, 5):
        umpteen.FastXML(n_trees=6, threads=threads).fit(tiny.X, tiny.Y, tmp_path / str(threads))
        trees[threads] = read_files(tmp_path / str(threads))
    assert trees[1] == trees[2] == trees[5]
    assert trees[1]["shard-00000/weights.npy"] != trees[1]["shard-00001/weights.npy"]
    umpteen.FastXML(n_trees=1, seed=9).fit(tiny.X, tiny.Y, tmp_path / "other")
    assert read_files(tmp_path / "other")["shard-00000/weights.npy"] != trees[1]["shard-00000/weights.npy"]


@pytest.mark.parametrize("cls", [umpteen.FastXML, umpteen.PfastreXML])
def test_added_trees_are_those_a_larger_forest_has(tmp_path, tiny, cls):
    cls(n_trees=7).fit(tiny.X, tiny.Y).save(tmp_path / "seven")
    model = cls(n_trees=3).fit(tiny.X, tiny.Y, tmp_path / "three")
    model = cls.from_model(umpteen.load(tmp_path / "three")).add_trees(1, tiny.X, tiny.Y).add_trees(3, tiny.X, tiny.Y)
    assert model.n_trees == 7
    model.save(tmp_path / "grown")
    seven, grown = read_files(tmp_path / "seven"), read_files(tmp_path / "grown")
    seven.pop("manifest.json"), grown.pop("manifest.json")
    assert seven == grown
    assert umpteen.load(tmp_path / "grown").params["n_trees"] == 7
    with pytest.raises(DataError, match="add_trees needs the data the forest was trained on"):
        model.add_trees(1, tiny.X * 2, tiny.Y)
    with pytest.raises(DataError, match="add_trees needs the data the forest was trained on"):
        cls(n_trees=1).fit(tiny.X, tiny.Y).add_trees(1, tiny.X[:100], tiny.Y[:100])


def test_damaged_trees_are_refused_or_harmless(tiny):
    model = umpteen.FastXML(n_trees=2).fit(tiny.X, tiny.Y).model_.scorer
    for name, change, message in [
        ("children", lambda a: np.zeros_like(a), "inner nodes that come after"),
        ("children", lambda a: np.full_like(a, -100_000), "children must be its leaves"),
        ("children", lambda a: a[:-2], "one leaf more than inner nodes"),
        ("weight_ptr", lambda a: a[::-1].copy(), "offsets must rise"),
        ("weights", lambda a: a[:-1], "a weight per gap"),
        ("weights", lambda a: a.astype(np.float32), "weights must be float16"),
        ("gaps", lambda a: a.astype(np.int32), "gaps must be uint8 or uint16"),
        ("leaf_scores", lambda a: a[:-1], "a score per label"),
    ]:
        parts = model.to_parts()
        parts[1].arrays[name] = change(np.array(parts[1].arrays[name]))
        with pytest.raises(ModelCorruptError, match=message):
            type(model).from_parts(parts, 200, 40)
    for name in ("gaps", "weights", "leaf_labels"):  # any bytes at all are survived
        parts = model.to_parts()
        noise = np.random.default_rng(0).bytes(parts[0].arrays[name].nbytes)
        parts[0].arrays[name] = np.frombuffer(noise, parts[0].arrays[name].dtype)
        labels, _ = type(model).from_parts(parts, 200, 40).predict_topk(as_csr(tiny.X, "X"), 40)
        assert labels.max() < 40
    with pytest.raises(ModelCorruptError, match="at least one tree"):
        type(model).from_parts([], 200, 40)


# --- odd data -------------------------------------------------------------------------------------------------------


def odd_data():
    rng = np.random.default_rng(2)
    X = sp.random(60, 30, 0.2, format="csr", random_state=4)
    Y = sp.csr_matrix(rng.random((60, 8)) < 0.3)
    no_labels, no_features = Y.tolil(), X.tolil()
    no_labels[::3] = 0
    no_features[::3] = 0
    return {
        "rows without labels": (X, no_labels.tocsr()),
        "rows without features": (no_features.tocsr(), Y),
        "no labels at all": (X, sp.csr_matrix((60, 8))),
        "no features at all": (sp.csr_matrix((60, 30)), Y),
        "one label for all": (X, sp.csr_matrix(np.eye(1, 8, 3).repeat(60, axis=0))),
        "identical rows": (sp.csr_matrix(np.ones((60, 30))), Y),
        "one feature": (X[:, :1], Y),
        "one row": (X[:1], Y[:1]),
        "huge values": (X * 1e30, Y),
        "tiny values": (X * 1e-30, Y),
        "negative values": (-X, Y),
    }


@pytest.mark.parametrize("case", odd_data())
@pytest.mark.parametrize("cls", [umpteen.FastXML, umpteen.PfastreXML])
def test_odd_data_end_with_a_valid_forest(cls, case, tmp_path):
    X, Y = odd_data()[case]
    model = cls(n_trees=3, max_leaf=1).fit(X, Y, tmp_path / "m")
    labels, scores = umpteen.load(tmp_path / "m", checksums=True).predict_topk(X, 8)
    assert np.isfinite(scores[labels >= 0]).all()
    if Y.nnz == 0:
        assert (labels == -1).all()
    leaves = model.model_.scorer.find_leaves(as_csr(X, "X"))
    assert leaves.min() >= 0


def test_deep_trees_do_not_overflow():
    """One row leaves at each level: a chain as deep as there are rows."""
    n = 3000
    children = np.empty(2 * n, np.int32)
    children[0::2] = ~np.arange(n)
    children[1::2] = np.arange(1, n + 1)
    children[-1] = ~n
    assert leaf_depths(children).max() == n
    scorer = _native.ForestScorer(1, 1, 1.0, 1.0)
    weight_ptr = np.arange(0, 2 * n + 1, 2, dtype=np.uint32)
    weights = np.tile(np.array([1, -1], np.float16), n)  # x > 1
    scorer.add_tree(
        children, weight_ptr, np.tile(np.array([0, 1], np.uint8), n), weights,
        np.arange(n + 2, dtype=np.uint32), np.zeros(n + 1, np.uint16), np.full(n + 1, 65535, np.uint16),
    )  # fmt: skip
    X = as_csr(np.array([[2.0], [0.5]]), "X")
    assert scorer.leaves(offsets(X), X.indices, X.data, 1).ravel().tolist() == [0, n]
    # And grown: values so far apart that each split takes the largest alone.
    X = sp.csr_matrix(2.0 ** -np.arange(60)[:, None])
    model = umpteen.FastXML(n_trees=2, max_leaf=1, C_delta=1000).fit(X, sp.identity(60, format="csr"))
    assert model.model_.scorer.describe()["leaves"] >= 4


@pytest.mark.parametrize(
    "bad",
    [{"n_trees": 0}, {"max_leaf": 0}, {"C_delta": 0}, {"C_r": -1}, {"labels_per_leaf": 0}, {"balance_sides": 1},
     {"w_updates": 0}, {"split_loss": "hinge"}, {"bias": -1}, {"eps": 0}, {"seed": -1}, {"max_inner": 0}],
)  # fmt: skip
def test_parameters_are_checked(tiny, bad):
    (name,) = bad
    with pytest.raises(ParamError, match=f"{name} must be .*, but is"):
        umpteen.FastXML(**bad).fit(tiny.X, tiny.Y)


@pytest.mark.parametrize(
    "bad", [{"alpha": 1.5}, {"alpha": -1}, {"gamma": -1}, {"n_candidates": 0}, {"A": -1}, {"B": 0}]
)
def test_parameters_of_pfastrexml_are_checked(tiny, bad):
    (name,) = bad
    with pytest.raises(ParamError, match=f"{name} must be .*, but is"):
        umpteen.PfastreXML(**bad).fit(tiny.X, tiny.Y)


# --- PfastreXML -----------------------------------------------------------------------------------------------------


def test_pfastrexml_scores_are_the_formulas(tiny):
    model = umpteen.PfastreXML(n_trees=4, alpha=0.7, gamma=5.0).fit(tiny.X, tiny.Y)
    labels, scores = model.predict_topk(tiny.X, 40)
    X = tiny.X.toarray() / np.linalg.norm(tiny.X.toarray(), axis=1, keepdims=True)
    Y = tiny.Y.toarray()
    means = (Y.T @ X) / Y.sum(axis=0)[:, None]
    near = 1 / (1 + np.exp(5.0 * ((X[:, None, :] - means[None]) ** 2).sum(axis=2)))
    trees = forest_scores(model.model_.scorer.trees, as_csr(tiny.X, "X"), 40)
    want = trees**0.7 * near**0.3
    for i in range(300):
        n = (trees[i] > 0).sum()
        np.testing.assert_allclose(scores[i, :n], want[i][labels[i, :n]], rtol=2e-3)
        assert (labels[i, n:] == -1).all()


def test_pfastrexml_gains_are_inverse_propensities(tiny):
    np.testing.assert_allclose(
        umpteen.PfastreXML().label_gains(as_csr(tiny.Y, "Y", values=False)), 1 / propensities(tiny.Y), rtol=1e-6
    )


# --- accuracy -------------------------------------------------------------------------------------------------------


def precision(model, test):
    metrics = umpteen.evaluate(test.Y, model.predict_topk(test.X, 5)[0], deciles=False)
    return np.array([metrics[f"P@{k}"] for k in (1, 3, 5)])


@pytest.mark.slow
def test_losses_over_five_labels_are_worse(bibtex):
    train, test = bibtex
    found = [
        precision(umpteen.FastXML(n_trees=10, split_loss=loss).fit(train.X, train.Y), test)
        for loss in ("ndcg", "ndcg5", "precision5")
    ]
    assert (found[0] > found[1] + 3).all()
    assert (found[1] > found[2] + 1).all()


#: Chosen on held-out training rows: benchmarks/results/fastxml.md
BIBTEX = {"tfidf": True, "C_delta": 0.5, "max_leaf": 5}


@pytest.mark.slow
def test_accuracy_on_bibtex(bibtex):
    train, test = bibtex
    found = precision(umpteen.FastXML(**BIBTEX).fit(train.X, train.Y), test)
    assert (found >= [63.3, 39.2, 28.7]).all(), found
    found = precision(umpteen.FastXML().fit(train.X, train.Y), test)
    assert (found >= [62.5, 38.2, 28.1]).all(), found  # forests differ by some tenths from seed to seed


@pytest.mark.slow
def test_pfastrexml_on_bibtex(bibtex):
    train, test = bibtex
    found = precision(umpteen.PfastreXML(**BIBTEX).fit(train.X, train.Y), test)
    assert (found >= [63.5, 39.9, 29.6]).all(), found


def test_pfastrexml_finds_rarer_labels(eurlex):
    train, test = eurlex
    found = []
    for cls in (umpteen.FastXML, umpteen.PfastreXML):
        labels, _ = cls(n_trees=3).fit(train.X, train.Y).predict_topk(test.X, 5)
        metrics = umpteen.evaluate(test.Y, labels, train.Y, deciles=False)
        found.append(np.array([metrics[f"PSP@{k}"] for k in (1, 3, 5)]))
    assert (found[1] > found[0] + 3).all(), found


def test_accuracy_and_size_on_eurlex(eurlex, tmp_path):
    train, test = eurlex
    model = umpteen.FastXML(n_trees=15).fit(train.X, train.Y, tmp_path / "m")
    found = precision(model, test)
    assert (found >= [69.2, 58.0, 48.3]).all(), found  # all 50 are in docs/RESULTS.md
    assert sum(f.stat().st_size for f in (tmp_path / "m").rglob("*")) < 18e6
