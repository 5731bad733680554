"""Several kinds of terms side by side, such as words and runs of characters, each with a vocabulary of its own.

    row = [w₁ · part₁(text), w₂ · part₂(text), …]

Every part makes rows of its own length, so a weight says how much the part counts, however many terms it has. The
columns of a part come in blocks: one to begin with, and one more each time its vocabulary grows, behind all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, overload

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, make_csr
from umpteen.errors import DataError, ModelCorruptError, ModelError, NotFittedError, ParamError
from umpteen.params import Threaded, check_number
from umpteen.storage.store import Part
from umpteen.text.encoding import Encoding, is_encoder
from umpteen.text.fields import check_fields, check_records, locate, read_fields, take_field
from umpteen.text.output import SetsOutput
from umpteen.text.reading import BATCH_CHARACTERS, BATCH_TEXTS, check_texts
from umpteen.text.tfidf import Span, Tfidf, WordCounts

_USUAL = {"sublinear_tf": True, "all_scripts": True}
#: Kinds of terms that have a name, and the settings that go with it.
NAMED: dict[str, dict[str, Any]] = {
    "word": _USUAL,
    "start": _USUAL | {"word_start": 4},
    "pairs": _USUAL | {"ngram_range": (2, 2), "min_df": 2},
    "char": _USUAL | {"analyzer": "char", "ngram_range": (4, 4), "min_df": 2},
    "char_wb": _USUAL | {"analyzer": "char_wb", "ngram_range": (4, 4), "min_df": 2},
}
MOST_PARTS = 8
#: The weight of dense vectors is chosen by whoever knows the labels.
AUTO_WEIGHT = "auto"
UnionPart: TypeAlias = Tfidf | Encoding
_MOST_BLOCKS = 10_000


class _Block(NamedTuple):
    """Columns of a part that stand together."""

    part: int
    n_columns: int


class TfidfUnion(Threaded, SetsOutput):
    """Several `Tfidf` side by side, and dense vectors of texts beside them.

    Parameters
    ----------
    parts
        Each a `Tfidf`, or a name: "word", "start", the first four characters of each word, "pairs" of words, "char"
        or "char_wb", four characters in a row, of the text or within a word. Or an `Encoding`, dense vectors, or its
        encoder: "svd:256", "static:PATH" and others; their columns come behind those of all terms.
    weights
        How much each part counts; by default all the same. A row of unit length is made of parts of unit length, so
        only the ratios matter to methods that scale rows.
    dense_weight
        A number that the weights of dense vectors are multiplied by. With "auto", the default, it is 1; but a
        `Tagger` trained on 1,000 texts or more, with no `weights` given, takes what ranks labels of held-out texts
        best.
    fields
        The field of a record that each part reads, such as "title"; None for a part that reads all fields, as all
        parts do by default. A text that is no record counts as the first field.
    threads
        How many threads to use; by default all cores. The result does not depend on it.

    Examples
    --------
    >>> union = TfidfUnion(["word", Tfidf(analyzer="char_wb", ngram_range=(3, 3))])
    >>> X = union.fit_transform(["herring", "herrings"])
    >>> X.shape, union.n_features_
    ((2, 11), 11)
    >>> list(union.get_feature_names_out()[:3])
    ['herring', 'herrings', ' he']
    """

    name: ClassVar[str] = "tfidf-union"
    #: Columns have names, if those of all parts have.
    hashing: ClassVar[None] = None

    def __init__(
        self,
        parts: Sequence[Any] = ("word", "char_wb"),
        *,
        weights: Sequence[float] | None = None,
        dense_weight: float | str = AUTO_WEIGHT,
        fields: Sequence[str | None] | None = None,
        threads: int | None = None,
    ) -> None:
        self.parts = parts
        self.weights = weights
        self.dense_weight = dense_weight
        self.fields = fields
        self.threads = threads

    # --- fit and transform --------------------------------------------------------------------------------------

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Counts the terms of texts, any iterable. Memory holds the terms and a batch of texts; beside dense vectors,
        all texts, since encoders read them by themselves."""
        self._fit_parts(texts, keep_rows=False)
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> Csr:
        """The rows of texts: CSR float32, n_rows x n_features_."""
        rows: Csr = self._as_output(self._join(self._fit_parts(texts, keep_rows=True)))
        return rows

    def _fit_parts(self, texts: Iterable[str], *, keep_rows: bool) -> list[Any]:
        """Fits each part to what it reads; returns the rows of each, if they are to be kept."""
        parts, fields = self._make_parts(), check_fields(self.fields, len(self.parts))
        terms = [part for part in parts if isinstance(part, Tfidf)]
        counted = {id(part): part._start_counting(keep_rows=keep_rows) for part in terms}
        rows: dict[int, Any] = {}
        n_read = 0
        for batch in _batches(texts) if len(terms) == len(parts) else [list(check_texts(texts))]:
            check_records(batch, fields, n_read)
            n_read += len(batch)
            for part, field in zip(parts, fields, strict=True):
                with _naming(field):
                    read = take_field(batch, field, fields[0])
                    if isinstance(part, Tfidf):
                        counted[id(part)].add(read)
                    else:
                        rows[id(part)] = part.fit_transform(read) if keep_rows else part.fit(read)
        for part, field in zip(parts, fields, strict=True):
            if isinstance(part, Tfidf):
                with _naming(field):
                    rows[id(part)] = part._finish_counting(counted.pop(id(part)))
        self._set_parts(parts)
        return [rows[id(part)] for part in parts]

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
        """The rows of texts and, with `return_unknown`, how many of their words are unknown: to the first part that
        has words, or else to the first part. Words of fields are added up, unless a part reads all of them."""
        self._check_fitted()
        texts = list(check_texts(texts)) if not isinstance(texts, list) else texts
        threads = self.threads if threads is None else threads
        found = [
            part.transform(self._take(texts, i), return_unknown=True, threads=threads)
            for i, part in enumerate(self.parts_)
        ]
        X = self._join([rows for rows, _ in found])
        counts = (np.sum(kind, axis=0) for kind in zip(*(found[i][1] for i in self._counting), strict=True))
        return (X, WordCounts(*counts)) if return_unknown else self._as_output(X)

    def _take(self, texts: Any, part: int) -> Any:
        """What a part reads of texts."""
        return take_field(texts, self._fields[part], self._fields[0])

    def as_new(self, seen: Csr, X: Csr) -> Csr:
        """Rows as they would be if only the texts of `seen` had been fitted; see `Tfidf.as_new`."""
        parts = zip(self.parts_, self._split(seen), self._split(X), strict=True)
        return self._join([part.as_new(before, after) for part, before, after in parts])

    def spans(self, text: str) -> list[Span]:
        """Every term of a text with its place and its column, part by part."""
        self._check_fitted()
        found = []
        for part, columns, field in zip(self.parts_, self._columns, self._fields, strict=True):
            begin, end = locate(text, field, self._fields[0])
            found += [
                Span(begin + span.begin, begin + span.end, int(columns[span.column]) if span.column >= 0 else -1)
                for span in part.spans(text[begin:end])
            ]
        return found

    def unknown_words(self, text: str) -> list[str]:
        """Words of a text that the model has never seen, by the part that counts words."""
        found = [word for i in self._counting for word in self.parts_[i].unknown_words(self._take([text], i)[0])]
        return list(dict.fromkeys(found))

    def is_of_characters(self, column: int) -> bool:
        """Whether a column's term is a run of characters."""
        return bool(self._of_characters[column])

    def is_of_meaning(self, column: int) -> bool:
        """Whether a column is a number of a dense vector, not a term."""
        return bool(self._of_meaning[column])

    def near_words(self, text: str) -> list[str]:
        """Words that mean the same as a text, by its dense vectors."""
        parts = [(i, part) for i, part in enumerate(self.parts_) if isinstance(part, Encoding)]
        found = [word for i, part in parts for word in part.near_words(str(self._take([text], i)[0]))]
        return list(dict.fromkeys(found))

    @property
    def feature_names_(self) -> Sequence[str]:
        """The terms in the order of their columns."""
        self._check_fitted()
        return _UnionNames(self.parts_, self._columns, self._fields, self.n_features_)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The terms in the order of their columns; those of several parts may look the same."""
        return np.array(list(self.feature_names_), dtype=object)

    @property
    def idf_(self) -> NDArray[np.float64] | None:
        """The weight of each column, or None if a part has none."""
        self._check_fitted()
        idf = np.ones(self.n_features_)
        for part, columns in zip(self.parts_, self._columns, strict=True):
            if part.idf_ is None or all(isinstance(part, Encoding) for part in self.parts_):
                return None
            idf[columns] = part.idf_
        return idf

    @property
    def n_features_(self) -> int:
        self._check_fitted()
        return sum(part.n_features_ for part in self.parts_)

    @property
    def n_rows_(self) -> int:
        return self.parts_[0].n_rows_

    @property
    def smooth_idf(self) -> bool:
        return all(part.smooth_idf for part in self.parts_)

    @property
    def norm(self) -> str | None:
        return "l2" if all(part.norm == "l2" for part in self.parts_) else None

    def typical_values(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value of each column where a text has its term, if columns are in these shares of the texts."""
        values = np.ones(self.n_features_)
        for part, columns, weight in zip(self.parts_, self._columns, self._weights, strict=True):
            own = part.typical_values(shares[columns])
            values[columns] = own * (weight / max(float(np.sqrt((shares[columns] * own**2).sum())), 1e-12))
        return values

    def grown(self, texts: Sequence[str]) -> TfidfUnion:
        """With the terms of texts that its parts lack, in columns behind the others; itself if there are none."""
        self._check_fitted()
        parts = [part.grown(self._take(texts, i)) for i, part in enumerate(self.parts_)]
        more = [
            _Block(i, new.n_features_ - old.n_features_)
            for i, (new, old) in enumerate(zip(parts, self.parts_, strict=True))
            if new is not old
        ]
        if not more or len(self._blocks) + len(more) > _MOST_BLOCKS:
            return self
        union = TfidfUnion(**self.get_params())
        union._set_parts(parts, [*self._blocks, *more])
        union.set_dense_weight(self.dense_weight_)
        return union

    # --- columns ------------------------------------------------------------------------------------------------

    def _set_parts(self, parts: list[UnionPart], blocks: list[_Block] | None = None) -> None:
        # Dense columns come last, side by side.
        order = sorted(range(len(parts)), key=lambda i: isinstance(parts[i], Encoding))
        self._blocks = blocks or [_Block(i, parts[i].n_features_) for i in order]
        self.parts_ = parts
        self._fields = check_fields(self.fields, len(parts))
        self._counting = self._find_counting()
        self.set_dense_weight(1.0 if self.dense_weight == AUTO_WEIGHT else float(self.dense_weight))
        ends = np.cumsum([block.n_columns for block in self._blocks])
        begins = ends - [block.n_columns for block in self._blocks]
        self._columns = [
            np.concatenate(
                [
                    np.arange(begin, end, dtype=np.int32)
                    for block, begin, end in zip(self._blocks, begins, ends, strict=True)
                    if block.part == i
                ]
            )
            for i in range(len(parts))
        ]
        self._of_characters = np.zeros(self.n_features_, bool)
        self._of_meaning = np.zeros(self.n_features_, bool)
        for part, columns in zip(parts, self._columns, strict=True):
            self._of_characters[columns] = part.of_characters
            self._of_meaning[columns] = isinstance(part, Encoding)

    @property
    def has_both(self) -> bool:
        """Whether there are terms and dense vectors, whose weights are not given."""
        return self.weights is None and len({isinstance(part, Encoding) for part in self.parts_}) == 2

    def set_dense_weight(self, dense_weight: float) -> None:
        """What the weights of dense vectors are multiplied by; `dense_weight_` keeps it."""
        self.dense_weight_ = dense_weight
        given = self.weights if self.weights is not None else [1.0] * len(self.parts_)
        weights = [
            weight * (dense_weight if isinstance(part, Encoding) else 1.0)
            for weight, part in zip(given, self.parts_, strict=True)
        ]
        self._weights = np.asarray(weights, np.float32) / np.float32(np.sqrt(np.sum(np.square(weights))))

    def column_weights(self) -> NDArray[np.float32]:
        """The weight of the part that each column belongs to."""
        found = np.ones(self.n_features_, np.float32)
        for columns, weight in zip(self._columns, self._weights, strict=True):
            found[columns] = weight
        return found

    def _find_counting(self) -> list[int]:
        """The parts that say which words are unknown: one that reads all fields, or else one of each field; those of
        words first."""
        order = sorted(range(len(self.parts_)), key=lambda i: self.parts_[i].analyzer != "word")
        first = {self._fields[i]: i for i in reversed(order)}
        return [first[None]] if None in first else sorted(first.values())

    def _join(self, rows: list[Csr]) -> Csr:
        """The rows of all parts as one matrix."""
        shape = (rows[0].shape[0], self.n_features_)
        for X, weight in zip(rows, self._weights, strict=True):
            X.data *= weight
        if len(self._blocks) == len(rows):  # a part's columns stand side by side
            joined = sp.hstack([rows[block.part] for block in self._blocks], format="csr", dtype=np.float32)
            return make_csr(joined.data, joined.indices.astype(np.int32, copy=False), joined.indptr, shape)
        moved = [
            sp.csr_matrix((X.data, columns[X.indices], X.indptr), shape=shape)
            for X, columns in zip(rows, self._columns, strict=True)
        ]
        joined = moved[0]
        for X in moved[1:]:
            joined = joined + X
        joined.sort_indices()
        return make_csr(joined.data, joined.indices.astype(np.int32, copy=False), joined.indptr, shape)

    def _split(self, X: Csr) -> list[Csr]:
        """The columns of each part, with their weight taken off."""
        found = []
        for columns, weight in zip(self._columns, self._weights, strict=True):
            place = np.full(X.shape[1], -1, np.int32)
            place[columns] = np.arange(len(columns), dtype=np.int32)
            mine = place[X.indices]
            kept = mine >= 0
            rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[kept]
            indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=X.shape[0]))])
            found.append(make_csr(X.data[kept] / weight, mine[kept], indptr, (X.shape[0], len(columns))))
        return found

    # --- parameters ---------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises ParamError for a parameter that breaks its rule."""
        self._make_parts()

    def _make_parts(self) -> list[UnionPart]:
        parts = self.parts
        if (
            isinstance(parts, (str, Tfidf, Encoding))
            or not isinstance(parts, Sequence)
            or not 1 <= len(parts) <= MOST_PARTS
        ):
            raise ParamError(
                f"parts must be a list of 1 to {MOST_PARTS} names, Tfidf or Encoding, but is {parts!r:.100}"
            )
        made = [self._make_part(part) for part in parts]
        if self.weights is not None:
            if isinstance(self.weights, str) or len(self.weights) != len(parts):
                raise ParamError(f"weights must be {len(parts)} numbers, one for each part, but is {self.weights!r}")
            for weight in self.weights:
                check_number("weights", weight, 0, above=True)
        if self.dense_weight != AUTO_WEIGHT:
            check_number("dense_weight", self.dense_weight, 0, above=True)
        check_fields(self.fields, len(parts))
        return made

    def _make_part(self, given: Any) -> UnionPart:
        made: UnionPart
        if isinstance(given, str) and given in NAMED:
            made = Tfidf(**NAMED[given])
        elif isinstance(given, (Tfidf, Encoding)):
            made = type(given)(**given.get_params())
        elif is_encoder(given):
            made = Encoding(given)
        else:
            raise ParamError(
                f"a part must be a Tfidf, an Encoding, an encoder such as svd:256, or one of {', '.join(NAMED)}, "
                f"but is {given!r:.100}"
            )
        made.threads = self.threads
        made.validate()
        if made.hashing is not None:
            raise ParamError("a part of a union must have a vocabulary, but one is hashed")
        return made

    def _check_fitted(self) -> None:
        if not hasattr(self, "parts_"):
            raise NotFittedError("this TfidfUnion has no vocabulary yet; call fit first")

    def __sklearn_tags__(self) -> Any:
        return Tfidf().__sklearn_tags__()

    # --- saving -------------------------------------------------------------------------------------------------

    def to_part(self) -> Part:
        """The vocabularies of all parts as arrays, their parameters as JSON: a part of a model directory."""
        self._check_fitted()
        parts = [part.to_part() for part in self.parts_]
        arrays = {f"part{i}_{name}": array for i, part in enumerate(parts) for name, array in part.arrays.items()}
        scalars = {
            "parts": [part.scalars for part in parts],
            "weights": [float(weight) for weight in self._weights],
            "blocks": [list(block) for block in self._blocks],
        }
        if self.fields is not None:
            scalars["fields"] = self._fields
        return Part(arrays, scalars)

    @classmethod
    def from_part(cls, part: Part, *, trust_pattern: bool = False, encoder: Any = None) -> Self:
        """What `to_part` has written; see `Tfidf.from_part` and `Encoding.from_part`."""
        scalars, weights, blocks = (part.scalars.get(name) for name in ("parts", "weights", "blocks"))
        if not isinstance(scalars, list) or not 1 <= len(scalars) <= MOST_PARTS:
            raise ModelCorruptError(f"a union must have 1 to {MOST_PARTS} parts")
        if not all(isinstance(one, dict) for one in scalars):
            raise ModelCorruptError("the parts of a union must be objects")
        prefixes = [f"part{i}_" for i in range(len(scalars))]
        if strange := [name for name in part.arrays if not name.startswith(tuple(prefixes))]:
            raise ModelCorruptError(f"a union has no arrays {sorted(strange)!r:.100}")
        made: list[UnionPart] = []
        for i, (prefix, one) in enumerate(zip(prefixes, scalars, strict=True)):
            own = Part({n.removeprefix(prefix): a for n, a in part.arrays.items() if n.startswith(prefix)}, one)
            try:
                made.append(
                    Encoding.from_part(own, encoder=encoder)
                    if "encoding" in one
                    else Tfidf.from_part(own, trust_pattern=trust_pattern)
                )
            except ModelError as error:
                raise type(error)(f"part {i} of the union: {error}") from error
        fields = read_fields(part.scalars["fields"], len(made)) if "fields" in part.scalars else None
        union = cls(tuple(made), weights=_read_weights(weights, len(made)), fields=fields)
        union._set_parts(made, _read_blocks(blocks, made))
        return union


