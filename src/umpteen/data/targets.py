"""What users give as labels, in the forms that scikit-learn's estimators take: a matrix, sparse or dense; a table
with a column for each label; a list of names for each row; or one class for each row.

`read_targets` turns all of them into the matrix that methods train on, and remembers the form, so that predictions
have it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.arrow import is_arrow, read_values
from umpteen.data.label_lists import check_label_lists, encode_labels, to_label_matrix
from umpteen.data.matrix import Csr, as_csr, check_type, make_csr
from umpteen.data.tensors import from_tensor
from umpteen.errors import DataError

#: The most cells of a dense matrix of rows x labels: half a gigabyte of 32-bit numbers.
MOST_CELLS = 2**27


class LabelLists(list[list[str]]):
    """A list of names for each row. numpy takes it for an array of lists, so that scikit-learn's `cross_val_predict`
    can put the parts together."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        out = np.empty(len(self), object)
        out[:] = list(self)  # not np.array: rows of one length would become a matrix
        return out


@dataclass(frozen=True, eq=False)
class TargetForm:
    """The form of the labels that a model was trained on."""

    kind: Literal["sparse", "dense", "lists", "classes"] = "sparse"
    dtype: Any = np.float32
    names: list[str] | None = None
    classes: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # of rows that have one class each
    is_array: bool = False  # sparse, and scipy's array rather than its matrix

    def encode(self, targets: Any, n_labels: int) -> Csr:
        """The matrix of other labels in this form. Those that the model does not have get columns after its own."""
        if self.kind == "classes":
            return self._encode_classes(targets, n_labels)
        if self.names is not None and (self.kind == "lists" or holds_names(targets)) and not sp.issparse(targets):
            ids = {name: i for i, name in enumerate(self.names)}
            rows = [
                [ids.setdefault(name, len(ids)) for name in row] for row in check_label_lists(plain_values(targets))
            ]
            return to_label_matrix(rows, len(ids))
        return as_csr(plain_values(targets), "Y", n_labels, values=False)

    def _encode_classes(self, targets: Any, n_labels: int) -> Csr:
        given = _one_dimension(np.asarray(plain_values(targets)))
        ids = np.searchsorted(self.classes, given).clip(max=len(self.classes) - 1)
        known = self.classes[ids] == given
        return _one_hot(np.where(known, ids, n_labels), n_labels + int(not known.all()))

    def decode(self, Y: Csr) -> Any:
        """Predicted labels in this form: dense where the labels of training were, unless that would be too large."""
        if self.kind == "lists" and self.names is not None:
            return LabelLists([self.names[label] for label in row] for row in np.split(Y.indices, Y.indptr[1:-1]))
        if self.kind == "dense" and Y.shape[0] * Y.shape[1] <= MOST_CELLS:
            return Y.toarray().astype(self.dtype)
        return sp.csr_array(Y) if self.is_array else Y


def read_targets(targets: Any) -> tuple[TargetForm, Csr]:
    """The form of a user's labels, and their matrix."""
    if targets is None:
        raise DataError("training requires y to be passed, but the target y is None")
    if sp.issparse(targets):
        return TargetForm("sparse", is_array=isinstance(targets, sp.sparray)), as_csr(targets, "Y", values=False)
    names = column_names(targets)
    values = plain_values(targets)
    if sp.issparse(values):
        return TargetForm("sparse"), as_csr(values, "Y", values=False)
    if holds_names(values):
        found, Y = encode_labels(values)
        return TargetForm("lists", names=found), Y
    if not isinstance(values, np.ndarray):
        try:
            values = np.asarray(values)
        except ValueError as error:
            raise DataError("Y must be a matrix, but its rows differ in length") from error
    if values.ndim == 1 or _is_column_of_classes(values):
        return _read_classes(_one_dimension(values))
    Y = as_csr(values, "Y", values=False)
    dtype = values.dtype if values.dtype.kind in "biuf" else np.float32
    if names is not None and len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise DataError(f"the columns of Y must have different names, but two are {twice!r:.200}")
    return TargetForm("dense", dtype, None if names is None else [str(name) for name in names]), Y


