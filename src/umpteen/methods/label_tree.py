"""LabelTree: a tree of one-vs-rest classifiers over clusters of labels (Parabel: Prabhu et al., WWW 2018; Bonsai:
Khandagale et al., Machine Learning 2020).

1. A label is represented by the direction of the sum of its rows.
2. The labels are split by spherical k-means, and each cluster again, until at most `max_leaf` are left: into two
   halves of equal size (Parabel), or into many clusters of any size (Bonsai); here their size is limited.
3. Each node separates its children: one squared-hinge support vector machine per child, trained on the rows that have
   a label below the node, and on those its parent mistakes for them (as in PECOS; Parabel and Bonsai use only the
   former). Weights smaller than `prune` are dropped.
4. A row goes down level by level, along the `beam` best nodes. A path's score is the sum over its nodes of
   -(1 - margin)³, or of a hundredth of the margin's excess over 1; a label's score is the logarithm of the mean of
   e^score over the trees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, make_csr, offsets
from umpteen.data.preprocessing import Preprocessing
from umpteen.engines.base import Engine, Resources, Task
from umpteen.memory import Estimate
from umpteen.methods.base import Method
from umpteen.methods.one_vs_rest import PANEL_LABELS, count_weights_bound
from umpteen.methods.training_data import TrainingData
from umpteen.models.label_tree import LabelTreeModel, TreePart
from umpteen.params import check_choice, check_count, check_number
from umpteen.storage.saving import shard_name
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads

CLUSTERINGS = ("capped", "plain", "balanced")
#: The most children a node may have: as many as a linear shard's positions can number.
MAX_CHILDREN = 65536
#: A node with at most this many rows may store a number for each pair of them.
_GRAM_ROWS = 2048
#: From this value on, pruning leaves a child few weights for features that only other children's rows have.
_PRUNES_OTHERS = 0.01
_MAX_ITERATIONS = 20


@dataclass(frozen=True, eq=False)
class Nodes:
    """Some nodes of a tree, and where the labels of their children are in the tree's order."""

    order: NDArray[np.int32]  # all labels of the tree; those of a node are next to each other
    child_ptr: NDArray[np.int64]  # n_nodes + 1
    child_begin: NDArray[np.int64]  # by child, in the order
    child_end: NDArray[np.int64]
    children: NDArray[np.int32]  # by child: a label, or ~node
    depth: NDArray[np.int64]  # n_nodes, not falling


