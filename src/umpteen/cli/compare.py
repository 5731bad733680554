"""umpteen compare"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from umpteen.cli.defaults import default_of, extensible
from umpteen.cli.options import (
    FEATURES,
    FORMAT,
    PROPENSITY_A,
    PROPENSITY_B,
    FormatOption,
    LabelNamesOption,
    LabelsOption,
    OneBasedOption,
    PropensityAOption,
    PropensityBOption,
    ThreadsOption,
    make_text_features,
    print_text,
    read_alike,
    read_data,
    refuse_missing,
)
from umpteen.params import check_choice
from umpteen.printing import printable

if TYPE_CHECKING:
    from umpteen.comparing.programs import Contestant
    from umpteen.comparing.running import Conditions, Contest
    from umpteen.data.tables.fields import Fields

_METHODS = "dismec,ppdsparse,fastxml,centroid"
METHODS = extensible(_METHODS.replace(",", ", "), "umpteen.methods:METHODS")
_SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5")
ROUNDS = default_of("umpteen.comparing.running:Conditions", "rounds")
RoundsOption = Annotated[
    int, typer.Option("--rounds", help="Runs of each program, for the medians of their times.", min=1)
]
SEEDS = default_of("umpteen.comparing.running:Conditions", "seeds")
SeedsOption = Annotated[
    int, typer.Option("--seeds", help="Train each program anew with so many seeds; shows mean and deviation.", min=1)
]
TimeoutOption = Annotated[
    float | None, typer.Option("--timeout", help="Seconds after which a program is stopped.", min=0)
]
LauncherOption = Annotated[
    str, typer.Option("--launcher", metavar="COMMAND", help="What starts each program, such as 'taskset -c 0,1'.")
]
CalibrateOption = Annotated[
    bool,
    typer.Option("--calibrate", help="Also judge probabilities; trains each umpteen method once more."),
]
StudiesOption = Annotated[
    bool, typer.Option("--studies/--no-studies", help="Also study pruning, numbers of trees and mistakes.")
]


def command(
    train: Annotated[Path, typer.Argument(metavar="TRAIN", help="Training data.")],
    test: Annotated[Path, typer.Argument(metavar="TEST", help="Test data.")],
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--methods", metavar="NAME[:SETTING=VALUE…],…", help="Methods and settings; repeatable."
        ),
    ] = METHODS,
    peers: Annotated[
        list[str] | None,
        typer.Option("--peers", help="Other programs, with settings; `umpteen peers` lists them."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", help="Where report.html, results.json and the models go.")
    ] = Path("umpteen-compare"),
    name: Annotated[str | None, typer.Option("--name", help="Name of the data. Default: its folder's.")] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="What to compare times with. Default: omikuji, else the first.")
    ] = None,
    rounds: RoundsOption = ROUNDS,
    seeds: SeedsOption = SEEDS,
    timeout: TimeoutOption = None,
    launcher: LauncherOption = "",
    calibrate: CalibrateOption = False,
    studies: StudiesOption = True,
    a: PropensityAOption = PROPENSITY_A,
    b: PropensityBOption = PROPENSITY_B,
    threads: ThreadsOption = None,
    label_names: LabelNamesOption = None,
    labels: LabelsOption = None,
    test_labels: Annotated[
        Path | None, typer.Option("--test-labels", metavar="FILE", help="Labels of the test data, if separate.")
    ] = None,
    format: FormatOption = FORMAT,
    one_based: OneBasedOption = None,
    text_field: TextFieldOption = None,
    label_field: LabelFieldOption = None,
    label_delimiter: LabelDelimiterOption = None,
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
    csv_quote: CsvQuoteOption = None,
    fields_of: FieldsOfOption = None,
    features: Annotated[
        list[str] | None,
        typer.Option("--features", metavar="KIND|NAME=VALUE", help="A kind of terms, or a setting; repeatable.",
                     rich_help_panel="Corpus of texts"),
    ] = FEATURES,
) -> None:  # fmt: skip
    """Compare methods and other programs on the same data: accuracy, on rare labels too, speed and size.

    Each program trains in a process of its own and is measured by the same code; `umpteen peers` lists the peers and
    installs them. A program that fails is listed with the last line it printed. The figures go to a table, to
    results.json and, with charts, to report.html, which opens offline.

    umpteen compare train.txt.xz test.txt.xz --methods dismec,fastxml:n_trees=20 --peers omikuji
    """
    from umpteen.comparing.programs import parse_contestants
    from umpteen.comparing.running import Conditions

    refuse_rounds_of_seeds(rounds, seeds)
    contestants = parse_contestants(methods or [_METHODS]) + parse_contestants(peers or [], peers=True)
    if baseline is not None:
        check_choice("--baseline", baseline, [contestant.name for contestant in contestants])
    refuse_full(output)
    refuse_missing(train, test, labels, test_labels, label_names)
    title = name or train.resolve().parent.name
    tables = TableOptions(format, text_field, label_field, label_delimiter, None, encoding, csv_delimiter, csv_quote)
    tables.fields()  # checks them
    if is_corpus(train, format):
        refuse_for_texts(label_names=label_names, labels=labels, one_based=one_based, test_labels=test_labels)
        known = known_fields(fields_of)
        contest = contest_of_texts(title, train, test, tables, known, features or [], {"A": a, "B": b})
    else:
        tables.refuse_for_numbers()
        options: dict[str, Any] = {"format": format, "one_based": one_based, "threads": threads}
        contest = contest_of_rows(title, train, test, labels, test_labels, label_names, options, {"A": a, "B": b})
    conditions = Conditions(threads, rounds, timeout, launcher=launcher, baseline=baseline, seeds=seeds)
    run_comparison(contest, contestants, output, conditions, calibrate=calibrate, studies=studies)


def refuse_full(output: Path) -> None:
    """Raises if there is something in the directory that a comparison goes to."""
    from umpteen.errors import DataError, ModelExistsError

    if output.is_file():
        raise DataError(f"{output}: must be a directory, but is a file")
    if output.exists() and any(output.iterdir()):
        raise ModelExistsError(f"{output}: the directory is not empty; choose another or remove it")


def refuse_rounds_of_seeds(rounds: int, seeds: int) -> None:
    from umpteen.errors import ParamError

    if rounds > 1 and seeds > 1:
        raise ParamError(f"--rounds and --seeds cannot both be above 1, but are {rounds} and {seeds}")


def contest_of_rows(
    title: str,
    train: Path,
    test: Path,
    labels: Path | None,
    test_labels: Path | None,
    label_names: Path | None,
    options: dict[str, Any],
    constants: dict[str, float],
) -> Contest:
    """A comparison on files of numbers."""
    from umpteen.comparing.running import Contest
    from umpteen.data.dataset import Dataset
    from umpteen.data.files import read_names

    data = read_data(train, labels=labels, **options)
    judged = read_alike(test, data.n_features, data.n_labels, labels=test_labels, **options)
    names = read_names(label_names) if label_names is not None else data.label_names
    return Contest(title, Dataset(data.X, data.Y, names), judged.X, judged.Y, names, constants=constants)


def contest_of_texts(
    title: str,
    train: Path,
    test: Path,
    tables: TableOptions,
    known: Fields | None,
    features: list[str],
    constants: dict[str, float],
) -> Contest:
    """A comparison on texts: all programs get the same tf-idf rows."""
    from umpteen.comparing.running import Contest
    from umpteen.data.label_lists import encode_labels
    from umpteen.tagger import Tagger
    from umpteen.text.features import describe

    chosen = make_text_features(features, None)
    learned, judged = read_texts(train, tables, known), read_texts(test, tables, known)
    started = time.perf_counter()
    vectorizer, data = Tagger(features=chosen).prepare(learned.texts, learned.labels)
    assert vectorizer is not None
    X = vectorizer.transform(judged.texts)
    seconds = time.perf_counter() - started
    names, Y = encode_labels(judged.labels, known=data.label_names or ())
    return Contest(title, data, X, Y, names, judged.texts, {**describe(chosen), "seconds": seconds}, constants)


def run_comparison(
    contest: Contest,
    contestants: list[Contestant],
    output: Path,
    conditions: Conditions,
    *,
    calibrate: bool = False,
    studies: bool = True,
) -> dict[str, Any]:
    """Runs a comparison, prints figures as they come, and writes the page."""
    from rich.console import Console

    from umpteen.comparing.page import describe_machine, render
    from umpteen.comparing.running import compare, write_result
    from umpteen.comparing.running import describe_machine as machine
    from umpteen.comparing.studies import study
    from umpteen.data.files import write_bytes

    refuse_full(output)
    output.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    console.print(
        f"[bold]{_shown(contest.name)}[/]: {contest.train.n_rows:,} rows, {contest.train.n_features:,} features, "
        f"{contest.train.n_labels:,} labels; {contest.test_X.shape[0]:,} test rows"
    )
    console.print(f"[dim]{describe_machine(machine())}[/]")
    try:
        with console.status("running") as status:
            left = [contestant.name for contestant in contestants] * conditions.n_runs

            def show(entry: dict[str, Any]) -> None:
                left.remove(entry["name"])
                status.update(f"running {left[0]}" if left else "studying the models")
                if entry["status"] == "done":
                    outcome = f"P@1 {entry['metrics']['P@1']:.2f}, {entry['train_seconds']:.1f} s"
                else:
                    outcome = f"failed: {entry['error']}"
                console.print(f"[dim]  {_shown(entry['name'])}: {_shown(outcome)}[/]", soft_wrap=True)

            status.update(f"running {left[0]}" if left else "running")
            result = compare(contest, contestants, output, conditions, show)
            result["command"] = typed_command()
            if studies:
                study(contest, result, output, calibrate=calibrate)
    except KeyboardInterrupt:
        print_text(f"interrupted; finished runs are in {output / 'results.json'}", err=True)
        raise typer.Exit(130) from None
    write_result(output / "results.json", result)
    write_bytes(output / "report.html", [render(result).encode("utf-8", "replace")])
    print_table(console, result)
    console.print(f"[bold]Report[/]   {_shown(output / 'report.html')}")
    return result


def typed_command() -> str | None:
    """What was typed to run this; None where it was called from Python."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return shlex.join(["python", "-m", program.parent.name, *sys.argv[1:]])
    return shlex.join(["umpteen", *sys.argv[1:]]) if program.stem == "umpteen" else None


