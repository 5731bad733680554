"""Models of one low-rank matrix: a label's score is ``x A b_l``, with A (n_features x r) and b_l in r dimensions.

The one shard is searched like embeddings (models/embedding.py): labels take the place of training rows, and their
similarity to the row is the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen import _native
from umpteen.data.matrix import Csr
from umpteen.errors import ModelCorruptError
from umpteen.models.embedding import Cluster
from umpteen.models.explanation import Explanation
from umpteen.models.partial import Merger, RankingMerger
from umpteen.models.scorer import Ranking, Scorer, allow_labels, rank_labels, unit_scores
from umpteen.storage.store import Part


class LowRankModel(Scorer):
    """A and the labels' vectors.

    Parameters
    ----------
    labels
        One embedding per label; a label with an offset of -inf is never ranked.
    n_features, n_labels
        The model's shape.
    """

    family = "low-rank"
    boundary = 0.5

    def __init__(self, labels: Cluster, n_features: int, n_labels: int) -> None:
        self.labels = labels
        self.n_features = n_features
        self.n_labels = n_labels
        if labels.n_rows != n_labels:
            raise ModelCorruptError(f"there must be {n_labels} label vectors, but there are {labels.n_rows}")
        self._search(labels.offsets, 1)

    def __reduce__(self) -> Any:
        return LowRankModel, (self.labels, self.n_features, self.n_labels)

    @classmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        if len(parts) != 1:
            raise ModelCorruptError(f"a low-rank model must have one shard, but has {len(parts)}")
        return cls(Cluster.from_part(parts[0]), n_features, n_labels)

    def to_parts(self) -> list[Part]:
        return [self.labels.to_part()]

    def units(self) -> list[list[int]]:
        return [[0]]

    def merger(self) -> Merger:
        return RankingMerger()

    from_some_parts = from_parts

    def score_part(self, X: Csr, top_k: int, **options: Any) -> Ranking:
        """The ranking: there is only one part."""
        return self.predict_topk(X, top_k, **options)

    def describe(self) -> dict[str, Any]:
        return {"rank": self.labels.rank, "weights": self.labels.regressor.size + self.labels.embedded.size}

    def _search(self, label_offsets: NDArray[np.float32], top_k: int) -> Any:
        try:
            scorer = _native.EmbeddingScorer(self.n_features, self.n_labels, 1, self.labels.bias, False, top_k, 0.0)
            replace(self.labels, offsets=label_offsets).add_to(scorer)
        except (ValueError, TypeError) as error:
            raise ModelCorruptError(f"the shard is not usable: {str(error).splitlines()[0]}") from error
        return scorer

    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        allowed = allow_labels(exclude, include, self.n_labels)
        return rank_labels(self, X, top_k, self.n_labels, threads, allowed)

    def explain(self, x: Csr, label: int) -> Explanation:
        """Why a row has its score for a label: each feature's part of x A b_l; `base` is the constant's."""
        vector = self.labels.embedded[label // 16, :, label % 16].astype(np.float64)
        moves = self.labels.moves(x, vector)
        ranked = bool(np.isfinite(self.labels.offsets[label]))
        score = float(moves.sum()) if ranked else -np.inf
        base, parts = (float(moves[-1]), moves[:-1]) if ranked else (0.0, np.zeros(x.nnz))
        return Explanation.build(label, score, self.family, base, x.indices, parts)

    @staticmethod
    def to_unit(scores: NDArray[Any]) -> NDArray[np.float32]:
        """A regression on 0 and 1, cut off at both ends."""
        return unit_scores(scores, np.clip(scores.astype(np.float64), 0, 1))

    def topk(
        self, indptr: Any, indices: Any, data: Any, top_k: int, threads: int, allowed: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        offsets = self.labels.offsets
        if allowed is not None:
            offsets = np.where(allowed, offsets, np.float32(-np.inf))
        _, labels, scores = self._search(offsets, top_k).near(indptr, indices, data, threads)
        return labels, scores
