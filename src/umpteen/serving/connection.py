"""One client's connection: bytes become requests, within limits of size.

The parser is llhttp (httptools). Limits of time and number are enforced by `connections.py`; a connection only
reports its state. At the end, the last answer is followed by an end of file, and what the client still sends is
discarded for a while: closing at once would make the kernel reset the connection, and the client could lose the
answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any
from urllib.parse import unquote

import httptools

from umpteen.serving.connections import Connections
from umpteen.serving.exchange import STATUS_LINES, Exchange
from umpteen.serving.gate import Gate
from umpteen.serving.problems import Problem

#: Requests that may wait behind one that is being answered; a client that sends more is not reading answers.
_PIPELINED = 16
#: Most bytes that are discarded after the last answer.
_THROWN_AWAY = 64_000_000
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, app: Gate, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self._app, self.connections, self._loop = app, connections, loop
        self._limits = connections.settings
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self.client: tuple[str, int] | None = None
        self._server: tuple[str, int] | None = None
        #: Whether there was no room for it: it may only ask for the server's health.
        self.crowded = False
        self.received_any = False  # whether any bytes have arrived
        self._discarding = False  # whether incoming bytes are ignored
        self._quiet = 0  # bytes since a request began or a body grew
        self._moved = False  # whether the bytes being parsed do either
        self._in_head = False
        self._upgrade_ignored = False  # whether the request is parsed once more, without Upgrade
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._incoming: Exchange | None = None  # the one whose body is arriving
        self._current: Exchange | None = None  # the one being answered
        self._queue: deque[Exchange] = deque()
        self._final_problem: Problem | None = None  # the last answer, if something is wrong
        self._reading = True
        self._writable: asyncio.Future[None] | None = None
        self.stalled = False  # whether the client has stopped reading
        self._eof = False

    # --- the transport ------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.client = _address(transport.get_extra_info("peername"))
        self._server = _address(transport.get_extra_info("sockname"))
        self.connections.enter(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.connections.leave(self)
        self._discarding = True
        for exchange in (self._incoming, self._current, *self._queue):
            if exchange is not None:
                exchange.leave()
        self._queue.clear()
        self.resume_writing()
        self._parser = None  # breaks a reference cycle

    def eof_received(self) -> bool:
        """The client sends no more. It may still read answers to complete requests."""
        self._eof = True
        if self._incoming is not None and not self._incoming.whole:
            self._incoming.leave()
        return self._current is not None

    def pause_writing(self) -> None:
        self.stalled = True
        self.connections.stall(self)

    def resume_writing(self) -> None:
        self.stalled = False
        self.connections.go_on(self)
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
        """Ends a connection that is owed no answer."""
        if self.unwritten:
            self.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # --- incoming bytes -----------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.received_any = True
        if self._discarding:
            self._quiet += len(data)
            if self._quiet > _THROWN_AWAY:
                self.abort()
            return
        self._moved = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._upgrade_ignored:
                self._parse_without_upgrade(data[upgrade.args[0] :])
                return
            self._last()  # this request is answered in HTTP/1.1, and is the last one
        except httptools.HttpParserError:
            if not self._discarding:
                self.deny(self._final_problem or Problem(400, "invalid_http", "the request is not valid HTTP/1.1"))
            return
        if self._moved:
            self._quiet = 0
        else:
            self._quiet += len(data)
            if self._quiet > self._limits.max_header_bytes:
                self.deny(self._too_long())
                return
        if self._in_head and self._current is None:
            self.connections.wait_for_head(self)

    def _parse_without_upgrade(self, rest: bytes) -> None:
        """Parses a request once more, without its header Upgrade: the parser takes the body for another protocol."""
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        headers = [b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._upgrade_ignored = False
        self.data_received(b"".join([b"%b %b HTTP/%b\r\n" % (method, self._url, version), *headers, b"\r\n", rest]))

    def _too_long(self) -> Problem:
        limits = self._limits
        if len(self._url) > limits.max_url_bytes:
            return Problem(
                414, "url_too_long", f"a URL must have at most {limits.max_url_bytes} bytes, but this one has more"
            )
        return Problem(
            431,
            "header_too_large",
            f"a request's header must have at most {limits.max_header_bytes} bytes, but has more",
        )

    def on_message_begin(self) -> None:
        self._moved = self._in_head = True
        self._url, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers after the body are ignored
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head, self._moved = False, True
        limits, headers = self._limits, self._headers
        if len(self._url) > limits.max_url_bytes:
            self._refuse(self._too_long())
        if len(headers) > limits.max_headers:
            message = f"there must be at most {limits.max_headers} headers, but there are {len(headers)}"
            self._refuse(Problem(431, "header_too_large", message))
        if len(headers) * 4 + sum(len(name) + len(value) for name, value in headers) > limits.max_header_bytes:
            self._refuse(self._too_long())
        if any(name == b"transfer-encoding" and value.lower() != b"chunked" for name, value in headers):
            self._refuse(Problem(501, "invalid_http", "the only transfer encoding this server knows is chunked"))
        if self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT" and _has_body(headers):
            self._upgrade_ignored = True
            return
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
            self._refuse(
                Problem(400, "too_many_pipelined", f"at most {_PIPELINED} requests may wait, but there are more")
            )

    def _scope(self, version: str) -> dict[str, Any]:
        url = httptools.parse_url(self._url)
        if url.host is not None:  # a whole URL, whose host counts, not that of the header
            host = b"[%b]" % url.host if b":" in url.host else url.host
            self._headers = [(b"host", host), *(header for header in self._headers if header[0] != b"host")]
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
        if self._incoming is not None and not self._upgrade_ignored:
            self._incoming.end()
            if not self._incoming.keep_alive:
                self._last()
            self._url, self._headers = b"", []  # what is refused next is not this request

    # --- answers ------------------------------------------------------------------------------------------------

    def _start(self, exchange: Exchange) -> None:
        self._current = exchange
        self.connections.begin(self)
        exchange.task = self._loop.create_task(exchange.run(self._app))
        self.connections.tasks.add(exchange.task)

    def finished(self, exchange: Exchange) -> None:
        """Called when an answer has been written: continues with what comes next."""
        self.connections.tasks.discard(exchange.task)
        self._current = None
        if self._transport.is_closing():
            return
        if not exchange.done:
            self.abort()  # so that half an answer does not look like a whole one
        elif not exchange.keep_alive:
            self._part()
        elif self._queue:
            self._start(self._queue.popleft())
        elif self._final_problem is not None:
            self.deny(self._final_problem)
        elif self._eof:
            self._part()
        else:
            self.resume_reading()
            if self._in_head:
                self.connections.wait_for_head(self)
            else:
                self.connections.rest(self)

    def _refuse(self, problem: Problem) -> None:
        """Stops the parser, which then raises an error of its own."""
        self._final_problem = problem
        raise ValueError(problem.message)

    def deny(self, problem: Problem) -> None:
        """Sends a problem after the answers that are owed, and ends the connection."""
        self._discarding, self._final_problem = True, problem
        if self._current is not None:
            if self._incoming is not None and not self._incoming.whole:
                self._incoming.leave(problem)
                if self._incoming in self._queue:
                    self._queue.remove(self._incoming)
            return
        self.connections.refused(problem.type)
        client = None if self.client is None else self.client[0]
        method = self._parser.get_method().decode() if self._url else ""
        path = self._url.partition(b"?")[0].decode("ascii", "replace") if self._url.startswith(b"/") else ""
        headers, body = self._app.refuse(problem, client, method, path, dict(self._headers))
        head = [STATUS_LINES[problem.status], self.connections.standing_headers()]
        head += [b"%b: %b\r\n" % header for header in headers if header[0] != b"connection"]
        self.write(b"".join([*head, b"connection: close\r\n\r\n", body]))
        self._part()

    def _last(self) -> None:
        """Makes the current request the last one that is answered."""
        self._discarding = True
        if self._incoming is not None:
            self._incoming.keep_alive = False

    def _part(self) -> None:
        """Ends the connection from this side, and waits for the client to end it from the other."""
        self._discarding = True
        if self._transport.is_closing():
            return
        if self._eof:
            self._transport.close()
            return
        self._transport.write_eof()
        self.resume_reading()
        self.connections.part(self)

    def part_if_idle(self) -> None:
        if self._current is None and not self._discarding:
            self._part()


def _has_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") and value != b"0" for name, value in headers)


def _address(found: Any) -> tuple[str, int] | None:
    """The address; None if the socket has none or the client has already left."""
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) >= 2 else None
