"""From data to a trained model: checks the data, trains shards on an engine, writes each as it finishes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umpteen import __version__
from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr, as_csr, fingerprint, fingerprint_array
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.propensity import count_labels
from umpteen.engines import make_engine
from umpteen.engines.base import Resources, Task, Work
from umpteen.errors import DataError, ParamError
from umpteen.memory import Estimate, check_fits
from umpteen.methods.kept_rows import KEPT_ROWS, KeptRows
from umpteen.methods.training_data import SomeLabels, TrainingData
from umpteen.params import check_count
from umpteen.progress import Listener, Progress, listening
from umpteen.storage.names import Names
from umpteen.storage.remote import create_model, open_model
from umpteen.storage.store import ModelWriter, Part
from umpteen.trained.decisions import HAS_BOUNDARY
from umpteen.trained.model import TrainedModel

if TYPE_CHECKING:
    from umpteen.methods.base import Method


@dataclass(frozen=True, eq=False)
class Target:
    """Where to write a model, and how.

    Parameters
    ----------
    model_dir
        A directory or URL; None keeps the model in memory.
    resume
        Whether to continue an interrupted run.
    progress
        As for `fit`.
    accept_finished
        Whether to accept a finished model of the same data and parameters.
    """

    model_dir: PathLike | None = None
    resume: bool = True
    progress: bool | Listener = False
    accept_finished: bool = False


def train_model(
    method: Method,
    X: Any,
    Y: Any,
    model_dir: PathLike | None = None,
    *,
    label_names: Sequence[str] | None = None,
    resume: bool = True,
    progress: bool | Listener = False,
    accept_finished: bool = False,
    extra_header: Mapping[str, Any] | None = None,
    extra_parts: Mapping[str, Part] | None = None,
    keep_rows: int = 0,
    row_costs: NDArray[np.float32] | None = None,
) -> TrainedModel:
    """Trains a method's shards.

    Parameters
    ----------
    X, Y, model_dir, label_names, resume, progress
        As for `Method.fit`.
    accept_finished
        Whether to accept a finished model of the same data and parameters.
    extra_header, extra_parts
        More to keep in the model, such as the vocabulary of the texts that X was made from.
    keep_rows
        As for `Method.fit`.
    row_costs
        How many times each row counts; see `weigh_rows`.
    """
    method.validate()
    check_keep_rows(method, keep_rows)
    X, Y = as_csr(X, "X"), as_csr(Y, "Y", values=False)
    check_training(method, X, Y, Y.shape[1], label_names)
    own_header, own_parts = method.train_companions(X, Y, progress)
    steps = method.preprocessing().fit(X)
    data = TrainingData(steps.transform(X, threads=method.threads), Y, float(steps.bias), row_costs=row_costs)
    parts = {**_common_parts(steps, Y, label_names), **own_parts, **(extra_parts or {})}
    if keep_rows:
        parts[KEPT_ROWS] = KeptRows.sample(X, Y, keep_rows).to_part()
    tasks = method.plan(data)  # before the header: it may settle parameters
    header = {**describe(method, X.shape, Y.shape[1], steps), **own_header, **(extra_header or {})}
    if model_dir is not None:
        header["fingerprint"] = {"X": fingerprint(X), "Y": fingerprint(Y)}
        if row_costs is not None:
            header["fingerprint"]["sample_weight"] = fingerprint_array(row_costs)
    target = Target(model_dir, resume, progress, accept_finished)
    return train_tasks(method, data, tasks, {}, header, parts, target)


def check_keep_rows(method: Method, keep_rows: int) -> None:
    """Refuses to keep rows in a model that could not use them."""
    if check_count("keep_rows", keep_rows, low=0) and not hasattr(method, "add_labels"):
        raise ParamError(
            f"keep_rows is for methods that labels can be added to, but the method is {method.name}; it must be 0"
        )


def check_training(method: Method, X: Csr, Y: Csr, n_labels: int, names: Sequence[str] | None) -> None:
    """Refuses data that cannot be used to train `n_labels` labels, before any work is done."""
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"X and Y must have the same number of rows, but have {X.shape[0]} and {Y.shape[0]}")
    for what, size in (("row", X.shape[0]), ("feature", X.shape[1]), ("label", Y.shape[1])):
        if size == 0:
            raise DataError(f"training needs at least one {what}, but there are none")
    if names is not None and len(names) != Y.shape[1]:
        raise DataError(f"there must be {Y.shape[1]} label names, but there are {len(names)}")
    check_fits(Estimate(64 * (X.shape[1] + n_labels), 0), "are there really so many features and labels?")
    if not make_engine(method.engine, method.threads).elsewhere:
        check_fits(method.estimate(X, Y), method.memory_advice)


def describe(method: Method, shape: tuple[int, int], n_labels: int, steps: Preprocessing) -> dict[str, Any]:
    """The entries of the manifest."""
    boundary = {} if method.has_boundary else {HAS_BOUNDARY: False}
    return {
        "umpteen_version": __version__,
        "method": method.name,
        "family": method.scorer_class.family,
        "params": method.facts(),
        "n_train_rows": shape[0],
        "n_features": shape[1],
        "n_labels": n_labels,
        "preprocessing": steps.to_json(),
        **boundary,
    }


def train_tasks(
    method: Method,
    data: TrainingData,
    tasks: list[Task],
    kept: dict[str, Part],
    header: dict[str, Any],
    parts: dict[str, Part],
    target: Target,
) -> TrainedModel:
    """Trains the tasks' shards and appends them to the kept ones."""
    names = [*kept, *(task.name for task in tasks)]
    with listening(target.progress, f"training {method.name}") as listener:
        if target.model_dir is None:
            shards = kept | train_shards(method, data, tasks, set(), None, listener)
            return TrainedModel.open(header, parts, [shards[name] for name in names], method.threads)
        with create_model(
            target.model_dir, header, names, resume=target.resume, again=target.accept_finished
        ) as writer:
            finished = set(writer.finished())
            for name, part in kept.items():
                if name not in finished:
                    writer.write_part(name, part)
            train_shards(method, data, tasks, finished, writer, listener)
            for name, part in parts.items():
                writer.write_part(name, part)
            writer.finish()
    reader = open_model(target.model_dir)
    return TrainedModel.open(header, parts, [reader.part(name) for name in names], method.threads)


