"""The server's log: a line per event, as text or as JSON.

A line has a message and fields that a program can search for:

    2026-11-18T09:30:00.125Z info tags: reloaded model=tags version=1f0c3a5b7d9e
    {"time": "2026-11-18T09:30:00.125Z", "level": "info", "message": "tags: reloaded", "model": "tags", …}

Whatever clients and model files put into it stays on its line: control characters are escaped.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
from typing import Any

_FIELDS = "umpteen_fields"


def note(log: logging.Logger, level: int, message: str, **fields: Any) -> None:
    """Writes an event. Fields that are None are left out."""
    log.log(level, "%s", message, extra={_FIELDS: {key: value for key, value in fields.items() if value is not None}})


def set_up(form: str, level: str, **fields: Any) -> None:
    """Sends this process's log to its standard error.

    Parameters
    ----------
    form
        "text" or "json".
    fields
        Fields of every line of this process.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(fields) if form == "json" else _Text(fields))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("umpteen").setLevel(level.upper())


class _Line(logging.Formatter):
    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__()
        self._fields = fields

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        return {**self._fields, **getattr(record, _FIELDS, {})}

    def time(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def trace(self, record: logging.LogRecord) -> str | None:
        return self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else None


class _Json(_Line):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": self.time(record), "level": record.levelname.lower(), "message": record.getMessage()}
        line |= {key: value for key, value in self.fields(record).items() if key not in line}
        if (trace := self.trace(record)) is not None:
            line["trace"] = trace
        return json.dumps(line, default=str)  # ASCII, without line breaks


class _Text(_Line):
    def format(self, record: logging.LogRecord) -> str:
        words = [self.time(record), record.levelname.lower(), _plain(record.getMessage())]
        words += [f"{key}={_plain(str(value))}" for key, value in self.fields(record).items()]
        line = " ".join(words)
        trace = self.trace(record)
        return line if trace is None else "\n".join([line, *map(_plain, trace.splitlines())])


def _plain(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
