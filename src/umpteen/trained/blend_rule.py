"""The rule by which a blend combines its members' probabilities into one score.

With p_m(l) the probability that member m gives label l, and

    z_l = log(1 + n_l) for n_l training rows, standardised to mean 0 and deviation 1 over all labels with rows,

the score of a label that some member proposes is the log-odds of a logistic regression,

    score(l) = c + c' z_l + Σ_m (a_m + a'_m z_l) · (p_m, √p_m, log p_m)(l)

where p_m(l) is 0 for labels that the member does not propose, log p means log(p + 1e-4), and labels rarer than all
that were right when the rule was found have the z of these. With the three forms of a probability a member can count
more at high or at low probabilities; with z, for frequent or for rare labels. With p alone, a blend of DiSMEC, RXML,
FastXML and a label tree ranks held-out rows of EURLex-4K 0.8 (P@1), 0.6 (P@3) and 0.4 (P@5) worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ModelCorruptError
from umpteen.models.scorer import Ranking
from umpteen.storage.store import Part

#: Added to a probability before its logarithm is taken.
_LEAST = 1e-4
#: The limit of z, in standard deviations, for labels without rows.
_FARTHEST = 5.0
#: No coefficient of a sound model is this large.
_LARGEST = 1e100

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The labels that any member proposed, sorted by row and label."""

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    probabilities: Floats  # pairs x members; 0 where a member did not propose the label


def pair(proposals: Sequence[Ranking], n_labels: int) -> Pairs:
    """Joins the members' proposals.

    Parameters
    ----------
    proposals
        For each member, labels (n_rows x candidates, padded with -1) and probabilities.
    """
    keys = []
    for labels, _ in proposals:
        rows = np.repeat(np.arange(len(labels), dtype=np.int64), (labels >= 0).sum(axis=1))
        keys.append(rows * n_labels + labels[labels >= 0])
    every, place = np.unique(np.concatenate(keys), return_inverse=True)
    probabilities = np.zeros((len(every), len(proposals)))
    start = 0
    for m, ((labels, values), own) in enumerate(zip(proposals, keys, strict=True)):
        probabilities[place[start : start + len(own)], m] = values[labels >= 0]
        start += len(own)
    return Pairs(*np.divmod(every, n_labels), probabilities)


def rank(pairs: Pairs, scores: Floats, n_rows: int, top_k: int) -> Ranking:
    """The best labels of each row, best first; ties go to the lower label id; padded with -1 and -inf."""
    best = np.lexsort((pairs.labels, -scores, pairs.rows))
    row, label, score = pairs.rows[best], pairs.labels[best], scores[best]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    kept = place < top_k
    out_labels, out_scores = np.full((n_rows, top_k), -1, np.int32), np.full((n_rows, top_k), -np.inf, np.float32)
    out_labels[row[kept], place[kept]] = label[kept]
    out_scores[row[kept], place[kept]] = score[kept]
    return out_labels, out_scores


def measure_frequency(counts: Sequence[NDArray[Any]]) -> Floats:
    """z of each label, from the largest number of training rows that a member has for it."""
    logs = np.log1p(np.max(np.asarray(counts, np.float64), axis=0))
    known = logs[logs > 0] if (logs > 0).any() else logs
    if known.std() < 1e-9:
        return np.zeros(len(logs))
    frequency: Floats = np.clip((logs - known.mean()) / known.std(), -_FARTHEST, _FARTHEST)
    return frequency


@dataclass(frozen=True, eq=False)
class Rule:
    """Combines the members' probabilities into scores."""

    coefficients: Floats  # members x 6: of p, √p and log p, then of each times z
    intercept: Floats  # 2: c and c'
    weights: Floats  # members: how much each moves scores, 1 in all; follows from the others
    lowest: float = -_FARTHEST  # smaller z count as this one: the rule was found without right labels so rare

    def score(self, probabilities: Floats, frequency: Floats) -> Floats:
        """The scores of pairs of a row and a label: pairs x members, pairs -> pairs."""
        total = self.of_label(frequency)
        for m in range(len(self.weights)):  # in order, so that sums are the same to the last bit
            total = total + self.of_member(m, probabilities[:, m], frequency)
        return total

    def of_label(self, frequency: Floats) -> Floats:
        total: Floats = self.intercept[0] + self.intercept[1] * np.maximum(frequency, self.lowest)
        return total

    def of_member(self, m: int, p: NDArray[Any], frequency: Floats) -> Floats:
        total: Floats = np.zeros(len(p))
        frequency = np.maximum(frequency, self.lowest)
        for form, plain, by_frequency in zip(forms(p), *self.coefficients[m].reshape(2, 3), strict=True):
            total = total + (plain + by_frequency * frequency) * form
        return total

    @classmethod
    def sum_of(cls, weights: Floats) -> Rule:
        """The weighted sum of probabilities."""
        coefficients = np.zeros((len(weights), 6))
        coefficients[:, 0] = weights
        return cls(coefficients, np.zeros(2), np.asarray(weights, np.float64))

    @classmethod
    def from_part(cls, part: Part, n_members: int) -> Rule:
        weights = part.array("weights", "float64")
        sound = weights.shape == (n_members,) and bool((weights >= 0).all()) and abs(weights.sum() - 1) < 1e-6
        if not sound:
            raise ModelCorruptError("a blend must have a weight of at least 0 for each member, 1 in all")
        if "coefficients" not in part.arrays:
            return cls.sum_of(weights)
        coefficients, intercept = part.array("coefficients", "float64", 2), part.array("intercept", "float64")
        lowest = part.scalars.get("lowest", -_FARTHEST)  # earlier blends have none
        if not isinstance(lowest, float) or not -_FARTHEST <= lowest <= _FARTHEST:
            raise ModelCorruptError(f"the lowest z of a blend's rule must be in [-5, 5], but is {lowest!r:.100}")
        sound = coefficients.shape == (n_members, 6) and intercept.shape == (2,)
        if not sound or not max(np.abs(coefficients).max(), np.abs(intercept).max()) < _LARGEST:
            raise ModelCorruptError(
                f"a blend must have 6 finite coefficients for each of its {n_members} members, and 2 more"
            )
        return cls(coefficients, intercept, weights, lowest)

    def to_part(self) -> Part:
        arrays = {"weights": self.weights, "coefficients": self.coefficients, "intercept": self.intercept}
        return Part(arrays, {"lowest": float(self.lowest)})


def forms(p: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
    """The three forms of a probability in the rule."""
    p = p.astype(np.float64)
    return p, np.sqrt(p), np.log(p + _LEAST)
