"""RXML, SLEEC and the global model: the optimiser, the regression, the search, degenerate data, accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen import _native
from umpteen.data.matrix import as_csr, offsets
from umpteen.errors import ModelCorruptError, ParamError
from umpteen.methods import embed
from umpteen.methods.base import TrainingData
from umpteen.methods.embed import Pairs, armijo_step, exact_step, fit_rcg, fit_ridge, fit_sparse, fit_svp, pad
from umpteen.methods.rxml import unit_labels, with_constant
from umpteen.methods.rxml_global import GlobalProblem, Point, fit_global

from .reference import dense_pairs, embedding_vote, near_pairs, nearest_rows


def files(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def random_labels(n, n_labels, per_row, seed=0):
    random = np.random.default_rng(seed)
    rows = np.repeat(np.arange(n), per_row)
    Y = sp.csr_matrix((np.ones(n * per_row), (rows, random.integers(0, n_labels, n * per_row))), (n, n_labels))
    return unit_labels(as_csr(Y, "Y", values=False))


def panel(values):
    out = np.zeros((len(values), pad(values.shape[1])), np.float32)
    out[:, : values.shape[1]] = values
    return out


@pytest.fixture
def problem():
    Y = random_labels(60, 25, 4)
    pairs = Pairs.find(Y, 12, seed=3)
    random = np.random.default_rng(1)
    return Y, pairs, panel(random.standard_normal((60, 5)) / np.sqrt(5))


# --- Ω --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_near", [1, 7, 1000])
def test_near_pairs_are_those_with_the_largest_products(n_near):
    Y = random_labels(80, 30, 4, seed=2)
    pairs = Pairs.find(Y, n_near, seed=0)
    dense, counts = dense_pairs(pairs)
    products = (Y @ Y.T).toarray()
    np.testing.assert_allclose(dense[counts > 0], products[counts > 0], atol=1e-6)
    for sure, allowed, size, row in near_pairs(products, n_near):
        mine = {j for j in range(80) if counts[min(row, j), max(row, j)] > 0}
        assert sure <= mine  # whoever beats the last of the list for certain is in
        assert size <= len(allowed)
    # Every row has its list, and pairs in two lists count twice.
    want = sum(size for *_, size, _ in near_pairs(products, n_near))
    assert counts.sum() == want


def test_ties_are_broken_by_the_seed_alone():
    Y = random_labels(200, 3, 1)
    first, again, other = (Pairs.find(Y, 5, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.indices, again.indices)
    assert first.indices.tolist() != other.indices.tolist()


# --- the objective, its gradient, the line --------------------------------------------------------------------------


def dense_objective(pairs, Z):
    target, weight = dense_pairs(pairs)
    return float((weight * (Z @ Z.T - target) ** 2).sum())


def test_residuals_gradient_and_line_against_numpy(simd, problem):
    _, pairs, Z = problem
    target, weight = dense_pairs(pairs)
    U = panel(np.random.default_rng(5).standard_normal((60, 5)))
    residual = pairs.residuals(Z)
    assert pairs.objective(residual) == pytest.approx(dense_objective(pairs, Z.astype(float)), rel=1e-6)
    S = weight * (Z.astype(float) @ Z.T - target)
    np.testing.assert_allclose(pairs.gradient(Z, residual), 2 * (S + S.T) @ Z, rtol=1e-4, atol=1e-4)
    first, second, c = pairs.along(Z, U, residual)
    for t in (-0.3, 0.1, 2.0):
        want = pairs.residuals(Z + np.float32(t) * U)
        np.testing.assert_allclose(residual + t * first + t * t * second, want, rtol=1e-4, atol=1e-4)
        value = dense_objective(pairs, Z.astype(float) + t * U)
        assert np.polyval(c[::-1], t) == pytest.approx(value, rel=1e-5)


def test_the_gradient_is_that_of_finite_differences(problem):
    _, pairs, Z = problem
    gradient = pairs.gradient(Z, pairs.residuals(Z))
    random = np.random.default_rng(0)
    for _ in range(5):
        H = panel(random.standard_normal((60, 5)))
        step = 1e-5
        ahead, behind = (dense_objective(pairs, Z.astype(float) + s * step * H) for s in (1, -1))
        assert embed.inner(gradient, H) == pytest.approx((ahead - behind) / (2 * step), rel=1e-4)


def test_the_objective_does_not_see_rotations(problem):
    _, pairs, Z = problem
    turn, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((5, 5)))
    turned = panel(Z[:, :5].astype(float) @ turn)
    before, after = (pairs.objective(pairs.residuals(A)) for A in (Z, turned))
    assert after == pytest.approx(before, rel=1e-6)


def test_the_exact_step_is_the_best_and_armijos_is_good_enough():
    random = np.random.default_rng(0)
    steps = np.linspace(0, 5, 5001)[1:]
    for _ in range(200):
        a, b, r = random.standard_normal((3, 6))
        if (slope := 2 * (r * a).sum()) > 0:
            a, slope = -a, -slope
        c = np.array([(r * r).sum(), slope, (a * a + 2 * r * b).sum(), 2 * (a * b).sum(), (b * b).sum()])
        t = exact_step(c)
        assert t > 0
        assert np.polyval(c[::-1], t) <= np.polyval(c[::-1], steps).min() + 1e-9
        t = armijo_step(c, 1.0)
        assert np.polyval(c[::-1], t) <= c[0] + 1e-4 * t * c[1] + 1e-12
    assert exact_step(np.array([1.0, 1.0, 1.0, 0.0, 1.0])) == 0  # uphill


# --- the manifold ---------------------------------------------------------------------------------------------------


def test_the_horizontal_projection():
    random = np.random.default_rng(0)
    Z, H = random.standard_normal((2, 40, 6))
    P = embed.project_horizontal(Z, H)
    np.testing.assert_allclose(embed.project_horizontal(Z, P), P, atol=1e-12)  # idempotent
    K = random.standard_normal((6, 6))
    vertical = Z @ (K - K.T)
    assert abs((P * vertical).sum()) < 1e-10  # orthogonal to what only rotates Z
    np.testing.assert_allclose(embed.project_horizontal(Z, vertical), 0, atol=1e-10)
    # H - P = ZE, and E solves the Sylvester equation
    E = np.linalg.lstsq(Z, H - P, rcond=None)[0]
    np.testing.assert_allclose(E, -E.T, atol=1e-10)
    left = E @ (Z.T @ Z) + (Z.T @ Z) @ E
    np.testing.assert_allclose(left, Z.T @ H - H.T @ Z, atol=1e-10)
    # A column of zeros cannot be turned away from.
    Z[:, 5] = 0
    assert np.isfinite(embed.project_horizontal(Z, H)).all()


def test_conjugate_gradients_need_no_projection(problem):
    """Gradients are horizontal, a direction stays so, and the paper's transports change nothing; see fit_rcg."""
    _, pairs, Z = problem
    gradient = pairs.gradient(Z, pairs.residuals(Z)).astype(float)[:, :5]
    np.testing.assert_allclose(embed.project_horizontal(Z[:, :5], gradient), gradient, atol=1e-4)
    new = Z[:, :5] - 0.01 * gradient
    np.testing.assert_allclose(embed.project_horizontal(new, gradient), gradient, atol=1e-4)
    _, plain = fit_rcg(pairs, Z, 12)
    _, projected = fit_rcg(pairs, Z, 12, project=True)
    np.testing.assert_allclose(plain, projected, rtol=1e-4)


