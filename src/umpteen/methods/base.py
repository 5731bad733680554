"""What every method is: parameters, a plan of shards, how to train one, and the scikit-learn face around them.

A method is one file in this package. It names itself, stores its parameters, and says three things: `plan` (which
shards), `train_shard` (one shard from shared read-only data) and `estimate` (memory and model size). Everything else,
engines, resuming, saving, predicting, is here.
"""

from __future__ import annotations

import abc
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr, as_csr, fingerprint, make_csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.propensity import LabelCounts, count_labels
from umpteen.engines import make_engine
from umpteen.engines.base import Engine, Parallelism, Resources, Task, Work
from umpteen.errors import DataError, ModelCorruptError, NotFittedError, ParamError
from umpteen.evaluation.metrics import find_hits
from umpteen.memory import Estimate, check_fits
from umpteen.methods.training_data import SomeLabels, TrainingData
from umpteen.models.calibration import Calibration
from umpteen.models.explanation import Explanation
from umpteen.models.linear import LinearModel
from umpteen.models.model import Model, check_label_ids
from umpteen.params import Parameters, check_count, check_number
from umpteen.progress import Listener, Progress, listening
from umpteen.storage.names import Names
from umpteen.storage.remote import create_model, open_model
from umpteen.storage.saving import save_parts
from umpteen.storage.store import ModelReader, ModelWriter, Part

#: Parameters that say how to compute, not what: the model's bytes do not depend on them.
HOW = ("threads", "engine")


