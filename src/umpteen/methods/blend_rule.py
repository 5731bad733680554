"""The rule by which a blend makes one score of its members' probabilities.

With p_m(l) the probability that member m gives label l, and

    z_l = log(1 + n_l) of a label with n_l training rows, of mean 0 and deviation 1 over all labels that have any,

the score of a label that some member proposes is the log-odds of a logistic regression,

    score(l) = c + c' z_l + Σ_m (a_m + a'_m z_l) · (p_m, √p_m, log p_m)(l)

where p_m(l) is 0 for labels that the member does not propose, and log p is that of p + 1e-4. The three forms of a
probability let a member count where it is sure, or where it doubts; z lets it count for frequent labels, or for rare
ones. On p alone, held-out rows of EURLex-4K are ranked 0.8 (P@1), 0.6 (P@3) and 0.4 (P@5) worse, by DiSMEC, RXML,
FastXML and a label tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, as_csr
from umpteen.errors import ModelCorruptError
from umpteen.evaluation.metrics import find_hits
from umpteen.storage.store import Part

#: What is added to a probability before its logarithm is taken.
_LEAST = 1e-4
#: Labels of no rows are no farther from the others than this, in deviations.
_FARTHEST = 5.0
#: How much coefficients of columns of deviation 1 are held back, and how many Newton steps are taken at most.
_RIDGE = 0.1
_STEPS = 50
#: Of more pairs of a row and a label some rows are left out: the regression has a handful of coefficients.
_MOST_PAIRS = 500_000
_LEAST_ROWS = 1000
_ROWS_AT_A_TIME = 4096
#: No coefficient of a sound model is as large.
_LARGEST = 1e100
_KS = (1, 3, 5)

Ranking = tuple[NDArray[np.int32], NDArray[np.float32]]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The labels that anybody proposed, by row and label."""

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    probabilities: Floats  # pairs x members; 0 where a member did not propose the label


def pair(said: Sequence[Ranking], n_labels: int) -> Pairs:
    """Brings together what the members said.

    Parameters
    ----------
    said
        For each member labels (n_rows x candidates, -1 pads) and probabilities.
    """
    keys = []
    for labels, _ in said:
        rows = np.repeat(np.arange(len(labels), dtype=np.int64), (labels >= 0).sum(axis=1))
        keys.append(rows * n_labels + labels[labels >= 0])
    every, place = np.unique(np.concatenate(keys), return_inverse=True)
    probabilities = np.zeros((len(every), len(said)))
    start = 0
    for m, ((labels, values), own) in enumerate(zip(said, keys, strict=True)):
        probabilities[place[start : start + len(own)], m] = values[labels >= 0]
        start += len(own)
    return Pairs(*np.divmod(every, n_labels), probabilities)


def rank(pairs: Pairs, scores: Floats, n_rows: int, top_k: int) -> Ranking:
    """The best of each row, best first, ties by lower id; -1 and -inf pad."""
    best = np.lexsort((pairs.labels, -scores, pairs.rows))
    row, label, score = pairs.rows[best], pairs.labels[best], scores[best]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    kept = place < top_k
    out_labels, out_scores = np.full((n_rows, top_k), -1, np.int32), np.full((n_rows, top_k), -np.inf, np.float32)
    out_labels[row[kept], place[kept]] = label[kept]
    out_scores[row[kept], place[kept]] = score[kept]
    return out_labels, out_scores


def measure_frequency(counts: Sequence[NDArray[Any]]) -> Floats:
    """z of each label, of the most training rows that a member has for it."""
    logs = np.log1p(np.max(np.asarray(counts, np.float64), axis=0))
    known = logs[logs > 0] if (logs > 0).any() else logs
    if known.std() < 1e-9:
        return np.zeros(len(logs))
    frequency: Floats = np.clip((logs - known.mean()) / known.std(), -_FARTHEST, _FARTHEST)
    return frequency


