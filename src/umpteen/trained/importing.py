"""Weights that another program trained, as a model of ours: to prune, pack, serve and explain them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen import __version__
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.tensors import from_tensor
from umpteen.errors import DataError
from umpteen.models.linear import LinearShard
from umpteen.storage.names import Names
from umpteen.storage.store import Part

#: What the manifest calls the method.
IMPORTED = "imported"
_LABELS_PER_SHARD = 16384


def pack_weights(
    coef: Any, intercept: Any, label_names: Sequence[str] | None, counts: Any, normalize: bool, weight_type: str
) -> tuple[dict[str, Any], dict[str, Part], list[Part]]:
    """The header, parts and shards of a model with these weights; see `TrainedModel.from_weights`."""
    coef = from_tensor(coef, "coef")
    W: Any = coef if sp.issparse(coef) else np.atleast_2d(np.asarray(coef))
    if W.ndim != 2 or 0 in W.shape:
        raise DataError(f"coef must be labels x features, but its shape is {W.shape}")
    n_labels, n_features = W.shape
    bias = np.zeros(n_labels) if intercept is None else np.ravel(np.asarray(intercept, np.float64))
    bias = np.broadcast_to(bias, n_labels) if len(bias) == 1 else bias
    if bias.shape != (n_labels,) or np.isnan(bias).any() or (bias == np.inf).any():
        raise DataError(f"intercept must have a finite number, or -inf, for each of the {n_labels} labels")
    if label_names is not None and len(label_names) != n_labels:
        raise DataError(f"there must be {n_labels} label names, but there are {len(label_names)}")
    shards = []
    for begin in range(0, n_labels, _LABELS_PER_SHARD):
        ids = np.arange(begin, min(begin + _LABELS_PER_SHARD, n_labels), dtype=np.int32)
        block = sp.csr_matrix(W[ids[0] : ids[-1] + 1], dtype=np.float32)
        shards.append(LinearShard.from_weights(block, bias[ids].astype(np.float32), ids, weight_type).to_part())
    known = np.ones(n_labels, np.int64) if counts is None else np.asarray(counts, np.int64)
    header = imported_header("linear", n_features, n_labels, known, normalize=normalize)
    header["params"] = {"weight_type": weight_type}
    return header, name_labels(label_names, known), shards


def imported_header(
    family: str, n_features: int, n_labels: int, counts: NDArray[np.int64], *, normalize: bool
) -> dict[str, Any]:
    """What the manifest says of a model that another program trained."""
    return {
        "umpteen_version": __version__,
        "method": IMPORTED,
        "family": family,
        "n_train_rows": max(1, int(counts.sum())),
        "n_features": n_features,
        "n_labels": n_labels,
        "preprocessing": Preprocessing(normalize=normalize).to_json(),
    }


def name_labels(label_names: Sequence[str] | None, counts: NDArray[np.int64]) -> dict[str, Part]:
    """The parts of a model that are about its labels."""
    parts = {"labels": Part({"counts": counts})}
    if label_names is not None:
        parts["names"] = Names.encode([str(name) for name in label_names]).to_part()
    return parts
