"""What all benchmarks share: real data, timing, the machine's description, tables on disk."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from umpteen import _native
from umpteen.memory import format_bytes
from umpteen.models.store import ModelReader

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def data_root() -> Path:
    return Path(os.environ.get("UMPTEEN_DATA", ROOT.parent / "shared" / "data"))


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


def time_all(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each job. The jobs take turns, so that a slow spell of the machine hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(repeats):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - started)
            print(f"  {name}: {times[name][-1]:.3f} s", file=sys.stderr)
    return {name: statistics.median(values) for name, values in times.items()}


TRAIN = """
import json, re, sys, time, umpteen
from umpteen.methods import method_class
folder, path, name, params = sys.argv[1:]
train = umpteen.read_xc(folder + "/train.txt.xz")
model = method_class(name)(threads=2, **json.loads(params))
estimate = model.estimate(train.X, train.Y)
memory = lambda what: 1024 * int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
before = memory("VmRSS")
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
started = time.perf_counter()
model.fit(train.X, train.Y, path)
seconds = time.perf_counter() - started
used = memory("VmHWM") - before
test = umpteen.read_xc(folder + "/test.txt.xz")
scores = umpteen.evaluate(test.Y, model.predict_topk(test.X, 5)[0], train.Y, deciles=False)
stats = {k: float(v[v >= 0].mean()) for k, v in getattr(model, "stats_", {}).items()}
print(json.dumps({"seconds": seconds, "used": used, "peak": estimate.peak_bytes, "model": estimate.model_bytes,
                  "n_labels": train.n_labels, "stats": stats, "scores": scores.as_dict()}))
"""


def train_in_child(data: str, method: str, **params: object) -> dict:
    """Trains and writes a model in a process of its own, whose memory can be told: time, memory beyond the data
    beside the estimate, model bytes, test scores."""
    with tempfile.TemporaryDirectory() as temporary:
        command = [sys.executable, "-c", TRAIN, str(data_root() / data), f"{temporary}/m", method, json.dumps(params)]
        out = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        return out | {"n_bytes": ModelReader(f"{temporary}/m").n_bytes()}


def describe_training(out: dict) -> list[str]:
    """What train_in_child found, as cells: time, memory, model, P@k, PSP@k."""
    scores = out["scores"]
    return [
        f"{out['seconds']:.0f} s ({1000 * out['seconds'] / out['n_labels']:.1f} ms a label)",
        f"{format_bytes(out['used'])} (at most {format_bytes(out['peak'])})",
        f"{format_bytes(out['n_bytes'])} (at most {format_bytes(out['model'])})",
        " / ".join(f"{scores[f'P@{k}']:.2f}" for k in (1, 3, 5)),
        f"{scores['PSP@1']:.2f} / {scores['PSP@5']:.2f}",
    ]


TRAINING_HEADER = [
    "train and write",
    "memory beyond the data (estimate)",
    "model (estimate)",
    "P@1 / 3 / 5",
    "PSP@1 / 5",
]


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def run_parts(name: str, title: str, parts: dict[str, tuple[str, Callable[[int], str]]]) -> None:
    """The command line of a benchmark in parts: each writes its section of one page and leaves the others."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    page = RESULTS / f"{name}.md"
    old = re.split(r"\n## (.*)\n", page.read_text() if page.exists() else "")
    sections = dict(zip(old[1::2], (text.strip() for text in old[2::2]), strict=True))
    for part in options.parts or parts:
        heading, work = parts[part]
        sections[heading] = work(options.repeats)
        print(f"## {heading}\n\n{sections[heading]}\n")
        body = "".join(f"\n## {known}\n\n{sections[known]}\n" for known, _ in parts.values() if known in sections)
        RESULTS.mkdir(exist_ok=True)
        page.write_text(f"# {title}\n\n`python benchmarks/{name}.py`\n\n{describe_machine()}\n{body}")


def write_result(name: str, title: str, text: str, command: str) -> None:
    """A page in benchmarks/results/, and the same on standard output."""
    page = f"# {title}\n\n`{command}`\n\n{describe_machine()}\n\n{text}\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(page)
    print(page)
