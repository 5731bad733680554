"""Texts with their labels, from files, frames or anything that can be looped over.

    {"text": "Herring quotas", "labels": ["fish", "law"]}                    .jsonl, .ndjson: one object a line
    text,labels                                                              .csv: a header, then one row a line
    Herring quotas,fish;law                                                  (label_delimiter=";")
    Herring quotas⇥<http://ex.org/fish> <http://ex.org/law>                  .tsv without header: Annif's short texts
    {"text": "Herring quotas", "subjects": [{"uri": "http://ex.org/fish"}]}  .jsonl with subjects: Annif's documents

A `.tsv` with a header is a `.csv` with tabs. Annif's own `.csv` names its labels `subject_uris`. A `.parquet` has
columns as a `.csv` has, and its labels may be lists. Every text file may be compressed. A row may have no labels, as
an empty list, an empty string or null; the same label twice counts once. Of Annif's subjects the label is the URI,
where there is one. What is wrong is refused with file, line and field.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from umpteen.data.files import COMPRESSED_SUFFIXES, PathLike, read_chunks
from umpteen.errors import DataError, MissingExtraError, ParamError

FORMATS = ("jsonl", "csv", "tsv", "annif-tsv", "parquet")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_ANNIF_JSON, _ANNIF_CSV = "subjects", "subject_uris"
_ROWS = 1024  # taken from a frame or a CSV reader at once


class Record(NamedTuple):
    """One row of a corpus."""

    text: str
    labels: list[str]


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
    text: str | Sequence[str] = "text",
    labels: str | None = "labels",
    label_delimiter: str | None = None,
    format: str | None = None,
) -> Corpus:
    """Reads texts and their labels into memory.

    Parameters
    ----------
    source
        A file; a pandas, polars or Arrow table; or an iterable of ``(text, labels)`` pairs or of dicts. Parquet files
        need pyarrow: ``pip install 'umpteen[parquet]'``.
    text
        The field with the text, or several, whose texts are joined by a newline.
    labels
        The field with the labels; None for a source without any, whose rows then have none.
    label_delimiter
        What stands between labels that come in one string; a space stands for any run of white space. A string may
        hold several labels or one, so without a delimiter it is refused.
    format
        One of jsonl, csv, tsv, annif-tsv and parquet; by default from the file's name.

    Raises
    ------
    DataError
        With file, line, field, rule and value, for anything that is not as it must be.
    """
    texts, names = [], []
    options: Any = {"text": text, "labels": labels, "label_delimiter": label_delimiter, "format": format}
    for record in iter_corpus(source, **options):
        texts.append(record.text)
        names.append(record.labels)
    return Corpus(texts, names)


def iter_corpus(
    source: Any,
    *,
    text: str | Sequence[str] = "text",
    labels: str | None = "labels",
    label_delimiter: str | None = None,
    format: str | None = None,
) -> Iterator[Record]:
    """The rows of a corpus one after the other, for corpora larger than memory; parameters as in `read_corpus`."""
    fields = _Fields(text, labels, label_delimiter)
    if isinstance(source, (str, Path)) or hasattr(source, "__fspath__"):
        return _iter_file(source, fields, _corpus_format(source) if format is None else format)
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


class _Fields:
    """Which fields to take and how to read them. `where` is the file and line, or the row, for messages."""

    def __init__(self, text: str | Sequence[str], labels: str | None, delimiter: str | None) -> None:
        self.texts = (text,) if isinstance(text, str) else tuple(text)
        if not self.texts or not all(isinstance(name, str) for name in self.texts):
            raise ParamError(f"text must be the name of a field or several names, but is {text!r}")
        if labels is not None and not isinstance(labels, str):
            raise ParamError(f"labels must be the name of a field or None, but is {labels!r}")
        if delimiter is not None and (not isinstance(delimiter, str) or not delimiter):
            raise ParamError(f"label_delimiter must be a string of at least one character, but is {delimiter!r}")
        self.labels, self.delimiter = labels, delimiter

    @property
    def names(self) -> list[str]:
        return [*self.texts, *(() if self.labels is None else (self.labels,))]

    def check_columns(self, columns: Sequence[Any], where: str) -> _Fields:
        """Refuses a table that lacks a column. Returns the fields to take, which in an Annif table are Annif's."""
        fields = self
        if self.labels == "labels" and "labels" not in columns and _ANNIF_CSV in columns:
            fields = _Fields(self.texts, _ANNIF_CSV, " ")
        for name in fields.names:
            if name not in columns:
                raise DataError(
                    f"{where}: there must be a column {name!r}, but the columns are {', '.join(map(repr, columns))}"
                )
        return fields

    def read(self, row: Mapping[str, Any], where: str) -> Record:
        texts = [self.read_text(row[name], name, where) for name in self.texts if self._check_field(row, name, where)]
        if self.labels is None:
            return Record("\n".join(texts), [])
        name = self.labels
        if name == "labels" and name not in row and _ANNIF_JSON in row:
            name = _ANNIF_JSON
        self._check_field(row, name, where)
        return Record("\n".join(texts), self.read_labels(row[name], name, where))

    def _check_field(self, row: Mapping[str, Any], name: str, where: str) -> bool:
        if name not in row:
            known = ", ".join(repr(key) for key in list(row)[:20]) or "none"
            raise DataError(f"{where}: there must be a field {name!r}, but the fields are {known}")
        # Of several fields, some rows may lack one, such as an abstract.
        return len(self.texts) == 1 or name == self.labels or not _is_missing(row[name])

    def read_text(self, value: Any, name: str, where: str) -> str:
        if not isinstance(value, str):
            raise DataError(f"{where}: {name} must be a string, but is {_show(value)}")
        return value

    def read_labels(self, value: Any, name: str, where: str) -> list[str]:
        if isinstance(value, str):
            return self._split_labels(value, name, where)
        if _is_missing(value):
            return []
        if hasattr(value, "tolist"):  # numpy, as pandas reads lists from Parquet
            value = value.tolist()
        if isinstance(value, (set, frozenset)):
            value = sorted(value, key=str)  # a set's own order changes from run to run
        if not isinstance(value, (list, tuple)):
            raise DataError(f"{where}: {name} must be a list of strings or a string, but is {_show(value)}")
        found: dict[str, None] = {}
        for i, label in enumerate(value):
            if isinstance(label, dict):  # Annif's subjects
                label = label.get("uri") or label.get("label") or label
            if not isinstance(label, str):
                raise DataError(f"{where}: {name}[{i}] must be a string, but is {_show(label)}")
            if not label.strip():
                raise DataError(f"{where}: {name}[{i}] must not be empty, but is {label!r}")
            found[label] = None
        return list(found)

    def _split_labels(self, value: str, name: str, where: str) -> list[str]:
        if not value.strip():
            return []
        if self.delimiter is None:
            raise DataError(
                f"{where}: {name} must be a list, but is the string {_show(value)}; label_delimiter names what "
                "separates its labels"
            )
        parts = value.split() if self.delimiter == " " else [part.strip() for part in value.split(self.delimiter)]
        if name == _ANNIF_CSV:
            parts = [_strip_brackets(part) for part in parts]
        if "" in parts:
            raise DataError(f"{where}: {name} must not hold an empty label, but is {_show(value)}")
        return list(dict.fromkeys(parts))


