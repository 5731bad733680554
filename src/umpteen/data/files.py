"""Whole files in and out: compression by content or suffix, and writes that appear all at once or not at all."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.decompress import DamagedError, decompress, find_kind
from umpteen.errors import DataError

PathLike = str | os.PathLike[str]
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
_CHUNK = 1 << 22


def cache_folder() -> Path:
    """Where what can be made again is kept for a user."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "umpteen"


def read_bytes(path: PathLike) -> NDArray[np.uint8]:
    """The whole content of a file, decompressed if its first bytes say gzip, bzip2, xz or Zstandard."""
    chunks = read_chunks(path, None)
    first = next(chunks, b"")
    second = next(chunks, b"")
    if not second:  # as with every plain file: one buffer of the right size, where the system knows it
        return np.frombuffer(first, np.uint8)
    content = bytearray(first)
    content += second
    for chunk in chunks:
        content += chunk
    return np.frombuffer(content, np.uint8)


def read_chunks(path: PathLike, size: int | None = _CHUNK) -> Iterator[bytes]:
    """The content of a file in pieces of about `size` bytes, decompressed as `read_bytes` does; without a size a
    plain file comes in one piece."""
    path = Path(path)
    read_size = _CHUNK if size is None else size
    if path.is_dir():
        raise DataError(f"{path}: is a directory, but must be a file")
    # Unbuffered: a buffered file would gather the whole content twice.
    with path.open("rb", buffering=0) as file:
        start = file.read(10)
        while 0 < len(start) < 10 and (more := file.read(10 - len(start))):  # a pipe may give less than was asked
            start += more
        kind = find_kind(start)
        if kind is None:
            yield from _pieces(_rewound(file, start), -1 if size is None else size)
            return
        try:
            yield from decompress(kind, _rewound(file, start).read, read_size)
        except DamagedError as error:
            raise DataError(f"{path}: the compressed data ({kind}) is damaged or cut short: {error}") from error


def _rewound(file: IO[bytes], start: bytes) -> IO[bytes]:
    if file.seekable():
        file.seek(0)
        return file
    return _Prefixed(start, file)  # type: ignore[return-value]


class _Prefixed:
    """A pipe whose first bytes were already read."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        self._start, self._rest = start, rest

    def read(self, n: int = -1) -> bytes:
        if n < 0:
            start, self._start = self._start, b""
            return start + self._rest.read()
        if self._start:
            start, self._start = self._start[:n], self._start[n:]
            return start
        return self._rest.read(n)


def _pieces(file: IO[bytes], size: int) -> Iterator[bytes]:
    while piece := file.read(size):
        yield piece


@contextlib.contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """A temporary path beside `path`; renamed to it when the block succeeds, removed when it fails.

    A link is followed, and an existing file's permissions are kept. What is there and not a file, such as a pipe or
    /dev/null, is written to directly.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path}: is a directory, but must be a file")
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
    os.close(handle)
    temporary = Path(name)
    try:
        if target.exists():
            mode = stat.S_IMODE(target.stat().st_mode)
        else:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        temporary.chmod(mode)
        yield temporary
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno is None:
            raise
        # A full disk is reported without a name, and the temporary's would mean nothing to anyone.
        raise type(error)(error.errno, error.strerror, str(path)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: PathLike, parts: Iterable[bytes]) -> None:
    """Writes parts to a file, compressed as its suffix says. The file appears whole or not at all."""
    suffix = Path(path).suffix
    with atomic_path(path) as temporary, contextlib.closing(open_compressed(suffix)(temporary)) as file:
        for part in parts:
            file.write(part)


def open_compressed(suffix: str) -> Callable[[Path], Any]:
    """What opens a file for writing, compressed as a suffix says."""
    if suffix == ".gz":
        # No name and no time inside, so that the same data gives the same bytes.
        return lambda path: _GzipFile(path)
    if suffix == ".bz2":
        return lambda path: bz2.open(path, "wb")
    if suffix == ".xz":
        return lambda path: lzma.open(path, "wb")
    if suffix == ".zst":
        import zstandard

        compressor = zstandard.ZstdCompressor(write_checksum=True)  # so that damage is noticed
        return lambda path: zstandard.open(path, "wb", cctx=compressor)
    return lambda path: path.open("wb")


class _GzipFile(gzip.GzipFile):
    def __init__(self, path: Path) -> None:
        self._raw = path.open("wb")
        super().__init__(filename="", mode="wb", fileobj=self._raw, mtime=0)

    def close(self) -> None:
        super().close()
        self._raw.close()


def read_names(path: PathLike) -> list[str]:
    """A file of names, one a line, UTF-8."""
    content = read_bytes(path).tobytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: names must be UTF-8, but byte {content[error.start]:#04x} is not") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
