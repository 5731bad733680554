"""umpteen serve"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from umpteen.cli.defaults import default_of
from umpteen.errors import MissingExtraError, ParamError

_ACCESS = "Who may ask"
_RELOADING = "New models"
_LOGGING = "Log"
_LIMITS = "Limits"


def _default(name: str) -> Any:
    return default_of("umpteen.serving.settings:Settings", name)


def command(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR…",
            help="Model directories, the default one first; ID=DIR names one. A directory of model directories is "
            "one of versions: the last by name is served, or the one its file `current` names.",
        ),
    ],
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = _default("host"),
    port: Annotated[int, typer.Option("--port", help="0 takes a free one.")] = _default("port"),
    workers: Annotated[
        int, typer.Option("--workers", help="Processes; they share one copy of the models.")
    ] = _default("workers"),
    threads: Annotated[
        int | None, typer.Option("--threads", help="Kernel threads per worker; by default the cores by the workers.")
    ] = None,
    grace: Annotated[
        float, typer.Option("--grace", help="Seconds to finish open requests when the server is stopped.")
    ] = _default("grace"),
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", rich_help_panel=_ACCESS,
            help="Tokens that clients must send, one a line, each after its name; read again when the file changes. "
            "Or one token in $UMPTEEN_TOKEN.",
        ),
    ] = None,
    allowed_hosts: Annotated[
        str | None,
        typer.Option(
            "--allowed-hosts", metavar="NAME,…", rich_help_panel=_ACCESS,
            help="Names by which clients may call this server, beside localhost and the address it listens at; "
            "*.example.org for all below one, * for all.",
        ),
    ] = None,
    cors_origins: Annotated[
        str | None,
        typer.Option(
            "--cors-origins", metavar="ORIGIN,…", rich_help_panel=_ACCESS,
            help="Web sites whose pages may ask this server, such as https://example.org; * for all.",
        ),
    ] = None,
    watch: Annotated[
        float,
        typer.Option(
            "--watch", rich_help_panel=_RELOADING,
            help="Seconds between looks at model directories and token file; 0 looks on SIGHUP only.",
        ),
    ] = _default("watch"),
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", rich_help_panel=_RELOADING,
            help="Compare every byte of a model with its checksums before it is served.",
        ),
    ] = _default("verify"),
    reload_timeout: Annotated[
        float,
        typer.Option("--reload-timeout", rich_help_panel=_RELOADING, help="Seconds to open and try a changed model."),
    ] = _default("reload_timeout"),
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="text|json", rich_help_panel=_LOGGING, help="Form of a line.")
    ] = _default("log_format"),
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level", metavar="debug|info|warning|error", rich_help_panel=_LOGGING, help="Least that is written."
        ),
    ] = _default("log_level"),
    access_log: Annotated[
        bool, typer.Option("--access-log", rich_help_panel=_LOGGING, help="Write a line for each request.")
    ] = _default("access_log"),
    max_body_bytes: Annotated[
        int, typer.Option("--max-body-bytes", help="Of a request.", rich_help_panel=_LIMITS)
    ] = _default("max_body_bytes"),
    max_characters: Annotated[
        int, typer.Option("--max-characters", help="Of a text.", rich_help_panel=_LIMITS)
    ] = _default("max_characters"),
    max_documents: Annotated[
        int, typer.Option("--max-documents", help="In a batch.", rich_help_panel=_LIMITS)
    ] = _default("max_documents"),
    max_waiting: Annotated[
        int,
        typer.Option("--max-waiting", help="Texts that may wait for a model; more get 503.", rich_help_panel=_LIMITS),
    ] = _default("max_waiting"),
    max_bytes_in_flight: Annotated[
        int,
        typer.Option(
            "--max-bytes-in-flight", rich_help_panel=_LIMITS,
            help="Of requests being read and answers being written, in a worker; more get 503.",
        ),
    ] = _default("max_bytes_in_flight"),
    max_header_bytes: Annotated[
        int, typer.Option("--max-header-bytes", help="Of a request's header.", rich_help_panel=_LIMITS)
    ] = _default("max_header_bytes"),
    max_connections: Annotated[
        int,
        typer.Option(
            "--max-connections", rich_help_panel=_LIMITS,
            help="Of a worker; the one that has been idle longest makes room.",
        ),
    ] = _default("max_connections"),
    max_connections_per_client: Annotated[
        int,
        typer.Option("--max-connections-per-client", rich_help_panel=_LIMITS, help="Of one address, in a worker."),
    ] = _default("max_connections_per_client"),
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", rich_help_panel=_LIMITS,
            help="Seconds for a header to arrive, a body to arrive, an answer to be made, a client to read on.",
        ),
    ] = _default("timeout"),
    idle_timeout: Annotated[
        float,
        typer.Option(
            "--idle-timeout", rich_help_panel=_LIMITS, help="Seconds a connection may rest between two requests."
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

    A model that is trained anew in its place is taken up without a restart. Ctrl-C finishes what was accepted.

    umpteen serve tags.model

    umpteen serve new.model old=backup/tags.model --workers 4 --port 9000

    umpteen serve models/eurlex --token-file tokens --allowed-hosts tags.example.org
    """
    missing = [
        name for name in ("starlette", "uvicorn", "httptools", "msgspec") if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise MissingExtraError(
            f"umpteen serve needs {', '.join(missing)}. Install what is missing with: pip install 'umpteen[serve]'"
        )
    from umpteen.serving.logs import set_up
    from umpteen.serving.server import choose, serve
    from umpteen.serving.settings import Settings, name_models

    settings = Settings(
        models=name_models(models),
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        token=_token_from_environment() if token_file is None else None,
        token_file=str(token_file.absolute()) if token_file is not None else None,
        allowed_hosts=_split(allowed_hosts),
        cors_origins=_split(cors_origins),
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
        typer.echo("note: everybody who reaches this address may ask; --token-file asks for a token", err=True)
    raise typer.Exit(serve(settings, paths, lambda address: typer.echo(f"serving at {address} (Ctrl-C stops)")))


def _split(names: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (names or "").split(",") if name.strip())


def _token_from_environment() -> str | None:
    token = os.environ.get("UMPTEEN_TOKEN")
    if token == "":
        raise ParamError(
            "UMPTEEN_TOKEN is set, but empty: a server that was meant to ask for a token would let everybody in; "
            "give it a token, or unset it"
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