def _strip_brackets(uri: str) -> str:
    return uri.removeprefix("<").removesuffix(">")


def _is_missing(value: Any) -> bool:
    """None, or what pandas uses for it."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def _show(value: Any) -> str:
    shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


# --- files ------------------------------------------------------------------------------------------------------


def format_of_corpus(path: PathLike) -> str | None:
    """The format a file's name suggests; None if it suggests no corpus."""
    name = Path(path).name.lower()
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return _SUFFIXES.get(Path(name).suffix)


def _corpus_format(path: PathLike) -> str:
    format = format_of_corpus(path)
    if format is None:
        raise ParamError(f"{path}: its name does not show its format; format must be one of {', '.join(FORMATS)}")
    return format


def _iter_file(path: PathLike, fields: _Fields, format: str) -> Iterator[Record]:
    if format == "jsonl":
        return _iter_jsonl(path, fields)
    if format == "csv":
        return _iter_table(path, _iter_lines(path), fields, ",")
    if format == "tsv":
        return _iter_tsv(path, fields)
    if format == "annif-tsv":
        return _iter_annif_tsv(path, _iter_lines(path), fields)
    if format == "parquet":
        return _iter_parquet(path, fields)
    raise ParamError(f"format must be one of {', '.join(FORMATS)}, but is {format!r}")


