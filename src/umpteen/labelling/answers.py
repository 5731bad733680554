"""What rows of a table get: labels, probabilities, reasons, and how many of their words are unknown.

    wide    label_1, probability_1, label_2, probability_2, …
    list    labels, probabilities: lists, or in one cell with a delimiter
    long    label, probability: a line for each label, and one for a row that has none

If the model has a vocabulary, labels also have URIs and notations: uri_1 and notation_1, uris and notations, uri and
notation. All layouts have unknown_words, the share of words that the model does not know, from 0 to 1. A column of
the table that already has such a name keeps it, and the new one is called suggested_….
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from umpteen.data.tables.fields import show
from umpteen.errors import DataError
from umpteen.params import check_choice
from umpteen.printing import format_json

LAYOUTS = ("wide", "list", "long")
#: Columns of labels where their number is not asked for.
DEFAULT_WIDTH = 10
#: How a cell begins that a spreadsheet may take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
UNKNOWN = "unknown_words"
_DIGITS = 4

Row = dict[str, Any]


class Answers:
    """Adds the columns of a layout to rows.

    Parameters
    ----------
    names : sequence of str
        Label names by id.
    width : int
        How many labels a row of "wide" has room for.
    cells : bool
        Whether a value must be one cell, as in CSV and Excel, rather than a list.
    delimiter : str
        What separates labels in a cell. If a label's name holds it, all cells are lists as JSON.
    escape_formulas : bool
        Whether labels and words that a spreadsheet may take for a formula get an apostrophe before them.
    taken : sequence of str
        The columns that the table has.
    facts : dictionary
        More about labels, by the name of its column: a text for each label.
    """

    def __init__(
        self,
        layout: str,
        names: Sequence[str],
        *,
        width: int = DEFAULT_WIDTH,
        cells: bool = True,
        delimiter: str = ";",
        explain: bool = False,
        escape_formulas: bool = False,
        taken: Sequence[str] = (),
        facts: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        check_choice("labels", layout, LAYOUTS)
        self.layout, self.width, self.explain = layout, width, explain
        self._escape = escape_formulas
        self._names, self._cells = _Seen(names, escape=escape_formulas and layout != "list"), cells
        facts = facts or {}
        self._facts = [_Seen(values, escape=escape_formulas and layout != "list") for values in facts.values()]
        in_cells = chain(names, *facts.values()) if layout == "list" else ()
        self.delimiter = None if any(delimiter in text for text in in_cells) else delimiter
        reason = ["why"] if explain else []
        own = ["label", "probability", *facts, *reason]
        if layout == "wide":
            own = [f"{name}_{i}" for i in range(1, width + 1) for name in own]
        elif layout == "list":
            own = ["labels", "probabilities", *(f"{name}s" for name in facts), *reason]
        known = frozenset(taken)
        self.columns = [_free(name, known) for name in [*own, UNKNOWN]]
        self._taken = frozenset(self.columns)
        #: Rows that have more labels than "wide" has columns.
        self.n_cut = 0

    def check_field(self, name: str, where: str) -> None:
        """Refuses a field of a line of JSON that has the name of a new one, and that earlier lines did not have."""
        if name in self._taken:
            raise DataError(f"{where}: {name!r} is the field that labels are given in; it must have another name")

    def add(
        self,
        rows: Sequence[Row],
        labels: Any,
        values: Any,
        unknown: Any,
        reasons: Sequence[Sequence[str]] | None,
    ) -> list[Row]:
        """Rows with their answers. `labels` are ids, padded with -1."""
        probabilities = values.astype("float64").round(_DIGITS).tolist()
        shares = unknown.astype("float64").round(_DIGITS).tolist()
        make = {"wide": self._wide, "list": self._list, "long": self._long}[self.layout]
        out: list[Row] = []
        names = self._names
        if self._escape and reasons and self.layout != "list":
            reasons = [[escape_formula(why) for why in row] for row in reasons]
        for i, ids in enumerate(labels.tolist()):
            kept = [label for label in ids if label >= 0]  # -1 only stands after the labels of a row
            found: list[Sequence[Any]] = [[names[label] for label in kept], probabilities[i][: len(kept)]]
            found += [[fact[label] for label in kept] for fact in self._facts]
            if self.explain:
                found.append(reasons[i] if reasons else [])
            make(out, rows[i], found, shares[i])
        return out

    def _wide(self, out: list[Row], row: Row, found: list[Sequence[Any]], share: float) -> None:
        n, step = min(len(found[0]), self.width), len(found)
        self.n_cut += len(found[0]) > self.width
        cells: list[Any] = [None] * (step * self.width)
        for place, values in enumerate(found):
            cells[place : step * n : step] = values[:n]
        cells.append(share)
        row.update(zip(self.columns, cells, strict=True))
        out.append(row)

    def _list(self, out: list[Row], row: Row, found: list[Sequence[Any]], share: float) -> None:
        lists = [self._as_cell(values) if self._cells else list(values) for values in found]
        row.update(zip(self.columns, [*lists, share], strict=True))
        out.append(row)

    def _as_cell(self, values: Sequence[Any]) -> str:
        cell = format_json(values) if self.delimiter is None else self.delimiter.join(map(str, values))
        return escape_formula(cell) if self._escape else cell

    def _long(self, out: list[Row], row: Row, found: list[Sequence[Any]], share: float) -> None:
        if not found[0]:
            out.append(row | dict.fromkeys(self.columns[:-1]) | {self.columns[-1]: share})
        out += (row | dict(zip(self.columns, [*cells, share], strict=True)) for cells in zip(*found, strict=True))


class _Seen(dict[int, str]):
    """Names by id, each decoded once; only those that are given are kept."""

    def __init__(self, names: Sequence[str], *, escape: bool) -> None:
        self._all, self._escape = names, escape

    def __missing__(self, label: int) -> str:
        name = self[label] = escape_formula(self._all[label]) if self._escape else self._all[label]
        return name


def escape_formula(cell: str) -> str:
    """A cell that a spreadsheet shows and does not run.

    >>> [escape_formula(cell) for cell in ("=1+1", "@types/node", "a=b")]
    ["'=1+1", "'@types/node", 'a=b']
    """
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def _free(name: str, taken: Collection[str]) -> str:
    if name not in taken:
        return name
    if f"suggested_{name}" in taken:
        raise DataError(f"the table must not have the columns {show(name)} and {show(f'suggested_{name}')}, but has")
    return f"suggested_{name}"
