"""Counters for Prometheus, summed over processes.

Every worker, and their supervisor, writes its own row of shared memory; any of them can add up the rows. All counters
are known in advance, so each is a place in the row. The first place is the time of the last sign of life, which the
supervisor checks.
"""

from __future__ import annotations

import bisect
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from umpteen.serving.shared import SharedMemory

#: All that an answer may have, so that none is ever counted as another.
STATUSES = tuple(status.value for status in HTTPStatus if status >= 200)
#: Why a connection was ended; see `connections.py`.
REFUSALS = (
    "idle", "timeout", "not_read", "made_room", "overloaded", "invalid_http", "header_too_large", "url_too_long",
    "too_many_pipelined",
)  # fmt: skip
#: The outcome of opening a changed model, and why it could not be used; see `trial.py`.
OUTCOMES = ("done", "failed", "stuck")
REASONS = {
    "missing": "a file of the model is missing",
    "unfinished": "its training was interrupted",
    "changed": "it was replaced while it was opened",
    "damaged": "its files disagree with its manifest",
    "format": "its format is not one this version reads",
    "memory": "there was not enough memory to open it",
    "unreadable": "a file could not be read",
    "stuck": "it took too long to open",
    "crashed": "the process that tried it died",
    "error": "an unexpected error; see the log",
}
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class _Family:
    """A metric. It has one place per label set; a histogram has buckets, sum and count per label set."""

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
        The labels that requests and batches are counted by.
    memory
        Where all processes count; None to count alone.
    row, n_rows
        Which process this is, of how many.
    """

    def __init__(
        self,
        routes: Sequence[str],
        models: Sequence[str],
        memory: SharedMemory | None = None,
        row: int = 0,
        n_rows: int = 1,
    ) -> None:
        self._families: list[_Family] = []
        self._places: dict[tuple[str, int], int] = {}
        self._size = 1  # the sign of life
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
        self._waiting = self._add(
            "umpteen_waiting_rows", "gauge", "Texts or rows that are waiting.", ("model",), model_sets
        )
        self._reloads = self._add(
            "umpteen_reloads_total", "counter", "Times a changed model directory was opened.", ("model", "outcome"),
            [(model, outcome) for model in models for outcome in OUTCOMES],
        )  # fmt: skip
        self._failing = self._add(
            "umpteen_reload_failing", "gauge", "Whether the newest state of a model cannot be used, and why.",
            ("model", "reason"), [(model, reason) for model in models for reason in REASONS],
        )  # fmt: skip
        self._refused = self._add(
            "umpteen_connections_ended_total", "counter", "Connections refused or ended early.", ("reason",),
            [(reason,) for reason in REFUSALS],
        )  # fmt: skip
        self._connections = self._add("umpteen_connections", "gauge", "Connections that are open.", (), [()])
        self._bytes = self._add(
            "umpteen_bytes_in_flight", "gauge", "Bytes of requests being read and answers being written.", (), [()]
        )
        self._restarts = self._add(
            "umpteen_worker_restarts_total", "counter", "Workers that were replaced.", ("reason",),
            [("died",), ("stuck",)],
        )  # fmt: skip
        self._watcher = self._add(
            "umpteen_watcher_stuck", "gauge", "Whether the check of the models is stuck.", (), [()]
        )
        self._open = self._add("umpteen_open_requests", "gauge", "Requests that are being answered.", (), [()])
        self._memory = self._add("umpteen_resident_bytes", "gauge", "Memory of all workers.", (), [()])
        self._alive = self._add("umpteen_workers", "gauge", "Worker processes that answer.", (), [()])
        self.n_bytes = 8 * self._size * n_rows
        buffer = bytearray(self.n_bytes) if memory is None else memory.buffer
        self._all = memoryview(buffer).cast("d")
        self._row = self._all[row * self._size : (row + 1) * self._size]
        self._gauges = [
            place for family in self._families if family.kind == "gauge"
            for place in range(family.start, family.start + family.width * len(family.sets))
        ]  # fmt: skip

    def _add(
        self, name: str, kind: str, help: str, labels: tuple[str, ...], sets: Sequence[tuple[str, ...]],
        buckets: Sequence[float] = (),
    ) -> dict[tuple[str, ...], int]:  # fmt: skip
        family = _Family(name, kind, help, labels, tuple(sets), tuple(buckets), self._size)
        self._families.append(family)
        self._size += family.width * len(sets)
        return {labels: family.start + i * family.width for i, labels in enumerate(sets)}

    # --- events -------------------------------------------------------------------------------------------------

    def answered(self, route: str, status: int, seconds: float | None) -> None:
        """Counts an answer; without seconds, one to what never became a request."""
        place = self._places.get((route, status))
        if place is None:
            place = self._places[route, status] = self._requests[route, str(status)]
        self._row[place] += 1
        if seconds is not None:
            self._observe(self._seconds[route,], SECONDS, seconds)

    def batch(self, model: str, rows: int) -> None:
        self._observe(self._batches[model,], ROWS, rows)

    def reloaded(self, model: str, outcome: str, reason: str | None = None) -> None:
        """Counts the outcome of opening a changed model."""
        self._row[self._reloads[model, outcome]] += 1
        self.reload_recovered(model)
        if reason is not None:
            self._row[self._failing[model, reason]] = 1.0

    def reload_recovered(self, model: str) -> None:
        for reason in REASONS:
            self._row[self._failing[model, reason]] = 0.0

    def failing(self, models: Sequence[str]) -> dict[str, str]:
        """Models whose newest version cannot be used, with the reason."""
        found = {}
        for model in models:
            for reason in REASONS:
                if any(self._all[self._failing[model, reason] :: self._size]):
                    found[model] = reason
        return found

    def refused(self, reason: str) -> None:
        self._row[self._refused[reason,]] += 1

    def replaced(self, reason: str) -> None:
        self._row[self._restarts[reason,]] += 1

    def watcher_stuck(self, stuck: bool) -> None:
        self._row[self._watcher[()]] = float(stuck)

    @property
    def is_watcher_stuck(self) -> bool:
        """Whether any process says so: the supervisor has the watcher."""
        return any(self._all[self._watcher[()] :: self._size])

    def now(self, waiting: dict[str, int], open_requests: int, n_bytes: int, connections: int) -> None:
        """Sets the gauges; called from time to time."""
        for model, rows in waiting.items():
            self._row[self._waiting[model,]] = rows
        self._row[self._open[()]] = open_requests
        self._row[self._bytes[()]] = n_bytes
        self._row[self._connections[()]] = connections
        self._row[self._memory[()]] = _resident_bytes()

    def started(self) -> None:
        self._row[self._alive[()]] = 1

    @property
    def answers(self) -> bool:
        """Whether the row's process accepts connections."""
        return bool(self._row[self._alive[()]])

    def stopped(self) -> None:
        """Clears the gauges of a process that has ended; counters continue."""
        self._row[0] = 0.0
        for place in self._gauges:
            self._row[place] = 0.0

    # --- signs of life ------------------------------------------------------------------------------------------

    def beat(self) -> None:
        self._row[0] = time.monotonic()

    @property
    def last_beat(self) -> float:
        """When the row's process last gave a sign of life, by the clock that all processes share; 0 if never."""
        return self._row[0]

    def _observe(self, place: int, buckets: Sequence[float], value: float) -> None:
        """Buckets are stored separately and added up when they are read."""
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
