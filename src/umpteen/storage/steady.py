"""Reading a model directory that others may replace meanwhile: again if they did, a limited number of times."""

from __future__ import annotations

import contextlib
import glob
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from umpteen.errors import ModelChangedError, ModelError, ModelMissingError
from umpteen.storage.folder import Folder, Identity, identify

MANIFEST = "manifest.json"
#: Most bytes of a manifest: the records of 50,000 shards.
MOST_MANIFEST = 1 << 26
#: Seconds to wait before each try: about a second in total.
_PAUSES = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512)

T = TypeVar("T")


def read_steadily(path: Path, read: Callable[[Folder, bytes], T]) -> tuple[T, bytes, int]:
    """Calls `read` with a model directory and its manifest, and again if they were replaced meanwhile.

    Returns its result, the manifest's content, and the number of tries.
    """
    change = ""
    for tries, pause in enumerate(_PAUSES, start=1):
        if pause:  # sleeping for no time costs a turn of the processor
            time.sleep(pause)
        try:
            folder = Folder.hold(path)
        except OSError as error:
            if not _is_being_replaced(path.resolve()):
                raise _no_directory(path, error) from None
            change = "its directory was being replaced"
            continue
        with folder, contextlib.ExitStack() as held:
            seen = folder.identity(MANIFEST)
            try:
                if seen is None:
                    raise _no_manifest(path)
                # Kept open to the end, so that no other file gets its inode.
                handle, found = held.enter_context(folder.open(MANIFEST))
                seen = identify(found)
                content = folder.read_open(MANIFEST, handle, found, MOST_MANIFEST)
                done = read(folder, content)
            except ModelError:
                change = _find_change(path, folder, seen)
                if not change:
                    raise
            else:
                if folder.identity(MANIFEST) == seen:
                    return done, content, tries
                change = f"its {MANIFEST} was replaced"
    raise ModelChangedError(f"{path}: {change} while it was opened, {len(_PAUSES)} times in a row; try again")


def _find_change(path: Path, folder: Folder, seen: Identity | None) -> str:
    """What changed since the directory was opened and its manifest seen; empty if nothing did."""
    if not folder.is_at(path):
        return "its directory was replaced"
    return "" if folder.identity(MANIFEST) == seen else f"its {MANIFEST} was replaced"


def _is_being_replaced(path: Path) -> bool:
    """Whether a save is between its two renames, on systems that cannot swap directories."""
    return not path.exists() and any(path.parent.glob(f".{glob.escape(path.name)}.old-*"))


def _no_manifest(path: Path) -> ModelError:
    return ModelMissingError(f"{path}: holds no {MANIFEST}, so it is not a model directory")


def _no_directory(path: Path, error: OSError) -> ModelError:
    if isinstance(error, FileNotFoundError):
        return ModelMissingError(f"{path}: there is no such model directory")
    if isinstance(error, NotADirectoryError):
        return ModelMissingError(f"{path}: must be a directory, but is a file")
    return ModelError(f"{path}: cannot be opened ({error.strerror or error})")


def sign_directory(path: Path) -> tuple[tuple[str, Identity | None], ...]:
    """A value that changes when a model directory, or a file in it, is replaced. It is made of names, inodes and
    times only, so it is cheap. Raises if there is no manifest."""
    try:
        with Folder.hold(path) as folder:
            names = [name for name in folder.names() if not name.startswith(".tmp-")]
            if MANIFEST not in names:
                raise _no_manifest(path)
            return tuple((name, folder.identity(name)) for name in names)
    except ModelError:
        raise
    except OSError as error:
        raise _no_directory(path, error) from None
