"""An hour of work over and over, and whether memory stays flat.

    python -m tests.soak --minutes 60 --output tests/records/soak

One process trains methods of every family, in memory and to directories, predicts, explains, saves over and loads
again; beside it `umpteen serve` with two workers answers, while the model it serves is replaced. Memory of both is
noted after every round. Written are a table, and a plot as SVG. It fails where the second half's median is more
than 5 % and 10 MB above the first half's (after the first tenth, in which pools fill), or an answer was wrong.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

import umpteen

from .fuzz.families import questions

METHODS: tuple[Any, ...] = (
    umpteen.Centroid(tfidf=True),
    umpteen.DiSMEC(labels_per_shard=10),
    umpteen.DiSMEC(loss="logistic"),
    umpteen.PPDSparse(),
    umpteen.PDSparse(),
    umpteen.FastXML(n_trees=4),
    umpteen.PfastreXML(n_trees=2),
    umpteen.RXML(n_learners=2, rank=10),
    umpteen.RXMLGlobal(rank=10),
    umpteen.LabelTree(),
)


def resident(pid: int) -> int:
    """Bytes of memory a process has of its own, mapped files not counted."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def resident_tree(pid: int) -> int:
    """The same of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return resident(pid) + sum(resident(int(child)) for child in children)


def one_round(data: umpteen.Dataset, folder: Path, number: int) -> None:
    """Every method once: train, predict, save over, load, ask."""
    held_out = data.X[400:], data.Y[400:]
    members = []
    for i, prototype in enumerate(METHODS):
        method = type(prototype)(**prototype.get_params())
        place = folder / f"{i}.model"
        method.fit(data.X[:400], data.Y[:400], label_names=[f"label {j}" for j in range(data.n_labels)])
        method.calibrate(*held_out).save(place, overwrite=place.exists())
        loaded = umpteen.load(place, checksums=number % 5 == 0)
        a, b = (m.predict_topk(held_out[0], 5) for m in (method, loaded))
        assert np.array_equal(a[0], b[0])
        assert np.array_equal(a[1], b[1])
        questions(loaded)
        if i in (1, 5):
            members.append(loaded)
    blend = umpteen.Blend(members).fit(*held_out)
    blend.save(folder / "blend.model", overwrite=(folder / "blend.model").exists())
    questions(umpteen.load(folder / "blend.model"))


class Clients(threading.Thread):
    """Asks the server, one question after the other, and replaces its model now and then."""

    def __init__(self, address: str, models: list[Path], served: Path, texts: list[str]) -> None:
        super().__init__(daemon=True)
        self.address, self.models, self.served, self.texts = address, models, served, texts
        self.asked = self.replaced = 0
        self.failure: BaseException | None = None
        self.stop = threading.Event()

    def run(self) -> None:
        try:
            last = time.monotonic()
            for i in itertools.count():
                if self.stop.is_set():
                    return
                path = ("suggest", "suggest-batch", "explain")[i % 3]
                text = self.texts[i % len(self.texts)]
                body: Any = {"documents": [{"text": text}] * 8} if path == "suggest-batch" else {"text": text}
                request = urllib.request.Request(
                    f"{self.address}/v1/{path}", json.dumps(body).encode(), {"content-type": "application/json"}
                )
                with urllib.request.urlopen(request, timeout=60) as answer:
                    json.loads(answer.read())
                self.asked += 1
                if time.monotonic() - last > 20:
                    last = time.monotonic()
                    self.replaced += 1
                    umpteen.load(self.models[self.replaced % 2]).save(self.served, overwrite=True)
                time.sleep(0.01)
        except BaseException as error:
            self.failure = error


def soak(minutes: float) -> dict[str, Any]:
    data = umpteen.make_synthetic(500, 300, 40, labels_per_row=3, features_per_row=20, seed=7)
    texts = [" ".join(f"w{j}" for j in row.indices) for row in data.X]
    labels = [[f"label {j}" for j in row.indices] for row in data.Y]
    with tempfile.TemporaryDirectory(prefix="umpteen-soak-") as name:
        folder = Path(name)
        models = [folder / "one.model", folder / "two.model"]
        for model, prune in zip(models, (0.0, 0.1), strict=True):
            umpteen.Tagger(umpteen.DiSMEC(prune=prune)).fit(texts, labels, model)
        served = folder / "served.model"
        umpteen.load(models[0]).save(served)
        code = "from umpteen.cli.main import main; main()"
        command = [sys.executable, "-c", code, "serve", str(served), "--port", "0", "--workers", "2"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert server.stdout is not None
            address = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
            _wait(address)
            clients = Clients(address, models, served, texts)
            clients.start()
            samples: list[tuple[float, int, int]] = []
            began = time.monotonic()
            rounds = 0
            while time.monotonic() - began < 60 * minutes and clients.failure is None:
                one_round(data, folder, rounds)
                rounds += 1
                samples.append((time.monotonic() - began, resident(os.getpid()), resident_tree(server.pid)))
            clients.stop.set()
            clients.join()
            if clients.failure is not None:
                raise clients.failure
            assert server.poll() is None, "the server ended"
        finally:
            server.terminate()
            server.wait(60)
    return {"rounds": rounds, "asked": clients.asked, "replaced": clients.replaced, "samples": samples}


def _wait(address: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{address}/readyz", timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the server does not start")


def halves(values: list[int]) -> tuple[float, float]:
    """Medians of the first and the second half, after the first tenth."""
    rest = values[len(values) // 10 :]
    return statistics.median(rest[: len(rest) // 2]), statistics.median(rest[len(rest) // 2 :])


def draw(samples: list[tuple[float, int, int]]) -> str:
    """Memory over time, as SVG."""
    width, height, left, bottom = 720, 300, 60, 40
    end = samples[-1][0] / 60
    most = max(max(s[1], s[2]) for s in samples) / 1e6 * 1.15

    def line(column: int, colour: str) -> str:
        points = " ".join(
            f"{left + s[0] / 60 / end * (width - left - 20):.1f},"
            f"{height - bottom - s[column] / 1e6 / most * (height - bottom - 20):.1f}"
            for s in samples
        )
        return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'

    def tick(y: float) -> str:
        at = height - bottom - y * (height - bottom - 20)
        return f'<text x="{left - 8}" y="{at:.0f}" text-anchor="end">{most * y:.0f}</text>'

    ticks = "".join(map(tick, (0, 0.25, 0.5, 0.75, 1)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12">'
        f'<rect width="{width}" height="{height}" fill="white"/>{ticks}'
        f'<line x1="{left}" y1="{height - bottom}" x2="{width - 20}" y2="{height - bottom}" stroke="black"/>'
        f'<line x1="{left}" y1="20" x2="{left}" y2="{height - bottom}" stroke="black"/>'
        f"{line(1, '#0b6e99')}{line(2, '#c2571a')}"
        f'<text x="{left}" y="14">memory, MB: training and predicting (blue), serving, two workers (orange)</text>'
        f'<text x="{width - 20}" y="{height - 12}" text-anchor="end">{end:.0f} minutes</text></svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--output", type=Path, help="writes OUTPUT.md and OUTPUT.svg")
    options = parser.parse_args()
    found = soak(options.minutes)
    samples = found["samples"]
    lines = [
        "# Soak",
        "",
        f"`python -m tests.soak --minutes {options.minutes:g}`, umpteen {umpteen.__version__}, Python "
        f"{sys.version.split()[0]}: {found['rounds']} rounds of {len(METHODS)} methods trained, saved, loaded and "
        f"asked, {found['asked']} requests answered, the served model replaced {found['replaced']} times.",
        "",
        "| memory, median | first half | second half |",
        "|---|---:|---:|",
    ]
    flat = True
    for name, column in (("training and predicting", 1), ("serving", 2)):
        first, second = halves([s[column] for s in samples])
        flat &= second <= max(first * 1.05, first + 10e6)
        lines.append(f"| {name} | {first / 1e6:.1f} MB | {second / 1e6:.1f} MB |")
    text = "\n".join(lines) + "\n"
    print(text)
    if options.output:
        options.output.with_suffix(".md").write_text(f"{text}\n![Memory over time]({options.output.name}.svg)\n")
        options.output.with_suffix(".svg").write_text(draw(samples))
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main()
