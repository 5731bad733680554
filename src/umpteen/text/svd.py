"""Dense vectors from the corpus itself: tf-idf rows of words, projected onto the space that keeps most of them.

    X ≈ U S Vᵀ,   vector(text) = x V

The words that often stand near each other share directions, so two texts may be alike without a common word. V's
columns are the first right singular vectors, found by subspace iteration from random ones (Halko, Martinsson and
Tropp 2011, algorithm 4.4, on XᵀX): X is read in blocks of rows, and nothing of n_rows x width is held but one block.
Memory is that of X, and three panels of n_words x (width + 16), at most 100,000 words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr
from umpteen.data.panels import Panel, multiply, orthonormal, pad
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.storage.store import Part
from umpteen.text.near_words import MOST_NAMED, NearWords
from umpteen.text.tfidf import Tfidf, WordCounts
from umpteen.text.vectors import check_vectors, multiply_halves
from umpteen.threads import resolve_threads

#: Words that span the space, the most frequent ones.
MOST_WORDS = 100_000
MOST_DIMENSIONS = 4096
_MORE_DIMENSIONS = 16
_ROWS_AT_ONCE = 1 << 14
_ROUNDS = 2


def find_space(X: Csr, width: int, seed: int, threads: int = 1) -> NDArray[np.float32]:
    """The first right singular vectors of X, n_columns x width, the largest singular value first.

    Where X has a smaller rank, the last vectors are 0.
    """
    rank = min(width + _MORE_DIMENSIONS, X.shape[1])
    Q: Panel = np.zeros((X.shape[1], pad(rank)), np.float32)
    Q[:, :rank] = np.random.default_rng(seed).standard_normal((X.shape[1], rank), np.float32)
    for _ in range(_ROUNDS):
        Q = orthonormal(_times_gram(X, _times_gram(X, Q, threads), threads))
    gram = np.zeros((Q.shape[1], Q.shape[1]))
    for rows in _blocks(X):
        image = multiply(rows, Q, threads=threads)
        gram += _native.multiply_transposed(image, image, None)
    _, values, Vt = _native.decompose(gram, None)
    turn = np.zeros((Q.shape[1], pad(width)))
    kept = min(width, Q.shape[1])
    turn[:, :kept] = np.where(values[:kept] > 1e-9 * max(float(values[0]), 1e-300), Vt[:kept].T, 0)
    space: Panel = _native.multiply_dense(Q, turn, None)
    return space[:, :width]


def _blocks(X: Csr) -> list[Csr]:
    return [X[begin : begin + _ROWS_AT_ONCE] for begin in range(0, X.shape[0], _ROWS_AT_ONCE)]


def _times_gram(X: Csr, Q: Panel, threads: int) -> Panel:
    """XᵀX Q, a block of rows after the other."""
    total = np.zeros_like(Q)
    for rows in _blocks(X):
        total += multiply(rows.T.tocsr(), multiply(rows, Q, threads=threads), threads=threads)
    return total


class SvdEncoder:
    """Projects tf-idf rows of words; "svd:256" makes vectors of 256 numbers."""

    at_once = 1 << 13

    def __init__(self, argument: str) -> None:
        try:
            self.width = int(argument or 256)
        except ValueError:
            self.width = 0
        if not 1 <= self.width <= MOST_DIMENSIONS:
            raise ParamError(f"svd:N must have an N between 1 and {MOST_DIMENSIONS}, but N is {argument!r:.100}")

    def fit(self, texts: Sequence[str], seed: int, threads: int | None) -> Self:
        """Finds the space of texts."""
        self.tfidf = Tfidf(sublinear_tf=True, all_scripts=True, min_df=2, max_features=MOST_WORDS, threads=threads)
        try:
            X = self.tfidf.fit_transform(texts)
        except DataError:  # no word stands in two texts
            self.tfidf.set_params(min_df=1)
            X = self.tfidf.fit_transform(texts)
        self.vectors = find_space(X, self.width, seed, resolve_threads(threads)).astype(np.float16)
        return self

    def encode(self, texts: Sequence[str], threads: int | None = None) -> tuple[NDArray[np.float32], WordCounts]:
        """The vectors of texts, and how many of their words are unknown."""
        X, words = self.tfidf.transform(texts, return_unknown=True, threads=threads)
        return multiply_halves(X, self.vectors, resolve_threads(threads)), words

    def unknown_words(self, text: str) -> list[str]:
        return self.tfidf.unknown_words(text)

    @cached_property
    def near_words(self) -> NearWords:
        """The most frequent words and their vectors."""
        idf = self.tfidf.idf_
        assert idf is not None
        frequent = np.sort(np.argsort(idf, kind="stable")[:MOST_NAMED])
        return NearWords([self.tfidf.feature_names_[int(i)] for i in frequent], self.vectors[frequent])

    def to_part(self) -> Part:
        part = self.tfidf.to_part()
        return Part(part.arrays | {"vectors": self.vectors}, part.scalars)

    @classmethod
    def from_part(cls, argument: str, part: Part) -> Self:
        """What `to_part` has written. The arrays may be mapped files; they are checked, not copied."""
        made = cls(argument)
        arrays = {name: array for name, array in part.arrays.items() if name != "vectors"}
        made.tfidf = Tfidf.from_part(Part(arrays, part.scalars))
        vectors: Any = part.array("vectors", "float16", 2)
        if vectors.shape != (made.tfidf.n_features_, made.width):
            raise ModelCorruptError(
                f"vectors must be {made.tfidf.n_features_} x {made.width}, but their shape is {vectors.shape}"
            )
        check_vectors(vectors)
        made.vectors = vectors
        return made
