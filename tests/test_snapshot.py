"""One version of a model per open: of regular files only, whole, or an error that names what is wrong or changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import umpteen
from umpteen.errors import ModelChangedError, ModelCorruptError, ModelError, ModelMissingError
from umpteen.storage import snapshot, steady
from umpteen.storage.folder import Folder
from umpteen.storage.manifest import MANIFEST, read_manifest
from umpteen.storage.remote import open_model
from umpteen.storage.steady import sign_directory
from umpteen.storage.store import ModelReader, is_model, keep_metrics, kept_metrics, read_version

from .conftest import ROOT
from .files import read_files

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="special files and descriptors are POSIX's")


def train(path: Path, tiny, value: float) -> Path:
    """A model whose names and weights say which version it is; all versions have the same shapes."""
    model = umpteen.Centroid(labels_per_shard=10, normalize=False)
    model.fit(tiny.X * value, tiny.Y, label_names=[f"{value:07.3f} label {i:02d}" for i in range(tiny.n_labels)])
    model.save(path)
    return path


@pytest.fixture
def one(tmp_path, tiny):
    return train(tmp_path / "one.model", tiny, 1.0)


@pytest.fixture
def two(tmp_path, tiny):
    return train(tmp_path / "two.model", tiny, 2.0)


def opened(path) -> str:
    """Which version names and weights are of."""
    model = umpteen.load(path)
    scores = model.predict_topk(np.ones((1, model.n_features), np.float32), 1)[1]
    return f"{model.label_names[0][:7]} {scores[0, 0]:.3g}"


# --- special files: rows 4, 5 and 16 --------------------------------------------------------------------------------


def pipe(file: Path) -> None:
    os.mkfifo(file)


def plug(file: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(file.parent)  # names of sockets are short
        one.bind(file.name)
        os.chdir(here)


SPECIAL = {
    "a pipe": pipe,
    "a socket": plug,
    "a directory": Path.mkdir,
    "a link": lambda file: file.symlink_to("/dev/zero"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", ["manifest.json", "shard-00001/weights.npy"])
def test_special_files_are_refused_at_once(one, kind, name):
    """In a process of its own, which a hang would end."""
    (one / name).unlink()
    SPECIAL[kind](one / name)
    code = (
        "import sys, umpteen\n"
        "from umpteen.errors import ModelCorruptError\n"
        "for checksums in (False, True):\n"
        "    try: umpteen.load(sys.argv[1], checksums=checksums)\n"
        "    except ModelCorruptError as error: print(error)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(umpteen.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(one)], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.stdout.splitlines() == [f"{one / name}: must be a regular file, but is {kind}"] * 2, done.stderr


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("name", ["manifest.json", "shard-00001/weights.npy"])
def test_inspect_refuses_them_at_once_too(one, name):
    (one / name).unlink()
    os.mkfifo(one / name)
    command = [sys.executable, "-c", "from umpteen.cli.main import main; main()", "inspect", str(one)]
    for more in ([], ["--checksums"]):
        done = subprocess.run([*command, *more], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert done.stderr.strip() == f"error: {one / name}: must be a regular file, but is a pipe"


def test_a_device_is_refused(one, tmp_path):
    file = one / "shard-00000" / "bias.npy"
    file.unlink()
    try:
        os.mknod(file, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("making a device needs root")
    with pytest.raises(ModelCorruptError, match=r"bias\.npy: must be a regular file, but is a device"):
        umpteen.load(one)


def test_a_file_of_proc_is_no_array(one):
    """They are regular files of no bytes, whatever one reads from them; the manifest may say as much."""
    file = one / MANIFEST
    manifest = json.loads(file.read_text())
    manifest["parts"]["shard-00000"]["arrays"]["bias"]["bytes"] = 0
    file.write_text(json.dumps(manifest))
    with pytest.raises(ModelCorruptError, match=r"parts\.shard-00000\.arrays\.bias\.bytes must be \d+, but is 0"):
        umpteen.load(one)
    with Folder.hold(Path("/proc/self")) as folder:
        assert folder.read("status", 1000) == b""


def test_a_part_may_not_be_a_link(one, two):
    shutil.rmtree(one / "names")
    (one / "names").symlink_to(two / "names")
    with pytest.raises(ModelCorruptError, match="names: must be a directory, but is a link"):
        umpteen.load(one)


def test_metrics_are_the_models_own_file(one, tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text('{"password": "x"}')
    (one / "metrics.json").symlink_to(secret)
    with pytest.raises(ModelCorruptError, match=r"metrics\.json: must be a regular file, but is a link"):
        kept_metrics(one)
    reader = ModelReader(one)  # the model itself is all right
    with pytest.raises(ModelCorruptError, match="but is a link"):
        assert reader.metrics
    keep_metrics(one, {"P@1": 50.0})
    assert kept_metrics(one) == ModelReader(one).metrics == {"P@1": 50.0}
    assert secret.read_text() == '{"password": "x"}'


@pytest.mark.parametrize(("name", "most"), [("manifest.json", "67,108,864"), ("metrics.json", "1,048,576")])
def test_a_file_of_holes_is_refused_from_its_size(one, name, most):
    with (one / name).open("ab") as file:
        file.truncate(3 << 30)
    with pytest.raises(ModelCorruptError, match=rf"{name}: must have at most {most} bytes, but has 3,221,225,472"):
        umpteen.load(one) if name == MANIFEST else kept_metrics(one)
    assert is_model(one)


def test_what_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelMissingError, match="file: must be a directory, but is a file"):
        umpteen.load(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelMissingError, match="pipe: must be a directory, but is a file"):
        umpteen.load(tmp_path / "pipe")
    assert not is_model(tmp_path / "pipe")
    assert kept_metrics(tmp_path / "nowhere") is None


# --- one version: rows 2 and 12 -------------------------------------------------------------------------------------


def test_a_model_replaced_while_it_is_opened_is_opened_anew(one, two, monkeypatch):
    """Swapped after the manifest was read, and the old directory removed, at every point between."""
    wanted = {opened(one), opened(two)}
    n_files = len(list(one.rglob("*.npy")))
    real = snapshot.map_array
    for point in range(0, n_files, 3):
        left = [point]

        def swap_then_map(*args, left=left):
            if left[0] == 0:
                one.rename(one.with_name("old"))
                two.rename(one)
                shutil.rmtree(one.with_name("old"))
            left[0] -= 1
            return real(*args)

        shutil.copytree(one, one.with_name("spare"))
        monkeypatch.setattr(snapshot, "map_array", swap_then_map)
        reader = ModelReader(one)
        assert reader.tries == 2
        assert reader.version == read_version(one)
        assert opened(reader) in wanted
        monkeypatch.undo()
        one.with_name("spare").rename(two)


def test_arrays_stay_what_they_were_when_the_model_is_replaced(one, two):
    reader, model = ModelReader(one), umpteen.load(one)
    was, version = opened(one), reader.version
    scores = model.predict_topk(np.ones((1, model.n_features), np.float32), 5)[1]
    umpteen.load(two).save(one, overwrite=True)
    assert opened(reader) == was != opened(one)
    assert reader.version == version != read_version(one) == ModelReader(one).version
    np.testing.assert_array_equal(model.predict_topk(np.ones((1, model.n_features), np.float32), 5)[1], scores)


def test_checksums_are_those_of_what_is_mapped(one, two, monkeypatch):
    """The model is replaced and removed between mapping and summing: what was mapped is summed, and loaded."""
    was = opened(one)
    real, done = snapshot.check_content, []

    def replace_then_check(*args):
        if not done:
            umpteen.load(two).save(one, overwrite=True)
        done.append(args)
        real(*args)

    monkeypatch.setattr(snapshot, "check_content", replace_then_check)
    reader = ModelReader(one, checksums=True)
    assert len(done) == len(list(two.rglob("*.npy")))
    assert opened(reader) == was != opened(one)


def test_files_of_two_versions_are_never_mixed(one, two):
    """Copied file by file over another of the same shapes, in any order: one of the two, or an error that says it."""
    before, after = opened(one), opened(two)
    files = sorted(name for name in read_files(two) if not name.endswith("part.json"))
    assert all((one / name).stat().st_size == (two / name).stat().st_size for name in files if "/" in name)
    rng = np.random.default_rng(0)
    for _ in range(3):
        rng.shuffle(files)
        place = one.with_name("place")
        shutil.copytree(one, place)
        outcomes = [opened(place)]
        for name in files:
            shutil.copy(two / name, place / ".tmp-new")
            (place / ".tmp-new").replace(place / name)
            try:
                outcomes.append(opened(place))
            except ModelCorruptError as error:
                outcomes.append(re.sub(r".*: belongs to another version of the model.*", "refused", str(error)))
        assert outcomes[0] == before
        assert outcomes[-1] == after
        assert set(outcomes) == {before, "refused", after}
        assert outcomes.count("refused") > 2
        assert read_version(place) == read_version(two)
        shutil.rmtree(place)


def test_an_array_of_another_version_in_format_1_is_found_by_checksums(tmp_path, tiny, monkeypatch):
    """Format 1 does not name contents in headers, so that without checksums such a mixture goes unseen."""
    from umpteen.storage import arrays, manifest, store

    real = arrays._npy_header
    monkeypatch.setattr(arrays, "_npy_header", lambda dtype, shape, sha256: real(dtype, shape, None))
    for module in (manifest, store):
        monkeypatch.setattr(module, "FORMAT_VERSION", 1)
    one, two = train(tmp_path / "one", tiny, 1.0), train(tmp_path / "two", tiny, 2.0)
    monkeypatch.undo()
    for path in (one, two):  # what the first format calls a checksum: that of the whole file
        content = json.loads((path / MANIFEST).read_text())
        for name, record in content["parts"].items():
            for key, entry in record["arrays"].items():
                entry["sha256"] = hashlib.sha256((path / name / f"{key}.npy").read_bytes()).hexdigest()
        del content["manifest_sha256"]
        (path / MANIFEST).write_bytes(manifest.format_manifest(content))
        umpteen.load(path, checksums=True)
    shutil.copy(two / "names" / "data.npy", one / "names" / "data.npy")
    umpteen.load(one)
    with pytest.raises(ModelCorruptError, match=r"names/data\.npy: its SHA-256 must be"):
        umpteen.load(one, checksums=True)


def test_a_manifest_that_never_rests_is_named(one, monkeypatch):
    def touch(*_):
        content = (one / MANIFEST).read_bytes()
        (one / "new").write_bytes(content)
        (one / "new").replace(one / MANIFEST)

    monkeypatch.setattr(steady, "_PAUSES", (0.0,) * 4)
    with pytest.raises(
        ModelChangedError, match=r"one\.model: its manifest\.json was replaced while it was opened, 4 times in a row"
    ):
        steady.read_steadily(one, touch)


def test_between_two_renames_is_waited_for(one, monkeypatch):
    """Where directories cannot be swapped at once there is a moment without any."""
    old = one.with_name(f".{one.name}.old-x")
    one.rename(old)
    monkeypatch.setattr(steady.time, "sleep", lambda pause: old.rename(one) if pause >= 0.004 else None)
    assert ModelReader(one).tries == 4
    one.rename(old)
    monkeypatch.undo()
    monkeypatch.setattr(steady, "_PAUSES", (0.0,) * 4)
    with pytest.raises(ModelChangedError, match="its directory was being replaced while it was opened"):
        umpteen.load(one)


def test_what_is_damaged_is_not_tried_again(one, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(steady.time, "sleep", waits.append)
    (one / "shard-00000" / "bias.npy").unlink()
    with pytest.raises(ModelMissingError, match=r"shard-00000/bias\.npy: this part of the model is missing"):
        ModelReader(one)
    assert waits == []


@pytest.mark.slow
def test_many_arrays_take_no_descriptors(tmp_path, tiny):
    """A mapping needs none; Python's own mmap would keep one for each array."""
    resource = pytest.importorskip("resource")
    model = umpteen.Centroid(labels_per_shard=1).fit(tiny.X, tiny.Y, tmp_path / "m")
    held = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 60
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (held + 20, hard))
    try:
        loaded = umpteen.load(tmp_path / "m", checksums=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(ModelReader(tmp_path / "m").shard_names) == 40
    for a, b in zip(model.predict_topk(tiny.X), loaded.predict_topk(tiny.X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_mappings_end_with_their_arrays(one):
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("what is mapped is asked from /proc")
    reader = ModelReader(one)
    weights = reader.part("shard-00000").arrays["weights"]
    assert maps.read_text().count(str(one)) > 10
    del reader
    assert maps.read_text().count(str(one)) == 1
    total = float(weights.astype(np.float64).sum())
    assert np.isfinite(total)
    with pytest.raises(ValueError, match="WRITEABLE"):
        weights.flags.writeable = True
    del weights
    assert str(one) not in maps.read_text()


def test_a_reader_can_be_loaded(one):
    reader = open_model(one)
    assert open_model(reader) is reader
    assert opened(reader) == opened(one)
    assert str(reader) == str(one)


# --- what a server watches: row 12 ----------------------------------------------------------------------------------


def test_a_signature_changes_with_every_replacement(one, two):
    seen = [sign_directory(one)]
    assert sign_directory(one) == seen[0]

    def changed() -> bool:
        seen.append(sign_directory(one))
        return seen[-1] != seen[-2]

    keep_metrics(one, {"P@1": 1.0})
    assert changed()
    shutil.copy2(two / "names" / "data.npy", one / "names" / ".new")  # as rsync does: same size, same time
    (one / "names" / ".new").replace(one / "names" / "data.npy")
    assert changed()
    shutil.copy2(two / MANIFEST, one / ".new")
    (one / ".new").replace(one / MANIFEST)
    assert changed()
    umpteen.load(two).save(one, overwrite=True)
    assert changed()
    (one / MANIFEST).unlink()
    with pytest.raises(ModelMissingError, match=r"one\.model: holds no manifest\.json, so it is not a model"):
        sign_directory(one)
    with pytest.raises(ModelMissingError, match="there is no such model directory"):
        sign_directory(one.with_name("nowhere"))


def test_a_version_is_the_manifests_digest(one, two, tmp_path):
    assert read_version(one) == hashlib.sha256((one / MANIFEST).read_bytes()).hexdigest() != read_version(two)
    shutil.copytree(one, tmp_path / "copy")
    assert read_version(tmp_path / "copy") == read_version(one)
    pytest.importorskip("fsspec")
    assert open_model(f"file://{one}").version == read_version(one)


# --- numbers: row 11 ------------------------------------------------------------------------------------------------

HUGE = "9" * 400
UNBOUNDED = {
    "400 digits": HUGE,
    "negative": f"-{HUGE}",
    "5000 digits": "9" * 5000,
    "1e400": "1e400",
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "65 bits": str(2**64),
}


@pytest.mark.parametrize("value", UNBOUNDED.values(), ids=UNBOUNDED)
@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("n_labels", '"n_labels": 40'),
        ("params.labels_per_shard", '"labels_per_shard": 10'),
        ("parts.shard-00000.arrays.bias.shape.0", '"dtype": "float32",\n     "shape": [\n      10'),
        ("preprocessing.bias", '"bias": 0.0'),
    ],
)
def test_numbers_without_bound_are_refused_by_file_and_field(one, field, text, value):
    content = (one / MANIFEST).read_text()
    assert text in content
    number = text.split()[-1]
    (one / MANIFEST).write_text(content.replace(text, text[: -len(number)] + value, 1))
    with pytest.raises(ModelCorruptError) as error:
        umpteen.load(one)
    assert f"one.model/manifest.json: {field} must be a finite number of at most 64 bits, but is {value[:20]}" in str(
        error.value
    )
    with pytest.raises(ModelCorruptError):
        read_manifest(one)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda m: m.update(shards=[]), "shards must name at least one shard, but is empty"),
        (lambda m: m.update(shards=["shard-00000"] * 4), "shards must name each shard once"),
        (lambda m: m.update(shards={}), "shards must be a list of names"),
        (lambda m: m["parts"]["names"].update(arrays=[]), "parts.names.scalars and arrays must be objects"),
        (
            lambda m: m["parts"]["names"]["arrays"]["data"].update(sha256="x'}"),
            "parts.names.arrays.data.sha256 must be 64 hexadecimal digits",
        ),
        (
            lambda m: m["parts"]["names"]["arrays"]["data"].update(shape=[2**62, 2**62]),
            "parts.names.arrays.data.shape must not be larger than any memory",
        ),
        (
            lambda m: m["parts"]["names"]["arrays"]["data"].update(shape=[2**62, 0, 2**62], bytes=192),
            "parts.names.arrays.data.shape must not be larger than any memory",
        ),
        (lambda m: m.update(chosen=[0] * 270_000), "beside parts there must be at most 262,144 values"),
        (
            lambda m: m["parts"]["names"]["scalars"].update(x=[[0.5] * 100] * 2700),
            "parts.names.scalars must have at most 262,144 values",
        ),
        (lambda m: m["parts"]["names"]["arrays"]["data"].update(dtype="O"), "arrays.data.dtype must be one of uint8"),
        (lambda m: m["parts"]["names"]["arrays"]["data"].update(dtype=[]), "arrays.data.dtype must be one of uint8"),
    ],
)
def test_fields_of_a_manifest_are_named(one, change, rule):
    manifest = json.loads((one / MANIFEST).read_text())
    change(manifest)
    (one / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ModelCorruptError) as error:
        umpteen.load(one)
    assert f"manifest.json: {rule}" in str(error.value).replace("parts.names.arrays.data.dtype", "arrays.data.dtype")


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (
            lambda text: '{"n_labels": 41,' + text[1:],
            "a key must stand once in an object, but 'n_labels' is twice",
        ),
        (lambda text: text.replace('"scalars":', '"scalars": {}, "scalars":', 1), "'scalars' is twice"),
        (lambda text: "\ufeff" + text, "not valid JSON"),
        (lambda text: text + "\0", "not valid JSON"),
        (lambda text: '{"x": [' + "{}," * 1_100_000 + "{}]," + text[1:], "at most 1,048,576 objects and lists"),
    ],
)
def test_a_manifest_is_read_in_one_way_only(one, change, rule, checksums):
    """Two readers might choose different values of a key, or encodings; and many empty objects fill the memory."""
    (one / MANIFEST).write_text(change((one / MANIFEST).read_text()))
    with pytest.raises(ModelCorruptError, match=re.escape(rule)):
        umpteen.load(one, checksums=checksums)
    (one / MANIFEST).write_text((one / MANIFEST).read_text(), encoding="utf-16")
    with pytest.raises(ModelCorruptError, match="not valid JSON|objects and lists"):
        umpteen.load(one, checksums=checksums)


