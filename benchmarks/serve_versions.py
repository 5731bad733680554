"""`umpteen serve` beside that of another version, in turn, in one run.

    python benchmarks/serve_versions.py PYTHON NAME

PYTHON is that of an environment with the other umpteen, such as an older commit, and NAME says which one it is. Both
servers read the models that the other one trains. $SERVE_ONLY chooses among the models of serve.py, $SERVE_TURNS says
how often they take turns. Needs what serve.py needs.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import urllib.request
from pathlib import Path

from common import RESULTS, describe_machine, table
from serve import CONNECTIONS, KEPT, MODELS, SECONDS, requests_of, serving, wrk

TURNS = int(os.environ.get("SERVE_TURNS", "15"))


def train_elsewhere(python: str, name: str, data: str, method: str) -> Path:
    """A model trained by another umpteen."""
    kept = KEPT / "other"
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import serve; "
        "serve.KEPT = Path(sys.argv[2]); serve.model_of(*sys.argv[3:])"
    )
    here = str(Path(__file__).parent)
    subprocess.run([python, "-c", script, here, str(kept), name, data, method], check=True)
    return kept / f"{name}.model"


def cpu_seconds(pid: int) -> float:
    """What a process and those it has started have taken so far, and their children."""
    total = 0.0
    for each in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return total


def count_requests(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        found = re.findall(
            r'^umpteen_requests_total\{.*"/v1/suggest".*\} (\S+)', answer.read().decode(), re.MULTILINE
        )
    return sum(map(float, found))


def measure_turn(port: int, pid: int, bodies: list[bytes]) -> dict[str, float]:
    """As `wrk`, and the microseconds of processor time per request."""
    before = cpu_seconds(pid), count_requests(port)
    found = wrk(port, bodies)
    seconds, n = (now - then for now, then in zip((cpu_seconds(pid), count_requests(port)), before, strict=True))
    return found | {"cpu": 1e6 * seconds / n}


def compare_versions(other: str, name: str) -> str:
    rows = []
    chosen = os.environ.get("SERVE_ONLY", "DiSMEC")
    for what in [what for what in MODELS if chosen in what]:
        kept, data, method, _ = MODELS[what]
        bodies, model = requests_of(data), train_elsewhere(other, kept, data, method)
        with serving([model], python=other) as (port, old), serving([model]) as (our_port, new):
            both = (port, old.pid, bodies), (our_port, new.pid, bodies)
            turns = []
            for turn in range(TURNS):  # who goes first changes, too
                order = 1 if turn % 2 else -1
                turns.append([measure_turn(*server) for server in both[::order]][::order])
        for key, unit in (("rate", "requests/s"), ("cpu", "µs of processor time a request"), ("p50", "p50 ms")):
            ratios = sorted(ours[key] / theirs[key] for theirs, ours in turns)
            middle = [statistics.median(turn[i][key] for turn in turns) for i in (0, 1)]
            quarter = len(ratios) // 4
            rows.append(
                [what, unit, *(f"{value:,.{1 if key == 'p50' else 0}f}" for value in middle),
                 f"**{statistics.median(ratios):.2f}** ({ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f})"]
            )  # fmt: skip
            print("  ", rows[-1], file=sys.stderr)
    return (
        f"`POST /v1/suggest`, top 5, one worker, {CONNECTIONS} connections, asked in turn, {TURNS} times "
        f"{SECONDS} s each: medians, and the median of the turns' ratios with their middle half. Before: {name}. "
        f"Load average {os.getloadavg()[2]:.0f}: where others use the cores too, rates scatter, and processor time a "
        "request is what can be compared.\n\n" + table(["model", "", "before", "after", "after / before"], rows)
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left behind
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = compare_versions(*sys.argv[1:])
    print(found)
    title = "# umpteen serve, before and after it got a protocol of its own"
    (RESULTS / "serve_versions.md").write_text(
        f"{title}\n\n`python benchmarks/serve_versions.py PYTHON NAME`\n\n{describe_machine()}\n\n{found}\n"
    )
