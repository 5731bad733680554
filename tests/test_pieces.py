"""A table in pieces has the labels of the whole table."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import umpteen
from umpteen.data.tables.fields import Fields
from umpteen.data.tables.sniffing import Written
from umpteen.errors import DataError, ParamError
from umpteen.labelling.pieces import Cursor, label_piece

from .serving import train

HOW = {
    "top_k": 2,
    "threshold": None,
    "exclude": None,
    "include": None,
    "threads": 1,
    "engine": "local",
    "min_known": 0.0,
}
ROWS = [["1", "wine tax"], ["2", 'a "quoted"\nherring; in, the\tsea'], ["3", "Île – cod"], ["4", ""], ["5", "beer"]]
WAYS = [
    ("utf-8", b""),
    ("utf-8", b"\xef\xbb\xbf"),
    ("utf-16-le", b"\xff\xfe"),
    ("utf-16-be", b"\xfe\xff"),
    ("cp1252", b""),
]


@pytest.fixture(scope="module")
def tagger() -> umpteen.Tagger:
    return train(umpteen.DiSMEC())


def write(rows, delimiter=",", encoding="utf-8", mark=b"", end="\r\n") -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=end).writerows([["id", "text"], *rows])
    return mark + out.getvalue().encode(encoding)


def label(tagger, data: bytes, size: int, most_rows: int = 2, **options) -> str:
    """What a client does: sends the header and `size` bytes, twice as many where that is too little."""
    cursor, at, out, first = None, 0, "", size
    for _ in range(1000):
        head = b"" if cursor is None else data[: cursor.header_bytes]
        begin = 0 if cursor is None else cursor.header_bytes + at
        piece = label_piece(
            tagger, head + data[begin : begin + size], cursor, last=begin + size >= len(data), name="t.csv",
            most_rows=most_rows, **({"layout": "wide", "how": HOW, "most_characters": 10_000} | options),
        )  # fmt: skip
        if piece.cursor is None or (piece.consumed == 0 and begin + size < len(data)):
            size *= 2
            if piece.cursor is not None and cursor is None:
                out, cursor = out + piece.table, piece.cursor
            continue
        out, cursor, at = out + piece.table, piece.cursor, at + piece.consumed
        if cursor.header_bytes + at >= len(data):
            return out
        size = first
    raise AssertionError("no end")


def whole(tagger, data: bytes, folder, **options) -> str:
    (folder / "in.csv").write_bytes(data)
    umpteen.label_file(tagger, folder / "in.csv", folder / "out.csv", overwrite=True, top_k=2, **options)
    return (folder / "out.csv").read_bytes().decode()


@pytest.mark.parametrize(("encoding", "mark"), WAYS)
@pytest.mark.parametrize("delimiter", [",", ";", "|"])
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_pieces_of_any_size_make_the_table_that_predict_writes(tagger, tmp_path, delimiter, encoding, mark, size):
    data = write(ROWS, delimiter, encoding, mark)
    if size < 64:  # what the first piece shows of the file must be enough to see how it is written
        size = max(size, len(write([], delimiter, encoding, mark)) + 60)
    assert label(tagger, data, size) == whole(tagger, data, tmp_path)


def test_a_first_line_that_names_the_delimiter(tagger, tmp_path):
    for line in ("sep=;\r\n", "sep=|\r\n"):
        data = line.encode() + write(ROWS, line[4])
        for size in (70, 10_000):
            assert label(tagger, data, size) == whole(tagger, data, tmp_path)


def test_pieces_of_tables_as_the_model_knows_them(tmp_path):
    fields = replace(Fields.make(), written=Written.make("mac-roman", "~", "none"))
    known = umpteen.Tagger(umpteen.Centroid(), calibration=0).fit(["wine tax"] * 9, [["tax"]] * 9, fields=fields)
    data = b"id~text\r\n" + "".join(f'{i}~"wine tax; é\r\n' for i in range(9)).encode("mac-roman")
    for size in (40, 10_000):
        found = label(known, data, size)
        assert found == whole(known, data, tmp_path)
        assert '8~"""wine tax; é"~tax' in found
    with pytest.raises(ParamError, match="encoding must be one of .*, latin-1, mac-roman, but is 'utf-7'"):
        label_piece(known, data, Cursor(9, "utf-7", "~", 2), last=True, layout="wide", how=HOW, most_rows=9,
                    most_characters=99)  # fmt: skip
    # GBK has one way to write each character, UTF-7 several: there is no saying how many bytes a row took
    known.fitted().header["text"]["fields"]["written"]["encoding"] = "utf-7"
    with pytest.raises(DataError, match=r"t\.csv: utf-7 has several ways to write some character of it"):
        label(known, b"id~text\r\n1~a&-b&AFs-\r\n2~b\r\n3~c\r\n", 10_000)


