"""Texts as rows of features: how many of their words a model knows, and which of them may get labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.models.scorer import Ranking
from umpteen.text.tfidf import WordCounts
from umpteen.trained.model import TrainedModel


@dataclass(frozen=True, eq=False)
class TextRows:
    """Texts as rows of features."""

    X: Any
    words: WordCounts | None  # words and unknown words of each text; None if the input was numbers

    def take(self, rows: Any) -> TextRows:
        """Some of the rows."""
        words = None if self.words is None else WordCounts(*(counts[rows] for counts in self.words))
        return TextRows(self.X[rows], words)

    @cached_property
    def known_share(self) -> NDArray[np.float32]:
        """The share of each text's words that the model knows; 0 for a text that became an empty row."""
        assert self.words is not None
        total, unknown = self.words.total.astype(np.float64), self.words.unknown
        share = np.where(total > 0, 1 - unknown / np.maximum(total, 1), 0)
        return np.where(np.diff(self.X.indptr) > 0, share, 0).astype(np.float32)


def rank_rows(model: TrainedModel, rows: TextRows, *how: Any, min_known: Any = 0.0, **more: Any) -> Ranking:
    """The labels to give texts, as `TrainedModel.rank` decides; none to a text without a known word, or with a
    smaller share of known words than `min_known`, a number or one for each text."""
    labels, values = model.rank(rows.X, *how, **more)
    if rows.words is None:
        return labels, values
    known = rows.known_share
    answered = ((known > 0) & (known >= min_known))[:, None]
    return np.where(answered, labels, -1).astype(np.int32), np.where(answered, values, 0)


def why_none(known: float, min_known: float = 0.0) -> str:
    """Why a text got no label, given the share of its words that the model knows."""
    if known == 0:
        return "no label: the model knows no word of this text"
    if known < min_known:
        return f"no label: the model knows {known:.0%} of the words, and at least {min_known:.0%} are asked for"
    return "no label is likely enough"
