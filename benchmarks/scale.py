"""How big can it get: made-up sets with Amazon-670K's shape and with up to a million labels, trained, saved, loaded
and served on this machine.

    python benchmarks/scale.py measure METHOD SIZE [STEP]   # one run, in processes of its own
    python benchmarks/scale.py page                         # docs/how_big.md and the drawing, from the numbers kept

METHOD is one of label-tree, ppdsparse, fastxml; SIZE a number of labels: 1000, 10000, 100000, 670091, 1000000; STEP
one of train, predict, serve; each may be "all". A step keeps its numbers in results/scale.json, and training its
model in the system's temporary directory, so that any step can be taken again alone. Where a method would take hours,
a stated fraction of its shards is trained: one in so many labels of PPDSparse, by rank of frequency; some trees of
FastXML.

A child's wall time leaves out moments in which the machine stopped it, which a thread of its own notices.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
from common import RESULTS, ROOT, describe_machine, table

import umpteen
from umpteen.data.synthetic import SHAPES
from umpteen.memory import format_bytes
from umpteen.methods import method_class
from umpteen.storage.store import ModelReader

NUMBERS = RESULTS / "scale.json"
KEPT = Path(tempfile.gettempdir()) / "umpteen-scale-models"
PAGE = ROOT / "docs" / "how_big.md"
SHAPE = SHAPES["amazon-670k"]
SIZES = (1_000, 10_000, 100_000, SHAPE.n_labels, 1_000_000)
METHODS = ("label-tree", "ppdsparse", "fastxml")
STEPS = ("train", "predict", "serve")
NAMES = {"label-tree": "LabelTree", "ppdsparse": "PPDSparse", "fastxml": "FastXML"}
#: One in so many labels is trained, by rank of frequency.
ONE_LABEL_IN = {100_000: 40, SHAPE.n_labels: 512, 1_000_000: 2048}
ALL_TREES = 50
TREES = {100_000: 4, SHAPE.n_labels: 2, 1_000_000: 1}
N_TEST, N_SINGLE, N_REQUESTS = 10_000, 500, 300
#: Hours on Amazon-670K as others state them, with their machines.
PUBLISHED = [
    ["DiSMEC", "56.0 h; 3.75 GB", "24 cores, repository of the field"],
    ["DiSMEC", "48 h", "100 cores, PPDSparse's paper"],
    ["PPDSparse", "922 s; 5.3 GB", "100 cores, its paper"],
    ["FastXML", "5,624 s", "1 core, PPDSparse's paper"],
    ["Parabel", "0.41 h; 2.41 GB", "24 cores, repository of the field"],
    ["Parabel, authors / omikuji", "404 / 234 s", "4 cores, omikuji's README"],
    ["Bonsai, authors / omikuji", "5,759 / 1,753 s", "4 cores, omikuji's README"],
    ["AnnexML", "1.56 h; 50.0 GB", "24 cores, repository of the field"],
    ["RXML", "1,095 s; 6.05 GB", "20 cores, its paper"],
]


def make_data(n_labels: int, part: str) -> umpteen.Dataset:
    """As many labels as asked for, rows in proportion, all of Amazon-670K's features."""
    rows = round(SHAPE.n_train * n_labels / SHAPE.n_labels) if part == "train" else N_TEST
    return umpteen.make_synthetic(
        rows,
        SHAPE.n_features,
        n_labels,
        labels_per_row=SHAPE.labels_per_row,
        features_per_row=75.7,
        part=part,
        seed=1,
    )


# --- in a child ----------------------------------------------------------------------------------------------------


class Clock:
    """Wall and processor seconds of a block. `paused` is for how long nothing here could run at all: another program
    had the machine to itself."""

    def __enter__(self) -> Clock:
        self.paused = 0.0
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._watch.start()
        return self

    def _look(self) -> None:
        last = time.perf_counter()
        while not self._done.wait(0.2):
            now = time.perf_counter()
            if now - last > 5:  # kernels release the interpreter's lock, and are never that long without
                self.paused += now - last
            last = now

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self._wall
        self.cpu = time.process_time() - self._cpu
        self._done.set()
        self._watch.join()

    def as_dict(self) -> dict[str, float]:
        return {"wall": self.wall, "cpu": self.cpu, "paused": self.paused}


