"""Labels that count more: `positive_weight`, how many times a row counts for the labels it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ParamError
from umpteen.params import check_number

#: A number, "balanced" or one number for each label.
PositiveWeight: TypeAlias = float | str | Sequence[float]


def check_positive_weight(weight: PositiveWeight) -> None:
    if isinstance(weight, str):
        if weight != "balanced":
            raise ParamError(
                f'positive_weight must be a number, "balanced" or one number for each label, but is {weight!r}'
            )
    elif isinstance(weight, Sequence):
        for one in weight:
            check_number("positive_weight", one, 0, above=True)
    elif isinstance(weight, np.ndarray):  # no parameter: the manifest of a model could not hold it
        raise ParamError("positive_weight must be a list, but is an array; use its tolist()")
    else:
        check_number("positive_weight", weight, 0, above=True)


def weigh_labels(weight: PositiveWeight, counts: NDArray[np.int64], n_rows: int) -> NDArray[np.float64]:
    """The weight of each label, given how many rows have it."""
    if isinstance(weight, str):
        return np.where(counts < n_rows, (n_rows - counts) / np.maximum(counts, 1), 1.0)
    if isinstance(weight, Sequence):
        if len(weight) != len(counts):
            raise ParamError(
                f"positive_weight must be one number for each of the {len(counts)} labels, "
                f"but there are {len(weight)}"
            )
        return np.array(weight, np.float64)
    return np.full(len(counts), weight, np.float64)
