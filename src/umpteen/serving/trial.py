"""A changed model is tried in a process of its own, before any worker opens it.

Whatever is in the directory, the workers continue with what they have: the trial may fail, hang, use all memory or
die, and its outcome is a reason in words. It opens the model as a worker does, compares every byte with the checksums
on request, and asks for its facts.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from multiprocessing.connection import Connection as Channel
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import NamedTuple

from umpteen.errors import (
    MemoryLimitError,
    ModelChangedError,
    ModelCorruptError,
    ModelFormatError,
    ModelMissingError,
    ModelUnfinishedError,
)

_LONGEST_MESSAGE = 1000


class Outcome(NamedTuple):
    """The outcome of a trial: the model's version, or why it cannot be used (one of `counts.REASONS`)."""

    version: str | None
    reason: str | None = None
    message: str = ""


def try_model(context: SpawnContext, path: str, *, verify: bool, seconds: float) -> Outcome:
    """Opens a model in a process of its own, within some seconds."""
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_try, args=(path, verify, theirs), daemon=True)
    try:
        process.start()
        theirs.close()
        if not ours.poll(seconds):
            return Outcome(None, "stuck", f"{path}: the model could not be opened within {seconds:g} s")
        try:
            found = ours.recv()
        except EOFError:
            process.join(10)
            return Outcome(None, "crashed", f"{path}: the process that tried the model {_end(process.exitcode)}")
        return Outcome(*found)
    finally:
        ours.close()
        if process.pid is not None:
            process.kill()
            process.join(10)


def _end(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def _try(path: str, verify: bool, channel: Channel) -> None:
    """Runs in the process of the trial."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # if memory runs out, this process is killed first
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        from umpteen.serving.served import OpenModel

        model = OpenModel(path, 1, verify=verify)
        model.facts("tried")
        outcome = Outcome(model.version)
    except BaseException as error:
        outcome = Outcome(None, *explain_failure(error))
    channel.send(tuple(outcome))
    channel.close()
    os._exit(0)  # an orderly end would only take time


def explain_failure(error: BaseException) -> tuple[str, str]:
    """Why a model cannot be used: one of `counts.REASONS`, and a message."""
    message = str(error)[:_LONGEST_MESSAGE] or type(error).__name__
    kinds = (
        ((MemoryError, MemoryLimitError), "memory"),
        (ModelUnfinishedError, "unfinished"),
        (ModelChangedError, "changed"),
        ((ModelMissingError, FileNotFoundError, NotADirectoryError), "missing"),
        (ModelFormatError, "format"),
        (ModelCorruptError, "damaged"),
        (OSError, "unreadable"),
    )
    for kind, reason in kinds:
        if isinstance(error, kind):
            return reason, message
    return "error", f"{type(error).__name__}: {message}"
