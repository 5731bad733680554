"""How long training will take, by timing a part of it: of one-vs-rest some labels of every frequency on all rows, of
others the first of their trees or learners."""

from __future__ import annotations

import numpy as np

from umpteen import _native
from umpteen.choosing.budget import Clock
from umpteen.data.matrix import Csr
from umpteen.engines.base import Resources
from umpteen.methods.base import Method
from umpteen.methods.one_vs_rest import PANEL_LABELS, OneVsRest
from umpteen.methods.training_data import TrainingData
from umpteen.threads import resolve_threads

#: Each stratum has this many times the labels of the one before it.
_GROWTH = 4
#: With fewer parts, the first one is most of the work.
_FEWEST_PARTS = 3


def estimate_one_vs_rest(method: OneVsRest, X: Csr, Y: Csr) -> float:
    """Seconds of training all labels.

    Labels are sorted by frequency and cut into strata: the first panel's, then four times as many each time. A panel
    of each stratum is trained, evenly spaced over its ranks, and stands for all of it.
    """
    steps = method.preprocessing().fit(X)
    data = TrainingData(steps.transform(X, threads=method.threads), Y, float(steps.bias))
    method = type(method)(**method.get_params())
    method.plan(data)  # may settle parameters
    counts = np.diff(data.rows_of.indptr)
    by_frequency = np.argsort(-counts, kind="stable").astype(np.int32)[: np.count_nonzero(counts)]
    total, begin, size = 0.0, 0, PANEL_LABELS
    while begin < len(by_frequency):
        stratum = by_frequency[begin : begin + size]
        panel = stratum[np.unique(np.linspace(0, len(stratum) - 1, PANEL_LABELS).astype(int))]
        clock = Clock(method.threads)
        resources = Resources(resolve_threads(method.threads), _native.CancelToken())
        method.train_labels(data, np.sort(panel), resources)
        total += clock() * len(stratum) / len(panel)
        begin, size = begin + size, size * _GROWTH
    return total


def estimate_seconds(method: Method, X: Csr, Y: Csr) -> float | None:
    """Seconds of training a model once, by training a small part of it. None where there are no parts, so that only
    training it would tell."""
    if isinstance(method, OneVsRest):
        return estimate_one_vs_rest(method, X, Y)
    if method.couples_labels:
        return None
    clock = Clock(method.threads)
    steps = method.preprocessing().fit(X)
    data = TrainingData(steps.transform(X, threads=method.threads), Y, float(steps.bias))
    method = type(method)(**method.get_params())
    tasks = method.plan(data)  # may settle parameters, and grow trees of labels
    before = clock()
    if len(tasks) < _FEWEST_PARTS:
        return None
    method.train_shard(data, tasks[0], Resources(resolve_threads(method.threads), _native.CancelToken()))
    return before + (clock() - before) * sum(task.cost for task in tasks) / tasks[0].cost
