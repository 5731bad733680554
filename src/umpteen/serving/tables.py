"""Tables over HTTP, piece by piece.

A piece is the body, as text/csv; the query says what to do with it and, after the first one, where the table goes on.
So a table of any size passes through requests of bounded size, and any worker may answer each.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET

from umpteen.data.tables.fields import Fields
from umpteen.data.tables.sniffing import DELIMITERS
from umpteen.errors import ParamError
from umpteen.labelling.answers import LAYOUTS
from umpteen.labelling.pieces import ENCODINGS, Cursor, label_piece
from umpteen.serving import schema
from umpteen.serving.problems import Problem
from umpteen.serving.served import OpenModel
from umpteen.serving.settings import Settings

MEDIA_TYPE = b"text/csv"
#: Memory that a piece takes besides its own bytes: as text, and as cells.
_BYTES_PER_BYTE, _BYTES_PER_CELL = 8, 96
_WORDS = {"text": "text", "labels": "labels", "label_delimiter": "label_delimiter", "id": "id"}
_LONGEST_NAME = 200


class TableQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a query may say. `_PARAMETERS` describes it to people."""

    model: str | None = None
    labels: Literal["wide", "list", "long"] = "wide"
    text: list[str] = []
    top_k: str | None = None
    threshold: str | None = None
    name: str = "table"
    escape_formulas: bool = False
    language: str | None = None
    last: bool = False
    header_bytes: int | None = None
    encoding: str | None = None
    delimiter: str | None = None
    line: int | None = None


def parse_query(pairs: list[tuple[str, str]], settings: Settings) -> TableQuery:
    """A query that is checked as far as that is possible without a model."""
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name == "text":
            given.setdefault("text", []).append(value)
        elif name not in TableQuery.__struct_fields__:
            raise _refuse(name[:50], f"is not a parameter; there are {', '.join(TableQuery.__struct_fields__)}")
        elif name in given:
            raise _refuse(name, "must be given once")
        else:
            given[name] = value
    for name in ("header_bytes", "line"):
        if name in given:
            given[name] = _whole(name, given[name], 2**53)
    for name in ("last", "escape_formulas"):
        if given.get(name, "0") not in ("0", "1"):
            raise _refuse(name, f"must be 0 or 1, but is {given[name]!r:.50}")
        given[name] = given.get(name) == "1"
    if given.get("labels", "wide") not in LAYOUTS:
        raise _refuse("labels", f"must be one of {', '.join(LAYOUTS)}, but is {given['labels']!r:.50}")
    query = TableQuery(**given)
    cursor = [query.header_bytes, query.encoding, query.delimiter, query.line]
    if any(part is None for part in cursor) and any(part is not None for part in cursor):
        raise _refuse("line", "header_bytes, encoding, delimiter and line must come together, as an answer gave them")
    if len(query.name) > _LONGEST_NAME:
        raise _refuse("name", f"must have at most {_LONGEST_NAME} characters, but has {len(query.name)}")
    _top_k(query, settings.max_top_k)
    _threshold(query)
    return query


def count_memory(body: bytes) -> int:
    """How many bytes it takes to read a piece, at most."""
    cells = sum(body.count(mark.encode()) for mark in (*DELIMITERS, "\n"))
    return _BYTES_PER_BYTE * len(body) + _BYTES_PER_CELL * cells


def label_table(model: OpenModel, query: TableQuery, body: bytes, settings: Settings) -> bytes:
    """The answer to a piece."""
    if model.tagger is None:
        raise ParamError("this model needs features, not texts: it was trained on numbers")
    cursor = None
    if query.line is not None:
        assert query.header_bytes is not None
        assert query.encoding is not None
        assert query.delimiter is not None
        cursor = Cursor(query.header_bytes, query.encoding, query.delimiter, query.line)
    how = {
        "top_k": _top_k(query, settings.max_top_k),
        "threshold": _threshold(query),
        "exclude": None,
        "include": None,
        "threads": settings.kernel_threads,
        "engine": "local",
        "min_known": 0.0,
    }
    piece = label_piece(
        model.tagger,
        body,
        cursor,
        last=query.last,
        layout=query.labels,
        how=how,
        name=query.name,
        fields=Fields.make(query.text, None, words=_WORDS) if query.text else None,
        most_rows=settings.max_documents,
        most_characters=settings.max_characters,
        most_answer=2 * settings.max_body_bytes,
        escape_formulas=query.escape_formulas,
        language=query.language,
    )
    after, done = piece.cursor, piece.done
    return msgspec.json.encode(
        schema.TableResponse(
            table=piece.table,
            consumed=piece.consumed,
            rows=done.n_rows,
            labels=done.n_labels,
            without=done.n_without,
            next=UNSET if after is None else schema.TableCursor(
                after.header_bytes, after.encoding, after.delimiter, after.line
            ),
        )
    )  # fmt: skip


def describe_parameters(settings: Settings, models: list[str]) -> list[dict[str, Any]]:
    """The query for the OpenAPI document."""
    whole = {"type": "integer", "minimum": 1, "maximum": 2**53}
    described: dict[str, tuple[dict[str, Any], str]] = {
        "model": ({"type": "string", "examples": models}, "Id of the model; by default the server's first."),
        "labels": ({"enum": list(LAYOUTS)}, "Labels in columns of their own, in one, or in lines of their own."),
        "text": (
            {"type": "array", "items": {"type": "string"}},
            "Columns with text, title^2 for one that counts twice; by default those the model was trained on.",
        ),
        "top_k": ({"type": "string"}, f'As many labels, {settings.max_top_k} at most, or "auto".'),
        "threshold": ({"type": "string"}, 'Lowest probability, or "micro" or "macro".'),
        "name": ({"type": "string", "maxLength": _LONGEST_NAME}, "Name of the table, for messages."),
        "escape_formulas": ({"enum": ["0", "1"]}, "1 writes ' before labels that a spreadsheet may run as formulas."),
        "language": ({"type": "string"}, "The language of names, such as fi, for models with a vocabulary."),
        "last": ({"enum": ["0", "1"]}, "1 if the table ends with this piece."),
        "header_bytes": (whole, "From the last answer, as the next three: how many bytes of header the body has."),
        "encoding": ({"enum": list(ENCODINGS)}, "How the table is written."),
        "delimiter": ({"type": "string", "minLength": 1, "maxLength": 1}, "What stands between columns."),
        "line": (whole, "Number of the first line after the header."),
    }
    return [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": words}
        for name, (schema, words) in described.items()
    ]


def _top_k(query: TableQuery, most: int) -> int | str | None:
    if query.top_k in (None, "auto"):
        return query.top_k
    return _whole("top_k", query.top_k or "", most)


def _threshold(query: TableQuery) -> float | str | None:
    if query.threshold in (None, "micro", "macro"):
        return query.threshold
    try:
        value = float(query.threshold or "")
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise _refuse("threshold", f"must be a number from 0 to 1, micro or macro, but is {query.threshold!r:.50}")
    return value


def _whole(name: str, value: str, most: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 18 and 1 <= int(value) <= most):
        raise _refuse(name, f"must be a whole number from 1 to {most}, but is {value!r:.50}")
    return int(value)


def _refuse(field: str, rule: str) -> Problem:
    return Problem(422, "invalid_request", f"{field} {rule}", field=field)
