"""Vocabularies from files.

    <http://ex.org/1>⇥fish⇥QL614          .tsv: URI, name and perhaps a notation, as Annif writes it
    uri,notation,label_en,label_fi        .csv, or .tsv with this header: names in several languages, also Annif's
    fish                                  .txt: a plain list, one name a line
    skos:prefLabel "fish"@en              .ttl, .rdf, .xml, .jsonld, .nt: SKOS, by rdflib (umpteen[skos])

Every file may be compressed. Encoding and, of .csv, the delimiter are found by looking, as those of tables are.
Nothing in a file is run, fetched or expanded without bound.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from umpteen.data.files import COMPRESSED_SUFFIXES, PathLike
from umpteen.data.tables.lines import decode_lines, read_pieces
from umpteen.data.tables.reading import look
from umpteen.data.tables.sniffing import find_delimiter, find_encoding, refuse_binary, skip_sep
from umpteen.errors import DataError, ParamError
from umpteen.memory import Estimate, check_fits
from umpteen.nearest import did_you_mean
from umpteen.vocabulary.concepts import Concept, Term, Vocabulary

#: Formats of RDF by the suffix of their files, as rdflib names them.
RDF = {".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".jsonld": "json-ld", ".nt": "nt"}
_LABEL = "label_"
#: Memory for a concept, measured: 740 bytes with a name of 15 characters, 1,400 with three of them.
_BYTES_PER_LINE, _BYTES_PER_CHARACTER = 700, 16
_LINES_AT_A_TIME = 20_000
#: Lines that show how a table is written.
_LINES = 200


def read_vocabulary(path: PathLike, language: str | None = None) -> Vocabulary:
    """Reads a vocabulary; the file's name says how it is written.

    Parameters
    ----------
    path
        SKOS as Turtle, RDF/XML, JSON-LD or N-Triples (needs rdflib: ``pip install 'umpteen[skos]'``); Annif's TSV or
        CSV; or a list of names.
    language
        The language of names, unless another is asked for; also that of names whose language the file does not say.

    Raises
    ------
    DataError
        With file and line, for anything that is not as it must be.
    """
    if language is not None and not _is_language(language):
        raise ParamError(f"language must be a code such as 'en' or 'en-GB', but is {language!r:.100}")
    path = Path(path)
    names = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in COMPRESSED_SUFFIXES]
    suffix = names[-1] if names else ""
    readers: dict[str, Callable[[Path, str], list[Concept]]] = {
        ".tsv": _read_tsv, ".csv": _read_csv, ".txt": _read_list,
    }  # fmt: skip
    if suffix in RDF:
        from umpteen.vocabulary.skos import read_skos

        return read_skos(path, RDF[suffix]).in_language(language or "")
    if suffix not in readers:
        known = ", ".join([*readers, *RDF])
        raise ParamError(f"{path}: a vocabulary's name must end in one of {known}, but ends in {suffix!r}")
    vocabulary = Vocabulary.build(readers[suffix](path, language or ""))
    return vocabulary.in_language(language or "")


def _lines(path: Path) -> Iterator[str]:
    start, pieces = look(read_pieces(path))
    refuse_binary(path, start)
    return _bounded(path, decode_lines(path, pieces, find_encoding(start)))


def _bounded(path: Path, lines: Iterator[str]) -> Iterator[str]:
    """The same lines, refused as soon as the concepts read from them take more memory than is left."""
    n_bytes = 0
    for number, line in enumerate(lines, 1):
        n_bytes += _BYTES_PER_LINE + _BYTES_PER_CHARACTER * len(line)
        if number % _LINES_AT_A_TIME == 0:
            check_fits(Estimate(n_bytes, 0), f"{path}:{number}: reduce the vocabulary")
        yield line


def _read_list(path: Path, language: str) -> list[Concept]:
    concepts: list[Concept] = []
    first: dict[str, int] = {}
    for number, line in enumerate(_lines(path), 1):
        if name := line.strip():
            if name in first:
                raise DataError(
                    f"{path}:{number}: names must differ, but {name!r:.100} is also in line {first[name]}"
                )
            first[name] = number
            concepts.append(Concept("", [Term(name, language, "preferred")]))
    return _some(path, concepts)


def _read_tsv(path: Path, language: str) -> list[Concept]:
    lines = _lines(path)
    first = next(lines, "")
    if "uri" in first.strip().split("\t"):
        return _read_table(path, language, chain([first], lines), delimiter="\t", quoting=csv.QUOTE_NONE)
    concepts: list[Concept] = []
    places: dict[str, int] = {}
    for number, line in enumerate(chain([first], lines), 1):
        if not line.strip():
            continue
        uri, *rest = line.rstrip("\r\n").split("\t")
        if len(rest) not in (1, 2):
            raise DataError(
                f"{path}:{number}: a line must have a URI, a name and perhaps a notation, with tabs between them, "
                f"but has {len(rest) + 1} fields"
            )
        uri = uri.strip().removeprefix("<").removesuffix(">")
        _check_uri(path, number, uri, places)
        terms = [Term(rest[0].strip(), language, "preferred")] if rest[0].strip() else []
        concepts.append(Concept(uri, terms, rest[1].strip() if len(rest) == 2 else ""))
    return _some(path, concepts)


def _read_csv(path: Path, language: str) -> list[Concept]:
    lines = _lines(path)
    first = list(islice(lines, _LINES))
    named, rest = skip_sep(first)
    delimiter = named or find_delimiter("".join(rest))
    return _read_table(path, language, chain(rest, lines), 2 if named else 1, delimiter=delimiter)


def _read_table(path: Path, language: str, lines: Iterable[str], first: int = 1, **dialect: Any) -> list[Concept]:
    """The concepts of a table whose header stands in line `first`."""
    rows = csv.reader(lines, **dialect)
    try:
        header = [name.strip() for name in next(rows, [])]
        columns = _label_columns(path, header, language)
        concepts: list[Concept] = []
        places: dict[str, int] = {}
        for row in rows:
            number = rows.line_num + first - 1
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                raise DataError(f"{path}:{number}: a line must have {len(header)} fields, but has {len(row)}")
            cells = dict(zip(header, (cell.strip() for cell in row), strict=True))
            uri = cells["uri"].removeprefix("<").removesuffix(">")
            _check_uri(path, number, uri, places)
            terms = [Term(cells[name], code, "preferred") for name, code in columns.items() if cells[name]]
            concepts.append(Concept(uri, terms, cells.get("notation", "")))
    except csv.Error as error:
        raise DataError(f"{path}:{rows.line_num + first - 1}: {error}") from error
    return _some(path, concepts)


def _label_columns(path: Path, header: list[str], language: str) -> dict[str, str]:
    """The columns with names, and the language of each."""
    if "uri" not in header:
        raise DataError(
            f"{path}:1: the first line must name a column uri, but has {header!r:.200}{did_you_mean('uri', header)}"
        )
    columns = {name: name.removeprefix(_LABEL) for name in header if name.startswith(_LABEL)}
    if "label" in header:
        columns["label"] = language
    if not columns or not all(_is_language(code) for name, code in columns.items() if name != "label"):
        raise DataError(f"{path}:1: the first line must name columns such as label_en, but has {header!r:.200}")
    return columns


def _check_uri(path: Path, number: int, uri: str, places: dict[str, int]) -> None:
    if not uri or any(character.isspace() for character in uri):
        raise DataError(f"{path}:{number}: a URI must have no white space and not be empty, but is {uri!r:.100}")
    if uri in places:
        raise DataError(f"{path}:{number}: URIs must differ, but {uri!r:.200} is also in line {places[uri]}")
    places[uri] = number


def _some(path: Path, concepts: list[Concept]) -> list[Concept]:
    if not concepts:
        raise DataError(f"{path}: a vocabulary must have at least one concept, but has none")
    return concepts


def _is_language(code: object) -> bool:
    return isinstance(code, str) and 1 < len(code) <= 35 and code.replace("-", "").isalnum() and code.isascii()
