"""The model directory: a manifest and arrays that are mapped, not read. No pickle; loading runs no code.

    eurlex.model/
      manifest.json            what the model is; the list of its parts with sizes and checksums; its own checksum
      shard-00000/             one directory per part
        part.json              the part's own record: scalars, and dtype, shape, bytes, SHA-256 of each array
        indptr.npy  weights.npy  …
      shard-00001/ …
      preprocessing/ names/    parts that belong to the whole model, where it has them
      metrics.json             how good it was found to be, if somebody kept that; not part of the model

The directory is also the checkpoint. A part is written under a temporary name, synced and renamed, so it is there
whole or not at all; the manifest says ``"complete": false`` and lists the planned shards until the last one is in.
Opening checks the format, the sizes, every array's header against the manifest and every index before it is followed:
whatever the files hold, there is an error or a ranking of the model's own labels. Scores are only known to be those
that were trained if the checksums are read too, which is done on request: then no changed byte goes unseen, of arrays
or manifest. Checksums guard against accidents; who can write the directory can write them as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
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

FORMAT = "umpteen-model"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PART = "part.json"
METRICS = "metrics.json"
CHECKSUM = "manifest_sha256"
_WRITERS_OWN = ("format", "format_version", "complete", "planned", "shards", "parts")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_DTYPES = ("uint8", "uint16", "uint32", "int32", "int64", "float16", "float32", "float64")

Arrays = Mapping[str, NDArray[Any]]


class Part:
    """Some named arrays and a few JSON scalars: the unit that is written, checked and mapped."""

    def __init__(self, arrays: Arrays, scalars: Mapping[str, Any] | None = None) -> None:
        self.arrays = dict(arrays)
        self.scalars = dict(scalars or {})

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


class ModelWriter:
    """Writes a model directory part by part. Use as a context manager: it holds the directory's lock.

    Pickled, it becomes a guest's: a worker's, on a machine that sees the same directory. The lock stays behind, and a
    guest leaves parts that are there as they are: another try of its task was faster, and wrote the same bytes.
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
        """A new directory, or an interrupted one with the same header, which is then continued. With `again` a
        finished one with the same header will do too: all its shards are there.

        `header` is everything but the parts: method, parameters, shapes, fingerprint of the data.
        """
        path = Path(path)
        manifest = first_manifest(header, shard_names)
        if path.exists() and not path.is_dir():
            raise ModelExistsError(f"{path}: a model is a directory, but this is a file")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelError(f"{path}: the model directory cannot be made ({error.strerror})") from error
        writer = cls(path, manifest, lock_directory(path))  # first, so that nothing changes while we look
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
        """Names of the planned shards that are already there and whole; damaged ones are removed."""
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
        return (self.path / name).exists()

    def _check(self, name: str) -> None:
        check_part(self.path / name, _read_part_record(self.path / name), checksums=True)

    def _remove(self, name: str) -> None:
        shutil.rmtree(self.path / name)

    def _record(self, name: str) -> dict[str, Any]:
        return _read_part_record(self.path / name)

    def write_part(self, name: str, part: Part) -> None:
        """Writes a part so that it appears whole or not at all. Safe to call from several threads."""
        if not _NAME.fullmatch(name):
            raise ModelFormatError(f"a part's name must match {_NAME.pattern}, but is {name!r}")
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
                    record["arrays"][key] = _write_array(temporary / f"{key}.npy", key, array)
                _write_bytes(temporary / PART, format_json(record))
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
        """Whether this machine sees the directory that the writer was made for."""
        if not is_model(self.path) or read_manifest(self.path) != self.manifest:
            raise ModelError(
                f"{self.path}: on {platform.node()} this is not the model directory that the driver writes, so "
                "workers cannot write their shards there; let the driver write them"
            )

    def finish(self, extra: Mapping[str, Any] | None = None) -> None:
        """Gathers the parts' records into the manifest and declares the model complete."""
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
        _replace_file(self.path / MANIFEST, format_manifest(self.manifest))

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

    manifest: dict[str, Any]

    def __init__(self, path: PathLike, *, checksums: bool = False) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(self.path, checksums=checksums)
        if not self.manifest["complete"]:
            planned = self.manifest["planned"]
            raise unfinished(self.path, sum((self.path / name).exists() for name in planned), len(planned))
        for name, record in self.manifest["parts"].items():
            check_part(self.path / name, record, checksums=checksums)

    @property
    def header(self) -> dict[str, Any]:
        """The manifest without what its writer added to the header it was given."""
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
        record = self.manifest["parts"][name]
        arrays = {key: _map_array(self.path / name / f"{key}.npy", entry) for key, entry in record["arrays"].items()}
        return Part(arrays, record["scalars"])

    def n_bytes(self) -> int:
        """The size of all array files."""
        return sum(
            entry["bytes"] for record in self.manifest["parts"].values() for entry in record["arrays"].values()
        )


