"""One client's connection: bytes become requests, within limits of size.

The parser is llhttp (httptools). Limits of time and number are the book's, `connections.py`: here a connection only
says in which state it is. When it is to end, its last answer is followed by an end of file, and what the client is
still sending is read and thrown away for a while: closing at once would make the kernel reset the connection, and the
client could lose the answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from urllib.parse import unquote

import httptools

from umpteen.serving.connections import Connections
from umpteen.serving.exchange import STATUS_LINES, Exchange
from umpteen.serving.gate import HEADERS
from umpteen.serving.problems import Problem

#: Requests that may wait behind one that is being answered; who sends more does not read the answers.
_PIPELINED = 16
#: Bytes that are thrown away after the last answer.
_THROWN_AWAY = 64_000_000
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, app: Any, book: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self._app, self.book, self._loop = app, book, loop
        self._limits = book.settings
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self.client: tuple[str, int] | None = None
        self._server: tuple[str, int] | None = None
        #: Whether there was no room for it: it may only ask how the server is.
        self.crowded = False
        self.heard = False  # whether anything has come
        self._deaf = False  # what comes is thrown away
        self._quiet = 0  # bytes that were neither the beginning of a request nor part of a body
        self._moved = False  # whether the bytes being parsed were
        self._in_head = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._incoming: Exchange | None = None  # whose body is arriving
        self._current: Exchange | None = None  # which is being answered
        self._queue: deque[Exchange] = deque()
        self._verdict: Problem | None = None  # what is to be said at the end
        self._reading = True
        self._writable: asyncio.Future[None] | None = None
        self.stalled = False  # whether the client does not read
        self._eof = False

    # --- the transport ------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.client = _address(transport.get_extra_info("peername"))
        self._server = _address(transport.get_extra_info("sockname"))
        self.book.enter(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.book.leave(self)
        self._deaf = True
        for exchange in (self._incoming, self._current, *self._queue):
            if exchange is not None:
                exchange.leave()
        self._queue.clear()
        self.resume_writing()
        self._parser = None  # they hold each other

    def eof_received(self) -> bool:
        """The client sends no more. What it has asked for in full it may still read."""
        self._eof = True
        if self._incoming is not None and not self._incoming.whole:
            self._incoming.leave()
        return self._current is not None

    def pause_writing(self) -> None:
        self.stalled = True
        self.book.stall(self)

    def resume_writing(self) -> None:
        self.stalled = False
        self.book.go_on(self)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    async def writable(self) -> None:
        self._writable = self._loop.create_future()
        await self._writable

    def write(self, data: bytes | memoryview) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def resume_reading(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    @property
    def unwritten(self) -> int:
        n_bytes: int = self._transport.get_write_buffer_size()
        return n_bytes

    def close(self) -> None:
        """Ends a connection that nothing is owed to."""
        if self.unwritten:
            self.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # --- what comes ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if self._deaf:
            self._quiet += len(data)
            if self._quiet > _THROWN_AWAY:
                self.abort()
            return
        self._moved = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._last()  # this request is answered in HTTP/1.1, and it is the last
        except httptools.HttpParserError:
            if not self._deaf:
                self.deny(self._verdict or Problem(400, "invalid_http", "the request is not valid HTTP/1.1"))
            return
        if self._moved:
            self._quiet = 0
        else:
            self._quiet += len(data)
            if self._quiet > self._limits.max_header_bytes:
                self.deny(self._too_long())
                return
        if self._in_head and self._current is None:
            self.book.wait_for_head(self)

    def _too_long(self) -> Problem:
        limits = self._limits
        if len(self._url) > limits.max_url_bytes:
            return Problem(414, "url_too_long", f"a URL may have {limits.max_url_bytes} bytes, but this one has more")
        return Problem(
            431, "header_too_large", f"a request's header may have {limits.max_header_bytes} bytes, but has more"
        )

    def on_message_begin(self) -> None:
        self._moved = self._in_head = True
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else behind the body, where nobody needs them
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head, self._moved = False, True
        limits, headers = self._limits, self._headers
        if len(self._url) > limits.max_url_bytes:
            self._refuse(self._too_long())
        if len(headers) > limits.max_headers:
            message = f"there may be {limits.max_headers} headers, but there are {len(headers)}"
            self._refuse(Problem(431, "header_too_large", message))
        if len(headers) * 4 + sum(len(name) + len(value) for name, value in headers) > limits.max_header_bytes:
            self._refuse(self._too_long())
        version = self._parser.get_http_version()
        expects = any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)
        keep_alive = version == "1.1" and self._parser.should_keep_alive()
        exchange = self._incoming = Exchange(self, self._scope(version), keep_alive, expects)
        if self._current is None and not self._queue:
            self._start(exchange)
            return
        self._queue.append(exchange)
        self._pause_reading()
        if len(self._queue) > _PIPELINED:
            self._refuse(Problem(400, "too_many_pipelined", f"{_PIPELINED} requests may wait, but there are more"))

    def _scope(self, version: str) -> dict[str, Any]:
        url = httptools.parse_url(self._url)
        raw = url.path or b"/"
        path = raw.decode("ascii")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": self._headers,
            "client": self.client,
            "server": self._server,
            "crowded": self.crowded,
        }

    def on_body(self, body: bytes) -> None:
        self._moved = True
        if self._incoming is not None and self._incoming.feed(body):
            self._pause_reading()

    def on_message_complete(self) -> None:
        self._moved = True
        if self._incoming is not None:
            self._incoming.end()
            if not self._incoming.keep_alive:
                self._last()

    # --- answers ------------------------------------------------------------------------------------------------

    def _start(self, exchange: Exchange) -> None:
        self._current = exchange
        self.book.begin(self)
        exchange.task = self._loop.create_task(exchange.run(self._app))
        self.book.tasks.add(exchange.task)

    def finished(self, exchange: Exchange) -> None:
        """An answer is on its way; what comes next?"""
        self.book.tasks.discard(exchange.task)
        self._current = None
        if self._transport.is_closing():
            return
        if not exchange.done:
            self.abort()  # half an answer must not look like a whole one
        elif not exchange.keep_alive:
            self._part()
        elif self._queue:
            self._start(self._queue.popleft())
        elif self._verdict is not None:
            self.deny(self._verdict)
        elif self._eof:
            self._part()
        else:
            self.resume_reading()
            if self._in_head:
                self.book.wait_for_head(self)
            else:
                self.book.rest(self)

    def _refuse(self, problem: Problem) -> None:
        """Stops the parser, which will then say that it was."""
        self._verdict = problem
        raise ValueError(problem.message)

    def deny(self, problem: Problem) -> None:
        """Says what is wrong, behind the answers that are owed, and ends the connection."""
        self._deaf, self._verdict = True, problem
        if self._current is not None:
            if self._incoming is not None and not self._incoming.whole:
                self._incoming.leave()
                if self._incoming in self._queue:
                    self._queue.remove(self._incoming)
            return
        self.book.refused(problem.type)
        body = problem.body()
        head = [STATUS_LINES[problem.status], self.book.standing_headers()]
        headers = [*problem.all_headers(len(body)), *HEADERS]
        head += [b"%b: %b\r\n" % header for header in headers if header[0] != b"connection"]
        self.write(b"".join([*head, b"connection: close\r\n\r\n", body]))
        self._part()

    def _last(self) -> None:
        """Nothing that comes after the request at hand will be answered."""
        self._deaf = True
        if self._incoming is not None:
            self._incoming.keep_alive = False

    def _part(self) -> None:
        """Ends the connection from this side, and waits for the client to end it from its own."""
        self._deaf = True
        if self._transport.is_closing():
            return
        if self._eof:
            self._transport.close()
            return
        self._transport.write_eof()
        self.resume_reading()
        self.book.part(self)

    def part_if_idle(self) -> None:
        if self._current is None and not self._deaf:
            self._part()


def _address(found: Any) -> tuple[str, int] | None:
    """None for sockets without one, and where the client has left already."""
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) >= 2 else None
