"""Top-5 prediction on EURLex-4K against peers, batch and single row, in one run.

    python benchmarks/scorer.py [--pecos PYTHON]

Two comparisons. The same weights: a one-vs-rest matrix (label centroids, the densest a linear model gets) scored by
us, by SciPy, by dense BLAS and by PECOS. And the peers' own models, as they train and predict by default.
PECOS wants old packages, so it runs under an interpreter of its own, which `--pecos` names.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import data_root, table, time_all, version, write_result

import umpteen
from umpteen.data.matrix import as_csr
from umpteen.data.preprocessing import Preprocessing

TOP_K = 5
N_SINGLE = 500

PECOS = """
import json, statistics, sys, time
import numpy as np, scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.base import MLModel
from pecos.xmc.xlinear.model import XLinearModel

folder = sys.argv[1]
train_X, train_Y, X, W = (sp.load_npz(f"{folder}/{n}.npz").astype(np.float32) for n in ("tX", "tY", "X", "W"))
rows = [X[i] for i in range(int(sys.argv[2]))]

def measure(predict):
    predict(X)
    batch = []
    for _ in range(5):
        started = time.perf_counter()
        predict(X)
        batch.append(time.perf_counter() - started)
    single = []
    for row in rows:
        started = time.perf_counter()
        predict(row)
        single.append(time.perf_counter() - started)
    return statistics.median(batch) / X.shape[0], statistics.median(single)

flat = MLModel(W=sp.csc_matrix(W.T), C=None, bias=-1.0)
tree = XLinearModel.train(train_X, train_Y, Indexer.gen(LabelEmbeddingFactory.create(train_Y, train_X)), threads=2)
tree.save(f"{folder}/tree")
tree = XLinearModel.load(f"{folder}/tree", is_predict_only=True)  # its fast path
out = {
    "PECOS MLModel": measure(lambda x: flat.predict(x, only_topk=5, post_processor="noop", threads=2)),
    "PECOS XR-Linear": measure(lambda x: tree.predict(x, only_topk=5, beam_size=10, threads=2)),
}
print(json.dumps(out))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pecos", help="a Python interpreter that has libpecos")
    options = parser.parse_args()

    folder = data_root() / "EURLex-4K"
    train, test = umpteen.read_xc(folder / "train.txt.xz"), umpteen.read_xc(folder / "test.txt.xz")
    unit = Preprocessing(normalize=True)
    train_X, X = unit.transform(train.X), unit.transform(test.X)
    model = umpteen.Centroid(weight_type="float32").fit(train.X, train.Y)
    W, _ = model.model_.to_weights()
    half = umpteen.Centroid().fit(train.X, train.Y)
    rows = [as_csr(X[i], "X") for i in range(N_SINGLE)]
    user_rows = [test.X[i] for i in range(N_SINGLE)]
    W_dense = np.ascontiguousarray(W.T.toarray())

    same = {
        "umpteen, 16-bit weights": (lambda: half.model_.predict_topk(X, TOP_K, threads=2), None),
        "umpteen, 32-bit weights": (lambda: model.model_.predict_topk(X, TOP_K, threads=2), None),
        "SciPy X @ W.T, then partition": (lambda: scipy_topk(X, W), lambda r: scipy_topk(r, W)),
        "NumPy dense X @ W.T (BLAS), then partition": (
            lambda: dense_topk(X, W_dense),
            lambda r: dense_topk(r, W_dense),
        ),
    }
    batch = time_all({name: job for name, (job, _) in same.items()}, 5)
    single = {name: one_by_one(f, rows) for name, (_, f) in same.items() if f is not None}
    single["umpteen, 16-bit weights"] = one_by_one(lambda r: half.model_.predict_topk(r, TOP_K), rows)
    single["umpteen, 32-bit weights"] = one_by_one(lambda r: model.model_.predict_topk(r, TOP_K), rows)
    _, scores = model.model_.predict_topk(X, TOP_K)
    dense = dense_topk(X, W_dense)
    blas = np.array([X[i].toarray()[0] @ W_dense[:, dense[i]] for i in range(X.shape[0])])
    off = float(np.abs(scores - blas).max())
    table_rows = [[n, "the same weights", batch[n] / X.shape[0] * 1e3, single[n] * 1e3] for n in same]
    whole = time_all({"umpteen, whole call": lambda: half.predict_topk(test.X, TOP_K, threads=2)}, 5)
    whole_single = one_by_one(lambda r: half.predict_topk(r, TOP_K), user_rows)
    table_rows.insert(
        2,
        ["umpteen, 16-bit, with checks and row scaling", "the same weights",
         whole["umpteen, whole call"] / X.shape[0] * 1e3, whole_single * 1e3],
    )  # fmt: skip

    exact = umpteen.DiSMEC(threads=2).fit(train.X, train.Y)
    exact_batch = time_all({"umpteen DiSMEC": lambda: exact.predict_topk(test.X, TOP_K, threads=2)}, 5)
    table_rows.append(
        ["umpteen DiSMEC, with checks and row scaling", f"its own {exact.model_.nnz:,}",
         exact_batch["umpteen DiSMEC"] / X.shape[0] * 1e3,
         one_by_one(lambda r: exact.predict_topk(r, TOP_K), user_rows) * 1e3],
    )  # fmt: skip

    if options.pecos:
        with tempfile.TemporaryDirectory() as temporary:
            for name, matrix in (("tX", train_X), ("tY", train.Y), ("X", X), ("W", W)):
                sp.save_npz(Path(temporary) / f"{name}.npz", matrix)
            command = [options.pecos, "-c", PECOS, temporary, str(N_SINGLE)]
            out = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
            )
        for name, (b, s) in out.items():
            weights = "the same weights" if "MLModel" in name else "its own tree"
            table_rows.append([name, weights, b * 1e3, s * 1e3])
    table_rows += peers(train, train_X, test, X)

    ours_batch, ours_single = table_rows[0][2], table_rows[0][3]
    lines = [
        [name, weights, f"{b:.3f}", f"{b / ours_batch:.1f}", f"{s:.3f}", f"{s / ours_single:.1f}"]
        for name, weights, b, s in table_rows
    ]
    header = ["scorer", "weights", "batch ms/row", "/ ours", "single row ms", "/ ours"]
    note = (
        f"{X.shape[0]} rows, {W.nnz:,} weights, top {TOP_K}, 2 threads in batch. Batch: median of 5 runs that take "
        f"turns; single: median of {N_SINGLE} rows, one thread. The five best scores differ from dense BLAS by "
        f"{off:.0e} at most. The peers' trees look at a small part of their weights: beam search, not the exact "
        "top 5."
    )
    write_result("scorer", "Predicting EURLex-4K's test rows", note + "\n\n" + table(header, lines),
                 "python benchmarks/scorer.py --pecos PYTHON")  # fmt: skip


