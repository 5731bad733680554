"""Words of a language in one form: stems by Snowball's rules (PyStemmer), or lemmas by a dictionary (simplemma).

A model keeps the language and the kind of form by name. The rules come with the packages, which `umpteen[languages]`
installs, so a model should be used with the version it was trained with: another one may stem a few words otherwise,
which are then unknown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

from umpteen.errors import MissingExtraError, ParamError
from umpteen.nearest import did_you_mean

FORMS = ("stem", "lemma")
#: Languages that can be stemmed, by their ISO code, with the name that Snowball gives them.
STEMMED = {
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english",
    "es": "spanish", "eu": "basque", "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi",
    "hu": "hungarian", "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian",
    "ne": "nepali", "nl": "dutch", "no": "norwegian", "pt": "portuguese", "ro": "romanian", "ru": "russian",
    "sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
#: Languages that have lemmas, by the code that simplemma gives them.
LEMMATISED = frozenset({
    "ar", "ast", "bg", "ca", "cs", "cy", "da", "de", "el", "en", "enm", "eo", "es", "et", "fa", "fi", "fr",
    "ga", "gd", "gl", "grc", "gv", "hbs", "he", "hi", "hu", "hy", "id", "is", "it", "ka", "la", "lb", "lt",
    "lv", "mk", "ml", "ms", "nb", "nl", "nn", "pl", "pt", "ro", "ru", "se", "sk", "sl", "sq", "sv", "sw",
    "tl", "tr", "uk",
})  # fmt: skip
#: A word as it is, and its form, for so many words; the others are worked out again.
_REMEMBERED = 1 << 18


def check_language(language: object, form: object) -> None:
    """Raises ParamError unless the words of a language can be brought into a form."""
    if form not in FORMS:
        raise ParamError(f"word_form must be 'stem' or 'lemma', but is {form!r:.100}")
    if language is None:
        return
    known = STEMMED if form == "stem" else LEMMATISED
    if not isinstance(language, str) or language not in known:
        raise ParamError(
            f"language must be one of {', '.join(sorted(known))} for word_form={form!r}, but is {language!r:.100}"
            f"{did_you_mean(str(language), known)}"
        )


def find_reducer(language: str, form: str) -> Callable[[str], str]:
    """What brings a word in lower case into the form of its language; remembers the words it has met.

    Raises
    ------
    MissingExtraError
        If the package that knows the language is not installed.
    """
    return _find_stemmer(language) if form == "stem" else _find_lemmatiser(language)


def find_stop_words(given: Iterable[str] | str | None) -> frozenset[str]:
    """Stop words as they are given, or the usual ones of a language by its code.

    Raises
    ------
    MissingExtraError
        If the package that has them is not installed.
    """
    if given is None or not isinstance(given, str):
        return frozenset(given or ())
    try:
        import stopwordsiso
    except ImportError as error:
        raise MissingExtraError(
            f"stop_words={given!r:.100} needs stopwordsiso. Install it with: pip install 'umpteen[languages]'"
        ) from error
    known = sorted(stopwordsiso.langs())
    if given not in known:
        raise ParamError(
            f"stop_words must be a list of words, or the code of a language, one of {', '.join(known)}, but is "
            f"{given!r:.100}"
        )
    return frozenset(stopwordsiso.stopwords(given))


def fold(text: str) -> str:
    """One spelling for what looks the same: compatibility characters replaced (NFKC), then in lower case."""
    return unicodedata.normalize("NFKC", text).lower()


def _find_stemmer(language: str) -> Callable[[str], str]:
    try:
        import Stemmer
    except ImportError as error:
        raise MissingExtraError(
            f"stems of language={language!r} need PyStemmer. Install it with: pip install 'umpteen[languages]'"
        ) from error
    stemmer = Stemmer.Stemmer(STEMMED[language], 0)  # its own memory is slower than Python's
    stem: Callable[[str], str] = stemmer.stemWord
    return lru_cache(_REMEMBERED)(lambda word: word if _SURROGATES.search(word) else stem(word) or word)


def _find_lemmatiser(language: str) -> Callable[[str], str]:
    try:
        import simplemma
    except ImportError as error:
        raise MissingExtraError(
            f"lemmas of language={language!r} need simplemma. Install it with: pip install 'umpteen[languages]'"
        ) from error
    return lru_cache(_REMEMBERED)(lambda word: simplemma.lemmatize(word, language).lower())


_SURROGATES = re.compile("[\ud800-\udfff]")
