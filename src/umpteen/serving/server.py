"""From settings to a running server."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping
from typing import Any

from umpteen.errors import UmpteenError
from umpteen.serving.listening import bind
from umpteen.serving.logs import note
from umpteen.serving.problems import log
from umpteen.serving.settings import Settings
from umpteen.serving.supervisor import Supervisor
from umpteen.serving.versions import candidates
from umpteen.tagger import load


def choose(settings: Settings) -> dict[str, tuple[str, Any]]:
    """For each model, the best directory that can be loaded, and what was loaded from it."""
    return {model: _choose(model, path, settings.verify) for model, path in settings.models.items()}


def _choose(model: str, path: str, verify: bool) -> tuple[str, Any]:
    first: UmpteenError | None = None
    for option in candidates(path):
        try:
            return option, load(option, checksums=verify)
        except UmpteenError as error:
            first = first or error
            note(log, logging.WARNING, f"{model}: this version cannot be used: {error}", model=model, path=option)
    assert first is not None  # there is always a candidate
    raise first


def serve(
    settings: Settings, paths: Mapping[str, str], on_address: Callable[[str], None] = lambda address: None
) -> int:
    """Serves until a signal stops it; returns the exit code.

    Parameters
    ----------
    paths
        The directories to start with, by model; see `choose`.
    on_address
        Called with the address, as soon as it is answered.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    with bind(settings.host, settings.port, shared=True) as holder:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = f"http://{host}:{holder.getsockname()[1]}"
        return Supervisor(settings, holder, paths).run(lambda: on_address(address))
