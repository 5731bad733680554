"""Linear models: a weight per (feature, label) and a bias per label, in blocks of labels.

Used by every method that ends in ``score = w·x + b``. A block (shard) is stored feature by feature: a row has few
features, and each of them then reads one contiguous run of weights. 16-bit positions within the block name their
labels, or one 16-bit mask per 16 labels if that is shorter. Weights are float16 times one power of two per block,
which keeps 11 bits of all weights that matter to their label; they are float32 if a block's labels differ too much
for that, or on request. Labels that were never trained have a bias of -inf and are never ranked.
cpp/include/umpteen/linear_shard.hpp specifies the layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, as_csr, offsets
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.models.explanation import Explanation
from umpteen.models.partial import Merger, RankingMerger
from umpteen.models.scorer import Ranking, Scorer, allow_labels, check_ranking_fits, logistic, rank_labels
from umpteen.params import check_choice
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads

MAX_LABELS_PER_SHARD = 65536
WEIGHT_TYPES = ("float16", "float32")
#: The arrays of a shard and their types.
_ARRAYS = {
    "indptr": "uint32", "position_ptr": "uint32", "positions": "uint16", "weights": "float16 float32",
    "bias": "float32", "label_ids": "int32",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class LinearShard:
    """One block of labels, as stored in its files."""

    indptr: NDArray[np.uint32]  # n_features + 1: where each feature's weights start
    position_ptr: NDArray[np.uint32]  # n_features + 1: where its positions start
    positions: NDArray[np.uint16]  # labels or masks, whichever is shorter
    weights: NDArray[Any]  # nnz and some padding, float16 or float32
    bias: NDArray[np.float32]  # n_labels
    label_ids: NDArray[np.int32]  # n_labels, rising
    scale: float  # a power of two; the weight is weights * scale

    @classmethod
    def from_weights(cls, W: Any, bias: ArrayLike, label_ids: ArrayLike, weight_type: str = "float16") -> LinearShard:
        """Packs the weights of some labels.

        Parameters
        ----------
        W : sparse, n_labels x n_features
            One row per label; zeros are dropped.
        bias : n_labels
        label_ids : n_labels, rising
        """
        check_choice("weight_type", weight_type, WEIGHT_TYPES)
        W = sp.csc_matrix(W, dtype=np.float32, copy=True)
        W.sort_indices()
        W.eliminate_zeros()
        if not np.isfinite(W.data).all():
            raise DataError("weights must be finite; are values of X close to the largest 32-bit float?")
        if W.shape[0] > MAX_LABELS_PER_SHARD or W.nnz >= 2**32:
            raise ParamError(
                f"a shard may have at most {MAX_LABELS_PER_SHARD} labels and 4294967295 weights, "
                f"but has {W.shape[0]} and {W.nnz}; use fewer labels per shard"
            )
        scale = _float16_scale(W) if weight_type == "float16" else None
        if scale is None:
            weight_type, scale = "float32", 1.0
        indptr = W.indptr.astype(np.uint32)
        position_ptr, positions = _native.pack_positions(indptr, W.indices.astype(np.int32), W.shape[0])
        weights = np.zeros(W.nnz + _native.WEIGHT_PADDING, weight_type)
        weights[: W.nnz] = W.data / np.float32(scale)
        return cls(
            indptr=indptr,
            position_ptr=position_ptr,
            positions=positions,
            weights=weights,
            bias=np.asarray(bias, np.float32),
            label_ids=np.asarray(label_ids, np.int32),
            scale=scale,
        )

    @classmethod
    def from_part(cls, part: Part) -> LinearShard:
        scale = part.scalars.get("scale")
        if not isinstance(scale, (int, float)) or not 0 < scale < np.inf:
            raise ModelCorruptError(f"the scale of a linear shard must be above 0, but is {scale!r:.100}")
        # The bias of untrained labels is -inf, which JSON cannot hold but an array can.
        return cls(**{name: part.array(name, dtypes) for name, dtypes in _ARRAYS.items()}, scale=scale)

    def to_part(self) -> Part:
        return Part({name: getattr(self, name) for name in _ARRAYS}, {"scale": self.scale})

    @property
    def nnz(self) -> int:
        """How many weights are stored."""
        return int(self.indptr[-1])

    def to_weights(self) -> tuple[Any, NDArray[np.float32]]:
        """(W, bias) as `from_weights` takes them; W is CSR, n_labels x n_features."""
        return self._by_feature().tocsr(), np.array(self.bias)

    def pruned(self, delta: float) -> LinearShard:
        """The shard without weights smaller than `delta`.

        Stored weights are compared. Rounding to 16 bits moves a weight by up to 2^-11 of its size, so a weight that
        close to `delta` may fall on the other side than before rounding.
        """
        W = self._by_feature()
        W.data[np.abs(W.data) < np.float32(delta)] = 0
        return LinearShard.from_weights(W, self.bias, self.label_ids, str(self.weights.dtype))

    def widened(self, n_more: int) -> LinearShard:
        """The shard with so many more features, for which no label has a weight. Other arrays are shared."""
        more = [np.append(ptr, np.full(n_more, ptr[-1], ptr.dtype)) for ptr in (self.indptr, self.position_ptr)]
        return replace(self, indptr=more[0], position_ptr=more[1])

    def weights_of(self, position: int, features: NDArray[np.int32]) -> NDArray[np.float32]:
        """The weights of one label, by its position in the block, for some features."""
        begins, ends = self.indptr[features].astype(np.int64), self.indptr[features + 1].astype(np.int64)
        places = ranges(begins, ends)
        out = np.zeros(len(features), np.float32)
        found = np.flatnonzero(self.labels_of(features) == position)
        feature = np.searchsorted(np.cumsum(ends - begins), found, side="right")
        out[feature] = self.weights[places[found]].astype(np.float32) * np.float32(self.scale)
        return out

    def labels_of(self, features: NDArray[np.int32]) -> NDArray[np.int32]:
        """The label of each weight of some features, by its position in the block."""
        begins, ends = self.indptr[features].astype(np.int64), self.indptr[features + 1].astype(np.int64)
        position_begins = self.position_ptr[features].astype(np.int64)
        position_ends = self.position_ptr[features + 1].astype(np.int64)
        padding = np.zeros(_native.WEIGHT_PADDING, self.weights.dtype)
        try:
            return _native.unpack_positions(
                np.append(0, np.cumsum(ends - begins)).astype(np.uint32),
                np.append(0, np.cumsum(position_ends - position_begins)).astype(np.uint32),
                self.positions[ranges(position_begins, position_ends)],
                np.concatenate([self.weights[ranges(begins, ends)], padding]),
                len(self.label_ids),
            )
        except (ValueError, IndexError) as error:
            raise ModelCorruptError(f"a linear shard is not usable: {error}") from error

    def unpack_labels(self) -> NDArray[np.int32]:
        """The label of each weight, by its position in the block."""
        n_labels = len(self.label_ids)
        try:
            labels = _native.unpack_positions(self.indptr, self.position_ptr, self.positions, self.weights, n_labels)
        except ValueError as error:
            raise ModelCorruptError(f"a linear shard is not usable: {error}") from error
        if len(labels) and labels.max() >= n_labels:  # SciPy does not check it
            raise ModelCorruptError(f"a linear shard has {n_labels} labels, but a weight for label {labels.max()}")
        return labels

    def _by_feature(self) -> Any:
        """The weights as CSC, n_labels x n_features."""
        shape = (len(self.label_ids), len(self.indptr) - 1)
        data = self.weights[: self.nnz].astype(np.float32) * np.float32(self.scale)
        return sp.csc_matrix((data, self.unpack_labels(), self.indptr.astype(np.int64)), shape=shape)


def ranges(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """begins[0], …, ends[0] - 1, begins[1], …"""
    sizes = np.maximum(ends - begins, 0)
    starts = np.cumsum(sizes) - sizes
    return np.repeat(begins - starts, sizes) + np.arange(int(sizes.sum()))


def _float16_scale(W: Any) -> float | None:
    """The power of two that brings the block's largest weight just below float16's largest, 65504; None if float16 is
    not enough: a label whose largest weight is some 2^17 times smaller would lose bits that count."""
    if W.nnz == 0:  # perhaps there are no features either
        return 1.0
    largest = abs(W).max(axis=1).toarray().ravel()
    largest = largest[largest > 0]
    exponent = int(np.floor(np.log2(float(largest.max())))) - 14
    scale = 2.0**exponent
    # 2^-14 is the smallest half with all its bits; weights down to 2^-11 of the label's largest must keep theirs.
    if not -126 <= exponent <= 127 or largest.min() < scale * 2.0**-3:
        return None
    return scale


class LinearModel(Scorer):
    """Exact top-k over blocks of sparse label weights.

    Parameters
    ----------
    shards
        Blocks of labels; no label may be in two.
    n_features, n_labels
        The model's shape. Labels in no shard are never ranked.
    """

    family = "linear"

    def __init__(self, shards: Iterable[LinearShard], n_features: int, n_labels: int) -> None:
        self.shards = list(shards)
        self.n_features = n_features
        self.n_labels = n_labels
        self._scorer = _native.LinearScorer(n_features, n_labels)
        seen = np.zeros(n_labels, bool)
        for shard in self.shards:
            try:
                self._scorer.add_shard(
                    shard.indptr,
                    shard.position_ptr,
                    shard.positions,
                    shard.weights,
                    shard.bias,
                    shard.label_ids,
                    shard.scale,
                )
            except (ValueError, TypeError) as error:
                raise ModelCorruptError(f"a linear shard is not usable: {str(error).splitlines()[0]}") from error
            if seen[shard.label_ids].any():
                twice = shard.label_ids[seen[shard.label_ids]][0]
                raise ModelCorruptError(f"label {twice} is in two shards")
            seen[shard.label_ids] = True

    def __reduce__(self) -> Any:
        # Pickle is for process pools and copies; models on disk do not use it.
        return LinearModel, (self.shards, self.n_features, self.n_labels)

    @classmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> LinearModel:
        return cls([LinearShard.from_part(part) for part in parts], n_features, n_labels)

    def to_parts(self) -> list[Part]:
        return [shard.to_part() for shard in self.shards]

    def units(self) -> list[list[int]]:
        return [[i] for i in range(len(self.shards))]

    def merger(self) -> Merger:
        return RankingMerger()

    from_some_parts = from_parts

    def score_part(self, X: Csr, top_k: int, **options: Any) -> Ranking:
        """A ranking of the part's own labels."""
        return self.predict_topk(X, top_k, **options)

    def pruned_parts(self, delta: float) -> Iterator[Part]:
        return (shard.pruned(delta).to_part() for shard in self.shards)

    to_unit = staticmethod(logistic)

    def to_weights(self) -> tuple[Csr, NDArray[np.float32]]:
        """All weights by label, CSR n_labels x n_features, and the biases; -inf for labels that are not ranked."""
        parts = [shard.to_weights() for shard in self.shards]
        ids = np.concatenate([np.zeros(0, np.int64), *(shard.label_ids for shard in self.shards)])
        bias = np.full(self.n_labels, -np.inf, np.float32)
        for shard, (_, values) in zip(self.shards, parts, strict=True):
            bias[shard.label_ids] = values
        # Labels in no shard get the empty row appended below all others.
        empty: Any = sp.csr_matrix(np.zeros((1, self.n_features), np.float32))
        blocks: list[Any] = [*(W for W, _ in parts), empty]
        stacked: Any = sp.vstack(blocks, format="csr")
        place = np.full(self.n_labels, len(ids))
        place[ids] = np.arange(len(ids))
        return stacked[place], bias

    @property
    def nnz(self) -> int:
        """How many weights are stored."""
        return sum(shard.nnz for shard in self.shards)

    def describe(self) -> dict[str, Any]:
        """Facts for `umpteen inspect`."""
        types = sorted({str(shard.weights.dtype) for shard in self.shards})
        trained = sum(int(np.isfinite(shard.bias).sum()) for shard in self.shards)
        return {"weights": self.nnz, "weight_type": ", ".join(types), "trained_labels": trained}

    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        biases = self._biases(exclude, include)
        return rank_labels(self._scorer, X, top_k, self.n_labels, threads, biases)

    def rank_candidates(
        self, X: Csr, candidates: NDArray[np.int32], top_k: int, *, threads: int | None = None
    ) -> Ranking:
        """As `predict_topk`, but ranks only each row's own list of labels.

        The first call copies the weights, label by label, 8 bytes each: a list needs whole labels, not features.

        Parameters
        ----------
        candidates : int32, n_rows x n_candidates
            Padded with -1.
        """
        check_ranking_fits(X.shape[0], top_k)
        threads = 1 if X.shape[0] == 1 else resolve_threads(threads)
        candidates = np.ascontiguousarray(candidates, np.int32)
        return self._by_label.topk(offsets(X), X.indices, X.data, candidates, top_k, threads)

    @cached_property
    def _by_label(self) -> _native.CandidateScorer:
        W, bias = self.to_weights()
        W = as_csr(W, "W")
        return _native.CandidateScorer(offsets(W), W.indices, W.data, bias, self.n_features)

    def explain(self, x: Csr, label: int) -> Explanation:
        """Why one preprocessed row has its score for a label: score = bias + Σ w_j x_j, one term per feature."""
        score, bias, weights = -np.inf, -np.inf, np.zeros(x.nnz, np.float32)
        for shard in self.shards:
            position = int(np.searchsorted(shard.label_ids, label))
            if position < len(shard.label_ids) and shard.label_ids[position] == label:
                bias = float(shard.bias[position])
                weights = shard.weights_of(position, x.indices)
        contributions = weights.astype(np.float64) * x.data
        if np.isfinite(bias):
            score = bias + float(contributions.sum())
        base = bias if np.isfinite(bias) else 0.0
        return Explanation.build(label, score, self.family, base, x.indices, contributions)

    def _biases(self, exclude: ArrayLike | None, include: ArrayLike | None) -> list[NDArray[np.float32]] | None:
        allowed = allow_labels(exclude, include, self.n_labels)
        if allowed is None:
            return None
        return [
            np.where(allowed[shard.label_ids], shard.bias, np.float32(-np.inf)).astype(np.float32)
            for shard in self.shards
        ]
