"""Around every request: who may come in, how much at once, what every answer carries, and the count of all of it."""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from umpteen.serving.counts import Counts
from umpteen.serving.problems import Problem, as_problem, overloaded
from umpteen.serving.settings import Settings

#: Nothing is loaded from elsewhere, nothing runs that is not a file of ours, and no other page may frame this one.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
#: Of answers to what is asked in JSON, which no page of another origin can send: what a page may load, or be framed
#: by, does not concern them, and each header takes as long as finding the route.
ANSWER_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
OTHER = "other"
_TYPES = {404: "not_found", 405: "method_not_allowed"}


class Answer(NamedTuple):
    """What a handler answers with 200."""

    body: bytes
    kind: bytes = b"application/json"


@dataclass(frozen=True, eq=False)
class Endpoint:
    """Where a route leads. To Starlette's router it is an application that does nothing: the gate calls the handler,
    with less around it than the router would put there."""

    route: str
    handler: Callable[[Request], Awaitable[Answer]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pass


class Gate:
    """The outermost part of the application, and its one handler of errors.

    Parameters
    ----------
    inner
        The routes, each to an `Endpoint`.
    direct
        Those of them whose path is always the same, by method and path: they are found without asking the others.
    """

    def __init__(
        self, inner: ASGIApp, direct: Mapping[tuple[str, str], Endpoint], settings: Settings, counts: Counts
    ) -> None:
        self._inner, self._direct, self._settings, self._counts = inner, direct, settings, counts
        self._token = settings.token.encode() if settings.token is not None else None
        self.open_requests = 0
        self.api: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        started = time.perf_counter()
        status, route = 200, OTHER
        self.open_requests += 1
        try:
            try:
                self._check(scope)
                endpoint = self._direct.get((scope["method"], scope["path"]))
                if endpoint is None:
                    endpoint = await self._ask_router(scope, receive, send)
                route = endpoint.route
                body, kind = await endpoint.handler(Request(scope, receive))
                headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
                headers += ANSWER_HEADERS if scope["method"] == "POST" else HEADERS
            except Exception as error:
                problem = _from_router(error) if isinstance(error, HTTPException) else as_problem(error)
                status, body = problem.status, problem.body()
                headers = problem.all_headers(len(body)) + HEADERS
                del problem  # its traceback holds this frame, and with it the request's text, in a ring
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            self.open_requests -= 1
            self._counts.answered(route, status, time.perf_counter() - started)

    async def _ask_router(self, scope: Scope, receive: Receive, send: Send) -> Endpoint:
        scope["app"] = self  # makes Starlette's router raise what it refuses
        await self._inner(scope, receive, send)
        found: Endpoint = scope["endpoint"]
        return found

    def _check(self, scope: Scope) -> None:
        settings = self._settings
        if self.open_requests > settings.max_requests:
            raise overloaded(f"{settings.max_requests} requests are open already; try again later")
        if self._token is not None and _is_private(scope["path"]):
            given = next((value for key, value in scope["headers"] if key == b"authorization"), b"")
            if not hmac.compare_digest(given, b"Bearer " + self._token):
                raise Problem(
                    401,
                    "unauthorized",
                    "this server wants a token: Authorization: Bearer …",
                    {"WWW-Authenticate": "Bearer"},
                )


def _is_private(path: str) -> bool:
    return path.startswith("/v1/") or path == "/metrics"


def _from_router(error: HTTPException) -> Problem:
    type = _TYPES.get(error.status_code, "invalid_request")
    return Problem(error.status_code, type, error.detail.lower(), error.headers)
