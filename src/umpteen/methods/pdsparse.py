"""PD-Sparse: one max-margin problem over all labels, sparse in the primal and in the dual (Yen et al., ICML 2016).

A row's loss is how much its lowest-scored label p falls short of its most confused other label n plus a margin of 1:

    min over W   Σ_k (1/2 |w_k|² + λ |w_k|₁) + C Σ_i max(0, 1 + max_n w_n·x_i - min_p w_p·x_i)              (13)

The dual has α_ip ≥ 0 for a row's labels, α_in ≤ 0 for all others, and Σ_p α_ip = -Σ_n α_in ≤ C in every row:

    min over α   1/2 Σ_k |w_k|² + Σ_i Σ_n α_in   with   v_k = Σ_i α_ik x_i,  w_k = soft(v_k, λ)              (14)

Few labels are ever confused with a row's own, so α is sparse, and therefore W. Algorithm 1 (block-coordinate
Frank-Wolfe, fully corrective): take the rows in random order; find the negative label that scores highest (20) and
add it to the row's active set, which always has the row's own labels; minimise the dual over that set with curvature
|x_i|², which is a projection onto two simplices of equal sum (Algorithm 2); drop labels whose α is 0. The kernels are
in cpp/include/umpteen/pd_sparse.hpp.

The gradient of the dual is W'x_i + e_i; the paper prints a minus in (17) and (20), but continues with the plus. We
differ from the paper in three ways, none of which changes the problem that is solved:

* Rows are searched in batches, with W as it was before the batch: this runs on many threads, sixteen rows at a time,
  and finds the same labels whatever their number. Steps always use the newest W and are made in order, so the dual
  never rises. A search returns several labels, but only those that would get a non-zero α.
* V is stored label by label: a hash table over features, all tables with one random permutation as their hash, until
  an array is no larger. Searches read a copy of W stored feature by feature.
* W swings from pass to pass, most with few labels and many rows. The model is the mean of W over passes, with larger
  weights for later ones; its objective is at most the mean of theirs.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, offsets
from umpteen.data.split import split_rows
from umpteen.engines.base import Engine, Parallelism, Resources, Task
from umpteen.errors import ParamError
from umpteen.evaluation.metrics import evaluate
from umpteen.memory import Estimate
from umpteen.methods.one_vs_rest import LabelBlocks, LabelWeights, count_weights_bound
from umpteen.methods.training_data import TrainingData
from umpteen.models.linear import LinearModel, LinearShard
from umpteen.params import check_choice, check_count, check_flag, check_number
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads

#: Rows in the first batch, when W is still 0; batches double from there.
_FIRST_BATCH = 64

#: The most labels a search returns.
_MOST_FOUND = 100

#: For estimates: labels a row is confused with (measured: 10 to 25; up to 13 times its own where those are many and C
#: is large), and rows gathered for a search.
_ACTIVE = 30
_ACTIVE_PER_LABEL = 15
_SEARCHED = 4096

#: What lambda_="auto" chooses from, as in the paper; of two that are equally good, the first.
_LAMBDAS = (10.0, 1.0, 0.1, 0.01)
#: Without held-out rows to choose by.
_USUAL_LAMBDA = 0.01

#: Labels per block when held-out rows are scored.
_LABELS_PER_BLOCK = 16384

#: What `stats_` records for each pass.
_STATS = ("dual", "gap", "found", "search_entries", "step_entries", "quality")


class _Passes(NamedTuple):
    """How many passes are made: at most, or, where they were found before, exactly."""

    first: int
    second: int  # without λ
    found: bool = False


class _Solution(NamedTuple):
    W: Any  # CSR, labels x features and the constant
    stats: dict[str, NDArray[Any]]
    active_labels: float  # non-zero dual variables per row
    post_solved: bool
    quality: float  # P@1 on held-out rows, or -1
    passes: _Passes  # that were made


class _Joint:
    """The solution for all labels, found when the first shard is trained. Kept as long as the plan."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.solution: _Solution | None = None

    def __reduce__(self) -> Any:
        return _Joint, ()  # another process solves it again


