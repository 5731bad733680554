"""Models that omikuji trained, Parabel and Bonsai trees, as label trees of ours: to serve, pack and explain them.

Its directory has settings.json and a CBOR file per tree. A node is {"Branch": {weights, children}} or {"Leaf":
{weights, labels}}; weights are features and a last constant x children, dense or by rows that are not empty. Rows are
scaled to unit length. A path's score is the sum over its nodes of -max(0, 1 - margin)^2, or of -log(1 + e^-margin) if
it was trained with the logistic loss; trees are averaged, as our search does.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.cbor import decode_cbor
from umpteen.data.files import PathLike
from umpteen.errors import DataError, UmpteenError
from umpteen.models.label_tree import TreePart
from umpteen.models.linear import LinearShard
from umpteen.storage.store import Part
from umpteen.trained.importing import imported_header, name_labels

_LINKS = {"Hinge": "squared", "Log": "logistic"}


def pack_omikuji(
    path: PathLike, label_names: Sequence[str] | None
) -> tuple[dict[str, Any], dict[str, Part], list[Part]]:
    """The header, parts and shards of a model that omikuji saved; see `TrainedModel.from_omikuji`."""
    place = Path(path)
    try:
        settings = json.loads((place / "settings.json").read_bytes())
        n_features, link = int(settings["n_features"]), _LINKS[settings["classifier_loss_type"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{place} is not a model that omikuji saved: settings.json: {error!r:.200}") from error
    if n_features < 1:
        raise DataError(f"{place / 'settings.json'}: n_features must be at least 1, but is {n_features}")
    files = sorted(place.glob("tree*.cbor"), key=lambda file: (len(file.name), file.name))
    if not files:
        raise DataError(f"{place} has no trees: no file tree*.cbor is there")
    trees = []
    for file in files:
        try:
            trees.append(_pack_tree(decode_cbor(file.read_bytes()), n_features, link))
        except (UmpteenError, OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} is not a tree that omikuji saved: {error!s:.300}") from error
    labels = np.concatenate([tree.children[tree.children >= 0] for tree in trees])
    n_labels = 1 + int(labels.max()) if len(labels) else 0
    if label_names is not None and len(label_names) < n_labels:
        raise DataError(f"there must be at least {n_labels} label names, but there are {len(label_names)}")
    n_labels = n_labels if label_names is None else len(label_names)
    counts = np.zeros(n_labels, np.int64)
    counts[np.unique(labels)] = 1
    header = imported_header("label-tree", n_features, n_labels, counts, normalize=True)
    header["params"] = {"beam": 10}
    return header, name_labels(label_names, counts), [tree.to_part() for tree in trees]


def _pack_tree(root: Any, n_features: int, link: str) -> TreePart:
    """Numbers the nodes level by level, as ours are: children after their parents."""
    nodes: list[tuple[NDArray[np.int32], NDArray[np.int32], LinearShard]] = []
    waiting, n_known = deque([root]), 1
    while waiting:
        kind, node = _only(waiting.popleft())
        if kind == "Branch":
            below = list(node["children"])
            children = ~np.arange(n_known, n_known + len(below), dtype=np.int32)
            waiting.extend(below)
            n_known += len(below)
        elif kind == "Leaf":
            children = np.asarray(node["labels"]).astype(np.int32)
            if len(children) and children.min() < 0:
                raise DataError(f"a label must be at least 0, but is {children.min()}")
        else:
            raise DataError(f"a node must be a Branch or a Leaf, but is {kind!r:.50}")
        W = _read_weights(node["weights"], n_features, len(children))
        columns = W[:, :n_features].tocsc()
        features = np.flatnonzero(np.diff(columns.indptr)).astype(np.int32)
        bias = W[:, n_features].toarray().ravel()
        shard = LinearShard.from_weights(columns[:, features], bias, np.arange(len(children)))
        if shard.weights.dtype != np.float16:
            raise DataError("its weights differ too much in size for 16 bits")
        nodes.append((features, children, shard))
    return _join(nodes, link)


def _only(node: Any) -> tuple[str, Any]:
    if not isinstance(node, dict) or len(node) != 1:
        raise DataError("a node must have one kind")
    return next(iter(node.items()))


def _read_weights(weights: Any, n_features: int, n_children: int) -> Any:
    """children x (features and a constant), sparse."""
    kind, held = _only(weights)
    shape = (n_features + 1, n_children)
    if kind == "Dense":
        W: Any = sp.csr_matrix(np.asarray(held["data"], np.float32).reshape(tuple(held["dim"])))
    elif kind == "Sparse":
        indptr = np.zeros(n_features + 2, np.int64)
        rows = np.asarray(held["outer_inds"], np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() > n_features or (np.diff(rows) <= 0).any()):
            raise DataError("features of a node must rise and be below n_features")
        indptr[rows + 1] = np.diff(np.asarray(held["indptr"], np.int64))
        data, inner = np.asarray(held["data"], np.float32), np.asarray(held["inner_inds"], np.int64)
        W = sp.csr_matrix((data, inner, np.cumsum(indptr)), (int(held["outer_dim"]), int(held["inner_dim"])))
        W.check_format(full_check=True)
    else:
        raise DataError(f"weights must be Dense or Sparse, but are {kind!r:.50}")
    if W.shape != shape:
        raise DataError(f"a node's weights must be {shape[0]} x {shape[1]}, but are {W.shape[0]} x {W.shape[1]}")
    return W.T.tocsr()


def _join(nodes: list[tuple[NDArray[np.int32], NDArray[np.int32], LinearShard]], link: str) -> TreePart:
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
