"""A changed model is tried in a process of its own, before any worker opens it.

Whatever is in the directory, the workers continue with what they have: the trial may fail, hang, use all memory or
die, and its outcome is a reason in words. It opens the model as a worker does, compares every byte with the checksums
on request, and asks for its facts.
"""

from __future__ import annotations

from multiprocessing.context import SpawnContext
from typing import NamedTuple

from umpteen.errors import (
    MemoryLimitError,
    ModelChangedError,
    ModelCorruptError,
    ModelFormatError,
    ModelMissingError,
    ModelUnfinishedError,
)
from umpteen.serving.apart import Lost, call_apart

_LONGEST_MESSAGE = 1000


class Outcome(NamedTuple):
    """The outcome of a trial: the model's version, or why it cannot be used (one of `counts.REASONS`)."""

    version: str | None
    reason: str | None = None
    message: str = ""


def try_model(context: SpawnContext, path: str, *, verify: bool, seconds: float) -> Outcome:
    """Opens a model in a process of its own, within some seconds."""
    try:
        return Outcome(*call_apart(context, _try, (path, verify), seconds))
    except Lost as lost:
        return Outcome(None, lost.reason, f"{path}: the process that tried the model {lost}")


def _try(path: str, verify: bool) -> tuple[str | None, str | None, str]:
    """Runs in the process of the trial."""
    try:
        from umpteen.serving.served import OpenModel

        model = OpenModel(path, 1, verify=verify)
        model.facts("tried")
        return Outcome(model.version)
    except BaseException as error:
        return Outcome(None, *explain_failure(error))


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
