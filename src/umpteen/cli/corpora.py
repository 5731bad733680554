"""Options and helpers of the commands that read texts with label names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umpteen.cli.options import print_text
from umpteen.errors import ParamError

if TYPE_CHECKING:
    from umpteen.data.corpus import Corpus

_CORPUS = "Corpus of texts"
TextFieldOption = Annotated[
    list[str] | None,
    typer.Option("--text-field", help="Field with the text; several are joined. Default: text.",
                 rich_help_panel=_CORPUS),
]  # fmt: skip
LabelFieldOption = Annotated[
    str | None,
    typer.Option("--label-field", help="Field with the labels. Default: labels.", rich_help_panel=_CORPUS),
]
LabelDelimiterOption = Annotated[
    str | None,
    typer.Option("--label-delimiter", help="What separates labels in one string.", rich_help_panel=_CORPUS),
]


def is_corpus(path: Path, format: str | None) -> bool:
    """Whether a file holds texts rather than numbers, by its format or its name."""
    from umpteen.data.corpus import FORMATS, format_of_table

    return format in FORMATS if format is not None else format_of_table(path) is not None


def read_texts(
    path: Path,
    format: str | None,
    text_field: list[str] | None,
    label_field: str | None,
    label_delimiter: str | None,
    *,
    labelled: bool = True,
) -> Corpus:
    """Reads the corpus a command names; without its labels if it is only to be tagged."""
    from umpteen.data.corpus import read_corpus

    fields: dict[str, Any] = {}
    if text_field:
        fields["text"] = text_field[0] if len(text_field) == 1 else text_field
    if label_field or not labelled:
        fields["labels"] = label_field if labelled else None
    return read_corpus(path, **fields, label_delimiter=label_delimiter, format=format)


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
