"""The data that shards are trained from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, make_csr


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The data that every shard is trained from; shared and read-only."""

    X: Csr  # preprocessed, without the bias column
    Y: Csr
    bias: float  # the value of the bias column; 0 if there is none
    negative_weight: float = 1.0  # how many times a row counts for the labels it lacks
    row_costs: NDArray[np.float32] | None = None  # how many times each row counts; None means once
    trust: float = 1.0  # what the excess of scores over -1 is multiplied by, once trained; see trust.py

    @cached_property
    def rows_of(self) -> Any:
        """Y by label: the rows of label l, rising, are indices[indptr[l]:indptr[l + 1]]."""
        return self.Y.tocsc()  # SciPy's conversion sorts

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "rows_of"}  # made again from Y

    def take(self, rows: NDArray[np.bool_]) -> TrainingData:
        """The data of some rows."""
        costs = None if self.row_costs is None else self.row_costs[rows]
        return replace(self, X=self.X[rows], Y=self.Y[rows], row_costs=costs)

    def without_labels(self) -> TrainingData:
        return replace(self, Y=make_csr(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(self.Y.shape[0] + 1),
                                        self.Y.shape))  # fmt: skip

    def pick_labels(self, labels: NDArray[np.int32]) -> SomeLabels:
        own = self.rows_of[:, labels]
        return SomeLabels(labels, own.indptr, own.indices)

    def with_labels(self, some: SomeLabels) -> TrainingData:
        """The same data with only these labels, which keep their ids."""
        counts = np.zeros(self.Y.shape[1] + 1, np.int64)
        counts[some.labels + 1] = np.diff(some.indptr)  # rising ids, so the rows are in order
        ones = np.ones(len(some.rows), np.float32)
        by_label = sp.csc_matrix((ones, some.rows, np.cumsum(counts).astype(some.indptr.dtype)), shape=self.Y.shape)
        return replace(self, Y=by_label.tocsr())


class SomeLabels(NamedTuple):
    """The rows of some labels, in rising order of id: those of the i-th are rows[indptr[i]:indptr[i + 1]]."""

    labels: NDArray[np.int32]
    indptr: NDArray[Any]
    rows: NDArray[Any]
