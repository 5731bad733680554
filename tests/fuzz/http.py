"""Requests of any kind, to the server's application."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import Any

from .families import train_families
from .inputs import Bytes, Finding, change_json, scratch

PATHS = (
    "/v1/suggest", "/v1/suggest-batch", "/v1/explain", "/v1/labels", "/v1/models", "/v1/models/tags",
    "/v1/models/numbers", "/v1/models/none", "/v1/models/tags/label-frequencies.svg", "/healthz", "/readyz",
    "/metrics", "/openapi.json", "/", "/page/index.html", "/page/..%2f..%2fetc%2fpasswd", "/v1/../metrics", "//",
    "/v1/suggest/",
)  # fmt: skip
BODIES: tuple[Any, ...] = (
    {"text": "w1 w2 w3"},
    {"features": {"1": 0.5, "7": 2}, "model": "numbers"},
    {"features": [0.5], "model": "numbers"},
    {"documents": [{"text": "w1"}, {"text": "w2", "document_id": "b"}]},
    {"documents": [{"features": {"3": 1}}], "model": "numbers", "top_k": 3},
    {"documents": []},
    {"text": "w1", "label": "name 1"},
    {"text": "w1", "top_k": "auto", "threshold": "macro"},
    {"text": "w1", "exclude": ["name 1"], "include": ["name 2"]},
)  # fmt: skip
QUERIES = ("", "query=na", "limit=3", "query=na&limit=5&model=tags", "limit=-1", "query=%ff%00", "model=none")


class Server:
    """The application, without a socket."""

    def __init__(self) -> None:
        from umpteen.serving.app import make_app
        from umpteen.serving.settings import Settings

        place = scratch()
        models = train_families(place)
        settings = Settings({"tags": str(models["tagger"]), "numbers": str(models["forest"])}, watch=0)
        self.app = make_app(settings)
        self.loop = asyncio.new_event_loop()
        self.life: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self._running = self.loop.create_task(self.app(scope, self.life.get, self.sent.put))

        async def start() -> None:
            await self.life.put({"type": "lifespan.startup"})
            assert (await self.sent.get())["type"] == "lifespan.startup.complete"

        self.loop.run_until_complete(start())

    def ask(self, method: str, path: str, query: bytes, headers: list[Any], body: bytes) -> tuple[int, Any, bytes]:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode("utf-8", "surrogatepass"), "query_string": query, "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {},
        }  # fmt: skip
        cut = len(body) // 2
        parts = [(body[:cut], True), (body[cut:], False)] if len(body) > 10 else [(body, False)]
        sent: list[Any] = []

        async def receive() -> Any:
            if not parts:
                return {"type": "http.disconnect"}
            piece, more = parts.pop(0)
            return {"type": "http.request", "body": piece, "more_body": more}

        async def send(message: Any) -> None:
            sent.append(message)

        self.loop.run_until_complete(self.app(scope, receive, send))
        return sent[0]["status"], dict(sent[0]["headers"]), b"".join(m.get("body", b"") for m in sent[1:])


server = cache(Server)


def try_http(data: bytes) -> None:
    """A request, put together by the bytes."""
    choices = Bytes(data)
    method = choices.pick(("POST", "POST", "POST", "GET", "GET", "PUT", "HEAD", "OPTIONS", "DELETE", "X"))
    path = choices.pick(PATHS)
    query = choices.pick(QUERIES).encode()
    if choices.number(8) == 0:
        query = choices.some(200)
    kind = choices.pick((b"application/json", b"application/json; charset=utf-8", b"text/plain", b""))
    headers = [(b"host", b"localhost"), *([(b"content-type", kind)] if kind else [])]
    if choices.number(8) == 0:
        name = choices.pick((b"content-length", b"authorization", b"host", b"transfer-encoding", b"x-request-id"))
        headers.append((name, choices.some(30)))
    if choices.number(6) == 0:
        body = choices.rest()
    else:
        document = json.loads(json.dumps(choices.pick(BODIES)))
        for _ in range(choices.number(3)):
            change_json(document, choices)
        body = json.dumps(document).encode("utf-8", "surrogatepass")
        if choices.number(4) == 0:
            at = choices.number(max(1, len(body)))
            body = body[:at] + choices.some(30) + body[at + choices.number(5) :]
    status, answered, content = server().ask(method, path, query, headers, body)
    if status >= 500:
        raise Finding(f"{status} for {method} {path}?{query!r} {headers} {body!r}: {content[:300]!r}")
    if b"content-type" not in answered:
        raise Finding(f"no content type for {method} {path}")
    if answered[b"content-type"].startswith(b"application/"):
        json.loads(content)
