"""The metrics of extreme multi-label classification, in percent, over ranked predictions.

A hit is a predicted label that is one of the row's true labels. Ranks r count from 1.

P@k
    Mean over rows of hits@k / k. Divides by k even where a row has fewer labels or predictions.
nDCG@k
    Mean over rows of DCG@k / IDCG@k. DCG@k is the sum of 1 / log2(r + 1) over hits; IDCG@k is that sum over
    ranks 1 to k, or to the number of true labels if that is smaller.
PSP@k
    Sum over rows of 1/p of the hits, divided by that sum for the best possible ranking. Both sums run over
    all rows before the division, as in the Extreme Classification Repository's scripts: no mean over rows.
PSnDCG@k
    The same ratio of sums, of (sum of 1/p / log2(r + 1) over hits) / IDCG@k. The best ranking lists the true
    labels by falling 1/p; IDCG@k is the one above, without propensities. napkinXC and pyxclib do the same.
PSP_raw@k
    Mean over rows of (sum of 1/p of the hits) / k, the formula on the repository's page. Can exceed 100%.
recall@k
    Mean over rows of hits@k / number of true labels.
microF1@k
    2 TP / (2 TP + FP + FN) over all pairs of row and label; the first k predictions are the positives.
macroF1@k
    Mean over all labels of the label's F1, which is 0 without a hit, even if no row has the label.
coverage@k
    The share of labels that are hit at least once, among those that some row has.

Rows without labels count: they are 0 in every mean over rows, and their predictions are false positives. Labels that
no training row had count too, although no model can predict them. The result also has the number of both, and the
metrics without them. A ratio whose denominator is 0 is 0.

By decile: labels are sorted by training frequency, ties by id, and cut into ten groups whose sizes differ by
at most one (with fewer than ten labels, one group each). Decile 1 has the most frequent. P, nDCG, PSP, PSnDCG
and PSP_raw of a decile are what the hits on its labels contribute, so the deciles add up to the whole.
recall, microF1, macroF1 and coverage are those of the decile's labels alone; recall is then the share of the
decile's true pairs of row and label that are hit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, as_csr, make_csr, offsets
from umpteen.data.propensity import PROPENSITY_CONSTANTS, check_constants, count_labels, propensities
from umpteen.errors import DataError, ParamError
from umpteen.threads import resolve_threads

Ids = NDArray[np.int32]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Scores = dict[int, dict[str, Floats]]  # k -> name -> one value for each label group, then one for all labels

KS = (1, 3, 5)  # how many of a row's best labels are judged, where nothing else is asked for
N_DECILES = 10
_DEFAULT = PROPENSITY_CONSTANTS["default"]
_ROWS_PER_BLOCK = 1 << 16


class Metrics(dict[str, float]):
    """Metric values in percent by name, such as ``"P@1"`` or ``"nDCG@3"``; printed as a table.

    Attributes
    ----------
    n_rows, n_labels, n_rows_without_labels : int
    n_unseen_labels, n_rows_with_unseen_labels : int
        Labels of these rows that no training row had, and rows that have some; 0 if no training labels were given.
    n_unseen_found : int
        How often such a label was ranked where it is right; 0 for a model that only ranks labels of training rows.
    known_only : Metrics or None
        The same metrics for rows with a label seen in training, counting only such labels; None if there are no
        others.
    A, B : float or None
        Propensity constants; None if no training labels were given.
    decisions : Decisions or None
        Precision, recall and F1 of the labels that rows were given; None where only a ranking was judged.
    by_decile : list of dict
        For each group of labels, most frequent first: ``decile`` (from 1), ``n_labels``,
        ``lowest_frequency``, ``highest_frequency``, ``n_true`` (true pairs of row and label), every metric.
    """

    def __init__(
        self,
        values: dict[str, float],
        *,
        n_rows: int,
        n_labels: int,
        n_rows_without_labels: int,
        A: float | None = None,
        B: float | None = None,
        by_decile: Sequence[dict[str, float]] = (),
        n_unseen_labels: int = 0,
        n_rows_with_unseen_labels: int = 0,
        known_only: Metrics | None = None,
        n_unseen_found: int = 0,
    ) -> None:
        super().__init__(values)
        self.n_unseen_labels = n_unseen_labels
        self.n_rows_with_unseen_labels = n_rows_with_unseen_labels
        self.known_only = known_only
        self.n_unseen_found = n_unseen_found
        self.n_rows = n_rows
        self.n_labels = n_labels
        self.n_rows_without_labels = n_rows_without_labels
        self.A = A
        self.B = B
        self.by_decile = list(by_decile)
        self.decisions: Any = None

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, dicts and lists that the json module can write."""
        return {
            **self,
            "by_decile": [dict(decile) for decile in self.by_decile],
            "propensity": None if self.A is None else {"A": self.A, "B": self.B},
            "n_rows": self.n_rows,
            "n_labels": self.n_labels,
            "n_rows_without_labels": self.n_rows_without_labels,
            "n_unseen_labels": self.n_unseen_labels,
            "n_rows_with_unseen_labels": self.n_rows_with_unseen_labels,
            "known_only": None if self.known_only is None else dict(self.known_only),
            "decisions": None if self.decisions is None else self.decisions.as_dict(),
        }

    def __str__(self) -> str:
        names = list(dict.fromkeys(key.split("@")[0] for key in self))
        cuts = list(dict.fromkeys(key.split("@")[1] for key in self))
        width = max(len(name) for name in names)
        without = f"{self.n_rows_without_labels:,} without labels"
        lines = [f"{self.n_rows:,} rows ({without}), {self.n_labels:,} labels"]
        lines.append(" " * width + "".join(f"{'@' + cut:>8}" for cut in cuts))
        for name in names:
            lines.append(f"{name:<{width}}" + "".join(f"{self[f'{name}@{cut}']:8.2f}" for cut in cuts))
        if self.A is not None:
            lines.append(f"propensities: A={self.A:g}, B={self.B:g}")
        decided = [] if self.decisions is None else [str(self.decisions)]
        return "\n".join([*lines, *self._notes(), *decided])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        from umpteen.evaluation.report import paragraph, table

        names = list(dict.fromkeys(key.split("@")[0] for key in self))
        cuts = list(dict.fromkeys(key.split("@")[1] for key in self))
        rows = [[name, *(f"{self[f'{name}@{cut}']:.2f}" for cut in cuts)] for name in names]
        without = f"{self.n_rows_without_labels:,} without labels"
        parts = [
            paragraph(f"{self.n_rows:,} rows ({without}), {self.n_labels:,} labels; in percent"),
            table(["", *(f"@{cut}" for cut in cuts)], rows),
            *map(paragraph, self._notes()),
        ]
        if self.decisions is not None:
            parts.append(self.decisions._repr_html_())
        return "".join(parts)

    def _notes(self) -> list[str]:
        """What counts as missed although no model could predict it, and the precision without that."""
        notes = []
        if self.n_unseen_labels:
            found = f", found {_count(self.n_unseen_found, 'time')}" if self.n_unseen_found else ""
            notes.append(
                f"unseen in training{'' if found else ', so counted as missed'}: "
                f"{_count(self.n_unseen_labels, 'label')} in {_count(self.n_rows_with_unseen_labels, 'row')}{found}"
            )
        if self.known_only is not None:
            precisions = ", ".join(f"{key} {value:.2f}" for key, value in self.known_only.items() if key[:2] == "P@")
            notes.append(f"only rows with a label seen in training, {self.known_only.n_rows:,}: {precisions}")
        return notes


