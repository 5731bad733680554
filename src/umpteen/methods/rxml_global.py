"""RXMLGlobal: the RXML paper's global model, one matrix of low rank for all rows and labels.

    min f(W) = |XW - Y|²  over W (n_features x n_labels) of rank r                                               (1)

by Riemannian conjugate gradients (the paper's Algorithm 1). Matrices of rank r form a manifold. A point is stored as
W = U S Vᵀ with U and V orthonormal, a tangent vector as ξ = U M Vᵀ + Up Vᵀ + U Vpᵀ with UᵀUp = 0 and VᵀVp = 0.
The gradient 2Xᵀ(XW - Y), n_features x n_labels, is never formed: only its products with U and V are needed, and these
take products of the sparse X and Y with panels of r columns. W + tξ has rank 2r at most; the retraction cuts it back
to r by a singular value decomposition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, make_csr
from umpteen.data.panels import Panel, multiply, orthonormal, pad
from umpteen.engines.base import Engine, Resources, Task
from umpteen.memory import Estimate
from umpteen.methods.base import Method
from umpteen.methods.embed import inner
from umpteen.methods.rxml import with_constant
from umpteen.methods.training_data import TrainingData
from umpteen.models.embedding import Cluster
from umpteen.models.low_rank import LowRankModel
from umpteen.params import check_count, check_number
from umpteen.storage.saving import shard_name
from umpteen.storage.store import Part


@dataclass(frozen=True, eq=False)
class Point:
    """W = U diag(s) Vᵀ; columns beyond the rank are zero."""

    U: Panel
    s: NDArray[np.float64]
    V: Panel


@dataclass(frozen=True, eq=False)
class Tangent:
    """U M Vᵀ + Up Vᵀ + U Vpᵀ at some point."""

    M: NDArray[np.float64]
    Up: Panel
    Vp: Panel

    def dot(self, other: Tangent) -> float:
        return float((self.M * other.M).sum()) + inner(self.Up, other.Up) + inner(self.Vp, other.Vp)

    def combine(self, factor: float, other: Tangent) -> Tangent:
        """self + factor · other"""
        return Tangent(
            self.M + factor * other.M,
            self.Up + np.float32(factor) * other.Up,
            self.Vp + np.float32(factor) * other.Vp,
        )


def square(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """A times B for small matrices, without BLAS."""
    product: NDArray[np.float64] = np.einsum("ij,jk->ik", A, B)
    return product


def scale_rows(matrix: Csr, factors: NDArray[np.float32]) -> Csr:
    """Each row times its factor."""
    data = matrix.data * np.repeat(factors, np.diff(matrix.indptr))
    return make_csr(data, matrix.indices, matrix.indptr, matrix.shape)


class GlobalProblem:
    """f, its gradient and the manifold's operations, for one X and Y."""

    def __init__(self, X: Csr, Y: Csr, rank: int, threads: int = 1, token: Any = None) -> None:
        self.X, self.Y = X, Y
        self.X_by_column, self.Y_by_label = X.T.tocsr(), Y.T.tocsr()
        self.rank, self.width = rank, pad(rank)
        self.threads, self.token = threads, token
        self.squares = float(np.square(Y.data, dtype=np.float64).sum())

    def times(self, matrix: Csr, panel: Panel) -> Panel:
        return multiply(matrix, panel, self.token, self.threads)

    def gram(self, A: Panel, B: Panel) -> NDArray[np.float64]:
        product: NDArray[np.float64] = _native.multiply_transposed(A, B, self.token)
        return product

    def turn(self, A: Panel, E: NDArray[np.float64]) -> Panel:
        product: Panel = _native.multiply_dense(A, np.ascontiguousarray(E), self.token)
        return product

    def start(self, seed: int) -> Point:
        """The best multiple of XᵀY cut to rank r: the direction of the first gradient."""
        random = np.random.default_rng(seed)
        V = np.zeros((self.Y.shape[1], self.width), np.float32)
        V[:, : self.rank] = random.standard_normal((self.Y.shape[1], self.rank), np.float32)
        V = orthonormal(V, self.token)
        for _ in range(3):
            U = self.times(self.X_by_column, self.times(self.Y, V))
            V = orthonormal(self.times(self.Y_by_label, self.times(self.X, orthonormal(U, self.token))), self.token)
        A = self.times(self.X_by_column, self.times(self.Y, V))
        point = self.decompose(orthonormal(A, self.token), A, V)
        XU, scaled = self.times(self.X, point.U), np.diag(point.s)
        fitted, hits = inner(self.turn(XU, scaled), self.turn(XU, scaled)), self.agreement(point, XU)
        return Point(point.U, point.s * (hits / fitted if fitted > 0 else 0.0), point.V)

    def decompose(self, Q: Panel, A: Panel, V: Panel) -> Point:
        """A Vᵀ as a point, with Q an orthonormal basis of A's columns."""
        Ut, s, Vt = _native.decompose(self.gram(Q, A), self.token)
        keep = np.arange(self.width) < self.rank
        U, V = self.turn(Q, Ut.T * keep), self.turn(V, Vt.T * keep)
        return Point(self.complete(U), np.where(keep, s, 0), self.complete(V))

    def complete(self, Q: Panel) -> Panel:
        """Replaces columns that are short, because Q's source lacks rank, by other orthonormal directions. Their
        singular values are 0, so W does not change; but without orthonormal columns, projections to the tangent space
        and all that follows would be wrong."""
        short = np.flatnonzero(np.diag(self.gram(Q, Q))[: self.rank] < 0.5)
        if len(short) == 0:
            return Q
        others = Q.copy()
        others[:, short] = 0
        new = np.zeros_like(Q)
        new[:, short] = np.random.default_rng(len(short)).standard_normal((len(Q), len(short)), np.float32)
        new = self.outside(others, new)
        # orthonormal() mixes columns; take as many of those it filled as are short.
        found = np.flatnonzero(np.diag(self.gram(new, new)) > 0.5)[: len(short)]
        others[:, short[: len(found)]] = new[:, found]
        return others

    def outside(self, basis: Panel, A: Panel) -> Panel:
        """An orthonormal basis of A's columns outside the span of another basis; zero where nothing is left.

        A is already orthogonal to the other basis, except for rounding; but where A is mostly rounding, its basis
        would not be.
        """
        Q = orthonormal(A, self.token)
        for _ in range(2):
            Q = Q - self.turn(basis, self.gram(basis, Q))
            Q[:, np.diag(self.gram(Q, Q)) < 0.5] = 0
            Q = orthonormal(Q, self.token)
        return Q

    def agreement(self, W: Point, XU: Panel) -> float:
        """⟨XW, Y⟩"""
        return inner(self.turn(XU, np.diag(W.s)), self.times(self.Y, W.V))

    def objective(self, W: Point) -> float:
        XU = self.times(self.X, W.U)
        XUS = self.turn(XU, np.diag(W.s))
        return inner(XUS, XUS) - 2 * self.agreement(W, XU) + self.squares

    def gradient(self, W: Point) -> Tangent:
        """The projected Euclidean gradient G: M = UᵀGV, Up = GV - UM, Vp = GᵀU - VMᵀ."""
        XU = self.times(self.X, W.U)
        GV = self.times(self.X_by_column, 2 * (self.turn(XU, np.diag(W.s)) - self.times(self.Y, W.V)))
        across = self.turn(W.V, W.s[:, None] * self.gram(XU, XU))
        GU = 2 * (across - self.times(self.Y_by_label, XU))
        return self.tangent(W, GV, GU)

    def tangent(self, W: Point, AV: Panel, AU: Panel) -> Tangent:
        """A matrix A projected to the tangent space at W, from AV and AᵀU."""
        M = self.gram(W.U, AV)
        return Tangent(M, AV - self.turn(W.U, M), AU - self.turn(W.V, self.gram(W.V, AU)))

    def transport(self, old: Point, xi: Tangent, new: Point) -> Tangent:
        """ξ projected to the tangent space at another point."""
        VV, UU = self.gram(old.V, new.V), self.gram(old.U, new.U)
        AV = self.turn(old.U, square(xi.M, VV) + self.gram(xi.Vp, new.V)) + self.turn(xi.Up, VV)
        AU = self.turn(old.V, square(xi.M.T, UU) + self.gram(xi.Up, new.U)) + self.turn(xi.Vp, UU)
        return self.tangent(new, AV, AU)

    def curvature(self, W: Point, xi: Tangent) -> float:
        """|Xξ|², without forming Xξ: it is tr((XA)ᵀ(XA) BᵀB) for ξ = ABᵀ."""
        A = self.times(self.X, self.turn(W.U, xi.M) + xi.Up)
        XU = self.times(self.X, W.U)
        # B = [V, Vp] and VᵀVp = 0.
        return inner(A, A) + float((self.gram(XU, XU) * self.gram(xi.Vp, xi.Vp)).sum())

    def retract(self, W: Point, t: float, xi: Tangent) -> Point:
        """W + tξ cut to rank r."""
        Qu, Qv = self.outside(W.U, xi.Up), self.outside(W.V, xi.Vp)
        w = self.width
        K = np.zeros((2 * w, 2 * w))
        K[:w, :w] = np.diag(W.s) + t * xi.M
        K[w:, :w] = t * self.gram(Qu, xi.Up)
        K[:w, w:] = t * self.gram(Qv, xi.Vp).T
        Ut, s, Vt = _native.decompose(K, self.token)
        keep = np.arange(w) < self.rank
        left, right = Ut[:w].T * keep, Vt[:w].T * keep
        U = self.turn(W.U, left[:w]) + self.turn(Qu, left[w:])
        V = self.turn(W.V, right[:w]) + self.turn(Qv, right[w:])
        return Point(self.complete(U), np.where(keep, s[:w], 0), self.complete(V))


