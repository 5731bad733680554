"""Texts with their labels, from files, frames or anything that can be looped over.

    {"text": "Herring quotas", "labels": ["fish", "law"]}                    .jsonl, .ndjson: one object a line
    text,labels                                                              .csv: a header, then one row a line
    Herring quotas,fish;law                                                  (label_delimiter=";")
    Herring quotas⇥<http://ex.org/fish> <http://ex.org/law>                  .tsv without header: Annif's short texts
    {"text": "Herring quotas", "subjects": [{"uri": "http://ex.org/fish"}]}  .jsonl with subjects: Annif's documents

A `.tsv` with a header is a `.csv` with tabs. Annif's own `.csv` names its labels `subject_uris`. A `.parquet` has
columns as a `.csv` has, and its labels may be lists; of an `.xlsx` the first sheet is read. Every text file may be
compressed. How a `.csv` is written is found by looking at it (tables/sniffing.py). A row may have no labels, as an
empty list, an empty string or null; the same label twice counts once. Of Annif's subjects the label is the URI, where
there is one. What is wrong is refused with file, line and field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from umpteen.data.files import PathLike
from umpteen.data.tables.columnar import import_pyarrow
from umpteen.data.tables.fields import Fields, Record, show
from umpteen.data.tables.lines import iter_json_lines
from umpteen.data.tables.reading import FORMATS, Table, check_format, format_of_table, open_table
from umpteen.data.tables.sniffing import Written
from umpteen.errors import DataError, ParamError

__all__ = ["FORMATS", "Corpus", "Record", "format_of_table", "iter_corpus", "iter_json_lines", "read_corpus"]

_ROWS = 1024  # taken from a frame at once


@dataclass(frozen=True, eq=False)
class Corpus:
    """Texts and, for each, the names of its labels.

    Examples
    --------
    >>> corpus = read_corpus([("Herring quotas", ["fish", "law"]), ("Untagged", [])])
    >>> len(corpus), corpus.texts[0], corpus.labels
    (2, 'Herring quotas', [['fish', 'law'], []])
    """

    texts: Sequence[str]
    labels: Sequence[list[str]]
    ids: Sequence[str] | None = None
    #: Where a table has its texts and labels, for a model to keep.
    fields: Fields | None = None

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.labels):
            raise DataError(
                f"there must be a list of labels for each of {len(self.texts)} texts, but are {len(self.labels)}"
            )

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[Record]:
        return map(Record, self.texts, self.labels)

    def __repr__(self) -> str:
        return f"Corpus(n_rows={len(self)}, n_labels={len({label for labels in self.labels for label in labels})})"


def read_corpus(
    source: Any,
    *,
    text: str | Sequence[str] | Mapping[str, int] = "text",
    labels: str | Sequence[str] | None = "labels",
    label_delimiter: str | None = None,
    id: str | None = None,
    format: str | None = None,
    encoding: str | None = None,
    csv_delimiter: str | None = None,
    csv_quote: str | None = None,
) -> Corpus:
    """Reads texts and their labels into memory.

    Parameters
    ----------
    source
        A file; a pandas, polars or Arrow table; or an iterable of ``(text, labels)`` pairs or of dicts. Parquet files
        need pyarrow: ``pip install 'umpteen[parquet]'``; Excel files openpyxl: ``pip install 'umpteen[excel]'``.
    text
        The field with the text, or several, whose texts are joined by a newline. ``"title^3"``, or
        ``{"title": 3, "abstract": 1}``, counts the words of a field three times.
    labels
        The field with the labels, or several; None for a source without any, whose rows then have none.
    label_delimiter
        What stands between labels that come in one string; a space stands for any run of white space. A string may
        hold several labels or one, so without a delimiter it is refused, unless it is a list of strings as JSON. Of
        several fields with labels each may hold one.
    id
        The field that identifies a row; the same value twice is refused.
    format
        One of jsonl, csv, tsv, annif-tsv, parquet and excel; by default from the file's name.
    encoding, csv_delimiter, csv_quote
        How a text file is written, such as "cp1252", ";" and "'" ("none" if quotes are characters as any others); by
        default found by looking at it.

    Raises
    ------
    DataError
        With file, line, field, rule and value, for anything that is not as it must be.
    """
    how: Any = {"encoding": encoding, "csv_delimiter": csv_delimiter, "csv_quote": csv_quote}
    written = Written.make(encoding, csv_delimiter, csv_quote)
    fields = replace(Fields.make(text, labels, label_delimiter, id), written=written)
    return gather(source, fields, format=format, **how)


def iter_corpus(
    source: Any,
    *,
    text: str | Sequence[str] | Mapping[str, int] = "text",
    labels: str | Sequence[str] | None = "labels",
    label_delimiter: str | None = None,
    format: str | None = None,
    encoding: str | None = None,
    csv_delimiter: str | None = None,
    csv_quote: str | None = None,
) -> Iterator[Record]:
    """The rows of a corpus one after the other, for corpora larger than memory; parameters as in `read_corpus`."""
    fields = Fields.make(text, labels, label_delimiter)
    how: Any = {"encoding": encoding, "csv_delimiter": csv_delimiter, "csv_quote": csv_quote}
    return (record for record, _ in _iter_source(source, fields, format=format, **how))


def gather(source: Any, fields: Fields, **how: Any) -> Corpus:
    """`read_corpus` for fields that are already known."""
    texts, names = [], []
    ids: dict[str, str] = {}
    for record, place in _iter_source(source, fields, **how):
        texts.append(record.text)
        names.append(record.labels)
        if fields.id is not None:
            where, row = place
            found = fields.read_id(row, where)
            if found in ids:
                raise DataError(
                    f"{where}: {fields.id} must be another in each row, but {found!r:.100} is also at {ids[found]}"
                )
            ids[found] = where
    return Corpus(texts, names, list(ids) if fields.id is not None else None, fields)


def _iter_source(
    source: Any,
    fields: Fields,
    *,
    format: str | None = None,
    **how: Any,
) -> Iterator[tuple[Record, Place]]:
    if isinstance(source, Table):
        return _iter_table(source, fields)
    if isinstance(source, (str, Path)) or hasattr(source, "__fspath__"):
        check_format(source, format)
        return _iter_file(source, fields, format=format, **how)
    if format is not None:
        raise ParamError(f"format is for files, but the source is a {type(source).__name__}")
    package = type(source).__module__.partition(".")[0]
    if package in ("pandas", "polars") and hasattr(source, "__len__"):
        return _iter_frame(list(source.columns), lambda names: _slice_frame(source, names), fields)
    if package == "pyarrow" or hasattr(source, "__arrow_c_stream__"):
        return _iter_arrow(source, fields)
    if isinstance(source, (bytes, Mapping)) or not isinstance(source, Iterable):
        raise DataError(
            f"a corpus must be a file, a table or an iterable of (text, labels), but is a {type(source).__name__}"
        )
    return _iter_rows(source, fields)


#: Where a row stands, for messages, and the row.
Place = tuple[str, Mapping[str, Any]]


def _iter_file(path: PathLike, fields: Fields, **how: Any) -> Iterator[tuple[Record, Place]]:
    yield from _iter_table(open_table(path, usual=fields.written, **how), fields)


def _iter_table(table: Table, fields: Fields) -> Iterator[tuple[Record, Place]]:
    fields = table.check_fields(fields)
    for number, row in table:
        where, row = table.where(number), table.readable(row, fields)
        yield fields.read(row, where), (where, row)


# --- tables in memory -------------------------------------------------------------------------------------------

Columns = Mapping[str, list[Any]]


def _iter_frame(
    columns: Sequence[str], batches: Callable[[list[str]], Iterable[Columns]], fields: Fields
) -> Iterator[tuple[Record, Place]]:
    """The rows of a table that gives the columns it is asked for, some rows at a time."""
    fields = fields.check_columns(columns, "the table")
    names, number = fields.names, 0
    for batch in batches(names):
        for cells in zip(*(batch[name] for name in names), strict=True):
            row, where = dict(zip(names, cells, strict=True)), f"row {number}"
            yield fields.read(row, where), (where, row)
            number += 1


def _slice_frame(frame: Any, names: list[str]) -> Iterator[Columns]:
    get = frame.iloc if hasattr(frame, "iloc") else frame
    for begin in range(0, len(frame), _ROWS):
        rows = get[begin : begin + _ROWS]
        yield {name: rows[name].to_list() for name in names}


def _iter_arrow(source: Any, fields: Fields) -> Iterator[tuple[Record, Place]]:
    """A pyarrow Table, RecordBatch, Dataset or RecordBatchReader, or whatever offers Arrow's stream of batches."""
    if not hasattr(source, "schema"):
        source = import_pyarrow("reading an Arrow stream").RecordBatchReader.from_stream(source)

    def slices(names: list[str]) -> Iterator[Columns]:
        tables = (
            [source] if hasattr(source, "slice") else source.to_batches() if hasattr(source, "to_batches") else source
        )
        for table in tables:
            chosen = table.select(names)
            for begin in range(0, chosen.num_rows, _ROWS):
                yield chosen.slice(begin, _ROWS).to_pydict()

    return _iter_frame(source.schema.names, slices, fields)


def _iter_rows(rows: Iterable[Any], fields: Fields) -> Iterator[tuple[Record, Place]]:
    for number, row in enumerate(rows):
        where = f"row {number}"
        if isinstance(row, Mapping):
            yield fields.read(row, where), (where, row)
        elif isinstance(row, str) and fields.labels is None:
            yield Record(row, []), (where, {})
        elif isinstance(row, (tuple, list)) and len(row) == 2:
            text = fields.read_text(row[0], "text", where)
            found = [] if fields.labels is None else fields.read_labels(row[1], "labels", where)
            yield Record(text, found), (where, {})
        else:
            raise DataError(f"{where}: must be a pair of text and labels or a dict, but is {show(row)}")
