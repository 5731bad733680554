"""Embeddings whose inner products match those of label vectors, for near rows only; shared by RXML and SLEEC.

Ω holds, for every row, the rows whose label vectors are most like its own. We want the Z (n x r) that solves

    min f(Z) = Σ_(i,j)∈Ω (z_i·z_j - y_i·y_j)²                                                                  (1)

f depends on ZZᵀ only, so Z and ZO are one point for every rotation O: the search is on the quotient of n x r matrices
by rotations (`fit_rcg`, the RXML paper's Algorithm 1). SLEEC searches over M = ZZᵀ by singular value projection
(`fit_svp`). Neither makes an n x n array: M is never formed, and its residuals are computed on Ω only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, offsets
from umpteen.data.panels import Panel, multiply, orthonormal, pad

_EXACT_EVERY = 25  # iterations after which residuals are recomputed: updates in float32 drift


def inner(a: Panel, b: Panel) -> float:
    """The trace inner product, summed in an order that depends only on the shape."""
    return _native.panel_inner(a, b)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Ω as pairs i <= j, with y_i·y_j, and how often the pair is in Ω: twice where each is near the other."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    target: NDArray[np.float32]
    weight: NDArray[np.float32]
    token: Any = None
    native: Any = field(init=False)

    def __post_init__(self) -> None:
        native = _native.Pairs(self.indptr, self.indices, self.target, self.weight)
        object.__setattr__(self, "native", native)

    @classmethod
    def find(cls, Y: Csr, n_neighbors: int, seed: int, token: Any = None) -> Pairs:
        """The `n_neighbors` rows most like each row of Y, including itself; rows that share no label are never near.
        `seed` breaks ties."""
        arrays = _native.find_near_pairs(offsets(Y), Y.indices, Y.data, Y.shape[1], n_neighbors, seed, token)
        return cls(arrays[0], arrays[1], arrays[2], arrays[3], token)

    def residuals(self, Z: Panel) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.native.residuals(Z, self.token)
        return found

    def gradient(self, Z: Panel, residual: NDArray[np.float32]) -> Panel:
        """∇f(Z) = 2(S + Sᵀ)Z with S the residuals on Ω."""
        found: Panel = self.native.gradient(Z, residual, self.token)
        return found

    def along(self, Z: Panel, U: Panel, residual: NDArray[np.float32]) -> tuple[Any, Any, NDArray[np.float64]]:
        """Along Z + tU, residuals are ``residual + t·first + t²·second``: returns both, and the coefficients of f."""
        found: tuple[Any, Any, NDArray[np.float64]] = self.native.along(Z, U, residual, self.token)
        return found

    def objective(self, residual: NDArray[np.float32]) -> float:
        return float((self.weight * np.square(residual, dtype=np.float64)).sum())


STARTS = ("labels", "random")


def start(Y: Csr, rank: int, kind: str, seed: int, token: Any = None) -> Panel:
    """Where the search starts; not at Z = 0, which is stationary.

    "labels" projects label vectors onto nearly the best space of this rank, found by two steps of subspace iteration
    from a random one; "random" is small and random, so learners differ more from each other.
    """
    random = np.random.default_rng(seed)
    n = Y.shape[0] if kind == "random" else Y.shape[1]
    W = np.zeros((n, pad(rank)), np.float32)
    W[:, :rank] = random.standard_normal((n, rank), np.float32) * np.float32(0.1 / np.sqrt(rank))
    if kind == "random":
        return W
    by_label = Y.T.tocsr()
    for _ in range(2):
        W = orthonormal(multiply(by_label, multiply(Y, W, token), token), token)
    return multiply(Y, W, token)


# --- Riemannian conjugate gradients ---------------------------------------------------------------------------------


def project_horizontal(Z: NDArray[Any], H: NDArray[Any]) -> NDArray[np.float64]:
    """H without its part ZE, E skew, that only rotates Z: E solves E ZᵀZ + ZᵀZ E = ZᵀH - HᵀZ."""
    Z, H = np.asarray(Z, np.float64), np.asarray(H, np.float64)
    values, vectors = np.linalg.eigh(Z.T @ Z)
    skew = vectors.T @ (Z.T @ H - H.T @ Z) @ vectors
    sums = values[:, None] + values[None, :]
    # Where ZᵀZ is singular, Z does not rotate.
    E = np.divide(skew, sums, out=np.zeros_like(skew), where=sums > 1e-14 * max(values.max(initial=0), 1e-300))
    horizontal: NDArray[np.float64] = H - Z @ (vectors @ E @ vectors.T)
    return horizontal


def exact_step(c: NDArray[np.float64]) -> float:
    """The t > 0 that minimises the quartic with coefficients c, from t⁰ up; 0 if the quartic never falls."""
    scale = abs(c[1]) / (abs(c[2]) + abs(c[1])) if c[1] else 1.0  # about the size of the step: roots are near 1
    c = c * scale ** np.arange(5)
    roots = np.roots([4 * c[4], 3 * c[3], 2 * c[2], c[1]])
    steps = [float(t.real) for t in roots if t.real > 0 and abs(t.imag) <= 1e-6 * abs(t.real)]
    best = min(steps, key=lambda t: float(np.polyval(c[::-1], t)), default=0.0)
    return best * scale if np.polyval(c[:0:-1], best) < 0 and best > 0 else 0.0


def armijo_step(c: NDArray[np.float64], first: float) -> float:
    """The first of `first`, half of it, … that lowers f by 1e-4 of what the slope promises."""
    t = first
    for _ in range(60):
        if t * np.polyval(c[:0:-1], t) <= 1e-4 * t * c[1]:
            return t
        t /= 2
    return 0.0


def fit_rcg(
    pairs: Pairs,
    Z: Panel,
    iterations: int,
    *,
    line_search: str = "exact",
    tolerance: float = 0.0,
    project: bool = False,
) -> tuple[Panel, list[float]]:
    """Algorithm 1: conjugate gradients from Z. Returns Z and f before each iteration and at the end.

    The algorithm carries the last direction and gradient to the new point by horizontal projection, and uses

        β = max(0, ⟨g_k, g_k - T(g_(k-1))⟩ / ⟨g_(k-1), g_(k-1)⟩)

    No projection has to be computed. Gradients are horizontal, because (S + Sᵀ) is symmetric. A direction U that is
    horizontal at Z (ZᵀU is symmetric) is horizontal at Z + tU too, since (Z + tU)ᵀU = ZᵀU + tUᵀU: T(U) = U. And
    projections are orthogonal, so ⟨g_k, T(g_(k-1))⟩ = ⟨T(g_k), g_(k-1)⟩ = ⟨g_k, g_(k-1)⟩. `project` computes them
    anyway, for tests.
    """
    residual = pairs.residuals(Z)
    history = [pairs.objective(residual)]
    gradient = pairs.gradient(Z, residual)
    size = first_size = inner(gradient, gradient)
    direction, t = -gradient, 1.0
    for k in range(1, iterations + 1):
        if size <= tolerance**2 * first_size or size == 0:
            break
        first, second, c = pairs.along(Z, direction, residual)
        if c[1] >= 0:  # not downhill, by rounding
            direction = -gradient
            first, second, c = pairs.along(Z, direction, residual)
        t = exact_step(c) if line_search == "exact" else armijo_step(c, 2 * t)
        if t == 0:
            break
        Z = Z + np.float32(t) * direction
        residual = (
            pairs.residuals(Z)
            if k % _EXACT_EVERY == 0
            else residual + np.float32(t) * (first + np.float32(t) * second)
        )
        history.append(pairs.objective(residual))
        before, gradient = gradient, pairs.gradient(Z, residual)
        if project:
            direction = project_horizontal(Z, direction).astype(np.float32)
            before = project_horizontal(Z, before).astype(np.float32)
        old_size, size = size, inner(gradient, gradient)
        beta = max(0.0, (size - inner(gradient, before)) / old_size)
        direction = np.float32(beta) * direction - gradient
    return Z, history


# --- singular value projection --------------------------------------------------------------------------------------


def fit_svp(pairs: Pairs, Z: Panel, iterations: int, *, power_steps: int = 2) -> tuple[Panel, list[float]]:
    """SLEEC's algorithm: M ← P_r(M - η·∇f(M)) with M = ZZᵀ; P_r gives the nearest positive semidefinite matrix of
    rank r.

    The eigenvectors of (low rank + sparse) come from subspace iteration that starts at Z's columns. η is halved if f
    would rise. Returns Z and f before each iteration and at the end.
    """
    token = pairs.token
    residual = pairs.residuals(Z)
    history = [pairs.objective(residual)]
    eta = 1.0
    for _ in range(iterations):
        for _ in range(20):

            def stepped(Q: Panel, Z: Panel = Z, residual: Any = residual, eta: float = eta) -> Panel:
                low_rank = _native.multiply_dense(Z, _native.multiply_transposed(Z, Q, token), token)
                moved: Panel = low_rank - np.float32(eta / 2) * pairs.gradient(Q, residual)
                return moved

            Q = orthonormal(Z, token)
            for _ in range(power_steps - 1):
                Q = orthonormal(stepped(Q), token)
            AQ = stepped(Q)
            B = _native.multiply_transposed(Q, AQ, token)
            Ut, s, Vt = _native.decompose((B + B.T) / 2, token)
            values = s * np.sign(np.multiply(Ut, Vt).sum(axis=1))
            factor = np.ascontiguousarray(Vt.T * np.sqrt(np.maximum(values, 0)))
            candidate = _native.multiply_dense(Q, factor, token)
            new = pairs.residuals(candidate)
            if pairs.objective(new) < history[-1]:
                break
            eta /= 2
        else:
            break
        Z, residual = candidate, new
        history.append(pairs.objective(residual))
    return Z, history


# --- regression -----------------------------------------------------------------------------------------------------


def fit_ridge(
    X: Csr, Z: Panel, lambda_: float, V: Panel | None = None, *, tolerance: float, iterations: int, token: Any = None
) -> tuple[Panel, int]:
    """Solves min |Z - XV|² + λ|V|² for sparse X, starting at V. Returns V (n_features x r) and the iterations."""
    by_column = X.T.tocsr()
    if V is None:
        V = np.zeros((X.shape[1], Z.shape[1]), np.float32)
    found: tuple[Panel, int] = _native.solve_ridge(
        offsets(X), X.indices, X.data, offsets(by_column), by_column.indices, by_column.data,
        Z, V, float(lambda_), float(tolerance), int(iterations), token,
    )  # fmt: skip
    return found


def fit_sparse(
    X: Csr, Z: Panel, lambda_: float, mu: float, rho: float, *, rounds: int, tolerance: float, iterations: int,
    token: Any = None,
) -> tuple[Panel, Panel, Panel]:  # fmt: skip
    """Solves min |Z - XV|² + λ|V|² + μ|XV|₁ by ADMM on a copy A of XV. Returns V, A and the scaled dual U.

    V is fitted to (Z + ρ/2 (A + U)) / (1 + ρ/2) with λ / (1 + ρ/2); A is XV - U, soft-thresholded by μ/ρ.
    """
    half = np.float32(rho / 2)
    A, U, V = np.zeros_like(Z), np.zeros_like(Z), None
    for _ in range(rounds):
        target = ((Z + half * (A + U)) / np.float32(1 + rho / 2)).astype(np.float32, copy=False)
        V, _ = fit_ridge(
            X, target, lambda_ / (1 + rho / 2), V, tolerance=tolerance, iterations=iterations, token=token
        )
        fitted = multiply(X, V, token)
        moved = fitted - U
        A = np.sign(moved) * np.maximum(np.abs(moved) - np.float32(mu / rho), 0)
        U = U + A - fitted
    assert V is not None  # rounds is at least 1
    return V, A, U
