"""A table from CSV to CSV, against the same texts in memory: YSO-Finna-EN's test titles, repeated to a million.

python benchmarks/tables.py [csv] [formats]

Each line is a process of its own: `umpteen predict` as one would type it, from start to end, and one that has all
texts in memory, of which only the work on them counts. UMPTEEN_TABLE_ROWS=20000 is a quick trial, which is not
written down.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from common import data_root, run_parts, table

import umpteen
from umpteen.data.tables.writing import make_writer

ROWS = int(os.environ.get("UMPTEEN_TABLE_ROWS", "1000000"))
TRAIN_ROWS = 20_000
THREADS = 2
ROUNDS = 3  # of which medians are shown
TOP_K = 5
IN_MEMORY = "vectorise and `predict_topk`, all texts in memory"

_IN_MEMORY = f"""
import csv, json, resource, sys, time, umpteen
tagger = umpteen.load(sys.argv[1])
with open(sys.argv[2], newline="", encoding="utf-8") as file:
    texts = [row[1] for row in csv.reader(file)][1:]
before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
tagger.fitted().predict_topk(tagger.vectorize(texts, threads={THREADS}).X, {TOP_K}, threads={THREADS})
wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps([wall, cpu, after.ru_maxrss]))
"""


class Cost(NamedTuple):
    """What a process took: seconds on the wall, of processors, and MB at its peak."""

    wall: float
    cpu: float
    megabytes: float


def run_in_memory(model: Path, source: Path) -> Cost:
    """Vectorising and ranking alone, without starting, reading and writing."""
    command = [sys.executable, "-c", _IN_MEMORY, str(model), str(source)]
    wall, cpu, peak = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return Cost(wall, cpu, peak / 1024)


def run_predict(model: Path, source: Path, target: Path, *options: str) -> Cost:
    """The whole command."""
    program = Path(sys.executable).with_name("umpteen")
    command = [
        program,
        "predict",
        model,
        source,
        "--output",
        target,
        "--top-k",
        str(TOP_K),
        "--threads",
        str(THREADS),
    ]
    started = time.perf_counter()
    child = subprocess.Popen([*map(str, command), "--overwrite", *options], stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"umpteen predict ended with {child.returncode}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def prepare(place: Path, formats: dict[str, str]) -> int:
    """Writes a model and a table in each format, and returns how many labels there are. This is done in a process of
    its own: on Linux, the peak of a process counts what its parent holds when it starts it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_prepare, place, formats).result()


def _prepare(place: Path, formats: dict[str, str]) -> int:
    folder = data_root() / "YSO-Finna-EN"
    train = umpteen.read_corpus(folder / "train.jsonl.xz")
    method = umpteen.LabelTree(threads=THREADS)
    tagger = umpteen.Tagger(method, calibration=0).fit(train.texts[:TRAIN_ROWS], train.labels[:TRAIN_ROWS])
    tagger.save(place / "model")
    titles = umpteen.read_corpus(folder / "test.jsonl.xz").texts
    for suffix, format in formats.items():
        with (place / f"in.{suffix}").open("wb") as file:
            writer = make_writer(format, file, ["id", "text"])
            for begin in range(0, ROWS, 10_000):
                numbers = range(begin, min(begin + 10_000, ROWS))
                writer.write([{"id": i, "text": titles[i % len(titles)]} for i in numbers])
            writer.finish()
    return tagger.fitted().n_labels


def show(rounds: list[dict[str, Cost]], about: str) -> str:
    """Medians of the rounds; ratios are of what was measured in the same round."""
    first = next(iter(rounds[0]))

    def middle(name: str, part: str) -> float:
        return statistics.median(getattr(each[name], part) for each in rounds)

    def ratio(name: str, part: str) -> float:
        return statistics.median(getattr(each[name], part) / getattr(each[first], part) for each in rounds)

    rows = [
        [name, f"{middle(name, 'wall'):.1f}", f"{ratio(name, 'wall'):.2f}", f"{middle(name, 'cpu'):.1f}",
         f"{ratio(name, 'cpu'):.2f}", f"{middle(name, 'megabytes'):.0f}"]
        for name in rounds[0]
    ]  # fmt: skip
    header = ["", "seconds", "ratio", "processor seconds", "ratio", "MB at its peak"]
    return table(header, rows) + "\n\n" + about


def describe(n_labels: int) -> str:
    return (
        f"{ROWS:,} titles, a LabelTree of {n_labels:,} labels trained on {TRAIN_ROWS:,} rows, five labels a row, "
        f"{THREADS} threads, medians of {ROUNDS} rounds. The first line has all texts in memory and counts the work "
        "on them alone; the others are whole processes, from the start of Python to the end of the file."
    )


def measure_layouts() -> str:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        n_labels = prepare(place, {"csv": "csv"})
        source, target = place / "in.csv", place / "out.csv"
        rounds = []
        for _ in range(ROUNDS):
            costs = {IN_MEMORY: run_in_memory(place / "model", source)}
            for layout in ("wide", "list", "long"):
                name = f"`umpteen predict in.csv --output out.csv --labels {layout}`"
                costs[name] = run_predict(place / "model", source, target, "--labels", layout)
            rounds.append(costs)
        return show(rounds, describe(n_labels))


def measure_formats() -> str:
    """From each format to itself. Excel's sheets end at 1,048,576 rows."""
    formats = {"csv": "csv", "jsonl": "jsonl", "parquet": "parquet", "xlsx": "excel"}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        n_labels = prepare(place, formats)
        rounds = []
        for _ in range(ROUNDS):
            costs = {IN_MEMORY: run_in_memory(place / "model", place / "in.csv")}
            for suffix in formats:
                name = f"`umpteen predict in.{suffix} --output out.{suffix}`"
                costs[name] = run_predict(place / "model", place / f"in.{suffix}", place / f"out.{suffix}")
            rounds.append(costs)
        return show(rounds, describe(n_labels))


PARTS = {"csv": ("From CSV to CSV", measure_layouts), "formats": ("From each format to itself", measure_formats)}

if __name__ == "__main__":
    if "UMPTEEN_TABLE_ROWS" in os.environ:
        for part in sys.argv[1:] or PARTS:
            print(PARTS[part][1]())
    else:
        run_parts("tables", "Tables in and out", PARTS)
