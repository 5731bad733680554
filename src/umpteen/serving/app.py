"""The routes: each turns a request into a call of a model, and the result into JSON."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.resources
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.routing import Route, Router

from umpteen.serving import schema
from umpteen.serving.counts import REASONS, Counts
from umpteen.serving.gate import OTHER, Answer, Endpoint, Gate
from umpteen.serving.learning import to_corrections
from umpteen.serving.openapi import describe_api
from umpteen.serving.problems import Problem, log
from umpteen.serving.records import join_record
from umpteen.serving.reference import render_reference
from umpteen.serving.served import OpenModel, Served, SuggestJob, find
from umpteen.serving.settings import Settings
from umpteen.serving.shared import SharedMemory
from umpteen.serving.tables import MEDIA_TYPE, count_memory, label_table, parse_query
from umpteen.serving.tokens import Tokens
from umpteen.serving.versions import candidates

#: Larger bodies are parsed in a thread, so that no other request waits for it.
_SMALL_BODY = 1 << 16
#: Most memory that a value takes once it is decoded: an entry of a dict of numbers. Between two values is a comma, so
#: commas bound what a body takes, however short its values are.
_BYTES_PER_COMMA = 96
_TICK = 0.5
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_SUGGEST = msgspec.json.Decoder(schema.SuggestRequest)
_BATCH = msgspec.json.Decoder(schema.BatchRequest)
_EXPLAIN = msgspec.json.Decoder(schema.ExplainRequest)
_LEARN = msgspec.json.Decoder(schema.LearnRequest)
LONGEST_QUERY, MOST_LABELS = 200, 100


class Api:
    """The endpoints, and what they share."""

    def __init__(self, settings: Settings, counts: Counts, models: dict[str, Served], *, private: bool) -> None:
        self.settings, self.counts, self.models = settings, counts, models
        self.ready = False
        self.connections: Callable[[], int] = lambda: 0  # how many are open; set by the server
        self._arriving: dict[asyncio.Task[Any], float] = {}  # requests being read, and their deadlines
        self._files = _read_page()
        document = describe_api(settings, [served.model for served in models.values()], private=private)
        self._openapi = msgspec.json.encode(document)
        self._reference = render_reference(document)

    # --- labels of texts ----------------------------------------------------------------------------------------

    async def suggest(self, request: Request) -> Answer:
        ask = await self._read(request, _SUGGEST)
        served = find(self.models, ask.model)
        self._check_top_k(ask)
        self._take_text(ask, served)
        return _answer(await served.suggestions.submit(SuggestJob(ask, [ask], batch=False)))

    async def suggest_batch(self, request: Request) -> Answer:
        ask = await self._read(request, _BATCH)
        served = find(self.models, ask.model)
        self._check_top_k(ask)
        n = len(ask.documents)
        self._check_count(n, "documents")
        for i, document in enumerate(ask.documents):
            self._take_text(document, served, f"documents[{i}].")
        if n == 0:
            return Answer(b"[]", version=served.model.version)
        return _answer(await served.suggestions.submit(SuggestJob(ask, ask.documents, batch=True), n))

    async def explain(self, request: Request) -> Answer:
        ask = await self._read(request, _EXPLAIN)
        self._take_text(ask, find(self.models, ask.model))
        return await self._question(ask.model, lambda model: model.explain(ask))

    async def label_table(self, request: Request) -> Answer:
        query = parse_query(request.query_params.multi_items(), self.settings)
        body = await self._receive(request, MEDIA_TYPE, "the body must be a table, sent as text/csv")
        self.gate.hold(request.scope, count_memory(body))
        return await self._question(query.model, lambda model: label_table(model, query, body, self.settings))

    async def learn(self, request: Request) -> Answer:
        if not self.settings.learn:
            raise Problem(403, "not_allowed", "this server does not learn; it must be started with --learn")
        ask = await self._read(request, _LEARN)
        served, n = find(self.models, ask.model), len(ask.corrections)
        if not served.model.learns:
            message = f"{served.id} does not learn from corrections: models of texts by dismec and ppdsparse do"
            raise Problem(422, "invalid_request", message, field="model")
        if n == 0:
            raise Problem(422, "invalid_request", "corrections must have at least one", field="corrections")
        self._check_count(n, "corrections")
        for i, each in enumerate(ask.corrections):
            self._take_text(each, served, f"corrections[{i}].")
        found = to_corrections(ask.corrections, served.model.model.ids_by_name)
        token = request.scope.get("token")
        return _answer(await asyncio.to_thread(served.teacher.learn, served.path, found, token))

    # --- about the models ---------------------------------------------------------------------------------------

    async def labels(self, request: Request) -> Answer:
        query = request.query_params.get("query", "")
        if len(query) > LONGEST_QUERY:
            message = f"query must have at most {LONGEST_QUERY} characters, but has {len(query)}"
            raise Problem(422, "invalid_request", message, field="query")
        limit = request.query_params.get("limit", "20")
        if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= MOST_LABELS):
            message = f"limit must be a number from 1 to {MOST_LABELS}, but is {limit!r:.50}"
            raise Problem(422, "invalid_request", message, field="limit")
        return await self._question(
            request.query_params.get("model"), lambda model: model.find_labels(query, int(limit))
        )

    async def list_models(self, request: Request) -> Answer:
        settings = self.settings
        limits = schema.Limits(
            settings.max_body_bytes, settings.max_characters, settings.max_documents, settings.max_top_k
        )
        models = [schema.ModelSummary(**served.model.summary(served.id)) for served in self.models.values()]
        return Answer(msgspec.json.encode(schema.ModelsResponse(models, limits, settings.learn)))

    async def show_model(self, request: Request) -> Answer:
        model_id = request.path_params["model_id"]
        return await self._question(model_id, lambda model: model.facts(model_id))

    async def frequencies(self, request: Request) -> Answer:
        drawn = await self._question(request.path_params["model_id"], lambda model: model.frequencies())
        return drawn._replace(kind=b"image/svg+xml")

    # --- about the server ---------------------------------------------------------------------------------------

    async def healthz(self, request: Request) -> Answer:
        return Answer(b'{"status":"ok"}')

    async def readyz(self, request: Request) -> Answer:
        if not self.ready:
            raise Problem(503, "not_ready", "the server is starting", {"Retry-After": "1"})
        failing = [
            schema.FailedReload(model, reason, REASONS[reason])
            for model, reason in self.counts.failing(tuple(self.models)).items()
        ]
        return Answer(msgspec.json.encode(schema.Status("ready", failing, self.counts.is_watcher_stuck)))

    async def metrics(self, request: Request) -> Answer:
        self.update_gauges()
        return Answer(self.counts.render(), b"text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request) -> Answer:
        return Answer(self._openapi)

    async def docs(self, request: Request) -> Answer:
        return Answer(self._reference, b"text/html; charset=utf-8")

    async def page(self, request: Request) -> Answer:
        name = request.path_params.get("name", "index.html")
        if name not in self._files:  # no other file is looked up
            raise Problem(404, "not_found", "not found")
        return Answer(self._files[name], f"{_TYPES[Path(name).suffix]}; charset=utf-8".encode())

    # --- shared -------------------------------------------------------------------------------------------------

    async def _question(self, model_id: str | None, ask: Callable[[OpenModel], bytes]) -> Answer:
        return _answer(await find(self.models, model_id).questions.submit(ask))

    async def _read(self, request: Request, decoder: msgspec.json.Decoder[schema.T]) -> schema.T:
        body = await self._receive(request, b"application/json", "the body must be JSON, sent as application/json")
        self.gate.hold(request.scope, _BYTES_PER_COMMA * body.count(b","))
        if len(body) <= _SMALL_BODY:
            return schema.decode(body, decoder)
        return await asyncio.to_thread(schema.decode, body, decoder)

    async def _receive(self, request: Request, kind: bytes, rule: str) -> bytes:
        """The body, if it is of a kind that a page of another origin cannot send without asking."""
        headers = request.scope["given"]
        if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() != kind:
            raise Problem(415, "unsupported_media_type", rule)
        most = self.settings.max_body_bytes
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 18 or int(length) > most):
            raise _too_large(most)
        return await self._body(request, most)

    async def _body(self, request: Request, most: int) -> bytes:
        parts: list[bytes] = []
        n_bytes, more = 0, True
        task = asyncio.current_task()
        assert task is not None
        self._arriving[task] = time.monotonic() + self.settings.timeout
        try:
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Problem(400, "disconnected", "the client left before its request was complete")
                part, more = message.get("body", b""), message.get("more_body", False)
                n_bytes += len(part)
                if n_bytes > most:
                    raise _too_large(most)
                self.gate.hold(request.scope, len(part))
                parts.append(part)
        except asyncio.CancelledError:
            if self._arriving[task] > 0:
                raise
            task.uncancel()
            raise Problem(408, "timeout", f"the request did not arrive within {self.settings.timeout:g} s") from None
        finally:
            del self._arriving[task]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def tick(self) -> None:
        """Gives a sign of life, unless a model has been stuck in one call for too long."""
        lanes = [lane for served in self.models.values() for lane in (served.suggestions, served.questions)]
        if max(lane.busy_for for lane in lanes) < self.settings.stuck_after + self.settings.timeout:
            self.counts.beat()
        self.update_gauges()
        self._give_up_late()

    def _give_up_late(self) -> None:
        """Ends requests that take too long to arrive. They are checked from time to time: a timer for each would cost
        more than most requests."""
        now = time.monotonic()
        for task, deadline in self._arriving.items():
            if 0 < deadline < now:
                self._arriving[task] = 0.0
                task.cancel()

    def _check_count(self, n: int, field: str) -> None:
        if n > self.settings.max_documents:
            message = f"there must be at most {self.settings.max_documents} {field}, but there are {n}"
            raise Problem(413, "too_many_documents", message, field=field)

    def _check_top_k(self, ask: schema.SuggestOptions) -> None:
        if isinstance(ask.top_k, int) and ask.top_k > self.settings.max_top_k:
            message = f"top_k must be at most {self.settings.max_top_k}, but is {str(ask.top_k)[:50]}"
            raise Problem(422, "invalid_request", message, field="top_k")

    def _take_text(self, document: Any, served: Served, place: str = "") -> None:
        """Makes the record of a document its text, and checks how long that is."""
        if document.record is not UNSET:
            document.text = join_record(document, served.model.fields, self.settings.max_characters, place)
        self._check_text(document.text, f"{place}text")

    def _check_text(self, text: Any, field: str = "text") -> None:
        if text is not UNSET and len(text) > self.settings.max_characters:
            message = f"{field} must have at most {self.settings.max_characters} characters, but has {len(text)}"
            raise Problem(413, "text_too_long", message, field=field)

    def update_gauges(self) -> None:
        """Updates the gauges, so that every worker's /metrics shows them."""
        waiting = {served.id: served.suggestions.rows_waiting for served in self.models.values()}
        self.counts.now(waiting, self.gate.open_requests, self.gate.budget.held, self.connections())

    gate: Gate


