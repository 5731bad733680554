"""Tables in files: how they are written is found, their rows come back as they were, what is wrong has its line."""

from __future__ import annotations

import csv
import datetime
import io
import json
import random
import subprocess
import sys
import threading
import time

import openpyxl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import umpteen
from umpteen.data.tables.fields import Fields
from umpteen.data.tables.reading import open_table, parse_csv
from umpteen.data.tables.sniffing import Dialect, find_delimiter, find_encoding, find_quote
from umpteen.data.tables.writing import make_writer
from umpteen.errors import DataError, ParamError
from umpteen.nearest import find_nearest

HEADER = ["Titel", "Schlagwörter"]
ROWS = [["Über Käse; eine Übersicht", "Käse|Milch"], ['Das "Œuvre" – 5 €', "Kunst"], ["Zeilen\nund mehr", ""]]


def write(tmp_path, content, name="a.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def as_csv(delimiter, quote='"'):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quotechar=quote, quoting=csv.QUOTE_ALL if quote == "'" else 0).writerows(
        [HEADER, *ROWS]
    )
    return text.getvalue()


def cells(path, **options):
    return [list(row.values()) for _, row in open_table(path, **options)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_how_a_table_is_written_is_found(tmp_path, encoding, delimiter, quote):
    path = write(tmp_path, as_csv(delimiter, quote).encode(encoding))
    table = open_table(path)
    assert table.columns == HEADER
    assert [list(row.values()) for _, row in table] == ROWS
    assert table.dialect == Dialect(delimiter, quote, encoding)
    assert cells(path, csv_delimiter=delimiter, encoding=encoding) == ROWS


def test_what_excel_writes_in_germany_is_a_corpus(tmp_path):
    """A semicolon, a mark, Windows' line ends, and labels separated by a bar."""
    path = write(tmp_path, as_csv(";").encode("utf-8-sig"))
    corpus = umpteen.read_corpus(path, text="Titel", labels="Schlagwörter", label_delimiter="|")
    assert corpus.texts == [row[0] for row in ROWS]
    assert corpus.labels == [["Käse", "Milch"], ["Kunst"], []]
    assert str(open_table(path).dialect) == "semicolon between columns, UTF-8 with a byte order mark"


def test_delimiters_and_encodings_that_could_be_others():
    assert find_delimiter("text,labels\nHerring; quotas; all,fish;law\n") == ","
    assert find_delimiter("text;labels\nHerring, quotas, all;fish,law\n") == ";"
    assert find_delimiter('a;b\n"x;\n,y";z\n') == ";"
    assert find_delimiter("one column\nand, no other\n") == ","
    assert find_encoding("naïve café".encode() + b"\xff" + "é".encode()) == "utf-8"  # damaged, not Windows-1252
    assert find_encoding("naïve".encode("latin-1")) == "cp1252"
    assert find_encoding(b"\x81\xe9 a") == "latin-1"
    assert find_encoding(b"") == "utf-8"


def test_a_byte_far_down_is_refused_with_its_line(tmp_path):
    path = write(tmp_path, b"text,labels\n" + b"a plain line of text,b\n" * 60_000 + b"caf\xe9,b\n")
    with pytest.raises(
        DataError, match=r"a\.csv:60002: text must be UTF-8, but byte 0xe9 is not; encoding names anot"
    ):
        umpteen.read_corpus(path, label_delimiter=";")
    assert umpteen.read_corpus(path, label_delimiter=";", encoding="cp1252").texts[-1] == "café"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r": there must be a header with the names of the columns, but the file is empty"),
        ("a,b\n1,2\n1\n", r":3: there must be 2 columns as in the header, but are 1"),
        ('a,b\n1,2\n"3,4\n5,6\n', r":3: not valid CSV \(a . opens a cell here and is never closed\)"),
        ("a,b\n1,2\n1,\0\n", r":3: a table must not hold a NUL character, but character 3 is one"),
        ("a,b,a\n", r":1: a column's name may stand once in the header, but 'a' stands 2 times"),
        ("sep=;\na;b\n1;2\n1\n", r":4: there must be 2 columns as in the header, but are 1"),
        ("a,b\r1,2\r", r":1: not valid CSV \(a carriage return stands alone, as in files of old Macs"),
    ],
)
def test_bad_tables(tmp_path, content, message):
    with pytest.raises(DataError, match=r"a\.csv" + message):
        cells(write(tmp_path, content))


