"""The few verbs between a method and whatever runs it: submit shard tasks, collect them as they finish.

A method says how to train one shard; an engine decides where and when. The method cannot tell engines apart, and the
trained bytes must not depend on the engine, the order or the number of threads.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from umpteen import _native
from umpteen.errors import ShardError

#: Whether a shard's own kernels use the threads, or shards run side by side with one thread each.
Parallelism = Literal["inside", "across"]


@dataclass(frozen=True)
class Task:
    """One shard to train: its name, what the method planned for it, and how much work it is, in any unit."""

    name: str
    plan: Any
    cost: float


@dataclass(frozen=True)
class Resources:
    """What an engine grants one task."""

    threads: int
    token: _native.CancelToken

    def raise_if_cancelled(self) -> None:
        """To be called now and then by work that is done in Python; kernels look at the token themselves."""
        if self.token.cancelled:
            raise _native.Cancelled("cancelled")


Work = Callable[[Task, Resources], Any]


class Engine(abc.ABC):
    """Runs shard tasks."""

    @abc.abstractmethod
    def run(self, work: Work, tasks: Sequence[Task], parallelism: Parallelism) -> Iterator[tuple[Task, Any]]:
        """Yields each task with its result as it finishes, largest first.

        The first failure stops the rest and raises `ShardError` with the task's name, its cause chained. Closing the
        iterator, or an exception in the consumer such as Ctrl-C, stops running tasks too.
        """


def largest_first(tasks: Sequence[Task]) -> list[Task]:
    """So that the last task to finish is a small one. Equal costs keep their order."""
    return sorted(tasks, key=lambda task: -task.cost)


def shard_error(task: Task, cause: BaseException) -> ShardError:
    return ShardError(f"{task.name} failed: {type(cause).__name__}: {cause}")
