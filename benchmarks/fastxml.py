"""FastXML: the paper's studies again, what balancing the sides does, and settings chosen on held-out training rows.

    python benchmarks/fastxml.py [trees] [trees-delicious] [trees-mediamill] [updates] [balance] [threads] [losses]
                                 [sides] [settings-bibtex] [settings-mediamill] [settings-pfastrexml]

Table 7 for all sets and splits, with MLRF and LPSR, is in benchmarks/papers.py.

Each part writes its section of benchmarks/results/fastxml.md; without names, all of them run.
"""

from __future__ import annotations

import math
import os
import sys
import time
from functools import partial

import numpy as np
from baselines.lpsr import LPSR
from baselines.mlrf import MLRF
from common import (
    at_k,
    describe,
    draw_lines,
    held_out,
    join,
    measure,
    median_time,
    precisions,
    read,
    run_parts,
    table,
)

import umpteen
from umpteen.models.forest import ForestModel


def trees(data: str) -> str:
    """Figure 1: trees in random order, and those first that are best on the training rows."""
    train, test = read(data)
    model = umpteen.FastXML().fit(train.X, train.Y)
    forest = model.model_.scorer.trees

    def accuracy(chosen, rows) -> float:
        return measure(ForestModel(chosen, train.n_features, train.n_labels), rows)["P@5"]

    alone = [accuracy([tree], train) for tree in forest]
    best = [forest[i] for i in np.argsort(-np.array(alone), kind="stable")]
    counts = [1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 50]
    lines = {"random order": [accuracy(forest[:n], test) for n in counts],
             "best on the training rows first": [accuracy(best[:n], test) for n in counts]}  # fmt: skip
    drawing = f"fastxml-trees{'' if data == 'Bibtex' else '-' + data.lower()}.svg"
    draw_lines(drawing, counts, lines, "trees", f"P@5 on {data}")
    rows = [[str(n), *(f"{values[i]:.2f}" for values in lines.values())] for i, n in enumerate(counts)]
    return table(["trees", *lines], rows) + f"\n\n![P@5 against trees]({drawing})"


def balance() -> str:
    """Table 6: the mean depth of a row's leaf against that of a balanced tree."""
    rows = []
    for name in ("Bibtex", "Delicious", "Mediamill"):
        train, _ = read(name)
        X, Y = train.X, train.Y
        ideal = math.log2(train.n_rows / 10)
        depths = {
            title: np.array([tree.mean_depth for tree in model.fit(X, Y).model_.scorer.trees])
            for title, model in (("FastXML.paper()", umpteen.FastXML.paper(n_trees=10)),
                                 ("FastXML", umpteen.FastXML(n_trees=10)))
        }  # fmt: skip
        depths["MLRF"] = MLRF(n_trees=3).fit(X, Y).mean_depths(X)
        depths["LPSR"] = np.array([LPSR(None, max_leaf=10, seed=seed).fit(X, Y).mean_depth(X) for seed in range(3)])
        cells = [f"{(each / ideal).mean():.2f} ± {(each / ideal).std(ddof=1):.2f}" for each in depths.values()]
        rows.append([name, f"{ideal:.2f}", *cells])
        print("  ", *rows[-1], file=sys.stderr)
    return (
        "H / log2(N / 10), where H is how many splits a training row passes on average; 1 is a balanced tree of "
        "leaves with ten rows. Mean ± standard deviation over ten trees of FastXML and three of the others, all "
        "with at most ten rows a leaf.\n\n" + table(["data", "log2(N / 10)", *depths], rows)
    )


def updates() -> str:
    """Table 5."""
    rows = []
    for name in ("Bibtex", "Delicious"):
        train, test = read(name)
        for n in (1, 2, 3, 5):
            started = time.process_time()
            model = umpteen.FastXML.paper(n_trees=20, w_updates=n).fit(train.X, train.Y)
            seconds = time.process_time() - started
            rows.append([name, str(n), at_k(measure(model, test)), f"{seconds:.1f} s"])
            print("  ", *rows[-1], file=sys.stderr)
    return (
        "`FastXML.paper(n_trees=20, w_updates=…)`; the paper has this for Ads-430K, which is not public.\n\n"
        + table(["data", "updates of w", "P@1 / 3 / 5", "processor time of training"], rows)
    )


def threads() -> str:
    """Table 4: the same forest on more threads, and half of it."""
    train, _ = read("EURLex-4K")
    cores = os.cpu_count() or 1
    rows, first = [], None
    for n_trees, n in [*((10, n) for n in range(1, cores + 1)), (5, cores)]:
        model = umpteen.FastXML(n_trees=n_trees, threads=n)
        seconds = median_time(lambda model=model: model.fit(train.X, train.Y), 1)
        first = first or seconds
        rows.append([str(n_trees), str(n), f"{seconds:.1f} s", f"{first / seconds:.2f}"])
    return "EURLex-4K.\n\n" + table(["trees", "threads", "train", "times as fast"], rows)


