"""What people say of suggestions: corrections of single texts, as lines of JSON.

    {"text": "…", "labels": ["cast-iron", "seasoning"]}                                 all labels that are right
    {"text": "…", "accepted": ["cast-iron"], "rejected": ["pan"], "added": ["rust"]}    what was said of some

`accepted` and `added` labels are right, `rejected` ones are wrong; nothing is known of the others. Instead of a text
there may be the fields that a model was trained on, such as a title and an abstract, and its field of labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umpteen.data.files import PathLike
from umpteen.data.tables.fields import Fields
from umpteen.data.tables.reading import Table, open_table
from umpteen.errors import DataError

_SOME = ("accepted", "rejected", "added")


@dataclass(frozen=True)
class Correction:
    """A text and what is known of its labels."""

    text: Any  # a string, or the number of a row
    right: Sequence[str]
    wrong: Sequence[str] = ()
    complete: bool = False  # whether all other labels are wrong

    @classmethod
    def from_json(cls, row: Any, where: str) -> Correction:
        """A correction as one object of JSON; error messages begin with `where`."""
        if not isinstance(row, dict):
            raise DataError(f"{where}: a correction must be a JSON object, but is {row!r:.60}")
        text = row.get("text")
        if not isinstance(text, str):
            raise DataError(f"{where}: there must be a field 'text' with a string, but it is {text!r:.60}")
        given = [name for name in ("labels", *_SOME) if row.get(name) is not None]
        if not given or ("labels" in given and len(given) > 1):
            raise DataError(
                f"{where}: a correction must have either 'labels' or some of 'accepted', 'rejected' and 'added', but "
                f"has {', '.join(map(repr, given)) or 'none of them'}"
            )
        lists = {name: _read_names(row, name, where) for name in given}
        return cls.make(text, lists.get("labels"), *(lists.get(name, []) for name in _SOME), where=where)

    @classmethod
    def make(
        cls,
        text: Any,
        labels: Sequence[str] | None,
        accepted: Sequence[str],
        rejected: Sequence[str],
        added: Sequence[str],
        *,
        where: str,
    ) -> Correction:
        """A correction from either all right labels or what was said of some."""
        if labels is not None:
            return cls(text, list(dict.fromkeys(labels)), (), True)
        right, wrong = list(dict.fromkeys([*accepted, *added])), list(dict.fromkeys(rejected))
        both = [name for name in right if name in wrong]
        if both:
            raise DataError(f"{where}: a label must not be both right and rejected, but {both[0]!r} is")
        if not right and not wrong:
            raise DataError(f"{where}: a correction must name a label, but names none")
        return cls(text, right, wrong)


def read_corrections(source: PathLike | Table, fields: Fields | None = None) -> list[Correction]:
    """The corrections in a file of JSON lines, compressed or not. `fields` are those of records."""
    table = source if isinstance(source, Table) else open_table(source, format="jsonl")
    places = ((table.where(number), row) for number, row in table)
    return [Correction.from_json(_join(row, fields, where), where) for where, row in places]


def _join(row: Any, fields: Fields | None, where: str) -> Any:
    """A record as a text with labels; anything else as it is."""
    if fields is None or (list(fields.texts), fields.labels) == (["text"], ("labels",)):
        return row
    if not isinstance(row, dict) or not all(name in row for name in fields.texts):
        return row
    said = {name: row[name] for name in ("labels", *_SOME) if row.get(name) is not None}
    if fields.labels and all(row.get(name) is not None for name in fields.labels) and not said.keys() & set(_SOME):
        said["labels"] = fields.read_all_labels(row, where)
    return {"text": fields.read_texts(row, where), **said}


def _read_names(row: Mapping[str, Any], name: str, where: str) -> list[str]:
    value = row[name]
    if not isinstance(value, list):
        raise DataError(f"{where}: {name} must be a list of label names, but is {value!r:.60}")
    for label in value:
        if not isinstance(label, str) or not label.strip():
            raise DataError(f"{where}: {name} must hold label names, but holds {label!r:.60}")
    return value
