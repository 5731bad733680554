"""The terms of a vocabulary as runs of stems, and where texts have them. The kernel is cpp/src/term_matcher.cpp."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.storage.names import Names
from umpteen.storage.store import Part
from umpteen.text.languages import STEMMED, find_reducer, fold
from umpteen.text.reading import Found, TextReader
from umpteen.text.tfidf import Tfidf
from umpteen.text.words import word_table
from umpteen.threads import resolve_threads
from umpteen.vocabulary.concepts import KINDS, Term, Vocabulary

#: The kind of a term without what stands in brackets behind it: "cranes" for "cranes (birds)".
SHORTENED = len(KINDS)
#: Texts are matched in batches of this many texts or characters.
_BATCH_TEXTS, _BATCH_CHARACTERS = 1 << 15, 1 << 22
_WORDS = re.compile(r"\w+")
_QUALIFIER = re.compile(r"\s*\([^()]*\)\s*$")
_ARRAYS = {
    "ends": "int64", "stems": "int32", "key_ends": "int64", "key_terms": "int32", "stem_languages": "uint16",
    "entry_ends": "int64", "entry_concepts": "int32", "entry_kinds": "uint8", "entry_names": "int32",
}  # fmt: skip


class Matches(NamedTuple):
    """The terms that texts have: a row of seven numbers for each, as `_native.Terms.match` says, by text."""

    texts: NDArray[np.int64]  # of each match
    rows: NDArray[np.int32]
    n_words: NDArray[np.int64]  # of each text

    @property
    def terms(self) -> NDArray[np.int32]:
        return self.rows[:, 0]


class TermTable:
    """Finds terms in texts.

    A term is found in a sentence that has the stems of all its words. Each language has stems of its own, by
    Snowball's rules where it has such; terms without a language are read in the first one. Several names may have the
    same stems, and are then one term with several entries: the concept, the kind of name, and which name it is.
    """

    def __init__(self, stems: Names, arrays: dict[str, NDArray[Any]], languages: Sequence[str]) -> None:
        self._stems, self._arrays, self.languages = stems, arrays, list(languages)
        self.entry_ends, self.entry_concepts = arrays["entry_ends"], arrays["entry_concepts"]
        self.entry_kinds, self.entry_names = arrays["entry_kinds"], arrays["entry_names"]
        self._native = _native.Terms(*(arrays[key] for key in ("ends", "stems", "key_ends", "key_terms")))
        self._reducers = [find_reader(language) for language in self.languages]
        self._tables: list[dict[str, int]] = [{} for _ in self.languages]
        for i, (stem, place) in enumerate(zip(stems, arrays["stem_languages"].tolist(), strict=True)):
            self._tables[place][stem] = i

    @classmethod
    def build(cls, vocabulary: Vocabulary, languages: Sequence[str] | None = None) -> TermTable:
        """The terms of all concepts that are not deprecated, in some languages or all."""
        listed = choose_languages(vocabulary, languages)
        reducers = [find_reader(language) for language in listed]
        stems: dict[tuple[int, str], int] = {}
        entries: dict[tuple[int, ...], dict[int, tuple[int, int]]] = {}
        for number, concept, term in _number_terms(vocabulary):
            place = _place(listed, term.language)
            if place is None or vocabulary.deprecated[concept]:
                continue
            for kind, text in _variants(term):
                words = [reducers[place](word) for word in _WORDS.findall(fold(text))]
                if words:
                    key = tuple(stems.setdefault((place, word), len(stems)) for word in words)
                    kept = entries.setdefault(key, {})
                    kept[concept] = min(kept.get(concept, (kind, number)), (kind, number))
        if not entries:
            raise DataError(f"the vocabulary must have terms in the languages {listed}, but has none")
        arrays = _index(list(entries), len(stems))
        flat = [(concept, *entry) for kept in entries.values() for concept, entry in kept.items()]
        concepts, kinds, names = np.array(flat, np.int64).T
        arrays |= {
            "stem_languages": np.array([place for place, _ in stems], np.uint16),
            "entry_ends": np.cumsum([len(kept) for kept in entries.values()], dtype=np.int64),
            "entry_concepts": concepts.astype(np.int32),
            "entry_kinds": kinds.astype(np.uint8),
            "entry_names": names.astype(np.int32),
        }
        return cls(Names.encode([word for _, word in stems]), arrays, listed)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._stems, self._arrays, self.languages)  # the kernel's tables are made from these

    @property
    def n_terms(self) -> int:
        return len(self._arrays["ends"])

    @property
    def n_bytes(self) -> int:
        return self.to_part().n_bytes

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of words of each term."""
        found: NDArray[np.int64] = np.diff(self._arrays["ends"], prepend=0)
        return found

    @property
    def crowds(self) -> NDArray[np.int64]:
        """For each term, how many terms have its rarest stem."""
        arrays = self._arrays
        has = np.bincount(arrays["stems"], minlength=len(self._stems))
        found: NDArray[np.int64] = np.minimum.reduceat(has[arrays["stems"]], arrays["ends"] - self.lengths)
        return found

    # --- match ---------------------------------------------------------------------------------------------------

    def match(self, texts: Iterable[str], threads: int | None = None) -> Iterator[Matches]:
        """The terms of texts, a batch of texts at a time."""
        n_threads = resolve_threads(threads)
        for batch, table in _batches(texts):
            words, word_ends, tokens, sentence_ends, text_ends = _native.read_words(batch, table, n_threads)
            stem_of = self._find_stems(words, word_ends)
            ends, rows = self._native.match(tokens, sentence_ends, text_ends, stem_of, n_threads)
            n_words = np.diff(np.append(0, sentence_ends)[text_ends], prepend=0)
            yield Matches(np.repeat(np.arange(len(batch)), np.diff(ends, prepend=0)), rows, n_words)

    def _find_stems(self, words: bytes, ends: NDArray[np.int64]) -> NDArray[np.int32]:
        """The stem of each word in each language, or -1."""
        out = np.empty((len(ends), len(self.languages)), np.int32)
        begins = [0, *ends.tolist()]
        listed = [words[begin:end].decode() for begin, end in pairwise(begins)]
        for place, (reduce, table) in enumerate(zip(self._reducers, self._tables, strict=True)):
            out[:, place] = [table.get(reduce(word), -1) for word in listed]
        return out

    # --- look at one text ---------------------------------------------------------------------------------------

    def stems_of(self, term: int) -> tuple[list[str], int]:
        """The stems of a term, and the place of its language."""
        ends, stems = self._arrays["ends"], self._arrays["stems"]
        numbers = stems[int(ends[term - 1]) if term else 0 : int(ends[term])]
        return [self._stems[i] for i in numbers], int(self._arrays["stem_languages"][numbers[0]])

    def read(self, text: str, place: int) -> list[Found]:
        """The words of a text as stems of a language, from and to which character of the text."""
        language = self.languages[place]
        reader = TextReader(Tfidf(token_pattern=r"(?u)\w+", language=language if language in STEMMED else None))
        return [(self._reducers[place](fold(text[i:j])), i, j) for _, i, j in reader.find_terms(text)]

    # --- storage -------------------------------------------------------------------------------------------------

    def to_part(self) -> Part:
        stems = self._stems.to_part().arrays
        return Part(
            {**self._arrays, "stems_data": stems["data"], "stems_text_ends": stems["ends"]},
            {"languages": self.languages},
        )

    @classmethod
    def from_part(cls, part: Part, vocabulary: Vocabulary) -> TermTable:
        """What a model keeps, which is not trusted."""
        languages = part.scalars.get("languages")
        if not isinstance(languages, list) or not languages or not all(isinstance(name, str) for name in languages):
            raise ModelCorruptError("the languages of terms must be a list of names")
        arrays = {key: part.array(key, kind) for key, kind in _ARRAYS.items()}
        stems = Names(part.array("stems_data", "uint8"), part.array("stems_text_ends", "int64"))
        n_entries = len(arrays["entry_concepts"])
        steps = np.diff(arrays["entry_ends"], prepend=0)
        sound = (
            len(stems) == len(arrays["stem_languages"]) == len(arrays["key_ends"])
            and len(arrays["entry_ends"]) == len(arrays["ends"]) > 0
            and bool((steps > 0).all()) and int(arrays["entry_ends"][-1]) == n_entries
            and len(arrays["entry_kinds"]) == len(arrays["entry_names"]) == n_entries
            and _below(arrays["entry_concepts"], len(vocabulary)) and _below(arrays["entry_kinds"], SHORTENED + 1)
            and _below(arrays["entry_names"], vocabulary.n_terms) and _below(arrays["stem_languages"], len(languages))
        )  # fmt: skip
        if not sound:
            raise ModelCorruptError("the arrays of terms must fit each other and the vocabulary, but do not")
        try:
            return cls(stems, arrays, languages)
        except (ValueError, IndexError) as error:
            raise ModelCorruptError(f"the terms are invalid ({error})") from error


