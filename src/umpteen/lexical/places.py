"""Where a text has a term, in characters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from umpteen.errors import ModelCorruptError
from umpteen.lexical.terms import TermTable
from umpteen.vocabulary.concepts import Term, Vocabulary


class TermFound(NamedTuple):
    """A term that a text has.

    Attributes
    ----------
    concept : int
    term : Term
        The name in the vocabulary, with its language and kind.
    places : list of (begin, end)
        The characters of the text, word by word.
    words : list of str
        What stands there.
    """

    concept: int
    term: Term
    places: list[tuple[int, int]]
    words: list[str]


def find_places(text: str, table: TermTable, vocabulary: Vocabulary, entry: int) -> TermFound:
    """The places of an entry's term: the run with the fewest other words between its own."""
    wanted, language = table.stems_of(int(np.searchsorted(table.entry_ends, entry, side="right")))
    words = table.read(text, language)
    begin, end = _shortest_run([stem for stem, _, _ in words], wanted)
    places = [(first, last) for stem, first, last in words[begin:end] if stem in wanted]
    concept, number = int(table.entry_concepts[entry]), int(table.entry_names[entry])
    terms = vocabulary.terms(concept)
    if number >= len(terms):
        raise ModelCorruptError(f"concept {concept} must have a term {number}, but has {len(terms)}")
    return TermFound(concept, terms[number], places, [text[first:last] for first, last in places])


def _shortest_run(stems: list[str], wanted: list[str]) -> tuple[int, int]:
    """The first of the shortest runs that have all stems wanted, in their order if there is such."""
    n = len(wanted)
    for i in range(len(stems) - n + 1):
        if stems[i : i + n] == wanted:
            return i, i + n
    last: dict[str, int] = {}
    best = (0, len(stems))
    for i, stem in enumerate(stems):
        if stem not in wanted:
            continue
        last[stem] = i
        begin = min(last.values())
        if len(last) == len(set(wanted)) and i + 1 - begin < best[1] - best[0]:
            best = begin, i + 1
    return best
