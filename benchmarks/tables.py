"""A table from CSV to CSV, against the same texts in memory: YSO-Finna-EN's test titles, repeated to a million.

python benchmarks/tables.py

User time of the whole process is compared, all in one run: the wall clock of a shared machine says little.
"""

from __future__ import annotations

import csv
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import data_root, run_parts, table

import umpteen

ROWS = 1_000_000
TRAIN_ROWS = 20_000
THREADS = 2


def user_seconds(work: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before


def measure() -> str:
    folder = data_root() / "YSO-Finna-EN"
    train = umpteen.read_corpus(folder / "train.jsonl.xz")
    method = umpteen.LabelTree(threads=THREADS)
    tagger = umpteen.Tagger(method, calibration=0).fit(train.texts[:TRAIN_ROWS], train.labels[:TRAIN_ROWS])
    model = tagger.fitted()
    del train  # which nobody has in memory who labels a table, and through which the garbage collector would go
    titles = umpteen.read_corpus(folder / "test.jsonl.xz").texts
    texts = [titles[i % len(titles)] for i in range(ROWS)]

    def in_memory() -> None:
        model.predict_topk(tagger.vectorize(texts, threads=THREADS).X, 5, threads=THREADS)

    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "in.csv"
        with source.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "text"])
            writer.writerows(enumerate(texts))

        def through_files(**how: Any) -> Callable[[], object]:
            target = Path(place) / "out.csv"
            return lambda: umpteen.label_file(tagger, source, target, top_k=5, threads=THREADS, overwrite=True, **how)

        seconds = {
            "vectorise and `predict_topk`, all texts in memory": user_seconds(in_memory),
            '`label_file`, `layout="wide"`': user_seconds(through_files()),
            '`label_file`, `layout="list"`': user_seconds(through_files(layout="list")),
        }
    first = next(iter(seconds.values()))
    rows = [[name, f"{value:.1f}", f"{value / first:.2f}"] for name, value in seconds.items()]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    about = (
        f"{ROWS:,} titles, a LabelTree of {model.n_labels:,} labels trained on {TRAIN_ROWS:,} rows, five labels a "
        f"row, {THREADS} threads; {peak:.0f} MB at the peak, with all texts in memory for the first line."
    )
    return table(["", "user seconds", "ratio"], rows) + "\n\n" + about


PARTS = {"csv": ("From CSV to CSV", measure)}

if __name__ == "__main__":
    run_parts("tables", "Tables in and out", PARTS)