@pytest.mark.parametrize("first", ["sep=;\n", '"sep=;"\r\n', "SEP=;\n"])
def test_a_first_line_may_name_the_delimiter(tmp_path, first):
    """Programs write it for Excel; the commas here would win otherwise."""
    path = write(tmp_path, f"{first}a;b\n1,2,3;x\n1,2,3;y\n")
    assert open_table(path).columns == ["a", "b"]
    assert cells(path) == [["1,2,3", "x"], ["1,2,3", "y"]]
    assert open_table(path).dialect.delimiter == ";"
    assert cells(write(tmp_path, "sep=;,b\n1,2\n")) == [["1", "2"]]  # a column of this name


def test_messages_show_the_beginning_of_long_names(tmp_path):
    path = write(tmp_path, f"{'x' * 100_000},{'y' * 100_000}\n1,2\n")
    with pytest.raises(DataError, match="there must be a column 'text'") as failed:
        open_table(path).check_fields(Fields.make())
    assert len(str(failed.value)) < 500


def test_a_parquet_file_with_two_columns_of_one_name(tmp_path):
    pa.parquet.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: a column's name may stand once .*'text' stands 2 times"):
        open_table(tmp_path / "a.parquet")


def test_long_cells_and_headers_alone(tmp_path):
    assert cells(write(tmp_path, "a,b\n")) == []
    assert cells(write(tmp_path, f"a,b\n{'x' * 1_000_000},2\n"))[0][0] == "x" * 1_000_000


