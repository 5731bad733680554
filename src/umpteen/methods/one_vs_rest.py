"""What all methods with one weight vector per label share: blocks of labels as shards, packed as a linear model."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.engines.base import Resources, Task
from umpteen.errors import ParamError
from umpteen.methods.base import Method, TrainingData
from umpteen.models.linear import MAX_LABELS_PER_SHARD, WEIGHT_TYPES, LinearModel, LinearShard
from umpteen.models.saving import shard_name
from umpteen.models.store import Part
from umpteen.params import check_count, check_flag


class LabelWeights(NamedTuple):
    """What training some labels gives."""

    W: Any  # sparse, n_labels x n_features
    bias: NDArray[np.float32]  # n_labels: what is added to each score


class SizeBound(NamedTuple):
    """How large a model can get."""

    model_bytes: int
    in_work: int  # weights of the shards that are trained at the same time


class OneVsRest(Method):
    """A method that trains each label's weights on their own."""

    model_class: ClassVar[type[LinearModel]] = LinearModel

    tfidf: bool
    normalize: bool
    weight_type: str
    labels_per_shard: int | None

    @abc.abstractmethod
    def train_labels(self, data: TrainingData, labels: NDArray[np.int32], resources: Resources) -> LabelWeights:
        """The weights of these labels."""

    def validate(self) -> None:
        if self.weight_type not in WEIGHT_TYPES:
            raise ParamError(f"weight_type must be one of {', '.join(WEIGHT_TYPES)}, but is {self.weight_type!r}")
        if self.labels_per_shard is not None:
            check_count("labels_per_shard", self.labels_per_shard, high=MAX_LABELS_PER_SHARD)
        for name in ("normalize", "tfidf"):
            check_flag(name, getattr(self, name))
        if self.threads is not None:
            check_count("threads", self.threads, high=4096)

    def preprocessing(self) -> Preprocessing:
        return Preprocessing(tfidf=self.tfidf, normalize=self.normalize)

    def plan(self, data: TrainingData) -> list[Task]:
        """Blocks of labels of like frequency, the most frequent first."""
        size = self.shard_size(data.Y.shape[1])
        counts = np.diff(data.rows_of.indptr)
        by_frequency = np.argsort(-counts, kind="stable").astype(np.int32)
        tasks = []
        for index, begin in enumerate(range(0, len(counts), size)):
            labels = np.sort(by_frequency[begin : begin + size])
            tasks.append(Task(shard_name(index), labels, float(len(labels) + counts[labels].sum())))
        return tasks

    def shard_size(self, n_labels: int) -> int:
        """Labels per shard: enough shards to spread and to resume, few enough that each one's table of features,
        as long as X is wide, stays small beside its weights."""
        return int(self.labels_per_shard or np.clip(-(-n_labels // 16), 1024, 16384))

    def bound_size(self, weights: NDArray[np.int64], n_features: int, shards_in_work: int = 1) -> SizeBound:
        """The size of a model whose labels have at most so many weights each.

        Shards hold labels of like frequency, not random ones, so those in work may be the ones with the most weights.
        """
        n_labels = len(weights)
        size = self.shard_size(n_labels)
        per_weight = 2 + np.dtype(self.weight_type).itemsize
        per_shard = 8 * (n_features + 1) + _native.WEIGHT_PADDING * per_weight
        per_label = 16  # bias, id and count
        model_bytes = int(weights.sum()) * per_weight + -(-n_labels // size) * per_shard + n_labels * per_label
        return SizeBound(model_bytes, int(np.sort(weights)[-size * shards_in_work :].sum()))

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        labels: NDArray[np.int32] = task.plan
        W, bias = self.train_labels(data, labels, resources)
        # A label nobody has was not trained, and must not be ranked by the accident of its score.
        bias[np.diff(data.rows_of.indptr)[labels] == 0] = -np.inf
        return LinearShard.from_weights(W, bias, labels, self.weight_type).to_part()


def count_weights_bound(X: Csr, Y: Csr) -> NDArray[np.int64]:
    """For each label, how many features its rows have at most: min(n_features, entries of its rows)."""
    entries = np.repeat(np.diff(X.indptr).astype(np.int64), np.diff(Y.indptr))
    totals = np.bincount(Y.indices, weights=entries, minlength=Y.shape[1])
    return np.minimum(totals, X.shape[1]).astype(np.int64)
