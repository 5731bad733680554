"""RXMLGlobal: its gradient and geometry, the closed form it reaches, its scores."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.data.matrix import as_csr
from umpteen.methods.rxml import with_constant
from umpteen.methods.rxml_global import GlobalProblem, Point, fit_global


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
    one = model.model_.scorer.labels
    X = with_constant(model.preprocessing_.transform(tiny.X), np.arange(200), 1.0)
    A = np.zeros((201, 10))
    A[[*one.features, 200]] = one.regressor[:, :10].astype(float) * one.scale
    want = X @ A @ one.embeddings().T.astype(float)
    labels, scores = model.predict_topk(tiny.X, 40)
    np.testing.assert_allclose(scores, -np.sort(-want, axis=1), atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(want, labels.astype(int), 1), scores, atol=1e-4)
