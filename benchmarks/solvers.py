"""Which solver of DiSMEC is faster for which labels, in processor time.

python benchmarks/solvers.py [SET …]

Labels are ordered by frequency; a group is 64 of them (32 where X is large) from a rank on. Both solvers solve the
same group on one thread to their own stopping rule. What they do once per call (X by columns, the mean row) is
subtracted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.sparse as sp
from auto import rows_of
from common import UNIT, run_parts, table

import umpteen
from umpteen import _native
from umpteen.engines.base import Resources
from umpteen.methods.training_data import TrainingData

#: Set -> ranks.
RANKS = {
    "YSO-Finna-EN": (1000, 4000, 12000, 20000, 24500),
    "NPM-Repos": (0, 2000, 13000, 40000, 120000),
    "Tate-Subjects": (0, 250, 800, 2800, 5000),
    "Debian-Tags": (0, 60, 200, 400),
    "EURLex-4K": (0, 100, 1000, 2650, 3600),
    "StackExchange-Cooking": (0, 75, 350, 650),
    "Nuclei-Tags": (0, 80, 540, 1900),
    "Delicious": (0, 200, 500, 900),
    "Bibtex": (0, 80),
}
RESOURCES = Resources(1, _native.CancelToken())
LARGE = 1_000_000  # entries


def report(name: str) -> str:
    train, _ = rows_of(name)
    X = UNIT.transform(train.X)
    data = TrainingData(X, train.Y, bias=1.0)
    nothing = TrainingData(X, sp.csr_matrix(train.Y.shape, dtype=np.float32), bias=1.0)
    counts = train.label_counts()
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] > 0]
    rows = []
    for rank in RANKS[name]:
        labels = np.sort(order[rank : rank + (32 if X.nnz > LARGE else 64)]).astype(np.int32)
        ms = {solver: time_label(solver, data, nothing, labels) for solver in ("dual", "newton")}
        auto = "dual" if umpteen.DiSMEC().uses_dual(X) else "newton"
        rows.append(
            [f"{rank:,}", f"{np.median(counts[labels]):.0f}", *(f"{value:.2f}" for value in ms.values()), auto,
             f"{ms[auto] / min(ms.values()):.2f}"]
        )  # fmt: skip
        print("  ", name, *rows[-1], file=sys.stderr)
    header = ["rank", "positives", "dual, ms a label", "newton, ms a label", "auto takes", "times the better"]
    shape = f"{X.shape[0]:,} rows, {X.shape[1]:,} features, {X.nnz / X.shape[0]:.1f} entries a row.\n\n"
    return shape + table(header, rows)


def time_label(solver: str, data: TrainingData, nothing: TrainingData, labels: np.ndarray) -> float:
    """Milliseconds of a core per label."""
    method = umpteen.DiSMEC(solver=solver)
    once = processor_time(lambda: method.train_labels(nothing, labels[:1], RESOURCES))
    every = processor_time(lambda: method.train_labels(data, labels, RESOURCES))
    return 1000 * max(every - once, 0) / len(labels)


def processor_time(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


PARTS = {name: (name, partial(report, name)) for name in RANKS}


if __name__ == "__main__":
    run_parts("solvers", "The solvers of DiSMEC", PARTS)