@pytest.mark.parametrize("line_search", ["exact", "armijo"])
def test_conjugate_gradients_descend_at_every_step(problem, line_search):
    _, pairs, Z = problem
    fitted, history = fit_rcg(pairs, Z, 200, line_search=line_search)
    assert len(history) > 20
    assert (np.diff(history[:30]) < 0).all()
    assert (np.diff(history) < 1e-6 * history[0]).all()  # at the end rounding decides
    assert history[-1] == pytest.approx(dense_objective(pairs, fitted.astype(float)), rel=1e-4)
    assert not fitted[:, 5:].any()  # what pads stays zero


def test_conjugate_gradients_agree_with_pymanopt():
    pymanopt = pytest.importorskip("pymanopt", reason="pymanopt is not installed")
    Y = random_labels(30, 12, 3, seed=4)
    pairs = Pairs.find(Y, 8, seed=0)
    target, weight = dense_pairs(pairs)
    manifold = pymanopt.manifolds.PSDFixedRank(30, 4)

    @pymanopt.function.numpy(manifold)
    def cost(Z):
        return float((weight * (Z @ Z.T - target) ** 2).sum())

    @pymanopt.function.numpy(manifold)
    def gradient(Z):
        S = weight * (Z @ Z.T - target)
        return 2 * (S + S.T) @ Z

    start = embed.start(Y, 4, "labels", 0)
    optimizer = pymanopt.optimizers.ConjugateGradient(
        beta_rule="PolakRibiere", verbosity=0, max_iterations=3000, min_gradient_norm=1e-9, min_step_size=1e-14
    )
    theirs = optimizer.run(
        pymanopt.Problem(manifold, cost, euclidean_gradient=gradient), initial_point=start[:, :4].astype(float)
    )
    ours, _ = fit_rcg(pairs, start, 3000)
    assert dense_objective(pairs, ours.astype(float)) == pytest.approx(theirs.cost, abs=1e-6 * max(1, theirs.cost))


