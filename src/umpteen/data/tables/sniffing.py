"""How a text table is written, found by looking at its beginning: encoding, delimiter, quotes.

encoding    a byte order mark, if there is one; UTF-16 by its zero bytes; UTF-8 where that is valid; else what
            Windows writes in Western Europe and America (Windows-1252), or Latin-1 where a byte is not of that
delimiter   what a first line such as sep=; says, as some programs write for Excel; else comma, semicolon, tab or bar:
            the one that gives all rows as many columns as the header
quotes      ', if the cells of the header stand in these; else "

What somebody has said of one table, the encoding, the delimiter or the quotes, holds for it; what a model was told in
training is used where looking does not show how it is.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from encodings.aliases import aliases
from typing import Any

from umpteen.data.files import PathLike
from umpteen.errors import DataError, ParamError
from umpteen.nearest import did_you_mean

DELIMITERS = (",", ";", "\t", "|")
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_ENCODINGS = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8 with a byte order mark",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "cp1252": "Windows-1252",
    "latin-1": "Latin-1",
}
#: What a cell may hold, so that a quote that is never closed does not take the rest of a large file into memory.
LONGEST_CELL = 1 << 27
_SEP = re.compile(r'"?sep=([^"\r\n])"?\r?\n?', re.IGNORECASE)
#: Lines that show which delimiter it is.
_LINES = 200
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")


@dataclass(frozen=True)
class Dialect:
    """How a text table is written."""

    delimiter: str = ","
    quote: str = '"'
    encoding: str = "utf-8"

    def __str__(self) -> str:
        between = _NAMES.get(self.delimiter, repr(self.delimiter))
        quotes = "" if self.quote == '"' else f", quotes {self.quote}" if self.quote else ", no quotes"
        return f"{between} between columns{quotes}, {show_encoding(self.encoding)}"


@dataclass(frozen=True)
class Written:
    """How text tables are written, as far as somebody has said; what is None is found by looking."""

    encoding: str | None = None
    delimiter: str | None = None
    quote: str | None = None  # empty: none

    @classmethod
    def make(cls, encoding: Any = None, delimiter: Any = None, quote: Any = None) -> Written:
        """What a user says, checked.

        >>> Written.make("UTF8", "tab", "none")
        Written(encoding='utf-8', delimiter='\\t', quote='')
        """
        delimiter = None if delimiter is None else check_delimiter(delimiter)
        return cls(
            None if encoding is None else check_encoding(encoding, "encoding"),
            delimiter,
            None if quote is None else _check_quote(quote, delimiter),
        )

    def or_else(self, other: Written) -> Written:
        """The same, and what only the other one has."""
        return Written(
            self.encoding or other.encoding,
            self.delimiter or other.delimiter,
            other.quote if self.quote is None else self.quote,
        )

    def as_dict(self) -> dict[str, str]:
        """Plain data, as a model keeps it."""
        facts = {"encoding": self.encoding, "delimiter": self.delimiter, "quote": self.quote}
        return {name: value for name, value in facts.items() if value is not None}

    @classmethod
    def from_dict(cls, facts: Any) -> Written:
        """What a model kept, which is not trusted: raises ParamError."""
        if not isinstance(facts, Mapping) or facts.keys() - {"encoding", "delimiter", "quote"}:
            raise ParamError(f"written must hold encoding, delimiter and quote, but is {facts!r:.100}")
        quote = facts.get("quote")
        return cls.make(facts.get("encoding"), facts.get("delimiter"), "none" if quote == "" else quote)

    def __str__(self) -> str:
        parts = []
        if self.delimiter is not None:
            parts.append(f"{_NAMES.get(self.delimiter, repr(self.delimiter))} between columns")
        if self.quote is not None:
            parts.append(f"quotes {self.quote}" if self.quote else "no quotes")
        return ", ".join([*parts, *([] if self.encoding is None else [show_encoding(self.encoding)])])


def check_delimiter(delimiter: Any) -> str:
    found = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter) if isinstance(delimiter, str) else None
    if found is None or len(found) != 1 or found in '"\r\n\0':
        raise ParamError(f"csv_delimiter must be one character such as ; or tab, but is {delimiter!r:.100}")
    return found


def _check_quote(quote: Any, delimiter: str | None) -> str:
    found = "" if quote == "none" else quote
    if not isinstance(found, str) or len(found) > 1 or (found == "" and quote == "") or found.isalnum():
        raise ParamError(f"csv_quote must be one character such as ' or \", or none, but is {quote!r:.100}")
    if found and (found in "\r\n\0 " or found in DELIMITERS or found == delimiter):
        raise ParamError(f"csv_quote must not be what stands between columns, but is {quote!r}")
    return found


def show_encoding(encoding: str) -> str:
    return _ENCODINGS.get(encoding, encoding)


#: How files begin that are no text, and what they are.
_OTHERS = (
    (b"PK\x03\x04", "an Excel file, or another archive"),
    (b"\xd0\xcf\x11\xe0", "an old Excel file"),
    (b"PAR1", "a Parquet file"),
)


def refuse_binary(path: PathLike, start: bytes) -> None:
    """Refuses spreadsheets under the name of a text table."""
    for mark, kind in _OTHERS:
        if start.startswith(mark):
            raise DataError(f"{path}: a table of text must be CSV or TSV, but this is {kind}; save it as CSV first")


def find_encoding(start: bytes, usual: str | None = None) -> str:
    """The encoding of a file by its first bytes; the usual one where these could be that and are nothing plain."""
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    half = len(start[:4096]) // 2
    if half >= 2:
        zeros = start[0 : 2 * half : 2].count(0), start[1 : 2 * half : 2].count(0)
        if max(zeros) > 0.4 * half and min(zeros) < 0.1 * half:
            return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
    if usual is not None and could_be(start, usual):
        return usual
    if is_mostly_utf8(start):
        return "utf-8"
    try:
        codecs.getincrementaldecoder("cp1252")().decode(start)
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def could_be(start: bytes, encoding: str) -> bool:
    """Whether a file could have an encoding, as its first bytes do not show another."""
    if any(start.startswith(mark) for mark, _ in _MARKS):
        return False
    plain = start.isascii()
    if not plain and (is_mostly_utf8(start) or encoding.startswith(("utf-16", "utf-32")) > (b"\0" in start)):
        return False
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeError:
        return False
    return not plain or text == start.decode("ascii")  # UTF-16, or such as UTF-7, would read something else


def is_mostly_utf8(start: bytes) -> bool:
    """Whether text is UTF-8, perhaps damaged: then it must be refused, rather than every é of it read as Ã©."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        good = _MULTIBYTE.findall(start)
        odd = sum(byte >= 0x80 for byte in start) - sum(map(len, good))
        return len(good) > odd
    return True


