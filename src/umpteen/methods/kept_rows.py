"""Training rows that a model keeps, if asked to: what new labels are trained against.

The part `kept_rows` of a model directory: X as it was given to `fit` (indptr, indices, data) and Y (label_indptr,
label_indices). A column or label that the model got later is in none of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umpteen.data.matrix import Csr, as_csr, make_csr, offsets
from umpteen.errors import DataError, ModelCorruptError
from umpteen.storage.store import Part
from umpteen.trained.model import TrainedModel

#: The name of the part.
KEPT_ROWS = "kept_rows"


@dataclass(frozen=True, eq=False)
class KeptRows:
    """Some of a model's training rows."""

    X: Csr
    Y: Csr

    @classmethod
    def sample(cls, X: Csr, Y: Csr, most: int) -> KeptRows:
        """At most so many rows, drawn at random, the same ones each time."""
        n_rows = X.shape[0]
        if n_rows <= most:
            return cls(X, Y)
        rows = np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))
        return cls(X[rows], Y[rows])

    @classmethod
    def of(cls, model: TrainedModel) -> KeptRows | None:
        """The rows a model keeps; None if it keeps none."""
        if KEPT_ROWS not in model.parts:
            return None
        return cls.from_part(model.parts[KEPT_ROWS], model.n_features, model.n_labels)

    @classmethod
    def from_part(cls, part: Part, n_features: int, n_labels: int) -> KeptRows:
        """What `to_part` has written, which is not trusted."""
        X = read_rows(part, "", n_features)
        Y = read_rows(part, "label_", n_labels)
        if X.shape[0] != Y.shape[0]:
            raise ModelCorruptError(f"the {X.shape[0]} rows kept have {Y.shape[0]} lists of labels")
        return cls(X, Y)

    def to_part(self) -> Part:
        X, Y = self.X, self.Y
        return Part(
            {
                "indptr": offsets(X),
                "indices": X.indices,
                "data": X.data,
                "label_indptr": offsets(Y),
                "label_indices": Y.indices,
            }
        )


def read_rows(part: Part, prefix: str, n_columns: int) -> Csr:
    """The sparse rows in a part's arrays, checked; values of 1 where it has none."""
    try:
        indptr, indices = part.arrays[f"{prefix}indptr"], part.arrays[f"{prefix}indices"]
        data = part.arrays["data"] if not prefix else np.ones(len(indices), np.float32)
        types = [array.dtype.name for array in (indptr, indices, data)]
        sound = indptr.ndim == indices.ndim == data.ndim == 1 and types == ["int64", "int32", "float32"]
        if not sound or not len(indptr) or indptr[0] != 0 or indptr[-1] != len(indices) or len(data) != len(indices):
            raise ModelCorruptError("rows that a model keeps must be three arrays that fit together")
        if (np.diff(indptr) < 0).any() or (len(indices) and not 0 <= indices.min() <= indices.max() < n_columns):
            raise ModelCorruptError(f"rows that a model keeps must have columns below {n_columns}")
        rows = make_csr(data, indices, indptr, (len(indptr) - 1, n_columns))
        rows.has_canonical_format = rows.has_sorted_indices = False  # look again: SciPy trusts what it is told
        return as_csr(rows, "kept rows")
    except (KeyError, DataError) as error:
        raise ModelCorruptError(f"rows that a model keeps are not usable: {error}") from error
