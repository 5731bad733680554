"""DiSMEC with logistic loss: the optimum, the stopping rule, degenerate labels, accuracy."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import umpteen
from umpteen import _native
from umpteen.cli.main import app
from umpteen.data.matrix import as_csr, offsets
from umpteen.errors import ParamError

from .reference import logistic_gradient, logistic_objective
from .solving import check_finite_differences, length, liblinear_objective, solve_by, stopping_bound, unit


def solve(X, Y, **options):
    return solve_by(_native.solve_panels, False, X, Y, **options)


def test_the_exponential_is_exact_to_a_millionth(simd):
    x = np.concatenate([np.linspace(-86.9, 86.9, 400_001), [0.0, -0.0, 1e-30]]).astype(np.float32)
    want = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(_native.exponentials(x), want, rtol=1e-6)
    beyond = _native.exponentials(np.array([-1e9, -200, 200, 1e9], np.float32))
    assert np.isfinite(beyond).all()
    assert (beyond[:2] < 1e-37).all()
    assert (beyond[2:] > 1e37).all()


def test_the_gradient_of_the_twin_is_its_finite_difference(tiny):
    check_finite_differences(logistic_objective, logistic_gradient, tiny, 1e-6)


@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("bias", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("cost", [1.0, 3.5])
def test_the_gradient_vanishes_as_the_stopping_rule_says(simd, tiny, C, bias, cost):
    X, Y = unit(tiny.X), tiny.Y.toarray() > 0
    W, b, out = solve(X, tiny.Y, C=C, bias=bias, eps=1e-3, cost=np.full(40, cost))
    for label in range(40):
        y = Y[:, label]
        bound = stopping_bound(logistic_gradient, X, y, 1e-3, C, bias, cost)
        here = length(logistic_gradient(X, y, W[label], b[label], C, bias, cost))
        # float32 sums against float64 ones: a little room above the bound
        assert here <= 1.02 * bound + 2e-6 * C * cost
        assert out["gradient"][label] * bound == pytest.approx(here, rel=0.02, abs=2e-6 * C * cost)
        assert out["objective"][label] == pytest.approx(
            logistic_objective(X, y, W[label], b[label], C, bias, cost), rel=1e-5
        )
    if bias == 0:
        assert (b == 0).all()


@pytest.mark.slow
def test_every_label_of_bibtex_is_as_good_as_liblinears(bibtex):
    train, _ = bibtex
    X, Y = unit(train.X), train.Y.toarray() > 0
    W, b, out = solve(X, train.Y, eps=1e-4)
    assert (out["gradient"] <= 1).all()
    for label in range(0, 159, 3):
        ours = logistic_objective(X, Y[:, label], W[label], b[label], 1.0, 1.0)
        assert ours == pytest.approx(liblinear_objective(X, Y[:, label], 0, logistic_objective), rel=1e-3), label


def test_eurlex_labels_from_head_to_tail_are_as_good_as_liblinears(eurlex):
    train, _ = eurlex
    by_frequency = np.argsort(-train.label_counts(), kind="stable")
    chosen = np.sort(by_frequency[[0, 10, 100, 500, 1500, 2500, 3500]])
    X = unit(train.X)
    W, b, out = solve(X, train.Y[:, chosen], eps=1e-4)
    assert (out["gradient"] <= 1).all()
    for i, label in enumerate(chosen):
        y = train.Y[:, label].toarray().ravel() > 0
        ours = logistic_objective(X, y, W[i], b[i], 1.0, 1.0)
        assert ours == pytest.approx(liblinear_objective(X, y, 0, logistic_objective), rel=1e-3), label


@pytest.mark.slow
@pytest.mark.parametrize(("C", "cost"), [(1.0, 1.0), (1.0, 3.0), (100.0, 1.0)])
def test_the_objective_falls_with_every_step(bibtex, C, cost):
    """A run cut off after more and more steps shows the way of one that is not."""
    train, _ = bibtex
    X, Y = unit(train.X), train.Y[:, :64]
    before = np.full(64, np.inf)
    falls = 0
    for rounds in range(8):
        _, _, out = solve(X, Y, C=C, eps=1e-5, max_rounds=rounds, cost=np.full(64, cost))
        assert (out["newton_steps"] <= rounds).all()
        assert (out["objective"] <= before * (1 + 1e-6)).all()
        falls += int((out["objective"] < before * (1 - 1e-6)).sum())
        before = out["objective"]
    assert falls > 3 * 64


@pytest.mark.slow
def test_many_features():
    data = umpteen.make_synthetic(300, 120_000, 40, features_per_row=30, seed=3)
    X, Y = unit(data.X), data.Y.toarray() > 0
    W, b, out = solve(X, data.Y, eps=1e-3)
    assert (out["gradient"] <= 1).all()
    for label in range(0, 40, 8):
        here = length(logistic_gradient(X, Y[:, label], W[label], b[label], 1.0, 1.0))
        assert here <= 1.02 * stopping_bound(logistic_gradient, X, Y[:, label], 1e-3, 1.0, 1.0) + 2e-6


DEGENERATE = {
    "one positive": np.eye(30, 1),
    "all but one": 1 - np.eye(30, 1),
    "all positive": np.ones((30, 1)),
}


@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("rows", ["distinct", "duplicate", "empty", "some empty"])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_degenerate_labels_are_solved(case, rows, bias):
    rng = np.random.default_rng(1)
    X = rng.random((30, 12)) * (rng.random((30, 12)) < 0.4)
    if rows == "duplicate":
        X[:] = X[0]
    elif rows == "empty":
        X[:] = 0
    elif rows == "some empty":
        X[::2] = 0
    X, y = unit(as_csr(X, "X")), DEGENERATE[case].ravel() > 0
    W, b, _ = solve(X, DEGENERATE[case], bias=bias, eps=1e-4)
    assert np.isfinite(W).all()
    assert np.isfinite(b).all()
    here = length(logistic_gradient(X, y, W[0], b[0], 1.0, bias))
    assert here <= 1.02 * stopping_bound(logistic_gradient, X, y, 1e-4, 1.0, bias) + 2e-6


@pytest.mark.parametrize("scale", [1e-6, 1e4])
def test_rows_that_are_not_scaled_are_solved(tiny, scale):
    X = as_csr(unit(tiny.X) * np.float32(scale), "X")
    W, b, out = solve(X, tiny.Y, eps=0.01)
    assert np.isfinite(W).all()
    assert np.isfinite(b).all()
    zero = [logistic_objective(X, y > 0, np.zeros(200), 0.0, 1.0, 1.0) for y in tiny.Y.toarray().T]
    assert (out["objective"] < zero).all()


def test_a_label_without_rows_is_skipped():
    Y = np.zeros((5, 3))
    Y[1, 1] = 1
    W, b, out = solve(np.eye(5), Y)
    assert (out["newton_steps"] > 0).tolist() == [False, True, False]
    assert (W[[0, 2]] == 0).all()
    assert (b[[0, 2]] == 0).all()
    assert len(solve(np.eye(5), np.zeros((5, 2)))[2]["data"]) == 0


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_same_bytes_whatever_the_threads(simd, bibtex, threads):
    """Which lane a label gets, and when, depends on the threads; so its weights must not depend on its neighbours."""
    train, _ = bibtex
    X, Y = unit(train.X[:500]), train.Y[:500]
    want = solve(X, Y, threads=1)
    got = solve(X, Y, threads=threads)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])
    alone = solve(X, Y[:, [threads]], threads=1)
    np.testing.assert_array_equal(alone[0][0], want[0][threads])
    np.testing.assert_array_equal(alone[1][0], want[1][threads])


def test_pruning_drops_small_weights_only(tiny):
    X = unit(tiny.X)
    whole, b, _ = solve(X, tiny.Y)
    pruned, pruned_b, _ = solve(X, tiny.Y, prune=0.05)
    np.testing.assert_array_equal(pruned, np.where(np.abs(whole) < np.float32(0.05), 0, whole))
    np.testing.assert_array_equal(b, pruned_b)
    assert 0 < (pruned != 0).sum() < (whole != 0).sum()


def test_positive_weight_is_a_repeated_row(tiny):
    """A label's rows counting twice is the same as standing there twice."""

    def fit(X, Y, **params):
        model = umpteen.DiSMEC(loss="logistic", eps=1e-4, prune=0, weight_type="float32", **params)
        return model.fit(X, Y).model_.scorer.shards[0].to_weights()

    once = fit(tiny.X, tiny.Y[:, [5]], positive_weight=2.0)
    rows = np.flatnonzero(tiny.Y[:, 5].toarray())
    X, Y = sp.vstack([tiny.X, tiny.X[rows]]), sp.vstack([tiny.Y[:, [5]], tiny.Y[rows][:, [5]]])
    plain = fit(X, Y)
    np.testing.assert_allclose(once[0].toarray(), plain[0].toarray(), atol=1e-3)
    np.testing.assert_allclose(once[1], plain[1], atol=1e-3)
    assert once[1][0] > fit(tiny.X, tiny.Y[:, [5]])[1][0] + 0.1


