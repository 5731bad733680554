"""Messages about invalid requests, which name the field, its rule and its value.

msgspec has a notation of its own, ``Expected `str`, got `int` - at `$.documents[0].text```, which the author of a
client should not have to know.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_LABELS, _NAME = "a list of label names", "a label's name, as a string"
#: What each field must be.
RULES = {
    "text": "a string",
    "record": "an object of texts by field",
    "features": "an object of numbers by feature id, or a list of numbers",
    "documents": "a list of objects",
    "document_id": "a string",
    "model": "a model's id, as a string",
    "label": "a label's name, as a string",
    "top_k": 'an integer of at least 1, "auto" or null',
    "threshold": 'a number from 0 to 1, or "micro" or "macro"',
    "min_known": "a number from 0 to 1",
    "language": "a language's code such as fi, as a string, or null",
    "exclude": _LABELS,
    "include": _LABELS,
    "corrections": "a list of objects",
    "labels": _LABELS,
    "accepted": _LABELS,
    "rejected": _LABELS,
    "added": _LABELS,
    "documents[]": "an object",
    "corrections[]": "an object",
    "features[]": "a number",
    "record[]": "a string or null",
    "exclude[]": _NAME,
    "include[]": _NAME,
    "labels[]": _NAME,
    "accepted[]": _NAME,
    "rejected[]": _NAME,
    "added[]": _NAME,
}
_KINDS = {
    "str": "a string", "int": "a number", "float": "a number", "bool": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip
#: Annif's names for fields, which its users will try.
_HINTS = {"limit": "; it is called top_k here"}
_AT = re.compile(r"^(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?$", re.DOTALL)
_GOT = re.compile(r"Expected `[^`]*`, got `(\w+)`")
_ENUM = re.compile(r"Invalid enum value (.+)", re.DOTALL)
_LIMIT = re.compile(r"Expected `\w+` (?:>=|<=|>|<) \S+")
_LENGTH = re.compile(r"Expected `\w+` of length (>=|<=) (\d+)")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_LONGEST = 100


class Fault(NamedTuple):
    """What is wrong, and with which field, if any."""

    message: str
    field: str | None


def explain(found: str, fields: Sequence[str], inner: Sequence[str]) -> Fault:
    """A message of msgspec in plain words.

    Parameters
    ----------
    fields, inner
        The fields of the request, and of the documents in it.
    """
    parts = _AT.match(found)
    assert parts is not None  # it matches anything
    what, path = parts["what"], (parts["path"] or "").removeprefix(".")
    if unknown := _UNKNOWN.fullmatch(what):
        return _unknown(unknown[1], path, inner if path else fields)
    if missing := _MISSING.fullmatch(what):
        field = f"{path}.{missing[1]}" if path else missing[1]
        return Fault(f"{field} is missing; it must be {RULES.get(missing[1], 'there')}", field)
    if parts["key"]:
        return Fault(f"the feature ids in {path} must be whole numbers from 0 to {2**31 - 1}", path)
    value = _value(what)
    if value is None:
        return Fault(found, path or None)
    if not path:
        return Fault(f"the body must be a JSON object{value}", None)
    return Fault(f"{path} must be {_rule(path)}{value}", path)


def _unknown(name: str, path: str, known: Sequence[str]) -> Fault:
    name = name[:_LONGEST]
    place = f" in {path}" if path else ""
    hint = _HINTS.get(name, f"; there are {', '.join(known)}")
    return Fault(f"there is no field {name!r}{place}{hint}", f"{path}.{name}" if path else name)


def _rule(path: str) -> str:
    last = re.sub(r"\[[^\]]*\]$", "[]", path).rpartition(".")[2]  # msgspec writes [...] for the keys of an object
    return RULES.get(last, "of another type")


def _value(what: str) -> str | None:
    """The end of the sentence; None for an unknown message."""
    if got := _GOT.fullmatch(what):
        return f", but is {_KINDS.get(got[1], got[1])}"
    if length := _LENGTH.fullmatch(what):
        return f" of {'at least' if length[1] == '>=' else 'at most'} {length[2]} characters"
    if enum := _ENUM.fullmatch(what):
        return f", but is {enum[1][:_LONGEST]}"
    return "" if _LIMIT.fullmatch(what) else None
