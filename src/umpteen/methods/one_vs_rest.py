"""Base classes for methods with one weight vector per label: blocks of labels are shards, packed as a linear model.
Some of these methods train each label separately."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr
from umpteen.engines.base import Resources, Task
from umpteen.errors import ParamError
from umpteen.methods.base import Method
from umpteen.methods.growing import train_new_labels
from umpteen.methods.negatives import Background
from umpteen.methods.training import Target
from umpteen.methods.training_data import TrainingData
from umpteen.methods.trust import draw_to_rest
from umpteen.models.linear import MAX_LABELS_PER_SHARD, WEIGHT_TYPES, LinearModel, LinearShard
from umpteen.params import check_choice, check_count
from umpteen.progress import Listener
from umpteen.storage.saving import shard_name
from umpteen.storage.store import Part
from umpteen.trained.model import TrainedModel

#: Labels solved side by side; kPanelLabels in the kernels.
PANEL_LABELS = 32


class LabelWeights(NamedTuple):
    """The result of training some labels."""

    W: Any  # sparse, n_labels x n_features
    bias: NDArray[np.float32]  # n_labels: added to each score


class SizeBound(NamedTuple):
    """The largest a model can get."""

    model_bytes: int
    in_work: int  # weights of the shards trained at the same time


class LabelBlocks(Method):
    """A method that ends in one weight vector per label."""

    scorer_class: ClassVar[type[LinearModel]] = LinearModel

    weight_type: str
    labels_per_shard: int | None

    def validate(self) -> None:
        check_choice("weight_type", self.weight_type, WEIGHT_TYPES)
        if self.labels_per_shard is not None:
            check_count("labels_per_shard", self.labels_per_shard, high=MAX_LABELS_PER_SHARD)
        self.preprocessing()  # checks its own parameters
        if self.threads is not None:
            check_count("threads", self.threads, high=4096)

    def plan(self, data: TrainingData, first_label: int = 0, first_shard: int = 0) -> list[Task]:
        """Blocks of labels with similar frequency, the most frequent first; starts at `first_label`."""
        counts = np.diff(data.rows_of.indptr)[first_label:]
        size = self.shard_size(len(counts))
        by_frequency = np.argsort(-counts, kind="stable").astype(np.int32)
        tasks = []
        for index, begin in enumerate(range(0, len(counts), size), first_shard):
            labels = np.sort(by_frequency[begin : begin + size])
            cost = float(len(labels) + counts[labels].sum())
            ids = labels + np.int32(first_label)
            tasks.append(Task(shard_name(index), ids, cost, _name_labels(ids)))
        return tasks

    def shard_size(self, n_labels: int) -> int:
        """Labels per shard: enough shards to distribute and to resume, few enough that the table of features in each,
        as long as X is wide, stays small beside the weights."""
        return int(self.labels_per_shard or np.clip(-(-n_labels // 16), 1024, 16384))

    def bound_size(self, weights: NDArray[np.int64], n_features: int, shards_in_work: int = 1) -> SizeBound:
        """The size of a model whose labels have at most `weights` weights each.

        Shards hold labels of similar frequency, not random ones, so those trained at the same time may have the most
        weights.
        """
        n_labels = len(weights)
        size = self.shard_size(n_labels)
        per_weight = 2 + np.dtype(self.weight_type).itemsize
        per_shard = 8 * (n_features + 1) + _native.WEIGHT_PADDING * per_weight
        per_label = 16  # bias, id and count
        model_bytes = int(weights.sum()) * per_weight + -(-n_labels // size) * per_shard + n_labels * per_label
        return SizeBound(model_bytes, int(np.sort(weights)[-size * shards_in_work :].sum()))

    def pruned(self, delta: float, model_dir: PathLike | None = None) -> Self:
        model = self.fitted().pruned(delta, model_dir)
        smaller = type(self)(
            **self.get_params() | {name: model.params[name] for name in ("prune",) if name in model.params}
        )
        smaller.model_ = model
        return smaller

    pruned.__doc__ = TrainedModel.pruned.__doc__

    def pack(self, data: TrainingData, labels: NDArray[np.int32], trained: LabelWeights) -> LinearShard:
        """The weights of these labels, packed for storage."""
        # A label without rows was not trained, so its score means nothing and must not be ranked.
        trained.bias[np.diff(data.rows_of.indptr)[labels] == 0] = -np.inf
        return LinearShard.from_weights(trained.W, trained.bias, labels, self.weight_type)


class OneVsRest(LabelBlocks):
    """A method that trains each label separately, so that labels can be added later."""

    trains_by_label: ClassVar[bool] = True
    #: Whether a label's weights depend on the rows that lack it.
    needs_negatives: ClassVar[bool] = True

    @property
    def has_margin(self) -> bool:
        """Whether rows without a label are trained to a score of -1 or less."""
        return False

    @abc.abstractmethod
    def train_labels(self, data: TrainingData, labels: NDArray[np.int32], resources: Resources) -> LabelWeights:
        """Trains the weights of these labels."""

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        trained = self.train_labels(data, task.plan, resources)
        if data.trust < 1:
            trained = LabelWeights(*draw_to_rest(data, task.plan, trained.W, trained.bias))
        return self.pack(data, task.plan, trained).to_part()

    def labels_of(self, task: Task) -> NDArray[np.int32] | None:
        labels: NDArray[np.int32] = task.plan
        return labels

    def add_labels(
        self,
        X: Any,
        Y_new: Any,
        names: Sequence[str] | None = None,
        model_dir: PathLike | None = None,
        *,
        negatives: str = "auto",
        resume: bool = True,
        progress: bool | Listener = False,
    ) -> Self:
        """Trains new labels and appends them to the model; the old labels keep their ids and weights.

        They are trained with the model's parameters, on rows that go through its preprocessing (its idf, not a new
        one). The rows need not be the model's training rows; a row without a new label is a negative example of it.
        Fewer rows than the model was trained on are joined by other negatives (see `negatives`): a label that has
        hardly any would get a high score everywhere. On the same rows, the new weights equal those of training all
        labels together.

        `train_counts_` gets the new labels' counts in these rows and keeps its number of rows, so that the
        propensities of old labels do not change either. With ``propensity=True`` a new label is weighted by its
        propensity in the rows it is trained on.

        Parameters
        ----------
        X : sparse or array, n_rows x n_features
            As many columns as the model's training data; any number of rows.
        Y_new : sparse or array, n_rows x number of new labels
            Column i becomes label ``n_labels_ + i``. Each needs a row.
        names
            One per new label if the model has label names, all of them new; else None.
        model_dir
            Where to write the grown model. Each shard is written as it finishes; after an interruption the same call
            on the same model continues. Without it the new shards stay in memory until `save`, which replaces the old
            model's directory with ``overwrite=True``. Either way the old model stays until the new one is complete.
        negatives
            What to train against beside the rows given: "kept", the training rows that the model keeps (see
            `keep_rows` of `fit`); "weights", rows made from the old labels' weights; "rows", nothing; "auto", the
            first two, until there are enough.
        resume, progress
            As in `fit`.

        Notes
        -----
        Each call adds at least one shard, and each shard has a table of 8 bytes per feature, so add many labels at
        once if you can.

        Examples
        --------
        >>> import umpteen
        >>> train = umpteen.make_synthetic(500, 300, 20, seed=1)
        >>> model = umpteen.Centroid().fit(train.X, train.Y[:, :15])
        >>> model.add_labels(train.X, train.Y[:, 15:]).n_labels_
        20
        """
        return self.grow(X, Y_new, names, model_dir, negatives=negatives, resume=resume, progress=progress)

    def grow(
        self,
        X: Any,
        Y_new: Any,
        names: Sequence[str] | None,
        model_dir: PathLike | None,
        *,
        negatives: str,
        background: Background | None = None,
        resume: bool,
        progress: bool | Listener,
    ) -> Self:
        """`add_labels`, with what is known of how often features occur."""
        model = self.fitted()
        self.validate()
        self._check_same_parameters(model)
        self.check_can_grow(model)
        target = Target(model_dir, resume, progress)
        self.model_ = train_new_labels(self, model, X, Y_new, names, negatives, background, target)
        return self

    def correction_cost(self) -> float | None:
        """C of a squared hinge that corrections are learnt with; None if the method has no margin to correct."""
        return None

    def check_can_grow(self, model: TrainedModel) -> None:
        """Refuses a model that new labels cannot be added to."""

    def _check_same_parameters(self, model: TrainedModel) -> None:
        trained_with = type(self).from_model(model).facts()
        for name, value in self.facts().items():
            trained = trained_with[name]
            if value != trained:
                raise ParamError(
                    f"add_labels needs the parameters of the model, but {name} was {trained!r} and is {value!r}"
                )


def count_weights_bound(X: Csr, Y: Csr) -> NDArray[np.int64]:
    """For each label, an upper bound on the features of its rows: min(n_features, entries of its rows)."""
    entries = np.repeat(np.diff(X.indptr).astype(np.int64), np.diff(Y.indptr))
    totals = np.bincount(Y.indices, weights=entries, minlength=Y.shape[1])
    return np.minimum(totals, X.shape[1]).astype(np.int64)


def _name_labels(labels: NDArray[np.int32]) -> str:
    """Label ids for a message: at most the first ten."""
    shown = ", ".join(str(label) for label in labels[:10])
    return f"labels {shown} and {len(labels) - 10} more" if len(labels) > 10 else f"labels {shown}"
