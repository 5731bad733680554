"""Vocabularies into files: SKOS as Turtle or N-Triples with everything; Annif's CSV and TSV with preferred names."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from umpteen.data.files import COMPRESSED_SUFFIXES, PathLike, write_bytes
from umpteen.errors import DataError, ParamError
from umpteen.vocabulary.concepts import KINDS, Vocabulary

_SKOS = "http://www.w3.org/2004/02/skos/core#"
_LABELS = dict(zip(KINDS, ("prefLabel", "altLabel", "hiddenLabel"), strict=True))


def write_vocabulary(vocabulary: Vocabulary, path: PathLike) -> None:
    """Writes a vocabulary; the name says how: .ttl and .nt (SKOS) keep everything, .csv and .tsv what Annif reads,
    .txt the names alone. A name may also end in .gz, .xz and the like."""
    names = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() not in COMPRESSED_SUFFIXES]
    writers = {".ttl": _triples, ".nt": _triples, ".csv": _csv, ".tsv": _tsv, ".txt": _list}
    suffix = names[-1] if names else ""
    if suffix not in writers:
        raise ParamError(f"{path}: the name must end in one of {', '.join(writers)}, but ends in {suffix!r}")
    write_bytes(path, (line.encode("utf-8", "replace") for line in writers[suffix](vocabulary)))


def _triples(vocabulary: Vocabulary) -> Iterator[str]:
    """N-Triples, which is Turtle too."""
    uris = [_check(uri) for uri in vocabulary.uris]
    for i, uri in enumerate(uris):
        yield f"<{uri}> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{_SKOS}Concept> .\n"
        for term in vocabulary.terms(i):
            language = f"@{term.language}" if term.language else ""
            yield f"<{uri}> <{_SKOS}{_LABELS[term.kind]}> {_quote(term.text)}{language} .\n"
        if vocabulary.notations[i]:
            yield f"<{uri}> <{_SKOS}notation> {_quote(vocabulary.notations[i])} .\n"
        for key in ("broader", "related"):
            for other in getattr(vocabulary, key)(i):
                yield f"<{uri}> <{_SKOS}{key}> <{uris[other]}> .\n"
        if vocabulary.deprecated[i]:
            yield (
                f'<{uri}> <http://www.w3.org/2002/07/owl#deprecated> "true"'
                "^^<http://www.w3.org/2001/XMLSchema#boolean> .\n"
            )
        if vocabulary.replaced_by[i] >= 0:
            yield f"<{uri}> <http://purl.org/dc/terms/isReplacedBy> <{uris[vocabulary.replaced_by[i]]}> .\n"


def _check(uri: str) -> str:
    if not uri or any(character <= " " or character in '<>"{}|^`\\' for character in uri):
        raise DataError(f"SKOS needs a URI for each concept, but one is {uri!r:.100}; write .txt instead")
    return uri


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _csv(vocabulary: Vocabulary) -> Iterator[str]:
    languages = [language for language in vocabulary.languages if language]
    with_others = [""] if "" in vocabulary.languages else []
    header = ["uri", "notation", *(f"label_{code}" for code in languages), *("label" for _ in with_others)]
    yield _row(header)
    for i in range(len(vocabulary)):
        names = {term.language: term.text for term in reversed(vocabulary.terms(i)) if term.kind == KINDS[0]}
        cells = [names.get(code, "") for code in (*languages, *with_others)]
        yield _row([_check(vocabulary.uris[i]), vocabulary.notations[i], *cells])


def _row(cells: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _tsv(vocabulary: Vocabulary) -> Iterator[str]:
    for i in range(len(vocabulary)):
        cells = [f"<{_check(vocabulary.uris[i])}>", vocabulary.name(i)]
        cells += [vocabulary.notations[i]] if vocabulary.notations[i] else []
        yield "\t".join(" ".join(cell.split()) for cell in cells) + "\n"


def _list(vocabulary: Vocabulary) -> Iterator[str]:
    yield from (f"{' '.join(name.split())}\n" for name in vocabulary.names())
