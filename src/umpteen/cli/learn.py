"""umpteen learn"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from umpteen.cli.corpora import (
    CsvDelimiterOption,
    EncodingOption,
    LabelDelimiterOption,
    LabelFieldOption,
    TableOptions,
    TextFieldOption,
    read_texts,
)
from umpteen.cli.options import ModelArgument, ThreadsOption, print_text


def command(
    model: ModelArgument,
    corrections: Annotated[Path, typer.Argument(metavar="CORRECTIONS", help="JSON lines, or a table.")],
    target: Annotated[
        Path | None,
        typer.Option("--model", metavar="DIR2", help="Where the new model goes; without it, in place of MODEL."),
    ] = None,
    threads: ThreadsOption = None,
    text_field: TextFieldOption = None,
    label_field: LabelFieldOption = None,
    label_delimiter: LabelDelimiterOption = None,
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
) -> None:
    """Improve a model of texts by corrections, without training the other labels again.

    A line of CORRECTIONS names a text and all its right labels, {"text": …, "labels": […]}, or what was found of some
    of them, {"text": …, "accepted": […], "rejected": […], "added": […]}. Labels and words that are new join the
    model. A table (.csv, .tsv, .parquet, .xlsx) has the columns the model was trained on, and all labels that are
    right. The model keeps the latest 5,000 corrections, so that later ones do not undo them.

    The new model appears when it is complete. Until then, and if the command is stopped, the old one stays; then run
    it again.

    umpteen learn tags.model corrections.jsonl
    """
    import time

    from umpteen.data.corrections import Correction, read_corrections
    from umpteen.data.tables.reading import format_of_table
    from umpteen.errors import ModelError, ModelExistsError, ParamError
    from umpteen.methods.base import Method
    from umpteen.storage.store import read_version
    from umpteen.tagger import Tagger, load

    if target is not None and target.exists():
        raise ModelExistsError(f"{target}: already exists; choose another place, or leave out --model")
    version = read_version(model)
    tagger = load(model)
    if not isinstance(tagger, Tagger):
        raise ParamError(f"{model}: corrections are of texts, but this model was not trained on text")
    if format_of_table(corrections) in (None, "jsonl"):
        found = read_corrections(corrections)
    else:
        tables = TableOptions(None, text_field, label_field, label_delimiter, None, encoding, csv_delimiter)
        found = [
            Correction(text, labels, (), True) for text, labels in read_texts(corrections, tables, tagger.fields_)
        ]
    if isinstance(tagger.method, Method):
        tagger.method.set_params(threads=threads)
    n_old, started = tagger.fitted().n_labels, time.perf_counter()
    tagger.learn_from(found)
    seconds = time.perf_counter() - started
    if target is None and read_version(model) != version:
        raise ModelError(f"{model}: was changed by somebody else meanwhile; run the command again")
    tagger.save(model if target is None else target, overwrite=target is None)
    print_text(f"learnt     {len(found):,} corrections ({seconds:.1f} s)")
    if n_empty := (tagger.vectorize([said.text for said in found]).X.getnnz(axis=1) == 0).sum():
        print_text(f"           note: {n_empty:,} of them have no word, so nothing was learnt from those")
    strange = sorted({name for said in found for name in said.wrong} - set(tagger.classes_))
    if strange:
        print_text(f"           note: rejected labels that the model does not have: {', '.join(strange[:20])}")
    if new := tagger.classes_[n_old : n_old + 20]:
        print_text(f"labels     {n_old:,} as before, and new: {', '.join(new)}")
    print_text(f"model      {model if target is None else target}")