def check_encoding(encoding: str, parameter: str) -> str:
    """A text encoding that Python knows, by its usual name."""
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)
    except (LookupError, TypeError, ValueError) as error:
        hint = did_you_mean(encoding, sorted(set(aliases.values()))) if isinstance(encoding, str) else ""
        raise ParamError(
            f"{parameter} must be an encoding such as utf-8, utf-16, cp1252 or latin-1, but is "
            f"{encoding!r:.100}{hint}"
        ) from error
    return {"iso8859-1": "latin-1"}.get(name, name)


def skip_sep(lines: list[str]) -> tuple[str | None, list[str]]:
    """The delimiter that the first line names for Excel, if it does, and the lines of the table.

    >>> skip_sep(["sep=;\\n", "id;title\\n"])
    (';', ['id;title\\n'])
    """
    named = _SEP.fullmatch(lines[0]) if lines else None
    return (named[1], lines[1:]) if named else (None, lines)


def find_quote(line: str, delimiter: str, usual: str | None = None) -> str:
    """The quotes of a table by its header; the usual ones where that has none."""
    cells = line.rstrip("\r\n").split(delimiter)
    if cells != [""]:
        for quote in "'\"":
            if all(len(cell) >= 2 and cell[0] == cell[-1] == quote for cell in cells):
                return quote
    return '"' if usual is None else usual


def find_delimiter(text: str, usual: str | None = None, quote: str | None = None) -> str:
    """What stands between columns, by the first lines of a table. The usual delimiter is taken if it divides them as
    well as any other does, or if none does. `quote` is what is known of quotes."""
    best, best_score = usual or ",", (0.0, 0)
    for delimiter in DELIMITERS if usual is None else dict.fromkeys((usual, *DELIMITERS)):
        widths = _widths(text, delimiter, quote)
        if not widths or widths[0] < 2:
            continue
        score = sum(width == widths[0] for width in widths) / len(widths), widths[0]
        if score > best_score and (best != usual or score[0] > best_score[0]):
            best, best_score = delimiter, score
    return best


def _widths(text: str, delimiter: str, quote: str | None) -> list[int]:
    """How many columns each row has, as far as the text can be read."""
    lines = text.split("\n")
    quote = find_quote(lines[0], delimiter) if quote is None else quote
    reader = read_cells(io.StringIO("\n".join(lines[:_LINES]), newline=""), delimiter, quote)
    widths: list[int] = []
    with long_cells(), contextlib.suppress(csv.Error):
        # An error: cut off within quotes, or not this delimiter. What was read so far decides.
        widths.extend(len(cells) for cells in reader if cells)
    return widths


def read_cells(lines: Iterable[str], delimiter: str, quote: str) -> Any:
    """A reader of the csv module, which is strict."""
    if not quote:
        return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=True)
    return csv.reader(lines, delimiter=delimiter, quotechar=quote, strict=True)


class _Limit:
    """The csv module's limit of a cell, which is one for the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._before = 0

    @contextmanager
    def raised(self) -> Iterator[None]:
        with self._lock:
            if self._readers == 0:
                self._before = csv.field_size_limit(LONGEST_CELL)
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._readers == 0:
                    csv.field_size_limit(self._before)


#: Lets the csv module read cells of up to `LONGEST_CELL` characters, in a block. The limit is what it was before as
#: soon as no thread is in such a block: one that left first must not lower it for the others.
long_cells = _Limit().raised