def print_table(console: Any, result: dict[str, Any]) -> None:
    """Prints accuracy, training and prediction as three tables, which fit a terminal."""
    from umpteen.comparing.page import find_best_runs, format_metric, prediction_cells, training_cells

    baseline = result["baseline"]
    done = [run for run in result["runs"] if run["status"] == "done"]
    names = [_shown(run["name"]) + (f" [dim]{_shown(run['version'])}[/]" if run["peer"] else "") for run in done]
    if done:
        best = {key: find_best_runs(result.get("tests", {}), key) for key in _SHOWN}
        figures = [[(format_metric(run, key), run["name"] in best[key]) for key in _SHOWN] for run in done]
        narrow = [[(value.replace(" ", ""), bold) for value, bold in row] for row in figures]
        quality = [[f"[bold]{value}[/]" if bold else value for value, bold in row] for row in narrow]
        console.print(_table(_SHOWN, names, quality))
        for header, rows in (training_cells(done, baseline), prediction_cells(done)):
            console.print(_table(header, names, rows))
    for run in result["runs"]:
        if run["status"] == "failed":
            console.print(f"[red]{_shown(run['name'])} failed:[/] {_shown(run['error'])}", soft_wrap=True)


def _shown(text: object) -> str:
    """Text of others, neither obeyed by the terminal nor read as markup."""
    from rich.markup import escape

    return escape(printable(text, lines=True))


def _table(header: Sequence[str], names: list[str], rows: list[list[str]]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=0)
    table.add_column("", overflow="fold", min_width=10)
    for column in header:
        table.add_column(column, justify="right")
    for name, cells in zip(names, rows, strict=True):
        table.add_row(name, *cells)
    return table
