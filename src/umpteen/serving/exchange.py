"""One request and its answer, as the application sees them (ASGI)."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from umpteen.serving.problems import Problem, log

if TYPE_CHECKING:
    from umpteen.serving.connection import Connection

#: Bytes written at once. Larger answers are written as the client reads them, so that no second copy is kept.
_PIECE = 1 << 16
#: Bytes of a body that may wait for the application; beyond that, reading pauses.
_UNREAD = 1 << 16
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Exchange:
    """One request and its answer.

    Attributes
    ----------
    whole
        Whether all of the request has arrived.
    gone
        Whether the client has left.
    keep_alive
        Whether the connection goes on after the answer.
    """

    __slots__ = (
        "_arrival", "_body", "_connection", "_expects", "_fault", "_head",
        "done", "gone", "keep_alive", "scope", "task", "whole",
    )  # fmt: skip

    def __init__(self, connection: Connection, scope: dict[str, Any], keep_alive: bool, expects: bool) -> None:
        self._connection, self.scope = connection, scope
        self.keep_alive, self._expects = keep_alive, expects
        self._body: bytes | bytearray = b""
        self._arrival: asyncio.Future[None] | None = None
        self._head = b""
        self._fault: Problem | None = None
        self.whole = self.gone = self.done = False
        self.task: asyncio.Task[None] | None = None

    async def run(self, app: Any) -> None:
        connection = self._connection
        try:
            await app(self.scope, self.receive, self.send)
        except Exception as error:
            log.error("a request failed outside of its handler", exc_info=error)
        finally:
            connection.finished(self)

    # --- called by the connection -------------------------------------------------------------------------------

    def feed(self, part: bytes) -> bool:
        """Takes a part of the body. Returns whether reading should pause."""
        if self.done:
            return False  # already answered, without reading the body
        if not self._body:
            self._body = part
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += part
        self._wake()
        return len(self._body) > _UNREAD

    def end(self) -> None:
        self.whole = True
        self._wake()

    def leave(self, fault: Problem | None = None) -> None:
        """No more of the request will arrive: the client has left, or sent something wrong."""
        self.gone, self._fault = True, fault
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    # --- called by the application ------------------------------------------------------------------------------

    async def receive(self) -> dict[str, Any]:
        if self._expects:
            self._expects = False
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not (self._body or self.whole or self.gone):
            self._connection.resume_reading()
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        if self._fault is not None:  # a new one: its traceback would keep the request in memory
            raise Problem(self._fault.status, self._fault.type, self._fault.message)
        if self.gone:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), b""
        return {"type": "http.request", "body": body, "more_body": not self.whole}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._head = self._make_head(message["status"], message["headers"])
            return
        connection = self._connection
        body = message["body"] if self.scope["method"] != "HEAD" else b""
        if connection.stalled:
            await connection.writable()
        if len(body) <= _PIECE:
            connection.write(self._head + body)
        else:
            connection.write(self._head)
            view = memoryview(body)
            for start in range(0, len(body), _PIECE):
                connection.write(view[start : start + _PIECE])
                if connection.stalled:
                    await connection.writable()
                if self.gone:
                    break
        self.done = True

    def _make_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        """All headers come from the gate, so none has a line break."""
        head = [STATUS_LINES[status], self._connection.connections.standing_headers()]
        has_connection = False
        for name, value in headers:
            if name == b"connection":
                has_connection, self.keep_alive = True, False
            head.append(b"%b: %b\r\n" % (name, value))
        if not self.whole or self._connection.connections.stopping:
            self.keep_alive = False
        if not (self.keep_alive or has_connection):
            head.append(b"connection: close\r\n")
        head.append(b"\r\n")
        return b"".join(head)