def unfinished(path: object, n_done: int, n_planned: int) -> ModelUnfinishedError:
    return ModelUnfinishedError(
        f"{path}: training was interrupted with {n_done} of {n_planned} shards done; "
        "fit again with the same model directory, data and settings to continue"
    )


def first_manifest(header: Mapping[str, Any], shard_names: list[str]) -> dict[str, Any]:
    """What stands in the manifest while shards are missing."""
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "complete": False,
        **header,
        "planned": shard_names,
        "parts": {},
    }
    # Through JSON and back, so that what is compared on resume is what is stored.
    checked: dict[str, Any] = json.loads(json.dumps(manifest))
    return checked


def is_model(path: PathLike) -> bool:
    return (Path(path) / MANIFEST).is_file()


def read_manifest(path: PathLike, *, checksums: bool = False) -> dict[str, Any]:
    """The manifest of a model directory, its structure checked so that the rest of the code can trust it."""
    path = Path(path)
    file = path / MANIFEST
    if not path.exists():
        raise ModelMissingError(f"{path}: there is no such model directory")
    if not file.is_file():
        raise ModelMissingError(f"{path}: holds no {MANIFEST}, so it is not a model directory")
    return check_manifest(file, parse_json(file, file.read_bytes()), checksums=checksums)


def check_manifest(file: object, manifest: dict[str, Any], *, checksums: bool = False) -> dict[str, Any]:
    """The manifest without its checksum, if its structure is right and, if asked, its content too."""
    said = manifest.pop(CHECKSUM, None)
    if manifest.get("format") != FORMAT:
        raise ModelFormatError(f"{file}: format must be {FORMAT!r}, but is {manifest.get('format')!r}")
    version = manifest.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise ModelFormatError(
            f"{file}: format_version must be {FORMAT_VERSION}, the one this umpteen reads, but is {version!r}; "
            "use the version that wrote the model, or train it again"
        )
    _require(file, isinstance(manifest.get("complete"), bool), "complete must be true or false")
    shards = manifest.get("shards" if manifest["complete"] else "planned")
    _require(file, _is_name_list(shards), "the list of shards must be a list of names")
    parts = manifest.get("parts")
    _require(file, isinstance(parts, dict), "parts must be an object")
    for name, record in parts.items():  # type: ignore[union-attr]
        _require(file, bool(_NAME.fullmatch(name)), f"a part's name must match {_NAME.pattern}, but is {name!r}")
        check_record(file, record)
    if manifest["complete"]:
        for name in shards:  # type: ignore[union-attr]
            _require(file, name in parts, f"shard {name} has no entry in parts")  # type: ignore[operator]
    if checksums and said is not None:
        try:
            found = _sum_manifest(manifest)
        except RecursionError:
            raise ModelCorruptError(f"{file}: its entries are nested too deep") from None
        _require(file, said == found, f"the SHA-256 of its entries must be {said!r:.80}, but is {found}")
    return manifest


def format_manifest(manifest: dict[str, Any]) -> bytes:
    """What stands in the file: the manifest and its checksum."""
    return format_json(manifest | {CHECKSUM: _sum_manifest(manifest)})


