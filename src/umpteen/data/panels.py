"""Dense panels of float32 and their products, by our own kernels: the sums of BLAS depend on its threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, offsets

Panel = NDArray[np.float32]  # n x a multiple of 16; zero beyond the rank
_LANES = 16


def pad(rank: int) -> int:
    """The width of a panel of this rank."""
    return -(-rank // _LANES) * _LANES


def multiply(X: Csr, panel: Panel, token: Any = None, threads: int = 1) -> Panel:
    """X times a panel."""
    product: Panel = _native.multiply_panel(offsets(X), X.indices, X.data, panel, threads, token)
    return product


def orthonormal(A: Panel, token: Any = None) -> Panel:
    """Orthonormal columns with the same span as A's; zero where A lacks rank."""
    for _ in range(2):  # the second pass removes rounding errors
        _, s, Vt = _native.decompose(_native.multiply_transposed(A, A, token), token)
        keep = s > 1e-10 * max(s[0], 1e-300)
        A = _native.multiply_dense(
            A, np.ascontiguousarray(Vt.T * np.where(keep, 1 / np.sqrt(np.where(keep, s, 1)), 0)), token
        )
    return A
