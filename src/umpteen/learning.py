"""A model directory that corrections or a new vocabulary change: opened, changed, and replaced in one step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from umpteen.data.corrections import Correction
from umpteen.data.files import PathLike
from umpteen.errors import ModelChangedError, ParamError
from umpteen.methods.base import Method
from umpteen.storage.disk import lock_directory
from umpteen.storage.store import read_version
from umpteen.tagger import Tagger, load
from umpteen.tagging.updating import VocabularyUpdate
from umpteen.vocabulary.concepts import Vocabulary


@dataclass(frozen=True)
class Learnt:
    """What became of some corrections."""

    n: int
    n_without_words: int  # nothing was learnt from these
    n_labels: int  # before
    new_labels: list[str]
    unknown_rejected: list[str]  # labels that were rejected and are not there
    seconds: float
    version: str  # of the new model


def improve_model(
    path: PathLike,
    read: Callable[[Tagger], Sequence[Correction]],
    target: PathLike | None = None,
    *,
    threads: int | None = None,
    overwrite: bool = False,
) -> Learnt:
    """Learns corrections and saves the model, in its place or at `target`.

    The model is locked, so that of two calls for one model the second is refused, not lost. The new model appears
    when it is complete; until then, and if anything fails, the old one is there.

    Parameters
    ----------
    read
        Gives the corrections; called with the model.
    overwrite
        Replace a model that is already at `target`.
    """
    with _locked(Path(path)):
        version, tagger = _open(path)
        if tagger.features_ is None:
            raise ParamError(f"{path}: corrections are of texts, but this model was not trained on text")
        corrections = read(tagger)
        if isinstance(tagger.method, Method):
            tagger.method.set_params(threads=threads)
        n_labels, started = tagger.fitted().n_labels, time.perf_counter()
        tagger.learn_from(corrections)
        seconds = time.perf_counter() - started
        place = _replace(tagger, path, version, target, overwrite)
        rejected = {name for said in corrections for name in said.wrong}
        return Learnt(
            n=len(corrections),
            n_without_words=int((tagger.vectorize([said.text for said in corrections]).X.getnnz(axis=1) == 0).sum()),
            n_labels=n_labels,
            new_labels=list(tagger.names_in(None)[n_labels:]),
            unknown_rejected=sorted(rejected - set(tagger.names_in(None))),
            seconds=seconds,
            version=read_version(place),
        )


def update_vocabulary(
    path: PathLike,
    vocabulary: Vocabulary | PathLike,
    target: PathLike | None = None,
    overwrite: bool = False,
) -> VocabularyUpdate:
    """`Tagger.update_vocabulary` for a model directory: the new model takes its place, or goes to `target`, whole or
    not at all, and of two calls for one model the second is refused."""
    with _locked(Path(path)):
        version, tagger = _open(path)
        change = tagger.update_vocabulary(vocabulary)
        _replace(tagger, path, version, target, overwrite)
        return change


def _open(path: PathLike) -> tuple[str, Tagger]:
    version = read_version(path)
    tagger = load(path)
    if not isinstance(tagger, Tagger):
        raise ParamError(f"{path}: must be a model of texts, but this model was not trained on text")
    return version, tagger


def _replace(
    tagger: Tagger, path: PathLike, version: str, target: PathLike | None, overwrite: bool = False
) -> PathLike:
    if target is None and read_version(path) != version:
        raise ModelChangedError(f"{path}: was changed by somebody else meanwhile; try again")
    tagger.save(path if target is None else target, overwrite=overwrite or target is None)
    return path if target is None else target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock of a model directory, where the file system has locks."""
    handle = lock_directory(path) if path.is_dir() else None
    try:
        if handle is not None and not _is_at(handle, path):  # another process holds the lock of the one that is there
            raise ModelChangedError(f"{path}: was replaced by somebody else just now; try again")
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    """Whether a path still leads to a directory that is held."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False