def losses() -> str:
    """Table 7."""
    train, test = read("Bibtex")
    rows = []
    for loss in ("ndcg", "ndcg5", "precision5"):
        rows.append([loss, at_k(measure(umpteen.FastXML(split_loss=loss).fit(train.X, train.Y), test))])
    return table(["split_loss", "P@1 / 3 / 5"], rows)


def sides() -> str:
    rows = []
    n_trees = 20
    for name in ("Bibtex", "EURLex-4K", "Tate-Subjects"):
        train, test = read(name)
        for title, model in (
            ("FastXML, balanced sides", umpteen.FastXML(n_trees=n_trees)),
            ("FastXML, sides as they are", umpteen.FastXML(n_trees=n_trees, balance_sides=False)),
            ("PfastreXML, balanced sides", umpteen.PfastreXML(n_trees=n_trees)),
        ):
            metrics = measure(model.fit(train.X, train.Y), test, train)
            facts = model.model_.scorer.describe()
            rows.append([name, title, at_k(metrics), at_k(metrics, "PSP"), f"{facts['weights'] / n_trees:,.0f}",
                         f"{train.n_rows * n_trees / facts['leaves']:.1f}"])  # fmt: skip
    header = ["data", "method", "P@1 / 3 / 5", "PSP@1 / 3 / 5", "weights per tree", "rows per leaf"]
    return f"{n_trees} trees.\n\n" + table(header, rows)


#: What `settings` chooses from. Rows of counts may also be weighted by tf-idf.
CHOICES = [
    {},
    {"C_delta": 0.5},
    {"C_delta": 2.0},
    {"C_delta": 4.0},
    {"max_leaf": 5},
    {"tfidf": True},
    {"tfidf": True, "max_leaf": 5},
    {"tfidf": True, "C_delta": 0.5, "max_leaf": 5},
]


def settings(cls: type, name: str, seeds: int, held_out_trees: int) -> str:
    """Settings chosen on a fifth of the training rows, and what they and the defaults reach on the test rows."""
    train, test = read(name)
    sparse = train.X.nnz < train.n_rows * train.n_features / 2
    choices = [choice for choice in CHOICES if sparse or "tfidf" not in choice]
    make = lambda choice, split: cls(seed=split, n_trees=held_out_trees, **choice)  # noqa: E731
    found = [held_out(partial(make, choice), train) for choice in choices]
    best = int(np.argmax([scores.sum() for scores in found]))
    rows = []
    for i in sorted({0, best}):
        models = [cls(seed=seed, n_trees=50, **choices[i]) for seed in range(seeds)]
        scores = np.array([precisions(model.fit(train.X, train.Y), test) for model in models])
        rows.append([name, describe(choices[i]), join(found[i]), join(scores.mean(axis=0)),
                     join(scores.std(axis=0)), join(scores[0])])  # fmt: skip
    header = ["data", "settings", "held-out rows", "test rows, mean of seeds", "standard deviation", "seed 0"]
    return (
        f"50 trees, P@1 / 3 / 5, {seeds} seeds. Of these settings the best on a fifth of the training rows "
        f"({held_out_trees} trees, two such fifths), by the sum of the three, beside the defaults: "
        f"{'; '.join(map(describe, CHOICES))}. tf-idf only where most values are 0.\n\n{table(header, rows)}"
    )


PARTS = {
    "trees": ("P@5 against the number of trees, Bibtex", partial(trees, "Bibtex")),
    "trees-delicious": ("P@5 against the number of trees, Delicious", partial(trees, "Delicious")),
    "trees-mediamill": ("P@5 against the number of trees, Mediamill", partial(trees, "Mediamill")),
    "updates": ("Updates of w", updates),
    "balance": ("Balance of the trees", balance),
    "threads": ("Training time against threads and trees", threads),
    "losses": ("Split losses on Bibtex", losses),
    "sides": ("What balancing the sides does", sides),
    "settings-bibtex": ("Settings for Bibtex", partial(settings, umpteen.FastXML, "Bibtex", 3, 20)),
    "settings-mediamill": ("Settings for Mediamill", partial(settings, umpteen.FastXML, "Mediamill", 1, 5)),
    "settings-pfastrexml": (
        "PfastreXML's settings for Bibtex",
        partial(settings, umpteen.PfastreXML, "Bibtex", 3, 20),
    ),
}

if __name__ == "__main__":
    run_parts("fastxml", "FastXML", PARTS)
