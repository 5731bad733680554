"""Python's rules for text, prepared for the kernels: letter case, accents and word characters."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

N_CHARACTERS = 0x110000


@cache
def word_table() -> NDArray[np.uint32]:
    r"""A bit for every character, set if Python's ``\w`` matches it: 139 KB, made on first use."""
    every = np.arange(N_CHARACTERS, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    bits = np.zeros(N_CHARACTERS, np.uint8)
    for run in re.finditer(r"\w+", every):
        bits[run.start() : run.end()] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


def strip_accents_unicode(text: str) -> str:
    """Decomposes characters (NFKD) and drops combining marks."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def strip_accents_ascii(text: str) -> str:
    """Decomposes characters (NFKD) and drops everything that is not ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


STRIP_ACCENTS = {"unicode": strip_accents_unicode, "ascii": strip_accents_ascii}
