"""Label trees: each node separates its children, and the children of the last nodes are labels.

A part is some nodes of one tree: its top, or one or more of its subtrees. The nodes of a tree are numbered across its
parts, children after their parent. A node is a small linear model (models/linear.py) with one weight vector per child
and only the features it has weights for: a row visits few nodes, and has few of their features. The arrays of a part
hold its nodes one after the other; cpp/include/umpteen/label_tree.hpp describes the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen import _native
from umpteen.data.matrix import Csr
from umpteen.errors import ModelCorruptError
from umpteen.models.explanation import Explanation, count_votes
from umpteen.models.linear import LinearShard
from umpteen.models.partial import Merger, RankingMerger
from umpteen.models.scorer import Ranking, Scorer, allow_labels, rank_labels, unit_scores
from umpteen.params import check_count
from umpteen.storage.store import Part


@dataclass(frozen=True, eq=False)
class TreePart:
    """Some nodes of a tree, as stored in their files."""

    child_ptr: NDArray[np.int64]  # n_nodes + 1
    children: NDArray[np.int32]  # labels, or ~node
    feature_ptr: NDArray[np.int64]  # n_nodes + 1
    features: NDArray[np.int32]  # of each node, rising
    indptr: NDArray[np.uint32]  # per node, one entry more than it has features; counts within the node
    position_ptr: NDArray[np.uint32]  # likewise
    position_start: NDArray[np.int64]  # n_nodes + 1
    positions: NDArray[np.uint16]
    weight_start: NDArray[np.int64]  # n_nodes + 1
    weights: NDArray[np.float16]  # and some padding
    bias: NDArray[np.float32]  # by child
    scale: NDArray[np.float32]  # n_nodes
    begins_tree: bool  # whether the first node is a root
    link: str = "cubic"  # what a margin adds to a path's score: a name of LINKS

    @classmethod
    def from_part(cls, part: Part) -> TreePart:
        begins = part.scalars.get("begins_tree")
        if not isinstance(begins, bool):
            raise ModelCorruptError(f"begins_tree of a label tree must be true or false, but is {begins!r:.100}")
        link = part.scalars.get("link", "cubic")
        if not isinstance(link, str) or link not in LINKS:
            raise ModelCorruptError(f"link of a label tree must be one of {', '.join(LINKS)}, but is {link!r:.100}")
        arrays = {name: part.array(name, dtype) for name, dtype in _ARRAYS.items()}
        return cls(**arrays, begins_tree=begins, link=link)

    def to_part(self) -> Part:
        scalars: dict[str, Any] = {"begins_tree": self.begins_tree}
        if self.link != "cubic":  # ours, which earlier versions do not name
            scalars["link"] = self.link
        return Part({name: getattr(self, name) for name in _ARRAYS}, scalars)

    @property
    def n_nodes(self) -> int:
        return len(self.scale)

    @property
    def nnz(self) -> int:
        """How many weights are stored."""
        return int(self.weight_start[-1])

    def children_of(self, node: int) -> NDArray[np.int32]:
        return self.children[self.child_ptr[node] : self.child_ptr[node + 1]]

    def node(self, node: int) -> tuple[NDArray[np.int32], LinearShard]:
        """A node's features and its weights over them."""
        first, last = int(self.feature_ptr[node]), int(self.feature_ptr[node + 1])
        weights = self.weights[self.weight_start[node] : self.weight_start[node + 1]]
        shard = LinearShard(
            indptr=self.indptr[first + node : last + node + 1],
            position_ptr=self.position_ptr[first + node : last + node + 1],
            positions=self.positions[self.position_start[node] : self.position_start[node + 1]],
            weights=np.concatenate([weights, np.zeros(_native.WEIGHT_PADDING, weights.dtype)]),
            bias=self.bias[self.child_ptr[node] : self.child_ptr[node + 1]],
            label_ids=np.arange(self.child_ptr[node + 1] - self.child_ptr[node], dtype=np.int32),
            scale=float(self.scale[node]),
        )
        return self.features[first:last], shard


