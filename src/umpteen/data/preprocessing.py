"""The steps applied to X before training, stored with the model, and applied again before prediction.

    Preprocessing(power=0.5, tfidf=False, normalize=True, bias=1.0)

In this order: columns behind the first `columns` are left out, values are raised to a power, counts are weighted by
inverse document frequency, rows are scaled to unit length, a constant column is appended. Linear models keep the
weights of that last column as their bias, so `transform` does not append it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, make_csr, offsets
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.params import check_count, check_flag, check_number
from umpteen.threads import resolve_threads

_AT_A_TIME = 1 << 20


@dataclass(frozen=True)
class Preprocessing:
    """Steps between a user's X and the X a method trains on.

    Parameters
    ----------
    tfidf
        Weight values, which must not be negative, by ``idf = 1 + ln((1 + n_rows) / (1 + rows with the feature))``,
        counted on the training rows.
    normalize
        Scale rows to unit Euclidean length.
    bias
        The value of the constant column; 0 leaves it out.
    power
        From 0 to 1. Values are raised to this power and keep their sign: 0.5 damps large values; 0 leaves only signs.
    columns
        Take only so many of the first columns, where others are of another model; None takes all.
    """

    tfidf: bool = False
    normalize: bool = True
    bias: float = 0.0
    idf: NDArray[np.float32] | None = None
    power: float = 1.0
    columns: int | None = None

    def __post_init__(self) -> None:
        check_flag("tfidf", self.tfidf)
        check_flag("normalize", self.normalize)
        check_number("bias", self.bias, 0)
        if check_number("power", self.power, 0) > 1:
            raise ParamError(f"power must be at most 1, but is {self.power!r}")
        if self.columns is not None:
            check_count("columns", self.columns)

    def fit(self, X: Csr) -> Preprocessing:
        """The same steps with the idf counted on the training rows."""
        if not self.tfidf:
            return self
        rows_with = np.zeros(X.shape[1], np.int64)
        for start in range(0, X.nnz, _AT_A_TIME):
            some = slice(start, start + _AT_A_TIME)
            rows_with += np.bincount(X.indices[some][X.data[some] != 0], minlength=X.shape[1])
        idf = 1 + np.log((1 + X.shape[0]) / (1 + rows_with))
        return replace(self, idf=idf.astype(np.float32))

    def transform(self, X: Csr, *, threads: int | None = None) -> Csr:
        """X (n_rows x n_features) weighted and scaled, without the bias column. X itself is not changed."""
        if self.columns is not None and self.columns < X.shape[1]:
            X = _take_columns(X, self.columns)
        data = X.data
        if self.power != 1:
            data = np.abs(X.data)
            if self.power == 0.5:
                np.sqrt(data, out=data)
            else:
                np.power(data, np.float32(self.power), out=data, where=data > 0)  # stored zeros stay 0
            np.copysign(data, X.data, out=data)
        if self.tfidf:
            if self.idf is None or len(self.idf) != X.shape[1]:
                n_counted = 0 if self.idf is None else len(self.idf)
                raise DataError(f"X must have the {n_counted} features of the idf, but has {X.shape[1]}")
            if X.nnz and X.data.min() < 0:
                raise DataError(f"tf-idf needs values of at least 0, but X has {X.data.min()}")
            weights = self.idf[X.indices]
            weights *= data
            data = weights
        if self.normalize:
            data = _native.normalize_rows(offsets(X), X.indices, data, X.shape[1], resolve_threads(threads))
        return X if data is X.data else _with_data(X, data)

    def bytes_per_value(self) -> int:
        """The most bytes that `transform` needs beyond X, for each of its values."""
        steps = (self.power != 1) + bool(self.tfidf) + bool(self.normalize)
        return min(4 * steps + (self.power != 1), 9)

    def append_bias(self, X: Csr) -> Csr:
        """X with the constant column appended, or X itself if the bias is 0."""
        if self.bias == 0:
            return X
        column = sp.csr_matrix(np.full((X.shape[0], 1), self.bias, np.float32))
        with_bias: Csr = sp.hstack([X, column], format="csr", dtype=np.float32)
        return with_bias

    @classmethod
    def from_json(cls, steps: Any, idf: NDArray[np.float32] | None) -> Preprocessing:
        """The steps stored in a model, which are not trusted."""
        if not isinstance(steps, dict) or set(steps) - {"power", "columns"} != {"tfidf", "normalize", "bias"}:
            found = sorted(map(str, steps)) if isinstance(steps, dict) else steps
            raise ModelCorruptError(f"preprocessing must have tfidf, normalize and bias, but has {found!r:.100}")
        if steps["tfidf"] and idf is None:
            raise ModelCorruptError("the part with the idf is missing")
        return cls(**steps, idf=idf if steps["tfidf"] else None)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes; a power of 1 and `columns` of None are left out, as in models from before the
        parameters existed."""
        steps: dict[str, Any] = {
            "tfidf": bool(self.tfidf),
            "normalize": bool(self.normalize),
            "bias": float(self.bias),
        }
        if self.power != 1:
            steps["power"] = float(self.power)
        return steps if self.columns is None else steps | {"columns": int(self.columns)}


def _take_columns(X: Csr, n: int) -> Csr:
    """The same shape, with nothing behind the first columns."""
    kept = X.indices < n
    indptr = np.append(0, np.cumsum(kept))[X.indptr]
    return make_csr(X.data[kept], X.indices[kept], indptr, X.shape)


def _with_data(X: Csr, data: NDArray[np.float32]) -> Csr:
    return make_csr(data, X.indices, X.indptr, X.shape)