def test_svp_descends_to_a_positive_semidefinite_matrix(problem):
    _, pairs, Z = problem
    fitted, history = fit_svp(pairs, Z, 30)
    assert (np.diff(history) < 0).all()
    assert history[-1] == pytest.approx(dense_objective(pairs, fitted.astype(float)), rel=1e-4)
    assert history[-1] < 0.5 * history[0]
    gram = fitted[:, :5].T.astype(float) @ fitted[:, :5]
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-4 * gram.max())  # scaled eigenvectors


def test_a_step_of_svp_is_the_truncated_eigendecomposition(problem):
    _, pairs, Z = problem
    fitted, history = fit_svp(pairs, Z, 1, power_steps=60)
    target, weight = dense_pairs(pairs)
    S = weight * (Z.astype(float) @ Z.T - target)
    for halvings in range(10):
        values, vectors = np.linalg.eigh(Z.astype(float) @ Z.T - 0.5**halvings * (S + S.T))
        best = vectors[:, -5:] * np.sqrt(np.maximum(values[-5:], 0))
        if dense_objective(pairs, best) < history[0]:
            break
    np.testing.assert_allclose(fitted @ fitted.T, best @ best.T, atol=1e-3)


# --- dense algebra --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_decompose(simd, n):
    random = np.random.default_rng(n)
    for A in (random.standard_normal((n, n)), np.zeros((n, n)), np.outer(np.arange(n), np.ones(n)), np.eye(n)):
        Ut, s, Vt = _native.decompose(A.astype(float))
        np.testing.assert_allclose((Ut.T * s) @ Vt, A, atol=1e-10 * max(1, np.abs(A).max()))
        np.testing.assert_allclose(Ut @ Ut.T, np.eye(n), atol=1e-12)
        np.testing.assert_allclose(s, np.linalg.svd(A, compute_uv=False), atol=1e-10 * max(1, np.abs(A).max()))
    with pytest.raises(ValueError, match="A must be finite"):
        _native.decompose(np.full((2, 2), np.nan))


@pytest.mark.parametrize("width", [16, 48, 112, 160])
def test_panel_products(simd, width):
    random = np.random.default_rng(width)
    A, B = random.standard_normal((2, 70, width)).astype(np.float32)
    E = random.standard_normal((width, 32))
    np.testing.assert_allclose(_native.multiply_transposed(A, B), A.T.astype(float) @ B, atol=1e-4)
    assert embed.inner(A, B) == pytest.approx((A.astype(float) * B).sum(), abs=1e-3)
    np.testing.assert_allclose(_native.multiply_dense(A, E), A @ E, rtol=1e-4, atol=1e-4)
    X = sp.random(50, 70, 0.2, "csr", dtype=np.float32, random_state=1)
    np.testing.assert_allclose(embed.multiply(X, A), X @ A, rtol=1e-4, atol=1e-5)
    Q = embed.orthonormal(A[:, :16].copy())
    np.testing.assert_allclose(Q.T @ Q, np.eye(16), atol=1e-5)


# --- regression -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(120, 40), (40, 120)])
def test_ridge_reaches_the_solution(simd, shape):
    random = np.random.default_rng(0)
    X = as_csr(sp.random(*shape, 0.2, "csr", random_state=0), "X")
    Z = panel(random.standard_normal((shape[0], 10)))
    V, iterations = fit_ridge(X, Z, 0.3, tolerance=1e-6, iterations=500)
    dense = X.toarray().astype(float)
    want = np.linalg.solve(dense.T @ dense + 0.3 * np.eye(shape[1]), dense.T @ Z)
    np.testing.assert_allclose(V, want, atol=1e-4)
    assert 5 < iterations < 200
    again, more = fit_ridge(X, Z, 0.3, V, tolerance=1e-4, iterations=500)
    assert more == 0  # the start was good enough
    np.testing.assert_array_equal(again, V)


