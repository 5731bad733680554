"""CBOR (RFC 8949), as far as other programs' models use it: a reader that trusts nothing.

Lists of numbers, which is nearly all there is, become arrays; a run of numbers of one width is read at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import DataError

_DEEPEST = 200
_AT_ONCE = 1 << 16
#: Numbers of a fixed width, by their first byte.
_WIDE = {
    0x18: ">u1", 0x19: ">u2", 0x1A: ">u4", 0x1B: ">u8", 0x38: ">u1", 0x39: ">u2", 0x3A: ">u4", 0x3B: ">u8",
    0xF9: ">f2", 0xFA: ">f4", 0xFB: ">f8",
}  # fmt: skip
_PLAIN = {0xF4: False, 0xF5: True, 0xF6: None, 0xF7: None}


def decode_cbor(content: bytes) -> Any:
    """The one value that the bytes hold. Lists of numbers become arrays, of float32 if any of them is a fraction."""
    reader = _Reader(content)
    value = reader.value(0)
    if reader.at != len(content):
        raise DataError(f"there are {len(content) - reader.at} bytes after the end")
    return value


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0
        self.bytes = np.frombuffer(content, np.uint8)

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise DataError(f"values are nested more than {_DEEPEST} deep")
        head = self._peek()
        kind = head >> 5
        if kind in (0, 1) or head in _WIDE:
            return self._numbers(1)[0].item()
        if head in _PLAIN:
            self.at += 1
            return _PLAIN[head]
        if kind not in (2, 3, 4, 5):
            raise DataError(f"byte {self.at} begins a value of a kind that is not read: {head:#x}")
        n = self._length()
        if kind in (2, 3):
            found = self._take(n)
            try:
                return found if kind == 2 else found.decode()
            except UnicodeDecodeError as error:
                raise DataError(f"the text that ends at byte {self.at} is not UTF-8") from error
        if kind == 4:
            if n and (self._peek() >> 5 in (0, 1) or self._peek() in _WIDE):
                return self._numbers(n)
            return [self.value(depth + 1) for _ in range(n)]
        return dict(self._entry(depth + 1) for _ in range(n))

    def _entry(self, depth: int) -> tuple[str, Any]:
        name = self.value(depth)
        if not isinstance(name, str):
            raise DataError(f"a name before byte {self.at} is not a text")
        return name, self.value(depth)

    def _numbers(self, n: int) -> NDArray[Any]:
        """So many numbers, one after the other."""
        runs: list[NDArray[Any]] = []
        while n:
            head = self._peek()
            if head in _WIDE:
                run = self._run(head, min(n, _AT_ONCE))
            elif head >> 5 in (0, 1) and head & 31 < 24:
                rest = self.bytes[self.at : self.at + min(n, _AT_ONCE)]
                other = np.flatnonzero((rest >> 5 != head >> 5) | (rest & 31 >= 24))
                small = rest[: other[0] if len(other) else len(rest)].astype(np.int64) & 31
                self.at += len(small)
                run = small if head >> 5 == 0 else -1 - small
            else:
                raise DataError(f"a list of numbers holds something else at byte {self.at}")
            runs.append(run)
            n -= len(run)
        found = np.concatenate(runs)
        return found.astype(np.float32) if found.dtype.kind == "f" else found

    def _run(self, head: int, most: int) -> NDArray[Any]:
        """Numbers of one width: as many as there are, up to `most`."""
        dtype = np.dtype(_WIDE[head])
        step = 1 + dtype.itemsize
        rows = self.bytes[self.at :][: (len(self.bytes) - self.at) // step * step].reshape(-1, step)
        if not len(rows):
            raise DataError("it ends in the middle of a number")
        many = 16  # short runs are common: a longer look only where they are not
        while True:
            other = np.flatnonzero(rows[: min(many, most), 0] != head)
            if len(other) or many >= min(most, len(rows)):
                break
            many *= 8
        found = int(other[0]) if len(other) else min(most, len(rows))
        values = np.ascontiguousarray(rows[:found, 1:]).view(dtype).ravel()
        self.at += found * step
        if dtype.kind == "f":
            return values.astype(np.float32 if dtype.itemsize < 8 else np.float64)
        if dtype.itemsize == 8 and (values >> 63).any():
            raise DataError(f"a number before byte {self.at} is too large")
        whole = values.astype(np.int64)
        return whole if head >> 5 == 0 else -1 - whole

    def _length(self) -> int:
        head = self._peek()
        if head & 31 < 24:
            self.at += 1
            return head & 31
        width = {24: 1, 25: 2, 26: 4, 27: 8}.get(head & 31)
        if width is None:
            raise DataError(f"byte {self.at} begins a value of unknown length, which is not read")
        self.at += 1
        n = int.from_bytes(self._take(width), "big")
        if n > len(self.content) - self.at:  # each item takes a byte at least
            raise DataError(f"a value that begins before byte {self.at} is longer than the rest")
        return n

    def _peek(self) -> int:
        if self.at >= len(self.content):
            raise DataError("it ends in the middle of a value")
        return self.content[self.at]

    def _take(self, n: int) -> bytes:
        if n > len(self.content) - self.at:
            raise DataError("it ends in the middle of a value")
        self.at += n
        return self.content[self.at - n : self.at]
