"""Which columns of a table are meant: its texts, its labels, its ids.

    title^3 and abstract    texts are joined by a newline; the words of the title count three times
    subjects                a list; a string of labels with a delimiter between them; a list of strings as JSON
    subject_1 and subject_2 labels of all columns; without a delimiter each cell is one label
    record                  what identifies a row

A model of texts remembers its fields as plain JSON, which is checked when it is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from umpteen.data.tables.record_text import FieldText
from umpteen.data.tables.sniffing import Written
from umpteen.errors import DataError, ParamError
from umpteen.nearest import did_you_mean

ANNIF_JSON, ANNIF_CSV = "subjects", "subject_uris"
#: How often the words of a field may count, and how many fields there may be.
MOST_WEIGHT = 100
MOST_FIELDS = 1000
_LONGEST_NAME = 10_000
_WEIGHT = re.compile(r"(?P<name>.+)\^(?P<weight>[0-9]{1,9})", re.DOTALL)
#: What messages call the parameters; the command line has other words.
PARAMETERS = {"text": "text", "labels": "labels", "label_delimiter": "label_delimiter", "id": "id"}


class Record(NamedTuple):
    """One row of a corpus."""

    text: str
    labels: list[str]


@dataclass(frozen=True)
class Fields:
    """Which fields to take and how to read them. `where` is the file and line, or the row, for messages."""

    texts: Mapping[str, int]  # and how often the words of each count
    labels: tuple[str, ...] | None = None
    delimiter: str | None = None
    id: str | None = None
    #: How tables are written, as far as somebody has said.
    written: Written = field(default_factory=Written)
    words: Mapping[str, str] = field(default_factory=lambda: PARAMETERS, compare=False, repr=False)

    @classmethod
    def make(
        cls,
        text: str | Sequence[str] | Mapping[str, int] = "text",
        labels: str | Sequence[str] | None = "labels",
        label_delimiter: str | None = None,
        id: str | None = None,
        words: Mapping[str, str] = PARAMETERS,
    ) -> Fields:
        """Fields as a user names them: several in a list, weights as ``title^3`` or by name.

        >>> Fields.make(["title^3", "abstract"], "tags", ";").texts
        {'title': 3, 'abstract': 1}
        """
        if labels is not None and not isinstance(labels, str) and not _are_names(labels):
            raise ParamError(
                f"{words['labels']} must be the name of a field, several names or None, but is {labels!r:.200}"
            )
        if label_delimiter is not None and (not isinstance(label_delimiter, str) or not label_delimiter):
            raise ParamError(
                f"{words['label_delimiter']} must be a string of at least one character, but is {label_delimiter!r}"
            )
        if id is not None and not isinstance(id, str):
            raise ParamError(f"{words['id']} must be the name of a field or None, but is {id!r:.200}")
        names = None if labels is None else (labels,) if isinstance(labels, str) else tuple(dict.fromkeys(labels))
        return cls(_read_weights(text, words["text"]), names, label_delimiter, id, words=words)

    @property
    def names(self) -> list[str]:
        """All columns, each once."""
        return list(dict.fromkeys([*self.texts, *(self.labels or ()), *(() if self.id is None else (self.id,))]))

    @cached_property
    def _only(self) -> str | None:
        """The field that is the text as it stands, if there is only one; most tables are read so."""
        return next(iter(self.texts)) if list(self.texts.values()) == [1] else None

    def text_names(self) -> list[str]:
        """The columns with text as a user names them, with their weights."""
        return [name if weight == 1 else f"{name}^{weight}" for name, weight in self.texts.items()]

    def unlabelled(self) -> Fields:
        """The same where only texts are taken: nothing else has to be there."""
        return replace(self, labels=None, id=None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as a model keeps it."""
        facts = {
            "text": [[name, weight] for name, weight in self.texts.items()],
            "labels": None if self.labels is None else list(self.labels),
            "label_delimiter": self.delimiter,
            "id": self.id,
        }
        return facts | ({"written": written} if (written := self.written.as_dict()) else {})

    @classmethod
    def from_dict(cls, facts: Any) -> Fields:
        """Fields as a model kept them, which are not trusted: raises ParamError."""
        if not isinstance(facts, Mapping):
            raise ParamError(f"fields must be an object, but are {facts!r:.100}")
        text = facts.get("text")
        if not isinstance(text, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in text):
            raise ParamError(f"text must be a list of names and weights, but is {text!r:.100}")
        if not all(isinstance(name, str) for name, _ in text) or len({name for name, _ in text}) != len(text):
            raise ParamError(f"text must name each field once, but is {text!r:.100}")
        labels, delimiter, id = facts.get("labels"), facts.get("label_delimiter"), facts.get("id")
        found = replace(
            cls.make(dict(text), labels, delimiter, id), written=Written.from_dict(facts.get("written", {}))
        )
        for name in [*found.names, delimiter or ""]:
            if len(name) > _LONGEST_NAME:
                raise ParamError(f"the name of a field must have at most {_LONGEST_NAME} characters")
        return found

    def __str__(self) -> str:
        parts = [f"text from {' and '.join(self.text_names())}"]
        if self.labels is not None:
            between = "" if self.delimiter is None else f", separated by {self.delimiter!r}"
            parts.append(f"labels from {' and '.join(self.labels)}{between}")
        if self.id is not None:
            parts.append(f"ids from {self.id}")
        return "; ".join(parts)

    # --- a table ------------------------------------------------------------------------------------------------

    def check_columns(self, columns: Sequence[Any], where: str) -> Fields:
        """Refuses a table that lacks a column. Returns the fields to take, which in an Annif table are Annif's."""
        fields = self
        if self.labels == ("labels",) and "labels" not in columns and ANNIF_CSV in columns:
            fields = replace(self, labels=(ANNIF_CSV,), delimiter=" ")
        known = set(columns)
        for name in fields.names:
            if name not in known:
                shown = ", ".join(map(show, list(columns)[:50]))
                hint = did_you_mean(name, map(str, columns)) or f"; {self._parameter(name)} names another"
                raise DataError(f"{where}: there must be a column {show(name)}, but the columns are {shown}{hint}")
        return fields

    def _parameter(self, name: str) -> str:
        kind = "text" if name in self.texts else "id" if name == self.id else "labels"
        return self.words[kind]

    # --- a row --------------------------------------------------------------------------------------------------

    def read(self, row: Mapping[str, Any], where: str) -> Record:
        return Record(self.read_texts(row, where), [] if self.labels is None else self.read_all_labels(row, where))

    def count_characters(self, row: Mapping[str, Any]) -> int:
        """How long the text of a row is, without making it: a field that counts three times is there three times."""
        texts = ((row.get(name), weight) for name, weight in self.texts.items())
        return sum(len(text) * weight for text, weight in texts if isinstance(text, str))

    def read_texts(self, row: Mapping[str, Any], where: str) -> str:
        """The texts of a row, joined; one with a weight as many times. Of several fields, it knows their places."""
        if self._only is not None and isinstance(text := row.get(self._only), str):
            return text
        found: list[str] = []
        places: list[tuple[str, int, int]] = []
        size = 0
        for name, weight in self.texts.items():
            if name not in row:
                raise self._lacks(row, name, where)
            value = row[name]
            if isinstance(value, str):
                found.extend([value] * weight)
                places.append((name, size, size + len(value)))
                size += weight * (len(value) + 1)
            # Of several fields, some rows may lack one, such as an abstract.
            elif len(self.texts) == 1 or not is_missing(value):
                self.read_text(value, name, where)
        return found[0] if len(self.texts) == 1 and len(found) == 1 else FieldText("\n".join(found), tuple(places))

    def read_all_labels(self, row: Mapping[str, Any], where: str) -> list[str]:
        assert self.labels is not None
        found: dict[str, None] = {}
        for name in self.labels:
            if name == "labels" and name not in row and ANNIF_JSON in row:
                name = ANNIF_JSON
            if name not in row:
                raise self._lacks(row, name, where)
            found |= dict.fromkeys(self.read_labels(row[name], name, where))
        return list(found)

    def read_id(self, row: Mapping[str, Any], where: str) -> str:
        """What identifies a row."""
        assert self.id is not None
        if self.id not in row:
            raise self._lacks(row, self.id, where)
        value = row[self.id]
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
            raise DataError(f"{where}: {self.id} must be a string or a whole number, but is {show(value)}")
        return str(value)

    def _lacks(self, row: Mapping[str, Any], name: str, where: str) -> DataError:
        if name == ANNIF_CSV:
            return DataError(f"{where}: subjects must follow the text and a tab, but there is no tab")
        known = ", ".join(map(show, list(row)[:20])) or "none"
        hint = did_you_mean(name, map(str, list(row)[:200]))
        return DataError(f"{where}: there must be a field {name!r}, but the fields are {known}{hint}")

    def read_text(self, value: Any, name: str, where: str) -> str:
        if not isinstance(value, str):
            raise DataError(f"{where}: {name} must be a string, but is {show(value)}")
        return value

    def read_labels(self, value: Any, name: str, where: str) -> list[str]:
        if isinstance(value, str):
            return self._split_labels(value, name, where)
        if is_missing(value):
            return []
        if hasattr(value, "tolist"):  # numpy, as pandas reads lists from Parquet
            value = value.tolist()
        if isinstance(value, (set, frozenset)):
            value = sorted(value, key=str)  # a set's own order changes from run to run
        if not isinstance(value, (list, tuple)):
            raise DataError(f"{where}: {name} must be a list of strings or a string, but is {show(value)}")
        return _read_list(value, name, where)

    def _split_labels(self, value: str, name: str, where: str) -> list[str]:
        if not value.strip():
            return []
        listed = _parse_list(value)
        if listed is not None:
            return _read_list(listed, name, where)
        if self.delimiter is None:
            if self.labels is not None and len(self.labels) > 1:
                return [value.strip()]
            raise DataError(
                f"{where}: {name} must be a list, but is the string {show(value)}; "
                f"{self.words['label_delimiter']} names what separates its labels"
            )
        parts = value.split() if self.delimiter == " " else [part.strip() for part in value.split(self.delimiter)]
        if name == ANNIF_CSV:
            parts = [strip_brackets(part) for part in parts]
        if "" in parts:
            raise DataError(f"{where}: {name} must not hold an empty label, but is {show(value)}")
        return list(dict.fromkeys(parts))


