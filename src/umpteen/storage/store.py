"""The model directory: a manifest and arrays that are mapped, not read. No pickle; loading runs no code.

    eurlex.model/
      manifest.json            what the model is; the list of its parts with sizes and checksums; its own checksum
      shard-00000/             one directory per part
        part.json              the part's own record: scalars, and dtype, shape, bytes, SHA-256 of each array
        indptr.npy  weights.npy  …
      shard-00001/ …
      preprocessing/ names/    parts that belong to the whole model, where it has them
      metrics.json             its accuracy, if `keep_metrics` stored it; not part of the model

The directory is also the checkpoint. A part is written under a temporary name, synced and renamed, so it is there
whole or not at all; the manifest says ``"complete": false`` and lists the planned shards until the last one is in.

Opening takes a snapshot (storage/snapshot.py): one version of the model, whole, or an error that says what changed.

    hold        the directory by its descriptor; everything is opened relative to it (storage/folder.py)
    refuse      links, pipes, sockets, devices: only regular files and directories are opened
    bound       sizes of JSON files before they are read; numbers, depth and shapes in them (storage/manifest.py)
    map         each array from the descriptor whose size and header were compared (storage/arrays.py)
    compare     at the end: the manifest must still be the file that was read; else again, a limited number of times
                (storage/steady.py)

A version is identified by the SHA-256 of its manifest, which has the checksums of all arrays; each array's header
names its content too, so versions are never mixed. What opens the parts then checks types, shapes and every index
before it is followed: whatever the files hold, there is an error or a ranking of the model's own labels. Only the
checksums show that scores are those that were trained; they are read on request, and then find every changed byte of
arrays and manifest. Checksums guard against accidents only: whoever can write the directory can write them too.
SECURITY.md says what is promised and what is not.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.files import PathLike
from umpteen.errors import (
    ModelCorruptError,
    ModelError,
    ModelExistsError,
    ModelFormatError,
    ModelMissingError,
    ModelUnfinishedError,
)
from umpteen.storage.arrays import NAME, check_content, map_array, write_array
from umpteen.storage.disk import explain_os_error, lock_directory, replace_file, sync_directory, write_synced
from umpteen.storage.folder import Folder
from umpteen.storage.manifest import (
    FORMAT_VERSION,
    check_record,
    first_manifest,
    format_json,
    format_manifest,
    parse_json,
    read_manifest,
    refuse_unless_same,
)
from umpteen.storage.snapshot import METRICS, MOST_METRICS, digest, take_snapshot
from umpteen.storage.steady import MANIFEST, read_steadily

PART = "part.json"
MOST_PART = 1 << 24
_WRITERS_OWN = ("format", "format_version", "complete", "planned", "shards", "parts")

Arrays = Mapping[str, NDArray[Any]]


class Part:
    """Named arrays and a few JSON scalars: the unit that is written, checked and mapped."""

    def __init__(self, arrays: Arrays, scalars: Mapping[str, Any] | None = None) -> None:
        self.arrays = dict(arrays)
        self.scalars = dict(scalars or {})

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def array(self, name: str, dtypes: str, n_dimensions: int = 1) -> NDArray[Any]:
        """An array that is needed, if it has one of these types, such as "uint16 int32", and so many dimensions."""
        array = self.arrays.get(name)
        if array is None:
            raise ModelCorruptError(f"the array {name} is missing")
        if array.dtype.name not in dtypes.split() or array.ndim != n_dimensions:
            raise ModelCorruptError(
                f"the array {name} must be {' or '.join(dtypes.split())} of {n_dimensions} dimensions, but is "
                f"{array.dtype} of {array.ndim}"
            )
        return array


class ModelWriter:
    """Writes a model directory part by part. Use as a context manager: it holds the directory's lock.

    Pickled, it becomes the writer of a guest: a worker on a machine that sees the same directory. The lock stays
    behind. A guest does not replace existing parts: another attempt at its task was faster and wrote the same bytes.
    """

    def __init__(self, path: Path, manifest: dict[str, Any], lock: int | None, guest: bool = False) -> None:
        self.path = path
        self.manifest = manifest
        self._lock = lock
        self._guest = guest
        self._written: set[str] = set()

    def __reduce__(self) -> Any:
        return ModelWriter, (self.path.resolve(), self.manifest, None, True)

    @classmethod
    def create(
        cls,
        path: PathLike,
        header: Mapping[str, Any],
        shard_names: list[str],
        *,
        resume: bool = True,
        again: bool = False,
    ) -> ModelWriter:
        """Starts a new directory, or continues an interrupted one with the same header. With `again` a finished one
        with the same header is accepted too: all its shards are there.

        `header` is everything but the parts: method, parameters, shapes, fingerprint of the data.
        """
        path = Path(path)
        manifest = first_manifest(header, shard_names)
        if path.exists() and not path.is_dir():
            raise ModelExistsError(f"{path}: must be a directory, but is a file")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelError(f"{path}: the model directory cannot be made ({error.strerror})") from error
        writer = cls(path, manifest, lock_directory(path))  # before looking, so that nothing changes meanwhile
        try:
            if (path / MANIFEST).exists():
                if not again:
                    refuse_finished(path)
                refuse_unless_same(path, read_manifest(path), manifest, resume)
            elif any(not entry.name.startswith(".tmp-") for entry in path.iterdir()):
                raise ModelExistsError(f"{path}: the directory is not empty and holds no model; choose another")
            for leftover in path.glob(".tmp-*"):
                if leftover.is_dir():
                    shutil.rmtree(leftover, ignore_errors=True)
                else:
                    leftover.unlink(missing_ok=True)
            if not (path / MANIFEST).exists():
                writer._write_manifest()
        except BaseException:
            writer.close()
            raise
        return writer

    def finished(self) -> list[str]:
        """Names of the planned shards that are already there and intact. Removes damaged ones."""
        done = []
        for name in self.manifest["planned"]:
            if not self._has(name):
                continue
            try:
                self._check(name)
            except ModelError:
                self._remove(name)
            else:
                done.append(name)
        return done

    def _has(self, name: str) -> bool:
        return os.path.lexists(self.path / name)

    def _check(self, name: str) -> None:
        with Folder.hold(self.path) as model, model.enter(name) as folder:
            for key, entry in _read_part_record(folder)["arrays"].items():
                raw, _ = map_array(folder, key, entry, FORMAT_VERSION)
                check_content(folder.path / f"{key}.npy", raw, entry, FORMAT_VERSION)

    def _remove(self, name: str) -> None:
        part = self.path / name
        shutil.rmtree(part) if part.is_dir() and not part.is_symlink() else part.unlink()

    def _record(self, name: str) -> dict[str, Any]:
        with Folder.hold(self.path) as model, model.enter(name) as folder:
            return _read_part_record(folder)

    def write_part(self, name: str, part: Part) -> None:
        """Writes a part so that it appears whole or not at all. Safe to call from several threads."""
        if not NAME.fullmatch(name):
            raise ModelFormatError(f"a part's name must match {NAME.pattern}, but is {name!r}")
        target = self.path / name
        if self._guest:
            self._check_host()
            if target.exists():
                return
        with explain_os_error(target):
            temporary = Path(tempfile.mkdtemp(prefix=f".tmp-{name}-", dir=self.path))
            try:
                record = {"scalars": part.scalars, "arrays": {}}
                for key, array in part.arrays.items():
                    record["arrays"][key] = write_array(temporary / f"{key}.npy", key, array)
                write_synced(temporary / PART, [format_json(record)])
                temporary.chmod(0o755)
                if target.exists() and not self._guest:
                    shutil.rmtree(target)
                try:
                    temporary.rename(target)
                except OSError:
                    if not (self._guest and target.exists()):
                        raise
                    shutil.rmtree(temporary)
                sync_directory(self.path)
                self._written.add(name)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise

    def _check_host(self) -> None:
        """Raises unless this machine sees the directory that the writer was made for."""
        if not is_model(self.path) or read_manifest(self.path) != self.manifest:
            raise ModelError(
                f"{self.path}: on {platform.node()} this is not the model directory that the driver writes, so "
                "workers cannot write shards there; let the driver write them"
            )

    def finish(self, extra: Mapping[str, Any] | None = None) -> None:
        """Collects the parts' records in the manifest and marks the model as complete."""
        manifest = {key: value for key, value in self.manifest.items() if key != "planned"} | dict(extra or {})
        manifest["shards"] = self.manifest["planned"]
        missing = [name for name in manifest["shards"] if not self._has(name)]
        if missing:
            raise ModelUnfinishedError(f"{self.path}: {len(missing)} shards are missing, the first is {missing[0]}")
        # Only what this run planned or wrote: anything else in the directory is not part of the model.
        names = sorted({*manifest["shards"], *self._written})
        manifest["parts"] = {name: self._record(name) for name in names}
        manifest["complete"] = True
        self.manifest = manifest
        self._write_manifest()

    def _write_manifest(self) -> None:
        replace_file(self.path / MANIFEST, format_manifest(self.manifest))

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> ModelWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ModelReader:
    """An opened model directory: checked, its arrays mapped on demand."""

    path: Path
    manifest: dict[str, Any]
    #: What identifies this version of the model: the SHA-256 of its manifest.
    version: str
    #: How many attempts it took to read one whole version.
    tries: int

    def __init__(self, path: PathLike, *, checksums: bool = False) -> None:
        self.path = Path(path)
        snapshot = take_snapshot(self.path, checksums=checksums)
        self.manifest, self.version, self.tries = snapshot.manifest, snapshot.version, snapshot.tries
        self._arrays, self._metrics = snapshot.arrays, snapshot.metrics

    def __str__(self) -> str:
        return str(self.path)

    @property
    def header(self) -> dict[str, Any]:
        """The manifest without the fields that its writer added."""
        return {key: value for key, value in self.manifest.items() if key not in _WRITERS_OWN}

    @property
    def shard_names(self) -> list[str]:
        return list(self.manifest["shards"])

    def has_part(self, name: str) -> bool:
        return name in self.manifest["parts"]

    def part(self, name: str) -> Part:
        """A part's arrays, mapped read-only from their files."""
        if name not in self.manifest["parts"]:
            raise ModelMissingError(f"{self.path}: the model has no part {name!r}")
        return Part(self._arrays[name], self.manifest["parts"][name]["scalars"])

    @property
    def metrics(self) -> dict[str, Any] | None:
        """What `keep_metrics` wrote beside this version, or None."""
        if isinstance(self._metrics, ModelError):
            raise self._metrics
        return None if self._metrics is None else parse_json(self.path / METRICS, self._metrics)

    def n_bytes(self) -> int:
        """The size of all array files."""
        return sum(
            entry["bytes"] for record in self.manifest["parts"].values() for entry in record["arrays"].values()
        )


