"""Vocabularies: every format read alike, real ones as rdflib itself reads them, and hostile files refused."""

from __future__ import annotations

import io
import json
import lzma
import socket
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import umpteen
from umpteen.errors import DataError, MemoryLimitError, MissingExtraError, ModelCorruptError, ParamError
from umpteen.storage.store import Part
from umpteen.vocabulary.concepts import KINDS, Concept, Term, Vocabulary

from .conftest import data_root

SKOS = "http://www.w3.org/2004/02/skos/core#"
TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix e: <http://ex.org/> .
e:1 a skos:Concept ; skos:prefLabel "fish"@en, "kala"@fi ; skos:altLabel "fishes"@en ; skos:notation "QL6" .
e:2 a skos:Concept ; skos:prefLabel "cod"@en ; skos:hiddenLabel "codd"@en ; skos:broader e:1 ; skos:related e:3 .
e:3 a skos:Concept ; skos:prefLabel "sea"@en, "meri"@fi ; skos:notation "GC" .
e:4 a skos:Concept ; skos:prefLabel "ocean"@en ; owl:deprecated true ; dct:isReplacedBy e:3 .
[] a skos:Concept ; skos:prefLabel "nameless"@en .
e:group skos:prefLabel "not a concept"@en .
"""


def write(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def real(*names):
    path = data_root().joinpath(*names)
    if not path.exists():
        pytest.skip(f"no {path}; set UMPTEEN_DATA to run this test")
    return path


def everything(vocabulary):
    """All there is in a vocabulary, as plain values."""
    return [
        (
            vocabulary.uris[i],
            sorted(vocabulary.terms(i)),
            vocabulary.notations[i],
            vocabulary.broader(i),
            vocabulary.related(i),
            bool(vocabulary.deprecated[i]),
            int(vocabulary.replaced_by[i]),
        )
        for i in range(len(vocabulary))
    ]


def small():
    def concept(number, *names, **more):
        return Concept(f"http://ex.org/{number}", [Term(*name) for name in names], **more)

    return Vocabulary.build([
        concept(1, ("fish", "en", "preferred"), ("kala", "fi", "preferred"), ("fishes", "en", "alternative"),
                notation="QL6"),
        concept(2, ("cod", "en", "preferred"), ("codd", "en", "hidden"), broader=["http://ex.org/1"],
                related=["http://ex.org/3"]),
        concept(3, ("sea", "en", "preferred"), ("meri", "fi", "preferred"), notation="GC",
                related=["http://ex.org/2"]),
        concept(4, ("ocean", "en", "preferred"), deprecated=True, replaced_by="http://ex.org/3"),
    ])  # fmt: skip


# --- formats -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "format"), [("ttl", "turtle"), ("rdf", "pretty-xml"), ("nt", "nt"), ("jsonld", "json-ld")]
)
def test_every_syntax_of_skos_is_read_alike(tmp_path, suffix, format):
    rdflib = pytest.importorskip("rdflib")
    content = rdflib.Graph().parse(io.StringIO(TURTLE), format="turtle").serialize(format=format)
    vocabulary = umpteen.read_vocabulary(write(tmp_path, lzma.compress(content.encode()), f"v.{suffix}.xz"))
    assert everything(vocabulary) == everything(small())


def test_names_neighbours_and_languages(tmp_path):
    vocabulary = small().in_language("en")
    assert [vocabulary.name(i) for i in range(4)] == ["fish", "cod", "sea", "ocean"]
    assert [vocabulary.name(i, "fi") for i in range(4)] == [
        "kala",
        "cod",
        "meri",
        "ocean",
    ]  # English where no Finnish
    assert vocabulary.narrower(0) == [1]
    assert vocabulary.ancestors(1) == [0]
    assert vocabulary.narrower(1) == []
    assert vocabulary.languages == ["en", "fi"]
    with pytest.raises(ParamError, match="language must be one of the vocabulary's, en, fi, but is 'de'"):
        vocabulary.in_language("de")
    with pytest.raises(ParamError, match="a concept's number must be in"):
        vocabulary.terms(4)


def test_a_region_is_part_of_its_language(tmp_path):
    path = write(tmp_path, "uri,label_en-gb,label_fi\nu:1,colour,väri\n", "v.csv")
    vocabulary = umpteen.read_vocabulary(path, language="en")
    assert vocabulary.name(0) == "colour"
    assert vocabulary.name(0, "fi") == "väri"


def test_concepts_are_found_by_uri_notation_and_name():
    vocabulary = small().in_language("en")
    found = {
        label: vocabulary.find(label)
        for label in ("http://ex.org/2", "<http://ex.org/2>", "GC", "kala", "FISHES", "codd")
    }
    assert list(found.values()) == [1, 1, 2, 0, 0, 1]
    with pytest.raises(DataError, match="'fisch' is not in the vocabulary; did you mean 'fish'"):
        vocabulary.find("fisch")


def test_one_name_of_two_concepts_is_told_apart():
    def bank(uri, **more):
        return Concept(uri, [Term("bank", "en", "preferred")], **more)

    vocabulary = Vocabulary.build(
        [bank("http://ex.org/a#7"), bank("http://ex.org/b", notation="HG"), bank("u:old", deprecated=True)]
    )
    assert vocabulary.names() == ["bank (7)", "bank (HG)", "bank (u:old)"]
    assert [vocabulary.find(name) for name in vocabulary.names()] == [0, 1, 2]
    with pytest.raises(
        DataError, match="'bank' is the name of 2 concepts; use a URI instead: http://ex.org/a#7, http"
    ):
        vocabulary.find("bank")


def test_the_own_language_comes_before_others():
    gift = Concept("u:gift", [Term("gift", "en", "preferred"), Term("Geschenk", "de", "preferred")])
    poison = Concept("u:poison", [Term("poison", "en", "preferred"), Term("gift", "de", "preferred")])
    vocabulary = Vocabulary.build([gift, poison])
    assert vocabulary.in_language("en").find("gift") == 0
    assert vocabulary.in_language("de").find("gift") == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "a (0)", "a (1)", "a (x)"]), st.sampled_from(["", "x", "1"])),
        min_size=1,
        max_size=8,
    )
)
def test_names_always_differ(pairs):
    vocabulary = Vocabulary.build([Concept("", [Term(name, "", "preferred")], notation) for name, notation in pairs])
    assert len(set(vocabulary.names())) == len(pairs)


def test_very_many_concepts_may_share_a_name():
    n = 20_000  # the numbers that would tell the first half apart are names of the second
    names = ["x"] * n + [f"x ({n + i})" for i in range(n)]
    names[1] = names[2] = "y"
    vocabulary = Vocabulary.build([Concept("", [Term(name, "", "preferred")]) for name in names])
    began = time.process_time()
    found = vocabulary.names()
    assert time.process_time() - began < 5  # a look at every number for every concept takes a minute
    assert [found[0], found[1], found[2], found[n - 1]] == ["x (0)", "y (1)", "y (2)", f"x ({n - 1})"]
    shifted = Vocabulary.build([Concept("", [Term(name, "", "preferred")]) for name in ["z", *names[n:], *names[:n]]])
    began = time.process_time()
    assert len(set(shifted.names())) == 2 * n + 1
    assert time.process_time() - began < 5


def test_cycles_are_found_and_walked_once():
    def concept(i, *broader):
        return Concept(f"u:{i}", [Term(str(i), "", "preferred")], broader=[f"u:{other}" for other in broader])

    vocabulary = Vocabulary.build([concept(0, 1), concept(1, 2), concept(2, 0), concept(3, 0), concept(4, 4)])
    assert vocabulary.cycles() == [0, 1, 2]
    assert vocabulary.ancestors(3) == [0, 1, 2]
    assert vocabulary.broader(4) == []  # nothing is above itself


def test_search_looks_at_every_language():
    vocabulary = small()
    assert [(i, term.text) for i, term in vocabulary.search("mer")] == [(2, "meri")]
    assert [i for i, _ in vocabulary.search("fish")] == [0]
    assert vocabulary.search("zzzz") == []


# --- Annif's files and lists ---------------------------------------------------------------------------------------


def test_annif_csv_tsv_and_lists(tmp_path):
    csv = umpteen.read_vocabulary(
        write(tmp_path, 'uri,notation,label_en,label_fi\nu:1,Q,"fish, raw",kala\nu:2,,sea,\n', "v.csv")
    )
    assert everything(csv)[0][:3] == ("u:1", [("fish, raw", "en", "preferred"), ("kala", "fi", "preferred")], "Q")
    tsv = umpteen.read_vocabulary(write(tmp_path, "<u:1>\tfish\tQ\n<u:2>\tsea\n\n", "v.tsv"), language="en")
    assert [row[:3] for row in everything(tsv)] == [
        ("u:1", [("fish", "en", "preferred")], "Q"),
        ("u:2", [("sea", "en", "preferred")], ""),
    ]
    plain = umpteen.read_vocabulary(write(tmp_path, "\ufefffish\nsea\r\n\n", "v.txt"))
    assert plain.names() == ["fish", "sea"]
    assert list(plain.uris) == ["", ""]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_as_spreadsheets_write_them(tmp_path, encoding, delimiter):
    lines = ("uri,notation,label_en", 'u:1,A,"crème; fraîche, raw"', "u:2,B,tea", "")
    content = "\r\n".join(lines).replace(",", delimiter)
    plain = umpteen.read_vocabulary(write(tmp_path, content.encode(encoding), "v.csv"), language="en")
    assert plain.names() == [lines[1].split('"')[1].replace(",", delimiter), "tea"]
    assert list(plain.notations) == ["A", "B"]
    named = umpteen.read_vocabulary(write(tmp_path, f"sep={delimiter}\r\n{content}".encode(encoding), "v.csv"))
    assert list(named.uris) == ["u:1", "u:2"]
    with pytest.raises(DataError, match=r"v\.csv:4: URIs must differ"):
        umpteen.read_vocabulary(
            write(tmp_path, f"{content}u:2{delimiter}C{delimiter}coffee".encode(encoding), "v.csv")
        )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.tsv", "<u:1>\tfish\nonly\n", r"v\.tsv:2: a line must have a URI, a name"),
        ("v.tsv", "<u:1>\tfish\n<u:1>\tcod\n", r"v\.tsv:2: URIs must differ, but 'u:1' is also in line 1"),
        ("v.tsv", "<u 1>\tfish\n", r"v\.tsv:1: a URI must have no white space"),
        ("v.csv", "url,label_en\nu:1,fish\n", r"v\.csv:1: the first line must name a column uri.*did you mean 'url'"),
        ("v.csv", "uri,name\nu:1,fish\n", r"v\.csv:1: the first line must name columns such as label_en"),
        ("v.csv", "uri,label_en\nu:1\n", r"v\.csv:2: a line must have 2 fields, but has 1"),
        ("v.txt", "fish\nsea\nfish\n", r"v\.txt:3: names must differ, but 'fish' is also in line 1"),
        ("v.txt", "\n\n", r"v\.txt: a vocabulary must have at least one concept"),
        ("v.txt", "é\nö\nfi".encode() + b"\xffsh\n", r"v\.txt:3: text must be UTF-8"),
        ("v.csv", b"PK\x03\x04", r"v\.csv: .* this is an Excel file"),
        ("v.csv", "uri,label_en\nu:1," + "x" * 200_000, r"v\.csv:2: field larger than field limit"),
    ],
)
def test_broken_tables_are_refused_with_file_and_line(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message):
        umpteen.read_vocabulary(write(tmp_path, content, name))


def test_names_of_files_and_languages_are_checked(tmp_path):
    with pytest.raises(ParamError, match=r"must end in one of \.tsv, \.csv.*but ends in '.doc'"):
        umpteen.read_vocabulary(tmp_path / "v.doc")
    with pytest.raises(ParamError, match="language must be a code such as 'en'"):
        umpteen.read_vocabulary(write(tmp_path, "fish\n", "v.txt"), language="English please")
    with pytest.raises(FileNotFoundError):
        umpteen.read_vocabulary(tmp_path / "v.ttl")


def test_skos_without_rdflib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rdflib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'umpteen\[skos\]'"):
        umpteen.read_vocabulary(write(tmp_path, TURTLE, "v.ttl"))


# --- real vocabularies ---------------------------------------------------------------------------------------------


def as_rdflib_reads(path, format):
    """The slow twin: a whole graph, asked for each concept."""
    rdflib = pytest.importorskip("rdflib")
    content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    graph = rdflib.Graph().parse(io.BytesIO(content), format=format)
    skos = rdflib.Namespace(SKOS)
    uris = sorted(str(s) for s in set(graph.subjects(rdflib.RDF.type, skos.Concept)))
    numbers = {uri: i for i, uri in enumerate(uris)}
    labels = (skos.prefLabel, skos.altLabel, skos.hiddenLabel)
    rows = []
    for i, uri in enumerate(uris):
        s = rdflib.URIRef(uri)

        def linked(*predicates, back, s=s, i=i):
            found = {o for p in predicates for o in graph.objects(s, p)} | set(graph.subjects(back, s))
            return sorted({numbers[str(o)] for o in found if str(o) in numbers} - {i})

        terms = sorted(
            {
                (str(o).strip(), o.language or "", kind)
                for p, kind in zip(labels, KINDS, strict=True)
                for o in graph.objects(s, p)
            }
        )
        rows.append((
            uri, terms, min((str(o) for o in graph.objects(s, skos.notation)), default=""),
            linked(skos.broader, back=skos.narrower), linked(skos.related, back=skos.related),
            (s, rdflib.OWL.deprecated, rdflib.Literal(True)) in graph,
            numbers.get(min((str(o) for o in graph.objects(s, rdflib.DCTERMS.isReplacedBy)), default=""), -1),
        ))  # fmt: skip
    return rows


@pytest.mark.parametrize(("name", "format"), [("yso-archaeology.ttl", "turtle"), ("yso-archaeology.rdf", "xml")])
def test_a_piece_of_yso_as_rdflib_reads_it(name, format):
    path = real("Annif-Archaeology", name)
    assert everything(umpteen.read_vocabulary(path)) == as_rdflib_reads(path, format)


@pytest.mark.slow
def test_stw_as_rdflib_reads_it():
    path = real("STW-Thesaurus", "stw-skos.ttl.xz")
    vocabulary = umpteen.read_vocabulary(path, language="en")
    assert everything(vocabulary) == as_rdflib_reads(path, "turtle")
    assert len(vocabulary) == 6244
    assert vocabulary.languages == ["de", "en"]
    assert vocabulary.cycles() == []
    tax = vocabulary.find("Tax")
    assert vocabulary.name(tax, "de") == "Steuer"
    assert vocabulary.find("STEUER") == tax


def test_subjects_as_annif_writes_them():
    tsv = umpteen.read_vocabulary(real("Annif-Archaeology", "subjects.tsv"), language="fi")
    csv = umpteen.read_vocabulary(real("Annif-Archaeology", "subjects.csv"))
    skos = umpteen.read_vocabulary(real("Annif-Archaeology", "yso-archaeology.ttl"), language="fi")
    assert everything(tsv) == everything(csv)
    assert len(tsv) == 125
    assert all(skos.name(skos.find(uri)) == tsv.name(i) for i, uri in enumerate(tsv.uris))


def test_every_label_of_the_titles_is_found_in_yso():
    vocabulary = umpteen.read_vocabulary(real("YSO-Finna-EN", "vocabulary.tsv.xz"), language="en")
    with lzma.open(real("YSO-Finna-EN", "test.jsonl.xz"), "rt") as lines:
        labels = {label for line in lines for label in json.loads(line)["labels"]}
    found = {label: vocabulary.find(label) for label in labels}
    assert len(vocabulary) == 27_754
    assert len(set(found.values())) == len(labels) > 15_000
    assert sum(array.nbytes for array in vocabulary.to_part().arrays.values()) < 6_000_000


# --- hostile files -------------------------------------------------------------------------------------------------


@pytest.fixture
def no_network(monkeypatch):
    """Fails on any connection, and on a file that is opened by address."""

    def refuse(*_, **__):
        raise AssertionError("a vocabulary must not connect to anything")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("rdflib.parser._urlopen", refuse)


def rdf(doctype, label="&x;"):
    return (
        f'<?xml version="1.0"?>\n{doctype}\n<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
        f'xmlns:skos="{SKOS}"><skos:Concept rdf:about="u:1"><skos:prefLabel>{label}</skos:prefLabel>'
        "</skos:Concept></rdf:RDF>\n"
    )


LAUGHS = "".join('<!ENTITY l{} "{}">\n'.format(i, f"&l{i - 1};" * 10) for i in range(1, 10))
MANY = "".join(f'<!ENTITY e{i} "a">' for i in range(1001))


@pytest.mark.parametrize(
    ("doctype", "label", "message"),
    [
        ('<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>', "&x;", "refers to 'file:///etc/passwd'"),
        ('<!DOCTYPE r [<!ENTITY x SYSTEM "http://127.0.0.1:9/x">]>', "&x;", "refers to 'http://127.0.0.1:9/x'"),
        (
            f'<!DOCTYPE r [<!ENTITY l0 "lol">\n{LAUGHS}]>',
            "&l9;",
            r"v\.rdf:3: the entity 'l1' must stand for at most 200",
        ),
        (f'<!DOCTYPE r [<!ENTITY x "{"a" * 100_000}">]>', "&x;" * 1000, "must stand for at most 200 characters"),
        ('<!DOCTYPE r [<!ENTITY % p SYSTEM "http://127.0.0.1:9/p"> %p;]>', "fish", "is a parameter entity"),
        ("<!DOCTYPE r [<!ENTITY % p \"<!ENTITY x 'y'>\"> %p;]>", "&x;", "is a parameter entity"),
        (f"<!DOCTYPE r [{MANY}]>", "&e1;", "is one too many"),
        ("", "&x;", r"v\.rdf:3: broken RDF/XML: undefined entity"),
    ],
)
def test_entities_are_not_followed(tmp_path, no_network, doctype, label, message):
    with pytest.raises(DataError, match=message):
        umpteen.read_vocabulary(write(tmp_path, rdf(doctype, label), "v.rdf"))


def test_entities_for_namespaces_are_read_and_a_foreign_dtd_is_not(tmp_path, no_network):
    doctype = '<!DOCTYPE r SYSTEM "http://127.0.0.1:9/r.dtd" [<!ENTITY x "fish">]>'
    assert umpteen.read_vocabulary(write(tmp_path, rdf(doctype), "v.rdf")).names() == ["fish"]


def test_entities_count_as_memory(tmp_path, monkeypatch):
    path = write(tmp_path, rdf(f'<!DOCTYPE r [<!ENTITY x "{"a" * 200}">]>', "&x;" * 20_000), "v.rdf")
    monkeypatch.setattr("umpteen.memory.available_memory", lambda: 10_000_000)
    with pytest.raises(MemoryLimitError, match=r"would need 24\.\d MB"):
        umpteen.read_vocabulary(path)


CONCEPT = {"@id": "u:1", "@type": f"{SKOS}Concept", f"{SKOS}prefLabel": "fish"}
REMOTE = "http://127.0.0.1:9/context.jsonld"


@pytest.mark.parametrize(
    "data",
    [
        {"@context": REMOTE, **CONCEPT},
        {"@context": [[REMOTE]], **CONCEPT},
        {"@context": {"@context": REMOTE}, **CONCEPT},
        {"@context": {"skos": {"@id": SKOS, "@context": [{}, REMOTE]}}, **CONCEPT},
        {"@context": {"@import": REMOTE}, **CONCEPT},
        {"@graph": [CONCEPT, {"@context": "file:///etc/passwd"}]},
        {"@graph": [{"x": [{"@context": [None, [["context.jsonld"]]]}]}]},
    ],
)
def test_contexts_are_not_fetched(tmp_path, no_network, data):
    with pytest.raises(DataError, match=r"@context must be in the file itself|@import is not followed"):
        umpteen.read_vocabulary(write(tmp_path, json.dumps(data), "v.jsonld"))


def test_a_context_in_the_file_is_used(tmp_path, no_network):
    data = {
        "@context": {"skos": SKOS, "name": {"@id": "skos:prefLabel", "@language": "en"}},
        "@id": "u:1",
        "@type": "skos:Concept",
        "name": "fish",
    }
    vocabulary = umpteen.read_vocabulary(write(tmp_path, json.dumps(data), "v.jsonld"))
    assert vocabulary.terms(0) == [("fish", "en", "preferred")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.ttl", TURTLE + 'e:5 a skos:Concept ; skos:prefLabel "cut', r"v\.ttl:11: broken Turtle"),
        ("v.ttl", "@prefix e: <http://ex.org/> .\ne:1 x:y e:2 .\n", r"v\.ttl:2: broken Turtle"),
        ("v.nt", "<u:1> <u:2> <u:3> .\n<u:1> <u:2> oops .\n", r"v\.nt:2: broken N-Triples"),
        ("v.rdf", "<rdf>\n<a></b></rdf>", r"v\.rdf:2: broken RDF/XML: mismatched tag"),
        ("v.jsonld", '{"@id":\n oops}', r"v\.jsonld:2: broken JSON-LD"),
        ("v.jsonld", '{"a":' * 100_000, r"v\.jsonld: broken JSON-LD"),
        ("v.jsonld", json.dumps({"@context": {"a": "b:" + "x" * 9000}}), "at most 2,000 characters, but has 9,002"),
        ("v.jsonld", json.dumps({"@context": {"a": "b:x", "b": "a:x"}, **CONCEPT, "a:c": 1}), "nested too deeply"),
        ("v.ttl", "@prefix e: <http://ex.org/> .\ne:1 e:2 " + "(" * 100_000, r"v\.ttl: is nested too deeply"),
        ("v.ttl", "@prefix e: <http://ex.org/> .\ne:1 e:2 e:3 .\n", r"v\.ttl: .* at least one skos:Concept"),
        ("v.ttl", b"\xff\xfe\x00", r"v\.ttl.*: broken Turtle"),
        ("v.ttl", "", r"at least one skos:Concept"),
    ],
)  # fmt: skip
def test_broken_skos_is_refused_with_file_and_line(tmp_path, no_network, name, content, message):
    with pytest.raises(DataError, match=message):
        umpteen.read_vocabulary(write(tmp_path, content, name))


def test_a_vocabulary_beyond_the_memory_is_refused_with_a_number(tmp_path, monkeypatch):
    path = write(tmp_path, lzma.compress(b"# nothing\n" * 1_000_000), "v.ttl.xz")
    monkeypatch.setattr("umpteen.memory.available_memory", lambda: 30_000_000)
    with pytest.raises(
        MemoryLimitError, match=r"would need \d+\.?\d* MB of memory, but only 30\.0 MB.*convert it to Annif's TSV"
    ):
        umpteen.read_vocabulary(path)


# --- writing and keeping -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v.ttl", "v.nt", "v.nt.gz"])
def test_what_is_written_as_skos_is_read_again(tmp_path, name):
    odd = Concept(
        "u:odd", [Term('a "quoted" \\ and\nbroken line\t', "en", "preferred"), Term("ümlaut 🐟", "", "hidden")]
    )
    vocabulary = Vocabulary.build([*_concepts(small()), odd])
    umpteen.write_vocabulary(vocabulary, tmp_path / name)
    again = everything(umpteen.read_vocabulary(tmp_path / name))
    expected = everything(vocabulary)
    expected[4][1][0] = (expected[4][1][0][0].strip(), "en", "preferred")  # spaces around a name do not count
    assert again == expected


def _concepts(vocabulary):
    uris = vocabulary.uris
    for uri, terms, notation, broader, related, deprecated, other in everything(vocabulary):
        yield Concept(
            uri, terms, notation, [uris[i] for i in broader], [uris[i] for i in related],
            uris[other] if other >= 0 else "", deprecated,
        )  # fmt: skip


@pytest.mark.parametrize("name", ["v.csv", "v.tsv"])
def test_what_is_written_for_annif_is_read_again(tmp_path, name):
    vocabulary = small().in_language("en")
    umpteen.write_vocabulary(vocabulary, tmp_path / name)
    again = umpteen.read_vocabulary(tmp_path / name, language="en")
    assert again.names() == vocabulary.names()
    assert list(again.uris) == list(vocabulary.uris)
    assert list(again.notations) == list(vocabulary.notations)
    assert (again.name(0, "fi") == "kala") == (name == "v.csv")  # a TSV has one language


def test_lists_are_written_and_need_no_uris(tmp_path):
    plain = Vocabulary.build([Concept("", [Term("fish", "", "preferred")])])
    umpteen.write_vocabulary(plain, tmp_path / "v.txt")
    assert umpteen.read_vocabulary(tmp_path / "v.txt").names() == ["fish"]
    with pytest.raises(DataError, match="SKOS needs a URI for each concept, but one is ''"):
        umpteen.write_vocabulary(plain, tmp_path / "v.nt")
    assert not (tmp_path / "v.nt").exists()
    with pytest.raises(ParamError, match="must end in one of"):
        umpteen.write_vocabulary(plain, tmp_path / "v.xlsx")


def test_a_part_gives_the_same_vocabulary():
    vocabulary = small().in_language("fi")
    again = Vocabulary.from_part(vocabulary.to_part())
    assert everything(again) == everything(vocabulary)
    assert again.language == "fi"
    assert again.narrower(0) == [1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("term_ends", np.array([3, 2, 7, 8], np.int64)),
        ("term_ends", np.array([3, 5, 7, 9], np.int64)),
        ("broader", np.array([9], np.int32)),
        ("related", np.array([-1, 1], np.int32)),
        ("replaced_by", np.array([-2, 0, 0, 0], np.int32)),
        ("term_kinds", np.full(8, 3, np.uint8)),
        ("term_languages", np.full(8, 2, np.uint16)),
        ("deprecated", np.zeros(3, np.uint8)),
        ("uris_text_ends", np.array([1, 2], np.int64)),
    ],
)
def test_a_damaged_part_is_refused(key, value):
    part = small().to_part()
    assert key in part.arrays
    with pytest.raises(ModelCorruptError):
        Vocabulary.from_part(Part({**part.arrays, key: value}, part.scalars))


@pytest.mark.parametrize(
    "scalars",
    [
        {},
        {"languages": ["en", 3], "language": ""},
        {"languages": "en", "language": ""},
        {"languages": ["en", "fi"], "language": 1},
    ],
)
def test_damaged_languages_are_refused(scalars):
    with pytest.raises(ModelCorruptError):
        Vocabulary.from_part(Part(small().to_part().arrays, scalars))


@pytest.mark.parametrize("name", ["v.txt", "v.tsv", "v.csv"])
def test_a_table_beyond_the_memory_is_refused_at_a_line(tmp_path, monkeypatch, name):
    line = {"v.txt": "n{0}\n", "v.tsv": "u:{0}\tn{0}\n", "v.csv": "u:{0},n{0}\n"}[name]
    header = "uri,label_en\n" if name == "v.csv" else ""
    path = write(tmp_path, header + "".join(line.format(i) for i in range(50_000)), name)
    assert len(umpteen.read_vocabulary(path)) == 50_000
    monkeypatch.setattr("umpteen.memory.available_memory", lambda: 20_000_000)
    wanted = rf"would need \d+\.?\d* MB of memory, but only 20\.0 MB is available; .*{name}:40000: reduce the voc"
    with pytest.raises(MemoryLimitError, match=wanted):
        umpteen.read_vocabulary(path)
