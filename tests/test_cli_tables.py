"""The command line on spreadsheets: columns are named once, and the model remembers them."""

from __future__ import annotations

import csv
import datetime
import io
import json
import re
import typing

import openpyxl
import pytest
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.data.tables.fields import Fields
from umpteen.data.tables.reading import open_table
from umpteen.errors import DataError, ModelCorruptError, ModelExistsError, ParamError
from umpteen.storage.store import read_version

from .test_cli_text import LABELS, TEXTS, run

COLUMNS = ("--text-field", "Title^2", "--text-field", "Note", "--label-field", "Subjects", "--label-delimiter", "|")


def as_csv(delimiter=";", header=("Id", "Title", "Note", "Subjects"), times=8):
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(header)
    rows = zip(TEXTS * times, LABELS * times, strict=True)
    writer.writerows([f"r{i}", title, "äöü", "|".join(names)] for i, (title, names) in enumerate(rows))
    return text.getvalue()


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "records.csv"
    path.write_bytes(as_csv().encode("cp1252"))
    return path


@pytest.fixture(scope="module")
def model(records, tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "m"
    out = run("train", records, "--method", "dismec", "--model", path, *COLUMNS)
    assert (
        f"{records}: semicolon between columns, Windows-1252; text from Title^2 and Note; labels from Subjects, "
        "separated by '|'" in out
    )
    return path


def test_a_model_remembers_its_columns(model, records, tmp_path):
    assert umpteen.load(model).fields_ == Fields.make(["Title^2", "Note"], "Subjects", "|")
    assert "text from Title^2 and Note; labels from Subjects" in run("inspect", model)
    assert "P         100.00" in run("evaluate", model, records)
    json.loads(run("evaluate", model, records, "--json", "-").partition("\n")[2])  # after the line of the table
    other = tmp_path / "other.csv"
    other.write_text(as_csv(",", ("Id", "Titel", "Note", "Subjects")))
    with pytest.raises(DataError, match=r"other\.csv:1: there must be a column 'Title', .*; did you mean 'Titel'\?"):
        run("evaluate", model, other)
    assert "P         100.00" in run("evaluate", model, other, "--text-field", "Titel")
    with pytest.raises(DataError, match=r"there must be a column 'Topics', .*; --label-field names another"):
        run("evaluate", model, records, "--label-field", "Topics")


def test_tune_compare_learn_and_add_labels_take_the_columns_of_a_model(model, records, tmp_path):
    out = run("tune", records, "--fields-of", model, "--method", "centroid", "--trials", "1",
              "--journal", tmp_path / "j", "--model", tmp_path / "tuned")  # fmt: skip
    assert "text from Title^2 and Note" in out
    assert umpteen.load(tmp_path / "tuned").fields_ == umpteen.load(model).fields_
    run("compare", records, records, "--fields-of", model, "--methods", "centroid", "--output", tmp_path / "c",
        "--no-studies")  # fmt: skip
    new = tmp_path / "new.csv"
    new.write_text("Title;Note;Subjects\nwhales in the sea;;whale|sea\n")
    run("learn", model, new, "--model", tmp_path / "learnt")
    learnt = umpteen.load(tmp_path / "learnt")
    assert (learnt.suggest("whales", 1)[0][0], learnt.fields_) == ("whale", umpteen.load(model).fields_)
    run("add-labels", model, new, "--model", tmp_path / "grown")
    assert umpteen.load(tmp_path / "grown").fields_ == learnt.fields_


def test_lines_of_json_with_the_models_fields_are_corrections(model, tmp_path):
    rows = [
        {"Title": "whales in the sea", "Note": None, "Subjects": ["whale", "sea"]},
        {"Title": "whale oil", "Note": "", "accepted": ["whale"], "rejected": ["sea"]},
        {"text": "whale bones", "labels": ["whale"]},
        {"Title": "whale song", "Note": "", "Subjects": "whale|sea"},
    ]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "learnt     4 corrections" in run("learn", model, tmp_path / "new.jsonl", "--model", tmp_path / "m")
    assert umpteen.load(tmp_path / "m").suggest("whales whale", 1)[0][0] == "whale"
    (tmp_path / "new.jsonl").write_text('{"Title": "whales", "Note": ""}\n')
    with pytest.raises(DataError, match=r"new\.jsonl:1: a correction must have either 'labels' or some of"):
        run("learn", model, tmp_path / "new.jsonl", "--model", tmp_path / "n")


def test_a_report_names_rows_by_the_column_the_model_knows(records, tmp_path):
    run("train", records, "--method", "centroid", "--model", tmp_path / "m", "--calibration", "0", *COLUMNS,
        "--id-field", "Id")  # fmt: skip
    wrong = as_csv(times=1).replace("fish|sea", "tax")
    (tmp_path / "t.csv").write_text(wrong)
    run("report", tmp_path / "m", tmp_path / "t.csv", "--output", tmp_path / "r.html")
    text = TEXTS[0]
    shown = (tmp_path / "r.html").read_text()
    assert f"r0: {text} äöü<br>" in shown  # once, though its words count twice
    (tmp_path / "t.csv").write_text(wrong.replace("Id;", "Number;"))  # needed by nobody
    run("report", tmp_path / "m", tmp_path / "t.csv", "--output", tmp_path / "r.html", "--overwrite")
    assert "row 1: " in (tmp_path / "r.html").read_text()


def test_an_output_does_not_replace_an_input(model, records, tmp_path):
    content = records.read_bytes()
    for command in (("report", "--output"), ("evaluate", "--json"), ("evaluate", "--per-label")):
        with pytest.raises(DataError, match=r"records\.csv: the output must be another file than the input"):
            run(command[0], model, records, command[1], records)
    (tmp_path / "link.txt").symlink_to(records)
    with pytest.raises(DataError, match=r"link\.txt: the output must be another file than the input"):
        run("predict", model, records, "--output", tmp_path / "link.txt")
    assert records.read_bytes() == content


def test_options_say_how_a_table_is_written(records, tmp_path):
    odd = tmp_path / "odd.csv"
    odd.write_bytes(as_csv("~").encode("latin-1"))
    columns = ("--text-field", "Title", "--label-field", "Subjects", "--label-delimiter", "|")
    out = run("train", odd, "--method", "centroid", "--model", tmp_path / "m", "--calibration", "0", *columns,
              "--csv-delimiter", "~", "--encoding", "latin-1", "--id-field", "Id")  # fmt: skip
    assert "'~' between columns, Latin-1; text from Title; labels from Subjects, separated by '|'; ids from Id" in out
    with pytest.raises(DataError, match=r"--label-delimiter names what separates its labels"):
        run("train", odd, "--model", tmp_path / "n", "--csv-delimiter", "~", *columns[:4])
    with pytest.raises(ParamError, match=r"the weight of --text-field 'Title' must be a whole number from 1 to 100"):
        run("train", odd, "--model", tmp_path / "n", "--text-field", "Title^1000")


def test_a_model_remembers_how_its_tables_are_written(tmp_path):
    """What only options can say: ~ between columns, a Macintosh's characters, quotes that are none."""
    rows = [(title.replace("sea", 'seé"'), "|".join(names)) for title, names in zip(TEXTS * 8, LABELS * 8)]  # noqa: B905

    def write(name, encoding="mac-roman", cells=rows):
        path = tmp_path / name
        path.write_bytes("\n".join(["title~labels", *map("~".join, cells)]).encode(encoding))
        return path

    odd, new = write("odd.csv"), write("new.csv", cells=[('"wine tax; seé', "tax")] * 3)
    said = ("--csv-delimiter", "~", "--encoding", "mac-roman", "--csv-quote", "none")
    run("train", odd, "--method", "dismec", "--model", tmp_path / "m", "--text-field", "title", "--label-delimiter",
        "|", *said)  # fmt: skip
    model = tmp_path / "m"
    assert "'~' between columns, no quotes, mac-roman" in run("inspect", model)
    shown = "new.csv: '~' between columns, no quotes, mac-roman; text from title"
    assert shown in run("evaluate", model, new)
    assert shown in run("report", model, new, "--output", tmp_path / "r.html")
    assert shown in run("predict", model, new, "--output", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text("utf-8-sig").splitlines()[1].startswith('"""wine tax; seé"~tax~')
    run("predict", model, new, "--output", tmp_path / "out.txt", "--top-k", "1")
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 3
    out = run("tune", odd, "--fields-of", model, "--method", "centroid", "--trials", "1", "--journal", tmp_path / "j",
              "--model", tmp_path / "tuned")  # fmt: skip
    assert "odd.csv: '~' between columns, no quotes, mac-roman" in out
    assert umpteen.load(tmp_path / "tuned").fields_.written == umpteen.load(model).fields_.written
    out = run("compare", odd, new, "--fields-of", model, "--methods", "centroid", "--output", tmp_path / "c",
              "--no-studies")  # fmt: skip
    assert shown in out
    assert shown in run("learn", model, new, "--model", tmp_path / "learnt")
    assert shown in run("add-labels", model, write("new.csv", cells=[("whalé", "whale")]), "--model", tmp_path / "g")
    umpteen.label_file(umpteen.load(tmp_path / "learnt"), odd, tmp_path / "too.csv", top_k=1)
    # JSON lines too, and a table that shows how it is written
    (tmp_path / "a.jsonl").write_bytes('{"text": "thé", "labels": ["new"]}'.encode("mac-roman"))
    run("learn", model, tmp_path / "a.jsonl", "--model", tmp_path / "learnt2")
    plain = write("plain.csv", "utf-8-sig", [("“wine”", "tax")])
    plain.write_bytes(plain.read_bytes().replace(b"~", b","))
    assert "plain.csv: comma between columns, no quotes, UTF-8 with a" in run("evaluate", model, plain)
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "th\xe9", "labels": []}')
    with pytest.raises(ParamError, match="csv_delimiter is for csv and tsv"):
        run("learn", model, tmp_path / "b.jsonl", "--csv-delimiter", ";", "--model", tmp_path / "n")
    assert "learnt     1 correction" in run("learn", model, tmp_path / "b.jsonl", "--encoding", "latin-1", "--model",
                                            tmp_path / "n")  # fmt: skip


def test_inspect_shows_what_a_table_holds(records, tmp_path):
    out = run("inspect", records)
    assert "csv, semicolon between columns, Windows-1252; 40 rows, 4 columns" in out
    assert "Title                100% filled, such as herring quotas in the north sea" in out
    facts = json.loads(run("inspect", records, "--json", "-"))
    assert facts["columns"][3] == {"name": "Subjects", "filled": 40, "example": "fish|sea"}
    book = openpyxl.Workbook()
    book.active.append(["year", "date"])
    book.active.append([1984.0, datetime.date(2026, 5, 1)])
    book.save(path := tmp_path / "dates.xlsx")
    first, year, date = run("inspect", path).splitlines()
    assert first == "excel; 1 row, 2 columns"
    assert year.endswith("such as 1984")
    assert date.endswith("such as 2026-05-01")


def test_an_excel_file_trains_and_is_judged(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["text", "labels"])
    for text, labels in zip(TEXTS * 4, LABELS * 4, strict=True):
        book.active.append([text, ", ".join(labels)])
    book.save(path := tmp_path / "a.xlsx")
    run(
        "train",
        path,
        "--method",
        "centroid",
        "--model",
        tmp_path / "m",
        "--calibration",
        "0",
        "--label-delimiter",
        ",",
    )
    assert "P         100.00" in run("evaluate", tmp_path / "m", path)


def test_columns_in_a_model_are_not_trusted(model):
    trained = umpteen.load(model).fitted()
    for bad in ([], {"text": [["a", 10**12]]}, {"text": "a"}, {"text": [["a", 1]], "labels": {"b": 1}},
                {"text": [["a", 1]], "written": {"encoding": "base64"}}, {"text": [["a", 1]], "written": {"x": 1}},
                {"text": [["a", 1]], "written": {"delimiter": [";"]}}):  # fmt: skip
        trained.header["text"]["fields"] = bad
        with pytest.raises(ModelCorruptError, match="the model: "):
            umpteen.Tagger.from_model(trained)
    del trained.header["text"]["fields"]
    assert umpteen.Tagger.from_model(trained).fields_ is None  # as in models of earlier versions


# --- commands that think along ----------------------------------------------------------------------------------


def test_train_refuses_early_overwrites_late_and_shows_what_it_would_do(model, records, tmp_path, monkeypatch):
    plan = run("train", records, "--method", "dismec", "--model", tmp_path / "m", "--dry-run", *COLUMNS)
    assert "method     DiSMEC()\n" in plan  # no engine, no object at an address
    assert "estimate   at most" in plan
    assert re.search(r"time       about [0-9.]+ s with [0-9]+ threads?, of [2-9] models\n", plan)
    for method, shown in (("fastxml", "about "), ("rxml", "about "), ("pdsparse", "unknown: pdsparse has no small")):
        plan = run("train", records, "--method", method, "--model", tmp_path / "m", "--dry-run", "--calibration", "0",
                   "--threads", "1", *COLUMNS)  # fmt: skip
        assert f"time       {shown}" in plan
    assert "nothing was trained" in plan
    assert not (tmp_path / "m").exists()

    monkeypatch.setattr("umpteen.cli.train.read_texts", lambda *_: pytest.fail("the data were read first"))
    with pytest.raises(ModelExistsError, match="a finished model is already there; .* with --overwrite"):
        run("train", records, "--method", "centroid", "--model", model, *COLUMNS)
    monkeypatch.undo()

    how = ("--model", tmp_path / "m", "--calibration", "0", *COLUMNS)
    run("train", records, "--method", "centroid", *how)
    out = run("train", records, "--method", "dismec", "--overwrite", "--valid", records, *how)
    assert umpteen.load(tmp_path / "m").fitted().method == "dismec"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    shown = [line[11:] for line in out.splitlines() if " umpteen " in f" {line[11:]}"]
    assert f"umpteen evaluate {tmp_path / 'm'} {records}" in shown
    assert f"umpteen predict {tmp_path / 'm'} {records} --output labelled.csv" in shown
    assert f"umpteen report {tmp_path / 'm'} {records} --output report.html" in shown
    assert "P         100.00" in run(*shown[2].split()[1:])


def test_what_cannot_be_a_model_or_a_judge_is_refused_early(model, records, tmp_path, monkeypatch):
    (tmp_path / "none.csv").write_text("Title;Note;Subjects\n")
    for command in (
        ["evaluate", model, tmp_path / "none.csv"],
        ["report", model, tmp_path / "none.csv", "--output", tmp_path / "r"],
    ):
        with pytest.raises(DataError, match=r"none\.csv: there must be at least one row to judge the model by"):
            run(*command)
    for command in (
        ["train", tmp_path / "none.csv", "--method", "centroid", "--model", tmp_path / "m", *COLUMNS],
        ["tune", tmp_path / "none.csv", "--fields-of", model, "--journal", tmp_path / "j"],
        ["learn", model, tmp_path / "none.csv"],
    ):
        with pytest.raises(DataError, match=r"none\.csv: there must be at least one row, but there is none"):
            run(*command)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(DataError, match=r"empty\.jsonl: there must be at least one row, but there is none"):
        run("train", tmp_path / "empty.jsonl", "--model", tmp_path / "m")
    monkeypatch.setattr("umpteen.tagger.Tagger.prepare", lambda *_: pytest.fail("the work had begun"))
    with pytest.raises(DataError, match=r"none\.csv: there must be at least one row to judge the model by"):
        run(
            "train",
            records,
            "--method",
            "dismec",
            "--model",
            tmp_path / "m",
            "--valid",
            tmp_path / "none.csv",
            *COLUMNS,
        )
    with pytest.raises(DataError, match=r"records\.csv: a model must be a directory, but this is a file"):
        run("train", records, "--method", "dismec", "--model", records, *COLUMNS)
    for name in ("a.xls", "a.ods", "a.XLSM"):
        (tmp_path / name).write_bytes(b"PK\x03\x04")
        with pytest.raises(
            ParamError, match=r"a spreadsheet must be \.xlsx, \.csv or \.tsv, but is \.(xls|ods|XLSM); save"
        ):
            run("train", tmp_path / name, "--model", tmp_path / "m")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("predict", "--threshold", "40"), "threshold must be a share from 0 to 1, but is 40"),
        (("predict", "--threshold", "mikro"), r"but is 'mikro'; did you mean 'micro' or 'macro'\?"),
        (("predict", "--top-k", "0"), "top_k must be an integer of at least 1, but is 0"),
        (("predict", "--top-k", "atuo"), r"but is 'atuo'; did you mean 'auto'\?"),
        (
            ("predict", "--labels", "wde"),
            r"--labels must be one of .* but is 'wde'; did you mean 'wide'",
        ),
        (("predict", "--encoding", "uft8"), r"--encoding|encoding must be an encoding .*did you mean 'utf_8'"),
        (("predict", "--csv-delimiter", ";;"), "csv_delimiter must be one character"),
        (("predict", "--text-field", "a^0"), "the weight of --text-field 'a' must be a whole number"),
        (("evaluate", "--threshold", "40"), "threshold must be a share from 0 to 1, but is 40"),
        (("evaluate", "--k", "0,5"), "--k must be whole numbers from 1 to 1000"),
        (("report", "--threshold", "-1", "--output", "{out}"), "threshold must be a share from 0 to 1, but is -1"),
        (("report", "--k", "1,x", "--output", "{out}"), "--k must be whole numbers from 1 to 1000"),
        (("learn", "--csv-quote", "''"), "csv_quote must be one character"),
        (("tune", "--metric", "P@2"), r"metric must be one of .*, but is 'P@2'; did you mean 'P@"),
        (("tune", "--heldout", "1"), "heldout must be a share above 0 and below 1, but is 1"),
        (("tune", "--method", "dismek"), r"but is 'dismek'; did you mean 'dismec'\?"),
        (("tune", "--method", "dismec", "--set", "loss=logstic"), r"but is 'logstic'; did you mean 'logistic'\?"),
        (("train", "--calibration", "1.5"), "calibration must be"),
        (
            ("train", "--method", "dismec", "--preset", "papr"),
            r"--preset .* is 'papr'; did you mean 'paper'",
        ),
        (("train", "--features", "wrod"), r"--features must be one of .*'wrod'; did you mean 'word'"),
        (("train", "--engine", "lokal"), r"engine must be one of local, ray, but is 'lokal'; did you mean 'local'"),
        (("train", "--format", "cvs"), r"--format must be one of .*'cvs'; did you mean 'csv'"),
        (("train", "--keep-rows", "5", "--method", "fastxml"), "keep_rows"),
        (("compare", "--methods", "centroyd"), r"but is 'centroyd'; did you mean 'centroid'\?"),
        (("compare", "--peers", "omikuje"), r"peer must be one of .* but is 'omikuje'; did you mean 'omikuji'\?"),
        (("compare", "--methods", "centroid", "--baseline", "centroids"), r"did you mean 'centroid'\?"),
        (("add-labels", "--negatives", "weigts", "--model", "{out}"), r"did you mean 'weights'\?"),
    ],
)
def test_options_are_checked_before_files_are_read(options, message, model, records, tmp_path, monkeypatch):
    command, *rest = [option.replace("{out}", str(tmp_path / "out")) for option in options]
    places = {"train": [records, "--model", tmp_path / "m"], "tune": [records], "compare": [records, records]}
    monkeypatch.chdir(tmp_path)  # where journals and models go by default
    for reader in ("umpteen.data.tables.reading.Table", "umpteen.data.reading.read"):
        monkeypatch.setattr(reader, lambda *_, **__: pytest.fail("a file was read first"))
    with pytest.raises(ParamError, match=message):
        run(command, *places.get(command, [model, records]), *rest)
    assert list(tmp_path.iterdir()) == []


