"""What commands that train print before, during and after their work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from umpteen.cli.facts import describe_data
from umpteen.cli.options import print_text

if TYPE_CHECKING:
    from umpteen.data.dataset import Dataset


def describe_data_read(path: Path, data: Dataset, seconds: float) -> None:
    """Prints the data and how long reading it took."""
    typer.echo(f"data       {path} ({seconds:.1f} s)")
    for line in describe_data(data).splitlines():
        typer.echo(f"           {line}")


def describe_work(path: Path, data: Dataset, seconds: float, estimator: Any, made: str = "model") -> None:
    """Prints the data, the method, the memory it needs, and the size of what it makes."""
    from umpteen.memory import available_memory, format_bytes

    describe_data_read(path, data, seconds)
    estimate = estimator.estimate(data.X, data.Y)
    available = available_memory()
    print_text(f"method     {estimator!r}")
    print_text(
        f"estimate   at most {format_bytes(estimate.peak_bytes)} of memory"
        + (f" ({format_bytes(available)} free)" if available is not None else "")
        + f", {made} at most {format_bytes(estimate.model_bytes)}"
    )


@contextlib.contextmanager
def writing(model: Path, to_continue: str = "run again with --resume") -> Iterator[None]:
    """Wraps work that writes a model: prints its size and time or, if interrupted, how to continue."""
    from umpteen.memory import format_bytes
    from umpteen.storage.remote import open_model

    started = time.perf_counter()
    try:
        yield
    except KeyboardInterrupt:
        print_text(f"interrupted; finished shards are kept in {model}: {to_continue}", err=True)
        raise typer.Exit(130) from None
    seconds = time.perf_counter() - started
    reader = open_model(model)
    print_text(
        f"model      {model} ({format_bytes(reader.n_bytes())}, {len(reader.shard_names)} shards, {seconds:.1f} s)"
    )
