"""Rows of a table into a file: CSV, TSV, JSON lines, Parquet, Excel.

    CSV, TSV    a cell of several values is joined by a delimiter, or is JSON where that stands in a value
    JSON lines  values stay what they are; a number that is none, or infinite, is null, as JSON has no such numbers
    Parquet     a column has one type: that of the table it comes from, else that of its first rows
    Excel       text stays text, even where it begins with =; a cell has at most 32,767 characters, a sheet 1,048,576
                rows

A writer appends to a file that is open. What was written can be continued after an interruption, but for Excel.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Protocol

from umpteen.data.tables.columnar import DATES, date_text, import_openpyxl, import_pyarrow
from umpteen.data.tables.fields import show
from umpteen.data.tables.sniffing import Dialect
from umpteen.errors import DataError, ParamError
from umpteen.nearest import did_you_mean
from umpteen.printing import format_json

#: Formats of which a beginning can be kept and continued.
CONTINUABLE = ("csv", "tsv", "jsonl", "parquet")
WRITABLE = ("csv", "tsv", "jsonl", "parquet", "excel")
_LONGEST_CELL = 32_767
_MOST_ROWS = 1_048_576
_NOT_IN_EXCEL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")

Rows = Sequence[Mapping[str, Any]]


class TableWriter(Protocol):
    """Writes rows with the same columns, and what a format has at its end."""

    def write(self, rows: Rows) -> None: ...
    def finish(self) -> None: ...
    def abandon(self) -> None: ...


def make_writer(
    format: str,
    file: IO[bytes],
    columns: Sequence[str],
    *,
    dialect: Dialect | None = None,
    schema: Any = None,
    begun: bool = False,
    continuable: bool = False,
) -> TableWriter:
    """A writer of rows with these columns.

    Parameters
    ----------
    dialect
        How the table that rows come from is written, which is kept where possible; see `CsvWriter`.
    schema
        The Arrow types of columns that are known.
    begun
        Whether the file already holds the beginning of the table.
    continuable
        Whether what is written before an interruption must serve to go on.
    """
    if format in ("csv", "tsv"):
        return CsvWriter(file, columns, format, dialect, begun)
    if format == "jsonl":
        return JsonWriter(file)
    if format == "parquet":
        return ParquetParts(file, columns, schema, begun) if continuable else ParquetWriter(file, columns, schema)
    if format == "excel":
        return ExcelWriter(file, columns)
    hint = did_you_mean(format, WRITABLE)
    raise ParamError(f"format must be one of {', '.join(WRITABLE)}, but is {format!r}{hint}")


class CsvWriter:
    """A table with the delimiter of the one it comes from. It is UTF-8; it begins with a byte order mark, by which
    Excel knows that, if the other one did or was not UTF-8."""

    def __init__(
        self, file: IO[bytes], columns: Sequence[str], format: str, dialect: Dialect | None, begun: bool
    ) -> None:
        self._file, self._columns = file, list(columns)
        delimiter = "\t" if format == "tsv" else dialect.delimiter if dialect and dialect.delimiter != "\t" else ","
        # The rows of a text table have all columns, and nothing but strings and numbers in them.
        self._plain = itemgetter(*self._columns) if dialect is not None and len(self._columns) > 1 else None
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text, delimiter=delimiter)
        if not begun:
            if dialect is not None and dialect.encoding != "utf-8":
                file.write(b"\xef\xbb\xbf")
            self._writer.writerow(self._columns)
            self._flush()

    def write(self, rows: Rows) -> None:
        if self._plain:
            self._writer.writerows(map(self._plain, rows))
        else:
            self._writer.writerows([_as_cell(row.get(name)) for name in self._columns] for row in rows)
        self._flush()

    def _flush(self) -> None:
        self._file.write(self._text.getvalue().encode("utf-8", "replace"))
        self._text.seek(0)
        self._text.truncate()

    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass


def _as_cell(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, DATES):
        return date_text(value)
    return format_json(value) if isinstance(value, (list, dict, bool)) else value


class JsonWriter:
    """One object a line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, rows: Rows) -> None:
        try:
            lines = [format_json(row, strict=True) for row in rows]
        except (TypeError, ValueError):  # dates of Excel and Parquet, numbers that JSON does not have
            lines = [format_json(_plain(row), strict=True) for row in rows]
        self._file.write("".join(line + "\n" for line in lines).encode())

    def finish(self) -> None:
        pass

    def abandon(self) -> None:
        pass


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    return date_text(value) if isinstance(value, DATES) else str(value)


