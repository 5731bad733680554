"""What goes wrong, as HTTP says it: a status, a type a program can test, a message a person can read."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from umpteen.errors import DataError, MemoryLimitError, ParamError, UmpteenError

log = logging.getLogger("umpteen.serving")


class Problem(Exception):
    """An answer that is not the one asked for."""

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        headers: Mapping[str, str] | None = None,
        *,
        field: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.type, self.message, self.field = status, type, message, field
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        error = {"type": self.type, "message": self.message}
        return msgspec.json.encode({"error": error if self.field is None else {**error, "field": self.field}})

    def all_headers(self, length: int) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
        headers += [(key.lower().encode(), value.encode()) for key, value in self.headers.items()]
        if self.status in _LAST:
            headers.append((b"connection", b"close"))
        return headers


#: Answers after which the rest of what is sent will not be read.
_LAST = (408, 413, 414, 431)


def without_trace(error: Exception) -> Exception:
    """An error as it goes from thread to thread. What is the client's fault leaves its traceback behind: it holds
    the frames of the thread, which hold the error again, and with it the request until the rings are collected."""
    return error.with_traceback(None) if isinstance(error, (Problem, UmpteenError)) else error


def overloaded(message: str, *, close: bool = False) -> Problem:
    return Problem(503, "overloaded", message, {"Retry-After": "1"} | ({"Connection": "close"} if close else {}))


def stopping() -> Problem:
    return Problem(503, "stopping", "the server is stopping", {"Retry-After": "1", "Connection": "close"})


def as_problem(error: BaseException) -> Problem:
    """Any exception as an answer: this package's own say what the client did wrong, others are our fault."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, (ParamError, DataError)):
        return Problem(422, "invalid_request", str(error))
    if isinstance(error, MemoryLimitError):
        return overloaded(str(error))
    log.error("a request failed", exc_info=error)
    return Problem(500, "internal", "the server failed at this request; its log says why")
