"""Reading from a directory that is held open, and mapping files. Everything specific to POSIX is here.

`Folder` opens names relative to the directory's descriptor and never through a link. Where the system cannot do that
(Windows), names are looked up by path each time and checked before they are opened: links and special files are
refused there too, but a directory that is replaced meanwhile may be seen in two states. Then the arrays' headers show
the difference (storage/arrays.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import stat
import sys
import weakref
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ModelCorruptError, ModelError, ModelMissingError

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_FILE = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
if _BY_DESCRIPTOR:
    _FILE |= os.O_NOFOLLOW | os.O_NONBLOCK  # the second so that a pipe without a writer does not block
    _DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

#: What distinguishes two states of a file: device, inode, size, and the times its content and inode changed.
Identity = tuple[int, int, int, int, int]


class Folder:
    """A directory that is held open: files are opened in it even if its name now leads elsewhere.

    Only regular files and directories are opened: no links, pipes, sockets or devices.
    """

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path = path
        self._handle = handle

    @classmethod
    def hold(cls, path: Path) -> Folder:
        """Opens a directory. Its own name may be a link."""
        if _BY_DESCRIPTOR:
            return cls(path, os.open(path, _DIRECTORY))
        if not path.is_dir():
            raise NotADirectoryError(20, "Not a directory", str(path)) if path.exists() else FileNotFoundError(2, "")
        return cls(path, None)

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def enter(self, name: str) -> Folder:
        """A directory in this one."""
        with self._explained(name, "a directory"):
            if _BY_DESCRIPTOR:
                return Folder(self.path / name, os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._handle))
            if not stat.S_ISDIR(self._look(name).st_mode):
                raise NotADirectoryError
            return Folder(self.path / name, None)

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[tuple[int, os.stat_result]]:
        """The descriptor of a regular file, and its `stat`."""
        with self._explained(name, "a regular file"):
            if _BY_DESCRIPTOR:
                handle = os.open(name, _FILE, dir_fd=self._handle)
            else:
                self._refuse_special(name, self._look(name))
                handle = os.open(self.path / name, _FILE)
        try:
            found = os.fstat(handle)
            self._refuse_special(name, found)
            yield handle, found
        finally:
            os.close(handle)

    def read(self, name: str, most: int) -> bytes:
        """The content of a file of at most `most` bytes."""
        with self.open(name) as (handle, found):
            return self.read_open(name, handle, found, most)

    def read_open(self, name: str, handle: int, found: os.stat_result, most: int) -> bytes:
        """The content of a file that `open` gave."""
        if found.st_size > most:
            raise ModelCorruptError(
                f"{self.path / name}: must have at most {most:,} bytes, but has {found.st_size:,}"
            )
        content = bytearray()
        while len(content) < found.st_size and (piece := os.read(handle, found.st_size - len(content))):
            content += piece
        return bytes(content)

    def identity(self, name: str) -> Identity | None:
        """The identity of what a name stands for now, without following links; None if there is nothing."""
        try:
            return identify(self._look(name))
        except FileNotFoundError:
            return None

    def is_at(self, path: Path) -> bool:
        """Whether a path still leads to this directory."""
        try:
            return self._handle is None or os.path.samestat(path.stat(), os.fstat(self._handle))
        except OSError:
            return False

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path if self._handle is None else self._handle))  # noqa: PTH208 (a descriptor)

    def _look(self, name: str) -> os.stat_result:
        if _BY_DESCRIPTOR:
            return os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        return (self.path / name).lstat()

    def _refuse_special(self, name: str, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise ModelCorruptError(f"{self.path / name}: must be a regular file, but is {_kind(found.st_mode)}")

    @contextlib.contextmanager
    def _explained(self, name: str, wanted: str) -> Iterator[None]:
        """Explains why a file or directory cannot be opened."""
        try:
            yield
        except FileNotFoundError:
            raise ModelMissingError(f"{self.path / name}: this part of the model is missing") from None
        except OSError as error:
            with contextlib.suppress(OSError):
                mode = self._look(name).st_mode
                if _kind(mode) != wanted:
                    raise ModelCorruptError(f"{self.path / name}: must be {wanted}, but is {_kind(mode)}") from None
            raise ModelError(f"{self.path / name}: cannot be opened ({error.strerror or error})") from error


def identify(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFREG: "a regular file", stat.S_IFDIR: "a directory", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "something else")


def map_file(handle: int, n_bytes: int) -> NDArray[np.uint8]:
    """The first bytes of an open file, mapped read-only. The descriptor may be closed: the mapping needs none.

    Python's own mmap keeps a descriptor per mapping, so a model of a thousand arrays would hit the usual limit. It is
    the fallback where there is no libc.
    """
    if _libc() is None:
        return np.frombuffer(mmap.mmap(handle, n_bytes, access=mmap.ACCESS_READ), np.uint8)
    return np.asarray(_Mapping(handle, n_bytes))


class _Mapping:
    """A mapping that lives as long as the arrays over it."""

    def __init__(self, handle: int, n_bytes: int) -> None:
        libc = _libc()
        address = libc.mmap(None, n_bytes, mmap.PROT_READ, mmap.MAP_SHARED, handle, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        # Not at exit: threads may still read.
        weakref.finalize(self, libc.munmap, address, n_bytes).atexit = False
        self.__array_interface__ = {"version": 3, "shape": (n_bytes,), "typestr": "|u1", "data": (address, True)}


@cache
def _libc() -> Any:
    if sys.platform == "win32":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    ]  # fmt: skip
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc
