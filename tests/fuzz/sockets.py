"""Bytes of any kind in any order, to the server's sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
import time
from functools import cache
from typing import Any

from .families import train_families
from .inputs import Bytes, Finding, scratch

JSON_HEAD = b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
PIECES = (
    b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"HEAD /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    JSON_HEAD + b'content-length: 13\r\n\r\n{"text":"w1"}',
    JSON_HEAD + b'transfer-encoding: chunked\r\n\r\n6\r\n{"text\r\n7;a=b\r\n":"w1"}\r\n0\r\nx: y\r\n\r\n',
    JSON_HEAD + b"content-length: 13\r\nexpect: 100-continue\r\n\r\n",
    JSON_HEAD + b"content-length: 99999999999999999999\r\n\r\n",
    JSON_HEAD + b"transfer-encoding: gzip\r\n\r\n",
    JSON_HEAD.replace(b"suggest", b"learn") + b"x-request-id: a.b\r\ncontent-length: 2\r\n\r\n{}",
    JSON_HEAD.replace(b"suggest", b"label-table?last=1&text=text").replace(b"application/json", b"text/csv")
    + b"content-length: 8\r\n\r\ntext\nw1\n",
    b"GET /docs HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b'{"text":"w1"}',
    b"GET http://localhost/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"GET /%00%ff?a=%zz HTTP/1.1\r\nhost: localhost\r\nx-request-id: \xff\r\n\r\n",
    b"x: " + b"y" * 3000 + b"\r\n",
    b"x: y\r\n" * 60,
    b"\r\n",
    b"0\r\n\r\n",
    b"host: evil.example\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
)
STATUSES = {100, 200, 400, 403, 404, 405, 408, 413, 414, 415, 421, 422, 431, 501, 503}
#: Seconds for the server to have forgotten a connection that is closed.
PATIENCE = 60.0


class Server:
    """The whole server but its supervisor, in a thread."""

    def __init__(self) -> None:
        from umpteen.serving.app import make_app
        from umpteen.serving.settings import Settings
        from umpteen.serving.worker import Server

        models = train_families(scratch())
        limits = {"max_header_bytes": 4096, "max_url_bytes": 1000, "max_body_bytes": 2000, "max_connections": 4}
        self.app = make_app(Settings({"tags": str(models["tagger"])}, timeout=0.5, **limits))
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        self.server = Server(self.app)
        # Signals are the main thread's; nothing here is for them.
        threading.Thread(target=lambda: asyncio.run(self.server._serve([listener])), daemon=True).start()
        end = time.monotonic() + 60
        while not self.server.started and time.monotonic() < end:
            time.sleep(0.01)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def check_forgotten(self) -> None:
        """Nothing of a connection that is closed is left."""
        app, connections = self.app, self.server.connections
        end = time.monotonic() + PATIENCE
        # All of it is waited for: the server's thread may be between two lines of forgetting a connection.
        while (
            connections.all
            or connections.tasks
            or app.open_requests
            or app.budget.held
            or any(connections._states)
            or connections._clients
        ):
            if time.monotonic() > end:
                left = len(connections.all), len(connections.tasks), app.open_requests, app.budget.held
                listed = any(connections._states) or bool(connections._clients)
                raise Finding(f"connections, tasks, requests and bytes left behind: {left}; still listed: {listed}")
            time.sleep(0.0005)


server = cache(Server)


def try_sockets(data: bytes) -> None:
    """Some connections that send, wait, read and leave, as the bytes say."""
    choices = Bytes(data)
    running = server()
    connections = [running.connect() for _ in range(1 + choices.number(2))]
    try:
        for _ in range(1 + choices.number(6)):
            with contextlib.suppress(ConnectionError):
                _act(choices.pick(connections), choices)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                check_answers(_read(connection))
    finally:
        for connection in connections:
            if choices.number(4) == 0:  # without a word
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
    running.check_forgotten()
    with running.connect() as healthy:
        healthy.sendall(PIECES[0])
        if not healthy.recv(100).startswith(b"HTTP/1.1 200"):
            raise Finding("the server is not well")


def _act(connection: socket.socket, choices: Bytes) -> None:
    what = choices.number(8)
    if what == 0:
        connection.sendall(choices.some(200))
    elif what == 1:
        time.sleep(0.001)
    elif what == 2:
        connection.sendall(choices.pick(PIECES) * (1 + choices.number(30)))
    else:
        piece = bytearray(choices.pick(PIECES))
        for _ in range(choices.number(3)):
            at = choices.number(len(piece) or 1)
            piece[at : at + choices.number(5)] = choices.some(8)
        connection.sendall(piece[: len(piece) - choices.number(len(piece) or 1) * (choices.number(4) == 0)])


def _read(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def check_answers(came: bytes) -> None:
    """Whether some bytes are whole answers, one after the other, with a status that requests can earn."""
    while came:
        head, found, rest = came.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        if not found or not lines[0].startswith(b"HTTP/1.1 "):
            raise Finding(f"no answer: {came[:200]!r}")
        status = int(lines[0].split(b" ")[1])
        if status not in STATUSES:
            raise Finding(f"{status}: {came[:300]!r}")
        headers: dict[bytes, Any] = dict(line.lower().split(b": ", 1) for line in lines[1:])
        if status != 100 and b"x-request-id" not in headers:
            raise Finding(f"no request id: {head!r}")
        length = int(headers.get(b"content-length", 0))
        if not rest or rest.startswith(b"HTTP/1.1 "):
            length = 0  # to HEAD
        body, came = rest[:length], rest[length:]
        if len(body) != length:
            raise Finding(f"half an answer: {head!r} {body[:100]!r}")
        if length and headers.get(b"content-type") == b"application/json":
            json.loads(body)