def test_tabs_stay_tabs(tagger):
    assert label(tagger, write(ROWS, "\t"), 50).startswith("id\ttext\tlabel_1\tprobability_1")


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=20)


@settings(max_examples=60, deadline=None)
@given(st.lists(texts, max_size=12), st.integers(20, 200), st.integers(1, 5))
@example(["\ufeffmark", "a"], 24, 1)
@example(['"', '""', "\n\n"], 30, 1)
def test_any_rows_come_back(tagger, cells, size, most_rows):
    rows = [[str(i), text] for i, text in enumerate(cells)]
    out = label(tagger, write(rows), size, most_rows)
    found = list(csv.reader(io.StringIO(out.removeprefix("\ufeff"), newline=""), strict=True))
    assert [row[:2] for row in found[1:]] == rows


@pytest.mark.parametrize("most", [100, 140, 200, 10_000])
def test_a_row_for_each_label_takes_no_more_than_it_may(tagger, tmp_path, most):
    data = write(ROWS)
    tables = []

    def one(*args, _label=label_piece, **options):
        tables.append(_label(*args, **options))
        return tables[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.test_pieces.label_piece", one)
        if most == 100:
            with pytest.raises(DataError, match=r"t\.csv:3: .* must have at most 100 characters in all here"):
                label(tagger, data, 10_000, most_rows=10, layout="long", most_answer=most)
        else:
            out = label(tagger, data, 10_000, most_rows=10, layout="long", most_answer=most)
            assert out == whole(tagger, data, tmp_path, layout="long")
    assert len(tables) == {100: 1, 140: 4, 200: 3, 10_000: 1}[most]
    assert all(len(piece.table) < 3 * most + 100 for piece in tables)


def test_the_weights_of_fields_count_before_texts_are_made(tagger):
    fields = Fields.make(["text^100"], None)
    data = b"id,text\n" + b"1,wine tax\n" * 4
    with pytest.raises(DataError, match=r"t\.csv:2: a text must have at most 700 characters here, but has 800"):
        label(tagger, data, 1000, fields=fields, most_characters=700)
    assert label(tagger, data, 1000, 9, fields=fields, most_answer=1700).count("wine tax") == 4


def test_a_header_without_rows(tagger):
    assert label(tagger, b"id,text\n", 100).splitlines() == [
        "id,text,label_1,probability_1,label_2,probability_2,unknown_words"
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "t.csv: there must be a header"),
        (b"id,text\n1,a\n2,b,c\n", "t.csv:3: there must be 2 columns"),
        (b'id,text\n1,a\n2,b\n3,"c\n4,d\n', 't.csv:4: not valid CSV .a " opens a cell here and is never closed'),
        (b"id,text\n1,a\n2,b\0\n", "t.csv:3: a table must not hold a NUL"),
        (b"id,id\n1,a\n", "t.csv:1: a column's name may stand once"),
        (b"id,txt\n1,a\n", "t.csv:1: there must be a column 'text'.*did you mean 'txt'"),
        (b"id,text\n1,\xc3\xa9\n2,\xc3\xa9\n3,\xff\n", "t.csv:4: text must be UTF-8"),
        (b"id,text\n1,a\n2," + b"b" * 10_001 + b"\n", "t.csv:3: a text must have at most 10000 characters"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [14, 1_000_000])
def test_what_is_wrong_is_named_with_its_line(tagger, data, message, size):
    with pytest.raises(DataError, match=message):
        label(tagger, data, size, 1)


def test_other_columns_and_layouts(tagger):
    data = b"id,title\n1,wine tax\n2,zzz\n"
    out = label(tagger, data, 100, layout="long", fields=Fields.make(["title"]))
    assert out.startswith("id,title,label,")
    assert len(out.splitlines()) == 4  # two labels, and a row that has none


@pytest.mark.parametrize(
    "wrong", [{"encoding": "idna"}, {"delimiter": "ab"}, {"header_bytes": 999}, {"header_bytes": 0}]
)
def test_a_wrong_cursor_is_refused(tagger, wrong):
    given = {"header_bytes": 8, "encoding": "utf-8", "delimiter": ",", "line": 2} | wrong
    how = {"layout": "wide", "how": HOW, "most_rows": 9, "most_characters": 99}
    with pytest.raises(ParamError):
        label_piece(tagger, b"id,text\n1,a\n", Cursor(**given), last=True, **how)
