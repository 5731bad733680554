"""Splitting rows into a training and a test part without losing a label from the training part."""

from __future__ import annotations

import warnings
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.dataset import Dataset
from umpteen.data.matrix import Csr, as_csr, offsets
from umpteen.errors import DataError, ParamError


def train_test_split(
    data: Dataset, test_size: float = 0.2, *, seed: int = 0, keep: int = 1
) -> tuple[Dataset, Dataset]:
    """Splits a data set at random, but keeps some rows of every label in the training part.

    A plain random split of long-tailed data leaves labels without any training row, so no method can predict
    them. Here rows are held out in random order, and a row stays in the training part if one of its labels
    would otherwise have fewer than `keep` rows there. So the test part has fewer rare labels than a plain random
    sample, as in the field's published splits.

    Parameters
    ----------
    data : Dataset
    test_size : float or int
        Fraction of the rows between 0 and 1, or number of rows. If so many cannot be held out, as many as
        possible are, with a warning.
    seed : int
        The same data and seed give the same split.
    keep : int
        How many training rows each label keeps; labels with fewer rows keep all of them. 0 is a plain random
        split.

    Returns
    -------
    train, test : Dataset
        Rows in their original order; label and feature names are kept.

    Examples
    --------
    >>> data = Dataset(np.eye(4), [[1, 0], [1, 0], [1, 0], [0, 1]], label_names=["often", "once"])
    >>> train, test = train_test_split(data, test_size=2)
    >>> train.label_counts().tolist(), test.label_counts().tolist()
    ([1, 1], [2, 0])
    """
    heldout = _hold_out(data.Y, test_size, seed, keep)
    return data.take(~heldout), data.take(heldout)


def split_rows(Y: object, test_size: float = 0.2, *, seed: int = 0, keep: int = 1) -> NDArray[np.bool_]:
    """Which rows `train_test_split` would hold out, for a label matrix alone.

    Parameters
    ----------
    Y : sparse matrix or array, n_rows x n_labels
        Any non-zero entry is a label of its row.
    test_size, seed, keep
        As for `train_test_split`.

    Returns
    -------
    array of bool, n_rows
        True for the rows of the test part.

    Examples
    --------
    >>> split_rows([[1, 0], [1, 0], [1, 0], [0, 1]], test_size=2, seed=1).sum()
    np.int64(2)
    """
    return _hold_out(as_csr(Y, "Y", values=False), test_size, seed, keep)


def _hold_out(Y: Csr, test_size: float, seed: int, keep: int) -> NDArray[np.bool_]:
    n_rows, n_labels = int(Y.shape[0]), int(Y.shape[1])
    _check_integer("seed", seed)
    _check_integer("keep", keep)
    if n_rows == 0:
        raise DataError("Y must have at least one row to split, but has none")
    n_wanted = _count_test_rows(test_size, n_rows)
    # Sorts random numbers, because Generator.permutation may change between versions of NumPy.
    order = np.argsort(np.random.Generator(np.random.PCG64(int(seed))).random(n_rows), kind="stable")
    # Rows without labels could all be held out; one row always stays in the training part.
    n_allowed = min(n_wanted, n_rows - 1)
    # No label has more than n_rows rows, so a larger keep has the same effect and need not fit 64 bits.
    n_kept = min(int(keep), n_rows)
    mask = _native.hold_out_rows(offsets(Y), Y.indices, n_labels, order.astype(np.int64), n_allowed, n_kept)
    heldout: NDArray[np.bool_] = np.asarray(mask, dtype=np.bool_)
    n_heldout = int(np.count_nonzero(heldout))
    if n_heldout < n_wanted:
        warnings.warn(
            f"held out {n_heldout} of {n_rows} rows instead of {n_wanted}: the training part must keep at least one "
            f"row, and {n_kept} of each label that has so many",
            UserWarning,
            stacklevel=3,
        )
    return heldout


def _count_test_rows(test_size: float, n_rows: int) -> int:
    if isinstance(test_size, Integral) and not isinstance(test_size, bool):
        if 1 <= test_size < n_rows:
            return int(test_size)
    elif isinstance(test_size, Real) and not isinstance(test_size, bool) and 0 < test_size < 1:
        return max(1, round(float(test_size) * n_rows))
    raise ParamError(
        "test_size must be a fraction between 0 and 1, or a number of rows of at least 1 and less than "
        f"{n_rows}, the number of all rows, but is {test_size!r}"
    )


def _check_integer(name: str, value: object) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
        raise ParamError(f"{name} must be an integer of at least 0, but is {value!r}")