#: The arrays of a part and their types, in the order of its fields, which is the native scorer's.
_ARRAYS = {
    "child_ptr": "int64", "children": "int32", "feature_ptr": "int64", "features": "int32", "indptr": "uint32",
    "position_ptr": "uint32", "position_start": "int64", "positions": "uint16", "weight_start": "int64",
    "weights": "float16", "bias": "float32", "scale": "float32",
}  # fmt: skip


class LabelTreeModel(Scorer):
    """Beam search over label trees.

    Parameters
    ----------
    parts
        Tree by tree, the part with the root first.
    n_features, n_labels
        The model's shape. Labels in no tree are never ranked.
    beam
        How many nodes of a level to follow.
    """

    family = "label-tree"
    boundary = -0.6931472  # log 0.5
    meaning = "Contributions to the margins along the way to the label."

    def __init__(self, parts: Iterable[TreePart], n_features: int, n_labels: int, beam: int = 10) -> None:
        self.parts = list(parts)
        self.n_features = n_features
        self.n_labels = n_labels
        self.beam = beam
        links = {part.link for part in self.parts} or {"cubic"}
        if len(links) > 1:
            raise ModelCorruptError(f"the trees of a model must have one link, but have {', '.join(sorted(links))}")
        (self.link,) = links
        self._scorer = _native.LabelTreeScorer(n_features, n_labels, self.link)
        try:
            for part in self.parts:
                self._scorer.add_part(part.begins_tree, *(getattr(part, name) for name in _ARRAYS))
            self._scorer.finish()
        except (ValueError, TypeError) as error:
            raise ModelCorruptError(f"a label tree is not usable: {str(error).splitlines()[0]}") from error

    def __reduce__(self) -> Any:
        # Pickle is for process pools and copies; models on disk do not use it.
        return LabelTreeModel, (self.parts, self.n_features, self.n_labels, self.beam)

    @classmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        return cls([TreePart.from_part(part) for part in parts], n_features, n_labels)

    def to_parts(self) -> list[Part]:
        return [part.to_part() for part in self.parts]

    def settings(self) -> dict[str, Any]:
        return {"beam": self.beam}

    def configured(self, params: Mapping[str, Any]) -> Self:
        """`beam` is how many nodes of a level to follow."""
        beam = check_count("beam", params.get("beam", self.beam))
        return self if beam == self.beam else self._altered(beam=beam)

    def units(self) -> list[list[int]]:
        """All parts stay together: the search alternates between the top of a tree and its subtrees."""
        return [list(range(len(self.parts)))]

    def merger(self) -> Merger:
        return RankingMerger()

    from_some_parts = from_parts

    def score_part(self, X: Csr, top_k: int, **options: Any) -> Ranking:
        """The ranking: there is only one part."""
        return self.predict_topk(X, top_k, **options)

    @property
    def nnz(self) -> int:
        return sum(part.nnz for part in self.parts)

    @property
    def n_nodes(self) -> int:
        return sum(part.n_nodes for part in self.parts)

    def describe(self) -> dict[str, Any]:
        """Facts for `umpteen inspect`."""
        depths = [depth for tree in self._trees for depth in tree.label_depths()]
        return {
            "trees": sum(part.begins_tree for part in self.parts),
            "nodes": self.n_nodes,
            "weights": self.nnz,
            "mean_depth": round(float(np.mean(depths)), 2) if depths else 0.0,
        }

    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        """As for every scorer; only labels that the beam reaches are ranked. It follows only nodes above allowed
        labels."""
        allowed = allow_labels(exclude, include, self.n_labels)
        mask = None if allowed is None else allowed.astype(np.uint8)
        return rank_labels(_Search(self._scorer, self.beam), X, top_k, self.n_labels, threads, mask)

    def explain(self, x: Csr, label: int) -> Explanation:
        """What counts for and against the label along its path, whether or not the beam reached it.

        In each tree the contributions are summed over the margins of the nodes on the way, including the label's own;
        several trees are averaged. `base` is the part of the biases. The score is not this sum: it mostly falls with
        how far each margin is below 1. `votes` has the path of each tree with its margins.
        """
        dense = np.zeros(self.n_features + 1)
        dense[x.indices] = x.data
        totals, base = np.zeros(self.n_features), 0.0
        votes: list[dict[str, Any]] = []
        trees = [(number, tree) for number, tree in enumerate(self._trees) if label in tree.parent_of_label]
        for number, tree in trees:
            path = []
            for part, node, position in tree.path_to(label):
                features, shard = part.node(node)
                weights = shard.weights_of(position, np.arange(len(features), dtype=np.int32))
                shares = weights.astype(np.float64) * dense[features]
                totals[features] += shares / len(trees)
                base += float(shard.bias[position]) / len(trees)
                path.append({"child": position, "margin": float(shard.bias[position]) + float(shares.sum())})
            judge = LINKS[self.link]
            votes.append({"tree": number, "path": path, "score": sum(judge(step["margin"]) for step in path)})
        votes.sort(key=lambda vote: (-vote["score"], vote["tree"]))
        _, scores = self.predict_topk(x, 1, include=[label], threads=1)
        return Explanation.build(
            label, float(scores[0, 0]), self.family, base, np.arange(self.n_features), totals, votes,
            count_votes(votes, "tree", "trees", "lead to" if len(votes) > 1 else "leads to"),
        )  # fmt: skip

    @staticmethod
    def to_unit(scores: NDArray[Any]) -> NDArray[np.float32]:
        """Scores are logarithms of a mean over the trees."""
        return unit_scores(scores, np.exp(np.minimum(scores.astype(np.float64), 0)))

    @cached_property
    def _trees(self) -> list[_Tree]:
        starts = [i for i, part in enumerate(self.parts) if part.begins_tree]
        ends = [*starts[1:], len(self.parts)]
        return [_Tree(self.parts[a:b]) for a, b in zip(starts, ends, strict=True)]


