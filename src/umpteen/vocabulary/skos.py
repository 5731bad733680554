"""SKOS by rdflib, as a stream: only what a vocabulary needs is kept, so that a graph is never in memory.

RDF can ask its reader for more than text: XML declares entities, and JSON-LD names contexts in the network. Entities
are expanded only if they are short and have no others in them, as those for namespaces are; contexts only if they
stand in the file.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.parsers import expat
from xml.sax import SAXParseException

from umpteen.data.files import read_chunks
from umpteen.errors import DataError, MissingExtraError
from umpteen.memory import Estimate, check_fits
from umpteen.vocabulary.concepts import KINDS, Concept, Term, Vocabulary

_SKOS = "http://www.w3.org/2004/02/skos/core#"
_XL = "http://www.w3.org/2008/05/skos-xl#"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_DEPRECATED = "http://www.w3.org/2002/07/owl#deprecated"
_REPLACED = "http://purl.org/dc/terms/isReplacedBy"
#: What a preferred, an alternative and a hidden label are called.
_LABELS = dict(zip(("prefLabel", "altLabel", "hiddenLabel"), KINDS, strict=True))
#: Bytes of memory for a byte of RDF at most: STW as N-Triples, which has short strings, takes 2.
_BYTES_PER_BYTE = {"json-ld": 40}
_OTHER_BYTES_PER_BYTE = 6
#: Entities of RDF/XML stand for namespaces: so long, and so many.
_LONGEST_ENTITY = 200
_MOST_ENTITIES = 1000
#: What a JSON-LD context says of a name: an IRI, or a part of one.
_LONGEST_IN_CONTEXT = 2000


def read_skos(path: Path, format: str) -> Vocabulary:
    """The concepts of a SKOS file, in the order of their URIs."""
    rdflib = _import_rdflib()
    content = _read(path, format)
    if format == "xml":
        _check_entities(path, content)
    elif format == "json-ld":
        content = _check_json(path, content)
    gathered = _Gathered()
    with _named_errors(path, format, content), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what rdflib's JSON-LD itself uses
        graph = rdflib.Graph(store=_make_store(gathered), bind_namespaces="none")
        graph.parse(io.BytesIO(content), format=format, publicID=f"file:///{path.name}")
    concepts = gathered.concepts()
    if not concepts:
        raise DataError(f"{path}: a vocabulary must have at least one skos:Concept, but has none")
    return Vocabulary.build(concepts)


def _import_rdflib() -> Any:
    try:
        import rdflib
    except ImportError as error:
        raise MissingExtraError("SKOS needs rdflib. Install it with: pip install 'umpteen[skos]'") from error
    return rdflib


def _read(path: Path, format: str) -> bytes:
    """The whole content, refused as soon as it is too much for the memory."""
    content = bytearray()
    for chunk in read_chunks(path):
        content += chunk
        _check_size(path, len(content), format)
    return bytes(content)


def _check_size(path: Path, size: int, format: str) -> None:
    advice = f"{path}: reduce the vocabulary, or convert it to Annif's TSV or CSV, which are read line by line"
    check_fits(Estimate(size * _BYTES_PER_BYTE.get(format, _OTHER_BYTES_PER_BYTE), 0), advice)


# --- what a file may not ask for -----------------------------------------------------------------------------------


def _check_entities(path: Path, content: bytes) -> None:
    parser = expat.ParserCreate()
    lengths: list[int] = []

    def declare(name: str, is_parameter: bool, value: str | None, base: Any, system: Any, *rest: Any) -> None:
        where = f"{path}:{parser.CurrentLineNumber}: the entity {name!r:.100}"
        if is_parameter:
            raise DataError(f"{where} must be a general one, but is a parameter entity")
        if value is None:
            raise DataError(f"{where} must stand for text in this file, but refers to {system!r:.200}")
        if len(value) > _LONGEST_ENTITY or "&" in value:
            raise DataError(f"{where} must stand for at most {_LONGEST_ENTITY} characters and no other entity")
        lengths.append(len(value))
        if len(lengths) > _MOST_ENTITIES:
            raise DataError(f"{where} is one too many: a file must have at most {_MOST_ENTITIES:,}")

    parser.EntityDeclHandler = declare
    parser.StartElementHandler = lambda *_: _stop()  # entities are declared before the first element
    try:
        parser.Parse(content, True)
    except _Stop:
        pass
    except expat.ExpatError as error:
        raise DataError(f"{path}:{error.lineno}: broken RDF/XML: {expat.ErrorString(error.code)}") from error
    if lengths:
        _check_size(path, len(content) + content.count(b"&") * max(lengths), "xml")


class _Stop(Exception):
    pass


def _stop() -> None:
    raise _Stop


def _check_json(path: Path, content: bytes) -> bytes:
    """The same JSON, as another reader would understand it too, if all its contexts are in the file."""
    try:
        data = json.loads(content)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: broken JSON-LD: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a number of too many digits, nested too deeply
        raise DataError(f"{path}: broken JSON-LD: {error}") from error
    waiting = [(data, False)]  # what is to be looked at, and whether it is in a context
    while waiting:
        item, inside = waiting.pop()
        if isinstance(item, dict):
            if "@import" in item:
                raise DataError(f"{path}: @import is not followed, but the file has {item['@import']!r:.200}")
            for key, value in item.items():
                waiting.append((value, inside or key == "@context"))
                if key == "@context":
                    _refuse_addresses(path, value)
        elif isinstance(item, list):
            waiting += ((value, inside) for value in item)
        elif inside and isinstance(item, str) and len(item) > _LONGEST_IN_CONTEXT:
            raise DataError(
                f"{path}: a text in @context must have at most {_LONGEST_IN_CONTEXT:,} characters, but "
                f"has {len(item):,}"
            )
    return json.dumps(data).encode()


def _refuse_addresses(path: Path, context: Any) -> None:
    """Refuses a context that is an address, in lists of lists too."""
    waiting = [context]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            raise DataError(f"{path}: @context must be in the file itself, but is the address {item!r:.200}")
        if isinstance(item, list):
            waiting += item


@contextmanager
def _named_errors(path: Path, format: str, content: bytes) -> Iterator[None]:
    """Errors of rdflib as ours, with the line where one is known."""
    try:
        yield
    except (DataError, MemoryError):
        raise
    except SAXParseException as error:
        raise DataError(f"{path}:{error.getLineNumber()}: broken RDF/XML: {error.getMessage()}") from error
    except RecursionError as error:
        raise DataError(f"{path}: is nested too deeply") from error
    except Exception as error:  # rdflib raises many kinds, among them plain Exception and AssertionError
        line = _find_line(error, format, content)
        what = re.sub(r"\s+", " ", str(getattr(error, "message", "") or error))
        where = f"{path}:{line}" if line else f"{path}"
        raise DataError(f"{where}: broken {_FORMATS[format]}: {_reason(what):.200}") from error


_FORMATS = {"turtle": "Turtle", "xml": "RDF/XML", "json-ld": "JSON-LD", "nt": "N-Triples"}


def _reason(message: str) -> str:
    """The reason in a message of rdflib's Turtle parser, which also quotes the file."""
    found = re.search(r"Bad syntax \((.*?)\) at \^ in", message)
    return found[1] if found else message


