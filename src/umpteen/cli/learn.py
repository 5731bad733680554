"""umpteen learn"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from umpteen.cli.corpora import (
    CsvDelimiterOption,
    CsvQuoteOption,
    EncodingOption,
    LabelDelimiterOption,
    LabelFieldOption,
    TableOptions,
    TextFieldOption,
    read_texts,
)
from umpteen.cli.options import ModelArgument, OverwriteOption, ThreadsOption, print_text, refuse_missing
from umpteen.cli.training import refuse_model
from umpteen.printing import counted

if TYPE_CHECKING:
    from umpteen.data.corrections import Correction
    from umpteen.tagger import Tagger


def command(
    model: ModelArgument,
    corrections: Annotated[Path, typer.Argument(metavar="CORRECTIONS", help="JSON lines, or a table.")],
    target: Annotated[
        Path | None,
        typer.Option("--model", metavar="DIR2", help="Where the new model goes; without it, in place of MODEL."),
    ] = None,
    overwrite: OverwriteOption = False,
    threads: ThreadsOption = None,
    text_field: TextFieldOption = None,
    label_field: LabelFieldOption = None,
    label_delimiter: LabelDelimiterOption = None,
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
    csv_quote: CsvQuoteOption = None,
) -> None:
    """Improve a model of texts by corrections, without training the other labels again.

    A line of CORRECTIONS names a text and all its right labels, {"text": …, "labels": […]}, or what was found of some
    of them, {"text": …, "accepted": […], "rejected": […], "added": […]}. Instead of a text it may have the fields the
    model was trained on. Labels and words that are new join the model. A table (.csv, .tsv, .parquet, .xlsx) has the
    columns the model was trained on, and all labels that are right. The model keeps the latest 5,000 corrections, so
    that later ones do not undo them.

    The new model appears when it is complete. Until then, and if the command is stopped, the old one stays; then run
    it again.

    umpteen learn tags.model corrections.jsonl
    """
    from umpteen.data.corrections import Correction, read_corrections
    from umpteen.data.tables.reading import format_of_table
    from umpteen.learning import improve_model

    refuse_model(target, overwrite, ", or leave out --model")
    refuse_missing(corrections)
    tables = TableOptions(None, text_field, label_field, label_delimiter, None, encoding, csv_delimiter, csv_quote)
    tables.fields()  # checks them

    def read(tagger: Tagger) -> list[Correction]:
        if format_of_table(corrections) in (None, "jsonl"):
            fields = tables.fields(tagger.fields_)
            return read_corrections(tables._replace(format="jsonl").open(corrections, fields), fields)
        rows = read_texts(corrections, tables, tagger.fields_)
        return [Correction(text, labels, (), True) for text, labels in rows]

    learnt = improve_model(model, read, target, threads=threads, overwrite=overwrite)
    print_text(f"learnt     {counted(learnt.n, 'correction')} ({learnt.seconds:.1f} s)")
    if n_empty := learnt.n_without_words:
        print_text(f"           note: {n_empty:,} of them have no word, so nothing was learnt from those")
    if strange := learnt.unknown_rejected[:20]:
        print_text(f"           note: rejected labels that the model does not have: {', '.join(strange)}")
    if new := learnt.new_labels[:20]:
        print_text(f"labels     {learnt.n_labels:,} as before, and new: {', '.join(new)}")
    print_text(f"model      {model if target is None else target}")
