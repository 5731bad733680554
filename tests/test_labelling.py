"""A table in, the same table with labels out."""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.data.tables.fields import Fields
from umpteen.data.tables.reading import format_of_table, open_table
from umpteen.data.tables.writing import make_writer
from umpteen.errors import DataError, ParamError
from umpteen.labelling import files
from umpteen.labelling.files import Interrupted, label_file
from umpteen.labelling.pieces import label_piece

from .test_cli_text import LABELS, TEXTS, run

QUESTIONS = ["wine tax", "herring; in the sea", "zzz qqq", ""]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m"
    tagger = umpteen.Tagger("dismec").fit(
        TEXTS * 8, LABELS * 8, fields=umpteen.read_corpus([], text="title", labels="tags", label_delimiter="|").fields
    )
    tagger.save(path)
    return path


@pytest.fixture(scope="module")
def tagger(model):
    return umpteen.load(model)


def table(tmp_path, name="in.csv", delimiter=",", encoding="utf-8", questions=QUESTIONS):
    path = tmp_path / name
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["id", "title", "größe"])
        writer.writerows([f"r{i}", text, "5 €"] for i, text in enumerate(questions))
    return path


def rows_of(path, **how):
    return [row for _, row in open_table(path, **how)]


def test_rows_and_columns_come_back_with_labels(model, tagger, tmp_path):
    source = table(tmp_path)
    out = run("predict", model, source, "--output", tmp_path / "out.csv")
    assert "comma between columns, UTF-8; text from title" in out
    assert "labelled   4 rows" in out
    assert "2 without" in out
    found = rows_of(tmp_path / "out.csv")
    assert list(found[0])[:5] == ["id", "title", "größe", "label_1", "probability_1"]
    assert list(found[0])[-1] == "unknown_words"
    for row, question in zip(found, QUESTIONS, strict=True):
        expected = tagger.suggest(question)
        assert row["title"] == question
        given = [row[f"label_{i}"] for i in range(1, 5) if row[f"label_{i}"]]
        values = [float(row[f"probability_{i}"]) for i in range(1, 5) if row[f"label_{i}"]]
        assert given == [name for name, _ in expected]
        assert values == [round(float(np.float32(value)), 4) for _, value in expected]
    assert [row["unknown_words"] for row in found] == ["0.0", "0.0", "1.0", "0.0"]
    assert not list(tmp_path.glob("*.part*"))


def test_a_table_to_be_labelled_needs_no_ids(tmp_path):
    """Though the model knows which column had them in training; a page that sends pieces needs none, either."""
    fields = Fields.make("title", "tags", "|", "number")
    known = umpteen.Tagger(umpteen.Centroid(), calibration=0).fit(TEXTS * 8, LABELS * 8, fields=fields)
    (tmp_path / "in.csv").write_text("title\nwine tax\n")
    label_file(known, tmp_path / "in.csv", tmp_path / "out.csv", top_k=1)
    assert [row["title"] for row in rows_of(tmp_path / "out.csv")] == ["wine tax"]
    how = {"top_k": 1, "threshold": None, "exclude": None, "include": None, "threads": 1, "engine": "local"}
    piece = label_piece(known, b"title\nwine tax\n", None, last=True, layout="wide", how=how | {"min_known": 0.0},
                        most_rows=9, most_characters=99)  # fmt: skip
    assert piece.done.n_rows == 1


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.jsonl", "out.parquet", "out.xlsx", "out.csv.gz"])
@pytest.mark.parametrize("layout", ["wide", "list", "long"])
def test_every_format_and_layout(model, tagger, tmp_path, name, layout):
    how = ("--top-k", "2", "--labels", layout, "--explain")
    run("predict", model, table(tmp_path), "--output", tmp_path / name, *how)
    found = rows_of(tmp_path / name)
    (one, p1), (two, p2) = tagger.suggest("wine tax", 2)
    p1, p2 = round(p1, 4), round(p2, 4)
    first = {key: value for key, value in found[0].items() if key not in ("id", "title", "größe")}
    assert [found[0][key] for key in ("id", "title", "größe")] == ["r0", "wine tax", "5 €"]
    if layout == "long":
        assert [row["id"] for row in found] == ["r0", "r0", "r1", "r1", "r2", "r3"]
        assert [str(value) for value in first.values()] == [one, str(p1), first["why"], "0.0"] or name == "out.xlsx"
        assert found[4]["label"] in (None, "")
    elif layout == "wide":
        assert list(first) == [
            *[f"{c}_{i}" for i in (1, 2) for c in ("label", "probability", "why")],
            "unknown_words",
        ]
        assert [first["label_1"], first["label_2"], float(first["probability_2"])] == [one, two, p2]
        assert set(first["why_1"].split(", ")) <= {"wine", "tax", "a", "on"}
    else:
        listed = [one, two] if name in ("out.jsonl", "out.parquet") else f"{one}|{two}"
        assert first["labels"] == listed
        assert list(first) == ["labels", "probabilities", "why", "unknown_words"]


