"""Concepts that a text may be about, since it has a term of theirs, and what is known of each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umpteen.lexical.counts import Rates
from umpteen.lexical.terms import SHORTENED, Matches, TermTable
from umpteen.vocabulary.concepts import Vocabulary

Floats = NDArray[np.float64]

#: Neighbours of a concept that are looked for; the first ones.
_MOST_NEIGHBOURS = 64
#: What a candidate is judged by, in the order of the columns.
FEATURES = (
    "frequency",  # sentences with the term, log
    "free",  # share of them without a longer term around it
    "exact",  # whether its words stand side by side somewhere
    "gap",  # fewest words between its own, log
    "words",  # of the term
    "place",  # of the first, as a share of the text
    "first",  # in words, log
    "spread",  # from first to last, as a share of the text
    "length",  # of the text in words, log
    "cover",  # words of the term beside words of the text
    "preferred", "alternative", "hidden", "shortened",
    "ambiguity",  # concepts with the same term, log
    "terms",  # of the concept in the text
    "crowd",  # terms with the rarest word of this one, log
    "candidates",  # of the text, log
    "broader", "narrower", "related",  # concepts beside this one that the text has, too
    "concept odds", "entry odds",  # how often annotators chose the concept where it, or this term, was found
    "found", "labels",  # texts that had the term, or the label, log
    "entry share",  # texts with the term beside all, log
    "lead",  # concept odds beside the best other candidate's
)  # fmt: skip


class Candidates(NamedTuple):
    """Concepts by text, and within a text by number; features as FEATURES."""

    n_texts: int
    texts: NDArray[np.int64]
    concepts: NDArray[np.int64]
    X: Floats
    entries: NDArray[np.int64]  # of the table of terms, the one that stands for it: a free one, exact, long
    found: NDArray[np.int64]  # all entries that were found, by candidate
    owner: NDArray[np.int64]  # the candidate of each of these

    def some(self, wanted: NDArray[np.bool_]) -> Candidates:
        """Those wanted, in the same order."""
        kept, place = wanted[self.owner], np.cumsum(wanted) - 1
        return Candidates(
            self.n_texts, self.texts[wanted], self.concepts[wanted], self.X[wanted], self.entries[wanted],
            self.found[kept], place[self.owner[kept]],
        )  # fmt: skip

    def add_rates(self, rates: Rates) -> None:
        """What annotators did, into the last columns."""
        if not len(self.texts):
            return
        at, X = FEATURES.index("concept odds"), self.X
        X[:, at] = rates.concept_odds[self.concepts]
        X[:, at + 1] = _most(rates.entry_odds[self.found], np.flatnonzero(np.diff(self.owner, prepend=-1)))
        X[:, at + 2], X[:, at + 3] = rates.found[self.concepts], rates.labels[self.concepts]
        X[:, at + 4] = rates.entry_share[self.entries]
        X[:, at + 5] = _lead(X[:, at], self.texts)


class Neighbours:
    """The pairs of a concept and a broader or related one, as rows by concept."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.n_concepts = len(vocabulary)
        self.broader = _edges([vocabulary.broader(i)[:_MOST_NEIGHBOURS] for i in range(len(vocabulary))])
        self.related = _edges([vocabulary.related(i)[:_MOST_NEIGHBOURS] for i in range(len(vocabulary))])


