"""Rows that count more or less than once: `sample_weight` of `fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr
from umpteen.errors import DataError

if TYPE_CHECKING:
    from umpteen.methods.base import Method


def weigh_rows(method: Method, X: Csr, Y: Csr, sample_weight: Any) -> tuple[Csr, Csr, NDArray[np.float32] | None]:
    """The rows that count, and how many times each does; None if each counts once."""
    if sample_weight is None:
        return X, Y, None
    method.check_weighs_rows()
    weights = check_weights(sample_weight, X.shape[0])
    counts = weights > 0
    if not counts.all():
        X, Y, weights = X[counts], Y[counts] if Y.shape[0] == len(counts) else Y, weights[counts]
    return X, Y, None if (weights == 1).all() else weights


def check_weights(sample_weight: Any, n_rows: int) -> NDArray[np.float32]:
    """A weight for each row, finite and at least 0, not all 0."""
    try:
        weights = np.asarray(sample_weight, np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"sample_weight must hold numbers only: {error}") from error
    if weights.shape != (n_rows,):
        raise DataError(
            f"sample_weight must have one number for each of the {n_rows} rows, but its shape is {weights.shape}"
        )
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        raise DataError(
            f"sample_weight must hold finite numbers of at least 0, but row {np.argmax(bad)} has {weights[bad][0]}"
        )
    if not weights.any():
        raise DataError("sample_weight must be above zero for some row, but is zero for all")
    return weights
