"""DiSMEC on EURLex-4K against omikuji (1 O is its default run) and PECOS, in one run: train, write, predict; and on
larger sets, with its memory.

    python benchmarks/dismec.py [--pecos PYTHON] [--repeats 3] [--parts eurlex,sets]
"""

from __future__ import annotations

import argparse
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
from common import TRAINING_HEADER, data_root, describe_training, table, train_in_child, version, write_result

import umpteen
from umpteen import _native
from umpteen.data.matrix import offsets
from umpteen.data.preprocessing import Preprocessing
from umpteen.models.store import ModelReader

PECOS = """
import sys, time
import numpy as np, scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
folder = sys.argv[1]
X, Y, test = (sp.load_npz(f"{folder}/{n}.npz").astype(np.float32) for n in ("tX", "tY", "X"))
started = time.perf_counter()
model = XLinearModel.train(X, Y, Indexer.gen(LabelEmbeddingFactory.create(Y, X)), threads=2)
model.save(f"{folder}/pecos")
print(time.perf_counter() - started)
sp.save_npz(f"{folder}/P.npz", model.predict(test, only_topk=5, beam_size=10, threads=2))
"""


OURS = {
    "umpteen DiSMEC (dual)": umpteen.DiSMEC(threads=2),
    "umpteen DiSMEC, solver=newton": umpteen.DiSMEC(solver="newton", threads=2),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pecos", help="a Python interpreter that has libpecos")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--parts", default="eurlex,sets")
    options = parser.parse_args()
    if "eurlex" in options.parts:
        eurlex(options)
    if "sets" in options.parts:
        sets()


def sets() -> None:
    runs = {
        "Bibtex": ("Bibtex", {}),
        "Bibtex, C=0.3": ("Bibtex", {"C": 0.3}),
        "Mediamill (newton)": ("Mediamill", {}),
        "Tate-Subjects": ("Tate-Subjects", {}),
        "EURLex-4K, loss=logistic, C=10": ("EURLex-4K", {"loss": "logistic", "C": 10}),
        "EURLex-4K, penalty=l1": ("EURLex-4K", {"penalty": "l1"}),
        "NPM-Repos": ("NPM-Repos", {}),
    }
    text = "2 threads, one run each. Bibtex's C = 0.3 is the best of 0.1, 0.3, 1 and 3 on a held-out fifth."
    rows = []
    for name, (data, params) in runs.items():
        rows.append([name, *describe_training(train_in_child(data, "dismec", **params))])
        page = text + "\n\n" + table(["data", *TRAINING_HEADER], rows)
        write_result("dismec_sets", "DiSMEC on other sets", page, "python benchmarks/dismec.py --parts sets")


def eurlex(options: argparse.Namespace) -> None:
    folder = data_root() / "EURLex-4K"
    train, test = umpteen.read_xc(folder / "train.txt.xz"), umpteen.read_xc(folder / "test.txt.xz")
    unit = Preprocessing(normalize=True)
    train_X, X = unit.transform(train.X), unit.transform(test.X)

    times: dict[str, list[float]] = {}
    scores: dict[str, umpteen.Metrics] = {}
    sizes: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        umpteen.write_xc(umpteen.Dataset(train_X, train.Y), place / "train.txt")
        for name, matrix in (("tX", train_X), ("tY", train.Y), ("X", X)):
            sp.save_npz(place / f"{name}.npz", matrix)
        for _ in range(options.repeats):
            for name, method in OURS.items():
                run_ours(name, method, train, test, place, times, scores, sizes)
            run_omikuji(place, X, train, test, times, scores, sizes)
            if options.pecos:
                out = subprocess.run(
                    [options.pecos, "-c", PECOS, temporary], capture_output=True, text=True, check=True
                )
                name = "PECOS XR-Linear"
                times.setdefault(name, []).append(float(out.stdout.split()[-1]))
                scores[name] = umpteen.evaluate(test.Y, ranked(sp.load_npz(place / "P.npz")), train.Y)
                sizes[name] = folder_size(place / "pecos")
    median = {name: statistics.median(values) for name, values in times.items()}
    one_o = median[version("omikuji")]
    rows = [
        [name, f"{seconds:.1f} s", f"{seconds / one_o:.2f} O",
         " / ".join(f"{scores[name][f'P@{k}']:.2f}" for k in (1, 3, 5)),
         f"{scores[name]['PSP@1']:.2f} / {scores[name]['PSP@5']:.2f}", f"{sizes[name]:.1f} MB"]
        for name, seconds in median.items()
    ]  # fmt: skip
    header = ["program", "train and write", "in O", "P@1 / 3 / 5", "PSP@1 / 5", "model"]
    text = f"2 threads, median of {options.repeats} runs that take turns; 1 O is omikuji's default run.\n\n"
    text += table(header, rows) + "\n\n" + profile(train, train_X)
    write_result(
        "dismec",
        "DiSMEC on EURLex-4K",
        text,
        f"python benchmarks/dismec.py --pecos PYTHON --repeats {options.repeats} --parts eurlex",
    )


