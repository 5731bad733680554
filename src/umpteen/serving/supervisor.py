"""Keeps workers running, whatever ends them.

A worker that dies is replaced: at once the first time, then after longer and longer pauses, without limit and without
harm to the others. One that gives no sign of life for `stuck_after` seconds is killed and replaced: its event loop or
a model is stuck. SIGTERM and SIGINT stop all workers within `grace` seconds; SIGHUP checks models and tokens.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from umpteen.serving.app import make_counts
from umpteen.serving.logs import note
from umpteen.serving.problems import log
from umpteen.serving.settings import Settings
from umpteen.serving.shared import SharedMemory
from umpteen.serving.tokens import Tokens
from umpteen.serving.trial import Outcome, try_model
from umpteen.serving.watching import Watcher
from umpteen.serving.worker import work

#: Seconds until a dead worker is replaced: none after a long life, else doubled each time.
_LONG_LIFE = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0
_LOOK = 0.5
#: Seconds between two checks that show that this process itself was suspended.
_ASLEEP = 5.0
#: Seconds beyond the grace after which a worker that does not end is killed.
_LAST_MOMENT = 3.0


@dataclass
class _Worker:
    process: BaseProcess
    channel: Any
    started: float
    reported: float  # when a slow start was last logged
    stuck: bool = False
    asked_to_end: bool = False


@dataclass
class _Row:
    """A worker's slot: the one that runs now, or when the next one may start."""

    worker: _Worker | None = None
    deaths: int = 0
    next_start: float = 0.0


