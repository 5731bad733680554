"""umpteen serve"""

from __future__ import annotations

import importlib.util
import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from umpteen.cli.defaults import default_of
from umpteen.errors import MissingExtraError, ParamError

_LIMITS = "Limits"


def _default(name: str) -> Any:
    return default_of("umpteen.serving.settings:Settings", name)


def command(
    models: Annotated[
        list[str], typer.Argument(metavar="DIR…", help="Model directories, the default one first; ID=DIR names one.")
    ],
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = _default("host"),
    port: Annotated[int, typer.Option("--port", help="0 takes a free one.")] = _default("port"),
    workers: Annotated[
        int, typer.Option("--workers", help="Processes; they share one copy of the models.")
    ] = _default("workers"),
    threads: Annotated[
        int | None, typer.Option("--threads", help="Kernel threads per worker; by default the cores by the workers.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Holds the token clients must send; or $UMPTEEN_TOKEN."),
    ] = None,
    watch: Annotated[
        float,
        typer.Option("--watch", help="Seconds between looks at the model directories; 0 reloads on SIGHUP only."),
    ] = _default("watch"),
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
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds for an answer.", rich_help_panel=_LIMITS)
    ] = _default("timeout"),
) -> None:  # fmt: skip
    """Serve models over HTTP, with a page for people and an API for programs.

    A model that is trained anew in its place is taken up without a restart. Ctrl-C finishes what was accepted.

    umpteen serve tags.model

    umpteen serve new.model old=backup/tags.model --workers 4 --port 9000
    """
    missing = [name for name in ("starlette", "uvicorn", "msgspec") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"umpteen serve needs {', '.join(missing)}. Install what is missing with: pip install 'umpteen[serve]'"
        )
    from umpteen.serving.server import serve
    from umpteen.serving.settings import Settings, name_models

    settings = Settings(
        models=name_models(models),
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        token=_read_token(token_file),
        max_body_bytes=max_body_bytes,
        max_characters=max_characters,
        max_documents=max_documents,
        max_waiting=max_waiting,
        timeout=timeout,
        watch=watch,
    )
    logging.basicConfig(format="%(message)s")
    logging.getLogger("umpteen").setLevel(logging.INFO)
    for name, path in settings.models.items():
        typer.echo(f"{name:16} {_describe(path)}")
    if settings.token is None and host not in ("127.0.0.1", "::1", "localhost"):
        typer.echo("note: everybody who reaches this address may ask; --token-file asks for a token", err=True)
    raise typer.Exit(serve(settings, lambda address: typer.echo(f"serving at {address} (Ctrl-C stops)")))


def _read_token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("UMPTEEN_TOKEN") or None
    try:
        return file.read_text("ascii").strip()
    except UnicodeDecodeError:
        raise ParamError(f"{file}: the token must be visible ASCII characters, but is not") from None


def _describe(path: str) -> str:
    """A line about a model; raises what is wrong with it before anything is started."""
    from umpteen.memory import format_bytes
    from umpteen.storage.store import ModelReader
    from umpteen.tagger import Tagger, load

    loaded = load(path)
    model = loaded.fitted() if isinstance(loaded, Tagger) else loaded
    taken = "texts" if isinstance(loaded, Tagger) and loaded.features_ is not None else "features"
    size = format_bytes(ModelReader(path).n_bytes())
    return f"{path} ({model.method}, {model.n_labels:,} labels, {size}, takes {taken})"
