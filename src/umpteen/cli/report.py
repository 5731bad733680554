"""umpteen report"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umpteen.cli.corpora import (
    CsvDelimiterOption,
    CsvQuoteOption,
    EncodingOption,
    IdFieldOption,
    LabelDelimiterOption,
    LabelFieldOption,
    TableOptions,
    TextFieldOption,
    read_judged,
)
from umpteen.cli.label_lists import note_formulas
from umpteen.cli.options import (
    FORMAT,
    PROPENSITY_A,
    PROPENSITY_B,
    FormatOption,
    LabelsOption,
    ModelArgument,
    OneBasedOption,
    OverwriteOption,
    PropensityAOption,
    PropensityBOption,
    ThreadsOption,
    ThresholdOption,
    parse_number,
    print_text,
    read_for_model,
    refuse_unwritable,
)
from umpteen.errors import ParamError

if TYPE_CHECKING:
    from umpteen.reporting.findings import Findings

KOption = Annotated[str, typer.Option("--k", metavar="K,K…", help="How many of a row's best labels are judged.")]
PerLabelOption = Annotated[
    Path | None,
    typer.Option("--per-label", metavar="FILE.csv", help="Also write the figures of each label as CSV."),
]
DEFAULT_K = "1,3,5"


def command(
    model: ModelArgument,
    test: Annotated[Path, typer.Argument(metavar="TEST", help="Test data with labels.")],
    output: Annotated[Path, typer.Option("--output", metavar="FILE.html", help="Where the page goes.")],
    k: KOption = DEFAULT_K,
    threshold: ThresholdOption = None,
    per_label: PerLabelOption = None,
    overwrite: OverwriteOption = False,
    a: PropensityAOption = PROPENSITY_A,
    b: PropensityBOption = PROPENSITY_B,
    threads: ThreadsOption = None,
    labels: LabelsOption = None,
    format: FormatOption = FORMAT,
    one_based: OneBasedOption = None,
    text_field: TextFieldOption = None,
    label_field: LabelFieldOption = None,
    label_delimiter: LabelDelimiterOption = None,
    id_field: IdFieldOption = None,
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
    csv_quote: CsvQuoteOption = None,
) -> None:
    """Write a page about a model: all measures with intervals, rare labels, each label, mistakes with examples.

    The page opens offline. Its table of labels sorts, and can be saved as CSV.

    umpteen report books.model test.csv --output report.html
    """
    from umpteen.data.files import write_bytes
    from umpteen.reporting.page import labels_csv, render

    refuse_unwritable(output, per_label, inputs=[test], overwrite=overwrite)
    tables = TableOptions(
        format, text_field, label_field, label_delimiter, id_field, encoding, csv_delimiter, csv_quote
    )
    numbers = {"format": format, "labels": labels, "one_based": one_based, "threads": threads}
    how = {"k": parse_cuts(k), "threshold": parse_number(threshold), "threads": threads, "A": a, "B": b}
    tables.fields()  # checks them
    found = examine(model, test, tables, numbers, how, ids=True)
    facts = [
        f"The model {model}, trained by {found.model.method} on {found.model.train_counts.n_rows:,} rows, has "
        f"{found.model.n_labels:,} labels. It is judged on {test}."
    ]
    page = render(found, f"{Path(str(model)).name} on {test.name}", facts)
    write_bytes(output, [page.encode("utf-8", "replace")])
    if per_label is not None:
        write_bytes(per_label, [labels_csv(found).encode("utf-8", "replace")])
        note_formulas(found.names, per_label)
    print_text(str(found.metrics))
    print_text(f"report     {output}")


def examine(
    model: Path,
    test: Path,
    tables: TableOptions,
    numbers: dict[str, Any],
    how: dict[str, Any],
    *,
    ids: bool = False,
    err: bool = False,
) -> Findings:
    """A model on a file, whatever it holds. With `ids` rows are named by the column that the model knows for that."""
    from umpteen.reporting.findings import examine_rows, examine_texts
    from umpteen.tagger import Tagger, load

    loaded = load(model)
    trained = loaded.fitted() if isinstance(loaded, Tagger) else loaded
    trained.check_limits(None, how["threshold"])  # before the long work, not after it
    if isinstance(loaded, Tagger) and loaded.features_ is not None:
        corpus = read_judged(test, tables, loaded.fields_, ids=ids, err=err)
        return examine_texts(loaded, corpus.texts, corpus.labels, corpus.ids, **how)
    tables.refuse_for_numbers()
    data = read_for_model(trained, test, **numbers)
    return examine_rows(trained, data.X, data.Y, **how)


def parse_cuts(text: str) -> list[int]:
    """Numbers with commas between them."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1 or found[-1] > 1000:
        raise ParamError(f"--k must be whole numbers from 1 to 1000 such as 1,3,5, but is {text!r}")
    return found
