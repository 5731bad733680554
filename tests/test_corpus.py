"""Corpora: every shape read alike, and what is wrong refused with file, line and field."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import umpteen
from umpteen.errors import DataError, MissingExtraError, ParamError

from .conftest import data_root

ROWS = [("Herring quotas", ["fish", "law"]), ('Says "hi",\nthen naïve tea', ["tea"]), ("Untagged", [])]
TEXTS, LABELS = [text for text, _ in ROWS], [labels for _, labels in ROWS]


def write(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(source, **options):
    corpus = umpteen.read_corpus(source, **options)
    assert [tuple(record) for record in umpteen.iter_corpus(source, **options)] == list(
        zip(corpus.texts, corpus.labels, strict=True)
    )
    return corpus


def jsonl(rows=ROWS):
    return "".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows)


def table(tmp_path, name, delimiter):
    path = tmp_path / name
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["id", "labels", "text"])
        writer.writerows([i, "; ".join(labels), text] for i, (text, labels) in enumerate(ROWS))
    return path


# --- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda content: zstandard.ZstdCompressor().compress(content)),
    ],
)
def test_jsonl_plain_and_compressed(tmp_path, suffix, compress):
    corpus = read(write(tmp_path, compress(jsonl().encode()), f"a.jsonl{suffix}"))
    assert (corpus.texts, corpus.labels, len(corpus)) == (TEXTS, LABELS, 3)
    assert repr(corpus) == "Corpus(n_rows=3, n_labels=3)"


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t")])
def test_tables_with_a_header(tmp_path, name, delimiter):
    corpus = read(table(tmp_path, name, delimiter), label_delimiter=";")
    assert (corpus.texts, corpus.labels) == (TEXTS, LABELS)


def test_csv_takes_windows_lines_marks_and_long_fields(tmp_path):
    long = "word " * 100_000  # more than the csv module takes by itself
    path = write(tmp_path, f'\ufefftext,labels\r\n"{long}",a b\r\n\r\nshort,\r\n', "a.csv")
    limit = csv.field_size_limit()
    corpus = read(path, label_delimiter=" ")
    assert (corpus.texts, corpus.labels) == ([long, "short"], [["a", "b"], []])
    assert csv.field_size_limit() == limit


def test_several_text_fields_are_joined(tmp_path):
    content = '{"title": "A", "body": "B", "tags": "x|y|x"}\n\n{"title": "C", "body": null, "tags": null}\n'
    path = write(tmp_path, content, "a.ndjson")
    corpus = read(path, text=["title", "body"], labels="tags", label_delimiter="|")
    assert (corpus.texts, corpus.labels) == (["A\nB", "C"], [["x", "y"], []])
    assert read(path, text="title", labels=None).labels == [[], []]


def test_annif_shapes(tmp_path):
    uris = [["http://ex.org/fish", "http://ex.org/law"], ["http://ex.org/tea"], []]
    short = "".join(f"{i} text\t{' '.join(f'<{u}>' for u in row)}\n" for i, row in enumerate(uris))
    for path in (
        write(tmp_path, short, "a.tsv"),
        write(tmp_path, gzip.compress(short.encode()), "a.tsv.gz"),
    ):
        corpus = read(path)
        assert (corpus.texts, corpus.labels) == (["0 text", "1 text", "2 text"], uris)
    assert read(write(tmp_path, short, "a.txt"), format="annif-tsv").labels == uris
    table = "document_id,text,subject_uris\n" + "".join(
        f"{i},{i} text,{' '.join(f'<{u}>' for u in row)}\n" for i, row in enumerate(uris)
    )
    assert read(write(tmp_path, table, "a.csv")).labels == uris
    documents = [
        {
            "document_id": i,
            "text": f"{i} text",
            "metadata": {"title": "T"},
            "subjects": [{"uri": u, "label": "name"} for u in row],
        }
        for i, row in enumerate(uris)
    ]
    documents[1]["subjects"] = [{"uri": None, "label": "tea"}]
    corpus = read(write(tmp_path, "".join(json.dumps(d) + "\n" for d in documents), "a.jsonl"))
    assert corpus.labels == [uris[0], ["tea"], []]


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"text": TEXTS, "labels": LABELS, "other": [1, 2, 3]}), path, row_group_size=2)
    corpus = read(path)
    assert (corpus.texts, corpus.labels) == (TEXTS, LABELS)
    with pytest.raises(
        DataError, match=r"a.parquet: there must be a column 'tags', but the columns are 'text', 'lab"
    ):
        read(path, labels="tags")
    with pytest.raises(DataError, match=r"a.parquet: row 0: other must be a list of strings or a string, but is 1"):
        read(path, labels="other")
    with pytest.raises(DataError, match=r"b.parquet: not readable Parquet"):
        read(write(tmp_path, "nothing of the kind", "b.parquet"))
    with pytest.raises(FileNotFoundError, match="c.parquet"):
        read(tmp_path / "c.parquet")


@pytest.mark.process
def test_parquet_without_pyarrow_is_refused_politely(tmp_path):
    code = (
        "import sys; sys.modules['pyarrow'] = None; import umpteen\n"
        "try: umpteen.read_corpus('a.parquet')\nexcept umpteen.errors.MissingExtraError as e: print(e)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "reading Parquet needs pyarrow. Install it with: pip install 'umpteen[parquet]'\n"
    assert issubclass(MissingExtraError, ImportError)


# --- objects in memory ------------------------------------------------------------------------------------------

FRAMES = {
    "pandas": lambda: pd.DataFrame({"n": [1, 2, 3], "text": TEXTS, "labels": LABELS}, index=[5, 5, 7]),
    "pandas arrays": lambda: pd.DataFrame({"text": TEXTS, "labels": [np.array(row, object) for row in LABELS]}),
    "polars": lambda: pl.DataFrame({"text": TEXTS, "labels": LABELS}),
    "arrow table": lambda: pa.table({"labels": LABELS, "text": TEXTS}),
    "arrow batch": lambda: pa.RecordBatch.from_pydict({"labels": LABELS, "text": TEXTS}),
    "arrow dataset": lambda: pa.dataset.dataset(pa.table({"labels": LABELS, "text": TEXTS})),
    "arrow reader": lambda: pa.table({"labels": LABELS, "text": TEXTS}).to_reader(),
    "pairs": lambda: ROWS,
    "a generator": lambda: ((text, set(labels)) for text, labels in ROWS),
    "dicts": lambda: [{"text": text, "labels": tuple(labels), "n": 1} for text, labels in ROWS],
    "a corpus": lambda: umpteen.read_corpus(ROWS),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_objects_in_memory(kind):
    corpus = umpteen.read_corpus(FRAMES[kind]())
    assert (corpus.texts, corpus.labels) == (TEXTS, LABELS)


def test_whatever_speaks_arrow_is_read():
    class Table:
        def __arrow_c_stream__(self, requested_schema=None):
            return FRAMES["arrow table"]().__arrow_c_stream__(requested_schema)

    assert umpteen.read_corpus(Table()).labels == LABELS


def test_frames_longer_than_one_slice_and_missing_values():
    n = 3000
    frame = pd.DataFrame({"text": [f"t{i}" for i in range(n)], "labels": ["a;b", None, float("nan")] * (n // 3)})
    frame.loc[1, "labels"] = pd.NA
    corpus = umpteen.read_corpus(frame, label_delimiter=";")
    assert corpus.texts == [f"t{i}" for i in range(n)]
    assert corpus.labels == [["a", "b"], [], []] * (n // 3)
    frame.loc[2500, "text"] = None
    with pytest.raises(DataError, match="row 2500: text must be a string, but is n"):
        umpteen.read_corpus(frame, label_delimiter=";")
    assert umpteen.read_corpus(["just", "texts"], labels=None).texts == ["just", "texts"]


@pytest.mark.process
def test_reading_brings_in_no_optional_package():
    code = "import sys, umpteen; umpteen.read_corpus([('a', ['b'])]); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pandas", "polars", "pyarrow", "sklearn"} & set(loaded)


@pytest.mark.process
@pytest.mark.measured("memory")
def test_a_file_is_read_as_it_is_asked_for(tmp_path):
    """A row is handed out before the rest of the file is looked at, so that the file may exceed memory."""
    content = jsonl([(text * 30, labels) for text, labels in ROWS]) * 40_000
    path = write(tmp_path, gzip.compress((content + "broken\n").encode(), 1), "a.jsonl.gz")
    records = umpteen.iter_corpus(path)
    assert next(records) == (TEXTS[0] * 30, LABELS[0])
    code = (
        "import sys, umpteen, umpteen.data.corpus as c\n"
        "def peak(): return 1024 * int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
        "before = peak(); n = 0\n"
        "try:\n"
        "    for record in c.iter_corpus(sys.argv[1]): n += 1\n"
        "except umpteen.errors.DataError as e: print(e)\n"
        "print(n, peak() - before)"
    )
    out = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    message, counts = out.splitlines()
    assert message.endswith("a.jsonl.gz:120001: column 1: not valid JSON (Expecting value)")
    n, peak = map(int, counts.split())
    assert n == 120_000
    assert peak < len(content) / 10


# --- what is refused --------------------------------------------------------------------------------------------

GOOD_LINE = '{"text": "a", "labels": ["b"]}\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a", "labels": ["b"]', r":2: column \d+: not valid JSON \(Expecting ',' delimiter\)"),
        ("[1]", r":2: a line must hold a JSON object, but holds \[1\]"),
        ('{"labels": []}', r":2: there must be a field 'text', but the fields are 'labels'"),
        ('{"text": "a"}', r":2: there must be a field 'labels', but the fields are 'text'"),
        ('{"text": null, "labels": []}', r":2: text must be a string, but is null"),
        ('{"text": 7, "labels": []}', r":2: text must be a string, but is 7"),
        ('{"text": "a", "labels": ["b", 3]}', r":2: labels\[1\] must be a string, but is 3"),
        ('{"text": "a", "labels": [true]}', r":2: labels\[0\] must be a string, but is true"),
        ('{"text": "a", "labels": ["b", " "]}', r":2: labels\[1\] must not be empty, but is ' '"),
        ('{"text": "a", "labels": 3.5}', r":2: labels must be a list of strings or a string, but is 3.5"),
        ('{"text": "a", "labels": {"b": 1}}', r":2: labels must be a list of strings or a string, but is {'b': 1}"),
        (
            '{"text": "a", "labels": "b;c"}',
            r":2: labels must be a list, but is the string 'b;c'; label_delimiter names",
        ),
        ('{"text": "a", "subjects": [{"notation": "1"}]}', r":2: subjects\[0\] must be a string, but is {'notation'"),
        ("[" * 100_000, r":2: not readable JSON"),
        ('{"text": "a", "labels": [' + "9" * 5000 + "]}", r":2: not readable JSON"),
    ],
)
def test_bad_jsonl(tmp_path, line, message):
    with pytest.raises(DataError, match=r"a\.jsonl" + message):
        umpteen.read_corpus(write(tmp_path, GOOD_LINE + line + "\n", "a.jsonl"))


def test_bytes_that_are_not_utf8(tmp_path):
    with pytest.raises(DataError, match=r"a\.jsonl:3: text must be UTF-8, but byte 0xff is not"):
        umpteen.read_corpus(write(tmp_path, GOOD_LINE.encode() * 2 + b'{"text": "\xff"}\n', "a.jsonl"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r": there must be a header with the names of the columns, but the file is empty"),
        ("body,labels\na,b\n", r":1: there must be a column 'text', but the columns are 'body', 'labels'"),
        ("text,tags\na,b\n", r":1: there must be a column 'labels', but the columns are 'text', 'tags'"),
        ("text,labels,text\n", r":1: a column's name may stand once in the header"),
        ("text,labels\na,b\nc\n", r":3: there must be 2 columns as in the header, but are 1"),
        ('text,labels\n"a\nb",c\n"d,e', r":4: not valid CSV \(a . opens a cell here and is never closed\)"),
        ('text,labels\n"a"b,c\n', r":2: not valid CSV"),
        ("text,labels\na,b;;c\n", r":2: labels must not hold an empty label, but is 'b;;c'"),
    ],
)
def test_bad_csv(tmp_path, content, message):
    with pytest.raises(DataError, match=r"a\.csv" + message):
        umpteen.read_corpus(write(tmp_path, content, "a.csv"), label_delimiter=";")


def test_bad_tsv(tmp_path):
    with pytest.raises(DataError, match=r"a\.tsv:2: subjects must follow the text and a tab, but there is no tab"):
        umpteen.read_corpus(write(tmp_path, "a\t<b>\nc\n", "a.tsv"))
    with pytest.raises(DataError, match=r"a\.tsv:1: there must be a column 'text', but the columns are 'a', 'b'"):
        umpteen.read_corpus(write(tmp_path, "a\tb\nc\td\n", "a.tsv"))
    with pytest.raises(DataError, match=r"a\.tsv:1: subject_uris must not hold an empty label, but is '<>'"):
        umpteen.read_corpus(write(tmp_path, "a\t<>\n", "a.tsv"))


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("a.txt", {}, ParamError, "a.txt: its name does not show its format; format must be one of jsonl"),
        (
            "a.txt",
            {"format": "xml"},
            ParamError,
            "format must be one of jsonl, csv, tsv, annif-tsv, parquet, excel, but is",
        ),
        (ROWS, {"format": "csv"}, ParamError, "format is for files, but the source is a list"),
        (ROWS, {"text": []}, ParamError, "text must be the name of a field or several names"),
        (ROWS, {"labels": [3]}, ParamError, "labels must be the name of a field, several names or None"),
        (ROWS, {"label_delimiter": ""}, ParamError, "label_delimiter must be a string of at least one character"),
        (3, {}, DataError, "a corpus must be a file, a table or an iterable of"),
        ({"text": []}, {}, DataError, "a corpus must be a file, a table or an iterable of"),
        (["text"], {}, DataError, "row 0: must be a pair of text and labels or a dict, but is 'text'"),
        ([("a", []), ("b", [None])], {}, DataError, r"row 1: labels\[0\] must be a string, but is null"),
        ([{"body": "a"}], {}, DataError, "row 0: there must be a field 'text', but the fields are 'body'"),
        (
            pd.DataFrame({"a": [1]}),
            {},
            DataError,
            "the table: there must be a column 'text', but the colum",
        ),
    ],
)
def test_bad_sources(source, options, error, message):
    with pytest.raises(error, match=message):
        umpteen.read_corpus(source, **options)


PIECES = st.sampled_from(
    [
        b'{"text": "a", "labels": ["b"]}',
        b"text,labels",
        b"text\tlabels",
        b"\n",
        b"\r",
        b'"',
        b",",
        b"\t",
        b"<u>",
        b"\xff",
        b"\0",
    ]
)


@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "annif-tsv", "parquet"])
@given(st.lists(PIECES | st.binary(max_size=4), max_size=12).map(b"".join))
def test_random_bytes_never_do_worse_than_an_error(tmp_path_factory, format, content):
    path = write(tmp_path_factory.getbasetemp(), content, "random")
    try:
        corpus = umpteen.read_corpus(path, format=format, label_delimiter=" ")
    except DataError as error:
        message = str(error)
    else:
        message = f"{path}: {corpus}"
        assert all(isinstance(text, str) for text in corpus.texts)
    assert message.startswith(f"{path}:")


def test_lists_of_different_length():
    with pytest.raises(DataError, match="there must be a list of labels for each of 2 texts, but are 1"):
        umpteen.Corpus(["a", "b"], [["c"]])


@pytest.mark.data
@pytest.mark.parametrize("name", ["StackExchange-Cooking", "Debian-Tags", "Nuclei-Tags", "Tate-Subjects"])
def test_real_corpora_agree_with_their_matrices(name):
    folder = data_root() / name
    if not folder.exists():
        pytest.skip(f"no {name} in {data_root()}; set UMPTEEN_DATA to run this test")
    corpus = umpteen.read_corpus(folder / "test.jsonl.xz")
    data = umpteen.read_xc(folder / "test.txt.xz", label_names=folder / "label_names.txt")
    assert len(corpus) == data.n_rows
    names = np.array(data.label_names, object)
    for row in range(0, data.n_rows, 97):
        expected = names[data.Y.indices[data.Y.indptr[row] : data.Y.indptr[row + 1]]]
        assert sorted(corpus.labels[row]) == sorted(expected)
