"""umpteen serve"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from umpteen.cli.defaults import default_of
from umpteen.errors import MissingExtraError, ParamError

_ACCESS = "Access"
_RELOADING = "Reloading"
_LOGGING = "Log"
_LIMITS = "Limits"


def _default(name: str) -> Any:
    return default_of("umpteen.serving.settings:Settings", name)


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR…",
            help="Model directories, the default one first; ID=DIR names one. A directory of model directories "
            "holds versions: the last by name is served, or the one named in its file `current`.",
        ),
    ],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = _default("host"),
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0 picks a free one.")] = _default("port"),
    workers: Annotated[
        int, typer.Option("--workers", help="Number of processes; they share one copy of the models.")
    ] = _default("workers"),
    threads: Annotated[
        int | None, typer.Option("--threads", help="Kernel threads per worker. Default: cores divided by workers.")
    ] = None,
    grace: Annotated[
        float, typer.Option("--grace", help="Seconds to finish open requests when the server is stopped.")
    ] = _default("grace"),
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", rich_help_panel=_ACCESS,
            help="File with the tokens that clients must send, a name and a token per line; reread when it changes. "
            "A single token may be in $UMPTEEN_TOKEN instead.",
        ),
    ] = None,
    allowed_hosts: Annotated[
        str | None,
        typer.Option(
            "--allowed-hosts", metavar="NAME,…", rich_help_panel=_ACCESS,
            help="Host names of this server, besides localhost and the address it listens on; *.example.org stands "
            "for all subdomains, * for any name.",
        ),
    ] = None,
    cors_origins: Annotated[
        str | None,
        typer.Option(
            "--cors-origins", metavar="ORIGIN,…", rich_help_panel=_ACCESS,
            help="Web sites whose pages may call this server, such as https://example.org; * for all.",
        ),
    ] = None,
    learn: Annotated[
        bool,
        typer.Option(
            "--learn", rich_help_panel=_ACCESS,
            help="Let clients with a token improve the models by corrections, which replaces them on disk.",
        ),
    ] = _default("learn"),
    learn_timeout: Annotated[
        float,
        typer.Option(
            "--learn-timeout", rich_help_panel=_ACCESS, help="Seconds a model has to learn a request's corrections."
        ),
    ] = _default("learn_timeout"),
    watch: Annotated[
        float,
        typer.Option(
            "--watch", rich_help_panel=_RELOADING,
            help="Seconds between checks of model directories and token file; 0 checks on SIGHUP only.",
        ),
    ] = _default("watch"),
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", rich_help_panel=_RELOADING,
            help="Compare every byte of a model with its checksums before serving it.",
        ),
    ] = _default("verify"),
    reload_timeout: Annotated[
        float,
        typer.Option("--reload-timeout", rich_help_panel=_RELOADING, help="Seconds to open and try a changed model."),
    ] = _default("reload_timeout"),
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="text|json", rich_help_panel=_LOGGING, help="Format of the log.")
    ] = _default("log_format"),
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level", metavar="debug|info|warning|error", rich_help_panel=_LOGGING, help="Lowest level to log."
        ),
    ] = _default("log_level"),
    access_log: Annotated[
        bool, typer.Option("--access-log", rich_help_panel=_LOGGING, help="Log every request.")
    ] = _default("access_log"),
    max_body_bytes: Annotated[
        int, typer.Option("--max-body-bytes", help="Largest request body.", rich_help_panel=_LIMITS)
    ] = _default("max_body_bytes"),
    max_characters: Annotated[
        int, typer.Option("--max-characters", help="Longest text.", rich_help_panel=_LIMITS)
    ] = _default("max_characters"),
    max_documents: Annotated[
        int, typer.Option("--max-documents", help="Most texts in a batch.", rich_help_panel=_LIMITS)
    ] = _default("max_documents"),
    max_waiting: Annotated[
        int,
        typer.Option("--max-waiting", help="Most texts waiting for a model; more get 503.", rich_help_panel=_LIMITS),
    ] = _default("max_waiting"),
    max_bytes_in_flight: Annotated[
        int,
        typer.Option(
            "--max-bytes-in-flight", rich_help_panel=_LIMITS,
            help="Most bytes of requests, decoded, and answers being written, per worker; more get 503.",
        ),
    ] = _default("max_bytes_in_flight"),
    max_header_bytes: Annotated[
        int, typer.Option("--max-header-bytes", help="Largest request header.", rich_help_panel=_LIMITS)
    ] = _default("max_header_bytes"),
    max_headers: Annotated[
        int, typer.Option("--max-headers", help="Most headers of a request.", rich_help_panel=_LIMITS)
    ] = _default("max_headers"),
    max_url_bytes: Annotated[
        int, typer.Option("--max-url-bytes", help="Longest URL of a request.", rich_help_panel=_LIMITS)
    ] = _default("max_url_bytes"),
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections", rich_help_panel=_LIMITS,
            help="Most connections per worker; beyond that, the one idle longest is closed.",
        ),
    ] = _default("max_connections"),
    max_connections_per_client: Annotated[
        int,
        typer.Option("--max-connections-per-client", rich_help_panel=_LIMITS, help="Most per address and worker."),
    ] = _default("max_connections_per_client"),
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", rich_help_panel=_LIMITS,
            help="Seconds for each step: receive a header, receive a body, make an answer, wait for the reader.",
        ),
    ] = _default("timeout"),
    idle_timeout: Annotated[
        float,
        typer.Option(
            "--idle-timeout", rich_help_panel=_LIMITS, help="Seconds a connection may be idle between requests."
        ),
    ] = _default("idle_timeout"),
    stuck_after: Annotated[
        float,
        typer.Option(
            "--stuck-after", rich_help_panel=_LIMITS,
            help="Seconds without a sign of life after which a worker is replaced.",
        ),
    ] = _default("stuck_after"),
) -> None:  # fmt: skip
    """Serve models over HTTP, with a page for people and an API for programs.

    A model that is replaced on disk is reloaded without a restart. Ctrl-C finishes accepted requests, then stops.

    umpteen serve tags.model

    umpteen serve new.model old=backup/tags.model --workers 4 --port 9000

    umpteen serve models/eurlex --token-file tokens --allowed-hosts tags.example.org

    umpteen serve tags.model --token-file tokens --learn
    """
    missing = [
        name for name in ("starlette", "uvicorn", "httptools", "msgspec") if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise MissingExtraError(
            f"umpteen serve needs {', '.join(missing)}. Install them with: pip install 'umpteen[serve]'"
        )
    from umpteen.serving.logs import set_up
    from umpteen.serving.server import choose, serve
    from umpteen.serving.settings import Settings, name_models

    token = _token_from_environment() if token_file is None else None
    if learn and token_file is None and token is None:
        raise ParamError("--learn needs --token-file or $UMPTEEN_TOKEN: else anyone could change the models")
    if learn and not watch:
        raise ParamError("--learn needs --watch above 0: else the server would not see what a model has learnt")
    settings = Settings(
        models=name_models(models),
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        token=token,
        token_file=str(token_file.absolute()) if token_file is not None else None,
        allowed_hosts=_split(allowed_hosts),
        cors_origins=_split(cors_origins),
        learn=learn,
        learn_timeout=learn_timeout,
        verify=verify,
        log_format=log_format,
        log_level=log_level,
        access_log=access_log,
        grace=grace,
        watch=watch,
        reload_timeout=reload_timeout,
        max_body_bytes=max_body_bytes,
        max_characters=max_characters,
        max_documents=max_documents,
        max_waiting=max_waiting,
        max_bytes_in_flight=max_bytes_in_flight,
        max_header_bytes=max_header_bytes,
        max_headers=max_headers,
        max_url_bytes=max_url_bytes,
        max_connections=max_connections,
        max_connections_per_client=max_connections_per_client,
        timeout=timeout,
        idle_timeout=idle_timeout,
        stuck_after=stuck_after,
    )
    set_up(log_format, log_level)
    opened = choose(settings)
    paths = {name: path for name, (path, _) in opened.items()}
    for name, (path, loaded) in opened.items():
        typer.echo(f"{name:16} {_describe(path, loaded)}")
    del opened
    if not settings.make_tokens() and host not in ("127.0.0.1", "::1", "localhost"):
        typer.echo("note: anyone who can reach this address can use the server; --token-file changes that", err=True)
    raise typer.Exit(serve(settings, paths, lambda address: typer.echo(f"serving at {address} (Ctrl-C stops)")))


def _split(names: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (names or "").split(",") if name.strip())


def _token_from_environment() -> str | None:
    token = os.environ.get("UMPTEEN_TOKEN")
    if token == "":
        raise ParamError(
            "UMPTEEN_TOKEN must hold a token or be unset, but is empty: the server would let everyone in"
        )
    return token


def _describe(path: str, loaded: Any) -> str:
    """A line about a model."""
    from umpteen.memory import format_bytes
    from umpteen.storage.store import ModelReader
    from umpteen.tagger import Tagger

    model = loaded.fitted() if isinstance(loaded, Tagger) else loaded
    taken = "texts" if isinstance(loaded, Tagger) and loaded.features_ is not None else "features"
    size = format_bytes(ModelReader(path).n_bytes())
    return f"{path} ({model.method}, {model.n_labels:,} labels, {size}, takes {taken})"
