"""Dense vectors of texts: how often groups of three characters occur, hashed to `trigrams:64` numbers."""

from __future__ import annotations

import zlib

import numpy as np


def make_encoder(argument: str):
    width = int(argument)
    if not 1 <= width <= 4096:
        raise ValueError(f"trigrams:N needs N from 1 to 4096, but N is {width}")

    def encode(texts: list[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), width), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            padded = f" {text.lower()} "
            for i in range(len(padded) - 2):
                vector[zlib.crc32(padded[i : i + 3].encode("utf-8", "replace")) % width] += 1
        return vectors

    return encode


#: A model may name any argument: it is a number, and nothing is read or fetched.
make_encoder.opens_by_name = True