def test_a_line_that_never_ends_takes_time_in_proportion():
    """A small compressed file may hold one; joined piece by piece it would take hours."""
    script = (
        "from umpteen.data.tables.lines import decode_lines\n"
        "pieces = [b'a' * 1000] * 100_000 + [b'\\n\\nb', b'\\n', b'', b'c']\n"
        "print([(len(line), line[-1:]) for line in decode_lines('x', pieces)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == r"[(100000001, '\n'), (1, '\n'), (2, '\n'), (1, 'c')]", done.stderr


def test_options_are_checked(tmp_path):
    path = write(tmp_path, "a,b\n")
    with pytest.raises(ParamError, match="csv_delimiter must be one character such as ; or tab, but is ';;'"):
        open_table(path, csv_delimiter=";;")
    with pytest.raises(ParamError, match="encoding must be an encoding such as utf-8"):
        open_table(path, encoding="klingon")
    with pytest.raises(ParamError, match="encoding must be an encoding such as utf-8"):
        open_table(path, encoding="base64")
    with pytest.raises(ParamError, match="csv_delimiter is for csv and tsv, but the format is jsonl"):
        open_table(path, csv_delimiter=";", format="jsonl")
    with pytest.raises(ParamError, match="csv_quote is for csv and tsv, but the format is jsonl"):
        open_table(path, csv_quote="'", format="jsonl")
    for quote in ("''", "", "a", 3):
        with pytest.raises(ParamError, match="csv_quote must be one character such as"):
            open_table(path, csv_quote=quote)
    with pytest.raises(ParamError, match="csv_quote must not be what stands between columns, but is '~'"):
        open_table(path, csv_quote="~", csv_delimiter="~")


def test_quotes_that_are_characters_as_any_others(tmp_path):
    path = write(tmp_path, 'text;labels\n5" pipe;a\n"x;b\n')
    with pytest.raises(DataError, match="never closed"):
        cells(path)
    assert cells(path, csv_quote="none") == [['5" pipe', "a"], ['"x', "b"]]
    assert str(open_table(path, csv_quote="none").dialect) == "semicolon between columns, no quotes, UTF-8"
    path = write(tmp_path, "text,labels\n^a,b^,c\n")
    assert cells(path, csv_quote="^") == [["a,b", "c"]]


def test_what_is_usual_holds_where_looking_does_not_show_it():
    assert find_delimiter("title~labels\na, b~c\n", "~") == "~"
    assert find_delimiter("one column\nand, no other\n", ";") == ";"
    assert find_delimiter("a,b;c\n1,2;3\n", ";") == ";"  # both divide it
    assert find_delimiter("a,b,c\n1,2,3\n", ";") == ","
    assert find_delimiter("a;b,c\n1;2,3\n4,5\n", ";") == ","  # which divides all rows alike
    assert find_quote("a;b", ";", "'") == find_quote("'a';'b'", ";", '"') == "'"
    assert find_quote('"a";"b"', ";", "") == '"'
    assert find_quote("a;b", ";", "") == ""
    text = "prix fixé – très"
    assert find_encoding(text.encode("mac-roman"), "mac-roman") == "mac-roman"
    assert find_encoding(b"plain", "mac-roman") == "mac-roman"  # there may be others further down
    assert find_encoding(b"plain!", "utf-16") == "utf-8"
    assert find_encoding(text.encode(), "mac-roman") == "utf-8"
    assert find_encoding(text.encode("utf-16"), "mac-roman") == "utf-16"
    assert find_encoding(text.encode("cp1252"), "utf-16") == "cp1252"
    assert find_encoding(text.encode("cp1252"), "utf-8") == "cp1252"


# --- fields -----------------------------------------------------------------------------------------------------


def test_fields_with_weights_several_label_columns_and_ids():
    rows = [
        {"n": 7, "title": "A", "abstract": "B", "s1": "x, y", "s2": "z"},
        {"n": 8, "title": "C", "abstract": None, "s1": "", "s2": None},
    ]
    corpus = umpteen.read_corpus(rows, text=["title^3", "abstract"], labels=["s1", "s2"], id="n")
    assert corpus.texts == ["A\nA\nA\nB", "C\nC\nC"]
    assert corpus.labels == [["x, y", "z"], []]  # without a delimiter a cell is one label
    assert corpus.ids == ["7", "8"]
    split = umpteen.read_corpus(rows, text={"title": 1}, labels=["s1", "s2"], label_delimiter=",")
    assert (split.texts, split.labels) == (["A", "C"], [["x", "y", "z"], []])
    with pytest.raises(DataError, match="row 1: n must be another in each row, but '7' is also at row 0"):
        umpteen.read_corpus([rows[0], rows[0]], text="title", labels="s2", label_delimiter=";", id="n")


def test_lists_as_json_and_labels_with_the_delimiter_in_them():
    rows = [{"text": "a", "labels": '["law; sea", "fish"]'}, {"text": "b", "labels": "[sic]; tax"}]
    assert umpteen.read_corpus(rows, label_delimiter=";").labels == [["law; sea", "fish"], ["[sic]", "tax"]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "title^0"}, "the weight of text 'title' must be a whole number from 1 to 100, but is 0"),
        ({"text": "title^101"}, "the weight of text 'title' must be a whole number from 1 to 100, but is 101"),
        ({"text": {"title": 1.5}}, "the weight of text 'title' must be a whole number"),
        ({"text": ["a", "a^2"]}, "text must name each field once"),
        ({"labels": []}, "labels must be the name of a field, several names or None"),
        ({"id": 3}, "id must be the name of a field or None"),
    ],
)
def test_bad_fields(options, message):
    with pytest.raises(ParamError, match=message):
        Fields.make(**options)


def test_fields_come_back_from_plain_data():
    fields = Fields.make(["title^3", "abstract"], ["s1", "s2"], ";", "n")
    assert Fields.from_dict(json.loads(json.dumps(fields.as_dict()))) == fields
    assert str(fields) == "text from title^3 and abstract; labels from s1 and s2, separated by ';'; ids from n"
    for bad in (
        None,
        {},
        {"text": "a"},
        {"text": [["a", 1], ["a", 1]]},
        {"text": [["a", 10**9]]},
        {"text": [[1, 1]]},
        {"text": [["a" * 20_000, 1]]},
        {"text": [["a", 1]], "labels": [3]},
        {"text": [["a", 1]], "label_delimiter": 5},
        {"text": [[f"f{i}", 1] for i in range(2000)]},
    ):
        with pytest.raises(ParamError):
            Fields.from_dict(bad)


def test_a_missing_column_names_the_nearest(tmp_path):
    path = write(tmp_path, "Title,subjects\na,b\n")
    with pytest.raises(DataError, match=r"there must be a column 'titel', but .*; did you mean 'Title'\?"):
        umpteen.read_corpus(path, text="titel", labels="subjects", label_delimiter=";")
    with pytest.raises(DataError, match=r"there must be a column 'text', but .*; text names another"):
        umpteen.read_corpus(path, labels="subjects", label_delimiter=";")
    assert find_nearest("seasonning", ["sea", "seasoning", "season", "reasoning"]) == [
        "seasoning",
        "reasoning",
        "season",
    ]