def test_propensity_reaches_the_kernel(tiny):
    """Costs by label through fit are those the kernel is given."""
    model = umpteen.DiSMEC(loss="logistic", propensity=True, prune=0, weight_type="float32").fit(tiny.X, tiny.Y)
    costs = model.positive_costs(tiny.label_counts(), tiny.n_rows)
    W, b, _ = solve(unit(tiny.X), tiny.Y, cost=costs)
    for shard in model.model_.scorer.shards:
        weights, bias = shard.to_weights()
        np.testing.assert_array_equal(weights.toarray(), W[shard.label_ids])
        np.testing.assert_array_equal(bias, b[shard.label_ids].astype(np.float32))


def test_the_loss_is_checked(tiny):
    with pytest.raises(ParamError, match="loss must be one of squared_hinge, logistic, but is 'hinge'"):
        umpteen.DiSMEC(loss="hinge").fit(tiny.X, tiny.Y)


@pytest.mark.parametrize(("C", "floor"), [(1.0, [59.0, 35.2, 25.6]), (10.0, [63.3, 39.2, 28.6])])
def test_accuracy_on_bibtex_and_after_loading(bibtex, tmp_path, C, floor):
    train, test = bibtex
    model = umpteen.DiSMEC(loss="logistic", C=C).fit(train.X, train.Y, tmp_path / "m")
    labels, scores = model.predict_topk(test.X, 5)
    metrics = umpteen.evaluate(test.Y, labels, deciles=False)
    found = [metrics[f"P@{k}"] for k in (1, 3, 5)]
    assert np.all(np.array(found) >= floor), found
    loaded = umpteen.load(tmp_path / "m")
    assert loaded.params["loss"] == "logistic"
    again = loaded.predict_topk(test.X, 5)
    np.testing.assert_array_equal(again[0], labels)
    np.testing.assert_array_equal(again[1], scores)


