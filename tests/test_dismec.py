"""DiSMEC: the optimum, the stopping rule, degenerate labels, accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen import _native
from umpteen.data.matrix import as_csr
from umpteen.data.propensity import propensities
from umpteen.data.split import split_rows
from umpteen.errors import ParamError

from .conftest import read_pair
from .files import read_files
from .reference import l1_svm_objective, svm_gradient, svm_objective
from .solving import check_finite_differences, length, liblinear_objective, solve_by, stopping_bound, unit


def solve(X, Y, *, l1=False, **options):
    return solve_by(_native.solve_svms, l1, X, Y, **options)


def test_the_gradient_of_the_twin_is_its_finite_difference(tiny):
    check_finite_differences(svm_objective, svm_gradient, tiny, 1e-4)


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("bias", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("cost", [1.0, 3.5])
def test_the_gradient_vanishes_as_the_stopping_rule_says(simd, tiny, C, bias, cost):
    X, Y = unit(tiny.X), tiny.Y.toarray() > 0
    W, b, out = solve(X, tiny.Y, C=C, bias=bias, eps=1e-3, cost=np.full(40, cost))
    for label in range(40):
        y = Y[:, label]
        bound = stopping_bound(svm_gradient, X, y, 1e-3, C, bias, cost)
        here = length(svm_gradient(X, y, W[label], b[label], C, bias, cost))
        # float32 sums against float64 ones: a little room above the bound
        assert here <= 1.02 * bound + 2e-5 * C * cost
        assert out["objective"][label] == pytest.approx(
            svm_objective(X, y, W[label], b[label], C, bias, cost), rel=1e-4
        )
    if bias == 0:
        assert (b == 0).all()


@pytest.mark.slow
def test_every_label_of_bibtex_is_as_good_as_liblinears(bibtex):
    train, _ = bibtex
    X, Y = unit(train.X), train.Y.toarray() > 0
    W, b, _ = solve(X, train.Y, eps=1e-4)
    for label in range(0, 159, 3):
        ours = svm_objective(X, Y[:, label], W[label], b[label], 1.0, 1.0)
        assert ours == pytest.approx(liblinear_objective(X, Y[:, label], 2, svm_objective), rel=1e-3), label


def test_eurlex_labels_from_head_to_tail_are_as_good_as_liblinears(eurlex):
    train, _ = eurlex
    by_frequency = np.argsort(-train.label_counts(), kind="stable")
    chosen = np.sort(by_frequency[[0, 10, 100, 500, 1500, 2500, 3500]])
    X = unit(train.X)
    W, b, _ = solve(X, train.Y[:, chosen], eps=1e-4)
    for i, label in enumerate(chosen):
        y = train.Y[:, label].toarray().ravel() > 0
        ours = svm_objective(X, y, W[i], b[i], 1.0, 1.0)
        assert ours == pytest.approx(liblinear_objective(X, y, 2, svm_objective), rel=1e-3), label


@pytest.mark.slow
@pytest.mark.parametrize("C", [1.0, 10.0])
def test_l1_on_bibtex_is_as_good_as_liblinears(bibtex, C):
    train, _ = bibtex
    X, Y = unit(train.X), train.Y.toarray() > 0
    W, b, out = solve(X, train.Y, eps=1e-4, C=C, l1=True)
    for label in range(0, 159, 26):
        ours = l1_svm_objective(X, Y[:, label], W[label], b[label], C, 1.0)
        assert ours == pytest.approx(out["objective"][label], rel=1e-4)
        # Its coordinate descent gives up after 1000 passes, some labels up to 2 % above the optimum.
        assert ours <= 1.001 * liblinear_objective(X, Y[:, label], 5, l1_svm_objective, C), label
    assert np.mean(W != 0) < 0.2  # the point of it


def test_l1_on_eurlex_from_head_to_tail_is_as_good_as_liblinears(eurlex):
    train, _ = eurlex
    by_frequency = np.argsort(-train.label_counts(), kind="stable")
    chosen = np.sort(by_frequency[[10, 100, 1500, 3500]])
    X = unit(train.X)
    W, b, _ = solve(X, train.Y[:, chosen], eps=1e-4, l1=True)
    for i, label in enumerate(chosen):
        y = train.Y[:, label].toarray().ravel() > 0
        ours = l1_svm_objective(X, y, W[i], b[i], 1.0, 1.0)
        assert ours <= 1.001 * liblinear_objective(X, y, 5, l1_svm_objective), label


@pytest.mark.parametrize("bias", [0.0, 2.0])
@pytest.mark.parametrize("n_features", [300, 30_000])
def test_l1_ends_where_no_feature_can_do_better(simd, bias, n_features):
    """KKT in float64: the loss's gradient is -sign(w) where w is not 0, and within [-1, 1] where it is."""
    data = umpteen.make_synthetic(400, n_features, 20, features_per_row=30, seed=3)
    X, Y = unit(data.X), data.Y.toarray() > 0
    W, b, _ = solve(X, data.Y, eps=1e-5, bias=bias, l1=True, C=5.0)
    for label in range(20):
        gradient, gradient_b = svm_gradient(X, Y[:, label], W[label], b[label], 5.0, bias)
        loss = np.append(gradient - W[label], gradient_b - b[label] if bias else 0)
        w = np.append(W[label], b[label] if bias else 0)
        wrong = np.where(w != 0, np.abs(loss + np.sign(w)), np.maximum(np.abs(loss) - 1, 0))
        assert wrong.max() < 0.02, label


