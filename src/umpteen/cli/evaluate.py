"""umpteen evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umpteen.cli.corpora import (
    CsvDelimiterOption,
    CsvQuoteOption,
    EncodingOption,
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
    write_json,
)
from umpteen.cli.report import DEFAULT_K, KOption, PerLabelOption, examine, parse_cuts

if TYPE_CHECKING:
    from umpteen.data.dataset import Dataset
    from umpteen.evaluation.metrics import Metrics
    from umpteen.trained.model import TrainedModel


def command(
    model: ModelArgument,
    test: Annotated[Path, typer.Argument(metavar="TEST", help="Test data with labels.")],
    json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Also write all metrics as JSON; - is standard output."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the metrics with the model, for `umpteen serve` to show.")
    ] = False,
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
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
    csv_quote: CsvQuoteOption = None,
) -> None:
    """Score a model on data whose labels are known: P@k, nDCG@k, PSP@k and more, in percent.

    umpteen evaluate eurlex.model test.txt.xz --json metrics.json
    """
    from umpteen.tagger import Tagger, load

    refuse_unwritable(json, per_label, inputs=[test], overwrite=overwrite)
    cuts, cut = parse_cuts(k), parse_number(threshold)
    tables = TableOptions(format, text_field, label_field, label_delimiter, None, encoding, csv_delimiter, csv_quote)
    tables.fields()  # checks them
    if k != DEFAULT_K or cut is not None or per_label is not None:
        numbers = {"format": format, "labels": labels, "one_based": one_based, "threads": threads}
        how = {"k": cuts, "threshold": cut, "threads": threads, "A": a, "B": b}
        found = examine(model, test, tables, numbers, how, err=json == "-")
        _tell(found.metrics, json, keep, model)
        if per_label is not None:
            from umpteen.data.files import write_bytes
            from umpteen.reporting.page import labels_csv

            write_bytes(per_label, [labels_csv(found).encode("utf-8", "replace")])
            note_formulas(found.names, per_label)
        return
    constants = {"A": a, "B": b}
    loaded = load(model)
    if isinstance(loaded, Tagger):
        corpus = read_judged(test, tables, loaded.fields_, err=json == "-")
        metrics = loaded.evaluate(corpus.texts, corpus.labels, threads=threads, **constants)
    else:
        tables.refuse_for_numbers()
        metrics = _evaluate_rows(loaded, test, format, labels, one_based, threads, constants)
    _tell(metrics, json, keep, model)


def _tell(metrics: Metrics, json: str | None, keep: bool, model: Path) -> None:
    """Prints figures, writes them and keeps them with the model, as is asked for."""
    if json != "-":
        print_text(str(metrics))
    if json is not None:
        write_json(json, metrics.as_dict())
    if keep:
        from umpteen.storage.store import keep_metrics

        keep_metrics(model, metrics.as_dict())


def _evaluate_rows(
    loaded: Any,
    test: Path,
    format: str | None,
    labels: Path | None,
    one_based: bool | None,
    threads: int | None,
    constants: dict[str, float],
) -> Metrics:
    data = read_for_model(loaded, test, format=format, labels=labels, one_based=one_based, threads=threads)
    return evaluate_model(loaded, data, threads=threads, **constants)


def evaluate_model(model: TrainedModel, data: Dataset, *, threads: int | None, **constants: Any) -> Metrics:
    """Metrics of a model on a data set; label frequencies come from the model's training data."""
    from umpteen.evaluation.metrics import KS, evaluate

    labels, _ = model.predict_topk(data.X, max(KS), threads=threads)
    metrics = evaluate(data.Y, labels, model.train_counts, threads=threads, **constants)
    metrics.decisions = model.judge_decisions(data.X, data.Y, threads=threads)
    return metrics