def test_the_command_line_sets_the_loss(tmp_path, tiny):
    umpteen.write_xc(tiny, tmp_path / "train.txt")
    args = [
        "train",
        tmp_path / "train.txt",
        "--method",
        "dismec",
        "--model",
        tmp_path / "m",
        "--set",
        "loss=logistic",
    ]
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    model = umpteen.load(tmp_path / "m")
    assert model.params["loss"] == "logistic"
    want = umpteen.DiSMEC(loss="logistic").fit(tiny.X, tiny.Y).predict_topk(tiny.X)
    np.testing.assert_array_equal(model.predict_topk(tiny.X)[1], want[1])


@pytest.mark.measured
def test_the_kernel_stops_when_told():
    data = umpteen.make_synthetic(20_000, 5_000, 3_000, features_per_row=150, seed=1)
    X, columns = unit(data.X), data.Y.tocsc()
    token = _native.CancelToken()
    stopped_at = []

    def stop():
        stopped_at.append(time.perf_counter())
        token.cancel()

    timer = threading.Timer(0.5, stop)
    timer.start()
    with pytest.raises(_native.Cancelled):
        _native.solve_panels(
            offsets(X), X.indices, X.data, X.shape[1], columns.indptr.astype(np.int64),
            columns.indices.astype(np.int32), np.ones(3_000, np.float32), 1.0, 1.0, 1e-6, 0.0, 200, False, 2, token,
        )  # fmt: skip
    assert time.perf_counter() - stopped_at[0] < 1


@pytest.mark.process
@pytest.mark.measured("memory")
def test_the_estimate_covers_the_peak():
    """Many features, so that the panels are most of it; measured in a fresh process."""
    code = """
import umpteen
data = umpteen.make_synthetic(2_000, 60_000, 200, features_per_row=30, seed=3)
def peak():  # of this process alone: getrusage would also know the parent's
    return 1024 * int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
model = umpteen.DiSMEC(loss="logistic", threads=2)
umpteen.DiSMEC(loss="logistic", threads=2).fit(data.X[:, :100], data.Y)  # loads what is loaded once
before = peak()
model.fit(data.X, data.Y)
print(peak() - before, model.estimate(data.X, data.Y).peak_bytes)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    peak, estimate = map(int, out.stdout.split())
    assert 0.5 * estimate < peak <= estimate
