"""What a server may be told, with the defaults in their one place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from umpteen.errors import ParamError
from umpteen.params import check_count, check_number
from umpteen.threads import resolve_threads

_MODEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TOKEN = re.compile(r"[!-~]{8,512}")


@dataclass(frozen=True)
class Settings:
    """Everything a worker process needs to know; plain values, so that it can be sent to one.

    Parameters
    ----------
    models
        Model directories by the id they are asked for; the first is the default.
    host, port
        Where to listen; port 0 takes a free one.
    workers
        Processes. They share one copy of the models, which are mapped.
    threads
        Kernel threads in each worker; by default the cores shared out among the workers.
    token
        What clients must send as ``Authorization: Bearer …``; None lets everybody in.
    max_body_bytes, max_characters, max_documents, max_top_k
        How large a request, a text, a batch and a ranking may be.
    max_waiting
        Texts that may wait for a model; more are turned away with 503.
    max_requests
        Requests that may be open at once, slow clients included; more are turned away with 503.
    timeout
        Seconds for a request to arrive, and again for its answer.
    drain
        Seconds a stopping server gives to what it has accepted.
    watch
        Seconds between looks at the model directories; 0 reloads on SIGHUP only.
    """

    models: Mapping[str, str]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int | None = None
    token: str | None = field(default=None, repr=False)
    max_body_bytes: int = 4_000_000
    max_characters: int = 200_000
    max_documents: int = 256
    max_top_k: int = 1000
    max_waiting: int = 1024
    max_requests: int = 2048
    timeout: float = 10.0
    drain: float = 30.0
    watch: float = 2.0

    def __post_init__(self) -> None:
        if not self.models:
            raise ParamError("a server needs at least one model, but was given none")
        for name in self.models:
            if not _MODEL_ID.fullmatch(name):
                raise ParamError(f"a model's id must match {_MODEL_ID.pattern}, but is {name!r}")
        check_count("port", self.port, low=0, high=65535)
        check_count("workers", self.workers, high=256)
        if self.threads is not None:
            resolve_threads(self.threads)
        for limit in (
            "max_body_bytes",
            "max_characters",
            "max_documents",
            "max_top_k",
            "max_waiting",
            "max_requests",
        ):
            check_count(limit, getattr(self, limit))
        if self.max_waiting < self.max_documents:
            raise ParamError(
                f"max_waiting must be at least max_documents, {self.max_documents}, or no full batch could ever be "
                f"taken, but is {self.max_waiting}"
            )
        for seconds in ("timeout", "drain"):
            check_number(seconds, getattr(self, seconds), 0, above=True)
        check_number("watch", self.watch, 0)
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise ParamError("the token must be 8 to 512 visible ASCII characters, but is not")

    @property
    def kernel_threads(self) -> int:
        return self.threads if self.threads is not None else max(1, resolve_threads(None) // self.workers)


def name_models(given: Sequence[str]) -> dict[str, str]:
    """Model directories by id, from ``DIR`` or ``ID=DIR``: ``tags.model`` alone has the id ``tags``."""
    models: dict[str, str] = {}
    for entry in given:
        name, equals, path = entry.partition("=")
        if not equals or Path(entry).exists():
            path = entry
            name = Path(entry).absolute().name.removesuffix(".model")
        if name in models:
            raise ParamError(f"two models have the id {name!r}; give one another with ID={path}")
        models[name] = str(Path(path).absolute())
    return models
