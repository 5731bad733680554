"""How often annotators chose a concept when a term of it stood in a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ModelCorruptError
from umpteen.storage.store import Part

if TYPE_CHECKING:
    from umpteen.lexical.candidates import Candidates

#: Texts are divided into so many folds: what is learned from a text must not have counted its own labels.
N_FOLDS = 5
#: A rate counts so many texts at the rate of all.
_PRIOR = 3.0


class Counts(NamedTuple):
    """Texts in which a concept, or an entry of the table of terms, was found; those of them that have it as a label;
    and those that have it, found or not. A row for each fold, or one of their sums.
    """

    concepts_found: NDArray[np.int32]
    concepts_chosen: NDArray[np.int32]
    entries_found: NDArray[np.int32]
    entries_chosen: NDArray[np.int32]
    labels: NDArray[np.int32]
    n_texts: NDArray[np.int32]

    @classmethod
    def empty(cls, n_concepts: int, n_entries: int, n_folds: int = 1) -> Counts:
        sizes = (n_concepts, n_concepts, n_entries, n_entries, n_concepts)
        return cls(*[np.zeros((n_folds, size), np.int32) for size in (*sizes, 1)])

    def add(
        self, batch: Candidates, chosen: NDArray[np.bool_], first: int, labels: Sequence[NDArray[np.int64]]
    ) -> None:
        """Counts candidates, of which some were chosen, and labels; `first` is the number of the first text."""
        of_text = (first + batch.texts) % N_FOLDS
        pairs = (
            (self.concepts_found, of_text, batch.concepts),
            (self.concepts_chosen, of_text[chosen], batch.concepts[chosen]),
            (self.entries_found, of_text[batch.owner], batch.found),
            (self.entries_chosen, of_text[batch.owner][chosen[batch.owner]], batch.found[chosen[batch.owner]]),
        )
        for counts, folds, numbers in pairs:
            np.add.at(counts, (folds, numbers), 1)
        for number, row in enumerate(labels, first):
            self.labels[number % N_FOLDS, row] += 1
            self.n_texts[number % N_FOLDS] += 1

    def rates(self, fold: int | None) -> Rates:
        """The rates over all texts; or over all that are not of a fold."""
        kept = [i for i in range(len(self.n_texts)) if i != fold]
        concepts_found, concepts_chosen, entries_found, entries_chosen, labels = (
            counts[kept].sum(axis=0, dtype=np.int64) for counts in self[:5]
        )
        whole = (concepts_chosen.sum() + 1) / (concepts_found.sum() + 10)
        n_texts = max(int(self.n_texts[kept].sum()), 1)
        return Rates(
            _log_odds(concepts_chosen, concepts_found, whole),
            _log_odds(entries_chosen, entries_found, whole),
            np.log1p(concepts_found),
            np.log1p(labels),
            np.log1p(entries_found) - np.log1p(n_texts),
        )

    def is_new(self, fold: int | None) -> NDArray[np.bool_]:
        """The concepts that are no text's label; or no text's that is not of a fold."""
        kept = [i for i in range(len(self.n_texts)) if i != fold]
        found: NDArray[np.bool_] = self.labels[kept].sum(axis=0) == 0
        return found

    def sums(self) -> Counts:
        """The same with one row: all that is needed to match further texts."""
        return Counts(*[counts.sum(axis=0, keepdims=True, dtype=np.int32) for counts in self])

    def to_part(self) -> Part:
        return Part({name: counts[0] for name, counts in self.sums()._asdict().items()})

    @classmethod
    def from_part(cls, part: Part, n_concepts: int, n_entries: int) -> Counts:
        """What a model keeps, which is not trusted."""
        counts = cls(*[part.array(name, "int32")[None] for name in cls._fields])
        shapes = [empty.shape for empty in cls.empty(n_concepts, n_entries)]
        sound = [some.shape for some in counts] == shapes and all(some.min(initial=0) >= 0 for some in counts)
        if not sound:
            raise ModelCorruptError("the counts of a matcher must fit its vocabulary and be at least 0")
        return counts


class Rates(NamedTuple):
    """What is known of concepts and entries: log-odds of being chosen where found, and logarithms of counts."""

    concept_odds: NDArray[np.float64]
    entry_odds: NDArray[np.float64]
    found: NDArray[np.float64]
    labels: NDArray[np.float64]
    entry_share: NDArray[np.float64]


def _log_odds(chosen: NDArray[Any], found: NDArray[Any], whole: float) -> NDArray[np.float64]:
    share = (chosen + _PRIOR * whole) / (found + _PRIOR)
    share = np.clip(share, 1e-6, 1 - 1e-6)
    odds: NDArray[np.float64] = np.log(share / (1 - share))
    return odds