def memory(what: str) -> int:
    return 1024 * int(re.search(what + r":\s+(\d+)", Path("/proc/self/status").read_text())[1])


def sample_labels(Y, one_in: int) -> np.ndarray:
    """One in so many labels, by rank of frequency, so that their frequencies are those of all."""
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    return np.sort(np.argsort(-counts, kind="stable")[one_in // 2 :: one_in])


def train(name: str, n_labels: int, path: str) -> dict:
    data = make_data(n_labels, "train")
    test = make_data(n_labels, "test")
    params: dict[str, object] = {}
    out: dict[str, object] = {"rows": data.n_rows, "features": data.n_features, "labels": n_labels, "fraction": 1.0}
    X, Y, test_Y = data.X, data.Y, test.Y
    out["labels_per_row"], out["features_per_row"] = Y.nnz / data.n_rows, X.nnz / data.n_rows
    if name == "ppdsparse" and (one_in := ONE_LABEL_IN.get(n_labels, 1)) > 1:
        labels = sample_labels(Y, one_in)
        Y, test_Y = Y[:, labels], test_Y[:, labels]
        out["fraction"] = len(labels) / n_labels
    if name == "fastxml":
        params["n_trees"] = TREES.get(n_labels, ALL_TREES)
        out["fraction"] = params["n_trees"] / ALL_TREES
    method = method_class(name)(threads=2, **params)
    estimate = method.estimate(X, Y)
    del data
    out |= {"estimated_peak": estimate.peak_bytes, "estimated_model": estimate.model_bytes}
    out["held"] = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    with Clock() as clock:
        method.fit(X, Y, path)
    out |= clock.as_dict() | {"peak": memory("VmHWM"), "model": ModelReader(path).n_bytes()}
    if out["fraction"] == 1:
        scores = umpteen.evaluate(test_Y, method.predict_topk(test.X, 5)[0], deciles=False)
        out["precision"] = [scores[f"P@{k}"] for k in (1, 3, 5)]
    return out


def predict(n_labels: int, path: str) -> dict:
    test = make_data(n_labels, "test")
    before = memory("VmRSS")
    started = time.perf_counter()
    model = umpteen.load(path)
    model.predict_topk(test.X[:1], 5, threads=2)
    load = time.perf_counter() - started
    model.predict_topk(test.X, 5, threads=2)
    with Clock() as clock:
        model.predict_topk(test.X, 5, threads=2)
    single = []
    for i in range(N_SINGLE):
        row = test.X[i]
        started = time.perf_counter()
        model.predict_topk(row, 5, threads=1)
        single.append(time.perf_counter() - started)
    return {
        "load": load,
        "batch_ms": 1000 * clock.wall / N_TEST,
        "batch_cpu_ms": 1000 * clock.cpu / N_TEST,
        "single_ms": 1000 * statistics.median(single),
        "single_p99_ms": 1000 * float(np.quantile(single, 0.99)),
        "predict_memory": memory("VmRSS") - before,
    }


def serve(n_labels: int, path: str) -> dict:
    """One client that asks one row after the other, over loopback."""
    from serve import serving

    X = make_data(n_labels, "test").X
    times = []
    started = time.perf_counter()
    with serving([Path(path)]) as (port, _):
        ready = time.perf_counter() - started - 1.0  # which `serving` waits
        for i in range(N_REQUESTS):
            row = X[i]
            features = {str(j): round(float(value), 4) for j, value in zip(row.indices, row.data, strict=True)}
            body = json.dumps({"features": features, "top_k": 5}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/suggest", body, {"content-type": "application/json"}
            )
            asked = time.perf_counter()
            with urllib.request.urlopen(request) as answer:
                found = json.load(answer)
            times.append(time.perf_counter() - asked)
    if not found["results"]:
        raise RuntimeError(f"the server found nothing: {found}")
    return {
        "ready": ready,
        "served_ms": 1000 * statistics.median(times),
        "served_p99_ms": 1000 * float(np.quantile(times, 0.99)),
    }


# --- runs ----------------------------------------------------------------------------------------------------------


def known() -> dict:
    return json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}


def keep(key: str, numbers: dict) -> None:
    NUMBERS.write_text(json.dumps(known() | {"machine": describe_machine(), key: numbers}, indent=1) + "\n")
    print(key, json.dumps(numbers), file=sys.stderr)


def measure(name: str, n_labels: int, steps: tuple[str, ...]) -> None:
    path = KEPT / f"{name}-{n_labels}.model"
    path.parent.mkdir(exist_ok=True)
    out: dict[str, object] = known().get(f"{name}/{n_labels}", {})
    for step in steps:
        if step == "train":
            shutil.rmtree(path, ignore_errors=True)
            out = {}
        command = [sys.executable, __file__, "child", step, name, str(n_labels), str(path)]
        child = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, preexec_fn=limit_memory)
        out |= json.loads(child.stdout.splitlines()[-1])
        keep(f"{name}/{n_labels}", out)


