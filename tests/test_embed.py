"""How RXML and SLEEC embed labels and rows: the pairs, the optimisers, the regression."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen import _native
from umpteen.data.matrix import as_csr
from umpteen.data.panels import multiply, orthonormal, pad
from umpteen.methods import embed
from umpteen.methods.embed import Pairs, armijo_step, exact_step, fit_rcg, fit_ridge, fit_sparse, fit_svp
from umpteen.methods.rxml import unit_labels

from .reference import dense_pairs, near_pairs


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
    np.testing.assert_allclose(multiply(X, A), X @ A, rtol=1e-4, atol=1e-5)
    Q = orthonormal(A[:, :16].copy())
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


# --- real data ------------------------------------------------------------------------------------------------------


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
