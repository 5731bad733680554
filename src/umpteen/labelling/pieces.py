"""A table that arrives in pieces, each labelled by itself: nothing is kept between them but a cursor.

The first piece begins with the header, and shows how the table is written. Every later one has the bytes of the
header, then those from where the last piece ended. A piece may end anywhere: a row that is not whole is left for the
next.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umpteen.data.tables.fields import Fields
from umpteen.data.tables.lines import decode_lines
from umpteen.data.tables.reading import (
    SAMPLE,
    SAMPLE_CHARACTERS,
    UnclosedQuoteError,
    parse_csv,
    read_header,
    to_row,
)
from umpteen.data.tables.sniffing import (
    Dialect,
    Written,
    check_delimiter,
    find_delimiter,
    find_encoding,
    find_quote,
    refuse_binary,
    skip_sep,
)
from umpteen.data.tables.writing import make_writer
from umpteen.errors import DataError, ParamError
from umpteen.labelling.labeller import Labelled, Labeller
from umpteen.tagger import Tagger

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1")


@dataclass(frozen=True)
class Cursor:
    """How a table is written, and where its next row is.

    Attributes
    ----------
    header_bytes
        How many bytes the header takes, a byte order mark included.
    line
        The number of the next row's first line.
    """

    header_bytes: int
    encoding: str
    delimiter: str
    line: int

    def check(self, usual: Written) -> None:
        """Refuses what a client may have made up. `usual` is how the model's tables are written."""
        known = ENCODINGS if usual.encoding in (None, *ENCODINGS) else (*ENCODINGS, usual.encoding)
        if self.encoding not in known:
            raise ParamError(f"encoding must be one of {', '.join(map(str, known))}, but is {self.encoding!r:.50}")
        check_delimiter(self.delimiter)


@dataclass(frozen=True)
class Piece:
    """Rows of a table with their labels, as text; the first piece has the header.

    Attributes
    ----------
    consumed
        Bytes of the rows, without those of the header. None at all means that the piece was too short for a row.
    cursor
        Where to continue; None if not even the header was whole.
    """

    table: str
    consumed: int
    cursor: Cursor | None
    done: Labelled


def label_piece(
    tagger: Tagger,
    data: bytes,
    cursor: Cursor | None,
    *,
    last: bool,
    layout: str,
    how: Mapping[str, Any],
    name: str = "table",
    fields: Fields | None = None,
    most_rows: int,
    most_characters: int,
    most_answer: int | None = None,
    escape_formulas: bool = False,
    language: str | None = None,
) -> Piece:
    """Labels the rows of a piece that are whole, `most_rows` at most.

    Parameters
    ----------
    cursor
        What the last piece gave; None for the first.
    last
        Whether the table ends with this piece.
    how
        As for `Tagger.rank`.
    name
        That of the table, for messages.
    most_characters
        How long the text of a row may be.
    most_answer
        How many characters the texts may have, each field as often as it counts, and the answer, about, in the layout
        that repeats a row for each of its labels: there a small piece can become a thousand times as large. Rows that
        are too much are left for the next piece.
    escape_formulas, language
        As for `label_file`.
    """
    labeller = Labeller(tagger, layout, how, escape_formulas=escape_formulas, language=language)
    usual = Written() if tagger.fields_ is None else tagger.fields_.written
    first = cursor is None
    if cursor is None:
        cursor = _find_header(data, name, last, usual)
        if cursor is None:
            return Piece("", 0, None, labeller.done)
    elif not 0 < cursor.header_bytes <= len(data):
        raise ParamError(
            f"header_bytes must be from 1 to {len(data)}, the size of the piece, but is {cursor.header_bytes}"
        )
    else:
        cursor.check(usual)
    reader = _Reader(data, cursor, name, last, usual)
    fields = (fields or tagger.fields_ or Fields.make()).unlabelled()
    fields = fields.check_columns(reader.columns, f"{name}:1")
    rows, consumed, line = reader.take(most_rows)
    texts: list[str] = []
    size = 0
    for number, row in rows:
        n = fields.count_characters(row)
        if n > most_characters:
            raise DataError(
                f"{name}:{number}: a text must have at most {most_characters} characters here, but has {n}"
            )
        size += n
        if texts and most_answer is not None and size > most_answer:
            break
        texts.append(fields.read_texts(row, f"{name}:{number}"))
    answers = labeller.plan(reader.columns)
    out = io.BytesIO()
    format = "tsv" if cursor.delimiter == "\t" else "csv"
    columns = [*reader.columns, *answers.columns]
    writer = make_writer(format, out, columns, dialect=reader.dialect, begun=not first)
    if rows:
        writer.write(labeller.answer(answers, [row for _, row in rows[: len(texts)]], texts, most_answer))
        if not labeller.done.n_rows:
            raise DataError(
                f"{name}:{rows[0][0]}: a row with its labels in lines of their own must have at most {most_answer} "
                "characters in all here, but has more; ask for fewer labels or another layout"
            )
        if labeller.done.n_rows < len(rows):
            line = rows[labeller.done.n_rows][0]
            consumed = reader.size_before(line)
    writer.finish()
    labeller.done.n_cut = answers.n_cut
    after = Cursor(cursor.header_bytes, cursor.encoding, cursor.delimiter, line)
    return Piece(out.getvalue().decode(), consumed, after, labeller.done)


