"""Which part of a text features look at: all of it, or one field of a record.

A text that is no record counts as the first field, such as the title that someone types into a page; only training
insists on records, since features of other fields would learn nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umpteen.data.tables.record_text import FieldText
from umpteen.errors import DataError, ModelCorruptError, ParamError

_LONGEST_NAME = 10_000


def locate(text: str, field: str | None, first: str | None) -> tuple[int, int]:
    """From where to where a field stands in a text."""
    if field is None:
        return 0, len(text)
    if isinstance(text, FieldText):
        return text.place(field)
    return (0, len(text)) if field == first else (0, 0)


def take_field(texts: Sequence[Any], field: str | None, first: str | None) -> Sequence[Any]:
    """What each text has in a field. What is no text is left for features to refuse."""
    if field is None:
        return texts
    return [text[slice(*locate(text, field, first))] if isinstance(text, str) else text for text in texts]


def check_records(texts: Sequence[Any], fields: Sequence[str | None], first: int = 0) -> None:
    """Raises DataError for a text that is no record, if several fields are to be told apart."""
    names = list(dict.fromkeys(field for field in fields if field is not None))
    if len(set(fields)) < 2:
        return
    for number, text in enumerate(texts, first):
        if isinstance(text, str) and not isinstance(text, FieldText):
            raise DataError(f"text {number} must be a record with {', '.join(names)}, but is {text!r:.60}")


def check_fields(fields: Any, n_parts: int) -> list[str | None]:
    """The field of each part; None for the whole text."""
    if fields is None:
        return [None] * n_parts
    if isinstance(fields, str) or not isinstance(fields, Sequence) or len(fields) != n_parts:
        raise ParamError(f"fields must be {n_parts} names, one for each part, but is {fields!r:.100}")
    for field in fields:
        if field is not None and (not isinstance(field, str) or not 1 <= len(field) <= _LONGEST_NAME):
            raise ParamError(f"a field must be a name, or None for the whole text, but is {field!r:.100}")
    return list(fields)


def read_fields(fields: Any, n_parts: int) -> list[str | None]:
    """`check_fields` for a model, which is not trusted."""
    try:
        return check_fields(fields, n_parts)
    except ParamError as error:
        raise ModelCorruptError(str(error)) from error