class Method(Parameters, abc.ABC):
    """Base of all methods, with scikit-learn's conventions: parameters in the constructor, `fit`, attributes with
    a trailing underscore after it."""

    name: ClassVar[str]
    parallelism: ClassVar[Parallelism] = "inside"
    model_class: ClassVar[type[Model]] = LinearModel
    #: What to do where memory would not suffice.
    way_out: ClassVar[str] = "use fewer threads, smaller shards, or a method with a smaller model"

    #: Parameters the manifest does not have, because the model keeps them in parts of its own.
    kept_as_parts: ClassVar[tuple[str, ...]] = ()

    tfidf: bool
    normalize: bool
    power: float = 1.0  # where it is no parameter
    bias: float = 0.0
    threads: int | None
    engine: str | Engine

    # --- what a method says -------------------------------------------------------------------------------------

    @abc.abstractmethod
    def validate(self) -> None:
        """Raises ParamError for a parameter that breaks its rule."""

    def preprocessing(self) -> Preprocessing:
        """The steps its parameters ask for, after checks."""
        return Preprocessing(self.tfidf, self.normalize, self.bias, power=self.power)

    @abc.abstractmethod
    def plan(self, data: TrainingData) -> list[Task]:
        """The shards, in the order they are stored. Depends on data and parameters only."""

    @abc.abstractmethod
    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        """One shard. Depends on data, parameters and the task only: never on threads, order or clocks."""

    def hear(self, task: Task, note: Any) -> None:
        """Keeps what `train_shard`, wherever it ran, noted in its resources."""

    def labels_of(self, task: Task) -> NDArray[np.int32] | None:
        """Which labels' rows a shard is trained from, rising; None for all. An engine that trains it on another
        machine sends no others."""
        return None

    @abc.abstractmethod
    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        """Memory beyond X and Y, and model size, from the matrices' shapes and counts."""

    # --- scikit-learn -------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, multi_output=True, single_output=False),
            classifier_tags=ClassifierTags(multi_class=False, multi_label=True),
            input_tags=InputTags(sparse=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")  # not by the trailing underscore: parameters such as lambda_ have one too

    # --- fit ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        Y: Any,
        model_dir: PathLike | None = None,
        *,
        label_names: Sequence[str] | None = None,
        resume: bool = True,
        progress: bool | Listener = False,
    ) -> Self:
        """Trains all shards.

        Parameters
        ----------
        X : sparse or array, n_rows x n_features
        Y : sparse or array, n_rows x n_labels
            Non-zero where the row has the label.
        model_dir
            Where the model goes: a directory, or, with ``umpteen[fsspec]``, a URL such as s3://bucket/model. Shards
            appear there as they finish; after an interruption the same call continues. Without it the model stays in
            memory until `save`.
        label_names
            One per label, kept with the model.
        resume
            False refuses to continue an interrupted run.
        progress
            True for a bar at a terminal, or a function that is told.
        """
        return self._fit(X, Y, model_dir, label_names, resume, progress, {}, {})

    def _fit(
        self,
        X: Any,
        Y: Any,
        model_dir: PathLike | None,
        label_names: Sequence[str] | None,
        resume: bool,
        progress: bool | Listener,
        extra_header: Mapping[str, Any],
        extra_parts: Mapping[str, Part],
        again: bool = False,
    ) -> Self:
        """`fit`, with more to keep in the model than the method knows of: what stands before it, such as text. With
        `again` a finished model of the same data is taken as it is."""
        self.validate()
        X, Y = as_csr(X, "X"), as_csr(Y, "Y", values=False)
        self._check_training(X, Y, Y.shape[1], label_names)
        own_header, own_parts = self._train_helpers(X, Y, progress)
        steps = self.preprocessing().fit(X)
        data = TrainingData(steps.transform(X, threads=self.threads), Y, float(steps.bias))
        counts = count_labels(Y, "Y").counts
        shared = {**_shared_parts(steps, counts, label_names), **own_parts, **extra_parts}
        tasks = self.plan(data)  # before the header: it may settle parameters
        header = {**self._header(X.shape, Y.shape[1], steps), **own_header, **extra_header}
        if model_dir is not None:
            header["fingerprint"] = {"X": fingerprint(X), "Y": fingerprint(Y)}
        self._train(data, tasks, {}, header, shared, model_dir, resume, progress, again)
        return self

    def _train_helpers(self, X: Csr, Y: Csr, progress: bool | Listener) -> tuple[dict[str, Any], dict[str, Part]]:
        """What a method keeps in its model beside its shards, as entries of the header and parts."""
        return {}, {}

    def _check_training(self, X: Csr, Y: Csr, n_labels: int, names: Sequence[str] | None) -> None:
        """Refuses data to train `n_labels` labels from that cannot be used, before anything is done with it."""
        if X.shape[0] != Y.shape[0]:
            raise DataError(f"X and Y must have as many rows, but have {X.shape[0]} and {Y.shape[0]}")
        for what, size in (("row", X.shape[0]), ("feature", X.shape[1]), ("label", Y.shape[1])):
            if size == 0:
                raise DataError(f"training needs at least one {what}, but there is none")
        if names is not None and len(names) != Y.shape[1]:
            raise DataError(f"there must be {Y.shape[1]} label names, but there are {len(names)}")
        check_fits(Estimate(64 * (X.shape[1] + n_labels), 0), "are there really so many features and labels?")
        if not make_engine(self.engine, self.threads).elsewhere:
            check_fits(self.estimate(X, Y), self.way_out)

    def _train(
        self,
        data: TrainingData,
        tasks: list[Task],
        kept: dict[str, Part],
        header: dict[str, Any],
        shared: dict[str, Part],
        model_dir: PathLike | None,
        resume: bool,
        progress: bool | Listener,
        again: bool = False,
    ) -> None:
        """Trains the tasks' shards, sets them behind those that are kept as they are, and attaches the model."""
        names = [*kept, *(task.name for task in tasks)]
        with listening(progress, f"training {self.name}") as listener:
            if model_dir is None:
                shards = kept | train_shards(self, data, tasks, set(), None, listener)
            else:
                with create_model(model_dir, header, names, resume=resume, again=again) as writer:
                    finished = set(writer.finished())
                    for name, part in kept.items():
                        if name not in finished:
                            writer.write_part(name, part)
                    train_shards(self, data, tasks, finished, writer, listener)
                    for name, part in shared.items():
                        writer.write_part(name, part)
                    writer.finish()
                reader = open_model(model_dir)
                shards = {name: reader.part(name) for name in names}
        self._attach(header, shared, [shards[name] for name in names])

    def _header(self, shape: tuple[int, int], n_labels: int, steps: Preprocessing) -> dict[str, Any]:
        from umpteen import __version__

        return {
            "umpteen_version": __version__,
            "method": self.name,
            "family": self.model_class.family,
            "params": self._plain_params(),
            "n_train_rows": shape[0],
            "n_features": shape[1],
            "n_labels": n_labels,
            "preprocessing": steps.to_json(),
        }

    def _plain_params(self) -> dict[str, Any]:
        """The parameters the model depends on, as the manifest has them."""
        left_out = (*HOW, *self.kept_as_parts)
        return {k: _plain(k, v) for k, v in self.get_params().items() if k not in left_out}

    def _attach(self, header: dict[str, Any], shared: dict[str, Part], shards: list[Part]) -> None:
        """Sets the fitted attributes, after training or loading."""
        idf = shared["preprocessing"].arrays.get("idf") if "preprocessing" in shared else None
        self.preprocessing_ = Preprocessing.from_json(header["preprocessing"], idf)
        # Before the model is opened: nothing is made room for by a number of labels that the counts do not bear out.
        counts = _check_counts(shared["labels"].arrays["counts"], header["n_labels"])
        self.train_counts_ = LabelCounts(counts, header["n_train_rows"])
        self.model_: Any = self._open_model(header, shared, shards)
        self.label_names_ = Names.from_part(shared["names"]) if "names" in shared else None
        if self.label_names_ is not None and len(self.label_names_) != header["n_labels"]:
            raise ModelCorruptError(f"{header['n_labels']} labels must have a name, but {len(self.label_names_)} do")
        self.calibration_ = Calibration.from_part(shared["calibration"]) if "calibration" in shared else None
        self.n_features_in_ = header["n_features"]
        self.n_labels_ = header["n_labels"]
        self._fitted_header = header
        self._shared = shared
        self.__dict__.pop("_ids_by_name", None)

    def _open_model(self, header: dict[str, Any], shared: dict[str, Part], shards: list[Part]) -> Model:
        return self.model_class.from_parts(shards, header["n_features"], header["n_labels"])

    def save(self, path: PathLike, *, overwrite: bool = False) -> None:
        """Writes the model directory. It appears whole; an existing one is only replaced with `overwrite`."""
        self._check_fitted()
        parts = self.model_.to_parts()
        save_parts(path, self._fitted_header, parts, len(parts), self._shared, overwrite=overwrite)

    def pruned(self, delta: float, model_dir: PathLike | None = None) -> Self:
        """A copy of the model without the weights smaller than `delta`, not trained again.

        It is what training with ``prune=delta`` gives, but for weights within 2^-11 of `delta`, which 16-bit rounding
        may have taken across it. Of a model trained with a larger `prune` nothing is left to drop. Where the method
        has a parameter `prune`, the copy's is the larger of the two.

        Parameters
        ----------
        delta
            Weights smaller than this, whatever their sign, are dropped. Biases stay.
        model_dir
            Where the copy goes. It is written shard by shard and appears there whole. Without it the copy stays in
            memory until `save`.
        """
        self._check_fitted()
        delta = check_number("delta", delta, 0)
        if self.model_class.family != "linear":
            raise ParamError(
                f"only linear models have weights to prune, but a {self.name} model is of the family "
                f"{self.model_class.family}"
            )
        params = dict(self._fitted_header["params"])
        if "prune" in params:
            params["prune"] = max(params["prune"], delta)
        header = self._fitted_header | {"params": params}
        shards = (shard.pruned(delta).to_part() for shard in self.model_.shards)
        if model_dir is not None:
            save_parts(model_dir, header, shards, len(self.model_.shards), self._shared)
            reader = ModelReader(model_dir)
            shards = (reader.part(name) for name in reader.shard_names)
        copy = type(self)(**self.get_params() | params)
        copy._attach(header, self._shared, list(shards))
        return copy

    # --- predict ------------------------------------------------------------------------------------------------

    def predict_topk(
        self,
        X: Any,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The best labels of each row, best first; ties go to the lower label id.

        Parameters
        ----------
        X : sparse or array, n_rows x n_features
            As given to `fit`: the preprocessing recorded with the model is applied here.
        exclude, include : label ids or names, optional
            Labels that must not be, or alone may be, ranked; applied before the cut.
        engine
            Where rows are scored. It is not the engine the model was trained with: few rows are scored before another
            machine has heard of them.

        Returns
        -------
        labels : int32, n_rows x top_k
            Padded with -1 where fewer labels can be ranked.
        scores : float32, n_rows x top_k
            Padded with -inf.
        """
        self._check_fitted()
        top_k = check_count("top_k", top_k)
        X = as_csr(X, "X", self.n_features_in_)
        threads = self.threads if threads is None else threads
        X = self.preprocessing_.transform(X, threads=1 if X.shape[0] == 1 else threads)
        model: Model = self.model_
        options: dict[str, Any] = {
            "exclude": self._label_ids(exclude, "exclude"),
            "include": self._label_ids(include, "include"),
            "threads": threads,
        }
        if engine == "local":  # one row is scored faster than an engine is made
            return model.predict_topk(X, top_k, **options)
        return make_engine(engine, threads).predict_topk(model, X, top_k, **options)

    def calibrate(self, X: Any, Y: Any, *, top_k: int = 50) -> Self:
        """Learns from held-out rows what scores are worth: probabilities for `predict_topk_proba`, and thresholds.

        Parameters
        ----------
        X, Y
            Rows the model was not trained on, and their labels.
        top_k
            How far down each row's ranking to look.
        """
        labels, scores = self.predict_topk(X, min(check_count("top_k", top_k), self.n_labels_))
        Y = self._check_targets(Y, len(labels))
        hits = find_hits(Y, labels, self.threads)
        self.calibration_ = Calibration.fit(labels, scores, hits, np.bincount(Y.indices, minlength=self.n_labels_))
        self._shared = self._shared | {"calibration": self.calibration_.to_part()}
        return self

    def predict_topk_proba(
        self, X: Any, top_k: int = 5, **options: Any
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """`predict_topk` with probabilities in place of scores, padded with 0. The model must be calibrated."""
        labels, scores = self.predict_topk(X, top_k, **options)
        if self.calibration_ is None:
            raise NotFittedError(f"this {type(self).__name__} is not calibrated; call calibrate with held-out rows")
        return labels, self.calibration_.to_probabilities(scores)

    def explain(self, X: Any, label: Any) -> Explanation:
        """What speaks for and against a label.

        Parameters
        ----------
        X : sparse or array, 1 x n_features
            One row, as given to `fit`.
        label
            Its id or name.
        """
        self._check_fitted()
        ids = self._label_ids(label, "label")
        X = as_csr(X, "X", self.n_features_in_)
        if X.shape[0] != 1 or ids is None or len(ids) != 1:
            raise ParamError(f"one row and one label can be explained at a time, but there are {X.shape[0]} rows")
        model: Model = self.model_
        return model.explain(self.preprocessing_.transform(X, threads=1), int(ids[0]))

    def predict(self, X: Any, top_k: int = 5) -> Csr:
        """The best labels as a CSR matrix of ones, n_rows x n_labels."""
        labels, _ = self.predict_topk(X, top_k)
        kept = np.sort(np.where(labels >= 0, labels, np.iinfo(np.int32).max), axis=1)
        mask = kept != np.iinfo(np.int32).max
        indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
        indices = kept[mask]
        return make_csr(np.ones(len(indices), np.float32), indices, indptr, (len(labels), self.n_labels_))

    def score(self, X: Any, Y: Any) -> float:
        """P@1 as a fraction, for scikit-learn's searches."""
        labels, _ = self.predict_topk(X, 1)
        return float(find_hits(self._check_targets(Y, len(labels)), labels, self.threads).mean())

    def _check_targets(self, Y: Any, n_rows: int) -> Csr:
        targets = as_csr(Y, "Y", self.n_labels_, values=False)
        if targets.shape[0] != n_rows:
            raise DataError(f"X and Y must have as many rows, but have {n_rows} and {targets.shape[0]}")
        return targets

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")

    def _label_ids(self, labels: Any, name: str) -> NDArray[np.int64] | None:
        if labels is None:
            return None
        if isinstance(labels, (str, int, np.integer)):
            labels = [labels]
        labels = list(labels)
        if any(isinstance(label, str) for label in labels):
            if self.label_names_ is None:
                raise ParamError(f"{name} holds label names, but the model has none; give label ids")
            unknown = [label for label in labels if isinstance(label, str) and label not in self._ids_by_name]
            if unknown:
                raise ParamError(f"{name} holds the unknown label {unknown[0]!r}")
            labels = [self._ids_by_name[label] if isinstance(label, str) else label for label in labels]
        return check_label_ids(labels, self.n_labels_, name)

    @cached_property
    def _ids_by_name(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.label_names_ or ())}


