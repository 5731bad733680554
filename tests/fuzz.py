"""Fuzzers: any bytes, any damage, any request; and an error that says so, or the truth, each time.

    pip install atheris; apt-get install clang
    python -m tests.fuzz text --cpu-minutes 30       # cpp/fuzz/text_reader_fuzz.cpp: libFuzzer with ASan and UBSan
    python -m tests.fuzz readers --cpu-minutes 30    # JSONL, CSV, TSV, npz, svmlight, names: atheris
    python -m tests.fuzz loader --cpu-minutes 30     # damaged model directories of every family: atheris
    python -m tests.fuzz http --cpu-minutes 30       # requests to the server's application: atheris
    python -m tests.fuzz models --mutations 20000    # damaged model directories, drawn, in processes of their own

The first four are guided by coverage. Inputs that broke something are kept in tests/corpora/, and tests/test_fuzz.py
runs them, and a few thousand mutations more, with every test run. tests/records/fuzz.md has the last long runs.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import faulthandler
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Memory a damaged input may cost beyond what was there before.
ROOM = 1 << 30
#: Seconds of processor time one input may take.
PATIENCE = 20
#: Seconds by the clock, where only those can be limited: the machine may have other things to do.
ROUND_PATIENCE = 1800


class Finding(Exception):
    """What must not happen."""


def scratch() -> Path:
    """A place for files that are written often."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="umpteen-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))
    atexit.register(shutil.rmtree, place, ignore_errors=True)  # children that are forked end without it
    return place


