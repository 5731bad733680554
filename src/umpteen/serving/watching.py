"""Watches the model directories and the token file, in a thread of the supervisor.

A directory that has changed and then stayed the same from one check to the next is tried (`trial.py`), and opened by
all workers if it can be used. One that changes again and again is tried from time to time. Nothing found there, and
no error here, stops the watching: it is logged and counted, and the next check follows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from umpteen.errors import ParamError, UmpteenError
from umpteen.serving.counts import Counts
from umpteen.serving.logs import note
from umpteen.serving.problems import log
from umpteen.serving.settings import Settings
from umpteen.serving.tokens import Tokens
from umpteen.serving.trial import Outcome, explain_failure
from umpteen.serving.versions import candidates, digest, same_directory, sign

#: Seconds until an unusable model is tried again although nothing has changed; doubled each time.
_AGAIN, _AGAIN_AT_MOST = 10.0, 600.0
#: Checks after which a model that never stays the same is tried, and then after twice as many, and so on. Opening
#: sees one version or fails, so this is safe; it only finds unfinished copies more often.
_RESTLESS = 8

#: Tries a directory; opens the version that was tried in all workers and returns the outcomes.
Try = Callable[[str, bool], Outcome]
Spread = Callable[[str, str, str], list[Outcome]]


@dataclass
class _Failure:
    signature: Any
    next_time: float
    times: int = 1


@dataclass
class _State:
    """A model as it is served, and what the checks have seen of it."""

    path: str
    signature: Any
    version: str | None
    seen: dict[str, tuple[Any, int]] = field(default_factory=dict)  # signatures, and for how many checks they changed
    failures: dict[str, _Failure] = field(default_factory=dict)
    failing: bool = False


class Watcher:
    """Watches the models and the tokens.

    Parameters
    ----------
    paths
        The directories that are served now, by model.
    attempt, spread, hand_out
        How a directory is tried, opened by all workers, and how they get tokens.
    """

    def __init__(
        self,
        settings: Settings,
        counts: Counts,
        paths: Mapping[str, str],
        tokens: Tokens,
        attempt: Try,
        spread: Spread,
        hand_out: Callable[[Tokens], None],
    ) -> None:
        self._settings, self._counts = settings, counts
        self._attempt, self._spread, self._hand_out = attempt, spread, hand_out
        self._tokens = tokens
        self._token_file = _stat(settings.token_file)
        self._states = {model: _State(path, _signed(path), _digested(path)) for model, path in paths.items()}
        self._asked = threading.Event()
        #: When the current check started; None between checks.
        self.busy_since: float | None = None

    @property
    def paths(self) -> dict[str, str]:
        """What a worker that starts now should open."""
        return {model: state.path for model, state in self._states.items()}

    def start(self) -> None:
        threading.Thread(target=self._run, name="watcher", daemon=True).start()

    def ask(self) -> None:
        """Checks now, and opens everything again."""
        self._asked.set()

    def _run(self) -> None:
        while True:
            asked = self._asked.wait(self._settings.watch or None)
            self._asked.clear()
            self.busy_since = time.monotonic()
            self.look(always=asked)
            self.busy_since = None

    def look(self, *, always: bool = False) -> None:
        """Checks everything once.

        Parameters
        ----------
        always
            Whether to open unchanged models too.
        """
        for model, state in self._states.items():
            try:
                self._look_at(model, state, always)
            except BaseException as error:
                outcome = Outcome(None, *explain_failure(error))
                path, signature = self._settings.models[model], outcome[1:]
                if always or _is_due(state.failures.get(path), signature):  # not every other second
                    self._fail(model, state, path, signature, outcome)
        try:
            self._look_at_tokens(always)
        except BaseException as error:
            note(log, logging.ERROR, f"the token file could not be checked: {error!r}")

    # --- models -------------------------------------------------------------------------------------------------

    def _look_at(self, model: str, state: _State, always: bool) -> None:
        options = candidates(self._settings.models[model])
        state.seen = {path: state.seen[path] for path in options if path in state.seen}
        for path in options:
            signature, outcome = _look(path)
            served = path == state.path and signature == state.signature
            if served and not always:
                if state.failing and path == options[0]:
                    state.failing = False
                    self._counts.reload_recovered(model)
                break
            if not always:
                if not _has_settled(state, path, signature):
                    continue  # it may be written for hours; what is below it may be whole meanwhile
                if not _is_due(state.failures.get(path), signature):
                    continue
            if outcome is None:
                came_whole = path == self._settings.models[model] and not same_directory(signature, state.signature)
                outcome = self._attempt(path, self._settings.verify or not came_whole)
            if outcome.version is None:
                self._fail(model, state, path, signature, outcome)
            elif self._open(model, state, path, signature, outcome.version):
                break

    def _open(self, model: str, state: _State, path: str, signature: Any, version: str) -> bool:
        before = state.path, state.signature, state.version
        state.path = path  # for workers that start from now on
        outcomes = self._spread(model, path, version)
        for outcome in outcomes:
            if outcome.version is None:
                state.path = before[0]
                self._fail(model, state, path, signature, outcome)
                return False
        state.signature, state.version = signature, version
        state.failures.clear()
        state.seen.clear()
        state.failing = False
        self._counts.reloaded(model, "done")
        note(
            log, logging.INFO, f"{model}: reloaded", model=model, version=state.version, was=before[2], path=path,
            workers=len(outcomes),
        )  # fmt: skip
        return True

    def _fail(self, model: str, state: _State, path: str, signature: Any, outcome: Outcome) -> None:
        known = state.failures.get(path)
        times = known.times + 1 if known is not None and known.signature == signature else 1
        pause = min(_AGAIN * 2 ** (times - 1), _AGAIN_AT_MOST)
        state.failures[path] = _Failure(signature, time.monotonic() + pause, times)
        state.failing = True
        reason = outcome.reason or "error"
        self._counts.reloaded(model, "stuck" if reason == "stuck" else "failed", reason)
        note(
            log, logging.WARNING, f"{model}: the changed model cannot be used, so the previous one stays: "
            f"{outcome.message}", model=model, reason=reason, version=state.version, path=path, times=times,
        )  # fmt: skip

    # --- tokens -------------------------------------------------------------------------------------------------

    def _look_at_tokens(self, always: bool) -> None:
        file = self._settings.token_file
        if file is None:
            return
        found = _stat(file)
        if found == self._token_file and not always:
            return
        self._token_file = found
        try:
            tokens = Tokens.read(file)
        except ParamError as error:
            note(log, logging.WARNING, f"the changed tokens cannot be used, so the previous ones stay: {error}")
            return
        if tokens != self._tokens:
            self._tokens = tokens
            self._hand_out(tokens)
            note(log, logging.INFO, "tokens reloaded", names=",".join(tokens.names))


def _look(path: str) -> tuple[Any, Outcome | None]:
    """A directory's signature, and an outcome if it is visibly unusable."""
    try:
        return sign(path), None
    except (OSError, UmpteenError) as error:
        reason, message = explain_failure(error)
        return (reason, message), Outcome(None, reason, message)


def _has_settled(state: _State, path: str, signature: Any) -> bool:
    """Whether a directory is as it was at the last check, or has changed for so long that it is tried anyway."""
    before, changes = state.seen.get(path, (None, 0))
    if before == signature:
        state.seen[path] = signature, 0
        return True
    changes += 1
    state.seen[path] = signature, changes
    return changes >= _RESTLESS and changes & (changes - 1) == 0


def _is_due(failure: _Failure | None, signature: Any) -> bool:
    return failure is None or failure.signature != signature or time.monotonic() >= failure.next_time


def _signed(path: str) -> Any:
    return _look(path)[0]


def _digested(path: str) -> str | None:
    try:
        return digest(path)
    except (OSError, UmpteenError):
        return None


def _stat(file: str | None) -> tuple[int, int, int] | None:
    if file is None:
        return None
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