def test_every_number_of_a_manifest_may_be_large(one):
    """Every integer there is, in turn, as large as 64 bits allow, or negative: an error of ours or a ranking."""
    original = json.loads((one / MANIFEST).read_text())
    places = list(_numbers(original, ()))
    assert len(places) > 60
    for *above, last in places[:: max(1, len(places) // 80)]:
        for value in (2**63 - 1, -1, 2**31):
            manifest = json.loads(json.dumps(original))
            at = manifest
            for key in above:
                at = at[key]
            at[last] = value
            (one / MANIFEST).write_text(json.dumps(manifest))
            with contextlib.suppress(ModelError):
                opened(one)


def _numbers(value, path):
    if isinstance(value, (dict, list)):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(below, (*path, key))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


@pytest.mark.slow
def test_records_of_parts_are_bounded_too(tmp_path, tiny):
    """On resuming, a record that is not as it must be is a damaged shard, which is trained again."""

    class Stop(Exception):
        pass

    def progress(p):
        if p.shards_done >= 5:
            raise Stop

    whole, path = tmp_path / "whole", tmp_path / "broken"
    umpteen.Centroid(labels_per_shard=2, threads=1).fit(tiny.X, tiny.Y, whole)
    with pytest.raises(Stop):
        umpteen.Centroid(labels_per_shard=2, threads=1).fit(tiny.X, tiny.Y, path, progress=progress)
    first, second, third, fourth = sorted(path.glob("shard-*"))[:4]
    (first / "part.json").write_text((first / "part.json").read_text().replace('"bytes": ', f'"bytes": {HUGE}', 1))
    (second / "part.json").unlink()
    os.mkfifo(second / "part.json")
    with (third / "part.json").open("ab") as file:
        file.truncate(3 << 30)
    shutil.rmtree(fourth)
    fourth.write_text("a file")
    umpteen.Centroid(labels_per_shard=2).fit(tiny.X, tiny.Y, path)
    assert read_files(path) == read_files(whole)


@pytest.mark.slow
@pytest.mark.process
def test_the_torture_in_short():
    """Writers replacing, pruning and copying beside readers; see tests/records/torture.md for a long run."""
    environment = os.environ | {"PYTHONPATH": str(Path(umpteen.__file__).parent.parent)}
    command = [sys.executable, "-m", "tests.torture", "--loads", "200", "--seconds", "60"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"mixed": 0' in done.stdout