def test_what_excel_wrote_is_read_by_excel(model, tmp_path):
    """The delimiter stays; a mark says that it is UTF-8 now."""
    source = table(tmp_path, delimiter=";", encoding="cp1252")
    run("predict", model, source, "--output", tmp_path / "out.csv", "--top-k", 1)
    content = (tmp_path / "out.csv").read_bytes()
    assert content.startswith("\ufeffid;title;größe;label_1;".encode())
    assert rows_of(tmp_path / "out.csv")[1]["title"] == "herring; in the sea"


def test_labels_with_the_delimiter_in_them_are_json(tmp_path):
    tagger = umpteen.Tagger("centroid", calibration=0).fit(["aa bb", "cc dd"] * 9, [["x;y"], ["z"]] * 9)
    (tmp_path / "in.csv").write_text("text\naa bb\n")
    label_file(tagger, tmp_path / "in.csv", tmp_path / "out.csv", layout="list", top_k=1)
    assert rows_of(tmp_path / "out.csv")[0]["labels"] == '["x;y"]'
    assert umpteen.read_corpus(tmp_path / "out.csv", label_delimiter=";").labels == [["x;y"]]


def test_a_column_that_is_there_keeps_its_name(model, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"title": "wine", "labels": ["mine"]}\n{"title": "tax", "n": 1}\n')
    run("predict", model, tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl", "--top-k", 1)
    first, second = rows_of(tmp_path / "out.jsonl")
    assert (first["labels"], len(first["suggested_labels"])) == (["mine"], 1)
    assert list(second) == ["title", "n", "suggested_labels", "probabilities", "unknown_words"]
    (tmp_path / "bad.csv").write_text("title,label_1,suggested_label_1\na,b,c\n")
    with pytest.raises(DataError, match="must not have the columns 'label_1' and 'suggested_label_1'"):
        run("predict", model, tmp_path / "bad.csv", "--output", tmp_path / "x.csv")


def test_standard_input_and_output(model, tmp_path):
    text = table(tmp_path).read_bytes()
    done = CliRunner().invoke(app, ["predict", str(model), "-", "--top-k", "1"], input=text)
    assert done.exit_code == 0, done.output
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["id"] for row in found] == ["r0", "r1", "r2", "r3"]
    line = b'{"title": "wine tax"}\n'
    done = CliRunner().invoke(app, ["predict", str(model), "-", "--format", "jsonl", "--top-k", "1"], input=line)
    assert json.loads(done.stdout)["labels"][0] in ("wine", "tax")


@pytest.mark.process
def test_a_table_at_a_terminal_is_shown_and_not_obeyed(model, tmp_path):
    (tmp_path / "in.csv").write_text("title\nwine \x1b]0;owned\x07\n")
    code = "from umpteen.cli.main import main; main()"
    command = [sys.executable, "-c", code, "predict", str(model), str(tmp_path / "in.csv"), "--output", "-"]
    parent, child = pty.openpty()
    process = subprocess.Popen(command, stdout=child, stderr=subprocess.DEVNULL)
    os.close(child)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is gone with the process
        while chunk := os.read(parent, 4096):
            shown += chunk
    os.close(parent)
    assert process.wait() == 0
    assert rb"wine \x1b]0;owned\x07" in shown
    assert b"\x1b" not in shown
    piped = subprocess.run(command, capture_output=True, check=True).stdout
    assert b"wine \x1b]0;owned\x07" in piped  # a program gets what was there


