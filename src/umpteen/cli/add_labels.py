"""umpteen add-labels"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

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
    refuse_for_texts,
)
from umpteen.cli.defaults import default_of
from umpteen.cli.options import (
    ENGINE,
    FORMAT,
    AddressOption,
    CpusOption,
    EngineOption,
    FormatOption,
    KeepGoingOption,
    LabelNamesOption,
    LabelsOption,
    ModelArgument,
    OneBasedOption,
    OverwriteOption,
    ResumeOption,
    ThreadsOption,
    WriteOption,
    choose_engine,
    print_text,
    read_data,
)
from umpteen.cli.training import describe_work, replacing, writing
from umpteen.params import check_choice
from umpteen.printing import printable


def command(
    model: ModelArgument,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Rows with the new labels only, numbered from 0.")],
    target: Annotated[Path, typer.Option("--model", metavar="DIR2", help="Where the larger model goes.")],
    overwrite: OverwriteOption = False,
    threads: ThreadsOption = None,
    engine: EngineOption = ENGINE,
    address: AddressOption = None,
    cpus_per_worker: CpusOption = None,
    write: WriteOption = None,
    keep_going: KeepGoingOption = False,
    resume: ResumeOption = False,
    negatives: Annotated[
        str,
        typer.Option(
            "--negatives",
            help="What else to train against: rows the model keeps (kept), rows made from its weights (weights), "
            "nothing (rows), or the first two until there are enough (auto).",
        ),
    ] = default_of("umpteen.methods.one_vs_rest:OneVsRest.add_labels", "negatives"),
    label_names: LabelNamesOption = None,
    labels: LabelsOption = None,
    format: FormatOption = FORMAT,
    one_based: OneBasedOption = None,
    text_field: TextFieldOption = None,
    label_field: LabelFieldOption = None,
    label_delimiter: LabelDelimiterOption = None,
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
    csv_quote: CsvQuoteOption = None,
) -> None:
    """Train new labels and add them to a model, without training the old ones again.

    If the model has L labels, label i of the data gets the id L + i; old ids and weights do not change. The rows need
    not be those the model was trained on, but must have the same features. Rows without a new label are its negative
    examples. If there are fewer rows than the model was trained on, more negatives come from the rows it keeps
    (umpteen train --keep-rows) and from its weights. Each new label needs a row, and a name if, and only if, the old
    ones have names.

    The larger model goes to a new directory; the old one is not changed. After an interruption --resume continues.
    For a model trained on texts, give texts with label names; names it does not know become its new labels, and words
    it does not know its new words.

    umpteen add-labels eurlex.model new.txt.xz --model grown.model
    """
    from umpteen.data.files import read_names
    from umpteen.errors import ParamError
    from umpteen.methods import METHODS, method_of
    from umpteen.methods.base import Method
    from umpteen.methods.negatives import KINDS
    from umpteen.tagger import Tagger, load

    where = choose_engine(
        engine, threads, keep_going=keep_going, address=address, cpus_per_worker=cpus_per_worker, write=write
    )
    check_choice("--negatives", negatives, KINDS)
    tables = TableOptions(format, text_field, label_field, label_delimiter, None, encoding, csv_delimiter, csv_quote)
    tables.fields()  # checks them
    with replacing(target, overwrite) as place:
        loaded = load(model)
        if isinstance(loaded, Tagger):
            refuse_for_texts(label_names=label_names, labels=labels, one_based=one_based)
            corpus = read_texts(data, tables, loaded.fields_)
            n_old = loaded.fitted().n_labels
            if isinstance(loaded.method, Method):
                loaded.method.set_params(threads=threads, engine=where)
            with writing(place):
                loaded.add_labels(
                    corpus.texts, corpus.labels, place, negatives=negatives, resume=resume, progress=True
                )
            new = ", ".join(loaded.classes_[n_old : n_old + 20])
            print_text(f"labels     {n_old:,} as before, and new: {printable(new)}")
            return
        tables.refuse_for_numbers()
        method = method_of(loaded) if loaded.method in METHODS else None
        if not hasattr(method, "add_labels"):
            raise ParamError(f"{model}: labels can be added to one-vs-rest models, but this is {loaded.method}")
        assert method is not None
        method.set_params(threads=threads, engine=where)
        started = time.perf_counter()
        rows = read_data(
            data, format=format, labels=labels, one_based=one_based, threads=threads, n_features=loaded.n_features
        )
        names = read_names(label_names) if label_names is not None else rows.label_names
        describe_work(data, rows, time.perf_counter() - started, method, "new shards")
        with writing(place):
            method.add_labels(rows.X, rows.Y, names, place, negatives=negatives, resume=resume, progress=True)
        n_old, n_all = loaded.n_labels, method.n_labels_
        print_text(f"labels     {n_old:,} as before, and the new ones {n_old:,} to {n_all - 1:,}")
