"""Classifiers of another library as a model: to compare with, in memory only.

Nothing of such a model is stored, so nothing of it is opened either: a file that names this family is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.data.matrix import Csr
from umpteen.errors import ModelFormatError, ParamError
from umpteen.models.explanation import Explanation
from umpteen.models.scorer import Ranking, Scorer, allow_labels, check_ranking_fits, logistic
from umpteen.params import check_count
from umpteen.storage.store import Part

_ROWS_AT_ONCE = 256
_LEAST = 1e-7  # log-odds of probabilities nearer to 0 or 1 are cut off


class LivePart(Part):
    """A shard that is an object of another library; it has no arrays to write."""

    def __init__(self, classifier: Any, trained: NDArray[np.bool_]) -> None:
        super().__init__({})
        self.classifier, self.trained = classifier, trained


class ForeignModel(Scorer):
    """A fitted classifier that takes rows and labels as matrices. Scores are its `decision_function`, or the log-odds
    of its `predict_proba`.

    Parameters
    ----------
    classifier
        Fitted with all labels.
    trained : bool, n_labels
        False for labels that no training row had, which are never ranked.
    """

    family = "sklearn"

    def __init__(self, classifier: Any, trained: NDArray[np.bool_], n_features: int) -> None:
        self.classifier, self.trained = classifier, trained
        self.n_features, self.n_labels = n_features, len(trained)

    @classmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        if len(parts) != 1 or not isinstance(parts[0], LivePart):
            raise ModelFormatError("models of another library's classifiers are not stored, so they cannot be opened")
        return cls(parts[0].classifier, parts[0].trained, n_features)

    def to_parts(self) -> list[Part]:
        refuse_to_store(self.classifier)
        return []

    # --- prediction ---------------------------------------------------------------------------------------------

    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        top_k = check_count("top_k", top_k)
        check_ranking_fits(X.shape[0], top_k)
        chosen = allow_labels(exclude, include, self.n_labels)
        allowed = self.trained if chosen is None else self.trained & chosen
        labels = np.full((X.shape[0], top_k), -1, np.int32)
        scores = np.full(labels.shape, -np.inf, np.float32)
        for begin in range(0, X.shape[0], _ROWS_AT_ONCE):
            block = slice(begin, begin + _ROWS_AT_ONCE)
            every = self._score(X[block])
            every[:, ~allowed] = -np.inf
            best = np.argsort(-every, axis=1, kind="stable")[:, :top_k]
            found = np.take_along_axis(every, best, 1)
            width = best.shape[1]
            labels[block, :width] = np.where(np.isneginf(found), -1, best)
            scores[block, :width] = found
        return labels, scores

    def _score(self, X: Csr) -> NDArray[np.float32]:
        """Rows x labels."""
        classifier = self.classifier
        if hasattr(classifier, "decision_function"):
            margins = np.asarray(classifier.decision_function(X), np.float32)
            # Of a single label some libraries give one number for each row.
            return margins.reshape(X.shape[0], -1)[:, -self.n_labels :].copy()
        found = classifier.predict_proba(X)
        if isinstance(found, list):  # for each label an array with a column for each class
            found = np.column_stack(
                [_of_class_one(p, classes) for p, classes in zip(found, classifier.classes_, strict=True)]
            )
        p = np.clip(np.asarray(found, np.float64).reshape(X.shape[0], -1)[:, -self.n_labels :], _LEAST, 1 - _LEAST)
        return np.log(p / (1 - p)).astype(np.float32)

    @staticmethod
    def to_unit(scores: NDArray[Any]) -> NDArray[np.float32]:
        return logistic(scores)

    def explain(self, x: Csr, label: int) -> Explanation:
        raise ParamError(
            f"a model of {name_of(self.classifier)} cannot explain its scores; TrainedModel.from_weights makes "
            "one that does from linear weights"
        )

    def describe(self) -> dict[str, Any]:
        return {"classifier": name_of(self.classifier)}


def _of_class_one(probabilities: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """The probability of having the label, which none or all training rows may have had."""
    has = np.flatnonzero(classes == 1)
    return probabilities[:, has[0]] if len(has) else np.zeros(len(probabilities))


def name_of(classifier: Any) -> str:
    """Its class; of one classifier for each label, theirs."""
    return type(getattr(classifier, "estimator", classifier)).__name__


def refuse_to_store(classifier: Any) -> None:
    """Raises ModelFormatError: a classifier of another library stays in memory."""
    raise ModelFormatError(
        f"a model of {name_of(classifier)} cannot be saved: it is another library's, and models hold no pickle. "
        "TrainedModel.from_weights(coef, intercept) makes one that can be saved from linear weights"
    )
