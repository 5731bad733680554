"""Corrections over HTTP: a real server, a model that changes on disk and in its workers."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import threading
from pathlib import Path

import httpx
import pytest

import umpteen
from umpteen.data.corrections import Correction
from umpteen.errors import DataError, ModelChangedError, ModelError, ModelLockedError, ParamError
from umpteen.learning import improve_model
from umpteen.serving.app import make_app
from umpteen.serving.settings import Settings
from umpteen.storage.disk import lock_directory
from umpteen.storage.store import read_version

from .serving import Process, children_of, running, serving, wait_for
from .test_serving_records import fielded  # noqa: F401  (a fixture)

TOKEN = {"authorization": "Bearer open-sesame"}
CUSTOMS = {"text": "customs duties on cider", "labels": ["tax", "customs"]}


@pytest.fixture
def tags(served_models, tmp_path) -> Path:
    return Path(shutil.copytree(served_models["tags"], tmp_path / "tags.model"))


def teach(client, *corrections, **more) -> httpx.Response:
    return client.post("/v1/learn", json={"corrections": list(corrections), **more}, headers=TOKEN, timeout=60)


def version_of(server: Process) -> str:
    """What every one of some answers says."""
    with server.client() as client:
        return client.post("/v1/suggest", json={"text": "wine"}, headers=TOKEN).headers["x-model-version"]


def first_of(client, text: str, n: int = 2) -> set[str]:
    answer = client.post("/v1/suggest", json={"text": text, "top_k": n}, headers=TOKEN)
    return {found["label"] for found in answer.json()["results"]}


# --- a real server -------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.slow
def test_a_server_learns_and_all_its_workers_answer_with_it(tags):
    with serving(str(tags), "--learn", "--workers", "2", "--watch", "0.3", UMPTEEN_TOKEN="open-sesame") as server:
        with server.client() as client:
            before = version_of(server)
            assert "customs" not in first_of(client, "customs duties", 10)
            answer = teach(
                client, CUSTOMS, {"text": "?!", "accepted": ["tax"]}, {"text": "cod", "rejected": ["gold"]}
            )
            assert answer.status_code == 200, answer.text
            found = answer.json()
            assert (found["corrections"], found["without_words"]) == (3, 1)
            assert (found["new_labels"], found["unknown_rejected"]) == (["customs"], ["gold"])
            assert answer.headers["x-model-version"] == found["version"] == read_version(tags)[:12] != before
            assert wait_for(lambda: all(version_of(server) == found["version"] for _ in range(10)))
            assert first_of(client, "customs duties on cider") == {"tax", "customs"}
            (model,) = client.get("/v1/models", headers=TOKEN).json()["models"]
            assert model["learns"]
            assert model["n_labels"] == 7
        lesson = r"tags: learnt corrections .*corrections=3 new_labels=1 .*token=default"
        assert wait_for(lambda: server.logged(lesson), 10)
        assert not server.logged("customs duties|open-sesame")
        assert server.stop() == 0
    umpteen.load(tags, checksums=True)
    assert [path.name for path in tags.parent.iterdir()] == ["tags.model"]


@pytest.mark.process
@pytest.mark.slow
def test_learning_ends_with_the_server_or_its_time_and_leaves_the_old_model(tags):
    before = read_version(tags)
    with serving(str(tags), "--learn", "--learn-timeout", "0.05", UMPTEEN_TOKEN="open-sesame") as server:
        with server.client() as client:
            answer = teach(client, CUSTOMS)
            assert (answer.status_code, answer.json()["error"]["type"]) == (500, "not_learnt")
            assert str(tags) not in answer.text
        late = "corrections could not be learnt: the process was not done within 0.05 s"
        assert wait_for(lambda: server.logged(late), 10)
        (worker,) = children_of(server.process.pid)
        asking = threading.Thread(target=_ask_and_lose, args=(server,))
        asking.start()
        os.kill(worker, signal.SIGKILL)
        asking.join()
        assert server.stop() == 0
    assert read_version(tags) == before
    umpteen.load(tags, checksums=True)


def _ask_and_lose(server: Process) -> None:
    with contextlib.suppress(httpx.TransportError), server.client() as client:
        teach(client, CUSTOMS)


@pytest.mark.process
@pytest.mark.slow
def test_of_many_lessons_at_once_none_is_lost_or_half_done(tags):
    words = ["amber", "basil", "cider", "dahlia", "elder", "fennel"]
    answers: dict[str, httpx.Response] = {}
    with serving(str(tags), "--learn", "--workers", "2", "--watch", "0.3", UMPTEEN_TOKEN="open-sesame") as server:

        def ask(word: str) -> None:
            with server.client() as client:
                answers[word] = teach(client, {"text": f"{word} {word}", "labels": [f"of {word}"]})

        threads = [threading.Thread(target=ask, args=(word,)) for word in words]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {answer.status_code for answer in answers.values()} <= {200, 503}
    learnt = {f"of {word}" for word, answer in answers.items() if answer.status_code == 200}
    assert learnt
    assert {name for name in umpteen.load(tags, checksums=True).classes_ if name.startswith("of ")} == learnt
    for answer in answers.values():
        if answer.status_code == 503:
            assert answer.json()["error"]["type"] == "busy"
            assert answer.headers["retry-after"] == "2"


# --- in this process -----------------------------------------------------------------------------------------------


def test_it_is_off_by_default_and_needs_a_token(tags):
    with running(make_app(Settings({"tags": str(tags)}, watch=0))) as client:
        answer = teach(client, CUSTOMS)
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "not_allowed")
        assert "--learn" in answer.json()["error"]["message"]
        assert 'route="/v1/learn",status="403"} 1\n' in client.get("/metrics").text
        assert client.get("/v1/models").json()["learn"] is False
    with pytest.raises(ParamError, match="learn needs a token or a token_file"):
        Settings({"tags": str(tags)}, learn=True)
    with pytest.raises(ParamError, match="learn needs watch above 0"):
        Settings({"tags": str(tags)}, learn=True, token="open-sesame", watch=0)
    with running(make_app(Settings({"tags": str(tags)}, learn=True, token="open-sesame"))) as client:
        answer = client.post("/v1/learn", json={"corrections": [CUSTOMS]})
        assert answer.status_code == 401
        assert client.get("/v1/models", headers=TOKEN).json()["learn"] is True


def test_the_command_refuses_in_its_own_words(tags, monkeypatch):
    from .test_cli_text import run

    monkeypatch.delenv("UMPTEEN_TOKEN", raising=False)
    with pytest.raises(ParamError, match="--learn needs --token-file or \\$UMPTEEN_TOKEN"):
        run("serve", tags, "--learn")
    monkeypatch.setenv("UMPTEEN_TOKEN", "open-sesame")
    with pytest.raises(ParamError, match="--learn needs --watch above 0"):
        run("serve", tags, "--learn", "--watch", "0")


@pytest.fixture(scope="module")
def client(served_models, fielded):  # noqa: F811
    models = {"books": fielded, "trees": served_models["trees"], "numbers": served_models["numbers"]}
    with running(
        make_app(Settings(models, learn=True, token="open-sesame", max_characters=100, max_documents=3))
    ) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "status", "field", "message"),
    [
        ({}, 422, "corrections", "corrections is missing; it must be a list of objects"),
        ({"corrections": []}, 422, "corrections", "must have at least one"),
        ({"corrections": [CUSTOMS] * 4}, 413, "corrections", "at most 3 corrections, but there are 4"),
        ({"corrections": [{"labels": ["a"]}]}, 422, "corrections[0]", "must have a text or a record"),
        ({"corrections": [{"text": "a"}]}, 422, "corrections[0]", "must have either 'labels' or some of"),
        ({"corrections": [{"text": "a", "labels": [], "added": ["b"]}]}, 422, "corrections[0]", "'labels', 'added'"),
        ({"corrections": [{"text": "a", "labels": ["b" * 501]}]}, 422, "corrections[0].labels[0]",
         "must be a label's name, as a string of at most 500 characters"),
        ({"corrections": [{"text": "a", "labels": [" "]}]}, 422, "corrections[0]", "labels must hold label names"),
        ({"corrections": [{"text": "a", "added": ["b"] * 201}]}, 422, "corrections[0].added", "at most 200 labels"),
        ({"corrections": [{"text": "a", "added": ["=1+1"]}]}, 422, "corrections[0].added", "not begin with ="),
        ({"corrections": [{"text": "a", "added": ["a\x1b[2J"]}]}, 422, "corrections[0].added", "must be printable"),
        ({"corrections": [{"text": "a", "label": "b"}]}, 422, "corrections[0].label", "there is no field 'label'"),
        ({"corrections": [{"text": "a" * 101, "labels": ["b"]}]}, 413, "corrections[0].text", "at most 100"),
        ({"corrections": [{"record": {"titel": "a", "abstract": ""}, "labels": ["b"]}]}, 422,
         "corrections[0].record", "did you mean 'titel'"),
        ({"corrections": [CUSTOMS], "model": "trees"}, 422, "model", "trees does not learn from corrections"),
        ({"corrections": [CUSTOMS], "model": "numbers"}, 422, "model", "numbers does not learn from corrections"),
        ({"corrections": [CUSTOMS], "model": "other"}, 404, None, "there is no model 'other'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(client, body, status, field, message):
    answer = client.post("/v1/learn", json=body, headers=TOKEN)
    error = answer.json()["error"]
    assert (answer.status_code, error.get("field")) == (status, field), error
    assert re.search(message, error["message"]), error


@pytest.mark.slow
def test_records_are_learnt_and_what_a_model_refuses_is_said(client, fielded):  # noqa: F811
    record = {"title": "customs", "abstract": "duties on cider"}
    answer = teach(client, {"record": record, "labels": ["customs"]})
    assert answer.status_code == 200, answer.text
    found = umpteen.load(fielded)
    assert found.suggest("customs\ncustoms\nduties on cider", 1)[0][0] == "customs"
    answer = teach(client, {"text": "?!", "labels": ["tax"]})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "corrections")
    assert "must have a text with a word in it" in answer.json()["error"]["message"]


@pytest.mark.slow
def test_a_model_that_is_being_written_is_busy(client, fielded):  # noqa: F811
    lock = lock_directory(Path(fielded))
    try:
        answer = teach(client, CUSTOMS)
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "busy")
        with pytest.raises(ModelLockedError, match="another process is writing this model"):
            improve_model(fielded, lambda _: [Correction("cod", ["fish"])])
    finally:
        os.close(lock)


def test_a_model_that_was_replaced_meanwhile_is_not_overwritten(tags):
    def replace(tagger):
        tagger.learn("a cod", ["fish"]).save(tags, overwrite=True)
        return [Correction("cod", ["fish"])]

    with pytest.raises(ModelError, match="was changed by somebody else meanwhile"):
        improve_model(tags, replace)
    with pytest.raises(DataError, match="at least one correction"):
        improve_model(tags, lambda _: [])


def test_the_lock_of_a_model_that_is_no_longer_there_does_not_count(tags, monkeypatch):
    held = []

    def lock_too_late(path):  # between the name's look-up and the lock, another learner replaces the model
        handle = os.open(path, os.O_RDONLY)
        held.append(handle)
        tagger = umpteen.load(tags)
        tagger.learn("a cod", ["fish"]).save(tags, overwrite=True)
        return handle

    monkeypatch.setattr("umpteen.learning.lock_directory", lock_too_late)
    before = read_version(tags)
    with pytest.raises(ModelChangedError, match="was replaced by somebody else just now; try again"):
        improve_model(tags, lambda _: [Correction("cod", ["fish"])])
    assert read_version(tags) != before
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(held[0])


def test_a_label_that_is_not_there_is_named_with_its_neighbours(client):
    answer = client.post("/v1/suggest", json={"text": "cod", "exclude": ["fisch"]}, headers=TOKEN)
    assert answer.json()["error"]["message"] == "the model has no label 'fisch'; did you mean 'fish'?"