def score_margin(margin: float) -> float:
    """What a margin adds to the score of its path, as in the kernel."""
    return -((1 - margin) ** 3) if margin < 1 else 0.01 * (margin - 1)


#: The same by name: ours, and those of trees that other programs trained with a hinge or a logistic loss.
LINKS: dict[str, Callable[[float], float]] = {
    "cubic": score_margin,
    "cubed": lambda margin: -(max(0.0, 1 - margin) ** 3),
    "squared": lambda margin: -(max(0.0, 1 - margin) ** 2),
    "logistic": lambda margin: -float(np.logaddexp(0, -margin)),
}


class _Search:
    """The native scorer with a beam, in the form `rank_labels` needs."""

    def __init__(self, scorer: _native.LabelTreeScorer, beam: int) -> None:
        self._scorer, self._beam = scorer, beam

    def topk(self, indptr: Any, indices: Any, data: Any, top_k: int, threads: int, allowed: Any) -> Any:
        return self._scorer.topk(indptr, indices, data, top_k, threads, self._beam, allowed)


class _Tree:
    """Where the labels of one tree are."""

    def __init__(self, parts: list[TreePart]) -> None:
        self.parts = parts
        self.first = np.cumsum([0, *(part.n_nodes for part in parts)])
        self.parent_of_node: dict[int, tuple[int, int]] = {}
        self.parent_of_label: dict[int, tuple[int, int]] = {}
        for number, part in zip(self.first.tolist(), parts, strict=False):
            for node in range(part.n_nodes):
                for position, child in enumerate(part.children_of(node).tolist()):
                    home = self.parent_of_label if child >= 0 else self.parent_of_node
                    home[child if child >= 0 else ~child] = (number + node, position)

    def path_to(self, label: int) -> list[tuple[TreePart, int, int]]:
        """The nodes from the root to a label, each with its part and the position of the child on the path."""
        path = []
        step: tuple[int, int] | None = self.parent_of_label[label]
        while step is not None:
            number, position = step
            part = int(np.searchsorted(self.first, number, side="right")) - 1
            path.append((self.parts[part], number - int(self.first[part]), position))
            step = self.parent_of_node.get(number)
        return path[::-1]

    def label_depths(self) -> list[int]:
        depth = {0: 1}
        for node, (parent, _) in sorted(self.parent_of_node.items()):
            depth[node] = depth[parent] + 1
        return [depth[parent] for parent, _ in self.parent_of_label.values()]
