"""Models with a vocabulary at the command line: URIs in tables, labels by any of their names, reports."""

from __future__ import annotations

import json

import pytest

import umpteen
from umpteen.data.tables.reading import open_table
from umpteen.errors import DataError, ParamError
from umpteen.labelling.files import label_file

from .test_cli_text import run
from .test_concepts import CSV, MIXED, NAMES, TEXTS

FISH, SEA = "http://ex.org/fish", "http://ex.org/sea"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("concepts")
    (folder / "v.csv").write_text(CSV)
    tagger = umpteen.Tagger("dismec", vocabulary=folder / "v.csv").fit(TEXTS, NAMES)
    tagger.learn("an old boat", labels=["boat"]).save(folder / "m")  # "boat" is no concept
    (folder / "in.csv").write_text("id,text\n1,cod quotas in the sea\n2,zzz\n")
    return folder


@pytest.fixture(scope="module")
def tagger(place):
    return umpteen.load(place / "m")


def test_a_label_that_is_no_concept_has_an_empty_uri(tagger, place, tmp_path):
    label_file(tagger, place / "in.csv", tmp_path / "o.jsonl", include=["boat", FISH], top_k=2)
    (row, _) = [row for _, row in open_table(tmp_path / "o.jsonl")]
    assert dict(zip(row["labels"], row["uris"], strict=True)) == {"boat": "", "fish": FISH}


def test_uris_with_the_delimiter_or_a_formula_in_them(tmp_path):
    (tmp_path / "v.csv").write_text("uri,label_en\nu:a;b,fish\n=cmd(),tax\n")
    tagger = umpteen.Tagger("dismec", vocabulary=tmp_path / "v.csv").fit(
        ["herring", "wine"] * 10, [["fish"], ["tax"]] * 10
    )
    (tmp_path / "in.csv").write_text("text\nherring\nwine\n")
    label_file(tagger, tmp_path / "in.csv", tmp_path / "list.csv", layout="list", top_k=1)
    assert [row["uris"] for _, row in open_table(tmp_path / "list.csv")] == ['["u:a;b"]', '["=cmd()"]']
    label_file(tagger, tmp_path / "in.csv", tmp_path / "w.csv", top_k=1, escape_formulas=True)
    assert [row["uri_1"] for _, row in open_table(tmp_path / "w.csv")] == ["u:a;b", "'=cmd()"]


def test_labels_are_named_by_uri_notation_or_any_name(place, tmp_path):
    (tmp_path / "some.txt").write_text(f"{FISH}\nGC\n viini \n")
    how = ("--output", tmp_path / "o.jsonl", "--overwrite", "--top-k", 9)
    run("predict", place / "m", place / "in.csv", *how, "--include", tmp_path / "some.txt")
    assert sorted(json.loads((tmp_path / "o.jsonl").read_text().splitlines()[0])["labels"]) == ["fish", "sea", "wine"]
    run("predict", place / "m", place / "in.csv", *how, "--exclude", tmp_path / "some.txt", "--exclude", "tax")
    assert json.loads((tmp_path / "o.jsonl").read_text().splitlines()[0])["labels"] == ["boat"]
    assert "kala" not in run(
        "suggest",
        place / "m",
        "cod in the sea",
        "--include",
        tmp_path / "some.txt",
        "--exclude",
        "QL",
        "--language",
        "fi",
    )
    (tmp_path / "some.txt").write_text("fish\nfisch\n")
    with pytest.raises(DataError, match=r"some\.txt:2: the model has no label 'fisch'; did you mean 'fish'\?"):
        run("suggest", place / "m", "cod", "--include", tmp_path / "some.txt")
    with pytest.raises(ParamError, match="language must be one of the vocabulary's, en, fi, but is 'de'"):
        run("predict", place / "m", place / "in.csv", "--output", tmp_path / "x.csv", "--language", "de")
    assert not list(tmp_path.glob("x.csv*"))


def test_lists_of_labels_show_and_find_uris(place, tmp_path):
    shown = [line.split() for line in run("labels", place / "m").splitlines()]
    assert ["20", "fish", "QL", FISH] in shown
    assert ["1", "boat"] in shown
    for query in (FISH, "QL", "kala", "FISH", "kal"):
        assert [line.split()[1] for line in run("labels", place / "m", query).splitlines()] == ["fish"], query
    assert run("labels", place / "m", "kala", "--language", "fi").split()[1] == "kala"
    run("labels", place / "m", "--sort", "id", "--output", tmp_path / "l.csv")
    rows = [row for _, row in open_table(tmp_path / "l.csv")]
    assert rows[0] == {"id": "0", "label": "fish", "uri": FISH, "notation": "QL", "rows": "20"}
    assert rows[-1]["uri"] == ""


def test_a_report_takes_labels_in_any_form(place, tmp_path):
    lines = (json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, MIXED, strict=True))
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    plain = run("evaluate", place / "m", tmp_path / "t.jsonl", "--json", "-")
    more = run("evaluate", place / "m", tmp_path / "t.jsonl", "--json", "-", "--per-label", tmp_path / "l.csv")
    assert json.loads(more)["P@1"] == json.loads(plain)["P@1"] == 100
    rows = {row["label"]: row for _, row in open_table(tmp_path / "l.csv")}
    assert rows["fish"]["support"] == "20"
    assert rows["fish"]["uri"] == FISH
    run("report", place / "m", tmp_path / "t.jsonl", "--output", tmp_path / "r.html")
    shown = (tmp_path / "r.html").read_text()
    assert "were not in the training data" not in shown
    assert f'<a href="{FISH}">{FISH}</a>' in shown
