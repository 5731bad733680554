"""Scoring a model in parts: each part scores the rows, and a merger combines their results into the whole model's.

A part is a model of some of the shards, on any machine. Its result depends on the family: a linear part ranks its own
labels; a part of a forest sums leaf scores, which are integers and add up in any order; some learners return the
labels of the near rows, which then vote in the learners' order. So results are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from umpteen.data.matrix import Csr
from umpteen.models.scorer import Ranking
from umpteen.storage.store import Part


class Merger(Protocol):
    """What merging needs from the whole model. Pickled and sent to where results are merged."""

    def merge(
        self,
        X: Csr,
        answers: Sequence[Any],
        top_k: int,
        *,
        exclude: ArrayLike | None,
        include: ArrayLike | None,
        threads: int | None,
    ) -> Ranking:
        """The best labels of each row, from the results of all parts, in the parts' order."""
        ...


@runtime_checkable
class Divisible(Protocol):
    """A model that can be scored in parts."""

    n_features: int
    n_labels: int

    def to_parts(self) -> list[Part]: ...

    def units(self) -> list[list[int]]:
        """Groups of shards, by number, that can be scored separately. The merger has the shards in no unit."""
        ...

    def merger(self) -> Merger: ...

    def configured(self, params: Mapping[str, Any]) -> Self: ...

    def settings(self) -> dict[str, Any]: ...

    @classmethod
    def from_some_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        """A model of the shards of some units, in order; n_features and n_labels are those of the whole model."""
        ...

    def score_part(
        self,
        X: Csr,
        top_k: int,
        *,
        exclude: ArrayLike | None,
        include: ArrayLike | None,
        threads: int | None,
    ) -> Any:
        """What the merger needs from this part for preprocessed rows."""
        ...


class RankingMerger:
    """For parts that each rank their own labels."""

    def merge(self, X: Csr, answers: Sequence[Ranking], top_k: int, **_: Any) -> Ranking:
        return merge_rankings(answers, top_k)


def merge_rankings(rankings: Sequence[Ranking], top_k: int) -> Ranking:
    """The best of several rankings of different labels; ties go to the lower label id."""
    labels = np.concatenate([labels for labels, _ in rankings], axis=1)
    scores = np.concatenate([scores for _, scores in rankings], axis=1)
    order = np.lexsort((labels, -scores), axis=1)[:, :top_k]
    return np.take_along_axis(labels, order, axis=1), np.take_along_axis(scores, order, axis=1)


def rank_entries(scores: Csr, top_k: int) -> Ranking:
    """The best stored entries of each row, as labels and scores; ties go to the lower label id."""
    n_rows = scores.shape[0]
    rows = np.repeat(np.arange(n_rows), np.diff(scores.indptr))
    order = np.lexsort((scores.indices, -scores.data, rows))
    place = np.arange(len(order)) - np.repeat(scores.indptr[:-1], np.diff(scores.indptr))
    best = place < top_k
    labels = np.full((n_rows, top_k), -1, np.int32)
    values = np.full((n_rows, top_k), -np.inf, np.float32)
    labels[rows[best], place[best]] = scores.indices[order[best]]
    values[rows[best], place[best]] = scores.data[order[best]]
    return labels, values


@dataclass(frozen=True)
class Share:
    """Some units of a model: the numbers of their shards, and their size in bytes."""

    shards: tuple[int, ...]
    n_bytes: int


def share_out(model: Divisible, n_parts: int) -> list[Share]:
    """Divides a model's units, in order, into at most `n_parts` parts of about equal size."""
    sizes = [part.n_bytes for part in model.to_parts()]
    units = [(tuple(unit), sum(sizes[i] for i in unit)) for unit in model.units()]
    n_parts = max(1, min(n_parts, len(units)))
    total = sum(n_bytes for _, n_bytes in units)
    shares: list[Share] = []
    taken = 0
    for position, (shards, n_bytes) in enumerate(units):
        left, parts_left = len(units) - position, n_parts - len(shares)
        # Start a new part when the last one has its share, or when only as many units as parts are left.
        if not shares or (parts_left > 0 and (taken >= total * len(shares) / n_parts or left <= parts_left)):
            shares.append(Share(shards, n_bytes))
        else:
            shares[-1] = Share(shares[-1].shards + shards, shares[-1].n_bytes + n_bytes)
        taken += n_bytes
    return shares


def take_part(model: Divisible, share: Share) -> Divisible:
    """A part of a model, with the same arrays and the same prediction settings."""
    parts = model.to_parts()
    part = type(model).from_some_parts([parts[i] for i in share.shards], model.n_features, model.n_labels)
    return part.configured(model.settings())
