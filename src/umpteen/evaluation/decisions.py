"""How good decisions are: precision, recall and F1 of the labels that rows are given.

    micro       of all pairs of row and label
    macro       the mean over labels
    per row     the mean over rows

A precision, recall or F1 that would divide by 0 is 0, as in scikit-learn.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr
from umpteen.data.propensity import LabelCounts
from umpteen.evaluation.metrics import find_hits, keep_labels

_KNOWN_ONLY = "only rows with a label seen in training, and only such labels"


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
    #: The same of rows with a label seen in training, counting only such labels; None if there are no others.
    known_only: Decisions | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [self._summary(), f"{'':8}{'precision':>10}{'recall':>8}{'F1':>8}", *self._rows()]
        if self.known_only is not None:
            lines += [_KNOWN_ONLY, *self.known_only._rows()]
        return "\n".join(lines)

    def _summary(self) -> str:
        rule = "" if self.threshold is None else f", from {self.threshold:.2f} on"
        return f"labels given{rule}: {self.labels_given:.2f} a row, where {self.labels_true:.2f} are right"

    def _rows(self) -> list[str]:
        return [
            f"{name:<8}{found.precision:10.2f}{found.recall:8.2f}{found.F1:8.2f}" for name, found in self.measures()
        ]

    def measures(self) -> list[tuple[str, Measures]]:
        return [("micro", self.micro), ("macro", self.macro), ("per row", self.per_row)]

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        from umpteen.evaluation.report import paragraph, table

        def show(of: Decisions) -> str:
            rows = [
                [name, f"{found.precision:.2f}", f"{found.recall:.2f}", f"{found.F1:.2f}"]
                for name, found in of.measures()
            ]
            return table(["", "precision", "recall", "F1"], rows)

        whole = paragraph(self._summary()) + show(self)
        return whole if self.known_only is None else whole + paragraph(_KNOWN_ONLY) + show(self.known_only)


def evaluate_decisions(
    Y: Csr,
    labels: NDArray[np.int32],
    threshold: float | None = None,
    threads: int | None = None,
    train_counts: LabelCounts | None = None,
) -> Decisions:
    """Judges the labels that rows are given.

    Parameters
    ----------
    Y : n_rows x n_labels
        The true labels.
    labels : n_rows x width
        Label ids given to each row, none twice, padded with -1.
    train_counts
        Of the labels, to tell which were seen in training; without it all were.

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
    labels = np.ascontiguousarray(labels)
    seen = np.ones(Y.shape[1], bool) if train_counts is None else train_counts.counts > 0
    found = _judge(Y, labels, np.ones(Y.shape[1], bool), threads)
    known = keep_labels(Y, seen)
    judged = np.diff(known.indptr) > 0
    only = None
    if judged.any() and not (judged.all() and known.nnz == Y.nnz):
        only = _judge(known[judged], labels[judged], seen, threads)
    return replace(found, threshold=threshold, known_only=only)


def _judge(Y: Csr, labels: NDArray[np.int32], counted: NDArray[np.bool_], threads: int | None) -> Decisions:
    """Judges labels; macro means are over those that count."""
    n_rows, n_labels = Y.shape
    given, hits = labels >= 0, find_hits(Y, labels, threads) & (labels >= 0)
    by_label = [
        np.bincount(labels[hits], minlength=n_labels),
        np.bincount(labels[given], minlength=n_labels),
        np.bincount(Y.indices, minlength=n_labels),
    ]
    by_row = [hits.sum(axis=1), given.sum(axis=1), np.diff(Y.indptr)]
    totals = [counts.sum(keepdims=True) for counts in by_row]
    per_row = totals[1][0] / n_rows, totals[2][0] / n_rows
    macro = _measure(*(counts[counted] for counts in by_label))
    return Decisions(_measure(*totals), macro, _measure(*by_row), *per_row)


def _measure(hits: NDArray[Any], given: NDArray[Any], true: NDArray[Any]) -> Measures:
    """Means over the entries."""

    def mean(part: NDArray[Any], whole: NDArray[Any]) -> float:
        return float(100 * np.mean(part / np.maximum(whole, 1)))

    return Measures(mean(hits, given), mean(hits, true), mean(2 * hits, given + true))