@pytest.mark.slow
@pytest.mark.parametrize("l1", [False, True])
def test_l1_and_l2_objectives_fall_with_every_round(bibtex, l1):
    train, _ = bibtex
    X, Y = unit(train.X), train.Y[:, 64:128]
    before = np.full(64, np.inf)
    for rounds in range(6):
        _, _, out = solve(X, Y, eps=1e-4, max_rounds=rounds, l1=l1)
        assert (out["objective"] <= before * (1 + 1e-6)).all()
        before = out["objective"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"penalty": "L1"}, "penalty must be one of l2, l1, but is 'L1'"),
        ({"solver": "primal"}, "solver must be one of auto, newton, dual, but is 'primal'"),
        ({"solver": "dual", "penalty": "l1"}, "solver 'dual' needs loss"),
    ],
)
def test_penalty_and_solver_are_checked(params, message):
    with pytest.raises(ParamError, match=message):
        umpteen.DiSMEC(**params).validate()


@pytest.mark.parametrize("params", [{}, {"C": 5.0, "bias": 2.0}, {"positive_weight": 3.5}, {"propensity": True}])
def test_the_dual_solver_ends_where_newtons_does(simd, bibtex, params):
    """Both to 0.1 % of the objective, computed here; and the dual as close as its own gap says."""
    train, _ = bibtex
    X, Y = unit(train.X), train.Y.toarray() > 0
    sums = {}
    for solver, eps in (("newton", 1e-4), ("dual", 1e-2)):
        model = umpteen.DiSMEC(solver=solver, eps=eps, prune=0, weight_type="float32", **params)
        W, b = model.fit(train.X, train.Y[:, :32]).model_.scorer.to_weights()
        costs = model.positive_costs(train.label_counts(), train.n_rows)
        sums[solver] = [
            svm_objective(X, Y[:, i], W[i].toarray().ravel(), b[i] / model.bias, model.C, model.bias, costs[i])
            for i in range(32)
        ]
    assert np.all(np.array(sums["dual"]) <= 1.001 * np.array(sums["newton"]))
    assert sums["dual"] != sums["newton"]


def test_dense_rows_are_left_to_newton(tiny):
    dense = as_csr(np.ones((10, 8)), "X")
    assert umpteen.DiSMEC().uses_dual(tiny.X)
    assert not umpteen.DiSMEC().uses_dual(dense)
    assert not umpteen.DiSMEC(penalty="l1").uses_dual(tiny.X)
    assert umpteen.DiSMEC(solver="dual").uses_dual(dense)


@pytest.mark.slow
@pytest.mark.parametrize("cost", [1.0, 3.0])
def test_the_objective_falls_with_every_round(bibtex, cost):
    """Exactly the same until then, so runs cut off after more and more rounds show one label's way."""
    train, _ = bibtex
    X, Y = unit(train.X), train.Y[:, :64]
    before = np.full(64, np.inf)
    falls = 0
    for rounds in range(8):
        _, _, out = solve(X, Y, eps=1e-5, max_rounds=rounds, cost=np.full(64, cost))
        assert (out["objective"] <= before * (1 + 1e-6)).all()
        falls += int((out["objective"] < before * (1 - 1e-6)).sum())
        before = out["objective"]
    assert falls > 3 * 64


@pytest.mark.parametrize("spread", [1e-3, 1e-9])
def test_rows_of_very_different_lengths(simd, tiny, spread):
    """Directions come from rows in 16 bits where those can tell the rows' values; 1e-9 is too wide for them."""
    lengths = np.geomspace(spread, 1, tiny.n_rows)
    X = as_csr(sp.diags(lengths) @ unit(tiny.X) * 1000, "X")
    W, b, _ = solve(X, tiny.Y, eps=1e-3, C=1e-4)
    for label in range(0, 40, 7):
        y = tiny.Y[:, label].toarray().ravel() > 0
        zero, zero_b = svm_gradient(X, y, np.zeros(X.shape[1]), 0.0, 1e-4, 1.0, 1.0)
        here, here_b = svm_gradient(X, y, W[label], b[label], 1e-4, 1.0, 1.0)
        bound = 1e-3 * max(min(y.sum(), (~y).sum()), 1) / len(y) * np.hypot(np.linalg.norm(zero), zero_b)
        assert np.hypot(np.linalg.norm(here), here_b) <= 1.02 * bound + 1e-4