def _batches(texts: Iterable[Any]) -> Iterator[list[Any]]:
    """Texts that each part reads one after the other."""
    batch, n_characters = [], 0
    for text in check_texts(texts):
        batch.append(text)
        n_characters += len(text) if isinstance(text, str) else 0
        if len(batch) >= BATCH_TEXTS or n_characters >= BATCH_CHARACTERS:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch


@contextmanager
def _naming(field: str | None) -> Iterator[None]:
    """Errors in the texts of a field name it."""
    try:
        yield
    except DataError as error:
        raise error if field is None else DataError(f"field {field!r:.100}: {error}") from error


class _UnionNames(Sequence[str]):
    """The terms of all parts by column, decoded on demand; those of a field after its name."""

    def __init__(
        self, parts: list[UnionPart], columns: list[NDArray[np.int32]], fields: Sequence[str | None], n: int
    ) -> None:
        self._parts = parts
        self._before = ["" if field is None else f"{field}: " for field in fields]
        self._part = np.zeros(n, np.int8)
        self._place = np.zeros(n, np.int32)
        for i, own in enumerate(columns):
            self._part[own] = i
            self._place[own] = np.arange(len(own), dtype=np.int32)

    def __len__(self) -> int:
        return len(self._part)

    def __getitem__(self, column: Any) -> Any:
        if isinstance(column, slice):
            return [self[i] for i in range(*column.indices(len(self)))]
        part = self._part[column]
        return self._before[part] + self._parts[part].feature_names_[int(self._place[column])]


