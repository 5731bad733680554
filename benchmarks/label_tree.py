"""LabelTree against the label trees of omikuji (1 O is its default run), napkinXC and PECOS, in one run per data set:
train and write, predict in a batch and row by row.

    PECOS=PYTHON python benchmarks/label_tree.py [eurlex] [bibtex] [tate] [npm] [settings]
    PECOS=PYTHON python benchmarks/label_tree.py npm:ours npm:omikuji,pecos        # some programs only
    python benchmarks/label_tree.py candidates:npm                                 # DiSMEC on a tree's shortlists
    python benchmarks/label_tree.py page

What is measured is kept in results/label_tree.json, and the page is written from it. PECOS wants old packages, so it
runs under an interpreter of its own, which the environment variable names.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import RESULTS, data_root, describe_machine, table, version
from dismec import folder_size, quiet, ranked

import umpteen
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.split import split_rows
from umpteen.models.store import ModelReader

NUMBERS = RESULTS / "label_tree.json"
KEPT = Path(tempfile.gettempdir()) / "umpteen-label-tree-models"
N_SINGLE = 300
MOST_ROWS = 20_000  # omikuji has no batch call: 104,312 rows would take it minutes

PECOS = """
import json, statistics, sys, time
import numpy as np, scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
folder = sys.argv[1]
X, Y, test = (sp.load_npz(f"{folder}/{n}.npz").astype(np.float32) for n in ("tX", "tY", "X"))
started = time.perf_counter()
model = XLinearModel.train(X, Y, Indexer.gen(LabelEmbeddingFactory.create(Y, X)), threads=2)
model.save(f"{folder}/pecos")
seconds = time.perf_counter() - started
model = XLinearModel.load(f"{folder}/pecos", is_predict_only=True)  # its fast path
predict = lambda x: model.predict(x, only_topk=5, beam_size=10, threads=2)
sp.save_npz(f"{folder}/P.npz", predict(test))
started = time.perf_counter()
predict(test)
batch = (time.perf_counter() - started) / test.shape[0]
single = []
for i in range(int(sys.argv[2])):
    row = test[i]
    started = time.perf_counter()
    predict(row)
    single.append(time.perf_counter() - started)