def test_admm_reaches_the_optimum():
    random = np.random.default_rng(0)
    X = as_csr(sp.random(50, 20, 0.4, "csr", random_state=0), "X")
    Z = panel(random.standard_normal((50, 3)))
    lambda_, mu, rho = 0.5, 0.8, 1.0
    V, A, U = fit_sparse(X, Z, lambda_, mu, rho, rounds=400, tolerance=1e-6, iterations=500)
    dense, V, target = X.toarray().astype(float), V.astype(float), Z.astype(float)
    np.testing.assert_allclose(A, dense @ V, atol=1e-3)
    # The scaled dual is a subgradient of the L1 term, and with it the gradient is zero.
    assert (np.abs(rho * U) <= mu + 1e-4).all()
    np.testing.assert_allclose(-rho * U[A > 0], mu, atol=1e-4)
    np.testing.assert_allclose(
        2 * dense.T @ (dense @ V - target) + 2 * lambda_ * V - dense.T @ (rho * U), 0, atol=1e-2
    )
    ridge, _ = fit_ridge(X, Z, lambda_, tolerance=1e-6, iterations=500)
    assert np.abs(A).sum() < 0.9 * np.abs(dense @ ridge).sum()


# --- search and vote ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("sharpness", [0.0, 20.0])
def test_search_and_vote_against_numpy(simd, tiny, similarity, sharpness):
    model = umpteen.RXML(
        n_learners=3, rank=21, n_clusters=3, lambda_=0.5, knn=7, similarity=similarity, sharpness=sharpness
    ).fit(tiny.X, tiny.Y)
    X = model.preprocessing_.transform(tiny.X)
    clusters, rows, similar = model.model_.near_rows(X)
    want_clusters, want_similar = nearest_rows(model.model_, X)
    np.testing.assert_array_equal(clusters, want_clusters)
    np.testing.assert_allclose(similar, want_similar, atol=3e-3)
    labels, scores = model.predict_topk(tiny.X, 5)
    want = embedding_vote(model.model_, clusters, rows, similar, sharpness)
    for i in range(tiny.n_rows):
        order = sorted(np.flatnonzero(want[i]), key=lambda label, i=i: (-np.float32(want[i, label]), label))[:5]
        assert labels[i, : len(order)].tolist() == order
        np.testing.assert_allclose(scores[i, : len(order)], want[i, order], rtol=1e-5)


def test_bits_do_not_depend_on_threads(tiny, tmp_path):
    for cls in (umpteen.RXML, umpteen.SLEEC, umpteen.RXMLGlobal):
        made = []
        for threads in (1, 3):
            extra = {"n_clusters": 2, "n_learners": 2} if cls is not umpteen.RXMLGlobal else {}
            cls(threads=threads, rank=20, seed=5, **extra).fit(tiny.X, tiny.Y, tmp_path / f"{cls.name}{threads}")
            made.append(files(tmp_path / f"{cls.name}{threads}"))
        assert made[0] == made[1]
        other = cls(rank=20, seed=6, **extra).fit(tiny.X, tiny.Y)
        other.save(tmp_path / f"{cls.name}-other")
        assert files(tmp_path / f"{cls.name}-other") != made[0]


def test_saved_and_loaded(tiny, tmp_path):
    for cls in (umpteen.RXML, umpteen.SLEEC, umpteen.RXMLGlobal):
        model = cls(rank=10).fit(tiny.X, tiny.Y)
        model.save(tmp_path / cls.name)
        loaded = umpteen.load(tmp_path / cls.name, checksums=True)
        for a, b in zip(loaded.predict_topk(tiny.X), model.predict_topk(tiny.X), strict=True):
            np.testing.assert_array_equal(a, b)
        assert "auto" not in [v for k, v in loaded.get_params().items() if k != "n_clusters"]


