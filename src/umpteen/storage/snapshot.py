"""One whole version of a model directory, even while others write it.

The directory is held by a descriptor, and everything is opened relative to it: the manifest, each part's directory,
then its arrays. Arrays must be regular files with the size and the header that the manifest gives, and are mapped
from the descriptor that was checked. Mapped files do not change when they are removed or replaced under their names.
At the end the manifest must still be the file that was read.

What can happen meanwhile, and how it ends:

    save(overwrite=True) swaps directories     the old one is held; if its files vanish before they are mapped, the
                                               new one is opened
    files are replaced one by one (rsync)      headers identify their content, so versions are never mixed; the error
                                               names the file that does not match
    the manifest is replaced                   noticed at the end; the model is opened again

Opening is tried a limited number of times, with pauses; then the error names the change. Files that are overwritten
in place are not protected: the mapping shows the change. See SECURITY.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ModelError, ModelMissingError, ModelUnfinishedError
from umpteen.storage.arrays import check_content, map_array
from umpteen.storage.folder import Folder
from umpteen.storage.manifest import parse_manifest
from umpteen.storage.steady import MANIFEST, read_steadily

METRICS = "metrics.json"
MOST_METRICS = 1 << 20


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What one version of a model directory holds."""

    manifest: dict[str, Any]
    version: str
    arrays: dict[str, dict[str, NDArray[Any]]]
    metrics: bytes | ModelError | None
    tries: int


def take_snapshot(path: Path, *, checksums: bool) -> Snapshot:
    """Opens a finished model: compares everything with the manifest and maps every array; with `checksums` reads
    every byte."""

    def read(folder: Folder, content: bytes) -> tuple[dict[str, Any], Any, Any, Any]:
        manifest = parse_manifest(path / MANIFEST, content, checksums=checksums)
        if not manifest["complete"]:
            planned = manifest["planned"]
            raise unfinished(path, sum(folder.identity(name) is not None for name in planned), len(planned))
        arrays, mapped = _map_parts(folder, manifest)
        return manifest, arrays, mapped, _read_metrics(folder)

    (manifest, arrays, mapped, metrics), content, tries = read_steadily(path, read)
    if checksums:  # of the mapped files, so the directory may be replaced meanwhile
        for file, raw, entry in mapped:
            check_content(file, raw, entry, manifest["format_version"])
    return Snapshot(manifest, digest(content), arrays, metrics, tries)


def digest(content: bytes) -> str:
    """What identifies a version of a model: its manifest, which has the checksums of all parts."""
    return hashlib.sha256(content).hexdigest()


def _map_parts(folder: Folder, manifest: dict[str, Any]) -> tuple[dict[str, dict[str, NDArray[Any]]], list[Any]]:
    """All arrays by part and name; and for each its file, its bytes and its entry."""
    arrays: dict[str, dict[str, NDArray[Any]]] = {}
    mapped: list[tuple[Path, NDArray[np.uint8], Any]] = []
    for name, record in manifest["parts"].items():
        arrays[name] = {}
        with folder.enter(name) as part:
            for key, entry in record["arrays"].items():
                raw, arrays[name][key] = map_array(part, key, entry, manifest["format_version"])
                mapped.append((part.path / f"{key}.npy", raw, entry))
    return arrays, mapped


def _read_metrics(folder: Folder) -> bytes | ModelError | None:
    """The metrics beside the model. If they are damaged, the model is not."""
    try:
        return folder.read(METRICS, MOST_METRICS)
    except ModelMissingError:
        return None
    except ModelError as error:
        return error


def unfinished(path: object, n_done: int, n_planned: int) -> ModelUnfinishedError:
    return ModelUnfinishedError(
        f"{path}: training was interrupted with {n_done} of {n_planned} shards done; "
        "fit again with the same model directory, data and settings to continue"
    )
