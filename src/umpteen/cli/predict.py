"""umpteen predict"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from umpteen.cli.completion import complete_layout
from umpteen.cli.corpora import (
    CsvDelimiterOption,
    CsvQuoteOption,
    EncodingOption,
    TableOptions,
    TextFieldOption,
    describe_reading,
)
from umpteen.cli.label_lists import ExcludeOption, IncludeOption, find_labels, note_formulas
from umpteen.cli.options import (
    ENGINE,
    FORMAT,
    AddressOption,
    CpusOption,
    DecisionTopKOption,
    EngineOption,
    FormatOption,
    LanguageOption,
    MinKnownOption,
    ModelArgument,
    OneBasedOption,
    OverwriteOption,
    ThreadsOption,
    choose_engine,
    parse_number,
    print_text,
    refuse_unwritable,
)
from umpteen.errors import ParamError
from umpteen.params import check_choice
from umpteen.printing import counted, format_json


def command(
    model: ModelArgument,
    input: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Rows to label; their labels are ignored; - is standard input.")
    ],
    top_k: DecisionTopKOption = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            help="Least probability; micro or macro, the thresholds learned in training; or auto, like --top-k auto. "
            "By default micro; without calibration 0.5, or as many labels as training rows had if scores only rank.",
        ),
    ] = None,
    min_known: MinKnownOption = 0.0,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Where to write. Of texts: a table as .csv, .tsv, .jsonl, .parquet or .xlsx, with the rows and "
            "columns of INPUT. Of numbers: .jsonl, or lines of label:score. Of both: .npz, a matrix of scores. "
            "- is standard output.",
        ),
    ] = "-",
    layout: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="wide|list|long",
            autocompletion=complete_layout,
            help="Of a table: labels in columns of their own, in one column, or in lines of their own. Default: list "
            "for .jsonl and .parquet, else wide.",
        ),
    ] = None,
    exclude: ExcludeOption = None,
    include: IncludeOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Of a table: also the three strongest words for each label; slow.")
    ] = False,
    overwrite: OverwriteOption = False,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="Of .csv and .tsv: write ' before labels that a spreadsheet may run as formulas (=, +, -, @).",
        ),
    ] = False,
    language: LanguageOption = None,
    threads: ThreadsOption = None,
    engine: EngineOption = ENGINE,
    address: AddressOption = None,
    cpus_per_worker: CpusOption = None,
    parts: Annotated[
        int | None,
        typer.Option(
            "--parts",
            help="Split the model into this many parts, held by Ray workers; all nodes must see DIR.",
            rich_help_panel="Where the work is done",
            min=1,
        ),
    ] = None,
    format: FormatOption = FORMAT,
    one_based: OneBasedOption = None,
    text_field: TextFieldOption = None,
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
    csv_quote: CsvQuoteOption = None,
) -> None:
    """Write the labels to give each row, best first, with their probabilities.

    A table of texts comes back with its rows and columns, and with labels, probabilities and the share of words that
    the model does not know; and with URIs and notations, if it was trained with a vocabulary. The columns are those
    the model was trained on. The file appears when it is complete; after an interruption the same command continues.
    A model that was trained on numbers and is not calibrated has scores instead of probabilities.

    umpteen predict books.model records.csv --output labelled.csv

    umpteen predict eurlex.model test.txt.xz --top-k 5 --output labels.jsonl
    """
    from umpteen.labelling.answers import LAYOUTS
    from umpteen.storage.remote import open_model
    from umpteen.tagger import Tagger, load

    where = choose_engine(engine, threads, address=address, cpus_per_worker=cpus_per_worker)
    if parts is not None and engine != "ray":
        raise ParamError(f"--parts needs --engine ray, but the engine is {engine}")
    if layout is not None:
        check_choice("--labels", layout, LAYOUTS)
    limits = _limits(top_k, threshold)
    tables = TableOptions(format, text_field, None, None, None, encoding, csv_delimiter, csv_quote)
    tables.fields()  # checks them
    refuse_unwritable(output, inputs=[input], overwrite=overwrite)
    opened = open_model(model)
    loaded = load(opened)
    trained = loaded.fitted() if isinstance(loaded, Tagger) else loaded
    concepts = loaded.concepts_ if isinstance(loaded, Tagger) else None
    trained.check_limits(*limits)
    how: dict[str, Any] = {
        "top_k": limits[0],
        "threshold": limits[1],
        "exclude": find_labels(trained, exclude, "--exclude", concepts),
        "include": find_labels(trained, include, "--include", concepts),
        "threads": threads,
    }
    as_table = isinstance(loaded, Tagger) and loaded.features_ is not None and _is_table(output)
    if not as_table:
        given: dict[str, Any] = {"labels": layout, "explain": explain}
        given |= {"escape-formulas": escape_formulas, "language": language}
        for option, value in given.items():
            if value:
                raise ParamError(f"--{option} is for tables of texts, but {output} is none")
        if isinstance(loaded, Tagger):
            _refuse_other_names(output)
        else:
            tables.refuse_for_numbers()
    with where.hold(model, parts) if parts is not None else nullcontext(where) as scorer:  # type: ignore[attr-defined]
        how["engine"] = scorer
        if as_table:
            assert isinstance(loaded, Tagger)
            if str(input) == "-" and format is None:
                tables = tables._replace(format="csv")
            how |= {"min_known": min_known, "layout": layout, "explain": explain, "overwrite": overwrite}
            how |= {"escape_formulas": escape_formulas, "language": language}
            _label_table(loaded, input, output, tables, opened.version, how)
            return
        if isinstance(loaded, Tagger):
            labels, scores = _rank_texts(loaded, input, tables, min_known, how)
        else:
            labels, scores = _rank_numbers(loaded, input, format, one_based, how)
    _write(output, labels, scores, trained)


def _limits(top_k: str | None, threshold: str | None) -> tuple[Any, Any]:
    """How many labels to give, and from which probability on."""
    if threshold != "auto":
        return parse_number(top_k), parse_number(threshold)
    if top_k not in (None, "auto"):
        raise ParamError(f"--threshold auto decides how many labels to give, but --top-k is {top_k}")
    return "auto", None


def _is_table(output: str) -> bool:
    from umpteen.data.tables.reading import format_of_table

    return output == "-" or format_of_table(output) is not None


def _refuse_other_names(output: str) -> None:
    """Refuses what looks like a format that is not written, such as .xls or .pdf: it would hold lines of ids."""
    from umpteen.data.files import COMPRESSED_SUFFIXES

    name = Path(output)
    suffix = Path(name.stem).suffix if name.suffix in COMPRESSED_SUFFIXES else name.suffix
    if suffix not in ("", ".txt", ".npz"):
        raise ParamError(
            "--output must end in .csv, .tsv, .jsonl, .parquet or .xlsx for a table, .txt for lines of label ids or "
            f".npz for a matrix, but is {output!r:.200}"
        )


def _label_table(
    tagger: Any, input: Path, output: str, tables: TableOptions, version: str, how: dict[str, Any]
) -> None:
    from umpteen.labelling.files import Interrupted, label_file

    fields = tables.fields(tagger.fields_).unlabelled()
    table = tables.open(input, fields)
    print_text(f"table      {input}: {describe_reading(table, fields)}", err=True)
    started = time.perf_counter()
    try:
        done = label_file(tagger, table, output, fields=fields, version=version, progress=True, **how)
    except Interrupted as stopped:
        kept = f"{stopped.n_kept:,} rows are kept in {output}.part: run the same command again"
        print_text(f"interrupted; {kept if stopped.n_kept else 'nothing is kept'}", err=True)
        raise typer.Exit(130) from None
    seconds = time.perf_counter() - started
    if done.continued_at:
        print_text(f"continued  after {done.continued_at:,} rows that were done", err=True)
    each = done.n_labels / max(done.n_rows, 1)
    print_text(
        f"labelled   {counted(done.n_rows, 'row')}, {each:.1f} labels each, {done.n_without:,} without "
        f"({seconds:.1f} s)",
        err=True,
    )
    if done.n_cut:
        print_text(
            f"note: {done.n_cut:,} rows have more labels than there are columns; --labels list or --top-k with "
            "--threshold give them all",
            err=True,
        )
    if not how["escape_formulas"]:
        note_formulas(tagger.names_in(how["language"]), output, "; --escape-formulas writes ' before them")
    if output != "-":
        print_text(f"output     {output}", err=True)


def _rank_texts(
    tagger: Any, input: Path, tables: TableOptions, min_known: float, how: dict[str, Any]
) -> tuple[Any, Any]:
    from umpteen.data.corpus import gather
    from umpteen.data.reading import read_features

    if tagger.features_ is None:
        found = tagger.rank(read_features(input, n_features=tagger.fitted().n_features), **how)
    else:
        fields = tables.fields(tagger.fields_).unlabelled()
        texts = gather(tables.open(input, fields), fields).texts
        found = tagger.rank(texts, min_known=min_known, **how)
    return found  # type: ignore[no-any-return]


def _rank_numbers(
    model: Any, input: Path, format: str | None, one_based: bool | None, how: dict[str, Any]
) -> tuple[Any, Any]:
    from umpteen.data.reading import read_features

    options: dict[str, Any] = {} if one_based is None else {"one_based": one_based}
    X = read_features(input, format=format, n_features=model.n_features, threads=how["threads"], **options)
    return model.rank(X, raw=model.calibration is None, **how)  # type: ignore[no-any-return]


def _write(output: str, labels: Any, scores: Any, model: Any) -> None:
    from umpteen.data.files import write_bytes

    if output.endswith(".npz"):
        _write_matrix(output, labels, scores, model.n_labels)
        return
    names = model.label_names
    is_json = ".jsonl" in Path(output).suffixes
    lines = _json_lines(labels, scores, names) if is_json else _text_lines(labels, scores)
    if output == "-":
        for line in lines:
            typer.echo(line, nl=False)
    else:
        write_bytes(output, lines)


def _text_lines(labels: Any, scores: Any) -> Iterator[bytes]:
    for ids, values in zip(labels.tolist(), scores.tolist(), strict=True):
        cells = (f"{label}:{score:.6g}" for label, score in zip(ids, values, strict=True) if label >= 0)
        yield (" ".join(cells) + "\n").encode()


def _json_lines(labels: Any, scores: Any, names: Any) -> Iterator[bytes]:
    for ids, values in zip(labels.tolist(), scores.tolist(), strict=True):
        kept = [(label, score) for label, score in zip(ids, values, strict=True) if label >= 0]
        row: dict[str, Any] = {"labels": [label for label, _ in kept], "scores": [score for _, score in kept]}
        if names is not None:
            row["names"] = [names[label] for label, _ in kept]
        yield (format_json(row) + "\n").encode()


def _write_matrix(output: str, labels: Any, scores: Any, n_labels: int) -> None:
    import numpy as np
    import scipy.sparse as sp

    from umpteen.data.files import atomic_path

    rows, ranks = np.nonzero(labels >= 0)
    matrix = sp.csr_matrix((scores[rows, ranks], (rows, labels[rows, ranks])), shape=(len(labels), n_labels))
    with atomic_path(output) as temporary, temporary.open("wb") as file:
        sp.save_npz(file, matrix)
