"""What all benchmarks share: real data, timing, the machine's description, tables on disk."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from umpteen import _native

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


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def write_result(name: str, title: str, text: str, command: str) -> None:
    """A page in benchmarks/results/, and the same on standard output."""
    page = f"# {title}\n\n`{command}`\n\n{describe_machine()}\n\n{text}\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(page)
    print(page)