def evaluate(
    Y: Any,
    labels: Any,
    train_Y: Any = None,
    *,
    k: int | Iterable[int] = KS,
    A: float = _DEFAULT.A,
    B: float = _DEFAULT.B,
    deciles: bool = True,
    psp_raw: bool = False,
    threads: int | None = None,
) -> Metrics:
    """Scores ranked predictions against the true labels, by the definitions at the top of this module.

    Parameters
    ----------
    Y : sparse matrix or array, n_rows x n_labels
        True labels: any non-zero entry.
    labels : int array, n_rows x width
        Predicted label ids of each row, best first, none twice; -1 pads short lists at the end.
    train_Y : sparse matrix or array, n_train_rows x n_labels, or LabelCounts, optional
        Labels of the training set; a fitted model has their counts as ``train_counts_``.
        Needed for PSP and PSnDCG. Deciles use its label counts, or those of Y without it.
    k : int or ints
        Where to cut the ranking; at most the width of `labels`.
    A, B : float
        Propensity constants; `umpteen.data.propensity.PROPENSITY_CONSTANTS` has them by data set.
    deciles : bool
        Whether to fill `Metrics.by_decile`.
    psp_raw : bool
        Whether to add ``"PSP_raw@k"``, propensity-scored precision without its normaliser.
    threads : int, optional
        One per core by default. The result does not depend on it.

    Examples
    --------
    >>> Y = [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    >>> scores = evaluate(Y, [[0, 1], [2, 1], [3, -1]], train_Y=Y, k=(1, 2))
    >>> scores["recall@2"]
    50.0
    >>> print(scores)
    3 rows (1 without labels), 4 labels
                  @1      @2
    P          33.33   33.33
    nDCG       33.33   41.47
    PSP        50.00   66.67
    PSnDCG     50.00   62.20
    recall     16.67   50.00
    microF1    33.33   50.00
    macroF1    25.00   41.67
    coverage   33.33   66.67
    propensities: A=0.55, B=1.5
    only rows with a label seen in training, 2: P@1 50.00, P@2 50.00
    """
    cuts = _check_cuts(k)
    n_threads = resolve_threads(threads)
    true = as_csr(Y, "Y", values=False)
    n_rows, n_labels = true.shape
    if n_rows == 0 or n_labels == 0:
        raise DataError(f"Y must have at least one row and one label, but its shape is {true.shape}")
    ranked = _check_ranking(labels, n_rows, n_labels, cuts[-1])
    check_constants(A, B)
    if psp_raw and train_Y is None:
        raise ParamError("psp_raw=True needs train_Y, but train_Y is None")
    train = count_labels(true if train_Y is None else train_Y, "train_Y", n_labels)

    frequency = train.counts
    group = _group_by_frequency(frequency, min(N_DECILES, n_labels) if deciles else 1)
    hits = _order_hits(true, ranked, n_threads)
    inverse_p = None if train_Y is None else 1 / propensities(train, A, B)
    scores = _rank_scores(true, hits, group, cuts, inverse_p, psp_raw)
    _add_label_scores(scores, true, ranked, hits, group)
    values = {f"{name}@{k}": 100 * scores[k][name] for name in scores[cuts[0]] for k in cuts}
    unseen = np.zeros(n_labels, bool) if train_Y is None else frequency == 0
    known = keep_labels(true, ~unseen)
    judged = np.diff(known.indptr) > 0
    known_only = None
    if judged.any() and not (judged.all() and known.nnz == true.nnz):
        known_only = evaluate(
            known[judged], ranked[judged], None if train_Y is None else train, k=cuts, A=A, B=B, deciles=False,
            psp_raw=psp_raw, threads=threads,
        )  # fmt: skip
    return Metrics(
        {name: float(value[-1]) for name, value in values.items()},
        n_rows=n_rows,
        n_labels=n_labels,
        n_rows_without_labels=int((np.diff(true.indptr) == 0).sum()),
        A=None if train_Y is None else float(A),
        B=None if train_Y is None else float(B),
        by_decile=_describe_deciles(values, true, frequency, group) if deciles else (),
        n_unseen_labels=int(unseen[np.unique(true.indices)].sum()),
        n_rows_with_unseen_labels=int((np.diff(known.indptr) < np.diff(true.indptr)).sum()),
        n_unseen_found=_count_unseen_found(true, ranked, unseen, threads),
        known_only=known_only,
    )


