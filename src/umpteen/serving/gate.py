"""What surrounds every request: access, limits, the headers of every answer, and counting."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from umpteen.serving.budget import Budget
from umpteen.serving.cors import Origins
from umpteen.serving.counts import Counts
from umpteen.serving.logs import note
from umpteen.serving.problems import Problem, as_problem, overloaded, stopping
from umpteen.serving.request_ids import HEADER as REQUEST_ID
from umpteen.serving.request_ids import RequestIds
from umpteen.serving.settings import Settings
from umpteen.serving.tokens import Tokens

access = logging.getLogger("umpteen.access")

#: Nothing is loaded from other sites, only our own scripts run, and no other page may frame this one.
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
#: For answers to JSON requests, which no page of another origin can send. They need no headers about loading and
#: framing, and each header takes as long as finding the route.
ANSWER_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
OTHER = "other"
HEALTH = "/healthz"
_TYPES = {404: "not_found", 405: "method_not_allowed"}


class Answer(NamedTuple):
    """A handler's answer with status 200, and the version of the model that gave it."""

    body: bytes
    kind: bytes = b"application/json"
    version: str | None = None


@dataclass(frozen=True, eq=False)
class Endpoint:
    """The target of a route. For Starlette's router it is an application that does nothing: the gate calls the
    handler itself, which takes less time."""

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
        Those of them with a fixed path, by method and path: they are found without the router.
    """

    def __init__(
        self,
        inner: ASGIApp,
        direct: Mapping[tuple[str, str], Endpoint],
        settings: Settings,
        counts: Counts,
        tokens: Tokens,
    ) -> None:
        self._inner, self._direct, self.settings, self.counts = inner, direct, settings, counts
        self._hosts, self._origins = settings.make_hosts(), Origins(settings.cors_origins)
        self._ids = RequestIds()
        self.tokens = tokens
        self.budget = Budget(settings.max_bytes_in_flight)
        self.open_requests = 0
        self.stopping = False
        self.api: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        started = time.perf_counter()
        status, route, body, version = 200, OTHER, b"", None
        given = scope["given"] = dict(scope["headers"])
        request_id = self._ids.choose(given)
        scope["held"] = 0
        self.open_requests += 1
        try:
            try:
                self._check(scope, given)
                endpoint = self._direct.get((scope["method"], scope["path"]))
                if endpoint is None:
                    endpoint = await self._ask_router(scope, receive, send)
                route = endpoint.route
                body, kind, version = await endpoint.handler(Request(scope, receive))
                self.hold(scope, len(body))
                headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
                headers += ANSWER_HEADERS if scope["method"] == "POST" else HEADERS
            except _Allowed as allowed:
                status, headers = 204, [*allowed.headers, *HEADERS]
            except Exception as error:
                problem = _from_router(error) if isinstance(error, HTTPException) else as_problem(error)
                status, body, version = problem.status, problem.body(), problem.version
                headers = problem.all_headers(len(body)) + HEADERS
                del problem  # its traceback holds this frame: the cycle would keep the request's text alive
            headers.append((REQUEST_ID, request_id))
            if version is not None:
                headers.append((b"x-model-version", version.encode()))
            if self._origins and status != 204:
                headers += self._origins.headers(given.get(b"origin"))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            self.open_requests -= 1
            self.budget.release(scope["held"])
            seconds = time.perf_counter() - started
            self.counts.answered(route, status, seconds)
            if self.settings.access_log:
                client = scope["client"][0] if scope.get("client") else None
                method, path, token = scope["method"], scope["path"], scope.get("token")
                self._write_access(client, method, path, request_id, status, len(body), seconds, token, version)

    def refuse(
        self, problem: Problem, client: str | None, method: str, path: str, given: dict[bytes, bytes]
    ) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """The answer to what never became a request: counted, logged and with an id, as all answers.

        Parameters
        ----------
        method, path, given
            What arrived of its head; empty if nothing did.
        """
        request_id, body = self._ids.choose(given), problem.body()
        self.counts.answered(OTHER, problem.status, None)
        if self.settings.access_log:
            self._write_access(client, method, path, request_id, problem.status, len(body), None)
        return [*problem.all_headers(len(body)), *HEADERS, (REQUEST_ID, request_id)], body

    def hold(self, scope: Scope, n_bytes: int) -> None:
        """Counts bytes of a request or its answer, which stay in memory until the answer is written."""
        self.budget.take(n_bytes, scope["held"])
        scope["held"] += n_bytes

    async def _ask_router(self, scope: Scope, receive: Receive, send: Send) -> Endpoint:
        scope["app"] = self  # makes Starlette's router raise its errors
        await self._inner(scope, receive, send)
        found: Endpoint = scope["endpoint"]
        return found

    # --- access -------------------------------------------------------------------------------------------------

    def _check(self, scope: Scope, given: dict[bytes, bytes]) -> None:
        self._check_host(scope, given)
        if scope["path"] != HEALTH:
            if self.stopping:
                raise stopping()
            if scope.get("crowded"):
                raise overloaded("there are too many connections; try again later", close=True)
            if self.open_requests > self.settings.max_requests:
                raise overloaded(f"{self.settings.max_requests} requests are already open; try again later")
        if self._origins and (headers := self._origins.preflight(scope["method"], given)) is not None:
            raise _Allowed(headers)
        if self.tokens and _is_private(scope["path"]):
            scope["token"] = self.tokens.find(given.get(b"authorization", b""))
            if scope["token"] is None:
                raise Problem(
                    401,
                    "unauthorized",
                    "this server requires a token: Authorization: Bearer …",
                    {"WWW-Authenticate": "Bearer"},
                )

    def _check_host(self, scope: Scope, given: dict[bytes, bytes]) -> None:
        host = given.get(b"host")
        if host is None:
            if scope["http_version"] != "1.0":
                raise Problem(400, "invalid_http", "a request must have a Host header, but this one has none")
        elif not self._hosts.allows(host):
            raise Problem(
                421, "unknown_host", "this server does not accept this Host; --allowed-hosts names those it does"
            )
        elif sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise Problem(400, "invalid_http", "a request must have one Host header, but this one has more")

    # --- the log ------------------------------------------------------------------------------------------------

    def _write_access(
        self,
        client: str | None,
        method: str,
        path: str,
        request_id: bytes,
        status: int,
        n_bytes: int,
        seconds: float | None,
        token: str | None = None,
        version: str | None = None,
    ) -> None:
        message = " ".join(word for word in (method, path[:200], str(status)) if word)
        note(
            access, logging.INFO, message, method=method or None, path=path[:200] or None, status=status,
            bytes=n_bytes, seconds=None if seconds is None else round(seconds, 6), client=client, token=token,
            request_id=request_id.decode(), version=version,
        )  # fmt: skip


class _Allowed(Exception):
    """The positive answer to a browser's preflight request."""

    def __init__(self, headers: list[tuple[bytes, bytes]]) -> None:
        super().__init__()
        self.headers = headers


def _is_private(path: str) -> bool:
    return path.startswith("/v1/") or path == "/metrics"


def _from_router(error: HTTPException) -> Problem:
    type = _TYPES.get(error.status_code, "invalid_request")
    return Problem(error.status_code, type, error.detail.lower(), error.headers)