def test_more_features_than_are_numbered_through(simd):
    """Above 16384 features the kernel works on those the active rows have."""
    data = umpteen.make_synthetic(400, 30_000, 20, features_per_row=30, seed=3)
    X, Y = unit(data.X), data.Y.toarray() > 0
    W, b, out = solve(X, data.Y, eps=1e-3)
    assert (out["gradient"] <= 1).all()
    for label in range(0, 20, 4):
        here, here_b = svm_gradient(X, Y[:, label], W[label], b[label], 1.0, 1.0)
        zero, zero_b = svm_gradient(X, Y[:, label], np.zeros(30_000), 0.0, 1.0, 1.0)
        rarer = max(min(Y[:, label].sum(), (~Y[:, label]).sum()), 1)
        bound = 1e-3 * rarer / 400 * np.hypot(np.linalg.norm(zero), zero_b)
        assert np.hypot(np.linalg.norm(here), here_b) <= 1.02 * bound + 2e-5


DEGENERATE = {
    "one positive": np.eye(30, 1),
    "all but one": 1 - np.eye(30, 1),
    "all positive": np.ones((30, 1)),
}


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("rows", ["distinct", "duplicate", "empty", "some empty"])
def test_degenerate_labels_are_solved(case, rows):
    rng = np.random.default_rng(1)
    X = rng.random((30, 12)) * (rng.random((30, 12)) < 0.4)
    if rows == "duplicate":
        X[:] = X[0]
    elif rows == "empty":
        X[:] = 0
    elif rows == "some empty":
        X[::2] = 0
    X, y = unit(as_csr(X, "X")), DEGENERATE[case].ravel() > 0
    W, b, _ = solve(X, DEGENERATE[case], eps=1e-4)
    assert np.isfinite(W).all()
    assert np.isfinite(b).all()
    here, here_b = svm_gradient(X, y, W[0], b[0], 1.0, 1.0)
    zero, zero_b = svm_gradient(X, y, np.zeros(12), 0.0, 1.0, 1.0)
    assert np.hypot(np.linalg.norm(here), here_b) <= 1e-4 * np.hypot(np.linalg.norm(zero), zero_b) + 1e-4


def test_a_label_without_rows_is_skipped():
    _, b, out = solve(np.eye(5), np.zeros((5, 2)))
    assert (out["newton_steps"] == 0).all()
    assert len(out["data"]) == 0
    assert (b == 0).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_same_bytes_whatever_the_threads(simd, tiny, threads):
    X = unit(tiny.X)
    want = solve(X, tiny.Y, threads=1)
    got = solve(X, tiny.Y, threads=threads)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


def test_pruning_drops_small_weights_only(tiny):
    X = unit(tiny.X)
    whole, b, _ = solve(X, tiny.Y)
    pruned, pruned_b, _ = solve(X, tiny.Y, prune=0.05)
    np.testing.assert_array_equal(pruned, np.where(np.abs(whole) < np.float32(0.05), 0, whole))
    np.testing.assert_array_equal(b, pruned_b)
    assert 0 < (pruned != 0).sum() < (whole != 0).sum()


@pytest.mark.parametrize("weight_type", ["float32", "float16"])
def test_pruning_later_equals_training_with_it(tmp_path, tiny, weight_type):
    """Bit for bit; of 16-bit weights but for those whose rounding takes them across the threshold."""
    delta = np.float32(0.05)
    options = {"weight_type": weight_type, "labels_per_shard": 16}
    umpteen.DiSMEC(prune=0, **options).fit(tiny.X, tiny.Y, tmp_path / "whole")
    later = umpteen.load(tmp_path / "whole").pruned(0.05, tmp_path / "small")
    once = umpteen.DiSMEC(prune=0.05, **options).fit(tiny.X, tiny.Y)
    assert later.params["prune"] == umpteen.load(tmp_path / "small").params["prune"] == 0.05
    assert later.params == once.model_.params
    (got, got_bias), (want, want_bias) = later.scorer.to_weights(), once.model_.scorer.to_weights()
    np.testing.assert_array_equal(got_bias, want_bias)
    got, want = got.toarray(), want.toarray()
    differ = got != want
    if weight_type == "float32":
        assert not differ.any()
        once.save(tmp_path / "once")
        assert read_files(tmp_path / "small", "*.npy") == read_files(tmp_path / "once", "*.npy")
    assert differ.mean() < 1e-3
    np.testing.assert_allclose(np.abs(got + want)[differ], delta, rtol=2.0**-11)
    # Smaller than what it was trained with: nothing is left to drop, and the parameter still tells what was dropped.
    again = later.pruned(0.01)
    assert again.params["prune"] == 0.05
    assert again.scorer.nnz == later.scorer.nnz


