"""How sure figures are: intervals by the bootstrap, and paired tests between programs judged on the same rows.

A metric is a ratio of two sums over rows, 100 Σ gain / Σ ideal: for P and nDCG the ideal of a row is 1, so that they
are means; for PSP it is the best sum of 1/p the row allows. Which rows there are is chance, so both draw anew:

* the bootstrap draws as many rows as there are, with replacement, again and again; the middle 95 % of what the metric
  then is are its interval;
* if two programs were equally good, it would be chance which of the two a row favours. The test flips the sign of
  each row's difference at random. p is how often the sum is then at least as far from 0 as the one that was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, offsets
from umpteen.data.propensity import LabelCounts, propensities
from umpteen.evaluation.metrics import KS, Floats, Ids, find_hits

N_RESAMPLES = 1000
N_LABEL_RESAMPLES = 200  # only a deviation is taken from them
N_FLIPS = 1999
LEVEL = 0.95
#: What counts as significant, after Holm's correction for the number of programs.
ALPHA = 0.05
_FEW = 12  # differences for which all signs are tried
_FLIPS_AT_ONCE = 64
_TINY = 1e-9  # sums that differ by less are equal


@dataclass(frozen=True, eq=False)
class RowScores:
    """What each row adds to a metric."""

    gain: Floats
    ideal: Floats

    @property
    def value(self) -> float:
        """The metric, in percent."""
        whole = float(self.ideal.sum())
        return 100 * float(self.gain.sum()) / whole if whole else 0.0


def score_rows(
    Y: Csr, labels: Ids, train: LabelCounts | None = None, *, k: Iterable[int] = KS, **constants: float
) -> dict[str, RowScores]:
    """P, nDCG and, with counts of the training labels, PSP of each row, by the definitions of `evaluate`."""
    cuts = list(k)
    hits = find_hits(Y, np.ascontiguousarray(labels[:, : max(cuts)]))
    scores = score_hits(hits, np.diff(offsets(Y)), k=cuts)
    if train is not None:
        inverse_p = 1 / propensities(train, **constants)
        gains = np.where(hits, inverse_p[labels[:, : max(cuts)]], 0).cumsum(axis=1)
        ideals = _best_gains(Y, inverse_p, max(cuts)).cumsum(axis=1)
        scores |= {f"PSP@{cut}": RowScores(gains[:, cut - 1], ideals[:, cut - 1]) for cut in cuts}
    return scores


def score_discounted(
    Y: Csr, labels: Ids, train: LabelCounts, *, k: Iterable[int] = KS, **constants: float
) -> dict[str, RowScores]:
    """PSnDCG of each row, by the definition of `evaluate`: 1/p, discounted by rank, over the row's IDCG."""
    cuts = list(k)
    width = max(cuts)
    inverse_p = 1 / propensities(train, **constants)
    hits = find_hits(Y, np.ascontiguousarray(labels[:, :width]))
    discount, n_true = 1 / np.log2(np.arange(width) + 2), np.diff(offsets(Y))
    gains = (np.where(hits, inverse_p[labels[:, :width]], 0) * discount[: hits.shape[1]]).cumsum(axis=1)
    ideals = (_best_gains(Y, inverse_p, width) * discount).cumsum(axis=1)
    whole = np.concatenate([[1.0], discount.cumsum()])
    found = {}
    for cut in cuts:
        own = whole[np.minimum(n_true, cut)]
        found[f"PSnDCG@{cut}"] = RowScores(gains[:, min(cut, gains.shape[1]) - 1] / own, ideals[:, cut - 1] / own)
    return found


def score_hits(hits: NDArray[np.bool_], n_true: NDArray[np.int64], *, k: Iterable[int] = KS) -> dict[str, RowScores]:
    """P and nDCG of each row, from which of its predictions are right and how many labels it has."""
    ones = np.ones(len(hits))
    discount = 1 / np.log2(np.arange(hits.shape[1]) + 2)
    ideal = np.concatenate([[1.0], discount.cumsum()])  # rows without labels have no hits
    scores = {}
    for cut in k:
        scores[f"P@{cut}"] = RowScores(hits[:, :cut].sum(axis=1) / cut, ones)
        best = ideal[np.minimum(n_true, cut)]
        scores[f"nDCG@{cut}"] = RowScores(hits[:, :cut] @ discount[:cut] / best, ones)
    return scores


def _best_gains(Y: Csr, inverse_p: Floats, width: int) -> Floats:
    """The largest values of 1/p among each row's labels, falling, n_rows x width."""
    n_true = np.diff(offsets(Y))
    row = np.repeat(np.arange(Y.shape[0]), n_true)
    values = inverse_p[Y.indices]
    order = np.lexsort((-values, row))
    rank = np.arange(Y.nnz) - np.repeat(offsets(Y)[:-1], n_true)
    best = np.zeros((Y.shape[0], width))
    kept = rank < width
    best[row[kept], rank[kept]] = values[order][kept]
    return best


