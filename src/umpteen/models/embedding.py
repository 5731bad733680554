"""Embedding models: the training rows in a small space, and the map that takes a new row there.

A shard is one cluster of one learner. A row goes to the nearest cluster of each learner, is embedded by that
cluster's V, and takes the labels of the nearest training rows there; each near row votes with
``exp(sharpness · (similarity - best))``, which is 1 if the sharpness is 0, and votes are summed over learners. V and
the embeddings are 16-bit floats; cpp/include/umpteen/embedding.hpp specifies the layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, make_csr, offsets
from umpteen.errors import MissingExtraError, ModelCorruptError
from umpteen.models.explanation import Explanation, count_votes
from umpteen.models.linear import ranges
from umpteen.models.partial import Merger
from umpteen.models.scorer import Ranking, Scorer, allow_labels, rank_labels, unit_scores
from umpteen.params import check_choice
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads

#: The arrays of a cluster, their types and dimensions.
_ARRAYS = {
    "features": ("int32", 1), "centre": ("float32", 1), "regressor": ("float16", 2), "embedded": ("float16", 3),
    "offsets": ("float32", 1), "label_ptr": ("uint32", 1), "labels": ("uint16 int32", 1),
}  # fmt: skip
_FACTS = ("learner", "rank", "centre_offset", "scale", "bias", "knn", "sharpness")
SIMILARITIES = ("cosine", "euclidean")
INDEXES = ("exact", "usearch")
#: The most rows that vote in each learner: memory for them is allocated before their number is known.
MAX_KNN = 65536


@dataclass(frozen=True, eq=False)
class Cluster:
    """One cluster, as stored in its files."""

    features: NDArray[np.int32]  # those that occur in the cluster, rising
    centre: NDArray[np.float32]  # one entry per feature
    regressor: NDArray[np.float16]  # V: features and the bias x padded rank
    embedded: NDArray[np.float16]  # Z: blocks x rank x 16
    offsets: NDArray[np.float32]  # one per row: similarity is z·z_i + offset
    label_ptr: NDArray[np.uint32]  # rows + 1
    labels: NDArray[Any]  # uint16 or int32
    learner: int
    rank: int
    centre_offset: float
    scale: float  # of V
    bias: float
    knn: int
    sharpness: float
    similarity: str

    @classmethod
    def pack(
        cls, features: NDArray[np.int32], centre: NDArray[np.float32], V: NDArray[np.float32],
        Z: NDArray[np.float32], Y: Csr, rank: int, similarity: str, **facts: Any,
    ) -> Cluster:  # fmt: skip
        """A cluster from float32 arrays: V (features and bias x padded rank), embeddings Z (rows x padded rank)."""
        n = len(Z)
        Z = Z[:, :rank]
        lengths = np.sqrt(np.square(Z, dtype=np.float64).sum(axis=1))
        if similarity == "cosine":
            factor = 1.0
            Z = Z * np.where(lengths > 0, 1 / np.where(lengths > 0, lengths, 1), 0)[:, None]
        else:  # scaled so that lengths are about 1 and one sharpness means the same in all clusters
            mean = float(np.sqrt(np.square(lengths).mean())) if n else 0.0
            factor = 1 / mean if mean > 0 else 1.0
            Z = Z * factor
        largest = float(np.abs(V).max(initial=0)) or 1.0
        scale = largest / 1024  # far from both ends of the 16-bit range
        blocks = np.zeros((-(-n // 16) * 16, rank), np.float16)
        blocks[:n] = Z
        stored = blocks[:n].astype(np.float64)
        squares = np.square(stored).sum(axis=1) if similarity == "euclidean" else np.zeros(n)
        return cls(
            features=features.astype(np.int32),
            centre=centre.astype(np.float32),
            regressor=(V / np.float32(scale)).astype(np.float16),
            embedded=np.ascontiguousarray(blocks.reshape(-1, 16, rank).transpose(0, 2, 1)),
            offsets=(-squares / 2).astype(np.float32),
            label_ptr=Y.indptr.astype(np.uint32),
            labels=Y.indices.astype(np.uint16 if Y.shape[1] <= 65536 else np.int32),
            rank=rank,
            centre_offset=float(-np.square(centre, dtype=np.float64).sum() / 2),
            scale=scale * factor,
            similarity=similarity,
            **facts,
        )

    @classmethod
    def of_labels(
        cls, features: NDArray[np.int32], A: NDArray[np.float32], B: NDArray[np.float32], used: NDArray[np.bool_],
        rank: int, bias: float,
    ) -> Cluster:  # fmt: skip
        """A cluster of labels instead of rows, for models/low_rank.py: a score is x A b_l, B's rows have lengths of
        at most about 1, and labels that are not `used` are never ranked."""
        n = len(B)
        blocks = np.zeros((-(-n // 16) * 16, rank), np.float16)
        blocks[:n] = B[:, :rank]
        scale = (float(np.abs(A).max(initial=0)) or 1.0) / 1024
        return cls(
            features=features.astype(np.int32),
            centre=np.zeros(len(features), np.float32),
            regressor=(A / np.float32(scale)).astype(np.float16),
            embedded=np.ascontiguousarray(blocks.reshape(-1, 16, rank).transpose(0, 2, 1)),
            offsets=np.where(used, np.float32(0), np.float32(-np.inf)),
            label_ptr=np.zeros(n + 1, np.uint32),
            labels=np.zeros(0, np.uint16),
            learner=0,
            rank=rank,
            centre_offset=0.0,
            scale=scale,
            bias=bias,
            knn=1,
            sharpness=0.0,
            similarity="euclidean",
        )

    @classmethod
    def from_part(cls, part: Part) -> Cluster:
        facts = {name: part.scalars.get(name) for name in _FACTS}
        if not all(isinstance(fact, (int, float)) and abs(fact) < np.inf for fact in facts.values()):
            raise ModelCorruptError(f"a cluster must have the numbers {', '.join(_FACTS)}, but has {facts!r:.300}")
        similarity = part.scalars.get("similarity")
        if similarity not in SIMILARITIES:
            raise ModelCorruptError(
                f"similarity must be one of {', '.join(SIMILARITIES)}, but is {similarity!r:.100}"
            )
        arrays = {name: part.array(name, *kind) for name, kind in _ARRAYS.items()}
        rank, shapes = facts["rank"], [arrays[name].shape for name in ("embedded", "regressor")]
        if not isinstance(rank, int) or shapes[0][1] != rank or shapes[1][1] < rank:
            raise ModelCorruptError(
                f"embeddings and V of a cluster must have rank {rank}, but their shapes are {shapes}"
            )
        return cls(**arrays, **facts, similarity=similarity)  # type: ignore[arg-type]

    def to_part(self) -> Part:
        names = (*_FACTS, "similarity")
        return Part({name: getattr(self, name) for name in _ARRAYS}, {name: getattr(self, name) for name in names})

    def add_to(self, scorer: Any) -> None:
        """Passes the arrays to a native scorer, which raises if it cannot use them."""
        scorer.add_cluster(
            int(self.learner), self.features, self.centre, self.centre_offset, self.regressor, self.scale,
            self.embedded, self.offsets, self.label_ptr, self.labels,
        )  # fmt: skip

    @property
    def n_rows(self) -> int:
        return len(self.offsets)

    def moves(self, x: Csr, towards: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far each feature of a row, and last the constant, moves it along a direction."""
        at = np.searchsorted(self.features, x.indices)
        known = np.flatnonzero(at < len(self.features))
        known = known[self.features[at[known]] == x.indices[known]]
        out = np.zeros(x.nnz + 1)
        V = self.regressor[at[known], : self.rank].astype(np.float64)
        out[known] = x.data[known] * (V @ towards)
        out[-1] = self.bias * (self.regressor[-1, : self.rank].astype(np.float64) @ towards)
        return out * self.scale

    def embeddings(self) -> NDArray[np.float32]:
        """The training rows' embeddings, n_rows x rank."""
        rows = self.embedded.transpose(0, 2, 1).reshape(-1, self.rank)
        return rows[: self.n_rows].astype(np.float32)


