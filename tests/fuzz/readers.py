"""Files of any bytes, for every reader but the text reader, whose fuzzer is C++."""

from __future__ import annotations

import bz2
import gzip
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import zstandard

from umpteen.data.decompress import find_kind

from .inputs import Finding, scratch

FORMATS = ("jsonl", "csv", "tsv", "annif-tsv", "npz", "svmlight", "names", "xc")


@cache
def _file() -> Path:
    return scratch() / "input"


#: How the file is compressed, by two bits of the options: in streams of so many bytes, and then damaged.
STREAMS = 48


def compress(content: bytes, how: int, damage: int) -> bytes:
    """A file of several streams; with damage, one byte of it is another."""
    kinds = (gzip.compress, bz2.compress, lzma.compress, zstandard.ZstdCompressor(write_checksum=True).compress)
    compressed = [
        kinds[how](content[i : i + STREAMS]) for i in range(0, max(1, min(len(content), 20 * STREAMS)), STREAMS)
    ]
    file = bytearray(b"".join(compressed) + kinds[how](content[20 * STREAMS :]))
    if damage:
        file[damage * 7919 % len(file)] ^= damage
    return bytes(file)


def try_streams(content: bytes, how: int, damage: int, file: Path) -> None:
    """What is compressed in several streams is read as it was, or refused with its place."""
    from umpteen.data.files import read_bytes
    from umpteen.errors import DataError

    file.write_bytes(compress(content, how, damage))
    try:
        got = read_bytes(file).tobytes()
    except DataError as error:
        if not damage or "of the file" not in str(error):
            raise Finding(f"streams must be read, or refused with their place: {error}") from error
        return
    if got != content and find_kind(file.read_bytes()[:10]) is not None:
        raise Finding(f"{len(content)} bytes were compressed in several streams, but {len(got)} other ones were read")


def try_readers(data: bytes) -> None:
    """The first byte says which format, the second with which options; the others are the file."""
    import umpteen
    from umpteen.data.files import read_names
    from umpteen.errors import DataError

    if len(data) < 2:
        return
    format, how, file = FORMATS[data[0] % len(FORMATS)], data[1], _file()
    if how & 32:
        try_streams(data[3:], how >> 6, data[2] if len(data) > 2 else 0, file)
        return
    file.write_bytes(data[2:])
    try:
        if format == "npz":
            _check_dataset(umpteen.read_npz(file))
        elif format in ("svmlight", "xc"):
            one = bool(how & 1)
            read = umpteen.read_svmlight if format == "svmlight" else umpteen.read_xc
            _check_dataset(read(file, one_based=one))
        elif format == "names":
            assert all(isinstance(name, str) for name in read_names(file))
        else:
            options: dict[str, Any] = {"format": format}
            options["label_delimiter"] = (None, ";", " ", "\t")[how & 3]
            if how & 4:
                options["text"] = ("title", "text")
            if how & 8:
                options["labels"] = None
            _check_corpus(umpteen.read_corpus(file, **options), bool(how & 16))
    except DataError as error:
        if not str(error):
            raise Finding("an error must say what is wrong") from error


def _check_dataset(data: Any) -> None:
    import numpy as np

    for matrix in (data.X, data.Y):
        assert matrix.indptr[0] == 0
        assert matrix.indptr[-1] == len(matrix.indices) == len(matrix.data)
        assert (np.diff(matrix.indptr) >= 0).all()
        assert len(matrix.indices) == 0 or 0 <= matrix.indices.min() <= matrix.indices.max() < matrix.shape[1]
        assert np.isfinite(matrix.data).all()
    assert data.X.shape[0] == data.Y.shape[0]


def _check_corpus(corpus: Any, features: bool) -> None:
    import umpteen

    for text, labels in corpus:
        assert isinstance(text, str)
        assert isinstance(labels, list)
        assert len(set(labels)) == len(labels)
        assert all(isinstance(label, str) and label.strip() for label in labels)
    if features and len(corpus):
        X = umpteen.Tfidf(ngram_range=(1, 2)).fit_transform(corpus.texts)
        assert X.shape[0] == len(corpus)
