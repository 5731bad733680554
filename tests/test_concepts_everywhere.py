"""What a model with a vocabulary answers in tables, at the command line and over HTTP: names in any language,
URIs and notations."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.errors import DataError, ParamError

from .test_concepts import CSV, NAMES, TEXTS

ROWS = "id,text\n1,herring quotas\n2,beer tax\n3,zzz\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("concepts")
    (folder / "v.csv").write_text(CSV)
    (folder / "in.csv").write_text(ROWS)
    umpteen.Tagger("dismec", vocabulary=folder / "v.csv").set_params(
        vocabulary=umpteen.read_vocabulary(folder / "v.csv", language="en")
    ).fit(TEXTS, NAMES).save(folder / "model")
    umpteen.Tagger("dismec").fit(TEXTS, NAMES).save(folder / "plain")
    return folder


@pytest.fixture(scope="module")
def tagger(folder):
    return umpteen.load(folder / "model")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# --- tables --------------------------------------------------------------------------------------------------------


def test_wide_tables_have_columns_beside_each_label(folder, tagger, tmp_path):
    umpteen.label_file(tagger, folder / "in.csv", tmp_path / "out.csv", top_k=2, language="fi")
    first, second, none = read(tmp_path / "out.csv")
    assert list(first) == [
        "id", "text", "label_1", "probability_1", "uri_1", "notation_1", "label_2", "probability_2", "uri_2",
        "notation_2", "unknown_words",
    ]  # fmt: skip
    assert (first["label_1"], first["uri_1"], first["notation_1"]) == ("kala", "http://ex.org/fish", "QL")
    assert {second["label_1"], second["label_2"]} == {"vero", "viini"}
    place = "1" if second["label_1"] == "vero" else "2"
    assert (second[f"uri_{place}"], second[f"notation_{place}"]) == ("http://ex.org/tax", "")
    assert none["label_1"] == none["uri_1"] == ""


def test_lists_and_lines_have_them_too(folder, tagger, tmp_path):
    umpteen.label_file(tagger, folder / "in.csv", tmp_path / "out.jsonl", top_k=1)
    first, _, none = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (first["labels"], first["uris"], first["notations"]) == (["fish"], ["http://ex.org/fish"], ["QL"])
    assert none["labels"] == none["uris"] == []
    umpteen.label_file(tagger, folder / "in.csv", tmp_path / "long.csv", top_k=1, layout="long", explain=True)
    long = read(tmp_path / "long.csv")
    assert [row["uri"] for row in long][::2] == ["http://ex.org/fish", ""]
    assert long[0]["why"].startswith("herring")
    umpteen.label_file(tagger, folder / "in.csv", tmp_path / "list.csv", top_k=2, layout="list")
    assert read(tmp_path / "list.csv")[0]["uris"] == "http://ex.org/fish;http://ex.org/sea"


def test_a_model_without_vocabulary_has_no_such_columns(folder, tmp_path):
    plain = umpteen.load(folder / "plain")
    umpteen.label_file(plain, folder / "in.csv", tmp_path / "out.csv", top_k=1)
    assert list(read(tmp_path / "out.csv")[0]) == ["id", "text", "label_1", "probability_1", "unknown_words"]
    with pytest.raises(ParamError, match="since the model has no vocabulary"):
        umpteen.label_file(plain, folder / "in.csv", tmp_path / "other.csv", language="fi")


def test_labels_of_options_may_be_concepts(folder, tagger, tmp_path):
    umpteen.label_file(tagger, folder / "in.csv", tmp_path / "a.csv", top_k=1, exclude=["http://ex.org/fish"])
    assert read(tmp_path / "a.csv")[0]["label_1"] != "fish"
    (tmp_path / "labels.txt").write_text("kala\nGC\n")
    done = run(
        "predict", folder / "model", folder / "in.csv", "--output", tmp_path / "b.csv", "--top-k", 2, "--language",
        "fi", "--include", tmp_path / "labels.txt",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    first = read(tmp_path / "b.csv")[0]
    assert [first["label_1"], first["label_2"]] == ["kala", "meri"]
    only = run("predict", folder / "model", folder / "in.csv", "--output", tmp_path / "c.csv", "--include", "kalla")
    assert isinstance(only.exception, ParamError)
    (tmp_path / "labels.txt").write_text("kala\nkalla\n")
    wrong = run(
        "predict", folder / "model", folder / "in.csv", "--output", tmp_path / "d.csv", "--include",
        tmp_path / "labels.txt",
    )  # fmt: skip
    assert isinstance(wrong.exception, DataError)
    assert "labels.txt:2: the model has no label 'kalla'" in str(wrong.exception)


def test_another_language_is_another_run(folder, tagger, tmp_path):
    for language, name in (("fi", "kala"), ("en", "fish")):
        umpteen.label_file(
            tagger, folder / "in.csv", tmp_path / "out.csv", top_k=1, language=language, version="1", overwrite=True
        )
        assert read(tmp_path / "out.csv")[0]["label_1"] == name


# --- HTTP ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(folder):
    pytest.importorskip("httptools")
    from umpteen.serving.app import make_app
    from umpteen.serving.settings import Settings

    from .serving import running

    models = {"en": str(folder / "model"), "plain": str(folder / "plain")}
    with running(make_app(Settings(models, watch=0))) as client:
        yield client


def suggest(client, **asked):
    return client.post("/v1/suggest", json={"text": "herring quotas", "top_k": 1, **asked})


def test_suggestions_carry_uri_and_notation(client):
    found = suggest(client, language="fi").json()["results"][0]
    assert (found["label"], found["uri"], found["notation"]) == ("kala", "http://ex.org/fish", "QL")
    assert suggest(client).json()["results"][0]["label"] == "fish"
    assert "uri" not in suggest(client, model="plain").json()["results"][0]
    batch = client.post("/v1/suggest-batch", json={"documents": [{"text": "wine tax"}], "language": "fi", "top_k": 2})
    assert {hit["label"] for hit in batch.json()[0]["results"]} == {"vero", "viini"}


def test_languages_that_are_not_there_are_refused(client):
    unknown = suggest(client, language="de")
    assert (unknown.status_code, "one of the vocabulary's, en, fi" in unknown.text) == (422, True)
    without = suggest(client, language="fi", model="plain")
    assert (without.status_code, "the model has no vocabulary" in without.text) == (422, True)


def test_labels_are_found_by_uri_and_in_every_language(client):
    assert suggest(client, include=["kala"]).json()["results"][0]["label"] == "fish"
    assert suggest(client, include=["http://ex.org/sea"]).json()["results"][0]["label"] == "sea"
    explained = client.post("/v1/explain", json={"text": "herring quotas", "label": "QL"})
    assert explained.json()["label"] == "fish"
    (hit,) = client.get("/v1/labels", params={"query": "KAL"}).json()["results"]
    assert (hit["label"], hit["term"], hit["uri"]) == ("fish", "kala", "http://ex.org/fish")
    (hit,) = client.get("/v1/labels", params={"query": "fis"}).json()["results"]
    assert "term" not in hit
    assert client.get("/v1/labels", params={"query": "olut"}).json()["results"] == []  # a concept, but no label


def test_tables_take_a_language(client):
    url = "/v1/label-table?top_k=1&last=1&language=fi"
    answer = client.post(url, content=ROWS.encode(), headers={"Content-Type": "text/csv"}).json()
    assert answer["table"].splitlines()[0] == "id,text,label_1,probability_1,uri_1,notation_1,unknown_words"
    assert "kala" in answer["table"]
