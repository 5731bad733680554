"""Measures for labels that stand above each other: who suggests the parent of a right label is not all wrong."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from umpteen.data.matrix import Csr, as_csr, make_csr
from umpteen.errors import DataError
from umpteen.params import check_count

#: Rows that are judged at a time.
_ROWS = 4096


class HierarchicalMetrics(NamedTuple):
    """In percent."""

    precision: float
    recall: float
    f1: float


def close_upwards(broader: Any, max_steps: int | None = None) -> Csr:
    """Every label with all above it, n x n, sparse: 1 in row i, column j where j is i or an ancestor of i.

    Parameters
    ----------
    broader : sparse, n x n
        Non-zero in row i, column j where j is directly above i. Cycles are no harm.
    max_steps
        How far up to go; by default to the top.
    """
    above = as_csr(broader, "broader", values=False)
    if above.shape[0] != above.shape[1]:
        raise DataError(f"broader must be as wide as it is high, but is {above.shape[0]} x {above.shape[1]}")
    above = make_csr(np.ones(above.nnz, np.float32), above.indices, above.indptr, above.shape)
    closed = as_csr(sp.identity(above.shape[0], np.float32, format="csr"), "closed")
    steps = 0
    while max_steps is None or steps < max_steps:
        wider = as_csr(sp.csr_matrix(closed + closed @ above), "closed")
        wider.data[:] = 1
        if wider.nnz == closed.nnz:
            break
        closed, steps = wider, steps + 1
    return closed


def evaluate_hierarchy(Y: Any, labels: ArrayLike, ancestors: Csr, k: int = 5) -> HierarchicalMetrics:
    """Precision and recall of the first k labels of each row, both sides completed by all labels above them, summed
    over rows (Kiritchenko et al., 2006).

    Parameters
    ----------
    Y : sparse, n_rows x n_labels
    labels : int, n_rows x at least k
        Label ids, best first, padded with -1, as `predict_topk` gives them.
    ancestors : sparse, n_labels x n_labels
        As `close_upwards` makes it.

    Examples
    --------
    >>> import numpy as np
    >>> broader = np.array([[0, 0, 0], [1, 0, 0], [1, 0, 0]])  # 0 is above 1 and 2
    >>> evaluate_hierarchy([[0, 1, 0]], [[2]], close_upwards(broader), k=1)  # {1, 0} was right, {2, 0} is given
    HierarchicalMetrics(precision=50.0, recall=50.0, f1=50.0)
    """
    targets, found = as_csr(Y, "Y", ancestors.shape[0], values=False), np.asarray(labels, np.int64)
    k = check_count("k", k)
    if found.ndim != 2 or len(found) != targets.shape[0]:
        raise DataError(f"labels must have {targets.shape[0]} rows, as Y has, but their shape is {found.shape}")
    if found.size and not -1 <= int(found.min()) <= int(found.max()) < ancestors.shape[0]:
        raise DataError(f"labels must be -1 or ids below {ancestors.shape[0]}, but one is {int(found.max())}")
    right, given, both = 0, 0, 0
    for begin in range(0, len(found), _ROWS):
        true = _complete(targets[begin : begin + _ROWS], ancestors)
        said = _complete(_to_matrix(found[begin : begin + _ROWS, :k], ancestors.shape[0]), ancestors)
        right, given, both = right + true.nnz, given + said.nnz, both + true.multiply(said).nnz
    precision, recall = (100 * both / n if n else 0.0 for n in (given, right))
    return HierarchicalMetrics(
        precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    )


def _to_matrix(labels: NDArray[np.int64], n_labels: int) -> Csr:
    rows, places = np.nonzero(labels >= 0)
    ones = np.ones(len(rows), np.float32)
    return as_csr(sp.csr_matrix((ones, (rows, labels[rows, places])), shape=(len(labels), n_labels)), "labels")


def _complete(rows: Any, ancestors: Csr) -> Any:
    found = sp.csr_matrix(rows @ ancestors)
    found.data[:] = 1
    return found
