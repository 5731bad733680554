"""Scores and probabilities of all labels as one dense matrix, where that is small enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import as_csr
from umpteen.data.targets import MOST_CELLS
from umpteen.errors import ParamError

if TYPE_CHECKING:
    from umpteen.trained.model import TrainedModel

#: Cells that are ranked at a time.
_CELLS_AT_A_TIME = 2**22


def score_all(model: TrainedModel, X: Any) -> NDArray[np.float32]:
    """How far the score of every label is above the least one that is given without a calibration. A label that the
    model does not rank for a row gets one less than 0 and than all others."""
    scores = _fill(model, X, "decision_function", "predict_topk", np.nan, lambda found: found - model.scorer.boundary)
    with np.errstate(all="ignore"):
        lowest = np.nanmin(np.where(np.isnan(scores), np.inf, scores), axis=1, initial=np.inf, keepdims=True)
    return np.where(np.isnan(scores), np.minimum(lowest, 0) - 1, scores).astype(np.float32)


def probabilities_of_all(model: TrainedModel, X: Any) -> NDArray[np.float32]:
    """The probability of every label for every row; 0 for a label that the model does not rank for it."""
    model.need_calibration("predict_proba")
    return _fill(model, X, "predict_proba", "predict_topk_proba", 0, model.to_unit)


def share_out(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """For rows that have one class each: what the classes have alone as shares of 1."""
    total = probabilities.sum(axis=1, keepdims=True)
    return np.where(total > 0, probabilities / np.where(total > 0, total, 1), np.float32(1 / probabilities.shape[1]))


def _fill(model: TrainedModel, X: Any, what: str, instead: str, missing: float, convert: Any) -> NDArray[np.float32]:
    X = as_csr(X, "X", model.n_features)
    n_rows, n_labels = X.shape[0], model.n_labels
    if n_rows * n_labels > MOST_CELLS:
        raise ParamError(
            f"{what} of {n_rows} rows x {n_labels} labels would take {4 * n_rows * n_labels / 2**30:.1f} GB, "
            f"but may take at most {4 * MOST_CELLS / 2**30:.1f} GB; use {instead}, or fewer rows"
        )
    out = np.full((n_rows, n_labels), missing, np.float32)
    step = max(1, _CELLS_AT_A_TIME // max(n_labels, 1))
    for begin in range(0, n_rows, step):
        labels, scores = model.predict_topk(X[begin : begin + step], n_labels)
        rows, places = np.nonzero(labels >= 0)
        out[begin + rows, labels[rows, places]] = convert(scores)[rows, places]
    return out
