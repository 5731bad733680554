"""Saving a model that is in memory, and replacing one that is on disk."""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from umpteen.data.files import PathLike
from umpteen.errors import ModelError, ModelExistsError
from umpteen.storage.disk import explain_os_error, lock_directory, sync_directory
from umpteen.storage.remote import is_url
from umpteen.storage.store import ModelWriter, Part, is_model

#: Seconds after which an unlocked directory counts as abandoned: no save is about to write it.
_ABANDONED = 60.0


def save_parts(
    path: PathLike,
    header: Mapping[str, Any],
    shards: Iterable[Part],
    n_shards: int,
    shared: Mapping[str, Part],
    *,
    overwrite: bool | None = None,
) -> None:
    """Writes a whole model beside its final place and renames it there.

    Shards are consumed one by one, so that an iterator that makes them needs the memory of only one. Pass `overwrite`
    if your caller has that option: errors mention it only then.
    """
    if is_url(path):
        raise ModelError(f"{path}: models are saved to directories; to write to a URL, pass it to fit as model_dir")
    path = Path(path).resolve()
    _refuse_existing(path, overwrite)
    with explain_os_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_abandoned(path)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.new-", dir=path.parent))
    try:
        names = [shard_name(i) for i in range(n_shards)]
        with ModelWriter.create(temporary, header, names) as writer:  # locked until it is in its place
            for name, part in chain(zip(names, shards, strict=True), shared.items()):
                writer.write_part(name, part)
            writer.finish()
            temporary.chmod(0o755)
            _refuse_existing(path, overwrite)  # writing took a while
            if overwrite and path.exists():
                _replace(path, temporary)
            else:
                try:
                    temporary.rename(path)
                except OSError as error:
                    if path.exists():  # another process was faster
                        raise _exists(path, overwrite) from error
                    raise ModelError(f"{path}: cannot be written ({error.strerror or error})") from error
            sync_directory(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _replace(path: Path, new: Path) -> None:
    """Replaces a directory by a new one; in one step where the system can, so that one of them is always there."""
    if _exchange(new, path):
        shutil.rmtree(new, ignore_errors=True)  # the old one by now
        return
    # Two renames: a crash between them leaves the old model under its .old name.
    retired = path.with_name(f".{path.name}.old-{new.name.rsplit('-', 1)[1]}")
    path.rename(retired)
    new.rename(path)
    shutil.rmtree(retired, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swaps the names of two directories in one step; False if the system or file system cannot."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), swap) == 0)


def _clear_abandoned(path: Path) -> None:
    """Removes what killed saves left behind. A save that is still running holds a lock."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.new-*"):
        try:
            if time.time() - leftover.stat().st_mtime < _ABANDONED:
                continue
            lock = lock_directory(leftover)
        except (OSError, ModelError):
            continue
        if lock is not None:
            shutil.rmtree(leftover, ignore_errors=True)
            os.close(lock)


def _refuse_existing(path: Path, overwrite: bool | None) -> None:
    if path.exists() and not overwrite:
        raise _exists(path, overwrite)
    if path.exists() and not is_model(path):
        raise ModelExistsError(f"{path}: exists and is not a model, so it will not be replaced")


def _exists(path: Path, overwrite: bool | None) -> ModelExistsError:
    advice = "" if overwrite is None else ", or pass overwrite=True to replace it"
    return ModelExistsError(f"{path}: already exists; choose another place{advice}")


def shard_name(index: int) -> str:
    return f"shard-{index:05d}"
