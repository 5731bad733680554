"""How far the labelling of a table is: a bar at a terminal, lines of text in a notebook, else nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from umpteen.progress import in_notebook, showing

#: Called with the rows done, and the share of the input that was read where that is known.
Progress = Callable[[int, float | None], None]
#: Seconds between lines where the share is not known.
_EVERY = 10.0


@contextlib.contextmanager
def show_progress() -> Iterator[Progress | None]:
    """What to call; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield _tell_in_lines() if in_notebook() else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with showing(False), RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("labelling", total=None)

        def listen(n_rows: int, share: float | None) -> None:
            bar.update(
                task, description=f"{n_rows:,} rows", completed=share or 0, total=None if share is None else 1.0
            )

        yield listen


def _tell_in_lines(clock: Callable[[], float] = time.monotonic) -> Progress:
    """Prints a line for each tenth that is done or, where that is not known, every few seconds."""
    started = told_at = clock()
    told = 0.0

    def listen(n_rows: int, share: float | None) -> None:
        nonlocal told, told_at
        now = clock()
        if share is None:
            if now - told_at < _EVERY:
                return
            rest = ""
        else:
            if share < min(told + 0.1, 1.0) - 1e-9 or share <= told:
                return
            told, left = share, (now - started) * (1 - share) / share
            rest = f", {share:.0%}, {left:.0f} s left"
        told_at = now
        print(f"labelling: {n_rows:,} rows, {now - started:.0f} s{rest}", flush=True)

    return listen
