"""Labels for the rows of a table, some thousands at a time, so that memory does not grow with the table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from umpteen.data.files import COMPRESSED_SUFFIXES, PathLike
from umpteen.data.tables.fields import Fields
from umpteen.data.tables.lines import STANDARD_INPUT
from umpteen.data.tables.reading import Row, Table, format_of_table, open_table
from umpteen.data.tables.writing import CONTINUABLE, WRITABLE, TableWriter, make_writer
from umpteen.errors import DataError, ParamError, UmpteenError
from umpteen.labelling.answers import Answers
from umpteen.labelling.labeller import Labelled, Labeller
from umpteen.labelling.progress import Progress, show_progress
from umpteen.labelling.target import Target, describe_input
from umpteen.tagger import Tagger

#: Rows, and characters of their texts, that are labelled together.
_ROWS = 8192
_CHARACTERS = 1 << 23


class Interrupted(KeyboardInterrupt):
    """Labelling was stopped; the next run continues after the rows that are kept."""

    def __init__(self, n_kept: int) -> None:
        super().__init__()
        self.n_kept = n_kept


def label_file(
    tagger: Tagger,
    source: PathLike | Table,
    target: PathLike,
    *,
    fields: Fields | None = None,
    layout: str | None = None,
    top_k: int | str | None = None,
    threshold: float | str | None = None,
    exclude: Any = None,
    include: Any = None,
    min_known: float = 0.0,
    explain: bool = False,
    format: str | None = None,
    threads: int | None = None,
    engine: Any = "local",
    overwrite: bool = False,
    escape_formulas: bool = False,
    language: str | None = None,
    version: str | None = None,
    progress: bool | Progress = False,
) -> Labelled:
    """Writes a table again with the labels of its rows.

    Parameters
    ----------
    source
        A table: .csv, .tsv, .jsonl, .parquet or .xlsx; or one that `open_table` opened.
    target
        Where it goes, in the format of its name. It appears when it is complete; "-" is standard output.
    fields
        Which columns hold the text; by default those the tagger was trained on.
    layout : "wide", "list" or "long"
        Labels in columns of their own, in one, or in lines of their own; by default "list" for JSON lines and
        Parquet, which have lists, else "wide". "wide" has `top_k` columns, or ten.
    top_k, threshold, exclude, include, min_known, threads, engine
        As for `Tagger.rank`.
    explain
        Also the three strongest words for each label. This takes much longer.
    format
        That of the target, if its name does not show it.
    overwrite
        Replace a file that is already there.
    escape_formulas
        In CSV and TSV, write ' before labels that a spreadsheet may run as formulas: those that begin with =, +, -
        or @. Columns of the source stay as they are. In Excel files text is never a formula.
    language
        The language of names, such as "fi", if the model has a vocabulary. Then labels have URIs and notations beside
        them, too.
    version
        What identifies the model, such as `ModelReader.version`. With it, and the same input and options, a run
        continues where an interrupted one stopped, unless the format is Excel.
    progress
        Show how far it is, at a terminal or in a notebook; or a function that is called with the number of rows done
        and, where that is known, the share of the input that was read.

    Examples
    --------
    >>> import pathlib, tempfile, umpteen
    >>> texts = ["herring quotas", "cod quotas in the sea", "a tax on wine", "wine and beer tax"] * 10
    >>> labels = [["fish"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10
    >>> tagger = umpteen.Tagger(umpteen.DiSMEC()).fit(texts, labels)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "in.csv").write_text("id,text\\n7,beer tax\\n")
    ...     _ = umpteen.label_file(tagger, f"{folder}/in.csv", f"{folder}/out.csv", top_k=1)
    ...     print(pathlib.Path(folder, "out.csv").read_text().split()[0])
    id,text,label_1,probability_1,unknown_words
    """
    known = fields or tagger.fields_ or Fields.make()
    table = source if isinstance(source, Table) else open_table(source, usual=known.written)
    chosen = target_format(target, format, table.format)
    refuse_target(table.path, target, overwrite)
    fields = table.check_fields(known.unlabelled())
    model = tagger.fitted()
    if tagger.features_ is None:
        raise ParamError("this model takes rows of numbers, not texts")
    how: dict[str, Any] = {
        "top_k": top_k,
        "threshold": threshold,
        "exclude": model.label_ids(tagger.resolve(exclude), "exclude"),
        "include": model.label_ids(tagger.resolve(include), "include"),
        "threads": threads,
        "engine": engine,
        "min_known": min_known,
    }
    escape_formulas = escape_formulas and chosen in ("csv", "tsv")
    work = _Work(tagger, table, fields, chosen, layout, how, explain, escape_formulas, language)
    tagger.rank([], **how)  # refuses what is wrong before anything is written
    made_of = _identify(table, target, chosen, version, fields, layout, how, explain)
    if made_of is not None and escape_formulas:
        made_of["escape_formulas"] = True
    if made_of is not None and language is not None:
        made_of["language"] = language
    with contextlib.nullcontext(progress or None) if progress is not True else show_progress() as listener:
        return work.run(Target(target, made_of), listener)


def target_format(target: PathLike, format: str | None, of_source: str) -> str:
    """The format to write: what is given, what the name says or, to standard output, that of the source."""
    if format is None and str(target) == STANDARD_INPUT:
        format = "tsv" if of_source == "annif-tsv" else of_source
    found = format or format_of_table(target)
    if found not in WRITABLE:
        raise ParamError(
            f"{target}: tables are written as {', '.join(WRITABLE)}, which its name must show (.csv, .tsv, .jsonl, "
            f".parquet, .xlsx) or format must say, but is {found!r}"
        )
    return found


def refuse_target(
    source: PathLike, target: PathLike, overwrite: bool, advice: str = "pass overwrite=True to replace it"
) -> None:
    """Raises if the target is there, or is the source."""
    if str(target) == STANDARD_INPUT or not Path(target).is_file():  # nothing there, or a pipe
        return
    if str(source) != STANDARD_INPUT and Path(source).exists() and Path(target).samefile(source):
        raise DataError(f"{target}: the output must be another file than the input")
    if not overwrite:
        raise DataError(f"{target}: already exists; choose another name, or {advice}")


def _identify(
    table: Table,
    target: PathLike,
    format: str,
    version: str | None,
    fields: Fields,
    layout: str | None,
    how: dict[str, Any],
    explain: bool,
) -> dict[str, Any] | None:
    """What a target is made from; None if it cannot be continued."""
    made_of = describe_input(table.path)
    compressed = Path(target).suffix in COMPRESSED_SUFFIXES
    if version is None or made_of is None or compressed or format not in CONTINUABLE:
        return None
    options = {name: how[name] for name in ("top_k", "threshold", "min_known")}
    for name in ("exclude", "include"):
        options[name] = None if how[name] is None else how[name].tolist()
    written = None if table.dialect is None else str(table.dialect)
    return {
        "input": made_of,
        "read": [table.format, written],
        "model": version,
        "fields": fields.as_dict(),
        "format": format,
        "layout": layout,
        "explain": explain,
        **options,
    }


class _Work:
    """One table on its way through a tagger."""

    def __init__(
        self,
        tagger: Tagger,
        table: Table,
        fields: Fields,
        format: str,
        layout: str | None,
        how: dict[str, Any],
        explain: bool,
        escape_formulas: bool,
        language: str | None,
    ) -> None:
        self.table, self.fields, self.format = table, fields, format
        lists = format in ("jsonl", "parquet")
        self.labeller = Labeller(
            tagger, layout or ("list" if lists else "wide"), how,
            explain=explain, lists=lists, escape_formulas=escape_formulas, language=language,
        )  # fmt: skip

    def run(self, target: Target, progress: Progress | None) -> Labelled:
        done, writer = self.labeller.done, None
        n_rows = done.continued_at = target.n_rows
        columns = target.columns
        try:
            answers = None
            for rows, texts in self._batches(target.n_rows):
                if answers is None:
                    answers, columns = self._plan(rows, columns)
                    writer = self._open(target, [*columns, *answers.columns])
                assert writer is not None and columns is not None  # noqa: PT018
                self._check_columns(rows, columns, answers)
                writer.write(self.labeller.answer(answers, [row for _, row in rows], texts))
                n_rows += len(rows)
                target.advance(n_rows, columns)
                if progress is not None:
                    progress(n_rows, self._share(n_rows))
            if answers is None:  # no rows, or none that are not done
                answers, columns = self._plan([], columns)
                writer = self._open(target, [*columns, *answers.columns])
            assert writer is not None
            writer.finish()
            done.n_cut = answers.n_cut
            target.finish()
        except BaseException as error:
            if writer is not None:
                writer.abandon()
            kept = target.abandon(not isinstance(error, UmpteenError))
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted(kept) from error
            if isinstance(error, OSError) and error.errno is not None and error.filename is None:  # a full disk
                rest = f"; {kept:,} rows are kept: the same call continues there" if kept else ""
                raise type(error)(error.errno, f"{error.strerror}{rest}", target.name) from error
            raise
        return done

    def _plan(self, rows: Sequence[tuple[int, Row]], columns: list[str] | None) -> tuple[Answers, list[str]]:
        """The columns of the table, where they are not known already, and those it gets."""
        columns = columns or self.table.columns
        if columns is None:
            columns = list(dict.fromkeys(name for _, row in rows for name in row))
        return self.labeller.plan(columns), columns

    def _open(self, target: Target, columns: list[str]) -> TableWriter:
        dialect = self.table.dialect if self.table.format in ("csv", "tsv") else None
        begun = target.n_rows > 0
        return make_writer(
            self.format, target.file, columns, dialect=dialect, schema=self.table.schema, begun=begun,
            continuable=target.is_continuable,
        )  # fmt: skip

    def _batches(self, skipped: int) -> Iterator[tuple[list[tuple[int, Row]], list[str]]]:
        """Rows with their numbers, and their texts."""
        rows: list[tuple[int, Row]] = []
        texts: list[str] = []
        size = 0
        table, fields = self.table, self.fields
        for i, (number, row) in enumerate(table):
            if i < skipped:
                continue
            text = fields.read_texts(table.readable(row, fields), table.where(number))
            rows.append((number, row))
            texts.append(text)
            size += len(text)
            if len(rows) == _ROWS or size >= _CHARACTERS:
                yield rows, texts
                rows, texts, size = [], [], 0
        if rows:
            yield rows, texts

    def _check_columns(self, rows: Sequence[tuple[int, Row]], columns: Sequence[str], answers: Answers) -> None:
        """Lines of JSON may have other fields than the first ones, which a table with a header cannot take."""
        if self.table.columns is not None:
            return
        known = set(columns)
        for number, row in rows:
            for name in row.keys() - known:
                answers.check_field(name, self.table.where(number))
                if self.format != "jsonl":
                    raise DataError(
                        f"{self.table.where(number)}: the field {name!r} must be in one of the first {_ROWS:,} lines "
                        "too, where the columns are taken from, but is not"
                    )

    def _share(self, n_rows: int) -> float | None:
        if self.table.n_rows:
            return min(n_rows / self.table.n_rows, 1.0)
        return min(self.table.bytes_read / self.table.n_bytes, 1.0) if self.table.n_bytes else None
