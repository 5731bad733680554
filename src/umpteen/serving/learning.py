"""Corrections that come over HTTP and improve a model on disk.

A model learns in a process of its own, one request at a time, and the directory is replaced when the new model is
complete. From there on it is a changed model like any other: the watcher tries it, and all workers change to it.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections.abc import Container, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from umpteen.data.corrections import Correction
from umpteen.errors import DataError, ModelChangedError, ModelLockedError, ParamError
from umpteen.learning import Learnt, improve_model
from umpteen.serving import schema
from umpteen.serving.apart import Lost, call_apart
from umpteen.serving.logs import note
from umpteen.serving.problems import Problem, log
from umpteen.serving.settings import Settings
from umpteen.serving.trial import explain_failure
from umpteen.serving.versions import shorten

_KINDS = ("labels", "accepted", "rejected", "added")
_SHOWN = 100


def to_corrections(given: Sequence[schema.Correction], known: Container[str]) -> list[Correction]:
    """The corrections of a request whose texts are there; `known` are the labels of the model."""
    found = []
    for i, each in enumerate(given):
        field = f"corrections[{i}]"
        if each.text is UNSET:
            raise Problem(
                422, "invalid_request", f"{field} must have a text or a record, but has neither", field=field
            )
        said = {kind: getattr(each, kind) for kind in _KINDS if getattr(each, kind) is not UNSET}
        for kind, names in said.items():
            if len(names) > schema.MOST_NAMES:
                message = f"{field}.{kind} must have at most {schema.MOST_NAMES} labels, but has {len(names)}"
                raise Problem(422, "invalid_request", message, field=f"{field}.{kind}")
            for name in names:
                if name not in known and (
                    name.startswith("=") or not name.isprintable()
                ):  # a formula, a control code
                    message = (
                        f"{field}.{kind}: a new label must be printable and not begin with =, but is {name!r:.99}"
                    )
                    raise Problem(422, "invalid_request", message, field=f"{field}.{kind}")
        try:
            found.append(Correction.from_json({"text": each.text, **said}, field))
        except DataError as error:
            raise Problem(422, "invalid_request", str(error), field=field) from None
    return found


class Teacher:
    """Makes the model of one id learn, one request at a time."""

    def __init__(self, model_id: str, settings: Settings) -> None:
        self._id, self._settings = model_id, settings
        self._busy = threading.Lock()
        self._context = multiprocessing.get_context("spawn")

    def learn(self, path: str, corrections: Sequence[Correction], token: str | None) -> tuple[bytes, str]:
        """The answer, and the new model's version. Takes as long as learning does."""
        if not self._busy.acquire(blocking=False):
            raise _busy(self._id)
        try:
            found = self._learn(path, corrections)
        finally:
            self._busy.release()
        version = shorten(found.version)
        note(
            log, logging.INFO, f"{self._id}: learnt corrections", model=self._id, corrections=found.n,
            new_labels=len(found.new_labels), seconds=round(found.seconds, 3), version=version, token=token,
        )  # fmt: skip
        answer = schema.LearnResponse(
            corrections=found.n,
            without_words=found.n_without_words,
            new_labels=found.new_labels[:_SHOWN],
            unknown_rejected=found.unknown_rejected[:_SHOWN],
            version=version,
        )
        return msgspec.json.encode(answer), version

    def _learn(self, path: str, corrections: Sequence[Correction]) -> Learnt:
        settings = self._settings
        given = path, corrections, settings.kernel_threads
        try:
            outcome, what = call_apart(self._context, _work, given, settings.learn_timeout)
        except Lost as lost:
            outcome, what = "failed", f"the process {lost}"
        if outcome == "busy":
            raise _busy(self._id)
        if outcome == "refused":
            raise Problem(422, "invalid_request", what, field="corrections")
        if outcome == "failed":
            message = f"{self._id}: corrections could not be learnt: {what}"
            note(log, logging.ERROR, message, model=self._id, path=path)
            raise Problem(
                500, "not_learnt", "nothing was learnt, and the model is as it was; the server's log has the reason"
            )
        found: Learnt = what
        return found


def _work(path: str, corrections: Sequence[Correction], threads: int) -> tuple[str, Any]:
    """Runs in the process of its own."""
    try:
        return "learnt", improve_model(path, lambda tagger: corrections, threads=threads)
    except (ModelLockedError, ModelChangedError):
        return "busy", ""
    except (DataError, ParamError) as error:
        return "refused", str(error)
    except BaseException as error:
        return "failed", ": ".join(explain_failure(error))


def _busy(model_id: str) -> Problem:
    message = f"{model_id} is learning other corrections, or is being replaced; try again"
    return Problem(503, "busy", message, {"Retry-After": "2"})
