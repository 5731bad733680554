"""Names that look like a name that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

#: Candidates that are compared letter by letter, which takes long.
_COMPARED = 200


def find_nearest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """At most `n` names that resemble one, best first. Case does not count.

    >>> find_nearest("Titel", ["id", "title", "abstract"])
    ['title']
    """
    folded = name.casefold()
    wanted = _pieces(folded)
    by_shared: list[tuple[float, str]] = []
    for other in known:
        found = _pieces(other.casefold())
        shared = len(wanted & found)
        if shared:
            by_shared.append((-2 * shared / (len(wanted) + len(found)), other))
    by_shared.sort()
    best = [
        (-difflib.SequenceMatcher(None, folded, other.casefold()).ratio(), other)
        for _, other in by_shared[:_COMPARED]
    ]
    return [other for ratio, other in sorted(best) if ratio <= -0.6][:n]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not there; empty if nothing resembles it."""
    found = find_nearest(name, known)
    return f"; did you mean {list_choices(found)}?" if found else ""


def list_choices(names: Sequence[str]) -> str:
    """Names in quotes, the last after an "or"."""
    shown = [repr(name) for name in names]
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _pieces(name: str) -> set[str]:
    """Pairs of letters, so that a letter too many or two in the wrong order leave most of them."""
    padded = f" {name} "
    return {padded[i : i + 2] for i in range(len(padded) - 1)}