def _find_line(error: Exception, format: str, content: bytes) -> int | None:
    lines = getattr(error, "lines", None)
    step = error.__traceback__
    while step is not None and format == "turtle" and not isinstance(lines, int):
        lines = getattr(step.tb_frame.f_locals.get("self"), "lines", None)  # where its parser stood when it failed
        step = step.tb_next
    if isinstance(lines, int):
        return lines + 1
    if format != "nt":
        return None
    from rdflib.plugins.parsers.ntriples import W3CNTriplesParser

    for number, line in enumerate(content.splitlines(), 1):
        try:
            W3CNTriplesParser().parsestring(line + b"\n")
        except Exception:
            return number
    return None


# --- what is kept ---------------------------------------------------------------------------------------------------


class _Gathered:
    """What has been said of each resource so far."""

    def __init__(self) -> None:
        self.typed: dict[str, None] = {}
        self.terms: dict[str, dict[Term, None]] = {}
        self.notations: dict[str, list[str]] = {}
        self.links: dict[str, dict[str, list[str]]] = {"broader": {}, "related": {}}
        self.deprecated: set[str] = set()
        self.replaced: dict[str, list[str]] = {}
        self.forms: dict[str, tuple[str, str]] = {}  # labels that are resources of their own (SKOS-XL)
        self.indirect: list[tuple[str, str, str]] = []
        self._kept = self._handlers()

    def add(self, subject: Any, predicate: Any, value: Any) -> None:
        handler = self._kept.get(str(predicate))
        if handler is not None and (_is_named(subject) or handler != self._add_type):
            handler(str(subject), value)

    def _handlers(self) -> dict[str, Callable[[str, Any], None]]:
        handlers: dict[str, Callable[[str, Any], None]] = {
            _TYPE: self._add_type,
            _DEPRECATED: lambda s, o: self.deprecated.add(s) if str(o).lower() in ("true", "1") else None,
            _REPLACED: lambda s, o: self.replaced.setdefault(s, []).append(str(o)),
            f"{_SKOS}notation": lambda s, o: self.notations.setdefault(s, []).append(str(o)),
            f"{_SKOS}broader": lambda s, o: self._link("broader", s, str(o)),
            f"{_SKOS}narrower": lambda s, o: self._link("broader", str(o), s),
            f"{_SKOS}related": self._relate,
            f"{_XL}literalForm": lambda s, o: self.forms.__setitem__(
                s, (str(o), str(getattr(o, "language", "") or ""))
            ),
        }
        for label, kind in _LABELS.items():
            handlers[_SKOS + label] = lambda s, o, kind=kind: self._add_term(  # type: ignore[misc]
                s, str(o), str(getattr(o, "language", None) or ""), kind
            )
            handlers[_XL + label] = lambda s, o, kind=kind: self.indirect.append((s, str(o), kind))  # type: ignore[misc]
        return handlers

    def _add_type(self, subject: str, value: Any) -> None:
        if str(value) == f"{_SKOS}Concept":
            self.typed[subject] = None

    def _add_term(self, subject: str, text: str, language: str, kind: str) -> None:
        if text := text.strip():
            self.terms.setdefault(subject, {})[Term(text, language, kind)] = None

    def _link(self, key: str, subject: str, other: str) -> None:
        self.links[key].setdefault(subject, []).append(other)

    def _relate(self, subject: str, value: Any) -> None:
        self._link("related", subject, str(value))
        self._link("related", str(value), subject)

    def concepts(self) -> list[Concept]:
        for subject, label, kind in self.indirect:
            if label in self.forms:
                self._add_term(subject, *self.forms[label], kind)
        return [
            Concept(
                uri,
                sorted(self.terms.get(uri, ()), key=lambda term: (KINDS.index(term.kind), term.language, term.text)),
                min(self.notations.get(uri, [""])),
                self.links["broader"].get(uri, ()),
                self.links["related"].get(uri, ()),
                min(self.replaced.get(uri, [""])),
                uri in self.deprecated,
            )
            for uri in sorted(self.typed)
        ]


def _is_named(resource: Any) -> bool:
    """Whether a resource has a URI: one without has another number each time it is read, so it is no concept."""
    from rdflib import URIRef

    return isinstance(resource, URIRef)


def _make_store(gathered: _Gathered) -> Any:
    from rdflib.plugins.stores.memory import Memory

    class Store(Memory):  # type: ignore[misc]  # a class of no type where rdflib is skipped
        """Passes on what is added and keeps none of it."""

        def add(self, triple: Any, context: Any = None, quoted: bool = False) -> None:
            gathered.add(*triple)

    return Store()