def test_thresholds_and_label_lists(model, tagger, tmp_path):
    source = table(tmp_path, questions=["wine tax in the sea"])

    def labels(*how):
        run("predict", model, source, "--output", tmp_path / "o.jsonl", "--overwrite", *how)
        return rows_of(tmp_path / "o.jsonl")[0]["labels"]

    text = "wine tax in the sea"
    for how in ({"threshold": 0.3}, {"threshold": "macro"}, {"top_k": "auto"}, {"top_k": 3, "threshold": 0.2}):
        options = [part for name, value in how.items() for part in (f"--{name.replace('_', '-')}", value)]
        assert labels(*options) == [name for name, _ in tagger.suggest(text, **how)]
    assert labels("--threshold", "auto") == labels("--top-k", "auto")
    (tmp_path / "some.txt").write_text("\ufeffwine\nfish\n\n")
    assert sorted(labels("--include", tmp_path / "some.txt", "--top-k", 9)) == ["fish", "wine"]
    assert "wine" not in labels("--exclude", tmp_path / "some.txt", "--exclude", "tax", "--top-k", 9)
    with pytest.raises(ParamError, match=r"--include: the model has no label 'winne'; did you mean 'wine'\?"):
        labels("--include", "winne")
    (tmp_path / "some.txt").write_text("\n \n")
    assert len(labels("--exclude", tmp_path / "some.txt", "--top-k", 9)) == 4
    with pytest.raises(
        DataError, match=r"some\.txt: there must be a label in a file for --include, but there is none"
    ):
        labels("--include", tmp_path / "some.txt")
    (tmp_path / "some.txt").write_text("wine\nfisch\n")
    with pytest.raises(DataError, match=r"some\.txt:2: the model has no label 'fisch'; did you mean 'fish'\?"):
        labels("--include", tmp_path / "some.txt")
    with pytest.raises(ParamError, match="--threshold auto decides how many labels to give, but --top-k is 3"):
        labels("--threshold", "auto", "--top-k", 3)


