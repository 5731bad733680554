"""What scikit-learn trained, scored and stored here: accuracy, size and time beside the original.

    python benchmarks/imported.py

The weights are those of OneVsRestClassifier(LinearSVC()); only how they are stored and scored differs. Both are given
one thread.
"""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
from common import UNIT, read, run_parts, table, time_all
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import umpteen

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
    jobs = {"peer": lambda: best(peer.decision_function(rows))}
    jobs |= {f"{delta:g}": lambda m=m: m.predict_topk(rows, 5) for delta, m in ours.items()}
    seconds = time_all(jobs, 5)
    Y = test.Y[:, used]
    lines = [line("scikit-learn", Y, best(peer.decision_function(rows)), len(pickle.dumps(peer)), 1.0)]
    for delta, m in ours.items():
        times = seconds["peer"] / seconds[f"{delta:g}"]
        lines.append(line(f"here, Δ = {delta:g}", Y, m.predict_topk(rows, 5)[0], stored(m), times))
    return table(["weights", "P@1", "P@5", "size", "rows per second, scikit-learn = 1"], lines)


def best(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :5].astype(np.int32)


def line(name: str, Y, labels: np.ndarray, n_bytes: int, times: float) -> list[str]:
    metrics = umpteen.evaluate(Y, labels, k=(1, 5), deciles=False)
    return [name, f"{metrics['P@1']:.2f}", f"{metrics['P@5']:.2f}", f"{n_bytes / 1e6:.2f} MB", f"{times:.1f}"]


def stored(model: umpteen.TrainedModel) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        model.save(Path(temporary) / "a.model")
        return sum(file.stat().st_size for file in Path(temporary).rglob("*") if file.is_file())


PARTS = {"bibtex": ("OneVsRestClassifier(LinearSVC()) on Bibtex", study)}

if __name__ == "__main__":
    run_parts("imported", "Weights of other programs", PARTS)
