"""`umpteen serve` under load, on loopback, beside the bare framework on the same machine in the same run.

    python benchmarks/serve.py [frameworks | single | memory | soak]

Needs `wrk`, and `pip install '.[serve]' fastapi litestar granian`. Models are trained once and kept in the system's
temporary directory. Client and server share the machine's cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from common import data_root, run_parts, table, version

import umpteen
from umpteen.memory import format_bytes
from umpteen.methods import method_class
from umpteen.storage.store import ModelReader

KEPT = Path(tempfile.gettempdir()) / "umpteen-serve-models"
CONNECTIONS = int(os.environ.get("SERVE_CONNECTIONS", "128"))
SECONDS = int(os.environ.get("SERVE_SECONDS", "2"))
TURNS = 7
SOAK_MINUTES = float(os.environ.get("SOAK_MINUTES", "10"))
N_REQUESTS = 400  # different ones, taken in turn

#: The smallest applications that answer a request for suggestions with a constant.
BARE = """
import json, os
FOUND = [{"label": f"label {i}", "label_id": i, "score": 0.9 - i / 10} for i in range(5)]
BODY = json.dumps({"results": FOUND}).encode()
ANSWER = json.loads(BODY)

async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"].endswith("shutdown"):
                return
    await receive()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})

if os.environ["BARE"] == "starlette":
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def suggest(request):
        await request.body()
        return Response(BODY, media_type="application/json")

    app = Starlette(routes=[Route("/v1/suggest", suggest, methods=["POST"])])
elif os.environ["BARE"] == "fastapi":
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Ask(BaseModel):
        text: str

    app = FastAPI()

    @app.post("/v1/suggest")
    async def suggest(ask: Ask):
        return ANSWER
elif os.environ["BARE"] == "litestar":
    import litestar, msgspec

    class Ask(msgspec.Struct):
        text: str

    @litestar.post("/v1/suggest", status_code=200)
    async def suggest(data: Ask) -> dict:
        return ANSWER

    app = litestar.Litestar([suggest])
else:
    app = asgi
"""


# --- models and requests -------------------------------------------------------------------------------------------


def model_of(name: str, data: str, method: str, **params: object) -> Path:
    """A model directory, trained if it is not there yet; from texts where the set has them."""
    path = KEPT / f"{name}.model"
    if not path.exists():
        print(f"  training {name}", file=sys.stderr)
        folder = data_root() / data
        estimator = method_class(method)(**params)
        if (folder / "train.jsonl.xz").exists():
            corpus = umpteen.read_corpus(folder / "train.jsonl.xz")
            umpteen.Tagger(estimator).fit(corpus.texts, corpus.labels).save(path)
        else:
            train = umpteen.read_xc(folder / "train.txt.xz")
            estimator.fit(train.X, train.Y).save(path)
    return path


def requests_of(data: str) -> list[bytes]:
    """Bodies of single suggestions, from the set's test rows."""
    folder = data_root() / data
    if (folder / "test.jsonl.xz").exists():
        texts = umpteen.read_corpus(folder / "test.jsonl.xz").texts[:N_REQUESTS]
        return [json.dumps({"text": text, "top_k": 5}).encode() for text in texts]
    X = umpteen.read_xc(folder / "test.txt.xz").X[:N_REQUESTS]
    bodies = []
    for i in range(X.shape[0]):
        row = X[i]
        features = {str(j): round(float(value), 4) for j, value in zip(row.indices, row.data, strict=True)}
        bodies.append(json.dumps({"features": features, "top_k": 5}).encode())
    return bodies


# --- servers and wrk -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def process(command: list[str], **environment: str) -> Iterator[subprocess.Popen]:
    started = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(60)


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def wait_until_ready(port: int, path: str = "/readyz") -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
                return
        except urllib.error.HTTPError as error:
            if error.code in (404, 405):  # a bare application; it is up
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"no server at port {port}")


