"""Labels as lists of names, one for each text, and as the matrix that methods take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from umpteen.data.arrow import as_list
from umpteen.data.matrix import Csr, make_csr
from umpteen.errors import DataError


def encode_labels(labels: Iterable[Iterable[str]], known: Sequence[str] = ()) -> tuple[list[str], Csr]:
    """Label names, first those known, then the others sorted, and the matrix Y of the rows that have them."""
    lists = check_label_lists(labels)
    names = [*known, *sorted({name for row in lists for name in row}.difference(known))]
    ids = {name: i for i, name in enumerate(names)}
    return names, to_label_matrix([[ids[name] for name in row] for row in lists], len(ids))


def check_label_lists(labels: Iterable[Iterable[str]]) -> list[list[str]]:
    """The label names of each text, checked."""
    lists = []
    for number, row in enumerate(as_list(labels)):
        if isinstance(row, (str, bytes)):
            raise DataError(
                f"labels must be a list of names for each text, but text {number} has the string {row!r}"[:300]
            )
        try:
            names = list(row)
        except TypeError:
            raise DataError(
                f"labels must be a list of names for each text, but text {number} has {row!r}"[:300]
            ) from None
        for name in names:
            if not isinstance(name, str) or not name:
                raise DataError(f"a label must be a non-empty string, but text {number} has {name!r}"[:300])
        lists.append(names)
    return lists


def to_label_matrix(rows: list[list[int]], n_labels: int) -> Csr:
    """Y from the label ids of each row; an id may occur twice."""
    sorted_rows = [sorted(set(row)) for row in rows]
    indices = np.array([label for row in sorted_rows for label in row], np.int32)
    indptr = np.append(0, np.cumsum([len(row) for row in sorted_rows], dtype=np.int64))
    return make_csr(np.ones(len(indices), np.float32), indices, indptr, (len(rows), n_labels))


def ids_to_matrix(labels: NDArray[np.int32], n_labels: int) -> Csr:
    """Y from the label ids of each row in any order, padded with -1; none occurs twice."""
    padding = np.iinfo(np.int32).max
    kept = np.sort(np.where(labels >= 0, labels, padding), axis=1)
    mask = kept != padding
    indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    indices = kept[mask]
    return make_csr(np.ones(len(indices), np.float32), indices, indptr, (len(labels), n_labels))