def test_positive_weight_is_a_repeated_row(tiny):
    """A label's rows counting twice is the same as standing there twice."""
    model = umpteen.DiSMEC(positive_weight=2.0, eps=1e-4, prune=0, weight_type="float32")
    once = model.fit(tiny.X, tiny.Y[:, [5]]).model_.scorer.shards[0].to_weights()
    rows = np.flatnonzero(tiny.Y[:, 5].toarray())
    X, Y = sp.vstack([tiny.X, tiny.X[rows]]), sp.vstack([tiny.Y[:, [5]], tiny.Y[rows][:, [5]]])
    plain = umpteen.DiSMEC(eps=1e-4, prune=0, weight_type="float32").fit(X, Y).model_.scorer.shards[0].to_weights()
    np.testing.assert_allclose(once[0].toarray(), plain[0].toarray(), atol=2e-3)
    np.testing.assert_allclose(once[1], plain[1], atol=2e-3)


def test_propensity_weights_favour_rare_labels(tiny):
    model = umpteen.DiSMEC(propensity=True, positive_weight=2.0)
    counts = tiny.label_counts()
    costs = model.positive_costs(counts, tiny.n_rows)
    np.testing.assert_allclose(costs, 2 * (2 / propensities(tiny.Y) - 1), rtol=1e-6)
    assert costs[counts.argmin()] > costs[counts.argmax()] > 1


@pytest.mark.parametrize(
    "bad",
    [{"C": 0}, {"C": np.nan}, {"eps": -1}, {"prune": -0.1}, {"positive_weight": 0}, {"max_rounds": 0}, {"bias": -1}],
)
def test_parameters_are_checked(tiny, bad):
    (name,) = bad
    with pytest.raises(ParamError, match=f"{name} must be .*, but is"):
        umpteen.DiSMEC(**bad).fit(tiny.X, tiny.Y)


def precision(model, test):
    metrics = umpteen.evaluate(test.Y, model.predict_topk(test.X, 5)[0], deciles=False)
    return [metrics[f"P@{k}"] for k in (1, 3, 5)]


def test_accuracy_on_bibtex(bibtex):
    train, test = bibtex
    found = precision(umpteen.DiSMEC().fit(train.X, train.Y), test)
    # LIBLINEAR's optimum of the same problem: 63.78, 38.73, 28.00
    assert np.all(np.array(found) >= [63.68, 38.63, 27.9]), found


@pytest.mark.slow
def test_accuracy_on_bibtex_with_C_from_held_out_rows(bibtex):
    """As the paper chooses it."""
    train, test = bibtex
    held_out = split_rows(train.Y, 0.2, seed=1)

    def try_out(C):
        model = umpteen.DiSMEC(C=C).fit(train.X[~held_out], train.Y[~held_out])
        metrics = umpteen.evaluate(train.Y[held_out], model.predict_topk(train.X[held_out], 5)[0], deciles=False)
        return metrics["P@1"]

    best = max([0.1, 0.3, 1.0, 3.0], key=try_out)
    found = precision(umpteen.DiSMEC(C=best).fit(train.X, train.Y), test)
    assert np.all(np.array(found) >= [63.9, 38.8, 28.0]), (best, found)


@pytest.mark.slow
@pytest.mark.data
def test_accuracy_on_mediamill():
    train, test = read_pair("Mediamill")
    found = precision(umpteen.DiSMEC().fit(train.X, train.Y), test)
    # LIBLINEAR one-vs-rest (-s 2 -B 1) on the same rows, less 0.1
    assert np.all(np.array(found) >= np.array([81.88, 65.78, 51.56]) - 0.1), found


@pytest.mark.slow
@pytest.mark.data
def test_accuracy_on_tate_subjects():
    train, test = read_pair("Tate-Subjects")
    found = precision(umpteen.DiSMEC().fit(train.X, train.Y), test)
    # LIBLINEAR one-vs-rest on the same rows, less 0.1
    assert np.all(np.array(found) >= np.array([89.23, 82.25, 73.61]) - 0.1), found


def test_accuracy_on_eurlex(eurlex, tmp_path):
    train, test = eurlex
    found = precision(umpteen.DiSMEC().fit(train.X, train.Y, tmp_path / "m"), test)
    assert np.all(np.array(found) >= [83.6, 70.7, 59.0]), found
