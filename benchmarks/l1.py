"""DiSMEC with an L1 penalty: accuracy and size beside L2, what C does, LIBLINEAR on the same labels, omikuji.

python benchmarks/l1.py [sets] [elastic] [curve] [liblinear] [omikuji]

Each part writes its section of benchmarks/results/l1.md; without names, all of them run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import UNIT, at_k, join, plotting, precisions, read, run_parts, save_drawing, table, train_and_write
from common import version as version_of
from sklearn.svm import LinearSVC

import umpteen
from umpteen import _native
from umpteen.comparing.programs import parse_contestants
from umpteen.comparing.running import Conditions, Contest, compare
from umpteen.data.matrix import offsets

SETS = (
    "Bibtex", "Mediamill", "Delicious", "StackExchange-Cooking", "Nuclei-Tags", "EURLex-4K", "Debian-Tags",
    "Tate-Subjects",
)  # fmt: skip
GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
LARGEST = 15_000  # rows that C is chosen with


def split(train: umpteen.Dataset) -> tuple[umpteen.Dataset, umpteen.Dataset]:
    """Training rows to learn from, and a fifth to choose by."""
    order = np.random.default_rng(0).permutation(train.n_rows)[:LARGEST]
    at = len(order) // 5
    left, kept = np.sort(order[:at]), np.sort(order[at:])
    return umpteen.Dataset(train.X[kept], train.Y[kept]), umpteen.Dataset(train.X[left], train.Y[left])


def try_grid(name: str, penalty: str) -> dict[float, tuple[np.ndarray, int]]:
    """P@1, 3, 5 on held-out rows and the weights of a model, by C."""
    train, held_out = split(read(name)[0])
    found = {}
    for C in GRID:
        model = umpteen.DiSMEC(C=C, penalty=penalty).fit(train.X, train.Y)
        found[C] = precisions(model, held_out), model.model_.scorer.to_weights()[0].nnz
        print("  ", name, penalty, C, join(found[C][0]), found[C][1], file=sys.stderr)
    return found


def choose_C(name: str, penalty: str) -> float:
    found = try_grid(name, penalty)
    return max(GRID, key=lambda C: found[C][0].mean())


# --- sets ---------------------------------------------------------------------------------------------------------


def sets() -> str:
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in SETS:
            train, test = read(name)
            for penalty in ("l2", "l1"):
                C = choose_C(name, penalty)
                started = time.process_time()
                model = umpteen.DiSMEC(C=C, penalty=penalty)
                _, scores, size = train_and_write(model, train, test, Path(temporary) / "m")
                seconds = time.process_time() - started
                weights = model.model_.scorer.to_weights()[0].nnz
                rows.append(
                    [name, penalty.upper(), f"{C:g}", at_k(scores), at_k(scores, "PSP", (1, 5)), f"{weights:,}",
                     f"{size:.2f} MB", f"{seconds:.1f} s"]
                )  # fmt: skip
                print("  ", *rows[-1], file=sys.stderr)
    header = ["data", "penalty", "C", "P@1 / 3 / 5", "PSP@1 / 5", "weights", "model", "processor time"]
    return (
        f"C of {', '.join(f'{C:g}' for C in GRID)}, the best by the mean of P@1, 3 and 5 on a fifth of the training "
        f"rows (of at most {LARGEST:,}); then trained on all of them and measured on the test rows. Time is that of "
        "training and of labelling the test rows.\n\n" + table(header, rows)
    )


# --- both terms -----------------------------------------------------------------------------------------------------

LAMBDAS = (0.1, 0.3, 1.0)
TAUS = (0.5, 1.0)
TEXTS = ("Bibtex", "StackExchange-Cooking", "Nuclei-Tags")


def elastic() -> str:
    """An L1 and an L2 term together, PPDSparse's problem: the best, and the smallest that is nearly as good."""
    rows = []
    settings = [(lambda_, tau) for lambda_ in LAMBDAS for tau in TAUS]
    with tempfile.TemporaryDirectory() as temporary:
        for name in TEXTS:
            train, test = read(name)
            kept, held_out = split(train)
            found = {
                each: float(precisions(umpteen.PPDSparse(*each).fit(kept.X, kept.Y), held_out).mean())
                for each in settings
            }
            best = max(settings, key=lambda each: found[each])
            small = max(each for each in settings if found[each] >= found[best] - 0.5)
            for title, (lambda_, tau) in {"best": best, "smallest within 0.5": small}.items():
                model = umpteen.PPDSparse(lambda_, tau)
                started = time.process_time()
                _, scores, size = train_and_write(model, train, test, Path(temporary) / "m")
                seconds = time.process_time() - started
                weights = model.model_.scorer.to_weights()[0].nnz
                rows.append(
                    [name, title, f"{lambda_:g}, {tau:g}", at_k(scores), at_k(scores, "PSP", (1, 5)), f"{weights:,}",
                     f"{size:.2f} MB", f"{seconds:.1f} s"]
                )  # fmt: skip
                print("  ", *rows[-1], file=sys.stderr)
                if best == small:
                    break
    header = ["data", "on held-out rows", "λ, τ", "P@1 / 3 / 5", "PSP@1 / 5", "weights", "model", "processor time"]
    return (
        f"An elastic net: PPDSparse with λ of {', '.join(f'{each:g}' for each in LAMBDAS)} and τ of "
        f"{', '.join(f'{each:g}' for each in TAUS)}, by the same held-out rows as above; and the largest λ whose "
        "mean is at most 0.5 below the best.\n\n" + table(header, rows)
    )


