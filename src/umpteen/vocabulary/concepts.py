"""A vocabulary: concepts, their terms by language, and their neighbours, over plain arrays that a model keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.nearest import did_you_mean, search_names
from umpteen.storage.names import Names
from umpteen.storage.store import Part

#: Kinds of terms, by their number in the arrays.
KINDS = ("preferred", "alternative", "hidden")
#: As many languages as a number of 16 bits tells apart; real vocabularies have some dozens.
_MOST_LANGUAGES = 1 << 16


class Term(NamedTuple):
    """A name of a concept."""

    text: str
    language: str  # an ISO code such as "en"; empty if the vocabulary does not say
    kind: str  # preferred, alternative or hidden


class Concept(NamedTuple):
    """A concept as it is given to `Vocabulary.build`."""

    uri: str  # empty in a plain list of names
    terms: Sequence[Term]
    notation: str = ""
    broader: Sequence[str] = ()  # URIs, like the two below; those of no concept here are left out
    related: Sequence[str] = ()
    replaced_by: str = ""
    deprecated: bool = False


class Vocabulary:
    """Concepts by number, as models number their labels.

    Attributes
    ----------
    uris, notations : sequence of str
        By number; empty where a concept has none.
    languages : list of str
        Those that terms have; "" stands for terms without one.
    deprecated : array of bool
        Concepts that are no longer to be used.
    replaced_by : array
        The number of the concept to use instead, or -1.

    Examples
    --------
    >>> fish = Concept("http://ex.org/1", [Term("fish", "en", "preferred"), Term("kala", "fi", "preferred")])
    >>> cod = Concept("http://ex.org/2", [Term("cod", "en", "preferred")], broader=["http://ex.org/1"])
    >>> vocabulary = Vocabulary.build([fish, cod])
    >>> vocabulary.name(0, "fi"), vocabulary.name(vocabulary.broader(1)[0], "en")
    ('kala', 'fish')
    """

    def __init__(
        self, names: dict[str, Names], arrays: dict[str, NDArray[Any]], languages: Sequence[str], language: str = ""
    ) -> None:
        self.uris, self.notations, self._terms = names["uris"], names["notations"], names["terms"]
        self._arrays = arrays
        self.languages = list(languages)
        #: The language of names, unless another is asked for.
        self.language = language
        self.deprecated: NDArray[np.bool_] = arrays["deprecated"].astype(bool)
        self.replaced_by: NDArray[np.int32] = arrays["replaced_by"]

    # --- make ----------------------------------------------------------------------------------------------------

    @classmethod
    def build(cls, concepts: Iterable[Concept], language: str = "") -> Vocabulary:
        """A vocabulary of these concepts, in this order."""
        listed = list(concepts)
        if not listed:
            raise DataError("a vocabulary must have at least one concept, but has none")
        numbers = {concept.uri: i for i, concept in enumerate(listed) if concept.uri}
        languages = sorted({term.language for concept in listed for term in concept.terms})
        if len(languages) > _MOST_LANGUAGES:
            raise DataError(
                f"a vocabulary must have at most {_MOST_LANGUAGES:,} languages, but has {len(languages):,}"
            )
        places = {name: i for i, name in enumerate(languages)}
        terms = [term for concept in listed for term in concept.terms]
        arrays: dict[str, NDArray[Any]] = {
            "term_ends": np.cumsum([len(concept.terms) for concept in listed], dtype=np.int64),
            "term_languages": np.array([places[term.language] for term in terms], np.uint16),
            "term_kinds": np.array([KINDS.index(term.kind) for term in terms], np.uint8),
            "deprecated": np.array([concept.deprecated for concept in listed], np.uint8),
            "replaced_by": np.array([numbers.get(concept.replaced_by, -1) for concept in listed], np.int32),
        }
        for key in ("broader", "related"):
            rows = [
                sorted({numbers[uri] for uri in getattr(concept, key) if numbers.get(uri, i) != i})
                for i, concept in enumerate(listed)
            ]
            arrays[f"{key}_ends"] = np.cumsum([len(row) for row in rows], dtype=np.int64)
            arrays[key] = np.array([other for row in rows for other in row], np.int32)
        names = {
            "uris": Names.encode([concept.uri for concept in listed]),
            "notations": Names.encode([concept.notation for concept in listed]),
            "terms": Names.encode([term.text for term in terms]),
        }
        return cls(names, arrays, languages).in_language(language)

    def in_language(self, language: str) -> Vocabulary:
        """The same vocabulary with another language for names; one it does not have is refused."""
        if language and self._place(language) is None:
            known = ", ".join(name for name in self.languages if name) or "none"
            raise ParamError(f"language must be one of the vocabulary's, {known}, but is {language!r:.100}")
        names = {"uris": self.uris, "notations": self.notations, "terms": self._terms}
        return Vocabulary(names, self._arrays, self.languages, language)

    def concept(self, concept: int) -> Concept:
        """A concept as `build` takes it."""
        heir = int(self.replaced_by[concept])
        return Concept(
            self.uris[concept],
            self.terms(concept),
            self.notations[concept],
            [self.uris[i] for i in self.broader(concept)],
            [self.uris[i] for i in self.related(concept)],
            self.uris[heir] if heir >= 0 else "",
            bool(self.deprecated[concept]),
        )

    # --- look at concepts ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.uris)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} concepts, {len(self._terms):,} terms, languages {self.languages})"

    @property
    def n_terms(self) -> int:
        return len(self._terms)

    def terms(self, concept: int) -> list[Term]:
        """The names of a concept: preferred ones first."""
        begin, end = _span(self._arrays["term_ends"], concept)
        languages, kinds = self._arrays["term_languages"], self._arrays["term_kinds"]
        return [Term(self._terms[i], self.languages[languages[i]], KINDS[kinds[i]]) for i in range(begin, end)]

    def iter_terms(self) -> Iterator[tuple[int, Term]]:
        """Every term with the number of its concept."""
        counts = np.diff(self._arrays["term_ends"], prepend=0)
        owners = np.repeat(np.arange(len(self)), counts).tolist()
        languages, kinds = self._arrays["term_languages"].tolist(), self._arrays["term_kinds"].tolist()
        for owner, text, language, kind in zip(owners, self._terms, languages, kinds, strict=True):
            yield owner, Term(text, self.languages[language], KINDS[kind])

    def name(self, concept: int, language: str | None = None) -> str:
        """The preferred name in a language; where there is none, in the vocabulary's own, then in any."""
        terms = self.terms(concept)
        for wanted in dict.fromkeys([language or self.language, self.language]):
            for term in terms:
                if wanted and term.kind == KINDS[0] and _speaks(term.language, wanted):
                    return term.text
        for kind in KINDS:
            for term in terms:
                if term.kind == kind:
                    return term.text
        return str(self.notations[concept] or self.uris[concept])

    def names(self, language: str | None = None) -> list[str]:
        """A name for each concept, each another: what two share carries the notation or the end of the URI."""
        if language:
            self.in_language(language)
        plain = [self.name(i, language) for i in range(len(self))]
        taken: dict[str, int] = {}
        for name in plain:
            taken[name] = taken.get(name, 0) + 1
        used = {name for name, count in taken.items() if count == 1}
        tried: dict[str, int] = {}
        return [name if taken[name] == 1 else self._distinct(i, name, used, tried) for i, name in enumerate(plain)]

    def names_in_use(self) -> list[str]:
        """`names` of the concepts that are neither deprecated nor replaced by another."""
        used = ~self.deprecated & (self.replaced_by < 0)
        return [name for name, kept in zip(self.names(), used.tolist(), strict=True) if kept]

    def _distinct(self, concept: int, name: str, used: set[str], tried: dict[str, int]) -> str:
        """`tried` has the number after the last one that was tried for each name: those below it are taken, and
        looking at them again for every concept would take forever where very many share a name."""
        uri = self.uris[concept]
        for mark in (self.notations[concept], uri.replace("#", "/").rstrip("/").rsplit("/", 1)[-1], uri):
            if mark and (found := f"{name} ({mark})") not in used:
                break
        else:
            number = max(concept, tried.get(name, 0))
            while (found := f"{name} ({number})") in used:
                number += 1
            tried[name] = number + 1
        used.add(found)
        return found

    def broader(self, concept: int) -> list[int]:
        return self._neighbours("broader", concept)

    def related(self, concept: int) -> list[int]:
        return self._neighbours("related", concept)

    def narrower(self, concept: int) -> list[int]:
        order, ends = self._narrower
        begin, end = _span(ends, concept)
        found: list[int] = order[begin:end].tolist()
        return found

    def ancestors(self, concept: int) -> list[int]:
        """All concepts above one, nearest first. A cycle is walked once."""
        found = {concept: None}
        waiting = [concept]
        for current in waiting:  # grows while it is walked: breadth first
            new = [other for other in self.broader(current) if other not in found]
            found |= dict.fromkeys(new)
            waiting += new
        return list(found)[1:]

    def current(self, concept: int) -> int:
        """The concept to use for one: what replaces it, and what replaces that. Itself if nothing does."""
        seen = {concept}
        while (other := int(self.replaced_by[concept])) >= 0 and other not in seen:
            seen.add(other)
            concept = other
        return concept

    def cycles(self) -> list[int]:
        """Concepts that stand above themselves, which a hierarchy must not have."""
        from scipy.sparse.csgraph import connected_components

        _, component = connected_components(self.broader_matrix(), directed=True, connection="strong")
        found: list[int] = np.flatnonzero(np.bincount(component)[component] > 1).tolist()
        return found

    def broader_matrix(self) -> Any:
        """n x n, sparse: 1 in row i, column j where j is directly above i."""
        from scipy.sparse import csr_matrix

        above, indptr = self._arrays["broader"], np.append(0, self._arrays["broader_ends"])
        return csr_matrix((np.ones(len(above), np.float32), above, indptr), shape=(len(self), len(self)))

    def _neighbours(self, key: str, concept: int) -> list[int]:
        begin, end = _span(self._arrays[f"{key}_ends"], concept)
        found: list[int] = self._arrays[key][begin:end].tolist()
        return found

    @cached_property
    def _narrower(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        above = self._arrays["broader"]
        below = np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self._arrays["broader_ends"], prepend=0))
        order = np.argsort(above, kind="stable")
        return below[order], np.cumsum(np.bincount(above, minlength=len(self)))

    def speaks(self, language: str) -> bool:
        """Whether terms in a language are in the vocabulary's own; any is if it has none, and "" is in every one."""
        return not (self.language and language) or _speaks(language, self.language)

    def _place(self, language: str) -> int | None:
        return next((i for i, name in enumerate(self.languages) if _speaks(name, language)), None)

    # --- find ----------------------------------------------------------------------------------------------------

    def find(self, label: str) -> int:
        """The number of the concept with a URI, a notation or a name.

        Raises
        ------
        DataError
            If there is none, with names that resemble it; or if it is the name of several.
        """
        found = self.find_all(label)
        if not found:
            raise DataError(f"{label!r:.200} is not in the vocabulary{did_you_mean(label, self._all_names)}")
        if len(found) > 1:
            listed = ", ".join(self.uris[i] or self.notations[i] or str(i) for i in found[:5])
            raise DataError(f"{label!r:.200} is the name of {len(found)} concepts; use a URI instead: {listed}")
        return found[0]

    def find_uri(self, uri: str) -> int | None:
        """The number of the concept with a URI; None if there is none."""
        return self._by_uri.get(uri)

    def find_all(self, label: str) -> list[int]:
        """Concepts with a URI, else with a notation, else with a name.

        Names in the vocabulary's own language come first, then preferred ones in any, then others; case counts only
        if a preferred name in the same case is there too. Deprecated concepts are found only if there are no others.
        """
        bare = label[1:-1] if label.startswith("<") and label.endswith(">") else label
        for table in (self._by_uri, self._by_notation):
            if bare in table:
                return [table[bare]]
        if (own := self._by_own_name.get(label)) is not None:
            return [own]
        found = self._by_name.get(label) or next(
            (table[folded] for table in self._by_folded if (folded := label.casefold()) in table), []
        )
        return [i for i in found if not self.deprecated[i]] or found

    @cached_property
    def _all_names(self) -> list[str]:
        return [*self._by_own_name, *(name for name in self._by_name if name not in self._by_own_name)]

    @cached_property
    def _by_uri(self) -> dict[str, int]:
        return {uri: i for i, uri in enumerate(self.uris) if uri}

    @cached_property
    def _by_notation(self) -> dict[str, int]:
        counts: dict[str, list[int]] = {}
        for i, notation in enumerate(self.notations):
            counts.setdefault(notation, []).append(i)
        return {notation: found[0] for notation, found in counts.items() if notation and len(found) == 1}

    @cached_property
    def _by_own_name(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names())}

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        """Preferred names in all languages, as they are written."""
        found: dict[str, list[int]] = {}
        for concept, term in self.iter_terms():
            if term.kind == KINDS[0]:
                _append_once(found.setdefault(term.text, []), concept)
        return found

    @cached_property
    def _by_folded(self) -> list[dict[str, list[int]]]:
        tables: list[dict[str, list[int]]] = [{} for _ in KINDS]
        for concept, term in self.iter_terms():
            _append_once(tables[KINDS.index(term.kind)].setdefault(term.text.casefold(), []), concept)
        return tables

    def find_terms(self, query: str, most: int) -> list[tuple[int, str]]:
        """Terms in any language that contain a text, at most so many, each after the number of its concept. Quicker
        than `search`, but not sorted, and it does not find what only resembles the text."""
        terms = self._terms.find(query, most)
        owners = np.searchsorted(self._arrays["term_ends"], terms, side="right").tolist()
        return [(owner, self._terms[i]) for owner, i in zip(owners, terms, strict=True)]

    def search(self, query: str, most: int = 20) -> list[tuple[int, Term]]:
        """Concepts with a term that a query finds, in any language, best first, each with that term."""
        terms = list(self.iter_terms())
        found: dict[int, Term] = {}
        for i in search_names(query, [term.text for _, term in terms]):
            found.setdefault(*terms[i])
            if len(found) >= most:
                break
        return list(found.items())

    # --- storage -------------------------------------------------------------------------------------------------

    def to_part(self) -> Part:
        """The arrays, as a part of a model directory."""
        arrays = dict(self._arrays)
        for key, names in (("uris", self.uris), ("notations", self.notations), ("terms", self._terms)):
            part = names.to_part()
            arrays |= {f"{key}_data": part.arrays["data"], f"{key}_text_ends": part.arrays["ends"]}
        return Part(arrays, {"languages": self.languages, "language": self.language})

    @classmethod
    def from_part(cls, part: Part) -> Vocabulary:
        """A vocabulary from a model directory, which is not trusted."""
        names = {
            key: Names(part.array(f"{key}_data", "uint8"), part.array(f"{key}_text_ends", "int64"))
            for key in ("uris", "notations", "terms")
        }
        kinds = {
            "term_ends": "int64", "term_languages": "uint16", "term_kinds": "uint8", "deprecated": "uint8",
            "replaced_by": "int32", "broader_ends": "int64", "broader": "int32", "related_ends": "int64",
            "related": "int32",
        }  # fmt: skip
        arrays = {key: part.array(key, kind) for key, kind in kinds.items()}
        languages, language = part.scalars.get("languages"), part.scalars.get("language")
        n = len(names["uris"])
        spans = (("term_ends", len(names["terms"])), ("broader_ends", len(arrays["broader"])),
                 ("related_ends", len(arrays["related"])))  # fmt: skip
        if not (
            isinstance(languages, list) and isinstance(language, str) and n > 0
            and all(isinstance(name, str) for name in languages)
            and len(names["notations"]) == len(arrays["deprecated"]) == len(arrays["replaced_by"]) == n
            and len(arrays["term_languages"]) == len(arrays["term_kinds"]) == len(names["terms"])
            and all(_rises(arrays[key], n, last) for key, last in spans)
            and all(_within(arrays[key], 0, n) for key in ("broader", "related"))
            and _within(arrays["replaced_by"], -1, n) and _within(arrays["term_kinds"], 0, len(KINDS))
            and _within(arrays["term_languages"], 0, len(languages))
        ):  # fmt: skip
            raise ModelCorruptError("the arrays of a vocabulary must fit each other, but do not")
        return cls(names, arrays, languages, language)


def _append_once(listed: list[int], concept: int) -> None:
    """Adds a concept to a list of ascending numbers."""
    if not listed or listed[-1] != concept:
        listed.append(concept)


def _rises(ends: NDArray[np.int64], n: int, last: int) -> bool:
    return len(ends) == n and bool((np.diff(ends, prepend=0) >= 0).all()) and int(ends[-1]) == last


def _within(values: NDArray[Any], low: int, high: int) -> bool:
    return not len(values) or (int(values.min()) >= low and int(values.max()) < high)


def _span(ends: NDArray[np.int64], i: int) -> tuple[int, int]:
    if not 0 <= i < len(ends):
        raise ParamError(f"a concept's number must be in [0, {len(ends)}), but is {i}")
    return (int(ends[i - 1]) if i else 0), int(ends[i])


def _speaks(language: str, wanted: str) -> bool:
    """Whether a tag such as "en-GB" is in a language such as "en"."""
    return language.casefold() == wanted.casefold() or language.casefold().startswith(f"{wanted.casefold()}-")
