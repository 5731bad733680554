"""Options and helpers of the commands that read tables of texts with label names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from umpteen.cli.options import print_text
from umpteen.errors import DataError, ParamError
from umpteen.params import check_choice

if TYPE_CHECKING:
    from umpteen.data.corpus import Corpus
    from umpteen.data.tables.fields import Fields
    from umpteen.data.tables.reading import Table

_CORPUS = "Table of texts"
#: What the parameters of fields are called here.
FLAGS = {
    "text": "--text-field",
    "labels": "--label-field",
    "label_delimiter": "--label-delimiter",
    "id": "--id-field",
}
TextFieldOption = Annotated[
    list[str] | None,
    typer.Option(
        "--text-field",
        help="Column with the text, such as title^3, whose words count three times; several are joined. Default: the "
        "model's, else text.",
        rich_help_panel=_CORPUS,
    ),
]
LabelFieldOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label-field",
        help="Column with the labels, or several. Default: the model's, else labels.",
        rich_help_panel=_CORPUS,
    ),
]
LabelDelimiterOption = Annotated[
    str | None,
    typer.Option("--label-delimiter", help="What separates labels in one cell.", rich_help_panel=_CORPUS),
]
IdFieldOption = Annotated[
    str | None, typer.Option("--id-field", help="Column that identifies a row.", rich_help_panel=_CORPUS)
]
EncodingOption = Annotated[
    str | None,
    typer.Option(
        "--encoding", help="Such as utf-8 or cp1252. Default: found by looking at the file.", rich_help_panel=_CORPUS
    ),
]
CsvDelimiterOption = Annotated[
    str | None,
    typer.Option(
        "--csv-delimiter",
        help="What separates columns, such as ; or tab. Default: found by looking at the file.",
        rich_help_panel=_CORPUS,
    ),
]
CsvQuoteOption = Annotated[
    str | None,
    typer.Option(
        "--csv-quote",
        help="What a cell may be quoted with, such as ', or none. Default: found by looking at the file.",
        rich_help_panel=_CORPUS,
    ),
]
FieldsOfOption = Annotated[
    Path | None,
    typer.Option(
        "--fields-of", metavar="DIR", help="Take the columns that this model was trained on.", rich_help_panel=_CORPUS
    ),
]


class TableOptions(NamedTuple):
    """How a command was told to read tables."""

    format: str | None = None
    text_field: list[str] | None = None
    label_field: list[str] | None = None
    label_delimiter: str | None = None
    id_field: str | None = None
    encoding: str | None = None
    csv_delimiter: str | None = None
    csv_quote: str | None = None

    def fields(self, known: Fields | None = None) -> Fields:
        """The columns to take: those that are named, else those that a model knows, else text and labels."""
        from umpteen.data.tables.fields import Fields
        from umpteen.data.tables.sniffing import Written

        given = Fields.make(
            self.text_field or "text", self.label_field or "labels", self.label_delimiter, self.id_field, words=FLAGS
        )
        written = Written.make(self.encoding, self.csv_delimiter, self.csv_quote)
        if known is None:
            return replace(given, written=written)
        return Fields(
            given.texts if self.text_field else known.texts,
            given.labels if self.label_field or known.labels is None else known.labels,
            given.delimiter if self.label_delimiter is not None or self.label_field else known.delimiter,
            given.id,  # only where they are asked for
            written.or_else(known.written),
            words=FLAGS,
        )

    def refuse_for_numbers(self) -> None:
        """Raises if an option was given that only tables of texts have."""
        for name, value in self._asdict().items():
            if name != "format" and value is not None:
                raise ParamError(f"--{name.replace('_', '-')} is for tables of texts, not for files of numbers")

    def open(self, path: Path | str, fields: Fields | None = None) -> Table:
        """Opens a table, from which these fields are taken; messages name the options."""
        from umpteen.data.tables.reading import open_table

        return open_table(
            path,
            format=self.format,
            encoding=self.encoding,
            csv_delimiter=self.csv_delimiter,
            csv_quote=self.csv_quote,
            usual=None if fields is None else fields.written,
        )


def is_corpus(path: Path, format: str | None) -> bool:
    """Whether a file holds texts rather than numbers, by its format or its name."""
    from umpteen.data.corpus import FORMATS, format_of_table
    from umpteen.data.reading import known_formats

    if format is None:
        return format_of_table(path) is not None
    return check_choice("--format", format, (*known_formats(), *FORMATS)) in FORMATS


def known_fields(model: Path | None) -> Fields | None:
    """The columns that a model was trained on."""
    if model is None:
        return None
    from umpteen.tagger import Tagger

    return Tagger.load(model).fields_


def read_texts(
    path: Path,
    options: TableOptions,
    known: Fields | None = None,
    *,
    ids: bool = False,
    err: bool = False,
    purpose: str = "",
) -> Corpus:
    """Reads the texts and labels of a table a command names, and says how the table was read. With `ids` also the
    column that a model knows to identify rows, if the table has it."""
    from umpteen.data.corpus import gather

    fields = options.fields(known)
    table = options.open(path, fields)
    if ids and fields.id is None and known is not None and known.id in (table.columns or ()):
        fields = replace(fields, id=known.id)
    corpus = gather(table, fields)
    if table.dialect is not None or fields != TableOptions().fields():
        print_text(f"table      {path}: {describe_reading(table, fields)}", err=err)
    if not len(corpus):
        raise DataError(f"{path}: there must be at least one row{purpose}, but there is none")
    return corpus


def read_judged(path: Path, options: TableOptions, known: Fields | None = None, **how: Any) -> Corpus:
    """`read_texts` of what a model is judged by, which must be something."""
    return read_texts(path, options, known, purpose=" to judge the model by", **how)


def describe_reading(table: Table, fields: Fields) -> str:
    """How a table is written and which of its columns are taken."""
    from umpteen.data.tables.sniffing import show_encoding

    written = "" if table.dialect is None else f"{table.dialect}; "
    if table.dialect is None and table.encoding not in (None, "utf-8"):
        written = f"{show_encoding(table.encoding)}; "
    return f"{written}{table.check_fields(fields)}"


def refuse_for_texts(**options: Any) -> None:
    """Raises if an option was given that only files of numbers have."""
    for name, value in options.items():
        if value is not None:
            raise ParamError(f"--{name.replace('_', '-')} is for files of numbers, not for texts")


def describe_corpus(path: Path, corpus: Corpus, seconds: float) -> None:
    """Prints how large a corpus is."""
    n_characters = sum(map(len, corpus.texts))
    print_text(f"corpus     {path} ({seconds:.1f} s)")
    print_text(f"           {len(corpus):,} texts, {n_characters / max(len(corpus), 1):,.0f} characters each")
