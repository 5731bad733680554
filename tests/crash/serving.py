"""A server that is killed while it answers and its model is replaced."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import umpteen

from ..files import read_files
from .killing import run
from .scenarios import World


def ask(address: str, text: str) -> bytes:
    request = urllib.request.Request(
        f"{address}/v1/suggest", json.dumps({"text": text}).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


class Serving:
    """A server of one model that is replaced while it answers; killed, it is started again at the same port."""

    def __init__(self, world: World) -> None:
        self.home = Path(tempfile.mkdtemp(dir=world.folder, prefix="serving"))
        self.models = []
        for name, prune in (("one", 0.0), ("two", 0.2)):
            method = umpteen.DiSMEC(labels_per_shard=10, prune=prune)
            run(lambda m=method, n=name: umpteen.Tagger(m).fit(*world.texts, self.home / n))
            self.models.append(self.home / name)
        self.text = world.texts[0][0]
        shutil.copytree(self.models[0], self.home / "m.model")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.answers: list[bytes] = []
        for model in self.models:  # what each says, undisturbed
            self.put(model)
            process = self.start(1)
            self.answers.append(self.results(self.wait(process)))
            self.end(process)

    def start(self, workers: int) -> subprocess.Popen[bytes]:
        code = "from umpteen.cli.main import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", code, "serve", str(self.home / "m.model"), "--port", str(self.port), "--workers",
             str(workers)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def wait(self, process: subprocess.Popen[bytes]) -> bytes:
        """The first answer."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert process.poll() is None, f"the server ended with {process.poll()}"
            with contextlib.suppress(OSError):
                return ask(f"http://127.0.0.1:{self.port}", self.text)
            time.sleep(0.02)
        raise AssertionError("the server gives no answer")

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        end = time.monotonic() + 30
        while time.monotonic() < end:  # its workers leave when it is gone
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        raise AssertionError("killed, the server still holds its port")

    @staticmethod
    def results(answer: bytes) -> bytes:
        return answer[answer.index(b'"results"') :].split(b"]")[0]

    def put(self, model: Path) -> None:
        run(lambda: umpteen.load(model).save(self.home / "m.model", overwrite=True))

    def try_point(self, mode: str, draw: random.Random) -> str:
        """Kills the server at a time that is drawn while it answers and its model is replaced."""
        process = self.start(draw.choice((1, 2)))
        if draw.random() < 0.8:  # else while it starts
            self.wait(process)
        began = time.monotonic()
        delay = draw.uniform(0, 2)
        asked = 0
        while time.monotonic() - began < delay:
            with contextlib.suppress(OSError):
                assert self.results(ask(f"http://127.0.0.1:{self.port}", self.text)) in self.answers
                asked += 1
            if draw.random() < 0.1:
                self.put(draw.choice(self.models))
        self.end(process)
        assert read_files(self.home / "m.model") in [read_files(model) for model in self.models], (
            "the served model was changed"
        )
        if draw.random() < 0.3:
            process = self.start(1)
            assert self.results(self.wait(process)) in self.answers
            self.end(process)
        return "answered" if asked else "not up yet"
