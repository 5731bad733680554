"""PD-Sparse: what λ does; sampled searches, and means of W; one label per row; rows searched in batches.

python benchmarks/pdsparse.py [sets] [costs] [searches] [classes] [batches]

Each part writes its section of benchmarks/results/pdsparse.md; without names, all of them run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import UNIT, at_k, describe, measure, read, run_parts, table, train_and_write

import umpteen
from umpteen import _native
from umpteen.data.matrix import offsets

#: k_A and k_W of the paper's Table 3.
TABLE_3 = {"EURLex-4K": "20.7, 45.2", "Bibtex": "18.2, 1.9"}


# --- accuracy and sparsity ----------------------------------------------------------------------------------------


def sets() -> str:
    rows = []
    lambdas = (0.01, 0.1, 1.0, 10.0)
    with tempfile.TemporaryDirectory() as temporary:
        for name, unit, grid in (
            ("Bibtex", False, lambdas), ("Mediamill", False, lambdas), ("EURLex-4K", True, lambdas[:2]),
        ):  # fmt: skip
            train, test = read(name)
            for lambda_ in grid:
                model = umpteen.PDSparse(lambda_=lambda_, normalize=unit, threads=2)
                seconds, scores, size = train_and_write(model, train, test, Path(temporary) / "m")
                stats = model.stats_
                n_alpha = model.active_labels_ * train.n_rows * (1 - model.heldout)
                rows.append(
                    [f"{name}, {'unit rows' if unit else 'as it is'}", f"{lambda_:g}",
                     f"{stats['quality'].max():.2f}", at_k(scores), "yes" if model.post_solved_ else "no",
                     f"{len(stats['dual'])}", f"{seconds:.1f} s", f"{size:.3f} MB",
                     f"{model.active_labels_:.1f}, {model.active_weights_:.1f}", TABLE_3.get(name, "–"),
                     f"{model.model_.scorer.nnz / n_alpha:.2f}"]
                )  # fmt: skip
                print("  ", *rows[-1], file=sys.stderr)
    header = ["data", "λ", "P@1 held out", "P@1 / 3 / 5", "post-solved", "passes", "train", "model", "k_A, k_W",
              "in the paper", "nnz(W) / nnz(A)"]  # fmt: skip
    return (
        "λ is to be chosen by the third column, of training rows that were held out. The targets are 62.9 / 36.6 / "
        "26.7 for Bibtex in 0.1 MB, 81.8 / 62.5 / 45.1 for Mediamill, 77.8 / 64.7 / 54.0 for EURLex-4K in 8 MB. k_A: "
        "labels with α ≠ 0 per row, k_W: weights per feature. The paper's nnz(W) ≤ nnz(A) is proven for the λ-term "
        f"alone and values in general position, not for the elastic net with small λ.\n\n{table(header, rows)}"
    )


# --- C ------------------------------------------------------------------------------------------------------------


def costs() -> str:
    """Where rows have many labels and few features, the loss has to weigh more."""
    train, test = read("Delicious")
    rows = []
    for C in (1.0, 10.0, 100.0):
        for lambda_ in (0.1, 1.0, 10.0):
            model = umpteen.PDSparse(lambda_, C=C, normalize=False, threads=2).fit(train.X, train.Y)
            rows.append(
                [f"{C:g}", f"{lambda_:g}", f"{model.stats_['quality'].max():.2f}", at_k(measure(model, test)),
                 f"{len(model.stats_['dual'])}", f"{model.model_.scorer.nnz:,}"]
            )  # fmt: skip
            print("  ", *rows[-1], file=sys.stderr)
    header = ["C", "λ", "P@1 held out", "P@1 / 3 / 5", "passes", "weights"]
    return (
        "Rows have 19 labels and 500 features, values as they are. At C = 1 the optimum itself is poor: it is "
        f"reached in few passes, and a smaller gap does not help.\n\n{table(header, rows)}"
    )


# --- searches -----------------------------------------------------------------------------------------------------

SEARCHES: dict[str, dict[str, Any]] = {
    "exact, mean of W": {},
    "exact, last W": {"average": False},
    "sampled, mean of W": {"search": "sampled"},
    "sampled, one label, last W": {"search": "sampled", "n_found": 1, "average": False},
}


def searches() -> str:
    """The bi-stochastic search of (24) and (25) and the mean of W, each beside what there is without it."""
    rows = []
    for name, data, given in shapes_to_search():
        train, test = data
        for title, params in SEARCHES.items():
            model = umpteen.PDSparse(threads=2, **given | params)
            started = time.process_time()
            model.fit(train.X, train.Y)
            seconds = time.process_time() - started
            stats, n_passes = model.stats_, len(model.stats_["dual"])
            rows.append(
                [name, title, f"{seconds:.1f} s", f"{n_passes}", f"{stats['search_entries'].mean() / 1e6:.1f} M",
                 f"{stats['step_entries'].mean() / 1e6:.1f} M", f"{stats['quality'].max():.2f}",
                 at_k(measure(model, test)), f"{model.active_labels_:.1f}, {model.active_weights_:.1f}",
                 "yes" if model.post_solved_ else "no"]
            )  # fmt: skip
            print("  ", *rows[-1], file=sys.stderr)
    header = ["data", "search", "processor time", "passes", "read by searches, a pass", "by steps", "P@1 held out",
              "P@1 / 3 / 5", "k_A, k_W", "post-solved"]  # fmt: skip
    return (
        "Entries of W and V read in a pass, and the whole of training. *sampled* reads one of three groups of labels "
        "and some features of a row; the last row of each set is the paper's. k_A: labels with α ≠ 0 per row, k_W: "
        f"weights per feature.\n\n{table(header, rows)}\n\n{misses()}"
    )


def shapes_to_search() -> Iterator[tuple[str, tuple[umpteen.Dataset, umpteen.Dataset], dict[str, Any]]]:
    yield "Bibtex, λ = 1, as it is", read("Bibtex"), {"lambda_": 1.0, "normalize": False}
    yield "StackExchange-Cooking", read("StackExchange-Cooking"), {}
    for n_labels in (1_000, 8_000):
        parts = tuple(
            umpteen.make_synthetic(8_000, 10_000, n_labels, labels_per_row=4, features_per_row=20, seed=1, part=part)
            for part in ("train", "test")
        )
        yield f"synthetic, N = 8,000, L = {n_labels:,}", parts, {}


def misses() -> str:
    """How often the label that is most confused with a row (20) is not in its active set, as passes go on."""
    rows = []
    for name in ("Bibtex", "StackExchange-Cooking"):
        train, _ = read(name)
        X, Y = UNIT.transform(train.X), train.Y
        rate = umpteen.PDSparse()._sample_rate(X, Y.shape[1])
        cells = {sampled: misses_by_pass(X, Y, sampled, rate) for sampled in (False, True)}
        rows += [
            [name, "sampled" if sampled else "exact", f"{rate if sampled else 1}", *found]
            for sampled, found in cells.items()
        ]
        print("  ", *rows[-2:], file=sys.stderr)
    header = ["data", "search", "one feature in", *(f"after pass {number}" for number in MEASURED)]
    return (
        "Searches of one label, sixteen batches a pass, and what they missed in 2,000 rows: how many have a label "
        "outside of their active set that scores more than 0.01 above the best inside, and by how much on average. "
        "Exact searches miss too, because W moves on. λ = 0.01, rows of unit length.\n\n" + table(header, rows)
    )


MEASURED = (1, 2, 4, 8)


def misses_by_pass(X: Any, Y: Any, sampled: bool, rate: int) -> list[str]:
    solver, cells = new_solver(X, Y), []
    for number in range(max(MEASURED)):
        order = np.random.default_rng(number).permutation(X.shape[0]).astype(np.int32)
        for part in np.array_split(order, 16):
            solver.publish(2)
            solver.search(part, 1, sampled, rate, number, 2)
            solver.step(part)
        if number + 1 in MEASURED:
            share, lacking = count_misses(solver, X, Y)
            cells.append(f"{share:.1%}, {lacking:.2f}")
    return cells


def new_solver(X: Any, Y: Any) -> Any:
    return _native.PdSolver(
        offsets(X), X.indices, X.data, X.shape[1], offsets(Y), Y.indices, Y.shape[1], 0.01, 1.0, 3, 0
    )


def count_misses(solver: Any, X: Any, Y: Any) -> tuple[float, float]:
    """The share of rows that lack a confused label, and the mean of the margins they lack."""
    some = np.random.default_rng(9).choice(X.shape[0], 2000, replace=False)
    W = sp.csr_matrix(solver.weights(), (Y.shape[1], X.shape[1]))
    alphas = sp.csr_matrix(solver.alphas(), Y.shape)[some]
    scores = np.asarray((X[some] @ W.T).todense())
    own = Y[some].toarray() != 0
    inside = np.where((alphas.toarray() < 0) & ~own, scores, -np.inf).max(axis=1)
    outside = np.where((alphas.toarray() >= 0) & ~own, scores, -np.inf).max(axis=1)
    lowest = np.where(own, scores, np.inf).min(axis=1)
    lacking = outside - np.maximum(inside, lowest - 1)  # below that a label adds no loss
    missed = lacking[np.isfinite(lacking) & (lacking > 0.01)]
    return len(missed) / len(some), float(missed.mean()) if len(missed) else 0.0


# --- classes ------------------------------------------------------------------------------------------------------


def classes() -> str:
    from liblinear.liblinearutil import parameter, problem
    from liblinear.liblinearutil import train as train_liblinear
    from sklearn.datasets import load_digits

    digits = load_digits()
    test_rows = np.arange(len(digits.target)) % 3 == 0
    corpora = {"digits": (digits.data, digits.target, test_rows)}
    for name in ("StackExchange-Cooking", "Debian-Tags"):
        train, test = read(name)
        X, Y = sp.vstack([train.X, test.X]).tocsr(), sp.vstack([train.Y, test.Y]).tocsr()
        rows = np.flatnonzero(np.diff(Y.indptr))
        # each row's rarest label of at least twenty rows, or its most frequent one
        counts = np.bincount(train.Y.indices, minlength=Y.shape[1])
        label = np.array([pick_label(Y.indices[Y.indptr[i] : Y.indptr[i + 1]], counts) for i in rows])
        corpora[name] = (X[rows], label, rows >= train.n_rows)
    table_rows = []
    for name, (data, label, is_test) in corpora.items():
        X = UNIT.transform(sp.csr_matrix(data, dtype=np.float32))
        n_labels = int(label.max()) + 1
        Y = sp.csr_matrix((np.ones(len(label)), (np.arange(len(label)), label)), (len(label), n_labels))
        started = time.perf_counter()
        target = label[~is_test].astype(float)
        theirs = train_liblinear(problem(target, sp.csr_matrix(X[~is_test])), parameter("-s 4 -c 1 -q"))
        seconds = time.perf_counter() - started
        W = np.ctypeslib.as_array(theirs.w, (X.shape[1] * theirs.nr_class,)).reshape(X.shape[1], theirs.nr_class)
        predicted = np.array(theirs.get_labels())[np.asarray(X[is_test] @ W).argmax(axis=1)]
        accuracy = 100 * np.mean(predicted == label[is_test])
        table_rows.append([name, f"{n_labels}", "LIBLINEAR -s 4", f"{seconds:.1f} s", f"{accuracy:.2f}", f"{W.size}"])
        for params in ({"lambda_": 0.0, "heldout": 0}, {}, {"lambda_": 0.1}):
            started = time.perf_counter()
            model = umpteen.PDSparse(threads=2, **params).fit(X[~is_test], Y[~is_test])
            seconds = time.perf_counter() - started
            accuracy = 100 * model.score(X[is_test], Y[is_test])
            table_rows.append(
                [name, f"{n_labels}", f"PDSparse, {describe(params, 'as it comes')}", f"{seconds:.1f} s",
                 f"{accuracy:.2f}", f"{model.model_.scorer.nnz}"]
            )  # fmt: skip
            print("  ", *table_rows[-1], file=sys.stderr)
    header = ["data", "classes", "program", "train", "accuracy", "weights"]
    return (
        "One label per row: scikit-learn's digits, and two text sets where each row keeps its rarest label of at "
        f"least twenty rows. LIBLINEAR: Crammer and Singer's machine, one thread.\n\n{table(header, table_rows)}"
    )


def pick_label(labels: np.ndarray, counts: np.ndarray) -> int:
    frequent = labels[counts[labels] >= 20]
    return int(frequent[np.argmin(counts[frequent])] if len(frequent) else labels[np.argmax(counts[labels])])


# --- batches ------------------------------------------------------------------------------------------------------


def batches() -> str:
    """Searching many rows with the same W: what it costs in progress, and what it saves in time."""
    rows = []
    for name, sizes, passes in (("Bibtex", (16, 256, 1024, 4880), 8), ("EURLex-4K", (512, 4096, 15539), 6)):
        train, _ = read(name)
        X, Y = UNIT.transform(train.X), train.Y
        for batch in sizes:
            solver = new_solver(X, Y)
            rng = np.random.default_rng(0)
            gaps, spent, size = [], 0.0, min(64, batch)
            for number in range(passes):
                order, begin = rng.permutation(X.shape[0]).astype(np.int32), 0
                started = time.perf_counter()
                while begin < len(order):
                    part = order[begin : begin + size]
                    solver.publish(2)
                    solver.search(part, 10, False, 1, number, 2)
                    solver.step(part)
                    begin += len(part)
                    size = min(2 * size, batch)
                spent += time.perf_counter() - started
                primal, dual = solver.objectives(2)
                gaps.append((primal + dual) / primal)
            cells = [f"{gaps[i - 1]:.1%}" for i in (1, 2, 4, passes)]
            rows.append([name, f"{batch}", *cells, f"{spent / passes:.2f} s"])
            print("  ", *rows[-1], file=sys.stderr)
    header = ["data", "rows a batch", "gap after 1 pass", "2", "4", "the last (8; 6)", "time a pass"]
    return (
        "λ = 0.01, unit rows, 10 labels a search, no rows held out; the first batch has 64 rows, and they double up "
        f"to the size given. The gap is a share of the primal objective.\n\n{table(header, rows)}"
    )


PARTS = {
    "sets": ("Accuracy, size and sparsity", sets),
    "costs": ("C on Delicious", costs),
    "searches": ("Searches and averages", searches),
    "classes": ("One label per row", classes),
    "batches": ("Rows searched together", batches),
}


if __name__ == "__main__":
    run_parts("pdsparse", "PD-Sparse", PARTS)
