"""What commands that train print before, during and after their work."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from umpteen.cli.facts import describe_data
from umpteen.cli.options import print_text
from umpteen.errors import DataError, ModelExistsError
from umpteen.printing import counted

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
    print_text(f"method     {describe_method(estimator)}")
    print_text(
        f"estimate   at most {format_bytes(estimate.peak_bytes)} of memory"
        + (f" ({format_bytes(available)} free)" if available is not None else "")
        + f", {made} at most {format_bytes(estimate.model_bytes)}"
    )


def describe_time(estimator: Any, data: Dataset, trainings: int) -> None:
    """Prints how long training takes, by doing a small part of it; with how many models, where some are trained to
    learn probabilities."""
    from umpteen.choosing.budget import format_seconds
    from umpteen.choosing.pilot import estimate_seconds
    from umpteen.threads import resolve_threads

    seconds = estimate_seconds(estimator, data.X, data.Y)
    if seconds is None:
        print_text(f"time       unknown: {estimator.name} has no small part here that could be timed")
        return
    models = "" if trainings == 1 else f", of {trainings} models"
    threads = counted(resolve_threads(estimator.threads), "thread")
    print_text(f"time       about {format_seconds(trainings * seconds)} with {threads}{models}")


def describe_method(estimator: Any) -> str:
    """A method with the settings that were changed, but for where it computes."""
    from umpteen.methods.base import COMPUTE_PARAMS

    defaults = estimator.param_defaults()
    return repr(type(estimator)(**{**estimator.get_params(), **{name: defaults[name] for name in COMPUTE_PARAMS}}))


def describe_next(model: Path, train: Path, test: Path | None, *, texts: bool) -> None:
    """Prints commands one may want next, ready to be copied."""
    shown, data = shlex.quote(str(model)), shlex.quote(str(test)) if test is not None else "TEST"
    judge = [f"umpteen evaluate {shown} {data}", f"umpteen report {shown} {data} --output report.html"]
    if texts:
        suffix = next(
            (path.suffix for path in (test, train) if path and path.suffix in (".csv", ".tsv", ".xlsx", ".jsonl")),
            ".csv",
        )
        lines = [
            f'umpteen suggest {shown} "a text to tag"',
            f"umpteen predict {shown} {data if test is not None else f'INPUT{suffix}'} --output labelled{suffix}",
            *judge,
            f"umpteen serve {shown}",
        ]
    else:
        lines = [*judge, f"umpteen predict {shown} {data} --output labels.jsonl"]
    for i, line in enumerate(lines):
        print_text(f"{'next' if i == 0 else '':10} {line}")


def refuse_model(target: Path | None, overwrite: bool, advice: str = "") -> None:
    """Raises before the long work if a place for a model is taken."""
    from umpteen.storage.steady import MANIFEST

    if target is None or not target.exists():
        return
    if target.is_file():
        raise DataError(f"{target}: a model must be a directory, but this is a file")
    if not (target / MANIFEST).exists():
        raise DataError(f"{target}: already exists and is no model; choose another place{advice}")
    if not overwrite:
        raise ModelExistsError(
            f"{target}: already exists; choose another place{advice}, or replace it with --overwrite"
        )


@contextlib.contextmanager
def replacing(model: Path, overwrite: bool) -> Iterator[Path]:
    """Where to train a model: in its place or, where one is that is to be replaced, beside it. The old model stays
    until the new one is complete."""
    from umpteen.storage.remote import is_url
    from umpteen.storage.store import refuse_finished
    from umpteen.trained.loading import load_model

    if is_url(model):
        yield model
        return
    if model.is_file():
        raise DataError(f"{model}: a model must be a directory, but this is a file")
    try:
        refuse_finished(model)  # before the long work, not after it
    except ModelExistsError:
        if not overwrite:
            raise ModelExistsError(
                f"{model}: a finished model is already there; choose another place, or replace it with --overwrite"
            ) from None
        beside = model.with_name(f"{model.name}.new")
        refuse_finished(beside)
        yield beside
        load_model(beside).save(model, overwrite=True)
        shutil.rmtree(beside)
        print_text(f"           replaced {model}")
        return
    yield model


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
        f"model      {model} ({format_bytes(reader.n_bytes())}, {counted(len(reader.shard_names), 'shard')}, "
        f"{seconds:.1f} s)"
    )