def _edges(rows: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
    return ends, np.array([other for row in rows for other in row], np.int64)


def find_candidates(matches: Matches, table: TermTable, neighbours: Neighbours) -> Candidates:
    """Candidates, still without what only training knows."""
    match, entry = _expand(table.entry_ends, matches.terms)
    text, concept = matches.texts[match], table.entry_concepts[entry].astype(np.int64)
    order = np.lexsort((entry, concept, text))
    match, entry, text, concept = match[order], entry[order], text[order], concept[order]
    is_new = np.ones(len(text), bool)
    is_new[1:] = (text[1:] != text[:-1]) | (concept[1:] != concept[:-1])
    starts, owner = np.flatnonzero(is_new), np.cumsum(is_new) - 1
    rows = matches.rows[match].astype(np.float64)
    lengths = table.lengths[matches.terms][match].astype(np.float64)
    count, inside, exact, first, last, gap = rows[:, 1:].T
    free = (count - inside) / count
    # Of several terms of a concept the one that says most: free, then exact, then long.
    best = _best_of(owner, starts, free * 4 + (exact > 0) * 2 + np.minimum(lengths, 8) / 8)
    kind = table.entry_kinds[entry][best]
    n_words = np.maximum(matches.n_words[text[starts]], 1).astype(np.float64)
    earliest, latest = _least(first, starts), _most(last, starts)
    sharing = np.diff(table.entry_ends, prepend=0)[matches.terms[match[best]]]
    per_text = np.bincount(text[starts], minlength=len(matches.n_words))[text[starts]]
    X = np.zeros((len(starts), len(FEATURES)))
    columns = [
        np.log(_most(count, starts)), _most(free, starts), _most(exact, starts) > 0, np.log1p(_least(gap, starts)),
        lengths[best], earliest / n_words, np.log1p(earliest), (latest - earliest) / n_words, np.log(n_words),
        np.minimum(lengths[best] / n_words, 1), *(kind == k for k in range(SHORTENED + 1)), np.log(sharing),
        np.diff(np.append(starts, len(text))), np.log(table.crowds[matches.terms[match[best]]]), np.log(per_text),
    ]  # fmt: skip
    for i, column in enumerate(columns):
        X[:, i] = column
    found = Candidates(len(matches.n_words), text[starts], concept[starts], X, entry[best], entry, owner)
    _add_neighbours(found, neighbours)
    return found


def without_rates(X: Floats) -> Floats:
    """Features without what annotators did: all that is known of a concept that is new."""
    blind = X.copy()
    blind[:, FEATURES.index("concept odds") :] = 0
    return blind


def _lead(odds: Floats, texts: NDArray[np.int64]) -> Floats:
    """Each candidate's odds less the best others' of its text; 0 where there is no other."""
    starts = np.flatnonzero(np.diff(texts, prepend=-1))
    owner = np.cumsum(np.diff(texts, prepend=-1) > 0) - 1
    order = np.lexsort((-odds, owner))
    best = odds[order][starts]
    sizes = np.diff(np.append(starts, len(texts)))
    second = np.where(sizes > 1, odds[order][np.minimum(starts + 1, len(odds) - 1)], best)
    is_first = np.zeros(len(odds), bool)
    is_first[order[starts]] = True
    lead: Floats = odds - np.where(is_first, second[owner], best[owner])
    return lead


def _add_neighbours(found: Candidates, neighbours: Neighbours) -> None:
    """How many concepts above, below and beside each candidate are candidates of its text, too."""
    keys = found.texts * neighbours.n_concepts + found.concepts  # rise
    at = FEATURES.index("broader")
    for column, (ends, others), back in ((at, neighbours.broader, at + 1), (at + 2, neighbours.related, None)):
        if not len(others) or not len(keys):
            continue
        one, place = _expand(ends, found.concepts)
        wanted = found.texts[one] * neighbours.n_concepts + others[place]
        other = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        there = keys[other] == wanted
        found.X[:, column] = np.bincount(one[there], minlength=len(keys))
        if back is not None:
            found.X[:, back] = np.bincount(other[there], minlength=len(keys))


def _expand(ends: NDArray[Any], rows: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The entries of some rows: which of the rows, and the place of the entry."""
    stops = ends[rows].astype(np.int64)
    starts = np.where(rows > 0, ends[rows - 1], 0).astype(np.int64)
    sizes = stops - starts
    owner = np.repeat(np.arange(len(rows)), sizes)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(starts, sizes)


def _best_of(owner: NDArray[Any], starts: NDArray[Any], value: Floats) -> NDArray[np.int64]:
    """Of each group the place of its largest value; the first of equals."""
    found: NDArray[np.int64] = np.lexsort((np.arange(len(owner)), -value, owner))[starts]
    return found


def _most(values: Floats, starts: NDArray[Any]) -> Floats:
    return np.maximum.reduceat(values, starts) if len(starts) else np.zeros(0)


def _least(values: Floats, starts: NDArray[Any]) -> Floats:
    return np.minimum.reduceat(values, starts) if len(starts) else np.zeros(0)
