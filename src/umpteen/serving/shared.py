"""Memory shared by the server's processes. It is not a file, so no full disk or cleanup affects it."""

from __future__ import annotations

import mmap
import os
import tempfile
from multiprocessing.reduction import DupFd
from typing import Any


class SharedMemory:
    """Zeroed bytes. Pickled for a process that is being started, they are the same memory there."""

    def __init__(self, n_bytes: int, descriptor: int | None = None) -> None:
        self._descriptor = _make(n_bytes) if descriptor is None else descriptor
        self._n_bytes = n_bytes
        self.buffer = mmap.mmap(self._descriptor, n_bytes)

    def __reduce__(self) -> Any:
        return _attach, (self._n_bytes, DupFd(self._descriptor))


def _attach(n_bytes: int, duplicate: Any) -> SharedMemory:
    return SharedMemory(n_bytes, duplicate.detach())


def _make(n_bytes: int) -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("umpteen-counts", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:  # never has a name
            descriptor = os.dup(file.fileno())
    # Allocate all of it now, or fail: a page that is missing later would kill the process that touches it.
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, n_bytes)
    else:
        os.write(descriptor, bytes(n_bytes))
    return descriptor
