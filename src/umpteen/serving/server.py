"""Sockets, worker processes, signals.

One worker runs in this process. Several are children that share nothing but the port and the page cache: each maps
the model files, so that there is one copy of them in memory. SIGTERM and SIGINT stop taking requests and finish
those that are there; SIGHUP opens the models again.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

import uvicorn

from umpteen.errors import ParamError
from umpteen.serving.app import make_app, make_counts
from umpteen.serving.problems import log
from umpteen.serving.settings import Settings

#: A worker that dies so soon would die again; the server gives up rather than try for ever.
_TOO_SOON = 5.0


def serve(settings: Settings, tell: Callable[[str], None] = lambda address: None) -> int:
    """Serves until a signal says stop; returns the exit code.

    Parameters
    ----------
    tell
        Is told the address, as soon as it is known.
    """
    holder = _bind(settings)
    address = f"http://{_printable(settings.host)}:{holder.getsockname()[1]}"
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    if settings.workers == 1:
        tell(address)
        return _run_worker(settings, holder)
    with tempfile.NamedTemporaryFile(prefix="umpteen-counts-") as file:
        return _Supervisor(settings, holder, Path(file.name)).run(lambda: tell(address))


def _printable(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bind(settings: Settings) -> socket.socket:
    """A socket at the address. Several workers each listen on one of their own there, and the kernel shares out
    the connections evenly; with one socket for all, the first worker to wake would take most."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((settings.host, settings.port))
        if settings.workers > 1 and _shares_ports():
            # Only now, and at the port just found free: with the option set, another server's port would do too.
            port = bound.getsockname()[1]
            bound.close()
            bound = _reuse(family, settings.host, port)
    except OSError as error:
        bound.close()
        raise ParamError(f"cannot listen at {settings.host}:{settings.port} ({error.strerror or error})") from error
    return bound


def _shares_ports() -> bool:
    return sys.platform == "linux"  # elsewhere SO_REUSEPORT does not share out


def _reuse(family: int, host: str, port: int) -> socket.socket:
    shared = socket.socket(family, socket.SOCK_STREAM)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared.bind((host, port))
    return shared


def _run_worker(settings: Settings, listener: socket.socket, file: Path | None = None, row: int = 0) -> int:
    app = make_app(settings, make_counts(settings, file, row))
    # What is there now stays; looking through it again and again for garbage would stop every request on its way.
    gc.collect()
    gc.freeze()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(settings.drain)),
    )
    server = uvicorn.Server(config)
    signal.signal(signal.SIGTERM, _leave)  # uvicorn raises again, when all is done, what told it to stop
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    return 0 if server.started else 1


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _work(settings: Settings, listener: socket.socket, file: str, row: int) -> None:
    """A child process."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    os.setpgrp()  # Ctrl-C at a terminal is for the parent, which then asks each worker once
    threading.Thread(target=_follow_parent, daemon=True).start()
    logging.basicConfig(level=log.getEffectiveLevel(), format="%(message)s", stream=sys.stderr)
    if _shares_ports():
        address = listener.getsockname()
        own = _reuse(listener.family, address[0], address[1])
        listener.close()
        listener = own
    sys.exit(_run_worker(settings, listener, Path(file), row))


def _follow_parent() -> None:
    """Stops this worker when its parent is gone, whatever took it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


class _Supervisor:
    """Keeps the workers running, and passes signals on."""

    def __init__(self, settings: Settings, holder: socket.socket, file: Path) -> None:
        self._settings, self._holder, self._file = settings, holder, file
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, BaseProcess] = {}
        self._started: dict[int, float] = {}
        self._stopping = False

    def run(self, tell: Callable[[], None]) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._pass_on)
        for row in range(self._settings.workers):
            self._start(row)
        tell()
        code = 0
        while self._workers:
            multiprocessing.connection.wait([worker.sentinel for worker in self._workers.values()], timeout=1)
            for row, worker in list(self._workers.items()):
                if worker.is_alive():
                    continue
                worker.join()
                del self._workers[row]
                if self._stopping:
                    continue
                if time.monotonic() - self._started[row] < _TOO_SOON:
                    log.error("worker %d ended at once, with code %s; giving up", row, worker.exitcode)
                    code = 1
                    self._stop()
                else:
                    log.warning("worker %d ended with code %s; starting another", row, worker.exitcode)
                    self._start(row)
        return code

    def _start(self, row: int) -> None:
        worker = self._context.Process(
            target=_work, args=(self._settings, self._holder, str(self._file), row), daemon=False
        )
        worker.start()
        self._workers[row], self._started[row] = worker, time.monotonic()

    def _stop(self, number: int = signal.SIGTERM, frame: FrameType | None = None) -> None:
        self._stopping = True
        self._signal(signal.SIGTERM)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._signal(number)

    def _signal(self, number: int) -> None:
        for worker in self._workers.values():
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)