def choose_languages(vocabulary: Vocabulary, languages: Sequence[str] | None) -> list[str]:
    """The languages to match in, as codes without a region: by default that of the vocabulary's names, or all."""
    spoken = list(dict.fromkeys(_base(name) for name in vocabulary.languages if name))
    if languages is None:
        return [_base(vocabulary.language)] if vocabulary.language else spoken or [""]
    if isinstance(languages, str) or not languages or not all(isinstance(name, str) for name in languages):
        raise ParamError(f"languages must be a list of codes such as ['en'], but is {languages!r:.100}")
    listed = list(dict.fromkeys(_base(name) for name in languages))
    missing = [name for name in listed if spoken and name not in spoken]
    if missing:
        raise ParamError(f"languages must be the vocabulary's, {', '.join(spoken)}, but one is {missing[0]!r:.100}")
    return listed


def find_reader(language: str) -> Callable[[str], str]:
    """What makes a stem of a word in lower case; where Snowball has no rules for a language, the word itself."""
    return find_reducer(language, "stem") if language in STEMMED else str


def _variants(term: Term) -> Iterator[tuple[int, str]]:
    """A term as it is written, and without a qualifier in brackets."""
    yield KINDS.index(term.kind), term.text
    short = _QUALIFIER.sub("", term.text)
    if short and short != term.text:
        yield SHORTENED, short


