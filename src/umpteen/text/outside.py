"""Encoders that a model does not hold: a function, a sentence encoder in a folder, what a package declares.

A model keeps the encoder's name and the vectors it gave to a few fixed texts, its fingerprint. It is opened with the
encoder (``umpteen.load(path, encoder=…)``, or the environment variable UMPTEEN_ENCODER), and refuses one that gives
those texts other vectors. A path or a name in a model never decides what is run.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import DataError, MissingExtraError, ModelError, ParamError
from umpteen.storage.store import Part
from umpteen.text.tfidf import WordCounts
from umpteen.text.vectors import count_words

#: Texts whose vectors tell one encoder from another.
PROBES = ("herring quotas in the North Sea", "How do I keep bread fresh?", "graph theory", "Übung macht den Meister")
MOST_WIDTH = 1 << 16
_AT_ONCE = 256


def open_sentence_transformer(path: str) -> Callable[[list[str]], Any]:
    """The sentence encoder in a folder; nothing is downloaded."""
    if not Path(path).is_dir():
        raise ParamError(f"sentence-transformers:PATH must name a folder, but {path!r:.200} is none")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise MissingExtraError(
            "sentence encoders need the package sentence-transformers. Install it with: "
            "pip install 'umpteen[sentence-transformers]'"
        ) from error
    model: Any = SentenceTransformer(path, local_files_only=True)
    return lambda texts: model.encode(texts, show_progress_bar=False)


class OutsideEncoder:
    """A function from texts to vectors, in batches, checked, and kept on disk if asked."""

    def __init__(self, name: str, function: Callable[[list[str]], Any], cache: str | Path | None = None) -> None:
        self.name, self.function, self.cache = name, function, cache
        self.width = 0

    def fit(self, texts: Sequence[str], seed: int, threads: int | None) -> Self:
        """Finds out what tells the encoder from others; nothing is learnt from texts."""
        self.width = 0
        self.probes = self._call(list(PROBES), 0, "the probe")
        return self

    def encode(self, texts: Sequence[str], threads: int | None = None) -> tuple[NDArray[np.float32], WordCounts]:
        """The vectors of texts; all words count as known."""
        vectors = np.zeros((len(texts), self.width), np.float32)
        with closing(_Cache(self.cache, self._key())) as cache:
            for begin in range(0, len(texts), _AT_ONCE):
                batch = list(texts[begin : begin + _AT_ONCE])
                missing = []
                for i, kept in enumerate(cache.read(batch, self.width)):
                    if kept is None:
                        missing.append(i)
                    else:
                        vectors[begin + i] = kept
                if missing:
                    made = self._call([batch[i] for i in missing], begin + missing[0], "text")
                    vectors[[begin + i for i in missing]] = made
                    cache.write([batch[i] for i in missing], made)
        return vectors, count_words(texts)

    def _call(self, texts: list[str], first: int, what: str) -> NDArray[np.float32]:
        """What the function gives, if it is what it should be."""
        given = np.asarray(self.function(texts))
        if given.ndim != 2 or len(given) != len(texts) or given.dtype.kind not in "fiu":
            raise DataError(
                f"encoder {self.name} must give {len(texts)} vectors of numbers for as many texts, but gave an array "
                f"of shape {given.shape} and type {given.dtype}"
            )
        if not 1 <= given.shape[1] <= MOST_WIDTH or (self.width and given.shape[1] != self.width):
            rule = f"{self.width} numbers as before" if self.width else f"1 to {MOST_WIDTH} numbers"
            raise DataError(f"encoder {self.name} must give vectors of {rule}, but gave {given.shape[1]}")
        with np.errstate(over="ignore"):
            vectors = given.astype(np.float32)
        wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(wrong):
            raise DataError(
                f"encoder {self.name} must give finite vectors, but that of {what} {first + int(wrong[0])} "
                f"({texts[int(wrong[0])]!r:.60}) has NaN or inf"
            )
        self.width = given.shape[1]
        return vectors

    def _key(self) -> bytes:
        return self.name.encode() + hashlib.sha256(np.ascontiguousarray(self.probes).data).digest()

    def unknown_words(self, text: str) -> list[str]:
        return []

    @property
    def near_words(self) -> None:
        """It has no words of its own."""
        return None

    def to_part(self) -> Part:
        return Part({"probes": self.probes}, {})

    def check(self, part: Part) -> Self:
        """Raises ModelError unless it is the encoder that wrote a part: it gives the same texts the same vectors."""
        probes = part.array("probes", "float32", 2)
        if set(part.arrays) != {"probes"} or len(probes) != len(PROBES) or not np.isfinite(probes).all():
            raise ModelError("the fingerprint of the encoder is damaged")
        self.fit([], 0, None)
        if self.probes.shape != probes.shape:
            raise ModelError(
                f"the model was trained with an encoder of {probes.shape[1]} numbers, "
                f"but {self.name} gives {self.width}"
            )
        scale = float(np.abs(probes).max())
        if float(np.abs(self.probes - probes).max()) > 0.01 * scale:  # other machines round otherwise
            raise ModelError(f"the model was trained with another encoder: {self.name} gives texts other vectors")
        return self


class _Cache:
    """Vectors by the content of texts and the fingerprint of the encoder, in a file of SQLite; or nothing."""

    def __init__(self, path: str | Path | None, key: bytes) -> None:
        self._key = key
        self._file = None if path is None else sqlite3.connect(path)
        if self._file is not None:
            self._file.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")

    def _keys(self, texts: Sequence[str]) -> Iterator[bytes]:
        for text in texts:
            yield hashlib.sha256(self._key + text.encode("utf-8", "surrogatepass")).digest()

    def read(self, texts: Sequence[str], width: int) -> list[NDArray[np.float32] | None]:
        """The vector of each text that is there."""
        if self._file is None:
            return [None] * len(texts)
        found: list[NDArray[np.float32] | None] = []
        for key in self._keys(texts):
            row = self._file.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
            usable = row is not None and isinstance(row[0], bytes) and len(row[0]) == 4 * width
            found.append(np.frombuffer(row[0], "<f4") if usable else None)
        return found

    def write(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keeps vectors, all or none of them."""
        if self._file is None:
            return
        with self._file:
            rows = zip(self._keys(texts), (vector.astype("<f4").tobytes() for vector in vectors), strict=True)
            self._file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
