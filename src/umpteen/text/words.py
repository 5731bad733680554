"""Python's view of text, made ready for the kernels: letter case, accents, and what is a word character."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

N_CHARACTERS = 0x110000


@cache
def word_table() -> NDArray[np.uint32]:
    r"""A bit for every character, set where Python's ``\w`` matches it: 139 KB, made once when first needed."""
    every = np.arange(N_CHARACTERS, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    bits = np.zeros(N_CHARACTERS, np.uint8)
    for run in re.finditer(r"\w+", every):
        bits[run.start() : run.end()] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)


def strip_accents_unicode(text: str) -> str:
    """Characters decomposed (NFKD), combining marks dropped."""
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def strip_accents_ascii(text: str) -> str:
    """Characters decomposed (NFKD), all that is not ASCII then dropped."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


STRIP_ACCENTS = {"unicode": strip_accents_unicode, "ascii": strip_accents_ascii}
