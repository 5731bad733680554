"""Forests: trees whose inner nodes are sparse hyperplanes and whose leaves are short lists of labels.

A tree is one shard. A row goes to the first child of a node if ``w·x > 0``, else to the second; a label's score is
the mean over the trees of its score in the row's leaf. Only the sign of w·x counts, so a node's weights are float16
with a scale per node; their features are stored as 8- or 16-bit distances; leaf scores are 16-bit fractions. No row
ids are kept. cpp/include/umpteen/forest.hpp specifies the layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, make_csr, offsets
from umpteen.errors import ModelCorruptError
from umpteen.models.explanation import Explanation, count_votes
from umpteen.models.linear import LinearShard, ranges
from umpteen.models.partial import Merger, rank_entries
from umpteen.models.scorer import Ranking, Scorer, allow_labels, rank_labels, unit_scores
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads

#: The arrays of a tree and their types.
_ARRAYS = {
    "children": "int32", "weight_ptr": "uint32", "gaps": "uint8 uint16", "weights": "float16", "leaf_ptr": "uint32",
    "leaf_labels": "uint16 int32", "leaf_scores": "uint16",
}  # fmt: skip
_FACTS = ("bias", "scale", "mean_depth")


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree, as stored in its files."""

    children: NDArray[np.int32]  # 2 per inner node: an inner node, or ~leaf
    weight_ptr: NDArray[np.uint32]  # n_inner + 1
    gaps: NDArray[Any]  # uint8 or uint16: distances between features
    weights: NDArray[np.float16]
    leaf_ptr: NDArray[np.uint32]  # n_leaves + 1
    leaf_labels: NDArray[Any]  # uint16 or int32
    leaf_scores: NDArray[np.uint16]  # 65535 means `scale`
    bias: float  # the value of the constant feature
    scale: float
    mean_depth: float  # of the training rows' leaves

    @classmethod
    def from_part(cls, part: Part) -> Tree:
        facts = {name: part.scalars.get(name) for name in _FACTS}
        if not all(isinstance(fact, (int, float)) and 0 <= fact < np.inf for fact in facts.values()):
            raise ModelCorruptError(f"a tree must have {', '.join(_FACTS)} of at least 0, but has {facts!r:.200}")
        arrays = {name: part.array(name, dtypes) for name, dtypes in _ARRAYS.items()}
        return cls(**arrays, **facts)  # type: ignore[arg-type]

    def to_part(self) -> Part:
        return Part({name: getattr(self, name) for name in _ARRAYS}, {name: getattr(self, name) for name in _FACTS})

    @property
    def n_leaves(self) -> int:
        return len(self.leaf_ptr) - 1

    def features(self) -> NDArray[np.int64]:
        """The feature of every stored weight, including weights of 0 that only bridge a gap."""
        features = np.cumsum(self.gaps, dtype=np.int64)
        starts = self.weight_ptr[:-1].astype(np.int64)
        before = np.concatenate([[0], features])[starts]
        own: NDArray[np.int64] = features - np.repeat(before, self.weight_ptr[1:].astype(np.int64) - starts)
        return own

    def path_to(self, leaf: int) -> list[tuple[int, int]]:
        """The inner nodes from the root to a leaf, each with the side taken: 0 where w·x > 0, else 1."""
        path: list[tuple[int, int]] = []
        child = ~leaf
        while len(found := np.flatnonzero(self.children == child)):
            node, side = divmod(int(found[0]), 2)
            path.append((node, side))
            if node == 0:
                break
            child = node
        return path[::-1]

    def node_weights(self, node: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """An inner node's features, including the constant, and its weights."""
        run = slice(int(self.weight_ptr[node]), int(self.weight_ptr[node + 1]))
        return np.cumsum(self.gaps[run], dtype=np.int64), self.weights[run].astype(np.float64)

    def leaf_score(self, leaf: int, label: int) -> float:
        """A label's score in a leaf; 0 if it is not there."""
        run = slice(int(self.leaf_ptr[leaf]), int(self.leaf_ptr[leaf + 1]))
        found = self.leaf_scores[run][self.leaf_labels[run] == label]
        return float(found[0]) / 65535 * self.scale if len(found) else 0.0


def leaf_depths(children: NDArray[np.int32]) -> NDArray[np.int64]:
    """How many inner nodes lie above each leaf."""
    n_inner = len(children) // 2
    depth = np.zeros(n_inner, np.int64)
    leaves = np.zeros(n_inner + 1, np.int64)
    for node, (first, second) in enumerate(children.reshape(-1, 2).tolist()):
        for child in (first, second):
            if child >= 0:
                depth[child] = depth[node] + 1
            else:
                leaves[~child] = depth[node] + 1
    return leaves


@dataclass(frozen=True, eq=False)
class Centroids:
    """A block of label centroids, which re-rank the labels from the trees; see PfastreXML."""

    shard: LinearShard  # with a bias of -|m|²/2
    alpha: float
    gamma: float
    candidates: int

    @classmethod
    def from_part(cls, part: Part) -> Centroids:
        values = [part.scalars.get(name) for name in ("alpha", "gamma", "candidates")]
        if not all(isinstance(value, (int, float)) for value in values):
            raise ModelCorruptError(f"centroids need alpha, gamma and candidates, but have {values!r:.200}")
        return cls(LinearShard.from_part(part), *values)  # type: ignore[arg-type]

    def add_to(self, scorer: Any) -> None:
        """Passes the arrays to a native scorer, which raises if it cannot use them."""
        shard = self.shard
        scorer.add_centroids(
            shard.indptr, shard.position_ptr, shard.positions, shard.weights, shard.bias, shard.label_ids, shard.scale
        )
        scorer.set_vote(self.alpha, self.gamma, self.candidates)

    def to_part(self) -> Part:
        part = self.shard.to_part()
        scalars = {"alpha": self.alpha, "gamma": self.gamma, "candidates": self.candidates}
        return Part(part.arrays, {**part.scalars, **scalars})


class ForestModel(Scorer):
    """The mean of some trees, optionally re-ranked by label centroids.

    Parameters
    ----------
    trees
        At least one; all with the same bias and scale.
    n_features, n_labels
        The model's shape.
    centroids
        Blocks of labels.
    """

    family = "forest"
    boundary = 0.5
    meaning = "Shares of the trees' votes."

    def __init__(
        self, trees: Iterable[Tree], n_features: int, n_labels: int, centroids: Iterable[Centroids] = ()
    ) -> None:
        self.trees = list(trees)
        self.centroids = list(centroids)
        self.n_features = n_features
        self.n_labels = n_labels
        if not self.trees:
            raise ModelCorruptError("a forest needs at least one tree")
        if len({(tree.bias, tree.scale) for tree in self.trees}) > 1:
            raise ModelCorruptError("the trees of a forest must all have the same bias and scale")
        self._scorer = _native.ForestScorer(n_features, n_labels, self.trees[0].bias, self.trees[0].scale)
        try:
            for tree in self.trees:
                self._scorer.add_tree(*(getattr(tree, name) for name in _ARRAYS))
            for block in self.centroids:
                block.add_to(self._scorer)
        except (ValueError, TypeError) as error:
            raise ModelCorruptError(f"a tree is not usable: {str(error).splitlines()[0]}") from error

    def __reduce__(self) -> Any:
        # Pickle is for process pools and copies; models on disk do not use it.
        return ForestModel, (self.trees, self.n_features, self.n_labels, self.centroids)

    @classmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        trees = [part for part in parts if "children" in part.arrays]
        others = [part for part in parts if "children" not in part.arrays]
        return cls(
            [Tree.from_part(part) for part in trees],
            n_features,
            n_labels,
            [Centroids.from_part(part) for part in others],
        )

    def to_parts(self) -> list[Part]:
        """Centroids first, so that trees can be appended."""
        return [block.to_part() for block in self.centroids] + [tree.to_part() for tree in self.trees]

    def units(self) -> list[list[int]]:
        return [[len(self.centroids) + i] for i in range(len(self.trees))]

    def merger(self) -> Merger:
        return ForestMerger(
            self.centroids, len(self.trees), self.trees[0].scale, self.trees[0].bias, self.n_features, self.n_labels
        )

    from_some_parts = from_parts

    def score_part(self, X: Csr, top_k: int, *, threads: int | None, **_: Any) -> Csr:
        """The sum over the part's trees of each label's leaf score, as integers; n_rows x n_labels."""
        leaves = self.find_leaves(X, threads=threads)
        rows, labels, scores = [], [], []
        for tree, own in zip(self.trees, leaves.T, strict=True):
            begins, ends = tree.leaf_ptr[own].astype(np.int64), tree.leaf_ptr[own + 1].astype(np.int64)
            places = ranges(begins, ends)
            found = tree.leaf_labels[places].astype(np.int32)
            good = (found >= 0) & (found < self.n_labels)  # SciPy does not check them
            rows.append(np.repeat(np.arange(X.shape[0]), ends - begins)[good])
            labels.append(found[good])
            scores.append(tree.leaf_scores[places[good]].astype(np.int64))
        entries = (np.concatenate(scores), (np.concatenate(rows), np.concatenate(labels)))
        sums: Csr = sp.csr_matrix(entries, shape=(X.shape[0], self.n_labels))  # adds up duplicates
        return sums

    def describe(self) -> dict[str, Any]:
        return {
            "trees": len(self.trees),
            "leaves": sum(tree.n_leaves for tree in self.trees),
            "weights": sum(len(tree.weights) for tree in self.trees),
            "leaf_labels": sum(len(tree.leaf_labels) for tree in self.trees),
            "mean_depth": round(float(np.mean([tree.mean_depth for tree in self.trees])), 2),
            "centroid_weights": sum(block.shard.nnz for block in self.centroids),
        }

    def find_leaves(self, X: Csr, *, threads: int | None = None) -> NDArray[np.int32]:
        """The leaf of each row in each tree, n_rows x n_trees."""
        leaves: NDArray[np.int32] = self._scorer.leaves(offsets(X), X.indices, X.data, resolve_threads(threads))
        return leaves

    def explain(self, x: Csr, label: int) -> Explanation:
        """Which trees voted for a label, and which features led there.

        Each tree's vote is divided equally between the splits on the way to its leaf, and each split's part between
        the features that pushed the row to its side, in proportion to their push. `base` is the constant feature's
        part and the votes of trees that never split. All add up to the trees' mean, which is the score unless
        centroids re-rank it.
        """
        dense = np.zeros(self.n_features + 1)
        dense[x.indices] = x.data
        dense[-1] = self.trees[0].bias
        shares = np.zeros(self.n_features + 1)
        votes, unsplit = [], 0.0
        for number, (tree, leaf) in enumerate(
            zip(self.trees, self.find_leaves(x, threads=1)[0].tolist(), strict=True)
        ):
            vote = tree.leaf_score(leaf, label)
            if vote == 0:
                continue
            path, splits = tree.path_to(leaf), []
            for node, side in path:
                features, weights = tree.node_weights(node)
                if len(features) and features[-1] > self.n_features:
                    raise ModelCorruptError(f"node {node} of tree {number} has a weight for feature {features[-1]}")
                pushes = weights * dense[features] * (1 if side == 0 else -1)
                order = np.argsort(-np.abs(pushes), kind="stable")[:5]
                kept = order[pushes[order] != 0]
                splits.append(
                    {"node": node, "side": side, "features": features[kept].tolist(), "pushes": pushes[kept].tolist()}
                )
                towards = np.maximum(pushes, 0)
                if towards.sum() > 0:
                    np.add.at(shares, features, vote / len(path) * towards / towards.sum())
                else:  # no feature pushed: a row goes to the second side by default
                    shares[-1] += vote / len(path)
            unsplit += 0.0 if path else vote
            votes.append({"tree": number, "leaf": leaf, "score": vote, "splits": splits})
        votes.sort(key=lambda vote: (-vote["score"], vote["tree"]))
        shares /= len(self.trees)
        _, scores = self.predict_topk(x, 1, include=[label], threads=1)
        base = float(shares[-1]) + unsplit / len(self.trees)
        return Explanation.build(
            label, float(scores[0, 0]), self.family, base, np.arange(self.n_features), shares[:-1], votes,
            count_votes(votes, "tree", "trees"),
        )  # fmt: skip

    @staticmethod
    def to_unit(scores: NDArray[Any]) -> NDArray[np.float32]:
        """Scores are already shares of the trees."""
        return unit_scores(scores, np.clip(scores.astype(np.float64), 0, 1))

    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        """As for every scorer; only labels in the row's leaves are ranked."""
        allowed = allow_labels(exclude, include, self.n_labels)
        mask = None if allowed is None else allowed.astype(np.uint8)
        return rank_labels(self._scorer, X, top_k, self.n_labels, threads, mask)


@dataclass(frozen=True, eq=False)
class ForestMerger:
    """Adds up the scores of trees, then re-ranks by the centroids, which are not divided into parts."""

    centroids: list[Centroids]
    n_trees: int
    scale: float
    bias: float
    n_features: int
    n_labels: int

    def merge(
        self,
        X: Csr,
        answers: Sequence[Csr],
        top_k: int,
        *,
        exclude: ArrayLike | None,
        include: ArrayLike | None,
        threads: int | None,
    ) -> Ranking:
        sums = sum(answers[1:], start=answers[0]).tocsr()
        sums.sort_indices()
        allowed = allow_labels(exclude, include, self.n_labels)
        if allowed is not None:
            sums.data[~allowed[sums.indices]] = 0
        sums.eliminate_zeros()
        unit = self.scale / 65535 / self.n_trees
        means = (sums.data.astype(np.float64) * unit).astype(np.float32)
        scores = make_csr(means, sums.indices.astype(np.int32), sums.indptr, sums.shape)
        if not self.centroids:
            return rank_entries(scores, top_k)
        most = int(np.diff(scores.indptr).max(initial=1))
        labels, values = rank_entries(scores, max(1, min(self.centroids[0].candidates, most)))
        scorer = _native.ForestScorer(self.n_features, self.n_labels, self.bias, self.scale)
        for block in self.centroids:
            block.add_to(scorer)
        ranked: Ranking = scorer.revote(
            offsets(X), X.indices, X.data, labels, values, top_k, resolve_threads(threads)
        )
        return ranked
