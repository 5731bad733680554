"""What is killed: every kind of work that writes a model or data."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import umpteen
from umpteen.errors import ModelExistsError, ModelMissingError, ModelUnfinishedError
from umpteen.methods import method_of
from umpteen.storage.store import keep_metrics, kept_metrics

from ..files import read_files
from .killing import Killer, count_steps, run


@dataclass
class World:
    """Data, models that are there before, and what all work ends in when it is left alone."""

    folder: Path

    @cached_property
    def data(self) -> umpteen.Dataset:
        return umpteen.make_synthetic(300, 200, 40, labels_per_row=3, features_per_row=20, seed=7)

    @cached_property
    def texts(self) -> tuple[list[str], list[list[str]]]:
        words = [f"w{j}" for j in range(self.data.n_features)]
        rows = [" ".join(words[j] for j in row.indices) for row in self.data.X]
        return rows, [[f"label {j}" for j in row.indices] for row in self.data.Y]


@contextlib.contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="umpteen-crash-") as folder:
        yield World(Path(folder).resolve())


class Scenario:
    """One kind of work: what it needs (`set_up`), what it does (`work`), and what must hold after (`check`)."""

    #: Whether a directory half written is continued, or never seen.
    resumes = False

    def __init__(self, world: World) -> None:
        self.world = world
        self.home = Path(tempfile.mkdtemp(dir=world.folder, prefix=type(self).__name__.lower()))
        self.place = self.home / "m.model"
        self.set_up()
        self.before = read_files(self.home)
        began = time.monotonic()
        run(self.work)
        seconds = time.monotonic() - began
        self.after = read_files(self.place)
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
        found = read_files(self.place)
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
        assert read_files(self.place) == self.after

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
        method_of(umpteen.load(self.home / "source")).add_labels(data.X, data.Y[:, ::3], None, self.place)


class AddTrees(Scenario):
    """A forest that grows and is saved over itself."""

    def set_up(self) -> None:
        data = self.world.data
        run(lambda: umpteen.FastXML(n_trees=2).fit(data.X, data.Y, self.place))

    def work(self) -> None:
        data = self.world.data
        method_of(umpteen.load(self.place)).add_trees(2, data.X, data.Y).save(self.place, overwrite=True)

    def again(self, state: str) -> None:
        if state == "old":  # a grown forest would grow further
            super().again(state)


class Learn(Scenario):
    """Corrections, saved over the model they correct."""

    def set_up(self) -> None:
        texts, labels = self.world.texts
        tagger = umpteen.Tagger(umpteen.DiSMEC(labels_per_shard=10), calibration=0)
        run(lambda: tagger.fit(texts[:250], labels[:250], self.place))

    def work(self) -> None:
        texts, labels = self.world.texts
        umpteen.load(self.place).learn(texts[250:], labels[250:]).save(self.place, overwrite=True)

    def again(self, state: str) -> None:
        if state == "old":  # a model that has learnt would go on learning
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
    TrainRXML, TrainSLEEC, TrainTagger, Save, Replace, Prune, AddLabels, AddTrees, Learn, BlendModels,
    KeepMetrics, WriteData,
)  # fmt: skip
