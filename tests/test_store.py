"""The model directory: atomic parts, resuming, checks on opening, refusals. Nothing lost, nothing run."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import umpteen
from umpteen.errors import (
    ModelCorruptError,
    ModelError,
    ModelExistsError,
    ModelFormatError,
    ModelMissingError,
    ModelUnfinishedError,
)
from umpteen.storage.names import Names
from umpteen.storage.saving import save_parts
from umpteen.storage.store import ModelReader, ModelWriter, Part

from .files import read_files


@pytest.fixture
def model_dir(tmp_path, tiny):
    path = tmp_path / "tiny.model"
    names = [f"label {i}" for i in range(tiny.n_labels)]
    umpteen.Centroid(labels_per_shard=10, tfidf=True).fit(tiny.X, tiny.Y, path, label_names=names)
    return path


def edit_manifest(path: Path, change) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_directory_is_manifest_and_plain_arrays(model_dir):
    files = read_files(model_dir)
    assert {name for name in files if "/" not in name} == {"manifest.json"}
    assert {Path(name).suffix for name in files} == {".json", ".npy"}
    manifest = json.loads(files["manifest.json"])
    assert manifest["format_version"] == 2
    assert manifest["complete"] is True
    assert manifest["shards"] == [f"shard-{i:05d}" for i in range(4)]
    for name in files:
        if name.endswith(".npy"):
            np.load(model_dir / name, mmap_mode="r", allow_pickle=False)
    assert files["shard-00000/positions.npy"][:6] == b"\x93NUMPY"


def test_indices_are_narrow_and_weights_have_16_bits(model_dir):
    part = ModelReader(model_dir).part("shard-00000")
    assert {name: array.dtype.name for name, array in part.arrays.items()} == {
        "indptr": "uint32", "position_ptr": "uint32", "positions": "uint16", "weights": "float16", "bias": "float32",
        "label_ids": "int32",
    }  # fmt: skip


def test_arrays_are_mapped_not_read(model_dir):
    weights = ModelReader(model_dir).part("shard-00000").arrays["weights"]
    base = weights
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert type(base).__name__ == "_Mapping"
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert "shard-00000/weights.npy" in maps.read_text()
    assert not weights.flags.writeable


def test_same_data_same_bytes_whatever_the_threads(tmp_path, tiny):
    trees = []
    for threads in (1, 2, 7):
        path = tmp_path / f"{threads}.model"
        umpteen.Centroid(labels_per_shard=7, threads=threads).fit(tiny.X, tiny.Y, path)
        trees.append(read_files(path))
    assert trees[0] == trees[1] == trees[2]


def test_save_and_load_agree(tmp_path, tiny, model_dir):
    model = umpteen.load(model_dir)
    model.save(tmp_path / "copy.model")
    assert read_files(tmp_path / "copy.model").keys() == read_files(model_dir).keys()
    again = umpteen.load(tmp_path / "copy.model", checksums=True)
    for a, b in zip(model.predict_topk(tiny.X, 7), again.predict_topk(tiny.X, 7), strict=True):
        np.testing.assert_array_equal(a, b)
    assert list(again.label_names) == [f"label {i}" for i in range(tiny.n_labels)]
    assert again.params == model.params
    np.testing.assert_array_equal(again.train_counts.counts, tiny.label_counts())
    assert again.train_counts.n_rows == tiny.n_rows


def test_fit_in_memory_then_save_gives_the_same_shards(tmp_path, tiny, model_dir):
    names = [f"label {i}" for i in range(tiny.n_labels)]
    model = umpteen.Centroid(labels_per_shard=10, tfidf=True).fit(tiny.X, tiny.Y, label_names=names)
    model.save(tmp_path / "saved.model")
    shards = {n: b for n, b in read_files(model_dir).items() if n != "manifest.json"}
    assert {n: b for n, b in read_files(tmp_path / "saved.model").items() if n != "manifest.json"} == shards


# --- what is there is not touched -----------------------------------------------------------------------------------


def test_existing_models_are_refused_and_kept(model_dir, tiny):
    before = read_files(model_dir)
    with pytest.raises(ModelExistsError, match=r"tiny\.model: a finished model is already there"):
        umpteen.Centroid().fit(tiny.X, tiny.Y, model_dir)
    with pytest.raises(FileExistsError, match=r"tiny\.model: already exists; .* pass overwrite=True"):
        umpteen.load(model_dir).save(model_dir)
    assert read_files(model_dir) == before


def test_overwrite_replaces_a_model_and_nothing_else(tmp_path, model_dir, tiny):
    model = umpteen.Centroid().fit(tiny.X, tiny.Y)
    model.save(model_dir, overwrite=True)
    assert umpteen.load(model_dir).params == model.fitted().params
    assert [p.name for p in tmp_path.iterdir()] == ["tiny.model"]
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").write_text("meow")
    with pytest.raises(ModelExistsError, match="photos: exists and is not a model, so it will not be replaced"):
        model.save(folder, overwrite=True)
    with pytest.raises(ModelExistsError, match="photos: the directory is not empty and holds no model"):
        umpteen.Centroid().fit(tiny.X, tiny.Y, folder)
    assert (folder / "cat.jpg").read_text() == "meow"
    with pytest.raises(ModelExistsError, match="must be a directory, but is a file"):
        umpteen.Centroid().fit(tiny.X, tiny.Y, folder / "cat.jpg")


def test_two_writers_at_once_are_refused(tmp_path):
    header = {"method": "x"}
    with (
        ModelWriter.create(tmp_path / "m", header, ["shard-00000"]),
        pytest.raises(ModelError, match="another process is writing this model"),
    ):
        ModelWriter.create(tmp_path / "m", header, ["shard-00000"])
    ModelWriter.create(tmp_path / "m", header, ["shard-00000"]).close()


def test_saving_twice_at_once_keeps_the_first(tmp_path, tiny):
    model = umpteen.Centroid().fit(tiny.X, tiny.Y)
    outcomes, barrier = [], threading.Barrier(4)

    def save():
        barrier.wait()
        try:
            model.save(tmp_path / "m.model")
            outcomes.append("saved")
        except ModelExistsError:
            outcomes.append("refused")

    threads = [threading.Thread(target=save) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 3 + ["saved"]
    umpteen.load(tmp_path / "m.model", checksums=True)
    assert [p.name for p in tmp_path.iterdir()] == ["m.model"]


def test_links_to_models_are_followed(tmp_path, model_dir, tiny):
    (tmp_path / "link").symlink_to(model_dir)
    umpteen.Centroid(weight_type="float32").fit(tiny.X, tiny.Y).save(tmp_path / "link", overwrite=True)
    assert umpteen.load(model_dir).params["weight_type"] == "float32"
    (tmp_path / "empty").mkdir()
    (tmp_path / "link2").symlink_to(tmp_path / "empty")
    umpteen.Centroid().fit(tiny.X, tiny.Y, tmp_path / "link2")
    umpteen.load(tmp_path / "empty")


# --- interruption and resuming --------------------------------------------------------------------------------------


class Stop(Exception):
    pass


def interrupted_fit(path, data, after, **params):
    """A run that is broken off after some shards."""

    def progress(p):
        if p.shards_done >= after:
            raise Stop

    with pytest.raises(Stop):
        umpteen.Centroid(**params).fit(data.X, data.Y, path, progress=progress)


def test_an_interrupted_run_resumes_to_the_same_bytes(tmp_path, tiny):
    whole, path = tmp_path / "whole.model", tmp_path / "broken.model"
    umpteen.Centroid(labels_per_shard=2, threads=1).fit(tiny.X, tiny.Y, whole)
    interrupted_fit(path, tiny, after=5, labels_per_shard=2, threads=1)
    with pytest.raises(ModelUnfinishedError, match=r"interrupted with \d+ of 20 shards done; fit again"):
        umpteen.load(path)
    finished = {p.name: p.stat().st_mtime_ns for p in path.iterdir() if p.name.startswith("shard")}
    assert 5 <= len(finished) < 20
    umpteen.Centroid(labels_per_shard=2).fit(tiny.X, tiny.Y, path)
    assert read_files(path) == read_files(whole)
    after = {p.name: p.stat().st_mtime_ns for p in path.iterdir()}
    assert {name: after[name] for name in finished} == finished  # not trained again


def test_a_damaged_shard_is_trained_again_on_resume(tmp_path, tiny):
    whole, path = tmp_path / "whole.model", tmp_path / "broken.model"
    umpteen.Centroid(labels_per_shard=2).fit(tiny.X, tiny.Y, whole)
    interrupted_fit(path, tiny, after=5, labels_per_shard=2)
    victims = sorted(path.glob("shard-*"))
    content = bytearray((victims[0] / "weights.npy").read_bytes())
    content[-1] ^= 1
    (victims[0] / "weights.npy").write_bytes(content)
    (victims[1] / "bias.npy").unlink()
    umpteen.Centroid(labels_per_shard=2).fit(tiny.X, tiny.Y, path)
    assert read_files(path) == read_files(whole)


@pytest.mark.parametrize("what", ["params", "fingerprint"])
def test_only_the_same_run_resumes(tmp_path, tiny, what):
    path = tmp_path / "broken.model"
    interrupted_fit(path, tiny, after=5, labels_per_shard=2)
    before = read_files(path)
    X = tiny.X.copy()
    params = {"labels_per_shard": 2}
    if what == "params":
        params["tfidf"] = True
        match = "unfinished model there has a different params.*tfidf was False and is True"
    else:
        X.data[17] += 1
        match = "unfinished model there has a different fingerprint"
    with pytest.raises(ModelExistsError, match=match):
        umpteen.Centroid(**params).fit(X, tiny.Y, path)
    with pytest.raises(ModelExistsError, match="an unfinished model is there; resume its training"):
        umpteen.Centroid(labels_per_shard=2).fit(tiny.X, tiny.Y, path, resume=False)
    assert read_files(path) == before


def test_a_run_killed_before_its_first_manifest_starts_anew(tmp_path, tiny):
    path = tmp_path / "m.model"
    path.mkdir()
    (path / ".tmp-manifest.json").write_text("{")
    (path / ".tmp-shard-00000-x").mkdir()
    umpteen.Centroid().fit(tiny.X, tiny.Y, path)
    assert not list(path.glob(".tmp-*"))


def test_only_parts_of_this_run_belong_to_the_model(tmp_path, tiny):
    path = tmp_path / "broken.model"
    interrupted_fit(path, tiny, after=5, labels_per_shard=2)
    (path / "notes").mkdir()
    with ModelWriter.create(tmp_path / "other", {"method": "x"}, []) as writer:
        writer.write_part("names", Names.encode(["old"] * 40).to_part())
    (tmp_path / "other" / "names").rename(path / "names")
    umpteen.Centroid(labels_per_shard=2).fit(tiny.X, tiny.Y, path)
    assert umpteen.load(path).label_names is None
    assert set(json.loads((path / "manifest.json").read_text())["parts"]) == {
        "labels", *(f"shard-{i:05d}" for i in range(20))
    }  # fmt: skip


# --- no space, no permission ----------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_no_disk_space(small_disk, tmp_path, bibtex):
    train, _ = bibtex
    umpteen.write_xc(train.take(np.arange(50)), small_disk / "kept.txt")
    kept = (small_disk / "kept.txt").read_bytes()
    path = small_disk / "big.model"
    with pytest.raises(umpteen.errors.ShardError, match="No space left on device.*what was finished before is kept"):
        umpteen.Centroid(labels_per_shard=10, weight_type="float32").fit(train.X, train.Y, path)
    assert (small_disk / "kept.txt").read_bytes() == kept
    assert not list(path.glob(".tmp-*"))  # half-written shards are cleaned up
    finished = list(path.glob("shard-*"))
    assert 0 < len(finished) < 16
    # Room is made (the directory moves to a larger disk): the run goes on where it stopped.
    subprocess.run(["cp", "-r", str(path), str(tmp_path / "moved.model")], check=True)
    umpteen.Centroid(labels_per_shard=10, weight_type="float32").fit(train.X, train.Y, tmp_path / "moved.model")
    with pytest.raises(OSError, match="No space left on device"):
        umpteen.write_xc(train, small_disk / "kept.txt")
    assert (small_disk / "kept.txt").read_bytes() == kept
    model = umpteen.Centroid(weight_type="float32").fit(train.X, train.Y)
    with pytest.raises(ModelError, match="No space left on device"):
        model.save(small_disk / "saved.model")
    assert not (small_disk / "saved.model").exists()


def test_a_place_that_cannot_be_written(tmp_path, tiny):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="the model directory cannot be made"):
        umpteen.Centroid().fit(tiny.X, tiny.Y, tmp_path / "file" / "m.model")
    if os.geteuid() != 0:
        tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
        with pytest.raises(ModelError, match="cannot be made"):
            umpteen.Centroid().fit(tiny.X, tiny.Y, tmp_path / "m.model")
        tmp_path.chmod(0o755)


# --- opening what is not right --------------------------------------------------------------------------------------


def test_no_model_there(tmp_path):
    with pytest.raises(ModelMissingError, match="nowhere: there is no such model directory"):
        umpteen.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="holds no manifest.json, so it is not a model directory"):
        umpteen.load(tmp_path)


@pytest.mark.parametrize("version", [0, 3, "1", None, True, 1.0])
def test_an_unknown_format_version_is_refused(model_dir, version):
    edit_manifest(model_dir, lambda m: m.update(format_version=version))
    with pytest.raises(ModelFormatError, match=rf"format_version must be 1 or 2 .* but is {version!r}"):
        umpteen.load(model_dir)


def test_missing_parts(model_dir):
    (model_dir / "shard-00002" / "positions.npy").unlink()
    with pytest.raises(ModelMissingError, match=r"shard-00002/positions\.npy: this part of the model is missing"):
        umpteen.load(model_dir)


def test_a_cut_file(model_dir):
    file = model_dir / "shard-00001" / "weights.npy"
    size = file.stat().st_size
    os.truncate(file, size - 2)
    with pytest.raises(
        ModelCorruptError, match=rf"shard-00001/weights\.npy: must have {size} bytes, but has {size - 2}"
    ):
        umpteen.load(model_dir)


def test_a_flipped_byte_is_found_by_checksums(model_dir):
    file = model_dir / "shard-00001" / "weights.npy"
    content = bytearray(file.read_bytes())
    content[-3] ^= 0x40
    file.write_bytes(content)
    umpteen.load(model_dir)  # sizes agree
    with pytest.raises(
        ModelCorruptError, match=r"shard-00001/weights\.npy: its SHA-256 must be [0-9a-f]{64}, but is"
    ):
        umpteen.load(model_dir, checksums=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["preprocessing"].update(normalize=False),
        lambda m: m["parts"]["shard-00001"]["scalars"].update(scale=4.0),
        lambda m: m["shards"].reverse(),
        lambda m: m.update(n_train_rows=299),
    ],
)
def test_a_changed_manifest_is_found_by_checksums(model_dir, change):
    umpteen.load(model_dir, checksums=True)
    edit_manifest(model_dir, change)
    umpteen.load(model_dir)  # it still describes a model
    with pytest.raises(ModelCorruptError, match=r"manifest\.json: the SHA-256 of its entries must be '[0-9a-f]{64}'"):
        umpteen.load(model_dir, checksums=True)


def test_a_manifest_without_a_checksum_is_only_read_if_none_is_asked_for(model_dir):
    edit_manifest(model_dir, lambda m: m.pop("manifest_sha256"))
    umpteen.load(model_dir)
    with pytest.raises(ModelCorruptError, match=r"manifest\.json: it must have a checksum, manifest_sha256, but has"):
        umpteen.load(model_dir, checksums=True)


@pytest.mark.slow
def test_every_flipped_byte_of_a_header_or_index_is_refused_or_harmless(model_dir, tiny):
    """Opened without checksums, damage gives an error or other scores: never a crash, never an id out of range."""
    rng = np.random.default_rng(0)
    outcomes = {"refused": 0, "opened": 0}
    for file in sorted(model_dir.rglob("*.npy")):
        original = file.read_bytes()
        for at in [*range(0, 128, 8), *rng.integers(0, len(original), 12)]:
            content = bytearray(original)
            content[at] ^= 1 << int(rng.integers(8))
            file.write_bytes(content)
            try:
                model = umpteen.load(model_dir)
                labels, _ = model.predict_topk(tiny.X[:20], 5)
                assert ((labels >= -1) & (labels < tiny.n_labels)).all()
                outcomes["opened"] += 1
            except (ModelError, umpteen.errors.DataError):
                outcomes["refused"] += 1
        file.write_bytes(original)
    assert min(outcomes.values()) > 20
    umpteen.load(model_dir, checksums=True)


MANIFEST_DAMAGE = {
    "no_json": lambda text: text[:-40],
    "a_list": lambda text: "[]",
    "deep": lambda text: "[" * 100_000,
    "rather_deep": lambda text: text.replace('"bias": 0.0', f'"bias": {"[" * 300}{"]" * 300}', 1),
    "no_shards": lambda text: re.sub(r'"shards": \[[^]]*\]', '"shards": []', text),
    "escape": lambda text: text.replace('"shard-00000"', '"../../etc"'),
    "other_shape": lambda text: text.replace('"n_features": 200', '"n_features": 199'),
    "huge_shape": lambda text: text.replace('"n_labels": 40', '"n_labels": 99999999999999'),
    "no_family": lambda text: text.replace('"family": "linear"', '"family": "telepathy"'),
    "array_shape": lambda text: text.replace('"shape": [\n      201\n', '"shape": [\n      202\n', 1),
    "no_parts": lambda text: text.replace('"parts"', '"bits"'),
    "other_counts": lambda text: text.replace('"n_labels": 40', '"n_labels": 41'),
    "method_list": lambda text: text.replace('"method": "centroid"', '"method": []'),
    "huge_power": lambda text: text.replace('"bias": 0.0', f'"bias": 0.0, "power": 1{"0" * 400}', 1),
    "unknown_step": lambda text: text.replace('"bias": 0.0', '"bias": 0.0, "colour": 1', 1),
    "negative_bytes": lambda text: text.replace('"bytes": ', '"bytes": -', 1),
}


def test_whatever_is_wrong_is_named(model_dir):
    """`"shards": []` and numbers of 400 digits, in the words of the field."""
    file = model_dir / "manifest.json"
    whole = file.read_text()
    for wrong, right, said in [
        (r'"shards": \[[^]]*\]', '"shards": []', "shards must name at least one shard, but is empty"),
        (
            r'"scale": [^,\n]*',
            f'"scale": {"9" * 400}',
            r"parts\.shard-00000\.scalars\.scale must be a finite",
        ),
        (r'"n_labels": 40', f'"n_labels": -{"9" * 400}', "n_labels must be a finite number of at most 64 bits"),
        (r'"bias": 0\.0', '"bias": 1e400', r"bias must be a finite number of at most 64 bits, but is 1e400"),
        (r'"bias": 0\.0', f'"bias": {"[" * 40}{"]" * 40}', "its entries may be nested 32 deep, but are deeper"),
        (r'"scale": [^,\n]*', '"scale": "x"', "the scale of a linear shard must be above 0, but is 'x'"),
    ]:
        file.write_text(re.sub(wrong, right, whole, count=1))
        assert file.read_text() != whole
        for checksums in (False, True):
            with pytest.raises(ModelError, match=said if not checksums else "tiny.model"):
                umpteen.load(model_dir, checksums=checksums)


@pytest.mark.parametrize("name", ["shard-00000", "labels", "names", "preprocessing"])
def test_arrays_of_another_type_are_named(tiny, tmp_path, name):
    """Under headers and checksums that fit them, as an attacker would write them."""
    model = umpteen.Centroid(tfidf=True).fit(tiny.X, tiny.Y, label_names=[str(i) for i in range(40)]).model_
    shards = model.scorer.to_parts()
    for key, array in ({"shard-00000": shards[0]} | model.parts)[name].arrays.items():
        for other in (array.astype(np.uint8 if array.dtype != np.uint8 else np.float64), array.reshape(1, -1)):
            damaged = Part(({"shard-00000": shards[0]} | model.parts)[name].arrays | {key: other}, shards[0].scalars)
            parts = model.parts if name == "shard-00000" else model.parts | {name: damaged}
            save_parts(
                tmp_path / "other", model.header, [damaged] if name == "shard-00000" else shards, 1, parts,
                overwrite=True,
            )  # fmt: skip
            with pytest.raises(ModelCorruptError, match=rf"other: .*({key} must be|label counts)"):
                umpteen.load(tmp_path / "other", checksums=True)


@pytest.mark.parametrize("case", MANIFEST_DAMAGE)
def test_damaged_manifests_are_refused(model_dir, case):
    file = model_dir / "manifest.json"
    damaged = MANIFEST_DAMAGE[case](file.read_text())
    assert damaged != file.read_text()
    file.write_text(damaged)
    with pytest.raises(ModelError, match=r"tiny\.model"):
        umpteen.load(model_dir)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (np.zeros((40, 1), np.int64), r"there must be 40 label counts, but their shape is \(40, 1\)"),
        (np.zeros(39, np.int64), r"there must be 40 label counts, but their shape is \(39,\)"),
        (np.full(40, 0.5), "label counts must be int64, but are float64"),
        (np.full(40, -1), "label counts must be at least 0, but one is -1"),
    ],
)
def test_damaged_label_counts_are_refused(tiny, tmp_path, damaged, message):
    method = umpteen.Centroid().fit(tiny.X, tiny.Y)
    method.fitted().parts["labels"] = Part({"counts": damaged})
    method.save(tmp_path / "damaged.model")
    with pytest.raises(ModelCorruptError, match=rf"damaged\.model: {message}"):
        umpteen.load(tmp_path / "damaged.model")


def test_loading_never_unpickles(model_dir, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "pwned"),))

    file = model_dir / "shard-00000" / "weights.npy"
    original = file.read_bytes()
    with file.open("wb") as handle:
        np.save(handle, np.array([Bomb()], dtype=object), allow_pickle=True)
    with file.open("ab") as handle:  # as many bytes as there must be
        handle.write(bytes(len(original) - file.stat().st_size))
    with pytest.raises(
        ModelCorruptError,
        match=r"weights\.npy: must be a NumPy array of float16 and shape \[\d+\], but its header differs",
    ):
        umpteen.load(model_dir)
    assert not (tmp_path / "pwned").exists()


# --- parts and names ------------------------------------------------------------------------------------------------


def test_parts_from_several_threads(tmp_path):
    names = [f"shard-{i:05d}" for i in range(20)]
    with ModelWriter.create(tmp_path / "m", {"method": "x"}, names) as writer:
        threads = [
            threading.Thread(target=writer.write_part, args=(name, Part({"a": np.full(1000, i)})))
            for i, name in enumerate(names)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.finish()
    reader = ModelReader(tmp_path / "m", checksums=True)
    assert [int(reader.part(name).arrays["a"][7]) for name in names] == list(range(20))


def test_a_part_must_be_plain(tmp_path):
    with ModelWriter.create(tmp_path / "m", {"method": "x"}, ["empty"]) as writer:
        with pytest.raises(ModelFormatError, match="a part's name must match"):
            writer.write_part("../up", Part({}))
        with pytest.raises(ModelFormatError, match="array 'a' of type object cannot be stored"):
            writer.write_part("a", Part({"a": np.array([object()])}))
        writer.write_part("empty", Part({"a": np.zeros(0, np.float32)}))
        writer.finish()
    assert len(ModelReader(tmp_path / "m").part("empty").arrays["a"]) == 0


def test_an_unfinished_plan_cannot_be_finished(tmp_path):
    with (
        ModelWriter.create(tmp_path / "m", {"method": "x"}, ["shard-00000"]) as writer,
        pytest.raises(ModelUnfinishedError, match="1 shards are missing, the first is shard-00000"),
    ):
        writer.finish()


def test_names_decode_only_what_is_asked_for():
    texts = ["law", "", "häring", "魚", "a\nb", "\ud800"]
    names = Names.encode(texts)
    assert list(names) == texts
    assert names[-1] == "\ud800"
    assert names[1:4] == ["", "häring", "魚"]
    with pytest.raises(IndexError, match="a name's number must be below 6, but is 6"):
        names[6]
    with pytest.raises(ModelCorruptError, match="must not fall"):
        Names(np.zeros(3, np.uint8), np.array([2, 1, 3]))
    with pytest.raises(ModelCorruptError, match="must be the number of their bytes"):
        Names(np.zeros(3, np.uint8), np.array([2]))
    with pytest.raises(ModelCorruptError, match="name 0 must be UTF-8"):
        Names(np.array([255], np.uint8), np.array([1]))[0]