class LabelTree(Method):
    """A tree of one-vs-rest classifiers over clusters of labels, searched with a beam: for very many labels.

    Parameters
    ----------
    n_trees
        They differ in the random starts of the clustering; more are better and slower.
    branching
        The most clusters a node is split into: 2 is Parabel's, 100 Bonsai's. There are fewer if they would have less
        than a quarter of `max_leaf` labels on average.
    max_leaf
        A cluster with this many labels or fewer is not split further.
    clustering
        "plain" allows clusters of any size; "balanced" makes them equal, give or take one; "capped" allows up to
        `max_leaf` labels if that leaves some freedom, else up to twice the mean.
    beam
        How many nodes of a level prediction follows; can be changed after training.
    C
        Weight of the loss against the regulariser.
    near
        A row without any label below a child, but with a margin above this for it, becomes a negative example there
        too, because the search will send such rows there. None turns this off, as in the papers: faster, but usually
        worse.
    prune
        Weights smaller than this are dropped. 0 keeps all.
    bias
        The value of the constant feature; 0 leaves it out.
    eps
        A child is solved when the gradient has shrunk to ``eps · min(n⁺, n⁻) / n`` of that at zero, LIBLINEAR's rule.
    max_rounds
        The most Newton steps per child.
    seed
        Seeds the first cluster centres. Tree t depends only on the seed and t.
    normalize, tfidf, power
        Preprocessing, in this order: raise values to `power`, from 0 to 1 (0.5 damps large values); with `tfidf`,
        weight counts by inverse document frequency; with `normalize`, scale rows to unit length.
    labels_per_shard
        A shard is a group of subtrees with this many labels in all, or the nodes above them; by default chosen from
        the number of labels.
    threads, engine
        How to compute; the model does not depend on them.

    Examples
    --------
    >>> import umpteen
    >>> train = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> model = umpteen.LabelTree(branching=4, max_leaf=5).fit(train.X, train.Y)
    >>> labels, scores = model.predict_topk(train.X, top_k=3)
    >>> labels.shape
    (500, 3)
    """

    name: ClassVar[str] = "label-tree"
    weighs_rows: ClassVar[bool] = True
    scorer_class = LabelTreeModel
    memory_advice: ClassVar[str] = "use fewer threads, fewer trees, or a larger prune"

    def __init__(
        self,
        n_trees: int = 1,
        branching: int = 100,
        max_leaf: int = 100,
        clustering: str = "capped",
        beam: int = 10,
        C: float = 1.0,
        near: float | None = -0.5,
        prune: float = 0.01,
        bias: float = 1.0,
        eps: float = 0.03,
        max_rounds: int = 100,
        seed: int = 0,
        normalize: bool = True,
        tfidf: bool = False,
        power: float = 1.0,
        labels_per_shard: int | None = None,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> None:
        self.n_trees = n_trees
        self.branching = branching
        self.max_leaf = max_leaf
        self.clustering = clustering
        self.beam = beam
        self.C = C
        self.near = near
        self.prune = prune
        self.bias = bias
        self.eps = eps
        self.max_rounds = max_rounds
        self.seed = seed
        self.normalize = normalize
        self.tfidf = tfidf
        self.power = power
        self.labels_per_shard = labels_per_shard
        self.threads = threads
        self.engine = engine

    def validate(self) -> None:
        for name in ("n_trees", "beam", "max_rounds"):
            check_count(name, getattr(self, name))
        check_count("branching", self.branching, low=2, high=MAX_CHILDREN)
        check_count("max_leaf", self.max_leaf, high=MAX_CHILDREN)
        check_count("seed", self.seed, low=0)
        check_choice("clustering", self.clustering, CLUSTERINGS)
        for name in ("C", "eps"):
            check_number(name, getattr(self, name), 0, above=True)
        check_number("prune", self.prune, 0)
        if self.near is not None:
            check_number("near", self.near, -np.inf)
        self.preprocessing()  # checks its own parameters
        if self.labels_per_shard is not None:
            check_count("labels_per_shard", self.labels_per_shard)
        if self.threads is not None:
            check_count("threads", self.threads, high=4096)

    # --- 1. representations -------------------------------------------------------------------------------------

    def represent_labels(self, data: TrainingData) -> Csr:
        """The direction of the sum of each label's rows, n_labels x n_features."""
        members = data.rows_of.T.tocsr().astype(np.float32)
        if data.row_costs is not None:
            members = members @ sp.diags(data.row_costs)
        sums = (members @ data.X).tocsr()
        sums.sort_indices()
        V = make_csr(sums.data, sums.indices, sums.indptr, sums.shape)
        return Preprocessing(normalize=True).transform(V, threads=self.threads)

    # --- 2. clusters --------------------------------------------------------------------------------------------

    def plan(self, data: TrainingData) -> list[Task]:
        """Grows the trees and cuts them: a shard is the top of a tree or some of the subtrees below it.

        If subtrees learn from the rows that the top mistakes for theirs, the top is trained here: all need it.
        """
        V = self.represent_labels(data)
        labels = np.flatnonzero(np.diff(data.rows_of.indptr) > 0).astype(np.int32)
        tasks: list[Task] = []
        for tree in range(self.n_trees):
            top, *below = self.cut(self.grow(V, labels, tree))
            part: Part | None = None
            mistaken: dict[int, NDArray[np.int32]] = {}
            if below and self.near is not None:
                part, mistaken = self.train_nodes(data, top, 0, mistaken, resolve_threads(self.threads))
            first = 0
            for index, nodes in enumerate([top, *below]):
                last = first + len(nodes.depth)
                mine = {node: rows for node, rows in mistaken.items() if first <= node < last}
                cost = float(len(nodes.children) + np.sum(nodes.child_end - nodes.child_begin))
                done = part if index == 0 else None
                tasks.append(Task(shard_name(len(tasks)), (nodes, first, mine, done), cost))
                first = last
        return tasks

    def grow(self, V: Csr, labels: NDArray[np.int32], tree: int) -> Nodes:
        """One tree, level by level; its nodes are numbered in this order."""
        order = labels.copy()
        spans = [(0, len(order))]  # of the nodes: where their labels are
        begins: list[NDArray[np.int64]] = []
        ends: list[NDArray[np.int64]] = []
        children: list[NDArray[np.int64]] = []
        depths: list[int] = []
        level = 0
        while level < len(spans):
            nodes = spans[level:]
            bounds = self.split(V, order, nodes, (self.seed, tree, level))
            level += len(nodes)
            depths += [depths[-1] + 1 if depths else 0] * len(nodes)
            for bound in bounds:
                begin, end = bound[:-1], bound[1:]
                single = end - begin == 1
                child = np.where(single, order[begin], 0)
                child[~single] = ~(len(spans) + np.arange(np.count_nonzero(~single)))
                spans += list(zip(begin[~single].tolist(), end[~single].tolist(), strict=True))
                begins.append(begin)
                ends.append(end)
                children.append(child)
        sizes = [len(child) for child in children]
        return Nodes(
            order,
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate(begins).astype(np.int64),
            np.concatenate(ends).astype(np.int64),
            np.concatenate(children).astype(np.int32),
            np.array(depths, np.int64),
        )

    def split(
        self, V: Csr, order: NDArray[np.int32], spans: list[tuple[int, int]], entropy: tuple[int, int, int]
    ) -> list[NDArray[np.int64]]:
        """Puts the labels of some nodes in the order of their children; returns where each child begins and the last
        one ends."""
        bounds = [np.arange(begin, end + 1) for begin, end in spans]
        large = [i for i, (begin, end) in enumerate(spans) if end - begin > self.max_leaf]
        if not large:
            return bounds
        sizes = [spans[i][1] - spans[i][0] for i in large]
        members = np.concatenate([order[slice(*spans[i])] for i in large])
        group_ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        # Clusters need not be smaller than leaves: a quarter of the largest leaf, on average.
        n_clusters = np.clip(-(-4 * np.array(sizes) // self.max_leaf), 2, self.branching).astype(np.int32)
        clusters, _ = _native.cluster_labels(
            offsets(V),
            V.indices,
            V.data,
            V.shape[1],
            group_ptr,
            members,
            n_clusters,
            self.cap(np.array(sizes), n_clusters),
            np.random.SeedSequence(entropy).generate_state(len(large), np.uint64).astype(np.uint64),
            max_iterations=_MAX_ITERATIONS,
            threads=resolve_threads(self.threads),
        )
        for i, first, last in zip(large, group_ptr[:-1], group_ptr[1:], strict=True):
            mine = clusters[first:last]
            if mine.min() == mine.max():  # labels that no direction separates
                mine = np.arange(last - first) * self.branching // (last - first)
            by_cluster = np.argsort(mine, kind="stable")
            order[slice(*spans[i])] = members[first:last][by_cluster]
            starts = np.flatnonzero(np.diff(mine[by_cluster], prepend=-1))
            bounds[i] = np.append(starts, last - first) + spans[i][0]
        return bounds

    def cap(self, sizes: NDArray[np.int64], n_clusters: NDArray[np.int32]) -> NDArray[np.int64]:
        """The most labels a cluster of each node may have."""
        if self.clustering == "plain":
            return sizes
        share = -(-sizes // n_clusters)
        if self.clustering == "balanced":
            return share
        # Straight to leaves if that leaves some freedom.
        return np.where(5 * share <= 4 * self.max_leaf, self.max_leaf, 2 * share)

    def cut(self, tree: Nodes) -> list[Nodes]:
        """The top, unless one shard holds everything, and groups of subtrees with `labels_per_shard` labels in all.
        The nodes are renumbered in the order of the shards."""
        if len(tree.order) == 0:
            return [tree]
        n_nodes = len(tree.child_ptr) - 1
        begin, end = tree.child_begin[tree.child_ptr[:-1]], tree.child_end[tree.child_ptr[1:] - 1]
        size = int(self.labels_per_shard or np.clip(-(-len(tree.order) // 16), 1024, 16384))
        above = end - begin > size
        # A subtree belongs to the shard that contains the middle of its labels.
        shard = np.where(above, 0, 1 + (begin + end) // 2 // size)
        parent = np.zeros(n_nodes, np.int64)
        inner = np.flatnonzero(tree.children < 0)
        parent[~tree.children[inner]] = np.searchsorted(tree.child_ptr, inner, side="right") - 1
        for node in range(1, n_nodes):  # parents come first
            if not above[parent[node]]:
                shard[node] = shard[parent[node]]
        by_shard = np.argsort(shard, kind="stable")
        number = np.empty(n_nodes, np.int64)
        number[by_shard] = np.arange(n_nodes)
        children = tree.children.copy()
        children[inner] = ~number[~tree.children[inner]]
        return [
            _take(replace(tree, children=children), nodes)
            for nodes in np.split(by_shard, np.flatnonzero(np.diff(shard[by_shard])) + 1)
        ]

    # --- 3. classifiers -----------------------------------------------------------------------------------------

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        nodes, first, mistaken, part = task.plan
        if part is None:
            part, _ = self.train_nodes(data, nodes, first, mistaken, resources.threads, resources.token)
        trained: Part = part
        return trained

    def train_nodes(
        self,
        data: TrainingData,
        nodes: Nodes,
        first: int,
        mistaken: dict[int, NDArray[np.int32]],
        threads: int,
        token: _native.CancelToken | None = None,
    ) -> tuple[Part, dict[int, NDArray[np.int32]]]:
        """Trains some nodes, numbered from `first`, level by level, since a node learns from its parent's mistakes.
        `mistaken` has the rows mistaken for each of these nodes; also returns those for the nodes below, by node."""
        mistaken = dict(mistaken)
        n_nodes = len(nodes.depth)
        levels = np.split(np.arange(n_nodes), np.flatnonzero(np.diff(nodes.depth)) + 1)
        if self.near is None:
            levels = [np.arange(n_nodes)]
        solved = []
        for level in levels:
            some = _take(nodes, level)
            extra = [mistaken.pop(first + int(node), np.zeros(0, np.int32)) for node in level]
            out = self.solve_nodes(data, some, extra, threads, token)
            near = np.split(out.pop("near_rows"), np.cumsum(out.pop("near_counts"))[:-1])
            for child, rows in zip(some.children.tolist(), near if self.near is not None else (), strict=False):
                if child < 0 and len(rows):
                    mistaken[~child] = rows
            solved.append(out)
        arrays = _join(solved)
        part = TreePart(**arrays, child_ptr=nodes.child_ptr, children=nodes.children, begins_tree=first == 0)
        return part.to_part(), mistaken

    def solve_nodes(
        self,
        data: TrainingData,
        nodes: Nodes,
        extra: list[NDArray[np.int32]],
        threads: int,
        token: _native.CancelToken | None,
    ) -> dict[str, Any]:
        """Runs the kernel on some nodes; `extra` has more rows, which all children of a node should reject."""
        return _native.solve_nodes(
            offsets(data.X),
            data.X.indices,
            data.X.data,
            data.X.shape[1],
            data.rows_of.indptr.astype(np.int64),
            data.rows_of.indices.astype(np.int32),
            nodes.order,
            nodes.child_ptr,
            nodes.child_begin,
            nodes.child_end,
            np.concatenate([[0], np.cumsum([len(rows) for rows in extra])]).astype(np.int64),
            np.concatenate([np.zeros(0, np.int32), *extra]),
            C=float(self.C),
            bias=data.bias,
            eps=float(self.eps),
            prune=float(self.prune),
            max_rounds=int(self.max_rounds),
            near=np.inf if self.near is None else float(self.near),
            threads=threads,
            token=token,
            row_cost=data.row_costs,
        )

    # --- memory -------------------------------------------------------------------------------------------------

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        """A bound for usual data: pruning drops most of a child's weights for features that only other children's
        rows have, so it keeps no more features than its own rows have; without pruning, no more than a leaf's."""
        n_rows, n_features = X.shape
        n_labels = Y.shape[1]
        levels = 1 + max(0, int(np.ceil(np.log(max(n_labels / self.max_leaf, 1)) / np.log(self.branching))))
        own = count_weights_bound(X, Y)
        weights = int(own.sum())
        if self.prune < _PRUNES_OTHERS:
            weights = int(np.minimum(own + self.max_leaf * own.mean(), n_features).sum())
        model_bytes = self.n_trees * (levels * weights * 16 + n_labels * levels * 64)
        # The root has all rows: its panels and a copy of its rows, also by feature for products of pairs; the labels'
        # directions and the centres of one level.
        threads = resolve_threads(self.threads)
        few = min(n_rows, _GRAM_ROWS)
        panels = 4 * PANEL_LABELS * (6 * (n_features + 1) + 3 * n_rows + 6 * few) + 4 * few**2
        stride = -(-min(self.branching, n_labels) // 16) * 16
        directions = int(own.sum()) * 8 * 2 + 4 * stride * (n_features + n_labels)
        copies = X.nnz * 8 * (1 + 2 * threads) + Y.nnz * 24 + (n_rows + n_features) * 16 * threads
        work = threads * panels + directions + copies
        return Estimate(int(work + model_bytes), int(model_bytes))


def _take(tree: Nodes, nodes: NDArray[np.int64]) -> Nodes:
    """Some nodes of a tree."""
    sizes = np.diff(tree.child_ptr)[nodes]
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    at = np.repeat(tree.child_ptr[nodes] - ptr[:-1], sizes) + np.arange(ptr[-1])
    return Nodes(tree.order, ptr, tree.child_begin[at], tree.child_end[at], tree.children[at], tree.depth[nodes])


def _join(levels: list[dict[str, Any]]) -> dict[str, Any]:
    """The arrays of several levels, concatenated as in a part."""
    arrays: dict[str, Any] = {}
    for name in ("features", "indptr", "position_ptr", "positions", "bias", "scale"):
        arrays[name] = np.concatenate([level[name] for level in levels])
    for name in ("feature_ptr", "position_start", "weight_start"):
        sizes = np.concatenate([np.diff(level[name]) for level in levels])
        arrays[name] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    padding = _native.WEIGHT_PADDING
    weights = [level["weights"][:-padding] for level in levels] + [levels[-1]["weights"][-padding:]]
    arrays["weights"] = np.concatenate(weights).view(np.float16)
    return arrays
