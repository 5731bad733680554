"""The interface between a method and the engine that runs it: submit shard tasks, collect them as they finish.

A method defines how to train one shard; an engine decides where and when. The method does not know the engine, and
the trained bytes must not depend on the engine, the order or the number of threads. An engine may also score rows,
with a whole model or with its parts on many machines; the results must not depend on that either.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from umpteen import _native
from umpteen.data.matrix import Csr
from umpteen.errors import ShardError
from umpteen.models.scorer import Ranking, Scorer

#: "inside": a shard's kernels use the threads; "across": shards run side by side with one thread each; "together":
#: all shards are cut from one computation, which should run only once.
Parallelism = Literal["inside", "across", "together"]


@dataclass(frozen=True)
class Task:
    """One shard to train: its name, the method's plan for it, and its cost in any unit.

    `about` describes it in messages, such as by its labels.
    """

    name: str
    plan: Any
    cost: float
    about: str = ""


@dataclass(frozen=True)
class Resources:
    """What an engine gives one task."""

    threads: int
    token: _native.CancelToken
    #: Notes that the work adds beside its result, such as solver statistics.
    notes: list[Any] = field(default_factory=list)

    def raise_if_cancelled(self) -> None:
        """Work done in Python must call this now and then; kernels check the token themselves."""
        if self.token.cancelled:
            raise _native.Cancelled("cancelled")


Work = Callable[[Task, Resources], Any]


@runtime_checkable
class Portable(Protocol):
    """Work that can be sent to other machines in pieces. Other work is sent whole."""

    def __call__(self, task: Task, resources: Resources) -> Any: ...

    def share(self, *, writes: bool) -> Any:
        """What all tasks need, sent to each machine once. `writes`: whether shards are written there or returned."""
        ...

    def pick(self, task: Task) -> Any:
        """What one task needs beyond that, sent with it: the argument of `receive`."""
        ...

    def receive(self, picked: Any) -> Work:
        """The work of one task, on the machine that does it; called on the result of `share`."""
        ...


class Engine(abc.ABC):
    """Runs shard tasks."""

    #: Whether shards are trained in other processes, with memory of their own.
    elsewhere: ClassVar[bool] = False

    @abc.abstractmethod
    def run(self, work: Work, tasks: Sequence[Task], parallelism: Parallelism) -> Iterator[tuple[Task, Any]]:
        """Yields each task with its result as it finishes, largest first.

        The first failure stops the rest and raises `ShardError` with the task's name, its cause chained. With
        `keep_going` an engine logs it, runs the rest, and then raises. Closing the iterator, or an exception in the
        consumer such as Ctrl-C, also stops running tasks.
        """

    def predict_topk(
        self,
        model: Scorer,
        X: Csr,
        top_k: int,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        """The result of the model's own `predict_topk` for preprocessed rows."""
        return model.predict_topk(X, top_k, exclude=exclude, include=include, threads=threads)


def largest_first(tasks: Sequence[Task]) -> list[Task]:
    """Sorts tasks so that the last one to finish is small. Equal costs keep their order."""
    return sorted(tasks, key=lambda task: -task.cost)


def shard_error(task: Task, cause: BaseException) -> ShardError:
    about = f" ({task.about})" if task.about else ""
    return ShardError(f"{task.name}{about} failed: {type(cause).__name__}: {cause}")


class Failures:
    """Handles failed tasks: raises at the first one, or at the end with `keep_going`."""

    def __init__(self, keep_going: bool) -> None:
        self._keep_going = keep_going
        self._failed: list[tuple[Task, ShardError]] = []

    def add(self, task: Task, cause: BaseException) -> None:
        error = shard_error(task, cause)
        error.__cause__ = cause
        if not self._keep_going:
            raise error
        logging.getLogger("umpteen").error("%s; continuing with the others", error)
        self._failed.append((task, error))

    def raise_if_any(self, n_tasks: int) -> None:
        if self._failed:
            names = ", ".join(task.name for task, _ in self._failed)
            raise ShardError(
                f"{len(self._failed)} of {n_tasks} shards failed and the others are done: {names}"
            ) from self._failed[0][1]
