"""What tuning finds: the defaults, and settings chosen on held-out training rows, each tried once on the test rows.

python benchmarks/tuning.py [Bibtex | EURLex-4K]
"""

from __future__ import annotations

import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from common import describe, join, precisions, read, run_parts, table

import umpteen
from umpteen.methods import method_class

SETS = ("Bibtex", "EURLex-4K")
METHODS = ("dismec", "ppdsparse", "pdsparse", "label-tree", "fastxml", "rxml")
TRIALS = 20
METRIC = "nDCG@5"
#: Trials are kept here, so that an interrupted run goes on.
KEPT = Path(tempfile.gettempdir()) / "umpteen-tuning"


def measure(name: str) -> str:
    train, test = read(name)
    KEPT.mkdir(exist_ok=True)
    rows = []
    for method in METHODS:
        started = time.process_time()
        found = umpteen.tune(
            method, train.X, train.Y, trials=TRIALS, metric=METRIC, threads=2, journal=KEPT / f"{name}.{method}"
        )
        seconds = time.process_time() - started
        models = [method_class(method)(threads=2), found.make(threads=2)]
        scores = [join(precisions(model.fit(train.X, train.Y), test)) for model in models]
        given_up = sum(trial.value is None for trial in found.trials)
        values = f"{found.default_value:.2f} → {found.value:.2f}"
        rows.append(
            [
                method,
                values,
                describe(found.params),
                *scores,
                f"{given_up} of {len(found.trials)}",
                f"{seconds:.0f} s",
            ]
        )
        print("  ", rows[-1], file=sys.stderr, flush=True)
    header = ["method", f"{METRIC} on held-out rows", "settings found", "defaults, test P@1 / 3 / 5",
              "tuned, test P@1 / 3 / 5", "trials given up", "CPU time"]  # fmt: skip
    return (
        f"{TRIALS} trials each; a fifth of the training rows is held out; the test rows are looked at once, after "
        f"the search.\n\n{table(header, rows)}"
    )


PARTS = {name: (name, partial(measure, name)) for name in SETS}

if __name__ == "__main__":
    run_parts("tuning", "What tuning finds", PARTS)
