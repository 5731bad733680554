"""How good decisions are: precision, recall and F1 of the labels that rows are given.

    micro       of all pairs of row and label
    macro       the mean over labels
    per row     the mean over rows

A precision, recall or F1 that would divide by 0 is 0, as in scikit-learn.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr
from umpteen.evaluation.metrics import find_hits

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measures:
    """In percent."""

    precision: float
    recall: float
    F1: float


@dataclass(frozen=True)
class Decisions:
    """Measures of the labels given, and how many there are in a row on average."""

    micro: Measures
    macro: Measures
    per_row: Measures
    labels_given: float
    labels_true: float
    #: The least probability of a label that was given; None if that was not what decided.
    threshold: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        rule = "" if self.threshold is None else f", from {self.threshold:.2f} on"
        lines = [
            f"labels given{rule}: {self.labels_given:.2f} a row, where {self.labels_true:.2f} are right",
            f"{'':8}{'precision':>10}{'recall':>8}{'F1':>8}",
        ]
        for name, found in (("micro", self.micro), ("macro", self.macro), ("per row", self.per_row)):
            lines.append(f"{name:<8}{found.precision:10.2f}{found.recall:8.2f}{found.F1:8.2f}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        from umpteen.evaluation.report import paragraph, table

        rule = "" if self.threshold is None else f", from {self.threshold:.2f} on"
        rows = [
            [name, f"{found.precision:.2f}", f"{found.recall:.2f}", f"{found.F1:.2f}"]
            for name, found in (("micro", self.micro), ("macro", self.macro), ("per row", self.per_row))
        ]
        given = f"labels given{rule}: {self.labels_given:.2f} a row, where {self.labels_true:.2f} are right"
        return paragraph(given) + table(["", "precision", "recall", "F1"], rows)


def evaluate_decisions(
    Y: Csr, labels: NDArray[np.int32], threshold: float | None = None, threads: int | None = None
) -> Decisions:
    """Judges the labels that rows are given.

    Parameters
    ----------
    Y : n_rows x n_labels
        The true labels.
    labels : n_rows x width
        Label ids given to each row, none twice, padded with -1.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> Y = sp.csr_matrix(np.array([[1, 1, 0], [0, 1, 0]], np.float32))
    >>> print(evaluate_decisions(Y, np.array([[0, 2], [1, -1]], np.int32)))
    labels given: 1.50 a row, where 1.50 are right
             precision  recall      F1
    micro        66.67   66.67   66.67
    macro        66.67   50.00   55.56
    per row      75.00   75.00   75.00
    """
    n_rows, n_labels = Y.shape
    labels = np.ascontiguousarray(labels)
    given, hits = labels >= 0, find_hits(Y, labels, threads) & (labels >= 0)
    by_label = [
        np.bincount(labels[hits], minlength=n_labels),
        np.bincount(labels[given], minlength=n_labels),
        np.bincount(Y.indices, minlength=n_labels),
    ]
    by_row = [hits.sum(axis=1), given.sum(axis=1), np.diff(Y.indptr)]
    totals = [counts.sum(keepdims=True) for counts in by_row]
    per_row = totals[1][0] / n_rows, totals[2][0] / n_rows
    return Decisions(_measure(*totals), _measure(*by_label), _measure(*by_row), *per_row, threshold)


def _measure(hits: NDArray[Any], given: NDArray[Any], true: NDArray[Any]) -> Measures:
    """Means over the entries."""

    def mean(part: NDArray[Any], whole: NDArray[Any]) -> float:
        return float(100 * np.mean(part / np.maximum(whole, 1)))

    return Measures(mean(hits, given), mean(hits, true), mean(2 * hits, given + true))
