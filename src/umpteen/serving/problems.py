"""Errors in HTTP: a status, a type for programs, a message for people."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from umpteen.errors import DataError, MemoryLimitError, ParamError, UmpteenError

log = logging.getLogger("umpteen.serving")


class Problem(Exception):
    """An error to answer with."""

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
        self.version: str | None = None  # of the model that found it

    def body(self) -> bytes:
        error = {"type": self.type, "message": self.message}
        return msgspec.json.encode({"error": error if self.field is None else {**error, "field": self.field}})

    def all_headers(self, length: int) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
        headers += [(key.lower().encode(), value.encode()) for key, value in self.headers.items()]
        if self.status in _LAST:
            headers.append((b"connection", b"close"))
        return headers


class FromModel(Exception):
    """An error, and the version of the model that found it."""

    def __init__(self, error: Exception, version: str) -> None:
        super().__init__(str(error))
        self.error, self.version = without_trace(error), version


#: Statuses after which the rest of the request is not read.
_LAST = (408, 413, 414, 431)


def without_trace(error: Exception) -> Exception:
    """An error that can pass from thread to thread. Errors of the client lose their traceback: it holds the thread's
    frames, which hold the error, and the cycle would keep the request until it is collected."""
    return error.with_traceback(None) if isinstance(error, (Problem, UmpteenError)) else error


def overloaded(message: str, *, close: bool = False) -> Problem:
    return Problem(503, "overloaded", message, {"Retry-After": "1"} | ({"Connection": "close"} if close else {}))


def stopping() -> Problem:
    return Problem(503, "stopping", "the server is stopping", {"Retry-After": "1", "Connection": "close"})


def as_problem(error: BaseException) -> Problem:
    """Any exception as an answer: this package's own are the client's fault, others are ours."""
    if isinstance(error, FromModel):
        problem = as_problem(error.error)
        problem.version = error.version
        return problem
    if isinstance(error, Problem):
        return error
    if isinstance(error, (ParamError, DataError)):
        return Problem(422, "invalid_request", str(error))
    if isinstance(error, MemoryLimitError):
        return overloaded(str(error))
    log.error("a request failed", exc_info=error)
    return Problem(500, "internal", "the server failed at this request; its log has the reason")
