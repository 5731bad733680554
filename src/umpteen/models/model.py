"""What a method needs of the family of models it trains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.data.matrix import Csr, offsets
from umpteen.errors import ParamError
from umpteen.memory import Estimate, check_fits
from umpteen.models.explanation import Explanation
from umpteen.params import check_count
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads


class Model(Protocol):
    """Trained shards that can score rows."""

    family: str

    @classmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        """A model over shards as they lie in their files; raises ModelCorruptError for what cannot be used."""
        ...

    def to_parts(self) -> list[Part]:
        """The shards again, in order."""
        ...

    def describe(self) -> dict[str, Any]:
        """Facts for `umpteen inspect`."""
        ...

    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The best labels of each row of a preprocessed X, best first, and their scores; -1 and -inf pad."""
        ...

    def explain(self, x: Csr, label: int) -> Explanation:
        """Why one preprocessed row has its score for a label."""
        ...


#: Asking the system what is free takes longer than scoring a row.
_WORTH_CHECKING = 1_000_000


def rank_labels(
    scorer: Any, X: Csr, top_k: int, n_labels: int, threads: int | None, allowed: Any
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Asks a native scorer for the best labels and pads what it cannot rank; `allowed` is as the scorer takes it."""
    # One row is over before a second thread would have started.
    n_threads = 1 if X.shape[0] == 1 else resolve_threads(threads)
    top_k = check_count("top_k", top_k)
    ranked = min(top_k, n_labels)
    check_ranking_fits(X.shape[0], top_k + ranked)
    labels, scores = scorer.topk(offsets(X), X.indices, X.data, ranked, n_threads, allowed)
    if ranked < top_k:
        pads = ((0, 0), (0, top_k - ranked))
        labels = np.pad(labels, pads, constant_values=-1)
        scores = np.pad(scores, pads, constant_values=-np.inf)
    return labels, scores


def check_ranking_fits(n_rows: int, width: int) -> None:
    """Refuses rankings of so many labels for so many rows as memory would not hold."""
    n_bytes = 8 * n_rows * width
    if n_bytes > _WORTH_CHECKING:
        check_fits(Estimate(n_bytes, 0), "ask for fewer labels or fewer rows at a time")


def allow_labels(exclude: ArrayLike | None, include: ArrayLike | None, n_labels: int) -> NDArray[np.bool_] | None:
    """Which labels may be ranked; None for all."""
    if exclude is None and include is None:
        return None
    allowed = np.full(n_labels, include is None)
    if include is not None:
        allowed[check_label_ids(include, n_labels, "include")] = True
    if exclude is not None:
        allowed[check_label_ids(exclude, n_labels, "exclude")] = False
    return allowed


def check_label_ids(ids: ArrayLike, n_labels: int, name: str) -> NDArray[np.int64]:
    """Label ids a user gave, as an array; refuses what is not an id of this model."""
    listed = list(ids) if isinstance(ids, Iterable) and not isinstance(ids, np.ndarray) else ids  # sets and the like
    array = np.atleast_1d(np.asarray(listed))
    if array.size == 0:
        return array.astype(np.int64).ravel()
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ParamError(f"{name} must be a list of label ids, but is {ids!r}"[:200])
    if array.min() < 0 or array.max() >= n_labels:
        wrong = array.min() if array.min() < 0 else array.max()
        raise ParamError(f"{name} must hold label ids in [0, {n_labels}), but has {wrong}")
    return array.astype(np.int64)
