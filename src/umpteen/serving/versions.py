"""Which directory a model is served from.

A path is a model directory, or a directory of versions of one model:

    models/eurlex/
      2026-11-01/      a model directory each
      2026-11-15/
      current          optional: a file with the name of a version, or a link to it

The newest usable version is served: the last by name, with numbers compared by value, so that v10 comes after v9.
Names survive copying, which file times do not. `current` pins a version: write a name into it to go back, remove it
to follow the newest again.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from umpteen.errors import ModelError, ModelFormatError, ModelMissingError
from umpteen.storage.folder import Folder
from umpteen.storage.steady import MANIFEST
from umpteen.storage.store import read_version

CURRENT = "current"
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,127}")
#: Digits that are enough to distinguish versions.
_DIGITS = 12
_LONGEST_PIN = 512
#: More than any model has, and few enough to check every other second.
_MOST_FILES = 100_000


def candidates(path: str) -> list[str]:
    """The directories to try for a path, best first. A directory of models is one of versions."""
    place = Path(path)
    if os.path.lexists(place / MANIFEST) or not place.is_dir():
        return [path]
    pinned = _pinned(place)
    if pinned is not None:
        return [str(place / pinned)]
    with os.scandir(place) as entries:
        names = [entry.name for entry in entries if _VERSION.fullmatch(entry.name) and entry.name != CURRENT]
    found = [name for name in names if (place / name / MANIFEST).is_file()]
    return [str(place / name) for name in sorted(found, key=_order, reverse=True)] or [path]


def version_name(path: str, chosen: str) -> str | None:
    """The name of the chosen version; None if the path has no versions."""
    return Path(chosen).name if Path(chosen) != Path(path) else None


def _pinned(place: Path) -> str | None:
    file = place / CURRENT
    try:
        if file.is_symlink():
            name = str(file.readlink())
        else:
            with Folder.hold(place) as folder:
                name = folder.read(CURRENT, _LONGEST_PIN).decode("utf-8", "replace").strip()
    except (FileNotFoundError, ModelMissingError):
        return None
    if not _VERSION.fullmatch(name):
        raise ModelFormatError(f"{file}: must name a directory beside it, but is {name!r:.80}")
    return name


def _order(name: str) -> tuple[Any, ...]:
    """Sorts text as text and digits as numbers: the two alternate, so that like is compared with like."""
    parts = re.split(r"(\d+)", name)
    return tuple(int(part) if i % 2 else part for i, part in enumerate(parts)), name


def sign(path: str) -> tuple[Any, ...]:
    """A value that changes when a model directory, or a file in it, is replaced."""
    top = Path(path).stat()
    if not stat.S_ISDIR(top.st_mode):
        raise ModelMissingError(f"{path}: there is no such model directory")
    if not os.path.lexists(Path(path) / MANIFEST):
        raise ModelMissingError(f"{path}: holds no {MANIFEST}, so it is not a model directory")
    return (top.st_dev, top.st_ino, tuple(sorted(_files(path))))


def _files(path: str) -> Iterator[tuple[str, int, int, int, int]]:
    n = 0
    for folder, _, names in os.walk(path):
        for name in names:
            if name.startswith("."):
                continue  # a writer's temporary files
            n += 1
            if n > _MOST_FILES:
                raise ModelError(f"{path}: a model must have at most {_MOST_FILES} files, but has more")
            file = f"{folder}/{name}"
            found = os.lstat(file)
            # Both times: a copy in place may set the first to what it was.
            yield file, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def same_directory(one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> bool:
    """Whether two signatures belong to one directory, so that its files were changed in place."""
    return one is not None and other is not None and one[:2] == other[:2]


def digest(path: str | Path) -> str:
    """The shortened version of the model that is there now."""
    return shorten(read_version(path))


def shorten(version: str) -> str:
    """A model's version, a hash of its manifest, with only the digits that are shown."""
    return version[:_DIGITS]
