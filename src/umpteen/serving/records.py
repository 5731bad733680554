"""A record in place of a text: its fields become the text that the model would have made of them in training."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from umpteen.data.tables.fields import Fields
from umpteen.errors import DataError
from umpteen.serving.problems import Problem


def join_record(document: Any, fields: Fields | None, most: int, place: str) -> str:
    """The text of a document's record.

    Parameters
    ----------
    fields
        Those the model remembers.
    most
        How many characters the text may have, with weights: a field that counts three times is there three times.
    place
        Where the document stands in the request, such as ``documents[3].``.
    """
    field = f"{place}record"
    if document.text is not UNSET or getattr(document, "features", UNSET) is not UNSET:
        raise _refuse(f"{field} must stand alone, but text or features are there too", field)
    if fields is None:
        raise _refuse(f"{field} cannot be taken: this model does not know which fields it was trained on", field)
    size = fields.count_characters(document.record)
    if size > most:
        message = f"{field} must have at most {most} characters, each field as often as it counts, but has {size}"
        raise Problem(413, "text_too_long", message, field=field)
    try:
        return fields.read_texts(document.record, field)
    except DataError as error:
        raise _refuse(str(error), field) from None


def _refuse(message: str, field: str) -> Problem:
    return Problem(422, "invalid_request", message, field=field)
