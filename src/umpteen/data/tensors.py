"""Tensors of other libraries, by DLPack: without a copy where NumPy and SciPy have the same form."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.errors import DataError


def from_tensor(tensor: Any, name: str) -> Any:
    """A tensor as a NumPy array or a sparse one, without a copy, to be checked as any other. What is no tensor comes
    back as it is.

    PyTorch's share their memory if they are strided, CSR or CSC; COO is sorted first, and numbers of fewer than 32
    bits become float32.
    """
    try:
        if hasattr(tensor, "crow_indices"):  # PyTorch's: each has the methods of every layout
            return _from_torch(tensor, name)
        if hasattr(tensor, "__dlpack__") and not hasattr(tensor, "__array__"):
            return np.from_dlpack(tensor)
    except DataError:
        raise
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"{name} is a tensor that cannot be read in place; is it on the CPU? {error}") from error
    return tensor


def _from_torch(tensor: Any, name: str) -> Any:
    layout, n_dimensions = str(tensor.layout).removeprefix("torch."), len(tensor.shape)
    if tensor.device.type != "cpu":
        raise DataError(
            f"{name} must be a tensor on the CPU, but is on {tensor.device}; {name}.cpu() copies it there"
        )
    if layout == "strided":
        return _values(tensor)
    if layout in _COMPRESSED and n_dimensions == 2:
        make, pointers, indices = _COMPRESSED[layout]
        values = tensor.values()
        parts = (_values(part) for part in (values, getattr(tensor, indices)(), getattr(tensor, pointers)()))
        return unchecked(make, *parts, shape=tuple(tensor.shape))
    if layout == "sparse_coo" and tensor.sparse_dim() == n_dimensions == 2:
        tensor = tensor.coalesce()
        return sp.coo_matrix((_values(tensor.values()), tuple(_values(tensor.indices()))), shape=tuple(tensor.shape))
    raise DataError(
        f"{name} must be a tensor of two dimensions whose layout is one of strided, sparse_coo, "
        f"{', '.join(_COMPRESSED)}, but its shape is {tuple(tensor.shape)} and its layout {layout}"
    )


def _values(tensor: Any) -> Any:
    tensor = tensor.detach()  # DLPack refuses what has a gradient
    if tensor.is_floating_point() and tensor.element_size() < 4:  # NumPy has no bfloat16, SciPy no float16
        tensor = tensor.float()
    return np.from_dlpack(tensor)


#: PyTorch's layouts, what makes SciPy's, and what the offsets and the indices are called.
_COMPRESSED = {
    "sparse_csr": (sp.csr_matrix, "crow_indices", "col_indices"),
    "sparse_csc": (sp.csc_matrix, "ccol_indices", "row_indices"),
}


def unchecked(make: Any, data: Any, indices: Any, indptr: Any, *, shape: tuple[int, ...]) -> Any:
    """A SciPy matrix around arrays as they are, to be looked at."""
    matrix = make(shape, dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    return matrix