def _read_weights(weights: Any, n_parts: int) -> list[float]:
    if not isinstance(weights, list) or len(weights) != n_parts:
        raise ModelCorruptError(f"a union of {n_parts} parts must have as many weights")
    if not all(isinstance(weight, (int, float)) and 0 < weight < 1e30 for weight in weights):
        raise ModelCorruptError("the weights of a union must be positive numbers")
    return [float(weight) for weight in weights]


def _read_blocks(blocks: Any, parts: list[UnionPart]) -> list[_Block]:
    if not isinstance(blocks, list) or len(blocks) > _MOST_BLOCKS:
        raise ModelCorruptError(f"the columns of a union must be in at most {_MOST_BLOCKS} blocks")
    found = []
    for block in blocks:
        if not (isinstance(block, list) and len(block) == 2 and all(type(number) is int for number in block)):
            raise ModelCorruptError(f"a block of columns must be two integers, but is {block!r:.100}")
        found.append(_Block(*block))
    for i, part in enumerate(parts):
        counts = [block.n_columns for block in found if block.part == i]
        if min(counts, default=0) < 0 or sum(counts) != part.n_features_:
            raise ModelCorruptError(f"the blocks of part {i} must add up to its {part.n_features_} columns")
    if not all(0 <= block.part < len(parts) for block in found):
        raise ModelCorruptError(f"blocks must be of one of the {len(parts)} parts")
    return found