def test_damaged_clusters_are_refused(tiny):
    from dataclasses import replace

    from umpteen.models.embedding import EmbeddingModel

    model = umpteen.RXML(n_learners=1, rank=8, knn=3, lambda_=1, sharpness=1, similarity="cosine")
    (one,) = model.fit(tiny.X, tiny.Y).model_.clusters
    for change in (
        {"features": one.features[::-1].copy()},
        {"features": one.features[:-1]},
        {"offsets": one.offsets[:-1]},
        {"label_ptr": one.label_ptr[:-1]},
        {"label_ptr": one.label_ptr[::-1].copy()},
        {"labels": one.labels[:-1]},
        {"labels": one.labels.astype(np.float32)},
        {"regressor": one.regressor.astype(np.float32)},
        {"regressor": one.regressor[:, :-1].copy()},
        {"embedded": one.embedded[:-1]},
        {"knn": 0},
        {"knn": 65537},
        {"learner": 1},
        {"learner": 2**31 - 1},  # made a set of as many
    ):
        with pytest.raises(ModelCorruptError):
            EmbeddingModel([replace(one, **change)], 200, 40)
    for rank in (one.rank + 1, one.rank - 1, float(one.rank), True):  # broke explanations
        part = one.to_part()
        part.scalars["rank"] = rank
        with pytest.raises(ModelCorruptError, match="a cluster of rank .* cannot have"):
            EmbeddingModel.from_parts([part], 200, 40)
    # A label beyond the model's is passed over, not counted.
    labels = one.labels.copy()
    labels[:] = 999
    broken = EmbeddingModel([replace(one, labels=labels)], 200, 40)
    assert (broken.predict_topk(tiny.X)[0] == -1).all()


def test_the_approximate_index_finds_nearly_the_same(tiny, tmp_path):
    pytest.importorskip("usearch", reason="usearch is not installed")
    for similarity in ("cosine", "euclidean"):
        exact = umpteen.RXML(n_learners=2, rank=20, knn=10, similarity=similarity).fit(
            tiny.X, tiny.Y, tmp_path / similarity
        )
        assert exact.model_.recall(exact.preprocessing_.transform(tiny.X)) == 1
        found = umpteen.load(tmp_path / similarity)
        found.model_.use_index("usearch")
        recall = found.model_.recall(found.preprocessing_.transform(tiny.X))
        assert 0.95 < recall <= 1
        same = found.predict_topk(tiny.X, 3)[0] == exact.predict_topk(tiny.X, 3)[0]
        assert same.mean() > 0.95
    model = umpteen.RXML(n_learners=1, rank=8, index="usearch").fit(tiny.X, tiny.Y)
    assert model.predict_topk(tiny.X[:1])[0].shape == (1, 5)
    assert model.predict_topk(tiny.X, 3, include=[4])[0].max() == 4


# --- degenerate data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("embedding", ["rcg", "svp"])
def test_clusters_smaller_than_the_rank_and_empty_ones(tiny, embedding):
    model = umpteen.RXML(n_learners=2, n_clusters=60, rank=100, embedding=embedding).fit(tiny.X, tiny.Y)
    clusters = model.model_.clusters
    assert all(c.n_rows > 0 and c.rank <= c.n_rows for c in clusters)
    assert sum(c.n_rows for c in clusters) == 2 * tiny.n_rows
    assert model.score(tiny.X, tiny.Y) > 0.5
    assert umpteen.RXML(n_clusters=10**6, rank=10**6).fit(tiny.X[:30], tiny.Y[:30]).model_.n_learners == 5
    same = umpteen.RXML(n_learners=1, n_clusters=5).fit(np.ones((40, 3)), np.eye(40, 4))
    assert len(same.model_.clusters) == 1  # all rows are nearest to one centre; four clusters were empty


def test_rows_without_labels_are_left_out(tiny):
    Y = tiny.Y.tolil()
    Y[::3] = 0
    model = umpteen.RXML(n_learners=1, rank=10).fit(tiny.X, Y.tocsr())
    assert sum(c.n_rows for c in model.model_.clusters) == 200
    alone = umpteen.RXML(n_learners=1, rank=10).fit(
        tiny.X[Y.tocsr().getnnz(axis=1) > 0], Y.tocsr()[Y.tocsr().getnnz(axis=1) > 0]
    )
    np.testing.assert_array_equal(model.predict_topk(tiny.X)[0], alone.predict_topk(tiny.X)[0])


def test_rows_that_all_have_the_same_labels(tiny):
    Y = np.zeros((300, 5))
    Y[:, [1, 3]] = 1
    for cls in (umpteen.RXML, umpteen.SLEEC, umpteen.RXMLGlobal):
        labels, _ = cls().fit(tiny.X, Y).predict_topk(tiny.X, 2)
        assert (np.sort(labels, axis=1) == [1, 3]).all()