#: What a fitted method has that its shards are not trained from.
_FITTED = (
    "model_",
    "preprocessing_",
    "train_counts_",
    "label_names_",
    "calibration_",
    "_fitted_header",
    "_shared",
    "_ids_by_name",
)


@dataclass(frozen=True, eq=False)
class ShardWork:
    """Trains a shard, and writes it if there is a writer. Portable: see engines/base.py."""

    method: Method
    data: TrainingData
    writer: ModelWriter | None

    def __call__(self, task: Task, resources: Resources) -> tuple[Part | None, list[Any]]:
        """The shard, if it is not written, and what was noted."""
        part = self.method.train_shard(self.data, task, resources)
        if self.writer is None:
            return part, resources.notes
        self.writer.write_part(task.name, part)
        return None, resources.notes

    def share(self, *, writes: bool) -> ShardWork:
        method = copy.copy(self.method)
        method.engine = "local"
        for name in _FITTED:
            method.__dict__.pop(name, None)
        label_by_label = type(method).labels_of is not Method.labels_of
        data = self.data.without_labels() if label_by_label else self.data
        return ShardWork(method, data, self.writer if writes else None)

    def pick(self, task: Task) -> SomeLabels | None:
        labels = self.method.labels_of(task)
        return None if labels is None else self.data.pick_labels(labels)

    def receive(self, picked: SomeLabels | None) -> Work:
        return self if picked is None else replace(self, data=self.data.with_labels(picked))