def one_by_one(predict, rows) -> float:
    times = []
    for row in rows:
        started = time.perf_counter()
        predict(row)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def scipy_topk(X, W, block: int = 256) -> np.ndarray:
    out = np.empty((X.shape[0], TOP_K), np.int64)
    for begin in range(0, X.shape[0], block):
        scores = (X[begin : begin + block] @ W.T).toarray()
        out[begin : begin + block] = best(scores)
    return out


def dense_topk(X, W_dense, block: int = 256) -> np.ndarray:
    out = np.empty((X.shape[0], TOP_K), np.int64)
    for begin in range(0, X.shape[0], block):
        out[begin : begin + block] = best(X[begin : begin + block].toarray() @ W_dense)
    return out


def best(scores: np.ndarray) -> np.ndarray:
    part = np.argpartition(-scores, TOP_K, axis=1)[:, :TOP_K]
    order = np.argsort(-np.take_along_axis(scores, part, 1), axis=1, kind="stable")
    return np.take_along_axis(part, order, 1)


def peers(train, train_X, test, X) -> list[list]:
    """omikuji and napkinXC, trained and asked as their documentation does."""
    import omikuji
    from napkinxc.models import PLT

    out = []
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "train.txt"
        umpteen.write_xc(umpteen.Dataset(train_X, train.Y), path)
        hyper = omikuji.Model.default_hyper_param()
        trees = omikuji.Model.train_on_data(str(path), hyper, n_threads=2)
        pairs = [list(zip(X[i].indices.tolist(), X[i].data.tolist(), strict=True)) for i in range(X.shape[0])]
        started = time.perf_counter()
        for pair in pairs:
            trees.predict(pair, top_k=TOP_K)
        loop = (time.perf_counter() - started) / len(pairs)
        single = one_by_one(lambda pair: trees.predict(pair, top_k=TOP_K), pairs[:N_SINGLE])
        out.append([version("omikuji") + " (no batch call)", "its own 3 trees", loop * 1e3, single * 1e3])
        plt = PLT(str(Path(temporary) / "plt"), threads=2, verbose=False)
        plt.fit(train_X, train.Y)
        plt.load()
        started = time.perf_counter()
        plt.predict(X, top_k=TOP_K)
        b = (time.perf_counter() - started) / X.shape[0]
        single = one_by_one(lambda row: plt.predict(row, top_k=TOP_K), [X[i] for i in range(100)])
        out.append([version("napkinxc") + " PLT", "its own tree", b * 1e3, single * 1e3])
    return out


if __name__ == "__main__":
    main()
