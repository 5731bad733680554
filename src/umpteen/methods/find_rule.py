"""Finding the rule of a blend (trained/blend_rule.py): a logistic regression on rows no member was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, as_csr
from umpteen.evaluation.metrics import find_hits
from umpteen.models.scorer import Ranking
from umpteen.trained.blend_rule import Floats, Pairs, Rule, forms, pair, rank

#: The ridge penalty for columns of standard deviation 1, and the most Newton steps.
_RIDGE = 0.1
_STEPS = 50
#: With more pairs of a row and a label some rows are left out: the regression has only a few coefficients.
_MOST_PAIRS = 500_000
_LEAST_ROWS = 1000
_ROWS_AT_A_TIME = 4096
_KS = (1, 3, 5)


def estimate_rule(n_rows: int, n_members: int, width: int) -> int:
    """The most bytes needed to find a rule, for `n_rows` rows with `width` proposals each."""
    pairs = min(n_rows * width, max(_MOST_PAIRS, _LEAST_ROWS * width))
    return pairs * (8 * _columns(n_members) + 8 * n_members + 150)


def find_rule(proposals: Sequence[Ranking], Y: Csr, frequency: Floats, threads: int | None = None) -> Rule:
    """The rule that best separates right labels from wrong ones; or one member alone, or the mean of all, if that
    ranks rows better on which the rule was not found.

    Parameters
    ----------
    proposals
        For each member, labels (n_rows x candidates, padded with -1) and probabilities, for rows it was not trained
        on.
    Y
        The true labels of these rows.
    frequency
        z of each label.
    """
    n_members, width = len(proposals), sum(labels.shape[1] for labels, _ in proposals)
    step = max(1, min(-(-Y.shape[0] * width // _MOST_PAIRS), Y.shape[0] // _LEAST_ROWS))
    proposals = [(labels[::step], probabilities[::step]) for labels, probabilities in proposals]
    Y = as_csr(Y[::step], "Y", values=False)
    pairs = pair(proposals, Y.shape[1])
    right = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr)) * Y.shape[1] + Y.indices
    hit = np.isin(pairs.rows * Y.shape[1] + pairs.labels, right)
    z = frequency[pairs.labels]

    def quality(scores: Floats) -> float:
        labels, _ = rank(pairs, scores, Y.shape[0], max(_KS))
        hits = find_hits(Y, labels, threads).sum(axis=0).cumsum()
        return float(sum(hits[k - 1] / k for k in _KS))

    # Each half of the rows is ranked by a rule found on the other half.
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
    lowest = float(z[hit[some]].min()) if hit[some].any() else Rule.lowest
    rule = Rule(found[2:].reshape(n_members, 6), found[:2], np.full(n_members, 1 / n_members), lowest)
    moved = np.array([_deviation(rule.of_member(m, pairs.probabilities[some, m], z)) for m in range(n_members)])
    return replace(rule, weights=moved / moved.sum()) if moved.sum() > 0 else rule


def regress(columns: Floats, hit: NDArray[np.bool_]) -> Floats:
    """Logistic regression by Newton's method: a coefficient for each column; the first column is all ones.

    Minimises  Σ log(1 + exp(-y X w)) + ridge/2 |w|²  for columns standardised in place to mean 0 and deviation 1, and
    returns the coefficients for the original columns. Constant columns get 0.
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
    ridge[0] = 1e-9  # next to nothing: keeps it finite if all pairs are right, or all wrong

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
    # Without BLAS, whose sums depend on its threads.
    product: Floats = np.einsum("ij,j->i", columns, w)
    return product


def _columns(n_members: int) -> int:
    return 2 + 6 * n_members


def _deviation(values: Floats) -> float:
    return float(values.std()) if len(values) else 0.0