def fit_global(problem: GlobalProblem, W: Point, iterations: int, tolerance: float) -> tuple[Point, list[float]]:
    """Algorithm 1 from W. Returns the last point, and f before each iteration and at the end. The step is the best
    one along W + tξ, where f is a parabola, halved until f falls after the retraction."""
    history = [problem.objective(W)]
    gradient = problem.gradient(W)
    size = first_size = gradient.dot(gradient)
    direction = Tangent(-gradient.M, -gradient.Up, -gradient.Vp)
    for _ in range(iterations):
        slope = gradient.dot(direction)
        if slope >= 0:
            direction = Tangent(-gradient.M, -gradient.Up, -gradient.Vp)
            slope = -size
        bend = problem.curvature(W, direction)
        if size <= tolerance**2 * first_size or bend <= 0:
            break
        t = -slope / (2 * bend)
        for _ in range(20):
            new = problem.retract(W, t, direction)
            objective = problem.objective(new)
            if objective < history[-1] + 1e-4 * t * slope and objective < history[-1]:
                break
            t /= 2
        else:
            break
        before = problem.transport(W, gradient, new)
        carried = problem.transport(W, direction, new)
        W = new
        history.append(objective)
        gradient = problem.gradient(W)
        old_size, size = size, gradient.dot(gradient)
        beta = max(0.0, (size - gradient.dot(before)) / old_size)
        direction = Tangent(-gradient.M, -gradient.Up, -gradient.Vp).combine(beta, carried)
    return W, history