def _iter_lines(path: PathLike) -> Iterator[str]:
    """The lines of a text file, each with its newline where it has one."""
    number = 1
    rest = b""
    for chunk in read_chunks(path, 1 << 18):
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield _decode(line + b"\n", path, number)
            number += 1
    if rest:
        yield _decode(rest, path, number)


def _decode(line: bytes, path: PathLike, number: int) -> str:
    if number == 1:
        line = line.removeprefix(b"\xef\xbb\xbf")  # the mark some Windows programs put first
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        byte = line[error.start]
        raise DataError(f"{path}:{number}: text must be UTF-8, but byte {byte:#04x} is not") from error


def iter_json_lines(path: PathLike) -> Iterator[tuple[str, Any]]:
    """What each line of a file holds, and where it stands, for messages; blank lines are left out."""
    for number, line in enumerate(_iter_lines(path), start=1):
        if line.isspace():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: column {error.colno}: not valid JSON ({error.msg})") from error
        except (RecursionError, ValueError) as error:  # nested too deep, a number of too many digits
            raise DataError(f"{where}: not readable JSON ({error})") from error
        yield where, row


def _iter_jsonl(path: PathLike, fields: _Fields) -> Iterator[Record]:
    for where, row in iter_json_lines(path):
        if not isinstance(row, dict):
            raise DataError(f"{where}: a line must hold a JSON object, but holds {_show(row)}")
        yield fields.read(row, where)


def _iter_table(path: PathLike, lines: Iterator[str], fields: _Fields, delimiter: str) -> Iterator[Record]:
    header: list[str] = []
    for number, cells in _parse_csv(path, lines, delimiter):
        where = f"{path}:{number}"
        if not header:
            header = cells
            if len(set(header)) != len(header):
                raise DataError(f"{where}: a column's name may stand once in the header, but it is {header}")
            fields = fields.check_columns(header, where)
        elif len(cells) != len(header):
            raise DataError(f"{where}: there must be {len(header)} columns as in the header, but are {len(cells)}")
        else:
            yield fields.read(dict(zip(header, cells, strict=True)), where)
    if not header:
        raise DataError(f"{path}: there must be a header with the names of the columns, but the file is empty")


