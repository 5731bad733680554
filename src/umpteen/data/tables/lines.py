"""The lines of text files, decoded, each error with the number of its line."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from umpteen.data.files import PathLike, read_chunks
from umpteen.errors import DataError

STANDARD_INPUT = "-"
_CHUNK = 1 << 18


def read_pieces(path: PathLike) -> Iterator[bytes]:
    """The content of a file, decompressed, or of standard input, in pieces."""
    if str(path) != STANDARD_INPUT:
        yield from read_chunks(path, _CHUNK)
        return
    while piece := sys.stdin.buffer.read1(_CHUNK):  # type: ignore[union-attr]
        yield piece


def decode_lines(
    path: PathLike, pieces: Iterable[bytes], encoding: str = "utf-8", *, number: int = 1, whole: bool = True
) -> Iterator[str]:
    """The lines of a text, each with its newline where it has one. A byte order mark is left out.

    Parameters
    ----------
    number
        That of the first line.
    whole
        Whether the text ends here; else its last character may be cut off.
    """
    marked = encoding == "utf-8" and number == 1
    decoder = codecs.getincrementaldecoder("utf-8-sig" if marked else encoding)()
    held: list[str] = []  # pieces of a line, joined once: a long line would be copied with each of them
    for piece, final in chain(((piece, False) for piece in pieces), [(b"", whole)]):
        first, *lines = _decode(decoder, piece, final, path, number, encoding).split("\n")
        held.append(first)
        number += len(lines)
        for line in lines:
            yield "".join(held) + "\n"
            held = [line]
    if last := "".join(held):
        yield last


def _decode(decoder: Any, piece: bytes, final: bool, path: PathLike, number: int, encoding: str) -> str:
    try:
        text: str = decoder.decode(piece, final)
    except UnicodeDecodeError as error:
        line = number + error.object.count(b"\n", 0, error.start)
        rule = encoding_name(encoding)
        byte = error.object[error.start]
        raise DataError(f"{path}:{line}: text must be {rule}, but byte {byte:#04x} is not{_hint(rule)}") from error
    except UnicodeError as error:  # such as UTF-16 without its mark
        raise DataError(f"{path}:{number}: text must be {encoding_name(encoding)}, but is not ({error})") from error
    return text


def encoding_name(encoding: str) -> str:
    return "UTF-8" if encoding.startswith("utf-8") else encoding


def _hint(rule: str) -> str:
    return "; encoding names another" if rule == "UTF-8" else ""


def iter_json_lines(path: PathLike, encoding: str = "utf-8") -> Iterator[tuple[str, Any]]:
    """What each line of a file holds, and where it stands, for messages; blank lines are left out."""
    for number, row in parse_json_lines(path, decode_lines(path, read_pieces(path), encoding)):
        yield f"{path}:{number}", row


def parse_json_lines(path: PathLike, lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
    """What each line holds, and its number; blank lines are left out."""
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{number}: column {error.colno}: not valid JSON ({error.msg})") from error
        except (RecursionError, ValueError) as error:  # nested too deep, a number of too many digits
            raise DataError(f"{path}:{number}: not readable JSON ({error})") from error
        yield number, row