class ParquetWriter:
    """Columns get their types from the schema or, where it has none, from the first rows."""

    def __init__(self, file: IO[bytes], columns: Sequence[str], schema: Any) -> None:
        self._arrow = import_pyarrow("writing Parquet")
        self._file, self._columns = file, list(columns)
        self._known = {} if schema is None else {field.name: field for field in schema}
        self._schema: Any = None
        self._writer: Any = None

    def write(self, rows: Rows) -> None:
        self._begin(rows)
        self._writer.write_table(self._make_table(rows))

    def _make_table(self, rows: Rows) -> Any:
        arrays = [self._column(rows, name) for name in self._columns]
        return self._arrow.Table.from_arrays(arrays, schema=self._schema)

    def _column(self, rows: Rows, name: str) -> Any:
        field = self._schema.field(name)
        values = [row.get(name) for row in rows]
        try:
            return self._arrow.array(values, type=field.type)
        except (self._arrow.lib.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"column {name!r} must be of one type, {field.type}, in Parquet, but is not ({error})"
            ) from error

    def _begin(self, rows: Rows) -> None:
        if self._writer is None:
            self._find_schema(rows)
            self._writer = self._arrow.parquet.ParquetWriter(self._file, self._schema)

    def _find_schema(self, rows: Rows) -> None:
        if self._schema is None:
            self._schema = self._arrow.schema(
                [self._known.get(name) or self._infer(rows, name) for name in self._columns]
            )

    def _infer(self, rows: Rows, name: str) -> Any:
        try:
            found = self._arrow.array([row.get(name) for row in rows]).type
        except (self._arrow.lib.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"column {name!r} must be of one type in Parquet, but is not ({error})") from error
        return self._arrow.field(name, self._arrow.string() if self._arrow.types.is_null(found) else found)

    def finish(self) -> None:
        self._begin([])
        self._writer.close()

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()


class ParquetParts(ParquetWriter):
    """Parquet has its index at the end, so what an interruption leaves of it is lost. Until it is finished, the file
    holds the rows of each call as an Arrow stream of its own, one after another."""

    def __init__(self, file: IO[bytes], columns: Sequence[str], schema: Any, begun: bool) -> None:
        super().__init__(file, columns, schema)
        if begun:
            with self._arrow.OSFile(file.name) as parts, self._arrow.ipc.open_stream(parts) as first:
                self._schema = first.schema

    def write(self, rows: Rows) -> None:
        self._find_schema(rows)
        table = self._make_table(rows)
        with self._arrow.ipc.new_stream(self._file, self._schema) as part:
            part.write_table(table)

    def finish(self) -> None:
        self._find_schema([])
        self._file.flush()
        name = Path(self._file.name)
        whole = name.with_name(f"{name.name}.parquet")
        try:
            with self._arrow.parquet.ParquetWriter(whole, self._schema) as writer:
                for table in self._read_parts(name):
                    writer.write_table(table)
            whole.replace(name)
        except BaseException:
            whole.unlink(missing_ok=True)
            raise

    def _read_parts(self, name: Path) -> Iterator[Any]:
        n_bytes = name.stat().st_size
        with self._arrow.OSFile(str(name)) as file:
            while file.tell() < n_bytes:
                with self._arrow.ipc.open_stream(file) as part:
                    yield part.read_all()


class ExcelWriter:
    """One sheet. It is kept in a temporary file until it is finished, as an Excel file is written in one go."""

    def __init__(self, file: IO[bytes], columns: Sequence[str]) -> None:
        openpyxl = import_openpyxl("writing Excel files")
        self._file, self._columns = file, list(columns)
        self._book = openpyxl.Workbook(write_only=True)
        self._sheet = self._book.create_sheet("umpteen")
        self._cell = openpyxl.cell.WriteOnlyCell
        self._n_rows = 0
        self._append(self._columns)

    def write(self, rows: Rows) -> None:
        for row in rows:
            self._append([row.get(name) for name in self._columns])

    def _append(self, values: Sequence[Any]) -> None:
        self._n_rows += 1
        if self._n_rows > _MOST_ROWS:
            raise DataError(
                f"an Excel sheet must have at most {_MOST_ROWS:,} rows, but there are more; write .csv instead"
            )
        self._sheet.append([self._as_cell(value) for value in values])

    def _as_cell(self, value: Any) -> Any:
        if isinstance(value, (list, dict)):
            value = format_json(value)
        if not isinstance(value, str):
            return value
        if len(value) > _LONGEST_CELL:
            raise DataError(
                f"row {self._n_rows}: a cell of Excel must have at most {_LONGEST_CELL:,} characters, but one has "
                f"{len(value):,}; write .csv instead"
            )
        if _NOT_IN_EXCEL.search(value):
            raise DataError(
                f"row {self._n_rows}: a cell of Excel must not hold control characters, but one is {show(value)}"
            )
        cell = self._cell(self._sheet, value=value)
        cell.data_type = "s"  # never a formula
        return cell

    def finish(self) -> None:
        self._book.save(self._file)

    def abandon(self) -> None:
        self._sheet.close()  # ends what it writes to its temporary file
