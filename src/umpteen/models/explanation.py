"""Why a model gave a label to a row, in one form for all families."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Explanation:
    """What counts for and against a label.

    Attributes
    ----------
    label : int
    score : float
        The score in `predict_topk`; -inf if the label cannot be ranked for this row.
    family : str
        The model's family, as named in families.py.
    base : float
        The part of the score that comes from no feature of the row.
    features : array of int
        Features of the row that contribute, the largest contribution first.
    contributions : array of float
        Their contributions. With `base` they add up to `explained`.
    explained : float
        The score, if it is a sum of contributions; else the total they are shares of, see the model's class.
    votes : list of dict
        The voters, strongest first: trees with their leaf and splits, or neighbours. Empty for linear models.
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
        """Drops features that contribute nothing and sorts the others."""
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
