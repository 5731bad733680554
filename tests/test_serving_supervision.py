"""Workers that die or hang, models that are replaced by anything at all: the server goes on and says so."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import umpteen
from umpteen.serving.app import make_app, make_counts
from umpteen.serving.served import Served, as_time
from umpteen.serving.settings import Settings
from umpteen.serving.shared import SharedMemory
from umpteen.serving.supervisor import Supervisor
from umpteen.serving.tokens import Tokens
from umpteen.serving.trial import Outcome, explain_failure, try_model
from umpteen.serving.versions import candidates, digest, sign
from umpteen.serving.watching import Watcher

from .serving import children_of, running, serving, train, wait_for

pytestmark = pytest.mark.process

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[Path, Path]:
    """Models that disagree about the sea."""
    folder = tmp_path_factory.mktemp("two")
    train(umpteen.DiSMEC()).save(folder / "sea")
    other = umpteen.Tagger(umpteen.DiSMEC()).fit(["the sea", "a pond"] * 8, [["ocean"], ["pond"]] * 8)
    other.save(folder / "ocean")
    return folder / "sea", folder / "ocean"


def ask(client: httpx.Client) -> tuple[str, str]:
    """The label of a text, and the version of the model that gave it."""
    answer = client.post("/v1/suggest", json={"text": "the sea", "top_k": 1})
    assert answer.status_code == 200, answer.text
    return answer.json()["results"][0]["label"], answer.headers["x-model-version"]


# --- workers -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_dead_and_stuck_workers_are_replaced_and_others_go_on(served_models, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with serving(
        served_models["tags"], "--workers", "2", "--stuck-after", "3", TMPDIR=str(temporary)
    ) as server, server.client() as client:  # fmt: skip
        assert wait_for(lambda: server.metric("umpteen_workers") == 2)
        assert list(temporary.glob("umpteen*")) == []  # nothing that a full disk or a cleaner could take
        unlucky, healthy = children_of(server.process.pid)
        for _ in range(3):  # one after the other, as soon as it is there
            os.kill(unlucky, signal.SIGKILL)
            unlucky = next_worker(server, {unlucky, healthy})
        assert server.process.poll() is None
        assert healthy in children_of(server.process.pid)
        assert wait_for(lambda: server.metric("umpteen_workers") == 2)
        assert server.metric(r'umpteen_worker_restarts_total\{reason="died"\}') == 3
        # One whose event loop does not turn gives no sign of life.
        os.kill(unlucky, signal.SIGSTOP)
        assert wait_for(lambda: server.logged("no sign of life"))
        assert wait_for(lambda: unlucky not in children_of(server.process.pid))
        assert client.post("/v1/suggest", json={"text": "the sea"}).status_code == 200
        assert wait_for(lambda: server.metric("umpteen_workers") == 2)
        assert server.metric(r'umpteen_worker_restarts_total\{reason="stuck"\}') == 1
        assert server.stop() == 0
        assert children_of(server.process.pid) == []


def next_worker(server, known: set[int]) -> int:
    assert wait_for(lambda: len(set(children_of(server.process.pid)) - known) == 1)
    return (set(children_of(server.process.pid)) - known).pop()


@pytest.mark.slow
def test_a_worker_alone_is_replaced_too(served_models):
    with serving(served_models["tags"]) as server, server.client() as client:
        [worker] = children_of(server.process.pid)
        os.kill(worker, signal.SIGBUS)  # as if a mapped file had been cut

        def answers() -> bool:
            try:
                return client.get("/healthz").status_code == 200
            except httpx.TransportError:
                return False

        assert wait_for(lambda: answers() and children_of(server.process.pid) != [worker])


@pytest.mark.slow
def test_workers_leave_when_their_supervisor_is_gone(served_models):
    with serving(served_models["tags"], "--workers", "2") as server:
        assert wait_for(lambda: server.metric("umpteen_workers") == 2)
        workers = children_of(server.process.pid)
        server.process.kill()
        server.process.wait()
        assert wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


def test_shared_memory_is_all_there_from_the_beginning(served_models):
    memory = SharedMemory(1_000_000)
    assert os.fstat(memory._descriptor).st_blocks * 512 >= 1_000_000
    settings = Settings({"tags": served_models["tags"]}, workers=2)
    shared = SharedMemory(make_counts(settings, None, 0, 3).n_bytes)
    one, other = (make_counts(settings, shared, row, 3) for row in (0, 2))
    one.reloaded("tags", "failed", "memory")
    other.reloaded("tags", "done")
    assert b'reloads_total{model="tags",outcome="done"} 1' in one.render()
    assert other.failing(["tags"]) == {"tags": "memory"}
    assert one.last_beat == 0
    one.beat()
    assert one.last_beat > 0 == other.last_beat
    one.stopped()
    assert one.last_beat == 0
    assert b'outcome="failed"} 1' in other.render()  # counts outlive their process
    assert other.failing(["tags"]) == {}


@pytest.mark.slow
def test_a_model_that_never_comes_back_is_a_reason_to_be_replaced(served_models):
    app = make_app(Settings({"tags": served_models["tags"]}, stuck_after=0.1, timeout=0.2))
    go = threading.Event()
    with running(app) as client:
        app.api.models["tags"].model.suggest = lambda jobs: [b"" for _ in jobs if go.wait(20)]
        assert client.post("/v1/suggest", json={"text": "a"}).status_code == 503
        time.sleep(1.2)
        before = app.counts.last_beat
        time.sleep(1.2)
        assert app.counts.last_beat == before
        go.set()
        assert wait_for(lambda: app.counts.last_beat > before, 5)


def test_what_changes_while_a_worker_starts_reaches_it(served_models):
    """Tokens that were taken back must not live on in a worker that was being started."""
    settings = Settings({"tags": served_models["tags"]}, token="first-token")
    supervisor = Supervisor(settings, None, dict(settings.models))
    others: list[threading.Thread] = []

    class Starting:
        def __init__(self, target, args) -> None:
            self.args = args

        def start(self) -> None:
            others.append(threading.Thread(target=supervisor._hand_out_tokens, args=(Tokens.of("second-token"),)))
            others[0].start()
            others[0].join(0.3)

    ours, theirs = SPAWN.Pipe()
    kept = SPAWN.Pipe()  # the supervisor closes its copy of the worker's end
    supervisor._context = SimpleNamespace(Pipe=lambda: (ours, kept[0]), Process=Starting)
    supervisor._start(0, supervisor._rows[0])
    others[0].join()
    assert theirs.poll(5)
    assert theirs.recv() == ("tokens", Tokens.of("second-token"))


@pytest.mark.slow
def test_a_worker_that_reads_no_messages_does_not_stop_supervision(served_models, tmp_path):
    """As many tokens as there may be do not fit into what the kernel keeps for it."""
    file = tmp_path / "tokens"

    def write(version: int) -> None:
        file.write_text("".join(f"{i:04d}{'n' * 60} {version}-secret-{i:04d}\n" for i in range(1000)))

    write(0)
    arguments = ("--workers", "2", "--watch", "0.1", "--stuck-after", "8", "--token-file", str(file))
    with serving(served_models["tags"], *arguments) as server:
        assert wait_for(lambda: len(children_of(server.process.pid)) == 2 and answer(server, "0-secret-0000") == 200)
        workers = children_of(server.process.pid)
        write(1)
        assert wait_for(lambda: {answer(server, "1-secret-0999") for _ in range(6)} == {200})
        assert children_of(server.process.pid) == workers  # who read all of a message that came in pieces
        stopped, other = workers
        os.kill(stopped, signal.SIGSTOP)
        for version in range(2, 7):
            write(version)
            time.sleep(0.4)
        os.kill(other, signal.SIGKILL)  # its end is seen although the watcher is in the middle of a message
        assert wait_for(lambda: not {stopped, other} & set(children_of(server.process.pid)), 40)
        assert wait_for(lambda: len(children_of(server.process.pid)) == 2)
        assert wait_for(lambda: answer(server, "6-secret-0999") == 200)
        assert server.stop() == 0


def answer(server, token: str) -> int:
    try:
        with server.client() as client:
            return client.get("/v1/models", headers={"authorization": f"Bearer {token}"}).status_code
    except httpx.TransportError:
        return 0


# --- models --------------------------------------------------------------------------------------------------------


def copy_over(source: Path, target: Path, pause: float) -> None:
    """As rsync does it: one file after the other, each under another name first."""
    for file in [source / "manifest.json", *sorted(source.glob("*/*"))]:
        place = target / file.relative_to(source)
        place.parent.mkdir(exist_ok=True)
        shutil.copy(file, place.with_name(f".{place.name}.new"))
        place.with_name(f".{place.name}.new").rename(place)
        time.sleep(pause)
    for file in target.glob("*/*"):
        if not (source / file.relative_to(target)).exists():
            file.unlink()


@pytest.mark.slow
def test_whatever_takes_the_place_of_a_model(two, tmp_path):
    """File by file, without a manifest, with absurd times and numbers: the old answers, then the new ones, a line in
    the log for each event of the whole server, and never another answer."""
    sea, ocean = two
    path = tmp_path / "m.model"
    shutil.copytree(sea, path)
    versions = {"sea": digest(sea), "ocean": digest(ocean)}
    seen: Counter[tuple[str, str]] = Counter()
    stop = threading.Event()

    def load() -> None:
        with server.client() as client:
            while not stop.is_set():
                seen[ask(client)] += 1
                time.sleep(0.005)

    with serving(str(path), "--workers", "2", "--watch", "0.2") as server, server.client() as client:

        def failing() -> list[dict[str, str]]:
            return client.get("/readyz").json().get("failed_reloads", [])

        def takes_up(label: str) -> bool:
            return wait_for(lambda: all(ask(client)[0] == label for _ in range(3)))

        assert wait_for(lambda: server.metric("umpteen_workers") == 2)
        thread = threading.Thread(target=load)
        thread.start()
        try:
            copy_over(ocean, path, 0.05)
            assert takes_up("ocean")
            assert wait_for(lambda: len(server.logged("m: reloaded")) == 1)
            assert not failing()
            # A directory without a manifest.
            path.rename(tmp_path / "aside")
            path.mkdir()
            assert wait_for(lambda: server.logged("holds no manifest.json"))
            assert [(entry["model_id"], entry["reason"]) for entry in failing()] == [("m", "missing")]
            assert server.metric(r'umpteen_reload_failing\{model="m",reason="missing"\}') == 1
            assert ask(client)[0] == "ocean"
            # A number that is none.
            path.rmdir()
            shutil.copytree(sea, path)
            manifest = json.loads((path / "manifest.json").read_text())
            text = json.dumps(manifest | {"n_labels": 7, "n_features": 7}).replace(": 7", ": 1e400")
            (path / "manifest.json").write_text(text)
            assert wait_for(lambda: len(server.logged("cannot be used")) >= 2)
            assert ask(client)[0] == "ocean"
            # A whole one, with a time that no calendar has.
            (path / "manifest.json").write_bytes((sea / "manifest.json").read_bytes())
            os.utime(path / "manifest.json", (10**12, 10**12))
            assert takes_up("sea")
            assert client.get("/v1/models").json()["models"][0]["modification_time"] > "2400"
            assert wait_for(lambda: not failing())
            # And the look goes on.
            umpteen.load(ocean).save(path, overwrite=True)
            assert takes_up("ocean")
            assert wait_for(lambda: len(server.logged("m: reloaded")) == 3)  # for both workers together
        finally:
            stop.set()
            thread.join()
        assert server.stop() == 0
    assert set(seen) == set(versions.items()), seen


def change_manifest(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def never_match(path: Path) -> None:
    """A pattern over which `re` would think for ever, without letting go of Python's lock."""
    evil = {"token_pattern": "(?:|(?:)){60}x"}
    change_manifest(path, lambda manifest: manifest["parts"]["vocabulary"]["scalars"]["tfidf"].update(evil))


