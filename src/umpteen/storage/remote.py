"""The model directory on a remote file system: s3://, gs://, memory:// and whatever else fsspec knows. The files are
those of storage/store.py, byte for byte.

Object stores cannot rename, but a file appears there whole or not at all. So a part's arrays are written first and
its record last: a part exists once its record does. There is no lock, and nothing is mapped: parts are read into
memory on demand. Headers identify their content, so however late a part is read, it matches the manifest or is an
error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from umpteen.data.files import PathLike
from umpteen.errors import MissingExtraError, ModelCorruptError, ModelError, ModelExistsError, ModelMissingError
from umpteen.storage.arrays import decode_array, encode_array
from umpteen.storage.manifest import (
    FORMAT_VERSION,
    check_record,
    first_manifest,
    format_json,
    format_manifest,
    parse_json,
    parse_manifest,
    refuse_unless_same,
)
from umpteen.storage.snapshot import METRICS, MOST_METRICS, digest, unfinished
from umpteen.storage.steady import MANIFEST, MOST_MANIFEST
from umpteen.storage.store import MOST_PART, PART, ModelReader, ModelWriter, Part, finished_already


def is_url(path: PathLike) -> bool:
    return "://" in str(path)


def create_model(
    path: PathLike, header: Mapping[str, Any], shard_names: list[str], *, resume: bool = True, again: bool = False
) -> ModelWriter:
    """A writer for a directory or a URL; see `ModelWriter.create`."""
    create = RemoteWriter.create if is_url(path) else ModelWriter.create
    return create(path, header, shard_names, resume=resume, again=again)


def open_model(path: PathLike | ModelReader, *, checksums: bool = False) -> ModelReader:
    """A reader for a directory or a URL. A reader is returned as it is, so that what is opened once can be loaded and
    described as one version."""
    if isinstance(path, ModelReader):
        return path
    return RemoteReader(path, checksums=checksums) if is_url(path) else ModelReader(path, checksums=checksums)


class RemoteFolder:
    """A folder named by a URL, and operations on its files."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise MissingExtraError(
                f"{url}: paths with :// need fsspec. Install it with: pip install 'umpteen[fsspec]'"
            ) from error
        self.url = url.rstrip("/")
        try:
            self._fs, self._root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ModelError(f"{url}: {error}") from error

    def __str__(self) -> str:
        return self.url

    def __reduce__(self) -> Any:
        return RemoteFolder, (self.url,)

    def at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def has(self, name: str) -> bool:
        return bool(self._fs.exists(self.at(name)))

    def is_empty(self) -> bool:
        return not self._fs.exists(self._root) or not self._fs.ls(self._root)

    def size(self, name: str) -> int:
        try:
            return int(self._fs.size(self.at(name)))
        except OSError:
            raise ModelMissingError(f"{self}/{name}: this part of the model is missing") from None

    def read(self, name: str, most: int | None = None) -> bytes:
        """The content of a file of at most `most` bytes."""
        if most is not None and (size := self.size(name)) > most:
            raise ModelCorruptError(f"{self}/{name}: must have at most {most:,} bytes, but has {size:,}")
        try:
            content: bytes = self._fs.cat_file(self.at(name))
        except OSError as error:
            raise ModelMissingError(f"{self}/{name}: cannot be read ({error})") from error
        return content

    def write(self, name: str, pieces: list[Any]) -> None:
        with self._explained(name):
            self._fs.makedirs(self.at(name).rsplit("/", 1)[0], exist_ok=True)
            with self._fs.open(self.at(name), "wb") as handle:
                for piece in pieces:
                    handle.write(piece)

    def remove(self, name: str) -> None:
        self._fs.rm(self.at(name), recursive=True)

    @contextlib.contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ModelError(
                f"{self}/{name}: cannot be written ({error}); what was finished before is kept"
            ) from error


def _read_record(folder: RemoteFolder, name: str) -> dict[str, Any]:
    file = f"{name}/{PART}"
    record = parse_json(f"{folder}/{file}", folder.read(file, MOST_PART))
    check_record(f"{folder}/{file}", record, FORMAT_VERSION)
    return record


