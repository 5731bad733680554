"""The metrics kept beside a model, read as from somebody else: they are shown to every client."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import msgspec

from umpteen.errors import ModelError
from umpteen.serving.problems import log
from umpteen.storage.manifest import parse_json
from umpteen.storage.store import METRICS

_LARGEST = 1 << 20


def read_metrics(path: Path) -> dict[str, Any] | None:
    """What is in a model's metrics file, or None. A link is not followed: it may lead to any file of this machine."""
    file = path / METRICS
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else str(error.strerror)
        log.warning("%s: the metrics are not shown: %s", file, why)
        return None
    with os.fdopen(descriptor, "rb") as handle:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            log.warning("%s: the metrics are not shown: not a plain file of at most %d bytes", file, _LARGEST)
            return None
        content = handle.read(_LARGEST)
    try:
        metrics = parse_json(file, content)
        msgspec.json.encode(metrics)  # numbers that no answer can hold
    except (ModelError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        log.warning("the metrics are not shown: %s", error)
        return None
    return metrics
