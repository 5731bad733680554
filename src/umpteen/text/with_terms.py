"""Features of texts with a column behind them for each concept of a vocabulary, filled where a text has its terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, as_csr
from umpteen.errors import ParamError
from umpteen.storage.store import Part
from umpteen.text.tfidf import Span, WordCounts


class TermMatcher(Protocol):
    """What finds terms in texts: `umpteen.LexicalMatcher`."""

    vocabulary: Any

    def transform(self, texts: Iterable[str], threads: int | None = None) -> Csr: ...

    def find_terms(self, text: str) -> Mapping[int, Any]: ...

    def to_parts(self) -> dict[str, Part]: ...


class WithTerms:
    """The columns of `base`, then a column for each concept: how likely `matcher` holds it to be.

    The first columns are those of `base` as they are. Only what reads the terms may look at the others: their values
    are log-odds, far larger than those of words.
    """

    name: ClassVar[str] = "with-terms"

    def __init__(self, base: Any, matcher: TermMatcher) -> None:
        self.base, self.matcher = base, matcher

    @property
    def n_words(self) -> int:
        """Columns before those of concepts."""
        return int(self.base.n_features_)

    @property
    def n_features_(self) -> int:
        return self.n_words + len(self.matcher.vocabulary)

    @property
    def n_rows_(self) -> int:
        return int(self.base.n_rows_)

    @property
    def hashing(self) -> int | None:
        found: int | None = self.base.hashing
        return found

    def get_params(self) -> dict[str, Any]:
        """Those of `base`."""
        params: dict[str, Any] = self.base.get_params()
        return params

    # --- rows ----------------------------------------------------------------------------------------------------

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> Csr:
        raise ParamError("features with terms are made by a tagger, which fits the words and the terms")

    @overload
    def transform(
        self, texts: Iterable[str], *, return_unknown: Literal[False] = False, threads: int | None = None
    ) -> Csr: ...
    @overload
    def transform(
        self, texts: Iterable[str], *, return_unknown: Literal[True], threads: int | None = None
    ) -> tuple[Csr, WordCounts]: ...
    def transform(
        self, texts: Iterable[str], *, return_unknown: bool = False, threads: int | None = None
    ) -> Csr | tuple[Csr, WordCounts]:
        """The rows of texts and, with `return_unknown`, how many words are unknown; where a term stands in a text, at
        least one of its words is known."""
        listed = list(texts)
        words, counts = self.base.transform(listed, return_unknown=True, threads=threads)
        terms = self.matcher.transform([str(text) for text in listed], threads=threads)
        X = join(words, terms)
        if not return_unknown:
            return X
        unknown = np.where(np.diff(terms.indptr) > 0, np.minimum(counts.unknown, counts.total - 1), counts.unknown)
        return X, WordCounts(np.maximum(unknown, 0), counts.total)

    def as_new(self, seen: Csr, X: Csr) -> Csr:
        """Rows as they would be if only the texts of `seen` had been fitted; terms are so already."""
        n = self.n_words
        return join(self.base.as_new(as_csr(seen[:, :n], "rows"), as_csr(X[:, :n], "rows")), X[:, n:])

    def grown(self, texts: Iterable[str]) -> WithTerms:
        """Itself: concepts have their place behind the words."""
        return self

    # --- words ---------------------------------------------------------------------------------------------------

    @property
    def feature_names_(self) -> Sequence[str]:
        """Words, and names of concepts."""
        return _Names(self.base.feature_names_, self.matcher.vocabulary)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        return np.array(list(self.feature_names_), dtype=object)

    def spans(self, text: str) -> list[Span]:
        """Every word with its place and its column, and every term."""
        found = [
            Span(begin, end, self.n_words + concept)
            for concept, term in self.matcher.find_terms(str(text)).items()
            for begin, end in term.places
        ]
        return [*self.base.spans(text), *found]

    def find_terms(self, text: str) -> dict[int, Any]:
        """By column, the term of the concept that stands in a text."""
        return {self.n_words + concept: term for concept, term in self.matcher.find_terms(str(text)).items()}

    def unknown_words(self, text: str) -> list[str]:
        """Words of a text that no column is for."""
        known = {word.casefold() for term in self.matcher.find_terms(str(text)).values() for word in term.words}
        return [word for word in self.base.unknown_words(text) if word.casefold() not in known]

    def is_of_characters(self, column: int) -> bool:
        return column < self.n_words and bool(self.base.is_of_characters(column))

    def is_of_meaning(self, column: int) -> bool:
        return column < self.n_words and bool(self.base.is_of_meaning(column))

    def near_words(self, text: str) -> list[str]:
        found: list[str] = self.base.near_words(text)
        return found

    def to_part(self) -> Part:
        """The part of `base`; a tagger keeps the matcher beside it."""
        part: Part = self.base.to_part()
        return part

    # --- of features that grow: not of these ---------------------------------------------------------------------

    idf_: ClassVar[None] = None
    smooth_idf: ClassVar[bool] = True
    norm: ClassVar[None] = None

    def typical_values(self, shares: Any) -> Any:
        raise ParamError("features with terms have no idf")


def join(words: Any, terms: Any) -> Csr:
    """Columns of words, and of terms behind them."""
    return as_csr(sp.hstack([words, terms], format="csr", dtype=np.float32), "rows")


class _Names(Sequence[str]):
    """Words and concepts by column, each looked up when it is asked for."""

    def __init__(self, words: Sequence[str], vocabulary: Any) -> None:
        self._words, self._vocabulary = words, vocabulary

    def __len__(self) -> int:
        return len(self._words) + len(self._vocabulary)

    def __getitem__(self, column: Any) -> Any:
        if isinstance(column, slice):
            return [self[i] for i in range(*column.indices(len(self)))]
        n = len(self._words)
        return self._words[column] if column < n else self._vocabulary.name(column - n)