def test_options_of_texts_are_refused_for_numbers(tmp_path):
    data = umpteen.make_synthetic(60, 20, 4, seed=1)
    umpteen.write_xc(data, tmp_path / "a.txt")
    run("train", tmp_path / "a.txt", "--method", "centroid", "--model", tmp_path / "m")
    file, model = tmp_path / "a.txt", tmp_path / "m"
    for command in (
        ["train", file, "--method", "centroid", "--model", tmp_path / "n"],
        ["tune", file, "--journal", tmp_path / "j"], ["compare", file, file, "--output", tmp_path / "c"],
        ["predict", model, file], ["evaluate", model, file],
        ["report", model, file, "--output", tmp_path / "r.html"],
        ["add-labels", model, file, "--model", tmp_path / "n"], ["inspect", file],
    ):  # fmt: skip
        with pytest.raises(ParamError, match="--encoding is for tables of texts, not for files of numbers"):
            run(*command, "--encoding", "latin-1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "m"]


def test_nothing_is_replaced_unasked(model, records, tmp_path, monkeypatch):
    """One rule for all commands: what is there is refused before the work, and --overwrite replaces it."""
    there = tmp_path / "there"
    there.write_text("mine")
    grown = tmp_path / "grown"
    (tmp_path / "new.csv").write_text("Title;Note;Subjects\nwhales in the sea;;whale\n")
    run("add-labels", model, tmp_path / "new.csv", "--model", grown)
    commands = [
        (["evaluate", model, records, "--json"], there),
        (["evaluate", model, records, "--per-label"], there),
        (["report", model, records, "--output"], there),
        (["report", model, records, "--output", tmp_path / "r.html", "--per-label"], there),
        (["predict", model, records, "--output"], there),
        (["suggest", model, "wine", "--json"], there),
        (["suggest", model, "wine", "--html"], there),
        (["inspect", model, "--json"], there),
        (["labels", model, "--output"], there),
        (["tune", records, "--fields-of", model, "--method", "centroid", "--trials", "1", "--journal", tmp_path / "j",
          "--json"], there),
        (["tune", records, "--fields-of", model, "--method", "centroid", "--trials", "1", "--journal", tmp_path / "j",
          "--model"], grown),
        (["learn", model, tmp_path / "new.csv", "--model"], grown),
        (["add-labels", model, tmp_path / "new.csv", "--model"], grown),
        (["prune", model, "--delta", "0.1", "--model"], grown),
        (["train", records, "--method", "centroid", *COLUMNS, "--model"], grown),
    ]  # fmt: skip
    before = read_version(grown)
    with monkeypatch.context() as patch:
        patch.setattr("umpteen.data.tables.reading.Table", lambda *_, **__: pytest.fail("a file was read first"))
        for command, target in commands:
            with pytest.raises((DataError, ModelExistsError), match="--overwrite"):
                run(*command, target)
    assert (there.read_text(), read_version(grown)) == ("mine", before)
    for command, target in commands:
        if command[0] == "predict":
            there.rename(tmp_path / "there.txt")
            target = there = tmp_path / "there.txt"
        run(*command, target if target == grown else there, "--overwrite")
        if target == grown:
            assert read_version(grown) != before
            before = read_version(grown)
        else:
            assert there.read_text() != "mine"
            there.write_text("mine")


def test_messages_name_options(model, records, tmp_path):
    import sys

    from umpteen.cli.main import in_flags

    sys.argv, before = ["umpteen", "predict"], sys.argv
    try:
        for message, shown in (
            (
                "top_k must be an integer of at least 1, but is 0",
                "--top-k must be an integer of at least 1, but is 0",
            ),
            (
                "threshold must be a share from 0 to 1, but is 40",
                "--threshold must be a share from 0 to 1, but is 40",
            ),
            ("csv_delimiter is for csv and tsv", "--csv-delimiter is for csv and tsv"),
            ("a 'top_k' in quotes, a file top_k.csv", "a 'top_k' in quotes, a file top_k.csv"),
            ("beam_size must be at least 1", "beam_size must be at least 1"),
        ):
            assert in_flags(message, ParamError, app) == shown
        message = 'a.csv:2: not valid CSV (a " opens a cell here and is never closed)'
        hint = "; if quotes are characters as any others in it, --csv-quote none says so"
        assert in_flags(message, DataError, app) == message + hint
        assert in_flags("labels must include a new one", DataError, app) == "labels must include a new one"
    finally:
        sys.argv = before
    with pytest.raises(ParamError, match="threshold must be a share from 0 to 1, but is 40"):
        run("suggest", model, "wine", "--threshold", "40")
    with pytest.raises(ParamError, match=r"TEXT must be a text, but is the name of a file; umpteen predict"):
        run("suggest", model, records)
    with pytest.raises(FileNotFoundError):
        run("evaluate", model, records, "--json", tmp_path / "nowhere" / "m.json")


# --- labels -----------------------------------------------------------------------------------------------------


def test_labels_are_listed_searched_and_exported(model, tmp_path):
    assert run("labels", model).split() == ["24", "sea", "16", "fish", "16", "tax", "16", "wine"]
    assert run("labels", model, "--sort", "name", "--limit", "1").splitlines()[0].split() == ["16", "fish"]
    assert run("labels", model, "WIN").split() == ["16", "wine"]
    assert run("labels", model, "fisch").split() == ["16", "fish"]
    assert "no label of 4 resembles 'qqq'" in run("labels", model, "qqq")
    for name in ("l.csv", "l.tsv", "l.jsonl", "l.parquet", "l.xlsx"):
        run("labels", model, "--sort", "id", "--output", tmp_path / name)
        found = [row for _, row in open_table(tmp_path / name)]
        assert [(int(row["id"]), row["label"], int(row["rows"])) for row in found] == [
            (0, "fish", 16), (1, "sea", 24), (2, "tax", 16), (3, "wine", 16)
        ]  # fmt: skip
    run("labels", model, "tax", "--output", tmp_path / "some.txt")
    with pytest.raises(DataError, match=r"some\.txt: already exists; .* replace it with --overwrite"):
        run("labels", model, "sea", "--output", tmp_path / "some.txt")
    run("labels", model, "sea", "--output", tmp_path / "some.txt", "--overwrite")
    assert (tmp_path / "some.txt").read_text() == "sea\n"
    assert run("labels", model, "tax", "--output", "-") == "tax\n"
    with pytest.raises(ParamError, match="--sort must be one of count, name, id, but is 'colour'"):
        run("labels", model, "--sort", "colour")


def test_unknown_names_come_with_the_nearest(records, tmp_path):
    for options, message in (
        (("--method", "dismek"), r"but is 'dismek'; did you mean 'dismec'\?"),
        (("--method", "dismec", "--set", "prunes=1"), r"did you mean 'prune'\?"),
    ):
        with pytest.raises(ParamError, match=message):
            run("train", records, "--model", tmp_path / "m", *options)


def _numbers():
    """The commands' options that are numbers."""
    for command in app.registered_commands:
        for hint in typing.get_type_hints(command.callback, include_extras=True).values():
            kinds = {hint.__origin__, *typing.get_args(hint.__origin__)} if hasattr(hint, "__metadata__") else set()
            if kinds & {int, float}:
                option = hint.__metadata__[0]  # keeps its first name where a default would be
                yield command.name, next(name for name in (option.default, *option.param_decls) if name)


@pytest.mark.parametrize(("name", "option"), list(_numbers()))
def test_every_number_has_bounds_that_are_checked_first(name, option, tmp_path):
    """The files named are not there, so that nothing can be read before."""
    required = {
        "suggest": ["m", "text"], "predict": ["m", "i"], "evaluate": ["m", "t"],
        "report": ["m", "t", "--output", "o"],
        "compare": ["a", "b"], "prune": ["m", "--model", "n"], "add-labels": ["m", "n", "--model", "o"],
        "learn": ["m", "c"], "blend": ["a", "b", "--model", "m"], "demo": [],
    }.get(name, [str(tmp_path / "nowhere")])  # fmt: skip
    done = CliRunner().invoke(app, [name, *required, option, "-1"])
    assert done.exit_code != 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", done.output) + str(done.exception)
    assert f"{option}'" in shown or f"{option.strip('-').replace('-', '_')} must be" in shown, shown


def test_a_label_that_is_not_there_is_named_with_the_nearest(model):
    with pytest.raises(ParamError, match=r"include holds the unknown label 'fishes'; did you mean 'fish'\?"):
        umpteen.load(model).suggest("wine", include=["fishes"])
