"""Top-5 prediction on EURLex-4K by the same weights, batch and single row, in one run.

    python benchmarks/scorer.py

A one-vs-rest matrix (label centroids, the densest a linear model gets) is scored by us, by SciPy, by dense BLAS and,
where `umpteen peers install pecos` has installed it, by PECOS.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import UNIT, read, run_parts, table, time_all, time_each

import umpteen
from umpteen.comparing.programs import peer_python
from umpteen.data.matrix import as_csr

TOP_K = 5
N_SINGLE = 500

PECOS = """
import json, statistics, sys, time
import numpy as np, scipy.sparse as sp
from pecos.xmc.base import MLModel

folder = sys.argv[1]
X, W = (sp.load_npz(f"{folder}/{n}.npz").astype(np.float32) for n in ("X", "W"))
model = MLModel(W=sp.csc_matrix(W.T), C=None, bias=-1.0)

def measure(X):
    started = time.perf_counter()
    model.predict(X, only_topk=5, post_processor="noop", threads=2)
    return time.perf_counter() - started

measure(X)
batch = statistics.median(measure(X) for _ in range(5))
print(json.dumps([batch, statistics.median(measure(X[i]) for i in range(int(sys.argv[2])))]))
"""


def compare() -> str:
    train, test = read("EURLex-4K")
    X = UNIT.transform(test.X)
    model = umpteen.Centroid(weight_type="float32").fit(train.X, train.Y)
    half = umpteen.Centroid().fit(train.X, train.Y)
    W, _ = model.model_.scorer.to_weights()
    W_dense = np.ascontiguousarray(W.T.toarray())
    rows = [as_csr(X[i], "X") for i in range(N_SINGLE)]
    user_rows = [test.X[i] for i in range(N_SINGLE)]

    scorers = {
        "umpteen, 16-bit weights": (lambda X, **how: half.model_.scorer.predict_topk(X, TOP_K, **how), X, rows),
        "umpteen, 32-bit weights": (lambda X, **how: model.model_.scorer.predict_topk(X, TOP_K, **how), X, rows),
        "umpteen, 16-bit, with checks and row scaling": (
            lambda X, **how: half.predict_topk(X, TOP_K, **how), test.X, user_rows,
        ),
        "SciPy X @ W.T, then partition": (lambda X, **_: best(X, lambda part: (part @ W.T).toarray()), X, rows),
        "NumPy dense X @ W.T (BLAS), then partition": (
            lambda X, **_: best(X, lambda part: part.toarray() @ W_dense), X, rows,
        ),
    }  # fmt: skip
    batch = time_all({name: lambda f=f, X=whole: f(X, threads=2) for name, (f, whole, _) in scorers.items()}, 5)
    single = {name: statistics.median(time_each(f, some)) for name, (f, _, some) in scorers.items()}
    _, scores = model.model_.scorer.predict_topk(X, TOP_K)
    dense = scorers["NumPy dense X @ W.T (BLAS), then partition"][0](X)
    blas = np.array([X[i].toarray()[0] @ W_dense[:, dense[i]] for i in range(X.shape[0])])
    off = float(np.abs(scores - blas).max())
    if (pecos := peer_python("pecos")).exists():
        batch["PECOS MLModel"], single["PECOS MLModel"] = run_pecos(pecos, X, W)

    ours = "umpteen, 16-bit weights"
    lines = [
        [name, f"{batch[name] / X.shape[0] * 1e3:.3f}", f"{batch[name] / batch[ours]:.1f}",
         f"{single[name] * 1e3:.3f}", f"{single[name] / single[ours]:.1f}"]
        for name in batch
    ]  # fmt: skip
    return (
        f"{X.shape[0]} rows, {W.nnz:,} weights, top {TOP_K}, 2 threads in batch. Batch: median of 5 runs that take "
        f"turns; single: median of {N_SINGLE} rows, one thread. The five best scores differ from dense BLAS by "
        f"{off:.0e} at most.\n\n" + table(["scorer", "batch ms/row", "/ ours", "single row ms", "/ ours"], lines)
    )


def run_pecos(python: Path, X, W) -> list[float]:
    """Seconds of all rows and of a single one."""
    with tempfile.TemporaryDirectory() as temporary:
        sp.save_npz(f"{temporary}/X.npz", X)
        sp.save_npz(f"{temporary}/W.npz", W)
        command = [str(python), "-c", PECOS, temporary, str(N_SINGLE)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(found.splitlines()[-1])


def best(X, score, block: int = 256) -> np.ndarray:
    """The labels of the largest scores, some rows at a time."""
    out = np.empty((X.shape[0], TOP_K), np.int64)
    for begin in range(0, X.shape[0], block):
        scores = score(X[begin : begin + block])
        part = np.argpartition(-scores, TOP_K, axis=1)[:, :TOP_K]
        order = np.argsort(-np.take_along_axis(scores, part, 1), axis=1, kind="stable")
        out[begin : begin + block] = np.take_along_axis(part, order, 1)
    return out


PARTS = {"weights": ("EURLex-4K, the same weights", compare)}

if __name__ == "__main__":
    run_parts("scorer", "Predicting EURLex-4K's test rows", PARTS)