def read_version(path: PathLike) -> str:
    """What identifies the version of the model that is there: the SHA-256 of its manifest. No array is opened."""
    return digest(read_steadily(Path(path), lambda *_: None)[1])


def is_model(path: PathLike) -> bool:
    try:
        with Folder.hold(Path(path)) as folder, folder.open(MANIFEST):
            return True
    except (OSError, ModelError):
        return False


def keep_metrics(path: PathLike, metrics: Mapping[str, Any]) -> None:
    """Stores a finished model's metrics beside it, replacing earlier ones."""
    path = Path(path)
    if not read_manifest(path)["complete"]:
        raise ModelUnfinishedError(f"{path}: training was interrupted, so there are no metrics to keep")
    replace_file(path / METRICS, format_json(dict(metrics)))


def kept_metrics(path: PathLike) -> dict[str, Any] | None:
    """What `keep_metrics` wrote, or None."""
    path = Path(path)
    try:
        with Folder.hold(path) as folder:
            content = folder.read(METRICS, MOST_METRICS)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return parse_json(path / METRICS, content)


def refuse_finished(path: PathLike) -> None:
    """Raises if a finished model is there: training could not write to it."""
    if (Path(path) / MANIFEST).exists() and read_manifest(Path(path))["complete"]:
        raise finished_already(path)


def finished_already(path: object) -> ModelExistsError:
    return ModelExistsError(f"{path}: a finished model is already there; remove it or choose another directory")


def fingerprint_parts(parts: Iterable[Part]) -> str:
    """A hash of the content of parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(json.dumps(part.scalars, sort_keys=True).encode())
        for name, array in sorted(part.arrays.items()):
            digest.update(f"{name} {array.dtype.name} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _read_part_record(folder: Folder) -> dict[str, Any]:
    file = folder.path / PART
    record = parse_json(file, folder.read(PART, MOST_PART))
    check_record(file, record, FORMAT_VERSION)
    return record
