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

from umpteen.data.cbor import decode_cbor
from umpteen.data.files import PathLike
from umpteen.errors import DataError, MemoryLimitError, UmpteenError
from umpteen.models.label_tree import TreePart
from umpteen.storage.folder import Folder
from umpteen.storage.store import Part
from umpteen.trained.trees import MOST_FEATURES, Node, join_nodes, pack_node, pack_trees, read_file

_LINKS = {"Hinge": "squared", "Log": "logistic"}
_TREE = re.compile(r"tree[0-9]{1,9}\.cbor")
_MOST_LABELS = 2**31 - 2


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
    return pack_trees(place, trees, n_features, label_names, normalize=True)


def _read_settings(place: Path, folder: Folder) -> tuple[int, str]:
    try:
        settings = json.loads(read_file(folder, "settings.json"))
        n_features, link = settings["n_features"], _LINKS[settings["classifier_loss_type"]]
    except (UmpteenError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{place} is not a model that omikuji saved: settings.json: {error!r:.400}") from error
    if type(n_features) is not int or not 1 <= n_features <= MOST_FEATURES:
        raise DataError(
            f"{place / 'settings.json'}: n_features must be a whole number from 1 to {MOST_FEATURES}, "
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
        return _pack_tree(decode_cbor(read_file(folder, name)), n_features, link)
    except MemoryLimitError:
        raise
    except (UmpteenError, OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{place / name} is not a tree that omikuji saved: {error!s:.400}") from error


def _pack_tree(root: Any, n_features: int, link: str) -> TreePart:
    """Numbers the nodes level by level, as ours are: children after their parents."""
    nodes: list[Node] = []
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
        nodes.append(pack_node(features, children, W, bias))
    return join_nodes(nodes, link)


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
    return rows[used].astype(np.int32), W[used].T, bias
