"""Progress of long work: what listeners receive, a bar at a terminal, lines of text in a notebook."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far some work is. `done` and `total` are in its own unit of work; what is not training has no shards."""

    done: float
    total: float
    shards_done: int
    shards_total: int
    what: str = "training"


Listener = Callable[[Progress], None]


@contextlib.contextmanager
def progress_bar(description: str) -> Iterator[Listener]:
    """A bar with an estimate of the time left, on standard error, if that is a terminal; lines of text in a notebook;
    else silent."""
    if not sys.stderr.isatty():
        yield tell_in_lines(description) if in_notebook() else lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[shards]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with showing(False), RichProgress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(description, total=None, shards="")

        def listen(progress: Progress) -> None:
            bar.update(
                task,
                completed=progress.done,
                total=progress.total,
                shards=_describe_shards(progress),
            )

        yield listen


def in_notebook() -> bool:
    """Whether a notebook runs this, and shows what is printed. IPython is not imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def tell_in_lines(description: str, every: float = 0.1, clock: Callable[[], float] = time.monotonic) -> Listener:
    """A listener that prints a line for each tenth that is done, with the time it took and what is left."""
    started, told = clock(), 0.0

    def listen(progress: Progress) -> None:
        nonlocal told
        share = progress.done / progress.total if progress.total > 0 else 0.0
        if share < min(told + every, 1.0) - 1e-9 or share <= told:
            return
        told = share
        seconds = clock() - started
        left = seconds / share - seconds
        shards = f" {_describe_shards(progress)}," if progress.shards_total else ""
        print(f"{description}: {share:.0%},{shards} {seconds:.0f} s, {left:.0f} s left", flush=True)

    return listen


def _describe_shards(progress: Progress) -> str:
    return f"shard {progress.shards_done}/{progress.shards_total}" if progress.shards_total else ""


#: See `showing`.
_SHOWN: ContextVar[bool | Listener] = ContextVar("shown", default=False)


@contextlib.contextmanager
def showing(progress: bool | Listener) -> Iterator[None]:
    """Whether long work deep inside of calls, such as encoding texts, shows how far it is meanwhile; not while
    another bar is shown."""
    token = _SHOWN.set(progress)
    try:
        yield
    finally:
        _SHOWN.reset(token)


def shown() -> bool | Listener:
    """What `showing` has set."""
    return _SHOWN.get()


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