def _sum_manifest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def keep_metrics(path: PathLike, metrics: Mapping[str, Any]) -> None:
    """Writes beside a finished model how good it was found to be, in place of what was kept before."""
    path = Path(path)
    if not read_manifest(path)["complete"]:
        raise ModelUnfinishedError(f"{path}: training was interrupted, so there are no metrics to keep")
    _replace_file(path / METRICS, format_json(dict(metrics)))


def kept_metrics(path: PathLike) -> dict[str, Any] | None:
    """What `keep_metrics` wrote, or None."""
    file = Path(path) / METRICS
    return parse_json(file, file.read_bytes()) if file.is_file() else None


def check_part(directory: Path, record: Mapping[str, Any], *, checksums: bool) -> None:
    """Compares a part's files with its record: presence and size, and, if asked, every byte."""
    for key, entry in record["arrays"].items():
        file = directory / f"{key}.npy"
        try:
            size = file.stat().st_size
        except OSError:
            raise ModelMissingError(f"{file}: this part of the model is missing") from None
        if size != entry["bytes"]:
            raise ModelCorruptError(f"{file}: must have {entry['bytes']} bytes, but has {size}")
        if checksums and (found := _hash_file(file)) != entry["sha256"]:
            raise ModelCorruptError(f"{file}: its SHA-256 must be {entry['sha256']}, but is {found}")


def refuse_finished(path: PathLike) -> None:
    """Raises where a finished model is: nothing trained could be written there."""
    if (Path(path) / MANIFEST).exists() and read_manifest(Path(path))["complete"]:
        raise finished_already(path)


def finished_already(path: object) -> ModelExistsError:
    return ModelExistsError(f"{path}: a finished model is already there; remove it or choose another directory")


def refuse_unless_same(path: object, old: dict[str, Any], new: dict[str, Any], resume: bool) -> None:
    if not resume:
        raise ModelExistsError(
            f"{path}: an unfinished model is there; resume its training, remove it or choose another directory"
        )
    old = {"planned": old.get("shards")} | old  # what a finished model's manifest calls it
    for key in new:
        if key not in ("complete", "parts") and old.get(key) != new[key]:
            raise ModelExistsError(
                f"{path}: an unfinished model is there whose {key} differs, so its training cannot be resumed "
                f"({_difference(old.get(key), new[key])}); remove it or choose another directory"
            )


def _difference(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        return ", ".join(f"{key} was {old.get(key)!r} and is {new.get(key)!r}" for key in changed)[:300]
    if isinstance(old, list):
        return "another list"
    return f"was {old!r} and is {new!r}"[:300]


def lock_directory(path: Path) -> int | None:
    """A lock that dies with the process. File systems without locks go without."""
    try:
        import fcntl
    except ImportError:
        return None
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ModelError(f"{path}: another process is writing this model") from None
    except OSError:
        os.close(handle)
        return None
    return handle


def _npy_header(dtype: str, shape: Sequence[int]) -> bytes:
    """The header of a NumPy 1.0 file, always the same bytes for the same array. Knowing what it must be, we compare
    it on opening and never parse one."""
    descr = np.dtype(dtype).newbyteorder("<").str
    sizes = "".join(f"{n}, " for n in shape) if len(shape) != 1 else f"{shape[0]},"
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({sizes}), }}"
    padding = -(len(text) + 11) % 64
    return (
        b"\x93NUMPY\x01\x00" + (len(text) + padding + 1).to_bytes(2, "little") + f"{text}{' ' * padding}\n".encode()
    )


