"""The labels of texts in the forms that scikit-learn has: lists of names, a matrix or table, one class for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from umpteen.data.label_lists import encode_labels
from umpteen.data.matrix import Csr
from umpteen.data.targets import TargetForm, holds_classes, holds_names, is_array, plain_values, read_targets
from umpteen.errors import DataError


@dataclass(frozen=True, eq=False)
class LabelMatrix:
    """Labels as a matrix and the names of its columns; as an iterable, the list of names of each text."""

    Y: Csr
    names: list[str]

    def __iter__(self) -> Iterator[list[str]]:
        for row in np.split(self.Y.indices, self.Y.indptr[1:-1]):
            yield [self.names[label] for label in row]

    def take(self, rows: Any) -> LabelMatrix:
        """Some of the rows."""
        return LabelMatrix(self.Y[rows], self.names)


def read_labels(labels: Any) -> tuple[TargetForm | None, LabelMatrix | Iterable[Iterable[str]]]:
    """The form of labels that are not lists of names, and their matrix; lists stay as they are."""
    if not is_matrix(labels):
        return None, plain_values(labels)
    form, Y = read_targets(labels)
    return form, LabelMatrix(Y, form.names or [str(i) for i in range(Y.shape[1])])


def is_matrix(labels: Any) -> bool:
    """Whether labels are a matrix or classes, and not lists of names."""
    if isinstance(labels, (list, tuple)):
        return holds_classes(labels)
    return is_array(labels) and not holds_names(plain_values(labels))


def encode(labels: LabelMatrix | Iterable[Iterable[str]], known: list[str]) -> tuple[list[str], Csr]:
    """Label names by id and the matrix of rows that have them: the columns of a matrix as they are; of lists first
    the names known, then the others sorted."""
    if isinstance(labels, LabelMatrix) and not known:
        return labels.names, labels.Y
    return encode_labels(labels, known)


def check_rows(n_texts: int, n_labelled: int) -> None:
    if n_texts != n_labelled:
        raise DataError(f"each of the {n_texts} texts needs a list of labels, but there are {n_labelled}")
