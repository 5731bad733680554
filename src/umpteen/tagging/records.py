"""Records in place of texts: dictionaries, or the rows of a table, become texts by the fields that a tagger reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from umpteen.data.arrow import as_list
from umpteen.data.corpus import gather
from umpteen.data.tables.fields import PARAMETERS, Fields
from umpteen.errors import ParamError
from umpteen.text.features import TextFeatures, fields_of
from umpteen.text.foreign import ForeignFeatures

#: Fields as a user names them.
FieldNames: TypeAlias = str | Sequence[str] | Mapping[str, int]


def find_fields(given: Fields | FieldNames | None, features: TextFeatures | None) -> Fields | None:
    """The fields to read: those given, else those that features tell apart."""
    own = fields_of(features)
    if given is None:
        return Fields.make(own, None) if own else None
    fields = given if isinstance(given, Fields) else Fields.make(given, None, words=PARAMETERS | {"text": "fields"})
    if missing := [name for name in own if name not in fields.texts]:
        raise ParamError(
            f"fields must have {', '.join(map(repr, missing))}, which the features read, but are "
            f"{', '.join(map(repr, fields.texts))}"
        )
    return fields


def read_records(texts: Any, fields: Callable[[], Fields | None], features: TextFeatures | None) -> Any:
    """Texts as they are, and records as the texts they hold. `fields` is only called for records."""
    if features is None or isinstance(features, ForeignFeatures):
        return texts
    texts = as_list(texts)
    if hasattr(texts, "columns") or hasattr(texts, "schema"):  # a table of pandas, polars or Arrow
        return gather(texts, _known(fields()).unlabelled()).texts
    if hasattr(texts, "to_pylist"):  # a column of Arrow
        texts = texts.to_pylist()
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
        return texts
    if isinstance(texts, list) and not any(isinstance(text, Mapping) for text in texts):
        return texts
    return _read_each(texts, fields)


def _read_each(texts: Iterable[Any], fields: Callable[[], Fields | None]) -> Iterator[Any]:
    known = None
    for number, text in enumerate(texts):
        if isinstance(text, Mapping):
            known = known or _known(fields())
            text = known.read_texts(text, f"text {number}")
        yield text


def _known(fields: Fields | None) -> Fields:
    if fields is None:
        raise ParamError(
            "texts are records, but this tagger does not know which fields to read; fit takes them as "
            'fields=["title", "abstract"]'
        )
    return fields
