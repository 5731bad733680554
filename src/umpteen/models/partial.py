"""Scoring a model in parts: each answers for the rows, and a merger turns the answers into those of the whole model.

A part is a model of some of the shards, on whatever machine. Its answer depends on the family: a linear part ranks
its own labels; some trees give sums of leaf scores, which are integers and add up in any order; some learners give
the labels of the rows they find near, which then vote in the learners' order. So results are the same to the last
bit.
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
    """Knows of the whole model what merging needs. Pickled to where parts meet."""

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
        """The best labels of each row, from the answers of all parts, in the parts' order."""
        ...


@runtime_checkable
class Divisible(Protocol):
    """A model that can be scored in parts."""

    n_features: int
    n_labels: int

    def to_parts(self) -> list[Part]: ...

    def units(self) -> list[list[int]]:
        """The shards, by number, that can be scored apart from the others. Shards in no unit are the merger's."""
        ...

    def merger(self) -> Merger: ...

    def configured(self, params: Mapping[str, Any]) -> Self: ...

    def settings(self) -> dict[str, Any]: ...

    @classmethod
    def from_some_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        """A model of the shards of some units, in order; n_features and n_labels are the whole's."""
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
        """What the merger needs of this part for preprocessed rows."""
        ...


class RankingMerger:
    """For parts that rank labels of their own."""

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
    """Some units of a model, as the numbers of their shards, and how many bytes those have."""

    shards: tuple[int, ...]
    n_bytes: int


def share_out(model: Divisible, n_parts: int) -> list[Share]:
    """Divides a model's units, in order, into at most so many parts of about as many bytes each."""
    sizes = [part.n_bytes for part in model.to_parts()]
    units = [(tuple(unit), sum(sizes[i] for i in unit)) for unit in model.units()]
    n_parts = max(1, min(n_parts, len(units)))
    total = sum(n_bytes for _, n_bytes in units)
    shares: list[Share] = []
    taken = 0
    for position, (shards, n_bytes) in enumerate(units):
        left, parts_left = len(units) - position, n_parts - len(shares)
        # A new part where the one before has its share, or where there are only as many units left as parts.
        if not shares or (parts_left > 0 and (taken >= total * len(shares) / n_parts or left <= parts_left)):
            shares.append(Share(shards, n_bytes))
        else:
            shares[-1] = Share(shares[-1].shards + shards, shares[-1].n_bytes + n_bytes)
        taken += n_bytes
    return shares


def take_part(model: Divisible, share: Share) -> Divisible:
    """A part of a model, over the same arrays and with the same settings of prediction."""
    parts = model.to_parts()
    part = type(model).from_some_parts([parts[i] for i in share.shards], model.n_features, model.n_labels)
    return part.configured(model.settings())