@contextlib.contextmanager
def serving(
    models: list[Path], workers: int = 1, *more: str, python: str = sys.executable
) -> Iterator[tuple[int, subprocess.Popen]]:
    port = free_port()
    command = [python, "-c", "from umpteen.cli.main import main; main()", "serve", *map(str, models),
               "--port", str(port), "--workers", str(workers), *more]  # fmt: skip
    with process(command) as started:
        wait_until_ready(port)
        time.sleep(1.0 * workers)  # all of them
        yield port, started


@contextlib.contextmanager
def bare(framework: str, server: str, workers: int = 1) -> Iterator[int]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bare.py").write_text(BARE)
        if server == "uvicorn":
            command = [sys.executable, "-m", "uvicorn", "bare:app", "--port", str(port), "--log-level", "error",
                       "--no-access-log", "--no-proxy-headers", "--workers", str(workers)]  # fmt: skip
        else:
            command = [sys.executable, "-m", "granian", "--interface", "asgi", "--port", str(port),
                       "--log-level", "error", "--loop", "uvloop", "--workers", str(workers), "bare:app"]  # fmt: skip
        with process(command, BARE=framework, PYTHONPATH=f"{folder}:{os.environ.get('PYTHONPATH', '')}"):
            wait_until_ready(port, "/v1/suggest")
            time.sleep(1.0 * workers)
            yield port


def wrk(port: int, bodies: list[bytes], connections: int = CONNECTIONS, seconds: int = SECONDS) -> dict[str, float]:
    """Requests a second and milliseconds at the percentiles, after a second to warm up."""
    with tempfile.TemporaryDirectory() as folder:
        file, script = Path(folder) / "bodies", Path(folder) / "post.lua"
        file.write_bytes(b"\n".join(bodies))
        script.write_text(
            f'local bodies = {{}}\nfor line in io.lines("{file}") do bodies[#bodies + 1] = line end\n'
            'local n, made = 0, {}\nlocal headers = {["Content-Type"] = "application/json"}\n'
            "request = function()\n  n = n % #bodies + 1\n"
            '  made[n] = made[n] or wrk.format("POST", "/v1/suggest", headers, bodies[n])\n  return made[n]\nend\n'
            "done = function(summary, latency, requests)\n  local e = summary.errors\n"
            '  io.write(string.format("FOUND %d %f %f %f %f %d\\n", summary.requests, summary.duration / 1e6,\n'
            "    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3,\n"
            "    e.status + e.read + e.connect + e.timeout))\nend\n"
        )
        address = f"http://127.0.0.1:{port}"
        command = ["wrk", "-t1", f"-c{connections}", "-s", str(script), address]
        subprocess.run([*command, "-d1s"], check=True, stdout=subprocess.DEVNULL)
        out = subprocess.run([*command, f"-d{seconds}s"], check=True, stdout=subprocess.PIPE, text=True).stdout
    n, took, p50, p95, p99, errors = map(float, re.search(r"FOUND (.*)", out)[1].split())
    if errors:
        raise RuntimeError(f"{errors:.0f} of {n:.0f} requests failed")
    found = {"rate": n / took, "p50": p50, "p95": p95, "p99": p99}
    print("  ", {key: round(value, 2) for key, value in found.items()}, file=sys.stderr)
    return found


def cells(found: dict[str, float]) -> list[str]:
    return [f"{found['rate']:,.0f}", *(f"{found[key]:.1f}" for key in ("p50", "p95", "p99"))]


# --- the parts -----------------------------------------------------------------------------------------------------


def compare_frameworks() -> str:
    bodies = requests_of("StackExchange-Cooking")
    rows = []
    for framework in ("none", "starlette", "litestar", "fastapi"):
        for server in ("uvicorn", "granian"):
            with bare(framework, server) as port:
                found = wrk(port, bodies, seconds=4)
            rows.append([f"{framework} on {server}", *cells(found)])
    versions = ", ".join(
        map(version, ("starlette", "litestar", "fastapi", "uvicorn", "granian", "uvloop", "httptools"))
    )
    return (
        f"Each answers the same request with a constant, one process, {CONNECTIONS} connections. {versions}.\n\n"
        + table(["framework and server", "requests/s", "p50 ms", "p95 ms", "p99 ms"], rows)
    )


