"""PD-Sparse: the projection, the optimum, searches, held-out rows, post-solve, degenerate rows, accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import umpteen
from umpteen import _native
from umpteen.data.matrix import as_csr, offsets
from umpteen.data.preprocessing import Preprocessing
from umpteen.errors import MemoryLimitError, ParamError

from .files import read_files
from .reference import pd_dual, pd_primal, pd_solve, project_by_intervals, solve_qp

# --- Algorithm 2 ---------------------------------------------------------------------------------------------------

numbers = st.integers(-320, 320).map(
    lambda n: n / 64
)  # no two answers of the solver below are too near to tell apart


def few(most):
    return st.lists(numbers, min_size=1, max_size=most).map(lambda values: np.array(values, np.float64))


@pytest.mark.slow
@given(few(4), few(3), st.floats(0.01, 4))
def test_the_projection_is_that_of_a_general_qp_solver(b, c, C):
    x, y = _native.project_two_simplices(b, c, C)
    n, m = len(b), len(c)
    ones = np.concatenate([np.ones(n), -np.ones(m)])[None]
    at_most = np.vstack([-np.eye(n + m), np.concatenate([np.ones(n), np.zeros(m)])])
    want = solve_qp(np.concatenate([b, c]), ones, at_most, np.append(np.zeros(n + m), C))
    np.testing.assert_allclose(np.concatenate([x, y]), want, atol=1e-8)


@given(few(40), few(20), st.floats(1e-3, 50))
def test_the_projection_is_that_of_the_papers_algorithm(b, c, C):
    x, y = _native.project_two_simplices(b, c, C)
    want_x, want_y = project_by_intervals(b, c, C)
    np.testing.assert_allclose(x, want_x, atol=1e-8)
    np.testing.assert_allclose(y, want_y, atol=1e-8)
    assert x.sum() == pytest.approx(y.sum(), abs=1e-9)
    assert x.sum() <= C + 1e-9
    assert min(x.min(), y.min()) >= 0


def test_the_projection_of_nothing():
    empty = np.zeros(0)
    for b, c in ((empty, np.ones(2)), (np.ones(2), empty), (empty, empty)):
        x, y = _native.project_two_simplices(b, c, 1.0)
        assert x.tolist() == [0] * len(b)
        assert y.tolist() == [0] * len(c)


# --- Algorithm 1 ---------------------------------------------------------------------------------------------------


def unit(X):
    return Preprocessing(normalize=True).transform(as_csr(X, "X"))


class Run:
    """A solver on some data, driven pass by pass; what it says is compared with float64 on the dense matrices."""

    def __init__(self, X, Y, lambda_=0.01, C=1.0, *, n_groups=3, seed=0, threads=2):
        self.X, self.Y, self.lambda_, self.C, self.threads = as_csr(X, "X"), as_csr(Y, "Y"), lambda_, C, threads
        self.dense_Y = self.Y.toarray() > 0
        self.solver = _native.PdSolver(
            offsets(self.X), self.X.indices, self.X.data, self.X.shape[1], offsets(self.Y), self.Y.indices,
            self.Y.shape[1], lambda_, C, n_groups, seed,
        )  # fmt: skip
        self.rng = np.random.default_rng(seed)

    def go(self, passes=1, batch=10**9, n_found=5, sampled=False, rate=2):
        for number in range(passes):
            order = self.rng.permutation(self.X.shape[0]).astype(np.int32)
            for begin in range(0, len(order), batch):
                rows = order[begin : begin + batch]
                self.solver.publish(self.threads)
                self.solver.search(rows, n_found, sampled, rate, number, self.threads)
                self.solver.step(rows)
        return self

    def alpha(self):
        return sp.csr_matrix(self.solver.alphas(), self.Y.shape)

    def W(self):
        return sp.csr_matrix(self.solver.weights(), (self.Y.shape[1], self.X.shape[1])).toarray()

    def objectives(self):
        """(primal, dual, W) from alpha alone."""
        dual, W = pd_dual(self.X, self.dense_Y, self.alpha(), self.lambda_)
        return pd_primal(self.X, self.dense_Y, W, self.lambda_, self.C), dual, W

    def check(self):
        """What the solver says is what alpha says, and alpha keeps its rules. Returns the gap as a share."""
        primal, dual, W = self.objectives()
        np.testing.assert_allclose(self.W(), W, atol=1e-4 * max(1, np.abs(W).max()))
        reported = self.solver.objectives(self.threads)
        assert reported[0] == pytest.approx(primal, rel=1e-4, abs=1e-3)
        assert reported[1] == pytest.approx(dual, rel=1e-4, abs=1e-3)
        alpha = self.alpha().toarray().astype(np.float64)
        positive = np.where(self.dense_Y, alpha, 0)
        negative = np.where(self.dense_Y, 0, alpha)
        assert positive.min() >= 0 >= negative.max()
        np.testing.assert_allclose(positive.sum(axis=1), -negative.sum(axis=1), atol=1e-5 * self.C)
        assert positive.sum(axis=1).max() <= self.C * (1 + 1e-5)
        assert primal + dual >= -1e-4 * abs(primal)
        return (primal + dual) / primal


@pytest.fixture(scope="module")
def classes():
    """Rows of one label each."""
    rng = np.random.default_rng(3)
    centres = rng.random((25, 60)) * (rng.random((25, 60)) < 0.3)
    label = rng.integers(0, 25, 600)
    X = (centres[label] + 0.4 * rng.random((600, 60))) * (rng.random((600, 60)) < 0.6)
    return unit(X.astype(np.float32)), sp.csr_matrix(np.eye(25)[label]), label


@pytest.mark.parametrize("lambda_", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("C", [0.3, 1.0, 5.0])
def test_the_duality_gap_closes(simd, tiny, lambda_, C):
    assert Run(unit(tiny.X), tiny.Y, lambda_, C).go(60).check() < 0.01


def test_the_gap_closes_on_classes(classes):
    X, Y, _ = classes
    assert Run(X, Y, 0.05).go(60).check() < 0.01


@pytest.mark.slow
def test_the_gap_closes_on_bibtex(bibtex):
    train, _ = bibtex
    run = Run(unit(train.X), train.Y).go(20, n_found=20)
    assert run.check() < 0.01
    # Most rows are confused about few labels; the elastic net does not promise nnz(W) <= nnz(A), and here it is more.
    assert run.alpha().nnz < 20 * train.n_rows


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("batch", [20, 100, 300])
def test_the_optimum_does_not_depend_on_how_it_is_searched(tiny, sampled, batch):
    X = unit(tiny.X)
    want = Run(X, tiny.Y, 0.02).go(150).objectives()
    run = Run(X, tiny.Y, 0.02, n_groups=4, seed=5).go(200 if sampled else 60, batch, 2, sampled)
    assert run.check() < 0.01
    # 1/2 |W - W*|^2 is at most the gap, since the primal is strongly convex
    primal, dual, W = run.objectives()
    assert np.linalg.norm(W - want[2]) <= np.sqrt(2 * (primal + dual)) + np.sqrt(2 * (want[0] + want[1])) + 1e-3


@pytest.mark.slow
def test_the_twin_agrees():
    data = umpteen.make_synthetic(80, 30, 8, labels_per_row=2, features_per_row=6, seed=2)
    X, Y = unit(data.X), data.Y.toarray() > 0
    alpha = pd_solve(X, Y, 0.05, 1.0, 100)
    dual, W = pd_dual(X, Y, sp.csr_matrix(alpha), 0.05)
    assert pd_primal(X, Y, W, 0.05, 1.0) + dual < 1e-3 * -dual
    run = Run(X, data.Y, 0.05).go(200)
    np.testing.assert_allclose(run.W(), W, atol=0.01)
    assert run.objectives()[1] == pytest.approx(dual, rel=1e-4)


@pytest.mark.parametrize("batch", [250, 1000, 5000])
def test_the_dual_falls_with_every_batch(bibtex, batch):
    train, _ = bibtex
    run = Run(unit(train.X), train.Y)
    before, falls = 0.0, 0
    for number in range(4):
        order = run.rng.permutation(train.n_rows).astype(np.int32)
        for begin in range(0, train.n_rows, batch):
            half = run.solver.publish(2)
            dual = half + float(np.minimum(run.solver.alphas()[0], 0).sum(dtype=np.float64))
            assert dual <= before + 1e-5 * abs(before)
            falls += dual < before
            before = dual
            run.solver.search(order[begin : begin + batch], 5, False, 1, number, 2)
            run.solver.step(order[begin : begin + batch])
    assert falls >= 4 * (train.n_rows // batch) - 1
    assert run.objectives()[1] <= before


def liblinear_weights(X, label, n_labels):
    """Crammer and Singer's machine, -s 4."""
    from liblinear.liblinearutil import parameter, problem, train

    model = train(problem(label.astype(np.float64), X), parameter("-s 4 -c 1 -e 0.0001 -q"))
    n = X.shape[1]
    W = np.zeros((n_labels, n))
    flat = np.ctypeslib.as_array(model.w, (n * model.nr_class,)).reshape(n, model.nr_class)
    W[model.get_labels()] = flat.T
    return W


