"""Engines: largest first, fail fast with the shard named, stop on Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import umpteen
from umpteen.engines import make_engine
from umpteen.engines.base import Engine, Task, largest_first
from umpteen.engines.local import LocalEngine
from umpteen.errors import ParamError, ShardError

from .files import read_files

TASKS = [Task(f"shard-{i:05d}", i, cost) for i, cost in enumerate([1, 5, 2, 5, 9])]


def test_largest_first_and_ties_in_order():
    assert [task.plan for task in largest_first(TASKS)] == [4, 1, 3, 2, 0]


def test_runs_largest_first():
    started = []
    engine = LocalEngine(threads=1)
    results = list(engine.run(lambda task, _: started.append(task.plan) or task.plan * 10, TASKS, "across"))
    assert started == [4, 1, 3, 2, 0]
    assert sorted((task.plan, result) for task, result in results) == [(i, i * 10) for i in range(5)]


@pytest.mark.parametrize(("parallelism", "workers", "inner"), [("across", 3, 1), ("inside", 1, 3)])
def test_threads_go_across_or_inside(parallelism, workers, inner):
    active, most, lock = set(), [0], threading.Lock()

    def work(task, resources):
        assert resources.threads == inner
        with lock:
            active.add(task.name)
            most[0] = max(most[0], len(active))
        time.sleep(0.05)
        with lock:
            active.discard(task.name)

    assert len(list(LocalEngine(threads=3).run(work, TASKS, parallelism))) == 5
    assert most[0] == workers


def test_fails_fast_and_names_the_shard():
    started = []

    def work(task, resources):
        started.append(task.plan)
        if task.plan == 1:
            raise ZeroDivisionError("no rows")
        while not resources.token.cancelled and task.plan != 4:
            time.sleep(0.001)

    with pytest.raises(ShardError, match="shard-00001 failed: ZeroDivisionError: no rows") as caught:
        list(LocalEngine(threads=2).run(work, TASKS, "across"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(started) < 5


@pytest.mark.measured
def test_leaving_the_loop_stops_the_rest():
    running = LocalEngine(threads=2).run(lambda task, r: time.sleep(0.01), TASKS * 100, "across")
    next(running)
    started = time.monotonic()
    running.close()
    assert time.monotonic() - started < 2


def test_no_tasks():
    assert list(LocalEngine(2).run(lambda *_: None, [], "across")) == []


def test_engines_by_name():
    assert isinstance(make_engine("local", 2), LocalEngine)
    engine = LocalEngine(1)
    assert make_engine(engine, None) is engine
    with pytest.raises(ParamError, match="engine must be one of local, ray, but is 'slurm'"):
        make_engine("slurm", None)


class BackwardsEngine(Engine):
    """One by one, smallest first: nothing a method computes may depend on it."""

    def run(self, work, tasks, parallelism):
        resources = next(LocalEngine(1).run(lambda task, r: r, [Task("x", None, 0)], "inside"))[1]
        for task in reversed(tasks):
            yield task, work(task, type(resources)(1, umpteen._native.CancelToken()))


def test_two_engines_one_answer(tmp_path, tiny):
    umpteen.Centroid(labels_per_shard=3).fit(tiny.X, tiny.Y, tmp_path / "a")
    umpteen.Centroid(labels_per_shard=3, engine=BackwardsEngine()).fit(tiny.X, tiny.Y, tmp_path / "b")
    assert read_files(tmp_path / "a") == read_files(tmp_path / "b")


INTERRUPTED = """
import sys, time, umpteen
data = umpteen.make_synthetic(300, 200, 40, labels_per_row=3, features_per_row=20, seed=7)
def slow(self, data, labels, resources):
    while not resources.token.cancelled:
        time.sleep(0.001)
    raise SystemExit("stopped")
umpteen.Centroid.train_labels = slow
print("ready", flush=True)
umpteen.Centroid(threads=2).fit(data.X, data.Y)
"""


@pytest.mark.process
@pytest.mark.measured
def test_ctrl_c_stops_training_within_a_second():
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    started = time.monotonic()
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - started < 1.5
    assert "KeyboardInterrupt" in err