def _number_terms(vocabulary: Vocabulary) -> Iterator[tuple[int, int, Term]]:
    """Every term with its number among those of its concept."""
    last, number = -1, 0
    for concept, term in vocabulary.iter_terms():
        number = number + 1 if concept == last else 0
        last = concept
        yield number, concept, term


def _base(language: str) -> str:
    return language.casefold().split("-")[0]


def _place(languages: Sequence[str], language: str) -> int | None:
    if not language:
        return 0
    base = _base(language)
    return languages.index(base) if base in languages else None


def _index(terms: list[tuple[int, ...]], n_stems: int) -> dict[str, NDArray[Any]]:
    """Terms by the stem of theirs that fewest terms have; of equals, the first in number."""
    ends = np.cumsum([len(term) for term in terms], dtype=np.int64)
    stems = np.array([stem for term in terms for stem in term], np.int32)
    has = np.bincount(stems, minlength=n_stems)
    keys = np.array([min(term, key=lambda stem: (has[stem], stem)) for term in terms], np.int64)
    return {
        "ends": ends,
        "stems": stems,
        "key_ends": np.cumsum(np.bincount(keys, minlength=n_stems), dtype=np.int64),
        "key_terms": np.argsort(keys, kind="stable").astype(np.int32),
    }


def _batches(texts: Iterable[str]) -> Iterator[tuple[list[str | bytes], NDArray[np.uint32] | None]]:
    """Texts in lower case, with the table of word characters if they need it; the kernel does this for ASCII."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise DataError(f"texts must be a list or another iterable of strings, but is a {type(texts).__name__}")
    batch: list[str | bytes] = []
    n_characters, table = 0, None
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"text {number} must be a string, but is {text!r:.60}")
        if text.isascii():
            batch.append(text)
        else:
            batch.append(fold(text).encode("utf-8", "surrogatepass"))
            table = word_table()
        n_characters += len(text)
        if len(batch) >= _BATCH_TEXTS or n_characters >= _BATCH_CHARACTERS:
            yield batch, table
            batch, n_characters, table = [], 0, None
    if batch:
        yield batch, table


def _below(values: NDArray[Any], limit: int) -> bool:
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < limit)
