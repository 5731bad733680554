"""Rows of a table in a file, one after the other: CSV, TSV, JSON lines, Annif's short texts, Parquet, Excel.

A row is a dict by column. Each row comes with its number: that of its first line, in Parquet its place from 0 on, in
Excel the number Excel shows.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from umpteen.data.files import COMPRESSED_SUFFIXES, PathLike
from umpteen.data.tables.columnar import cell_text, excel_rows, parquet_rows
from umpteen.data.tables.columns import hint_title, name_columns, refuse_twins
from umpteen.data.tables.fields import ANNIF_CSV, Fields, show
from umpteen.data.tables.lines import STANDARD_INPUT, decode_lines, parse_json_lines, read_pieces
from umpteen.data.tables.sniffing import (
    LONGEST_CELL,
    Dialect,
    Written,
    could_be,
    find_delimiter,
    find_encoding,
    find_quote,
    long_cells,
    read_cells,
    refuse_binary,
    skip_sep,
)
from umpteen.errors import DataError, ParamError
from umpteen.params import check_choice

FORMATS = ("jsonl", "csv", "tsv", "annif-tsv", "parquet", "excel")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "excel",
}
#: What is looked at to find out how a table is written.
SAMPLE = 1 << 20
SAMPLE_CHARACTERS = 1 << 16
_ROWS = 1024  # taken from a CSV reader at once

_UNCLOSED = "unexpected end of data"  # in the words of the csv module

Row = dict[str, Any]


def format_of_table(path: PathLike) -> str | None:
    """The format a file's name suggests; None if it suggests no table."""
    name = Path(path).name.lower()
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return _SUFFIXES.get(Path(name).suffix)


def check_format(path: PathLike, format: str | None) -> str:
    """The format of a table: what is given, or what its name suggests."""
    if format is None:
        format = format_of_table(path)
        if format is None:
            raise ParamError(f"{path}: its name does not show its format; format must be one of {', '.join(FORMATS)}")
    check_choice("format", format, FORMATS)
    return format