def test_without_lambda_classes_are_liblinears(classes):
    X, Y, label = classes
    run = Run(X, Y, lambda_=0.0).go(60)
    theirs = pd_primal(X, run.dense_Y, liblinear_weights(X, label, 25), 0.0, 1.0)
    assert pd_primal(X, run.dense_Y, run.W().astype(np.float64), 0.0, 1.0) == pytest.approx(theirs, rel=0.01)
    assert -run.objectives()[1] == pytest.approx(theirs, rel=0.01)


def test_digits_as_well_as_liblinear():
    from sklearn.datasets import load_digits

    digits = load_digits()
    X, Y, label = unit(digits.data), sp.csr_matrix(np.eye(10)[digits.target]), digits.target
    train, test = np.arange(len(label)) % 3 != 0, np.arange(len(label)) % 3 == 0
    theirs = np.mean((X[test] @ liblinear_weights(X[train], label[train], 10).T).argmax(axis=1) == label[test])
    for params in ({"lambda_": 0.0, "heldout": 0}, {}):
        ours = umpteen.PDSparse(**params).fit(X[train], Y[train]).score(X[test], Y[test])
        assert ours >= theirs - 0.005, params
    dense_Y = Y[train].toarray() > 0
    run = Run(X[train], Y[train], lambda_=0.0).go(100)
    want = pd_primal(X[train], dense_Y, liblinear_weights(X[train], label[train], 10), 0.0, 1.0)
    assert pd_primal(X[train], dense_Y, run.W().astype(np.float64), 0.0, 1.0) == pytest.approx(want, rel=0.01)


