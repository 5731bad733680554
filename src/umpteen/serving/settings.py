"""The settings of a server, with their defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from umpteen.errors import ParamError
from umpteen.params import check_choice, check_count, check_number
from umpteen.serving.cors import Origins
from umpteen.serving.hosts import Hosts
from umpteen.serving.tokens import Tokens
from umpteen.threads import resolve_threads

_MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
_COUNTS = (
    "max_body_bytes", "max_characters", "max_documents", "max_top_k", "max_waiting", "max_requests",
    "max_bytes_in_flight", "max_header_bytes", "max_headers", "max_url_bytes", "max_connections",
    "max_connections_per_client",
)  # fmt: skip
_SECONDS = ("timeout", "idle_timeout", "grace", "reload_timeout", "stuck_after", "learn_timeout")


@dataclass(frozen=True)
class Settings:
    """Everything a worker process needs to know, as plain values that can be sent to it.

    Parameters
    ----------
    models
        Model directories, or directories of versions, by model id; the first is the default.
    host, port
        Where to listen; port 0 picks a free one.
    workers
        Number of processes. They share one copy of the models, which are mapped.
    threads
        Kernel threads in each worker; by default the cores divided by the workers.
    token
        What clients must send as ``Authorization: Bearer …``; None lets everyone in.
    token_file
        A file of such tokens, each with a name; reread when it changes.
    allowed_hosts
        Names and addresses allowed in a request's Host header, besides this machine's own; see `Hosts`.
    cors_origins
        Origins whose pages may call this server; "*" for all.
    max_body_bytes, max_characters, max_documents, max_top_k
        How large a request, a text, a batch and a ranking may be.
    max_waiting
        Most texts waiting for a model; more are refused with 503.
    max_requests
        Most requests open at once, slow clients included; more are refused with 503.
    max_bytes_in_flight
        Most bytes of requests, decoded, and answers being written at once; more are refused with 503.
    max_header_bytes, max_headers, max_url_bytes
        How large the head of a request may be.
    max_connections, max_connections_per_client
        Most connections of a worker, and of one address among them. Beyond that, the one idle longest is closed.
    timeout
        Seconds for each step: the head of a request to arrive, its body to arrive, its answer to be made, and the
        client to continue reading.
    idle_timeout
        Seconds a connection may be idle between requests.
    grace
        Seconds that a stopping server has to finish accepted requests.
    watch
        Seconds between checks of the model directories; 0 reloads on SIGHUP only.
    verify
        Compare every byte of a model with its checksums before serving it. Always done for a model whose files
        were changed in place.
    reload_timeout
        Seconds for a changed model to be opened, verified and tried.
    stuck_after
        Seconds without a sign of life after which a worker is replaced.
    learn, learn_timeout
        Whether clients may improve models by corrections, which needs a token; seconds a model has to learn them.
    log_format, log_level, access_log
        "text" or "json"; the lowest level to log; whether to log every request.
    """

    models: Mapping[str, str]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    allowed_hosts: Sequence[str] = ()
    cors_origins: Sequence[str] = ()
    max_body_bytes: int = 4_000_000
    max_characters: int = 200_000
    max_documents: int = 256
    max_top_k: int = 1000
    max_waiting: int = 1024
    max_requests: int = 2048
    max_bytes_in_flight: int = 128_000_000
    max_header_bytes: int = 32_768
    max_headers: int = 100
    max_url_bytes: int = 8192
    max_connections: int = 2048
    max_connections_per_client: int = 1024
    timeout: float = 10.0
    idle_timeout: float = 30.0
    grace: float = 30.0
    watch: float = 2.0
    verify: bool = False
    reload_timeout: float = 120.0
    stuck_after: float = 30.0
    learn: bool = False
    learn_timeout: float = 300.0
    log_format: str = "text"
    log_level: str = "info"
    access_log: bool = False

    def __post_init__(self) -> None:
        if not self.models:
            raise ParamError("models must name at least one model, but is empty")
        for name in self.models:
            if not _MODEL_ID.fullmatch(name):
                raise ParamError(f"a model's id must match {_MODEL_ID.pattern}, but is {name!r}")
        check_count("port", self.port, low=0, high=65535)
        check_count("workers", self.workers, high=256)
        if self.threads is not None:
            resolve_threads(self.threads)
        for name in _COUNTS:
            check_count(name, getattr(self, name))
        if self.max_waiting < self.max_documents:
            raise ParamError(
                f"max_waiting must be at least max_documents, {self.max_documents}, so that a full batch can wait, "
                f"but is {self.max_waiting}"
            )
        for name in _SECONDS:
            check_number(name, getattr(self, name), 0, above=True)
        check_number("watch", self.watch, 0)
        for name, choices in (("log_format", LOG_FORMATS), ("log_level", LOG_LEVELS)):
            check_choice(name, getattr(self, name), choices)
        if not self.make_tokens() and self.learn:
            raise ParamError("learn needs a token or a token_file: else anyone could change the models")
        if self.learn and not self.watch:
            raise ParamError("learn needs watch above 0: else the server would not see what a model has learnt")
        self.make_hosts()
        Origins(self.cors_origins)

    @property
    def kernel_threads(self) -> int:
        return self.threads if self.threads is not None else max(1, resolve_threads(None) // self.workers)

    def make_tokens(self) -> Tokens:
        return Tokens.read(self.token_file) if self.token_file is not None else Tokens.of(self.token)

    def make_hosts(self) -> Hosts:
        return Hosts(self.host, self.allowed_hosts)


def name_models(given: Sequence[str]) -> dict[str, str]:
    """Model directories by id, from ``DIR`` or ``ID=DIR``: ``tags.model`` alone has the id ``tags``."""
    models: dict[str, str] = {}
    for entry in given:
        name, equals, path = entry.partition("=")
        if not equals or Path(entry).exists():
            path = entry
            name = Path(entry).absolute().name.removesuffix(".model")
        if name in models:
            raise ParamError(f"two models have the id {name!r}; give one of them another with ID={path}")
        models[name] = str(Path(path).absolute())
    return models
