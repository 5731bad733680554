"""Work in a process of its own: it may fail, hang, use all memory or die, and the server continues."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection as Channel
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any


class Lost(Exception):
    """The process gave no result: it was "stuck" or it "crashed"."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def call_apart(context: SpawnContext, work: Callable[..., Any], args: tuple[Any, ...], seconds: float) -> Any:
    """What `work` returns, which is a function of a module that is to catch its errors itself. Its process ends with
    this one, or after so many seconds."""
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(work, args, theirs), daemon=True)
    try:
        process.start()
        theirs.close()
        if not ours.poll(seconds):
            raise Lost("stuck", f"was not done within {seconds:g} s")
        try:
            return ours.recv()
        except (EOFError, ConnectionError):
            process.join(10)
            raise Lost("crashed", _end(process.exitcode)) from None
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


def _run(work: Callable[..., Any], args: tuple[Any, ...], channel: Channel) -> None:
    """Runs in the process."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # if memory runs out, this process is killed first
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_end_with_parent, args=(channel,), daemon=True).start()
    channel.send(work(*args))
    channel.close()
    os._exit(0)  # an orderly end would only take time


def _end_with_parent(channel: Channel) -> None:
    """The other end is silent, and closes when its process ends."""
    with contextlib.suppress(OSError):
        channel.poll(None)
        os._exit(1)
