"""Counters for Prometheus, summed over worker processes.

Every worker writes its own row of one mapped file, and any of them can add the rows up. What is counted is known
beforehand, so a counter is a place in the row.
"""

from __future__ import annotations

import bisect
import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

STATUSES = (200, 304, 400, 401, 404, 405, 408, 413, 415, 422, 500, 503)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class _Family:
    """A metric: its places are one per label set, or buckets, sum and count per label set for a histogram."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    buckets: tuple[float, ...]
    start: int

    @property
    def width(self) -> int:
        return len(self.buckets) + 2 if self.buckets else 1


class Counts:
    """The counters of one worker.

    Parameters
    ----------
    routes, models
        What requests and batches are told apart by.
    file
        Where all workers count; None to count alone.
    row, n_rows
        Which worker this is, of how many.
    """

    def __init__(
        self, routes: Sequence[str], models: Sequence[str], file: Path | None = None, row: int = 0, n_rows: int = 1
    ) -> None:
        self._families: list[_Family] = []
        self._places: dict[tuple[str, int], int] = {}
        self._size = 0
        route_sets = [(route,) for route in routes]
        model_sets = [(model,) for model in models]
        self._requests = self._add(
            "umpteen_requests_total", "counter", "Requests answered.", ("route", "status"),
            [(route, str(status)) for route in routes for status in STATUSES],
        )  # fmt: skip
        self._seconds = self._add(
            "umpteen_request_seconds", "histogram", "Seconds from a request to its answer.", ("route",),
            route_sets, SECONDS,
        )  # fmt: skip
        self._batches = self._add(
            "umpteen_batch_rows", "histogram", "Texts or rows in one kernel call.", ("model",), model_sets, ROWS
        )
        self._waiting = self._add("umpteen_waiting_rows", "gauge", "Texts or rows that wait.", ("model",), model_sets)
        self._reloads = self._add(
            "umpteen_reloads_total", "counter", "Times a changed model directory was opened.", ("model", "outcome"),
            [(model, outcome) for model in models for outcome in ("done", "failed")],
        )  # fmt: skip
        self._open = self._add("umpteen_open_requests", "gauge", "Requests that are being answered.", (), [()])
        self._memory = self._add("umpteen_resident_bytes", "gauge", "Memory of all workers.", (), [()])
        self._alive = self._add("umpteen_workers", "gauge", "Worker processes that answer.", (), [()])
        n_bytes = 8 * self._size * n_rows
        if file is None:
            buffer: mmap.mmap | bytearray = bytearray(n_bytes)
        else:
            with file.open("r+b") as handle:
                handle.truncate(n_bytes)
                buffer = mmap.mmap(handle.fileno(), n_bytes)
        self._all = memoryview(buffer).cast("d")
        self._row = self._all[row * self._size : (row + 1) * self._size]
        self._n_rows = n_rows
        self.stopped()  # a worker that died left its gauges

    def _add(
        self, name: str, kind: str, help: str, labels: tuple[str, ...], sets: Sequence[tuple[str, ...]],
        buckets: Sequence[float] = (),
    ) -> dict[tuple[str, ...], int]:  # fmt: skip
        family = _Family(name, kind, help, labels, tuple(sets), tuple(buckets), self._size)
        self._families.append(family)
        self._size += family.width * len(sets)
        return {labels: family.start + i * family.width for i, labels in enumerate(sets)}

    # --- what happened ------------------------------------------------------------------------------------------

    def answered(self, route: str, status: int, seconds: float) -> None:
        place = self._places.get((route, status))
        if place is None:
            known = str(status) if status in STATUSES else "500"
            place = self._places[route, status] = self._requests[route, known]
        self._row[place] += 1
        self._observe(self._seconds[route,], SECONDS, seconds)

    def batch(self, model: str, rows: int) -> None:
        self._observe(self._batches[model,], ROWS, rows)

    def reloaded(self, model: str, outcome: str) -> None:
        self._row[self._reloads[model, outcome]] += 1

    def now(self, waiting: dict[str, int], open_requests: int) -> None:
        """How things stand; told from time to time."""
        for model, rows in waiting.items():
            self._row[self._waiting[model,]] = rows
        self._row[self._open[()]] = open_requests
        self._row[self._memory[()]] = _resident_bytes()

    def started(self) -> None:
        self._row[self._alive[()]] = 1

    def stopped(self) -> None:
        for gauges in (self._waiting, self._open, self._memory, self._alive):
            for place in gauges.values():
                self._row[place] = 0

    def _observe(self, place: int, buckets: Sequence[float], value: float) -> None:
        """Buckets are kept apart and added up when they are read."""
        row = self._row
        bucket = bisect.bisect_left(buckets, value)
        if bucket < len(buckets):
            row[place + bucket] += 1
        row[place + len(buckets)] += value
        row[place + len(buckets) + 1] += 1

    # --- all of it, as Prometheus reads it ----------------------------------------------------------------------

    def render(self) -> bytes:
        return "".join(f"{line}\n" for line in self._lines()).encode()

    def _lines(self) -> Iterator[str]:
        total = [sum(self._all[i :: self._size]) for i in range(self._size)]
        for family in self._families:
            yield f"# HELP {family.name} {family.help}"
            yield f"# TYPE {family.name} {family.kind}"
            for i, values in enumerate(family.sets):
                place = family.start + i * family.width
                pairs = [f'{label}="{value}"' for label, value in zip(family.labels, values, strict=True)]
                if not family.buckets:
                    if family.kind == "gauge" or total[place] or "outcome" in family.labels:
                        yield f"{family.name}{_braces(pairs)} {total[place]:.17g}"
                    continue
                so_far, count = 0.0, total[place + len(family.buckets) + 1]
                if not count:
                    continue
                for n, most in enumerate(family.buckets):
                    so_far += total[place + n]
                    bucket = _braces([*pairs, f'le="{most:g}"'])
                    yield f"{family.name}_bucket{bucket} {so_far:.17g}"
                infinite = _braces([*pairs, 'le="+Inf"'])
                yield f"{family.name}_bucket{infinite} {count:.17g}"
                yield f"{family.name}_sum{_braces(pairs)} {total[place + len(family.buckets)]:.17g}"
                yield f"{family.name}_count{_braces(pairs)} {count:.17g}"


def _braces(pairs: Sequence[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _resident_bytes() -> int:
    """Linux only; elsewhere 0."""
    try:
        found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0
