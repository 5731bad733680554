"""Models behind URLs: the same files, on whatever file system."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import umpteen
from umpteen.errors import (
    ModelCorruptError,
    ModelError,
    ModelExistsError,
    ModelMissingError,
    ModelUnfinishedError,
    ShardError,
)
from umpteen.storage.remote import create_model, open_model
from umpteen.storage.store import Part

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed; pip install 'umpteen[fsspec]'")


@pytest.fixture
def memory():
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/", recursive=True) if fs.ls("/") else None


def test_a_model_in_memory_has_the_files_of_one_on_disk(memory, tiny, tmp_path):
    umpteen.DiSMEC(labels_per_shard=9).fit(tiny.X, tiny.Y, tmp_path / "disk")
    model = umpteen.DiSMEC(labels_per_shard=9).fit(tiny.X, tiny.Y, "memory://models/one")
    files = [file for file in (tmp_path / "disk").rglob("*") if file.is_file()]
    assert {f"/models/one/{file.relative_to(tmp_path / 'disk')}" for file in files} == set(memory.find("/models/one"))
    for file in files:
        assert memory.cat(f"/models/one/{file.relative_to(tmp_path / 'disk')}") == file.read_bytes()
    loaded = umpteen.load("memory://models/one", checksums=True)
    for got, want in zip(loaded.predict_topk(tiny.X), model.predict_topk(tiny.X), strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ModelExistsError, match="memory://models/one: a finished model is already there"):
        umpteen.DiSMEC().fit(tiny.X, tiny.Y, "memory://models/one")
    with pytest.raises(ModelError, match="models are saved to directories; to write to a URL, pass it to fit"):
        model.save("memory://models/two")


class Stops(umpteen.DiSMEC):
    """DiSMEC that fails at its third shard."""

    def train_shard(self, data, task, resources):
        if task.name == "shard-00002":
            raise RuntimeError("no more")
        return super().train_shard(data, task, resources)


def test_an_interrupted_run_continues(memory, tiny, tmp_path):
    umpteen.DiSMEC(labels_per_shard=9).fit(tiny.X, tiny.Y, tmp_path / "disk")
    with pytest.raises(ShardError):
        Stops(labels_per_shard=9, threads=1).fit(tiny.X, tiny.Y, "memory://m")
    with pytest.raises(ModelUnfinishedError, match=r"memory://m: training was interrupted with \d of 5 shards done"):
        umpteen.load("memory://m")
    written = {name: memory.modified(name) for name in memory.find("/m") if "shard" in name}
    assert written
    damaged = sorted(name for name in written if name.endswith("weights.npy"))[0]
    memory.pipe(damaged, b"nonsense")
    memory.rm(sorted(written)[-1].rsplit("/", 1)[0] + "/part.json")  # its arrays are there, but it is not whole
    umpteen.DiSMEC(labels_per_shard=9).fit(tiny.X, tiny.Y, "memory://m")
    for file in (tmp_path / "disk").rglob("*.*"):
        assert memory.cat(f"/m/{file.relative_to(tmp_path / 'disk')}") == file.read_bytes()


def test_what_is_wrong_is_named(memory, tiny):
    with pytest.raises(ModelMissingError, match="memory://nowhere: holds no manifest.json"):
        umpteen.load("memory://nowhere")
    with pytest.raises(ModelError, match="gopher://x: "):
        umpteen.load("gopher://x")
    memory.pipe("/full/file", b"x")
    with pytest.raises(ModelExistsError, match="memory://full: the directory is not empty and holds no model"):
        umpteen.Centroid().fit(tiny.X, tiny.Y, "memory://full")
    umpteen.Centroid().fit(tiny.X, tiny.Y, "memory://m")
    weights = "/m/shard-00000/weights.npy"
    content = memory.cat(weights)
    memory.pipe(weights, content[:-1] + bytes([content[-1] ^ 1]))
    umpteen.load("memory://m")
    with pytest.raises(ModelCorruptError, match="memory://m/shard-00000/weights.npy: its SHA-256 must be"):
        umpteen.load("memory://m", checksums=True)
    memory.pipe(weights, content[:-1])
    with pytest.raises(ModelCorruptError, match="weights.npy: must have .* bytes, but has"):
        umpteen.load("memory://m")
    memory.rm(weights)
    with pytest.raises(ModelMissingError, match="weights.npy: this part of the model is missing"):
        umpteen.load("memory://m")


def test_a_writer_travels(tmp_path):
    url = f"file://{tmp_path}/m"
    with create_model(url, {"method": "x"}, ["shard-00000"]) as writer:
        pickle.loads(pickle.dumps(writer)).write_part("shard-00000", Part({"a": np.arange(3)}, {"b": 1}))
        assert writer.finished() == ["shard-00000"]
        writer.finish()
    part = open_model(url).part("shard-00000")
    assert part.arrays["a"].tolist() == [0, 1, 2]
    assert part.scalars == {"b": 1}
    assert (tmp_path / "m" / "manifest.json").is_file()


def test_the_command_line_takes_urls(tiny, tmp_path):
    from typer.testing import CliRunner

    from umpteen.cli.main import app

    umpteen.write_xc(tiny, tmp_path / "train.txt")
    url = f"file://{tmp_path}/m"
    for words in (
        ["train", tmp_path / "train.txt", "--model", url],
        ["predict", url, tmp_path / "train.txt", "--output", tmp_path / "out.txt"],
        ["evaluate", url, tmp_path / "train.txt"],
    ):
        done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert len((tmp_path / "out.txt").read_text().splitlines()) == tiny.n_rows
    assert not Path("file:").exists()


@pytest.mark.process
def test_without_fsspec_the_message_says_what_to_install():
    code = (
        "import sys; sys.modules['fsspec'] = None; import umpteen\n"
        "try: umpteen.load('s3://bucket/model')\n"
        "except umpteen.errors.MissingExtraError as e: print(e)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert out == "s3://bucket/model: paths with :// need fsspec. Install it with: pip install 'umpteen[fsspec]'"