MODELS = {
    "DiSMEC, EURLex-4K, 237 features": ("eurlex-dismec", "EURLex-4K", "dismec", {}),
    "FastXML, EURLex-4K, 237 features": ("eurlex-fastxml", "EURLex-4K", "fastxml", {}),
    "DiSMEC, Cooking, a question": ("cooking-dismec", "StackExchange-Cooking", "dismec", {}),
    "FastXML, Cooking, a question": ("cooking-fastxml", "StackExchange-Cooking", "fastxml", {"normalize": True}),
    "DiSMEC, Debian, a paragraph": ("debian-dismec", "Debian-Tags", "dismec", {}),
}


def measure_single() -> str:
    rows = []
    for what, (name, data, method, params) in MODELS.items():
        bodies = requests_of(data)
        model = model_of(name, data, method, **params)
        with bare("starlette", "uvicorn") as ceiling_port, serving([model]) as (port, _):
            # In turn, for the machine is not as fast at all times.
            pairs = [(wrk(ceiling_port, bodies), wrk(port, bodies)) for _ in range(TURNS)]
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            alone = wrk(port, bodies, connections=1)
        texts, calls = (float(re.search(rf"batch_rows_{n}{{.*}} (\S+)", text)[1]) for n in ("sum", "count"))
        shares = [ours["rate"] / ceiling["rate"] for ceiling, ours in pairs]
        ceiling, ours = ({key: statistics.median(pair[i][key] for pair in pairs) for key in alone} for i in (0, 1))
        rows.append(
            [what, f"{sum(map(len, bodies)) / len(bodies):,.0f}", f"{ceiling['rate']:,.0f}", *cells(ours),
             f"**{statistics.median(shares):.0%}** ({min(shares):.0%} to {max(shares):.0%})", f"{texts / calls:.0f}",
             f"{alone['p50']:.2f} / {alone['p99']:.2f}"]
        )  # fmt: skip
        print("  ", rows[-1], file=sys.stderr)
    header = ["model", "bytes", "ceiling", "requests/s", "p50 ms", "p95", "p99", "of the ceiling", "texts a call",
              "one connection, p50 / p99 ms"]  # fmt: skip
    return (
        f"`POST /v1/suggest`, top 5, {N_REQUESTS} different requests in turn, one worker, {CONNECTIONS} connections. "
        "The ceiling is bare Starlette on uvicorn, which reads the same request and answers with a constant. The two "
        f"are asked in turn, {TURNS} times {SECONDS} s each: medians. Beside it one connection, whose requests never "
        "share a kernel call.\n\n" + table(header, rows)
    )


def memory_of(pids: list[int], model: Path) -> dict[str, int]:
    """Bytes of some processes: resident; proportional (shared pages counted once in all); of the model's files."""
    total: Counter[str] = Counter()
    for pid in pids:
        ours = False
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                ours = str(model) in line
            elif match := re.match(r"(Rss|Pss): +(\d+) kB", line):
                n_bytes = 1024 * int(match[2])
                total[match[1]] += n_bytes
                if ours:
                    total[f"model {match[1]}"] += n_bytes
    return total


