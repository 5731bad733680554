"""Arrow's columns, tables and streams as numbers, names and lists of names. Streams are read batch by batch; numbers
without gaps are read where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.errors import DataError, MissingExtraError

#: The most numbers of a table that are dense at a time, unless one row has more.
_MOST_AT_ONCE = 1 << 22


def is_arrow(source: Any) -> bool:
    """Whether something is best read by Arrow's protocol: what pyarrow has; what has no array of NumPy, such as a
    relation of DuckDB; and a table of polars with more than numbers, from which it would make some unasked."""
    if not (hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")):
        return False
    package = type(source).__module__.partition(".")[0]
    if package == "polars" and hasattr(source, "dtypes"):
        return not all(kind.is_numeric() or str(kind) == "Boolean" for kind in source.dtypes)
    return package == "pyarrow" or not hasattr(source, "__array__")


def read_matrix(source: Any, name: str) -> Any:
    """Rows of numbers, from columns that hold one in each row, or a list of as many in each, as vectors are kept in
    Parquet. A dense matrix, or CSR if that would be large; a column of vectors in one piece is read where it lies."""
    opened = open_arrow(source, name)
    if _is_column(opened) and not _is_list(opened.type):
        return _read_column(opened)
    parts = _iter_dense(opened, name)
    first = next(parts, None)
    if first is None:
        return np.zeros((0, 0 if _is_column(opened) else len(opened.schema)), np.float32)
    rest = [sp.csr_matrix(_for_scipy(part)) for part in parts]
    return sp.vstack([sp.csr_matrix(_for_scipy(first)), *rest], format="csr") if rest else first


def read_values(source: Any, name: str) -> Any:
    """Labels: the numbers of a table as a matrix; a column, or a table of one, as an array or a list of lists."""
    opened = open_arrow(source, name)
    if not _is_column(opened) and len(opened.schema) == 1 and not _is_number(opened.schema.types[0]):
        opened = opened.read_all().column(0)
    if _is_column(opened) and not (_is_list(opened.type) and _is_number(opened.type.value_type)):
        return _read_column(opened)
    parts = list(_iter_dense(opened, name))
    return np.concatenate(parts) if parts else np.zeros((0, 0 if _is_column(opened) else len(opened.schema)))


def as_list(column: Any) -> Any:
    """A column of Arrow as a list, of strings or of lists of these; anything else as it is."""
    return column.to_pylist() if hasattr(column, "to_pylist") and not hasattr(column, "schema") else column


def import_arrow(name: str) -> Any:
    """pyarrow, to read what is called so in messages."""
    try:
        import pyarrow.compute
    except ImportError:
        raise MissingExtraError(
            f"{name} is an Arrow table. Install what reads it with: pip install 'umpteen[parquet]'"
        ) from None
    return pyarrow


def open_arrow(source: Any, name: str) -> Any:
    """A RecordBatchReader of a table or stream; a ChunkedArray of a column."""
    pyarrow = import_arrow(name)
    if isinstance(source, (pyarrow.ChunkedArray, pyarrow.RecordBatchReader)):
        return source
    try:
        if isinstance(source, (pyarrow.Table, pyarrow.RecordBatch)):
            return pyarrow.table(source).to_reader()
        if isinstance(source, pyarrow.Array):
            return pyarrow.chunked_array([source])
        return pyarrow.RecordBatchReader.from_stream(source)
    except (pyarrow.lib.ArrowException, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name} must be a column, a table or a stream of Arrow, but: {error}") from error


def _is_column(opened: Any) -> bool:
    return hasattr(opened, "chunks")


# --- kinds of values ---------------------------------------------------------------------------------------------


def _plain(kind: Any) -> Any:
    """The type of values that may be kept as numbers of entries in a dictionary."""
    return kind.value_type if str(kind).startswith("dictionary") else kind


def _is_list(kind: Any) -> bool:
    return str(kind).startswith(("list", "large_list", "fixed_size_list"))


def _is_number(kind: Any) -> bool:
    return str(_plain(kind)).startswith(("int", "uint", "halffloat", "float", "double", "bool", "decimal"))


# --- columns -----------------------------------------------------------------------------------------------------


def _read_column(column: Any) -> Any:
    """A column on its own: of numbers or dates an array, of lists a list, of else an array of objects."""
    if _is_list(column.type):
        return column.to_pylist()
    if _is_number(column.type) and not column.null_count and column.num_chunks:
        found = [_to_numpy(chunk) for chunk in column.chunks]
        return found[0] if len(found) == 1 else np.concatenate(found)
    if str(column.type).startswith(("date", "time", "duration")):
        return column.to_numpy()
    objects = np.empty(len(column), object)
    objects[:] = column.to_pylist()
    return objects


def _iter_dense(opened: Any, name: str) -> Iterator[NDArray[Any]]:
    """The rows of a stream, or of a column of lists, as matrices of some rows at a time."""
    if _is_column(opened):
        called, batches = [name], ([chunk] for chunk in opened.chunks)
    else:
        called = [f"column {column!r:.100} of {name}" for column in opened.schema.names]
        batches = (batch.columns for batch in opened)
    n_read, known = 0, None
    for columns in batches:
        widths = [_width(column, what) for column, what in zip(columns, called, strict=True)]
        n_rows = len(columns[0]) if columns else 0
        if n_rows and known not in (None, widths):
            raise DataError(f"{name} must hold lists of one length, but further on they have {widths}, not {known}")
        known = widths if n_rows else known
        step = max(1, _MOST_AT_ONCE // max(1, sum(widths)))
        for first in range(0, n_rows, step):
            pieces = [column.slice(first, step) for column in columns]
            blocks = [_read_piece(*at, n_read + first) for at in zip(pieces, widths, called, strict=True)]
            yield blocks[0] if len(blocks) == 1 and blocks[0].ndim == 2 else np.column_stack(blocks)
        n_read += n_rows


def _width(column: Any, what: str) -> int:
    """How many numbers each row of a column holds."""
    kind = column.type
    if not _is_number(kind.value_type if _is_list(kind) else kind):
        raise DataError(f"{what} must hold numbers, but holds {kind}")
    if not _is_list(kind):
        return 1
    compute = import_arrow(what).compute
    lengths = sorted(set(compute.unique(compute.list_value_length(column)).to_pylist()) - {None})
    if len(lengths) > 1:
        raise DataError(f"{what} must hold lists of one length, but lengths are {lengths!r:.100}")
    return lengths[0] if lengths else 0


def _read_piece(column: Any, width: int, what: str, row: int) -> NDArray[Any]:
    """What a column holds from a row on."""
    values = column.flatten() if _is_list(column.type) and not column.null_count else column
    if values.null_count:
        missing = values.is_null().to_pylist().index(True)
        row += missing if values is column else missing // width
        raise DataError(f"{what} must hold a number in every place, but lacks one in row {row}")
    return _to_numpy(values) if values is column else _to_numpy(values).reshape(-1, width)


def _to_numpy(values: Any) -> NDArray[Any]:
    """Numbers without gaps, where they lie if they have a type of NumPy's."""
    if str(values.type).startswith("dictionary"):
        values = values.dictionary_decode()
    if str(values.type).startswith("decimal"):
        values = values.cast("float64")
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found


def _for_scipy(rows: NDArray[Any]) -> NDArray[Any]:
    return rows.astype(np.float32) if rows.dtype == np.float16 else rows