def _find_header(data: bytes, name: str, last: bool, usual: Written) -> Cursor | None:
    """Where the header ends and how the table is written; None if the header may go on."""
    refuse_binary(name, data)
    encoding = find_encoding(data[:SAMPLE], usual.encoding)
    lines = list(decode_lines(name, [data], encoding, whole=last))
    named, own = skip_sep(lines)
    delimiter = named or find_delimiter("".join(own)[:SAMPLE_CHARACTERS], usual.delimiter)
    dialect = Dialect(delimiter, find_quote(own[0] if own else "", delimiter, usual.quote), encoding)
    first = 1 + len(lines) - len(own)
    rows = parse_csv(name, own, dialect, first)
    try:
        header = next(rows, None)
        second = None if header is None else next(rows, None)
    except UnclosedQuoteError as error:
        if last:
            raise
        if error.number == first:
            return None
        second = (error.number, [])
    if second is None and not last:
        return None
    n_lines = len(lines) if second is None else second[0] - 1
    size = _size("".join(lines[:n_lines]), data, encoding, name)
    return Cursor(size if second is not None else len(data), encoding, delimiter, n_lines + 1)


def _size(text: str, data: bytes, encoding: str, name: str) -> int:
    """The bytes that a text took at the beginning of some data."""
    encoded = text.encode(encoding)
    if encoding not in ENCODINGS and not data.startswith(encoded):
        raise DataError(
            f"{name}: {encoding} has several ways to write some character of it, so that it cannot be labelled piece "
            "by piece; save it as UTF-8"
        )
    return len(encoded)


class _Reader:
    """The rows after the header."""

    def __init__(self, data: bytes, cursor: Cursor, name: str, last: bool, usual: Written) -> None:
        self._cursor, self._name, self._last = cursor, name, last
        self._data, encoding = data[cursor.header_bytes :], cursor.encoding
        _, head = skip_sep(list(decode_lines(name, [data[: cursor.header_bytes]], encoding)))
        quote = find_quote(head[0] if head else "", cursor.delimiter, usual.quote)
        self.dialect = Dialect(cursor.delimiter, quote, encoding)
        self.columns = read_header(name, next(parse_csv(name, head, self.dialect), None))
        if encoding == "utf-16":  # the mark that says which of the two stands before the header
            encoding = "utf-16-be" if data.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"
        self._encoding = "utf-8" if encoding == "utf-8-sig" else encoding
        self._lines: list[str] = []

    def take(self, most: int) -> tuple[list[tuple[int, dict[str, Any]]], int, int]:
        """The first rows with their numbers, the bytes they take, and the number of the line after them."""
        first = self._cursor.line
        lines = list(decode_lines(self._name, [self._data], self._encoding, number=max(first, 2), whole=self._last))
        self._lines = lines
        found: list[tuple[int, list[str]]] = []
        end: int | None = None  # the line before which the rows that are taken end
        try:
            for number, cells in parse_csv(self._name, lines, self.dialect, first):
                if len(found) == most:
                    end = number
                    break
                found.append((number, cells))
            else:
                if not self._last:
                    end = found.pop()[0] if found else first  # it may go on
        except UnclosedQuoteError as error:
            if self._last:
                raise
            end = error.number
        rows = [(number, to_row(self._name, self.columns, number, cells)) for number, cells in found]
        if end is None:
            return rows, len(self._data), first + len(lines)
        return rows, self.size_before(end), end

    def size_before(self, line: int) -> int:
        """The bytes of the lines before one, of those that were read."""
        text = "".join(self._lines[: line - self._cursor.line])
        return _size(text, self._data, self._encoding, self._name)
