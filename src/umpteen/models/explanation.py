"""Why a model gave a label to a row, in a form that every family can fill in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Explanation:
    """What spoke for and against a label.

    Attributes
    ----------
    label : int
    score : float
        What `predict_topk` says; -inf if the label cannot be ranked for this row.
    family : str
        Of the model, as families.py names it.
    base : float
        The part of the score that no feature of the row had a hand in.
    features : array of int
        Features of the row that had one, the largest contribution first.
    contributions : array of float
        Theirs. With `base` they add up to `explained`.
    explained : float
        The score, where it is a sum of contributions; else, as the class of the model says, what they are shares of.
    votes : list of dict
        What voted, the strongest first: trees with their leaf and splits, or neighbours. Empty for linear models.
    note : str
        The votes in a few words, such as "3 trees voted for it"; empty where nothing votes.
    """

    label: int
    score: float
    family: str
    base: float
    features: NDArray[np.int64]
    contributions: NDArray[np.float64]
    explained: float
    votes: list[dict[str, Any]] = field(default_factory=list)
    note: str = ""

    @classmethod
    def build(
        cls,
        label: int,
        score: float,
        family: str,
        base: float,
        features: NDArray[Any],
        contributions: NDArray[Any],
        votes: list[dict[str, Any]] | None = None,
        note: str = "",
    ) -> Explanation:
        """Drops features without a contribution and sorts the others."""
        kept = np.flatnonzero(contributions)
        order = kept[np.lexsort((features[kept], -np.abs(contributions[kept])))]
        values = contributions[order].astype(np.float64)
        return cls(
            label,
            score,
            family,
            base,
            features[order].astype(np.int64),
            values,
            base + float(values.sum()),
            votes or [],
            note,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts that the json module can write; a score of -inf is None."""
        return {
            "label": self.label,
            "score": self.score if np.isfinite(self.score) else None,
            "family": self.family,
            "base": self.base,
            "features": self.features.tolist(),
            "contributions": self.contributions.tolist(),
            "explained": self.explained,
            "votes": self.votes,
            "note": self.note,
        }


def count_votes(votes: list[dict[str, Any]], one: str, many: str, verb: str = "voted for") -> str:
    """Votes in a few words: "1 tree voted for it"."""
    return f"{len(votes)} {one if len(votes) == 1 else many} {verb} it" if votes else ""
