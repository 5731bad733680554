"""What the server's tests share: small models, and a client of an application in this process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import uvicorn

import umpteen

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
        self._client = httpx.AsyncClient(transport=transport, base_url="http://test")

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
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", ws="none"))
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
