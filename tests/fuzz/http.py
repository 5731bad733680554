"""Requests of any kind, to the server's application."""

from __future__ import annotations

import asyncio
import json
import shutil
from functools import cache
from typing import Any

from .families import questions, train_families, train_grown
from .inputs import Bytes, Finding, change_json, scratch

TABLE, LEARN = "/v1/label-table", "/v1/learn"
PATHS = (
    "/v1/suggest", "/v1/suggest-batch", "/v1/explain", "/v1/labels", "/v1/models", "/v1/models/tags",
    "/v1/models/numbers", "/v1/models/none", "/v1/models/tags/label-frequencies.svg", "/healthz", "/readyz",
    "/metrics", "/openapi.json", "/", "/page/index.html", "/page/..%2f..%2fetc%2fpasswd", "/v1/../metrics", "//",
    "/v1/suggest/", "/docs", TABLE, TABLE, LEARN, LEARN,
)  # fmt: skip
POSTED = {"/v1/suggest", "/v1/suggest-batch", "/v1/explain", TABLE, LEARN}
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
    {"record": {"title": "w1", "body": "w2 w3"}, "model": "records", "language": "fi"},
    {"documents": [{"record": {"title": "w1", "body": "w2"}}, {"text": "w3"}], "model": "records"},
    {"record": {"title": "w1", "body": "w2 w3"}, "model": "records", "label": "u:1"},
)  # fmt: skip
CORRECTIONS: tuple[Any, ...] = (
    {"corrections": [{"text": "w1 w2 w30", "accepted": ["name 1"], "rejected": ["name 2"]}], "model": "records"},
    {"corrections": [{"record": {"title": "w1", "body": "w2"}, "labels": ["name 3", "N4"]}], "model": "records"},
    {"corrections": [{"text": "w5", "added": ["u:13", "u:2"]}, {"text": "", "labels": []}], "model": "records"},
    {"corrections": [{"text": "w1", "labels": ["a new one"]}], "model": "tags"},
    {"corrections": [], "model": "numbers"},
)
TABLES = (
    b"text,other\nw1 w2,a\nw3,b\n", b'title;body\n"w1; w2";w3\nw4;w5\n', b"title\tbody\r\nw1\tw2\r\n",
    b"\xff\xfet\0e\0x\0t\0\n\0w\x001\0\n\0", b'text\n"half', b"text,text\n=1,@2\n",
)  # fmt: skip
QUERIES = ("", "query=na", "limit=3", "query=na&limit=5&model=tags", "limit=-1", "query=%ff%00", "model=none")
TABLE_QUERIES = (
    "last=1", "text=text&last=1", "model=records&last=1&labels=list", "labels=long&top_k=2&text=text^2&name=t",
    "model=records&language=fi&threshold=0.1&escape_formulas=1&last=1", "model=numbers",
    "header_bytes=11&encoding=utf-8&delimiter=,&line=2&text=text", "top_k=auto&threshold=micro&text=text&text=other",
)  # fmt: skip
TOKEN = b"let me in, please".replace(b" ", b"-")


class Server:
    """The application, without a socket."""

    def __init__(self) -> None:
        from umpteen.serving import learning
        from umpteen.serving.app import make_app
        from umpteen.serving.settings import Settings

        place = scratch()
        models = train_families(place) | train_grown(place)
        # These learn, and are then put back, since the server never sees what they have learnt.
        self._original = {name: models[name] for name in ("tagger", "grown")}
        self._served = {
            name: shutil.copytree(path, place / f"{name} served") for name, path in self._original.items()
        }
        paths = {"tags": self._served["tagger"], "numbers": models["forest"], "records": self._served["grown"]}
        settings = Settings({name: str(path) for name, path in paths.items()}, learn=True, token=TOKEN.decode())
        # In this process, where coverage is seen: one of its own for each would leave time for nothing else.
        vars(learning)["call_apart"] = lambda context, work, args, seconds: work(*args)
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

    def put_back(self) -> None:
        """Opens what models have become by learning, and makes them what they were."""
        import umpteen

        for name, path in self._served.items():
            questions(umpteen.load(path, checksums=True))
            shutil.rmtree(path)
            shutil.copytree(self._original[name], path)

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
    path = choices.pick(PATHS)
    method = "POST" if path in POSTED else "GET"
    if choices.number(4) == 0:
        method = choices.pick(("POST", "GET", "PUT", "HEAD", "OPTIONS", "DELETE", "X"))
    query = choices.pick(TABLE_QUERIES if path == TABLE else QUERIES).encode()
    if choices.number(8) == 0:
        query = choices.some(200)
    kind = b"text/csv" if path == TABLE else b"application/json"
    if choices.number(4) == 0:
        kind = choices.pick(
            (b"application/json", b"application/json; charset=utf-8", b"text/csv", b"text/plain", b"")
        )
    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer " + TOKEN)]
    headers += [(b"content-type", kind)] if kind else []
    if choices.number(8) == 0:
        name = choices.pick((b"content-length", b"authorization", b"host", b"transfer-encoding", b"x-request-id"))
        headers.append((name, choices.some(30)))
    body = _make_body(path, choices)
    status, answered, content = server().ask(method, path, query, headers, body)
    if status >= 500:
        raise Finding(f"{status} for {method} {path}?{query!r} {headers} {body!r}: {content[:300]!r}")
    if b"x-request-id" not in answered:
        raise Finding(f"no request id for {method} {path}")
    if path == LEARN and status == 200 and method == "POST":
        server().put_back()
    if b"content-type" not in answered:
        raise Finding(f"no content type for {method} {path}")
    if answered[b"content-type"].startswith(b"application/"):
        json.loads(content)


def _make_body(path: str, choices: Bytes) -> bytes:
    if choices.number(6) == 0:
        return choices.rest()
    if path == TABLE:
        body: bytes = choices.pick(TABLES) * (1 + choices.number(4))
    else:
        document = json.loads(json.dumps(choices.pick(CORRECTIONS if path == LEARN else BODIES)))
        for _ in range(choices.number(3)):
            change_json(document, choices)
        body = json.dumps(document).encode("utf-8", "surrogatepass")
    if choices.number(4) == 0:
        at = choices.number(max(1, len(body)))
        body = body[:at] + choices.some(30) + body[at + choices.number(5) :]
    return body