@dataclass(frozen=True, eq=False)
class Rule:
    """How scores come from the members' probabilities."""

    coefficients: Floats  # members x 6: of p, √p and log p, then of each times z
    intercept: Floats  # 2: c and c'
    weights: Floats  # of the members, shares of 1: how much each moves scores; says nothing the others do not

    def score(self, probabilities: Floats, frequency: Floats) -> Floats:
        """Of pairs of a row and a label: pairs x members, pairs -> pairs."""
        total = self.of_label(frequency)
        for m in range(len(self.weights)):  # in order, so that sums are the same to the last bit
            total = total + self.of_member(m, probabilities[:, m], frequency)
        return total

    def of_label(self, frequency: Floats) -> Floats:
        total: Floats = self.intercept[0] + self.intercept[1] * frequency
        return total

    def of_member(self, m: int, p: NDArray[Any], frequency: Floats) -> Floats:
        total: Floats = np.zeros(len(p))
        for form, plain, by_frequency in zip(forms(p), *self.coefficients[m].reshape(2, 3), strict=True):
            total = total + (plain + by_frequency * frequency) * form
        return total

    @classmethod
    def sum_of(cls, weights: Floats) -> Rule:
        """Probabilities, weighted and summed."""
        coefficients = np.zeros((len(weights), 6))
        coefficients[:, 0] = weights
        return cls(coefficients, np.zeros(2), np.asarray(weights, np.float64))

    @classmethod
    def from_part(cls, part: Part, n_members: int) -> Rule:
        weights = np.asarray(part.arrays["weights"], np.float64)
        sound = weights.shape == (n_members,) and bool((weights >= 0).all()) and abs(weights.sum() - 1) < 1e-6
        if not sound:
            raise ModelCorruptError("a blend needs a weight of at least 0 for each member, 1 in all")
        if "coefficients" not in part.arrays:
            return cls.sum_of(weights)
        coefficients, intercept = (
            np.asarray(part.arrays[name], np.float64) for name in ("coefficients", "intercept")
        )
        sound = coefficients.shape == (n_members, 6) and intercept.shape == (2,)
        if not sound or not max(np.abs(coefficients).max(), np.abs(intercept).max()) < _LARGEST:
            raise ModelCorruptError(
                f"a blend needs 6 finite coefficients for each of {n_members} members, and 2 more"
            )
        return cls(coefficients, intercept, weights)

    def to_part(self) -> Part:
        return Part({"weights": self.weights, "coefficients": self.coefficients, "intercept": self.intercept})


