"""A worker: a process that answers requests until its supervisor ends it or dies.

uvicorn runs the event loop and the application; connections are ours (`connection.py`). The supervisor sends three
kinds of message, each a tuple: open a version of a model; use or drop what was opened, when all workers have replied;
and use other tokens. The worker replies to the first with the outcome, and sends nothing else: signs of life are in
shared memory, where no reader has to keep up.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection as Channel
from types import FrameType
from typing import Any

import uvicorn

from umpteen.errors import UmpteenError
from umpteen.serving.app import make_app, make_counts
from umpteen.serving.connection import Connection
from umpteen.serving.connections import Connections
from umpteen.serving.gate import Gate
from umpteen.serving.listening import own_socket, refuse_newcomers
from umpteen.serving.logs import set_up
from umpteen.serving.problems import log
from umpteen.serving.settings import Settings
from umpteen.serving.shared import SharedMemory
from umpteen.serving.tokens import Tokens
from umpteen.serving.trial import explain_failure


def work(
    settings: Settings,
    holder: socket.socket,
    memory: SharedMemory,
    row: int,
    paths: Mapping[str, str],
    tokens: Tokens,
    channel: Channel,
) -> None:
    """The worker process, from its start to its end."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # for the supervisor only
    os.setpgrp()  # Ctrl-C at a terminal is for the supervisor, which then asks each worker once
    set_up(settings.log_format, settings.log_level, worker=row)
    listener = own_socket(holder)
    counts = make_counts(settings, memory, row, settings.workers + 1)
    try:
        app = make_app(settings, counts, paths, tokens)
    except Exception as error:
        log.error("the worker cannot start: %s", error, exc_info=None if isinstance(error, UmpteenError) else error)
        sys.exit(1)
    # Everything allocated so far is permanent; scanning it for garbage again and again would delay requests.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGTERM, _leave)  # uvicorn raises the signal again after its shutdown
    server = Server(app, channel)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    sys.exit(0 if server.started else 1)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


class Server(uvicorn.Server):
    """uvicorn's server with our connections and our shutdown."""

    def __init__(self, app: Gate, channel: Channel | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=self._connect,  # type: ignore[arg-type]
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                lifespan="on",
            )
        )
        self._gate, self._channel = app, channel
        self.connections: Connections
        self._listeners: list[socket.socket] = []
        self._written: tuple[Any, bytes] = (None, b"")
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def _connect(self, *, _loop: asyncio.AbstractEventLoop | None = None, **_: Any) -> Connection:
        return Connection(self._gate, self.connections, _loop or asyncio.get_running_loop())

    def _standing_headers(self) -> bytes:
        """The first headers of every answer: the date, renewed every second."""
        headers = self.server_state.default_headers
        if self._written[0] is not headers:
            self._written = headers, b"".join(b"%b: %b\r\n" % header for header in headers)
        return self._written[1]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.connections = Connections(self._gate.settings, self._gate.counts, self._standing_headers)
        self._listeners = sockets or []
        self.config.backlog = self.connections.backlog
        self._gate.api.connections = lambda: len(self.connections.all)
        await super().startup(sockets)
        if self.started:
            self._gate.counts.started()
        if self._channel is not None:
            given = self._channel, asyncio.get_running_loop()
            threading.Thread(target=self._listen, args=given, name="messages", daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finishes accepted requests, refuses later ones, and closes every connection properly."""
        self._gate.stopping = True
        for listener in self._listeners:
            refuse_newcomers(listener)
        await self.connections.drain(self._gate.settings.grace, self._stop_listening)
        await self.lifespan.shutdown()

    def _stop_listening(self) -> None:
        for server in self.servers:
            server.close()
        for listener in self._listeners:
            listener.close()

    # --- messages from the supervisor ---------------------------------------------------------------------------

    def _listen(self, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        """Passes messages on to the loop; in a thread, since large ones come in pieces, for which it cannot wait."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            while True:
                try:
                    message = channel.recv()
                except (EOFError, OSError):  # the supervisor is gone
                    self.should_exit = True
                    return
                loop.call_soon_threadsafe(self._handle_message, channel, message)

    def _handle_message(self, channel: Channel, message: tuple[Any, ...]) -> None:
        if message[0] == "tokens":
            self._gate.tokens = message[1]
            return
        handle = self._settle(*message[1:]) if message[0] == "settle" else self._open(channel, *message[1:])
        task = asyncio.create_task(handle)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, channel: Channel, asked: int, model: str, path: str, version: str) -> None:
        async with self._opening:
            served = self._gate.api.models[model]
            try:
                await asyncio.to_thread(served.prepare, path, version)
            except BaseException as error:
                reason, message = explain_failure(error)
                log.debug("%s cannot be opened: %s", model, message)
                channel.send((asked, reason, message))
                if not isinstance(error, Exception):
                    raise
            else:
                channel.send((asked, None, version))

    async def _settle(self, model: str, use: bool) -> None:
        async with self._opening:  # after what is being opened, if that takes longer than the others waited
            self._gate.api.models[model].settle(use)