def test_rows_without_features(tiny):
    X = tiny.X.tolil()
    X[:50] = 0
    for bias in (0.0, 1.0):
        model = umpteen.RXML(n_learners=2, rank=10, bias=bias).fit(X.tocsr(), tiny.Y)
        assert model.predict_topk(sp.csr_matrix((3, 200)))[0].shape == (3, 5)
        assert np.isfinite(model.predict_topk(X.tocsr(), 1)[1]).all()


@pytest.mark.parametrize(
    "bad",
    [{"n_learners": 0}, {"rank": 0}, {"n_clusters": "many"}, {"n_clusters": 0}, {"n_neighbors": 0}, {"knn": 0},
     {"knn": "all"}, {"embedding": "svd"}, {"start": "zero"}, {"lambda_": 0}, {"lambda_": "some"}, {"mu": -1},
     {"rho": 0}, {"sharpness": -1}, {"similarity": "dot"}, {"line_search": "no"}, {"index": "faiss"},
     {"iterations": 0}, {"seed": -1}],
)  # fmt: skip
def test_parameters_are_checked(tiny, bad):
    (name,) = bad
    with pytest.raises(ParamError, match=f"{name} must be .*, but is"):
        umpteen.RXML(**bad).fit(tiny.X, tiny.Y)


# --- the global model -----------------------------------------------------------------------------------------------


def reduced_rank_optimum(X, Y, rank):
    """Closed form: least squares, then the fitted values cut to the rank."""
    W = np.linalg.lstsq(X, Y, rcond=None)[0]
    fitted = X @ W
    tail = np.linalg.svd(fitted, compute_uv=False)[rank:]
    return float(((Y - fitted) ** 2).sum() + (tail**2).sum())


@pytest.fixture
def small_global():
    random = np.random.default_rng(0)
    X = as_csr(sp.random(90, 20, 0.4, "csr", random_state=0), "X")
    Y = as_csr((random.random((90, 30)) < 0.15).astype(float), "Y", values=False)
    return X, Y


def test_the_global_gradient_and_geometry(small_global):
    X, Y = small_global
    problem = GlobalProblem(X, Y, 4)
    W = problem.start(0)
    dense = lambda p: (p.U * p.s).astype(float) @ p.V.T  # noqa: E731
    ambient = lambda p, xi: (  # noqa: E731
        p.U @ xi.M @ p.V.T + xi.Up.astype(float) @ p.V.T + p.U.astype(float) @ xi.Vp.T
    )
    f = lambda M: float(((X @ M - Y.toarray()) ** 2).sum())  # noqa: E731
    assert problem.objective(W) == pytest.approx(f(dense(W)), rel=1e-5)
    gradient = problem.gradient(W)
    G = 2 * X.T @ (X @ dense(W) - Y.toarray())
    UU, VV = (P.astype(float) @ P.T for P in (W.U, W.V))
    projected = UU @ G + G @ VV - UU @ G @ VV
    np.testing.assert_allclose(ambient(W, gradient), projected, atol=1e-3)
    np.testing.assert_allclose(W.U.T @ gradient.Up, 0, atol=1e-4)
    np.testing.assert_allclose(W.V.T @ gradient.Vp, 0, atol=1e-4)
    assert gradient.dot(gradient) == pytest.approx((projected**2).sum(), rel=1e-4)
    step = 1e-4
    ahead, behind = (f(dense(W) + s * step * projected) for s in (1, -1))
    assert gradient.dot(gradient) == pytest.approx((ahead - behind) / (2 * step), rel=1e-3)
    assert problem.curvature(W, gradient) == pytest.approx(((X @ projected) ** 2).sum(), rel=1e-4)
    t = -0.01
    new = problem.retract(W, t, gradient)
    left, s, right = np.linalg.svd(dense(W) + t * projected)
    np.testing.assert_allclose(dense(new), (left[:, :4] * s[:4]) @ right[:4], atol=1e-4)
    carried = ambient(new, problem.transport(W, gradient, new))
    UU, VV = (P.astype(float) @ P.T for P in (new.U, new.V))
    np.testing.assert_allclose(carried, UU @ projected + projected @ VV - UU @ projected @ VV, atol=1e-3)