def _count_unseen_found(true: Csr, ranked: Ids, unseen: NDArray[np.bool_], threads: int | None) -> int:
    there = unseen[ranked] & (ranked >= 0)
    return int((there & find_hits(true, ranked, threads)).sum()) if there.any() else 0


def _count(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def keep_labels(Y: Csr, kept: NDArray[np.bool_]) -> Csr:
    """Y without the entries of other labels."""
    entries = kept[Y.indices]
    if entries.all():
        return Y
    indptr = np.concatenate([[0], np.cumsum(entries)])[Y.indptr]
    return make_csr(Y.data[entries], Y.indices[entries], indptr, Y.shape)


def _check_cuts(k: int | Iterable[int]) -> list[int]:
    cuts = list(k) if isinstance(k, Iterable) else [k]
    for cut in cuts:
        if isinstance(cut, bool) or not isinstance(cut, (int, np.integer)) or cut < 1:
            raise ParamError(f"k must be one or more integers of at least 1, but holds {cut!r}")
    if not cuts:
        raise ParamError("k must be one or more integers of at least 1, but is empty")
    return sorted({int(cut) for cut in cuts})


def _check_ranking(labels: Any, n_rows: int, n_labels: int, top_k: int) -> Ids:
    """The first top_k columns in the kernel's form, after checks on all columns."""
    try:
        ranked = np.asarray(labels)
    except ValueError as error:
        raise DataError("labels must have rows of equal length; pad short ones with -1") from error
    if ranked.ndim != 2:
        raise DataError(f"labels must have two dimensions, but has {ranked.ndim}")
    if ranked.dtype.kind not in "iu":
        raise DataError(f"labels must hold integer ids, but its type is {ranked.dtype}")
    if ranked.shape[0] != n_rows:
        raise DataError(f"labels must have {n_rows} rows, as Y has, but has {ranked.shape[0]}")
    if top_k > ranked.shape[1]:
        raise ParamError(f"k must be at most the width of labels, {ranked.shape[1]}, but is {top_k}")
    if ranked.min() < -1 or ranked.max() >= n_labels:
        row, column = _first((ranked < -1) | (ranked >= n_labels))
        value = ranked[row, column]
        raise DataError(f"labels must be in [0, {n_labels}), or -1 as padding, but row {row} holds {value}")
    ranked = ranked.astype(np.int32, copy=False)
    late = (ranked[:, 1:] >= 0) & (ranked[:, :-1] < 0)
    if late.any():
        row, column = _first(late)
        value = ranked[row, column + 1]
        raise DataError(f"labels may hold -1 only at the end of a row, but row {row} holds {value} after -1")
    ordered = np.sort(ranked, axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if repeated.any():
        row, column = _first(repeated)
        value = ordered[row, column]
        raise DataError(f"labels must not repeat in a row, but row {row} holds {value} more than once")
    return np.ascontiguousarray(ranked[:, :top_k])


def _first(mask: NDArray[np.bool_]) -> tuple[int, int]:
    n_columns = int(mask.shape[1])
    return divmod(int(np.argmax(mask)), n_columns)


def _group_by_frequency(frequency: Ints, n_groups: int) -> Ints:
    """The group of each label, group 0 the most frequent; sizes differ by at most one."""
    n_labels = len(frequency)
    group = np.empty(n_labels, np.int64)
    group[np.argsort(-frequency, kind="stable")] = np.arange(n_labels) * n_groups // n_labels
    return group


@dataclass(frozen=True)
class _Hits:
    """The hits of a ranking, by rank and then by row, so that those of the first k ranks come first."""

    n_at_rank: Ints  # how many there are at each rank, counted from 0 here
    rank: Ints
    n_true: Ints  # how many true labels the hit's row has
    label: Ids


def find_hits(Y: Csr, labels: Ids, threads: int | None = None) -> NDArray[np.bool_]:
    """Which predicted labels are right, n_rows x top_k."""
    hits = _native.find_hits(offsets(Y), Y.indices, Y.shape[1], labels, resolve_threads(threads))
    return np.asarray(hits, np.bool_)


def _order_hits(true: Csr, ranked: Ids, threads: int) -> _Hits:
    n_rows = true.shape[0]
    is_hit = find_hits(true, ranked, threads)
    n_at_rank = is_hit.sum(axis=0, dtype=np.int64)
    rank = np.repeat(np.arange(ranked.shape[1]), n_at_rank)
    row = np.flatnonzero(is_hit.T) - rank * n_rows
    n_true = np.diff(offsets(true))[row]
    return _Hits(n_at_rank, rank, n_true, ranked[row, rank])


class _RankTables:
    """Sums over hits by rank, number of the row's true labels, and label group.

    All that P, nDCG and similar metrics depend on, for any k. A table is n_ranks x n_sizes x (n_groups + 1); the
    last group is all labels. Rows with more true labels than ranks have the same ideal and share a size.
    """

    def __init__(self, n_ranks: int, max_true: int, n_groups: int) -> None:
        self.max_size = min(max_true, n_ranks)
        self.shape = (n_ranks, self.max_size + 1, n_groups)
        self.discount = 1 / np.log2(np.arange(n_ranks) + 2)
        # Rows without true labels have no hits, so the first ideal is not used; it just must not be 0.
        self.ideal = np.concatenate([[1.0], self.discount.cumsum()])

    def sums(self, rank: Ints, n_true: Ints, group: Ints | int, weights: Floats | None = None) -> Floats:
        """The table of these hits, each counted with its weight, or once."""
        n_ranks, n_sizes, n_groups = self.shape
        cell = (rank * n_sizes + np.minimum(n_true, self.max_size)) * n_groups + group
        table = np.bincount(cell, weights, minlength=n_ranks * n_sizes * n_groups).reshape(self.shape)
        return np.concatenate([table, table.sum(axis=2, keepdims=True)], axis=2, dtype=np.float64)

    def plain(self, table: Floats, k: int) -> Floats:
        """For each group, the sum over the first k ranks."""
        return np.asarray(table[:k].sum(axis=(0, 1)))

    def discounted(self, table: Floats, k: int) -> Floats:
        """For each group, the sum over the first k ranks of the discounted values, divided by the row's IDCG@k."""
        ideal = self.ideal[np.minimum(np.arange(self.max_size + 1), k)]
        return np.tensordot(self.discount[:k, None] / ideal, table[:k], axes=2)


def _rank_scores(
    true: Csr, hits: _Hits, group: Ints, cuts: list[int], inverse_p: Floats | None, psp_raw: bool
) -> Scores:
    """P and nDCG; with inverse propensities, also PSP and PSnDCG."""
    n_rows = true.shape[0]
    tables = _RankTables(len(hits.n_at_rank), int(np.diff(true.indptr).max()), int(group.max()) + 1)
    hit_group = group[hits.label]
    n_hits = tables.sums(hits.rank, hits.n_true, hit_group)
    scores: Scores = {}
    for k in cuts:
        scores[k] = {
            "P": tables.plain(n_hits, k) / (k * n_rows),
            "nDCG": tables.discounted(n_hits, k) / n_rows,
        }
    if inverse_p is None:
        return scores
    gains = tables.sums(hits.rank, hits.n_true, hit_group, inverse_p[hits.label])
    best = _best_gains(true, inverse_p, tables)
    for k in cuts:
        scores[k]["PSP"] = _divide(tables.plain(gains, k), tables.plain(best, k)[-1])
        scores[k]["PSnDCG"] = _divide(tables.discounted(gains, k), tables.discounted(best, k)[-1])
        if psp_raw:
            scores[k]["PSP_raw"] = tables.plain(gains, k) / (k * n_rows)
    return scores


def _best_gains(true: Csr, inverse_p: Floats, tables: _RankTables) -> Floats:
    """The table of 1/p for the ranking that lists each row's true labels by falling 1/p."""
    n_rows, n_labels = true.shape
    indptr = offsets(true)
    falling = np.argsort(-inverse_p, kind="stable")
    place = np.empty(n_labels, np.int64)
    place[falling] = np.arange(n_labels)
    best = np.zeros(1)
    # In blocks, because the sort keys and ranks take several times the memory of Y.
    for first in range(0, n_rows, _ROWS_PER_BLOCK):
        starts = indptr[first : first + _ROWS_PER_BLOCK + 1]
        n_true = np.diff(starts)
        # One sort of integers orders the labels within each row.
        row_key = np.repeat(np.arange(len(n_true)) * n_labels, n_true)
        key = np.sort(row_key + place[true.indices[starts[0] : starts[-1]]])
        gain = inverse_p[falling[key - row_key]]
        rank = np.arange(starts[0], starts[-1]) - np.repeat(starts[:-1], n_true)
        top = rank < tables.shape[0]
        best = best + tables.sums(rank[top], np.repeat(n_true, n_true)[top], 0, gain[top])
    return best


def _add_label_scores(scores: Scores, true: Csr, ranked: Ids, hits: _Hits, group: Ints) -> None:
    """Adds recall, and the metrics that count hits label by label: F1 and coverage."""
    n_rows, n_labels = true.shape
    n_hits_until = hits.n_at_rank.cumsum()
    recall_until = np.bincount(hits.rank, 1 / hits.n_true, minlength=len(n_hits_until)).cumsum()
    n_true = count_labels(true, "Y").counts
    n_predicted = np.zeros(n_labels, np.int64)
    group_true, group_labels = _sum_groups(n_true, group), _sum_groups(np.ones(n_labels), group)
    counted = 0
    for k, at_k in scores.items():  # k rises, so the predictions already counted stay counted
        # Ids are shifted by one, so that padding has its own bin.
        n_predicted += np.bincount(ranked[:, counted:k].ravel() + 1, minlength=n_labels + 1)[1:]
        counted = k
        n_hits = np.bincount(hits.label[: n_hits_until[k - 1]], minlength=n_labels)
        group_hits = _sum_groups(n_hits, group)
        at_k["recall"] = _divide(group_hits, group_true)
        at_k["recall"][-1] = recall_until[k - 1] / n_rows
        at_k["microF1"] = _divide(2 * group_hits, group_true + _sum_groups(n_predicted, group))
        at_k["macroF1"] = _sum_groups(_divide(2 * n_hits, n_true + n_predicted), group) / group_labels
        at_k["coverage"] = _divide(_sum_groups(n_hits > 0, group), _sum_groups(n_true > 0, group))


def _sum_groups(values: NDArray[Any], group: Ints) -> Floats:
    """The sum of a value over the labels of each group, then over all labels."""
    sums = np.bincount(group, values)
    return np.append(sums, sums.sum())


def _divide(numerator: NDArray[Any], denominator: NDArray[Any]) -> Floats:
    """The ratio, and 0 where the denominator is 0."""
    ratio = np.zeros(numerator.shape)
    np.divide(numerator, denominator, out=ratio, where=denominator != 0)
    return ratio


def _describe_deciles(values: dict[str, Floats], true: Csr, frequency: Ints, group: Ints) -> list[dict[str, float]]:
    n_true = count_labels(true, "Y").counts
    deciles: list[dict[str, float]] = []
    for number in range(int(group.max()) + 1):
        members = group == number
        deciles.append(
            {
                "decile": number + 1,
                "n_labels": int(members.sum()),
                "lowest_frequency": int(frequency[members].min()),
                "highest_frequency": int(frequency[members].max()),
                "n_true": int(n_true[members].sum()),
                **{name: float(value[number]) for name, value in values.items()},
            }
        )
    return deciles