class RemoteWriter(ModelWriter):
    """Writes a model behind a URL. It is pickled to workers, which write there as well as the driver."""

    def __init__(self, folder: RemoteFolder, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.path = folder  # type: ignore[assignment]  # for messages
        self.manifest = manifest
        self._lock = None
        self._written: set[str] = set()

    def __reduce__(self) -> Any:
        return RemoteWriter, (self.folder, self.manifest)

    @classmethod
    def create(
        cls,
        path: PathLike,
        header: Mapping[str, Any],
        shard_names: list[str],
        *,
        resume: bool = True,
        again: bool = False,
    ) -> RemoteWriter:
        writer = cls(RemoteFolder(str(path)), first_manifest(header, shard_names))
        folder = writer.folder
        if folder.has(MANIFEST):
            there = parse_manifest(f"{folder}/{MANIFEST}", _read_manifest(folder))
            if there["complete"] and not again:
                raise finished_already(folder)
            refuse_unless_same(folder, there, writer.manifest, resume)
        elif not folder.is_empty():
            raise ModelExistsError(f"{folder}: the directory is not empty and holds no model; choose another")
        else:
            writer._write_manifest()
        return writer

    def write_part(self, name: str, part: Part) -> None:
        arrays = {}
        for key, array in part.arrays.items():
            pieces, arrays[key] = encode_array(key, array)
            self.folder.write(f"{name}/{key}.npy", pieces)
        self.folder.write(f"{name}/{PART}", [format_json({"scalars": part.scalars, "arrays": arrays})])
        self._written.add(name)

    def _has(self, name: str) -> bool:
        return self.folder.has(f"{name}/{PART}")

    def _check(self, name: str) -> None:
        for key, entry in self._record(name)["arrays"].items():
            file = f"{name}/{key}.npy"
            decode_array(f"{self.folder}/{file}", self.folder.read(file), entry, FORMAT_VERSION, checksums=True)

    def _remove(self, name: str) -> None:
        self.folder.remove(name)

    def _record(self, name: str) -> dict[str, Any]:
        return _read_record(self.folder, name)

    def _write_manifest(self) -> None:
        self.folder.write(MANIFEST, [format_manifest(self.manifest)])


class RemoteReader(ModelReader):
    """Reads a model behind a URL."""

    def __init__(self, path: PathLike, *, checksums: bool = False) -> None:
        self.folder = RemoteFolder(str(path))
        self.path = self.folder  # type: ignore[assignment]  # for messages
        self.tries = 1
        self._checksums = checksums
        content = _read_manifest(self.folder)
        self.manifest = parse_manifest(f"{self.folder}/{MANIFEST}", content, checksums=checksums)
        self.version = digest(content)
        if not self.manifest["complete"]:
            planned = self.manifest["planned"]
            raise unfinished(self.folder, sum(self.folder.has(f"{name}/{PART}") for name in planned), len(planned))
        for name, record in self.manifest["parts"].items():
            for key, entry in record["arrays"].items():
                file = f"{name}/{key}.npy"
                if (size := self.folder.size(file)) != entry["bytes"]:
                    raise ModelCorruptError(f"{self.folder}/{file}: must have {entry['bytes']} bytes, but has {size}")

    def part(self, name: str) -> Part:
        """A part's arrays, read into memory and, with `checksums`, compared with them."""
        if name not in self.manifest["parts"]:
            raise ModelMissingError(f"{self.folder}: the model has no part {name!r}")
        record, version = self.manifest["parts"][name], self.manifest["format_version"]
        arrays = {}
        for key, entry in record["arrays"].items():
            file = f"{name}/{key}.npy"
            content = self.folder.read(file, entry["bytes"])
            arrays[key] = decode_array(f"{self.folder}/{file}", content, entry, version, checksums=self._checksums)
        return Part(arrays, record["scalars"])

    @property
    def metrics(self) -> dict[str, Any] | None:
        if not self.folder.has(METRICS):
            return None
        return parse_json(f"{self.folder}/{METRICS}", self.folder.read(METRICS, MOST_METRICS))


def _read_manifest(folder: RemoteFolder) -> bytes:
    if not folder.has(MANIFEST):
        raise ModelMissingError(f"{folder}: holds no {MANIFEST}, so it is not a model directory")
    return folder.read(MANIFEST, MOST_MANIFEST)
