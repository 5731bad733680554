"""Tests side by side (pytest-xdist): which of them share a worker, and which run alone. Hooks of conftest.py."""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from umpteen.threads import resolve_threads

#: Files whose tests share something costly, a cluster, a browser, trained models: all of a file run in one worker.
TOGETHER = {
    "test_blend.py",
    "test_checks.py",
    "test_compare.py",
    "test_page.py",
    "test_plugin.py",
    "test_ray.py",
    "test_serving.py",
    "test_site.py",
}


def is_alone(item: pytest.Item) -> bool:
    """Whether a test measures time. The memory of a process is its own, whatever runs beside it."""
    mark = item.get_closest_marker("measured")
    return mark is not None and "memory" not in mark.args


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core, since tests often wait, for a process, a socket, a time-out; but few, since kernels use all
    cores by themselves, and a worker may need a gigabyte."""
    return min(4, 2 * resolve_threads(None))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        """Tests one by one, but for files that stay together."""

        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return file if Path(file).name in TOGETHER else nodeid

    return Scheduling(config, log)


class Turns:
    """Two locked files that all workers of a run open. A test holds the room, alone or with others, from its start to
    its end; on its way in it holds the door, so that nobody overtakes one who waits to be alone."""

    def __init__(self, place: Path) -> None:
        self._paths = [place.with_suffix(".door"), place.with_suffix(".room")]
        self._door, self._room = (path.open("w") for path in self._paths)

    @contextlib.contextmanager
    def take(self, *, alone: bool) -> Iterator[None]:
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)

    def close(self) -> None:
        for file in (self._door, self._room):
            file.close()
        for path in self._paths:  # workers that still have them open go on with them
            path.unlink(missing_ok=True)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # one of several side by side
        config.turns = Turns(Path(tempfile.gettempdir()) / f"umpteen-tests-{config.workerinput['testrunuid']}")
        config.add_cleanup(config.turns.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long ones first, so that no worker ends long before the others; then the rest; then those that run alone."""
    if hasattr(config, "turns"):
        items.sort(key=lambda item: (is_alone(item), item.get_closest_marker("slow") is None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    turns = getattr(item.config, "turns", None)
    with turns.take(alone=is_alone(item)) if turns else contextlib.nullcontext():
        return (yield)
