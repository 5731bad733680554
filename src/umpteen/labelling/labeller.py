"""Rows and their texts in, the same rows with labels out; where they come from and go to is for others to know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from umpteen.data.tables.reading import Row
from umpteen.labelling.answers import DEFAULT_WIDTH, Answers
from umpteen.tagger import Tagger

#: Words that explain a label.
_REASONS = 3
#: What a cell counts beside its characters, when the size of an answer is bounded.
_CELL = 16


@dataclass
class Labelled:
    """What was done.

    Attributes
    ----------
    n_rows, n_labels
        Rows of the table, and labels they were given, in this run.
    n_without
        Rows that got no label.
    n_cut
        Rows with more labels than there are columns for them.
    continued_at
        Rows that an earlier run had done.
    """

    n_rows: int = 0
    n_labels: int = 0
    n_without: int = 0
    n_cut: int = 0
    continued_at: int = 0


class Labeller:
    """Gives rows their labels, and counts them.

    Parameters
    ----------
    how
        As for `Tagger.rank`.
    lists
        Whether a value may be a list, rather than one cell.
    escape_formulas
        As for `Answers`.
    language
        As for `Tagger.suggest`.
    """

    def __init__(
        self,
        tagger: Tagger,
        layout: str,
        how: Mapping[str, Any],
        *,
        explain: bool = False,
        lists: bool = False,
        escape_formulas: bool = False,
        language: str | None = None,
    ) -> None:
        self.tagger, self.layout, self.how, self.explain, self.lists = tagger, layout, how, explain, lists
        self._escape_formulas = escape_formulas
        self.names = tagger.names_in(language)
        self.done = Labelled()

    def plan(self, columns: Sequence[str]) -> Answers:
        """The columns that a table with these gets."""
        top_k = self.how["top_k"]
        width = DEFAULT_WIDTH if top_k is None or isinstance(top_k, str) else top_k
        width = min(width, len(self.tagger.classes_))
        known = self.tagger.fields_
        delimiter = known.delimiter if known is not None and known.delimiter and known.delimiter.strip() else ";"
        return Answers(
            self.layout, self.names, width=width, cells=not self.lists, delimiter=delimiter,
            explain=self.explain, escape_formulas=self._escape_formulas, taken=columns,
            facts=None if (concepts := self.tagger.concepts_) is None else concepts.columns,
        )  # fmt: skip

    def answer(
        self, answers: Answers, rows: list[Row], texts: list[str], most_characters: int | None = None
    ) -> list[Row]:
        """Rows with their labels: all of them, or as many as have so many characters in all, about, where each is
        repeated for its labels."""
        vectors = self.tagger.vectorize(texts, threads=self.how["threads"])
        how = dict(self.how)
        labels, values = self.tagger.rank_rows(vectors, min_known=how.pop("min_known"), **how)
        given = (labels >= 0).sum(axis=1)
        if self.layout == "long" and most_characters is not None:
            sizes = np.array([_size(row) for row in rows], np.int64) * np.maximum(given, 1)
            n = int((np.cumsum(sizes) <= most_characters).sum())
            rows, texts, vectors, given = rows[:n], texts[:n], vectors.take(slice(n)), given[:n]
            labels, values = labels[:n], values[:n]
        self.done.n_rows += len(rows)
        self.done.n_labels += int(given.sum())
        self.done.n_without += int((given == 0).sum())
        assert vectors.words is not None
        total, unknown = vectors.words.total, vectors.words.unknown
        shares = np.where(total > 0, unknown / np.maximum(total, 1), 0)
        reasons = None
        if self.explain:
            reasons = [
                [self._reason(text, vectors.X[i], label) for label in ids if label >= 0]
                for i, (text, ids) in enumerate(zip(texts, labels.tolist(), strict=True))
            ]
        return answers.add(rows, labels, values, shares, reasons)

    def _reason(self, text: str, row: Any, label: int) -> str:
        """The strongest words for a label."""
        found = self.tagger.explain_row(text, row, label).words
        return ", ".join(word for word, value in found[:_REASONS] if value > 0)


def _size(row: Row) -> int:
    """The characters of a row, and some for each cell."""
    return sum(len(cell) + _CELL for cell in row.values() if isinstance(cell, str))
