"""Labels that a command line names, one by one or in files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from umpteen.cli.options import print_text
from umpteen.errors import DataError, ParamError
from umpteen.nearest import did_you_mean
from umpteen.printing import counted

ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", help="A label to leave out, or a file of labels, one a line; repeatable."),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option("--include", help="Give only this label, or those of a file; repeatable."),
]


def find_labels(model: Any, given: list[str] | None, option: str, concepts: Any = None) -> list[Any] | None:
    """The ids of labels. Each value is a label's name; or a file of names, one a line; or an id. If labels are
    concepts, it may also be a URI, a notation or another name."""
    if not given:
        return None
    found: list[int] = []
    for value in given:
        if value in model.ids_by_name:
            found.append(model.ids_by_name[value])
        elif Path(value).is_file():
            found += (some := _read_file(model, value, concepts))
            if not some and option == "--include":
                raise DataError(f"{value}: there must be a label in a file for --include, but there is none")
        elif (concept := _find_concept(concepts, value)) is not None:
            found.append(concept)
        elif value.isascii() and value.isdigit() and int(value) < model.n_labels:
            found.append(int(value))
        else:
            raise ParamError(_explain(model, value, option))
    return found


def note_formulas(names: Iterable[str], output: str | Path, advice: str = "") -> None:
    """Says so where a table for spreadsheets holds names that these may run as formulas."""
    from umpteen.data.tables.reading import format_of_table
    from umpteen.labelling.answers import FORMULA

    if str(output) == "-" or format_of_table(output) not in ("csv", "tsv"):
        return
    odd = [name for name in names if name.startswith(FORMULA)]
    if odd:
        begin = "begins as formulas do, and spreadsheets may run it" if len(odd) == 1 else (
            "begin as formulas do, and spreadsheets may run them"
        )  # fmt: skip
        print_text(f"note: {counted(len(odd), 'label')}, such as {odd[0]!r:.60}, {begin}{advice}", err=True)


def _find_concept(concepts: Any, name: str) -> int | None:
    return None if concepts is None else concepts.find(name)


def _read_file(model: Any, path: str, concepts: Any) -> list[int]:
    from umpteen.data.files import read_names

    found = []
    for number, name in enumerate(read_names(path), start=1):
        name = name.removeprefix("\ufeff") if number == 1 else name
        if not name.strip():
            continue
        label = model.ids_by_name.get(name, model.ids_by_name.get(name.strip()))
        if label is None:
            label = _find_concept(concepts, name.strip())
        if label is None:
            raise DataError(f"{path}:{number}: {_unknown(model, name)}")
        found.append(label)
    return found


def _unknown(model: Any, name: str) -> str:
    return f"the model has no label {name!r:.200}{did_you_mean(name, model.ids_by_name)}"


def _explain(model: Any, value: str, option: str) -> str:
    if model.label_names is None:
        return (
            f"{option} must be a label's id below {model.n_labels}, as this model has no names, but is {value!r:.200}"
        )
    return f"{option}: {_unknown(model, value)}"
