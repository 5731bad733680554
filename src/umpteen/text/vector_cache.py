"""Vectors of texts on disk, so that an encoder outside of models computes each of them once.

A file of SQLite. Vectors stand by the encoder and by the content of their texts:

    encoders       number, name, and the vectors it gave to the fixed texts that tell encoders apart
    text_vectors   number of the encoder, SHA-256 of the text, its vector as float32, little-endian

An encoder is found again although another number of threads makes it round otherwise. What is written stays, also
if encoding stops in the middle; several processes may use one file.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from umpteen.data.files import cache_folder
from umpteen.errors import DataError, ParamError

#: Names the file for commands, and wherever `cache` is not given.
VARIABLE = "UMPTEEN_VECTORS"
_SECONDS_TO_WAIT = 60
_TABLES = (
    "CREATE TABLE IF NOT EXISTS encoders (number INTEGER PRIMARY KEY, name TEXT NOT NULL, probes BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS text_vectors (encoder INTEGER NOT NULL, text BLOB NOT NULL, vector BLOB NOT NULL, "
    "PRIMARY KEY (encoder, text)) WITHOUT ROWID",
)


def find_cache(given: str | Path | bool | None) -> Path | None:
    """The file that `cache` stands for: True for the user's own, None for that of the environment variable."""
    if given is None and os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    if given is None or given is False:
        return None
    if given is not True and (not isinstance(given, (str, os.PathLike)) or not os.fspath(given)):
        raise ParamError(f"cache must be the path of a file, True or False, but is {given!r:.100}")
    return cache_folder() / "vectors.sqlite" if given is True else Path(given)


def are_alike(probes: NDArray[np.float32], others: NDArray[np.float32]) -> bool:
    """Whether two encoders give the same texts the same vectors, but for what machines round otherwise."""
    return bool((np.abs(probes - others) <= 0.01 * np.abs(others).max(axis=1, keepdims=True)).all())


class VectorCache:
    """The vectors of one encoder in a file."""

    def __init__(self, path: Path, name: str, probes: NDArray[np.float32]) -> None:
        self._path = path
        self._width = probes.shape[1]
        with self._reporting():
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # vectors let others guess at texts
            self._file = sqlite3.connect(path, timeout=_SECONDS_TO_WAIT)
            try:
                self._number = self._find_encoder(name, probes)
            except BaseException:
                self._file.close()
                raise

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise DataError(f"{self._path}: vectors cannot be kept in this file ({error})") from error

    def _find_encoder(self, name: str, probes: NDArray[np.float32]) -> int:
        """The number of an encoder of this name with these probes, which it gets if it has none."""
        with self._file:
            self._file.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                self._file.execute(table)
            rows = self._file.execute("SELECT number, probes FROM encoders WHERE name = ?", (name,))
            for number, raw in rows.fetchall():
                if len(raw) != 4 * probes.size:
                    continue
                if are_alike(np.frombuffer(raw, "<f4").reshape(probes.shape), probes):
                    return int(number)
            raw = probes.astype("<f4").tobytes()
            made = self._file.execute("INSERT INTO encoders (name, probes) VALUES (?, ?)", (name, raw))
            assert made.lastrowid is not None
            return made.lastrowid

    def read(self, texts: Sequence[str]) -> list[NDArray[np.float32] | None]:
        """The vector of each text that is there."""
        found: list[NDArray[np.float32] | None] = []
        query = "SELECT vector FROM text_vectors WHERE encoder = ? AND text = ?"
        with self._reporting():
            for text in texts:
                row = self._file.execute(query, (self._number, _digest(text))).fetchone()
                usable = row is not None and isinstance(row[0], bytes) and len(row[0]) == 4 * self._width
                vector = np.frombuffer(row[0], "<f4") if usable else None
                found.append(vector if vector is not None and np.isfinite(vector).all() else None)
        return found

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keeps vectors, all or none of them."""
        rows = [
            (self._number, _digest(text), vector.astype("<f4").tobytes())
            for text, vector in zip(texts, vectors, strict=True)
        ]
        with self._reporting(), self._file:
            self._file.executemany("INSERT OR REPLACE INTO text_vectors VALUES (?, ?, ?)", rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
