"""The server, in process: the API, its limits, batching, reloading."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import hypothesis
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis import strategies as st
from schemathesis.checks import negative_data_rejection, positive_data_acceptance
from typer.testing import CliRunner

import umpteen
from umpteen import _native
from umpteen.cli.main import app as cli
from umpteen.errors import ParamError
from umpteen.serving.app import ROUTES, make_app
from umpteen.serving.batching import Lane
from umpteen.serving.gate import ANSWER_HEADERS, HEADERS
from umpteen.serving.problems import Problem
from umpteen.serving.schema import Document, ExplainRequest, SuggestOptions
from umpteen.serving.served import OpenModel, SuggestJob
from umpteen.serving.settings import Settings, name_models
from umpteen.storage.names import Names

from .serving import NASTY, TEXTS, listening, running

SEEN = "the herring in the sea"


@pytest.fixture(scope="module")
def models(served_models) -> dict[str, str]:
    return served_models


@pytest.fixture(scope="module")
def client(models):
    with running(make_app(Settings(models, watch=0))) as client:
        yield client


@pytest.fixture(scope="module")
def tagger(models) -> umpteen.Tagger:
    return umpteen.load(models["tags"])


def pairs(answer) -> list[tuple[str, float]]:
    assert answer.status_code == 200, answer.text
    return [(found["label"], found["score"]) for found in answer.json()["results"]]


def same(answer, suggestions) -> None:
    found = pairs(answer)
    assert [label for label, _ in found] == [label for label, _ in suggestions]
    np.testing.assert_allclose([score for _, score in found], [score for _, score in suggestions], atol=1e-6)


# --- suggest -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"top_k": 1},
        {"top_k": 2.0},
        {"top_k": 1000},
        {"top_k": "auto"},
        {"threshold": 0.3},
        {"threshold": "micro"},
        {"threshold": "macro", "top_k": 4},
        {"exclude": ["sea", "fish"]},
        {"include": ["tax", "wine"], "top_k": 3},
        {"include": ["tax", "wine"], "exclude": ["tax"]},
        {"include": []},
    ],
)
def test_suggestions_are_the_taggers(client, tagger, how):
    expected = tagger.suggest(SEEN, **how)
    same(client.post("/v1/suggest", json={"text": SEEN, **how}), expected)
    answer = client.post("/v1/suggest-batch", json={"documents": [{"text": SEEN}], **how})
    assert [found["label"] for found in answer.json()[0]["results"]] == [label for label, _ in expected]


def test_every_model_can_be_asked(client, models):
    same(
        client.post("/v1/suggest", json={"text": SEEN, "model": "trees"}), umpteen.load(models["trees"]).suggest(SEEN)
    )
    numbers = umpteen.load(models["numbers"])
    row = np.zeros((1, 200), np.float32)
    row[0, [17, 3, 90]] = 1.5, 2, -1
    labels, _ = numbers.predict_topk(row, 5)
    decided, _ = numbers.rank(row)
    for features in ({"17": 1.5, "3": 2, "90": -1}, row[0].tolist()):
        asked = {"features": features, "model": "numbers"}
        found = pairs(client.post("/v1/suggest", json=asked | {"top_k": 5}))
        assert [label for label, _ in found] == [str(label) for label in labels[0]]
        assert all(0 <= score <= 1 for _, score in found)
        given = [label for label, _ in pairs(client.post("/v1/suggest", json=asked))]
        assert given == [str(label) for label in decided[0] if label >= 0]
    first = str(labels[0, 0])
    asked = {"features": {"17": 1.5}, "model": "numbers", "exclude": [first]}
    assert first not in dict(pairs(client.post("/v1/suggest", json=asked)))


def test_a_batch_answers_in_order_with_ids(client, tagger):
    documents = [{"text": text, "document_id": str(i)} for i, text in enumerate(TEXTS)] + [{"text": "nothing known"}]
    answer = client.post("/v1/suggest-batch", json={"documents": documents, "top_k": 3}).json()
    assert [part["document_id"] for part in answer] == ["0", "1", "2", "3", "4", None]
    for part, suggestions in zip(answer, tagger.suggest([d["text"] for d in documents], 3), strict=True):
        assert [found["label"] for found in part["results"]] == [label for label, _ in suggestions]
    assert client.post("/v1/suggest-batch", json={"documents": []}).json() == []


def test_unknown_words_are_counted(client):
    answer = client.post("/v1/suggest", json={"text": "herring floob in the sea"}).json()
    assert (answer["words"], answer["unknown_words"]) == (5, 1)


def test_many_at_once_get_their_own_answers(client, tagger):
    """Whatever requests share a kernel call, each is answered as if it were alone; a bad one harms nobody."""
    ways = [{}, {"top_k": 2}, {"exclude": ["sea"]}, {"threshold": 0.5}, {"top_k": "auto"}, {"exclude": ["no such"]}]
    asked = [{"text": text, **how} for text in TEXTS for how in ways] * 4
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda ask: client.post("/v1/suggest", json=ask), asked))
    for ask, answer in zip(asked, answers, strict=True):
        if ask.get("exclude") == ["no such"]:
            assert answer.status_code == 404
        else:
            how = {key: value for key, value in ask.items() if key != "text"}
            same(answer, tagger.suggest(ask["text"], **how))


def test_answers_say_what_their_probabilities_rest_on(client, tagger):
    texts = [*TEXTS, SEEN, "floob"]
    expected = [tagger.suggest(text, 3) for text in texts]
    assert expected[0].support
    documents = [{"text": text} for text in texts]
    for ask in ({"top_k": 3}, {"top_k": 3, "threshold": 0}):
        answers = client.post("/v1/suggest-batch", json={"documents": documents, **ask}).json()
        found = [[(each["label"], each["support"]) for each in answer["results"]] for answer in answers]
        assert found == [
            [(name, count) for (name, _), count in zip(row, row.support, strict=True)] for row in expected
        ]
    why = client.post("/v1/explain", json={"text": SEEN, "label": expected[-2][0][0]}).json()
    assert why["support"] == expected[-2].support[0]
    numbers = client.post("/v1/suggest", json={"features": {"17": 1.5}, "model": "numbers", "top_k": 3}).json()
    assert numbers["results"]
    assert all("support" not in each for each in numbers["results"])  # it is not calibrated
    why = client.post("/v1/explain", json={"features": {"17": 1.5}, "model": "numbers", "label": "3"}).json()
    assert "support" not in why


def test_answers_say_why_there_is_no_label_and_clients_how_much_must_be_known(client):
    half = f"{SEEN} floob floob2 floob3"
    words = len(SEEN.split())
    plain = client.post("/v1/suggest", json={"text": half}).json()
    assert plain["results"]
    assert "note" not in plain
    known = 1 - plain["unknown_words"] / plain["words"]
    assert 0 < known < 1
    assert plain["words"] <= words + 3
    assert client.post("/v1/suggest", json={"text": half, "min_known": known - 0.01}).json() == plain
    asked = client.post("/v1/suggest", json={"text": half, "min_known": known + 0.01}).json()
    assert asked["results"] == []
    assert asked["note"] == (
        f"no label: the model knows {known:.0%} of the words, and at least {known + 0.01:.0%} are asked for"
    )
    documents = [{"text": half}, {"text": "floob"}, {"text": ""}]
    answers = client.post("/v1/suggest-batch", json={"documents": documents}).json()
    assert [len(answer["results"]) > 0 for answer in answers] == [True, False, False]
    assert [answer.get("note") for answer in answers] == [
        None,
        *["no label: the model knows no word of this text"] * 2,
    ]
    bad = client.post("/v1/suggest", json={"text": half, "min_known": 30})
    assert bad.status_code == 422
    assert bad.json()["error"]["field"] == "min_known"


# --- explain, labels, models ---------------------------------------------------------------------------------------


def test_explanations_are_the_taggers(client, models, tagger):
    found = client.post("/v1/explain", json={"text": SEEN, "label": "fish"}).json()
    expected = tagger.explain(SEEN, "fish")
    assert found["label"] == "fish"
    assert [(word["word"], word["contribution"]) for word in found["words"]] == expected.words
    assert [tuple(span.values()) for span in found["spans"]] == expected.spans
    assert found["score"] == pytest.approx(expected.probability, abs=1e-6)
    total = found["base"] + sum(word["contribution"] for word in found["words"])
    assert total == pytest.approx(found["raw_score"], abs=1e-5)
    best = client.post("/v1/explain", json={"text": SEEN}).json()
    assert best["label"] == tagger.suggest(SEEN, 1)[0][0]
    trees = client.post("/v1/explain", json={"text": SEEN, "model": "trees"}).json()
    assert trees["family"] == "forest"
    assert trees["votes"]
    numbers = client.post("/v1/explain", json={"features": {"17": 1.5}, "model": "numbers", "label": "3"}).json()
    assert (numbers["label"], numbers["label_id"]) == ("3", 3)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("7", [7]),
        ("0" * 20 + "7", [7]),
        ("0" * 90, [0]),
        ("9" * 90, []),
        ("40", []),
        ("-1", []),
        ("\u0663", []),
        ("x", []),
    ],
)
def test_labels_without_names_are_found_by_their_ids(client, query, found):
    answer = client.get("/v1/labels", params={"query": query, "model": "numbers"})
    assert answer.status_code == 200, answer.text
    assert [hit["label_id"] for hit in answer.json()["results"]] == found


def test_an_open_model_does_not_change(models):
    model = OpenModel(models["tags"], threads=2)
    before, vectorizer = dict(vars(model)), dict(vars(model.tagger.features_))
    texts = [SEEN, "word " * 200_000]  # one thread, and several
    jobs = [SuggestJob(SuggestOptions(), [Document(text=text)], batch=False) for text in texts]

    def work(number: int) -> None:
        for _ in range(3):
            if number % 2:
                model.explain(ExplainRequest(text=SEEN))
            else:
                assert all(isinstance(answer, bytes) for answer in model.suggest(jobs))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert all(vars(model)[name] is value for name, value in before.items())
    assert vars(model.tagger.features_) == vectorizer


def test_labels_are_found_by_part_of_their_name(client):
    def find(**query):
        answer = client.get("/v1/labels", params=query)
        assert answer.status_code == 200, answer.text
        return [(hit["label"], hit["count"]) for hit in answer.json()["results"]]

    assert find(query="SEA") == [("sea", 120)]
    assert find(query="île") == find(query="ÎLE") == [("Île-de-France", 40)]
    assert [label for label, _ in find(query="i")] == ["fish", "wine", NASTY]
    assert find()[0] == ("sea", 120)
    assert len(find(limit=2)) == 2
    assert find(query="no such") == []
    assert find(query="wnie")[0][0] == "wine"
    assert find(query="w" * 200) == []
    assert find(query="7", model="numbers")[0][0] == "7"
    assert find(query="4000", model="numbers") == []


@hypothesis.given(
    st.lists(st.text("aAbBéÉß\U0001d54f", max_size=4), max_size=30),
    st.text("aAbBéÉß\U0001d54f", min_size=1, max_size=3),
)
def test_finding_names_is_finding_text(names, query):
    def folded(text):
        return [c.lower() for c in text]

    def holds(name):
        n = len(query)
        return any(folded(name[i : i + n]) == folded(query) for i in range(len(name) - n + 1))

    assert Names.encode(names).find(query, 1000) == [i for i, name in enumerate(names) if holds(name)]


def test_names_are_found_across_pieces(monkeypatch):
    names = [f"label {i}" for i in range(500)]
    monkeypatch.setattr("umpteen.storage.names._PIECE", 64)
    assert Names.encode(names).find("LABEL 49", 1000) == [49, *range(490, 500)]
    assert Names.encode(names).find("1label", 1000) == []  # across two names
    assert Names.encode(names).find("label", 3) == [0, 1, 2]


def test_facts(client, models):
    listed = client.get("/v1/models").json()
    assert [model["model_id"] for model in listed["models"]] == list(models)
    assert [model["input"] for model in listed["models"]] == ["text", "text", "features"]
    assert listed["limits"]["max_documents"] == Settings(models).max_documents
    facts = client.get("/v1/models/tags").json()
    assert facts["method"] == "dismec"
    assert facts["parameters"]["C"] == 1.0
    assert facts["features"]["sublinear_tf"] is True
    assert facts["metrics"]["P@1"] == 100
    assert facts["most_frequent"][0] == {
        "label": "sea",
        "label_id": facts["most_frequent"][0]["label_id"],
        "count": 120,
    }
    assert facts["bytes"] > 1000
    assert client.get("/v1/models/numbers").json()["metrics"] is None
    drawing = client.get("/v1/models/tags/label-frequencies.svg")
    assert drawing.headers["content-type"] == "image/svg+xml"
    assert drawing.text.startswith("<svg")


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "status", "type", "message"),
    [
        ("suggest", b"{", 400, "invalid_json", "must be JSON"),
        ("suggest", b"\xff", 400, "invalid_json", "must be JSON"),
        ("suggest", b"[" * 5000, 422, "invalid_request", "must be a JSON object, but is a list"),
        ("suggest", b'{"votes":' + b"[" * 5000, 422, "invalid_request", "there is no field 'votes'"),
        ("suggest", b'{"text": "\\ud800"}', 400, "invalid_json", "must be JSON"),
        ("suggest", b"[]", 422, "invalid_request", "must be a JSON object, but is a list"),
        ("suggest", {}, 422, "invalid_request", "needs a text"),
        ("suggest", {"text": 7}, 422, "invalid_request", "text must be a string, but is a number"),
        ("suggest", {"text": "a", "features": {"1": 1}}, 422, "invalid_request", "a document has features"),
        ("suggest", {"text": "a", "limit": 3}, 422, "invalid_request", "it is called top_k here"),
        (
            "suggest",
            {"text": "a", "top_k": 0},
            422,
            "invalid_request",
            'top_k must be an integer of at least 1, "auto" or null',
        ),
        ("suggest", {"text": "a", "top_k": 2.5}, 422, "invalid_request", "top_k must be an integer of at least 1"),
        ("suggest", {"text": "a", "top_k": 1001}, 422, "invalid_request", "at most 1000"),
        (
            "suggest",
            {"text": "a", "top_k": "all"},
            422,
            "invalid_request",
            'top_k must be an integer of at least 1, "auto" or null',
        ),
        ("suggest", {"text": "a", "threshold": 2}, 422, "invalid_request", "threshold must be a number from 0 to 1"),
        ("suggest", {"text": "a", "exclude": ["no such"]}, 404, "unknown_label", "no label 'no such'"),
        (
            "suggest",
            {"text": "a", "model": "../../etc/passwd"},
            404,
            "unknown_model",
            "there are tags, trees, numbers",
        ),
        ("suggest", {"text": "a", "model": "numbers"}, 422, "invalid_request", "needs features"),
        ("suggest", {"features": {"200": 1}, "model": "numbers"}, 422, "invalid_request", "below 200"),
        ("suggest", {"features": {"-1": 1}, "model": "numbers"}, 422, "invalid_request", "features"),
        (
            "suggest",
            {"features": {"99999999999999999999": 1}, "model": "numbers"},
            422,
            "invalid_request",
            "features",
        ),
        ("suggest", {"features": {"1": 1e300}, "model": "numbers"}, 422, "invalid_request", "finite 32-bit"),
        ("suggest", {"features": [1.0], "model": "numbers"}, 422, "invalid_request", "200 numbers"),
        (
            "suggest",
            {"features": {"1": 1}, "model": "numbers", "exclude": ["x"]},
            404,
            "unknown_label",
            "ids below 40",
        ),
        (
            "suggest",
            {"features": {"1": 1}, "model": "numbers", "exclude": ["40"]},
            404,
            "unknown_label",
            "no label '40'",
        ),
        (
            "suggest",
            {"features": {"1": 1}, "model": "numbers", "top_k": "auto"},
            422,
            "invalid_request",
            "calibrated",
        ),
        ("suggest-batch", {"documents": [{"text": "a"}] * 257}, 413, "too_many_documents", "257"),
        (
            "suggest-batch",
            {"documents": [{"txt": "a"}]},
            422,
            "invalid_request",
            "no field 'txt' in documents[0]; there are text, record, features, document_id",
        ),
        ("suggest", {"text": "a" * 200_001}, 413, "text_too_long", "200000"),
        ("suggest", {"text": "a" * 4_000_001}, 413, "too_large", "4000000 bytes"),
        ("explain", {"text": "a", "label": "no such"}, 404, "unknown_label", "no label 'no such'"),
        ("explain", {}, 422, "invalid_request", "needs a text"),
    ],
)
def test_bad_requests_get_a_reason(client, path, body, status, type, message):
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post(f"/v1/{path}", content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (status, type), answer.text
    assert message in answer.json()["error"]["message"]


def test_a_body_without_a_length_is_cut_off(client):
    async def parts():
        for _ in range(50):
            yield b" " * 100_000

    answer = client.post("/v1/suggest", content=parts(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_other_refusals(client):
    for path, method, status, type in [
        ("/v1/nothing", "GET", 404, "not_found"),
        ("/v1/suggest", "GET", 405, "method_not_allowed"),
        ("/v1/models/nothing", "GET", 404, "unknown_model"),
        ("/v1/labels?limit=0", "GET", 422, "invalid_request"),
        ("/v1/labels?limit=x", "GET", 422, "invalid_request"),
        ("/v1/labels?limit=00000000100000000", "GET", 422, "invalid_request"),  # its first nine digits are a 1
        (f"/v1/labels?limit=000000001{'0' * 5000}", "GET", 422, "invalid_request"),
        (f"/v1/labels?query={'a' * 201}", "GET", 422, "invalid_request"),
    ]:
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["type"]) == (status, type)
    assert client.get("/v1/suggest").headers["allow"] == "POST"
    answer = client.post(
        "/v1/suggest", content="text=a", headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert answer.status_code == 415


@pytest.mark.parametrize(
    "way", ["..", "%2e%2e", "..%2f..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "app.py", "app.js%00"]
)
def test_no_path_reaches_the_file_system(client, way):
    for prefix in ("/page/", "/v1/models/", "/"):
        answer = client.get(prefix + way)
        assert answer.status_code in (200, 404)
        assert b"root:" not in answer.content
        assert answer.status_code == 404 or answer.url.path == "/"


def test_every_answer_has_the_security_headers(client):
    for answer in (client.get("/"), client.get("/nothing"), client.get("/healthz"), client.post("/v1/suggest")):
        for name, value in HEADERS:
            assert answer.headers[name.decode()] == value.decode()
    for name, value in ANSWER_HEADERS:
        assert client.post("/v1/suggest", json={"text": "a"}).headers[name.decode()] == value.decode()
    assert "unsafe" not in client.get("/").headers["content-security-policy"]


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    linked = re.findall(r'(?:src|href)="(page/[^"]+)"', page.text)
    assert {"page/app.js", "page/style.css", "page/icon.svg"} <= set(linked)
    for path in linked:
        answer = client.get(f"/{path}")
        assert answer.status_code == 200
        assert not re.findall(r"(?<!xmlns=\")https?://", answer.text)
    assert "style=" not in page.text
    assert "<script>" not in page.text
    assert "innerHTML" not in client.get("/page/app.js").text


def test_health_and_metrics(client):
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ready"}
    client.post("/v1/suggest", json={"text": "sea"})
    client.get("/nothing")
    text = client.get("/metrics").text
    assert re.search(r'umpteen_requests_total\{route="/v1/suggest",status="200"\} [1-9]', text)
    assert re.search(r'umpteen_requests_total\{route="other",status="404"\} [1-9]', text)
    buckets = [float(n) for n in re.findall(r'request_seconds_bucket\{route="/v1/suggest",le="[^"]+"\} (\S+)', text)]
    assert buckets == sorted(buckets)
    total = float(re.search(r'request_seconds_count\{route="/v1/suggest"\} (\S+)', text)[1])
    assert buckets[-1] == total > 0
    assert re.search(r'umpteen_batch_rows_count\{model="tags"\} [1-9]', text)
    for line in text.splitlines():
        assert line.startswith("# ") or re.fullmatch(r'[a-z_]+(\{(\w+="[^"]*",?)+\})? [-+0-9.e]+', line)


def test_refused_requests_leave_nothing_behind(client):
    """Without the collector of rings: what a client was refused must not wait for it in memory."""
    from umpteen.serving import schema

    def kept() -> int:
        return sum(isinstance(thing, (Problem, schema.SuggestOptions)) for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = kept()
        for ask in ({"text": "a" * 200_001}, {"text": "a", "model": "none"}, {"text": "a", "exclude": ["none"]}) * 20:
            assert client.post("/v1/suggest", json=ask).status_code in (404, 413)
        assert kept() <= before + 2
    finally:
        gc.enable()


def test_a_token_is_asked_for(models):
    with running(make_app(Settings(models, token="correct horse".replace(" ", "-"), watch=0))) as client:
        for path in ("/v1/models", "/metrics", "/v1/nothing"):
            answer = client.get(path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        for wrong in ("Bearer wrong-token", "Bearer ", "correct-horse", "bearer", "Basic correct-horse"):
            assert client.get("/v1/models", headers={"authorization": wrong}).status_code == 401
        assert client.get("/v1/models", headers={"authorization": "Bearer correct-horse"}).status_code == 200
        assert client.get("/").status_code == client.get("/healthz").status_code == 200
        assert client.get("/openapi.json").json()["security"] == [{"token": []}]


def test_settings_are_checked(models, tmp_path):
    for wrong in ({"port": 70000}, {"workers": 0}, {"timeout": 0}, {"token": "short"}, {"token": "with space"},
                  {"max_waiting": 10}, {"models": {}}, {"models": {"a/b": "x"}}):  # fmt: skip
        with pytest.raises(ParamError):
            Settings(**{"models": models, **wrong})
    assert "secret-token" not in repr(Settings(models, token="secret-token"))
    assert name_models(["a/b.model", "old=c.model"]).keys() == {"b", "old"}
    with pytest.raises(ParamError, match="two models have the id 'b'"):
        name_models(["a/b.model", "c/b"])
    result = CliRunner().invoke(cli, ["serve", str(tmp_path / "none.model"), "--port", "0"])
    assert result.exit_code == 1
    assert "no such model directory" in str(result.exception)


# --- batching ------------------------------------------------------------------------------------------------------


def run_lane(work, drive, **limits):
    async def main():
        lane = Lane("test", work, **{"max_waiting": 100, "max_rows": 8, "timeout": 5.0} | limits)
        try:
            return await drive(lane)
        finally:
            await lane.close()

    return asyncio.run(main())


def test_what_waits_is_worked_on_together():
    calls, go = [], threading.Event()

    def work(jobs):
        calls.append(list(jobs))
        go.wait(5)
        return [str(job).encode() for job in jobs]

    async def drive(lane):
        first = asyncio.create_task(lane.submit(0))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(lane.submit(i)) for i in range(1, 12)]
        await asyncio.sleep(0.05)
        go.set()
        return await asyncio.gather(first, *others)

    assert run_lane(work, drive) == [str(i).encode() for i in range(12)]
    assert calls == [[0], list(range(1, 9)), [9, 10, 11]]


def test_a_full_queue_turns_away_and_empties():
    go = threading.Event()

    def work(jobs):
        go.wait(5)
        return [b""] * len(jobs)

    async def drive(lane):
        tasks = [asyncio.create_task(lane.submit(i, rows)) for i, rows in enumerate((1, 3, 2))]
        await asyncio.sleep(0.05)  # the first is being worked on, and with it whatever fitted
        late = [asyncio.create_task(lane.submit(9)) for _ in range(8)]
        await asyncio.sleep(0.05)
        refused = [task.exception() for task in late if task.done()]
        go.set()
        await asyncio.gather(*tasks)
        done = await asyncio.gather(*late, return_exceptions=True)
        again = await lane.submit(1)
        return refused, done, again, lane.rows_waiting

    refused, done, again, waiting = run_lane(work, drive, max_waiting=6)
    assert len(refused) == 2
    assert all((error.status, error.headers) == (503, {"Retry-After": "1"}) for error in refused)
    assert done.count(b"") == 6
    assert (again, waiting) == (b"", 0)


def test_a_slow_answer_is_given_up():
    go = threading.Event()

    def work(jobs):
        go.wait(5)
        return [b"late"] * len(jobs)

    async def drive(lane):
        tasks = [asyncio.create_task(lane.submit(i)) for i in range(20)]
        started = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        took = asyncio.get_running_loop().time() - started
        go.set()
        return answers, took

    answers, took = run_lane(work, drive, timeout=0.2)
    assert {(error.status, error.type) for error in answers} == {(503, "timeout")}
    assert took < 1


def test_closing_finishes_what_was_taken():
    def work(jobs):
        return [b"done"] * len(jobs)

    async def drive(lane):
        tasks = [asyncio.create_task(lane.submit(i)) for i in range(50)]
        await asyncio.sleep(0)
        await lane.close()
        with pytest.raises(Problem, match="stopping"):
            await lane.submit(1)
        return await asyncio.gather(*tasks)

    assert run_lane(work, drive) == [b"done"] * 50


def test_work_that_fails_is_answered():
    def work(jobs):
        raise RuntimeError("broken")

    async def drive(lane):
        with pytest.raises(RuntimeError, match="broken"):
            await lane.submit(1)
        with pytest.raises(RuntimeError, match="broken"):
            await lane.submit(2)

    run_lane(work, drive)


def test_too_much_at_once_is_turned_away(models):
    """Through HTTP: with little room, some of many batches get 503 and may come again; the others get answers."""
    settings = Settings(models, max_waiting=256, max_documents=256, watch=0)
    documents = [{"text": " ".join(TEXTS * 40)}] * 200
    with running(make_app(settings)) as client, ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(client.post, "/v1/suggest-batch", json={"documents": documents}) for _ in range(24)]
        answers = [future.result() for future in asked]
    statuses = {answer.status_code for answer in answers}
    assert statuses == {200, 503}
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["type"] == "overloaded"


def test_a_failing_server_says_so_and_no_more(models, caplog):
    app = make_app(Settings(models, watch=0))
    with running(app) as client:
        app.api.models["tags"].model.model = None
        answer = client.post("/v1/suggest", json={"text": "a"})
    assert answer.status_code == 500
    assert answer.json()["error"] == {
        "type": "internal",
        "message": "the server failed at this request; its log has the reason",
    }
    assert "Traceback" in caplog.text


# --- the OpenAPI document ------------------------------------------------------------------------------------------


def test_the_document_names_every_route(client):
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) | {"/openapi.json", "/docs", "/", "other"} == set(ROUTES)
    text = document["components"]["schemas"]["SuggestRequest"]["properties"]["text"]
    assert text["maxLength"] == 200_000


@pytest.mark.slow
@pytest.mark.parametrize("model", ["tags", "numbers"])
def test_schemathesis_finds_nothing(models, model):
    """Requests made from the document, good and bad: every answer is one the document promises."""
    # How many features a row may have, and whether "auto" is known, depends on the model of numbers.
    excluded = [] if model == "tags" else [positive_data_acceptance]
    with listening(make_app(Settings({model: models[model]}, watch=0))) as address:
        config = schemathesis.Config.from_dict(
            {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}}
        )
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json", config=config)
        for found in schema.get_all_operations():
            for mode in schemathesis.GenerationMode:
                operation = found.ok()
                # Not every text is a table, and whatever a body is made of is a text.
                tables = [positive_data_acceptance, negative_data_rejection]
                more = tables if operation.path == "/v1/label-table" else []
                check_operation(operation, mode, [*excluded, *more], 15 if model == "tags" else 5)


def check_operation(operation, mode, excluded, n) -> None:
    @hypothesis.settings(
        max_examples=n, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        case.call_and_validate(excluded_checks=excluded)

    with contextlib.suppress(hypothesis.errors.Unsatisfiable):  # nothing can be wrong with a request without a body
        check()


# --- the kernel that writes answers ------------------------------------------------------------------------------


def test_suggestions_are_written_as_pythons_json_would():
    draw = np.random.default_rng(0)
    which = draw.integers(-1, 4, (200, 6)).astype(np.int32)
    scores = draw.random((200, 6)).astype(np.float32) ** 8
    scores[:4] = np.array([0, 1, 2, -1, np.nan, 5e-7], np.float32)
    most, least = draw.integers(0, 9, 200), draw.choice([0.0, 0.001, 0.5], 200)
    names = [b'{"label":"%d","score":' % i for i in range(4)]
    rows = _native.write_suggestions(which, scores, names, most, least)
    clean = np.round(np.clip(np.nan_to_num(scores).astype(np.float64), 0, 1), 6)
    for row, text in enumerate(rows):
        expected = [
            {"label": str(label), "score": float(score)}
            for label, score in zip(which[row][: most[row]], clean[row], strict=False)
            if label >= 0 and score >= least[row]
        ]
        assert json.loads(text) == expected
    for bad in ({"which": which[:5]}, {"most": most[:5]}, {"begins": names[:2]}):
        given = {"which": which, "scores": scores, "begins": names, "most": most, "least": least}
        with pytest.raises((ValueError, IndexError)):
            _native.write_suggestions(**given | bad)
