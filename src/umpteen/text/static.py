"""Static token vectors: a text's vector is the mean of those of its tokens. No network is run, and none is needed.

A folder, or two files in it, as model2vec and wordllama write them:

    *.safetensors      one matrix n_tokens x width of float16 or float32; with model2vec also `weights` (a number for
                       each token) and `mapping` (the row of each token)
    *tokenizer*.json   the tokenizer, in the form of the package `tokenizers` (``pip install 'umpteen[static]'``)

Both are copied into the model, the vectors as float16, so that it answers without the folder. Which tokenizers
are opened is said in static_tokenizer.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import make_csr
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.storage.store import Part
from umpteen.text.near_words import MOST_NAMED, NearWords
from umpteen.text.static_tokenizer import MOST_BYTES, Tokenizer
from umpteen.text.tfidf import WordCounts
from umpteen.text.vectors import check_vectors, count_words, multiply_halves
from umpteen.threads import resolve_threads

_TYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64}
_MOST_HEADER = 1 << 24
#: Most numbers of all vectors, once their mapping is followed: 2 GB.
_MOST_NUMBERS = 1 << 30


def read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file, mapped: a length, a JSON header of types, shapes and places, the data."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_MOST_HEADER, size - 8):
            raise DataError(f"{path}: is no safetensors file: its header cannot have {length} bytes")
        try:
            header = json.loads(file.read(length))
            entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
            return {name: _map_array(path, size, 8 + length, entry) for name, entry in entries.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise DataError(f"{path}: is no safetensors file ({error})") from error


def _map_array(path: Path, size: int, start: int, entry: dict[str, Any]) -> NDArray[Any]:
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    if entry["dtype"] not in _TYPES:
        raise ValueError(f"its arrays must be one of {', '.join(_TYPES)}, but one is {entry['dtype']!r:.20}")
    dtype = np.dtype(_TYPES[entry["dtype"]]).newbyteorder("<")
    if not all(type(n) is int and n >= 0 for n in [*shape, begin, end]):
        raise ValueError("shapes and places must be whole numbers")
    if end - begin != math.prod(shape) * dtype.itemsize or start + end > size:
        raise ValueError(f"an array of shape {shape} does not fit into bytes {begin} to {end}")
    if begin == end:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", start + begin, tuple(shape))


class StaticEncoder:
    """Averages token vectors; the argument is a folder, or its safetensors file."""

    at_once = 1 << 13

    def __init__(self, argument: str) -> None:
        self.argument = argument
        if not argument:
            raise ParamError("static:PATH must name the folder of the vectors, but has no path")

    def fit(self, texts: Sequence[str], seed: int, threads: int | None) -> Self:
        """Reads the vectors; nothing is learnt from texts."""
        weights, tokenizer = _find_files(Path(self.argument))
        self.vectors = _as_vectors(read_safetensors(weights), weights)
        raw = tokenizer.read_bytes()
        try:
            self._set_tokenizer(raw)
        except ValueError as error:
            raise DataError(f"{tokenizer}: {error}") from error
        return self

    def _set_tokenizer(self, raw: bytes) -> None:
        self.raw, self.tokenizer = raw, Tokenizer(raw, len(self.vectors))

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    def encode(self, texts: Sequence[str], threads: int | None = None) -> tuple[NDArray[np.float32], WordCounts]:
        """The vectors of texts; all words count as known, since a tokenizer takes any."""
        ids = self.tokenizer.encode(texts)
        lengths = np.array([len(one) for one in ids], np.int64)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        indices = np.fromiter((i for one in ids for i in one), np.int32, int(indptr[-1]))
        data = np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
        X = make_csr(data, indices, indptr, (len(texts), len(self.vectors)))
        return multiply_halves(X, self.vectors, resolve_threads(threads)), count_words(texts)

    def unknown_words(self, text: str) -> list[str]:
        return []

    @cached_property
    def near_words(self) -> NearWords:
        """Tokens that are whole words, and their vectors."""
        words = self.tokenizer.find_words(MOST_NAMED)
        return NearWords(list(words), self.vectors[list(words.values())])

    def to_part(self) -> Part:
        return Part({"vectors": self.vectors, "tokenizer": np.frombuffer(self.raw, np.uint8)}, {})

    @classmethod
    def from_part(cls, argument: str, part: Part) -> Self:
        """What `to_part` has written. Nothing outside the model is read."""
        made = cls(argument)
        if set(part.arrays) != {"vectors", "tokenizer"}:
            raise ModelCorruptError(
                f"static vectors must have vectors and a tokenizer, but have {sorted(part.arrays)}"
            )
        vectors: Any = part.array("vectors", "float16", 2)
        check_vectors(vectors)
        made.vectors = vectors
        made._set_tokenizer(part.array("tokenizer", "uint8").tobytes())
        return made


def _find_files(path: Path) -> tuple[Path, Path]:
    """The file of vectors and the tokenizer beside it, or in a folder `tokenizers` beside its own."""
    folder = path if path.is_dir() else path.parent
    weights = (
        [path] if path.is_file() else sorted([*folder.glob("*.safetensors"), *folder.glob("weights/*.safetensors")])
    )
    places = [folder, folder / "tokenizers", folder.parent / "tokenizers"]
    tokenizers = [file for place in places for file in sorted(place.glob("*tokenizer*.json")) if _is_tokenizer(file)]
    weights = [file for file in weights if file.is_file()]
    for what, found in (("*.safetensors", weights), ("*tokenizer*.json", tokenizers)):
        if not found or (what == "*.safetensors" and len(found) > 1):
            raise DataError(f"{path}: must have one {what}, but has {len(found)}")
    return weights[0], tokenizers[0]


def _is_tokenizer(path: Path) -> bool:
    """Whether a JSON file is a tokenizer rather than settings of one, which look alike by name."""
    if not path.is_file():  # a pipe would never end
        return False
    try:
        return path.stat().st_size <= MOST_BYTES and isinstance(json.loads(path.read_bytes())["model"], dict)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _as_vectors(arrays: dict[str, NDArray[Any]], path: Path) -> NDArray[np.float16]:
    """The vectors of tokens, with their weights."""
    named = {name: array for name, array in arrays.items() if name not in ("weights", "mapping")}
    if len(named) != 1 or next(iter(named.values())).ndim != 2:
        raise DataError(f"{path}: must hold one matrix of vectors, but holds {', '.join(named) or 'none'}"[:300])
    vectors = np.asarray(next(iter(named.values())), np.float32)
    if "mapping" in arrays:
        mapping = np.asarray(arrays["mapping"], np.int64)
        if mapping.ndim != 1 or (len(mapping) and not 0 <= mapping.min() <= mapping.max() < len(vectors)):
            raise DataError(f"{path}: mapping must name rows of the {len(vectors)} vectors")
        if len(mapping) * vectors.shape[1] > _MOST_NUMBERS:
            raise DataError(f"{path}: mapping must not make more than {_MOST_NUMBERS} numbers")
        vectors = vectors[mapping]
    if "weights" in arrays:
        weights = np.asarray(arrays["weights"], np.float32)
        if weights.shape != (len(vectors),):
            raise DataError(f"{path}: weights must be {len(vectors)} numbers, but their shape is {weights.shape}")
        vectors = vectors * weights[:, None]
    halves = vectors.astype(np.float16)
    try:
        check_vectors(halves)
    except ValueError as error:
        raise DataError(f"{path}: {error}, in float16 too") from error
    return halves