class RXMLGlobal(Method):
    """One low-rank regression for all labels: small, fast to predict, and blind to rare labels.

    Parameters
    ----------
    rank
        The rank of W; limited by the number of features, with the constant, and of labels.
    iterations, tolerance
        When training ends: after `iterations`, or when the gradient is `tolerance` times that at the start.
    bias
        The value of the constant feature; 0 leaves it out.
    seed
        Seeds the start.
    normalize, tfidf, power
        Preprocessing, in this order: raise values to `power`, from 0 to 1 (0.5 damps large values); with `tfidf`,
        weight counts by inverse document frequency; with `normalize`, scale rows to unit length.
    threads, engine
        How to compute; the model does not depend on them.

    Attributes
    ----------
    history_ : list
        The objective before each iteration and at the end, if the model was trained in this process.

    Examples
    --------
    >>> import umpteen
    >>> train = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> model = umpteen.RXMLGlobal(rank=8).fit(train.X, train.Y)
    >>> bool((np.diff(model.history_) < 0).all())
    True
    """

    name: ClassVar[str] = "rxml-global"
    weighs_rows: ClassVar[bool] = True
    scorer_class = LowRankModel

    def __init__(
        self,
        rank: int = 100,
        iterations: int = 30,
        tolerance: float = 0.001,
        bias: float = 1.0,
        seed: int = 0,
        normalize: bool = True,
        tfidf: bool = False,
        power: float = 1.0,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> None:
        self.rank = rank
        self.iterations = iterations
        self.tolerance = tolerance
        self.bias = bias
        self.seed = seed
        self.normalize = normalize
        self.tfidf = tfidf
        self.power = power
        self.threads = threads
        self.engine = engine

    def validate(self) -> None:
        for name in ("rank", "iterations"):
            check_count(name, getattr(self, name))
        check_count("seed", self.seed, low=0)
        check_number("tolerance", self.tolerance, 0)
        self.preprocessing()  # checks its own parameters
        if self.threads is not None:
            check_count("threads", self.threads, high=4096)

    def plan(self, data: TrainingData) -> list[Task]:
        """One shard: all labels are trained together."""
        return [Task(shard_name(0), None, 1.0)]

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        features = np.unique(data.X.indices)
        resources.raise_if_cancelled()  # between steps outside the kernels, which check by themselves
        X = with_constant(data.X, features, data.bias)
        resources.raise_if_cancelled()
        n_labels = data.Y.shape[1]
        rank = max(1, min(int(self.rank), *X.shape, n_labels))
        Y = data.Y
        if data.row_costs is not None:  # a row that counts c times: both sides of its equation times the root of c
            X, Y = scale_rows(X, np.sqrt(data.row_costs)), scale_rows(Y, np.sqrt(data.row_costs))
        problem = GlobalProblem(X, Y, rank, resources.threads, resources.token)
        resources.raise_if_cancelled()
        W = problem.start(int(self.seed))
        W, history = fit_global(problem, W, int(self.iterations), float(self.tolerance))
        resources.notes.append(history)
        used = np.bincount(data.Y.indices, minlength=n_labels) > 0
        return Cluster.of_labels(features, problem.turn(W.U, np.diag(W.s)), W.V, used, rank, bias=data.bias).to_part()

    def collect_note(self, task: Task, note: Any) -> None:
        self.history_ = note

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        width = pad(min(int(self.rank), X.shape[1] + 1, Y.shape[1]))
        sides = X.shape[1] + 1 + Y.shape[1]
        panels = width * (6 * X.shape[0] + 20 * sides) * 4 + 32 * width * width * 8
        model_bytes = sides * (width * 2 + 16) + 4096
        copies = X.nnz * (20 + self.preprocessing().bytes_per_value()) + Y.nnz * 16
        return Estimate(panels + copies + model_bytes, model_bytes)
