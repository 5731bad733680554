"""What every family of models does: score rows, explain a score, say what its scores mean, store itself.

A family is one file in this package and one line in families.py. Whatever differs between families is a method here,
so that nobody outside asks a model which family it is.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.data.matrix import Csr, offsets
from umpteen.errors import ParamError
from umpteen.memory import Estimate, check_fits
from umpteen.models.explanation import Explanation
from umpteen.params import check_count
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads

#: Label ids and scores, n_rows x top_k, best first; -1 and -inf pad.
Ranking = tuple[NDArray[np.int32], NDArray[np.float32]]


class Scorer(abc.ABC):
    """Trained shards that score preprocessed rows. It does not change once it is made."""

    #: Its name in manifests, in answers of the server and in families.py.
    family: ClassVar[str]
    #: What the contributions in its explanations are, as a sentence.
    meaning: ClassVar[str] = "Contributions and base add up to the score."

    n_features: int
    n_labels: int

    # --- storage ------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, header: Mapping[str, Any], parts: Mapping[str, Part], shards: Sequence[Part]) -> Self:
        """From what a model directory holds, which may be anything: raises ModelCorruptError for what cannot be used.

        Parameters
        ----------
        header
            The facts of the manifest.
        parts, shards
            The parts that belong to the whole model, by name, and the shards, in order.
        """
        scorer = cls.from_parts(shards, header["n_features"], header["n_labels"])
        return scorer.configured(header["params"])

    @classmethod
    @abc.abstractmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        """A scorer over shards as they lie in their files; raises ModelCorruptError for what cannot be used."""

    @abc.abstractmethod
    def to_parts(self) -> list[Part]:
        """The shards again, in order."""

    def pruned_parts(self, delta: float) -> Iterator[Part]:
        """The shards without weights smaller than `delta`, one at a time."""
        raise ParamError(f"only linear models have weights to prune, but this is a {self.family} model")

    # --- prediction ---------------------------------------------------------------------------------------------

    def configured(self, params: Mapping[str, Any]) -> Self:
        """The same scorer with those settings of prediction that the family has and `params` names, such as the beam
        of a label tree. Shares all arrays."""
        return self

    def settings(self) -> dict[str, Any]:
        """The settings `configured` takes, as they are."""
        return {}

    def _altered(self, **attributes: Any) -> Self:
        """A copy that shares all arrays and the native scorer."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__ | attributes)
        return other

    @abc.abstractmethod
    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        """The best labels of each row, best first; ties go to the lower label id.

        Parameters
        ----------
        X : CSR float32, n_rows x n_features
            Already preprocessed.
        exclude, include : label ids, optional
            Labels that must not be, or alone may be, ranked; applied before the cut.

        Returns
        -------
        labels : int32, n_rows x top_k
            Padded with -1 where fewer labels can be ranked.
        scores : float32, n_rows x top_k
            Padded with -inf.
        """

    @staticmethod
    @abc.abstractmethod
    def to_unit(scores: NDArray[Any]) -> NDArray[np.float32]:
        """Scores brought into [0, 1] without a calibration, in the same order; -inf becomes 0."""

    # --- explanation --------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def explain(self, x: Csr, label: int) -> Explanation:
        """Why one preprocessed row has its score for a label."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Facts for `umpteen inspect`."""


def unit_scores(scores: NDArray[Any], unit: NDArray[np.float64]) -> NDArray[np.float32]:
    """What `Scorer.to_unit` returns: `unit`, with 0 where the score is the padding."""
    return np.where(np.isneginf(scores), 0, unit).astype(np.float32)


def logistic(scores: NDArray[Any]) -> NDArray[np.float32]:
    """Margins and log-odds on the logistic curve."""
    with np.errstate(over="ignore"):
        return unit_scores(scores, 1 / (1 + np.exp(-scores.astype(np.float64))))


#: Asking the system what is free takes longer than scoring a row.
_WORTH_CHECKING = 1_000_000


def rank_labels(scorer: Any, X: Csr, top_k: int, n_labels: int, threads: int | None, allowed: Any) -> Ranking:
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
