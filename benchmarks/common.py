"""What all benchmarks share: real data, timing, scores in words, drawings, and the page each of them writes."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import re
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import umpteen
from umpteen import _native
from umpteen.data.preprocessing import Preprocessing
from umpteen.storage.store import ModelReader

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
UNIT = Preprocessing(normalize=True)


# --- data, machine, time --------------------------------------------------------------------------------------------


def data_root() -> Path:
    """Where data sets are: $UMPTEEN_DATA, else shared/data beside the project."""
    return Path(os.environ.get("UMPTEEN_DATA", ROOT.parent / "shared" / "data"))


def read(name: str) -> tuple[umpteen.Dataset, umpteen.Dataset]:
    """The training and the test rows of a set."""
    folder = data_root() / name
    return umpteen.read_xc(folder / "train.txt.xz"), umpteen.read_xc(folder / "test.txt.xz")


def describe_machine() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":")[1].strip() if lines else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores, SIMD {_native.simd()}, Python {platform.python_version()}"


def version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def time_all(
    jobs: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds of each job. The jobs take turns, so that a slow spell of the machine hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            started = clock()
            job()
            times[name].append(clock() - started)
            print(f"  {name}: {times[name][-1]:.3f} s", file=sys.stderr)
    return {name: statistics.median(values) for name, values in times.items()}


def time_each(job: Callable[[Any], object], items: Iterable[Any]) -> list[float]:
    """Seconds of the job on each item."""
    times = []
    for item in items:
        started = time.perf_counter()
        job(item)
        times.append(time.perf_counter() - started)
    return times


def median_time(job: Callable[[], object], repeats: int) -> float:
    return statistics.median(time_each(lambda _: job(), range(repeats)))


# --- scores ---------------------------------------------------------------------------------------------------------


def measure(model, test: umpteen.Dataset, train: umpteen.Dataset | None = None) -> umpteen.Metrics:
    """Metrics of the five best labels; with the training rows also those that count rare labels more."""
    labels = model.predict_topk(test.X, 5)[0]
    return umpteen.evaluate(test.Y, labels, None if train is None else train.Y, deciles=False)


def precisions(model, data: umpteen.Dataset) -> np.ndarray:
    metrics = measure(model, data)
    return np.array([metrics[f"P@{k}"] for k in (1, 3, 5)])


def held_out(make: Callable[[int], Any], train: umpteen.Dataset, splits: int = 2) -> np.ndarray:
    """P@1, 3 and 5 on a fifth of the training rows of what make(split) learns from the others."""
    scores = []
    for split in range(splits):
        order = np.random.default_rng(split).permutation(train.n_rows)
        left, kept = order[: train.n_rows // 5], np.sort(order[train.n_rows // 5 :])
        model = make(split).fit(train.X[kept], train.Y[kept])
        scores.append(precisions(model, umpteen.Dataset(train.X[left], train.Y[left])))
    return np.mean(scores, axis=0)


def train_and_write(model, train, test, path: Path) -> tuple[float, umpteen.Metrics, float]:
    """(seconds, metrics, MB)."""
    shutil.rmtree(path, ignore_errors=True)
    seconds = median_time(lambda: model.fit(train.X, train.Y, path), 1)
    return seconds, measure(model, test, train), ModelReader(path).n_bytes() / 1e6


# --- words, tables, drawings ----------------------------------------------------------------------------------------


def join(scores: Iterable[float]) -> str:
    return " / ".join(f"{score:.2f}" for score in scores)


def at_k(metrics, name: str = "P", ks: tuple[int, ...] = (1, 3, 5)) -> str:
    return join(metrics[f"{name}@{k}"] for k in ks)


def describe(params: dict[str, object], default: str = "the defaults") -> str:
    return ", ".join(f"{k}={v}" for k, v in params.items()) or default


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def plotting() -> Any:
    """matplotlib.pyplot, set up alike for all drawings; a drawing's bytes depend on its figures alone."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "umpteen", "axes.spines.top": False,
                         "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3})  # fmt: skip
    return plt


def save_drawing(figure, name: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / name, metadata={"Date": None})


def draw_lines(name: str, x: list[int], lines: dict[str, list[float]], x_title: str, y_title: str) -> None:
    """A plain line chart."""
    figure, axes = plotting().subplots(figsize=(5, 3.2), layout="constrained")
    for title, values in lines.items():
        axes.plot(x, values, marker=".", label=title)
    axes.set(xlabel=x_title, ylabel=y_title)
    if len(lines) > 1:
        axes.legend(frameon=False)
    save_drawing(figure, name)


# --- pages ----------------------------------------------------------------------------------------------------------

#: Part -> the heading of its section, and what measures it and returns its text.
Parts = dict[str, tuple[str, Callable[[], str]]]

#: The last lines of a section.
STAMP = re.compile(r"^Taken on .*\.$", re.MULTILINE)
COMMAND = re.compile(r"\n\n`python benchmarks/[^`\n]*`$")


def read_sections(page: Path) -> dict[str, str]:
    """The sections of a page, by heading, each with the line that says when and on which machine it was taken, and
    without its command."""
    found = re.split(r"\n## (.*)\n", page.read_text() if page.exists() else "")
    of_page = found[0].strip().split("\n\n")[2:]  # older pages name one machine for all sections
    sections = {}
    for heading, text in zip(found[1::2], found[2::2], strict=True):
        text = COMMAND.sub("", text.strip())
        known = STAMP.search(text) or not of_page
        sections[heading] = text if known else f"{text}\n\nTaken on {of_page[0]}."
    return sections


def stamp() -> str:
    """When and on which machine, as the last line of a section says it."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return f"Taken on {describe_machine()}; {day}, umpteen {umpteen.__version__}."


def run_parts(name: str, title: str, parts: Parts) -> None:
    """The command line of a study in parts: each writes its section of one page and leaves the others."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    chosen = parser.parse_args().parts
    if unknown := [part for part in chosen if part not in parts]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(parts)}")
    page = RESULTS / f"{name}.md"
    for part in chosen or parts:
        heading, work = parts[part]
        section = f"{work()}\n\n{stamp()}"
        print(f"## {heading}\n\n{section}\n")
        sections = read_sections(page) | {heading: section}  # read anew: parts may run side by side
        RESULTS.mkdir(exist_ok=True)
        page.write_text(join_sections(name, title, parts, sections))


def join_sections(name: str, title: str, parts: Parts, sections: dict[str, str]) -> str:
    """The page: its sections in the order of the parts, each with the command that takes it anew."""
    body = "".join(
        f"\n## {heading}\n\n{sections[heading]}\n\n`python benchmarks/{name}.py {part}`\n"
        for part, (heading, _) in parts.items()
        if heading in sections
    )
    return f"# {title}\n\n`python benchmarks/{name}.py`\n{body}"