def test_what_is_there_is_not_lost(model, tmp_path):
    source = table(tmp_path)
    (tmp_path / "out.csv").write_text("hours of work")
    with pytest.raises(DataError, match=r"out\.csv: already exists; choose another name, .* --overwrite"):
        run("predict", model, source, "--output", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "hours of work"
    run("predict", model, source, "--output", tmp_path / "out.csv", "--overwrite")
    with pytest.raises(DataError, match=r"the output must be another file than the input"):
        run("predict", model, source, "--output", source, "--overwrite")
    with pytest.raises(ParamError, match="labels must be one of wide, list, long, but is 'tall'"):
        run("predict", model, source, "--output", tmp_path / "a.csv", "--labels", "tall")
    with pytest.raises(ParamError, match=r"--labels is for tables of texts, but .* is none"):
        run("predict", model, source, "--output", tmp_path / "a.npz", "--labels", "wide")
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("title,x\na,b\nc\n", r"in\.csv:3: there must be 2 columns"),
        ('title,x\na,b\n"c,d\n', r"in\.csv:3: not valid CSV"),
        ("title,title\n", r"in\.csv:1: a column's name may stand once"),
        ("titel,x\n", r"in\.csv:1: there must be a column 'title'.*did you mean 'titel'"),
        ("", r"in\.csv: there must be a header"),
    ],
)
def test_bad_tables_leave_nothing(model, tmp_path, content, message):
    (tmp_path / "in.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        run("predict", model, tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_a_header_alone_and_a_long_cell(model, tmp_path):
    run("predict", model, table(tmp_path, questions=[]), "--output", tmp_path / "out.csv")
    assert rows_of(tmp_path / "out.csv") == []
    long = "wine " * 200_000
    run("predict", model, table(tmp_path, questions=[long]), "--output", tmp_path / "long.csv")
    assert rows_of(tmp_path / "long.csv")[0]["title"] == long


def test_lines_with_new_fields_are_refused_where_there_is_a_header(tagger, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_ROWS", 2)
    lines = ['{"title": "a"}', '{"title": "b"}', '{"title": "c", "n": 1}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    label_file(tagger, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(DataError, match=r"in\.jsonl:3: the field 'n' must be in one of the first 2 lines"):
        label_file(tagger, tmp_path / "in.jsonl", tmp_path / "out.csv")
    (tmp_path / "in.jsonl").write_text("\n".join([*lines[:2], '{"title": "c", "labels": 1}']))
    with pytest.raises(DataError, match=r"in\.jsonl:3: 'labels' is the field that labels are given in"):
        label_file(tagger, tmp_path / "in.jsonl", tmp_path / "two.jsonl")


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.jsonl", "out.parquet"])
@pytest.mark.parametrize("source", ["csv", "jsonl"])
def test_an_interrupted_run_continues(tagger, tmp_path, monkeypatch, name, source):
    monkeypatch.setattr(files, "_ROWS", 3)
    questions = TEXTS * 4
    path = table(tmp_path, questions=questions)
    if source == "jsonl":
        path = tmp_path / "in.jsonl"
        rows = [{"title": text} | ({"n": i} if i < 3 else {}) for i, text in enumerate(questions)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    label_file(tagger, path, tmp_path / f"whole-{name}")

    def stop_at(n_rows):
        def listen(done, share):
            assert 0 < share <= 1
            if done >= n_rows:
                raise KeyboardInterrupt

        return listen

    target = tmp_path / name
    with pytest.raises(Interrupted) as stopped:
        label_file(tagger, path, target, version="v1", progress=stop_at(7))
    assert stopped.value.n_kept == 9
    assert not target.exists()
    with (tmp_path / f"{name}.part").open("ab") as part:
        part.write(b"half a li")  # what a power cut leaves
    with pytest.raises(Interrupted):
        label_file(tagger, path, target, version="v1", progress=stop_at(14))
    done = label_file(tagger, path, target, version="v1")
    assert (done.continued_at, done.n_rows) == (15, 5)
    assert target.read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    assert not list(tmp_path.glob("*.part*"))


def test_another_input_model_or_option_begins_anew(tagger, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_ROWS", 3)
    path = table(tmp_path, questions=TEXTS * 2)

    def stop(done, share):
        raise KeyboardInterrupt

    def begin():
        with pytest.raises(Interrupted):
            label_file(tagger, path, tmp_path / "out.csv", version="v1", progress=stop)

    for how in ({"version": "v2"}, {"version": "v1", "top_k": 3}, {"version": "v1", "include": ["sea"]}):
        begin()
        assert label_file(tagger, path, tmp_path / "out.csv", overwrite=True, **how).continued_at == 0
        (tmp_path / "out.csv").unlink()
    begin()
    (tmp_path / "out.csv.part.json").write_text('{"rows": 10, "bytes": ')
    assert label_file(tagger, path, tmp_path / "out.csv", version="v1").continued_at == 0


@pytest.mark.process
def test_a_killed_run_continues(model, tmp_path):
    path = table(tmp_path, questions=TEXTS * 40_000)
    code = "from umpteen.cli.main import main; main()"
    args = [sys.executable, "-c", code, "predict", str(model), str(path), "--output", str(tmp_path / "out.csv")]
    part = tmp_path / "out.csv.part.json"
    running = subprocess.Popen(args, stderr=subprocess.PIPE)
    while not part.exists() and running.poll() is None:
        pass
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert not (tmp_path / "out.csv").exists()
    rest = subprocess.run(args, capture_output=True, text=True, check=True)
    assert "continued  after" in rest.stderr
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row[1] for row in csv.reader(file)][1:] == TEXTS * 40_000


def test_two_runs_do_not_write_one_file(tagger, tmp_path):
    path = table(tmp_path)

    def again(done, share):
        label_file(tagger, path, tmp_path / "out.csv", version="v1")

    with pytest.raises(DataError, match=r"out\.csv\.part: another process is writing this file"):
        label_file(tagger, path, tmp_path / "out.csv", version="v1", progress=again)


def test_a_run_that_ends_between_two_steps_of_another_is_not_replaced(tagger, tmp_path, monkeypatch):
    """The file that was opened has got its name before it was locked."""
    real = os.open

    def open_and_rename(path, *how):
        handle = real(path, *how)
        path.replace(tmp_path / "out.csv")
        return handle

    monkeypatch.setattr("umpteen.labelling.target.os.open", open_and_rename)
    with pytest.raises(DataError, match="another process is writing this file"):
        label_file(tagger, table(tmp_path), tmp_path / "out.csv")


def test_what_is_replaced_keeps_its_mode_and_its_place(tagger, tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "real.csv").chmod(0o600)
    (tmp_path / "link.csv").symlink_to("real.csv")
    label_file(tagger, table(tmp_path), tmp_path / "link.csv", overwrite=True)
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("id,title")
    assert (tmp_path / "real.csv").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_named_and_the_run_continues(tagger, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_ROWS", 3)
    source = table(tmp_path, questions=TEXTS * 100)
    label_file(tagger, source, tmp_path / "whole.csv")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # as large as a file may become
    try:
        with pytest.raises(OSError, match=r"\d+ rows are kept: the same call continues there: '.*out\.csv'"):
            label_file(tagger, source, tmp_path / "out.csv", version="v1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    done = label_file(tagger, source, tmp_path / "out.csv", version="v1")
    assert done.continued_at > 100
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        label_file(tagger, source, "/dev/full", format="csv", overwrite=True)


def test_numbers_that_parquet_does_not_have(tagger, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"title": "wine", "n": 123456789012345678901234567890}\n')
    with pytest.raises(DataError, match="column 'n' must be of one type in Parquet, but is not"):
        label_file(tagger, tmp_path / "in.jsonl", tmp_path / "out.parquet")
    (tmp_path / "in.jsonl").write_text('{"title": "wine", "n": 1}\n' * 8200 + f'{{"title": "wine", "n": {10**30}}}\n')
    with pytest.raises(DataError, match="column 'n' must be of one type, int64, in Parquet, but is not"):
        label_file(tagger, tmp_path / "in.jsonl", tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_progress_is_lines_in_a_notebook(tagger, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(files, "_ROWS", 2)
    monkeypatch.setattr("umpteen.labelling.progress.in_notebook", lambda: True)
    label_file(tagger, table(tmp_path, questions=TEXTS), tmp_path / "out.csv", progress=True)
    (line,) = capsys.readouterr().out.splitlines()  # a small file is read at once
    assert re.fullmatch(r"labelling: 2 rows, \d+ s, 100%, 0 s left", line)
    from umpteen.labelling.progress import _tell_in_lines

    times = iter([0.0, 4.0, 12.0, 13.0])
    listen = _tell_in_lines(clock=lambda: next(times))
    for n_rows in (10, 20, 30):
        listen(n_rows, None)  # of standard input the size is not known
    assert capsys.readouterr().out == "labelling: 20 rows, 12 s\n"


def test_parquet_and_excel_keep_the_types_of_columns(tagger, tmp_path):
    source = pa.table({"title": ["wine tax"], "n": pa.array([3], pa.int8())})
    pa.parquet.write_table(source, tmp_path / "in.parquet")
    label_file(tagger, tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert pa.parquet.read_table(tmp_path / "out.parquet").schema.field("n").type == pa.int8()
    book = openpyxl.Workbook()
    for row in (["title", "year"], [1984, 1984], ["wine", None]):
        book.active.append(row)
    book.save(tmp_path / "in.xlsx")
    label_file(tagger, tmp_path / "in.xlsx", tmp_path / "out.xlsx", top_k=1)
    found = rows_of(tmp_path / "out.xlsx")
    assert [row["year"] for row in found] == [1984, None]
    assert found[0]["unknown_words"] == 1


@pytest.mark.process
@pytest.mark.measured("memory")
@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "xlsx"])
def test_memory_does_not_grow_with_the_table(model, tmp_path, suffix):
    """Of twenty megabytes of text, a third is there at most. A Parquet file has them in one group of rows."""
    code = (
        "import sys, umpteen\n"
        "from umpteen.labelling import files\n"
        "files._CHARACTERS = 1 << 20\n"
        "tagger = umpteen.load(sys.argv[1])\n"
        "umpteen.label_file(tagger, sys.argv[2], sys.argv[3], top_k=1, threads=1)\n"
        "print(int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]))"
    )
    random = np.random.default_rng(0)
    peaks = []
    for n in (2_000, 10_000):
        path, out = tmp_path / f"{n}.{suffix}", tmp_path / f"{n}-out.{suffix}"
        texts = [f"{TEXTS[i % 5]} {random.bytes(1250).hex()}" for i in range(n)]
        with path.open("wb") as file:
            writer = make_writer(format_of_table(path), file, ["id", "title"])
            writer.write([{"id": i, "title": text} for i, text in enumerate(texts)])
            writer.finish()
        args = [sys.executable, "-c", code, str(model), str(path), str(out)]
        peaks.append(int(subprocess.run(args, capture_output=True, text=True, check=True).stdout) * 1024)
        assert sum(1 for _ in open_table(out)) == n
    assert peaks[1] - peaks[0] < 8_000 * 2500 / 3


# --- as spreadsheets are ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def risky():
    """A model with labels that a spreadsheet would run."""
    names = [["=1+1", "@node"], ["=1+1", "@node"], ["-x", "safe"], ["-x", "safe"]]
    return umpteen.Tagger("dismec").fit(["herring quotas", "cod quotas", "a tax on wine", "wine tax"] * 8, names * 8)


def test_labels_that_look_like_formulas(risky, tmp_path):
    (tmp_path / "in.csv").write_text("note,text\n=2+2,herring quotas\n")

    def label(name, **how):
        umpteen.label_file(risky, tmp_path / "in.csv", tmp_path / name, top_k=2, **how)
        with (tmp_path / name).open(newline="") as file:
            return next(csv.DictReader(file))

    plain = label("plain.csv")
    assert {plain["label_1"], plain["label_2"]} == {"=1+1", "@node"}  # names stay names, for programs
    safe = label("safe.csv", escape_formulas=True)
    assert {safe["label_1"], safe["label_2"]} == {"'=1+1", "'@node"}
    assert safe["note"] == "=2+2"  # not ours to change
    for layout, column in (("list", "labels"), ("long", "label")):
        assert label(f"{layout}.csv", layout=layout, escape_formulas=True)[column].startswith(("'=1+1", "'@node"))
    assert (
        label("json.csv", layout="list", escape_formulas=True)["labels"][1:].count("'") == 0
    )  # only where a cell begins
    umpteen.label_file(risky, tmp_path / "in.csv", tmp_path / "o.jsonl", top_k=2, escape_formulas=True)
    assert "'" not in (tmp_path / "o.jsonl").read_text()


def test_the_command_warns_of_formulas(risky, tmp_path):
    risky.save(tmp_path / "m")
    (tmp_path / "in.csv").write_text("text\nherring quotas\n")
    said = run("predict", tmp_path / "m", tmp_path / "in.csv", "--output", tmp_path / "a.csv")
    assert "note: 3 labels, such as" in said
    assert "--escape-formulas" in said
    for name, more in (("b.csv", ["--escape-formulas"]), ("c.jsonl", [])):
        said = run("predict", tmp_path / "m", tmp_path / "in.csv", "--output", tmp_path / name, *more)
        assert "note" not in said
    (tmp_path / "test.jsonl").write_text('{"text": "herring quotas", "labels": ["=1+1"]}\n')
    for command in (
        ["labels", tmp_path / "m", "--output"],
        ["evaluate", tmp_path / "m", tmp_path / "test.jsonl", "--per-label"],
    ):
        assert "note: 3 labels, such as" in run(*command, tmp_path / "l.csv", "--overwrite")
    with pytest.raises(DataError, match="already exists; choose another name, or replace it with --overwrite"):
        run("predict", tmp_path / "m", tmp_path / "in.csv", "--output", tmp_path / "b.csv")
    for name in ("a.pdf", "a.xls", "a.csvx.gz"):
        with pytest.raises(ParamError, match=r"--output must end in \.csv, .* but is "):
            run("predict", tmp_path / "m", tmp_path / "in.csv", "--output", tmp_path / name)
    run("predict", tmp_path / "m", tmp_path / "in.csv", "--output", tmp_path / "ids.txt")


def test_columns_without_a_name_titles_and_dates(risky, tmp_path):
    (tmp_path / "wide.csv").write_text("id;text;;\r\n7;wine tax;;\r\n8;cod;x;\r\n")
    umpteen.label_file(risky, tmp_path / "wide.csv", tmp_path / "out.csv", top_k=1)
    first, second, third = (tmp_path / "out.csv").read_text().splitlines()
    assert first.startswith("id;text;column_3;column_4;label_1;")
    assert second.startswith("7;wine tax;;;")
    assert third.startswith("8;cod;x;;")
    for name, content, message in (
        ("a.csv", "My catalogue;;;\nid;text;year;note\n", r"a\.csv:1: most columns must have names, but 3 have none"),
        ("b.csv", "My catalogue\nid,text\n", r"b\.csv:2: there must be 1 columns .* but are 2"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=f"{message}; if a title stands above the header, remove its line"):
            umpteen.label_file(risky, tmp_path / name, tmp_path / "no.csv", fields=Fields.make("My catalogue"))
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["text", "day", "moment", None, "last"])
    sheet.append(["wine", datetime.date(2026, 5, 1), datetime.datetime(2026, 5, 1, 9, 30), "kept", None])
    sheet.append([datetime.date(1984, 1, 1), None, None, None, None])
    book.save(tmp_path / "dates.xlsx")
    umpteen.label_file(risky, tmp_path / "dates.xlsx", tmp_path / "dates.csv", top_k=1)
    with (tmp_path / "dates.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert (found[0]["day"], found[0]["moment"]) == ("2026-05-01", "2026-05-01T09:30:00")
    assert found[0]["column_4"] == "kept"
    assert found[1]["text"] == "1984-01-01"
