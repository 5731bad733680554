"""Encoders that a model does not hold: a function, a sentence encoder in a folder, what a package declares.

A model keeps the encoder's name and the vectors it gave to a few fixed texts, its fingerprint. It is opened with the
encoder (``umpteen.load(path, encoder=…)``, or the environment variable UMPTEEN_ENCODER), and refuses one that gives
those texts other vectors. That tells apart what a digest of files would not: another tokenizer, other settings, an
upgrade of the package that changes vectors. A path or a name in a model never decides what is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import DataError, MissingExtraError, ModelError, ParamError
from umpteen.storage.store import Part
from umpteen.text.tfidf import WordCounts
from umpteen.text.vector_cache import VectorCache, are_alike, find_cache
from umpteen.text.vectors import count_words, replace_surrogates

#: Texts whose vectors tell one encoder from another. The last is longer than encoders read, so that it also tells
#: how much of a text is read.
PROBES = (
    "herring quotas in the North Sea",
    "How do I keep bread fresh?",
    "graph theory",
    "Übung macht den Meister",
    " ".join(map(str, range(3000))),
)
MOST_WIDTH = 1 << 16


class SentenceEncoder:
    """The sentence encoder in a folder; nothing is downloaded."""

    def __init__(self, path: str) -> None:
        self.path = path
        if not Path(path).is_dir():
            raise ParamError(f"sentence-transformers:PATH must name a folder, but {path!r:.200} is none")
        try:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging
        except ImportError as error:
            raise MissingExtraError(
                "sentence encoders need the package sentence-transformers. Install it with: "
                "pip install 'umpteen[sentence-transformers]'"
            ) from error
        logging.disable_progress_bar()  # one that tells of loading, at each command
        try:
            self._model: Any = SentenceTransformer(path, local_files_only=True)
        except Exception as error:
            raise DataError(f"{path}: holds no sentence encoder that can be opened ({error})"[:500]) from error
        self._lock = Lock()  # its tokenizer is not for several threads at a time

    def __call__(self, texts: list[str]) -> NDArray[Any]:
        with self._lock:
            vectors: NDArray[Any] = self._model.encode(texts, show_progress_bar=False)
        return vectors

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)


class OutsideEncoder:
    """A function from texts to vectors, which are checked, and kept on disk if asked."""

    at_once = 256

    def __init__(
        self, name: str, function: Callable[[list[str]], Any], cache: str | Path | bool | None = None
    ) -> None:
        if not callable(function):
            raise ParamError(
                f"encoder {name} must be a function from a list of texts to vectors, but is {function!r:.100}"
            )
        self.name, self.function, self.cache = name, function, find_cache(cache)
        self.width = 0

    def fit(self, texts: Sequence[str], seed: int, threads: int | None) -> Self:
        """Finds out what tells the encoder from others; nothing is learnt from texts."""
        self.width = 0
        self.probes = self._call(list(PROBES))
        return self

    def encode(self, texts: Sequence[str], threads: int | None = None) -> tuple[NDArray[np.float32], WordCounts]:
        """The vectors of texts; all words count as known."""
        if self.cache is None:
            vectors = self._call(list(texts)) if texts else np.zeros((0, self.width), np.float32)
            return vectors, count_words(texts)
        vectors = np.zeros((len(texts), self.width), np.float32)
        with VectorCache(self.cache, self.name, self.probes) as cache:
            kept = cache.read(texts)
            missing = [i for i, vector in enumerate(kept) if vector is None]
            for i, vector in enumerate(kept):
                if vector is not None:
                    vectors[i] = vector
            if missing:
                vectors[missing] = self._call([texts[i] for i in missing])
                cache.write([texts[i] for i in missing], vectors[missing])
        return vectors, count_words(texts)

    def _call(self, texts: list[str]) -> NDArray[np.float32]:
        """What the function gives, if it is what it should be."""
        given = np.asarray(self.function([replace_surrogates(text) for text in texts]))
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
                f"encoder {self.name} must give finite vectors, but that of {texts[int(wrong[0])]!r:.100} "
                "has NaN or inf"
            )
        self.width = given.shape[1]
        return vectors

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
        if set(part.arrays) != {"probes"} or not 1 <= len(probes) <= len(PROBES) or not np.isfinite(probes).all():
            raise ModelError("the fingerprint of the encoder is damaged")
        self.fit([], 0, None)
        if self.width != probes.shape[1]:
            raise ModelError(
                f"the model was trained with an encoder of {probes.shape[1]} numbers, "
                f"but {self.name} gives {self.width}"
            )
        if not are_alike(self.probes[: len(probes)], probes):  # older models have fewer
            raise ModelError(f"the model was trained with another encoder: {self.name} gives texts other vectors")
        return self
