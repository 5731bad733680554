"""Rows of Parquet files and of the first sheet of Excel files."""

from __future__ import annotations

import datetime
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from umpteen.data.files import PathLike
from umpteen.data.tables.columns import hint_title, name_columns, refuse_twins
from umpteen.errors import DataError, MissingExtraError

_ROWS = 1024
_BUFFER = 1 << 20
#: What pyarrow raises beside its own exceptions: on damaged pages, columns of other lengths, texts that are no UTF-8.
_BAD_PARQUET = (OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, AttributeError)
#: What openpyxl raises on files that are no Excel files.
_BAD_EXCEL = (
    zipfile.BadZipFile, zlib.error, OSError, ValueError, TypeError, LookupError, AttributeError, SyntaxError,
    EOFError, RuntimeError, ArithmeticError,
)  # fmt: skip

NumberedRows = Iterator[tuple[int, dict[str, Any]]]


def parquet_rows(path: PathLike) -> tuple[list[str], Any, int, NumberedRows]:
    """The columns of a Parquet file, its schema, how many rows it has, and these."""
    pyarrow = import_pyarrow("reading Parquet")
    _refuse_missing(path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
    except (pyarrow.lib.ArrowException, *_BAD_PARQUET) as error:
        _fail(path, "Parquet", error)
    refuse_twins(schema.names, str(path))
    return list(schema.names), schema, n_rows, _iter_parquet(path, pyarrow)


def _iter_parquet(path: PathLike, pyarrow: Any) -> NumberedRows:
    number, place = 0, ""
    try:
        # With a buffer, columns are read as they are needed; else a group of rows, often all there are, at once.
        with pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                last = number + file.metadata.row_group(group).num_rows - 1
                place = f"row group {group} of {file.num_row_groups}, rows {number} to {last}: "
                for batch in file.iter_batches(_ROWS, row_groups=[group]):
                    for row in batch.to_pylist():
                        yield number, row
                        number += 1
    except DataError:
        raise
    except (pyarrow.lib.ArrowException, *_BAD_PARQUET) as error:
        _fail(path, "Parquet", error, place)


def import_pyarrow(what: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(f"{what} needs pyarrow. Install it with: pip install 'umpteen[parquet]'") from error
    return pyarrow


def excel_rows(path: PathLike) -> tuple[list[str], int | None, NumberedRows]:
    """The columns of an Excel file's first sheet, how many rows it has, if it says so, and these."""
    openpyxl = import_openpyxl("reading Excel files")
    _refuse_missing(path)
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheet = book.worksheets[0]
        cells = sheet.iter_rows(values_only=True)
        header = [cell_text(cell) for cell in next(cells, ())]
    except _BAD_EXCEL as error:
        _fail(path, "Excel", error)
    while header and not header[-1]:  # columns that were only coloured
        header.pop()
    if not header:
        raise DataError(f"{path}: there must be a header with the names of the columns, but the first sheet is empty")
    header = name_columns(header, f"{path}: row 1")
    refuse_twins(header, f"{path}: row 1")
    n_rows = None if sheet.max_row is None else sheet.max_row - 1
    return header, n_rows, _iter_excel(path, book, cells, header)


def _iter_excel(path: PathLike, book: Any, cells: Iterator[tuple[Any, ...]], header: list[str]) -> NumberedRows:
    width, number = len(header), 1
    try:
        for number, row in enumerate(cells, start=2):
            if all(value is None for value in row):
                continue
            if any(value is not None for value in row[width:]):
                raise DataError(
                    f"{path}: row {number}: there must be {width} columns as in the header, but are {len(row)}"
                    f"{hint_title(header)}"
                )
            yield number, dict(zip(header, (*row[:width], *[None] * (width - len(row))), strict=True))
    except DataError:
        raise
    except _BAD_EXCEL as error:
        _fail(path, "Excel", error, f"behind row {number}: ")
    finally:
        book.close()


DATES = (datetime.datetime, datetime.date, datetime.time)


def cell_text(value: Any) -> str:
    """What a cell of Excel says, where a text is wanted: a title such as 1984 is a number there."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return date_text(value) if isinstance(value, DATES) else str(value)


def date_text(value: Any) -> str:
    """A date, time or both. Excel knows no dates, only times of a day: midnight is meant as the day."""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time() and value.tzinfo is None:
        value = value.date()
    return str(value.isoformat())


def import_openpyxl(what: str) -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError(f"{what} needs openpyxl. Install it with: pip install 'umpteen[excel]'") from error
    return openpyxl


def _refuse_missing(path: PathLike) -> None:
    if not Path(path).exists():
        raise FileNotFoundError(2, "No such file or directory", str(path))


def _fail(path: PathLike, kind: str, error: Exception, place: str = "") -> NoReturn:
    if isinstance(error, OSError) and error.errno is not None:  # the disk's
        raise error
    raise DataError(f"{path}: {place}not readable {kind} ({error})") from error
