"""The names of a table's columns, as spreadsheets leave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from umpteen.errors import DataError

_TITLE = "; if a title stands above the header, remove its line"


def name_columns(header: Sequence[str], where: str) -> list[str]:
    """A header in which every column has a name: the seventh is column_7 if it has none. Spreadsheets write columns
    that were only coloured, or once used. A line with a name or two is a title, not a header.

    >>> name_columns(["id", "title", "", ""], "a.csv:1")
    ['id', 'title', 'column_3', 'column_4']
    """
    n_named = sum(bool(name.strip()) for name in header)
    if len(header) > 1 and n_named < len(header) - n_named:
        raise DataError(f"{where}: most columns must have names, but {len(header) - n_named} have none{_TITLE}")
    return [name if name.strip() or len(header) == 1 else f"column_{i}" for i, name in enumerate(header, start=1)]


def refuse_twins(header: Sequence[str], where: str) -> None:
    """Refuses a header in which a name stands twice.

    >>> refuse_twins(["id", "title", "id"], "a.csv:1")
    Traceback (most recent call last):
    umpteen.errors.DataError: a.csv:1: a column's name may stand once in the header, but 'id' stands 2 times
    """
    name, n = max(Counter(header).items(), key=lambda pair: pair[1], default=("", 0))
    if n > 1:
        raise DataError(f"{where}: a column's name may stand once in the header, but {name!r:.100} stands {n} times")


def hint_title(header: Sequence[str]) -> str:
    """What to do about rows that are longer than a header of one column."""
    return _TITLE if len(header) == 1 else ""
