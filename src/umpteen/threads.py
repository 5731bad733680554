"""How many threads to use."""

from __future__ import annotations

import os

from umpteen.errors import ParamError


def resolve_threads(threads: int | None) -> int:
    """The given number, or one per core this process may run on."""
    if threads is None:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    if isinstance(threads, bool) or int(threads) != threads or threads < 1:
        raise ParamError(f"threads must be an integer of at least 1, but is {threads!r}")
    return int(threads)