def run_ours(name, method, train, test, place, times, scores, sizes) -> None:
    path = place / "ours.model"
    shutil.rmtree(path, ignore_errors=True)
    started = time.perf_counter()
    model = method.fit(train.X, train.Y, path)
    times.setdefault(name, []).append(time.perf_counter() - started)
    scores[name] = umpteen.evaluate(test.Y, model.predict_topk(test.X, 5)[0], train.Y)
    sizes[name] = ModelReader(path).n_bytes() / 1e6


def run_omikuji(place, X, train, test, times, scores, sizes) -> None:
    import omikuji

    name = version("omikuji")
    shutil.rmtree(place / "omikuji", ignore_errors=True)  # its files get new names each time
    with quiet():
        started = time.perf_counter()
        model = omikuji.Model.train_on_data(
            str(place / "train.txt"), omikuji.Model.default_hyper_param(), n_threads=2
        )
        model.save(str(place / "omikuji"))
        times.setdefault(name, []).append(time.perf_counter() - started)
    labels = np.full((X.shape[0], 5), -1, np.int32)
    for i in range(X.shape[0]):
        found = model.predict(list(zip(X[i].indices.tolist(), X[i].data.tolist(), strict=True)), top_k=5)
        labels[i, : len(found)] = [label for label, _ in found]
    scores[name] = umpteen.evaluate(test.Y, labels, train.Y)
    sizes[name] = folder_size(place / "omikuji")


def profile(train, train_X) -> str:
    """Counted work of the solver, and how fast it was done."""
    columns = train.Y.tocsc()
    started = time.perf_counter()
    out = _native.solve_svms(
        offsets(train_X), train_X.indices, train_X.data, train_X.shape[1], columns.indptr.astype(np.int64),
        columns.indices.astype(np.int32), np.ones(train.n_labels, np.float32), 1.0, 1.0, 0.01, 0.01, 100, False, 2,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    per_row = train_X.nnz / train.n_rows
    scored = (out["checked_rows"].sum() + train.n_rows * train.n_labels) * per_row * 2
    active = out["active_rows"] / np.maximum(out["gradients"], 1)
    newton = (active * 2 * out["cg_steps"] + out["active_rows"]).sum() * per_row * 2
    return (
        f"Newton's method alone: {seconds:.1f} s. Per label {out['rounds'].mean():.1f} looks at all rows, "
        f"{out['newton_steps'].mean():.1f} Newton steps, {out['cg_steps'].mean():.1f} steps of conjugate gradients, "
        f"{active.mean() / train.n_rows:.2%} of rows inside the margin. Arithmetic: {scored / 1e9:.0f} GFlop to "
        f"score rows, {newton / 1e9:.0f} GFlop for gradients and directions; "
        f"{(scored + newton) / seconds / 2e9:.1f} GFlop/s a core."
    )


class quiet:
    """Sends what native code prints to nowhere: omikuji draws its bars whatever the output is."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._saved = [os.dup(1), os.dup(2)]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        for number, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, number)
            os.close(saved)


def ranked(P: sp.csr_matrix) -> np.ndarray:
    labels = np.full((P.shape[0], 5), -1, np.int32)
    for i in range(P.shape[0]):
        row = slice(P.indptr[i], P.indptr[i + 1])
        order = np.argsort(-P.data[row], kind="stable")
        labels[i, : len(order)] = P.indices[row][order]
    return labels


def folder_size(path: Path) -> float:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6


if __name__ == "__main__":
    main()
