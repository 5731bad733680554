"""Rows that count more or less than once: weight 2 is as good as the row twice, weight 0 as leaving it out."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.svm import LinearSVC

import umpteen
from umpteen.errors import DataError, ParamError
from umpteen.methods import METHODS, method_class

from . import reference
from .solving import unit

EXACT = {"eps": 1e-5, "prune": 0.0, "weight_type": "float32"}

#: Settings under which each method's optimum is one, and is reached closely.
CONVEX = {
    "centroid": umpteen.Centroid(weight_type="float32"),
    "dual": umpteen.DiSMEC(solver="dual", **EXACT),
    "newton": umpteen.DiSMEC(solver="newton", **EXACT),
    "logistic": umpteen.DiSMEC(loss="logistic", C=10, **EXACT),
    "positives weigh more": umpteen.DiSMEC(positive_weight=3, **EXACT),
    "positives weigh more, by Newton": umpteen.DiSMEC(positive_weight=3, loss="logistic", C=10, **EXACT),
    "l1": umpteen.DiSMEC(penalty="l1", **EXACT),
    "l1, positives weigh more": umpteen.DiSMEC(penalty="l1", positive_weight=3, **EXACT),
    "ppdsparse": umpteen.PPDSparse(**EXACT | {"eps": 1e-6}),
    "ppdsparse, positives weigh more": umpteen.PPDSparse(positive_weight=3, **EXACT | {"eps": 1e-6}),
    "ppdsparse, sampled": umpteen.PPDSparse(search="sampled", samples=20, **EXACT | {"eps": 1e-6}),
}


@pytest.fixture(scope="module")
def data():
    return umpteen.make_synthetic(400, 120, 12, seed=3)


@pytest.fixture(scope="module")
def weights(data):
    return np.random.default_rng(0).integers(0, 4, data.X.shape[0])


def repeated(data, weights):
    rows = np.repeat(np.arange(len(weights)), weights)
    return data.X[rows], data.Y[rows]


def fresh(method):
    return type(method)(**method.get_params())


def matrix(method):
    W, bias = method.model_.scorer.to_weights()
    return np.column_stack([W.toarray(), bias])


@pytest.mark.parametrize("method", CONVEX.values(), ids=CONVEX)
def test_a_weight_counts_as_repeated_rows(method, data, weights):
    weighted = matrix(fresh(method).fit(data.X, data.Y, sample_weight=weights))
    twice = matrix(fresh(method).fit(*repeated(data, weights)))
    once = matrix(fresh(method).fit(data.X, data.Y))
    assert np.abs(weighted - twice).max() < 2e-3 * np.abs(twice).max()
    assert np.abs(once - twice).max() > 0.05 * np.abs(twice).max()  # so the weights matter


@pytest.mark.parametrize("solver", ["dual", "newton"])
def test_fractions_reach_the_optimum_of_the_weighted_objective(solver, data):
    weights = np.random.default_rng(1).gamma(1.0, 1.0, data.X.shape[0]).astype(np.float32) + 0.01
    # The dual stops by its gap, of which a gradient is about the root: so a smaller gap for the same gradient.
    svm = umpteen.DiSMEC(solver=solver, **EXACT | {"eps": 1e-6}).fit(data.X, data.Y, sample_weight=weights)
    W, bias = svm.model_.scorer.to_weights()
    X = unit(data.X)
    for label in range(data.Y.shape[1]):
        y = data.Y[:, label].toarray().ravel() > 0
        w, b = W[label].toarray().ravel().astype(np.float64), float(bias[label])
        by_weight, by_bias = reference.svm_gradient(X, y, w, b, 1.0, 1.0, row_costs=weights)
        at_zero, _ = reference.svm_gradient(X, y, 0 * w, 0.0, 1.0, 1.0, row_costs=weights)
        assert np.hypot(np.linalg.norm(by_weight), by_bias) < 2e-3 * np.linalg.norm(at_zero)


def test_pd_sparse_lowers_the_weighted_objective(data):
    weights = np.random.default_rng(1).integers(0, 4, data.X.shape[0])
    settings = {"heldout": 0, "post_solve": False, "eps": 1e-3, "max_passes": 300, "weight_type": "float32"}
    weighted = umpteen.PDSparse(**settings).fit(data.X, data.Y, sample_weight=weights)
    twice = umpteen.PDSparse(**settings).fit(*repeated(data, weights))
    once = umpteen.PDSparse(**settings).fit(data.X, data.Y)
    X, Y = repeated(data, weights)

    def objective(method):
        X_bias = np.column_stack([unit(X).toarray(), np.ones(X.shape[0])]) if method.bias else unit(X).toarray()
        W = matrix(method) if method.bias else matrix(method)[:, :-1]
        return reference.pd_primal(X_bias, Y.toarray() > 0, W, method.lambda_, method.C)

    assert objective(weighted) == pytest.approx(objective(twice), rel=5e-3)
    assert objective(once) > 1.02 * objective(twice)


def test_words_of_labels_learn_from_the_rows_that_count(data, weights):
    """With no trust in few rows, which are counted once each, the optimum is that of repeated rows."""
    terms = np.eye(12, 120, dtype=np.float32) + np.eye(12, 120, 5, dtype=np.float32)
    method = umpteen.LabelText(terms, word_rows=0, own_rows=2.0, weight_type="float32", prune=0.0)
    weighted = matrix(fresh(method).set_params(own_rows=0.0).fit(data.X, data.Y, sample_weight=weights))
    twice = matrix(fresh(method).set_params(own_rows=0.0).fit(*repeated(data, weights)))
    assert np.abs(weighted - twice).max() < 1e-2 * np.abs(twice).max()
    words = method.fit(data.X, data.Y, sample_weight=weights).to_weights()[0]
    once = fresh(method).fit(data.X, data.Y).to_weights()[0]
    assert abs(words - once).max() > 0.05 * abs(once).max()


def test_a_tree_of_labels_ranks_as_if_rows_were_repeated(data, weights):
    tree = umpteen.LabelTree(branching=3, max_leaf=3, eps=1e-4, prune=0.0)
    weighted = fresh(tree).fit(data.X, data.Y, sample_weight=weights).predict_topk(data.X, 5)
    twice = fresh(tree).fit(*repeated(data, weights)).predict_topk(data.X, 5)
    once = fresh(tree).fit(data.X, data.Y).predict_topk(data.X, 5)
    assert np.mean(weighted[0] == twice[0]) > 0.99
    assert np.mean(once[0] == twice[0]) < 0.9


def test_a_model_of_low_rank_scores_as_if_rows_were_repeated(data, weights):
    model = umpteen.RXMLGlobal(rank=6)
    weighted = fresh(model).fit(data.X, data.Y, sample_weight=weights).predict_topk(data.X, 5)
    twice = fresh(model).fit(*repeated(data, weights)).predict_topk(data.X, 5)
    once = fresh(model).fit(data.X, data.Y).predict_topk(data.X, 5)
    assert np.mean(weighted[0] == twice[0]) > 0.98
    assert np.mean(once[0] == twice[0]) < 0.95


@pytest.mark.parametrize("method", [umpteen.FastXML, umpteen.PfastreXML])
def test_a_forest_learns_from_the_rows_that_count(method, data):
    """Rows of ten times the weight are learnt better, the others worse; trees of the two start at random."""
    often = np.arange(data.X.shape[0]) % 2 == 0
    weights = np.where(often, 1.0, 0.1)
    scores = {}
    for name, w in (("even", weights), ("odd", weights[::-1]), ("threads", weights)):
        forest = method(n_trees=10, max_leaf=60, threads=1 + 2 * (name == "threads"))
        scores[name] = forest.fit(data.X, data.Y, sample_weight=w).decision_function(data.X)
    assert np.array_equal(scores["threads"], scores["even"])

    def score_of_labels(found, rows):
        return found[rows][data.Y[rows].toarray() > 0].mean()

    assert score_of_labels(scores["even"], often) > score_of_labels(scores["odd"], often)
    assert score_of_labels(scores["odd"], ~often) > score_of_labels(scores["even"], ~often)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_threads_do_not_change_a_weighted_model(loss, data):
    weights = np.random.default_rng(1).random(data.X.shape[0]) + 0.1
    one, three = (
        matrix(umpteen.DiSMEC(loss=loss, threads=n).fit(data.X, data.Y, sample_weight=weights)) for n in (1, 3)
    )
    assert np.array_equal(one, three)


def test_weights_of_one_change_nothing(data):
    plain = matrix(umpteen.DiSMEC().fit(data.X, data.Y))
    assert np.array_equal(plain, matrix(umpteen.DiSMEC().fit(data.X, data.Y, sample_weight=np.ones(400))))


def test_a_run_is_not_resumed_with_other_weights(data, tmp_path):
    weights = np.arange(1, 401)
    umpteen.Centroid().fit(data.X, data.Y, tmp_path / "a", sample_weight=weights)
    manifest = (tmp_path / "a" / "manifest.json").read_text()
    umpteen.Centroid().fit(data.X, data.Y, tmp_path / "b", sample_weight=weights[::-1])
    assert "sample_weight" in manifest
    assert manifest != (tmp_path / "b" / "manifest.json").read_text()


def test_a_method_that_cannot_weigh_rows_has_no_such_argument():
    others = {name for name in METHODS if "sample_weight" not in inspect.signature(method_class(name).fit).parameters}
    assert others == {name for name in METHODS if not method_class(name).weighs_rows}
    assert others == {"rxml", "sleec"}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "one number for each of the 400 rows"),
        (np.full(400, np.nan), "row 0 has nan"),
        (-np.ones(400), "row 0 has -1"),
        (np.zeros(400), "zero for all"),
        (["a"] * 400, "numbers only"),
    ],
)
def test_bad_weights_are_refused(weights, message, data):
    with pytest.raises(DataError, match=message):
        umpteen.DiSMEC().fit(data.X, data.Y, sample_weight=weights)


@pytest.mark.parametrize("bias", [0.0, 1.0, 2.0])
def test_l1_with_weights_is_that_of_liblinear(bias, data):
    weights = np.random.default_rng(1).gamma(1.0, 1.0, data.X.shape[0]) + 0.01
    svm = umpteen.DiSMEC(penalty="l1", bias=bias, **EXACT).fit(data.X, data.Y, sample_weight=weights)
    W, intercept = svm.to_weights()
    for label in range(3):
        y = data.Y[:, label].toarray().ravel() > 0
        peer = LinearSVC(
            penalty="l1",
            dual=False,
            C=1.0,
            tol=1e-6,
            max_iter=100_000,
            fit_intercept=bias > 0,
            intercept_scaling=bias or 1.0,
        ).fit(unit(data.X), y, sample_weight=weights)
        assert np.abs(peer.coef_[0] - W[label].toarray().ravel()).max() < 5e-3 * np.abs(peer.coef_).max()
        assert peer.intercept_ == pytest.approx(intercept[label], abs=5e-3)
        assert 0 < W[label].nnz < 100  # so the penalty is felt
    one, three = (
        umpteen.DiSMEC(penalty="l1", bias=bias, threads=n).fit(data.X, data.Y, sample_weight=weights) for n in (1, 3)
    )
    assert np.array_equal(matrix(one), matrix(three))


def test_l1_with_weights_of_labels_without_rows(data):
    Y = data.Y.copy()
    Y.data[Y.indices == 3] = 0
    Y.eliminate_zeros()
    svm = umpteen.DiSMEC(penalty="l1").fit(data.X, Y, sample_weight=np.arange(1, 401))
    W, intercept = svm.to_weights()
    assert W[3].nnz == 0
    assert intercept[3] == -np.inf
    assert np.isfinite(np.delete(intercept, 3)).all()


# --- labels that count more ---------------------------------------------------------------------------------------


def test_balanced_labels_are_those_of_scikit_learn(data):
    svm = umpteen.DiSMEC(positive_weight="balanced", **EXACT).fit(data.X, data.Y)
    W, _ = svm.to_weights()
    n_rows = data.X.shape[0]
    for label in range(3):
        y = data.Y[:, label].toarray().ravel() > 0
        # There both sides are scaled, so that their mean weight is 1.
        C = 2 * (n_rows - y.sum()) / n_rows
        peer = LinearSVC(C=C, class_weight="balanced", tol=1e-6, max_iter=100_000).fit(unit(data.X), y)
        assert np.abs(peer.coef_[0] - W[label].toarray().ravel()).max() < 5e-3 * np.abs(peer.coef_).max()


METHODS_OF_WEIGHTS = {
    "dismec": umpteen.DiSMEC(**EXACT),
    "ppdsparse": umpteen.PPDSparse(**EXACT | {"eps": 1e-6}),
}


@pytest.mark.parametrize("method", METHODS_OF_WEIGHTS.values(), ids=METHODS_OF_WEIGHTS)
def test_each_label_has_a_weight_of_its_own(method, data):
    weights = [1.0 + label for label in range(data.Y.shape[1])]
    some = matrix(fresh(method).set_params(positive_weight=weights).fit(data.X, data.Y))
    alike = matrix(fresh(method).set_params(positive_weight=4.0).fit(data.X, data.Y))
    assert np.allclose(some[3], alike[3], atol=1e-3 * np.abs(alike[3]).max())
    assert not np.allclose(some[7], alike[7], atol=1e-2 * np.abs(alike[7]).max())


@pytest.mark.parametrize("method", METHODS_OF_WEIGHTS.values(), ids=METHODS_OF_WEIGHTS)
def test_weights_of_a_label_are_repeated_rows_of_it(method, data):
    has = data.Y[:, 0].toarray().ravel() > 0
    rows = np.concatenate([np.arange(400), np.flatnonzero(has), np.flatnonzero(has)])
    weighted = matrix(fresh(method).set_params(positive_weight=3.0).fit(data.X, data.Y[:, :1]))
    repeated = matrix(fresh(method).fit(data.X[rows], data.Y[rows, :1]))
    assert np.abs(weighted - repeated).max() < 2e-3 * np.abs(repeated).max()


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("fair", "\"balanced\" or one number for each label, but is 'fair'"),
        ([1.0, 2.0], "one number for each of the 12 labels, but there are 2"),
        ([1.0, -2.0], "positive_weight must be a finite number above 0"),
        (np.ones(12), "must be a list, but is an array; use its tolist"),
    ],
)
@pytest.mark.parametrize("method", [umpteen.DiSMEC, umpteen.PPDSparse])
def test_bad_weights_of_labels_are_refused(method, weight, message, data):
    with pytest.raises(ParamError, match=message):
        method(positive_weight=weight).fit(data.X, data.Y)
