"""Label names, stored as UTF-8 bytes and offsets: a million names open in no time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ModelCorruptError
from umpteen.storage.store import Part

#: Bytes of names searched at a time.
_PIECE = 1 << 18
#: Names that a notebook shows.
_SHOWN = 20


class Names(Sequence[str]):
    """A sequence of strings over two arrays; decodes only what is asked for."""

    def __init__(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        if data.ndim != 1 or ends.ndim != 1 or (len(ends) and (np.diff(ends, prepend=0) < 0).any()):
            raise ModelCorruptError("the offsets of names must not fall")
        if (int(ends[-1]) if len(ends) else 0) != len(data):
            raise ModelCorruptError("the last offset of names must be the number of their bytes")
        self._data, self._ends = data, ends

    @classmethod
    def encode(cls, names: Sequence[str]) -> Names:
        encoded = [name.encode("utf-8", "surrogatepass") for name in names]
        ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    @classmethod
    def from_part(cls, part: Part) -> Names:
        return cls(part.array("data", "uint8"), part.array("ends", "int64"))

    def extended(self, names: Sequence[str]) -> Names:
        """These names followed by others."""
        new = Names.encode(names)
        return Names(
            np.concatenate([self._data, new._data]), np.concatenate([self._ends, new._ends + len(self._data)])
        )

    def to_part(self) -> Part:
        return Part({"data": self._data, "ends": self._ends})

    def find(self, query: str, most: int) -> list[int]:
        """Ascending numbers of names that contain a text, ignoring case; at most `most`.

        The raw bytes are searched, a piece at a time: nothing is decoded, and other threads get their turn.
        """
        wanted = re.compile(_either_case(query), re.IGNORECASE)
        found: list[int] = []
        first = 0
        while first < len(self) and len(found) < most:
            begin = int(self._ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(self._ends, begin + _PIECE)))
            ends = self._ends[first:last]
            piece = self._data[begin : int(ends[-1])].tobytes()
            at = 0
            while len(found) < most and (match := wanted.search(piece, at)):
                i = int(np.searchsorted(ends, begin + match.start(), side="right"))
                end = int(ends[i]) - begin
                if match.end() <= end:
                    found.append(first + i)
                    at = end
                else:  # across two names
                    at = match.start() + 1
            first = last
        return found

    def _repr_html_(self) -> str:
        """The first names, for a notebook."""
        shown = "".join(f"<li>{escape(name)}</li>" for name in self[:_SHOWN])
        more = f"<p>… and {len(self) - _SHOWN:,} more</p>" if len(self) > _SHOWN else ""
        return f'<ol start="0">{shown}</ol>{more}'

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise IndexError(f"a name's number must be below {len(self)}, but is {index}")
        begin = int(self._ends[i - 1]) if i else 0
        return _decode(self._data[begin : int(self._ends[i])].tobytes(), i)

    def __iter__(self) -> Iterator[str]:
        begin, data = 0, self._data.tobytes()
        for i, end in enumerate(self._ends.tolist()):
            yield _decode(data[begin:end], i)
            begin = end


def _decode(encoded: bytes, i: int) -> str:
    try:
        return encoded.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise ModelCorruptError(f"name {i} must be UTF-8, but is {encoded[:40]!r}") from None


def _either_case(text: str) -> bytes:
    """A pattern over UTF-8; bytes beyond ASCII have no case for `re`, so both cases are spelled out."""
    return b"".join(
        b"(?:" + b"|".join(re.escape(form.encode("utf-8", "surrogatepass")) for form in forms) + b")"
        for character in text
        for forms in [dict.fromkeys((character, character.lower(), character.upper()))]
    )
