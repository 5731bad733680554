"""Sparse matrices in the one form the kernels take: CSR, 32-bit columns sorted within a row, no duplicates."""

from __future__ import annotations

import hashlib
import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.arrow import is_arrow, read_matrix
from umpteen.data.blocks import is_pair, join_blocks
from umpteen.data.tensors import from_tensor, unchecked
from umpteen.errors import DataError

if TYPE_CHECKING:
    Csr = sp.csr_matrix[Any]
else:
    Csr = sp.csr_matrix  # which older releases of SciPy cannot subscript
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
        SciPy sparse matrix or array, or anything numpy can read as a 2-D array; or, of values, a pair of these,
        (sparse block, dense block), whose columns come one behind the other.
    name
        What to call it in messages.
    n_columns
        How many columns it must have; None takes any number.
    values
        False for label matrices: stored entries become 1, stored zeros vanish.
    """
    if values and isinstance(matrix, tuple) and len(matrix) == 2:
        matrix = tuple(from_tensor(block, name) for block in matrix)
    if values and is_pair(matrix):
        matrix = _join_pair(matrix[0], matrix[1], name)
    if hasattr(matrix, "sparse") and hasattr(matrix.sparse, "to_coo"):  # a pandas table of sparse columns
        matrix = matrix.sparse.to_coo()
    elif is_arrow(matrix):
        matrix = read_matrix(matrix, name)
    else:
        matrix = from_tensor(matrix, name)
    is_sparse: bool = sp.issparse(matrix)
    if not is_sparse:
        try:
            matrix = np.asarray(matrix)
        except ValueError as error:
            raise DataError(f"{name} must be a matrix, but its rows differ in length") from error
        except TypeError as error:
            raise DataError(f"{name} must be a matrix, but is none: {error}") from error
        if matrix.ndim != 2:
            raise DataError(
                f"{name} must have two dimensions, but has {matrix.ndim}. "
                f"Reshape your data: {name}.reshape(1, -1) is one row"
            )
        if matrix.dtype == object:
            try:
                matrix = matrix.astype(np.float64)
            except (TypeError, ValueError, OverflowError) as error:
                raise DataError(f"{name} must hold numbers only: {error}") from error
        check_type(matrix.dtype, name)
        matrix = matrix.astype(matrix.dtype.newbyteorder("="), copy=False)  # SciPy has no other byte order
        if matrix.dtype == np.float16:  # nor a sparse float16
            matrix = matrix.astype(np.float32)
    elif matrix.ndim != 2:
        raise DataError(f"{name} must have two dimensions, but has {matrix.ndim}")
    if n_columns is not None and matrix.shape[1] != n_columns:
        raise DataError(f"{name} must have {n_columns} columns, but has {matrix.shape[1]}")
    if max(matrix.shape) > INT32_MAX:
        raise DataError(f"{name} may have at most {INT32_MAX} rows and columns, but its shape is {matrix.shape}")
    if is_sparse:
        matrix = _check_sparse(matrix, name)
    if values and _is_right(matrix):
        return matrix  # type: ignore[no-any-return]
    csr: Csr = sp.csr_matrix(matrix)
    check_type(csr.dtype, name)
    if not csr.has_canonical_format:
        csr = csr.copy() if csr is matrix or np.shares_memory(csr.indices, matrix.indices) else csr
        csr.sum_duplicates()
    if not values:
        bad = ~((csr.data >= 0) & np.isfinite(csr.data))
        if bad.any():
            wrong = csr.data[bad][0]
            raise DataError(f"{name} must hold 0 where a row lacks a label and 1 where it has it, but holds {wrong}")
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
                f"{name} must hold finite 32-bit numbers, no NaN or inf, but row {row}, column {csr.indices[entry]} "
                f"is {csr.data[entry]}"
            )
    indices = np.ascontiguousarray(csr.indices, np.int32)
    return make_csr(data, indices, csr.indptr.astype(np.int64, copy=False), csr.shape)


def _join_pair(sparse: Any, dense: Any, name: str) -> Csr:
    sparse = as_csr(sparse, f"the sparse block of {name}")
    try:
        dense = np.asarray(dense)
    except ValueError as error:
        raise DataError(f"the dense block of {name} must be a matrix, but its rows differ in length") from error
    data, indices, indptr = join_blocks(sparse, dense, name)
    if sparse.shape[1] + dense.shape[1] > INT32_MAX:
        raise DataError(f"{name} may have at most {INT32_MAX} columns")
    return make_csr(data, indices, indptr, (sparse.shape[0], sparse.shape[1] + dense.shape[1]))


def check_type(dtype: Any, name: str) -> None:
    if dtype.kind == "c":
        raise DataError(f"Complex data not supported: {name} must hold real numbers, but its type is {dtype}")
    if dtype.kind not in "biuf":
        raise DataError(f"{name} must hold real numbers, but its type is {dtype}")


def _is_right(matrix: Any) -> bool:
    """Whether a matrix is as the kernels take it: most are, and one row is scored faster than a matrix is made."""
    return (
        type(matrix) is sp.csr_matrix
        and matrix.data.dtype == np.float32
        and matrix.indices.dtype == np.int32
        and matrix.data.flags.c_contiguous
        and matrix.indices.flags.c_contiguous
        and bool(matrix.has_canonical_format)
        and bool(np.isfinite(matrix.data).all())
    )


def _check_sparse(matrix: Any, name: str) -> Any:
    """Refuses what SciPy would crash on: it trusts the arrays of a matrix once made. Returns the matrix; of formats
    that are lists and dicts, a CSR of it."""
    format = matrix.format
    try:
        if format in _RARE:
            matrix = _RARE[format](matrix, name)
        if matrix.format == "coo":
            arrays = (matrix.row, matrix.col)
        else:
            arrays = (matrix.indptr, matrix.indices)
        for array in (*arrays, matrix.data):
            if array.ndim != 1 or not array.dtype.isnative:
                raise ValueError(
                    f"its arrays must have one dimension, in this machine's byte order: {array.dtype.str}"
                )
        if any(array.dtype.kind not in "iu" for array in arrays):
            raise ValueError("its indices must be integers")
        _check_indices(matrix, name)
    except DataError:
        raise
    except (TypeError, ValueError, OverflowError, LookupError, AttributeError) as error:
        raise DataError(f"{name} is a broken {format} matrix ({error})") from error
    return matrix


def _from_lil(matrix: Any, name: str) -> Csr:
    n_rows = matrix.shape[0]
    lengths = [len(row) for row in matrix.rows]
    if len(lengths) != n_rows or lengths != [len(row) for row in matrix.data]:
        raise ValueError("each row must have as many columns as values")
    indices = np.fromiter((operator.index(i) for row in matrix.rows for i in row), np.int64, sum(lengths))
    data = np.fromiter((value for row in matrix.data for value in row), matrix.dtype, sum(lengths))
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    csr: Csr = unchecked(sp.csr_matrix, data, indices, indptr, shape=matrix.shape)
    return csr


def _from_dok(matrix: Any, name: str) -> Csr:
    places = np.array([(operator.index(i), operator.index(j)) for i, j in matrix.keys()], np.int64)  # noqa: SIM118
    places = places.reshape(len(matrix.keys()), 2)
    data = np.fromiter(matrix.values(), matrix.dtype, len(places))
    for axis, size in enumerate(matrix.shape):
        _check_range(places[:, axis], size, name)
    csr: Csr = sp.csr_matrix((data, (places[:, 0], places[:, 1])), shape=matrix.shape)
    return csr


def _from_dia(matrix: Any, name: str) -> Csr:
    offsets, data = np.asarray(matrix.offsets), matrix.data
    if offsets.dtype.kind not in "iu" or data.ndim != 2 or offsets.shape != data.shape[:1]:
        raise ValueError("each diagonal must have an offset")
    csr: Csr = sp.csr_matrix(sp.dia_matrix((data.astype(data.dtype.newbyteorder("=")), offsets), shape=matrix.shape))
    return csr


def _from_bsr(matrix: Any, name: str) -> Csr:
    n, rows, columns = matrix.data.shape
    blocks = (matrix.shape[0] // max(rows, 1), matrix.shape[1] // max(columns, 1))
    if (blocks[0] * rows, blocks[1] * columns) != matrix.shape or n != len(matrix.indices):
        raise ValueError("its blocks must fill it")
    outline = unchecked(sp.csr_matrix, np.ones(n, np.float32), matrix.indices, matrix.indptr, shape=blocks)
    _check_sparse(outline, f"the outline of {name}")
    csr: Csr = sp.csr_matrix(matrix)
    return csr


#: Formats that are turned into CSR before anything of SciPy's looks at them.
_RARE = {"lil": _from_lil, "dok": _from_dok, "dia": _from_dia, "bsr": _from_bsr}


def _check_indices(matrix: Any, name: str) -> None:
    for axis, format in enumerate(("csr", "csc")):
        if matrix.format != format:
            continue
        indptr, indices, n_minor = matrix.indptr, matrix.indices, matrix.shape[1 - axis]
        if len(indptr) != matrix.shape[axis] + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
            raise DataError(f"{name}'s indptr must rise from 0 to its {len(indices)} indices, but does not")
        if (indptr[1:] < indptr[:-1]).any() or len(matrix.data) != len(indices):
            raise DataError(f"{name}'s indptr must rise from 0 to its {len(indices)} indices, but does not")
        _check_range(indices, n_minor, name)
    if matrix.format == "coo":
        if not len(matrix.row) == len(matrix.col) == len(matrix.data):
            raise DataError(f"{name} must have a row and a column for each of its {len(matrix.data)} values")
        _check_range(matrix.row, matrix.shape[0], name)
        _check_range(matrix.col, matrix.shape[1], name)


def _check_range(indices: NDArray[Any], size: int, name: str) -> None:
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise DataError(f"{name}'s indices must be in [0, {size}), but one is {wrong}")


def offsets(matrix: Csr) -> NDArray[np.int64]:
    """The row offsets as the kernels take them."""
    return np.ascontiguousarray(matrix.indptr, np.int64)


def fingerprint_array(array: NDArray[Any]) -> str:
    """A hash of an array's content."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def fingerprint(matrix: Csr) -> str:
    """A hash of a matrix's content, so that a run is only ever resumed on the data it began with."""
    digest = hashlib.sha256(repr(matrix.shape).encode())
    for array in (matrix.indptr.astype(np.int64, copy=False), matrix.indices, matrix.data):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