def bootstrap_intervals(
    scores: Mapping[str, RowScores], *, resamples: int = N_RESAMPLES, level: float = LEVEL, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """The interval of each metric, in percent; all are computed from the same draws of rows."""
    gains = np.column_stack([each.gain for each in scores.values()])
    ideals = np.column_stack([each.ideal for each in scores.values()])
    n_rows = len(gains)
    random = np.random.default_rng(seed)
    drawn = np.empty((resamples, gains.shape[1]))
    for i in range(resamples):
        times = np.bincount(random.integers(0, n_rows, n_rows), minlength=n_rows).astype(np.float64)
        whole = times @ ideals
        drawn[i] = 100 * np.divide(times @ gains, whole, out=np.zeros_like(whole), where=whole > 0)
    outside = 50 * (1 - level)
    low, high = np.percentile(drawn, [outside, 100 - outside], axis=0)
    return {name: (float(a), float(b)) for name, a, b in zip(scores, low, high, strict=True)}


def bootstrap_label_intervals(
    Y: Csr,
    ranked: Ids,
    given: Ids,
    *,
    k: Iterable[int] = KS,
    resamples: int = N_LABEL_RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Intervals of measures that are means over labels, in percent: macroF1 and coverage of the best ranked, and
    macro precision, recall and F1 of the labels given.

    A draw of rows lacks many rare labels, so that all of these are lower in draws than in the rows drawn from. Only
    their spread is used: the interval is the measure and so many deviations of the draws to both sides.
    """
    n_rows, n_labels = Y.shape
    cuts = sorted(set(k))
    true_rows = np.repeat(np.arange(n_rows), np.diff(offsets(Y)))
    lists = {f"@{cut}": _entries(Y, ranked[:, :cut]) for cut in cuts} | {"": _entries(Y, given)}

    def measure(times: Floats) -> list[float]:
        true = np.bincount(Y.indices, times[true_rows], minlength=n_labels)
        values = []
        for name, (rows, labels, right) in lists.items():
            listed = np.bincount(labels, times[rows], minlength=n_labels)
            hits = np.bincount(labels[right], times[rows[right]], minlength=n_labels)
            f1 = 2 * hits / np.maximum(listed + true, 1)
            if name:
                values += [f1.mean(), int((hits > 0).sum()) / max(int((true > 0).sum()), 1)]
            else:
                values += [np.mean(hits / np.maximum(listed, 1)), np.mean(hits / np.maximum(true, 1)), f1.mean()]
        return [100 * float(value) for value in values]

    names = [f"{kind}@{cut}" for cut in cuts for kind in ("macroF1", "coverage")]
    names += [f"macro {kind}" for kind in ("precision", "recall", "F1")]
    random = np.random.default_rng(seed)
    drawn = np.array([
        measure(np.bincount(random.integers(0, n_rows, n_rows), minlength=n_rows).astype(np.float64))
        for _ in range(resamples)
    ])  # fmt: skip
    spread = NormalDist().inv_cdf((1 + level) / 2) * drawn.std(axis=0, ddof=1)
    return {
        name: (max(0.0, value - wide), min(100.0, value + wide))
        for name, value, wide in zip(names, measure(np.ones(n_rows)), spread.tolist(), strict=True)
    }


def _entries(Y: Csr, labels: Ids) -> tuple[NDArray[np.int64], Ids, NDArray[np.bool_]]:
    """The rows and labels of predictions that are not padding, and whether each is right."""
    labels = np.ascontiguousarray(labels)
    rows, places = np.nonzero(labels >= 0)
    return rows, labels[rows, places], find_hits(Y, labels)[rows, places]


def paired_tests(differences: Sequence[Floats], *, flips: int = N_FLIPS) -> list[float]:
    """The p of each array of row by row differences, all of the same rows and from the same random signs. Where at
    most twelve differences are not 0, all signs are tried, and p is exact."""
    found: dict[int, float] = {}
    for i, difference in enumerate(differences):
        other = difference[difference != 0]
        if len(other) <= _FEW:
            sums = np.array([np.dot(signs, other) for signs in product((1, -1), repeat=len(other))])
            found[i] = float((np.abs(sums) >= abs(other.sum()) - _TINY).mean())
    drawn = [i for i in range(len(differences)) if i not in found]
    if drawn:
        D = np.column_stack([differences[i] for i in drawn])
        seen = np.abs(D.sum(axis=0)) - _TINY
        far = np.zeros(len(drawn), np.int64)
        bits = np.random.PCG64(0)  # its raw words are the same in every version of NumPy
        for begin in range(0, flips, _FLIPS_AT_ONCE):
            signs = _draw_signs(bits, min(_FLIPS_AT_ONCE, flips - begin), len(D))
            far += (np.abs(signs @ D) >= seen).sum(axis=0)
        found |= {i: (1 + int(n)) / (1 + flips) for i, n in zip(drawn, far, strict=True)}
    return [found[i] for i in range(len(differences))]


def _draw_signs(bits: np.random.PCG64, n: int, width: int) -> Floats:
    words = bits.random_raw(n * -(-width // 64)).astype("<u8").reshape(n, -1)
    drawn = np.unpackbits(words.view(np.uint8), axis=1)[:, :width]
    return 2 * drawn.astype(np.float64) - 1


def compare_with_best(gains: Mapping[str, Floats]) -> tuple[str, dict[str, float]]:
    """The program with the largest sum, and for each other the p of its rows' differences from it, corrected by Holm:
    the smallest p times the number of tests, the next times one less, and so on, never falling."""
    best = max(gains, key=lambda name: float(gains[name].sum()))
    others = [name for name in gains if name != best]
    found = paired_tests([gains[best] - gains[name] for name in others])
    corrected: dict[str, float] = {}
    last = 0.0
    for place, (p, name) in enumerate(sorted(zip(found, others, strict=True))):
        last = max(last, min(1.0, p * (len(others) - place)))
        corrected[name] = last
    return best, {name: corrected[name] for name in others}


def find_best(gains: Mapping[str, Floats]) -> set[str]:
    """The best program and all that the rows cannot tell from it; none if that is everybody."""
    if len(gains) < 2:
        return set()
    best, p = compare_with_best(gains)
    tied = {best, *(name for name, value in p.items() if value >= ALPHA)}
    return tied if len(tied) < len(gains) else set()