def empty_array(path: Path) -> None:
    (path / "shard-00000" / "bias.npy").write_bytes(b"")
    entry = {"bytes": 0}
    change_manifest(path, lambda manifest: manifest["parts"]["shard-00000"]["arrays"]["bias"].update(entry))


def put(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        (path / name).unlink()
        make(path / name)

    return replace


HOSTILE = {
    "token_pattern": never_match,
    r"bias\.npy: must be a regular file, but is a pipe": put("shard-00000/bias.npy", os.mkfifo),
    r"manifest\.json: must be a regular file, but is a pipe": put("manifest.json", os.mkfifo),
    r"bias\.npy: must be a regular file, but is a link": put(
        "shard-00000/bias.npy", lambda file: file.symlink_to("/dev/zero")
    ),
    r"arrays\.bias\.bytes must be \d+, but is 0": empty_array,
}


@pytest.mark.slow
def test_hostile_files_under_a_running_server(two, tmp_path):
    """They would hang whoever ran or read them: the server answers as before, at once, says why, and ends on SIGTERM
    with the last of them still there."""
    sea, _ = two
    path = tmp_path / "m"
    shutil.copytree(sea, path)
    with serving(str(path), "--watch", "0.2", "--grace", "5") as server, server.client() as client:
        client.timeout = 5
        for number, (reason, damage) in enumerate(HOSTILE.items()):
            new = tmp_path / f"new {number}"
            shutil.copytree(sea, new)
            damage(new)
            path.rename(tmp_path / f"old {number}")
            new.rename(path)

            def refused(reason: str = reason) -> bool:
                assert client.get("/healthz").json() == {"status": "ok"}
                assert ask(client) == ("sea", digest(sea))
                return bool(server.logged(f"m: the changed model cannot be used.*{reason}"))

            assert wait_for(refused), (reason, server.lines)
            assert wait_for(lambda: client.get("/readyz").json().get("failed_reloads"), 5)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 5 + 5  # the grace, and a busy machine


@pytest.mark.slow
def test_a_trial_ends_in_words_whatever_happens_to_it(two, tmp_path):
    sea, _ = two
    assert try_model(SPAWN, str(sea), verify=True, seconds=60) == Outcome(digest(sea))
    damaged = tmp_path / "damaged"
    shutil.copytree(sea, damaged)
    weights = next(damaged.glob("*/weights.npy"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert try_model(SPAWN, str(damaged), verify=False, seconds=60).version is not None
    outcome = try_model(SPAWN, str(damaged), verify=True, seconds=60)
    assert (outcome.version, outcome.reason) == (None, "damaged")
    assert "weights.npy" in outcome.message
    late = try_model(SPAWN, str(sea), verify=False, seconds=0.01)
    assert (late.version, late.reason) == (None, "stuck")
    found: list[Outcome] = []
    trying = threading.Thread(target=lambda: found.append(try_model(SPAWN, str(sea), verify=False, seconds=60)))
    trying.start()
    assert wait_for(lambda: any(child.pid for child in multiprocessing.active_children()), 10)
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGKILL)
    trying.join()
    assert (found[0].reason, "SIGKILL" in found[0].message) == ("crashed", True)
    assert multiprocessing.active_children() == []


def test_any_time_of_a_file_can_be_shown():
    assert as_time(10**12).startswith("9999")
    assert as_time(-(10**12)).startswith("0001")
    assert as_time(0) == "1970-01-01T00:00:00+00:00"


def test_reasons():
    for error, reason in (
        (MemoryError(), "memory"),
        (FileNotFoundError("x"), "missing"),
        (PermissionError("x"), "unreadable"),
        (umpteen.errors.ModelUnfinishedError("x"), "unfinished"),
        (umpteen.errors.ModelChangedError("x"), "changed"),
        (umpteen.errors.ModelFormatError("x"), "format"),
        (umpteen.errors.ModelCorruptError("x"), "damaged"),
        (OverflowError("cannot convert float infinity to integer"), "error"),
        (KeyboardInterrupt(), "error"),
    ):
        assert explain_failure(error)[0] == reason
        assert explain_failure(error)[1]


class Looks:
    """A watcher without processes: what was tried, and what would have been opened."""

    def __init__(self, path: Path, outcomes: list[Outcome | BaseException], **settings) -> None:
        self.settings = Settings({"m": str(path)}, **settings)
        self.counts = make_counts(self.settings)
        self.tried: list[tuple[str, bool]] = []
        self.opened: list[str] = []
        self.versions: list[str] = []
        self.tokens: list[Tokens] = []
        self.outcomes = outcomes
        self.watcher = Watcher(
            self.settings, self.counts, {"m": candidates(str(path))[0]}, self.settings.make_tokens(), self.attempt,
            self.spread, self.tokens.append,
        )  # fmt: skip

    def attempt(self, path: str, verify: bool) -> Outcome:
        self.tried.append((Path(path).name, verify))
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome("0")
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def spread(self, model: str, path: str, version: str) -> list[Outcome]:
        self.opened.append(Path(path).name)
        self.versions.append(version)
        return [Outcome("0")]

    def look(self, times: int = 2) -> None:
        for _ in range(times):
            self.watcher.look()


def test_no_error_ends_the_looks(two, tmp_path, caplog):
    path = tmp_path / "m"
    shutil.copytree(two[0], path)
    errors = [MemoryError("no room"), OverflowError("absurd"), RecursionError("deep"), SystemExit(3)]
    looks = Looks(path, list(errors))
    looks.look()
    assert looks.tried == []  # nothing has changed
    for i, error in enumerate(errors, 1):
        (path / "manifest.json").touch()
        looks.look()
        assert len(looks.tried) == i
        assert f'outcome="failed"}} {i}'.encode() in looks.counts.render()
        assert str(error) in caplog.text
    assert looks.counts.failing(["m"]) == {"m": "error"}
    (path / "manifest.json").touch()
    looks.look()
    assert looks.opened == ["m"]
    assert looks.counts.failing(["m"]) == {}


def test_what_is_still_changing_is_not_tried(two, tmp_path):
    path = tmp_path / "m"
    shutil.copytree(two[0], path)
    looks = Looks(path, [])
    for _ in range(4):
        next(path.glob("*/weights.npy")).touch()
        looks.look(1)
    assert looks.tried == []
    looks.look(1)
    assert looks.tried == [("m", True)]  # its files were changed in place: every byte is compared
    looks.look()
    assert len(looks.tried) == 1
    umpteen.load(two[1]).save(path, overwrite=True)  # a whole one
    looks.look()
    assert looks.tried[1:] == [("m", False)]
    looks.watcher.look(always=True)
    assert len(looks.tried) == 3


def test_what_never_stays_the_same_is_tried_from_time_to_time(two, tmp_path):
    """As under `umpteen learn` in a loop, faster than the checks."""
    path = tmp_path / "m"
    shutil.copytree(two[0], path)
    looks = Looks(path, [Outcome(None, "damaged", "half of a copy")])
    weights = next(path.glob("*/weights.npy"))
    tried = []
    for number in range(1, 30):
        weights.touch()
        looks.look(1)
        if len(tried) < len(looks.tried):
            tried.append(number)
    assert tried == [8, 16, 24]  # a failure, then a success, after which it counts anew
    assert looks.opened == ["m", "m"]


def test_a_version_that_is_being_written_does_not_hide_a_whole_one(two, tmp_path):
    place = tmp_path / "m"
    shutil.copytree(two[0], place / "v1")
    looks = Looks(place, [])
    shutil.copytree(two[0], place / "v3")
    shutil.copytree(two[0], place / "v2")
    for _ in range(3):
        next((place / "v3").glob("*/weights.npy")).touch()
        looks.look(1)
    assert looks.opened == ["v2"]
    looks.look()
    assert looks.opened == ["v2", "v3"]


@pytest.mark.slow
def test_workers_change_to_a_model_together_or_not_at_all(two, tmp_path):
    sea, ocean = two
    path = tmp_path / "m"
    shutil.copytree(sea, path)
    arguments = ("--workers", "2", "--watch", "0.2", "--idle-timeout", "300")
    with serving(str(path), *arguments) as server, contextlib.ExitStack() as stack:
        assert wait_for(lambda: server.metric("umpteen_workers") == 2)
        # Some at each worker; they keep their connections, since one of the workers will accept no other.
        keep = httpx.Limits(keepalive_expiry=None)
        made = [httpx.Client(base_url=server.address, timeout=30, limits=keep) for _ in range(12)]
        clients = [stack.enter_context(client) for client in made]

        def versions() -> set[str]:
            return {ask(client)[1] for client in clients}

        assert versions() == {digest(sea)}
        worker = children_of(server.process.pid)[0]
        before = resource.prlimit(worker, resource.RLIMIT_NOFILE)
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (3, before[1]))  # it cannot open a file
        umpteen.load(ocean).save(path, overwrite=True)
        assert wait_for(lambda: server.logged("m: the changed model cannot be used"))
        assert versions() == {digest(sea)}
        resource.prlimit(worker, resource.RLIMIT_NOFILE, before)
        server.process.send_signal(signal.SIGHUP)
        assert wait_for(lambda: server.logged("m: reloaded"))
        assert wait_for(lambda: versions() == {digest(ocean)})


def test_workers_open_only_the_version_that_was_tried(two, tmp_path):
    sea, ocean = two
    path = tmp_path / "m"
    shutil.copytree(sea, path)
    looks = Looks(path, [Outcome("tried")])
    (path / "manifest.json").touch()
    looks.look()
    assert looks.versions == ["tried"]
    served = Served("m", str(path), looks.settings, looks.counts)
    umpteen.load(ocean).save(path, overwrite=True)  # between the trial and the worker
    with pytest.raises(umpteen.errors.ModelChangedError, match=f"{digest(sea)} was tried, but now .*{digest(ocean)}"):
        served.prepare(str(path), digest(sea))
    served.settle(True)
    assert served.model.version == digest(sea)
    served.prepare(str(path), digest(ocean))
    served.settle(False)
    served.settle(True)
    assert served.model.version == digest(sea)
    served.prepare(str(path), digest(ocean))
    assert served.model.version == digest(sea)
    served.settle(True)
    assert served.model.version == digest(ocean)


def test_with_verify_every_worker_compares_what_it_maps(two, tmp_path):
    path = tmp_path / "m"
    shutil.copytree(two[0], path)
    weights = next(path.glob("*/weights.npy"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    settings = Settings({"m": str(path)}, verify=True)
    with pytest.raises(umpteen.errors.ModelCorruptError, match="SHA-256"):
        Served("m", str(path), settings, make_counts(settings))


def test_what_failed_is_tried_again_later(two, tmp_path, monkeypatch):
    path = tmp_path / "m"
    shutil.copytree(two[0], path)
    looks = Looks(path, [Outcome(None, "memory", "no room")])
    (path / "manifest.json").touch()
    looks.look(5)
    assert len(looks.tried) == 1
    later = time.monotonic() + 11
    monkeypatch.setattr(time, "monotonic", lambda: later)
    looks.look(2)
    assert looks.opened == ["m"]


def test_a_check_that_hangs_is_told_until_it_goes_on(two, tmp_path, caplog):
    """As on a disk of another machine that does not answer."""
    sea, ocean = two
    path = tmp_path / "m"
    shutil.copytree(sea, path)
    settings = Settings({"m": str(path)}, watch=0.02)
    supervisor = Supervisor(settings, None, dict(settings.models))
    watcher, answered, tried = supervisor._watcher, threading.Event(), []

    def attempt(path: str, verify: bool) -> Outcome:
        tried.append(path)
        answered.wait(60)
        return Outcome(None, "unreadable", "the disk does not answer")

    def look(seconds: float) -> None:
        supervisor._look_for_stuck_watcher(time.monotonic() + seconds)

    watcher._attempt = attempt
    longest = 2 * settings.reload_timeout + settings.stuck_after
    with running(make_app(settings, make_counts(settings, supervisor._memory, 0, 2))) as client:

        def told() -> tuple[bool, bool]:
            said = client.get("/readyz").json().get("watcher_stuck", False)
            return said, "\numpteen_watcher_stuck 1\n" in client.get("/metrics").text

        watcher.start()
        (path / "manifest.json").touch()
        assert wait_for(lambda: tried and watcher.busy_since is not None, 10)
        look(longest - 5)
        assert told() == (False, False)
        caplog.set_level("INFO", "umpteen")
        for _ in range(3):
            look(longest + 5)
            assert told() == (True, True)
        assert caplog.text.count("the check of models and tokens has been stuck for 270 s") == 1
        answered.set()
        assert wait_for(lambda: watcher.busy_since is None, 10)
        look(0)
        assert told() == (False, False)
        assert caplog.text.count("the check of models and tokens goes on") == 1
        assert [failed["reason"] for failed in client.get("/readyz").json()["failed_reloads"]] == ["unreadable"]
        umpteen.load(ocean).save(path, overwrite=True)
        assert wait_for(lambda: len(tried) == 2, 10)
    watcher._asked = SimpleNamespace(wait=lambda seconds: threading.Event().wait(), clear=lambda: None)  # rests


# --- versions ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_newest_whole_version_is_served_or_the_one_that_is_pinned(two, tmp_path):
    sea, ocean = two
    place = tmp_path / "tags"
    for name, model in (("v9", sea), ("v10", ocean), (".v11", sea)):
        shutil.copytree(model, place / name)
    (place / "notes").mkdir()
    assert [Path(path).name for path in candidates(str(place))] == ["v10", "v9"]
    assert candidates(str(sea)) == [str(sea)]
    with serving(str(place), "--watch", "0.2") as server, server.client() as client:
        assert ask(client) == ("ocean", digest(ocean))
        assert (
            client.get("/v1/models").json()["models"][0] | {"directory": "v10", "model_id": "tags"}
            == (client.get("/v1/models").json()["models"][0])
        )
        (place / "current").write_text("v9\n")
        assert wait_for(lambda: ask(client) == ("sea", digest(sea)))
        (place / "current").unlink()
        assert wait_for(lambda: ask(client)[0] == "ocean")
        # A newer one is copied there: served when it is whole.
        (place / "v11").mkdir()
        shutil.copy(sea / "manifest.json", place / "v11")
        assert wait_for(lambda: server.logged("v11.*missing|missing.*v11"))
        assert ask(client)[0] == "ocean"
        shutil.copytree(sea, place / "v11", dirs_exist_ok=True)
        assert wait_for(lambda: ask(client)[0] == "sea")
        (place / "current").symlink_to("v10")
        assert wait_for(lambda: ask(client)[0] == "ocean")


def test_versions_are_chosen_by_name(two, tmp_path, caplog):
    sea, _ = two
    for name in ("2026-11-01", "2026-11-15", "2026-9-30"):
        shutil.copytree(sea, tmp_path / "m" / name)
    looks = Looks(tmp_path / "m", [Outcome(None, "damaged", "broken")])
    assert list(looks.watcher.paths.values()) == [str(tmp_path / "m" / "2026-11-15")]
    shutil.copytree(sea, tmp_path / "m" / "2026-12-01")
    looks.look()
    assert looks.tried == [("2026-12-01", True)]
    assert looks.opened == []
    assert looks.counts.failing(["m"]) == {"m": "damaged"}
    shutil.rmtree(tmp_path / "m" / "2026-12-01")
    looks.look()
    assert looks.counts.failing(["m"]) == {}
    for wrong in ("../sea", "/etc", "", "a" * 200):
        (tmp_path / "m" / "current").write_text(wrong)
        looks.look()
        assert looks.opened == []
    assert "must name a directory beside it" in caplog.text
    (tmp_path / "m" / "current").write_text("2026-11-01")
    looks.look()
    assert looks.opened == ["2026-11-01"]


def test_a_whole_version_below_a_damaged_one_is_found(two, tmp_path):
    """The newest is damaged, and stays; the one below it comes later and is whole."""
    sea, _ = two
    place = tmp_path / "m"
    shutil.copytree(sea, place / "v1")
    broken = Outcome(None, "damaged", "broken")
    looks = Looks(place, [broken, Outcome("0"), broken])
    shutil.copytree(sea, place / "v3")
    looks.look()
    assert looks.tried == [("v3", True)]
    shutil.copytree(sea, place / "v2")
    looks.look(6)
    assert looks.opened == ["v2"]
    assert looks.tried == [("v3", True), ("v2", True), ("v3", True)]
    assert looks.counts.failing(["m"]) == {"m": "damaged"}  # the newest still is


@pytest.mark.parametrize("kind", ["a pipe", "a directory"])
def test_a_pin_that_is_no_file_is_told_at_once(two, tmp_path, kind):
    place = tmp_path / "m"
    shutil.copytree(two[0], place / "v1")
    (os.mkfifo if kind == "a pipe" else Path.mkdir)(place / "current")
    with pytest.raises(umpteen.errors.ModelCorruptError, match=f"current: must be a regular file, but is {kind}"):
        candidates(str(place))


def test_a_pin_that_names_nothing_is_reported_once(two, tmp_path, caplog):
    place = tmp_path / "m"
    shutil.copytree(two[0], place / "v1")
    looks = Looks(place, [])
    (place / "current").write_text("../v1")
    looks.look(6)
    assert caplog.text.count("must name a directory beside it") == 1
    assert looks.counts.failing(["m"]) == {"m": "format"}
    (place / "current").unlink()
    looks.look()
    assert looks.counts.failing(["m"]) == {}


def test_a_signature_sees_every_file(two, tmp_path):
    path = tmp_path / "m"
    shutil.copytree(two[0], path)
    before = sign(str(path))
    assert sign(str(path)) == before
    weights = next(path.glob("*/weights.npy"))
    weights.touch()
    assert sign(str(path)) != before
    # Overwritten in place by a file of the same size and time, as `cp -p` of a reproducible build does.
    before, found = sign(str(path)), weights.stat()
    with weights.open("r+b") as file:
        file.write(weights.read_bytes())
    os.utime(weights, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert weights.stat().st_mtime_ns == found.st_mtime_ns
    assert sign(str(path)) != before
    (path / "manifest.json").unlink()
    with pytest.raises(umpteen.errors.ModelMissingError, match="holds no manifest.json"):
        sign(str(path))
    os.mkfifo(path / "manifest.json")
    with pytest.raises(umpteen.errors.ModelCorruptError, match="must be a regular file, but is a pipe"):
        digest(path)
