"""How many threads to use."""

from __future__ import annotations

import os

from umpteen.params import check_count


def resolve_threads(threads: int | None) -> int:
    """The given number of threads, or one per core this process may run on."""
    if threads is not None:
        return check_count("threads", threads, high=4096)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
