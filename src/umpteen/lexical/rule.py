"""How likely a candidate is a label: a logistic regression on its features, each of which may count in bends.

A feature's range is divided by knots, quantiles of what training saw. Its value stands for its two nearest knots,
more or less of each, so that the regression draws a line with a bend at every knot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.errors import ModelCorruptError
from umpteen.lexical.candidates import FEATURES
from umpteen.storage.store import Part

Floats = NDArray[np.float64]

_KNOTS = 10
#: Weight of the loss: high, as candidates are many and weights few.
_C = 1.0
#: No weight of a sound model is this large.
_LARGEST = 1e6
#: Log-odds before training, feature by feature.
_UNTRAINED = {
    "frequency": 0.6, "free": 2.0, "exact": 1.0, "gap": -0.5, "words": 0.8, "first": -0.15, "cover": 1.0,
    "shortened": -1.0, "hidden": -0.5, "alternative": -0.3, "ambiguity": -0.7, "crowd": -0.1, "candidates": -0.5,
    "broader": 0.1, "narrower": -0.1, "related": 0.2,
}  # fmt: skip
_UNTRAINED_BIAS = -4.0


class Rule:
    """Log-odds of candidates from their features.

    knots: a feature's are knots[ends[i - 1]:ends[i]]; they rise. weights: one for each knot.
    """

    def __init__(self, knots: Floats, ends: NDArray[np.int64], weights: Floats, bias: float) -> None:
        self.knots, self.ends, self.weights, self.bias = knots, ends, weights, bias

    @classmethod
    def untrained(cls) -> Rule:
        """The same for every vocabulary."""
        knots = np.tile([-64.0, 64.0], len(FEATURES))
        slopes = np.repeat([_UNTRAINED.get(name, 0.0) for name in FEATURES], 2)
        return cls(knots, 2 * np.arange(1, len(FEATURES) + 1), slopes * knots, _UNTRAINED_BIAS)

    @classmethod
    def fit(cls, X: Floats, chosen: NDArray[np.bool_], threads: int) -> Rule:
        """The rule that explains best which candidates were chosen."""
        knots = [np.unique(np.quantile(column, np.linspace(0, 1, _KNOTS), method="nearest")) for column in X.T]
        flat, ends = np.concatenate(knots), np.cumsum([len(some) for some in knots], dtype=np.int64)
        rule = cls(flat, ends, np.zeros(len(flat)), 0.0)
        indptr, indices, data = rule._spread(X)
        positives = np.flatnonzero(chosen).astype(np.int32)
        found = _native.solve_panels(
            indptr, indices, data, len(flat), np.array([0, len(positives)], np.int64), positives,
            np.ones(1, np.float32), C=_C, bias=1.0, eps=0.01, prune=0.0, max_rounds=50, squared_hinge=False,
            threads=threads,
        )  # fmt: skip
        rule.weights[found["indices"]] = found["data"]
        rule.bias = float(found["bias"][0])
        return rule

    def score(self, X: Floats) -> Floats:
        """Log-odds of candidates."""
        total = np.full(len(X), self.bias)
        begin = 0
        for column, end in zip(X.T, self.ends.tolist(), strict=True):  # in order, so that sums are the same
            total += np.interp(column, self.knots[begin:end], self.weights[begin:end])
            begin = end
        return total

    def _spread(self, X: Floats) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
        """A sparse row of two values or one for each feature."""
        indices = np.empty((len(X), 2 * len(self.ends)), np.int32)
        data = np.empty(indices.shape, np.float32)
        begin = 0
        for i, end in enumerate(self.ends.tolist()):
            knots, column = self.knots[begin:end], X[:, i]
            upper = np.clip(np.searchsorted(knots, column), min(1, len(knots) - 1), len(knots) - 1)
            lower = np.maximum(upper - 1, 0)
            width = np.where(upper > lower, knots[upper] - knots[lower], 1.0)
            share = np.where(upper > lower, np.clip((column - knots[lower]) / width, 0, 1), 0.0)
            indices[:, 2 * i], indices[:, 2 * i + 1] = begin + lower, begin + upper
            data[:, 2 * i], data[:, 2 * i + 1] = 1 - share, share
            begin = end
        kept = data != 0
        return np.append(0, np.cumsum(kept.sum(axis=1))), indices[kept], data[kept]

    # --- storage -------------------------------------------------------------------------------------------------

    def to_part(self) -> Part:
        return Part({"knots": self.knots, "ends": self.ends, "weights": self.weights}, {"bias": self.bias})

    @classmethod
    def from_part(cls, part: Part) -> Rule:
        knots, ends = part.array("knots", "float64"), part.array("ends", "int64")
        weights, bias = part.array("weights", "float64"), part.scalars.get("bias")
        if not isinstance(bias, float):
            raise ModelCorruptError(f"the bias of a matcher's rule must be a number, but is {bias!r:.100}")
        steps = np.diff(ends, prepend=0)
        sound = (
            len(ends) == len(FEATURES) and bool((steps > 0).all()) and int(ends[-1]) == len(knots) == len(weights)
            and _all_finite(knots, weights, np.array([bias]))
            and all(bool((np.diff(some) > 0).all()) for some in np.split(knots, ends[:-1]))
        )  # fmt: skip
        if not sound:
            raise ModelCorruptError("the rule of a matcher must have rising knots and finite weights")
        return cls(knots, ends, weights, bias)


def _all_finite(*arrays: NDArray[Any]) -> bool:
    return all(bool((np.abs(array) < _LARGEST).all()) for array in arrays)
