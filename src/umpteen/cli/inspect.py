"""umpteen inspect"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umpteen.cli.corpora import CsvDelimiterOption, CsvQuoteOption, EncodingOption, TableOptions, is_corpus
from umpteen.cli.facts import data_facts, describe_data
from umpteen.cli.options import (
    FORMAT,
    FormatOption,
    LabelsOption,
    OneBasedOption,
    OverwriteOption,
    ThreadsOption,
    print_text,
    read_data,
    refuse_unwritable,
    write_json,
)
from umpteen.printing import counted, printable

_LONGEST_EXAMPLE = 80

if TYPE_CHECKING:
    from umpteen.storage.store import Part


def command(
    path: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="A model directory or a data file.")],
    json: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the facts as JSON; - is standard output."),
    ] = None,
    overwrite: OverwriteOption = False,
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Also compare every byte of a model with its checksums.")
    ] = False,
    threads: ThreadsOption = None,
    labels: LabelsOption = None,
    format: FormatOption = FORMAT,
    one_based: OneBasedOption = None,
    encoding: EncodingOption = None,
    csv_delimiter: CsvDelimiterOption = None,
    csv_quote: CsvQuoteOption = None,
) -> None:
    """Show what is in a model or a data file.

    umpteen inspect eurlex.model

    umpteen inspect train.txt.xz

    umpteen inspect records.csv
    """
    refuse_unwritable(json, inputs=[path], overwrite=overwrite)
    tables = TableOptions(format, encoding=encoding, csv_delimiter=csv_delimiter, csv_quote=csv_quote)
    if path.is_dir():
        facts = model_facts(path, checksums)
        text = "\n".join(f"{key:20} {printable(_show(value))}" for key, value in facts.items())
    elif is_corpus(path, format):
        facts = table_facts(path, tables)
        text = "\n".join(_table_lines(facts))
    else:
        tables.refuse_for_numbers()
        data = read_data(path, format=format, labels=labels, one_based=one_based, threads=threads)
        facts = data_facts(data)
        text = describe_data(data)
    if json != "-":
        print_text(text)
    if json is not None:
        write_json(json, facts)


def model_facts(path: Path, checksums: bool) -> dict[str, Any]:
    """Facts from the manifest and the shards of a model; for an unfinished one, how far it got."""
    from umpteen.methods.correcting import CORRECTIONS
    from umpteen.methods.kept_rows import KEPT_ROWS
    from umpteen.storage.manifest import read_manifest
    from umpteen.storage.store import ModelReader
    from umpteen.tagger import Tagger
    from umpteen.tagging.storage import VOCABULARY, open_fields
    from umpteen.text.encoding import outside_encoders
    from umpteen.trained.loading import load_model

    manifest = read_manifest(path)
    reader = ModelReader(path, checksums=checksums) if manifest["complete"] else None
    manifest = manifest if reader is None else reader.manifest  # by now there may be another
    keys = ("method", "params", "n_train_rows", "n_features", "n_labels", "preprocessing", "umpteen_version")
    facts = {key: manifest.get(key) for key in ("format_version", "complete", *keys)}
    if "chosen" in manifest:
        facts["chosen"] = manifest["chosen"]
    if reader is None:
        done = sum((path / name).exists() for name in manifest["planned"])
        return facts | {"shards_done": done, "shards_planned": len(manifest["planned"])}
    model = load_model(reader)
    facts |= {
        "version": reader.version,
        "shards": len(reader.shard_names),
        "bytes": reader.n_bytes(),
        **model.scorer.describe(),
    }
    facts["label_names"] = model.label_names is not None
    facts["features"] = manifest["text"].get("features") if isinstance(manifest.get("text"), dict) else "numbers"
    outside = outside_encoders(model.parts.get(VOCABULARY))
    fields = None
    if isinstance(manifest.get("text"), dict):
        fields = open_fields(manifest["text"], path) if outside else Tagger.from_model(model, path).fields_
    facts["encoders"] = ", ".join(outside) or None
    facts["fields"] = None if fields is None else str(fields)
    facts["written"] = None if fields is None else str(fields.written) or None
    facts["calibrated"] = model.calibration is not None
    facts["kept_rows"] = _count_rows(model.parts.get(KEPT_ROWS))
    facts["corrections"] = _count_rows(model.parts.get(CORRECTIONS))
    if checksums:
        facts["checksums"] = "all right"
    return facts


def table_facts(path: Path, options: TableOptions) -> dict[str, Any]:
    """How a table is written, and what its columns hold."""
    from umpteen.data.tables.columnar import cell_text

    table = options.open(path)
    filled: dict[str, int] = dict.fromkeys(table.columns or (), 0)
    examples: dict[str, str] = {}
    n_rows = 0
    for _, row in table:
        n_rows += 1
        for name, value in row.items():
            if value not in (None, "", []):
                filled[name] = filled.get(name, 0) + 1
                examples.setdefault(name, cell_text(value))
    columns = [
        {"name": name, "filled": count, "example": examples.get(name, "")[:_LONGEST_EXAMPLE]}
        for name, count in filled.items()
    ]
    written = None if table.dialect is None else str(table.dialect)
    return {"format": table.format, "written": written, "n_rows": n_rows, "columns": columns}


def _table_lines(facts: dict[str, Any]) -> list[str]:
    written = f", {facts['written']}" if facts["written"] else ""
    size = f"{counted(facts['n_rows'], 'row')}, {counted(len(facts['columns']), 'column')}"
    lines = [f"{facts['format']}{written}; {size}"]
    for column in facts["columns"]:
        share = column["filled"] / max(facts["n_rows"], 1)
        example = f"{share:4.0%} filled, such as {printable(column['example'])}" if share else "empty"
        lines.append(f"{printable(column['name']):20} {example}")
    return lines


def _count_rows(part: Part | None) -> int:
    """How many rows of other people's data a model holds in a part."""
    return 0 if part is None or "indptr" not in part.arrays else max(len(part.arrays["indptr"]) - 1, 0)


def _show(value: Any) -> str:
    if isinstance(value, dict) and "reason" in value:  # what auto chose
        return str(value["reason"])
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
