"""What tuning finds: the defaults, and settings chosen on held-out training rows, each tried once on the test rows.

python benchmarks/tuning.py [--sets Bibtex EURLex-4K] [--methods dismec ppdsparse fastxml rxml] [--trials 20]
"""

from __future__ import annotations

import argparse
import time

from common import table, write_result
from fastxml import describe, join, precisions, read

import umpteen
from umpteen.methods import method_class


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["Bibtex", "EURLex-4K"])
    parser.add_argument("--methods", nargs="+", default=["dismec", "ppdsparse", "fastxml", "rxml"])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--metric", default="nDCG@5")
    options = parser.parse_args()
    rows = []
    for name in options.sets:
        train, test = read(name)
        for method in options.methods:
            started = time.perf_counter()
            found = umpteen.tune(method, train.X, train.Y, trials=options.trials, metric=options.metric, threads=2)
            seconds = time.perf_counter() - started
            models = [method_class(method)(threads=2), found.make(threads=2)]
            scores = [join(precisions(model.fit(train.X, train.Y), test)) for model in models]
            given_up = sum(trial.value is None for trial in found.trials)
            values = f"{found.default_value:.2f} → {found.value:.2f}"
            rows.append([name, method, values, describe(found.params), *scores,
                         f"{seconds:.0f} s, {given_up} of {len(found.trials)} given up"])  # fmt: skip
            print(rows[-1], flush=True)
    header = ["data", "method", f"{options.metric} on held-out rows", "settings found", "defaults, test P@1 / 3 / 5",
              "tuned, test P@1 / 3 / 5", "time"]  # fmt: skip
    text = (
        f"{options.trials} trials each; a fifth of the training rows is held out; the test rows are looked at once, "
        f"after the search.\n\n{table(header, rows)}"
    )
    command = f"python benchmarks/tuning.py --sets {' '.join(options.sets)} --methods {' '.join(options.methods)}"
    write_result("tuning", "What tuning finds", text, f"{command} --trials {options.trials}")


if __name__ == "__main__":
    main()
