"""How good decisions are label by label, which labels are confused, and what another threshold would change.

A pair is a row and a label. It is true if the row has the label, given if the label was given to the row. A ratio
whose denominator is 0 is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, make_csr
from umpteen.evaluation.metrics import find_hits

Ids = NDArray[np.int32]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Arrays with a value for each label.

    Attributes
    ----------
    support
        Rows that have the label.
    tp, fp, fn
        Rows that were rightly given it, wrongly given it, and not given it though they have it.
    expected, right
        Of the rows where the label is among the best ranked: the mean of its probability, and the share that has it.
        The closer, the better calibrated; NaN where it was never ranked.
    """

    support: Ints
    tp: Ints
    fp: Ints
    fn: Ints
    expected: Floats
    right: Floats

    @property
    def precision(self) -> Floats:
        return _share(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> Floats:
        return _share(self.tp, self.support)

    @property
    def F1(self) -> Floats:
        return _share(2 * self.tp, 2 * self.tp + self.fp + self.fn)

    @property
    def calibration(self) -> Floats:
        """How much too high probabilities are; below 0, too low."""
        return self.expected - self.right


def judge_labels(Y: Csr, given: Ids, ranked: Ids, probabilities: Any) -> LabelTable:
    """Judges decisions label by label.

    Parameters
    ----------
    Y : n_rows x n_labels
    given : n_rows x width
        Ids of the labels that rows were given, padded with -1.
    ranked, probabilities : n_rows x depth
        The best labels of each row, whether or not they were given, padded with -1.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> Y = sp.csr_matrix(np.array([[1, 1], [0, 1]], np.float32))
    >>> given = np.array([[0, -1], [0, 1]], np.int32)
    >>> found = judge_labels(Y, given, given, np.array([[0.5, 0], [0.75, 0.5]]))
    >>> found.tp.tolist(), found.fp.tolist(), found.fn.tolist(), found.expected.tolist(), found.right.tolist()
    ([1, 1], [1, 0], [0, 1], [0.625, 0.5], [0.5, 1.0])
    """
    n_labels = Y.shape[1]

    def count(labels: Any, weights: Any = None) -> Any:
        return np.bincount(labels, weights, minlength=n_labels)

    mask, hits = given >= 0, find_hits(Y, np.ascontiguousarray(given))
    support, tp = count(Y.indices), count(given[mask & hits])
    seen, right = ranked >= 0, find_hits(Y, np.ascontiguousarray(ranked))
    n_seen = count(ranked[seen])
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = count(ranked[seen], np.asarray(probabilities, np.float64)[seen]) / n_seen
        share_right = count(ranked[seen & right]) / n_seen
    return LabelTable(support, tp, count(given[mask]) - tp, support - tp, expected, share_right)


def find_confusions(Y: Csr, given: Ids, most: int = 50) -> list[tuple[int, int, int]]:
    """Which labels stand in for which: pairs of a label that a row has and was not given, and one it was given and
    does not have, with how many rows have that pair; most frequent first."""
    hits = find_hits(Y, np.ascontiguousarray(given))
    rows, columns = np.nonzero((given >= 0) & ~hits)
    wrong = _matrix(rows, given[rows, columns], Y.shape)
    rows, columns = np.nonzero((given >= 0) & hits)
    right = _matrix(rows, given[rows, columns], Y.shape)
    missed = make_csr(np.ones(Y.nnz, np.float32), Y.indices, Y.indptr, Y.shape) - right
    missed.eliminate_zeros()
    both = (missed.T @ wrong).tocoo()
    order = np.lexsort((both.col, both.row, -both.data))[:most]
    return [(int(both.row[i]), int(both.col[i]), int(both.data[i])) for i in order]


def _matrix(rows: Any, labels: Any, shape: tuple[int, int]) -> Csr:
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
    matrix = make_csr(np.ones(len(labels), np.float32), labels.astype(np.int32), indptr, shape)
    matrix.sort_indices()
    return matrix


def sweep_thresholds(Y: Csr, ranked: Ids, probabilities: Any, points: int = 60) -> dict[str, Floats]:
    """What precision, recall, F1 and the labels per row would be at other thresholds, of all pairs that are ranked.

    Returns
    -------
    arrays by name: threshold, precision, recall, F1, labels_per_row
    """
    seen = ranked >= 0
    values = np.asarray(probabilities, np.float64)[seen]
    hits = find_hits(Y, np.ascontiguousarray(ranked))[seen]
    order = np.argsort(-values, kind="stable")
    values, right = values[order], np.cumsum(hits[order])
    thresholds = np.linspace(0.99, 0.01, points)
    n_given = np.searchsorted(-values, -thresholds, side="right")
    n_right = np.concatenate([[0], right])[n_given]
    precision, recall = _share(n_right, n_given), _share(n_right, np.full(points, Y.nnz))
    return {
        "threshold": thresholds,
        "precision": precision,
        "recall": recall,
        "F1": _share(2 * n_right, n_given + Y.nnz),
        "labels_per_row": n_given / max(Y.shape[0], 1),
    }


def _share(part: Any, whole: Any) -> Floats:
    share: Floats = np.asarray(part, np.float64) / np.maximum(whole, 1)
    return share