class Table:
    """The rows of a file, to be read once.

    Attributes
    ----------
    columns
        Their names; None for JSON lines, whose lines may have other fields.
    dialect
        How a text table is written; None for other formats.
    encoding
        That of the text; None where there is none.
    n_bytes, bytes_read
        How large the file is, where that says how long reading takes, and how far it was read.
    """

    def __init__(self, path: PathLike, format: str, given: Written, usual: Written) -> None:
        self.path, self.format = path, format
        self.columns: list[str] | None = None
        self.dialect: Dialect | None = None
        self.schema: Any = None
        self.n_bytes: int | None = None
        self.n_rows: int | None = None
        self.bytes_read = 0
        self.encoding: str | None = None
        self._given, self._usual = given, usual
        self._rows = self._open()

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        return self._rows

    def where(self, number: int) -> str:
        """The place of a row, for messages."""
        return f"{self.path}:{number}" if self.format not in ("parquet", "excel") else f"{self.path}: row {number}"

    def readable(self, row: Row, fields: Fields) -> Row:
        """A row with texts where fields must be texts; only Excel has numbers and dates there."""
        if self.format != "excel":
            return row
        return row | {name: cell_text(row[name]) for name in fields.names}

    def check_fields(self, fields: Fields) -> Fields:
        """Refuses a table that lacks a column; returns the fields to take."""
        if self.columns is None:
            return fields
        header = str(self.path) if self.format == "parquet" else self.where(1)
        return fields.check_columns(self.columns, header)

    # --- formats -------------------------------------------------------------------------------------------------

    def _open(self) -> Iterator[tuple[int, Row]]:
        if self.format == "parquet":
            self.columns, self.schema, self.n_rows, rows = parquet_rows(self.path)
            return rows
        if self.format == "excel":
            self.columns, self.n_rows, rows = excel_rows(self.path)
            return rows
        start, pieces = look(self._count(read_pieces(self.path)))
        usual = self._usual.encoding
        if self.format == "jsonl":
            self.encoding = self._given.encoding or (usual if usual and could_be(start, usual) else "utf-8")
            lines = decode_lines(self.path, pieces, self.encoding)
            return _check_objects(self.path, parse_json_lines(self.path, lines))
        refuse_binary(self.path, start)
        encoding = self.encoding = self._given.encoding or find_encoding(start, usual)
        lines = decode_lines(self.path, pieces, encoding)
        if self.format == "annif-tsv":
            self.dialect, self.columns = Dialect("\t", "", encoding), ["text", ANNIF_CSV]
            return _annif_rows(self.path, lines)
        return self._open_table(lines, encoding)

    def _count(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        if str(self.path) != STANDARD_INPUT and Path(self.path).suffix not in COMPRESSED_SUFFIXES:
            self.n_bytes = os.path.getsize(self.path) if os.path.isfile(self.path) else None  # noqa: PTH113, PTH202
        for piece in pieces:
            self.bytes_read += len(piece)
            yield piece

    def _open_table(self, lines: Iterator[str], encoding: str) -> Iterator[tuple[int, Row]]:
        first: list[str] = []
        size = 0
        for line in lines:  # whole lines, as many as show how the table is written
            first.append(line)
            size += len(line)
            if size >= SAMPLE_CHARACTERS:
                break
        named, first = skip_sep(first) if self.format == "csv" else (None, first)
        lines = chain(first, lines)
        sample = "".join(first)
        header = first[0] if first else ""
        given, usual = self._given, self._usual
        if given.delimiter is not None:
            delimiter = given.delimiter
        elif self.format == "tsv":
            delimiter = "\t"
            cells = header.rstrip("\r\n").split("\t")
            if "text" not in cells and len(cells) == 2 and _are_uris(cells[1]):
                self.format, self.columns = "annif-tsv", ["text", ANNIF_CSV]
                self.dialect = Dialect("\t", "", encoding)
                return _annif_rows(self.path, lines)
        else:
            delimiter = named or find_delimiter(sample, usual.delimiter, given.quote)
        quote = find_quote(header, delimiter, usual.quote) if given.quote is None else given.quote
        self.dialect = Dialect(delimiter, quote, encoding)
        rows = parse_csv(self.path, lines, self.dialect, 2 if named else 1)
        self.columns = read_header(self.path, next(rows, None))
        return _to_rows(self.path, self.columns, rows)


def open_table(
    path: PathLike,
    *,
    format: str | None = None,
    encoding: str | None = None,
    csv_delimiter: str | None = None,
    csv_quote: str | None = None,
    usual: Written | None = None,
) -> Table:
    """Opens a table. What is not given is found by looking at the file: `Table.dialect` says what was found.

    Parameters
    ----------
    path
        A file, or "-" for standard input, which needs a format.
    format
        One of jsonl, csv, tsv, annif-tsv, parquet and excel; by default from the file's name.
    encoding, csv_delimiter, csv_quote
        How a text table is written; csv_quote="none" if quotes are characters as any others.
    usual
        How tables such as this are written, for what looking does not show.
    """
    chosen = check_format(path, format)
    for name, value in (("csv_delimiter", csv_delimiter), ("csv_quote", csv_quote)):
        if value is not None and chosen not in ("csv", "tsv"):
            raise ParamError(f"{name} is for csv and tsv, but the format is {chosen}")
    return Table(path, chosen, Written.make(encoding, csv_delimiter, csv_quote), usual or Written())


def look(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The beginning of a file, and all of it."""
    start: list[bytes] = []
    size = 0
    for piece in pieces:
        start.append(piece)
        size += len(piece)
        if size >= SAMPLE:
            break
    return b"".join(start), chain(start, pieces)


def _check_objects(path: PathLike, rows: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Row]]:
    for number, row in rows:
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}: a line must hold a JSON object, but holds {show(row)}")
        yield number, row


def _refuse_nul(path: PathLike, lines: Iterable[str], first: int) -> Iterator[str]:
    for number, line in enumerate(lines, start=first):
        if "\0" in line:
            place = line.index("\0") + 1
            raise DataError(f"{path}:{number}: a table must not hold a NUL character, but character {place} is one")
        yield line


def read_header(path: PathLike, first: tuple[int, list[str]] | None) -> list[str]:
    if first is None:
        raise DataError(f"{path}: there must be a header with the names of the columns, but the file is empty")
    number, header = first
    header = name_columns(header, f"{path}:{number}")
    refuse_twins(header, f"{path}:{number}")
    return header


def _to_rows(path: PathLike, header: list[str], rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, Row]]:
    n = len(header)
    for number, cells in rows:
        yield number, dict(zip(header, cells)) if len(cells) == n else to_row(path, header, number, cells)  # noqa: B905


def to_row(path: PathLike, header: list[str], number: int, cells: list[str]) -> Row:
    """The cells of a line by column."""
    if len(cells) != len(header):
        raise DataError(
            f"{path}:{number}: there must be {len(header)} columns as in the header, but are {len(cells)}"
            f"{hint_title(header)}"
        )
    return dict(zip(header, cells, strict=True))


class UnclosedQuoteError(DataError):
    """A quote that is open at the end of the lines; `number` is that of its row."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


def parse_csv(
    path: PathLike, lines: Iterable[str], dialect: Dialect, first: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file that are not blank, each with the number of its first line; they are counted from
    `first` on."""
    lines = _refuse_nul(path, lines, first)
    reader = read_cells(lines, dialect.delimiter, dialect.quote)
    problem: csv.Error | None = None
    more = True
    while more:
        rows = []
        try:
            with long_cells():
                for _ in range(_ROWS):
                    number = reader.line_num + first
                    cells = next(reader, None)
                    if cells is None:
                        more = False
                        break
                    if cells:
                        rows.append((number, cells))
        except csv.Error as error:
            problem, more = error, False
        yield from rows
    if problem is not None:
        message = f"{path}:{number}: not valid CSV ({_explain(str(problem), dialect)})"
        if str(problem) == _UNCLOSED:
            raise UnclosedQuoteError(message, number) from problem
        raise DataError(message) from problem


def _explain(message: str, dialect: Dialect) -> str:
    if message == _UNCLOSED:
        return f"a {dialect.quote} opens a cell here and is never closed"
    if message.startswith("field larger"):
        return f"a cell must have at most {LONGEST_CELL:,} characters; perhaps a {dialect.quote} is never closed"
    if message.startswith("new-line character"):
        return (
            "a carriage return stands alone, as in files of old Macs; save it with other line ends, or quote the cell"
        )
    return message


def _are_uris(cell: str) -> bool:
    return bool(cell) and all(part.startswith("<") and part.endswith(">") for part in cell.split())


def _annif_rows(path: PathLike, lines: Iterator[str]) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        text, tab, uris = line.rstrip("\r\n").partition("\t")
        yield number, {"text": text, ANNIF_CSV: uris} if tab else {"text": text}
