"""Models that omikuji trained, Parabel and Bonsai trees, as label trees of ours: to serve, pack and explain them.

Its directory has settings.json and a CBOR file per tree. A node is {"Branch": {weights, children}} or {"Leaf":
{weights, labels}}; weights are features and a last constant x children, dense or by rows that are not empty. Rows are
scaled to unit length. A path's score is the sum over its nodes of -max(0, 1 - margin)^2, or of -log(1 + e^-margin) if
it was trained with the logistic loss; trees are averaged, as our search does.
"""

from __future__ import annotations

import json
import re
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
from umpteen.errors import DataError, MemoryLimitError, UmpteenError
from umpteen.memory import Estimate, check_fits
from umpteen.models.label_tree import TreePart
from umpteen.models.linear import LinearShard
from umpteen.storage.folder import Folder
from umpteen.storage.store import Part
from umpteen.trained.importing import imported_header, name_labels

_LINKS = {"Hinge": "squared", "Log": "logistic"}
_TREE = re.compile(r"tree[0-9]{1,9}\.cbor")
_MOST_FEATURES, _MOST_LABELS = 2**31 - 1, 2**31 - 2


def pack_omikuji(
    path: PathLike, label_names: Sequence[str] | None
) -> tuple[dict[str, Any], dict[str, Part], list[Part]]:
    """The header, parts and shards of a model that omikuji saved, which is not trusted; see
    `TrainedModel.from_omikuji`."""
    place = Path(path)
    try:
        folder = Folder.hold(place)
    except OSError as error:
        raise DataError(f"{place} is not a model that omikuji saved: {error.strerror or error}") from error
    with folder:
        n_features, link = _read_settings(place, folder)
        trees = [_read_tree(place, folder, name, n_features, link) for name in _tree_names(place, folder)]
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
    header = imported_header("label-tree", n_features, n_labels, counts, normalize=True)
    header["params"] = {"beam": 10}
    return header, name_labels(label_names, counts), [tree.to_part() for tree in trees]


def _read_settings(place: Path, folder: Folder) -> tuple[int, str]:
    try:
        settings = json.loads(_read(folder, "settings.json"))
        n_features, link = settings["n_features"], _LINKS[settings["classifier_loss_type"]]
    except (UmpteenError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{place} is not a model that omikuji saved: settings.json: {error!r:.400}") from error
    if type(n_features) is not int or not 1 <= n_features < _MOST_FEATURES:
        raise DataError(
            f"{place / 'settings.json'}: n_features must be a whole number from 1 to {_MOST_FEATURES - 1}, "
            f"but is {n_features!r:.50}"
        )
    return n_features, link


def _tree_names(place: Path, folder: Folder) -> list[str]:
    names = [name for name in folder.names() if _TREE.fullmatch(name)]
    if not names:
        raise DataError(f"{place} has no trees: no file tree*.cbor is there")
    return sorted(names, key=lambda name: (len(name), name))


def _read_tree(place: Path, folder: Folder, name: str, n_features: int, link: str) -> TreePart:
    try:
        return _pack_tree(decode_cbor(_read(folder, name)), n_features, link)
    except MemoryLimitError:
        raise
    except (UmpteenError, OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{place / name} is not a tree that omikuji saved: {error!s:.400}") from error


def _read(folder: Folder, name: str) -> bytes:
    """A regular file, if there is memory for it and for what is made of it."""
    with folder.open(name) as (handle, found):
        check_fits(Estimate(3 * found.st_size, 0), f"{folder.path / name} is too large")
        return folder.read_open(name, handle, found, found.st_size)


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
            children = _whole(node["labels"], "a label", _MOST_LABELS).astype(np.int32)
        else:
            raise DataError(f"a node must be a Branch or a Leaf, but is {kind!r:.50}")
        features, W, bias = _read_weights(node["weights"], n_features, len(children))
        shard = LinearShard.from_weights(W, bias, np.arange(len(children)))
        if shard.weights.dtype != np.float16:
            raise DataError("its weights differ too much in size for 16 bits")
        nodes.append((features, children, shard))
    return _join(nodes, link)


def _only(node: Any) -> tuple[str, Any]:
    if not isinstance(node, dict) or len(node) != 1:
        raise DataError("a node must have one kind")
    return next(iter(node.items()))


def _whole(values: Any, what: str, most: int) -> NDArray[np.int64]:
    """A list of whole numbers from 0 to `most`."""
    found: NDArray[Any] = np.asarray(values if len(values) else np.zeros(0, np.int64))
    if found.ndim != 1 or found.dtype.kind != "i":
        raise DataError(f"{what} must be a whole number, but one is {values[0]!r:.50}")
    if len(found) and not 0 <= found.min() <= found.max() <= most:
        wrong = found.min() if found.min() < 0 else found.max()
        raise DataError(f"{what} must be from 0 to {most}, but is {wrong}")
    return found


def _read_weights(weights: Any, n_features: int, n_children: int) -> tuple[NDArray[np.int32], Any, NDArray[Any]]:
    """The features that a node has weights of, these weights as children x features, and the constants. Nothing here
    is as long as all features: a node may have few, and a tree many nodes."""
    kind, held = _only(weights)
    if kind == "Dense":
        full: Any = np.asarray(held["data"], np.float32).reshape(tuple(held["dim"]))
        shape, rows = full.shape, np.arange(len(full))
        W = sp.csr_matrix(full)
    elif kind == "Sparse":
        shape = held["outer_dim"], held["inner_dim"]
        rows = _whole(held["outer_inds"], "a feature of a node", n_features)
        if (np.diff(rows) <= 0).any():
            raise DataError("features of a node must rise")
        data, inner = np.asarray(held["data"], np.float32), _whole(held["inner_inds"], "a child", n_children - 1)
        indptr = _whole(held["indptr"], "an offset", len(inner))
        W = sp.csr_matrix((data, inner, indptr), (len(rows), n_children))
        W.check_format(full_check=True)
        W.sum_duplicates()
    else:
        raise DataError(f"weights must be Dense or Sparse, but are {kind!r:.50}")
    if shape != (n_features + 1, n_children):
        raise DataError(
            f"a node's weights must be {n_features + 1} x {n_children}, but are {' x '.join(map(str, shape)):.50}"
        )
    used = np.diff(W.indptr) > 0
    bias = np.zeros(n_children, np.float32)
    if len(rows) and rows[-1] == n_features:  # the constant's row
        bias, used[-1] = W[-1].toarray().ravel(), False
    if not np.isfinite(bias).all():
        raise DataError("weights must be finite")
    return rows[used].astype(np.int32), W[used].T, bias


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