def encode_array(key: str, array: NDArray[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The pieces of an array's file, and its entry in the record."""
    if not _NAME.fullmatch(key) or array.dtype.name not in _DTYPES:
        raise ModelFormatError(f"array {key!r} of type {array.dtype} cannot be stored")
    header = _npy_header(array.dtype.name, array.shape)
    content = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    digest = hashlib.sha256(header)
    digest.update(content.data)
    entry = {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "bytes": len(header) + content.nbytes,
        "sha256": digest.hexdigest(),
    }
    return [header, content.data], entry


def decode_array(file: object, content: bytes, entry: Mapping[str, Any]) -> NDArray[Any]:
    """The array of a file that was read whole."""
    header = _npy_header(entry["dtype"], entry["shape"])
    dtype = np.dtype(entry["dtype"]).newbyteorder("<")
    n_bytes = math.prod(entry["shape"]) * dtype.itemsize
    if content[: len(header)] != header or len(content) != entry["bytes"] or entry["bytes"] != len(header) + n_bytes:
        raise ModelCorruptError(f"{file}: must be a NumPy array of {entry['dtype']} and shape {entry['shape']}")
    return np.frombuffer(content, dtype, offset=len(header)).reshape(entry["shape"])


def _write_array(file: Path, key: str, array: NDArray[Any]) -> dict[str, Any]:
    pieces, entry = encode_array(key, array)
    with file.open("wb") as handle:
        for piece in pieces:
            handle.write(piece)
        handle.flush()
        os.fsync(handle.fileno())
    return entry


def _map_array(file: Path, entry: Mapping[str, Any]) -> NDArray[Any]:
    header = _npy_header(entry["dtype"], entry["shape"])
    try:
        with file.open("rb") as handle:
            found = handle.read(len(header))
        dtype = np.dtype(entry["dtype"]).newbyteorder("<")
        n_bytes = math.prod(entry["shape"]) * dtype.itemsize
        if found != header or entry["bytes"] != len(header) + n_bytes:
            raise ModelCorruptError(
                f"{file}: must be a NumPy array of {entry['dtype']} and shape {entry['shape']}, "
                "but its header differs"
            )
        if n_bytes == 0:  # nothing to map
            return np.zeros(entry["shape"], dtype)
        return np.asarray(np.memmap(file, dtype, "r", len(header), tuple(entry["shape"])))
    except (OSError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelMissingError(f"{file}: cannot be mapped ({error})") from error


def _hash_file(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _read_part_record(directory: Path) -> dict[str, Any]:
    file = directory / PART
    if not file.is_file():
        raise ModelMissingError(f"{file}: this part of the model is missing")
    record = parse_json(file, file.read_bytes())
    check_record(file, record)
    return record


def check_record(file: object, record: Any) -> None:
    good = isinstance(record, dict) and isinstance(record.get("scalars"), dict)
    _require(file, good and isinstance(record.get("arrays"), dict), "a part needs scalars and arrays")
    for key, entry in record["arrays"].items():
        shape = entry.get("shape") if isinstance(entry, dict) else None
        _require(
            file,
            bool(_NAME.fullmatch(key))
            and isinstance(shape, list)
            and len(shape) <= 4
            and all(_is_count(n) for n in shape)
            and entry.get("dtype") in _DTYPES
            and _is_count(entry.get("bytes"))
            and isinstance(entry.get("sha256"), str),
            f"array {key!r} needs a dtype, a shape, its bytes and its sha256",
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_name_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and _NAME.fullmatch(name) for name in value)


def _require(file: object, condition: bool, rule: str) -> None:
    if not condition:
        raise ModelCorruptError(f"{file}: {rule}")


def parse_json(file: object, content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelCorruptError(f"{file}: not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelCorruptError(f"{file}: must be a JSON object")
    return value


def format_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")


def _write_bytes(file: Path, content: bytes) -> None:
    with file.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def _replace_file(file: Path, content: bytes) -> None:
    """Writes a file so that it is the old one or the new one, whole, whoever else writes it."""
    temporary = file.with_name(f".tmp-{file.name}-{os.getpid()}-{threading.get_ident()}")
    with explain_os_error(file):
        try:
            _write_bytes(temporary, content)
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(file.parent)


def sync_directory(path: Path) -> None:
    """Makes a rename durable, where the file system lets directories be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def explain_os_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            f"{path}: cannot be written ({error.strerror or error}); what was finished before is kept"
        ) from error
