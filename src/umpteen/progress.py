"""Progress of long work: what listeners receive, and a bar at a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a training run is. `done` and `total` are in the method's own unit of work."""

    done: float
    total: float
    shards_done: int
    shards_total: int


Listener = Callable[[Progress], None]


@contextlib.contextmanager
def progress_bar(description: str) -> Iterator[Listener]:
    """A bar with an estimate of the time left, on standard error; silent unless that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("shard {task.fields[shards]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=None, shards="–")

        def listen(progress: Progress) -> None:
            bar.update(
                task,
                completed=progress.done,
                total=progress.total,
                shards=f"{progress.shards_done}/{progress.shards_total}",
            )

        yield listen


@contextlib.contextmanager
def listening(progress: bool | Listener, description: str) -> Iterator[Listener]:
    """The listener to call: the user's own function, a bar, or one that does nothing."""
    if callable(progress):
        yield progress
    elif progress:
        with progress_bar(description) as listener:
            yield listener
    else:
        yield lambda _: None
