"""See the top of the package."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no threads of others when a process is made of this one

import umpteen

from . import __doc__ as about
from .scenarios import SCENARIOS, world
from .serving import Serving

MODES = ("step", "step", "torn", "clock")


def run_points(n_points: int, seed: int, serving: int = 0) -> Counter[tuple[str, str, str]]:
    """Kills so many times, and the server so many more; counts (work, way, what was left)."""
    draw = random.Random(seed)
    left: Counter[tuple[str, str, str]] = Counter()
    with world() as here:
        share = [n_points // len(SCENARIOS) + (i < n_points % len(SCENARIOS)) for i in range(len(SCENARIOS))]
        for kind, points in zip(SCENARIOS, share, strict=True):
            if not points:
                continue
            scenario = kind(here)
            for i in range(points):
                mode = MODES[i % len(MODES)]
                left[kind.__name__, mode, scenario.try_point(mode, draw)] += 1
            shutil.rmtree(scenario.home)
        if serving:
            server = Serving(here)
            for _ in range(serving):
                left["Serving", "clock", server.try_point("clock", draw)] += 1
    return left


def report(left: Counter[tuple[str, str, str]], seed: int, seconds: float) -> str:
    states = ("none", "old", "unfinished", "new", "ended before", "answered", "not up yet")
    lines = ["| work | " + " | ".join(states) + " | points |", "|---|" + "---:|" * (len(states) + 1)]
    for work in dict.fromkeys(key[0] for key in left):
        counts = [sum(n for key, n in left.items() if key[0] == work and key[2] == state) for state in states]
        lines.append(f"| {work} | " + " | ".join(str(n or "") for n in counts) + f" | {sum(counts)} |")
    ways = {way: sum(n for key, n in left.items() if key[1] == way) for way in ("step", "torn", "clock")}
    killed = sum(left.values()) - sum(n for key, n in left.items() if key[2] == "ended before")
    return (
        "# Killed at random points\n\n"
        f"`python -m tests.crash --points … --seed {seed}`, umpteen {umpteen.__version__}, Python "
        f"{sys.version.split()[0]}: {sum(left.values())} points in {seconds:.0f} s, {killed} of them killed before "
        f"their end ({', '.join(f'{n} by {way}' for way, n in ways.items())}).\n"
        "Of none was anything lost or wrong; every piece of work done again ended with the bytes it ends with when\n"
        "left alone. What was left, by kind of work:\n\n" + "\n".join(lines) + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(about or "").split("\n")[0])
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--serving", type=int, default=20, help="how often the server is killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    began = time.monotonic()
    left = run_points(options.points, options.seed, options.serving)
    text = report(left, options.seed, time.monotonic() - began)
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
