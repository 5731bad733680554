"""Sparse and dense columns side by side: terms of texts, and vectors of the same texts.

Rows stay in the one form the kernels take, with an entry for every column of the dense block, zeros too: what every
row has stands at the end of each row, in order, and kernels read it without looking up places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.errors import DataError

#: Rows that are joined at a time.
_ROWS_AT_ONCE = 1 << 13
#: Fewer columns that all rows have are not worth a block of their own.
_FEWEST_DENSE = 16


def is_pair(matrix: Any) -> bool:
    """Whether something is (sparse block, dense block)."""
    return isinstance(matrix, tuple) and len(matrix) == 2 and sp.issparse(matrix[0]) and not sp.issparse(matrix[1])


def join_blocks(
    sparse: Any, dense: NDArray[Any], name: str
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int64]]:
    """The data, columns and offsets of a checked CSR matrix and of a dense block behind it, which may be mapped."""
    if dense.ndim != 2 or dense.dtype.kind not in "biuf":
        raise DataError(
            f"the dense block of {name} must be a matrix of real numbers, but has {dense.ndim} dimensions of type "
            f"{dense.dtype}"
        )
    if len(dense) != sparse.shape[0]:
        raise DataError(
            f"the blocks of {name} must have the same number of rows, but have {sparse.shape[0]} and {len(dense)}"
        )
    n_rows, width = dense.shape
    begins = np.asarray(sparse.indptr, np.int64)
    indptr = begins + width * np.arange(n_rows + 1, dtype=np.int64)
    data, indices = np.empty(indptr[-1], np.float32), np.empty(indptr[-1], np.int32)
    columns = np.arange(sparse.shape[1], sparse.shape[1] + width, dtype=np.int32)
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, n_rows)
        here = slice(indptr[first], indptr[last])
        of_dense = np.zeros(indptr[last] - indptr[first], bool)
        of_dense[(indptr[first + 1 : last + 1, None] - indptr[first] - width + np.arange(width)).ravel()] = True
        with np.errstate(over="ignore"):
            data[here][of_dense] = np.asarray(dense[first:last], np.float32).ravel()
        indices[here][of_dense] = np.tile(columns, last - first)
        data[here][~of_dense] = sparse.data[begins[first] : begins[last]]
        indices[here][~of_dense] = sparse.indices[begins[first] : begins[last]]
    finite = np.isfinite(data)
    if not finite.all():
        entry = int(np.flatnonzero(~finite)[0])
        row = int(np.searchsorted(indptr, entry, side="right")) - 1
        raise DataError(
            f"{name} must hold finite 32-bit numbers, no NaN or inf, but row {row}, column {indices[entry]} is "
            f"{data[entry]}"
        )
    return data, indices, indptr


def count_dense(X: Any) -> int:
    """How many of the last columns every row of a canonical CSR matrix has; 0 if they are too few to matter."""
    n_columns, ends = X.shape[1], np.asarray(X.indptr[1:], np.int64)
    most = int(np.diff(X.indptr).min(initial=n_columns)) if X.shape[0] else 0
    found = next((k for k in range(most) if (X.indices[ends - 1 - k] != n_columns - 1 - k).any()), most)
    return found if found >= _FEWEST_DENSE else 0


def split_blocks(X: Any, width: int) -> tuple[Any, NDArray[np.float32]]:
    """A canonical CSR matrix without its last columns, which every row has, and these as a dense block."""
    ends = np.asarray(X.indptr[1:], np.int64)
    of_dense = np.zeros(len(X.data), bool)
    for first in range(0, X.shape[0], _ROWS_AT_ONCE):
        of_dense[(ends[first : first + _ROWS_AT_ONCE, None] - width + np.arange(width)).ravel()] = True
    indptr = np.asarray(X.indptr, np.int64) - width * np.arange(X.shape[0] + 1, dtype=np.int64)
    shape = (X.shape[0], X.shape[1] - width)
    sparse = sp.csr_matrix((X.data[~of_dense], X.indices[~of_dense], indptr), shape=shape)
    return sparse, X.data[of_dense].reshape(X.shape[0], width)
