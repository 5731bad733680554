"""A tokenizer from a file, in the form of the package `tokenizers`, opened only if nothing in it can run wild.

That package makes whatever a document says: regular expressions that take forever, replacements that double a text
thirty times, words of any length that are searched in quadratic time, and settings at which it panics, which no
`except Exception` sees. So steps are compared with a list, and what makes texts longer or slower has a bound.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any

from umpteen.errors import DataError, MissingExtraError
from umpteen.text.vectors import replace_surrogates

#: Most bytes of a tokenizer.
MOST_BYTES = 1 << 27
#: Steps before the model, besides `Replace`, `Prepend`, `Precompiled` and `Split`, which have rules of their own.
_STEPS = frozenset(
    {
        *("Sequence", "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Strip", "StripAccents"),
        *("BertPreTokenizer", "ByteLevel", "Digits", "Metaspace", "Punctuation", "Whitespace", "WhitespaceSplit"),
        *("CharDelimiterSplit", "UnicodeScripts"),
    }
)
_MODELS = frozenset({"BPE", "Unigram", "WordLevel", "WordPiece"})
_MOST_STEPS = 64
#: How much longer replacements may make a text, all together; in characters, what may be put before it.
_MOST_GROWTH = 8
#: Most characters of a token, of a word that WordPiece takes apart, and of what one character may become.
_LONGEST_TOKEN, _LONGEST_WORD, _LONGEST_CHARACTER = 1000, 1000, 64
#: What tokens begin with where a word begins, by kind of tokenizer.
_BEFORE_WORDS = ("▁", "Ġ")
_SHORTEST_WORD = 4


class Tokenizer:
    """Tokens of texts as ids; the bytes are not trusted. Raises ValueError."""

    def __init__(self, raw: bytes, n_vectors: int) -> None:
        self._tokenizer = _open(raw)
        tokens = self._tokenizer.get_vocab(with_added_tokens=True)
        if len(tokens) > n_vectors:
            raise ValueError(f"it has {len(tokens)} tokens, but there are {n_vectors} vectors")
        for token, number in tokens.items():
            if number >= n_vectors:
                raise ValueError(f"token {token!r:.50} is number {number}, but there are {n_vectors} vectors")
            if len(token) > _LONGEST_TOKEN:
                raise ValueError(f"a token may have at most {_LONGEST_TOKEN} characters, but one has {len(token)}")
        self._ids = tokens
        unknown = getattr(self._tokenizer.model, "unk_token", None)
        self._unknown = None if unknown is None else self._tokenizer.token_to_id(unknown)

    def find_words(self, most: int) -> dict[str, int]:
        """Words that are one token, in lower case, with the token's id; those with the lowest ids."""
        found: dict[str, int] = {}
        marked = any(token.startswith(_BEFORE_WORDS) for token in self._ids)  # what is not goes on with a word
        for token, number in sorted(self._ids.items(), key=lambda pair: pair[1]):
            word = token.lstrip("".join(_BEFORE_WORDS)).lower()
            if marked and not token.startswith(_BEFORE_WORDS):
                continue
            if len(word) >= _SHORTEST_WORD and word.isalpha():
                found.setdefault(word, number)
                if len(found) == most:
                    break
        return found

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text that it knows."""
        clean = [replace_surrogates(text) for text in texts]
        try:
            found = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # a panic of Rust is no Exception
            raise DataError(f"the tokenizer cannot take this apart ({error})"[:300]) from error
        return [[i for i in one.ids if i != self._unknown] for one in found]


def _open(raw: bytes) -> Any:
    if len(raw) > MOST_BYTES:
        raise ValueError(f"a tokenizer may have at most {MOST_BYTES} bytes, but has {len(raw)}")
    try:
        document = json.loads(raw)
        _check(document)
        document |= {"truncation": None, "padding": None, "post_processor": None, "decoder": None}
        text = json.dumps(document)
    except RecursionError as error:
        raise ValueError("the tokenizer is nested too deeply") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the tokenizer is invalid ({error!r})"[:300]) from error
    try:
        import tokenizers
    except ImportError as error:
        raise MissingExtraError(
            "static vectors need the package tokenizers. Install it with: pip install 'umpteen[static]'"
        ) from error
    try:
        return tokenizers.Tokenizer.from_str(text)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        raise ValueError(f"the tokenizer is invalid ({error})"[:300]) from error


def _check(document: Any) -> None:
    """Refuses steps and settings that are not listed."""
    model = document["model"]
    kind = model.get("type")
    if kind not in _MODELS:
        raise ValueError(f"the tokenizer is invalid: its model must be one of {', '.join(sorted(_MODELS))}")
    if model.get("dropout"):
        raise ValueError("the tokenizer must not draw at random, but has dropout")
    if kind == "WordPiece" and model.get("max_input_chars_per_word", 100) > _LONGEST_WORD:
        raise ValueError(f"words must have at most {_LONGEST_WORD} characters (max_input_chars_per_word)")
    growth = 1.0
    for i, step in enumerate((*_steps(document.get("normalizer")), *_steps(document.get("pre_tokenizer")))):
        growth *= _check_step(step)
        if growth > _MOST_GROWTH or i >= _MOST_STEPS:
            raise ValueError("the tokenizer must not have so many steps, or ones that make texts so much longer")


def _steps(step: Any) -> Iterator[dict[str, Any]]:
    """A step and those in it."""
    left = [] if step is None else [step]
    while left:
        step = left.pop()
        yield step
        left.extend([*step.get("normalizers", ()), *step.get("pretokenizers", ())])


def _check_step(step: dict[str, Any]) -> float:
    """Refuses a step that is not listed; returns how much longer it may make a text."""
    kind, pattern = step["type"], step.get("pattern")
    if isinstance(pattern, dict) and "Regex" in pattern:
        raise ValueError("the tokenizer must have no regular expressions, but has some")
    if kind == "Precompiled":
        _check_characters(step["precompiled_charsmap"])
    elif kind == "Prepend":
        if len(step["prepend"]) > _MOST_GROWTH:
            raise ValueError(f"at most {_MOST_GROWTH} characters may be put before a text")
    elif kind in ("Replace", "Split"):
        replaced = pattern["String"] if isinstance(pattern, dict) else ""
        if not isinstance(replaced, str) or not replaced:
            raise ValueError(f"the pattern of {kind} must be a string of at least one character")
        return max(1.0, len(step.get("content", "")) / len(replaced))
    elif kind not in _STEPS:
        raise ValueError(f"the tokenizer has the step {kind!r:.50}, which is not opened")
    return 1.0


def _check_characters(encoded: str) -> None:
    """What characters become stands behind a table: so many bytes, then strings that end with 0."""
    data = base64.b64decode(encoded, validate=True)
    size = int.from_bytes(data[:4], "little")
    if size == 0 or size % 4 or size > len(data) - 4:
        raise ValueError("the tokenizer is invalid: its table of characters is damaged")
    if max(map(len, data[4 + size :].split(b"\0"))) > _LONGEST_CHARACTER:
        raise ValueError(f"a character may become at most {_LONGEST_CHARACTER} bytes")
