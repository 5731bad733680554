"""Saving a model that is in memory, and replacing one that is on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from umpteen.data.files import PathLike
from umpteen.errors import ModelError, ModelExistsError
from umpteen.models.remote import is_url
from umpteen.models.store import ModelWriter, Part, is_model


def save_parts(
    path: PathLike,
    header: Mapping[str, Any],
    shards: Iterable[Part],
    n_shards: int,
    shared: Mapping[str, Part],
    *,
    overwrite: bool = False,
) -> None:
    """Writes a whole model beside its final place and renames it there.

    Shards are taken and forgotten one by one, so that whoever makes them on the way needs the memory of one.
    """
    if is_url(path):
        raise ModelError(f"{path}: a model is saved to a directory; to write to a URL, fit with it as model_dir")
    path = Path(path).resolve()
    _refuse_existing(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.new-", dir=path.parent))
    try:
        names = [shard_name(i) for i in range(n_shards)]
        with ModelWriter.create(temporary, header, names) as writer:
            for name, part in chain(zip(names, shards, strict=True), shared.items()):
                writer.write_part(name, part)
            writer.finish()
        temporary.chmod(0o755)
        _refuse_existing(path, overwrite)  # writing took a while
        if overwrite and path.exists():
            # Two renames: a crash between them leaves the old model under its .old name, never nothing.
            retired = path.with_name(f".{path.name}.old-{temporary.name.rsplit('-', 1)[1]}")
            path.rename(retired)
            temporary.rename(path)
            shutil.rmtree(retired)
        else:
            try:
                temporary.rename(path)
            except OSError as error:  # somebody was faster
                raise _exists(path) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _refuse_existing(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise _exists(path)
    if path.exists() and not is_model(path):
        raise ModelExistsError(f"{path}: exists and is not a model, so it will not be replaced")


def _exists(path: Path) -> ModelExistsError:
    return ModelExistsError(f"{path}: already exists; choose another place, or pass overwrite=True to replace it")


def shard_name(index: int) -> str:
    return f"shard-{index:05d}"