def _read_weights(text: Any, parameter: str) -> dict[str, int]:
    if isinstance(text, Mapping):
        weights = dict(text)
    elif isinstance(text, str) or _are_names(text):
        names = [text] if isinstance(text, str) else list(text)
        pairs = [(found["name"], int(found["weight"])) if (found := _WEIGHT.fullmatch(name)) else (name, 1)
                 for name in names]  # fmt: skip
        weights = dict(pairs)
        if len(weights) != len(pairs):
            raise ParamError(f"{parameter} must name each field once, but is {text!r:.200}")
    else:
        raise ParamError(f"{parameter} must be the name of a field or several names, but is {text!r:.200}")
    if not weights or not _are_names(list(weights)):
        raise ParamError(f"{parameter} must be the name of a field or several names, but is {text!r:.200}")
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= MOST_WEIGHT:
            raise ParamError(
                f"the weight of {parameter} {name!r:.100} must be a whole number from 1 to {MOST_WEIGHT}, "
                f"but is {weight!r:.100}"
            )
    return weights


def _are_names(names: Any) -> bool:
    return (
        isinstance(names, Iterable)
        and not isinstance(names, (str, bytes, Mapping))
        and 0 < len(names := list(names)) <= MOST_FIELDS
        and all(isinstance(name, str) for name in names)
    )


def _parse_list(value: str) -> list[str] | None:
    """A list of strings that a cell holds as JSON; None for anything else, such as a label in brackets."""
    if value.lstrip()[:1] != "[":
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(label, str) for label in found) else None


def _read_list(value: Iterable[Any], name: str, where: str) -> list[str]:
    found: dict[str, None] = {}
    for i, label in enumerate(value):
        if isinstance(label, dict):  # Annif's subjects
            label = label.get("uri") or label.get("label") or label
        if not isinstance(label, str):
            raise DataError(f"{where}: {name}[{i}] must be a string, but is {show(label)}")
        if not label.strip():
            raise DataError(f"{where}: {name}[{i}] must not be empty, but is {label!r}")
        found[label] = None
    return list(found)


def strip_brackets(uri: str) -> str:
    return uri.removeprefix("<").removesuffix(">")


def is_missing(value: Any) -> bool:
    """None, or what pandas uses for it."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def show(value: Any) -> str:
    shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
