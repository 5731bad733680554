"""Connections that send too much, too slowly, too often, or never read: with sockets, without a client library."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import umpteen
from umpteen.errors import ParamError
from umpteen.serving import connections
from umpteen.serving.app import make_app
from umpteen.serving.connections import share_descriptors
from umpteen.serving.hosts import Hosts
from umpteen.serving.settings import Settings

from .serving import (
    HEALTH,
    Process,
    children_of,
    connect,
    exchange,
    listening,
    read_all,
    serving,
    status_of,
    wait_for,
)

pytestmark = pytest.mark.process

JSON = {"content-type": "application/json"}
HEAD = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


@contextlib.contextmanager
def server(models: dict[str, str], **settings):
    """A server in this process, with one small model; gives its port and its application."""
    app = make_app(Settings({"tags": models["tags"]}, **settings))
    with listening(app) as address:
        yield int(address.rsplit(":", 1)[1]), app


@pytest.fixture(scope="module")
def port(served_models):
    with server(served_models) as (port, _):
        yield port


def healthy(port: int) -> bool:
    return status_of(exchange(port, HEALTH, 30)) == 200


# --- too much ------------------------------------------------------------------------------------------------------

CHUNKED = b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
CHUNKED += b"content-type: application/json\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "status", "type"),
    [
        (HEAD + b"a: b\r\n" * 1_000_000, 431, "header_too_large"),
        (HEAD + b"a: " + b"b" * 6_000_000, 431, "header_too_large"),
        (HEAD + b"a" * 6_000_000, 431, "header_too_large"),
        (HEAD + b"a: b\r\n" * 101 + b"\r\n", 431, "header_too_large"),
        (HEAD + b"a: " + b"b" * 40_000 + b"\r\n\r\n", 431, "header_too_large"),
        (b"GET /" + b"a" * 6_000_000, 414, "url_too_long"),
        (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 414, "url_too_long"),
        (b"\r\n" * 100_000, 431, "header_too_large"),
        (b"nonsense\r\n\r\n", 400, "invalid_http"),
        (b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "invalid_http"),
        (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400,
         "invalid_http"),
        (HEAD + b"content-length: -1\r\n\r\n", 400, "invalid_http"),
    ],
)  # fmt: skip
def test_heads_have_limits(port, data, status, type):
    """The refusal arrives, however much the client still had to send."""
    with connect(port) as connection:
        connection.sendall(data)
        answer = read_all(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert status_of(answer) == status
    assert b"connection: close" in head.lower()
    assert b"\r\nx-request-id: " in head
    assert json.loads(body)["error"]["type"] == type
    assert healthy(port)


@pytest.mark.slow
def test_what_never_became_a_request_has_an_id_is_logged_and_counted(served_models):
    """As all answers are, in a server of its own."""
    asked = b"GET /v1/models?query=hush HTTP/1.1\r\nhost: localhost\r\nx-request-id: mine\r\n"
    refused = [
        (b"nonsense\r\n\r\n", 400, None, None),
        (asked + b"content-length: -1\r\n\r\n", 400, "GET", "/v1/models"),
        (asked + b"a: b\r\n", 408, "GET", "/v1/models"),
        (b"GET /" + b"a" * 1_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 414, "GET", "/" + "a" * 199),
        (asked + b"a: b\r\n" * 19 + b"\r\n", 431, "GET", "/v1/models"),
        (asked + b"transfer-encoding: gzip\r\n\r\n", 501, "GET", "/v1/models"),
        (HEALTH + b"\r\n" * 500_000, 431, None, None),  # behind a request, but not of it
        (b"GET http://user:hush@localhost/ HTTP/1.1\r\ncontent-length: x\r\n\r\n", 400, "GET", None),
    ]
    options = ("--timeout", "1", "--max-headers", "20", "--max-url-bytes", "1000")
    with serving(served_models["tags"], *options, "--access-log", "--log-format", "json") as process:
        for number, (data, status, method, path) in enumerate(refused):
            with connect(process.port) as connection:
                connection.sendall(data.replace(b"mine", b"mine-%d" % number))
                answer = read_all(connection).split(b"HTTP/1.1 ")[-1]
            assert int(answer[:3]) == status
            head = answer.partition(b"\r\n\r\n")[0].decode()
            request_id = next(line[14:] for line in head.split("\r\n") if line.startswith("x-request-id: "))
            assert (request_id == f"mine-{number}") == (asked in data)
            assert wait_for(lambda request_id=request_id: process.logged(request_id), 10)
            line = json.loads(process.logged(request_id)[-1])
            assert (line["status"], line.get("method"), line.get("path")) == (status, method, path)
            assert line["client"] == "127.0.0.1"
            assert line["bytes"] == len(answer.partition(b"\r\n\r\n")[2])
        for status, n in Counter(status for _, status, _, _ in refused).items():
            assert process.metric(rf'umpteen_requests_total\{{route="other",status="{status}"\}}') == n
        assert "hush" not in "".join(process.lines)


def test_who_finds_no_room_at_all_gets_an_answer_with_an_id(served_models, monkeypatch, caplog):
    monkeypatch.setattr(connections, "_SPARE", 0)
    with server(served_models, max_connections=8, timeout=30.0, access_log=True) as (port, app):
        busy = [connect(port) for _ in range(8)]
        try:
            for connection in busy:
                connection.sendall(ASK + b"content-length: 100\r\n\r\n{")
            assert wait_for(lambda: app.open_requests == 8, 5)
            with caplog.at_level("INFO", "umpteen.access"), connect(port) as one_more:
                answer = read_all(one_more)
        finally:
            for connection in busy:
                connection.close()
        assert status_of(answer) == 503
        assert b"retry-after: 1" in answer
        request_id = answer.partition(b"x-request-id: ")[2].partition(b"\r\n")[0].decode()
        assert [(line.umpteen_fields["request_id"], line.message) for line in caplog.records] == [(request_id, "503")]
        assert b'umpteen_requests_total{route="other",status="503"} 1' in app.counts.render()


@pytest.mark.parametrize("behind", [b"0\r\na: " + b"b" * 3_000_000, b"5;" + b"x" * 3_000_000])
def test_what_is_no_body_has_a_limit_behind_the_head_too(port, behind):
    """Trailers and the extensions of chunks."""
    with connect(port) as connection:
        connection.sendall(CHUNKED + b"2\r\n{}\r\n" + behind)
        answer = read_all(connection)
    assert status_of(answer) in (400, 431)
    assert healthy(port)


def test_trailers_are_no_headers(port):
    whole = b"0\r\nauthorization: Bearer x\r\n\r\n"
    answer = exchange(port, CHUNKED + b'e\r\n{"text":"sea"}\r\n' + whole)
    assert status_of(answer) == 200


def test_a_body_that_is_too_large_gets_its_answer(port):
    """Though the client has not sent half of it, and goes on."""
    with connect(port) as connection:
        connection.sendall(b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                           b"content-length: 20000000\r\n\r\n" + b" " * 20_000_000)  # fmt: skip
        answer = read_all(connection)
    assert status_of(answer) == 413


def test_requests_in_a_row_are_answered_in_order(port):
    ask = b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    ask += b'content-length: 14\r\n\r\n{"text":"sea"}'
    answer = exchange(port, HEALTH + ask + HEALTH + b"nonsense\r\n\r\n")
    assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200, 200, 200, 400]


def test_more_in_a_row_than_anybody_reads_are_refused(port):
    answer = exchange(port, HEALTH * 3000)
    statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses[-1] == 400
    assert len(statuses) < 30
    assert healthy(port)


def test_a_client_that_has_sent_all_may_still_read(port):
    """Half-closed, as `printf … | nc -N` does it; and in HTTP/1.0."""
    assert status_of(exchange(port, HEALTH)) == 200
    answer = exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert status_of(answer) == 200
    assert b"connection: close" in answer


def test_expect_continue_head_and_upgrade(port):
    with connect(port) as connection:
        connection.sendall(b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                           b"content-length: 14\r\nexpect: 100-continue\r\n\r\n")  # fmt: skip
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b'{"text":"sea"}')
        connection.shutdown(socket.SHUT_WR)
        assert status_of(read_all(connection)) == 200
    answer = exchange(port, b"HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n")
    assert b"content-length: 15" in answer
    upgraded = exchange(port, HEAD + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n" + b"x" * 1000)
    assert status_of(upgraded) == 200
    assert upgraded.count(b"HTTP/1.1") == 1


ASK = b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b'content-length: 14\r\n\r\n{"text":"sea"}',
        b'transfer-encoding: chunked\r\n\r\ne\r\n{"text":"sea"}\r\n0\r\n\r\n',
    ],
)
@pytest.mark.parametrize("pieces", [1, 7])
def test_an_upgrade_is_ignored_and_the_body_is_not(port, body, pieces):
    """As Java's HttpClient asks for HTTP/2 with its first request."""
    data = ASK + UPGRADE + body + HEALTH
    with connect(port) as connection:
        for begin in range(0, len(data), -(-len(data) // pieces)):
            connection.sendall(data[begin : begin + -(-len(data) // pieces)])
            time.sleep(0.02)
        connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)
    assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200, 200]
    assert b'"label":"sea"' in answer


@pytest.mark.parametrize(
    ("data", "status", "message"),
    [
        (ASK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "the only transfer encoding"),
        (ASK + b"transfer-encoding: identity\r\n\r\n{}", 501, "the only transfer encoding"),
        (CHUNKED + b'0xe\r\n{"text":"sea"}\r\n0\r\n\r\n', 400, "not valid HTTP"),
        (CHUNKED + b'e;a=b\nx\r\n{"text":"sea"}\r\n0\r\n\r\n', 400, "not valid HTTP"),
        (CHUNKED + b'-e\r\n{"text":"sea"}\r\n0\r\n\r\n', 400, "not valid HTTP"),
        (ASK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}", 400, "not valid HTTP"),
        (ASK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", 400, "not valid HTTP"),
        (ASK.replace(b"\r\n", b"\n") + b"\n", 400, "not valid HTTP"),
        (ASK + b"a: b\r\n folded\r\n\r\n", 400, "not valid HTTP"),
    ],
)
def test_what_two_servers_might_read_differently_is_refused(port, data, status, message):
    """So that nothing behind it passes as another request, and the answer says what was wrong."""
    with connect(port) as connection:
        connection.sendall(data + HEALTH)
        answer = read_all(connection)
    assert status_of(answer) == status
    assert answer.count(b"HTTP/1.1 ") == 1
    assert message in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


# --- too slow ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_slow_and_silent_connections_are_ended(served_models):
    with server(served_models, timeout=1.0, idle_timeout=1.0) as (port, _):
        silent, half, trickling, body, idle = (connect(port, 30) for _ in range(5))
        half.sendall(HEAD)
        idle.sendall(HEALTH)
        body.sendall(b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                     b"content-length: 100\r\n\r\n{")  # fmt: skip
        stop = threading.Event()

        def trickle():
            with contextlib.suppress(OSError):
                for byte in HEAD + b"a: " + b"b" * 200:
                    trickling.sendall(bytes([byte]))
                    if stop.wait(0.1):
                        break

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert read_all(silent) == b""
            assert status_of(read_all(half)) == 408
            assert status_of(read_all(trickling)) == 408
            assert status_of(read_all(body)) == 408
            assert status_of(read_all(idle)) == 200
        finally:
            stop.set()
            thread.join()
            for connection in (silent, half, trickling, body, idle):
                connection.close()


@pytest.mark.slow
def test_the_clock_goes_on_whatever_happens_to_it(served_models, caplog):
    """One look that fails is not the last one."""
    with server(served_models, timeout=1.0) as (port, app):
        broken = iter([MemoryError("no room"), ValueError("odd")])
        update_gauges = app.api.update_gauges

        def fail_twice():
            for error in broken:
                raise error
            update_gauges()

        app.api.update_gauges = fail_twice
        with connect(port, 30) as slow:
            slow.sendall(b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                         b"content-length: 100\r\n\r\n{")  # fmt: skip
            assert status_of(read_all(slow)) == 408
    assert "no room" in caplog.text


# --- too many ------------------------------------------------------------------------------------------------------


def test_idle_connections_make_room_for_somebody_new(served_models):
    with server(served_models, max_connections=20) as (port, app):
        crowd = [connect(port) for _ in range(80)]
        try:
            for connection in crowd[::3]:
                with contextlib.suppress(OSError):
                    connection.sendall(HEAD)  # half a header holds no place either
            assert healthy(port)
            assert app.api.connections() <= 21
            crowd[0].settimeout(5)
            assert crowd[0].recv(10) == b""  # the oldest went first
        finally:
            for connection in crowd:
                connection.close()


def test_one_client_cannot_have_all(served_models):
    with server(served_models, max_connections=40, max_connections_per_client=5) as (port, app):
        crowd = [connect(port) for _ in range(30)]
        try:
            assert healthy(port)
            assert app.api.connections() <= 6
        finally:
            for connection in crowd:
                connection.close()


def test_when_all_are_busy_only_health_is_answered(served_models):
    half = b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    half += b"content-length: 100\r\n\r\n{"
    with server(served_models, max_connections=8, timeout=30.0) as (port, app):
        busy = []
        for _ in range(8):
            busy.append(connect(port))
            busy[-1].sendall(half)
        try:
            assert wait_for(lambda: app.open_requests == 8, 5)
            assert healthy(port)
            answer = exchange(port, b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert status_of(answer) == 503
            assert b"retry-after: 1" in answer
        finally:
            for connection in busy:
                connection.close()


@pytest.mark.slow
def test_at_the_limit_of_descriptors_somebody_new_gets_in(served_models):
    with serving(served_models["tags"], "--watch", "0.5", limit=256) as process:
        crowd = []
        try:
            for i in range(400):
                with contextlib.suppress(OSError):
                    crowd.append(connect(process.port, 2))
                    if i % 2:
                        crowd[-1].sendall(HEAD)
            for _ in range(3):
                assert healthy(process.port)
            # There are files left to open a changed model with.
            (Path(served_models["tags"]) / "manifest.json").touch()
            assert wait_for(lambda: process.logged("tags: reloaded"), 40), process.lines
        finally:
            for connection in crowd:
                connection.close()


def test_descriptors_are_shared_out():
    most, backlog = share_descriptors(100)
    assert most == 100
    assert backlog >= 16


@contextlib.contextmanager
def watched(process: Process):
    """The health and memory of a server meanwhile, as somebody new sees them: (seconds, MB) of each look."""
    pid, stop, seen = children_of(process.process.pid)[0], threading.Event(), [(0.0, 0)]

    def look() -> None:
        while not stop.wait(0.02):
            began = time.monotonic()
            well = healthy(process.port)  # within 30 s, or an error
            seen.append((time.monotonic() - began if well else float("inf"), memory_of(pid)))

    before = memory_of(pid)
    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(look)
        try:
            yield seen
        finally:
            stop.set()
            looking.result()
    seen[:] = [(seconds, memory - before) for seconds, memory in seen[1:]]


def answer_while_sending(port: int, pieces: Iterable[bytes]) -> bytes:
    """For what is so large that the server ends the connection before all is sent."""
    with connect(port) as connection, ThreadPoolExecutor(1) as thread:
        reading = thread.submit(read_all, connection)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                connection.sendall(piece)
        try:
            return reading.result()
        except ConnectionResetError:
            return b""  # it was there, but the end came first


@pytest.mark.measured("memory")
@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([HEAD, b"a: ", *[b"b" * 1_000_000] * 96], 431),
        ([HEAD, *[b"a: b\r\n" * 100_000] * 17], 431),
        ([b"GET /", *[b"a" * 1_000_000] * 32], 414),
    ],
    ids=["a header of 96 MB", "10 MB of headers", "a URL of 32 MB"],
)
def test_enormous_heads_take_little_memory(served_models, pieces, status):
    with serving(served_models["tags"]) as process:
        with watched(process) as seen, ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: answer_while_sending(process.port, pieces), range(12)))
        statuses = Counter(status_of(answer) for answer in answers if answer)
        assert set(statuses) == {status}
        assert process.metric(rf'umpteen_requests_total\{{route="other",status="{status}"\}}') == 12
    assert max(seen)[0] < 30
    assert max(memory for _, memory in seen) < 60  # 23 MB as measured; unbounded, hundreds


@pytest.mark.measured("memory")
def test_thousands_of_silent_connections_take_little_memory_and_end(served_models):
    """3,000 at once, half of them with half a header; all are let in, and none stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8_000:
        pytest.skip(f"needs 8,000 open files, but the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_000), hard))
    most = ("--max-connections", "3500", "--max-connections-per-client", "3500")
    try:
        with serving(served_models["tags"], *most, "--timeout", "10") as process:
            with watched(process) as seen, contextlib.ExitStack() as opened:
                crowd = [opened.enter_context(connect(process.port)) for _ in range(3000)]
                for connection in crowd[::2]:
                    connection.sendall(HEAD)
                assert wait_for(lambda: process.metric("umpteen_connections") > 2000)
                assert wait_for(lambda: process.metric("umpteen_connections") < 10)
                statuses = Counter(read_all(connection)[9:12] for connection in crowd)
            assert statuses == {b"408": 1500, b"": 1500}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert max(seen)[0] < 30
    assert max(memory for _, memory in seen) < 60  # 10 MB as measured


# --- who never reads -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wordy(tmp_path_factory) -> str:
    """A model whose answers are large: 600 labels with long names."""
    path = tmp_path_factory.mktemp("wordy") / "wordy.model"
    texts = [f"word{i} common" for i in range(600)]
    umpteen.Tagger(umpteen.Centroid()).fit(texts, [[f"{i} " + "long name " * 20] for i in range(600)]).save(path)
    return str(path)


def memory_of(pid: int) -> int:
    return next(
        int(line.split()[1]) // 1024
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [1_900_000, 30_000])
def test_numbers_that_are_short_to_write_and_large_in_memory_are_bounded(served_models, numbers):
    """Two bytes of a body become 32 bytes of a list."""
    body = b'{"features":[' + b"0," * numbers + b"0]}"
    ask = b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    ask += b"content-length: %d\r\n\r\n%b" % (len(body), body)
    n_clients = 24 if numbers > 100_000 else 300
    with serving(served_models["numbers"], "--max-bytes-in-flight", "60000000") as process:
        pid = children_of(process.process.pid)[0]
        assert status_of(exchange(process.port, ask, 30)) == 422  # alone it is read, and has too many numbers
        before = most = memory_of(pid)
        crowd = [connect(process.port) for _ in range(n_clients)]
        with contextlib.ExitStack() as opened:
            for connection in crowd:
                opened.enter_context(connection).sendall(ask[:-1])
            for connection in crowd:
                connection.sendall(ask[-1:])
                most = max(most, memory_of(pid))
            statuses = Counter(status_of(first_line(connection)) for connection in crowd)
        assert set(statuses) <= {422, 503}
        assert statuses[503] > 0
        most = max(most, memory_of(pid))
        assert most - before < 200, f"{before} MB, then {most} MB"  # all at once would take 1.5 GB and 300 MB
        assert healthy(process.port)


@pytest.mark.slow
def test_clients_that_never_read_hold_little_and_not_for_long(wordy):
    """Each asks for 20 MB and reads nothing."""
    documents = [{"text": "common word1"}] * 150
    body = json.dumps({"documents": documents, "top_k": 600}).encode()
    ask = b"POST /v1/suggest-batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    ask += b"content-length: %d\r\n\r\n%b" % (len(body), body)
    limits = ("--max-bytes-in-flight", "45000000", "--timeout", "5", "--grace", "2")
    with serving(wordy, *limits) as process:
        pid = children_of(process.process.pid)[0]
        whole = exchange(process.port, ask, 30)
        assert status_of(whole) == 200
        assert len(whole) > 15_000_000
        before = most = memory_of(pid)
        crowd = [connect(process.port) for _ in range(16)]

        def holds(n_bytes: int) -> bool:
            nonlocal most
            most = max(most, memory_of(pid))
            return process.metric("umpteen_bytes_in_flight") > n_bytes

        try:
            for connection in crowd:
                connection.sendall(ask)
            assert wait_for(lambda: holds(15_000_000) and process.metric("umpteen_open_requests") >= 2)
            assert healthy(process.port)
            # They have their time, and no more.
            ended = r'umpteen_connections_ended_total\{reason="not_read"\}'
            assert wait_for(lambda: not holds(1_000_000) and process.metric(ended) >= 1)
            assert most - before < 150, f"{before} MB, then {most} MB"
            statuses = Counter(status_of(first_line(connection)) for connection in crowd)
            assert statuses[503] > 0  # who was too much was refused
            # The end comes in time, too, with some who do not read.
            more = [connect(process.port) for _ in range(2)]
            crowd += more
            for connection in more:
                connection.sendall(ask)
            assert wait_for(lambda: holds(15_000_000))
            began = time.monotonic()
            assert process.stop() == 0
            assert time.monotonic() - began < 2 + 10  # the grace, and time to end; without it, for ever
        finally:
            for connection in crowd:
                connection.close()


def first_line(connection: socket.socket) -> bytes:
    try:
        return connection.recv(100)
    except ConnectionResetError:
        return b"HTTP/1.1 000"


# --- by another name -----------------------------------------------------------------------------------------------


def test_only_known_hosts_are_answered_to(port):
    """Or a page elsewhere, whose name leads here, could read the answers."""

    def ask(*hosts: bytes, version: bytes = b"1.1") -> int:
        head = b"GET /v1/models HTTP/%b\r\n" % version + b"".join(b"host: %b\r\n" % host for host in hosts)
        return status_of(exchange(port, head + b"\r\n"))

    for good in (b"localhost", b"LOCALHOST:%d" % port, b"127.0.0.1:%d" % port, b"[::1]:80", b"localhost."):
        assert ask(good) == 200
    for bad in (b"evil.example", b"localhost.evil.example", b"127.0.0.1.evil.example", b"192.0.2.1", b"", b"a b",
                b"localhost@evil.example", b"\xff"):  # fmt: skip
        assert ask(bad) == 421
    assert ask() == 400
    assert ask(b"localhost", b"evil.example") in (400, 421)
    assert ask(b"evil.example", b"localhost") == 400
    assert ask(version=b"1.0") == 200
    for target, status in ((b"localhost:80", 200), (b"[::1]", 200), (b"evil.example", 421), (b"a@evil.example", 421)):
        head = b"GET http://%b/v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n" % target
        assert status_of(exchange(port, head)) == status  # the URL's own host counts


def test_hosts_may_be_named():
    named = Hosts("127.0.0.1", ["tags.example.org", "*.example.net", "192.0.2.7"])
    for good in (b"tags.example.org", b"TAGS.example.org:443", b"a.b.example.net", b"192.0.2.7:80", b"localhost"):
        assert named.allows(good)
    for bad in (b"example.org", b"example.net", b"tags.example.org.evil", b"192.0.2.8"):
        assert not named.allows(bad)
    everywhere = Hosts("0.0.0.0")
    assert everywhere.allows(b"192.0.2.8:8000")  # an address is no name that could be made to lead elsewhere
    assert everywhere.allows(b"[2001:db8::1]")
    assert not everywhere.allows(b"evil.example")
    assert Hosts("127.0.0.1", ["*"]).allows(b"evil.example")
    for wrong in ("http://example.org", "example.org:80", "a b", ""):
        with pytest.raises(ParamError, match="allowed_hosts"):
            Hosts("127.0.0.1", [wrong])


# --- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_stopping_under_load_resets_no_connection(served_models, workers):
    """Busy clients get an answer to each request, or a 503 that ends the connection, or cannot connect any more."""
    seen: Counter[str] = Counter()
    stop = threading.Event()

    def load(port: int) -> None:
        while not stop.is_set():
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            try:
                client.connect()
            except (ConnectionRefusedError, TimeoutError):
                seen["not accepted"] += 1
                return
            except ConnectionResetError:
                seen["reset while connecting"] += 1
                return
            try:
                while not stop.is_set():
                    client.request(
                        "POST", "/v1/suggest", b'{"text": "the sea"}', {"content-type": "application/json"}
                    )
                    answer = client.getresponse()
                    answer.read()
                    seen[str(answer.status)] += 1
                    if answer.will_close:
                        assert answer.status in (200, 503)
                        break
            except (OSError, http.client.HTTPException) as error:
                seen[type(error).__name__] += 1
            finally:
                client.close()

    with serving(served_models["tags"], "--workers", workers, "--grace", "10") as process:
        assert wait_for(lambda: process.metric("umpteen_workers") == int(workers))
        threads = [threading.Thread(target=load, args=(process.port,)) for _ in range(24)]
        for thread in threads:
            thread.start()
        assert wait_for(lambda: seen["200"] > 100)
        assert process.stop() == 0
        stop.set()
        for thread in threads:
            thread.join()
    assert set(seen) <= {"200", "503", "not accepted"}, seen
    assert seen["not accepted"] > 0