def column_names(table: Any) -> NDArray[Any] | None:
    """The names of a table's columns, if all are strings."""
    columns = getattr(table, "column_names", None) or getattr(table, "columns", None)  # Arrow's name, and others'
    if columns is None:
        columns = getattr(getattr(table, "schema", None), "names", None)  # of a stream
    if columns is None or getattr(table, "ndim", 2) != 2:
        return None
    names = list(columns)
    if not names or not all(isinstance(name, str) for name in names):
        return None
    return np.array(names, object)


def plain_values(targets: Any) -> Any:
    """The values of a table or a series; anything else as it is."""
    if is_arrow(targets):
        return read_values(targets, "Y")
    if hasattr(targets, "to_numpy"):
        return _only_column(targets.to_numpy())
    tensor = from_tensor(targets, "Y")
    if sp.issparse(tensor) or isinstance(tensor, np.ndarray):
        return tensor
    if isinstance(targets, Sequence) and not isinstance(targets, (list, tuple, str, bytes)):
        return list(targets)  # a column of Hugging Face's datasets is one
    return targets


def _only_column(values: NDArray[Any]) -> NDArray[Any]:
    """The column of a table that has one, if it holds names or lists."""
    if values.ndim != 2 or values.shape[1] != 1 or values.dtype != object:
        return values
    first = next((value for value in values[:, 0] if value is not None), None)
    return values[:, 0] if isinstance(first, (str, list, tuple, set, frozenset, np.ndarray)) else values


def is_array(targets: Any) -> bool:
    """Whether these are labels in the form of an array, matrix, table or tensor, not a list or another iterable."""
    kinds = ("to_numpy", "__array__", "__dlpack__", "__arrow_c_stream__", "__arrow_c_array__")
    return sp.issparse(targets) or any(hasattr(targets, kind) for kind in kinds)


def holds_names(values: Any) -> bool:
    """Whether these are lists of strings, looking at the first row that has any."""
    if isinstance(values, np.ndarray) and (values.dtype != object or values.ndim != 1):
        return False
    if not isinstance(values, (list, tuple, np.ndarray)):
        return False
    lists = (list, tuple, set, frozenset, np.ndarray)
    rows = (row for row in values if row is not None and not (isinstance(row, lists) and len(row) == 0))
    first = next(rows, None)
    return isinstance(first, lists) and isinstance(next(iter(first)), str)


def holds_classes(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a list has one class for each row, looking at the first: a string, a number or a truth value."""
    return len(values) > 0 and isinstance(values[0], (str, int, float, np.generic))


def _is_column_of_classes(values: NDArray[Any]) -> bool:
    """Whether a matrix of one column holds more than zeros and ones."""
    if values.ndim != 2 or values.shape[1] != 1 or values.dtype.kind not in "iuUO":
        return False
    if values.dtype.kind in "UO":
        return len(values) > 0 and isinstance(values[0, 0], str)
    return bool(((values != 0) & (values != 1)).any())


def _one_dimension(values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(f"y must have one class for each row, but has {values.ndim} dimensions")
    return values


def _read_classes(y: NDArray[Any]) -> tuple[TargetForm, Csr]:
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise DataError(f"Unknown label type: row {int(np.isnan(y).argmax())} of y has no class, but nan")
    if y.dtype.kind == "f" and not (np.isfinite(y).all() and (y == np.floor(y)).all()):
        raise DataError("Unknown label type: y must hold classes or a matrix of labels, but holds fractions")
    if y.dtype.kind == "c":
        check_type(y.dtype, "y")
    if y.dtype.kind not in "biufUO":
        raise DataError(f"Unknown label type: y must hold classes or a matrix of labels, but its type is {y.dtype}")
    if len(y) == 0:
        raise DataError("training needs at least one row, but there are none")
    try:
        classes, ids = np.unique(y, return_inverse=True)
    except TypeError as error:
        for row, value in enumerate(y.tolist()):
            if value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and np.isnan(value)):
                raise DataError(f"Unknown label type: row {row} of y has no class, but {value}") from error
        raise DataError(f"Unknown label type: the classes of y must be of one type: {error}") from error
    form = TargetForm("classes", names=[str(name) for name in classes.tolist()], classes=classes)
    return form, _one_hot(ids, len(classes))


def _one_hot(ids: NDArray[Any], n_labels: int) -> Csr:
    n_rows = len(ids)
    return make_csr(np.ones(n_rows, np.float32), ids.astype(np.int32), np.arange(n_rows + 1), (n_rows, n_labels))
