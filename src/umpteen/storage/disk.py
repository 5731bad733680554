"""Files that appear whole or not at all, even if the process is killed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from umpteen.errors import ModelError, ModelLockedError


def lock_directory(path: Path) -> int | None:
    """A lock that ends with the process; None if the file system has no locks."""
    try:
        import fcntl
    except ImportError:
        return None
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ModelLockedError(f"{path}: another process is writing this model") from None
    except OSError:
        os.close(handle)
        return None
    return handle


def write_synced(file: Path, pieces: Iterable[Any]) -> None:
    """Writes a file and waits until it is on the disk."""
    with file.open("wb") as handle:
        for piece in pieces:
            handle.write(piece)
        handle.flush()
        os.fsync(handle.fileno())


def replace_file(file: Path, content: bytes) -> None:
    """Replaces a file so that readers see the old or the new one, whole, even with other writers."""
    temporary = file.with_name(f".tmp-{file.name}-{os.getpid()}-{threading.get_ident()}")
    with explain_os_error(file):
        try:
            write_synced(temporary, [content])
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(file.parent)


def sync_directory(path: Path) -> None:
    """Makes a rename durable, if the file system can sync directories."""
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