# --- out and in again -------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NAMES = st.lists(TEXT.filter(lambda name: name.strip()), min_size=1, max_size=4, unique=True)


@st.composite
def tables(draw):
    columns = draw(NAMES)
    return columns, draw(st.lists(st.fixed_dictionaries(dict.fromkeys(columns, TEXT)), max_size=5))


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl", "parquet"])
@given(tables())
@example((["a"], [{"a": ""}, {"a": "\r"}, {"a": "\ufeff"}, {"a": "\x1c"}, {"a": "'"}, {"a": '"'}]))
@example((["\ufeffa", "b"], [{"\ufeffa": ";", "b": ","}]))
@example((["<a>", "<b>"], []))
def test_tables_come_back_as_they_were(tmp_path_factory, format, content):
    columns, rows = content
    path = tmp_path_factory.getbasetemp() / "round"
    with path.open("wb") as file:
        writer = make_writer(format, file, columns, dialect=Dialect(encoding="utf-8-sig"))
        writer.write(rows)
        writer.finish()
    how = {"csv_delimiter": ","} if format == "csv" else {"csv_delimiter": "tab"} if format == "tsv" else {}
    table = open_table(path, format=format, **how)
    assert [row for _, row in table] == rows
    assert format == "jsonl" or table.columns == columns


PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=8)


@given(st.lists(st.tuples(PLAIN.map(lambda text: f"t{text}"), st.integers(-(10**9), 10**9)), max_size=4))
@example([("=1+1", 3), ("t_x0041_", 4)])
def test_excel_tables_come_back_as_they_were(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "round.xlsx"
    with path.open("wb") as file:
        writer = make_writer("excel", file, ["text", "n"])
        writer.write([{"text": text, "n": n} for text, n in rows])
        writer.finish()
    assert [tuple(row.values()) for _, row in open_table(path)] == rows


def test_a_real_excel_file(tmp_path):
    book = openpyxl.Workbook()
    for row in (["year", "title", "tags", None], [1984, 1984.0, "a;b", None], [], [None, "x", None, None]):
        book.active.append(row)
    book.save(path := tmp_path / "a.xlsx")
    corpus = umpteen.read_corpus(path, text="title", labels="tags", label_delimiter=";", id=None)
    assert (corpus.texts, corpus.labels) == (["1984", "x"], [["a", "b"], []])
    assert [number for number, _ in open_table(path)] == [2, 4]
    with pytest.raises(DataError, match=r"a\.xlsx: row 1: there must be a column 'titel', .* did you mean 'title'\?"):
        umpteen.read_corpus(path, text="titel", labels=None)
    with pytest.raises(DataError, match=r"b\.xlsx: not readable Excel"):
        open_table(write(tmp_path, "no such thing", "b.xlsx"))
    book.active["E3"] = "odd"
    book.save(path)
    with pytest.raises(DataError, match=r"a\.xlsx: row 3: there must be 3 columns as in the header, but are 5"):
        cells(path)


def test_what_excel_cannot_hold_is_refused(tmp_path):
    with (tmp_path / "a.xlsx").open("wb") as file:
        writer = make_writer("excel", file, ["a"])
        with pytest.raises(
            DataError, match="row 2: a cell of Excel must have at most 32,767 characters, but one has"
        ):
            writer.write([{"a": "x" * 40_000}])
        with pytest.raises(DataError, match="row 3: a cell of Excel must not hold control characters"):
            writer.write([{"a": "x\x1b"}])
        writer.abandon()


def test_parquet_keeps_the_types_of_its_columns(tmp_path):
    table = pa.table({"n": pa.array([1, None], pa.int16()), "labels": [["a"], []]})
    pa.parquet.write_table(table, path := tmp_path / "a.parquet")
    opened = open_table(path)
    with (tmp_path / "b.parquet").open("wb") as file:
        writer = make_writer("parquet", file, ["n", "labels", "new"], schema=opened.schema)
        writer.write([row | {"new": None} for _, row in opened])
        with pytest.raises(DataError, match="column 'n' must be of one type, int16, in Parquet, but is not"):
            writer.write([{"n": "x"}])
        writer.finish()
    written = pa.parquet.read_table(tmp_path / "b.parquet")
    assert written.select(["n", "labels"]).equals(table)
    assert written.schema.field("new").type == pa.string()


def test_json_lines_have_no_numbers_that_json_lacks(tmp_path):
    rows = [{"n": float("nan"), "many": [1.5, float("inf"), {"x": float("-inf")}], "date": datetime.date(2026, 5, 1)}]
    with (tmp_path / "o.jsonl").open("wb") as file:
        make_writer("jsonl", file, list(rows[0])).write(rows)

    def refuse(name):
        raise AssertionError(name)

    found = json.loads((tmp_path / "o.jsonl").read_text(), parse_constant=refuse)
    assert found == {"n": None, "many": [1.5, None, {"x": None}], "date": "2026-05-01"}


def test_damaged_parquet_names_the_row_group(tmp_path):
    file = tmp_path / "a.parquet"
    texts = [f"text {i * 7919 % 1000} of {i}" for i in range(4000)]
    pyarrow.parquet.write_table(pa.table({"text": texts}), file, row_group_size=1000)
    chunk = pyarrow.parquet.ParquetFile(file).metadata.row_group(2).column(0)
    content = bytearray(file.read_bytes())
    first = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    middle = first + chunk.total_compressed_size // 2
    content[middle : middle + 200] = b"\xff" * 200
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet: row group 2 of 4, rows 2000 to 2999: not readable Parquet"):
        umpteen.read_corpus(file, labels=None)


def test_a_damaged_excel_file_is_our_error_wherever_the_damage_is(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["text"])
    for i in range(300):
        book.active.append([f"some words {i * 7919 % 1000} of {i}"])
    file = tmp_path / "a.xlsx"
    book.save(file)
    whole = file.read_bytes()
    refused = []
    for at in range(0, len(whole), len(whole) // 60):
        file.write_bytes(whole[:at] + bytes(255 - byte for byte in whole[at : at + 8]) + whole[at + 8 :])
        try:
            umpteen.read_corpus(file, labels=None)
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > 30
    assert all(message.startswith(f"{file}: ") for message in refused)


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"PAR1"])
def test_a_spreadsheet_that_is_called_csv(tmp_path, start):
    (tmp_path / "a.csv").write_bytes(start + bytes(100))
    with pytest.raises(
        DataError, match=r"a\.csv: a table of text must be CSV or TSV, but this is an? .*; save it as CSV"
    ):
        open_table(tmp_path / "a.csv")


