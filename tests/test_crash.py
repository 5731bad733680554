"""Faults: killed at random points, no room on the disk, a place that cannot be written, two writers at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import umpteen
from umpteen.errors import ModelError, UmpteenError
from umpteen.methods import method_of
from umpteen.storage.store import keep_metrics, kept_metrics

from .conftest import ROOT
from .files import read_files

pytestmark = pytest.mark.process

SOURCE = str(Path(umpteen.__file__).parent.parent)


@pytest.mark.slow
def test_killed_at_random_points():
    """A small part of what tests/records/crash.md records, with other points; fails with what was left behind."""
    environment = os.environ | {"PYTHONPATH": SOURCE}
    command = [sys.executable, "-m", "tests.crash", "--points", "36", "--serving", "1", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "37 points" in done.stdout


# --- no room, no permission -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Models somewhere safe: 40 labels, several shards, a few hundred kilobytes."""
    data = umpteen.make_synthetic(400, 3000, 40, labels_per_row=3, features_per_row=60, seed=3)
    folder = tmp_path_factory.mktemp("trained")
    umpteen.Centroid(labels_per_shard=10, weight_type="float32").fit(data.X[:300], data.Y[:300], folder / "centroid")
    umpteen.FastXML(n_trees=3).fit(data.X[:300], data.Y[:300], folder / "forest")
    return data, folder


def writes(data, folder, place):
    """Everything that writes a model, by name; each writes to `place`."""
    centroid, forest = umpteen.load(folder / "centroid"), umpteen.load(folder / "forest")
    texts = [" ".join(f"w{j}" for j in row.indices) for row in data.X]
    labels = [[f"l{j}" for j in row.indices] for row in data.Y]
    return {
        "fit": lambda: umpteen.Centroid(labels_per_shard=5, weight_type="float32").fit(data.X, data.Y, place),
        "tagger": lambda: umpteen.Tagger(umpteen.Centroid(weight_type="float32")).fit(texts, labels, place),
        "save": lambda: centroid.save(place),
        "pruned": lambda: centroid.pruned(0.0001, place),
        "add_labels": lambda: method_of(centroid).add_labels(data.X, data.Y, None, place),
        "blend": lambda: umpteen.Blend([centroid, forest]).fit(data.X[300:], data.Y[300:], place),
    }


def mounted(folder: Path, *options: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"mounting is not allowed here ({done.stderr.strip()})")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 200 kB with a model on it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted(folder, "-t", "tmpfs", "-o", "size=200k", "tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("what", ["fit", "tagger", "save", "pruned", "add_labels", "blend"])
def test_a_full_disk_is_said_and_nothing_is_lost(what, trained, small_disk):
    data, folder = trained
    small = umpteen.make_synthetic(20, 30, 4, seed=1)
    umpteen.Centroid().fit(small.X, small.Y, small_disk / "kept")
    kept = read_files(small_disk / "kept")
    with pytest.raises(UmpteenError, match="No space left on device"):
        writes(data, folder, small_disk / "new")[what]()
    assert read_files(small_disk / "kept") == kept
    if (small_disk / "new").exists():  # a checkpoint, not a model
        assert what in ("fit", "tagger", "add_labels")
        with pytest.raises(ModelError, match="interrupted|holds no manifest"):
            umpteen.load(small_disk / "new")
    assert not list(small_disk.rglob(".*")), "what was half written must not fill the disk"
    # Replacing needs room for both; the old one stays until the new one is whole.
    with pytest.raises(UmpteenError, match="No space left on device"):
        umpteen.load(folder / "centroid").save(small_disk / "kept", overwrite=True)
    assert read_files(small_disk / "kept") == kept


def test_metrics_on_a_full_disk(small_disk):
    small = umpteen.make_synthetic(20, 30, 4, seed=1)
    umpteen.Centroid().fit(small.X, small.Y, small_disk / "kept")
    keep_metrics(small_disk / "kept", {"P@1": 50.0})
    with pytest.raises(ModelError, match="No space left on device"):
        keep_metrics(small_disk / "kept", {f"metric {i}": float(i) for i in range(10_000)})
    assert kept_metrics(small_disk / "kept") == {"P@1": 50.0}
    assert not list((small_disk / "kept").glob(".tmp-*"))


@pytest.mark.parametrize("what", ["fit", "tagger", "save", "pruned", "add_labels", "blend"])
def test_a_place_that_cannot_be_written(what, trained, tmp_path):
    data, folder = trained
    place = tmp_path / "place"
    place.mkdir()
    mounted(place, "-t", "tmpfs", "tmpfs")
    try:
        small = umpteen.make_synthetic(20, 30, 4, seed=1)
        umpteen.Centroid().fit(small.X, small.Y, place / "kept")
        kept = read_files(place)
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        with pytest.raises(ModelError, match="Read-only file system"):
            writes(data, folder, place / "new")[what]()
        with pytest.raises(ModelError, match="Read-only file system"):
            umpteen.load(folder / "centroid").save(place / "kept", overwrite=True)
        with pytest.raises(ModelError, match="Read-only file system"):
            keep_metrics(place / "kept", {"P@1": 50.0})
        assert read_files(place) == kept
        umpteen.load(place / "kept", checksums=True).predict_topk(small.X)  # reading needs no writing
    finally:
        subprocess.run(["umount", str(place)], check=True)


# --- two writers ----------------------------------------------------------------------------------------------------

WRITER = """
import sys, umpteen
data = umpteen.make_synthetic(300, 200, 40, labels_per_row=3, features_per_row=20, seed=7)
print("ready", flush=True)
sys.stdin.readline()
try:
    {work}
    print("done")
except umpteen.errors.ModelError as error:
    print(error)
"""


def two_at_once(work: str, n: int = 2) -> list[str]:
    """What processes say that begin the same work together."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER.format(work=work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": SOURCE},
        )
        for _ in range(n)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return sorted(process.communicate(timeout=120)[0].strip() for process in processes)


@pytest.mark.slow
def test_of_two_that_train_one_does_and_one_is_told(tmp_path, tiny):
    place = tmp_path / "m"
    outcomes = two_at_once(f"umpteen.FastXML(n_trees=20, threads=1).fit(data.X, data.Y, {str(place)!r})", 3)
    assert outcomes.count("done") == 1
    assert all("another process is writing this model" in outcome or "a finished model is already there" in outcome
               for outcome in outcomes if outcome != "done")  # fmt: skip
    umpteen.FastXML(n_trees=20).fit(tiny.X, tiny.Y, tmp_path / "alone")
    assert read_files(place) == read_files(tmp_path / "alone")


@pytest.mark.slow
def test_of_many_that_replace_a_model_each_does_in_turn(tmp_path, tiny):
    place = tmp_path / "m"
    model = umpteen.Centroid(labels_per_shard=4).fit(tiny.X, tiny.Y)
    model.save(place)
    want = read_files(place)
    work = f"[umpteen.load({str(place)!r}).save({str(place)!r}, overwrite=True) for _ in range(5)]"
    outcomes = two_at_once(work, 3)
    assert outcomes.count("done") >= 1
    assert read_files(place) == want
    assert np.array_equal(umpteen.load(place, checksums=True).predict_topk(tiny.X)[0], model.predict_topk(tiny.X)[0])
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]
