"""Kills what writes models, at random points, and looks at what is left.

    python -m tests.crash --points 300 --seed 0 --output tests/records/crash.md

Each point is a process of its own that does one piece of work and ends by SIGKILL (or SIGXFSZ) in the middle of it:

    step   before its n-th step on disk: a file opened, synced, renamed or removed, a directory made; n is drawn
    torn   in the middle of a write: the kernel takes part of it, and kills (a limit on file size, drawn)
    clock  after a time that is drawn, wherever it is: in a kernel, in a write, between two

Afterwards what was there before must be there still, byte for byte; the place that was written must hold the old
model, the new one, none, or an unfinished one that says so; and the same work done again must end with the bytes it
would have ended with. What a power cut does to caches is not tried: a killed process's writes are not lost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # no threads of others when a process is made of this one

import numpy as np

import umpteen
from umpteen.errors import ModelExistsError, ModelMissingError, ModelUnfinishedError
from umpteen.models.store import keep_metrics, kept_metrics

#: Steps on disk, as Python tells them (sys.addaudithook).
STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree"}
MODES = ("step", "step", "torn", "clock")


def tree(path: Path) -> dict[str, bytes]:
    """Every file below a directory, by name."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


# --- processes that end early ---------------------------------------------------------------------------------------


def fork(work: Callable[[], None], prepare: Callable[[], None] = lambda: None) -> int:
    """Starts work in a process of its own; this one must have no threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        prepare()
        work()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def run(work: Callable[[], None], prepare: Callable[[], None] = lambda: None) -> None:
    """Does work to its end, in a process of its own."""
    _, status = os.waitpid(fork(work, prepare), 0)
    assert status == 0, f"the work failed with status {status}"


def watch_steps(folder: Path, act: Callable[[], None]) -> Callable[[], None]:
    """What has `act` called before every step on disk that concerns a folder."""

    def prepare() -> None:
        inside, fsync = os.fspath(folder), os.fsync

        def hear(event: str, args: tuple[Any, ...]) -> None:
            # Removing is told with names inside a directory that is open, so all of it counts.
            if event in STEPS and (event == "os.remove" or inside in os.fspath(str(args[0]))):
                act()

        def sync(handle: int) -> None:
            act()
            fsync(handle)

        os.fsync = sync
        sys.addaudithook(hear)

    return prepare


def count_steps(folder: Path, work: Callable[[], None]) -> int:
    """How many steps on disk work takes."""
    with tempfile.NamedTemporaryFile() as file:
        handle = os.open(file.name, os.O_WRONLY | os.O_APPEND)
        run(work, watch_steps(folder, lambda: os.write(handle, b"x") and None))
        os.close(handle)
        return Path(file.name).stat().st_size


@dataclass
class Killer:
    """Kills a piece of work at a point that is drawn; what it takes when left alone is measured first."""

    folder: Path
    work: Callable[[], None]
    seconds: float
    steps: int
    largest: int

    def kill(self, mode: str, draw: random.Random) -> bool:
        """Whether the work was killed before its end."""
        prepare, delay = lambda: None, None
        if mode == "step":
            left = draw.randrange(self.steps)

            def count() -> None:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1

            prepare = watch_steps(self.folder, count)
        elif mode == "torn":
            limit = draw.randrange(1, self.largest)

            def prepare() -> None:
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        else:
            delay = draw.uniform(0, self.seconds * 1.1)
        child = fork(self.work, prepare)
        if delay is not None:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, f"the work failed with status {status}"
        return os.WIFSIGNALED(status)


# --- what is killed -------------------------------------------------------------------------------------------------


@dataclass
class World:
    """Data, models that are there before, and what all work ends in when it is left alone."""

    folder: Path
    seen: Counter[str] = field(default_factory=Counter)

    @cached_property
    def data(self) -> umpteen.Dataset:
        return umpteen.make_synthetic(300, 200, 40, labels_per_row=3, features_per_row=20, seed=7)

    @cached_property
    def texts(self) -> tuple[list[str], list[list[str]]]:
        words = [f"w{j}" for j in range(self.data.n_features)]
        rows = [" ".join(words[j] for j in row.indices) for row in self.data.X]
        return rows, [[f"label {j}" for j in row.indices] for row in self.data.Y]


class Scenario:
    """One kind of work: what it needs (`set_up`), what it does (`work`), and what must hold after (`check`)."""

    #: Whether a directory half written is continued, or never seen.
    resumes = False

    def __init__(self, world: World) -> None:
        self.world = world
        self.home = Path(tempfile.mkdtemp(dir=world.folder, prefix=type(self).__name__.lower()))
        self.place = self.home / "m.model"
        self.set_up()
        self.before = tree(self.home)
        began = time.monotonic()
        run(self.work)
        seconds = time.monotonic() - began
        self.after = tree(self.place)
        largest = max(len(content) for content in self.after.values())
        self.restore()
        self.killer = Killer(self.home, self.work, seconds, count_steps(self.home, self.work), largest)
        self.restore()

    def restore(self) -> None:
        """Makes the home what it was before."""
        for entry in self.home.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        for name, content in self.before.items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_bytes(content)

    def try_point(self, mode: str, draw: random.Random) -> str:
        """Kills once; returns what was left, after checking that it may be left."""
        killed = self.killer.kill(mode, draw)
        state = self.look()
        assert killed or state == "new", f"the work ended, but left {state}"
        for name, content in self.before.items():  # whatever else was there is there still
            if not name.startswith("m.model/"):
                assert (self.home / name).read_bytes() == content, name
        self.again(state)
        self.restore()
        return state if killed else "ended before"

    def look(self) -> str:
        """What is in the place: "none", "old", "new" or "unfinished"; anything else is a failure."""
        if not self.place.exists():
            assert not any(name.startswith("m.model/") for name in self.before), "the old model is gone"
            return "none"
        found = tree(self.place)
        old = {n.removeprefix("m.model/"): b for n, b in self.before.items() if n.startswith("m.model/")}
        if found == self.after:
            umpteen.load(self.place, checksums=True)
            return "new"
        if old and found == old:
            umpteen.load(self.place, checksums=True)
            return "old"
        assert self.resumes, f"{self.place} is neither the old model nor the new one"
        try:
            umpteen.load(self.place)
        except (ModelUnfinishedError, ModelMissingError):
            return "unfinished"
        raise AssertionError("a model that is not the one to be trained was opened")

    def again(self, state: str) -> None:
        """The same work once more ends as it should have."""
        if state == "new" and not self.can_repeat:
            with contextlib.suppress(ModelExistsError):
                self.work()
                raise AssertionError("what is there must not be written again unasked")
        else:
            for leftover in self.home.glob(".m.model.new-*"):  # as if it had been killed yesterday
                os.utime(leftover, (0, 0))
            run(self.work)
            there = {entry.name for entry in self.home.iterdir()}
            assert there == {name.split("/")[0] for name in self.before} | {"m.model"}, f"left behind: {there}"
        assert tree(self.place) == self.after

    can_repeat = False

    def set_up(self) -> None:
        pass

    def work(self) -> None:
        raise NotImplementedError


class Train(Scenario):
    """`fit` to a directory."""

    resumes = True
    method: Callable[[], Any]

    def work(self) -> None:
        data = self.world.data
        self.method().fit(data.X, data.Y, self.place, label_names=[f"label {i}" for i in range(data.n_labels)])


class TrainCentroid(Train):
    method = staticmethod(lambda: umpteen.Centroid(labels_per_shard=5, tfidf=True, threads=2))


class TrainDiSMEC(Train):
    method = staticmethod(lambda: umpteen.DiSMEC(labels_per_shard=5, threads=2))


class TrainPPDSparse(Train):
    method = staticmethod(lambda: umpteen.PPDSparse(labels_per_shard=5, threads=2))


class TrainPDSparse(Train):
    method = staticmethod(lambda: umpteen.PDSparse(labels_per_shard=5, threads=2))


class TrainFastXML(Train):
    method = staticmethod(lambda: umpteen.FastXML(n_trees=6, threads=2))


class TrainPfastreXML(Train):
    method = staticmethod(lambda: umpteen.PfastreXML(n_trees=4, threads=2))


class TrainLabelTree(Train):
    method = staticmethod(lambda: umpteen.LabelTree(n_trees=3, max_leaf=8, threads=2))


class TrainRXML(Train):
    method = staticmethod(lambda: umpteen.RXML(n_learners=3, rank=8, threads=2))


class TrainSLEEC(Train):
    method = staticmethod(lambda: umpteen.SLEEC(n_learners=2, rank=8, threads=2))


class TrainTagger(Scenario):
    """Two models one after the other: the first, to calibrate, stands beside until the second is finished."""

    resumes = True

    def work(self) -> None:
        umpteen.Tagger(umpteen.Centroid(labels_per_shard=10)).fit(*self.world.texts, self.place)


class Save(Scenario):
    """`save` to a place where nothing is."""

    def set_up(self) -> None:
        data = self.world.data
        run(lambda: umpteen.DiSMEC(labels_per_shard=10, prune=0.05).fit(data.X, data.Y, self.home / "source"))

    def work(self) -> None:
        umpteen.load(self.home / "source").save(self.place)


class Replace(Save):
    """`save` over another model."""

    can_repeat = True

    def set_up(self) -> None:
        super().set_up()
        data = self.world.data
        run(lambda: umpteen.Centroid(labels_per_shard=10).fit(data.X, data.Y, self.place))

    def work(self) -> None:
        umpteen.load(self.home / "source").save(self.place, overwrite=True)


class Prune(Save):
    """`pruned` to a directory."""

    def work(self) -> None:
        umpteen.load(self.home / "source").pruned(0.1, self.place)


class AddLabels(Save):
    """`add_labels` to a directory."""

    resumes = True

    def work(self) -> None:
        data = self.world.data
        umpteen.load(self.home / "source").add_labels(data.X, data.Y[:, ::3], None, self.place)


class AddTrees(Scenario):
    """A forest that grows and is saved over itself."""

    def set_up(self) -> None:
        data = self.world.data
        run(lambda: umpteen.FastXML(n_trees=2).fit(data.X, data.Y, self.place))

    def work(self) -> None:
        data = self.world.data
        umpteen.load(self.place).add_trees(2, data.X, data.Y).save(self.place, overwrite=True)

    def again(self, state: str) -> None:
        if state == "old":  # a grown forest would grow further
            super().again(state)


class BlendModels(Scenario):
    """A blend of two models, saved."""

    def set_up(self) -> None:
        data = self.world.data
        half = data.X[:200], data.Y[:200]
        run(lambda: umpteen.Centroid().fit(*half, self.home / "one"))
        run(lambda: umpteen.FastXML(n_trees=2).fit(*half, self.home / "two"))

    def work(self) -> None:
        data = self.world.data
        members = [umpteen.load(self.home / "one"), umpteen.load(self.home / "two")]
        umpteen.Blend(members).fit(data.X[200:], data.Y[200:], self.place)


class KeepMetrics(Scenario):
    """Metrics kept beside a model, in place of others."""

    can_repeat = True

    def set_up(self) -> None:
        data = self.world.data

        def make() -> None:
            umpteen.Centroid().fit(data.X, data.Y, self.place)
            keep_metrics(self.place, {"P@1": 1.0})

        run(make)

    def work(self) -> None:
        keep_metrics(self.place, {f"P@{k}": 2.0 for k in range(1, 400)})

    def look(self) -> str:
        found = kept_metrics(self.place)
        umpteen.load(self.place, checksums=True)
        assert found is not None
        state = {1: "old", 399: "new"}[len(found)]
        for half_written in self.place.glob(".tmp-metrics.json-*"):  # small, and in nobody's way
            half_written.unlink()
        return state


class WriteData(Scenario):
    """A data set written over another one."""

    can_repeat = True

    def set_up(self) -> None:
        self.place.mkdir()
        umpteen.write_xc(self.world.data.take(np.arange(9)), self.place / "data.txt")

    def work(self) -> None:
        umpteen.write_xc(self.world.data, self.place / "data.txt")

    def look(self) -> str:
        for leftover in self.place.glob(".*.tmp"):
            leftover.unlink()
        return {9: "old", 300: "new"}[umpteen.read_xc(self.place / "data.txt").n_rows]


SCENARIOS: tuple[type[Scenario], ...] = (
    TrainCentroid, TrainDiSMEC, TrainPPDSparse, TrainPDSparse, TrainFastXML, TrainPfastreXML, TrainLabelTree,
    TrainRXML, TrainSLEEC, TrainTagger, Save, Replace, Prune, AddLabels, AddTrees, BlendModels, KeepMetrics,
    WriteData,
)  # fmt: skip


# --- serving --------------------------------------------------------------------------------------------------------


def ask(address: str, text: str) -> bytes:
    import json
    import urllib.request

    request = urllib.request.Request(
        f"{address}/v1/suggest", json.dumps({"text": text}).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


class Serving:
    """A server of one model that is replaced while it answers; killed, it is started again at the same port."""

    def __init__(self, world: World) -> None:
        self.home = Path(tempfile.mkdtemp(dir=world.folder, prefix="serving"))
        self.models = []
        for name, prune in (("one", 0.0), ("two", 0.2)):
            method = umpteen.DiSMEC(labels_per_shard=10, prune=prune)
            run(lambda m=method, n=name: umpteen.Tagger(m).fit(*world.texts, self.home / n))
            self.models.append(self.home / name)
        self.text = world.texts[0][0]
        shutil.copytree(self.models[0], self.home / "m.model")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.answers: list[bytes] = []
        for model in self.models:  # what each says, undisturbed
            self.put(model)
            process = self.start(1)
            self.answers.append(self.results(self.wait(process)))
            self.end(process)

    def start(self, workers: int) -> subprocess.Popen[bytes]:
        code = "from umpteen.cli.main import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", code, "serve", str(self.home / "m.model"), "--port", str(self.port), "--workers",
             str(workers)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def wait(self, process: subprocess.Popen[bytes]) -> bytes:
        """The first answer."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert process.poll() is None, f"the server ended with {process.poll()}"
            with contextlib.suppress(OSError):
                return ask(f"http://127.0.0.1:{self.port}", self.text)
            time.sleep(0.02)
        raise AssertionError("the server gives no answer")

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        end = time.monotonic() + 30
        while time.monotonic() < end:  # its workers leave when it is gone
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        raise AssertionError("killed, the server still holds its port")

    @staticmethod
    def results(answer: bytes) -> bytes:
        return answer[answer.index(b'"results"') :].split(b"]")[0]

    def put(self, model: Path) -> None:
        run(lambda: umpteen.load(model).save(self.home / "m.model", overwrite=True))

    def try_point(self, mode: str, draw: random.Random) -> str:
        """Kills the server at a time that is drawn while it answers and its model is replaced."""
        process = self.start(draw.choice((1, 2)))
        if draw.random() < 0.8:  # else while it starts
            self.wait(process)
        began = time.monotonic()
        delay = draw.uniform(0, 2)
        asked = 0
        while time.monotonic() - began < delay:
            with contextlib.suppress(OSError):
                assert self.results(ask(f"http://127.0.0.1:{self.port}", self.text)) in self.answers
                asked += 1
            if draw.random() < 0.1:
                self.put(draw.choice(self.models))
        self.end(process)
        assert tree(self.home / "m.model") in [tree(model) for model in self.models], "the served model was changed"
        if draw.random() < 0.3:
            process = self.start(1)
            assert self.results(self.wait(process)) in self.answers
            self.end(process)
        return "answered" if asked else "not up yet"


# --- the run --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="umpteen-crash-") as folder:
        yield World(Path(folder).resolve())


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
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
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