def make_app(
    settings: Settings,
    counts: Counts | None = None,
    paths: Mapping[str, str] | None = None,
    tokens: Tokens | None = None,
) -> Gate:
    """The application, its models open.

    Parameters
    ----------
    counts
        Where requests are counted; by default in this process.
    paths
        The directories to open, by model; by default the best of each of the settings' paths.
    tokens
        The tokens clients must send; by default the settings'.
    """
    if tokens is None:
        tokens = settings.make_tokens()
    if counts is None:
        counts = make_counts(settings)
    if paths is None:
        paths = {name: candidates(path)[0] for name, path in settings.models.items()}
    models = {name: Served(name, path, settings, counts) for name, path in paths.items()}
    api = Api(settings, counts, models, private=bool(tokens))
    handlers: dict[str, tuple[str, Callable[[Request], Awaitable[Answer]]]] = {
        "/v1/suggest": ("POST", api.suggest),
        "/v1/suggest-batch": ("POST", api.suggest_batch),
        "/v1/explain": ("POST", api.explain),
        "/v1/label-table": ("POST", api.label_table),
        "/v1/learn": ("POST", api.learn),
        "/v1/labels": ("GET", api.labels),
        "/v1/models": ("GET", api.list_models),
        "/v1/models/{model_id}": ("GET", api.show_model),
        "/v1/models/{model_id}/label-frequencies.svg": ("GET", api.frequencies),
        "/healthz": ("GET", api.healthz),
        "/readyz": ("GET", api.readyz),
        "/metrics": ("GET", api.metrics),
        "/openapi.json": ("GET", api.openapi),
        "/docs": ("GET", api.docs),
        "/": ("GET", api.page),
        "/page/{name}": ("GET", api.page),
    }
    endpoints = {path: Endpoint(path if path in ROUTES else "/", handler) for path, (_, handler) in handlers.items()}
    routes = [Route(path, endpoints[path], methods=[method]) for path, (method, _) in handlers.items()]
    router = Router(routes, redirect_slashes=False, lifespan=lambda app: _life(api))
    direct = {(method, path): endpoints[path] for path, (method, _) in handlers.items() if "{" not in path}
    api.gate = Gate(router, direct, settings, counts, tokens)
    api.gate.api = api
    return api.gate


