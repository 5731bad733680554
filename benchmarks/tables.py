"""A table from CSV to CSV, against the same texts in memory: YSO-Finna-EN's test titles, repeated.

    python -m benchmarks.tables [--rows 1000000] [--train-rows 20000]

User time of the whole process is compared, both in the same run, as the wall clock of a shared machine says little.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

import umpteen

from .common import data_root


def user_seconds(work: Callable[[], object]) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--train-rows", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    folder = data_root() / "YSO-Finna-EN"
    train = umpteen.read_corpus(folder / "train.jsonl.xz")
    some = slice(0, options.train_rows)
    tagger = umpteen.Tagger(umpteen.LabelTree(threads=options.threads), calibration=0).fit(
        train.texts[some], train.labels[some]
    )
    titles = umpteen.read_corpus(folder / "test.jsonl.xz").texts
    texts = [titles[i % len(titles)] for i in range(options.rows)]
    model, threads = tagger.fitted(), options.threads

    def in_memory() -> None:
        model.predict_topk(tagger.vectorize(texts, threads=threads).X, 5, threads=threads)

    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "in.csv"
        with source.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "text"])
            writer.writerows(enumerate(texts))

        def through_files(name: str, **how: object) -> Callable[[], object]:
            return lambda: umpteen.label_file(
                tagger, source, Path(place) / name, top_k=5, threads=threads, overwrite=True, **how
            )

        memory = user_seconds(in_memory)
        seconds = {
            "wide": user_seconds(through_files("wide.csv")),
            "list": user_seconds(through_files("list.csv", layout="list")),
        }
    found = {
        "rows": options.rows,
        "labels": model.n_labels,
        "in memory": round(memory, 1),
        "csv to csv": {name: round(value, 1) for name, value in seconds.items()},
        "ratio": {name: round(value / memory, 2) for name, value in seconds.items()},
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
