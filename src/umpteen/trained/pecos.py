"""Models that PECOS trained, XR-Linear, as label trees of ours: to serve, pack and explain them.

The directory ranker has param.json and a directory per level: its param.json, W.npz with a column of weights for each
of the level's clusters, of which the last level's are labels, and C.npz, whose columns are the clusters above and say
which of these are theirs. A last row of W, if there is a bias, is of a feature with that value in all rows. A path's
score is the product of what the post-processor makes of its margins; ours is its logarithm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.files import PathLike
from umpteen.data.npz import parse_csc
from umpteen.errors import DataError, MemoryLimitError, UmpteenError
from umpteen.models.label_tree import TreePart
from umpteen.storage.folder import Folder
from umpteen.storage.store import Part
from umpteen.trained.trees import MOST_FEATURES, Node, join_nodes, pack_node, pack_trees, read_file

_LINKS = {
    f"{log}{name}": link
    for name, link in {"l3-hinge": "cubed", "l2-hinge": "squared", "sigmoid": "logistic"}.items()
    for log in ("", "log-")
}
_MOST_LEVELS = 64


def pack_pecos(
    path: PathLike, label_names: Sequence[str] | None
) -> tuple[dict[str, Any], dict[str, Part], list[Part]]:
    """The header, parts and shards of a model that PECOS saved, which is not trusted; see
    `TrainedModel.from_pecos`."""
    place = Path(path)
    try:
        with Folder.hold(place) as folder, folder.enter("ranker") as ranker:
            tree, n_features = _read_tree(ranker)
    except MemoryLimitError:
        raise
    except (UmpteenError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{place} is not a model that XR-Linear of PECOS saved: {error!s:.400}") from error
    return pack_trees(place, [tree], n_features, label_names, normalize=False)


def _read_tree(ranker: Folder) -> tuple[TreePart, int]:
    settings = json.loads(read_file(ranker, "param.json"))
    depth = _whole(settings, "depth", 1, _MOST_LEVELS)
    n_features = _whole(settings, "nr_features", 1, MOST_FEATURES)
    nodes: list[Node] = []
    links, n_above = set(), 1
    for level in range(depth):
        with ranker.enter(f"{level}.model") as folder:
            W, C, bias, link = _read_level(folder, n_features, n_above, last=level == depth - 1)
        links.add(link)
        first = None if level == depth - 1 else len(nodes) + n_above
        nodes += _nodes(W, C, n_features, bias, first)
        n_above = W.shape[1]
    if len(links) > 1:
        raise DataError(f"all levels must have one post_processor, but have {', '.join(sorted(links))}")
    return join_nodes(nodes, links.pop()), n_features


def _whole(settings: Any, name: str, low: int, high: int) -> int:
    value = settings[name]
    if type(value) is not int or not low <= value <= high:
        raise DataError(f"{name} must be a whole number from {low} to {high}, but is {value!r:.50}")
    return value


def _read_level(folder: Folder, n_features: int, n_above: int, *, last: bool) -> tuple[Any, Any, float, str]:
    settings = json.loads(read_file(folder, "param.json"))
    name, bias = settings["pred_kwargs"]["post_processor"], settings["bias"]
    if name not in _LINKS:
        raise DataError(f"post_processor must be one of {', '.join(_LINKS)}, but is {name!r:.50}")
    if type(bias) not in (int, float) or not np.isfinite(bias):
        raise DataError(f"bias must be a finite number, but is {bias!r:.50}")
    bias = max(0.0, float(bias))  # -1 for none
    W, C = (parse_csc(read_file(folder, matrix)) for matrix in ("W.npz", "C.npz"))
    expected = {"W.npz": (n_features + (bias > 0), W.shape[1]), "C.npz": (W.shape[1], n_above)}
    for matrix, shape in (("W.npz", W.shape), ("C.npz", C.shape)):
        if shape != expected[matrix]:
            raise DataError(f"{folder.path / matrix} must be {expected[matrix]}, but is {shape}")
    counts = np.bincount(C.indices, minlength=W.shape[1])
    if (C.data != 1).any() or counts.max(initial=0) > 1 or not (last or counts.all()):
        raise DataError(f"{folder.path / 'C.npz'} must say of each column of W in which one cluster it is")
    return W, C, bias, _LINKS[name]


def _nodes(W: Any, C: Any, n_features: int, bias: float, first: int | None) -> Iterator[Node]:
    """The nodes above a level; its own are numbered from `first`, or are labels. Nothing is as long as all features:
    a node may have few, and a level many nodes."""
    for cluster in range(C.shape[1]):
        below = np.sort(C.indices[C.indptr[cluster] : C.indptr[cluster + 1]])
        block = W[:, below]
        constant = block.indices == n_features
        added = np.zeros(len(below), np.float32)
        columns = np.repeat(np.arange(len(below)), np.diff(block.indptr))
        added[columns[constant]] = block.data[constant] * bias
        rows, columns, data = block.indices[~constant], columns[~constant], block.data[~constant]
        features, places = np.unique(rows, return_inverse=True)
        weights = sp.csr_matrix((data, (columns, places)), (len(below), len(features)), dtype=np.float32)
        children = below if first is None else ~(below + first)
        yield pack_node(features.astype(np.int32), children.astype(np.int32), weights, added)
