"""Records with fields, in place of texts."""

from __future__ import annotations

import re

import pytest

import umpteen
from umpteen.data.tables.fields import Fields
from umpteen.serving.app import make_app
from umpteen.serving.settings import Settings

from .serving import LABELS, TEXTS, running


@pytest.fixture(scope="module")
def fielded(tmp_path_factory) -> str:
    """A model trained on two columns, of which the first counts twice."""
    path = tmp_path_factory.mktemp("records") / "books.model"
    fields = Fields.make(["title^2", "abstract"], "subjects", ";")
    umpteen.Tagger(umpteen.DiSMEC()).fit(TEXTS * 40, LABELS * 40, fields=fields).save(path)
    return str(path)


@pytest.fixture(scope="module")
def client(fielded, served_models):
    models = {"books": fielded, "tags": served_models["tags"], "numbers": served_models["numbers"]}
    with running(make_app(Settings(models, watch=0, max_characters=1000))) as client:
        yield client


def test_a_record_is_the_text_its_fields_make(client):
    record = {"title": "wine tax", "abstract": "herring in the sea", "year": "1984"}
    text = "wine tax\nwine tax\nherring in the sea"
    expected = client.post("/v1/suggest", json={"text": text, "top_k": 5}).json()
    assert client.post("/v1/suggest", json={"record": record, "top_k": 5}).json() == expected
    batch = client.post("/v1/suggest-batch", json={"documents": [{"text": "cod"}, {"record": record}], "top_k": 5})
    assert batch.json()[1]["results"] == expected["results"]
    why = client.post("/v1/explain", json={"record": record, "label": "wine"}).json()
    assert why["text"] == text
    assert {text[span["start"] : span["end"]] for span in why["spans"]} >= {"wine"}
    assert "text" not in client.post("/v1/explain", json={"text": text}).json()


def test_one_of_several_fields_may_be_null(client):
    answer = client.post("/v1/suggest", json={"record": {"title": "wine tax", "abstract": None}, "top_k": 3})
    assert answer.json() == client.post("/v1/suggest", json={"text": "wine tax\nwine tax", "top_k": 3}).json()


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"record": {"titel": "a", "abstract": "b"}}, "record", "a field 'title'.*did you mean 'titel'"),
        ({"record": {"title": "a"}, "text": "b"}, "record", "must stand alone"),
        ({"record": {"title": 7}}, r"record[...]", "must be a string or null, but is a number"),
        ({"record": "wine"}, "record", "must be an object of texts by field, but is a string"),
        ({"record": {"title": "a", "abstract": ""}, "model": "tags"}, "record", "does not know which fields"),
        ({"record": {"title": "a", "abstract": ""}, "model": "numbers"}, "record", "does not know which fields"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(client, body, field, message):
    answer = client.post("/v1/suggest", json=body)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["field"] == field
    assert re.search(message, error["message"]), error


def test_a_record_in_a_batch_is_named_by_its_place(client):
    documents = [{"text": "cod"}, {"record": {"abstract": "sea"}}]
    error = client.post("/v1/suggest-batch", json={"documents": documents}).json()["error"]
    assert error["field"] == "documents[1].record"
    assert error["message"].startswith("documents[1].record: there must be a field 'title'")


def test_weights_count_towards_the_longest_text(client):
    fits = {"title": "a" * 450, "abstract": "b" * 90}
    assert client.post("/v1/suggest", json={"record": fits}).status_code == 200
    answer = client.post("/v1/suggest", json={"record": fits | {"title": "a" * 460}})
    assert answer.status_code == 413
    assert "at most 1000 characters" in answer.json()["error"]["message"]


def test_models_and_the_document_name_the_fields(client, fielded):
    found = {model["model_id"]: model["fields"] for model in client.get("/v1/models").json()["models"]}
    assert found == {"books": ["title^2", "abstract"], "tags": None, "numbers": None}
    with running(make_app(Settings({"books": fielded}, watch=0))) as alone:
        request = alone.get("/openapi.json").json()["components"]["schemas"]["SuggestRequest"]
    assert request["oneOf"] == [{"required": ["text"]}, {"required": ["record"]}]
    assert request["properties"]["record"]["required"] == ["title", "abstract"]
    assert "features" not in request["properties"]


def test_each_field_is_read_by_its_own_features(tmp_path):
    records = [{"title": text, "abstract": "herring"} for text in TEXTS] * 40
    tagger = umpteen.Tagger(umpteen.DiSMEC(), {"title^2": "word", "abstract": "word"}).fit(records, LABELS * 40)
    tagger.save(tmp_path / "m")
    record = {"title": "wine tax", "abstract": "herring"}
    with running(make_app(Settings({"books": str(tmp_path / "m")}, watch=0))) as client:
        found = client.post("/v1/suggest", json={"record": record, "top_k": 2}).json()["results"]
        why = client.post("/v1/explain", json={"record": record, "label": "wine"}).json()
    assert [one["label"] for one in found] == [name for name, _ in tagger.suggest(record, top_k=2)]
    assert why["text"] == "wine tax\nherring"
    assert {"title: wine", "title: tax", "abstract: herring"} == {word["word"] for word in why["words"]}