class Bytes:
    """Choices taken from bytes, as long as there are any; then always the first."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, below: int) -> int:
        size = 1 if below <= 256 else 2 if below <= 65536 else 4
        piece = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(piece, "little") % below

    def pick(self, choices: Any) -> Any:
        return choices[self.number(len(choices))]

    def some(self, most: int) -> bytes:
        n = self.number(most + 1)
        piece = self._data[self._at : self._at + n]
        self._at += n
        return piece

    def rest(self) -> bytes:
        piece, self._at = self._data[self._at :], len(self._data)
        return piece

    def __bool__(self) -> bool:
        return self._at < len(self._data)


# --- readers --------------------------------------------------------------------------------------------------------

FORMATS = ("jsonl", "csv", "tsv", "annif-tsv", "npz", "svmlight", "names", "xc")


@cache
def _file() -> Path:
    return scratch() / "input"


def try_readers(data: bytes) -> None:
    """The first byte says which format, the second with which options; the others are the file."""
    import umpteen
    from umpteen.data.files import read_names
    from umpteen.errors import DataError

    if len(data) < 2:
        return
    format, how, file = FORMATS[data[0] % len(FORMATS)], data[1], _file()
    file.write_bytes(data[2:])
    try:
        if format == "npz":
            _check_dataset(umpteen.read_npz(file))
        elif format in ("svmlight", "xc"):
            one = bool(how & 1)
            read = umpteen.read_svmlight if format == "svmlight" else umpteen.read_xc
            _check_dataset(read(file, one_based=one))
        elif format == "names":
            assert all(isinstance(name, str) for name in read_names(file))
        else:
            options: dict[str, Any] = {"format": format}
            options["label_delimiter"] = (None, ";", " ", "\t")[how & 3]
            if how & 4:
                options["text"] = ("title", "text")
            if how & 8:
                options["labels"] = None
            _check_corpus(umpteen.read_corpus(file, **options), bool(how & 16))
    except DataError as error:
        if not str(error):
            raise Finding("an error must say what is wrong") from error


def _check_dataset(data: Any) -> None:
    import numpy as np

    for matrix in (data.X, data.Y):
        assert matrix.indptr[0] == 0
        assert matrix.indptr[-1] == len(matrix.indices) == len(matrix.data)
        assert (np.diff(matrix.indptr) >= 0).all()
        assert len(matrix.indices) == 0 or 0 <= matrix.indices.min() <= matrix.indices.max() < matrix.shape[1]
        assert np.isfinite(matrix.data).all()
    assert data.X.shape[0] == data.Y.shape[0]


def _check_corpus(corpus: Any, features: bool) -> None:
    import umpteen

    for text, labels in corpus:
        assert isinstance(text, str)
        assert isinstance(labels, list)
        assert len(set(labels)) == len(labels)
        assert all(isinstance(label, str) and label.strip() for label in labels)
    if features and len(corpus):
        X = umpteen.Tfidf(ngram_range=(1, 2)).fit_transform(corpus.texts)
        assert X.shape[0] == len(corpus)


# --- model directories ----------------------------------------------------------------------------------------------


def train_families(folder: Path) -> dict[str, Path]:
    """A small model of every family, with names, vocabulary and calibration among them."""
    import umpteen

    data = umpteen.make_synthetic(90, 24, 12, labels_per_row=2, features_per_row=6, seed=5)
    names = [f"name {i}" for i in range(12)]
    texts = [" ".join(f"w{j}" for j in row.indices) for row in data.X]
    labels = [[names[j] for j in row.indices] for row in data.Y]
    methods = {
        "linear": umpteen.DiSMEC(labels_per_shard=5, tfidf=True, threads=1),
        "linear32": umpteen.Centroid(weight_type="float32", labels_per_shard=7, threads=1),
        "candidates": umpteen.DiSMEC(candidates=umpteen.LabelTree(max_leaf=3, branching=3), threads=1),
        "sparse": umpteen.PDSparse(threads=1),
        "forest": umpteen.FastXML(n_trees=2, max_leaf=5, threads=1),
        "pfastrexml": umpteen.PfastreXML(n_trees=2, max_leaf=5, threads=1),
        "embedding": umpteen.RXML(n_learners=2, n_clusters=2, rank=4, threads=1),
        "low-rank": umpteen.RXMLGlobal(rank=4, threads=1),
        "label-tree": umpteen.LabelTree(n_trees=2, max_leaf=3, branching=3, labels_per_shard=4, threads=1),
    }
    for name, method in methods.items():
        method.fit(data.X[:60], data.Y[:60], label_names=names).calibrate(data.X[60:], data.Y[60:])
        method.save(folder / name)
    members = [methods["linear32"], methods["forest"], methods["embedding"]]
    umpteen.Blend(members).fit(data.X[60:], data.Y[60:], folder / "blend")
    umpteen.Tagger(umpteen.DiSMEC(threads=1)).fit(texts, labels, folder / "tagger")
    umpteen.Tagger(umpteen.FastXML(n_trees=2, threads=1), umpteen.Tfidf(hashing=64)).fit(
        texts, labels, folder / "hash"
    )
    return {path.name: path for path in sorted(folder.iterdir())}


def questions(model: Any) -> tuple[Any, ...]:
    """What a model of `train_families` says: rankings, explanations and facts, as plain values."""
    import numpy as np

    with np.errstate(all="ignore"):  # damaged weights may be infinite
        return _questions(model)


def _questions(model: Any) -> tuple[Any, ...]:
    import numpy as np

    import umpteen

    said: list[Any] = []
    method = model
    if isinstance(model, umpteen.Tagger):
        method = model.method_
        said.append(model.suggest(["w1 w2 w3 w9 unknown", ""], 5))
        said.append(model.suggest(["w4 w5"], "auto", "macro"))
        model.explain("w1 w2 w3")
    width, n_labels = method.n_features_in_, method.n_labels_
    if width > 1 << 20:
        return ()
    X = np.zeros((3, width), np.float32)
    X[0, : min(width, 8)] = 1
    X[1, -1] = 2
    labels, scores = method.predict_topk(X, 6, threads=1)
    if labels.shape != (3, 6) or ((labels < -1) | (labels >= n_labels)).any():
        raise Finding(f"labels must be ids of the model, but are {labels.tolist()}")
    for row in labels.tolist():
        given = [label for label in row if label >= 0]
        if len(set(given)) != len(given):
            raise Finding(f"a label is ranked twice: {row}")
    said += [labels.tolist(), scores.tolist()]
    some = method.predict_topk(X, 4, include=[0, 1, 2], threads=1)[0]
    if not set(some.ravel().tolist()) <= {-1, 0, 1, 2}:
        raise Finding(f"labels 0 to 2 alone may be ranked, but are {some.tolist()}")
    method.explain(X[:1], 1)
    method.model_.describe()
    if method.calibration_ is not None:
        said.append(method.predict_topk_proba(X, 4)[1].tolist())
    if method.label_names_ is not None:
        said.append(list(method.label_names_))
    return tuple(said)


#: What a value in a manifest is replaced by.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 255, 65536, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**70, 0.5, -0.0, 1e-30,
    1e30, 1e308, float("inf"), float("nan"), "", "x", "float16", "float32", "int64", "uint8", "cosine", "auto",
    "../../../etc/passwd", "/dev/zero", "shard-00000", "labels", "é\ud800", [], [0], [1, 2], ["shard-00000"], {},
    {"a": 1}, [[[[]]]],
)  # fmt: skip


#: Ways to damage a model; those more likely that leave more of it.
KINDS = (*["bytes"] * 2, *["array"] * 2, *["json"] * 3, "number", "text", "size", "file")


class Directory:
    """A copy of a model that is damaged and made whole again."""

    def __init__(self, model: Path, place: Path) -> None:
        self.path = place / model.name
        shutil.copytree(model, self.path, dirs_exist_ok=True)
        self._original = {p: p.read_bytes() for p in sorted(self.path.rglob("*")) if p.is_file()}
        # What is opened is the manifest and the arrays; the parts' own records are for resuming.
        self.files = [p for p in self._original if p.name == "manifest.json" or p.suffix == ".npy"]

    def restore(self) -> None:
        there = {p for p in self.path.rglob("*") if p.is_file() or p.is_symlink()}
        for extra in there - self._original.keys():
            extra.unlink()
        for file, content in self._original.items():
            if not file.is_file() or file.is_symlink() or file.read_bytes() != content:
                file.unlink(missing_ok=True)
                file.write_bytes(content)

    def changed(self) -> bool:
        return any(not f.is_file() or f.is_symlink() or f.read_bytes() != self._original[f] for f in self.files)

    def damage(self, choices: Bytes) -> list[str]:
        """One to four changes; returns what was done."""
        return [self._change(choices) for _ in range(choices.pick((1, 1, 1, 2, 2, 3)))]

    def _change(self, choices: Bytes) -> str:
        kind = choices.pick(
            ("bytes", "bytes", "array", "array", "json", "json", "json", "number", "text", "size", "file")
        )
        file = choices.pick(self.files)
        if kind in ("json", "number", "text"):
            file = self.path / "manifest.json"
        if not file.is_file():
            return f"{file.name} is gone"
        content = bytearray(file.read_bytes())
        if kind == "bytes" and content:
            for _ in range(1 + choices.number(3)):
                content[choices.number(len(content))] = choices.number(256)
        elif kind == "array" and file.suffix == ".npy" and len(content) > 136:
            width = choices.pick((1, 2, 4, 8))
            at = 128 + choices.number(max(1, (len(content) - 128) // width)) * width
            value = choices.pick((0, 1, -1, 2**31 - 1, -(2**31), 0x7C00, 0x7E00, 0x7FC00000, 0x7F800000, 255, 2**40))
            content[at : at + width] = struct.pack("<q", value)[: len(content[at : at + width])]
        elif kind in ("json", "number"):
            with contextlib.suppress(ValueError, RecursionError):
                manifest = json.loads(content)
                what = (_change_json if kind == "json" else _change_number)(manifest, choices)
                content = bytearray(json.dumps(manifest).encode("utf-8", "surrogatepass"))
                file.write_bytes(content)
                return what
        elif kind == "text":
            begin = choices.number(max(1, len(content)))
            content[begin : begin + choices.number(9)] = choices.some(8)
        elif kind == "size":
            size = choices.pick((0, 1, 64, 127, 128, len(content) - 1, len(content) // 2, len(content) + 8))
            content = content[: max(0, size)].ljust(max(0, size), b"\0")
        elif kind == "file":
            return self._replace_file(file, choices)
        file.write_bytes(content)
        return f"{kind} of {file.parent.name}/{file.name}"

    def _replace_file(self, file: Path, choices: Bytes) -> str:
        other = choices.pick(self.files)
        how = choices.pick(("swap", "gone", "link", "directory"))
        if how == "swap" and other.is_file():
            a, b = file.read_bytes(), other.read_bytes()
            file.write_bytes(b)
            other.write_bytes(a)
        elif how == "link":
            file.unlink()
            file.symlink_to(choices.pick(("/dev/null", "/nowhere", str(other))))
        else:
            file.unlink(missing_ok=True)
        return f"{how} {file.parent.name}/{file.name}"


def _change_json(value: Any, choices: Bytes) -> str:
    """Changes one value somewhere below, or all that have the same name."""
    top, path = value, list[Any]()
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return "nothing"
        key = choices.pick(keys)
        path.append(key)
        below = value[key]
        if isinstance(below, (dict, list)) and below and choices.number(6):
            value = below
            continue
        how = choices.number(8)
        if how == 0:
            del value[key]
        elif how == 1 and isinstance(value, dict):
            value[choices.pick(("x", "scale", "shape", "members", "text", "seed"))] = deepcopy(choices.pick(VALUES))
        elif how == 2 and isinstance(below, (int, float)) and not isinstance(below, bool):
            value[key] = below + choices.pick((1, -1, 0.5, 2**31))
        elif how == 3 and len(keys) > 1:
            other = choices.pick(keys)
            value[key], value[other] = value[other], value[key]
        elif how == 4 and isinstance(key, str):
            _set_everywhere(top, key, choices.pick(VALUES))
        else:
            value[key] = deepcopy(choices.pick(VALUES))
        return f"{how} at {'/'.join(map(str, path))}"


def _change_number(manifest: Any, choices: Bytes) -> str:
    """Another number wherever it has the same name, but for those of arrays, which are compared with their files."""
    names = set[str]()

    def find(value: Any) -> None:
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(below, (dict, list)) and key != "arrays":
                find(below)
            elif isinstance(key, str) and isinstance(below, (int, float)):
                names.add(key)

    find(manifest)
    if not names:
        return "nothing"
    name, value = choices.pick(sorted(names)), choices.pick([v for v in VALUES if isinstance(v, (int, float))])
    _set_everywhere(manifest, name, value)
    return f"{name} = {value}"


def _set_everywhere(value: Any, key: str, new: Any) -> None:
    for name, below in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if name == key:
            value[name] = deepcopy(new)
        elif isinstance(below, (dict, list)):
            _set_everywhere(below, key, new)


class Families:
    """Models to damage, with what they say when they are whole."""

    def __init__(self) -> None:
        import umpteen

        place = scratch()
        self.models = train_families(place / "whole" if (place / "whole").mkdir() is None else place)
        (place / "copy").mkdir()
        self.copies = {name: Directory(path, place / "copy") for name, path in self.models.items()}
        self.said = {name: questions(umpteen.load(path)) for name, path in self.models.items()}


families = cache(Families)


def try_loader(data: bytes) -> str:
    """The first byte says which family; the others what is done to it. Returns what came of it."""
    import umpteen
    from umpteen.errors import MemoryLimitError, UmpteenError

    choices = Bytes(data)
    world = families()
    name = choices.pick(sorted(world.copies))
    copy = world.copies[name]
    try:
        done = copy.damage(choices)
        try:
            questions(umpteen.load(copy.path))
            outcome = "answered"
        except (UmpteenError, MemoryLimitError) as error:
            if not str(error):
                raise Finding("an error must say what is wrong") from error
            outcome = "refused"
        except Finding as found:
            raise Finding(f"{name}: {found} ({'; '.join(done)})") from found
        # With checksums nothing that was changed may be answered, unless it is what was answered before.
        try:
            said = questions(umpteen.load(copy.path, checksums=True))
        except UmpteenError:
            return f"{outcome}, by checksums refused"
        if said != world.said[name]:
            raise Finding(f"{name}: other answers in spite of checksums ({'; '.join(done)})")
        return f"{outcome}, and rightly" if copy.changed() else "not changed"
    finally:
        copy.restore()


# --- requests -------------------------------------------------------------------------------------------------------

PATHS = (
    "/v1/suggest", "/v1/suggest-batch", "/v1/explain", "/v1/labels", "/v1/models", "/v1/models/tags",
    "/v1/models/numbers", "/v1/models/none", "/v1/models/tags/label-frequencies.svg", "/healthz", "/readyz",
    "/metrics", "/openapi.json", "/", "/page/index.html", "/page/..%2f..%2fetc%2fpasswd", "/v1/../metrics", "//",
    "/v1/suggest/",
)  # fmt: skip
BODIES: tuple[Any, ...] = (
    {"text": "w1 w2 w3"},
    {"features": {"1": 0.5, "7": 2}, "model": "numbers"},
    {"features": [0.5], "model": "numbers"},
    {"documents": [{"text": "w1"}, {"text": "w2", "document_id": "b"}]},
    {"documents": [{"features": {"3": 1}}], "model": "numbers", "top_k": 3},
    {"documents": []},
    {"text": "w1", "label": "name 1"},
    {"text": "w1", "top_k": "auto", "threshold": "macro"},
    {"text": "w1", "exclude": ["name 1"], "include": ["name 2"]},
)  # fmt: skip
QUERIES = ("", "query=na", "limit=3", "query=na&limit=5&model=tags", "limit=-1", "query=%ff%00", "model=none")


class Server:
    """The application, without a socket."""

    def __init__(self) -> None:
        from umpteen.serving.app import make_app
        from umpteen.serving.settings import Settings

        place = scratch()
        models = train_families(place)
        settings = Settings({"tags": str(models["tagger"]), "numbers": str(models["forest"])}, watch=0)
        self.app = make_app(settings)
        self.loop = asyncio.new_event_loop()
        self.life: asyncio.Queue[Any] = asyncio.Queue()
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self._running = self.loop.create_task(self.app(scope, self.life.get, self.told.put))

        async def start() -> None:
            await self.life.put({"type": "lifespan.startup"})
            assert (await self.told.get())["type"] == "lifespan.startup.complete"

        self.loop.run_until_complete(start())

    def ask(self, method: str, path: str, query: bytes, headers: list[Any], body: bytes) -> tuple[int, Any, bytes]:
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode("utf-8", "surrogatepass"), "query_string": query, "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {},
        }  # fmt: skip
        cut = len(body) // 2
        parts = [(body[:cut], True), (body[cut:], False)] if len(body) > 10 else [(body, False)]
        sent: list[Any] = []

        async def receive() -> Any:
            if not parts:
                return {"type": "http.disconnect"}
            piece, more = parts.pop(0)
            return {"type": "http.request", "body": piece, "more_body": more}

        async def send(message: Any) -> None:
            sent.append(message)

        self.loop.run_until_complete(self.app(scope, receive, send))
        return sent[0]["status"], dict(sent[0]["headers"]), b"".join(m.get("body", b"") for m in sent[1:])


server = cache(Server)


def try_http(data: bytes) -> None:
    """A request, put together by the bytes."""
    choices = Bytes(data)
    method = choices.pick(("POST", "POST", "POST", "GET", "GET", "PUT", "HEAD", "OPTIONS", "DELETE", "X"))
    path = choices.pick(PATHS)
    query = choices.pick(QUERIES).encode()
    if choices.number(8) == 0:
        query = choices.some(200)
    kind = choices.pick((b"application/json", b"application/json; charset=utf-8", b"text/plain", b""))
    headers = [(b"content-type", kind)] if kind else []
    if choices.number(8) == 0:
        name = choices.pick((b"content-length", b"authorization", b"accept-encoding", b"transfer-encoding"))
        headers.append((name, choices.some(30)))
    if choices.number(6) == 0:
        body = choices.rest()
    else:
        document = json.loads(json.dumps(choices.pick(BODIES)))
        for _ in range(choices.number(3)):
            _change_json(document, choices)
        body = json.dumps(document).encode("utf-8", "surrogatepass")
        if choices.number(4) == 0:
            at = choices.number(max(1, len(body)))
            body = body[:at] + choices.some(30) + body[at + choices.number(5) :]
    status, answered, content = server().ask(method, path, query, headers, body)
    if status >= 500:
        raise Finding(f"{status} for {method} {path}?{query!r} {headers} {body!r}: {content[:300]!r}")
    if b"content-type" not in answered:
        raise Finding(f"no content type for {method} {path}")
    if answered[b"content-type"].startswith(b"application/"):
        json.loads(content)


# --- guided by coverage ---------------------------------------------------------------------------------------------

TARGETS: dict[str, Callable[[bytes], Any]] = {"readers": try_readers, "loader": try_loader, "http": try_http}


def seeds(target: str) -> Iterator[bytes]:
    """Inputs to begin with."""
    if target == "text":
        for text in (b"2 5 4\n2,0 4:1.25 1:0.5\n 0:2\n", b"0,1 0:1 # c\n\n1 2:3e-4\r\n", b" \n0\n", b"1:1 2:-0.5\n"):
            for how in (0, 1, 2, 4, 6, 26, 96):
                yield bytes([how]) + text
    elif target == "readers":
        import umpteen

        texts = {
            0: b'{"text": "Herring", "labels": ["fish", "law"]}\n{"text": "b", "subjects": [{"uri": "x"}]}\n',
            1: b'text,labels\n"Herring, and ""more""",fish;law\nb,\n',
            2: b"text\tlabels\nHerring\tfish law\n",
            3: b"Herring\t<http://e.org/fish> <http://e.org/law>\n",
            5: b"1,2 1:0.5 3:1 # c\n\n0 2:1\n",
            6: "law\nhäring\r\n魚\n".encode(),
            7: b"2 5 4\n2,0 4:1.25 1:0.5\n 0:2\n",
        }
        for format, text in texts.items():
            for how in (0, 1, 2, 8, 16):
                yield bytes([format, how]) + text
        file = scratch() / "seed.npz"
        umpteen.write_npz(umpteen.make_synthetic(3, 4, 2, labels_per_row=1, features_per_row=2, seed=0), file)
        yield b"\x04\x00" + file.read_bytes()
        import gzip

        yield b"\x00\x00" + gzip.compress(texts[0])
    else:
        draw = random.Random(0)
        for _ in range(200):
            yield draw.randbytes(draw.choice((8, 20, 40)))