def forms(p: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
    """The forms in which the rule takes a probability."""
    p = p.astype(np.float64)
    return p, np.sqrt(p), np.log(p + _LEAST)


def estimate_rule(n_rows: int, n_members: int, width: int) -> int:
    """Bytes that finding a rule takes at most, for so many rows with so many proposals each."""
    pairs = min(n_rows * width, max(_MOST_PAIRS, _LEAST_ROWS * width))
    return pairs * (8 * _columns(n_members) + 8 * n_members + 150)


def find_rule(said: Sequence[Ranking], Y: Csr, frequency: Floats, threads: int | None = None) -> Rule:
    """The rule that tells right labels from wrong ones best; or a member alone, or the mean of all, where that ranks
    rows better that the rule was not found on.

    Parameters
    ----------
    said
        For each member labels (n_rows x candidates, -1 pads) and probabilities, of rows it was not trained on.
    Y
        The right labels of these rows.
    frequency
        z of each label.
    """
    n_members, width = len(said), sum(labels.shape[1] for labels, _ in said)
    step = max(1, min(-(-Y.shape[0] * width // _MOST_PAIRS), Y.shape[0] // _LEAST_ROWS))
    said = [(labels[::step], probabilities[::step]) for labels, probabilities in said]
    Y = as_csr(Y[::step], "Y", values=False)
    pairs = pair(said, Y.shape[1])
    right = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr)) * Y.shape[1] + Y.indices
    hit = np.isin(pairs.rows * Y.shape[1] + pairs.labels, right)
    z = frequency[pairs.labels]

    def quality(scores: Floats) -> float:
        labels, _ = rank(pairs, scores, Y.shape[0], max(_KS))
        hits = find_hits(Y, labels, threads).sum(axis=0).cumsum()
        return float(sum(hits[k - 1] / k for k in _KS))

    # Each half of the rows is ranked by what the other half taught.
    scores = np.zeros(len(z))
    for half in (pairs.rows % 2 == 0, pairs.rows % 2 == 1):
        scores[~half] = fit_rule(pairs, hit, z, half).score(pairs.probabilities[~half], z[~half])
    simple = [Rule.sum_of(np.full(n_members, 1 / n_members)), *(Rule.sum_of(alone) for alone in np.eye(n_members))]
    best = max(simple, key=lambda rule: quality(rule.score(pairs.probabilities, z)))
    if quality(scores) <= quality(best.score(pairs.probabilities, z)):
        return best
    return fit_rule(pairs, hit, z, np.ones(len(z), bool))


def fit_rule(pairs: Pairs, hit: NDArray[np.bool_], z: Floats, some: NDArray[np.bool_]) -> Rule:
    """The regression on some of the pairs."""
    n_members, z = pairs.probabilities.shape[1], z[some]
    columns = np.empty((len(z), _columns(n_members)))
    columns[:, 0], columns[:, 1] = 1, z
    for m in range(n_members):
        for i, form in enumerate(forms(pairs.probabilities[some, m])):
            columns[:, 2 + 6 * m + i] = form
            columns[:, 5 + 6 * m + i] = form * z
    found = regress(columns, hit[some])
    rule = Rule(found[2:].reshape(n_members, 6), found[:2], np.full(n_members, 1 / n_members))
    moved = np.array([_deviation(rule.of_member(m, pairs.probabilities[some, m], z)) for m in range(n_members)])
    return Rule(rule.coefficients, rule.intercept, moved / moved.sum()) if moved.sum() > 0 else rule


def regress(columns: Floats, hit: NDArray[np.bool_]) -> Floats:
    """Logistic regression by Newton's method: a coefficient for each column, of which the first is all ones.

    Minimises  Σ log(1 + exp(-y X w)) + ridge/2 |w|²  for columns of mean 0 and deviation 1, to which they are brought
    where they stand, and gives the coefficients for the columns as they were. Columns that do not change get 0.
    """
    if not len(columns):
        return np.zeros(columns.shape[1])
    mean, deviation = columns.mean(axis=0), columns.std(axis=0)
    flat = deviation <= 1e-9 * np.maximum(np.abs(mean), 1e-3)
    flat[0], mean[0], deviation[0] = False, 0, 1
    deviation[flat] = 1
    columns -= mean
    columns /= deviation
    columns[:, flat] = 0
    sign = np.where(hit, 1.0, -1.0)
    ridge = np.full(columns.shape[1], _RIDGE)
    ridge[0] = 1e-9  # none, but what keeps pairs that are all right, or all wrong, from infinity

    def objective(w: Floats) -> float:
        return float(np.logaddexp(0, -sign * multiply(columns, w)).sum() + 0.5 * (ridge * w * w).sum())

    w = np.zeros(columns.shape[1])
    value = objective(w)
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(multiply(columns, w), -500, 500)))
        slope = np.einsum("ij,i->j", columns, p - hit) + ridge * w
        bend = np.diag(ridge)
        for start in range(0, len(columns), _ROWS_AT_A_TIME):
            block, q = columns[start : start + _ROWS_AT_A_TIME], p[start : start + _ROWS_AT_A_TIME]
            bend = bend + np.einsum("ij,ik->jk", block, block * (q * (1 - q))[:, None])
        step, length = np.linalg.solve(bend, slope), 1.0
        while (after := objective(w - length * step)) > value and length > 1e-6:
            length /= 2
        if not after < value:
            break
        done = value - after <= 1e-10 * value
        w, value = w - length * step, after
        if done:
            break
    w = np.where(flat, 0, w / deviation)
    w[0] -= float((w[1:] * mean[1:]).sum())
    return w


def multiply(columns: Floats, w: Floats) -> Floats:
    # Not by BLAS, whose sums depend on its threads.
    product: Floats = np.einsum("ij,j->i", columns, w)
    return product


def _columns(n_members: int) -> int:
    return 2 + 6 * n_members


def _deviation(values: Floats) -> float:
    return float(values.std()) if len(values) else 0.0