# --- storage -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_memory_follows_the_non_zeros():
    """Short rows over many features: tables, and far from features x labels."""
    data = umpteen.make_synthetic(3000, 20_000, 400, labels_per_row=1.5, features_per_row=4, seed=5)
    run = Run(unit(data.X), data.Y).go(15)
    v = abs(run.alpha().T) @ abs(run.X)
    assert run.solver.table_bytes() < 8 * v.nnz / 0.75 * 2 + 8 * 8 * 400 * 4
    assert run.solver.table_bytes() < 4 * 20_000 * 400 / 8
    assert run.check() < 0.02


def test_alphas_can_be_put_back(tiny):
    run = Run(unit(tiny.X), tiny.Y).go(5)
    alphas, W = run.solver.alphas(), run.W()
    run.go(5)
    assert np.abs(run.W() - W).max() > 1e-3
    run.solver.set_alphas(*alphas)
    np.testing.assert_allclose(run.W(), W, atol=1e-5)
    for one, other in zip(run.solver.alphas(), alphas, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="there must be alphas for every row"):
        run.solver.set_alphas(alphas[0][:0], alphas[1][:0], np.zeros(2, np.int64))
    with pytest.raises(IndexError, match=r"rows must be in \[0, 300\), but one is 300"):
        run.solver.step(np.array([300], np.int32))


