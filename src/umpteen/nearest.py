"""Names that look like a name that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

#: Candidates that are compared letter by letter, which takes long, and how long names may be: it takes as long as the
#: product of their lengths.
_COMPARED, _LONGEST = 200, 200


def find_nearest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """At most `n` names that resemble one, best first. Case does not count. Very long names resemble none.

    >>> find_nearest("Titel", ["id", "title", "abstract"])
    ['title']
    """
    if len(name) > _LONGEST:
        return []
    folded = name.casefold()
    wanted = _pieces(folded)
    by_shared: list[tuple[float, str]] = []
    for other in known:
        if len(other) > _LONGEST:
            continue
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


def search_names(query: str, names: Sequence[str]) -> list[int]:
    """The places of names that a query finds, best first: those it is, those that begin with it, those that have all
    its words, those that resemble it. Case does not count.

    >>> search_names("sea", ["seafood", "The Sea", "sea", "deep sea", "tax"])
    [2, 0, 1, 3]
    """
    wanted = query.casefold().strip()
    words = wanted.split()
    ranks: list[tuple[int, int]] = []
    for i, name in enumerate(names):
        folded = name.casefold()
        if folded == wanted:
            ranks.append((0, i))
        elif folded.startswith(wanted):
            ranks.append((1, i))
        elif all(word in folded for word in words):
            ranks.append((2, i))
    found = [i for _, i in sorted(ranks)]
    if not found:
        places = {name: i for i, name in enumerate(names)}
        found = [places[name] for name in find_nearest(query, places, n=10)]
    return found


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