class EmbeddingModel(Scorer):
    """The votes of near rows, summed over learners.

    Parameters
    ----------
    clusters
        At least one for each learner; learners are counted from 0.
    n_features, n_labels
        The model's shape.
    """

    family = "embedding"
    boundary = 1.0
    meaning = "Shares of the votes of similar training rows."

    def __init__(self, clusters: Iterable[Cluster], n_features: int, n_labels: int) -> None:
        self.clusters = list(clusters)
        self.n_features = n_features
        self.n_labels = n_labels
        if not self.clusters:
            raise ModelCorruptError("an embedding model needs at least one cluster")
        first = self.clusters[0]
        common = {(c.bias, c.knn, c.sharpness, c.similarity) for c in self.clusters}
        learners = {int(cluster.learner) for cluster in self.clusters}
        self.n_learners = len(learners)
        if len(common) > 1 or min(learners) != 0 or max(learners) != len(learners) - 1:
            raise ModelCorruptError(
                "clusters must have the same bias, knn, sharpness and similarity, and learners must count from 0"
            )
        self.knn = int(first.knn)
        if self.knn > MAX_KNN:
            raise ModelCorruptError(f"knn must be at most {MAX_KNN}, but is {self.knn}")
        self._index: ApproximateSearch | None = None
        try:
            self._scorer = _native.EmbeddingScorer(
                n_features, n_labels, self.n_learners, first.bias, first.similarity == "cosine", self.knn,
                first.sharpness,
            )  # fmt: skip
            for c in self.clusters:
                c.add_to(self._scorer)
        except (ValueError, TypeError) as error:
            raise ModelCorruptError(f"a cluster is not usable: {str(error).splitlines()[0]}") from error

    def __reduce__(self) -> Any:
        # Pickle is for process pools and copies; models on disk do not use it.
        return _restore, (type(self), self.clusters, self.n_features, self.n_labels, self.index)

    @classmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        return cls([Cluster.from_part(part) for part in parts], n_features, n_labels)

    def to_parts(self) -> list[Part]:
        return [cluster.to_part() for cluster in self.clusters]

    def units(self) -> list[list[int]]:
        """A learner's clusters stay together, because a row goes to the nearest of them."""
        learners = np.array([int(cluster.learner) for cluster in self.clusters])
        return [np.flatnonzero(learners == learner).tolist() for learner in range(self.n_learners)]

    def merger(self) -> Merger:
        first = self.clusters[0]
        return EmbeddingMerger(self.n_learners, self.n_labels, self.knn, float(first.sharpness))

    @classmethod
    def from_some_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        clusters = [Cluster.from_part(part) for part in parts]
        numbers = {old: new for new, old in enumerate(sorted({int(cluster.learner) for cluster in clusters}))}
        return cls([replace(c, learner=numbers[int(c.learner)]) for c in clusters], n_features, n_labels)

    def score_part(self, X: Csr, top_k: int, *, threads: int | None, **_: Any) -> NearLabels:
        """The labels of the near rows that the part's learners find."""
        if self._index is None:
            clusters, rows, similarity = self.near_rows(X, threads=threads)
        else:
            clusters, rows, similarity = self._index.near(X, resolve_threads(threads))
        shape = (X.shape[0], self.n_learners, self.knn)
        rows, cluster_of = rows.reshape(shape), np.broadcast_to(clusters[:, :, None], shape)
        counts = np.zeros(shape, np.int64)
        for cluster in np.unique(clusters):
            one, mine = self.clusters[cluster], (cluster_of == cluster) & (rows >= 0)
            counts[mine] = one.label_ptr[rows[mine] + 1].astype(np.int64) - one.label_ptr[rows[mine]]
        ends = np.cumsum(counts.ravel()).reshape(shape)
        labels = np.zeros(int(counts.sum()), self.clusters[0].labels.dtype)
        for cluster in np.unique(clusters):
            one, mine = self.clusters[cluster], (cluster_of == cluster) & (rows >= 0)
            begins = one.label_ptr[rows[mine]].astype(np.int64)
            labels[ranges(ends[mine] - counts[mine], ends[mine])] = one.labels[ranges(begins, begins + counts[mine])]
        return NearLabels(rows >= 0, similarity.reshape(shape), counts, labels)

    def describe(self) -> dict[str, Any]:
        return {
            "learners": self.n_learners,
            "clusters": len(self.clusters),
            "largest_cluster": max(cluster.n_rows for cluster in self.clusters),
            "rank": max(cluster.rank for cluster in self.clusters),
            "knn": self.knn,
            "sharpness": self.clusters[0].sharpness,
            "similarity": self.clusters[0].similarity,
        }

    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        """As for every scorer; only labels of near rows are ranked."""
        allowed = allow_labels(exclude, include, self.n_labels)
        mask = None if allowed is None else allowed.astype(np.uint8)
        return rank_labels(self._index or self._scorer, X, top_k, self.n_labels, threads, mask)

    def explain(self, x: Csr, label: int) -> Explanation:
        """Which near rows voted for a label, and which features brought the row near them.

        A feature moves the row along its row of V. Its contribution is how far it moves the row towards the voters,
        each weighted by its vote, scaled so that all contributions add up to the score. `base` is the constant
        feature's.
        """
        clusters, rows, similar = (found[0] for found in self.near_rows(x, threads=1))
        shape = (self.n_learners, self.knn)
        parts, base, votes = np.zeros(x.nnz), 0.0, []
        for learner, (near, similarities) in enumerate(zip(rows.reshape(shape), similar.reshape(shape), strict=True)):
            one = self.clusters[clusters[learner]]
            towards = np.zeros(one.rank)
            for row, s in zip(near.tolist(), similarities.tolist(), strict=True):
                if row < 0:
                    continue
                labels = one.labels[int(one.label_ptr[row]) : int(one.label_ptr[row + 1])].tolist()
                if label in labels:
                    vote = float(np.exp(one.sharpness * (s - float(similarities[0]))))
                    towards += vote * one.embedded[row // 16, :, row % 16].astype(np.float64)
                    votes.append({"learner": learner, "cluster": int(clusters[learner]), "row": row,
                                  "similarity": s, "vote": vote, "labels": labels})  # fmt: skip
            moves = one.moves(x, towards)
            parts += moves[:-1]
            base += float(moves[-1])
        score = float(self.predict_topk(x, 1, include=[label], threads=1)[1][0, 0])
        total = base + float(parts.sum())
        if votes and total > 0:
            parts, base = parts * (score / total), base * (score / total)
        else:  # no feature moved the row there: it is all due to the constant
            parts, base = np.zeros(x.nnz), score if votes else 0.0
        votes.sort(key=lambda vote: (-vote["vote"], vote["learner"], vote["row"]))
        note = count_votes(votes, "neighbour", "neighbours")
        return Explanation.build(label, score, self.family, base, x.indices, parts, votes, note)

    @staticmethod
    def to_unit(scores: NDArray[Any]) -> NDArray[np.float32]:
        """Scores are sums of votes, so they have no upper limit."""
        given = scores.astype(np.float64)
        with np.errstate(invalid="ignore"):
            return unit_scores(given, given / (1 + given))

    def near_rows(self, X: Csr, *, threads: int | None = None) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The exact nearest rows: clusters (n_rows x learners), rows and similarities (n_rows x learners · knn)."""
        n_threads = resolve_threads(threads)
        found: tuple[Any, Any, Any] = self._scorer.near(offsets(X), X.indices, X.data, n_threads)
        return found

    @property
    def index(self) -> str:
        """How near rows are found."""
        return "exact" if self._index is None else "usearch"

    def settings(self) -> dict[str, Any]:
        return {"index": self.index}

    def configured(self, params: Mapping[str, Any]) -> Self:
        """`index` is "exact", or "usearch" for an approximate search."""
        index = params.get("index", self.index)
        check_choice("index", index, INDEXES)
        if index == self.index:
            return self
        return self._altered(_index=None if index == "exact" else ApproximateSearch(self))

    def recall(self, X: Csr, *, threads: int | None = None) -> float:
        """The share of the exact nearest rows that the approximate index finds."""
        if self._index is None:
            return 1.0
        _, exact, _ = self.near_rows(X, threads=threads)
        _, found, _ = self._index.near(X, resolve_threads(threads))
        shape = (X.shape[0] * self.n_learners, self.knn)
        pairs = zip(exact.reshape(shape).tolist(), found.reshape(shape).tolist(), strict=True)
        hits = sum(len(set(a) & set(b) - {-1}) for a, b in pairs)
        return hits / max(int((exact >= 0).sum()), 1)

    def vote(
        self, near: tuple[NDArray[Any], NDArray[Any], NDArray[Any]], top_k: int, *, sharpness: float,
        threads: int | None = None,
    ) -> NDArray[np.int32]:  # fmt: skip
        """The best labels by near rows that were found before, for another sharpness or number of rows."""
        labels: NDArray[np.int32] = self._scorer.vote(*near, top_k, resolve_threads(threads), None, sharpness)[0]
        return labels


def _restore(
    cls: type[EmbeddingModel], clusters: list[Cluster], n_features: int, n_labels: int, index: str
) -> EmbeddingModel:
    return cls(clusters, n_features, n_labels).configured({"index": index})


class NearLabels(NamedTuple):
    """The labels of the near rows that some learners find; shapes are n_rows x learners x knn."""

    found: NDArray[np.bool_]
    similarity: NDArray[np.float32]
    counts: NDArray[np.int64]  # number of labels of each near row
    labels: NDArray[Any]  # the labels, row by row


@dataclass(frozen=True)
class EmbeddingMerger:
    """Counts the votes of the rows that all learners found."""

    n_learners: int
    n_labels: int
    knn: int
    sharpness: float

    def merge(
        self,
        X: Csr,
        answers: Sequence[NearLabels],
        top_k: int,
        *,
        exclude: ArrayLike | None,
        include: ArrayLike | None,
        threads: int | None,
    ) -> Ranking:
        n = X.shape[0]
        # A model of only the near rows, one cluster per learner: the kernel that counts the votes needs only labels.
        scorer = _native.EmbeddingScorer(1, self.n_labels, self.n_learners, 0.0, False, self.knn, self.sharpness)
        nothing = (np.zeros(0, np.int32), np.zeros(0, np.float32), 0.0, np.zeros((1, 16), np.float16), 1.0)
        blank = (np.zeros((-(-n * self.knn // 16), 1, 16), np.float16), np.zeros(n * self.knn, np.float32))
        learner = 0
        for part in answers:
            ends = np.cumsum(part.counts.ravel()).reshape(part.counts.shape)
            for i in range(part.counts.shape[1]):
                counts = part.counts[:, i].ravel()
                labels = part.labels[ranges(ends[:, i].ravel() - counts, ends[:, i].ravel())]
                label_ptr = np.append(0, np.cumsum(counts)).astype(np.uint32)
                scorer.add_cluster(learner, *nothing, *blank, label_ptr, labels)
                learner += 1
        found = np.concatenate([part.found for part in answers], axis=1)
        similarity = np.concatenate([part.similarity for part in answers], axis=1)
        rows = np.where(found, np.arange(n * self.knn, dtype=np.int32).reshape(n, 1, self.knn), np.int32(-1))
        clusters = np.tile(np.arange(self.n_learners, dtype=np.int32), (n, 1))
        allowed = allow_labels(exclude, include, self.n_labels)
        mask = None if allowed is None else allowed.astype(np.uint8)
        ranked = min(top_k, self.n_labels)
        out_labels, scores = scorer.vote(
            clusters, rows.reshape(n, -1), similarity.reshape(n, -1), ranked, resolve_threads(threads), mask
        )
        pads = ((0, 0), (0, top_k - ranked))
        return np.pad(out_labels, pads, constant_values=-1), np.pad(scores, pads, constant_values=-np.inf)


class ApproximateSearch:
    """A graph over each cluster's embeddings, built when a row first falls into the cluster. Has the native scorer's
    interface."""

    def __init__(self, model: EmbeddingModel) -> None:
        try:
            import usearch.index
        except ImportError as error:
            raise MissingExtraError(
                "index='usearch' needs usearch. Install it with: pip install 'umpteen[ann]'"
            ) from error
        self._make = usearch.index.Index
        self._clusters = model.clusters
        self._scorer = model._scorer
        self._n_learners = model.n_learners
        self._n_features = model.n_features
        self._graphs: dict[int, Any] = {}

    def graph(self, cluster: int) -> Any:
        if cluster not in self._graphs:
            one = self._clusters[cluster]
            metric = "ip" if one.similarity == "cosine" else "l2sq"
            graph = self._make(ndim=one.rank, metric=metric, dtype="f32", expansion_search=max(64, 2 * one.knn))
            if one.n_rows:
                graph.add(np.arange(one.n_rows, dtype=np.uint64), one.embeddings(), threads=1)  # in a fixed order
            self._graphs[cluster] = graph
        return self._graphs[cluster]

    def near(self, X: Csr, threads: int) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
        """As `EmbeddingModel.near_rows`."""
        n, knn = X.shape[0], int(self._clusters[0].knn)
        clusters = np.empty((n, self._n_learners), np.int32)
        rows = np.full((n, self._n_learners, knn), -1, np.int32)
        similarity = np.full((n, self._n_learners, knn), -np.inf, np.float32)
        for learner in range(self._n_learners):
            own, z = self._scorer.embed(offsets(X), X.indices, X.data, learner, threads)
            clusters[:, learner] = own
            for cluster in np.unique(own):
                one, mine = self._clusters[cluster], np.flatnonzero(own == cluster)
                k = min(knn, one.n_rows)
                if k == 0:
                    continue
                queries = np.ascontiguousarray(z[mine, : one.rank])
                found = self.graph(int(cluster)).search(queries, k, threads=threads)
                keys, distances = np.reshape(found.keys, (-1, k)), np.reshape(found.distances, (-1, k))
                rows[mine, learner, :k] = keys.astype(np.int64)
                # Up to a constant per query, which does not change the votes.
                similarity[mine, learner, :k] = 1 - distances if one.similarity == "cosine" else -distances / 2
        return clusters, rows.reshape(n, -1), similarity.reshape(n, -1)

    def topk(
        self, indptr: Any, indices: Any, data: Any, top_k: int, threads: int, allowed: Any
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        X = make_csr(data, indices, indptr, (len(indptr) - 1, self._n_features))
        ranked: tuple[NDArray[np.int32], NDArray[np.float32]] = self._scorer.vote(
            *self.near(X, threads), top_k, threads, allowed
        )
        return ranked
