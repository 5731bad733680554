"""Labels and features that came to a model after its training, and what they mean for a ranking.

Both only ever come after the others. The manifest's `grown` lists, for each time that features came, how many labels
and features there were before, so it says which features a label was trained with:

    "grown": [[656, 9120], [657, 9131]]     labels below 656 know features below 9120; label 656 those below 9131

A row with none of the features a label knows says nothing for or against that label: its score would be its bias, and
the most frequent labels would come first. So the label is not ranked for the row, unless a correction has taught it
one of the row's features since, which its weights show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr
from umpteen.errors import ModelCorruptError
from umpteen.models.linear import LinearModel
from umpteen.models.scorer import Ranking, Scorer

#: The entry of the manifest.
GROWN = "grown"

Ints = NDArray[np.int64]


def with_features(header: Mapping[str, Any], n_features: int) -> dict[str, Any]:
    """The header of a model that gets features; those it had are remembered for the labels it has."""
    n_labels, steps = header["n_labels"], header.get(GROWN, [])
    if not steps or steps[-1][0] < n_labels:
        steps = [*steps, [n_labels, header["n_features"]]]
    return {**header, GROWN: steps, "n_features": n_features}


def open_grown(header: Mapping[str, Any]) -> Ints:
    """What `with_features` has written, which is not trusted: rows of (labels, features), rising."""
    given = header.get(GROWN, [])
    sound = isinstance(given, list) and all(isinstance(step, list) and len(step) == 2 for step in given)
    if sound:
        sound = all(type(number) is int and 0 < number <= 2**31 for step in given for number in step)
    steps = np.array(given if sound else [], np.int64).reshape(-1, 2)
    if not sound or (np.diff(steps, axis=0, append=[[header["n_labels"] + 1, header["n_features"]]]) <= 0).any():
        raise ModelCorruptError(
            f"{GROWN} must be rising pairs of at most {header['n_labels']} labels and fewer than "
            f"{header['n_features']} features, but is {given!r:.100}"
        )
    return steps


def rank_known(
    rank: Callable[[Csr, Any], Ranking], X: Csr, top_k: int, exclude: Ints | None, steps: Ints, scorer: Scorer
) -> Ranking:
    """Ranks for each row the labels that know one of its features.

    Parameters
    ----------
    rank
        Ranks labels for rows without some labels; `exclude` are those never to rank.
    steps
        As `open_grown` gives them.
    """
    has_features = np.diff(X.indptr) > 0
    first = np.zeros(X.shape[0], np.int64)  # features of a row rise
    first[has_features] = X.indices[X.indptr[:-1][has_features]]
    odd = np.flatnonzero(first >= steps[0, 1])
    if not len(odd):
        return rank(X, exclude)
    labels = np.full((X.shape[0], top_k), -1, np.int32)
    scores = np.full((X.shape[0], top_k), -np.inf, np.float32)
    others = np.setdiff1d(np.arange(X.shape[0]), odd)
    if len(others):
        labels[others], scores[others] = rank(X[others], exclude)
    for row in odd.tolist():
        x = X[row]
        n_strange = steps[np.searchsorted(steps[:, 1], first[row], side="right") - 1, 0]
        strange = np.setdiff1d(np.arange(n_strange), _labels_with(scorer, x.indices))
        labels[row], scores[row] = rank(x, strange if exclude is None else np.union1d(strange, exclude))
    return labels, scores


def _labels_with(scorer: Scorer, features: NDArray[np.int32]) -> Ints:
    """Labels with a weight for one of the features."""
    assert isinstance(scorer, LinearModel)  # no other kind of model grows
    found = [shard.label_ids[np.unique(shard.labels_of(features))] for shard in scorer.shards]
    return np.concatenate([np.zeros(0, np.int64), *found])
