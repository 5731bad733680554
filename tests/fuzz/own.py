"""A fuzzer guided by coverage in plain Python, for machines that have no atheris.

Lines of the library are its coverage: an input that reaches a new one is kept, and others are made of it. Slower than
atheris by an order, but it needs nothing. What it prints is what libFuzzer prints, so that rounds add up alike.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import umpteen

LIBRARY = str(Path(umpteen.__file__).parent)
MOST_BYTES = 4096
#: Bytes of memory that a round may take beyond what it began with.
ROOM = 2 << 30


class Coverage:
    """The lines of the library that were ever reached."""

    def __init__(self) -> None:
        self.lines: set[tuple[Any, int]] = set()

    def run(self, target: Callable[[bytes], Any], data: bytes) -> bool:
        """Whether an input reaches new lines."""
        before = len(self.lines)
        sys.settrace(self._enter)
        try:
            target(data)
        finally:
            sys.settrace(None)
        return len(self.lines) > before

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(LIBRARY) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.lines.add((frame.f_code, frame.f_lineno))
        return self._line


def change(data: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """One to eight changes: bytes flipped, replaced, inserted, removed, doubled, or taken from another input."""
    out = bytearray(data)
    for _ in range(1 << draw.randrange(4)):
        at = draw.randrange(len(out) + 1)
        n = draw.choice((1, 1, 2, 4, 8, 32))
        kind = draw.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            out[at : at + n] = draw.randbytes(len(out[at : at + n]))
        elif kind == 2:
            out[at:at] = draw.randbytes(n)
        elif kind == 3:
            del out[at : at + n]
        elif kind == 4:
            out[at:at] = out[at : at + n]
        else:
            other = draw.choice(others)
            begin = draw.randrange(len(other) + 1)
            out[at : at + n] = other[begin : begin + n]
    return bytes(out[:MOST_BYTES])


def guide(target: Callable[[bytes], Any], corpus: Path, seconds: float) -> None:
    """One round; ends the process with 1 if something is found, which is then kept beside the corpus."""
    draw = random.Random(os.urandom(8))
    coverage, tried, began = Coverage(), 0, time.monotonic()
    threading.settrace(coverage._enter)  # of servers, which begin with the first input
    coverage.run(target, b"\0" * 8)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    inputs = [file.read_bytes()[:MOST_BYTES] for file in sorted(corpus.iterdir())]
    waiting, kept = list(inputs), list[bytes]()
    while waiting or time.monotonic() - began < seconds:
        data = waiting.pop() if waiting else change(draw.choice(kept or inputs), inputs, draw)
        tried += 1
        try:
            new = coverage.run(target, data)
        except BaseException as error:
            (corpus.parent / f"found-{tried}-{os.getpid()}").write_bytes(data)
            traceback.print_exception(error)
            print(f"{type(error).__name__} by {data.hex()}", file=sys.stderr)
            sys.exit(1)
        if new:
            kept.append(data)
            if data not in inputs:
                inputs.append(data)
                (corpus / f"{len(coverage.lines):06d}-{draw.randrange(10**9)}").write_bytes(data)
    print(f"#{tried} DONE cov: {len(coverage.lines)}", file=sys.stderr)
    print(f"stat::number_of_executed_units: {tried}", file=sys.stderr)
