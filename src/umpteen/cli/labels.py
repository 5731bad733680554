"""umpteen labels"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from umpteen.cli.label_lists import note_formulas
from umpteen.cli.options import LanguageOption, ModelArgument, OverwriteOption, print_text, refuse_unwritable
from umpteen.errors import ParamError
from umpteen.params import check_choice
from umpteen.printing import printable

if TYPE_CHECKING:
    from umpteen.tagging.concepts import LabelConcepts

_SORTS = ("count", "name", "id")


def command(
    model: ModelArgument,
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="What to look for; case does not count.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Labels to print.", min=1, max=1_000_000)] = 20,
    sort: Annotated[
        str | None,
        typer.Option("--sort", metavar="count|name|id", help="Order. Default: count; with QUERY how well it fits."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write all that are found: .csv, .tsv, .jsonl, .parquet or .xlsx with id, label, URI, notation and "
            "rows; .txt, names alone, as --include and --exclude of `umpteen predict` take them; - prints "
            "these.",
        ),
    ] = None,
    overwrite: OverwriteOption = False,
    language: LanguageOption = None,
) -> None:
    """List the labels of a model, or search among them.

    A query finds names that have its words or, if there are none, names that resemble it; of a model with a
    vocabulary also URIs, notations and terms in any language. The number before a name is that of the rows it had in
    training.

    umpteen labels cooking.model

    umpteen labels cooking.model "cast iron" --output iron.txt
    """
    from umpteen.tagging.concepts import check_concepts
    from umpteen.trained.loading import load_model

    if sort is not None:
        check_choice("--sort", sort, _SORTS)
    refuse_unwritable(output, overwrite=overwrite)
    trained = load_model(model)
    if trained.label_names is None:
        raise ParamError(f"{model}: its labels have no names; they are the numbers from 0 to {trained.n_labels - 1}")
    concepts = check_concepts(trained, model)
    if language is not None and concepts is None:
        raise ParamError(f"--language must be left out, since the model has no vocabulary, but is {language!r:.100}")
    names = list(trained.label_names if concepts is None else concepts.names(language))
    counts = trained.train_counts.counts.tolist()
    found = list(range(len(names))) if query is None else _search(query, names, concepts)
    order = sort or ("count" if query is None else None)
    if order is not None:
        keys: dict[str, Any] = {
            "count": lambda i: (-counts[i], names[i]), "name": lambda i: names[i].casefold(), "id": int,
        }  # fmt: skip
        found.sort(key=keys[order])
    if output is not None:
        facts = {} if concepts is None else concepts.columns
        rows = [
            {"id": i, "label": names[i], **{key: facts[key][i] for key in facts}, "rows": counts[i]} for i in found
        ]
        _write(output, rows, ["id", "label", *facts, "rows"])
        return
    for i in found[:limit]:
        known = "" if concepts is None else " ".join(reversed(concepts.describe(i).values()))
        print_text(f"{counts[i]:>8,}  {printable(names[i])}{f'  {known}' if known else ''}")
    if not found:
        print_text(f"no label of {len(names):,} resembles {query!r}", err=True)
    elif len(found) > limit:
        print_text(f"… and {len(found) - limit:,} more; --limit or --output FILE shows them", err=True)


def _search(query: str, names: list[str], concepts: LabelConcepts | None) -> list[int]:
    """The ids of labels that a query finds."""
    from umpteen.nearest import search_names

    return search_names(query, names) if concepts is None else concepts.search(query, names)


def _write(output: str, rows: list[dict[str, Any]], columns: list[str]) -> None:
    from umpteen.data.files import atomic_path, write_bytes
    from umpteen.data.tables.reading import format_of_table
    from umpteen.data.tables.writing import make_writer

    format = None if output == "-" else format_of_table(output)
    if format is None:
        lines = [f"{row['label']}\n" for row in rows]
        if output == "-":
            typer.echo("".join(lines), nl=False)
        else:
            write_bytes(output, [line.encode("utf-8", "replace") for line in lines])
        return
    with atomic_path(output) as temporary, temporary.open("wb") as file:
        writer = make_writer(format, file, columns)
        writer.write(rows)
        writer.finish()
    note_formulas((row["label"] for row in rows), output)
