"""Counts the terms of texts for a Tfidf: texts come batch by batch, and are not kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.errors import DataError, ParamError
from umpteen.text.reading import TextReader
from umpteen.threads import resolve_threads

if TYPE_CHECKING:
    from umpteen.text.tfidf import Tfidf


class Counting:
    """Terms counted so far, by the rules of a Tfidf; with `keep_rows` also which row has which."""

    def __init__(self, tfidf: Tfidf, *, keep_rows: bool) -> None:
        self.keep_rows = keep_rows
        self._tfidf = tfidf
        self._threads = resolve_threads(tfidf.threads)
        self._reader = TextReader(tfidf)
        self._counter = _native.TermCounter(self._reader.rules, keep_rows)

    @property
    def n_rows(self) -> int:
        return int(self._counter.n_rows)

    def add(self, texts: Iterable[str]) -> None:
        for batch, table in self._reader.batches(texts, self.n_rows):
            self._counter.add(batch, table, self._threads)

    def finish(self) -> dict[str, NDArray[Any]]:
        """The terms that become columns, and their weights; only once."""
        tfidf, n_rows = self._tfidf, self.n_rows
        min_rows, max_rows = row_limit(tfidf.min_df, n_rows), row_limit(tfidf.max_df, n_rows)
        if max_rows < min_rows and n_rows:
            raise ParamError(
                f"max_df must not be below min_df, but for {n_rows} rows they are {max_rows:g} and {min_rows:g}"
            )
        data, ends, slots, rows_with = self.finish_terms(min_rows, max_rows, tfidf.max_features or 0)
        if not n_rows:
            raise DataError("there must be at least one text, but there are none")
        if tfidf.hashing is None and not len(ends):
            raise DataError(
                f"no terms are left from {n_rows} texts; try a lower min_df, a higher max_df or fewer stop words"
            )
        arrays = {"data": data, "ends": ends, "slots": slots}
        if tfidf.use_idf:
            one = float(tfidf.smooth_idf)
            arrays["idf"] = np.log((n_rows + one) / (rows_with + one)) + 1
        return arrays

    def finish_terms(
        self, min_rows: float, max_rows: float, max_features: int = 0
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The terms that so many rows have, as bytes, ends and slots, and how many rows have each; only once."""
        found: tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]] = self._counter.finish(
            min_rows, max_rows, max_features, self._threads
        )
        return found

    def rows(self, sublinear_tf: bool, idf: NDArray[np.float64] | None, norm: str) -> tuple[NDArray[Any], ...]:
        """(indptr, indices, data) of the rows kept, once the terms are known."""
        found: tuple[NDArray[Any], ...] = self._counter.rows(sublinear_tf, idf, norm, self._threads)
        return found


def row_limit(df: float, n_rows: int) -> float:
    """Rows that a share of all rows is, or the number given."""
    return df * n_rows if isinstance(df, (float, np.floating)) else float(df)
