"""PPDSparse: what λ does to accuracy and sparsity, how the time of a label grows, and what sampled searches save.

python benchmarks/ppdsparse.py [sets] [growth] [search] [solvers]

Each part writes its section of benchmarks/results/ppdsparse.md; without names, all of them run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import UNIT, at_k, data_root, measure, plotting, read, run_parts, save_drawing, table, train_and_write

import umpteen
from umpteen import _native
from umpteen.data.label_lists import encode_labels
from umpteen.data.matrix import offsets

# --- accuracy and sparsity ----------------------------------------------------------------------------------------


def sets() -> str:
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, settings in {
            "EURLex-4K": [{}],
            "Bibtex": [{"lambda_": lambda_, "tau": 1.0} for lambda_ in (0.01, 0.1, 1.0)] + [{"lambda_": 0.01}],
            "Mediamill": [{}, {"lambda_": 0.1}],
            "Tate-Subjects": [{}, {"lambda_": 0.1}],
            "Debian-Tags": [{}, {"lambda_": 0.1}],
        }.items():
            train, test = read(name)
            for params in settings:
                model = umpteen.PPDSparse(threads=2, **params)
                seconds, scores, size = train_and_write(model, train, test, Path(temporary) / "m")
                stats, trained = model.stats_, train.label_counts() > 0
                weights = model.model_.scorer.to_weights()[0]
                bound = 2 * train.label_counts()[trained] / max(model.chosen_[0], 1e-9)
                share = np.asarray(abs(weights).sum(axis=1)).ravel()[trained] / bound
                rows.append(
                    [name, f"{model.chosen_[0]:g}, {model.chosen_[1]:g}", f"{seconds:.1f} s", at_k(scores),
                     at_k(scores, "PSP", (1, 5)), f"{size:.1f} MB",
                     f"{stats['nnz'][trained].mean():.0f} of {train.X.shape[1]}",
                     f"{stats['support'][trained].mean():.0f} of {train.n_rows}",
                     f"{stats['active'][trained].mean():.0f}", f"{share.max():.2f}",
                     f"{(stats['gap'] / stats['objective'])[trained].max():.1e}"]
                )  # fmt: skip
                print("  ", *rows[-1], file=sys.stderr)
    header = ["data", "λ, τ", "train", "P@1 / 3 / 5", "PSP@1 / 5", "model", "nnz(w)", "α > 0", "most active",
              "‖w‖₁ λ / 2n⁺, largest", "gap / objective, largest"]  # fmt: skip
    return (
        "nnz(w) before pruning, rows with α > 0 and the largest active set are means per trained label. The paper's "
        "claim (Theorem 3.2) is that ‖w‖₁ λ / 2n⁺ is at most 1; and that nnz(w) ≪ D and |A| ≪ N.\n\n"
        + table(header, rows)
    )


# --- growth -------------------------------------------------------------------------------------------------------


def solve(X, Y, labels, **params) -> dict[str, float]:
    """Solves some labels of a data set: what each cost on average."""
    model = umpteen.PPDSparse(**params)
    columns = Y.tocsc()[:, labels]
    started = time.perf_counter()
    out = _native.solve_ppd(
        offsets(X), X.indices, X.data, X.shape[1], columns.indptr.astype(np.int64), columns.indices.astype(np.int32),
        labels.astype(np.int32), np.ones(len(labels), np.float32), True, model.lambda_, model.tau, 1.0, model.eps,
        model.prune, model.max_rounds, 0, 0.0, 0, threads=2,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    mean = {name: float(out[name].mean()) for name in ("active", "support", "nnz", "column_entries")}
    return {"ms": 1000 * seconds / len(labels), "positives": columns.nnz / len(labels), **mean}


def growth() -> str:
    rng = np.random.default_rng(0)
    lines: dict[str, list[tuple[int, dict[str, float]]]] = {}
    shapes = [(n, 4000) for n in (4000, 8000, 16000, 32000, 64000)]
    for what, grid in (
        ("synthetic, N grows", shapes),
        ("synthetic, L grows", [(16000, n_labels) for n_labels in (1000, 2000, 4000, 8000, 16000)]),
        ("synthetic, N and L grow", [(n, n // 4) for n, _ in shapes]),
    ):
        for n_rows, n_labels in grid:
            data = umpteen.make_synthetic(n_rows, 20_000, n_labels, labels_per_row=4, features_per_row=20, seed=1)
            labels = np.sort(rng.choice(n_labels, 512, replace=False))
            found = solve(UNIT.transform(data.X), data.Y, labels, eps=0.01)
            size = n_labels if what == "synthetic, L grows" else n_rows
            lines.setdefault(what, []).append((size, found | {"nnz_X": data.X.nnz}))
            print("  ", what, size, found, file=sys.stderr)
    train, _ = read("NPM-Repos")
    order = rng.permutation(train.n_rows)
    for n_rows in (27_390, 54_780, 109_559, 219_118, 438_236):
        part = train.take(np.isin(np.arange(train.n_rows), order[:n_rows]))
        present = np.flatnonzero(part.label_counts())
        labels = np.sort(rng.choice(present, 2000, replace=False))
        found = solve(UNIT.transform(part.X), part.Y, labels, eps=0.01)
        lines.setdefault("slices of NPM-Repos", []).append((n_rows, found | {"nnz_X": part.X.nnz}))
        print("   NPM", n_rows, found, file=sys.stderr)
    draw(lines)
    rows = []
    for what, points in lines.items():
        for size, found in points:
            rows.append(
                [what, f"{size:,}", f"{found['positives']:.1f}", f"{found['ms']:.2f} ms", f"{found['active']:.0f}",
                 f"{found['support']:.0f}", f"{found['nnz']:.0f}", f"{found['column_entries'] / found['nnz_X']:.1%}"]
            )  # fmt: skip
    slopes = "; ".join(
        f"{what}: time ∝ size^{slope(points, 'ms'):.2f}, |A| ∝ size^{slope(points, 'active'):.2f}"
        for what, points in lines.items()
    )
    header = ["data", "size", "n⁺", "per label", "|A|", "α > 0", "nnz(w)", "entries of X read down columns"]
    return (
        "512 labels (NPM-Repos: 2,000) drawn from each size, eps=0.01, 2 threads; size is N, or L where that grows "
        f"alone. Fitted over the whole range: {slopes}. A pass over X per label would be ∝ N^1.\n\n"
        "![growth](ppdsparse_growth.svg)\n\n" + table(header, rows)
    )


def slope(points: list[tuple[int, dict[str, float]]], name: str) -> float:
    return float(np.polyfit(np.log([p for p, _ in points]), np.log([max(f[name], 1e-9) for _, f in points]), 1)[0])


def draw(lines: dict[str, list[tuple[int, dict[str, float]]]]) -> None:
    figure, axes = plotting().subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, name, title in zip(axes, ("ms", "active"), ("ms per label", "rows in the active set"), strict=True):
        for what, points in lines.items():
            axis.plot([p for p, _ in points], [f[name] for _, f in points], marker="o", label=what)
        first = next(iter(lines.values()))
        start = first[0][1][name]
        axis.plot([first[0][0], first[-1][0]], [start, start * first[-1][0] / first[0][0]], "k:", label="linear")
        axis.set(xscale="log", yscale="log", xlabel="N (or L where that grows alone)", title=title)
    axes[0].legend(fontsize=8)
    save_drawing(figure, "ppdsparse_growth.svg")


# --- sampled searches ---------------------------------------------------------------------------------------------

#: What Algorithm 3 draws, beside no drawing at all.
SEARCHES: dict[str, dict[str, float]] = {
    "exact": {},
    "200 features": {"samples": 200},
    "δ = 2": {"samples": 1, "sample_error": 2.0},
    "δ = 1": {"samples": 1, "sample_error": 1.0},
    "δ = 0.5": {"samples": 1, "sample_error": 0.5},
}


def search() -> str:
    rows = []
    for what, X, Y, n_labels in shapes_to_search():
        present = np.flatnonzero(np.diff(Y.tocsc().indptr))
        labels = np.sort(np.random.default_rng(0).choice(present, min(n_labels, len(present)), replace=False))
        columns = Y.tocsc()[:, labels]
        for name, drawn in SEARCHES.items():
            started = time.process_time()
            out = _native.solve_ppd(
                offsets(X), X.indices, X.data, X.shape[1], columns.indptr.astype(np.int64),
                columns.indices.astype(np.int32), labels.astype(np.int32), np.ones(len(labels), np.float32), True,
                0.01, 1.0, 1.0, 1e-3, 0.0, 100, cutoff=0.01, seed=0, threads=1, **{"samples": 0} | drawn,
            )  # fmt: skip
            seconds = time.process_time() - started
            rows.append(
                [what, name, f"{1000 * seconds / len(labels):.2f} ms", f"{out['column_entries'].mean() / X.nnz:.1%}",
                 f"{out['panel_passes'].mean():.1f}", f"{out['visited'].mean():.0f}", f"{out['rounds'].mean():.1f}",
                 f"{out['missed'].mean():.1f}"]
            )  # fmt: skip
            print("  ", *rows[-1], file=sys.stderr)
    header = ["data", "search", "per label", "entries of X read down columns", "shared passes over X", "rows visited",
              "searches", "missed"]  # fmt: skip
    return (
        "λ = 0.01, τ = 1, eps = 0.001, products below 0.01 not read, one thread, processor time; labels drawn from "
        "all that have rows. *missed*: rows beyond their margin that the first exact search found after the sampled "
        "ones. All end at the same optimum. With δ, a search draws ⌈2‖w‖₁²/δ²⌉ features.\n\n" + table(header, rows)
    )


def shapes_to_search() -> Iterator[tuple[str, Any, Any, int]]:
    for name in ("Bibtex", "EURLex-4K", "Debian-Tags", "NPM-Repos"):
        train, _ = read(name)
        yield name, UNIT.transform(train.X), train.Y, 300
    corpus = umpteen.read_corpus(data_root() / "YSO-Finna-EN" / "train.jsonl.xz")
    _, Y = encode_labels(corpus.labels)
    yield "YSO-Finna-EN", umpteen.Tfidf().fit_transform(corpus.texts), Y, 40
    for n_rows in (8_000, 32_000, 128_000):
        data = umpteen.make_synthetic(n_rows, 20_000, n_rows // 4, labels_per_row=4, features_per_row=20, seed=1)
        yield f"synthetic, N = {n_rows:,}, L = N / 4", UNIT.transform(data.X), data.Y, 300
    for n_labels in (1_000, 16_000):
        data = umpteen.make_synthetic(16_000, 20_000, n_labels, labels_per_row=4, features_per_row=20, seed=1)
        yield f"synthetic, N = 16,000, L = {n_labels:,}", UNIT.transform(data.X), data.Y, 300


# --- beside DiSMEC ------------------------------------------------------------------------------------------------

#: All of one problem but for the loss of the last: λ = 0, τ = 0.5 is C = 1.
BESIDE = {
    "dismec solver=newton": (umpteen.DiSMEC, {"solver": "newton"}),
    "dismec": (umpteen.DiSMEC, {}),
    "ppdsparse": (umpteen.PPDSparse, {}),
    "ppdsparse preset=paper": (umpteen.PPDSparse.paper, {}),
    "ppdsparse loss=hinge": (umpteen.PPDSparse, {"loss": "hinge"}),
}


def solvers() -> str:
    rows = []
    for name in ("Bibtex", "StackExchange-Cooking", "Debian-Tags"):
        train, test = read(name)
        first = 0.0
        for title, (make, params) in BESIDE.items():
            started = time.process_time()
            model = make(threads=1, **params).fit(train.X, train.Y)
            seconds = time.process_time() - started
            first = first or seconds
            rows.append([name, title, f"{seconds:.2f} s", f"{first / seconds:.1f}", at_k(measure(model, test))])
            print("  ", *rows[-1], file=sys.stderr)
    header = ["data", "method", "processor time of training", "times as fast as Newton", "P@1 / 3 / 5"]
    return (
        "The paper finds PPDSparse orders of magnitude faster than DiSMEC, which solves each label by Newton's "
        'method on all rows (`solver="newton"` here, which leaves out rows beyond their margin). One thread. By '
        "default DiSMEC takes the dual for most labels, as PPDSparse does; [solvers](solvers.md) has larger sets, "
        "label by label.\n\n" + table(header, rows)
    )


PARTS = {
    "sets": ("Accuracy and sparsity", sets),
    "growth": ("Growth", growth),
    "search": ("Sampled searches", search),
    "solvers": ("Beside DiSMEC, and the hinge", solvers),
}


if __name__ == "__main__":
    run_parts("ppdsparse", "PPDSparse", PARTS)
