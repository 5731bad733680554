"""Sparse matrices in the one form the kernels take: CSR, 32-bit columns sorted within a row, no duplicates."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.errors import DataError

Csr = sp.csr_matrix[Any]
INT32_MAX = int(np.iinfo(np.int32).max)


def make_csr(data: NDArray[Any], indices: NDArray[np.int32], indptr: NDArray[Any], shape: tuple[int, int]) -> Csr:
    """A SciPy matrix around arrays that are already right, without copying data or indices.

    SciPy wants offsets and indices of one width; up to 2^31 - 1 entries the offsets are narrowed. Beyond that the
    attributes are set one by one, since the constructor would widen every index.
    """
    if len(indices) <= INT32_MAX:
        matrix = sp.csr_matrix((data, indices, indptr.astype(np.int32)), shape=shape, copy=False)
    else:
        matrix = sp.csr_matrix(shape, dtype=data.dtype)
        matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix


def as_csr(matrix: Any, name: str, n_columns: int | None = None, *, values: bool = True) -> Csr:
    """Checks a user's matrix and converts what needs converting; the user's own arrays are never changed.

    Parameters
    ----------
    matrix
        SciPy sparse matrix or array, or anything numpy can read as a 2-D array.
    name
        What to call it in messages.
    n_columns
        How many columns it must have; None takes any number.
    values
        False for label matrices: stored entries become 1, stored zeros vanish.
    """
    is_sparse: bool = sp.issparse(matrix)
    if not is_sparse:
        matrix = np.asarray(matrix)
        if matrix.ndim != 2:
            raise DataError(f"{name} must have two dimensions, but has {matrix.ndim}")
        if matrix.dtype.kind not in "biuf":
            raise DataError(f"{name} must hold numbers, but its type is {matrix.dtype}")
    elif matrix.ndim != 2:
        raise DataError(f"{name} must have two dimensions, but has {matrix.ndim}")
    if n_columns is not None and matrix.shape[1] != n_columns:
        raise DataError(f"{name} must have {n_columns} columns, but has {matrix.shape[1]}")
    if max(matrix.shape) > INT32_MAX + 1:
        raise DataError(f"{name} may have at most 2147483648 rows and columns, but its shape is {matrix.shape}")
    csr: Csr = sp.csr_matrix(matrix)
    if csr.dtype.kind not in "biuf":
        raise DataError(f"{name} must hold real numbers, but its type is {csr.dtype}")
    if not csr.has_canonical_format:
        csr = csr.copy() if csr is matrix or np.shares_memory(csr.indices, matrix.indices) else csr
        csr.sum_duplicates()
    if not values:
        if csr.nnz and not np.all(csr.data):
            csr = csr.copy() if np.shares_memory(csr.data, getattr(matrix, "data", csr.data)) else csr
            csr.eliminate_zeros()
        data = np.ones(csr.nnz, np.float32)
    else:
        with np.errstate(over="ignore"):
            data = np.ascontiguousarray(csr.data, np.float32)
        if not np.isfinite(data).all():
            entry = int(np.flatnonzero(~np.isfinite(data))[0])
            row = int(np.searchsorted(csr.indptr, entry, side="right")) - 1
            raise DataError(
                f"{name} must hold finite 32-bit numbers, but row {row}, column {csr.indices[entry]} "
                f"is {csr.data[entry]}"
            )
    indices = np.ascontiguousarray(csr.indices, np.int32)
    return make_csr(data, indices, csr.indptr.astype(np.int64, copy=False), csr.shape)


def offsets(matrix: Csr) -> NDArray[np.int64]:
    """The row offsets as the kernels take them."""
    return np.ascontiguousarray(matrix.indptr, np.int64)
