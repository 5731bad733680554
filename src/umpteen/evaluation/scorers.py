"""Measures of rankings and of predictions as scikit-learn takes them: `scoring=` of its searches and of
cross-validation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, as_csr
from umpteen.data.targets import TargetForm
from umpteen.errors import ParamError
from umpteen.evaluation.decisions import evaluate_decisions
from umpteen.evaluation.metrics import evaluate

#: What a scorer of rankings can be named by, before the @.
_MEASURES = ("P", "nDCG", "PSP", "PSnDCG", "recall")
#: scikit-learn's names of measures of predictions, and of means over labels, and what these are here.
_PREDICTED = {"precision": "precision", "recall": "recall", "f1": "F1"}
_MEANS = {"micro": "micro", "macro": "macro", "samples": "per_row"}


@dataclass(frozen=True)
class RankingScorer:
    """Called with an estimator, rows and their labels: a measure of the best labels, as a share from 0 to 1."""

    measure: str
    k: int

    def __call__(self, estimator: Any, X: Any, Y: Any) -> float:
        return self._of(estimator, X, Y) / 100

    def _of(self, estimator: Any, X: Any, Y: Any) -> float:
        estimator, X = _last_step(getattr(estimator, "best_estimator_", estimator), X)
        name = f"{self.measure}@{self.k}"
        if hasattr(estimator, "evaluate"):  # a tagger knows the names of labels
            found: float = estimator.evaluate(X, Y, k=self.k, deciles=False)[name]
            return found
        targets = _encode(estimator, Y)
        labels = _rank(estimator, X, min(self.k, targets.shape[1]))
        counts = getattr(estimator, "train_counts_", None)
        if counts is None and self.measure.startswith("PS"):
            raise ParamError(
                f"{name} needs how often labels occur in training, which {type(estimator).__name__} does not keep"
            )
        return float(evaluate(targets, labels, counts, k=self.k, deciles=False)[name])

    def __repr__(self) -> str:
        return f"make_scorer({f'{self.measure}@{self.k}'!r})"


@dataclass(frozen=True)
class PredictionScorer:
    """Called with an estimator, rows and their labels: precision, recall or F1 of what `predict` gives, as
    scikit-learn computes them, but for labels in any form that `fit` takes."""

    name: str

    def __call__(self, estimator: Any, X: Any, Y: Any) -> float:
        estimator, X = _last_step(getattr(estimator, "best_estimator_", estimator), X)
        given, targets = _encode(estimator, estimator.predict(X)), _encode(estimator, Y)
        measure, mean = self.name.split("_")
        found = getattr(evaluate_decisions(targets, _pad(given)), _MEANS[mean])
        return float(getattr(found, _PREDICTED[measure])) / 100

    def __repr__(self) -> str:
        return f"make_scorer({self.name!r})"


def make_scorer(*names: str) -> Any:
    """A measure for `scoring=` of scikit-learn's searches and cross-validation.

    Parameters
    ----------
    names : "P@5", "nDCG@5", "PSP@5", "PSnDCG@5" or "recall@5", with any number of labels
        Of the best labels. Or of the labels that `predict` gives, by the names scikit-learn has for them: "f1_micro",
        "f1_macro", "f1_samples" and the same with "precision" or "recall"; for lists of names, too, of which
        scikit-learn's own make NaN. One gives a scorer; several give a dict of them by name, to be judged by all of
        them.

    Examples
    --------
    >>> import umpteen
    >>> from sklearn.model_selection import cross_val_score
    >>> data = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> Y = data.Y.toarray()  # cross_val_score takes no sparse Y; GridSearchCV does
    >>> scores = cross_val_score(umpteen.DiSMEC(), data.X, Y, cv=3, scoring=umpteen.make_scorer("nDCG@5"))
    >>> len(scores), bool(scores.min() > 0.5)
    (3, True)
    """
    if not names:
        raise ParamError('make_scorer needs a measure, such as "P@5"')
    scorers: Mapping[str, Any] = {name: _parse(name) for name in names}
    return scorers[names[0]] if len(names) == 1 else scorers


def _parse(name: str) -> RankingScorer | PredictionScorer:
    found = re.fullmatch(r"(\w+)@([1-9][0-9]{0,5})", name) if isinstance(name, str) else None
    if found is not None and found[1] in _MEASURES:
        return RankingScorer(found[1], int(found[2]))
    if name in (f"{measure}_{mean}" for measure in _PREDICTED for mean in _MEANS):
        return PredictionScorer(name)
    known = ", ".join(
        [f"{measure}@k" for measure in _MEASURES] + [f"{m}_{mean}" for m in _PREDICTED for mean in _MEANS]
    )
    raise ParamError(f"a scorer must be one of {known}, such as 'P@5', but is {name!r}")


def _encode(estimator: Any, labels: Any) -> Csr:
    """Labels by the estimator's ids; of an estimator that is not ours, by its classes, or a matrix as it is."""
    encode = getattr(estimator, "encode_targets", None)
    if encode is None:
        if np.ndim(labels) == 1 and hasattr(estimator, "classes_"):  # one class for each row
            classes = np.asarray(estimator.classes_)
            return TargetForm("classes", classes=classes).encode(labels, len(classes))
        return as_csr(labels, "Y", values=False)
    found: Csr = encode(labels)
    return found


def _pad(Y: Csr) -> NDArray[np.int32]:
    """The label ids of each row, padded with -1."""
    counts = np.diff(Y.indptr)
    out = np.full((Y.shape[0], int(counts.max(initial=0))), -1, np.int32)
    out[np.arange(out.shape[1]) < counts[:, None]] = Y.indices
    return out


def _last_step(estimator: Any, X: Any) -> tuple[Any, Any]:
    """The last step of a pipeline, and the rows as it sees them."""
    while hasattr(estimator, "steps") and not hasattr(estimator, "predict_topk"):
        X = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
        estimator = estimator.steps[-1][1]
    return estimator, X


def _rank(estimator: Any, X: Any, top_k: int) -> NDArray[np.int32]:
    """The best labels of each row; of an estimator that is not ours, by its scores."""
    if hasattr(estimator, "predict_topk"):
        labels: NDArray[np.int32] = estimator.predict_topk(X, top_k)[0]
        return labels
    how = next((name for name in ("decision_function", "predict_proba") if hasattr(estimator, name)), None)
    if how is None:
        raise ParamError(
            f"ranking needs predict_topk, decision_function or predict_proba, but {type(estimator).__name__} has none"
        )
    scores = np.asarray(getattr(estimator, how)(X))
    if scores.ndim == 1:  # of two classes, the second's
        scores = np.column_stack([-scores, scores])
    return np.argsort(-scores, axis=1, kind="stable")[:, :top_k].astype(np.int32)
