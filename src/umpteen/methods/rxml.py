"""RXML: local embeddings found by Riemannian conjugate gradients; and SLEEC, which finds them by projections.

Each learner clusters the rows again. In a cluster, label vectors are embedded so that the inner products of near ones
are kept (methods/embed.py); V maps x to its embedding,

    min_V |Z - XV|² + λ|V|² + μ|XV|₁                                                                            (2)

and the embeddings of the training rows become XV, so that new and old rows are embedded the same way. A new row goes
to the nearest cluster of each learner and takes the labels of the rows nearest to it there (models/embedding.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, make_csr, offsets
from umpteen.data.panels import Panel, multiply, pad
from umpteen.data.split import split_rows
from umpteen.engines import make_engine
from umpteen.engines.base import Engine, Parallelism, Resources, Task
from umpteen.errors import ParamError
from umpteen.memory import Estimate
from umpteen.methods.base import CountsRowsOnce
from umpteen.methods.embed import STARTS, Pairs, fit_rcg, fit_ridge, fit_sparse, fit_svp, start
from umpteen.methods.training_data import TrainingData
from umpteen.models.embedding import INDEXES, MAX_KNN, SIMILARITIES, Cluster, EmbeddingModel
from umpteen.params import check_choice, check_count, check_number, inherits_parameters
from umpteen.storage.saving import shard_name
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads

_ROWS_PER_CLUSTER = 5000
_ROWS_PER_CLUSTER_IN_PAPER = 6000
_LABEL_VECTORS = ("unit", "binary")
_KMEANS_ROUNDS = 7
_RIDGE_TOLERANCE = 0.01
_RIDGE_ITERATIONS = 200
_ADMM_ROUNDS = 10
#: What "auto" tries. Large λ first: each solution is the start of the next.
_LAMBDAS = (4.0, 1.0, 0.25, 0.03, 0.001)
_SMALLEST_LAMBDA = 0.0001
_KNNS = (4, 8, 12, 16, 25, 40)
_SHARPNESSES = (0.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 150.0)
_PILOT_ROWS = 20_000
_PILOT_LEARNERS = 4


_FEWEST_ROWS = 50  # with fewer, "auto" uses defaults


class Chosen(NamedTuple):
    """The settings that may be "auto"."""

    lambda_: float
    similarity: str
    knn: int
    sharpness: float


@dataclass(frozen=True, eq=False)
class ClusterPlan:
    """The rows a shard is trained on."""

    learner: int
    rows: NDArray[np.int64]
    centre: NDArray[np.float32]  # n_features


class RXML(CountsRowsOnce):
    """Votes of the nearest rows, in small spaces where rows with similar labels are near.

    If `lambda_`, `similarity`, `knn` or `sharpness` is "auto", learners are trained on four fifths of the rows (of at
    most 20,000), and the values that rank the labels of the others best are used: one learner for the first two, up
    to four for the vote. Rows without labels have no vote and are left out.

    Parameters
    ----------
    n_learners
        More are better and slower; each clusters the rows again.
    rank
        Dimensions of the embeddings. A cluster with fewer rows or labels than that has as many dimensions as those.
    n_clusters
        Clusters per learner; "auto" means one per 5000 rows, "paper" ⌊rows / 6000⌋, and both at least one. Clusters
        that end up empty are dropped.
    label_vectors
        Whose inner products are kept, and by which near rows are found: "unit", label vectors of length 1, or
        "binary", the paper's, where rows with many labels are near to more rows.
    n_neighbors
        How many rows, including itself, a row keeps its inner products with; fewer if fewer share a label with it.
    embedding
        "rcg", Riemannian conjugate gradients, or "svp", SLEEC's singular value projection.
    start
        "labels", projections of the label vectors, or "random": each learner is worse but they differ more, which
        pays off if few labels must separate many rows.
    iterations
        Iterations of either embedding. Beyond some 10 to 30, a lower objective does not mean better labels.
    line_search
        For "rcg": "exact", or "armijo", the paper's.
    lambda_
        Weight of |V|²; "auto" tries several multiples of the mean squared length of rows.
    mu, rho
        Weight of |XV|₁, and ADMM's step, which has no effect if `mu` is 0. The L1 term gained nothing on our data.
    knn
        How many near rows vote in each learner.
    sharpness
        A row votes with exp(sharpness · (similarity - that of the nearest)). 0 is the paper's vote, all equal.
    similarity
        "cosine", or "euclidean": minus half the squared distance, with lengths scaled to about 1.
    index
        How near rows are found: "exact", or "usearch", an approximate index that is built when it is first needed
        (``pip install 'umpteen[ann]'``), for clusters with very many rows; `model_.scorer.recall` says what
        it misses.
    bias
        The value of the constant feature; 0 leaves it out.
    seed
        Seeds clusters, ties, starts and the choice of held-out rows.
    normalize, tfidf, power
        Preprocessing, in this order: raise values to `power`, from 0 to 1 (0.5 damps large values); with `tfidf`,
        weight counts by inverse document frequency; with `normalize`, scale rows to unit length.
    threads, engine
        How to compute; the model does not depend on them.

    Attributes
    ----------
    chosen_ : tuple
        The λ, similarity, knn and sharpness used in training.

    Examples
    --------
    >>> import umpteen
    >>> train = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> model = umpteen.RXML(n_learners=2, rank=16).fit(train.X, train.Y)
    >>> labels, scores = model.predict_topk(train.X, top_k=3)
    >>> labels.shape
    (500, 3)
    >>> model.model_.scorer.describe()["rank"]
    16
    """

    name: ClassVar[str] = "rxml"
    has_boundary: ClassVar[bool] = False  # sums of similar rows' votes
    parallelism: ClassVar[Parallelism] = "across"
    scorer_class = EmbeddingModel
    #: Section 5.2 and Algorithms 1 to 3, with SLEEC's μ and ρ.
    paper_settings: ClassVar[Mapping[str, Any]] = {
        "n_clusters": "paper",
        "label_vectors": "binary",
        "iterations": 30,
        "line_search": "armijo",
        "mu": 0.01,
        "sharpness": 0.0,
    }

    def __init__(
        self,
        n_learners: int = 5,
        rank: int = 100,
        n_clusters: int | str = "auto",
        label_vectors: str = "unit",
        n_neighbors: int = 100,
        embedding: str = "rcg",
        start: str = "labels",
        iterations: int = 15,
        line_search: str = "exact",
        lambda_: float | str = "auto",
        mu: float = 0.0,
        rho: float = 0.001,
        knn: int | str = "auto",
        sharpness: float | str = "auto",
        similarity: str = "auto",
        index: str = "exact",
        bias: float = 1.0,
        seed: int = 0,
        normalize: bool = True,
        tfidf: bool = False,
        power: float = 1.0,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> None:
        self.n_learners = n_learners
        self.rank = rank
        self.n_clusters = n_clusters
        self.label_vectors = label_vectors
        self.n_neighbors = n_neighbors
        self.embedding = embedding
        self.start = start
        self.iterations = iterations
        self.line_search = line_search
        self.lambda_ = lambda_
        self.mu = mu
        self.rho = rho
        self.knn = knn
        self.sharpness = sharpness
        self.similarity = similarity
        self.index = index
        self.bias = bias
        self.seed = seed
        self.normalize = normalize
        self.tfidf = tfidf
        self.power = power
        self.threads = threads
        self.engine = engine

    def validate(self) -> None:
        for name in ("n_learners", "rank", "n_neighbors", "iterations"):
            check_count(name, getattr(self, name))
        check_count("seed", self.seed, low=0)
        for name, check in (
            ("n_clusters", check_count),
            ("knn", lambda name, value: check_count(name, value, high=MAX_KNN)),
            ("lambda_", lambda name, value: check_number(name, value, 0, above=True)),
            ("sharpness", lambda name, value: check_number(name, value, 0)),
        ):
            value = getattr(self, name)
            words = ("auto", "paper") if name == "n_clusters" else ("auto",)
            if isinstance(value, str):
                if value not in words:
                    listed = " or ".join(f'"{word}"' for word in words)
                    raise ParamError(f"{name} must be a number or {listed}, but is {value!r}")
            else:
                check(name, value)
        check_number("mu", self.mu, 0)
        check_number("rho", self.rho, 0, above=True)
        for name, allowed in (
            ("label_vectors", _LABEL_VECTORS),
            ("embedding", ("rcg", "svp")),
            ("start", STARTS),
            ("line_search", ("exact", "armijo")),
            ("similarity", ("auto", *SIMILARITIES)),
            ("index", INDEXES),
        ):
            check_choice(name, getattr(self, name), allowed)
        self.preprocessing()  # checks its own parameters
        if self.threads is not None:
            check_count("threads", self.threads, high=4096)

    # --- clusters -----------------------------------------------------------------------------------------------

    def plan(self, data: TrainingData) -> list[Task]:
        """A shard is a cluster of a learner."""
        self.chosen_ = self.choose(data)
        plans = [plan for learner in range(self.n_learners) for plan in self.cluster_rows(data, learner)]
        return [
            Task(shard_name(i), plan, float(len(plan.rows) + 1), f"learner {plan.learner}, {len(plan.rows)} rows")
            for i, plan in enumerate(plans)
        ]

    def cluster_rows(self, data: TrainingData, learner: int) -> list[ClusterPlan]:
        """One learner's clusters: k-means from random rows. Rows without labels have no vote and are left out; empty
        clusters are dropped."""
        rows = np.flatnonzero(np.diff(data.Y.indptr) > 0)
        X = data.X[rows]
        n_clusters = self.count_clusters(len(rows))
        random = np.random.default_rng([int(self.seed), learner, 1])
        threads = resolve_threads(self.threads)
        centres = (
            X[np.sort(random.choice(len(rows), n_clusters, replace=False))].toarray()
            if len(rows)
            else X[:0].toarray()
        )
        cluster: NDArray[np.int32] = np.zeros(len(rows), np.int32)
        for _ in range(_KMEANS_ROUNDS if n_clusters > 1 else 1):
            if n_clusters > 1:
                panel = np.zeros((X.shape[1], pad(len(centres))), np.float32)
                panel[:, : len(centres)] = centres.T
                closeness = multiply(X, panel, threads=threads)[:, : len(centres)]
                closeness -= np.square(centres, dtype=np.float64).sum(axis=1) / 2
                cluster = closeness.argmax(axis=1).astype(np.int32)
            used, inverse = np.unique(cluster, return_inverse=True)
            cluster = inverse.astype(np.int32)
            counts = np.bincount(cluster, minlength=max(len(used), 1))
            sums = _native.add_rows_by_cluster(offsets(X), X.indices, X.data, X.shape[1], cluster, len(counts))
            centres = sums / np.maximum(counts, 1).astype(np.float32)[:, None]
        return [ClusterPlan(learner, rows[cluster == c], centre) for c, centre in enumerate(centres)]

    def count_clusters(self, n_rows: int) -> int:
        """How many clusters a learner starts with; never more than there are rows."""
        if self.n_clusters == "auto":
            wanted = round(n_rows / _ROWS_PER_CLUSTER)
        elif self.n_clusters == "paper":
            wanted = n_rows // _ROWS_PER_CLUSTER_IN_PAPER
        else:
            wanted = int(self.n_clusters)
        return max(1, min(wanted, n_rows))

    # --- training -----------------------------------------------------------------------------------------------

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        (cluster,) = self.train_cluster(data, task.plan, [self.chosen_], resources.token)
        return cluster.to_part()

    def train_cluster(
        self, data: TrainingData, plan: ClusterPlan, settings: list[Chosen], token: Any
    ) -> list[Cluster]:
        """Algorithm 2 in one cluster, once for each setting; settings with equal λ must be adjacent."""
        X, Y = data.X[plan.rows], self.vectors_of(data.Y[plan.rows])
        features = np.unique(X.indices)
        X = with_constant(X, features, data.bias)
        rank = max(1, min(int(self.rank), len(plan.rows), len(np.unique(Y.indices))))
        Z = self.embed(Y, rank, plan.learner, token)
        clusters: list[Cluster] = []
        V, last = None, None
        for lambda_, similarity, knn, sharpness in settings:
            if lambda_ != last:
                V, last = self.regress(X, Z, lambda_, V, token), lambda_
                regressed = multiply(X, V, token)
            assert V is not None
            clusters.append(
                Cluster.pack(
                    features, plan.centre[features], V, regressed, Y, rank, similarity,
                    learner=plan.learner, bias=data.bias, knn=int(knn), sharpness=float(sharpness),
                )
            )  # fmt: skip
        return clusters

    def vectors_of(self, Y: Csr) -> Csr:
        """The label vectors that are embedded."""
        return unit_labels(Y) if self.label_vectors == "unit" else binary_labels(Y)

    def embed(self, Y: Csr, rank: int, learner: int, token: Any) -> Panel:
        """Z for the rows of Y."""
        pair_seed, start_seed = np.random.SeedSequence([int(self.seed), learner, 2]).generate_state(2, np.uint64)
        pairs = Pairs.find(Y, int(self.n_neighbors), int(pair_seed), token)
        Z = start(Y, rank, self.start, int(start_seed), token)
        if self.embedding == "svp":
            return fit_svp(pairs, Z, int(self.iterations))[0]
        return fit_rcg(pairs, Z, int(self.iterations), line_search=self.line_search)[0]

    def regress(self, X: Csr, Z: Panel, lambda_: float, V: Panel | None, token: Any) -> Panel:
        """V, starting from that of another λ if there is one."""
        options: dict[str, Any] = {"tolerance": _RIDGE_TOLERANCE, "iterations": _RIDGE_ITERATIONS, "token": token}
        if self.mu == 0:
            return fit_ridge(X, Z, lambda_, V, **options)[0]
        return fit_sparse(X, Z, lambda_, float(self.mu), float(self.rho), rounds=_ADMM_ROUNDS, **options)[0]

    # --- what is "auto" -----------------------------------------------------------------------------------------

    def choose(self, data: TrainingData) -> Chosen:
        """The given settings; for those that are "auto", the best on a fifth of the rows, held out from pilot
        learners."""
        unit = float(f"{np.square(data.X.data, dtype=np.float64).sum() / data.X.shape[0]:.3g}") or 1.0
        lambdas = [factor * unit for factor in _LAMBDAS] if self.lambda_ == "auto" else [float(self.lambda_)]
        similarities = list(SIMILARITIES) if self.similarity == "auto" else [self.similarity]
        knns = list(_KNNS) if self.knn == "auto" else [int(self.knn)]
        sharpnesses = list(_SHARPNESSES) if self.sharpness == "auto" else [float(self.sharpness)]
        usual = Chosen(
            unit if self.lambda_ == "auto" else lambdas[0],
            similarities[0],
            12 if self.knn == "auto" else knns[0],
            15.0 if self.sharpness == "auto" else sharpnesses[0],
        )
        rows = np.flatnonzero(np.diff(data.Y.indptr) > 0)
        if len(lambdas) * len(similarities) * len(knns) * len(sharpnesses) == 1 or len(rows) < _FEWEST_ROWS:
            return usual
        if len(rows) > _PILOT_ROWS:
            random = np.random.default_rng([int(self.seed), 3])
            rows = np.sort(random.choice(rows, _PILOT_ROWS, replace=False))
        data = TrainingData(data.X[rows], data.Y[rows], data.bias)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # fewer held-out rows than requested are fine here
            heldout = split_rows(data.Y, len(rows) // 5, seed=self.seed)
        if not heldout.any():
            return usual
        kept = TrainingData(data.X[~heldout], data.Y[~heldout], data.bias)
        X, Y = data.X[heldout], data.Y[heldout]
        engine = make_engine(self.engine, self.threads)

        def train(learners: Iterable[int], settings: list[Chosen]) -> list[list[Cluster]]:
            """The clusters of these learners for each setting."""
            plans = [plan for learner in learners for plan in self.cluster_rows(kept, learner)]
            tasks = [Task(shard_name(i), plan, float(len(plan.rows))) for i, plan in enumerate(plans)]

            def work(task: Task, resources: Resources) -> list[Cluster]:
                return self.train_cluster(kept, task.plan, settings, resources.token)

            trained = {task.name: clusters for task, clusters in engine.run(work, tasks, "across")}
            return [[trained[task.name][i] for task in tasks] for i in range(len(settings))]

        def best_vote(clusters: list[Cluster]) -> tuple[float, int, float]:
            """Their best quality, P@1 + … + P@5, and the knn and sharpness that reach it."""
            model = EmbeddingModel(clusters, data.X.shape[1], data.Y.shape[1])
            own, near, similarity = model.near_rows(X, threads=self.threads)
            top_k, best = min(5, data.Y.shape[1]), (-1.0, usual.knn, usual.sharpness)
            for knn in knns:
                rows, closeness = (nearest_of(found, model.n_learners, knn) for found in (near, similarity))
                for sharpness in sharpnesses:
                    labels = model.vote((own, rows, closeness), top_k, sharpness=sharpness, threads=self.threads)
                    hits = _native.find_hits(offsets(Y), Y.indices, Y.shape[1], labels, resolve_threads(self.threads))
                    quality = float((hits.sum(axis=0).cumsum() / np.arange(1, top_k + 1)).sum())
                    if quality > best[0]:
                        best = quality, knn, sharpness
            return best

        settings = [Chosen(lambda_, similarity, max(knns), 0.0) for lambda_ in lambdas for similarity in similarities]
        alone = train([0], settings)
        found = [best_vote(clusters) for clusters in alone]
        i = max(range(len(settings)), key=lambda i: found[i][0])
        if self.lambda_ == "auto" and settings[i].lambda_ == lambdas[-1]:  # try a smaller one, which is slow to solve
            settings.append(settings[i]._replace(lambda_=float(f"{_SMALLEST_LAMBDA * unit:.3g}")))
            alone += train([0], settings[-1:])
            found.append(best_vote(alone[-1]))
            i = max(range(len(settings)), key=lambda i: found[i][0])
        _, knn, sharpness = found[i]
        # Several learners make up for the few sharp votes of each, so the vote is chosen with several.
        others = range(1, min(int(self.n_learners), _PILOT_LEARNERS))
        if others and len(knns) * len(sharpnesses) > 1:
            _, knn, sharpness = best_vote(alone[i] + train(others, [settings[i]])[0])
        return settings[i]._replace(knn=knn, sharpness=sharpness)

    def facts(self) -> dict[str, Any]:
        params = super().facts()
        chosen = self.chosen_._asdict() if hasattr(self, "chosen_") else {}
        return {name: chosen.get(name, value) if value == "auto" else value for name, value in params.items()}

    # --- memory -------------------------------------------------------------------------------------------------

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        n_rows, n_features = X.shape
        width = pad(min(int(self.rank), n_rows, Y.shape[1]))
        n_clusters = self.count_clusters(n_rows)
        # k-means does not balance: the largest cluster may have this many rows.
        largest = min(n_rows, 3 * n_rows / n_clusters)
        features = min(n_features, X.nnz / n_clusters)
        pairs = largest * min(int(self.n_neighbors), largest)
        training = (
            pairs * (24 + 16) + largest * width * 4 * 8 + features * width * 4 * 8 + X.nnz / n_rows * largest * 40
        )
        settings = sum(getattr(self, name) == "auto" for name in ("lambda_", "similarity", "knn", "sharpness"))
        workers = min(resolve_threads(self.threads), self.n_learners * n_clusters)
        learner = n_rows * width * 2 + n_clusters * (features + 1) * (width * 2 + 8) + Y.nnz * 4 + n_rows * 12
        learner += n_clusters * 4096
        model_bytes = int(self.n_learners * learner)
        pilot = int(learner * (len(_LAMBDAS) * len(SIMILARITIES) + _PILOT_LEARNERS)) if settings else 0
        peak = int(workers * training + X.nnz * 8 + n_clusters * n_features * 8 * self.n_learners)
        return Estimate(peak + max(model_bytes, pilot), model_bytes)


@inherits_parameters
class SLEEC(RXML):
    """RXML with `embedding="svp"`: sparse local embeddings as SLEEC finds them (Bhatia et al., NIPS 2015).

    Parameters
    ----------
    embedding
        As for `RXML`.
    **params
        The other parameters of `RXML`, with its defaults.
    """

    name: ClassVar[str] = "sleec"

    def __init__(self, *, embedding: str = "svp", **params: Any) -> None:
        super().__init__(embedding=embedding, **params)


def nearest_of(found: NDArray[Any], n_learners: int, knn: int) -> NDArray[Any]:
    """The first `knn` of what each learner found for each row."""
    n = len(found)
    return np.ascontiguousarray(found.reshape(n, n_learners, -1)[:, :, :knn].reshape(n, n_learners * knn))


def unit_labels(Y: Csr) -> Csr:
    """Label vectors of length 1."""
    counts = np.diff(Y.indptr)
    data = np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts).astype(np.float32)
    return make_csr(data, Y.indices, Y.indptr, Y.shape)


def binary_labels(Y: Csr) -> Csr:
    """Label vectors of ones."""
    return make_csr(np.ones(Y.nnz, np.float32), Y.indices, Y.indptr, Y.shape)


def with_constant(X: Csr, features: NDArray[np.int32], bias: float) -> Csr:
    """X with only these columns, which must be all it uses, and the constant after them."""
    n = X.shape[0]
    place = np.zeros(X.shape[1], np.int32)
    place[features] = np.arange(len(features), dtype=np.int32)
    ends = X.indptr[1:].astype(np.int64)
    indices = np.insert(place[X.indices], ends, len(features)).astype(np.int32, copy=False)
    data = np.insert(X.data, ends, np.float32(bias)).astype(np.float32, copy=False)
    return make_csr(data, indices, X.indptr + np.arange(n + 1), (n, len(features) + 1))