def guide(target: str, corpus: Path, seconds: int) -> None:
    """One round of a guided fuzzer, in this process; ends it."""
    import atheris

    with atheris.instrument_imports(include=["umpteen"]):
        import umpteen
        import umpteen.methods
        import umpteen.serving.app
        import umpteen.tagger

        for name in umpteen.__all__:
            getattr(umpteen, name)
    TARGETS[target](b"\0" * 8)  # what is made once is made before memory is counted
    atheris.Setup(
        [
            sys.argv[0], f"-max_total_time={seconds}", "-rss_limit_mb=3000", f"-timeout={ROUND_PATIENCE}",
            "-max_len=4096", "-print_final_stats=1", f"-artifact_prefix={corpus.parent}/found-", str(corpus),
        ],
        lambda data: TARGETS[target](bytes(data)) and None,
    )  # fmt: skip
    atheris.Fuzz()


def fuzz(target: str, cpu_minutes: float, work: Path, round_seconds: int) -> dict[str, Any]:
    """Rounds of a guided fuzzer until it has used its time on a processor; what it found stops it."""
    corpus = work / target / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for i, seed in enumerate(seeds(target)):
        (corpus / f"seed-{i}").write_bytes(seed)
    if target == "text":
        build = work / "build"
        subprocess.run(
            ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", "-DCMAKE_CXX_COMPILER=clang++",
             "-DUMPTEEN_PYTHON=OFF", "-DUMPTEEN_FUZZ=ON"], check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        subprocess.run(["ninja", "-C", str(build), "text_reader_fuzz"], check=True, stdout=subprocess.DEVNULL)
        command = [
            str(build / "text_reader_fuzz"), f"-max_total_time={round_seconds}", "-max_len=4096",
            "-print_final_stats=1", f"-timeout={ROUND_PATIENCE}", f"-artifact_prefix={corpus.parent}/found-",
            str(corpus),
        ]  # fmt: skip
    else:
        command = [sys.executable, "-m", "tests.fuzz", "guide", target, str(corpus), str(round_seconds)]
    used, inputs, coverage, stopped = 0.0, 0, "", ""
    while used < cpu_minutes * 60 and not stopped:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        for line in done.stderr.splitlines():
            if line.startswith("stat::number_of_executed_units:"):
                inputs += int(line.split()[-1])
            elif " cov: " in line:
                coverage = line.split(" cov: ")[1].split()[0]
        if done.returncode != 0:
            stopped = "\n".join((done.stdout + done.stderr).splitlines()[-60:])
        print(f"{target}: {used / 60:.1f} CPU minutes, {inputs} inputs, coverage {coverage}", flush=True)
    if stopped:
        print(stopped)
    return {"target": target, "cpu_minutes": round(used / 60, 1), "inputs": inputs, "coverage": coverage,
            "corpus": len(list(corpus.iterdir())), "finding": bool(stopped)}  # fmt: skip