#: The routes by which requests are counted.
ROUTES = (
    "/v1/suggest", "/v1/suggest-batch", "/v1/explain", "/v1/label-table", "/v1/learn", "/v1/labels",
    "/v1/models", "/v1/models/{model_id}",
    "/v1/models/{model_id}/label-frequencies.svg", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs",
    "/", OTHER,
)  # fmt: skip


def make_counts(settings: Settings, memory: SharedMemory | None = None, row: int = 0, n_rows: int = 1) -> Counts:
    return Counts(ROUTES, tuple(settings.models), memory, row, n_rows)


@contextlib.asynccontextmanager
async def _life(api: Api) -> AsyncIterator[None]:
    """Wraps the life of the application: keeps the clock, and drains at the end."""
    api.counts.stopped()  # a worker that died has left its gauges
    ticking = asyncio.create_task(_tick(api))
    api.ready = True
    try:
        yield
    finally:
        api.ready = False
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking
        for served in api.models.values():
            await served.close()
        api.counts.stopped()


async def _tick(api: Api) -> None:
    """Calls `tick` from time to time, even after errors."""
    while True:
        try:
            api.tick()
        except Exception as error:
            log.error("the clock failed", exc_info=error)
        await asyncio.sleep(_TICK)


def _read_page() -> dict[str, bytes]:
    folder = importlib.resources.files("umpteen.serving") / "page"
    return {file.name: file.read_bytes() for file in folder.iterdir() if Path(file.name).suffix in _TYPES}


def _answer(outcome: tuple[bytes, str]) -> Answer:
    return Answer(outcome[0], version=outcome[1])


def _too_large(most: int) -> Problem:
    return Problem(413, "too_large", f"a request's body must have at most {most} bytes, but has more")
