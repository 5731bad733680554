"""PPDSparse: one-vs-rest with few weights and few support rows, solved in the dual (Yen et al., KDD 2017).

Each label is a separate problem, with s_i = +1 for rows that have the label and -1 for all others:

    min over (w, b)   λ |w|₁ + τ/2 (|w|² + b²) + Σ_i loss(s_i (w·x_i + b))                               (9)

where the loss of a margin m is 1/2 max(0, 1 - m)² or max(0, 1 - m). The bias is one more constant feature, without
the λ-term. The dual has one α_i ≥ 0 per row:

    min over α   τ/2 (|w|² + b²) - Σ_i α_i [+ 1/2 Σ_i α_i²]   with   w = soft(Σ_i α_i s_i x_i, λ) / τ     (10)

and both w and α are mostly zero. So a label needs only an active set of rows (Algorithm 1;
cpp/include/umpteen/dual_descent.hpp): coordinate descent on the set (Algorithm 2), then a search of all rows for
those that violate their margin most, along the columns of the few features w has. If rows are long and w is less
sparse, labels search together instead and read X once for all. The primal and the dual objective enclose the optimum;
a label is done when they are close. With ``search="sampled"`` searches read only features drawn by |w_j| (Algorithm
3) and only large entries of their columns, until a last exact search.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr
from umpteen.data.split import split_rows
from umpteen.engines.base import Engine, Resources, Task
from umpteen.errors import ParamError
from umpteen.evaluation.metrics import evaluate
from umpteen.memory import Estimate
from umpteen.methods.dual import DualOneVsRest, bound_dual_memory, solve_dual
from umpteen.methods.label_weights import PositiveWeight, check_positive_weight, weigh_labels
from umpteen.methods.one_vs_rest import LabelWeights, count_weights_bound
from umpteen.methods.training_data import TrainingData
from umpteen.models.linear import LinearModel, LinearShard
from umpteen.params import check_choice, check_count, check_number
from umpteen.threads import resolve_threads

#: What "auto" chooses from, in this order: each solution is the start of the next.
_LAMBDAS = (1.0, 0.1, 0.01)
_TAUS = (10.0, 1.0, 0.5, 0.1)

#: What `stats_` records for each label.
_STATS = ("objective", "gap", "nnz", "support", "active", "rounds", "missed")


class PPDSparse(DualOneVsRest):
    """One-vs-rest elastic-net SVMs, solved in the dual on a small active set of rows.

    Parameters
    ----------
    lambda_
        Weight of the L1 term, which makes weights zero; or "auto": chosen from 1, 0.1 and 0.01 on held-out rows.
    tau
        Weight of the squared term; or "auto": chosen from 10, 1, 0.5 and 0.1. As LIBLINEAR writes C, without the 1/2
        in the loss, C = 1 / (2τ): the default is C = 1, and without λ it is DiSMEC's problem.
    loss
        "squared_hinge" or "hinge".
    search
        How rows that violate their margin are found: "exact", or "sampled", which reads parts of X until a last exact
        search counts how many it missed (`stats_`).
    samples
        For a sampled search: how many features are drawn from w; or "auto": ⌈2‖w‖₁²/δ²⌉, with δ the `sample_error`.
        If w has fewer features, all are used.
    sample_error
        For a sampled search with `samples="auto"`: δ, the expected error of a score, at most.
    cutoff
        For a sampled search: products w_j x_ij smaller than this are not read.
    prune
        Weights smaller than this are dropped from the solution. The default is small, because the L1 term already
        makes weights zero.
    bias
        The value of the constant feature; 0 leaves it out.
    eps
        A label is done when its duality gap is at most this share of its objective.
    positive_weight : number, "balanced" or one number for each label
        How many times a row counts for the labels it has. "balanced" makes a label's rows together count as much as
        all others.
    max_rounds
        The most searches per label; three or four are usual.
    normalize, tfidf, power
        Preprocessing, in this order: raise values to `power`, from 0 to 1 (0.5 damps large values); with `tfidf`,
        weight counts by inverse document frequency; with `normalize`, scale rows to unit length.
    weight_type
        How weights are stored: "float16" or "float32".
    labels_per_shard
        Labels trained and stored together; by default chosen from the number of labels.
    seed
        Seeds the order in which rows are visited, the sampled features and the choice of held-out rows.
    threads, engine
        How to compute; the model does not depend on them.

    Attributes
    ----------
    chosen_ : tuple
        The (λ, τ) used in training.
    stats_ : dict of arrays, one entry per label
        The solver's statistics for the labels trained in this run, -1 for others: `objective`, the primal; `gap`, its
        largest possible distance from the optimum; `nnz`, weights before pruning; `support`, rows with α > 0;
        `active`, rows in the largest active set; `rounds`, searches; `missed`, rows that violate their margin by more
        than `eps` but that a sampled search missed.

    Examples
    --------
    >>> import umpteen
    >>> train = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> model = umpteen.PPDSparse(lambda_=0.5).fit(train.X, train.Y)
    >>> bool((model.stats_["gap"] <= model.eps * model.stats_["objective"]).all())
    True
    >>> model.model_.scorer.nnz < umpteen.DiSMEC().fit(train.X, train.Y).model_.scorer.nnz / 2
    True
    """

    name: ClassVar[str] = "ppdsparse"
    #: Section 6's λ and τ, the search of Algorithm 3, and all weights, not rounded.
    paper_settings: ClassVar[Mapping[str, Any]] = {
        "lambda_": 0.01,
        "tau": 1.0,
        "search": "sampled",
        "prune": 0.0,
        "weight_type": "float32",
    }
    weighs_rows: ClassVar[bool] = True

    def __init__(
        self,
        lambda_: float | str = 0.005,
        tau: float | str = 0.5,
        loss: str = "squared_hinge",
        search: str = "exact",
        samples: int | str = "auto",
        sample_error: float = 1.0,
        cutoff: float = 0.01,
        prune: float = 0.001,
        bias: float = 1.0,
        eps: float = 0.001,
        positive_weight: PositiveWeight = 1.0,
        max_rounds: int = 100,
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
        self.tau = tau
        self.loss = loss
        self.search = search
        self.samples = samples
        self.sample_error = sample_error
        self.cutoff = cutoff
        self.prune = prune
        self.bias = bias
        self.eps = eps
        self.positive_weight = positive_weight
        self.max_rounds = max_rounds
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
        for name, above in (("lambda_", False), ("tau", True)):
            value = getattr(self, name)
            if isinstance(value, str):
                if value != "auto":
                    raise ParamError(f'{name} must be a number or "auto", but is {value!r}')
            else:
                check_number(name, value, 0, above=above)
        for name, allowed in (("loss", ("squared_hinge", "hinge")), ("search", ("exact", "sampled"))):
            check_choice(name, getattr(self, name), allowed)
        check_number("eps", self.eps, 0, above=True)
        check_positive_weight(self.positive_weight)
        for name in ("prune", "cutoff"):
            check_number(name, getattr(self, name), 0)
        check_count("max_rounds", self.max_rounds)
        if not isinstance(self.samples, str):
            check_count("samples", self.samples)
        elif self.samples != "auto":
            raise ParamError(f'samples must be a number or "auto", but is {self.samples!r}')
        check_number("sample_error", self.sample_error, 0, above=True)
        check_count("seed", self.seed, low=0)

    def plan(self, data: TrainingData, first_label: int = 0, first_shard: int = 0) -> list[Task]:
        self.stats_ = {
            name: np.full(data.Y.shape[1], -1, np.float64 if name in ("objective", "gap") else np.int64)
            for name in _STATS
        }
        weigh_labels(self.positive_weight, np.diff(data.rows_of.indptr), data.X.shape[0])  # refuses before any work
        # Added labels use the settings of the others.
        if first_label == 0 or not hasattr(self, "chosen_"):
            self.chosen_ = self.choose(data)
        return super().plan(data, first_label, first_shard)

    def train_labels(self, data: TrainingData, labels: NDArray[np.int32], resources: Resources) -> LabelWeights:
        lambda_, tau = self.chosen_
        solved = self.solve(
            data, labels, lambda_=lambda_, tau=tau, threads=resources.threads, token=resources.token,
            **self.start_of(labels),
        )  # fmt: skip
        self.keep_alphas(labels, solved)
        resources.notes.append({name: solved[name] for name in _STATS})
        return LabelWeights(sp.csr_matrix(solved["weights"], (len(labels), data.X.shape[1])), solved["bias"])

    def collect_note(self, task: Task, note: Any) -> None:
        for name, values in note.items():
            self.stats_[name][task.plan] = values

    def solve(
        self,
        data: TrainingData,
        labels: NDArray[np.int32],
        *,
        lambda_: float,
        tau: float,
        threads: int,
        token: _native.CancelToken | None = None,
        start: Any = None,
        keep_alphas: bool = False,
    ) -> dict[str, Any]:
        """Solves these labels. `start` and the "alphas" in the result are (data, indices, indptr) of a CSR matrix,
        labels x rows."""
        weight = data.negative_weight  # the whole problem divided by it, so that only positives change
        costs = weigh_labels(self.positive_weight, np.diff(data.rows_of.indptr), data.X.shape[0])[labels]
        return solve_dual(
            data,
            labels,
            (costs / weight).astype(np.float32),
            squared=self.loss == "squared_hinge",
            lambda_=lambda_ / weight,
            tau=tau / weight,
            eps=float(self.eps),
            prune=float(self.prune),
            max_rounds=int(self.max_rounds),
            **self.sampling(),
            cutoff=float(self.cutoff),
            seed=int(self.seed),
            start=start,
            keep_alphas=keep_alphas,
            threads=threads,
            token=token,
        )

    @property
    def has_margin(self) -> bool:
        return True

    def sampling(self) -> dict[str, Any]:
        """What the kernel is to draw."""
        if self.search == "exact":
            return {}
        if isinstance(self.samples, str):
            return {"samples": 1, "sample_error": float(self.sample_error)}
        return {"samples": int(self.samples)}

    def correction_cost(self) -> float | None:
        return None if isinstance(self.tau, str) else 1 / (2 * float(self.tau))

    # --- lambda_="auto", tau="auto" -----------------------------------------------------------------------------

    def choose(self, data: TrainingData) -> tuple[float, float]:
        """(λ, τ): the given values; for "auto", the best on a held-out fifth of the rows."""
        lambdas = _LAMBDAS if isinstance(self.lambda_, str) else (float(self.lambda_),)
        taus = _TAUS if isinstance(self.tau, str) else (float(self.tau),)
        n_rows = data.X.shape[0]
        if len(lambdas) * len(taus) == 1 or n_rows < 5:
            return lambdas[-1], taus[-2:][0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # fewer held-out rows than requested are fine here
            heldout = split_rows(data.Y, n_rows // 5, seed=self.seed)
        if not heldout.any():
            return lambdas[-1], taus[-2:][0]
        kept = data.take(~heldout)
        X, Y = data.X[heldout], data.Y[heldout]
        shards: dict[tuple[float, float], list[LinearShard]] = {}
        for task in super().plan(kept):
            for tau in taus:
                self._walk(kept, task.plan, lambdas, tau, shards)
        top_k = min(5, data.Y.shape[1])
        best: tuple[float, tuple[float, float]] = (-1.0, (lambdas[-1], taus[-1]))
        for setting, parts in shards.items():
            labels, _ = LinearModel(parts, *data.X.shape[1:], data.Y.shape[1]).predict_topk(
                X, top_k, threads=self.threads
            )
            metrics = evaluate(Y, labels, k=range(1, top_k + 1), deciles=False, threads=self.threads)
            quality = sum(metrics[f"P@{k}"] for k in range(1, top_k + 1))
            if quality > best[0]:  # the sparser of two equals comes first
                best = (quality, setting)
        return best[1]

    def _walk(
        self,
        data: TrainingData,
        labels: NDArray[np.int32],
        lambdas: tuple[float, ...],
        tau: float,
        shards: dict[tuple[float, float], list[LinearShard]],
    ) -> None:
        """Trains a shard for each λ in turn, each starting from the α of the one before."""
        start = None
        for lambda_ in lambdas:
            solved = self.solve(
                data, labels, lambda_=lambda_, tau=tau, threads=resolve_threads(self.threads), start=start,
                keep_alphas=True,
            )  # fmt: skip
            start = solved["alphas"]
            W = sp.csr_matrix(solved["weights"], (len(labels), data.X.shape[1]))
            shard = self.pack(data, labels, LabelWeights(W, solved["bias"]))
            shards.setdefault((lambda_, tau), []).append(shard)

    def facts(self) -> dict[str, Any]:
        params = super().facts()
        for name, chosen in zip(("lambda_", "tau"), getattr(self, "chosen_", ()), strict=False):
            if params[name] == "auto":
                params[name] = chosen
        return params

    # --- memory -------------------------------------------------------------------------------------------------

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        n_rows, n_features = X.shape
        # Weights are on the features of the label's own rows and of its nearest negatives.
        weights = np.minimum(count_weights_bound(X, Y) + 1000, n_features)
        bound = self.bound_size(weights, n_features)
        peak = bound_dual_memory(X, Y, resolve_threads(self.threads)) + bound.in_work * 40 + X.nnz * 8 + Y.nnz * 8
        return Estimate(peak + n_rows * 8 + bound.model_bytes, bound.model_bytes)
