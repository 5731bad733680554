"""LabelTree against the label trees of omikuji (1 O is its default run), napkinXC and PECOS, in one run per data set:
train and write, predict in a batch and row by row.

    PECOS=PYTHON python benchmarks/label_tree.py [eurlex] [bibtex] [tate] [npm] [settings]

PECOS wants old packages, so it runs under an interpreter of its own, which the environment variable names.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import data_root, run_parts, table, version
from dismec import folder_size, quiet, ranked

import umpteen
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.split import split_rows
from umpteen.models.store import ModelReader

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


def compare(data: str, **params: object) -> str:
    folder = data_root() / data
    train, test = umpteen.read_xc(folder / "train.txt.xz"), umpteen.read_xc(folder / "test.txt.xz")
    test = umpteen.Dataset(test.X[:MOST_ROWS], test.Y[:MOST_ROWS])
    unit = Preprocessing(normalize=True)
    train_X, X = unit.transform(train.X), unit.transform(test.X)
    runs = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        umpteen.write_xc(umpteen.Dataset(train_X, train.Y), place / "train.txt")
        for name, matrix in (("tX", train_X), ("tY", train.Y), ("X", X)):
            sp.save_npz(place / f"{name}.npz", matrix)
        runs.append(run_ours("umpteen LabelTree", umpteen.LabelTree(threads=2, **params), train, test, place))
        runs.append(run_omikuji(place, X))
        if "PECOS" in os.environ:
            command = [os.environ["PECOS"], "-c", PECOS, temporary, str(N_SINGLE)]
            seconds, batch, single = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            )
            labels = ranked(sp.load_npz(place / "P.npz"))
            runs.append(("PECOS XR-Linear", seconds, labels, folder_size(place / "pecos"), batch, single))
        runs.append(run_napkinxc(place, train_X, train, X))
    one_o = next(run[1] for run in runs if run[0].startswith("omikuji"))
    rows = []
    for name, seconds, labels, size, batch, single in runs:
        scores = umpteen.evaluate(test.Y, labels, train.Y, deciles=False)
        rows.append(
            [name, f"{seconds:.1f} s", f"{seconds / one_o:.2f} O",
             " / ".join(f"{scores[f'P@{k}']:.2f}" for k in (1, 3, 5)),
             f"{scores['PSP@1']:.2f} / {scores['PSP@5']:.2f}", f"{size:.1f} MB", f"{batch:.3f}", f"{single:.3f}"]
        )  # fmt: skip
    named = ", ".join(f"{k}={v!r}" for k, v in params.items())
    chosen = f" Ours with {named}, chosen on held-out rows." if named else ""
    text = f"2 threads, one run; {test.n_rows:,} test rows.{chosen}"
    return text + "\n\n" + table(HEADER, rows)


def part(data: str, **params: object):
    return lambda repeats: compare(data, **params)


def settings(repeats: int) -> str:
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


PARTS = {
    "eurlex": ("EURLex-4K", part("EURLex-4K")),
    "bibtex": ("Bibtex", part("Bibtex")),
    "tate": ("Tate-Subjects", part("Tate-Subjects")),
    "npm": ("NPM-Repos", part("NPM-Repos")),
    "settings": ("What the settings do: EURLex-4K, a fifth of the training rows held out", settings),
}

if __name__ == "__main__":
    run_parts("label_tree", "Label trees", PARTS)