def test_a_header_of_very_many_columns(tmp_path):
    names = [f"column{i}" for i in range(60_000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join([*names, "text"]) + "\n" + ",".join(["1"] * 60_000 + ["wine"]) + "\n")
    began = time.process_time()
    corpus = umpteen.read_corpus(path, labels=None)
    assert time.process_time() - began < 5  # each name beside each other takes a minute
    assert corpus.texts == ["wine"]
    path.write_text(",".join([*names, "column7"]) + "\n")
    with pytest.raises(DataError, match="'column7' stands 2 times"):
        umpteen.read_corpus(path, labels=None)


def test_a_long_cell_is_read_while_another_table_is():
    long = "x" * 200_000  # more than the csv module reads by default
    first_is_in, second_is_in = threading.Event(), threading.Event()
    found = {}

    def first():
        yield "a,b\n"
        first_is_in.set()
        assert second_is_in.wait(60)

    def second():
        yield "a,b\n"
        second_is_in.set()
        other.join()
        yield f"{long},1\n"

    before = csv.field_size_limit()
    other = threading.Thread(target=lambda: found.update(first=list(parse_csv("a", first(), Dialect()))))
    other.start()
    assert first_is_in.wait(60)
    assert list(parse_csv("b", second(), Dialect())) == [(1, ["a", "b"]), (2, [long, "1"])]
    assert found["first"] == [(1, ["a", "b"])]
    assert csv.field_size_limit() == before


LETTERS = [chr(code) for code in range(0x400, 0x800)]


def test_very_long_names_are_compared_with_none():
    draw = random.Random(0)
    short, long = ("".join(draw.choices(LETTERS, k=n)) for n in (8000, 1_600_000))
    began = time.process_time()
    assert find_nearest(short, [long]) == []
    assert find_nearest("title", [long, "titel"]) == ["titel"]
    assert time.process_time() - began < 5
