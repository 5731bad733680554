"""Python's rules for text, prepared for the kernels: letter case, accents and word characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

N_CHARACTERS = 0x110000


@cache
def word_table() -> NDArray[np.uint32]:
    r"""A bit for every character, set if Python's ``\w`` matches it: 139 KB, made on first use."""
    return _table_of(r"\w+")


@cache
def script_tables() -> NDArray[np.uint32]:
    """The tables of word characters, of combining marks and of scripts without spaces, one after another."""
    return np.concatenate([word_table(), _table_of(f"[{_marks()}]+"), _table_of(UNSPACED.pattern)])


def _table_of(pattern: str) -> NDArray[np.uint32]:
    every = np.arange(N_CHARACTERS, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    bits = np.zeros(N_CHARACTERS, np.uint8)
    for run in re.finditer(pattern, every):
        bits[run.start() : run.end()] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


@cache
def _marks() -> str:
    """The combining marks, as ranges of a set."""
    marks = [c for c in range(0x80, N_CHARACTERS) if unicodedata.category(chr(c)) in ("Mn", "Mc", "Me")]
    ranges: list[list[int]] = []
    for c in marks:
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@cache
def marked_words() -> re.Pattern[str]:
    r"""Runs of word characters with the marks that follow them. Python's ``\w`` has no marks, without which a word in
    Devanagari falls apart at most of its vowels."""
    return re.compile(rf"\w[\w{_marks()}]*")


#: Scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, kana and Chinese characters.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def split_scripts(word: str) -> Iterator[tuple[int, int, bool]]:
    """Where the units of a run of word characters begin and end, and whether they are whole words: a run in a script
    without spaces becomes all its pairs of neighbours, or one character where there is only one."""
    at = 0
    for run in UNSPACED.finditer(word):
        if run.start() > at:
            yield at, run.start(), True
        at = run.end()
        for i in range(run.start(), max(run.start() + 1, at - 1)):
            yield i, min(i + 2, at), False
    if at < len(word):
        yield at, len(word), True


def strip_accents_unicode(text: str) -> str:
    """Decomposes characters (NFKD) and drops combining marks."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def strip_accents_ascii(text: str) -> str:
    """Decomposes characters (NFKD) and drops everything that is not ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


STRIP_ACCENTS = {"unicode": strip_accents_unicode, "ascii": strip_accents_ascii}
