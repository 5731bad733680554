"""The labels of texts in the forms that scikit-learn has: lists of names, a matrix or table, one class for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from umpteen.data.label_lists import to_label_matrix
from umpteen.data.matrix import Csr
from umpteen.data.targets import TargetForm, is_array, plain_values, read_targets


@dataclass(frozen=True, eq=False)
class LabelForm:
    """The form of labels that are not lists of names, and what their columns or classes are called."""

    form: TargetForm
    names: list[str]

    def to_lists(self, labels: Any) -> list[list[str]]:
        """Other labels of this form as lists of names; a class that was not there in training is called by itself."""
        if self.form.kind == "classes":
            return [[str(name)] for name in np.asarray(plain_values(labels)).ravel().tolist()]
        return _lists(self.form.encode(labels, len(self.names)), self.names)

    def from_lists(self, lists: Sequence[Sequence[str]]) -> Any:
        """Predicted names in this form. A text without any gets the first class."""
        ids = {name: i for i, name in enumerate(self.names)}
        if self.form.kind == "classes":
            return self.form.classes[[ids[row[0]] if row else 0 for row in lists]]
        return self.form.decode(to_label_matrix([[ids[name] for name in row] for row in lists], len(ids)))


def read_labels(labels: Any) -> tuple[LabelForm | None, Iterable[Iterable[str]]]:
    """The labels as lists of names, and their form if it is another."""
    if not is_array(labels):
        return None, labels
    form, Y = read_targets(labels)
    if form.kind == "lists":
        return None, plain_values(labels)
    names = form.names or [str(i) for i in range(Y.shape[1])]
    return LabelForm(form, names), _lists(Y, names)


def _lists(Y: Csr, names: Sequence[str]) -> list[list[str]]:
    return [[names[label] for label in row] for row in np.split(Y.indices, Y.indptr[1:-1])]