# --- curve and histogram --------------------------------------------------------------------------------------------


def curve() -> str:
    names = ("Bibtex", "StackExchange-Cooking", "EURLex-4K")
    figure, axes = plotting().subplots(2, len(names), figsize=(11, 6), layout="constrained")
    for (above, below), name in zip(axes.T, names, strict=True):
        train, _ = split(read(name)[0])
        for penalty in ("l2", "l1"):
            found = try_grid(name, penalty)
            above.plot([n for _, n in found.values()], [p[0] for p, _ in found.values()], marker="o",
                       label=penalty.upper())  # fmt: skip
            weights = umpteen.DiSMEC(penalty=penalty, prune=0).fit(train.X, train.Y).model_.scorer.to_weights()[0]
            below.hist(np.clip(weights.data, -1, 1), bins=81, range=(-1, 1), histtype="step", label=penalty.upper())
        above.set(xscale="log", xlabel="weights", ylabel="P@1, held-out rows", title=name)
        below.set(yscale="log", xlabel="weight (beyond ±1: at ±1)", ylabel="how many, C = 1, not pruned")
    axes[0, 0].legend()
    axes[1, 0].legend()
    save_drawing(figure, "l1.svg")
    return (
        f"P@1 on held-out training rows against the size of the model, as C goes from {GRID[0]:g} to {GRID[-1]:g}; "
        "and the weights themselves (the paper's Figures 2 and 4).\n\n![weights and P@1](l1.svg)"
    )


# --- LIBLINEAR ------------------------------------------------------------------------------------------------------


def liblinear() -> str:
    rows = []
    for name in SETS:
        train, _ = read(name)
        X = UNIT.transform(train.X)
        columns = train.Y.tocsc()
        present = np.flatnonzero(np.diff(columns.indptr) >= 5)
        labels = np.sort(np.random.default_rng(0).choice(present, 20, replace=False))
        columns = columns[:, labels]
        started = time.process_time()
        ours = _native.solve_svms(
            offsets(X), X.indices, X.data, X.shape[1], offsets(columns), columns.indices.astype(np.int32),
            np.ones(len(labels), np.float32), C=1.0, bias=1.0, eps=0.01, prune=0.0, max_rounds=100, l1=True,
            threads=1,
        )  # fmt: skip
        ours_seconds = time.process_time() - started
        started = time.process_time()
        theirs = [fit_liblinear(X, columns[:, [j]].toarray().ravel() > 0) for j in range(len(labels))]
        their_seconds = time.process_time() - started
        ratio = ours["objective"] / np.array(theirs)
        rows.append(
            [name, f"{1000 * ours_seconds / len(labels):.1f} ms", f"{1000 * their_seconds / len(labels):.1f} ms",
             f"{their_seconds / ours_seconds:.1f}", f"{ratio.mean() - 1:+.1e}", f"{ratio.max() - 1:+.1e}"]
        )  # fmt: skip
        print("  ", *rows[-1], file=sys.stderr)
    header = ["data", "ours per label", "LIBLINEAR", "ratio", "objective: ours over theirs, mean", "largest"]
    return (
        f"20 labels with five rows or more, C = 1, one thread, processor time, same run. LIBLINEAR's `-s 5` by "
        f"{version_of('scikit-learn')}, tol = 0.01; both with a penalised bias.\n\n" + table(header, rows)
    )


def fit_liblinear(X, is_positive: np.ndarray) -> float:
    """The objective LIBLINEAR reaches."""
    model = LinearSVC(penalty="l1", dual=False, C=1.0, tol=0.01, intercept_scaling=1.0, random_state=0, max_iter=1000)
    model.fit(X, is_positive)
    margins = np.where(is_positive, 1, -1) * model.decision_function(X)
    penalty = abs(model.coef_).sum() + abs(model.intercept_).sum()
    return float(penalty + (np.maximum(0, 1 - margins) ** 2).sum())


# --- omikuji --------------------------------------------------------------------------------------------------------


def omikuji() -> str:
    """What whole runs take, each in a process of its own."""
    rows = []
    for name in ("EURLex-4K", "StackExchange-Cooking", "Debian-Tags", "Tate-Subjects"):
        train, test = read(name)
        contestants = [
            *parse_contestants(["dismec", "dismec:penalty=l1"]),
            *parse_contestants(["omikuji"], peers=True),
        ]
        with tempfile.TemporaryDirectory() as temporary:
            contest = Contest(name, train, test.X, test.Y)
            found = compare(contest, contestants, Path(temporary), Conditions(threads=2, n_single=1))
        seconds = {run["name"]: run["train_cpu_seconds"] for run in found["runs"]}
        theirs = seconds.pop("omikuji")
        for ours, used in seconds.items():
            rows.append([name, ours, f"{used:.1f} s", f"{theirs:.1f} s", f"{used / theirs:.2f} O"])
            print("  ", *rows[-1], file=sys.stderr)
    header = ["data", "method", "processor time of training", "omikuji", "ratio"]
    return "Default settings, two threads, in the same run; models are written.\n\n" + table(header, rows)


PARTS = {
    "sets": ("Accuracy and size", sets),
    "elastic": ("With an L2 term too", elastic),
    "curve": ("What C does", curve),
    "liblinear": ("Beside LIBLINEAR", liblinear),
    "omikuji": ("Beside omikuji", omikuji),
}


if __name__ == "__main__":
    run_parts("l1", "DiSMEC with an L1 penalty", PARTS)
