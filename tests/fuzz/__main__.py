"""See the top of the package."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from . import __doc__ as about
from .guided import TARGETS, fuzz, guide
from .loader import mutate_models, run_apart
from .record import keep_run
from .values import every_case


def main() -> None:
    parser = argparse.ArgumentParser(description=(about or "").split("\n")[0])
    parser.add_argument("target", choices=["text", *TARGETS, "models", "values", "guide"])
    parser.add_argument("more", nargs="*")
    parser.add_argument("--cpu-minutes", type=float, default=30)
    parser.add_argument("--engine", choices=["atheris", "own"], default="atheris", help="what guides the fuzzer")
    parser.add_argument("--round", type=int, default=120, help="seconds of a round")
    parser.add_argument("--mutations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="of the values, one in so many")
    parser.add_argument("--record", type=Path, help="a page that gets a line of what came of it")
    parser.add_argument("--work", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
    if options.target == "guide":
        target, corpus, seconds = options.more
        guide(target, Path(corpus), int(seconds), options.engine)
    else:
        found = _run(options)
        print(json.dumps(found))
        if options.record is not None:
            keep_run(options.record, found)
        sys.exit(1 if found["findings"] else 0)


def _run(options: argparse.Namespace) -> dict[str, Any]:
    if options.target not in ("models", "values"):
        return fuzz(options.target, options.cpu_minutes, options.work.resolve(), options.round, options.engine)
    began = _cpu_seconds()
    if options.target == "models":
        outcomes = mutate_models(options.mutations, options.seed)
    else:
        outcomes = run_apart(every_case(options.every))
    findings = outcomes.pop("FOUND", 0)
    return {
        "target": options.target,
        "cpu_minutes": round((_cpu_seconds() - began) / 60, 1),
        "inputs": outcomes.total() + findings,
        "findings": findings,
        "outcomes": dict(outcomes),
    }


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
