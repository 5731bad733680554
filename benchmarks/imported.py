"""What other programs trained, scored and stored here: accuracy, size and time beside the original.

    python benchmarks/imported.py [bibtex] [trees]

The weights are theirs; only how they are stored and scored differs. All are given one thread. Trees need their
programs: umpteen peers install omikuji pecos
"""

from __future__ import annotations

import json
import pickle
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import UNIT, read, run_parts, table
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import umpteen
from umpteen.comparing import child
from umpteen.comparing.programs import peer_python

LADDER = (0.0, 0.01, 0.05, 0.1)


def study() -> str:
    train, test = read("Bibtex")
    X, rows = UNIT.transform(train.X), UNIT.transform(test.X)
    used = np.flatnonzero(train.Y.getnnz(axis=0))
    peer = OneVsRestClassifier(LinearSVC(), n_jobs=2).fit(X, train.Y[:, used])
    coef = np.vstack([svm.coef_ for svm in peer.estimators_])
    intercept = np.concatenate([svm.intercept_ for svm in peer.estimators_])
    model = umpteen.TrainedModel.from_weights(coef, intercept).with_threads(1)
    ours = {delta: model.pruned(delta) for delta in LADDER}
    theirs = min(measured(lambda: best(peer.decision_function(rows))) for _ in range(5))
    Y = test.Y[:, used]
    lines = [line("scikit-learn", Y, best(peer.decision_function(rows)), len(pickle.dumps(peer)), 1.0)]
    for delta, m in ours.items():
        times = theirs / min(measured(lambda m=m: m.predict_topk(rows, 5)) for _ in range(5))
        lines.append(line(f"here, Δ = {delta:g}", Y, m.predict_topk(rows, 5)[0], stored(m), times))
    return table(["weights", "P@1", "P@5", "size", "rows per second of processor time, scikit-learn = 1"], lines)


def best(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :5].astype(np.int32)


def line(name: str, Y, labels: np.ndarray, n_bytes: int, times: float) -> list[str]:
    metrics = umpteen.evaluate(Y, labels, k=(1, 5), deciles=False)
    return [name, f"{metrics['P@1']:.2f}", f"{metrics['P@5']:.2f}", f"{n_bytes / 1e6:.2f} MB", f"{times:.1f}"]


def stored(model: umpteen.TrainedModel) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        model.save(Path(temporary) / "a.model")
        return bytes_of(Path(temporary))


def bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


#: Run under the interpreter that has the program: trains, saves, and says what it predicts in how many seconds.
THEIRS = """
import json, pathlib, sys, time
sys.path.insert(0, sys.argv[1])
import child
import scipy.sparse as sp
place = pathlib.Path(sys.argv[2])
program = getattr(child, sys.argv[3])(place, place / "model", 1, 5, {})
program.prepare()
program.train()
program.load()
rows = program.rows(sp.csr_matrix(sp.load_npz(place / "test_X_unit.npz")))
seconds = []
for _ in range(3):
    started = time.process_time()
    labels, _ = program.predict(rows)
    seconds.append(time.process_time() - started)
(place / "said.json").write_text(json.dumps([labels.tolist(), min(seconds)]))
"""


def trees() -> str:
    train, test = read("Bibtex")
    X, rows = UNIT.transform(train.X), UNIT.transform(test.X)
    lines = []
    for peer, kind in (("omikuji", "Omikuji"), ("pecos", "Pecos")):
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary)
            for name, matrix in (("train_X_unit", X), ("train_Y", train.Y.astype(np.float32)), ("test_X_unit", rows)):
                sp.save_npz(place / f"{name}.npz", matrix)
            umpteen.write_xc(umpteen.Dataset(X, train.Y), place / "train_unit.txt")
            command = [str(peer_python(peer)), "-c", THEIRS, str(Path(child.__file__).parent), temporary, kind]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            said, seconds = json.loads((place / "said.json").read_text())
            model = getattr(umpteen.TrainedModel, f"from_{peer}")(place / "model").with_threads(1)
            lines.append(line(peer, test.Y, np.array(said, np.int32), bytes_of(place / "model"), 1.0))
        own = min(measured(lambda m=model: m.predict_topk(rows, 5)) for _ in range(3))
        lines.append(line(f"{peer}, here", test.Y, model.predict_topk(rows, 5)[0], stored(model), seconds / own))
    return table(["trees", "P@1", "P@5", "size", "rows per second of processor time, theirs = 1"], lines)


def measured(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


PARTS = {
    "bibtex": ("OneVsRestClassifier(LinearSVC()) on Bibtex", study),
    "trees": ("Trees of omikuji and PECOS on Bibtex, with their defaults", trees),
}

if __name__ == "__main__":
    run_parts("imported", "Weights of other programs", PARTS)