@dataclass(frozen=True, eq=False)
class ShardWork:
    """Trains a shard, and writes it if there is a writer. Portable: see engines/base.py."""

    method: Method
    data: TrainingData
    writer: ModelWriter | None

    def __call__(self, task: Task, resources: Resources) -> tuple[Part | None, list[Any]]:
        """The shard, unless it was written, and the notes."""
        part = self.method.train_shard(self.data, task, resources)
        if self.writer is None:
            return part, resources.notes
        self.writer.write_part(task.name, part)
        return None, resources.notes

    def share(self, *, writes: bool) -> ShardWork:
        method = copy.copy(self.method)
        method.engine = "local"
        method.__dict__.pop("model_", None)  # training does not need it
        data = self.data.without_labels() if method.trains_by_label else self.data
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
    """Runs the remaining tasks on the engine and reports progress.

    With a writer each worker writes its shard and drops it; without one the shards are returned.
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
            method.collect_note(task, note)
        if part is not None and writer is not None:  # trained on a machine without our disk
            writer.write_part(task.name, part)
        elif part is not None:
            shards[task.name] = part
        done += task.cost
        n_done += 1
        listener(Progress(done, total, n_done, len(tasks)))
    return shards


def _common_parts(steps: Preprocessing, Y: Csr, label_names: Sequence[str] | None) -> dict[str, Part]:
    parts = {"labels": Part({"counts": count_labels(Y, "Y").counts})}
    if steps.idf is not None:
        parts["preprocessing"] = Part({"idf": steps.idf})
    if label_names is not None:
        parts["names"] = Names.encode([str(name) for name in label_names]).to_part()
    return parts
