"""The metrics kept beside a model. Every client sees them, so they are not trusted."""

from __future__ import annotations

from typing import Any

import msgspec

from umpteen.errors import ModelError
from umpteen.serving.problems import log
from umpteen.storage.store import ModelReader


def read_metrics(reader: ModelReader) -> dict[str, Any] | None:
    """The metrics of an opened model, or None. Its reader follows no links, which might lead to any file."""
    try:
        metrics = reader.metrics
        msgspec.json.encode(metrics)  # fails for numbers that JSON cannot hold
    except (ModelError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        log.warning("the metrics are not shown: %s", error)
        return None
    return metrics