def limit_memory() -> None:
    """So that a mistake ends this run and not the machine's others. Address space is more than memory in use."""
    most = int(float(os.environ.get("SCALE_GIGABYTES", "12")) * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


# --- the page ------------------------------------------------------------------------------------------------------


def seconds(run: dict) -> float:
    return run["wall"] - run["paused"]


def spell(value: float) -> str:
    if value >= 5400:
        return f"{value / 3600:.1f} h"
    return f"{value / 60:.0f} min" if value >= 90 else f"{value:.1f} s"


def whole(run: dict) -> float:
    """Processor seconds of all shards: what other programs on the machine change least."""
    return run["cpu"] / run["fraction"]


NOTHING = "Not measured yet."


def part_of(name: str, run: dict) -> str:
    if run["fraction"] == 1:
        return "all"
    if name == "fastxml":
        return f"{round(ALL_TREES * run['fraction'])} of {ALL_TREES} trees"
    return f"1 in {round(1 / run['fraction'])} labels"


def training_table(numbers: dict, n_labels: int) -> str:
    rows = []
    for name in METHODS:
        if (run := numbers.get(f"{name}/{n_labels}")) is None:
            continue
        precision = " / ".join(f"{p:.1f}" for p in run["precision"]) if "precision" in run else "–"
        all_of_it = "" if run["fraction"] == 1 else f"; all: {spell(whole(run))} of processors"
        rows.append(
            [
                NAMES[name],
                part_of(name, run),
                f"{spell(seconds(run))} ({spell(run['cpu'])} of processors){all_of_it}",
                f"{format_bytes(run['peak'])} ({format_bytes(run['held'])} of it data; "
                f"at most {format_bytes(run['held'] + run['estimated_peak'])} stated)",
                format_bytes(run["model"])
                + ("" if run["fraction"] == 1 else f"; all: {format_bytes(run['model'] / run['fraction'])}"),
                precision,
            ]
        )
    if not rows:
        return NOTHING
    return table(["method", "trained", "train and write", "peak memory", "model", "P@1 / 3 / 5"], rows)


def serving_table(numbers: dict, n_labels: int) -> str:
    rows = []
    for name in METHODS:
        if (run := numbers.get(f"{name}/{n_labels}")) is None or "served_ms" not in run:
            continue
        rows.append(
            [
                f"{NAMES[name]} ({part_of(name, run)})",
                f"{run['load']:.2f} s",
                f"{run['batch_ms']:.3f}",
                f"{run['single_ms']:.2f} / {run['single_p99_ms']:.2f}",
                f"{run['ready']:.1f} s",
                f"{run['served_ms']:.2f} / {run['served_p99_ms']:.2f}",
            ]
        )
    if not rows:
        return NOTHING
    header = ["model", "load and first row", "batch ms/row", "one row, p50 / p99 ms", "server ready in"]
    return table([*header, "one request, p50 / p99 ms"], rows)


def series_table(numbers: dict) -> str:
    rows = []
    for n_labels in SIZES:
        runs = [numbers.get(f"{name}/{n_labels}") for name in METHODS]
        if not any(runs):
            continue
        first = next(run for run in runs if run)
        cells = []
        for name, run in zip(METHODS, runs, strict=True):
            if run is None:
                cells.append("not run")
                continue
            share = "" if run["fraction"] == 1 else f", from {part_of(name, run)}"
            cells.append(f"{spell(whole(run))}{share}; {format_bytes(run['peak'])}")
        rows.append([f"{n_labels:,}", f"{first['rows']:,}", *cells])
    return table(["labels", "rows", *(f"{NAMES[name]}: processor time; peak memory" for name in METHODS)], rows)


def render(text: str, numbers: dict) -> str:
    """The page with its tables made anew from the numbers; what stands around them stays."""
    blocks = {
        "machine": numbers["machine"],
        "training": training_table(numbers, SHAPE.n_labels),
        "serving": serving_table(numbers, SHAPE.n_labels),
        "published": table(["program", "training; model", "on"], PUBLISHED),
        "series": series_table(numbers),
    }
    for name, block in blocks.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        if not re.search(pattern, text, re.DOTALL):
            raise ValueError(f"the page has no place for {name!r}")
        text = re.sub(pattern, lambda found, block=block: f"{found[1]}{block}\n{found[2]}", text, flags=re.DOTALL)
    return text


def draw(numbers: dict) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "umpteen"
    from matplotlib import pyplot

    figure, (times, memories) = pyplot.subplots(1, 2, figsize=(9, 3.8))
    for name, colour in zip(METHODS, ("#1b6ca8", "#c1440e", "#3a7d44"), strict=True):
        sizes = [n for n in SIZES if f"{name}/{n}" in numbers]
        runs = [numbers[f"{name}/{n}"] for n in sizes]
        for axes, values in ((times, [whole(run) for run in runs]), (memories, [run["peak"] / 1e9 for run in runs])):
            axes.plot(sizes, values, "-", color=colour, label=NAMES[name])
            for n, run, value in zip(sizes, runs, values, strict=True):
                axes.plot([n], [value], "o", color=colour, mfc=colour if run["fraction"] == 1 else "white", ms=5)
    for axes, title in ((times, "processor seconds to train and write"), (memories, "peak memory with the data, GB")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("labels")
        axes.set_title(title, fontsize=10)
        axes.grid(True, which="major", alpha=0.3)
    times.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(PAGE.with_name("scale.svg"), metadata={"Date": None})


def choose(text: str, known: tuple) -> tuple:
    values = {str(value): value for value in known}
    if text != "all" and text not in values:
        raise SystemExit(f"{text!r} is none of {', '.join(values)}")
    return known if text == "all" else (values[text],)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or ["help"]
    if command == "child":
        step, name, n_labels, path = arguments
        steps = {"train": lambda: train(name, int(n_labels), path), "predict": lambda: predict(int(n_labels), path),
                 "serve": lambda: serve(int(n_labels), path)}  # fmt: skip
        print(json.dumps(steps[step]()))
    elif command == "measure" and len(arguments) in (2, 3):
        for n in choose(arguments[1], SIZES):
            for method in choose(arguments[0], METHODS):
                measure(method, n, choose((*arguments, "all")[2], STEPS))
    elif command == "page":
        PAGE.write_text(render(PAGE.read_text(), known()))
        draw(known())
    else:
        sys.exit(__doc__)
