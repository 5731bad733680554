"""LabelTree: what its settings do, and DiSMEC among the labels that a tree proposes.

python benchmarks/label_tree.py [settings] [candidates-eurlex-4k] [candidates-npm-repos]

Each part writes its section of benchmarks/results/label_tree.md; without names, all of them run.
"""

from __future__ import annotations

import contextlib
import copy
import statistics
import tempfile
from functools import partial
from pathlib import Path

from common import at_k, describe, measure, median_time, read, run_parts, table, time_each

import umpteen
from umpteen.data.split import split_rows
from umpteen.errors import ModelExistsError

N_SINGLE = 300
MOST_ROWS = 20_000
KEPT = Path(tempfile.gettempdir()) / "umpteen-label-tree-models"


def settings() -> str:
    """What the parameters do, on a fifth of EURLex-4K's training rows."""
    train, _ = read("EURLex-4K")
    held = split_rows(train.Y, train.n_rows // 5, seed=0)
    runs: list[dict[str, object]] = [
        {}, {"near": None}, {"near": -1.0}, {"n_trees": 3}, {"n_trees": 3, "near": None}, {"eps": 0.1}, {"eps": 0.01},
        {"branching": 2, "clustering": "balanced"}, {"branching": 32}, {"prune": 0.05}, {"prune": 0.1}, {"beam": 5},
        {"beam": 30},
    ]  # fmt: skip
    rows = []
    for params in runs:
        model = umpteen.LabelTree(threads=2, **params)
        seconds = median_time(lambda model=model: model.fit(train.X[~held], train.Y[~held]), 1)
        metrics = measure(model, umpteen.Dataset(train.X[held], train.Y[held]))
        rows.append([describe(params, "as it comes"), f"{seconds:.1f} s", at_k(metrics),
                     f"{model.model_.scorer.nnz / 1e6:.1f} M"])  # fmt: skip
    return table(["setting", "train", "P@1 / 3 / 5 on held-out rows", "weights"], rows)


def candidates(name: str) -> str:
    """DiSMEC among all labels, and among those a tree proposes."""
    train, test = read(name)
    test = umpteen.Dataset(test.X[:MOST_ROWS], test.Y[:MOST_ROWS])
    rows = []
    path = KEPT / f"{name}.model"
    KEPT.mkdir(exist_ok=True)
    with contextlib.suppress(ModelExistsError):  # one that was interrupted goes on where it was
        umpteen.DiSMEC(threads=2, candidate_tree=umpteen.LabelTree()).fit(train.X, train.Y, path)
    model = umpteen.load(path)
    among_all = copy.copy(model)
    among_all.candidate_tree = None
    rankers = {
        "all labels": among_all,
        "the tree's 50": model.configured(n_candidates=50),
        "the tree's 20": model.configured(n_candidates=20),
        "the tree alone": model.candidate_tree,
    }
    for title, ranker in rankers.items():
        metrics = measure(ranker, test)
        predict = lambda X, ranker=ranker: ranker.predict_topk(X, 5, threads=2)  # noqa: E731
        batch = time_each(predict, [test.X])[0] / test.n_rows
        single = statistics.median(time_each(predict, [test.X[i] for i in range(N_SINGLE)]))
        rows.append([title, at_k(metrics), f"{1e3 * batch:.3f}", f"{1e3 * single:.3f}"])
    header = ["ranked among", "P@1 / 3 / 5", "batch ms/row", "single row ms"]
    first = "the first " if test.n_rows == MOST_ROWS else ""
    return f"2 threads, one run; {first}{test.n_rows:,} test rows.\n\n{table(header, rows)}"


PARTS = {
    "settings": ("What the settings do: EURLex-4K, a fifth of the training rows held out", settings),
    **{
        f"candidates-{name.lower()}": (f"DiSMEC(candidate_tree=LabelTree()) on {name}", partial(candidates, name))
        for name in ("EURLex-4K", "NPM-Repos")
    },
}

if __name__ == "__main__":
    run_parts("label_tree", "Label trees", PARTS)
