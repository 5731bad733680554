"""Text of others at a terminal: names and texts may hold anything, and a terminal obeys what is no character."""

from __future__ import annotations

import json
import re
from typing import Any

#: Control characters, which terminals obey; marks that turn the direction of writing or break lines; and halves of
#: characters, which cannot be written at all.
_CONTROLS = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_UNSAFE = re.compile(f"[\x00-\x1f{_CONTROLS}]")
_UNSAFE_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f{_CONTROLS}]")
_UNSAFE_IN_JSON = re.compile(f"[{_CONTROLS}]")


def printable(text: object, *, lines: bool = False) -> str:
    r"""Text as it can be shown: what a terminal would obey is written out, such as ``\x1b``. With `lines`, newlines
    and tabs stay.

    >>> printable("law\x1b[31m \u202efish")
    'law\\x1b[31m \\u202efish'
    """
    text = str(text)
    if lines:
        return _UNSAFE_IN_LINES.sub(_escape, text.replace("\r\n", "\n"))
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def counted(n: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def format_json(value: Any, *, indent: int | None = None, strict: bool = False) -> str:
    """JSON that can be printed and encoded, and is the same value when it is read. With `strict`, ValueError for
    numbers that JSON does not have."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=not strict)
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