print(json.dumps([seconds, 1000 * batch, 1000 * statistics.median(single)]))
"""

HEADER = ["program", "train and write", "in O", "P@1 / 3 / 5", "PSP@1 / 5", "model", "batch ms/row", "single row ms"]


def measure(predict, X) -> tuple[float, float]:
    """Milliseconds per row in a batch, after a warm-up, and of single rows."""
    started = time.perf_counter()
    predict(X)
    batch = (time.perf_counter() - started) / X.shape[0]
    single = []
    for i in range(min(N_SINGLE, X.shape[0])):
        row = X[i]
        started = time.perf_counter()
        predict(row)
        single.append(time.perf_counter() - started)
    return 1000 * batch, 1000 * statistics.median(single)


def run_ours(name, method, train, test, place) -> tuple:
    path = place / "ours.model"
    shutil.rmtree(path, ignore_errors=True)
    started = time.perf_counter()
    method.fit(train.X, train.Y, path)
    seconds = time.perf_counter() - started
    model = umpteen.load(path)
    labels = model.predict_topk(test.X, 5, threads=2)[0]
    times = measure(lambda X: model.predict_topk(X, 5, threads=2), test.X)
    return name, seconds, labels, ModelReader(path).n_bytes() / 1e6, *times


def run_omikuji(place, X) -> tuple:
    import omikuji

    with quiet():
        started = time.perf_counter()
        model = omikuji.Model.train_on_data(
            str(place / "train.txt"), omikuji.Model.default_hyper_param(), n_threads=2
        )
        model.save(str(place / "omikuji"))
        seconds = time.perf_counter() - started
    labels = np.full((X.shape[0], 5), -1, np.int32)
    single = []
    for i in range(X.shape[0]):
        row = list(zip(X[i].indices.tolist(), X[i].data.tolist(), strict=True))
        started = time.perf_counter()
        found = model.predict(row, top_k=5)
        single.append(time.perf_counter() - started)
        labels[i, : len(found)] = [label for label, _ in found]
    size = folder_size(place / "omikuji")
    return version("omikuji"), seconds, labels, size, 1000 * np.mean(single), 1000 * statistics.median(single)


def run_pecos(place) -> tuple:
    command = [os.environ["PECOS"], "-c", PECOS, str(place), str(N_SINGLE)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    seconds, batch, single = json.loads(found)
    labels = ranked(sp.load_npz(place / "P.npz"))
    return "PECOS XR-Linear", seconds, labels, folder_size(place / "pecos"), batch, single


def run_napkinxc(place, train_X, train, X) -> tuple:
    from napkinxc.models import PLT

    with quiet():
        started = time.perf_counter()
        model = PLT(str(place / "napkinxc"), threads=2)
        model.fit(train_X, [row.indices.tolist() for row in train.Y])
        seconds = time.perf_counter() - started
        found = model.predict(X, top_k=5)
        times = measure(lambda rows: model.predict(rows, top_k=5), X)
    labels = np.full((X.shape[0], 5), -1, np.int32)
    for i, row in enumerate(found):
        labels[i, : len(row)] = row
    return f"{version('napkinxc')} PLT", seconds, labels, folder_size(place / "napkinxc"), *times


def compare(name: str, programs: list[str]) -> None:
    """Runs some programs on a set and keeps what they reach."""
    data, params = SETS[name]
    folder = data_root() / data
    train, test = umpteen.read_xc(folder / "train.txt.xz"), umpteen.read_xc(folder / "test.txt.xz")
    test = umpteen.Dataset(test.X[:MOST_ROWS], test.Y[:MOST_ROWS])
    unit = Preprocessing(normalize=True)
    train_X, X = unit.transform(train.X), unit.transform(test.X)
    stamp = time.strftime("%Y-%m-%d %H:%M")
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        umpteen.write_xc(umpteen.Dataset(train_X, train.Y), place / "train.txt")
        for file, matrix in (("tX", train_X), ("tY", train.Y), ("X", X)):
            sp.save_npz(place / f"{file}.npz", matrix)
        runners = {
            "ours": lambda: run_ours("umpteen LabelTree", umpteen.LabelTree(threads=2, **params), train, test, place),
            "omikuji": lambda: run_omikuji(place, X),
            "pecos": lambda: run_pecos(place),
            "napkinxc": lambda: run_napkinxc(place, train_X, train, X),
        }
        for program in programs:
            title, seconds, labels, size, batch, single = runners[program]()
            scores = umpteen.evaluate(test.Y, labels, train.Y, deciles=False)
            keep(
                name,
                program,
                {
                    "name": title,
                    "seconds": seconds,
                    "precision": [scores[f"P@{k}"] for k in (1, 3, 5)],
                    "psp": [scores[f"PSP@{k}"] for k in (1, 5)],
                    "megabytes": size,
                    "batch_ms": batch,
                    "single_ms": single,
                    "rows": test.n_rows,
                    "taken": stamp,
                    "params": params if program == "ours" else {},
                },
            )


def rank_shortlists(name: str) -> None:
    """DiSMEC among all labels, and among those a tree proposes."""
    data, params = SETS[name]
    folder = data_root() / data
    train, test = umpteen.read_xc(folder / "train.txt.xz"), umpteen.read_xc(folder / "test.txt.xz")
    test = umpteen.Dataset(test.X[:MOST_ROWS], test.Y[:MOST_ROWS])
    path = KEPT / f"{name}-candidates.model"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        umpteen.DiSMEC(threads=2, candidates=umpteen.LabelTree(**params)).fit(train.X, train.Y, path)
    model = umpteen.load(path)
    tree = model.candidates_
    rows = []
    for title, n in (("all labels", None), ("the tree's 50", 50), ("the tree's 20", 20), ("the tree alone", 0)):
        model.candidates_ = tree if n else None
        model.n_candidates = n or 50
        ranker = tree if n == 0 else model
        labels = ranker.predict_topk(test.X, 5, threads=2)[0]
        batch, single = measure(lambda X, ranker=ranker: ranker.predict_topk(X, 5, threads=2), test.X)
        scores = umpteen.evaluate(test.Y, labels, deciles=False)
        rows.append([title, [scores[f"P@{k}"] for k in (1, 3, 5)], batch, single])
    numbers = known()
    numbers.setdefault("candidates", {})[name] = rows
    NUMBERS.write_text(json.dumps(numbers | {"machine": describe_machine()}, indent=1) + "\n")


def known() -> dict:
    return json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}


def keep(name: str, program: str, run: dict) -> None:
    numbers = known()
    numbers.setdefault(name, {})[program] = run
    NUMBERS.write_text(json.dumps(numbers | {"machine": describe_machine()}, indent=1) + "\n")
    print(name, json.dumps(run), file=sys.stderr)


def describe(runs: dict) -> str:
    params = runs.get("ours", {}).get("params", {})
    one_o = runs.get("omikuji", {}).get("seconds")
    rows = []
    for program in PROGRAMS:
        if (run := runs.get(program)) is None:
            continue
        rows.append(
            [run["name"], f"{run['seconds']:.1f} s", f"{run['seconds'] / one_o:.2f} O" if one_o else "–",
             " / ".join(f"{p:.2f}" for p in run["precision"]), " / ".join(f"{p:.2f}" for p in run["psp"]),
             f"{run['megabytes']:.1f} MB", f"{run['batch_ms']:.3f}", f"{run['single_ms']:.3f}"]
        )  # fmt: skip
    taken = sorted({run["taken"] for run in runs.values()})
    how = "one run" if len(taken) == 1 else "runs of " + ", ".join(taken)
    named = ", ".join(f"{k}={v!r}" for k, v in params.items())
    chosen = f" Ours with {named}, chosen on held-out training rows." if named else ""
    n_rows = next(iter(runs.values()))["rows"]
    first = "the first " if n_rows == MOST_ROWS else ""
    return f"2 threads, {how}; {first}{n_rows:,} test rows.{chosen}\n\n" + table(HEADER, rows)


def write_page() -> None:
    numbers = known()
    sections = [f"## {SETS[name][0]}\n\n{describe(numbers[name])}\n" for name in SETS if name in numbers]
    if "settings" in numbers:
        sections.append(
            f"## What the settings do: EURLex-4K, a fifth of the training rows held out\n\n{numbers['settings']}\n"
        )
    for name, runs in numbers.get("candidates", {}).items():
        cells = [
            [title, " / ".join(f"{p:.2f}" for p in precision), f"{batch:.3f}", f"{single:.3f}"]
            for title, precision, batch, single in runs
        ]
        header = ["ranked among", "P@1 / 3 / 5", "batch ms/row", "single row ms"]
        title = f"DiSMEC(candidates=LabelTree()) on {SETS[name][0]}"
        sections.append(f"## {title}\n\n2 threads, one run.\n\n{table(header, cells)}\n")
    head = f"# Label trees\n\n`python benchmarks/label_tree.py`\n\n{numbers['machine']}\n"
    (RESULTS / "label_tree.md").write_text("\n".join([head, *sections]))


def settings() -> str:
    """What the parameters do, on a fifth of EURLex-4K's training rows."""
    train = umpteen.read_xc(data_root() / "EURLex-4K" / "train.txt.xz")
    held = split_rows(train.Y, train.n_rows // 5, seed=0)
    runs: list[dict[str, object]] = [
        {}, {"near": None}, {"near": -1.0}, {"n_trees": 3}, {"n_trees": 3, "near": None}, {"eps": 0.1}, {"eps": 0.01},
        {"branching": 2, "clustering": "balanced"}, {"branching": 32}, {"prune": 0.05}, {"prune": 0.1}, {"beam": 5},
        {"beam": 30},
    ]  # fmt: skip
    rows = []
    for params in runs:
        method = umpteen.LabelTree(threads=2, **params)
        started = time.perf_counter()
        model = method.fit(train.X[~held], train.Y[~held])
        seconds = time.perf_counter() - started
        scores = umpteen.evaluate(train.Y[held], model.predict_topk(train.X[held], 5)[0], deciles=False)
        named = ", ".join(f"{k}={v!r}" for k, v in params.items()) or "as it comes"
        rows.append(
            [named, f"{seconds:.1f} s", " / ".join(f"{scores[f'P@{k}']:.2f}" for k in (1, 3, 5)),
             f"{model.model_.nnz / 1e6:.1f} M"]
        )  # fmt: skip
    return table(["setting", "train", "P@1 / 3 / 5 on held-out rows", "weights"], rows)


#: Sets by their short names, and what was chosen for ours on held-out training rows.
SETS: dict[str, tuple[str, dict[str, object]]] = {
    "eurlex": ("EURLex-4K", {}),
    "bibtex": ("Bibtex", {"C": 0.3, "max_leaf": 200}),
    "tate": ("Tate-Subjects", {"C": 0.3}),
    "npm": ("NPM-Repos", {}),
}
PROGRAMS = ("ours", "omikuji", "pecos", "napkinxc")

if __name__ == "__main__":
    for argument in sys.argv[1:] or SETS:
        name, _, some = argument.partition(":")
        if name == "candidates" and some in SETS:
            rank_shortlists(some)
        elif name == "settings":
            NUMBERS.write_text(json.dumps(known() | {"settings": settings()}, indent=1) + "\n")
        elif name in SETS and set(some.split(",")) <= {"", *PROGRAMS}:
            compare(name, some.split(",") if some else [p for p in PROGRAMS if p != "pecos" or "PECOS" in os.environ])
        elif name != "page":
            sys.exit(__doc__)
        write_page()
