"""The server as a process: workers, signals, reloading and stopping under load."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import umpteen

from .serving import COMMAND, TEXTS, children_of, serving, train, wait_for

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_one_worker_from_start_to_end(served_models):
    with serving(served_models["tags"], f"forest={served_models['trees']}") as server:
        assert server.address.startswith("http://127.0.0.1:")
        with server.client() as client:
            assert client.post("/v1/suggest", json={"text": "the sea"}).json()["results"][0]["label"] == "sea"
            assert [model["model_id"] for model in client.get("/v1/models").json()["models"]] == ["tags", "forest"]
            assert "server" not in client.get("/").headers
        assert server.stop(signal.SIGINT) == 0
    assert re.match(r"tags +\S+ \(dismec, 6 labels, .*, takes texts\)", server.lines[0])


def test_the_address_is_printed_once_it_answers(served_models):
    command = [*COMMAND, served_models["tags"], "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = next(re.search(r"http://\S+", line) for line in process.stdout if line.startswith("serving at"))
            assert httpx.get(f"{address[0]}/readyz").status_code == 200
        finally:
            process.terminate()


def test_a_token_from_a_file_or_the_environment(served_models, tmp_path):
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    for args, environment, token in (
        (["--token-file", str(file)], {}, "from-a-file"),
        ([], {"UMPTEEN_TOKEN": "from-outside"}, "from-outside"),
    ):
        with serving(served_models["tags"], *args, **environment) as server, server.client() as client:
            assert client.get("/v1/models").status_code == 401
            assert client.get("/v1/models", headers={"authorization": f"Bearer {token}"}).status_code == 200
            assert token not in "".join(server.lines)


def test_a_taken_port_is_said(served_models):
    with serving(served_models["tags"]) as server:
        port = server.address.rsplit(":", 1)[1]
        for workers in ("1", "2"):
            command = [*COMMAND, served_models["tags"], "--port", port, "--workers", workers]
            second = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert second.returncode == 1
            assert f"cannot listen on 127.0.0.1:{port}" in second.stderr


def test_a_slow_client_does_not_hold_the_server(served_models):
    import socket

    with serving(served_models["tags"], "--timeout", "2") as server, server.client() as client:
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"POST /v1/suggest HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                         b"content-length: 100\r\n\r\n{")  # fmt: skip
            assert client.post("/v1/suggest", json={"text": "the sea"}).status_code == 200
            slow.settimeout(10)
            answer = b""
            while not answer.endswith(b"}}"):  # header and body may come apart
                part = slow.recv(10_000)
                assert part, answer
                answer += part
        assert answer.startswith(b"HTTP/1.1 408")
        assert b'"type":"timeout"' in answer


def test_two_workers_share_the_work_and_one_copy(served_models):
    with serving(served_models["tags"], "--workers", "2") as server:
        assert wait_for(lambda: server.metric("umpteen_workers") == 2)

        def ask(i):
            with server.client() as client:  # a connection each, so that both workers get some
                return client.post("/v1/suggest", json={"text": TEXTS[i % 5]}).status_code

        with ThreadPoolExecutor(8) as pool:
            assert Counter(pool.map(ask, range(60))) == {200: 60}
        assert server.metric(r'umpteen_requests_total\{route="/v1/suggest",status="200"\}') == 60
        children = children_of(server.process.pid)
        assert len(children) == 2
        if sys.platform == "linux":
            for child in children:  # the model's arrays are the files themselves
                assert re.search(r"tags\.model/\S+\.npy", Path(f"/proc/{child}/maps").read_text())
        # A worker that dies is replaced, and the counts go on.
        os.kill(children[0], signal.SIGKILL)
        assert wait_for(lambda: len(set(children_of(server.process.pid)) - {children[0]}) == 2)
        with ThreadPoolExecutor(4) as pool:
            assert wait_for(lambda: Counter(pool.map(ask_safely(ask), range(8))) == {200: 8})
        assert server.metric(r'umpteen_requests_total\{route="/v1/suggest",status="200"\}') >= 68
        assert server.stop() == 0
        assert children_of(server.process.pid) == []


def ask_safely(ask):
    def asked(i):
        try:
            return ask(i)
        except httpx.TransportError:
            return 0

    return asked


@pytest.mark.parametrize("workers", ["1", "2"])
def test_reloading_under_load_drops_no_request(tmp_path, workers):
    path = tmp_path / "m.model"
    first = train(umpteen.DiSMEC())
    other = umpteen.Tagger(umpteen.DiSMEC()).fit(["the sea", "a pond"] * 8, [["ocean"], ["pond"]] * 8)
    first.save(path)
    seen: Counter[str] = Counter()
    stop = threading.Event()

    def load():
        with server.client() as client:
            while not stop.is_set():
                answer = client.post("/v1/suggest", json={"text": "the sea", "top_k": 1})
                found = answer.json()["results"][0]["label"] if answer.status_code == 200 else str(answer.status_code)
                seen[found] += 1

    with serving(str(path), "--workers", workers, "--watch", "0") as server, ThreadPoolExecutor(8) as pool:
        assert wait_for(lambda: server.metric("umpteen_workers") == int(workers))
        futures = [pool.submit(load) for _ in range(8)]
        done = r'umpteen_reloads_total\{model="m",outcome="done"\}'
        try:
            for n, model in enumerate([other, first, other], 1):
                model.save(path, overwrite=True)
                server.process.send_signal(signal.SIGHUP)
                assert wait_for(lambda n=n: server.metric(done) == n)
                time.sleep(0.3)
        finally:
            stop.set()
        for future in futures:
            future.result()
        assert server.stop() == 0
    assert set(seen) == {"sea", "ocean"}, seen
    assert min(seen.values()) > 10


def test_stopping_finishes_what_was_accepted(served_models):
    documents = [{"text": " ".join(TEXTS * 60)}] * 250
    with serving(served_models["tags"], "--max-waiting", "20000") as server, ThreadPoolExecutor(40) as pool:

        def ask(_):
            with server.client() as client:
                return client.post("/v1/suggest-batch", json={"documents": documents})

        answers = [pool.submit(ask, i) for i in range(40)]
        assert wait_for(lambda: server.metric("umpteen_open_requests") >= 4 or all(a.done() for a in answers))
        open_at_signal = sum(not answer.done() for answer in answers)
        code = server.stop()
        outcomes: Counter[object] = Counter()
        for answer in answers:
            try:
                response = answer.result()
                if response.status_code == 503:  # its connection was accepted, but it came after the signal
                    assert response.json()["error"]["type"] == "stopping"
                    outcomes["not accepted"] += 1
                    continue
                assert len(response.json()) == 250
                outcomes[response.status_code] += 1
            except (
                httpx.ConnectError,
                httpx.ReadError,
                httpx.WriteError,
            ):  # still in the kernel's queue, or on its way
                outcomes["not accepted"] += 1
        assert code == 0
    assert open_at_signal > 0
    assert set(outcomes) <= {200, "not accepted"}
    assert outcomes[200] >= 4


def test_without_the_extra_it_says_what_to_install(served_models):
    code = (
        "import sys; sys.modules['uvicorn'] = None; import importlib.util as u; f = u.find_spec;"
        "u.find_spec = lambda n: None if n == 'uvicorn' else f(n);"
        f"sys.argv = ['umpteen', 'serve', {served_models['tags']!r}]; from umpteen.cli.main import main; main()"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.returncode == 1
    assert "pip install 'umpteen[serve]'" in found.stderr
