"""See the top of the package."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from . import __doc__ as about
from .guided import TARGETS, fuzz, guide
from .loader import mutate_models


def main() -> None:
    parser = argparse.ArgumentParser(description=(about or "").split("\n")[0])
    parser.add_argument("target", choices=["text", *TARGETS, "models", "guide"])
    parser.add_argument("more", nargs="*")
    parser.add_argument("--cpu-minutes", type=float, default=30)
    parser.add_argument("--round", type=int, default=120, help="seconds of a round")
    parser.add_argument("--mutations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
    if options.target == "guide":
        target, corpus, seconds = options.more
        guide(target, Path(corpus), int(seconds))
    elif options.target == "models":
        began = time.process_time() + sum(os.times()[2:4])
        outcomes = mutate_models(options.mutations, options.seed)
        used = time.process_time() + sum(os.times()[2:4]) - began
        print(json.dumps({"target": "models", "cpu_minutes": round(used / 60, 1), **outcomes}))
        sys.exit(1 if outcomes["FOUND"] else 0)
    else:
        found = fuzz(options.target, options.cpu_minutes, options.work.resolve(), options.round)
        print(json.dumps(found))
        sys.exit(1 if found["finding"] else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
