"""Rows with their features and labels, and optional names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.data.matrix import Csr, as_csr
from umpteen.errors import DataError
from umpteen.memory import Estimate, check_fits


@dataclass(frozen=True, eq=False)
class Dataset:
    """A multi-label data set.

    Parameters
    ----------
    X : sparse matrix or array, n_rows x n_features
        Stored as CSR float32 with sorted 32-bit columns.
    Y : sparse matrix or array, n_rows x n_labels
        The labels of each row: any entry above 0. Stored as CSR of ones.
    label_names, feature_names : sequence of str, optional
        One name per column of Y or X.

    Examples
    --------
    >>> data = Dataset([[1.0, 0.0], [0.5, 2.0]], [[1, 0, 1], [0, 1, 0]], label_names=["a", "b", "c"])
    >>> data.n_rows, data.n_features, data.n_labels
    (2, 2, 3)
    """

    X: Csr
    Y: Csr
    label_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None

    def __init__(
        self,
        X: Any,
        Y: Any,
        label_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        # Frozen, so that no other code can change shared data; set once here, after checks.
        object.__setattr__(self, "X", as_csr(X, "X"))
        object.__setattr__(self, "Y", as_csr(Y, "Y", values=False))
        object.__setattr__(self, "label_names", _check_names(label_names, self.n_labels, "label"))
        object.__setattr__(self, "feature_names", _check_names(feature_names, self.n_features, "feature"))
        if self.X.shape[0] != self.Y.shape[0]:
            raise DataError(
                f"X and Y must have the same number of rows, but have {self.X.shape[0]} and {self.Y.shape[0]}"
            )

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_labels(self) -> int:
        return int(self.Y.shape[1])

    def take(self, rows: ArrayLike) -> Dataset:
        """A data set of these rows, in this order; `rows` may be ids or a boolean mask."""
        chosen = np.asarray(rows)
        return Dataset(self.X[chosen], self.Y[chosen], self.label_names, self.feature_names)

    def label_counts(self) -> NDArray[np.int64]:
        """How many rows each label has."""
        check_fits(Estimate(16 * self.n_labels, 0), "are there really so many labels?")
        return np.bincount(self.Y.indices, minlength=self.n_labels).astype(np.int64)

    def __repr__(self) -> str:
        return f"Dataset(n_rows={self.n_rows}, n_features={self.n_features}, n_labels={self.n_labels})"


def _check_names(names: Sequence[str] | None, n: int, kind: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if len(names) != n:
        raise DataError(f"there must be {n} {kind} names, but there are {len(names)}")
    return tuple(str(name) for name in names)