def measure_memory() -> str:
    rows = []
    sets = {
        "EURLex-4K, DiSMEC": ("eurlex-dismec", "EURLex-4K", "dismec", {}),
        "EURLex-4K, FastXML": ("eurlex-fastxml", "EURLex-4K", "fastxml", {}),
        "NPM-Repos, centroid": ("npm-centroid", "NPM-Repos", "centroid", {}),
    }
    for what, (name, data, method, params) in sets.items():
        model = model_of(name, data, method, **params)
        bodies = requests_of(data)
        for workers in (1, 2, 4):
            with serving([model], workers) as (port, started):
                wrk(port, bodies, seconds=2)
                pids = workers_of(started.pid)
                assert len(pids) == workers
                found = memory_of(pids, model)
            rows.append(
                [what, format_bytes(ModelReader(model).n_bytes()), str(workers), format_bytes(found["Rss"]),
                 format_bytes(found["Pss"]), format_bytes(found["model Rss"]), format_bytes(found["model Pss"]),
                 format_bytes((found["Pss"] - found["model Pss"]) // workers)]
            )  # fmt: skip
            print("  ", rows[-1], file=sys.stderr)
    return (
        "After a few thousand requests, summed over the workers, from /proc/PID/smaps. RSS counts a shared page in "
        "each process, PSS counts it once in all: the PSS of the model's files stays that of one copy.\n\n"
        + table(
            [
                "model",
                "size",
                "workers",
                "RSS",
                "PSS",
                "RSS of the model's files",
                "PSS of the model's files",
                "PSS of the rest, a worker",
            ],
            rows,
        )
    )


def workers_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-wwo", "pid=,args=", "--ppid", str(pid)], stdout=subprocess.PIPE, text=True).stdout
    return [int(line.split()[0]) for line in found.splitlines() if "spawn_main" in line]


#: Bad requests, and the status each has earned.
BAD = [
    (b"{", 400),
    (b"[]", 422),
    (b'{"text": 1}', 422),
    (b'{"text": "a", "model": "none"}', 404),
    (b'{"text": "a", "exclude": ["no such label"]}', 404),
    (b'{"text": "' + b"a" * 250_000 + b'"}', 413),
]

#: Paced by a pause of each connection; counts what was sent by the status it deserves, and what came.
SOAK = """
local bodies, made, n = {}, {}, 0
for line in io.lines("%(file)s") do
  local path, status, body = line:match("^(%%S+) (%%d+) (.*)$")
  bodies[#bodies + 1] = {path, status, body}
end
local threads = {}
setup = function(thread) threads[#threads + 1] = thread end
for _, status in ipairs({"200", "400", "404", "413", "422", "500", "503"}) do
  _G["sent" .. status], _G["came" .. status] = 0, 0
end
came0 = 0
request = function()
  n = n %% #bodies + 1
  local entry = bodies[n]
  made[n] = made[n] or wrk.format("POST", entry[1], {["Content-Type"] = "application/json"}, entry[3])
  _G["sent" .. entry[2]] = _G["sent" .. entry[2]] + 1
  return made[n]
end
delay = function() return %(pause)d end
response = function(status)
  local key = "came" .. status
  if _G[key] == nil then key = "came0" end
  _G[key] = _G[key] + 1
end
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("FOUND %%d %%f %%f %%f %%f %%f %%d\\n", summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3,
    e.read + e.write + e.connect + e.timeout))
  for _, status in ipairs({"200", "400", "404", "413", "422", "500", "503"}) do
    local sent, came = threads[1]:get("sent" .. status), threads[1]:get("came" .. status)
    io.write(string.format("STATUS %%s %%d %%d\\n", status, sent, came))
  end
  io.write(string.format("STATUS other 0 %%d\\n", threads[1]:get("came0")))
end
"""


def mixed_requests(bodies: list[bytes]) -> list[bytes]:
    """One in twenty is bad, one in thirty asks why, one in fifty is a batch of eight; in an order that stays."""
    draw = random.Random(0)
    lines = []
    for body in bodies * 5:
        kind = draw.random()
        if kind < 0.05:
            bad, status = draw.choice(BAD)
            lines.append(b"/v1/suggest %d %s" % (status, bad))
        elif kind < 0.083:
            lines.append(b"/v1/explain 200 " + body.replace(b', "top_k": 5', b""))
        elif kind < 0.103:
            documents = [{"text": json.loads(each)["text"]} for each in draw.sample(bodies, 8)]
            lines.append(b"/v1/suggest-batch 200 " + json.dumps({"documents": documents}).encode())
        else:
            lines.append(b"/v1/suggest 200 " + body)
    return lines


def drive(port: int, lines: list[bytes], pause: int, seconds: float, connections: int, look=lambda: None) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        file, script = Path(folder) / "lines", Path(folder) / "soak.lua"
        file.write_bytes(b"\n".join(lines))
        script.write_text(SOAK % {"file": file, "pause": pause})
        command = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{seconds:.0f}s",
            "-s",
            str(script),
            f"http://127.0.0.1:{port}",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            while running.poll() is None:
                look()
                time.sleep(max(0.5, seconds / 60))
            out = running.stdout.read()
    n, took, p50, p95, p99, most, broken = map(float, re.search(r"FOUND (.*)", out)[1].split())
    statuses = {status: (int(sent), int(came)) for status, sent, came in re.findall(r"STATUS (\w+) (\d+) (\d+)", out)}
    found = {
        "rate": n / took,
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "most": most,
        "broken": broken,
        "statuses": statuses,
    }
    print("  ", found, file=sys.stderr)
    return found


def soak() -> str:
    minutes, connections = SOAK_MINUTES, 256
    original = umpteen.load(model_of("cooking-dismec", "StackExchange-Cooking", "dismec"))
    live = KEPT / "live.model"
    original.save(live, overwrite=live.exists())
    lines = mixed_requests(requests_of("StackExchange-Cooking"))
    with serving([live], 1, "--watch", "1") as (port, started):
        drive(port, lines, 0, 3, connections)
        capacity = drive(port, lines, 0, 15, connections)["rate"]
        cycle = 1000 * connections / (0.8 * capacity)
        pause = round(0.5 * cycle)
        for _ in range(5):  # what of the cycle is left beside the answer's own time
            latency = 1000 * connections / drive(port, lines, pause, 6, connections)["rate"] - pause
            pause = max(0, round(cycle - latency))
        memory: list[dict[str, int]] = []
        reload_at = threading.Timer(minutes * 30, lambda: original.save(live, overwrite=True))
        reload_at.start()
        pids = workers_of(started.pid)
        found = drive(port, lines, pause, 60 * minutes, connections, lambda: memory.append(memory_of(pids, live)))
        reload_at.join()
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    reloads = re.search(r'reloads_total\{model="live",outcome="done"\} (\S+)', metrics)[1]
    # What was asked for and not answered when the clock stopped: at most one request of each connection.
    unearned = {s: came - sent for s, (sent, came) in found["statuses"].items() if came > sent}
    rows = [
        ["minutes", f"{minutes:g}"],
        ["capacity with this mix, requests/s", f"{capacity:,.0f}"],
        ["asked and answered, requests/s", f"{found['rate']:,.0f} ({found['rate'] / capacity:.0%})"],
        ["requests", f"{sum(came for _, came in found['statuses'].values()):,}"],
        ["answers by status (and requests that deserved it)",
         ", ".join(f"{s}: {came:,} ({sent:,})" for s, (sent, came) in found["statuses"].items() if sent or came)],
        ["answers nobody deserved; broken connections", f"{unearned or 'none'}; {found['broken']:.0f}"],
        ["model reloads", reloads],
        ["p50 / p95 / p99 / most, ms", " / ".join(f"{found[key]:.1f}" for key in ("p50", "p95", "p99", "most"))],
        ["memory (PSS) after a tenth, three tenths, six tenths, at the end",
         " / ".join(format_bytes(memory[int(q * (len(memory) - 1))]["Pss"]) for q in (0.1, 0.3, 0.6, 1))],
    ]  # fmt: skip
    return (
        f"DiSMEC on StackExchange-Cooking, one worker, {connections} connections. One request in twenty is bad (not "
        "JSON, wrong types, unknown model or label, too long), one in thirty asks why, one in fifty is a batch of "
        "eight. Halfway the model directory is replaced.\n\n" + table(["", ""], rows)
    )


PARTS = {
    "frameworks": ("Which framework and server", compare_frameworks),
    "single": ("A single suggestion", measure_single),
    "memory": ("Memory of 1, 2 and 4 workers", measure_memory),
    "soak": ("Under load for minutes", soak),
}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left behind
    run_parts("serve", "umpteen serve, on loopback", PARTS)
