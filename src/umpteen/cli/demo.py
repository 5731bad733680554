"""umpteen demo"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umpteen.cli.defaults import default_of
from umpteen.cli.options import ThreadsOption, make_text_features
from umpteen.printing import printable

if TYPE_CHECKING:
    from umpteen.data.corpus import Corpus
    from umpteen.tagger import Tagger

#: The methods compared, from the simplest to the most accurate, with settings that take seconds on this much text.
METHODS: dict[str, dict[str, Any]] = {
    "centroid": {},
    "fastxml": {"n_trees": 20, "normalize": True},
    "dismec": {},
    "auto": {},
}
#: How long the last may take to choose and train.
_BUDGET = "1m"
_EXAMPLES = 3

#: ECE: expected calibration error, of the raw scores and of the calibrated probabilities.
HEADER = ("method", "P@1", "P@3", "P@5", "PSP@1", "PSP@5", "train", "model", "raw ECE", "ECE")


def command(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the corpus, the models and the report go.")
    ] = Path("umpteen-demo"),
    threads: ThreadsOption = None,
    package: Annotated[
        list[str] | None, typer.Option("--package", help="Read only this installed package; repeatable.")
    ] = None,
    max_texts: Annotated[int, typer.Option("--max-texts", help="Most texts to read.", min=100)] = default_of(
        "umpteen.demo:gather_corpus", "max_texts"
    ),
) -> None:
    """See everything at work on text found on this machine, in a minute or two; nothing is downloaded.

    The text is the documentation in the installed Python packages, which are parsed, not run. Labels are modules,
    parameters, exceptions. Several methods are trained on four fifths of it and judged on the rest.
    """
    from rich.console import Console

    from umpteen.choosing.choice import AUTO
    from umpteen.data.label_lists import encode_labels

    if directory.exists() and any(directory.iterdir()):
        from umpteen.errors import ModelExistsError

        raise ModelExistsError(f"{directory}: the directory is not empty; choose another or remove it")
    directory.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    begun = time.perf_counter()
    corpus = _gather(console, max_texts, package or [])
    _, Y = encode_labels(corpus.labels)
    train, test = _split(directory, corpus, Y)
    counts = _count_texts(Y)
    _describe(console, corpus, counts, directory, time.perf_counter() - begun)
    rows, taggers, results = _train_all(directory, train, test, threads)
    _print_table(console, rows)
    chosen = taggers[AUTO].choice_
    console.print(f"auto is [bold]{chosen.name}[/]: {chosen.reason}")
    best = max(results, key=lambda name: results[name][0]["P@1"])
    console.print(f"\nThree texts that [bold]{best}[/] has not seen, and why:\n")
    shown = _examples(test)
    for i in shown:
        _show_example(console, taggers[best], test.texts[i], test.labels[i])
    report = directory / "report.html"
    _write_report(report, corpus, counts, rows, results, best, taggers[best], test, shown)
    _print_next_steps(console, directory, best, report)
    console.print(f"[dim]{time.perf_counter() - begun:.0f} s in total[/]")


def _gather(console: Any, max_texts: int, packages: list[str]) -> Corpus:
    """The documentation of installed packages, with a bar at a terminal."""
    from rich.progress import Progress, SpinnerColumn

    from umpteen.demo import gather_corpus

    with Progress(SpinnerColumn(), *Progress.get_default_columns(), console=console, transient=True,
                  disable=not console.is_terminal) as bar:  # fmt: skip
        task = bar.add_task("reading the documentation of installed packages")
        return gather_corpus(
            max_texts, packages=packages, on_progress=lambda done, of: bar.update(task, completed=done, total=of)
        )


def _split(directory: Path, corpus: Corpus, Y: Any) -> tuple[Corpus, Corpus]:
    """Four fifths to train on and the rest to test on, both also written to the directory."""
    from umpteen.data.corpus import Corpus
    from umpteen.data.split import split_rows

    held_out = split_rows(Y)
    parts = []
    for part, mask in (("train", ~held_out), ("test", held_out)):
        chosen = mask.nonzero()[0].tolist()
        parts.append(Corpus([corpus.texts[i] for i in chosen], [corpus.labels[i] for i in chosen]))
        _write_corpus(directory / f"{part}.jsonl", parts[-1])
    return parts[0], parts[1]


def _count_texts(Y: Any) -> Any:
    """How many texts each label has."""
    import numpy as np

    return np.bincount(Y.indices, minlength=Y.shape[1])


def _describe(console: Any, corpus: Corpus, counts: Any, directory: Path, seconds: float) -> None:
    import numpy as np

    console.print(
        f"[bold]{len(corpus):,}[/] docstrings, [bold]{len(counts):,}[/] labels, "
        f"{counts.sum() / len(corpus):.1f} per text; "
        f"half of the labels have {int(np.median(counts))} texts or fewer "
        f"[dim]({seconds:.0f} s; {directory}/train.jsonl, test.jsonl)[/]"
    )


def _train_all(
    directory: Path, train: Corpus, test: Corpus, threads: int | None
) -> tuple[list[list[str]], dict[str, Tagger], dict[str, Any]]:
    """Trains and judges every method: the rows of the table, the taggers, and metrics and reliability by method."""
    from umpteen.choosing.choice import AUTO
    from umpteen.methods import method_class
    from umpteen.storage.store import ModelReader, keep_metrics
    from umpteen.tagger import Tagger

    taggers: dict[str, Tagger] = {}
    rows: list[list[str]] = []
    results: dict[str, Any] = {}
    chosen = make_text_features(["min_df=2"], threads)
    features, data = Tagger(features=chosen).prepare(train.texts, train.labels)
    for name, params in METHODS.items():
        auto = name == AUTO
        tagger = Tagger(AUTO, budget=_BUDGET) if auto else Tagger(method_class(name)(**params, threads=threads))
        started = time.perf_counter()
        model = directory / f"{name}.model"
        choice = tagger.choose(data, threads=threads).computing(threads=threads) if auto else None
        tagger.train(features, data, model, progress=True, choice=choice)
        seconds = time.perf_counter() - started
        metrics = tagger.evaluate(test.texts, test.labels)
        keep_metrics(model, metrics.as_dict())
        before, after = tagger.reliability(test.texts, test.labels)
        cells = [f"{metrics[key]:.1f}" for key in ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")]
        size = f"{ModelReader(model).n_bytes() / 1e6:.1f} MB"
        rows.append([name, *cells, f"{seconds:.1f} s", size, f"{before.error:.3f}", f"{after.error:.3f}"])
        taggers[name], results[name] = tagger, (metrics, before, after)
    return rows, taggers, results


def _print_table(console: Any, rows: list[list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title="trained on four fifths, judged on the rest",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for column in HEADER:
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _print_next_steps(console: Any, directory: Path, best: str, report: Path) -> None:
    model = directory / f"{best}.model"
    console.print(f"[bold]Report[/]   {report}")
    console.print(
        f'[bold]Next[/]     umpteen suggest {model} "Return the mean of an array along an axis" --explain',
        soft_wrap=True,
    )
    console.print(f"         umpteen evaluate {model} {directory}/test.jsonl")
    others = " ".join(str(directory / f"{name}.model") for name in METHODS if name != best)
    console.print(
        f"         umpteen serve {model} {others}   [dim]# a page to try them on; pip install 'umpteen\\[serve]'[/]",
        soft_wrap=True,
    )


def _write_corpus(path: Path, corpus: Any) -> None:
    import json

    from umpteen.data.files import write_bytes

    lines = (json.dumps({"text": text, "labels": labels}, ensure_ascii=False) + "\n" for text, labels in corpus)
    write_bytes(path, (line.encode("utf-8", "replace") for line in lines))


def _examples(test: Any) -> list[int]:
    """The first texts that are short enough to show and have several labels."""
    fits = [i for i, (text, labels) in enumerate(test) if 150 < len(text) < 450 and len(labels) >= 4]
    return (fits or list(range(len(test))))[:_EXAMPLES]


def _show_example(console: Any, tagger: Any, text: str, truth: list[str]) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(printable(" ".join(text.split())[:400]), style="dim"), (0, 2)))
    for name, value in tagger.suggest(text, 5):
        right = name in truth
        mark = ("✓ ", "green") if right else ("  ", "")
        shown = f"{printable(name):<32} {value:4.2f} "
        console.print(Text.assemble("    ", mark, shown, ("█" * round(24 * value), "cyan")))
    why = tagger.explain(text)
    words = printable(", ".join([word for word, value in why.words if value > 0][:5]))
    console.print(Text.assemble("    why ", (printable(why.label), "bold"), ": ", (words, "green"), "\n"))


def _write_report(
    path: Path, corpus: Any, counts: Any, rows: Any, results: Any, best: str, tagger: Any, test: Any, shown: list[int]
) -> None:
    import html

    from umpteen.data.files import write_bytes
    from umpteen.evaluation import report

    lines = {
        name: ([d["decile"] for d in metrics.by_decile], [d["recall@5"] for d in metrics.by_decile])
        for name, (metrics, _, _) in results.items()
    }
    _, before, after = results[best]
    marks = {**dict.fromkeys(range(1, 6), "highest"), **dict.fromkeys((6, 7, 9), "lowest")}
    examples = "".join(
        f"<blockquote>{tagger.explain(test.texts[i]).to_html()}<p><small>right: "
        f"{html.escape(', '.join(test.labels[i]))}<br>suggested: "
        + html.escape(", ".join(f"{name} {value:.2f}" for name, value in tagger.suggest(test.texts[i])))
        + "</small></p></blockquote>"
        for i in shown
    )
    text = report.page(
        "umpteen: labels for the documentation on this machine",
        [
            report.paragraph(
                f"{len(corpus):,} docstrings with {len(counts):,} labels: modules, parameters, exceptions. Four "
                "fifths were for training; all figures are from the rest, in percent."
            ),
            report.section("Methods", report.table(HEADER, rows, marks)),
            report.section(
                "Head and tail",
                '<div class="row">',
                report.figure(report.frequency_chart(counts), "How often each label occurs."),
                report.figure(
                    report.line_chart(lines, x_label="tenth of the labels, most frequent first", y_label="recall@5"),
                    "Of the pairs of text and label in each tenth of the labels, how many are found among the five "
                    "best. The right end is where methods differ.",
                ),
                "</div>",
            ),
            report.section(
                "Can the probabilities be trusted?",
                '<div class="row">',
                report.figure(before.to_svg(), f"{best}: raw scores, error {before.error:.3f}."),
                report.figure(after.to_svg(), f"{best}: after calibration, error {after.error:.3f}."),
                "</div>",
            ),
            report.section("Why these labels", examples),
        ],
    )
    write_bytes(path, [text.encode("utf-8", "replace")])
