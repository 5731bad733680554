"""The few verbs between a method and whatever runs it: submit shard tasks, collect them as they finish.

A method says how to train one shard; an engine decides where and when. The method cannot tell engines apart, and the
trained bytes must not depend on the engine, the order or the number of threads. An engine may also score rows, from
the whole of a model or from its parts on many machines; the answers must not depend on that either.
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

#: Whether a shard's own kernels use the threads, shards run side by side with one thread each, or all shards are cut
#: from one computation, which only pays once.
Parallelism = Literal["inside", "across", "together"]


@dataclass(frozen=True)
class Task:
    """One shard to train: its name, what the method planned for it, and how much work it is, in any unit.

    `about` says in a message what it is, such as which labels.
    """

    name: str
    plan: Any
    cost: float
    about: str = ""


@dataclass(frozen=True)
class Resources:
    """What an engine grants one task."""

    threads: int
    token: _native.CancelToken
    #: What the work notes beside its result, such as how well a solver did.
    notes: list[Any] = field(default_factory=list)

    def raise_if_cancelled(self) -> None:
        """To be called now and then by work that is done in Python; kernels look at the token themselves."""
        if self.token.cancelled:
            raise _native.Cancelled("cancelled")


Work = Callable[[Task, Resources], Any]


@runtime_checkable
class Portable(Protocol):
    """Work that knows what of itself to send to other machines. Other work is sent whole."""

    def __call__(self, task: Task, resources: Resources) -> Any: ...

    def share(self, *, writes: bool) -> Any:
        """What all tasks need, sent to each machine once. `writes` is whether shards are written there, or come back
        as results."""
        ...

    def pick(self, task: Task) -> Any:
        """What one task needs beyond that, sent with it: handed to `receive` of what `share` gave."""
        ...

    def receive(self, picked: Any) -> Work:
        """The work of one task, where it is done."""
        ...


class Engine(abc.ABC):
    """Runs shard tasks."""

    #: Whether shards are trained in other processes, whose memory is not ours.
    elsewhere: ClassVar[bool] = False

    @abc.abstractmethod
    def run(self, work: Work, tasks: Sequence[Task], parallelism: Parallelism) -> Iterator[tuple[Task, Any]]:
        """Yields each task with its result as it finishes, largest first.

        The first failure stops the rest and raises `ShardError` with the task's name, its cause chained. An engine
        that is told to keep going logs it, does the rest, and raises then. Closing the iterator, or an exception in
        the consumer such as Ctrl-C, stops running tasks too.
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
        """What the model's own `predict_topk` says of preprocessed rows."""
        return model.predict_topk(X, top_k, exclude=exclude, include=include, threads=threads)


def largest_first(tasks: Sequence[Task]) -> list[Task]:
    """So that the last task to finish is a small one. Equal costs keep their order."""
    return sorted(tasks, key=lambda task: -task.cost)


def shard_error(task: Task, cause: BaseException) -> ShardError:
    about = f" ({task.about})" if task.about else ""
    return ShardError(f"{task.name}{about} failed: {type(cause).__name__}: {cause}")


class Failures:
    """What to do about tasks that fail: raise at the first, or, if told to keep going, at the end."""

    def __init__(self, keep_going: bool) -> None:
        self._keep_going = keep_going
        self._failed: list[tuple[Task, ShardError]] = []

    def add(self, task: Task, cause: BaseException) -> None:
        error = shard_error(task, cause)
        error.__cause__ = cause
        if not self._keep_going:
            raise error
        logging.getLogger("umpteen").error("%s; going on with the others", error)
        self._failed.append((task, error))

    def raise_if_any(self, n_tasks: int) -> None:
        if self._failed:
            names = ", ".join(task.name for task, _ in self._failed)
            raise ShardError(
                f"{len(self._failed)} of {n_tasks} shards failed and the others are done: {names}"
            ) from self._failed[0][1]
