"""What an operator needs: logs, request ids, tokens, origins, versions, words that say what is wrong."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import umpteen
from umpteen.errors import ParamError
from umpteen.serving.app import make_app
from umpteen.serving.cors import Origins
from umpteen.serving.logs import note, set_up
from umpteen.serving.settings import Settings
from umpteen.serving.tokens import Tokens
from umpteen.serving.versions import digest
from umpteen.serving.wording import RULES

from .serving import COMMAND, running, serving, wait_for

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def client(served_models):
    with running(make_app(Settings(served_models, cors_origins=["https://a.example"]))) as client:
        yield client


# --- words ---------------------------------------------------------------------------------------------------------

K = 'top_k must be an integer of at least 1, "auto" or null'
T = 'threshold must be a number from 0 to 1, or "micro" or "macro"'


@pytest.mark.parametrize(
    ("path", "body", "message", "field"),
    [
        ("suggest", [], "the body must be a JSON object, but is a list", None),
        ("suggest", {"text": 7}, "text must be a string, but is a number", "text"),
        ("suggest", {"text": None}, "text must be a string, but is null", "text"),
        ("suggest", {"text": "a", "limit": 3}, "there is no field 'limit'; it is called top_k here", "limit"),
        ("suggest", {"text": "a", "top_k": 0}, K, "top_k"),
        ("suggest", {"text": "a", "top_k": 2.5}, K, "top_k"),
        ("suggest", {"text": "a", "top_k": "all"}, f"{K}, but is 'all'", "top_k"),
        ("suggest", {"text": "a", "top_k": True}, f"{K}, but is true or false", "top_k"),
        ("suggest", {"text": "a", "top_k": 10**30}, "top_k must be at most 1000, but is 1" + "0" * 30, "top_k"),
        ("suggest", {"text": "a", "threshold": 2}, T, "threshold"),
        ("suggest", {"text": "a", "threshold": []}, f"{T}, but is a list", "threshold"),
        ("suggest", {"text": "a", "exclude": "x"}, "exclude must be a list of label names, but is a string",
         "exclude"),
        ("suggest", {"text": "a", "include": [3]}, "include[0] must be a label's name, as a string, but is a number",
         "include[0]"),
        ("suggest", {"features": {"x": 1}}, "the feature ids in features must be whole numbers from 0 to 2147483647",
         "features"),
        ("suggest", {"features": [1, "x"]}, "features[1] must be a number, but is a string", "features[1]"),
        ("suggest", {"model": 3}, "model must be a model's id, as a string, but is a number", "model"),
        ("suggest-batch", {}, "documents is missing; it must be a list of objects", "documents"),
        ("suggest-batch", {"documents": [{"text": "a"}, 3]}, "documents[1] must be an object, but is a number",
         "documents[1]"),
        ("suggest-batch", {"documents": [{"text": []}]}, "documents[0].text must be a string, but is a list",
         "documents[0].text"),
        ("suggest-batch", {"documents": [{"a\nb": 1}]},
         "there is no field 'a\\nb' in documents[0]; there are text, record, features, document_id",
         "documents[0].a\nb"),
        ("suggest-batch", {"documents": [{"text": "a" * 200_001}]},
         "documents[0].text must have at most 200000 characters, but has 200001", "documents[0].text"),
    ],
)  # fmt: skip
def test_the_field_at_fault_is_named_in_plain_words(client, path, body, message, field):
    answer = client.post(f"/v1/{path}", json=body)
    assert answer.status_code in (413, 422)
    assert answer.json()["error"]["message"] == message
    assert answer.json()["error"].get("field") == field


def test_every_field_has_a_rule():
    from umpteen.serving import schema

    for kind in (schema.SuggestRequest, schema.BatchRequest, schema.ExplainRequest, schema.Document):
        assert set(kind.__struct_fields__) <= set(RULES)


# --- request ids, versions, origins --------------------------------------------------------------------------------


def test_a_request_id_comes_back_or_is_made(client):
    def ask(given: str | None = None) -> str:
        headers = {} if given is None else {"x-request-id": given}
        return client.get("/healthz", headers=headers).headers["x-request-id"]

    assert ask("abc-123") == "abc-123"
    made = {ask(), ask(), ask("with space"), ask("a" * 129), ask("<script>"), ask("")}
    assert len(made) == 6
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]+", each) for each in made)
    assert client.get("/nothing", headers={"x-request-id": "lost"}).headers["x-request-id"] == "lost"


def test_the_version_is_in_every_answer_of_a_model(client, served_models):
    version = digest(served_models["tags"])
    assert re.fullmatch("[0-9a-f]{12}", version)
    text = {"text": "the sea"}
    answers = [
        client.post("/v1/suggest", json=text),
        client.post("/v1/suggest-batch", json={"documents": [text]}),
        client.post("/v1/suggest-batch", json={"documents": []}),
        client.post("/v1/explain", json=text),
        client.get("/v1/labels?query=sea"),
        client.get("/v1/models/tags"),
        client.get("/v1/models/tags/label-frequencies.svg"),
    ]
    assert {answer.status_code for answer in answers} == {200}
    refused = [
        client.post("/v1/explain", json={**text, "label": "none"}),
        client.post("/v1/suggest", json={**text, "exclude": ["none"]}),
        client.post("/v1/suggest", json={"features": {"1": 1}}),
        client.post("/v1/label-table?text=none&last=1", content=b"text\nsea\n", headers={"content-type": "text/csv"}),
    ]
    assert [answer.status_code for answer in refused] == [404, 404, 422, 422]
    assert {answer.headers["x-model-version"] for answer in answers + refused} == {version}
    assert "x-model-version" not in client.post("/v1/suggest", json={"text": 7}).headers  # no model saw it
    listed = client.get("/v1/models").json()["models"]
    assert [model["version"] for model in listed] == [digest(path) for path in served_models.values()]
    assert [model["directory"] for model in listed] == ["tags.model", "trees.model", "numbers.model"]
    assert client.get("/v1/models/tags").json()["version"] == version


def test_pages_of_other_origins_ask_where_they_may(client, served_models):
    def preflight(origin: str):
        return client.request(
            "OPTIONS", "/v1/suggest", headers={"origin": origin, "access-control-request-method": "POST"}
        )

    good = preflight("https://a.example")
    assert good.status_code == 204
    assert good.content == b""
    assert good.headers["access-control-allow-origin"] == "https://a.example"
    assert "content-type" in good.headers["access-control-allow-headers"]
    asked = client.post("/v1/suggest", json={"text": "a"}, headers={"origin": "https://a.example"})
    assert asked.headers["access-control-allow-origin"] == "https://a.example"
    refused = client.post("/v1/suggest", json={}, headers={"origin": "https://a.example"})
    assert refused.headers["access-control-allow-origin"] == "https://a.example"  # so that the page can say why
    for other in ("https://a.example.evil", "http://a.example", "null"):
        assert preflight(other).status_code == 405
        answer = client.post("/v1/suggest", json={"text": "a"}, headers={"origin": other})
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["vary"] == "origin"
    with running(make_app(Settings(served_models))) as closed:
        answer = closed.get("/healthz", headers={"origin": "https://a.example"})
        assert not {"access-control-allow-origin", "vary"} & set(answer.headers)
    assert Origins(["*"]).headers(b"https://b.example")[0] == (b"access-control-allow-origin", b"*")
    for wrong in ("a.example", "https://a.example/path", "file:///x"):
        with pytest.raises(ParamError, match="cors_origins"):
            Origins([wrong])


def test_origins_ask_for_leave_without_a_token(served_models):
    settings = Settings(served_models, token="correct-horse", cors_origins=["*"])
    with running(make_app(settings)) as client:
        headers = {"origin": "https://a.example", "access-control-request-method": "POST"}
        assert client.request("OPTIONS", "/v1/suggest", headers=headers).status_code == 204
        assert client.post("/v1/suggest", json={"text": "a"}, headers=headers).status_code == 401


# --- tokens --------------------------------------------------------------------------------------------------------


def test_token_files(tmp_path):
    file = tmp_path / "tokens"

    def read(text: str) -> Tokens:
        file.write_text(text)
        return Tokens.read(file)

    assert read("one-token\n").find(b"Bearer one-token") == "default"
    several = read("# name token\n\ncrawler  first-token\neditors second-token\n")
    assert several.names == ["crawler", "editors"]
    assert several.find(b"Bearer second-token") == "editors"
    for wrong in (b"", b"Bearer ", b"Bearer second-toke", b"Bearer second-token ", b"second-token", b"Basic x"):
        assert several.find(wrong) is None
    for text, rule in (
        ("", "must have at least one token"),
        ("# only a remark\n", "must have at least one token"),
        ("short", "8 to 512"),
        ("a first-token\na other-token", "the name 'a' must be unique"),
        ("a b c", "a name and a token"),
        ("a/b first-token", "name must match"),
        ("tökentöken", "visible ASCII"),
    ):
        with pytest.raises(ParamError, match=rule) as refused:
            read(text)
        assert str(file) in str(refused.value)
        assert "first-token" not in str(refused.value)
    with pytest.raises(ParamError, match="cannot be read"):
        Tokens.read(tmp_path / "none")
    with pytest.raises(ParamError, match="bytes"):
        read("a" * 2_000_000)
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it
    for special in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(ParamError, match=r"regular file|cannot be read"):
            Tokens.read(special)
    (tmp_path / "link").symlink_to(file)  # as secrets are mounted
    read("one-token\n")
    assert Tokens.read(tmp_path / "link").names == ["default"]


@pytest.mark.slow
def test_an_empty_token_is_refused(served_models, tmp_path, monkeypatch):
    """It was meant to be one; nobody may be let in because it is not."""
    command = [*COMMAND, served_models["tags"], "--port", "0"]
    for more, environment in (([], {"UMPTEEN_TOKEN": ""}), (["--token-file", str(tmp_path / "empty")], {})):
        (tmp_path / "empty").write_text("\n")
        done = subprocess.run(
            [*command, *more], env=os.environ | environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 1
        assert "empty" in done.stderr
        assert "serving at" not in done.stdout


@pytest.mark.slow
def test_the_log_and_tokens_that_change(served_models, tmp_path):
    file = tmp_path / "tokens"
    file.write_text("old first-token\n")
    arguments = ("--token-file", str(file), "--log-format", "json", "--access-log", "--watch", "0.2")
    with serving(served_models["tags"], *arguments) as server, server.client() as client:

        def ask(token: str, **headers: str) -> int:
            return client.get("/v1/models?x=1", headers={"authorization": f"Bearer {token}", **headers}).status_code

        assert ask("first-token", **{"x-request-id": "mine"}) == 200
        assert ask("second-token") == 401
        file.write_text("old first-token\nnew second-token\n")
        assert wait_for(lambda: ask("second-token") == 200)
        assert ask("first-token") == 200
        file.write_text("\n")  # a mistake, and no reason to let everybody in, or nobody
        assert wait_for(lambda: server.logged("changed tokens cannot be used"))
        assert ask("second-token") == 200
        assert ask("x") == 401
        file.write_text("new second-token\n")
        assert wait_for(lambda: ask("first-token") == 401)
        assert client.get("/healthz%1b[31m%0Alogged: twice").status_code == 404
        assert wait_for(lambda: server.logged("logged"))
        lines = [json.loads(line) for line in server.lines if line.startswith("{")]
        assert all({"time", "level", "message"} <= set(line) for line in lines)
        mine = next(line for line in lines if line.get("request_id") == "mine")
        assert (mine["method"], mine["path"], mine["status"], mine["token"]) == ("GET", "/v1/models", 200, "old")
        assert mine["client"] == "127.0.0.1"
        assert mine["seconds"] >= 0
        assert [line["names"] for line in lines if line["message"] == "tokens reloaded"] == ["old,new", "new"]
        assert "first-token" not in "".join(server.lines)


@pytest.mark.slow
def test_tokens_change_on_sighup(served_models, tmp_path):
    """In all workers, and not before, where nothing else is watched."""
    file = tmp_path / "tokens"
    file.write_text("first-token\n")
    with serving(served_models["tags"], "--token-file", str(file), "--watch", "0", "--workers", "2") as server:

        def ask(token: str) -> set[int]:
            found = set()
            for _ in range(6):  # connections of their own, so that both workers get some
                with server.client() as client:
                    found.add(client.get("/v1/models", headers={"authorization": f"Bearer {token}"}).status_code)
            return found

        file.write_text("second-token\n")
        assert (ask("first-token"), ask("second-token")) == ({200}, {401})
        server.process.send_signal(signal.SIGHUP)
        assert wait_for(lambda: ask("second-token") == {200} and ask("first-token") == {401})
        file.write_text("third token too many\n")
        server.process.send_signal(signal.SIGHUP)
        assert wait_for(lambda: server.logged("changed tokens cannot be used"))
        assert ask("second-token") == {200}
        assert server.stop() == 0


# --- the log -------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_log():
    root, package = logging.getLogger(), logging.getLogger("umpteen")
    before = list(root.handlers), root.level, package.level
    yield logging.getLogger("umpteen.serving")
    root.handlers[:], root.level = before[0], before[1]
    package.setLevel(before[2])


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_stays_a_line(own_log, capsys, form):
    set_up(form, "info", worker=3)
    note(own_log, logging.INFO, "two\nlines \x1b[31mred \ud800", model="a\nb", nothing=None)
    note(own_log, logging.DEBUG, "too much")
    try:
        raise ValueError("broken\nhere")
    except ValueError as error:
        own_log.error("failed", exc_info=error)
    lines = capsys.readouterr().err.splitlines()
    assert "\x1b" not in "".join(lines)
    if form == "json":
        first, second = map(json.loads, lines)
        assert first["message"] == "two\nlines \x1b[31mred \ud800"
        assert (first["model"], first["worker"], first["level"]) == ("a\nb", 3, "info")
        assert "ValueError" in second["trace"]
        assert "nothing" not in first
    else:
        assert re.match(r"\S+Z info two\\nlines \\x1b\[31mred \\ud800 worker=3 model=a\\nb$", lines[0])
        assert re.match(r"\S+Z error failed worker=3$", lines[1])
        assert any("ValueError" in line for line in lines[2:])


# --- metrics that are not the model's ------------------------------------------------------------------------------


def test_metrics_come_from_a_plain_file_only(served_models, tmp_path, caplog):
    """A link could lead to any JSON of this machine, and its content to every client."""
    secret = tmp_path / "secret.json"
    secret.write_text('{"password": "hush"}')
    path = tmp_path / "m.model"
    shutil.copytree(served_models["trees"], path)

    def shown() -> object:
        with running(make_app(Settings({"m": str(path)}))) as client:
            answer = client.get("/v1/models/m")
            assert answer.status_code == 200
            assert "hush" not in answer.text
            return answer.json()["metrics"]

    file = path / "metrics.json"
    file.symlink_to(secret)
    assert shown() is None
    assert "must be a regular file, but is a link" in caplog.text
    for content in (b"[1]", b"{", b'{"a": 1' + b"0" * 5000 + b"}", b"{}" + b" " * 2_000_000):
        file.unlink()
        file.write_bytes(content)
        assert shown() is None
    file.write_text('{"P@1": 50.0}')
    assert shown() == {"P@1": 50.0}
    linked = tmp_path / "linked.model"  # the model itself may be behind a link
    linked.symlink_to(path)
    with running(make_app(Settings({"m": str(linked)}))) as client:
        assert client.get("/v1/models/m").json()["metrics"] == {"P@1": 50.0}


# --- the reference -------------------------------------------------------------------------------------------------


def test_the_reference_is_whole_and_needs_nothing_from_elsewhere(client):
    page = client.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "<script" not in page.text
    assert "style=" not in page.text
    document = client.get("/openapi.json").json()
    for path, entry in document["paths"].items():
        assert path in page.text
        for method in set(entry) & {"get", "post"}:
            assert f'id="{entry[method]["operationId"]}"' in page.text
    for linked in re.findall(r'(?:src|href)="([^"#]+)"', page.text):
        assert client.get(f"/{linked.removeprefix('.')}").status_code == 200
    for field in ("top_k", "threshold", "documents[].text", "results[].score"):
        assert f"<code>{field}</code>" in page.text
    assert "https://" not in page.text
    assert "integer from 1 to 1000 or &quot;auto&quot;" in page.text
    assert "As many labels, however unlikely" in page.text


def test_settings_of_an_operator_are_checked(served_models):
    for wrong in ({"log_format": "xml"}, {"log_level": "loud"}, {"grace": 0}, {"max_connections": 0},
                  {"allowed_hosts": ["a b"]}, {"cors_origins": ["x"]}, {"token_file": "/none"}):  # fmt: skip
        with pytest.raises(ParamError):
            Settings(served_models, **wrong)


def test_a_start_takes_the_newest_version_that_is_whole(served_models, tmp_path):
    from umpteen.serving.server import choose

    place = tmp_path / "m"
    shutil.copytree(served_models["trees"], place / "v1")
    shutil.copytree(served_models["trees"], place / "v2")
    next((place / "v2").glob("shard-*/*.npy")).unlink()
    chosen, _ = choose(Settings({"m": str(place)}))["m"]
    assert Path(chosen).name == "v1"
    shutil.rmtree(place / "v1")
    with pytest.raises(umpteen.errors.ModelError, match="missing"):
        choose(Settings({"m": str(place)}))
