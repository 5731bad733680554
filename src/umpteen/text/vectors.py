"""Rows times vectors of float16, which stay in a mapped file: only those that a batch of rows needs are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, make_csr
from umpteen.data.panels import Panel, multiply, pad
from umpteen.text.tfidf import WordCounts

#: Rows that are multiplied at a time: a batch needs at most as many vectors as it has entries.
_ROWS_AT_ONCE = 2048


def multiply_halves(X: Csr, vectors: NDArray[np.float16], threads: int = 1) -> NDArray[np.float32]:
    """X times vectors (n_columns x width), as float32. A row's result does not depend on the others."""
    width = vectors.shape[1]
    product = np.zeros((X.shape[0], width), np.float32)
    for begin in range(0, X.shape[0], _ROWS_AT_ONCE):
        rows = X[begin : begin + _ROWS_AT_ONCE]
        used, places = np.unique(rows.indices, return_inverse=True)
        if not len(used):
            continue
        panel: Panel = np.zeros((len(used), pad(width)), np.float32)
        panel[:, :width] = vectors[used]
        local = make_csr(rows.data, places.astype(np.int32), rows.indptr, (rows.shape[0], len(used)))
        product[begin : begin + rows.shape[0]] = multiply(local, panel, threads=threads)[:, :width]
    return product


def to_unit_length(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Vectors of length 1; those of length 0 stay."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def check_vectors(vectors: NDArray[Any]) -> None:
    """Raises ValueError unless all numbers are finite; reads a mapped file a piece at a time."""
    for begin in range(0, len(vectors), 1 << 14):
        if not np.isfinite(vectors[begin : begin + (1 << 14)]).all():
            raise ValueError("vectors must be finite")


def count_words(texts: Sequence[str]) -> WordCounts:
    """The words of texts, between spaces, none of them unknown."""
    total = np.array([len(text.split()) for text in texts], np.int64)
    return WordCounts(np.zeros_like(total), total)


def replace_surrogates(text: str) -> str:
    """The text with a question mark for each lone surrogate, which is no text to tokenizers in Rust."""
    return text.encode("utf-8", "replace").decode()
