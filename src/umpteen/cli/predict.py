"""umpteen predict"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from umpteen.cli.corpora import TableOptions, TextFieldOption
from umpteen.cli.options import (
    ENGINE,
    AddressOption,
    CpusOption,
    DecisionTopKOption,
    EngineOption,
    FormatOption,
    MinKnownOption,
    ModelArgument,
    OneBasedOption,
    ThreadsOption,
    ThresholdOption,
    choose_engine,
    parse_number,
)
from umpteen.errors import ParamError
from umpteen.printing import format_json


def command(
    model: ModelArgument,
    input: Annotated[Path, typer.Argument(metavar="INPUT", help="Rows to label; labels in the file are ignored.")],
    top_k: DecisionTopKOption = None,
    threshold: ThresholdOption = None,
    min_known: MinKnownOption = 0.0,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Where to write: .jsonl gives JSON lines with names, .npz a sparse matrix of scores, anything else "
            "lines of label:score; - is standard output.",
        ),
    ] = "-",
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="A label to leave out, by id or name; repeatable.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option("--include", help="Give only this label, by id or name; repeatable.")
    ] = None,
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
    format: FormatOption = None,
    one_based: OneBasedOption = None,
    text_field: TextFieldOption = None,
) -> None:
    """Write the labels to give each row, best first, with their probabilities.

    A model that was trained on numbers and is not calibrated has scores instead.

    umpteen predict eurlex.model test.txt.xz --top-k 5 --output labels.jsonl

    umpteen predict cooking.model questions.jsonl --output tags.jsonl
    """
    from umpteen.data.corpus import gather
    from umpteen.data.reading import read_features
    from umpteen.tagger import Tagger, load

    where = choose_engine(engine, threads, address=address, cpus_per_worker=cpus_per_worker)
    if parts is not None and engine != "ray":
        raise ParamError(f"--parts needs --engine ray, but the engine is {engine}")
    loaded = load(model)
    trained = loaded.fitted() if isinstance(loaded, Tagger) else loaded
    if isinstance(loaded, Tagger):
        tables = TableOptions(format, text_field)
        texts = gather(input, tables.fields(loaded.fields_).unlabelled(), format=format).texts
    else:
        options: dict[str, Any] = {} if one_based is None else {"one_based": one_based}
        X = read_features(input, format=format, n_features=trained.n_features, threads=threads, **options)
    with where.hold(model, parts) if parts is not None else nullcontext(where) as scorer:  # type: ignore[attr-defined]
        how: dict[str, Any] = {
            "exclude": _labels(trained, exclude),
            "include": _labels(trained, include),
            "threads": threads,
            "engine": scorer,
        }
        limits = parse_number(top_k), parse_number(threshold)
        if isinstance(loaded, Tagger):
            labels, scores = loaded.rank(texts, *limits, min_known=min_known, **how)
        else:
            labels, scores = loaded.rank(X, *limits, raw=loaded.calibration is None, **how)
    _write(output, labels, scores, trained)


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


def _labels(model: Any, given: list[str] | None) -> list[Any] | None:
    """Names stay names; anything else that is a number is an id."""
    if not given:
        return None
    known = model.ids_by_name
    return [
        known[label] if label in known else int(label) if label.isascii() and label.isdigit() else label
        for label in given
    ]


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