class PDSparse(LabelBlocks):
    """One max-margin problem over all labels, with an elastic net: small linear models.

    All labels are trained together, and shards are cut from one solution. So an interrupted `fit` keeps the shards
    that were written, but solves the problem again from the start for the others; it ends with the same bytes.

    Parameters
    ----------
    lambda_
        Weight of the L1 term, which makes weights zero: 0.01 for rows of unit length, or 0.1 for fewer weights. Or
        "auto": chosen from 10, 1, 0.1 and 0.01 by P@1 on the held-out rows, as in the paper.
    C
        Weight of the loss.
    n_groups
        For a sampled search: the labels are split at random into this many groups, and each search reads one.
    search
        How confused labels are found: "exact", or "sampled", which reads one group and some features of the row.
    n_found
        How many labels a search adds to a row at first; by default the mean number of labels per row. Doubled, up to
        100, after a pass whose searches read more than twice as many entries as its steps.
    batch
        How many rows are searched together, with the weights from before the batch. By default enough that copying W
        is cheap beside their steps, from 256 to 4096.
    post_solve
        Whether to solve the problem again without λ, on the features and labels that were found: True, False or
        "auto", which keeps what is better on held-out rows; without such rows "auto" means False.
    heldout
        Share of rows held out to decide when to stop and whether to post-solve; 0 holds out none.
    refit
        Whether to train again on all rows, held-out ones too, for as many passes as were best.
    patience
        Training stops after this many passes without a gain on held-out rows, but not before three times as many, and
        returns to the best pass.
    eps
        Training also stops when the duality gap is at most this share of the objective.
    max_passes
        The most passes over the rows.
    average
        Whether the model is the mean of W after each pass, with weight t³ for pass t, or W after the last.
    bias
        The value of a constant feature; 0 leaves it out, as in the paper.
    normalize, tfidf, power
        Preprocessing, in this order: raise values to `power`, from 0 to 1 (0.5 damps large values); with `tfidf`,
        weight counts by inverse document frequency; with `normalize`, scale rows to unit length.
    weight_type
        How weights are stored: "float16" or "float32".
    labels_per_shard
        Labels stored together; by default chosen from the number of labels.
    seed
        Seeds the order of rows, the choice of held-out rows and the sampled searches.
    threads, engine
        How to compute; the model does not depend on them.

    Attributes
    ----------
    chosen_ : float
        The λ used in training.
    stats_ : dict of arrays, one entry per pass
        `dual`, before the pass; `gap`, the sum over rows of the distance to the optimum on the row's active set when
        it was visited; `found`, labels per search; `search_entries` and `step_entries`, work counted in entries of W
        and V; `quality`, P@1 on held-out rows after the pass, or -1. Empty if nothing was trained in this process.
    post_solved_ : bool
        Whether the post-solved weights were kept.
    active_labels_ : float
        k_A, non-zero dual variables per row.
    active_weights_ : float
        k_W, non-zero weights per feature.

    Examples
    --------
    >>> import umpteen
    >>> train = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> model = umpteen.PDSparse(lambda_=0.5).fit(train.X, train.Y)
    >>> model.model_.scorer.nnz < umpteen.DiSMEC().fit(train.X, train.Y).model_.scorer.nnz / 10
    True
    """

    name: ClassVar[str] = "pdsparse"
    couples_labels = True
    has_boundary: ClassVar[bool] = False  # margins are between labels, not from 0
    #: λ on held-out rows, the bi-stochastic search of (24) and (25), one label a search (20), and W of the best pass,
    #: neither averaged nor rounded; the paper scales no rows.
    paper_settings: ClassVar[Mapping[str, Any]] = {
        "lambda_": "auto",
        "search": "sampled",
        "n_found": 1,
        "average": False,
        "normalize": False,
        "weight_type": "float32",
    }
    weighs_rows: ClassVar[bool] = True
    renamed_values: ClassVar[Mapping[str, Mapping[Any, Any]]] = {"search": {"full": "exact"}}
    parallelism: ClassVar[Parallelism] = "together"
    memory_advice: ClassVar[str] = (
        "use fewer labels or features; or PPDSparse, which trains one label at a time and needs the memory of a few"
    )

    def __init__(
        self,
        lambda_: float | str = 0.01,
        C: float = 1.0,
        n_groups: int = 3,
        search: str = "exact",
        n_found: int | None = None,
        batch: int | None = None,
        post_solve: bool | str = "auto",
        heldout: float = 0.1,
        refit: bool = False,
        patience: int = 3,
        eps: float = 0.01,
        max_passes: int = 50,
        average: bool = True,
        bias: float = 0.0,
        normalize: bool = True,
        tfidf: bool = False,
        power: float = 1.0,
        weight_type: str = "float16",
        labels_per_shard: int | None = None,
        seed: int = 0,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> None:
        self.lambda_ = lambda_
        self.C = C
        self.n_groups = n_groups
        self.search = search
        self.n_found = n_found
        self.batch = batch
        self.post_solve = post_solve
        self.heldout = heldout
        self.refit = refit
        self.patience = patience
        self.eps = eps
        self.max_passes = max_passes
        self.average = average
        self.bias = bias
        self.normalize = normalize
        self.tfidf = tfidf
        self.power = power
        self.weight_type = weight_type
        self.labels_per_shard = labels_per_shard
        self.seed = seed
        self.threads = threads
        self.engine = engine

    def validate(self) -> None:
        super().validate()
        if not isinstance(self.lambda_, str):
            check_number("lambda_", self.lambda_, 0)
        elif self.lambda_ != "auto":
            raise ParamError(f'lambda_ must be a number or "auto", but is {self.lambda_!r}')
        check_number("C", self.C, 0, above=True)
        check_number("eps", self.eps, 0)
        if check_number("heldout", self.heldout, 0) >= 1:
            raise ParamError(f"heldout must be a share of the rows below 1, but is {self.heldout!r}")
        for name in ("n_groups", "patience", "max_passes"):
            check_count(name, getattr(self, name))
        if self.batch is not None:
            check_count("batch", self.batch)
        if self.n_found is not None:
            check_count("n_found", self.n_found, high=_MOST_FOUND)
        check_count("seed", self.seed, low=0)
        check_flag("average", self.average)
        check_flag("refit", self.refit)
        check_choice("search", self.search, ("exact", "sampled"))
        if not isinstance(self.post_solve, bool) and self.post_solve != "auto":
            raise ParamError(f'post_solve must be true, false or "auto", but is {self.post_solve!r}')

    # --- shards -------------------------------------------------------------------------------------------------

    def plan(self, data: TrainingData, first_label: int = 0, first_shard: int = 0) -> list[Task]:
        """Blocks of labels, cut from one solution."""
        self.stats_ = {name: np.zeros(0) for name in _STATS}
        self.chosen_ = self.choose(data)
        joint = _Joint()
        blocks = super().plan(data, first_label, first_shard)
        return [Task(task.name, (task.plan, joint), task.cost, task.about) for task in blocks]

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        labels, joint = task.plan
        with joint.lock:
            if joint.solution is None:
                joint.solution = self.solve(data, resources.threads, resources.token)
        solution: _Solution = joint.solution
        resources.notes.append(
            {
                "stats_": solution.stats,
                "post_solved_": solution.post_solved,
                "active_labels_": solution.active_labels,
                "active_weights_": solution.W.nnz / data.X.shape[1],
            }
        )
        return self.pack(data, labels, self._cut(solution.W, labels, data)).to_part()

    def collect_note(self, task: Task, note: Any) -> None:
        self.__dict__.update(note)

    def facts(self) -> dict[str, Any]:
        params = super().facts()
        if params["lambda_"] == "auto":
            params["lambda_"] = getattr(self, "chosen_", "auto")
        return params

    def _cut(self, W: Any, labels: NDArray[np.int32], data: TrainingData) -> LabelWeights:
        n_features = data.X.shape[1]
        rows = W[labels]
        bias = np.asarray(rows[:, n_features:].sum(axis=1), np.float32).ravel() * np.float32(data.bias)
        return LabelWeights(rows[:, :n_features], bias)

    # --- Algorithm 1 --------------------------------------------------------------------------------------------

    def choose(self, data: TrainingData) -> float:
        """λ as given; for "auto", the one whose best pass has the best P@1 on the held-out rows."""
        if not isinstance(self.lambda_, str):
            return float(self.lambda_)
        if not self._hold_out(data.Y).any():
            return _USUAL_LAMBDA
        threads = resolve_threads(self.threads)
        return max(_LAMBDAS, key=lambda lambda_: self.solve(data, threads, lambda_=lambda_).quality)

    def solve(
        self,
        data: TrainingData,
        threads: int,
        token: _native.CancelToken | None = None,
        *,
        lambda_: float | None = None,
    ) -> _Solution:
        """W for all labels, with the λ that was chosen unless another is given."""
        X = self.preprocessing().append_bias(data.X) if data.bias else data.X
        heldout = self._hold_out(data.Y)
        trained = np.diff(data.rows_of.indptr) > 0
        value = self.chosen_ if lambda_ is None else lambda_
        compute = {"threads": threads, "token": token}
        most = _Passes(int(self.max_passes), int(self.max_passes))

        def solve_on(rows: Any, measured: Any, passes: _Passes) -> _Solution:
            costs = None if data.row_costs is None else data.row_costs[rows]
            validation = _Validation(X[measured], data.Y[measured], trained, threads)
            return self._solve_rows(X[rows], data.Y[rows], costs, value, validation, compute, passes)

        found = solve_on(~heldout, heldout, most)
        if not self.refit or not heldout.any() or lambda_ is not None:
            return found
        # On all rows nothing is measured, so passes are as many as were best.
        again = solve_on(heldout >= 0, heldout < 0, found.passes)
        return again._replace(stats=found.stats, quality=found.quality)

    def _solve_rows(
        self,
        X: Csr,
        Y: Csr,
        costs: Any,
        lambda_: float,
        validation: _Validation,
        compute: dict[str, Any],
        passes: _Passes,
    ) -> _Solution:
        """W for these rows, by at most so many passes."""
        solver = _native.PdSolver(
            offsets(X),
            X.indices,
            X.data,
            X.shape[1],
            offsets(Y),
            Y.indices,
            Y.shape[1],
            lambda_=lambda_,
            C=float(self.C),
            n_groups=int(self.n_groups),
            seed=int(self.seed),
            row_cost=costs,
        )
        rng = np.random.Generator(np.random.PCG64(int(self.seed)))
        best, stats = self._descend(solver, X, Y, validation, rng, compute, passes.first)
        after = self._post_solve(solver, best, X, Y, validation, rng, compute["token"], passes)
        active = len(best.alphas[0]) / X.shape[0]
        W, quality, second = (best.W, best.quality.first, 0) if after is None else after
        return _Solution(W, stats, active, after is not None, quality, _Passes(best.number + 1, second, True))

    def _hold_out(self, Y: Csr) -> NDArray[np.bool_]:
        n_rows = Y.shape[0]
        n_heldout = int(float(self.heldout) * n_rows)
        if n_heldout == 0 or n_rows < 2:
            return np.zeros(n_rows, bool)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # fewer rows than requested are fine here
            return split_rows(Y, n_heldout, seed=self.seed)

    def _descend(
        self,
        solver: _native.PdSolver,
        X: Csr,
        Y: Csr,
        validation: _Validation,
        rng: np.random.Generator,
        compute: dict[str, Any],
        most: int,
    ) -> tuple[_Pass, dict[str, NDArray[Any]]]:
        """Makes passes over the rows until the held-out rows or the gap end them. Returns the best pass, and the
        statistics of all."""
        found = self.n_found or max(1, min(_MOST_FOUND, round(Y.nnz / X.shape[0])))
        rate = self._sample_rate(X, Y.shape[1])
        batch = self.batch or int(np.clip(X.shape[0] * X.shape[1] * Y.shape[1] / (5 * max(1, X.nnz)), 256, 4096))
        size = min(_FIRST_BATCH, batch)
        mean = _Mean((Y.shape[1], X.shape[1]), self.average)
        stats: dict[str, list[float]] = {name: [] for name in _STATS}
        best = None
        for number in range(most):
            order = _shuffle(X.shape[0], rng)
            searched = stepped = begin = 0
            gap = 0.0
            half = solver.publish(**compute)
            dual = half + float(np.minimum(solver.alphas()[0], 0).sum(dtype=np.float64))
            while begin < len(order):
                rows = order[begin : begin + size]
                if begin > 0:
                    solver.publish(**compute)
                searched += solver.search(rows, found, self.search == "sampled", rate, number, **compute)
                entries, seen = solver.step(rows, compute["token"])
                stepped += entries
                gap += seen
                begin += len(rows)
                size = min(2 * size, batch)
            W = mean.take(solver.weights())
            quality = validation.score(W)
            for name, value in zip(_STATS, (dual, gap, found, searched, stepped, quality.first), strict=True):
                stats[name].append(value)
            if searched > 2 * stepped:
                found = min(2 * found, _MOST_FOUND)
            if best is None or quality.first > best.quality.first or not validation.n_rows:
                best = _Pass(number, quality, solver.alphas(), W)
            # The first passes swing.
            if number - best.number >= self.patience and number + 1 >= 3 * self.patience:
                break
            if self._is_optimal(solver, gap, dual, compute):
                break
        assert best is not None  # max_passes is at least 1
        return best, {name: np.array(values) for name, values in stats.items()}

    def _is_optimal(self, solver: _native.PdSolver, gap: float, dual: float, compute: dict[str, Any]) -> bool:
        """Whether the duality gap is small enough. It is computed only if the gap seen in the pass suggests so."""
        if gap > self.eps * (gap - dual):
            return False
        primal, dual = solver.objectives(**compute)
        return bool(primal + dual <= self.eps * primal)

    def _sample_rate(self, X: Csr, n_labels: int) -> int:
        """A sampled search reads one in this many features of a row (section 4.4)."""
        n_rows, n_features = X.shape
        if X.nnz == 0 or n_labels < 2:
            return 1
        rate = 5 * n_features * n_labels / (self.C * X.nnz * math.log(n_labels))
        return max(1, math.ceil(min(rate, X.nnz / (5 * n_rows))))

    # --- section 4.3 --------------------------------------------------------------------------------------------

    def _post_solve(
        self,
        solver: _native.PdSolver,
        start: _Pass,
        X: Csr,
        Y: Csr,
        validation: _Validation,
        rng: np.random.Generator,
        token: _native.CancelToken | None,
        passes: _Passes,
    ) -> tuple[Any, float, int] | None:
        """W of the problem without λ on the support of the best pass, its quality and its passes; None if the best
        pass itself is better, or none are allowed."""
        decided = validation.n_rows > 0 or passes.found
        if passes.second == 0 or self.post_solve is False or (self.post_solve == "auto" and not decided):
            return None
        solver.set_alphas(*start.alphas)
        solver.keep_support()
        mean = _Mean((Y.shape[1], X.shape[1]), self.average)
        best = start.quality.whole if self.post_solve == "auto" and not passes.found else -2.0
        kept, since = None, 0
        for number in range(passes.second):
            _, gap = solver.step(_shuffle(X.shape[0], rng), token)
            W = mean.take(solver.weights())
            quality = validation.score(W)
            since += 1
            if quality.whole > best:
                best, since, kept = quality.whole, 0, (W, quality.first, number + 1)
            if gap == 0 or (since >= self.patience and not passes.found):
                break
        return kept if validation.n_rows or kept is None else (W, quality.first, number + 1)

    # --- memory -------------------------------------------------------------------------------------------------

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        n_rows, n_features = X.shape
        n_labels = Y.shape[1]
        touched = bound_touched(X, Y)
        # A table is at least 3/8 full, with 8 bytes per slot, until an array of 4 bytes per feature replaces it.
        V = int(np.minimum(4 * n_features, 22 * touched).sum())
        bound = self.bound_size(touched, n_features)
        # Few entries of v pass the threshold, but many where a label's rows have all features; those are published,
        # averaged, kept with the best pass, and packed.
        few = self.lambda_ not in (0, "auto")
        weights = np.where(touched < n_features, touched // 4 if few else touched, touched * 3 // 2)
        active = min(n_labels * n_rows, max(_ACTIVE * n_rows, _ACTIVE_PER_LABEL * Y.nnz))
        alphas = (Y.nnz + active) * 24 + n_rows * 80
        rows = min(n_rows, _SEARCHED) * (8 * X.nnz // max(1, n_rows) + 8 * (_MOST_FOUND + _ACTIVE))
        copies = X.nnz * 20 + Y.nnz * 8 + (2 + resolve_threads(self.threads)) * 4_000_000
        lists = 16 * (n_features + n_labels) * (1 + n_labels // 1024)
        peak = V + int(weights.sum()) * 26 + alphas + rows + copies + lists
        return Estimate(peak, bound.model_bytes)


def bound_touched(X: Csr, Y: Csr) -> NDArray[np.int64]:
    """For each label, how many features v_k has: those of the rows with the label, and of the rows confused with it,
    spread evenly. Capped at all features, so with many labels for the features it is a bound, else a guess."""
    own = count_weights_bound(X, Y)
    return np.minimum(own + _ACTIVE * X.nnz // Y.shape[1], X.shape[1])


class _Pass(NamedTuple):
    """The result of a pass."""

    number: int
    quality: _Quality
    alphas: Any  # as the solver returns them
    W: Any  # the weights of the model


class _Mean:
    """The mean of W over passes, with weight t³ for pass t; or the last W."""

    def __init__(self, shape: tuple[int, int], average: bool) -> None:
        self.shape, self.average = shape, average
        self.n, self.total, self.W = 0, 0.0, None

    def take(self, weights: Any) -> Any:
        W: Any = sp.csr_matrix(weights, self.shape)
        self.n += 1
        self.total += self.n**3
        share = np.float32(self.n**3 / self.total)
        self.W = W if self.W is None or not self.average else self.W * (1 - share) + W * share
        return self.W


class _Quality(NamedTuple):
    """A model's quality on held-out rows; -1 if there are none."""

    first: float  # P@1, which decides when to stop, as in the paper
    whole: float  # P@1 + P@3 + P@5, which is steadier and decides whether to post-solve


class _Validation:
    """Held-out rows that measure a model's quality."""

    def __init__(self, X: Csr, Y: Csr, trained: NDArray[np.bool_], threads: int) -> None:
        self.n_rows, self.X, self.Y, self.threads = X.shape[0], X, Y, threads
        self.bias = np.where(trained, np.float32(0), np.float32(-np.inf))

    def score(self, W: Any) -> _Quality:
        if self.n_rows == 0:
            return _Quality(-1.0, -1.0)
        n_labels, n_features = W.shape
        top_k = min(5, n_labels)
        shards = [
            LinearShard.from_weights(W[begin:end], self.bias[begin:end], np.arange(begin, end))
            for begin, end in _blocks(n_labels)
        ]
        labels, _ = LinearModel(shards, n_features, n_labels).predict_topk(self.X, top_k, threads=self.threads)
        metrics = evaluate(self.Y, labels, k=range(1, top_k + 1), deciles=False, threads=self.threads)
        return _Quality(metrics["P@1"], sum(metrics[f"P@{k}"] for k in (1, 3, 5) if k <= top_k))


def _blocks(n_labels: int) -> list[tuple[int, int]]:
    return [(begin, min(begin + _LABELS_PER_BLOCK, n_labels)) for begin in range(0, n_labels, _LABELS_PER_BLOCK)]


def _shuffle(n: int, rng: np.random.Generator) -> NDArray[np.int32]:
    # Sorts random numbers, because Generator.permutation may change between versions of NumPy.
    return np.argsort(rng.random(n), kind="stable").astype(np.int32)