def test_the_support_is_kept_and_solved_without_lambda(tiny):
    run = Run(unit(tiny.X), tiny.Y, 0.1).go(30)
    W, alpha = run.W(), run.alpha().toarray()
    run.solver.keep_support()
    np.testing.assert_allclose(run.W(), W + 0.1 * np.sign(W), atol=1e-5)  # where it starts
    for _ in range(200):
        run.solver.step(np.arange(300, dtype=np.int32))
    after, alpha_after = run.W(), run.alpha().toarray()
    assert not after[W == 0].any()
    assert not alpha_after[(alpha == 0) & ~run.dense_Y].any()
    # w_k is the sum of alpha_ik x_i on the support, and no row's step would lead away from it
    V = np.where(W != 0, alpha_after.T.astype(np.float64) @ run.X.toarray(), 0)
    np.testing.assert_allclose(after, V, atol=1e-4)
    Z = run.X @ after.T
    loss = 0.5 * (after**2).sum() + alpha_after[~run.dense_Y].sum()
    active = (alpha_after < 0) & ~run.dense_Y
    worst = np.where(active, Z, -np.inf).max(axis=1) + 1 - np.where(run.dense_Y, Z, np.inf).min(axis=1)
    gap = loss + 0.5 * (after**2).sum() + np.maximum(worst, 0)[active.any(axis=1)].sum()
    assert abs(gap) < 0.02 * abs(loss)


# --- the method ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [{}, {"search": "sampled", "batch": 50}, {"bias": 1.0, "lambda_": 0.1}], ids=str)
def test_same_seed_same_bytes_whatever_the_threads(tmp_path, tiny, params):
    for threads in (1, 2, 7):
        umpteen.PDSparse(threads=threads, **params).fit(tiny.X, tiny.Y, tmp_path / str(threads))
    want = read_files(tmp_path / "1")
    assert len(want) > 5
    for threads in (2, 7):
        assert read_files(tmp_path / str(threads)) == want
    other = umpteen.PDSparse(seed=1, **params).fit(tiny.X, tiny.Y)
    assert (other.model_.scorer.to_weights()[0] != umpteen.load(tmp_path / "1").scorer.to_weights()[0]).nnz > 0


def test_what_is_told_of_passes(bibtex):
    train, _ = bibtex
    model = umpteen.PDSparse().fit(train.X, train.Y)
    stats = model.stats_
    assert (np.diff(stats["dual"]) < 0).all()
    assert stats["found"][0] == 2  # labels per row
    for i in range(len(stats["found"]) - 1):  # by work that is counted, never by the clock
        double = stats["search_entries"][i] > 2 * stats["step_entries"][i]
        assert stats["found"][i + 1] == min(100, stats["found"][i] * (2 if double else 1))
    assert stats["found"][-1] > 2
    assert 5 < model.active_labels_ < 20
    assert model.active_weights_ == pytest.approx(model.model_.scorer.nnz / train.X.shape[1], rel=0.01)


RAW = {"lambda_": 1.0, "normalize": False}


@pytest.fixture(scope="module")
def raw_bibtex(bibtex, tmp_path_factory):
    """What the authors' settings for Bibtex give, and where it is."""
    path = tmp_path_factory.mktemp("pdsparse") / "m"
    return umpteen.PDSparse(**RAW).fit(bibtex[0].X, bibtex[0].Y, path), path


@pytest.mark.slow
def test_accuracy_and_size_on_bibtex(bibtex, raw_bibtex):
    model, path = raw_bibtex
    metrics = umpteen.evaluate(bibtex[1].Y, model.predict_topk(bibtex[1].X, 5)[0], deciles=False)
    found = [metrics[f"P@{k}"] for k in (1, 3, 5)]
    assert np.all(np.array(found) >= [62.9, 36.6, 26.7]), found
    assert sum(file.stat().st_size for file in path.rglob("*.npy")) < 100_000


