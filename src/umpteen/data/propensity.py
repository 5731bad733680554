"""Propensity: the probability that a label that fits a row was given to it (Jain, Prabhu and Varma, KDD 2016).

Rare labels are left out more often than common ones, so a plain count of hits favours models that know only the
common labels. Propensity-scored metrics weight each hit by 1/p of its label.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import as_csr
from umpteen.errors import DataError, ParamError


class PropensityConstants(NamedTuple):
    """The two numbers that fit the propensity curve to a family of data sets."""

    A: float
    B: float


PROPENSITY_CONSTANTS = MappingProxyType(
    {
        "default": PropensityConstants(0.55, 1.5),  # all others, including AmazonCat-13K and Wiki10-31K
        "wikipedia": PropensityConstants(0.5, 0.4),  # WikiLSHTC-325K, Wikipedia-500K
        "amazon": PropensityConstants(0.6, 2.6),  # Amazon-670K, Amazon-3M
    }
)
"""A and B by family, as in the Extreme Classification Repository. Only scores with the same pair are comparable."""

_DEFAULT = PROPENSITY_CONSTANTS["default"]


class LabelCounts(NamedTuple):
    """All that metrics need from a training set; a model keeps it, so that they do not need the data."""

    counts: NDArray[np.int64]  # n_labels: how many rows each label has
    n_rows: int


def count_labels(Y: Any, name: str, n_labels: int | None = None) -> LabelCounts:
    """The counts of a label matrix; a `LabelCounts` is returned as it is."""
    if not isinstance(Y, LabelCounts):
        csr = as_csr(Y, name, n_labels, values=False)
        return LabelCounts(np.bincount(csr.indices, minlength=csr.shape[1]), csr.shape[0])
    if n_labels is not None and len(Y.counts) != n_labels:
        raise DataError(f"{name} must have counts of {n_labels} labels, but has {len(Y.counts)}")
    return Y


def propensities(train_Y: Any, A: float = _DEFAULT.A, B: float = _DEFAULT.B) -> NDArray[np.float64]:
    """The propensity of each label, from how often it occurs in the training set.

    ``p_l = 1 / (1 + C (N_l + B)^-A)`` with ``C = (ln N - 1)(B + 1)^A``, where N is the number of training rows and
    N_l the number of rows with label l (Jain et al. 2016). N includes rows without labels.

    Parameters
    ----------
    train_Y : sparse matrix or array, n_rows x n_labels, or LabelCounts
        Labels of the training set. At least 3 rows: with fewer, ln N < 1 and p would not be a probability.
    A : float, at least 0
    B : float, above 0
        See `PROPENSITY_CONSTANTS` for the pair to use with a data set.

    Returns
    -------
    float64 array, n_labels
        In (0, 1], higher for labels with more rows. Labels without rows have one too.

    Examples
    --------
    >>> train_Y = [[1, 0], [1, 0], [1, 1], [1, 0], [1, 0], [1, 0]]
    >>> propensities(train_Y).round(3)
    array([0.698, 0.558])
    """
    check_constants(A, B)
    counts, n_rows = count_labels(train_Y, "train_Y")
    if n_rows < 3:
        raise DataError(f"train_Y must have at least 3 rows for propensities, but has {n_rows}")
    # C (N_l + B)^-A with both powers in one, because each alone could be too large for a float.
    with np.errstate(over="ignore"):
        inverse = 1 + (math.log(n_rows) - 1) * ((B + 1) / (counts + B)) ** A
    if not np.isfinite(inverse).all():
        raise ParamError(f"A and B must keep every propensity above 0, but A is {A} and B is {B}")
    p: NDArray[np.float64] = 1 / inverse
    return p


def check_constants(A: float, B: float) -> None:
    """Raises ParamError unless A is a finite number of at least 0 and B a finite number above 0."""
    if not (_is_finite(A) and A >= 0):
        raise ParamError(f"A must be a finite number of at least 0, but is {A!r}")
    if not (_is_finite(B) and B > 0):
        raise ParamError(f"B must be a finite number above 0, but is {B!r}")


def _is_finite(value: object) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return False
    return isinstance(value, (int, float, np.integer, np.floating)) and math.isfinite(value)
