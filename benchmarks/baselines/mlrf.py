"""MLRF: a random forest over labels (Agrawal et al., WWW 2013), as FastXML's paper compares with it.

A node draws some of the features its rows have, and for each some thresholds; it takes the split that leaves the
labels purest, by the Gini index summed over all labels, or, as MLRF-nDCG in FastXML's Table 7, the one whose two
rankings of labels have the best nDCG. A leaf keeps the mean of its rows' labels, and a row's prediction is the mean
over trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_QUANTILES = (0.2, 0.4, 0.6, 0.8)


@dataclass
class _Node:
    feature: int = -1  # a leaf
    threshold: float = 0.0
    above: Any = None
    below: Any = None
    labels: Any = None  # of a leaf: a row of L


@dataclass
class MLRF:
    """With `split` "gini" or "ndcg"."""

    n_trees: int = 50
    max_leaf: int = 10
    n_candidates: int | None = None  # features a node tries; by default the square root of all
    split: str = "gini"
    seed: int = 0
    trees: list[_Node] = field(default_factory=list)

    def fit(self, X: Any, Y: Any) -> MLRF:
        X, Y = sp.csr_matrix(X), sp.csr_matrix(Y != 0, dtype=np.float64)
        self.trees = []
        for tree in range(self.n_trees):
            random = np.random.default_rng([self.seed, tree])
            rows = random.integers(0, X.shape[0], X.shape[0])  # each tree has a sample of its own
            self.trees.append(self._grow(X[rows], Y[rows], random))
        return self

    def _grow(self, X: Any, Y: Any, random: np.random.Generator) -> _Node:
        found = None if X.shape[0] <= self.max_leaf else self._best_split(X, Y, random)
        if found is None:
            return _Node(labels=sp.csr_matrix(Y.mean(axis=0)))
        feature, threshold, is_above = found
        above, below = (self._grow(X[mask], Y[mask], random) for mask in (is_above, ~is_above))
        return _Node(feature, threshold, above, below)

    def _best_split(self, X: Any, Y: Any, random: np.random.Generator) -> tuple[int, float, Any] | None:
        present = np.unique(X.indices)
        n = self.n_candidates or int(np.ceil(np.sqrt(X.shape[1])))
        features = present if len(present) <= n else random.choice(present, n, replace=False)
        values = X[:, features].toarray()
        cuts = np.zeros((1, len(features)))
        if (values != 0).mean() > 1 - max(_QUANTILES):  # else all quantiles of most features are 0
            cuts = np.unique(np.vstack([cuts, np.quantile(values, _QUANTILES, axis=0)]), axis=0)
        is_above = np.concatenate([values > cut for cut in cuts], axis=1)
        n_above = is_above.sum(axis=0)
        real = np.flatnonzero((n_above > 0) & (n_above < X.shape[0]))
        if not len(real):
            return None
        score = score_gini if self.split == "gini" else score_ndcg
        best = real[int(np.argmax(score(is_above[:, real], Y)))]
        column = best % len(features)
        return int(features[column]), float(cuts[best // len(features)][column]), is_above[:, best]

    def predict_topk(self, X: Any, top_k: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        by_column = sp.csc_matrix(X)
        total: Any = 0
        for tree in self.trees:
            leaves: list[Any] = [None] * X.shape[0]
            for rows, leaf, _ in _route(tree, by_column, np.arange(X.shape[0])):
                for row in rows:
                    leaves[row] = leaf.labels
            total = total + sp.vstack(leaves, format="csr")
        scores = total.toarray() / len(self.trees)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
        return order.astype(np.int32), np.take_along_axis(scores, order, 1)

    def mean_depths(self, X: Any) -> NDArray[np.float64]:
        """Of each tree, how many splits a row passes."""
        by_column = sp.csc_matrix(X)
        whole = np.arange(X.shape[0])
        return np.array(
            [
                sum(len(rows) * depth for rows, _, depth in _route(tree, by_column, whole)) / len(whole)
                for tree in self.trees
            ]
        )


def _route(
    node: _Node, X: Any, rows: NDArray[np.int64], depth: int = 0
) -> Iterator[tuple[NDArray[np.int64], _Node, int]]:
    """Rows, the leaf they fall into, and its depth."""
    if node.feature < 0:
        yield rows, node, depth
    elif len(rows):
        is_above = X[:, [node.feature]].toarray().ravel()[rows] > node.threshold
        yield from _route(node.above, X, rows[is_above], depth + 1)
        yield from _route(node.below, X, rows[~is_above], depth + 1)


def score_gini(is_above: NDArray[np.bool_], Y: Any) -> NDArray[np.float64]:
    """For each split (a column) Σ over sides of Σ_l c_l² / n: largest where Σ n Σ_l p_l (1 - p_l) is smallest."""
    whole = np.asarray(Y.sum(axis=0)).ravel()
    above = Y.T @ is_above.astype(np.float64)  # labels x splits
    n_above = is_above.sum(axis=0)
    return (above**2).sum(axis=0) / n_above + ((whole[:, None] - above) ** 2).sum(axis=0) / (len(is_above) - n_above)


def score_ndcg(is_above: NDArray[np.bool_], Y: Any) -> NDArray[np.float64]:
    """For each split the sum over rows of the nDCG of their side's ranking: labels by Σ_i I(y_i) y_i."""
    counts = np.diff(Y.indptr)
    discount = 1 / np.log2(np.arange(max(Y.shape[1], counts.max())) + 2)
    ideal = np.concatenate([[np.inf], discount.cumsum()])[counts]
    gains = sp.diags(1 / ideal) @ Y
    whole = np.asarray(gains.sum(axis=0)).ravel()
    above = gains.T @ is_above.astype(np.float64)
    sides = [above, whole[:, None] - above]
    return sum(discount[: Y.shape[1]] @ -np.sort(-side, axis=0) for side in sides)
