"""What `auto` chooses, how long that takes, and how far it is from the best single method of docs/RESULTS.md.

python benchmarks/auto.py [SET | SET-tuned | SET-texts …]

The choice is made on training rows alone; the test rows are looked at once, after training. SET-tuned is the same
with `tune`, which also compares settings and may blend. SET-texts is that from the raw texts, so that text features
are chosen too; the best single method is that of the set's own numbers all the same.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

from common import RESULTS, data_root, measure, read, run_parts, table

import umpteen
import umpteen.methods
from umpteen.choosing.budget import Clock
from umpteen.choosing.training import train_choice

SETS = (
    "Bibtex", "Delicious", "Mediamill", "StackExchange-Cooking", "Debian-Tags", "Nuclei-Tags", "EURLex-4K",
    "Tate-Subjects", "NPM-Repos", "YSO-Finna-EN",
)  # fmt: skip
BUDGET = "10m"
#: Those that have texts beside numbers.
TEXTS = ("StackExchange-Cooking", "Debian-Tags", "Nuclei-Tags", "Tate-Subjects")
METRIC = "nDCG@5"
THREADS = 2
#: Of sets that are too big for a small machine: every so manieth training and test row.
EVERY = {"YSO-Finna-EN": 12}
#: What the choice is compared with on sets that docs/RESULTS.md does not have.
BASELINES = ("dismec", "label-tree", "fastxml", "rxml")


def rows_of(name: str) -> tuple[umpteen.Dataset, umpteen.Dataset]:
    """The rows of a set; of one that has texts alone, those a `Tagger` makes."""
    if (data_root() / name / "train.txt.xz").exists():
        return read(name)
    train, test = (umpteen.read_corpus(data_root() / name / f"{part}.jsonl.xz") for part in ("train", "test"))
    step = EVERY.get(name, 1)
    tagger = umpteen.Tagger("centroid", calibration=0)
    features, data = tagger.prepare(train.texts[::step], train.labels[::step])
    known = tagger.train(features, data)
    return data, umpteen.Dataset(*known.encode(test.texts[::step], test.labels[::step]))


def best_known(name: str, train: umpteen.Dataset, test: umpteen.Dataset) -> tuple[str, float]:
    """The best single method there, and its nDCG@5 on the test rows."""
    kept = RESULTS / f"{name.lower()}.json"
    if kept.exists():
        runs = [run for run in json.loads(kept.read_text())["runs"] if not run["peer"] and "metrics" in run]
        best = max(runs, key=lambda run: run["metrics"][METRIC])
        return best["name"], best["metrics"][METRIC]
    if train.n_rows > 100_000:
        return "–", float("nan")
    found: dict[str, Any] = {}
    for method in BASELINES:
        model = umpteen.methods.method_class(method)(threads=THREADS).fit(train.X, train.Y)
        found[method] = measure(model, test)[METRIC]
    return max(found.items(), key=lambda item: item[1])


def report(name: str, tune: bool = False) -> str:
    train, test = rows_of(name)
    clock = Clock(THREADS)
    choice = umpteen.choose_method(train.X, train.Y, BUDGET, THREADS, tune=tune)
    choosing = clock()
    model = train_choice(choice, train.X, train.Y)
    return describe(name, choice, choosing, clock(), measure(model, test)[METRIC], best_known(name, train, test))


def report_texts(name: str) -> str:
    train, test = (umpteen.read_corpus(data_root() / name / f"{part}.jsonl.xz") for part in ("train", "test"))
    clock = Clock(THREADS)
    tagger = umpteen.Tagger(tune=True, budget=BUDGET, calibration=0)
    features, data = tagger.prepare(train.texts, train.labels)
    choice = tagger.choose(data, threads=THREADS)
    choosing = clock()
    tagger.train(features, data, choice=choice)
    seconds = clock()
    rows = umpteen.Dataset(*tagger.encode(test.texts, test.labels))
    value = measure(tagger.fitted(), rows)[METRIC]
    text = describe(name, choice, choosing, seconds, value, best_known(name, data, rows))
    return f"Features: `{tagger.choice_.features}`.\n\n{text}"


def describe(name: str, choice: Any, choosing: float, seconds: float, value: float, known: tuple[str, float]) -> str:
    print(choice, file=sys.stderr, flush=True)
    best, reached = known
    header = ["chosen", "choosing", "in all", f"{METRIC}, test rows", "best single method", "its", "difference"]
    row = [
        choice.name, f"{choosing:.0f} s", f"{seconds:.0f} s", f"{value:.2f}", best,
        f"{reached:.2f}", f"{value - reached:+.2f}",
    ]  # fmt: skip
    options = "\n".join(f"- {option}" for option in choice.options)
    some = f"Every {EVERY[name]}th training and test row.\n\n" if name in EVERY else ""
    return f"{some}{table(header, [row])}\n\nWhy: {choice.reason}.\n\n{options}"


PARTS = {name: (name, partial(report, name)) for name in SETS}
PARTS |= {f"{name}-tuned": (f"{name}, tuned", partial(report, name, tune=True)) for name in SETS}
PARTS |= {f"{name}-texts": (f"{name}, tuned, from raw texts", partial(report_texts, name)) for name in TEXTS}

if __name__ == "__main__":
    run_parts("auto", "What auto chooses", PARTS)
