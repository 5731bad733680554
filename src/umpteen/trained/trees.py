"""What imported trees share, whichever program trained them: nodes joined to a part, and the header around it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.errors import DataError
from umpteen.memory import Estimate, check_fits
from umpteen.models.label_tree import TreePart
from umpteen.models.linear import LinearShard
from umpteen.storage.folder import Folder
from umpteen.storage.store import Part
from umpteen.trained.importing import imported_header, name_labels

MOST_FEATURES = 2**31 - 2

#: A node's features, rising; its children, labels or ~node; and its weights of these features, child by child.
Node = tuple[NDArray[np.int32], NDArray[np.int32], LinearShard]


def read_file(folder: Folder, name: str) -> bytes:
    """A regular file, if there is memory for it and for what is made of it."""
    with folder.open(name) as (handle, found):
        check_fits(Estimate(3 * found.st_size, 0), f"{folder.path / name} is too large")
        return folder.read_open(name, handle, found, found.st_size)


def pack_node(features: NDArray[np.int32], children: NDArray[np.int32], W: Any, bias: NDArray[np.float32]) -> Node:
    """A node with these weights, children x features."""
    if not np.isfinite(bias).all():
        raise DataError("weights must be finite")
    shard = LinearShard.from_weights(W, bias, np.arange(len(children)))
    if shard.weights.dtype != np.float16:
        raise DataError("its weights differ too much in size for 16 bits")
    return features, children, shard


def pack_trees(
    place: Path, trees: Sequence[TreePart], n_features: int, label_names: Sequence[str] | None, *, normalize: bool
) -> tuple[dict[str, Any], dict[str, Part], list[Part]]:
    """The header, parts and shards of a model of these trees."""
    labels = np.concatenate([tree.children[tree.children >= 0] for tree in trees])
    n_labels = 1 + int(labels.max()) if len(labels) else 0
    if label_names is not None and len(label_names) < n_labels:
        raise DataError(f"there must be at least {n_labels} label names, but there are {len(label_names)}")
    n_labels = n_labels if label_names is None else len(label_names)
    check_fits(
        Estimate(4 * 8 * n_labels, 0), f"{place} has a label {n_labels - 1}; give label_names if that is wrong"
    )
    counts = np.zeros(n_labels, np.int64)
    counts[np.unique(labels)] = 1
    header = imported_header("label-tree", n_features, n_labels, counts, normalize=normalize)
    header["params"] = {"beam": 10}
    return header, name_labels(label_names, counts), [tree.to_part() for tree in trees]


def join_nodes(nodes: Sequence[Node], link: str) -> TreePart:
    """A tree of its nodes, the root first and children after their parents."""
    features, children, shards = zip(*nodes, strict=True)
    weights = [shard.weights[: len(shard.weights) - _native.WEIGHT_PADDING] for shard in shards]

    def ends(arrays: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        return np.cumsum([0, *map(len, arrays)], dtype=np.int64)

    positions = [shard.positions for shard in shards]
    return TreePart(
        child_ptr=ends(children),
        children=np.concatenate(children),
        feature_ptr=ends(features),
        features=np.concatenate(features),
        indptr=np.concatenate([shard.indptr for shard in shards]),
        position_ptr=np.concatenate([shard.position_ptr for shard in shards]),
        position_start=ends(positions),
        positions=np.concatenate(positions),
        weight_start=ends(weights),
        weights=np.concatenate([*weights, np.zeros(_native.WEIGHT_PADDING, np.float16)]),
        bias=np.concatenate([shard.bias for shard in shards]),
        scale=np.array([shard.scale for shard in shards], np.float32),
        begins_tree=True,
        link=link,
    )