# --- mutations, drawn -----------------------------------------------------------------------------------------------


def mutate_models(mutations: int, seed: int, each: Callable[[bytes], str] = try_loader) -> Counter[str]:
    """Damages models so many times, some hundred at a time in a process that has limits on memory and time. A process
    that dies, and whatever else must not be, is reported with the bytes that did it."""
    families()  # made once, before the processes are
    outcomes: Counter[str] = Counter()
    for first in range(0, mutations, 250):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            code = 1
            try:
                _run_some(range(first, min(first + 250, mutations)), seed, each, writer)
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            lines = pipe.read().splitlines()
        _, status = os.waitpid(child, 0)
        for line in lines:
            kind, _, text = line.partition(" ")
            if kind == "did":
                outcomes[text] += 1
            elif kind == "found":
                outcomes["FOUND"] += 1
                print(text, flush=True)
        if status != 0:
            outcomes["FOUND"] += 1
            print(f"the process died with status {status} at {lines[-1] if lines else 'its start'}", flush=True)
    return outcomes


def _run_some(numbers: range, seed: int, each: Callable[[bytes], str], writer: int) -> None:
    faulthandler.enable()
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # which maps terabytes it does not use
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    for number in numbers:
        data = random.Random(f"{seed}-{number}").randbytes(64)
        os.write(writer, f"try {number} {data.hex()}\n".encode())
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)  # ends the process
        try:
            said = f"did {each(data)}"
        except BaseException as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
            said = f"found {type(error).__name__}: {str(error)[:300]!r} at {where} by {data.hex()}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(writer, f"{said}\n".encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("target", choices=["text", *TARGETS, "models", "guide"])
    parser.add_argument("more", nargs="*")
    parser.add_argument("--cpu-minutes", type=float, default=30)
    parser.add_argument("--round", type=int, default=120, help="seconds of a round")
    parser.add_argument("--mutations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("build/fuzz"))
    options = parser.parse_args()
    if options.target == "guide":
        target, corpus, seconds = options.more
        guide(target, Path(corpus), int(seconds))
    elif options.target == "models":
        began = time.process_time() + sum(os.times()[2:4])
        outcomes = mutate_models(options.mutations, options.seed)
        used = time.process_time() + sum(os.times()[2:4]) - began
        print(json.dumps({"target": "models", "cpu_minutes": round(used / 60, 1), **outcomes}))
        sys.exit(1 if outcomes["FOUND"] else 0)
    else:
        found = fuzz(options.target, options.cpu_minutes, options.work.resolve(), options.round)
        print(json.dumps(found))
        sys.exit(1 if found["finding"] else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
