"""LPSR: label partitioning for sublinear ranking (Weston et al., ICML 2013), as FastXML's paper compares with it.

A classifier for all labels, one-vs-rest here as in that paper's small sets; a tree that parts rows by 2-means until
at most `max_leaf` are left; and for each leaf the labels its training rows have most often. A row falls into a leaf,
and only the leaf's labels are ranked, by the classifier.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_ROUNDS = 10


@dataclass
class LPSR:
    """`base` is a fitted classifier of all labels."""

    base: Any
    max_leaf: int = 200
    labels_per_leaf: int = 50
    seed: int = 0
    splits: list[Any] = field(default_factory=list)  # (centre of one side - of the other, threshold, children)
    labels: list[Any] = field(default_factory=list)  # of each leaf

    def fit(self, X: Any, Y: Any) -> LPSR:
        X, Y = _unit(X), sp.csr_matrix(Y != 0, dtype=np.float64)
        self.splits, self.labels = [], []
        self._root = self._part(X, Y, np.random.default_rng(self.seed))
        return self

    def _part(self, X: Any, Y: Any, random: np.random.Generator) -> int:
        """The number of a new node: of a split from 0 up, of a leaf -1 and below."""
        found = _two_means(X, random) if X.shape[0] > self.max_leaf else None
        if found is None:
            counts = np.asarray(Y.sum(axis=0)).ravel()
            order = np.argsort(-counts, kind="stable")[: self.labels_per_leaf]
            self.labels.append(order[counts[order] > 0])
            return -len(self.labels)
        direction, threshold, is_above = found
        place = len(self.splits)
        self.splits.append(None)
        children = [self._part(X[mask], Y[mask], random) for mask in (is_above, ~is_above)]
        self.splits[place] = (direction, threshold, children)
        return place

    def find_leaves(self, X: Any) -> NDArray[np.int64]:
        return self._route(X)[0]

    def mean_depth(self, X: Any) -> float:
        """How many splits a row passes."""
        return float(self._route(X)[1].mean())

    def _route(self, X: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of each row its leaf and the leaf's depth."""
        X = _unit(X)
        leaves, depths = np.zeros(X.shape[0], np.int64), np.zeros(X.shape[0], np.int64)
        todo = [(self._root, np.arange(X.shape[0]), 0)]
        while todo:
            node, rows, depth = todo.pop()
            if node < 0:
                leaves[rows], depths[rows] = -node - 1, depth
            elif len(rows):
                direction, threshold, children = self.splits[node]
                is_above = X[rows] @ direction > threshold
                todo += [(children[0], rows[is_above], depth + 1), (children[1], rows[~is_above], depth + 1)]
        return leaves, depths

    def predict_topk(self, X: Any, top_k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        n_labels = self.base.model_.n_labels
        ranked, scores = self.base.predict_topk(X, n_labels)
        allowed = np.zeros((len(self.labels), n_labels), bool)
        for leaf, labels in enumerate(self.labels):
            allowed[leaf, labels] = True
        kept = np.take_along_axis(allowed[self.find_leaves(X)], np.maximum(ranked, 0), 1) & (ranked >= 0)
        order = np.argsort(~kept, axis=1, kind="stable")[:, :top_k]  # the first that are kept
        is_kept = np.take_along_axis(kept, order, 1)
        return (
            np.where(is_kept, np.take_along_axis(ranked, order, 1), -1).astype(np.int32),
            np.where(is_kept, np.take_along_axis(scores, order, 1), -np.inf).astype(np.float32),
        )


def _unit(X: Any) -> Any:
    X = sp.csr_matrix(X, dtype=np.float64)
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    return sp.csr_matrix(sp.diags(1 / np.where(lengths > 0, lengths, 1)) @ X)


def _two_means(X: Any, random: np.random.Generator) -> tuple[NDArray[np.float64], float, Any] | None:
    """The hyperplane between two means, and the rows above it; None if all rows are on one side."""
    centres = X[random.choice(X.shape[0], 2, replace=False)].toarray()
    is_above = np.zeros(X.shape[0], bool)
    for _ in range(_ROUNDS):
        direction = centres[0] - centres[1]
        threshold = float((centres[0] ** 2).sum() - (centres[1] ** 2).sum()) / 2
        last, is_above = is_above, np.asarray(X @ direction > threshold).ravel()
        if is_above.all() or not is_above.any():
            return None
        if np.array_equal(last, is_above):
            break
        centres = np.stack([np.asarray(X[mask].mean(axis=0)).ravel() for mask in (is_above, ~is_above)])
    return direction, threshold, is_above
