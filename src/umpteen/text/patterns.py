r"""Which token patterns may come from a file. Python's `re` can take forever over a malicious pattern, so a pattern
from a model is only run if it has one of these forms, for which `re` takes time proportional to the text:

    \b\w\w+\b    \w+    (?u)\b\w{3,}\b       the longest runs of word characters; found in C++, not by `re`
    \S+    [a-z]{2,}    \b\w[\w'-]+\b        up to eight single characters or classes, then a repeated class
    \w+(?:[-']\w+)*[+#]*                     the same, then optional parts

A class is a character, an escape such as \w, or a set in brackets. \b may stand at the front, and then at the end too
if nothing is optional. Why that is enough: before the repeated class, a match fails within eight characters; in it,
within 32; after it, only the last \b can fail, and then there is none in the rest of the run, so no match can begin
there. So no character is read more than about forty times.
"""

from __future__ import annotations

import re

#: Most characters of a pattern from a file.
MOST_CHARACTERS = 200

_PUNCTUATION = r"\\[!-/:-@\[-`{-~]"
_IN_SET = rf"(?:\\[wWdDsS]|{_PUNCTUATION}|[^\\\[\]^-])"
_CLASS = rf"(?:\\[wWdDsS]|{_PUNCTUATION}|[^\\\[\](){{}}^$.|?*+]|\.|\[\^?-?(?:{_IN_SET}(?:-{_IN_SET})?)+-?\])"
_REPEATED = r"(?:\+|\{(?:[1-9]|[12][0-9]|3[0-2])(?:,\d{0,4})?\})"
_HEAD = rf"{_CLASS}{{0,8}}{_CLASS}{_REPEATED}?"
_OPTIONAL = rf"(?:{_CLASS}[*?]|\(\?:{_CLASS}{{1,8}}{_REPEATED}?\)[*?])"
_FORMS = re.compile(rf"(?:\(\?u\))?(?:\\b{_HEAD}\\b|(?:\\b)?{_HEAD}{_OPTIONAL}{{0,4}})", re.DOTALL)
#: What `re` warns about in sets, because its meaning may change.
_AMBIGUOUS = re.compile(r"--|&&|~~|\|\|")

_RUN = re.compile(r"(?:\(\?u\))?(\\b)?(?:((?:\\w)+)\+|\\w\{(\d{1,9}),\})(\\b)?")


def run_length(pattern: str) -> int | None:
    r"""The fewest characters of a word, for patterns that match the longest runs of word characters:
    ``\b\w\w+\b``, ``\w+``, ``(?u)\b\w{3,}\b`` and so on. None for all others."""
    found = _RUN.fullmatch(pattern)
    if found is None:
        return None
    length = int(found[3]) if found[3] else len(found[2]) // 2
    return length or None  # \w{0,} also matches nothing, between characters


def is_linear(pattern: str) -> bool:
    """Whether a pattern has one of the forms above."""
    if len(pattern) > MOST_CHARACTERS:
        return False
    return run_length(pattern) is not None or bool(_FORMS.fullmatch(pattern) and not _AMBIGUOUS.search(pattern))
