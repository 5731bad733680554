"""Compressed files, stream after stream: gzip, bzip2, xz and Zstandard files may be several, one behind the other.

Python's own readers take a damaged second stream of bzip2 or xz for the end of the file. Here every byte belongs to a
stream that ends well, or to padding that its format has, or there is an error that says where.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

#: Compressed bytes fed at a time.
_FED = 1 << 18


class DamagedError(Exception):
    """What is wrong with compressed data, and where."""


class _Gzip:
    """zlib's object with the face of lzma's."""

    def __init__(self) -> None:
        self._inner, self._tail, self.needs_input = zlib.decompressobj(wbits=31), b"", True

    def decompress(self, data: bytes, most: int) -> bytes:
        try:
            piece = self._inner.decompress(self._tail + data, most)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        self._tail = self._inner.unconsumed_tail
        self.needs_input = not self._tail and len(piece) < most
        return piece

    def __getattr__(self, name: str) -> Any:  # eof, unused_data
        return getattr(self._inner, name)


class _Bzip2:
    """bz2's object, whose errors are no longer those of a disk."""

    def __init__(self) -> None:
        self._inner = bz2.BZ2Decompressor()

    def decompress(self, data: bytes, most: int) -> bytes:
        try:
            return self._inner.decompress(data, most)
        except OSError as error:
            raise ValueError(str(error)) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Zstd:
    """Zstandard's object, which cannot stop in the middle of what it is given."""

    needs_input = True

    def __init__(self) -> None:
        import zstandard

        self._inner, self._error = zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError

    def decompress(self, data: bytes, most: int) -> bytes:
        try:
            return self._inner.decompress(data)
        except self._error as error:
            raise ValueError(str(error)) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _is_zstd(start: bytes) -> bool:
    return start[:4] == b"\x28\xb5\x2f\xfd" or (start[1:4] == b"\x2a\x4d\x18" and start[0] >> 4 == 5)  # to be skipped


#: For each kind: how a stream begins, what reads one, and in what steps zeros may pad between streams and at the end.
_KINDS: dict[str, tuple[Callable[[bytes], bool], Callable[[], Any], int]] = {
    "gzip": (lambda start: start[:2] == b"\x1f\x8b", _Gzip, 1),
    "bzip2": (lambda start: start[:3] == b"BZh", _Bzip2, 0),
    "xz": (lambda start: start[:6] == b"\xfd7zXZ\0", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), 4),
    "Zstandard": (_is_zstd, _Zstd, 0),
}


def find_kind(start: bytes) -> str | None:
    """How a file is compressed, by its first ten bytes; None if it is not."""
    if start.startswith(b"BZh"):  # which a text may begin with
        return "bzip2" if start[4:] in (b"1AY&SY", b"\x17rE8P\x90") else None  # the second has no content
    if start.startswith(b"\x28\xb5\x2f\xfd"):
        return "Zstandard"
    return next((kind for kind in ("gzip", "xz") if _KINDS[kind][0](start)), None)


def decompress(kind: str, read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """The content of a file in pieces of about `size` bytes; `read` gives the file's bytes, none at its end."""
    begins, open_stream, padding = _KINDS[kind]
    source = _Counted(read)
    data, stream, made = b"", 0, 0
    while True:
        # Between two streams, or at the end.
        if padding and stream:
            data = _skip_zeros(data, source, padding)
        while len(data) < 8 and (more := source()):
            data += more
        if not data:
            return
        begin = source.count - len(data)
        if not begins(data):
            raise DamagedError(f"at byte {begin:,} of the file another stream must begin, or the file end")
        stream, inner = stream + 1, open_stream()
        while not inner.eof:
            try:
                if not data and inner.needs_input and not (data := source()):
                    raise EOFError("it ends too early")
                piece = inner.decompress(data, size)
            except (ValueError, EOFError, lzma.LZMAError) as error:
                raise DamagedError(
                    f"in stream {stream}, which begins at byte {begin:,} of the file, before byte {source.count:,}; "
                    f"{made:,} bytes of content were read before ({error})"
                ) from error
            data = b""
            if piece:
                made += len(piece)
                yield piece
        data = inner.unused_data


class _Counted:
    """Reads the next bytes of a file, and counts them."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read, self.count = read, 0

    def __call__(self) -> bytes:
        data = self._read(_FED)
        self.count += len(data)
        return data


def _skip_zeros(data: bytes, source: _Counted, step: int) -> bytes:
    """What comes behind zeros, which must be a multiple of so many."""
    begin, n_zeros = source.count - len(data), 0
    while data or (data := source()):
        rest = data.lstrip(b"\0")
        n_zeros += len(data) - len(rest)
        data = rest
        if rest:
            break
    if n_zeros % step:
        raise DamagedError(f"at byte {begin:,} of the file are {n_zeros:,} zeros, but must be a multiple of {step}")
    return data
