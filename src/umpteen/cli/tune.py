"""umpteen tune"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umpteen.cli.completion import complete_method
from umpteen.cli.corpora import (
    CsvDelimiterOption,
    CsvQuoteOption,
    EncodingOption,
    FieldsOfOption,
    LabelDelimiterOption,
    LabelFieldOption,
    TableOptions,
    TextFieldOption,
    is_corpus,
    known_fields,
    read_texts,
    refuse_for_texts,
)
from umpteen.cli.defaults import default_of
from umpteen.cli.options import (
    FORMAT,
    METHOD,
    FormatOption,
    LabelsOption,
    OneBasedOption,
    OverwriteOption,
    ThreadsOption,
    parse_settings,
    print_text,
    read_data,
    refuse_unwritable,
    write_json,
)
from umpteen.cli.training import replacing, writing

if TYPE_CHECKING:
    from umpteen.tuning import Tuning


def command(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Training data; part of it is held out.")],
    method: Annotated[
        str, typer.Option("--method", help="The method to tune; auto chooses one.", autocompletion=complete_method)
    ] = METHOD,
    trials: Annotated[int, typer.Option("--trials", help="Number of settings to try.", min=1)] = default_of(
        "umpteen.tuning:tune", "trials"
    ),
    metric: Annotated[str, typer.Option("--metric", help="P@k, nDCG@k or PSP@k; k is 1, 3 or 5.")] = default_of(
        "umpteen.tuning:tune", "metric"
    ),
    heldout: Annotated[
        float, typer.Option("--heldout", help="Share of the rows held out to judge by.", min=0, max=1)
    ] = default_of("umpteen.tuning:tune", "heldout"),
    journal: Annotated[Path, typer.Option("--journal", help="File of trials; run again to continue.")] = Path(
        "umpteen.tuning"
    ),
    model: Annotated[
        Path | None, typer.Option("--model", metavar="DIR", help="Also train on all rows with the best settings.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter to fix instead of tuning it; repeatable."),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Also write all trials as JSON; - is standard output."),
    ] = None,
    overwrite: OverwriteOption = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the split and of the search.", min=0)] = default_of(
        "umpteen.tuning:tune", "seed"
    ),
    threads: ThreadsOption = None,
    labels: LabelsOption = None,
    format: FormatOption = FORMAT,
    one_based: OneBasedOption = None,
    text_field: TextFieldOption = None,
    label_field: LabelFieldOption = None,
    label_delimiter: LabelDelimiterOption = None,
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
    csv_quote: CsvQuoteOption = None,
    fields_of: FieldsOfOption = None,
) -> None:
    """Find good settings for a method by trying them on held-out training rows. Without --method one is chosen first.

    Bad trials are stopped early. All trials are kept in a journal: after an interruption, or to try more, run the
    same command again, with --overwrite if it has written a file. The first trial uses the defaults.

    umpteen tune train.txt.xz --method fastxml --trials 40 --metric PSP@5 --model tuned.model
    """
    from umpteen.choosing.choice import AUTO
    from umpteen.errors import ParamError
    from umpteen.tuning import check_tuning

    refuse_unwritable(json, inputs=[train], overwrite=overwrite)
    refuse_unwritable(journal, inputs=[train], overwrite=True)  # which is continued
    fixed = parse_settings(settings or [])
    check_tuning(method if method != AUTO else "dismec", trials, metric, heldout, fixed if method != AUTO else {})
    if method == AUTO and settings:
        raise ParamError(f"--set {settings[0]} goes with a method that --method names, but the method is {AUTO}")
    how: dict[str, Any] = {
        "trials": trials, "metric": metric, "heldout": heldout, "seed": seed, "journal": journal, "fixed": fixed,
    }  # fmt: skip
    tables = TableOptions(format, text_field, label_field, label_delimiter, None, encoding, csv_delimiter, csv_quote)
    numbers = {"labels": labels, "one_based": one_based}
    with nullcontext() if model is None else replacing(model, overwrite) as place:
        _tune(train, method, tables, fields_of, numbers, how, threads, json, place)


def _tune(
    train: Path,
    method: str,
    tables: TableOptions,
    fields_of: Path | None,
    numbers: dict[str, Any],
    how: dict[str, Any],
    threads: int | None,
    json: str | None,
    place: Path | None,
) -> None:
    """Tunes on a file of any kind and, where there is a place for it, trains a model."""
    from umpteen.choosing.auto import choose_method
    from umpteen.choosing.choice import AUTO
    from umpteen.tagger import Tagger
    from umpteen.tuning import tune

    tagger = features = fields = None
    if is_corpus(train, tables.format):
        refuse_for_texts(**numbers)
        corpus = read_texts(train, tables, known_fields(fields_of), err=json == "-")
        fields = corpus.fields
        tagger = Tagger(method)
        features, data = tagger.prepare(corpus.texts, corpus.labels)
    else:
        tables.refuse_for_numbers()
        data = read_data(train, format=tables.format, threads=threads, **numbers)
    if method == AUTO:
        choice = choose_method(data.X, data.Y, threads=threads, seed=how["seed"])
        print_text(str(choice), err=json == "-")
        method = choice.method.name
    try:
        found = tune(method, data.X, data.Y, threads=threads, progress=True, **how)
    except KeyboardInterrupt:
        print_text(f"interrupted; finished trials are kept in {how['journal']}: run the same command again", err=True)
        raise typer.Exit(130) from None
    if json != "-":
        print_text(describe(found))
    if json is not None:
        write_json(json, found.as_dict())
    if place is None:
        return
    estimator: Any = found.make(threads=threads)
    with writing(place, "run the same command again"):
        if tagger is not None:
            tagger.set_params(method=estimator).train(features, data, place, progress=True, fields=fields)
        else:
            estimator.fit(data.X, data.Y, place, label_names=data.label_names, progress=True)


def describe(found: Tuning) -> str:
    """The best trials, and how to train with their settings."""
    whole = [trial for trial in found.trials if trial.value is not None]
    best = sorted(whole, key=lambda trial: -(trial.value or 0.0))[:5]
    lines = [
        f"trials     {len(found.trials)}, of which {len(found.trials) - len(whole)} were stopped early",
        f"defaults   {found.metric} {found.default_value:.2f} on held-out rows",
    ]
    for trial in best:
        listed = ", ".join(f"{name}={value}" for name, value in trial.params.items())
        lines.append(f"{trial.value:<10.2f} {listed} ({trial.seconds:.1f} s)")
    chosen = " ".join(f"--set {name}={value}" for name, value in found.params.items())
    lines.append(f"settings   --method {found.method} {chosen}".rstrip())
    return "\n".join(lines)
