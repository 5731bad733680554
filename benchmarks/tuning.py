"""What tuning finds: the defaults, and settings chosen on held-out training rows, each tried once on the test rows.

python benchmarks/tuning.py [Bibtex | EURLex-4K]
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from common import at_k, describe, measure, read, run_parts, table

import umpteen
from umpteen.methods import method_class

SETS = ("Bibtex", "EURLex-4K")
METHODS = ("dismec", "ppdsparse", "pdsparse", "label-tree", "fastxml", "rxml")
TRIALS = 20
METRIC = "nDCG@5"
#: Trials are kept here, so that an interrupted run goes on.
KEPT = Path(tempfile.gettempdir()) / "umpteen-tuning"


def report(name: str) -> str:
    train, test = read(name)
    KEPT.mkdir(exist_ok=True)
    rows = []
    for method in METHODS:
        found = umpteen.tune(
            method, train.X, train.Y, trials=TRIALS, metric=METRIC, threads=2, journal=KEPT / f"{name}.{method}"
        )
        models = [method_class(method)(threads=2), found.make(threads=2)]
        tests = [measure(model.fit(train.X, train.Y), test) for model in models]
        given_up = sum(trial.value is None for trial in found.trials)
        rows.append(
            [
                method,
                f"{found.default_value:.2f} → {found.value:.2f}",
                describe(found.params),
                f"{tests[0][METRIC]:.2f} → {tests[1][METRIC]:.2f}",
                *(at_k(metrics) for metrics in tests),
                f"{given_up} of {len(found.trials)}",
                f"{sum(trial.seconds for trial in found.trials):.0f} s",
            ]
        )
        print("  ", rows[-1], file=sys.stderr, flush=True)
    header = ["method", f"{METRIC}, held-out rows", "settings found", f"{METRIC}, test rows",
              "defaults, test P@1 / 3 / 5", "tuned, test P@1 / 3 / 5", "trials given up", "trials took"]  # fmt: skip
    return (
        f"{TRIALS} trials each, for the best {METRIC}; a fifth of the training rows is held out; the test rows are "
        f"looked at once, after the search. Other work ran beside the trials.\n\n{table(header, rows)}"
    )


PARTS = {name: (name, partial(report, name)) for name in SETS}

if __name__ == "__main__":
    run_parts("tuning", "What tuning finds", PARTS)
