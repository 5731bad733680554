"""Single labels of a block of a linear model: read, or replaced without packing the others again.

A block is stored feature by feature (linear.py), so one label's weights lie all over it. Both functions pass over the
block once, however many labels they are asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, make_csr
from umpteen.models.linear import LinearShard

#: The largest 16-bit weight; a label's own largest one must be at least the second, else small ones lose bits.
_LARGEST, _LEAST_LARGEST = 65504.0, 2.0**-3


def select_labels(shard: LinearShard, positions: NDArray[np.int64]) -> Csr:
    """The weights of some labels, by their rising positions in the block; CSR, n_positions x n_features."""
    place, labels = _places(shard, positions), shard.unpack_labels()
    found = np.flatnonzero(place[labels] >= 0)
    feature = np.searchsorted(shard.indptr, found, side="right").astype(np.int32) - np.int32(1)
    row = place[labels[found]]
    order = np.argsort(row, kind="stable")  # features stay in rising order
    indptr = np.append(0, np.cumsum(np.bincount(row, minlength=len(positions))))
    weights = shard.weights[found].astype(np.float32) * np.float32(shard.scale)
    return make_csr(weights[order], feature[order], indptr, (len(positions), len(shard.indptr) - 1))


def replace_labels(shard: LinearShard, positions: NDArray[np.int64], W: Any, weight_type: str) -> LinearShard:
    """The block with other weights for some labels; those of the others stay as they are, bit by bit, unless the new
    ones do not fit the block's scale.

    Parameters
    ----------
    positions
        Of the labels, rising.
    W : sparse, n_positions x n_features
    """
    W = W.tocsc()
    W.sort_indices()
    W.eliminate_zeros()
    n_labels, labels = len(shard.label_ids), shard.unpack_labels()
    replaced = _places(shard, positions)[labels] >= 0
    gone = np.flatnonzero(replaced)
    added = np.repeat(np.arange(W.shape[1]), np.diff(W.indptr)) * n_labels + positions[W.indices]
    # Where the new weights go among all old ones, which are in the order of feature and label; then among those kept.
    wide = np.int32 if W.shape[1] * n_labels < 2**31 else np.int64
    order = np.repeat(np.arange(W.shape[1], dtype=wide) * wide(n_labels), np.diff(shard.indptr)) + labels
    at = np.searchsorted(order, added.astype(wide))
    at += np.arange(len(at)) - np.searchsorted(gone, at)
    is_new = np.zeros(len(labels) - len(gone) + len(at), bool)
    is_new[at] = True
    kept, place_of_kept = np.flatnonzero(~replaced), np.flatnonzero(~is_new)

    def join(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
        out = np.empty(len(is_new), old.dtype)
        out[place_of_kept], out[at] = old[kept], new
        return out

    removed = np.bincount(np.searchsorted(shard.indptr, gone, side="right") - 1, minlength=W.shape[1])
    indptr = np.append(0, np.cumsum(np.diff(shard.indptr.astype(np.int64)) - removed + np.diff(W.indptr)))
    joined = join(labels, positions[W.indices])
    if not _fits(W, shard):
        old = shard.weights.astype(np.float32) * np.float32(shard.scale)
        whole = make_csr(join(old, W.data), joined, indptr, (W.shape[1], n_labels))
        return LinearShard.from_weights(whole.T, shard.bias, shard.label_ids, weight_type)
    weights = np.zeros(len(joined) + _native.WEIGHT_PADDING, shard.weights.dtype)
    weights[: len(joined)] = join(shard.weights, W.data / np.float32(shard.scale))
    position_ptr, packed = _native.pack_positions(indptr.astype(np.uint32), joined, n_labels)
    return replace(
        shard, indptr=indptr.astype(np.uint32), position_ptr=position_ptr, positions=packed, weights=weights
    )  # fmt: skip


def _fits(W: Any, shard: LinearShard) -> bool:
    """Whether the block's type and scale do for these weights too."""
    if not np.isfinite(W.data).all():
        return False  # from_weights says so
    if shard.weights.dtype == np.float32 or not W.nnz:
        return shard.scale == 1 or not W.nnz
    largest = np.zeros(W.shape[0], np.float32)
    np.maximum.at(largest, W.indices, np.abs(W.data))
    largest = largest[largest > 0] / np.float32(shard.scale)
    return bool(largest.max() <= _LARGEST and largest.min() >= _LEAST_LARGEST)


def _places(shard: LinearShard, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each label of the block, its place among the positions; else -1."""
    place = np.full(len(shard.label_ids), -1)
    place[positions] = np.arange(len(positions))
    return place
