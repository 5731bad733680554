"""Tables over HTTP, piece by piece."""

from __future__ import annotations

import csv
import io
import re

import pytest

import umpteen
from umpteen.serving.app import make_app
from umpteen.serving.settings import Settings

from .serving import running

CSV = {"Content-Type": "text/csv"}


@pytest.fixture(scope="module")
def client(served_models):
    settings = Settings(served_models, watch=0, max_documents=3, max_body_bytes=5000, max_characters=1000)
    with running(make_app(settings)) as client:
        yield client


def send(client, data: bytes, size: int = 60, **query) -> str:
    """A table through the server, as a client would send it."""
    out, at, cursor = "", 0, {}
    for _ in range(200):
        body = data[: cursor["header_bytes"]] if cursor else b""
        at = max(at, len(body))
        last = at + size >= len(data)
        answer = client.post(
            "/v1/label-table",
            params=query | cursor | {"last": int(last)},
            content=body + data[at : at + size],
            headers=CSV,
        )
        assert answer.status_code == 200, answer.text
        found = answer.json()
        out += found["table"]
        if not cursor and "next" in found:
            at = found["next"]["header_bytes"]
        cursor = found.get("next", {})
        at += found["consumed"]
        if cursor and at >= len(data):
            return out
        if not found["consumed"]:
            size *= 2
    raise AssertionError("no end")


def test_a_table_in_pieces_is_what_predict_writes(client, served_models, tmp_path):
    rows = [["1", "wine tax"], ["2", "herring;\nin the sea"], ["3", "Île"], ["4", "cod"], ["5", "beer"]] * 4
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=";").writerows([["id", "text"], *rows])
    data = out.getvalue().encode("cp1252")
    (tmp_path / "in.csv").write_bytes(data)
    umpteen.label_file(umpteen.load(served_models["tags"]), tmp_path / "in.csv", tmp_path / "out.csv", top_k=2)
    assert send(client, data, 100, top_k=2) == (tmp_path / "out.csv").read_bytes().decode()


def test_an_answer_counts_rows_and_labels(client):
    answer = client.post("/v1/label-table?last=1&top_k=2", content=b"text\nwine\nzzz\n", headers=CSV)
    found = answer.json()
    assert (found["rows"], found["labels"], found["without"], found["consumed"]) == (2, 2, 1, 9)
    assert found["next"] == {"header_bytes": 5, "encoding": "utf-8", "delimiter": ",", "line": 4}
    assert answer.headers["x-model-version"]


@pytest.mark.parametrize(
    ("query", "body", "status", "message"),
    [
        ("", b"", 422, "table: there must be a header"),
        ("name=a.csv", b"id,tekst\n1,wine\n", 422, "a.csv:1: there must be a column 'text'.*did you mean 'tekst'"),
        ("text=title", b"id,text\n1,wine\n", 422, "there must be a column 'title'"),
        ("name=a.csv", b"id,text\n1,a,b\n", 422, "a.csv:2: there must be 2 columns"),
        ("labels=tall", b"text\na\n", 422, "labels must be one of wide, list, long, but is 'tall'"),
        ("top_k=0", b"text\na\n", 422, "top_k must be a whole number from 1 to 1000, but is '0'"),
        ("threshold=40", b"text\na\n", 422, "threshold must be a number from 0 to 1"),
        ("color=red", b"text\na\n", 422, "color is not a parameter"),
        ("top_k=1&top_k=2", b"text\na\n", 422, "top_k must be given once"),
        ("line=3", b"text\na\n", 422, "must come together"),
        ("header_bytes=5&encoding=rot13&delimiter=,&line=2", b"text\na\n", 422, "encoding must be one of"),
        ("header_bytes=99&encoding=utf-8&delimiter=,&line=2", b"text\na\n", 422, "header_bytes must be from 1 to 7"),
        ("model=numbers", b"text\na\n", 422, "trained on numbers"),
        ("model=none", b"text\na\n", 404, "there is no model 'none'"),
        ("", b"text\n" + b"a" * 5000, 413, "at most 5000 bytes"),
        ("", b"text\n" + b"a" * 1001, 422, "table:2: a text must have at most 1000 characters"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(client, query, body, status, message):
    query = f"last=1&{query}"
    answer = client.post(f"/v1/label-table?{query}", content=body, headers=CSV)
    assert answer.status_code == status
    assert re.search(message, answer.json()["error"]["message"]), answer.text


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_page_of_another_origin_cannot_send_a_table_unasked(client, kind):
    answer = client.post("/v1/label-table", content=b"text\na\n", headers={"Content-Type": kind})
    assert answer.status_code == 415
