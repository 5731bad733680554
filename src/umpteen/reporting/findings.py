"""What a report says of a model: everything is computed here, and drawn in page.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr
from umpteen.data.propensity import LabelCounts
from umpteen.evaluation.decisions import evaluate_decisions
from umpteen.evaluation.metrics import KS, Metrics, evaluate, find_hits
from umpteen.evaluation.per_label import LabelTable, judge_labels
from umpteen.evaluation.significance import (
    RowScores,
    bootstrap_intervals,
    bootstrap_label_intervals,
    score_discounted,
    score_rows,
)
from umpteen.tagger import Tagger
from umpteen.tagging.judging import encode_targets
from umpteen.tagging.rows import TextRows, rank_rows
from umpteen.trained.model import TrainedModel

#: How far down a ranking probabilities are judged.
_DEPTH = 50
#: Texts whose unknown words are counted, which takes a millisecond each, and words that are shown.
_MOST_TEXTS, _MOST_WORDS = 20_000, 50


@dataclass(frozen=True, eq=False)
class Findings:
    """A model on rows whose labels are known.

    Attributes
    ----------
    names : sequence of str
        Label names by id; labels that the model does not have come last.
    Y, given, ranked, probabilities
        The true labels; those that rows were given; the best ranked, and their probabilities.
    intervals : dict
        The 95 % interval of each metric.
    labels : LabelTable
    unknown : array or None
        The share of words of each text that the model does not know.
    unknown_words : list of (str, int)
        Words that the model does not know, and in how many texts each is, most first.
    n_looked_at : int
        In how many of the texts that have such words these were counted.
    """

    model: TrainedModel
    tagger: Tagger | None
    texts: Sequence[str] | None
    ids: Sequence[str] | None
    rows: TextRows
    names: Sequence[str]
    Y: Csr
    given: NDArray[np.int32]
    ranked: NDArray[np.int32]
    probabilities: NDArray[np.float32]
    metrics: Metrics
    intervals: dict[str, tuple[float, float]]
    labels: LabelTable
    unknown: NDArray[np.float64] | None
    unknown_words: list[tuple[str, int]]
    n_looked_at: int

    @property
    def n_known(self) -> int:
        """How many labels the model has."""
        return self.model.n_labels


def examine_texts(
    tagger: Tagger,
    texts: Sequence[str],
    labels: Sequence[Iterable[str]],
    ids: Sequence[str] | None = None,
    **how: Any,
) -> Findings:
    """Examines a tagger on texts; `how` are k, threshold, threads and the propensity constants A and B."""
    model = tagger.fitted()
    if tagger.concepts_ is not None:
        labels = tagger.concepts_.translate(model, labels)
    rows = tagger.vectorize(texts, threads=how.get("threads"))
    unseen = dict.fromkeys(name for row in labels for name in row if name not in model.ids_by_name)
    names = [*tagger.names_in(None), *unseen]
    return _examine(model, tagger, rows, encode_targets(model, labels), names, texts, ids, **how)


def examine_rows(model: TrainedModel, X: Any, Y: Any, **how: Any) -> Findings:
    """Examines a model of numbers."""
    names = model.label_names or [str(i) for i in range(model.n_labels)]
    return _examine(model, None, TextRows(X, None), model.check_targets(Y, X.shape[0]), names, None, None, **how)


def _examine(
    model: TrainedModel,
    tagger: Tagger | None,
    rows: TextRows,
    Y: Csr,
    names: Sequence[str],
    texts: Sequence[str] | None,
    ids: Sequence[str] | None,
    *,
    k: Iterable[int] = KS,
    threshold: Any = None,
    threads: int | None = None,
    **constants: Any,
) -> Findings:
    cuts = sorted(set(k))
    ranked, scores = model.predict_topk(rows.X, max(_DEPTH, *cuts), threads=threads)
    probabilities = model.to_unit(scores)
    counts = np.zeros(Y.shape[1], np.int64)
    counts[: model.n_labels] = model.train_counts.counts
    train = LabelCounts(counts, model.train_counts.n_rows)
    metrics = evaluate(Y, ranked, train, k=cuts, threads=threads, **constants)
    given, _ = rank_rows(model, rows, None, threshold, threads=threads)
    cut = model.threshold if threshold is None else threshold
    metrics.decisions = evaluate_decisions(Y, given, cut if isinstance(cut, (int, float)) else None, threads, train)
    wide = _pad(ranked, cuts[-1])
    judged = score_rows(Y, wide, train, k=cuts, **constants)
    judged |= score_discounted(Y, wide, train, k=cuts, **constants)
    judged |= _score_more(Y, wide, given, cuts)
    ranked, probabilities = ranked[:, : min(_DEPTH, model.n_labels)], probabilities[:, : min(_DEPTH, model.n_labels)]
    unknown, n_looked_at = None, 0
    found: list[tuple[str, int]] = []
    if rows.words is not None:
        unknown = rows.words.unknown / np.maximum(rows.words.total, 1)
        if tagger is not None and texts is not None and tagger.features_ is not None:
            found, n_looked_at = _count_unknown(tagger.features_, texts, np.flatnonzero(rows.words.unknown))
    return Findings(
        model, tagger, texts, ids, rows, names, Y, given, ranked, probabilities, metrics,
        bootstrap_intervals(judged) | bootstrap_label_intervals(Y, wide, given, k=cuts),
        judge_labels(Y, given, ranked, probabilities), unknown, found, n_looked_at,
    )  # fmt: skip


def _pad(ranked: NDArray[np.int32], width: int) -> NDArray[np.int32]:
    """A ranking at least so wide: of a model with fewer labels, the rest is empty."""
    missing = max(width - ranked.shape[1], 0)
    return np.ascontiguousarray(np.pad(ranked, ((0, 0), (0, missing)), constant_values=-1))


def _count_unknown(features: Any, texts: Sequence[str], rows: Any) -> tuple[list[tuple[str, int]], int]:
    """The most frequent words that features do not have, and in how many of these rows they were looked for."""
    if len(rows) > _MOST_TEXTS:  # evenly over all of them
        rows = rows[np.linspace(0, len(rows) - 1, _MOST_TEXTS).astype(np.int64)]
    counts = Counter(word for row in rows.tolist() for word in features.unknown_words(texts[row]))
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST_WORDS], len(rows)


def _score_more(Y: Csr, ranked: Any, given: Any, cuts: Sequence[int]) -> dict[str, RowScores]:
    """What each row adds to the other measures that are means or ratios of sums over rows."""
    n_true, ones = np.diff(Y.indptr).astype(np.float64), np.ones(Y.shape[0])
    hits = find_hits(Y, np.ascontiguousarray(ranked))
    scores = {}
    for cut in cuts:
        right, listed = hits[:, :cut].sum(axis=1), (ranked[:, :cut] >= 0).sum(axis=1)
        scores[f"recall@{cut}"] = RowScores(right / np.maximum(n_true, 1), ones)
        scores[f"microF1@{cut}"] = RowScores(2.0 * right, listed + n_true)
    right = (find_hits(Y, np.ascontiguousarray(given)) & (given >= 0)).sum(axis=1)
    n_given = (given >= 0).sum(axis=1)
    wholes = {"precision": (right, n_given), "recall": (right, n_true), "F1": (2 * right, n_given + n_true)}
    for name, (part, whole) in wholes.items():
        scores[f"micro {name}"] = RowScores(part.astype(np.float64), whole.astype(np.float64))
        scores[f"per row {name}"] = RowScores(part / np.maximum(whole, 1), ones)
    return scores


def label_rows(found: Findings) -> list[dict[str, Any]]:
    """The figures of each label that a row has or was given, for a table."""
    table = found.labels
    counts = found.model.train_counts.counts
    concepts = None if found.tagger is None else found.tagger.concepts_
    uris = None if concepts is None else concepts.columns.get("uri")
    rows = []
    for i in np.flatnonzero((table.support > 0) | (table.fp > 0)).tolist():
        calibration = table.calibration[i]
        rows.append(
            {
                "label": found.names[i],
                **({} if uris is None else {"uri": uris[i] if i < len(uris) else ""}),
                "training_rows": int(counts[i]) if i < len(counts) else 0,
                "support": int(table.support[i]),
                "tp": int(table.tp[i]),
                "fp": int(table.fp[i]),
                "fn": int(table.fn[i]),
                "precision": round(float(table.precision[i]), 4),
                "recall": round(float(table.recall[i]), 4),
                "f1": round(float(table.F1[i]), 4),
                "calibration": None if np.isnan(calibration) else round(float(calibration), 4) + 0.0,
            }
        )
    return sorted(rows, key=lambda row: (-row["support"], row["label"]))