class Supervisor:
    """The workers of a server.

    Parameters
    ----------
    holder
        A socket bound to the address that workers listen on.
    paths
        The directories to open, by model.
    """

    def __init__(self, settings: Settings, holder: socket.socket, paths: Mapping[str, str]) -> None:
        self._settings, self._holder = settings, holder
        self._context = multiprocessing.get_context("spawn")
        n_rows = settings.workers + 1
        memory = self._memory = SharedMemory(make_counts(settings, None, 0, n_rows).n_bytes)
        *self._counts, self._own = (make_counts(settings, memory, row, n_rows) for row in range(n_rows))
        self._rows = [_Row() for _ in range(settings.workers)]
        self._tokens = settings.make_tokens()
        self._watcher = Watcher(
            settings, self._own, paths, self._tokens, self._attempt, self._spread, self._hand_out_tokens
        )
        self._lock = threading.Condition()
        self._asked = 0  # how many times workers were asked to open a directory
        self._waiting: set[int] = set()  # rows whose worker is doing so
        self._opened: dict[int, Outcome] = {}
        self._looked = self._awake = time.monotonic()
        self._stop_at: float | None = None
        self._kill = False
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)

    def run(self, on_started: Callable[[], None]) -> int:
        """Runs until a signal stops it; returns the exit code.

        Parameters
        ----------
        on_started
            Called once, as soon as a worker answers.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._reload)
        self._start_due()
        self._watcher.start()
        started = False
        while self._stop_at is None or any(row.worker is not None for row in self._rows):
            try:
                self._turn()
                if not started and any(counts.answers for counts in self._counts):
                    started = True
                    on_started()
            except Exception as error:
                log.error("supervision failed and continues", exc_info=error)
                time.sleep(_LOOK)
        return 0

    def _turn(self) -> None:
        self._wait()
        self._insist()
        # The watcher holds it while it sends to a worker that does not read: a stuck one, which is ended below.
        if self._lock.acquire(timeout=_LOOK):
            try:
                self._look_after()
            finally:
                self._lock.release()
        self._look_for_stuck()

    def _look_after(self) -> None:
        """Hears what workers reply, notices the end of some, and starts others."""
        for number, row in enumerate(self._rows):
            if row.worker is not None:
                self._receive(number, row.worker)
                if not row.worker.process.is_alive():
                    self._ended(number, row, row.worker)
        self._start_due()

    def _wait(self) -> None:
        workers = [row.worker for row in self._rows if row.worker is not None]
        things: list[Any] = [self._wake_reader]
        for worker in workers:
            things += [worker.process.sentinel, worker.channel]
        starting = not any(counts.answers for counts in self._counts)
        multiprocessing.connection.wait(things, timeout=_LOOK / 10 if starting else _LOOK)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_reader, 512):
                pass

    # --- start and end ------------------------------------------------------------------------------------------

    def _start_due(self) -> None:
        for number, row in enumerate(self._rows):
            if row.worker is None and self._stop_at is None and time.monotonic() >= row.next_start:
                try:
                    self._start(number, row)
                except OSError as error:
                    note(log, logging.ERROR, f"worker {number} cannot be started: {error}", worker=number)
                    self._put_off(row)

    def _start(self, number: int, row: _Row) -> None:
        ours, theirs = self._context.Pipe()
        with self._lock:  # what changes between here and the last line is sent to the worker, in that order
            given = self._settings, self._holder, self._memory, number, self._watcher.paths, self._tokens, theirs
            process = self._context.Process(target=work, args=given)
            self._counts[number].stopped()
            try:
                process.start()
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            now = time.monotonic()
            row.worker = _Worker(process, ours, now, now)

    def _ended(self, number: int, row: _Row, worker: _Worker) -> None:
        worker.process.join()
        worker.channel.close()
        row.worker = None
        self._counts[number].stopped()
        with self._lock:
            self._waiting.discard(number)
            self._lock.notify_all()
        if self._stop_at is not None:
            return
        self._put_off(row, long_life=time.monotonic() - worker.started > _LONG_LIFE)
        self._own.replaced("stuck" if worker.stuck else "died")
        pause = max(0.0, row.next_start - time.monotonic())
        note(
            log, logging.WARNING, f"worker {number} ended with code {worker.process.exitcode}; another starts in "
            f"{pause:.2g} s", worker=number, code=worker.process.exitcode, deaths=row.deaths,
        )  # fmt: skip

    def _put_off(self, row: _Row, *, long_life: bool = False) -> None:
        row.deaths = 1 if long_life else row.deaths + 1
        pause = 0.0 if row.deaths == 1 else min(_FIRST_PAUSE * 2 ** min(row.deaths - 2, 20), _LONGEST_PAUSE)
        row.next_start = time.monotonic() + pause

    # --- signals ------------------------------------------------------------------------------------------------

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._stop_at is not None and number == signal.SIGINT:
            self._kill = True  # asked for twice
        elif self._stop_at is None:
            self._stop_at = time.monotonic()
        self._wake()

    def _reload(self, number: int, frame: FrameType | None) -> None:
        self._watcher.ask()
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_writer, b".")

    def _insist(self) -> None:
        """Ends the workers of a stopping server: asks each once, and kills it when the grace is over."""
        if self._stop_at is None:
            return
        late = self._kill or time.monotonic() > self._stop_at + self._settings.grace + _LAST_MOMENT
        for row in self._rows:
            if row.worker is not None and late:
                row.worker.process.kill()
            elif row.worker is not None and not row.worker.asked_to_end:
                row.worker.asked_to_end = True
                row.worker.process.terminate()

    # --- signs of life ------------------------------------------------------------------------------------------

    def _look_for_stuck(self) -> None:
        now = time.monotonic()
        if now - self._looked > _ASLEEP:  # this process was suspended, so others may have been too
            self._awake = now
        self._looked = now
        for number, row in enumerate(self._rows):
            last = self._counts[number].last_beat
            if row.worker is None or row.worker.stuck:
                continue
            if not last:
                self._report_slow_start(number, row.worker, now)
                continue
            if now - max(last, self._awake) < self._settings.stuck_after:
                continue
            row.worker.stuck = True
            message = f"worker {number} has given no sign of life for {now - last:.0f} s; it is replaced"
            note(log, logging.ERROR, message, worker=number)
            row.worker.process.kill()
        self._look_for_stuck_watcher(now)

    def _report_slow_start(self, number: int, worker: _Worker, now: float) -> None:
        """A starting worker is never killed, however long it takes: a large model may need it."""
        if now - worker.reported > self._settings.reload_timeout:
            worker.reported = now
            seconds = now - worker.started
            note(log, logging.WARNING, f"worker {number} is still starting after {seconds:.0f} s", worker=number)

    def _look_for_stuck_watcher(self, now: float) -> None:
        since, settings = self._watcher.busy_since, self._settings
        longest = 2 * settings.reload_timeout * len(settings.models) + settings.stuck_after
        stuck = since is not None and now - since > longest
        if stuck != self._own.is_watcher_stuck:
            what = f"has been stuck for {longest:.0f} s" if stuck else "goes on"
            note(log, logging.ERROR if stuck else logging.INFO, f"the check of models and tokens {what}")
            self._own.watcher_stuck(stuck)

    # --- what the watcher needs ---------------------------------------------------------------------------------

    def _attempt(self, path: str, verify: bool) -> Outcome:
        return try_model(self._context, path, verify=verify, seconds=self._settings.reload_timeout)

    def _spread(self, model: str, path: str, version: str) -> list[Outcome]:
        """Makes every worker open a version of a model, and then, if all of them could, use it; the outcome of each.
        Called in the watcher's thread."""
        with self._lock:
            self._asked += 1
            self._opened.clear()
            message = ("open", self._asked, model, path, version)
            self._waiting = {number for number, row in enumerate(self._rows) if self._send(row, message)}
            self._lock.wait_for(lambda: not self._waiting, timeout=self._settings.reload_timeout)
            late, self._waiting = sorted(self._waiting), set()
            found = [self._opened[number] for number in sorted(self._opened)]
            found += [
                Outcome(None, "stuck", f"{path}: worker {number} could not open the model in time") for number in late
            ]
            use = all(outcome.version is not None for outcome in found)
            for row in self._rows:
                self._send(row, ("settle", model, use))
        return found

    def _receive(self, number: int, worker: _Worker) -> None:
        try:
            if not worker.channel.poll():
                return
            asked, reason, text = worker.channel.recv()
        except (EOFError, OSError):
            return  # it is about to end
        with self._lock:
            if asked == self._asked and number in self._waiting:
                self._waiting.discard(number)
                self._opened[number] = Outcome(text) if reason is None else Outcome(None, reason, text)
                self._lock.notify_all()

    def _hand_out_tokens(self, tokens: Tokens) -> None:
        with self._lock:
            self._tokens = tokens
            for row in self._rows:
                self._send(row, ("tokens", tokens))

    def _send(self, row: _Row, message: tuple[Any, ...]) -> bool:
        if row.worker is None:
            return False
        try:
            row.worker.channel.send(message)
        except OSError:
            return False  # it is gone; its successor starts with the current models and tokens
        return True