@pytest.mark.slow
def test_held_out_rows_say_when_to_stop_and_what_to_keep(bibtex, raw_bibtex):
    train, test = bibtex
    model, _ = raw_bibtex
    quality = model.stats_["quality"]
    best = int(np.argmax(quality))
    assert len(quality) == best + 1 + model.patience < model.max_passes
    # It is a run that ends at the best pass and is not post-solved: a large λ chose too few features for that.
    assert not model.post_solved_
    same = umpteen.PDSparse(**RAW, post_solve=False, max_passes=best + 1).fit(train.X, train.Y)
    np.testing.assert_array_equal(
        model.model_.scorer.to_weights()[0].toarray(), same.model_.scorer.to_weights()[0].toarray()
    )
    always = umpteen.PDSparse(**RAW, post_solve=True, max_passes=best + 1).fit(train.X, train.Y)
    assert always.post_solved_
    assert always.score(test.X, test.Y) < model.score(test.X, test.Y)
    # Without them it goes on, and learns the training rows by heart.
    long = umpteen.PDSparse(**RAW, heldout=0).fit(train.X, train.Y)
    assert (long.stats_["quality"] == -1).all()
    assert len(long.stats_["quality"]) == long.max_passes
    assert long.score(train.X, train.Y) > model.score(train.X, train.Y)
    assert not long.post_solved_
    assert umpteen.PDSparse(heldout=0, max_passes=2, post_solve=True).fit(train.X, train.Y).post_solved_


def test_the_model_is_the_mean_of_passes(tiny):
    passes = [
        umpteen.PDSparse(average=False, heldout=0, max_passes=n, eps=0, weight_type="float32").fit(tiny.X, tiny.Y)
        for n in (1, 2, 3)
    ]
    mean = umpteen.PDSparse(heldout=0, max_passes=3, eps=0, weight_type="float32").fit(tiny.X, tiny.Y)
    W = [model.model_.scorer.to_weights()[0].toarray() for model in (*passes, mean)]
    np.testing.assert_allclose(W[3], (W[0] + 8 * W[1] + 27 * W[2]) / 36, atol=1e-5)


def test_the_gap_stops_training_too(tiny):
    model = umpteen.PDSparse(heldout=0, eps=0.05, lambda_=0.05, max_passes=500, average=False).fit(tiny.X, tiny.Y)
    assert len(model.stats_["dual"]) < 500
    W = model.model_.scorer.to_weights()[0].toarray().astype(np.float64)
    X, Y = unit(tiny.X), tiny.Y.toarray() > 0
    optimum = -Run(X, tiny.Y, 0.05).go(200).objectives()[1]
    assert optimum * 0.999 <= pd_primal(X, Y, W, 0.05, 1.0) <= 1.06 * optimum


@pytest.mark.parametrize(
    "bad",
    [{"lambda_": -1}, {"C": 0}, {"n_groups": 0}, {"search": "full"}, {"n_found": 0}, {"n_found": 101}, {"batch": 0},
     {"post_solve": 1}, {"post_solve": "maybe"}, {"heldout": 1.0}, {"heldout": -0.1}, {"patience": 0},
     {"eps": -1}, {"max_passes": 0}, {"bias": -1}, {"average": 1}, {"seed": -1}],
    ids=str,
)  # fmt: skip
def test_parameters_are_checked(tiny, bad):
    (name,) = bad
    with pytest.raises(ParamError, match=f"{name} must be .*, but is"):
        umpteen.PDSparse(**bad).fit(tiny.X, tiny.Y)


def test_what_does_not_fit_is_refused_with_a_way_out(tiny, monkeypatch):
    monkeypatch.setattr("umpteen.memory.available_memory", lambda: 100_000)
    with pytest.raises(MemoryLimitError, match=r"would need .* of memory, but only 100 KB is available; .*PPDSparse"):
        umpteen.PDSparse().fit(tiny.X, tiny.Y)


