"""Scores and probabilities of all labels as one dense matrix, where that is small enough."""

from __future__ import annotations

from functools import partial
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
    usual, boundary = model.usual_labels, model.scorer.boundary
    convert = partial(_above_the_rest, n_given=usual) if usual is not None else lambda found: found - boundary
    scores = _fill(model, X, "decision_function", "predict_topk", np.nan, convert)
    with np.errstate(all="ignore"):
        lowest = np.nanmin(np.where(np.isnan(scores), np.inf, scores), axis=1, initial=np.inf, keepdims=True)
    return np.where(np.isnan(scores), np.minimum(lowest, 0) - 1, scores).astype(np.float32)


def _above_the_rest(scores: NDArray[np.float32], n_given: int) -> NDArray[np.float32]:
    """Scores in falling order, less the middle between the last one that is given and the next: above 0 if given,
    even where these two are equal."""
    last = scores[:, n_given - 1]
    following = scores[:, n_given] if n_given < scores.shape[1] else np.full(len(scores), -np.inf)
    edge = np.where(np.isfinite(following), (last + np.where(np.isfinite(following), following, 0)) / 2, last - 1)
    above = scores - np.where(np.isfinite(edge), edge, 0)[:, None]
    given = np.arange(scores.shape[1]) < n_given
    return np.where(given, np.maximum(above, np.finfo(np.float32).tiny), np.minimum(above, 0)).astype(np.float32)


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
