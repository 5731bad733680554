"""What the server's tests share: small models, an application in this process, a server in one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

import umpteen
from umpteen.serving.worker import Server

TEXTS = ["herring quotas in the north sea", "cod quotas in the sea", "a tax on wine", "wine and beer tax", "the sea"]
NASTY = "<img src=x onerror=alert(1)>"
LABELS = [["fish", "sea"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine", NASTY], ["sea", "Île-de-France"]]


def train(method: Any) -> umpteen.Tagger:
    return umpteen.Tagger(method).fit(TEXTS * 40, LABELS * 40)


class Client:
    """Asks an ASGI application from any thread; its event loop runs in one of its own."""

    def __init__(self, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return asyncio.run_coroutine_threadsafe(self._client.request(method, path, **options), self._loop).result(60)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


@contextlib.contextmanager
def running(app: Any) -> Iterator[Client]:
    """An application from its start to its end, as a server would run it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    to_app: asyncio.Queue[Any] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()

    def ask(message: str) -> None:
        async def pass_on() -> Any:
            await to_app.put({"type": f"lifespan.{message}"})
            return await from_app.get()

        answer = asyncio.run_coroutine_threadsafe(pass_on(), loop).result(60)
        assert answer["type"] == f"lifespan.{message}.complete", answer

    life = asyncio.run_coroutine_threadsafe(app({"type": "lifespan", "state": {}}, to_app.get, from_app.put), loop)
    try:
        ask("startup")
        try:
            yield Client(app, loop)
        finally:
            ask("shutdown")
            life.result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def listening(app: Any) -> Iterator[str]:
    """An application behind a real socket, at the address that is given."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        for _ in range(400):
            if server.started:
                break
            time.sleep(0.05)
        assert server.started
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


# --- a server in a process of its own ------------------------------------------------------------------------------

COMMAND = [sys.executable, "-c", "from umpteen.cli.main import main; main()", "serve"]


class Process:
    """A running `umpteen serve`; `limit` is how many files it may open."""

    def __init__(
        self, *args: str, limit: int | None = None, python: str = sys.executable, **environment: str
    ) -> None:
        self.process = subprocess.Popen(
            [python, *COMMAND[1:], *args, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | environment,
            preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        )
        self.lines: list[str] = []
        self._known = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()
        assert self._known.wait(120), self.lines
        self.address = re.search(r"http://\S+", self.lines[-1])[0]
        with self.client() as client:
            for _ in range(2400):
                with contextlib.suppress(httpx.TransportError):
                    if client.get("/readyz").status_code == 200:
                        break
                time.sleep(0.05)

    def _listen(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("serving at"):
                self._known.set()
        self._known.set()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=30)

    def metric(self, pattern: str) -> float:
        found = re.search(rf"^{pattern} (\S+)", self._metrics(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def _metrics(self) -> str:
        """As any worker gives them; one that was just killed may still be given connections."""
        for _ in range(5):
            with contextlib.suppress(httpx.TransportError), self.client() as client:
                return client.get("/metrics").text
        raise AssertionError("the server does not answer")

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    def logged(self, pattern: str) -> list[str]:
        """Lines of its log."""
        return [line for line in self.lines if re.search(pattern, line)]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextlib.contextmanager
def serving(*args: str, limit: int | None = None, **options: str) -> Iterator[Process]:
    server = Process(*args, limit=limit, **options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            try:
                server.process.wait(30)
            except subprocess.TimeoutExpired:
                server.process.kill()
        server.process.stdout.close()


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def children_of(pid: int) -> list[int]:
    """The workers; none where the server is gone."""
    found = []
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):  # gone meanwhile
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


# --- without a client library --------------------------------------------------------------------------------------


def connect(port: int, seconds: float = 30) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=seconds)


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server ends the connection, in order."""
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def exchange(port: int, data: bytes, seconds: float = 30) -> bytes:
    """What a server answers to some bytes on a connection of their own."""
    with connect(port, seconds) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