def test_labels_cannot_be_added(tiny):
    assert not hasattr(umpteen.PDSparse, "add_labels")


# --- degenerate rows -----------------------------------------------------------------------------------------------


def test_rows_without_labels_and_with_all_of_them_change_nothing(tiny):
    n = tiny.n_rows
    extra = sp.vstack([tiny.Y, sp.csr_matrix((5, 40)), np.ones((5, 40))], format="csr")
    X = sp.vstack([tiny.X, tiny.X[:10]], format="csr")
    order = np.arange(n, dtype=np.int32)
    runs = Run(unit(tiny.X), tiny.Y, 0.05), Run(unit(X), extra, 0.05)
    for run in runs:
        for number in range(5):
            rows = order if run is runs[0] else np.append(order, np.arange(n, n + 10, dtype=np.int32))
            run.solver.publish(1)
            run.solver.search(rows, 5, False, 1, number)
            run.solver.step(rows)
    np.testing.assert_array_equal(runs[0].W(), runs[1].W())
    assert runs[1].alpha()[n:].nnz == 0
    runs[1].check()


def test_zero_rows_cost_their_loss_and_change_nothing(tiny):
    X = sp.vstack([unit(tiny.X), sp.csr_matrix((3, 200))], format="csr")
    Y = sp.vstack([tiny.Y, tiny.Y[:3]], format="csr")
    zero, plain = Run(X, Y, 0.05, C=2.0).go(80), Run(unit(tiny.X), tiny.Y, 0.05, C=2.0).go(80)
    assert zero.check() < 0.01
    assert zero.objectives()[0] == pytest.approx(plain.objectives()[0] + 3 * 2.0, rel=0.01)
    assert zero.objectives()[1] == pytest.approx(plain.objectives()[1] - 3 * 2.0, rel=0.01)
    umpteen.PDSparse().fit(X, Y)


def test_duplicate_rows_weigh_double(tiny):
    X = unit(tiny.X)
    twice = Run(sp.vstack([X, X], format="csr"), sp.vstack([tiny.Y, tiny.Y], format="csr"), 0.05).go(100)
    double = Run(X, tiny.Y, 0.05, C=2.0).go(100)
    assert twice.check() < 0.01
    assert twice.objectives()[1] == pytest.approx(double.objectives()[1], rel=0.01)


def test_values_near_the_largest_float_do_not_crash():
    X = np.random.default_rng(0).random((40, 5), np.float32) * np.float32(5)
    Y = np.eye(4)[np.arange(40) % 4]
    mixed = X * np.where(np.arange(40) % 2, 6e37, 1.0).astype(np.float32)[:, None]
    for values in (X * np.float32(6e37), X * np.float32(1e-38), mixed):
        model = umpteen.PDSparse(normalize=False).fit(values, Y)
        assert not np.isnan(model.predict_topk(X, 2)[1]).any()
    run = Run(X * np.float32(6e37), Y)
    run.solver.set_alphas(
        np.array([1, -1], np.float32), np.array([0, 1], np.int32), np.append(0, np.full(40, 2)).astype(np.int64)
    )
    with pytest.raises(ValueError, match="scores must be finite; are values of X close to the largest 32-bit float"):
        run.solver.step(np.arange(40, dtype=np.int32))


def test_a_single_label_has_nothing_to_be_confused_with():
    X = np.eye(6)
    for Y in (np.ones((6, 1)), np.array([[1], [0], [1], [0], [1], [1]])):
        labels, scores = umpteen.PDSparse().fit(X, Y).predict_topk(X, 1)
        assert (labels == 0).all()
        assert (scores == 0).all()
    model = umpteen.PDSparse().fit(X, np.hstack([np.ones((6, 1)), np.zeros((6, 2))]))  # others, but no row has them
    assert model.predict_topk(X, 3)[0].tolist() == [[0, -1, -1]] * 6
