"""Features that another library makes: any transformer by scikit-learn's rules, as the rows of a tagger.

It is fitted on texts, or on whatever it takes, such as a table with several columns. Its words are its own: they do
not grow, and are named only if it names its columns.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np

from umpteen.data.arrow import as_list
from umpteen.data.matrix import Csr, as_csr, make_csr
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.params import Parameters
from umpteen.storage.store import Part
from umpteen.text import skops_format
from umpteen.text.tfidf import Span, WordCounts


def is_transformer(given: Any) -> bool:
    """Whether an object, not a class, turns texts into rows by scikit-learn's rules."""
    return not isinstance(given, type) and callable(getattr(given, "fit", None)) and hasattr(given, "transform")


class ForeignFeatures(Parameters):
    """A transformer of another library with the interface of `Tfidf`.

    Parameters
    ----------
    transformer
        Such as a `TfidfVectorizer`, a `Pipeline` or a `ColumnTransformer`. It is copied before it is fitted.
    """

    name: ClassVar[str] = "sklearn"
    idf_: ClassVar[None] = None
    smooth_idf: ClassVar[bool] = True
    norm: ClassVar[None] = None

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    # --- fit and transform --------------------------------------------------------------------------------------

    def fit_transform(self, texts: Any, y: Any = None) -> Csr:
        """Fits a copy of the transformer; returns the rows as CSR float32."""
        self.transformer_ = _copy(self.transformer)
        texts = _as_given(texts)
        X = as_csr(self.transformer_.fit_transform(texts), f"what {self._called} returns")
        self.n_features_, self.n_rows_ = int(X.shape[1]), int(X.shape[0])
        return X

    @overload
    def transform(self, texts: Any, *, return_unknown: Literal[False] = False, threads: int | None = None) -> Csr: ...
    @overload
    def transform(
        self, texts: Any, *, return_unknown: Literal[True], threads: int | None = None
    ) -> tuple[Csr, WordCounts]: ...
    def transform(
        self, texts: Any, *, return_unknown: bool = False, threads: int | None = None
    ) -> Csr | tuple[Csr, WordCounts]:
        """The rows of texts and, with `return_unknown`, how many terms each has; unknown ones are not counted."""
        texts = _as_given(texts)
        try:
            made = self.transformer_.transform(texts)
        except Exception as error:  # whatever another library raises
            raise DataError(f"{self._called} cannot turn this into rows: {error}") from error
        X = as_csr(made, f"what {self._called} returns", self.n_features_)
        if not return_unknown:
            return X
        total = np.diff(X.indptr).astype(np.int64)
        return X, WordCounts(np.zeros_like(total), total)

    def as_new(self, seen: Csr, X: Csr) -> Csr:
        """Rows without the columns that are 0 in all rows of `seen`; see `Tfidf.as_new`."""
        kept = (np.bincount(seen.indices, minlength=X.shape[1]) > 0)[X.indices]
        indptr = np.concatenate([[0], np.cumsum(kept)])[X.indptr]
        return make_csr(X.data[kept], X.indices[kept], indptr, X.shape)

    def unfitted(self) -> Any:
        """The transformer's parameters, as a tagger takes them."""
        return _copy(self.transformer)

    @property
    def _called(self) -> str:
        return type(self.transformer).__name__

    # --- words --------------------------------------------------------------------------------------------------

    @property
    def hashing(self) -> int | None:
        """None if its columns have names."""
        return None if self._names() is not None else self.n_features_

    @property
    def feature_names_(self) -> Sequence[str]:
        names = self._names()
        return names if names is not None else [f"column {i}" for i in range(self.n_features_)]

    def _names(self) -> list[str] | None:
        try:
            names = [str(name) for name in self.transformer_.get_feature_names_out()]
        except Exception:  # no such method, or a step without one
            return None
        return names if len(names) == self.n_features_ else None

    def spans(self, text: str) -> list[Span]:
        """None: where its terms stand in a text is not known."""
        return []

    def unknown_words(self, text: str) -> list[str]:
        return []

    def is_of_characters(self, column: int) -> bool:
        return False

    def is_of_meaning(self, column: int) -> bool:
        return False

    def near_words(self, text: str) -> list[str]:
        return []

    def typical_values(self, shares: Any) -> Any:
        raise ParamError("the features of another library have no idf")

    def grown(self, texts: Iterable[str]) -> Self:
        """Itself: its words are fixed once it is fitted."""
        return self

    # --- saving -------------------------------------------------------------------------------------------------

    def to_part(self) -> Part:
        """The fitted transformer as skops writes it. Raises ModelFormatError if a type in it is not one that is
        opened again."""
        data = skops_format.dump(self.transformer_)
        return Part(
            {"skops": np.frombuffer(data, np.uint8)}, {"n_features": self.n_features_, "n_rows": self.n_rows_}
        )

    @classmethod
    def from_part(cls, part: Part, *, trust_pattern: bool = False, encoder: Any = None) -> Self:
        """What `to_part` has written; see `umpteen.text.skops_format`. `encoder` is not used."""
        counts = [part.scalars.get(name) for name in ("n_features", "n_rows")]
        if set(part.arrays) != {"skops"} or not all(type(count) is int and count > 0 for count in counts):
            raise ModelCorruptError("the part of another library's features must have its bytes and counts")
        transformer = skops_format.load(part.array("skops", "uint8").tobytes(), trust_pattern=trust_pattern)
        if not is_transformer(transformer):
            raise ModelCorruptError(f"the features must be a transformer, but are a {type(transformer).__name__}")
        features = cls(transformer)
        features.transformer_ = transformer
        features.n_features_, features.n_rows_ = (int(count) for count in counts)  # type: ignore[arg-type]
        return features


def _copy(transformer: Any) -> Any:
    """The same parameters, not fitted where the library can say so."""
    if not hasattr(transformer, "get_params"):
        return copy.deepcopy(transformer)
    from sklearn.base import clone

    return clone(transformer)


def _as_given(texts: Any) -> Any:
    """Tables and arrays as they are; a generator as a list, since a transformer may go through it twice."""
    if isinstance(texts, str):
        raise ParamError("texts must be a list of texts, but is one text")
    texts = as_list(texts)
    return texts if hasattr(texts, "shape") else list(texts)