@pytest.mark.parametrize("rank", [1, 4, 20])
def test_the_global_model_reaches_the_closed_form(small_global, rank):
    X, Y = small_global
    problem = GlobalProblem(X, Y, rank)
    W, history = fit_global(problem, problem.start(0), 400, 1e-5)
    assert isinstance(W, Point)
    assert (np.diff(history) < 0).all()
    assert history[-1] == pytest.approx(reduced_rank_optimum(X.toarray().astype(float), Y.toarray(), rank), rel=1e-4)


@pytest.mark.parametrize("rank", [8, 18, 20, 22])
def test_the_global_model_stays_on_the_manifold(rank):
    """Where features hang together and the rank is nearly that of all labels, little but rounding is left outside of
    U and V: once it was taken for directions, columns ceased to be orthonormal, and the objective fell below 0."""
    random = np.random.default_rng(0)
    dense = random.random((300, 24)) @ np.diag(10.0 ** -np.linspace(0, 4, 24)) @ random.standard_normal((24, 24))
    X = as_csr(dense, "X")
    Y = as_csr((random.random((300, 22)) < 0.2).astype(float), "Y", values=False)
    problem = GlobalProblem(X, Y, rank)
    W, history = fit_global(problem, problem.start(0), 40, 1e-6)
    for Q in (W.U, W.V):
        np.testing.assert_allclose(Q[:, :rank].T @ Q[:, :rank], np.eye(rank), atol=1e-4)
    true = ((X.toarray().astype(float) @ (W.U * W.s) @ W.V.T - Y.toarray()) ** 2).sum()
    assert history[-1] == pytest.approx(true, rel=1e-3)
    assert true > reduced_rank_optimum(X.toarray().astype(float), Y.toarray(), rank)


def test_the_global_model_scores_as_its_matrix_does(tiny):
    model = umpteen.RXMLGlobal(rank=10).fit(tiny.X, tiny.Y)
    one = model.model_.labels
    X = with_constant(model.preprocessing_.transform(tiny.X), np.arange(200), 1.0)
    A = np.zeros((201, 10))
    A[[*one.features, 200]] = one.regressor[:, :10].astype(float) * one.scale
    want = X @ A @ one.embeddings().T.astype(float)
    labels, scores = model.predict_topk(tiny.X, 40)
    np.testing.assert_allclose(scores, -np.sort(-want, axis=1), atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(want, labels.astype(int), 1), scores, atol=1e-4)


# --- real data ------------------------------------------------------------------------------------------------------


def precision(model, test):
    labels, _ = model.predict_topk(test.X, 5)
    metrics = umpteen.evaluate(test.Y, labels, deciles=False)
    return [metrics[f"P@{k}"] for k in (1, 3, 5)]


def test_accuracy_on_bibtex(bibtex):
    train, test = bibtex
    weighted = precision(umpteen.RXML().fit(train.X, train.Y), test)
    assert np.greater_equal(weighted, [65.5, 40.1, 29.3]).all(), weighted
    paper = umpteen.RXML(n_neighbors=250, lambda_=2.5, knn=25, sharpness=0, similarity="euclidean")
    uniform = precision(paper.fit(train.X, train.Y), test)
    assert np.greater_equal(uniform, [65.2, 39.9, 29.2]).all(), uniform


def test_riemannian_steps_beat_projections_on_a_cluster_of_eurlex(eurlex):
    """The paper's claim, in work rather than seconds: an iteration of SVP takes several gradients, and at the same
    number of passes over Ω the objective of conjugate gradients is lower."""
    train, _ = eurlex
    Y = unit_labels(train.Y[:3000])
    pairs = Pairs.find(Y, 100, 0)
    Z = embed.start(Y, 100, "labels", 0)
    _, rcg = fit_rcg(pairs, Z, 15)
    _, svp = fit_svp(pairs, Z, 5)  # three passes each: two products and the new residuals
    assert rcg[-1] < svp[-1]


def test_a_cluster_is_planned_for_every_few_thousand_rows(bibtex):
    train, _ = bibtex
    data = TrainingData(train.X, train.Y, 1.0)
    model = umpteen.RXML(n_learners=2, lambda_=1, knn=5, sharpness=0, similarity="cosine")
    assert len(model.plan(data)) == 2
    tasks = model.set_params(n_clusters=4).plan(data)
    assert {task.plan.learner for task in tasks} == {0, 1}
    for learner in range(2):
        rows = np.concatenate([task.plan.rows for task in tasks if task.plan.learner == learner])
        np.testing.assert_array_equal(np.sort(rows), np.arange(train.n_rows))
    assert offsets(train.X)[0] == 0
