r"""Texts to tf-idf rows, as scikit-learn's TfidfVectorizer makes them, in C++ and on all cores.

    value(row, term) = tf(count) · idf(term) / norm(row)
    tf(count)        = count, or 1 + ln(count)                               (sublinear_tf)
    idf(term)        = 1 + ln((n + 1) / (rows with the term + 1))            (smooth_idf; else without the two ones)

Terms are words, or runs of words joined by a space (ngram_range), or runs of characters (analyzer), in the order of
Python's strings. Parameters, their
defaults and results are scikit-learn's, rounded to float32. Only ``max_features`` is stricter: among equally frequent
terms, the first in order are kept, where scikit-learn leaves it to its sort. With ``hashing=n`` there is no
vocabulary, and the columns are those of ``HashingVectorizer(n_features=n, alternate_sign=False)``.

Text beyond ASCII is lower-cased and stripped of accents by Python, whose ``re`` defines word characters. The common
patterns, the longest runs of ``\w``, are matched in C++; others by ``re``, which takes several times longer. A saved
vocabulary is data: its pattern is only run if it has one of the forms of text/patterns.py, or if the caller trusts
it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast, overload

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, make_csr
from umpteen.errors import ModelCorruptError, ModelFormatError, NotFittedError, ParamError, not_fitted
from umpteen.params import Threaded, check_choice, check_count, check_flag
from umpteen.storage.names import Names
from umpteen.storage.store import Part
from umpteen.text.counting import Counting, row_limit
from umpteen.text.languages import check_language, find_stop_words
from umpteen.text.output import SetsOutput
from umpteen.text.patterns import is_linear
from umpteen.text.reading import TextReader, compile_pattern
from umpteen.text.words import STRIP_ACCENTS
from umpteen.threads import resolve_threads

#: Hashed columns are counted in arrays of this size, one per thread.
MOST_HASHED = 1 << 24
ANALYZERS = ("word", "char", "char_wb")
#: Most words or characters in a term: an explanation looks up every run of up to this many.
MOST_WORDS = 10


class WordCounts(NamedTuple):
    """Words of each row (or shortest terms, if single words are not used): how many the vocabulary lacks, and how
    many there are. Stop words do not count."""

    unknown: NDArray[np.int64]
    total: NDArray[np.int64]


class Span(NamedTuple):
    """The place of a term in a text, and its column; -1 if the vocabulary lacks it."""

    begin: int
    end: int
    column: int


#: The arrays of a vocabulary, their types and dimensions.
_ARRAYS = {"data": ("uint8", 1), "ends": ("int64", 1), "slots": ("uint32", 2), "idf": ("float64", 1)}


class Tfidf(Threaded, SetsOutput):
    r"""Texts to tf-idf rows, equal to scikit-learn's TfidfVectorizer.

    Parameters
    ----------
    analyzer
        What terms are made of: "word"; "char", runs of characters; "char_wb", runs of characters within words, with
        the space before and after each; or a function that gives the terms of a text as a list of strings. A Tfidf
        with a function cannot be saved.
    ngram_range
        The smallest and largest number of words, or of characters, in a term, at most 10.
    min_df, max_df
        The least and most rows that a term may be in: an integer counts rows, a float is a share of all rows.
    max_features
        Keep only this many terms, the most frequent ones.
    sublinear_tf, use_idf, smooth_idf, norm
        How counts become values; norm is "l2", "l1" or None.
    lowercase, strip_accents, token_pattern, stop_words
        What a word is. strip_accents is "unicode", "ascii" or None; stop_words a list of words, or the code of a
        language, such as "en", for its usual ones (``pip install 'umpteen[languages]'``). Fitting takes any pattern;
        but a saved model is only opened without ``trust_pattern=True`` if its pattern is, roughly, a repeated class
        of characters, such as ``\b\w\w+\b``, ``\S+`` or ``\w+(?:-\w+)*``.
    language, word_form
        Words of a language are counted in one form: "stem", by the rules of PyStemmer, or "lemma", by the dictionary
        of simplemma (``pip install 'umpteen[languages]'``). The language is a code such as "en", "fi" or "sv"; None,
        the default, leaves words as they are. Of `all_scripts` a language has all but the folded case. Stop words are
        words before they are stemmed.
    all_scripts
        Treat texts of any script well, where scikit-learn's rules suit the Latin one: what looks the same has one
        spelling (NFKC, case folded, so "Straße" is "strasse"), combining marks are parts of words, and runs of a
        script without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) become pairs of characters. ASCII texts
        are the same with and without. Of runs of characters only the spelling changes.
    word_start
        Count only so many characters from the start of each word, a rough stem in any language that inflects at the
        end: 4 makes "fish", "fishing" and "fishes" one term. None, the default, counts whole words.
    hashing
        The number of hashed columns; None for a vocabulary. Terms then have no names.
    threads
        How many threads to use; by default all cores. The result does not depend on it.

    Examples
    --------
    >>> tfidf = Tfidf(stop_words=["the"])
    >>> X = tfidf.fit_transform(["The herring", "the herring, the quota"])
    >>> X.shape, list(tfidf.get_feature_names_out())
    ((2, 2), ['herring', 'quota'])
    >>> X, words = tfidf.transform(["herring soup"], return_unknown=True)
    >>> print(X.toarray(), words.unknown, words.total)
    [[1. 0.]] [1] [2]
    """

    name: ClassVar[str] = "tfidf"

    def __init__(
        self,
        *,
        analyzer: str | Callable[[str], Iterable[str]] = "word",
        ngram_range: tuple[int, int] = (1, 1),
        min_df: float = 1,
        max_df: float = 1.0,
        max_features: int | None = None,
        sublinear_tf: bool = False,
        use_idf: bool = True,
        smooth_idf: bool = True,
        norm: str | None = "l2",
        lowercase: bool = True,
        strip_accents: str | None = None,
        token_pattern: str = r"(?u)\b\w\w+\b",
        stop_words: Sequence[str] | str | None = None,
        language: str | None = None,
        word_form: str = "stem",
        word_start: int | None = None,
        all_scripts: bool = False,
        hashing: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.analyzer = analyzer
        self.ngram_range = ngram_range
        self.min_df = min_df
        self.max_df = max_df
        self.max_features = max_features
        self.sublinear_tf = sublinear_tf
        self.use_idf = use_idf
        self.smooth_idf = smooth_idf
        self.norm = norm
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.token_pattern = token_pattern
        self.stop_words = stop_words
        self.language = language
        self.word_form = word_form
        self.word_start = word_start
        self.all_scripts = all_scripts
        self.hashing = hashing
        self.threads = threads

    # --- fit and transform --------------------------------------------------------------------------------------

    def fit(self, texts: Iterable[str], y: Any = None) -> Self:
        """Counts the terms of texts, any iterable, which is read once.

        Memory holds the terms and one batch of texts.
        """
        counting = self._start_counting(keep_rows=False)
        counting.add(texts)
        self._finish_counting(counting)
        return self

    def fit_transform(self, texts: Iterable[str], y: Any = None) -> Csr:
        """The rows of texts, counted and weighted in one pass: CSR float32, n_rows x n_features_.

        While texts are read, each entry of the matrix takes 8 bytes, rare terms included; texts are not kept.
        """
        counting = self._start_counting(keep_rows=True)
        counting.add(texts)
        rows: Csr = self._as_output(cast(Csr, self._finish_counting(counting)))
        return rows

    def _start_counting(self, *, keep_rows: bool) -> Counting:
        self.validate()
        return Counting(self, keep_rows=keep_rows)

    def _finish_counting(self, counting: Counting) -> Csr | None:
        """Takes over the terms counted; returns the rows, if they were kept."""
        self._set_arrays(counting.finish(), counting.n_rows)
        if not counting.keep_rows:
            return None
        indptr, indices, data = counting.rows(*self._weighting())
        return make_csr(data, indices, indptr, (len(indptr) - 1, self.n_features_))

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
        """The rows of texts and, with `return_unknown`, how many of their words are unknown."""
        self._check_fitted()
        threads = resolve_threads(self.threads if threads is None else threads)
        parts = [
            self._vectorizer.transform(batch, table, *self._weighting(), threads)
            for batch, table in self._reader.batches(texts)
        ]
        if len(parts) == 1:
            (indptr, indices, data), unknown, total = parts[0]
        else:
            indices = _join([rows[1] for rows, _, _ in parts], np.int32)
            data = _join([rows[2] for rows, _, _ in parts], np.float32)
            unknown = _join([part[1] for part in parts], np.int64)
            total = _join([part[2] for part in parts], np.int64)
            lengths = _join([np.diff(rows[0]) for rows, _, _ in parts], np.int64)
            indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        X = make_csr(data, indices, indptr, (len(indptr) - 1, self.n_features_))
        return (X, WordCounts(unknown, total)) if return_unknown else self._as_output(X)

    def as_new(self, seen: Csr, X: Csr) -> Csr:
        """Rows as they would be if only the texts of `seen` had been fitted: without the terms those lack.

        Both must come from `fit_transform`. Terms keep their idf. New texts have words that no text before them had,
        and lose them; rows held out of the ones fitted keep theirs, so a model tested on them looks less sure than it
        will be.
        """
        if self.hashing is not None:  # every term has a column, seen or not
            return X
        least = row_limit(self.min_df, seen.shape[0])
        known = np.bincount(seen.indices, minlength=X.shape[1]) >= max(least, 1)
        data = np.where(known[X.indices], X.data, 0).astype(np.float64)
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        if self.norm is not None:
            size = np.bincount(rows, weights=data**2 if self.norm == "l2" else np.abs(data), minlength=X.shape[0])
            size = np.sqrt(size) if self.norm == "l2" else size
            data /= np.where(size > 0, size, 1)[rows]
        kept = data != 0
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=X.shape[0]))])
        return make_csr(data[kept].astype(np.float32), X.indices[kept], indptr, X.shape)

    def spans(self, text: str) -> list[Span]:
        """Every term of a text with its place and its column, by length and then by place.

        Places count characters of the original text, so that a page can show them.
        """
        self._check_fitted()
        found = self._reader.find_terms(text)
        columns = self._vectorizer.find([term.encode("utf-8", "surrogatepass") for term, _, _ in found])
        return [Span(begin, end, column) for (_, begin, end), column in zip(found, columns.tolist(), strict=True)]

    def unknown_words(self, text: str) -> list[str]:
        """Words of a text that are not in the vocabulary, in lower case; of characters, words without a known run."""
        spans = self.spans(text)
        if self.of_characters:
            known = [(span.begin, span.end) for span in spans if span.column >= 0]
            words = [
                match[0]
                for match in re.finditer(r"\S+", text)
                if not any(begin < match.end() and end > match.start() for begin, end in known)
            ]
        else:
            found = (text[span.begin : span.end] for span in spans if span.column < 0)
            words = [word for word in found if " " not in word]
        return list(dict.fromkeys(word.lower() for word in words))

    @property
    def of_characters(self) -> bool:
        """Whether terms are runs of characters, or starts of words: less than words."""
        return self.analyzer in ("char", "char_wb") or self.word_start is not None

    def is_of_characters(self, column: int) -> bool:
        """Whether a column's term is a run of characters."""
        return self.of_characters

    def is_of_meaning(self, column: int) -> bool:
        """Whether a column is a number of a dense vector: none is."""
        return False

    def near_words(self, text: str) -> list[str]:
        """Words near a text's dense vector, which it does not have."""
        return []

    def typical_values(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value of each column where a text has its term, before texts get their length."""
        return np.ones(self.n_features_) if self.idf_ is None else np.asarray(self.idf_, np.float64)

    def grown(self, texts: Iterable[str]) -> Tfidf:
        """With the terms of texts that it lacks, in columns behind the others; itself if there are none."""
        from umpteen.text.growing import grow_vocabulary

        return grow_vocabulary(self, texts)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The terms in the order of their columns."""
        return np.array(list(self.feature_names_), dtype=object)

    @property
    def feature_names_(self) -> Names:
        """The terms in the order of their columns, decoded on demand."""
        self._check_fitted()
        if self.hashing is not None:
            raise NotFittedError(
                "hashed columns have no names, since many terms share one; fit without hashing to get them"
            )
        return self._names

    @property
    def idf_(self) -> NDArray[np.float64] | None:
        """The weight of each column, or None without use_idf."""
        self._check_fitted()
        return self._arrays.get("idf")

    @property
    def n_features_(self) -> int:
        self._check_fitted()
        return int(self._vectorizer.n_columns)

    def _weighting(self) -> tuple[bool, NDArray[np.float64] | None, str]:
        return bool(self.sublinear_tf), self._arrays.get("idf"), self.norm or "none"

    def _set_arrays(self, arrays: dict[str, NDArray[Any]], n_rows: int) -> None:
        reader = TextReader(self)
        self._vectorizer = _native.TextVectorizer(reader.rules, arrays["data"], arrays["ends"], arrays["slots"])
        self._reader = reader
        self._names = Names(arrays["data"], arrays["ends"])
        self._arrays = arrays
        self.n_rows_ = n_rows

    def _check_fitted(self) -> None:
        if not hasattr(self, "_vectorizer"):
            raise not_fitted("this Tfidf has no vocabulary yet; call fit first")

    # --- parameters ---------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises ParamError for a parameter that breaks its rule."""
        if not callable(self.analyzer):
            check_choice("analyzer", self.analyzer, ANALYZERS, ", or a function")
        n = self.ngram_range
        if not isinstance(n, (tuple, list)) or len(n) != 2:
            raise ParamError(f"ngram_range must be a pair of integers, but is {n!r}")
        check_count("ngram_range[1]", n[1], check_count("ngram_range[0]", n[0], high=MOST_WORDS), high=MOST_WORDS)
        if callable(self.analyzer) and tuple(n) != (1, 1):
            raise ParamError(f"ngram_range must be (1, 1) where analyzer is a function, but is {n!r}")
        for name in ("min_df", "max_df"):
            value = getattr(self, name)
            if isinstance(value, (float, np.floating)):
                if not 0 <= value <= 1:
                    raise ParamError(f"{name} must be between 0.0 and 1.0, or an integer, but is {value!r}")
            else:
                check_count(name, value)
        if self.max_features is not None:
            check_count("max_features", self.max_features)
        for name in ("sublinear_tf", "use_idf", "smooth_idf", "lowercase", "all_scripts"):
            check_flag(name, getattr(self, name))
        if self.norm not in ("l2", "l1", None):
            raise ParamError(f"norm must be 'l2', 'l1' or None, but is {self.norm!r}")
        if self.strip_accents is not None and self.strip_accents not in list(STRIP_ACCENTS):
            raise ParamError(f"strip_accents must be 'unicode', 'ascii' or None, but is {self.strip_accents!r}")
        compile_pattern(self.token_pattern)
        words = self.stop_words
        listed = isinstance(words, Iterable) and all(isinstance(word, str) for word in words)
        if words is not None and not listed:
            raise ParamError(
                f"stop_words must be a list of words, the code of a language or None, but is {words!r:.100}"
            )
        find_stop_words(words)
        check_language(self.language, self.word_form)
        if self.language is not None and self.analyzer != "word":
            raise ParamError(f"language is for analyzer='word', but analyzer is {self.analyzer!r}")
        if self.word_start is not None:
            check_count("word_start", self.word_start)
            if self.analyzer != "word":
                raise ParamError(f"word_start is for analyzer='word', but analyzer is {self.analyzer!r}")
        if words is not None and self.analyzer != "word":
            raise ParamError(f"stop_words are left out of words only, but analyzer is {self.analyzer!r}")
        if self.hashing is not None:
            check_count("hashing", self.hashing, high=MOST_HASHED)
            defaults = self.param_defaults()
            for name in ("min_df", "max_df", "max_features"):
                if getattr(self, name) != defaults[name]:
                    raise ParamError(f"{name} chooses terms of a vocabulary, but with hashing there is none")
            if self.use_idf and not self.smooth_idf:
                raise ParamError("smooth_idf must be true with hashing: a column may have no rows")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(two_d_array=False, string=True),
        )

    # --- saving -------------------------------------------------------------------------------------------------

    def to_part(self) -> Part:
        """The vocabulary and its weights as arrays, the parameters as JSON: a part of a model directory."""
        self._check_fitted()
        if callable(self.analyzer):
            raise ModelFormatError(
                "analyzer is a function, and a saved model holds no code; name an analyzer, or give rows instead of "
                "texts (features='precomputed')"
            )
        if not is_linear(self.token_pattern):
            warnings.warn(
                f"token_pattern {self.token_pattern!r:.100} is not of a form that is run from a file; only "
                "umpteen.load(…, trust_pattern=True) opens a saved model, not the command line or the server",
                stacklevel=2,
            )
        params = {name: value for name, value in self.get_params().items() if name != "threads"}
        params["ngram_range"] = list(self.ngram_range)
        # The words themselves, so that a model does not depend on another edition of a language's list.
        params["stop_words"] = None if self.stop_words is None else sorted(find_stop_words(self.stop_words))
        for name, value in params.items():
            params[name] = value.item() if isinstance(value, np.generic) else value
        return Part(self._arrays, {"tfidf": params, "n_rows": self.n_rows_})

    @classmethod
    def from_part(cls, part: Part, *, trust_pattern: bool = False, encoder: Any = None) -> Self:
        """What `to_part` has written. The arrays may be mapped files; they are checked, not copied.

        Parameters
        ----------
        trust_pattern
            Whether to run a token pattern of any form, which may take forever over a text.
        encoder
            Not used; unions may need one.

        Raises
        ------
        ModelCorruptError
            If arrays and parameters do not match.
        ModelFormatError
            If the token pattern is not of a form that is run without trust.
        """
        params, n_rows = part.scalars.get("tfidf"), part.scalars.get("n_rows")
        if not isinstance(params, dict) or type(n_rows) is not int or n_rows < 0:
            raise ModelCorruptError("the part of a Tfidf must have its parameters and its number of rows")
        pattern = params.get("token_pattern", cls.param_defaults()["token_pattern"])
        if isinstance(pattern, str) and not trust_pattern and not is_linear(pattern):
            raise ModelFormatError(
                f"token_pattern {pattern!r:.100} is not of a form that is run from a file: it might take forever; "
                "if you trust the author of the model, open it with umpteen.load(…, trust_pattern=True)"
            )
        try:
            cls.check_param_names(params)
            if params.get("analyzer", "word") not in ANALYZERS:
                raise ParamError(f"analyzer must be one of {', '.join(ANALYZERS)}")
            tfidf = cls(**params)
            tfidf.validate()
            tfidf.ngram_range = (tfidf.ngram_range[0], tfidf.ngram_range[1])  # JSON has lists only
            wanted = {"data", "ends", "slots", *(("idf",) if tfidf.use_idf else ())}
            if set(part.arrays) != wanted:
                raise ParamError(f"the arrays must be {sorted(wanted)}, but are {sorted(part.arrays)}")
            tfidf._set_arrays({name: part.array(name, *_ARRAYS[name]) for name in part.arrays}, n_rows)
            idf = tfidf.idf_
            if idf is not None and (idf.shape != (tfidf.n_features_,) or not np.isfinite(idf).all()):
                raise ParamError("there must be a finite idf for each column")
        except (TypeError, ValueError) as error:
            raise ModelCorruptError(f"the part of a Tfidf is invalid ({error})") from error
        return tfidf

    def __getstate__(self) -> dict[str, Any]:
        made = ("_vectorizer", "_reader", "_names")  # made from the arrays, also after unpickling
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_arrays" in state:
            self._set_arrays(self._arrays, self.n_rows_)


def _join(arrays: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