def train_shards(
    method: Method,
    data: TrainingData,
    tasks: list[Task],
    finished: set[str],
    writer: ModelWriter | None,
    listener: Listener,
) -> dict[str, Part]:
    """Hands the tasks that are left to the engine and tells how far it is.

    With a writer each worker writes its shard and forgets it; without one the shards are returned.
    """
    left = [task for task in tasks if task.name not in finished]
    total = sum(task.cost for task in tasks)
    done = total - sum(task.cost for task in left)
    n_done = len(tasks) - len(left)
    listener(Progress(done, total, n_done, len(tasks)))
    shards: dict[str, Part] = {}
    engine = make_engine(method.engine, method.threads)
    for task, (part, notes) in engine.run(ShardWork(method, data, writer), left, method.parallelism):
        for note in notes:
            method.hear(task, note)
        if part is not None and writer is not None:  # it was trained where our disk is not
            writer.write_part(task.name, part)
        elif part is not None:
            shards[task.name] = part
        done += task.cost
        n_done += 1
        listener(Progress(done, total, n_done, len(tasks)))
    return shards


def _shared_parts(
    steps: Preprocessing, counts: NDArray[np.int64], label_names: Sequence[str] | None
) -> dict[str, Part]:
    parts = {"labels": Part({"counts": counts})}
    if steps.idf is not None:
        parts["preprocessing"] = Part({"idf": steps.idf})
    if label_names is not None:
        parts["names"] = Names.encode([str(name) for name in label_names]).to_part()
    return parts


def _check_counts(counts: NDArray[Any], n_labels: int) -> NDArray[np.int64]:
    """A model's label counts, which may be anybody's."""
    if counts.shape != (n_labels,):
        raise ModelCorruptError(f"{n_labels} labels must have a count, but the shape of counts is {counts.shape}")
    if counts.dtype != np.int64:
        raise ModelCorruptError(f"label counts must be int64, but are {counts.dtype}")
    if counts.min(initial=0) < 0:
        raise ModelCorruptError(f"label counts must be at least 0, but one is {counts.min()}")
    return counts


def _plain(name: str, value: Any) -> Any:
    """A parameter as JSON has it."""
    value = value.item() if isinstance(value, np.generic) else value
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ParamError(f"{name} must be a plain value that JSON can hold, but is {value!r}") from None
    return value
