"""The interface of all families of models: score rows, explain a score, map scores to [0, 1], store and open.

A family is one file in this package and one line in families.py. Whatever differs between families is a method here,
so that no other code depends on the family.
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

#: Label ids and scores, n_rows x top_k, best first; padded with -1 and -inf.
Ranking = tuple[NDArray[np.int32], NDArray[np.float32]]


class Scorer(abc.ABC):
    """Trained shards that score preprocessed rows. Immutable."""

    #: The family's name in manifests, in the server's responses and in families.py.
    family: ClassVar[str]
    #: What the contributions in an explanation are, as a sentence.
    meaning: ClassVar[str] = "Contributions and base add up to the score."

    #: The score that `to_unit` maps to 0.5: without a calibration, labels are given from it on.
    boundary: ClassVar[float] = 0.0

    n_features: int
    n_labels: int
    #: The version of the model directory it was opened from (`ModelReader.version`); None for one made in memory.
    version: str | None = None

    # --- storage ------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, header: Mapping[str, Any], parts: Mapping[str, Part], shards: Sequence[Part]) -> Self:
        """Opens the contents of a model directory, which are not trusted: raises ModelCorruptError if they cannot be
        used.

        Parameters
        ----------
        header
            The entries of the manifest.
        parts, shards
            The parts of the whole model, by name, and the shards, in order.
        """
        scorer = cls.from_parts(shards, header["n_features"], header["n_labels"])
        return scorer.configured(header["params"])

    @classmethod
    @abc.abstractmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        """A scorer over stored shards; raises ModelCorruptError if they cannot be used."""

    @abc.abstractmethod
    def to_parts(self) -> list[Part]:
        """The shards as they are stored, in order."""

    def pruned_parts(self, delta: float) -> Iterator[Part]:
        """The shards without weights smaller than `delta`, one at a time."""
        raise ParamError(f"only linear models have weights to prune, but this model's family is {self.family}")

    # --- prediction ---------------------------------------------------------------------------------------------

    def configured(self, params: Mapping[str, Any]) -> Self:
        """The same scorer with the prediction settings in `params` that the family has, such as the beam of a label
        tree. Shares all arrays."""
        return self

    def settings(self) -> dict[str, Any]:
        """The settings that `configured` takes, with their values."""
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
            Labels never to rank, or the only ones to rank; applied before `top_k`.

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
        """Maps scores to [0, 1] without a calibration; keeps their order; -inf becomes 0."""

    # --- explanation --------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def explain(self, x: Csr, label: int) -> Explanation:
        """Why one preprocessed row has its score for a label."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """Facts for `umpteen inspect`."""


def unit_scores(scores: NDArray[Any], unit: NDArray[np.float64]) -> NDArray[np.float32]:
    """`unit` as `Scorer.to_unit` returns it: with 0 where the score is padding."""
    return np.where(np.isneginf(scores), 0, unit).astype(np.float32)


def logistic(scores: NDArray[Any]) -> NDArray[np.float32]:
    """Maps margins or log-odds to [0, 1] by the logistic function."""
    with np.errstate(over="ignore"):
        return unit_scores(scores, 1 / (1 + np.exp(-scores.astype(np.float64))))


#: Below this many bytes free memory is not checked: that takes longer than scoring a row.
_WORTH_CHECKING = 1_000_000


def rank_labels(scorer: Any, X: Csr, top_k: int, n_labels: int, threads: int | None, allowed: Any) -> Ranking:
    """The best labels of a native scorer, padded to `top_k`; `allowed` is passed to the scorer."""
    # One row is done before a second thread would have started.
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
    """Refuses rankings that would not fit into memory."""
    n_bytes = 8 * n_rows * width
    if n_bytes > _WORTH_CHECKING:
        check_fits(Estimate(n_bytes, 0), "rank fewer labels or fewer rows at a time")


def allow_labels(exclude: ArrayLike | None, include: ArrayLike | None, n_labels: int) -> NDArray[np.bool_] | None:
    """Which labels may be ranked; None means all."""
    if exclude is None and include is None:
        return None
    allowed = np.full(n_labels, include is None)
    if include is not None:
        allowed[check_label_ids(include, n_labels, "include")] = True
    if exclude is not None:
        allowed[check_label_ids(exclude, n_labels, "exclude")] = False
    return allowed


def check_label_ids(ids: ArrayLike, n_labels: int, name: str) -> NDArray[np.int64]:
    """A user's label ids as an array; refuses ids this model does not have."""
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