def _parse_csv(path: PathLike, lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file that are not blank, each with the number of its first line."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    more = True
    while more:
        rows = []
        # The module refuses long fields by default; its limit is global, so it is raised only while we read.
        limit = csv.field_size_limit(sys.maxsize)
        try:
            for _ in range(_ROWS):
                number = reader.line_num + 1
                cells = next(reader, None)
                if cells is None:
                    more = False
                    break
                if cells:
                    rows.append((number, cells))
        except csv.Error as error:
            raise DataError(f"{path}:{number}: not valid CSV ({error})") from error
        finally:
            csv.field_size_limit(limit)
        yield from rows


def _iter_tsv(path: PathLike, fields: _Fields) -> Iterator[Record]:
    """With a header, a table; without one but with <uri>s after the first tab, Annif's short texts."""
    lines = _iter_lines(path)
    first = next(lines, "")
    rest = _chain(first, lines)
    cells = first.rstrip("\r\n").split("\t")
    if fields.texts == ("text",) and "text" not in cells and len(cells) == 2 and _is_uris(cells[1]):
        yield from _iter_annif_tsv(path, rest, fields)
    else:
        yield from _iter_table(path, rest, fields, "\t")


def _chain(first: str, lines: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from lines


def _is_uris(cell: str) -> bool:
    return bool(cell) and all(part.startswith("<") and part.endswith(">") for part in cell.split())


def _iter_annif_tsv(path: PathLike, lines: Iterator[str], fields: _Fields) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        text, tab, uris = line.rstrip("\r\n").partition("\t")
        if not tab and fields.labels is not None:
            raise DataError(f"{path}:{number}: subjects must follow the text and a tab, but there is no tab")
        labels = dict.fromkeys(_strip_brackets(uri) for uri in uris.split())
        if "" in labels:
            raise DataError(f"{path}:{number}: subjects must not hold an empty one, but are {_show(uris)}")
        yield Record(text, [] if fields.labels is None else list(labels))


#: What pyarrow raises beside its own exceptions: on damaged pages, columns of other lengths, texts that are no UTF-8.
_BAD_PARQUET = (OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, AttributeError)


def _iter_parquet(path: PathLike, fields: _Fields) -> Iterator[Record]:
    pyarrow = _import_pyarrow("reading Parquet")
    if not Path(path).exists():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    try:
        with pyarrow.parquet.ParquetFile(path) as file:

            def slices(names: list[str]) -> Iterator[Columns]:
                return (batch.to_pydict() for batch in file.iter_batches(_ROWS, columns=names))

            yield from _iter_frame(file.schema_arrow.names, slices, fields, path)
    except DataError:
        raise
    except (pyarrow.lib.ArrowException, *_BAD_PARQUET) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's
            raise
        raise DataError(f"{path}: not readable Parquet ({error})") from error


def _import_pyarrow(what: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(f"{what} needs pyarrow. Install it with: pip install 'umpteen[parquet]'") from error
    return pyarrow


# --- tables in memory -------------------------------------------------------------------------------------------

Columns = Mapping[str, list[Any]]


def _iter_frame(
    columns: Sequence[str], batches: Callable[[list[str]], Iterable[Columns]], fields: _Fields, path: PathLike = ""
) -> Iterator[Record]:
    """The rows of a table that gives the columns it is asked for, some rows at a time."""
    fields = fields.check_columns(columns, str(path) or "the table")
    where = f"{path}: row" if path else "row"
    number = 0
    for batch in batches(fields.names):
        for cells in zip(*(batch[name] for name in fields.names), strict=True):
            yield fields.read(dict(zip(fields.names, cells, strict=True)), f"{where} {number}")
            number += 1


def _slice_frame(frame: Any, names: list[str]) -> Iterator[Columns]:
    get = frame.iloc if hasattr(frame, "iloc") else frame
    for begin in range(0, len(frame), _ROWS):
        rows = get[begin : begin + _ROWS]
        yield {name: rows[name].to_list() for name in names}


def _iter_arrow(source: Any, fields: _Fields) -> Iterator[Record]:
    """A pyarrow Table, RecordBatch, Dataset or RecordBatchReader, or whatever offers Arrow's stream of batches."""
    if not hasattr(source, "schema"):
        source = _import_pyarrow("reading an Arrow stream").RecordBatchReader.from_stream(source)

    def slices(names: list[str]) -> Iterator[Columns]:
        tables = (
            [source] if hasattr(source, "slice") else source.to_batches() if hasattr(source, "to_batches") else source
        )
        for table in tables:
            chosen = table.select(names)
            for begin in range(0, chosen.num_rows, _ROWS):
                yield chosen.slice(begin, _ROWS).to_pydict()

    return _iter_frame(source.schema.names, slices, fields)


def _iter_rows(rows: Iterable[Any], fields: _Fields) -> Iterator[Record]:
    for number, row in enumerate(rows):
        where = f"row {number}"
        if isinstance(row, Mapping):
            yield fields.read(row, where)
        elif isinstance(row, str) and fields.labels is None:
            yield Record(row, [])
        elif isinstance(row, (tuple, list)) and len(row) == 2:
            text = fields.read_text(row[0], "text", where)
            yield Record(text, [] if fields.labels is None else fields.read_labels(row[1], "labels", where))
        else:
            raise DataError(f"{where}: must be a pair of text and labels or a dict, but is {_show(row)}")
