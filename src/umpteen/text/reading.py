"""Texts prepared for the kernels: letter case, accents, words by a pattern or a function; and where terms stand."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.arrow import as_list
from umpteen.errors import DataError, ParamError
from umpteen.text.languages import find_reducer, find_stop_words
from umpteen.text.patterns import run_length
from umpteen.text.words import STRIP_ACCENTS, marked_words, script_tables, split_scripts, word_table

if TYPE_CHECKING:
    from umpteen.text.tfidf import Tfidf

#: Texts are counted in batches of this many texts or characters, and not kept.
BATCH_TEXTS, BATCH_CHARACTERS = 1 << 16, 1 << 24
_RUNS = re.compile(r"\w+")
#: A term and the place in the text, from and to.
Found = tuple[str, int, int]


class TextReader:
    """Prepares texts for the kernels, following a Tfidf's parameters."""

    def __init__(self, tfidf: Tfidf) -> None:
        self._analyzer = tfidf.analyzer
        self._lowercase = bool(tfidf.lowercase)
        self._strip = None if tfidf.strip_accents is None else STRIP_ACCENTS[tfidf.strip_accents]
        self._by_word = tfidf.analyzer == "word"
        length = run_length(tfidf.token_pattern)
        self._reduce = None if tfidf.language is None else find_reducer(tfidf.language, tfidf.word_form)
        self._words_given = callable(tfidf.analyzer) or (
            self._by_word and (length is None or self._reduce is not None)
        )
        # A language's words are those of its dictionary: in lower case, not folded.
        self._folds = bool(tfidf.all_scripts) and self._reduce is None
        self._all_scripts = bool(tfidf.all_scripts) or self._reduce is not None
        runs = marked_words() if self._all_scripts else _RUNS
        self._pattern = compile_pattern(tfidf.token_pattern) if length is None else runs
        self._length = length or 0
        self._stop_words = find_stop_words(tfidf.stop_words)
        self._least, self._most = tfidf.ngram_range
        self._kept = tfidf.word_start
        stop_words = [word.encode("utf-8", "surrogatepass") for word in sorted(self._stop_words)]
        if self._reduce is not None:
            stop_words = []
        self.rules = _native.TermRules(
            unit="word" if callable(tfidf.analyzer) else tfidf.analyzer,
            lowercase=self._lowercase,
            words_given=self._words_given,
            all_scripts=self._all_scripts,
            min_length=length or 0,
            kept_length=tfidf.word_start or 0,
            min_n=self._least,
            max_n=self._most,
            n_hashed=tfidf.hashing or 0,
            stop_words=stop_words,
        )

    def batches(
        self, texts: Iterable[str], first: int = 0
    ) -> Iterator[tuple[list[str | bytes], NDArray[np.uint32] | None]]:
        """Batches of prepared texts, with the table of word characters if they need it; errors count from `first`."""
        batch: list[str | bytes] = []
        n_characters = 0
        table = None
        for number, text in enumerate(check_texts(texts), first):
            if not isinstance(text, str):
                raise DataError(f"text {number} must be a string, but is {text!r:.60}")
            if self._words_given:
                batch.append(self._split(text, number))
            elif text.isascii():
                batch.append(text)
            else:
                # JSON may contain lone surrogates; they are in no word.
                batch.append(self._prepare(text).encode("utf-8", "surrogatepass"))
                table = (script_tables() if self._all_scripts else word_table()) if self._by_word else None
            n_characters += len(text)
            if len(batch) >= BATCH_TEXTS or n_characters >= BATCH_CHARACTERS:
                yield batch, table
                batch, n_characters, table = [], 0, None
        if batch:
            yield batch, table

    def _prepare(self, text: str) -> str:
        if self._all_scripts:  # one spelling for what looks the same
            text = unicodedata.normalize("NFKC", text)
        if self._lowercase:
            text = text.casefold() if self._folds else text.lower()
        return self._strip(text) if self._strip is not None else text

    def _split(self, text: str, number: int) -> bytes:
        if callable(self._analyzer):
            words = list(self._analyzer(text))
            if not all(isinstance(word, str) for word in words):
                raise DataError(f"analyzer must give a list of strings, but for text {number} gives {words!r:.60}")
        else:
            ready = self._prepare(text)
            words = [word for word, _, _ in self._find_units(ready)]
        if any("\0" in word for word in words):
            raise DataError(f"text {number} must not have NUL inside a word, but does; token_pattern can exclude it")
        return "".join(f"{word}\0" for word in words).encode("utf-8", "surrogatepass")

    def _find_units(self, ready: str) -> Iterator[Found]:
        """What counts as a word of a text that is ready, in its form, with its place."""
        group = self._pattern.groups
        for match in self._pattern.finditer(ready):
            word, at = match[group], match.start(group)
            for begin, end, whole in split_scripts(word) if self._all_scripts else [(0, len(word), True)]:
                unit = word[begin:end]
                # Stop words are words as they are written.
                if unit in self._stop_words or (whole and len(unit) < self._length):
                    continue
                yield unit if self._reduce is None else self._reduce(unit), at + begin, at + end

    def find_terms(self, text: str) -> list[Found]:
        """The terms of a text by length and then by place, each with its place in the original text.

        What a function makes of a text has no known place: its terms stand for the whole text.
        """
        if callable(self._analyzer):
            return [(term, 0, len(text)) for term in self._analyzer(text)]
        if self._by_word:
            segments, joint = [self._find_words(text)], " "
        else:
            segments, joint = self._find_characters(text), ""
        found = []
        for n in range(self._least, self._most + 1):
            for units in segments:
                length = n
                if self._analyzer == "char_wb" and n == self._least:
                    length = min(n, len(units))  # a short word is one term
                for i in range(len(units) - length + 1):
                    term = joint.join(unit for unit, _, _ in units[i : i + length])
                    found.append((term, units[i][1], units[i + length - 1][2]))
        return found

    def _find_words(self, text: str) -> list[Found]:
        """The words of a text, each with its place in the original text."""
        ready, begins, ends = self._trace(text)
        return [
            (word[: self._kept], begins[begin], ends[end - 1] if end > begin else begins[begin])
            for word, begin, end in self._find_units(ready)
        ]

    def _find_characters(self, text: str) -> list[list[Found]]:
        """The characters of a text, or of each of its words and the spaces around it, which have no width."""
        ready, begins, ends = self._trace(text)
        if self._analyzer == "char_wb":
            segments = []
            for match in re.finditer(r"\S+", ready):
                word = [(ready[i], begins[i], ends[i]) for i in range(*match.span())]
                segments.append([(" ", word[0][1], word[0][1]), *word, (" ", word[-1][2], word[-1][2])])
            return segments
        found: list[Found] = []
        for match in re.finditer(r"\s\s+|.", ready, re.DOTALL):
            unit = match[0] if match.end() == match.start() + 1 else " "
            found.append((unit, begins[match.start()], ends[match.end() - 1]))
        return [found]

    def _trace(self, text: str) -> tuple[str, Sequence[int], Sequence[int]]:
        """A text made ready, and from where to where in the original each of its characters comes."""
        ready = self._prepare(text)
        if len(ready) == len(text):
            return ready, range(len(text) + 1), range(1, len(text) + 1)
        pieces, begins, ends = [], [], []
        # A character became several or none; where texts are normalised, several may have become one.
        single = ((i, i + 1) for i in range(len(text)))
        for begin, end in _clusters(text) if self._all_scripts else single:
            pieces.append(self._prepare(text[begin:end]))
            begins += [begin] * len(pieces[-1])
            ends += [end] * len(pieces[-1])
        return "".join(pieces), [*begins, len(text)], ends


def check_texts(texts: Any) -> Iterable[Any]:
    """Texts, or a column of Arrow as a list of them."""
    texts = as_list(texts)
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise DataError(f"texts must be a list or another iterable of strings, but is a {type(texts).__name__}")
    return texts


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Characters with the combining marks that follow them, from and to."""
    begin = 0
    for i in range(1, len(text) + 1):
        if i == len(text) or not unicodedata.combining(text[i]):
            yield begin, i
            begin = i


def compile_pattern(pattern: Any) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise ParamError(f"token_pattern must be a regular expression, but is {pattern!r} ({error})") from error
    if isinstance(pattern, str) and compiled.groups <= 1:
        return compiled
    raise ParamError(f"token_pattern must be a string with at most one group, but is {pattern!r}")
