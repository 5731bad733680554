"""From scores to probabilities, and from probabilities to decisions.

Fitted on predictions for rows the model was not trained on. One rising curve, the same for all labels, maps scores to
probabilities, so it never changes a ranking. A logistic curve with three parameters, which few rows settle, comes
first,

    log odds = offset + a score + b tail,   a, b >= 0,   tail = -log(share of predictions with a higher score)

Most scores are those of labels a row lacks and lie close together, where the odds rise much faster than the score;
the tail rises with them, in any family of models. Hits among predictions with about the same score then correct the
curve: a group of them counts as much as it has predictions, the logistic curve as much as a few, and neighbours that
fall are pooled until the curve rises (isotonic regression). With 20 texts the result is close to the logistic curve,
with 1,000 to the shares of hits. Above the topmost group the curve rises on, half as steeply as the logistic one.

Scores that differ never share a probability, so that its order is theirs: not among the few highest and lowest, not
beyond all that were seen, and not where held-out rows say nothing.

Thresholds are probabilities: one for all labels, which maximises micro F1; and one for each label, for macro F1. The
latter lies between the threshold that maximises the label's own F1 and the common one that maximises macro F1; more
held-out rows bring it nearer to the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.params import check_count, check_number
from umpteen.storage.store import Part

Floats = NDArray[np.float64]

#: The curve is fitted to at most this many groups of predictions with similar scores, at least `_PER_GROUP` in each.
_GROUPS = 500
_PER_GROUP = 20
#: Of few predictions so many groups all the same: one group would be one probability for all scores.
_LEAST_GROUPS = 10

#: How many predictions the logistic curve counts for: in all, and in one group at most.
_PRIOR = 4000
_MOST_PRIOR = 40
#: The part of the logistic curve's rise that scores above those of the topmost group get.
_BEYOND = 0.5
#: What the log odds rise by towards the highest score even where the logistic curve is flat.
_LEAST_RISE = 0.01
#: Offset and slopes of the logistic curve if nothing is known, and how firmly they are held.
_START = np.array([0.0, 0.0, 1.0])
_RIDGE = np.array([1e-3, 1.0, 1.0])
_STEPS = 100

#: With this many held-out rows a label's own threshold counts as much as the common one; with fewer it would overfit.
_ROWS_FOR_THRESHOLD = 10
#: The threshold where no prediction is right, so that none is best.
_NO_HIT = 0.5
_CUTS = 64  # common thresholds tried for the best macro F1


@dataclass(frozen=True, eq=False)
class Calibration:
    """A curve from scores to probabilities, and thresholds."""

    scores: NDArray[np.float32]  # knots of the curve, rising
    probabilities: NDArray[np.float32]  # at the knots, rising; of earlier versions, never falling
    threshold: float  # give labels with at least this probability, for the best micro F1
    label_thresholds: NDArray[np.float32]  # the same for each label, for the best macro F1
    n_rows: int  # how many rows it was fitted on
    #: At the knots: how many held-out predictions with about that score the probability rests on. Empty if unknown.
    support: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    rises_on: bool = True  # beyond its knots too; there, curves of earlier versions are flat

    @classmethod
    def fit(
        cls, labels: NDArray[np.int32], scores: NDArray[np.float32], hits: NDArray[Any], n_true: NDArray[np.int64]
    ) -> Calibration:
        """Fits a calibration to ranked predictions on held-out rows.

        Parameters
        ----------
        labels, scores : n_rows x top_k
            As `predict_topk` returns them.
        hits : bool, n_rows x top_k
            Which of them are right.
        n_true : n_labels
            How many of the rows have each label.
        """
        given = labels >= 0
        label, score, hit = labels[given], scores[given].astype(np.float64), hits[given].astype(bool)
        if len(score) == 0:
            raise DataError("calibration needs at least one prediction on held-out rows, but there are none")
        knots, values, support = _fit_curve(score, hit)
        curve = cls(knots.astype(np.float32), values.astype(np.float32), 0.5, np.zeros(0, np.float32), len(labels))
        probability = curve.to_probabilities(score)
        every = np.zeros(len(label), np.int64)
        best, _ = _best_cuts(every, score, hit, probability, np.array([n_true.sum()]))
        own, found = _best_cuts(label, score, hit, probability, n_true)
        common = _best_macro_cut(label, hit, probability, n_true)
        weight = np.where(found, n_true / (n_true + _ROWS_FOR_THRESHOLD), 0)
        own = weight * own + (1 - weight) * common
        return cls(
            curve.scores, curve.probabilities, float(best[0]), own.astype(np.float32), len(labels), support
        )  # fmt: skip

    def to_probabilities(self, scores: ArrayLike) -> NDArray[np.float32]:
        """Probabilities of scores; the padding -inf becomes 0."""
        return self._interpolate(np.asarray(scores, np.float64)).astype(np.float32)

    def _interpolate(self, given: Floats) -> Floats:
        """Straight lines between the knots. Beyond them the log odds go on for less than 1, half of it as far off as
        the knots reach."""
        knots, values = self.scores.astype(np.float64), self.probabilities.astype(np.float64)
        found: Floats = np.array(np.interp(given, knots, values))
        if not self.rises_on:
            return np.where(np.isneginf(given), 0, found)
        reach = knots[-1] - knots[0] or abs(knots[0]) or 1.0
        for end, outside in ((0, given < knots[0]), (-1, given > knots[-1])):
            found[outside] = _sigmoid(_log_odds(values[end]) + _saturate((given[outside] - knots[end]) / reach))
        return np.where(np.isneginf(given), 0, found)

    def count_support(self, probabilities: ArrayLike) -> NDArray[np.int64]:
        """On how many held-out predictions each of these probabilities rests: those with about the same score.
        0 for padding. A model that an earlier version calibrated does not know, and then there are none."""
        given = np.asarray(probabilities, np.float64)
        if not len(self.support):
            return np.zeros(given.shape, np.int64)
        middle = (self.probabilities[1:].astype(np.float64) + self.probabilities[:-1]) / 2
        return np.where(given > 0, self.support[np.searchsorted(middle, given)], 0).astype(np.int64)

    def thresholds(self, labels: NDArray[np.int32], per_label: bool) -> NDArray[np.float32]:
        """The threshold of each of these labels, including -1 for padding; a label added later has the common one."""
        out = np.full(labels.shape, self.threshold, np.float32)
        if per_label:
            known = (labels >= 0) & (labels < len(self.label_thresholds))
            out[known] = self.label_thresholds[labels[known]]
        return out

    @property
    def least_threshold(self) -> float:
        """The lowest threshold of any label."""
        return float(np.min(self.label_thresholds, initial=self.threshold))

    @classmethod
    def from_part(cls, part: Part) -> Calibration:
        arrays = [part.array(name, "float32") for name in ("scores", "probabilities", "label_thresholds")]
        try:
            threshold = check_number("threshold", part.scalars.get("threshold"), 0)
            n_rows = check_count("n_rows", part.scalars.get("n_rows"), 0)
        except ParamError as error:
            raise ModelCorruptError(f"the calibration is not usable: {error!s:.200}") from error
        support = part.array("support", "int64") if "support" in part.arrays else np.zeros(0, np.int64)
        rises_on = part.scalars.get("rises_on", False)
        curve = cls(arrays[0], arrays[1], threshold, arrays[2], n_rows, support, rises_on is True)
        sound = (
            len(curve.scores) == len(curve.probabilities) > 0
            and all(bool(np.isfinite(values).all()) for values in (curve.scores, curve.probabilities))
            and bool((np.diff(curve.scores) > 0).all())
            and bool((np.diff(curve.probabilities) >= 0).all())
            and curve.probabilities[0] >= 0
            and curve.probabilities[-1] <= 1
            and curve.threshold <= 1
            and len(support) in (0, len(curve.scores))
            and isinstance(rises_on, bool)
        )
        if not sound:
            raise ModelCorruptError("the calibration must be a rising curve from scores to probabilities in [0, 1]")
        return curve

    def to_part(self) -> Part:
        arrays: dict[str, NDArray[Any]] = {
            "scores": self.scores,
            "probabilities": self.probabilities,
            "label_thresholds": self.label_thresholds,
            "support": self.support,
        }
        return Part(arrays, {"threshold": self.threshold, "n_rows": self.n_rows, "rises_on": self.rises_on})


def count_labels_to_give(probabilities: NDArray[np.float32]) -> NDArray[np.int64]:
    """How many of each row's ranked labels to give: as many as maximise the expected F1.

    The sum of the first k probabilities is the expected number of hits among k labels, and the sum of all is the
    expected number of true labels. F1 is about 2 · first sum / (k + second sum).

    Parameters
    ----------
    probabilities : n_rows x top_k
        In falling order, padded with 0.
    """
    right = np.cumsum(probabilities, axis=1, dtype=np.float64)
    given = np.arange(1, probabilities.shape[1] + 1)
    expected = np.where(probabilities > 0, 2 * right / (given + right[:, -1:]), 0)
    return np.where(right[:, -1] > 0, expected.argmax(axis=1) + 1, 0).astype(np.int64)


def _fit_curve(score: Floats, hit: NDArray[np.bool_]) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Knots, probabilities and how many predictions are behind each."""
    order = np.argsort(score, kind="stable")
    score, right = score[order], hit[order].astype(np.float64)
    expected = _fit_logistic(score, right)
    n_groups = max(1, min(_GROUPS, max(len(score) // _PER_GROUP, min(_LEAST_GROUPS, len(score) // 2))))
    edges = np.linspace(0, len(score), n_groups + 1).astype(np.int64)[1:-1]
    edges = np.unique(np.searchsorted(score, score[edges]))  # equal scores stay together
    starts = np.concatenate([[0], edges[edges > 0]])
    sizes = np.diff(np.append(starts, len(score))).astype(np.float64)
    prior = np.add.reduceat(expected, starts) / sizes
    weight_of_prior = min(_MOST_PRIOR, _PRIOR / len(starts))
    groups = zip(
        sizes,
        np.add.reduceat(right, starts) + weight_of_prior * prior,
        sizes + weight_of_prior,
        np.add.reduceat(score, starts),
        strict=True,
    )
    pooled: list[list[float]] = []  # predictions, hits and predictions with the prior's, sum of scores
    for group in groups:
        pooled.append([float(value) for value in group])
        while len(pooled) > 1 and pooled[-2][1] * pooled[-1][2] >= pooled[-1][1] * pooled[-2][2]:
            last = pooled.pop()
            pooled[-1] = [a + b for a, b in zip(pooled[-1], last, strict=True)]
    n, hits, weight, total = np.array(pooled).T
    knots = (total / n).astype(np.float32).astype(np.float64)
    least = 0.5 / (len(score) + 1)
    odds = _log_odds(hits / weight)
    further, rise = _extend(score, expected, knots[-1])
    knots, odds = np.append(knots, further), np.append(odds, odds[-1] + rise)
    values = _sigmoid(_bend(odds, -_log_odds(least))).astype(np.float32).astype(np.float64)
    rises = np.append((np.diff(knots) > 0) & (np.diff(values) > 0), True)  # two may be equal in 32 bits
    return knots[rises], values[rises], np.append(n, np.full(len(further), n[-1]))[rises].astype(np.int64)


def _extend(score: Floats, expected: Floats, knot: float) -> tuple[Floats, Floats]:
    """More knots above the mean score of the topmost group, and by how much the log odds rise to them: at the highest
    score seen, and as far again. No hits confirm the logistic curve there, so they rise by a part of what it does."""
    top = float(np.float32(score[-1]))
    if top <= knot:
        return np.zeros(0), np.zeros(0)
    odds = _log_odds(np.array([np.interp(knot, score, expected), expected[-1]]))
    rise = max(_BEYOND * float(odds[1] - odds[0]), _LEAST_RISE)
    return np.array([top, 2 * top - knot], np.float32).astype(np.float64), rise * np.array([1.0, 2.0])


def _log_odds(p: Any) -> Any:
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return np.log(p) - np.log1p(-p)


def _bend(odds: Floats, most: float) -> Floats:
    """Nothing is certain: what log odds are beyond those that so few predictions can show counts less and less, and
    for less than 1."""
    return np.where(np.abs(odds) > most, np.sign(odds) * (most + _saturate(np.abs(odds) - most)), odds)


def _saturate(x: Floats) -> Floats:
    """Rises from -1 to 1, with slope 1 at 0."""
    found: Floats = np.sign(x) * (1 - 1 / (1 + np.abs(x)))
    return found


def _fit_logistic(score: Floats, right: Floats) -> Floats:
    """The probabilities that the logistic curve gives rising scores. No slope is below 0: where the best one is, that
    term is left out."""
    terms = [np.ones(len(score)), score, _tail(score)]
    _, weights = _descend(terms, right, [0, 1, 2])
    if min(weights[1:]) < 0:
        tried = [_descend(terms, right, [0, 1]), _descend(terms, right, [0, 2])]
        sound = [(value, found) for value, found in tried if min(found[1:]) >= 0]
        _, weights = min(sound, key=lambda pair: pair[0]) if sound else _descend(terms, right, [0])
    return _sigmoid(sum(w * term for w, term in zip(weights.tolist(), terms, strict=True)))


def _tail(score: Floats) -> Floats:
    """-log of the share of higher scores; of equal ones half. Scores rise."""
    below = (np.searchsorted(score, score, side="left") + np.searchsorted(score, score, side="right")) / 2
    tail: Floats = -np.log(1 - below / (len(score) + 1))
    return tail


def _sigmoid(margin: Any) -> Floats:
    result: Floats = 1 / (1 + np.exp(-np.clip(margin, -500, 500)))
    return result


def _descend(terms: list[Floats], right: Floats, used: list[int]) -> tuple[float, Floats]:
    """The least log loss with some of the terms, and their weights, by Newton's method; the other weights are 0.

    Minimises  Σ log loss + ridge/2 |weights - start|², which is convex. Sums are taken in order, so that the result
    does not depend on threads.
    """
    columns, start, ridge = [terms[i] for i in used], _START[used], _RIDGE[used]

    def objective(weights: Floats) -> float:
        margin = sum(w * column for w, column in zip(weights.tolist(), columns, strict=True))
        loss = float(np.logaddexp(0, np.where(right > 0, -margin, margin)).sum())
        return loss + float((ridge * (weights - start) ** 2).sum()) / 2

    weights = start.copy()
    value = objective(weights)
    for _ in range(_STEPS):
        p = _sigmoid(sum(w * column for w, column in zip(weights.tolist(), columns, strict=True)))
        error, bend = p - right, p * (1 - p)
        gradient = np.array([float((error * column).sum()) for column in columns]) + ridge * (weights - start)
        curvature = np.array([[float((bend * a * b).sum()) for a in columns] for b in columns]) + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        length = 1.0
        while (after := objective(weights - length * step)) > value and length > 1e-6:
            length /= 2
        if not after < value:
            break
        weights = weights - length * step
        done, value = value - after <= 1e-10 * value, after
        if done:
            break
    whole = np.zeros(len(terms))
    whole[used] = weights
    return value, whole


def _best_macro_cut(
    label: NDArray[np.int32], hit: NDArray[np.bool_], probability: NDArray[np.float32], n_true: NDArray[Any]
) -> float:
    """The common threshold with the best mean of the labels' F1."""

    def macro_f1(cut: float) -> float:
        given = probability >= cut
        n_given = np.bincount(label[given], minlength=len(n_true))
        right = np.bincount(label[given & hit], minlength=len(n_true))
        return float(np.sum(2 * right / np.maximum(n_given + n_true, 1)))

    cuts = np.unique(np.quantile(probability, np.linspace(0, 1, _CUTS)))
    best = max(cuts, key=macro_f1)
    return float(best) if macro_f1(best) > 0 else _NO_HIT


def _best_cuts(
    group: NDArray[Any], score: Floats, hit: NDArray[np.bool_], probability: NDArray[np.float32], n_true: NDArray[Any]
) -> tuple[Floats, NDArray[np.bool_]]:
    """For each group of predictions, the threshold with the best F1, and whether any F1 is above 0."""
    order = np.lexsort((-score, group))
    group, score, hit, probability = group[order], score[order], hit[order], probability[order]
    starts = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    rank = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
    so_far = np.cumsum(hit)
    before: NDArray[np.int64] = np.repeat((so_far - hit)[starts], np.diff(np.append(starts, len(group))))
    right = so_far - before
    f1 = 2 * right / (rank + 1 + n_true[group])
    # Never cut between equal scores.
    last_of_equals = np.append((score[1:] != score[:-1]) | (group[1:] != group[:-1]), True)
    f1 = np.where(last_of_equals, f1, -1)
    best = np.maximum.reduceat(f1, starts)
    at = np.flatnonzero(f1 == np.repeat(best, np.diff(np.append(starts, len(group)))))
    at = at[np.append(True, group[at][1:] != group[at][:-1])]  # the first of the best
    below = np.minimum(at + 1, len(group) - 1)
    same = (below > at) & (group[below] == group[at])
    cut = np.where(same, (probability[at].astype(np.float64) + probability[below]) / 2, probability[at] / 2)
    # If both sides have the same probability, no threshold separates them; all are given.
    cuts, found = np.full(len(n_true), _NO_HIT), np.zeros(len(n_true), bool)
    cuts[group[starts]] = np.where(best > 0, cut, _NO_HIT)
    found[group[starts]] = best > 0
    return cuts, found
