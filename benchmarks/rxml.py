"""RXML: settings chosen on held-out training rows, optimiser and index, and the paper's Figures 1 and 2 again.

    python benchmarks/rxml.py [settings] [optimisers] [cost] [index] [iterations] [rank] [learners] [clusters]
                              [iterations-eurlex] [rank-eurlex] [learners-eurlex] [clusters-eurlex]

Each part writes its section of benchmarks/results/rxml.md; without names, all of them run.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

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
from umpteen.methods.embed import Pairs, fit_rcg, fit_svp, start
from umpteen.methods.rxml import unit_labels
from umpteen.methods.training_data import TrainingData
from umpteen.models.embedding import EmbeddingModel

#: What `settings` tries. λ, similarity, knn and sharpness stay "auto" in each.
RAW = {"normalize": False}
SMALL = {"rank": 50, "n_neighbors": 150, "iterations": 8}
CHOICES = [
    {},
    SMALL,
    RAW,
    RAW | SMALL,
    RAW | SMALL | {"start": "random"},
    RAW | SMALL | {"start": "random", "rank": 30},
]


def settings() -> str:
    """Settings chosen on a fifth of the training rows, and what they and the defaults reach on the test rows."""
    train, test = read("Mediamill")
    make = lambda choice, split: umpteen.RXML(n_learners=10, seed=split, **choice)  # noqa: E731
    found = [held_out(partial(make, choice), train, 1) for choice in CHOICES]
    best = max(range(len(CHOICES)), key=lambda i: found[i].sum())
    rows = []
    for i, choice in enumerate(CHOICES):
        cells = ["", ""]
        if i in (0, best):
            model = make(choice, 0).fit(train.X, train.Y)
            cells = [describe(model.chosen_._asdict()), join(precisions(model, test))]
        rows.append(["Mediamill", describe(choice) + (" (best)" if i == best else ""), join(found[i]), *cells])
    header = ["data", "settings", "held-out rows", "chosen by itself, on all training rows", "test rows"]
    return (
        "10 learners, P@1 / 3 / 5. Chosen by the sum of the three on a fifth of the training rows; only the chosen "
        f"settings and the defaults are then tried on the test rows, once.\n\n{table(header, rows)}"
    )


# --- optimiser and index --------------------------------------------------------------------------------------------


def clusters_of(name: str, **params):
    """One learner's clusters: label vectors and pairs."""
    train, _ = read(name)
    model = umpteen.RXML(**params)
    data = TrainingData(model.preprocessing().transform(train.X), train.Y, 1.0)
    for plan in model.cluster_rows(data, 0):
        Y = unit_labels(data.Y[plan.rows])
        yield Y, Pairs.find(Y, model.n_neighbors, 0), model.rank


def optimisers() -> str:
    """The paper's claim: the same objective 1.5 to 2 times as fast as SLEEC's projections. One thread."""
    rows = []
    for Y, pairs, rank in clusters_of("EURLex-4K"):
        Z = start(Y, rank, "labels", 0)
        started = time.process_time()
        _, svp = fit_svp(pairs, Z, 15)
        svp_seconds = time.process_time() - started
        started = time.process_time()
        _, rcg = fit_rcg(pairs, Z, 400)
        rcg_each = (time.process_time() - started) / (len(rcg) - 1)
        needed = next((i for i, value in enumerate(rcg) if value <= svp[-1]), None)
        rows.append(
            [str(Y.shape[0]), f"{svp[0]:.0f}", f"{svp[-1]:.0f} after {len(svp) - 1}", f"{svp_seconds:.2f} s",
             f"{needed} iterations", f"{needed * rcg_each:.2f} s", f"{svp_seconds / (needed * rcg_each):.1f}"]
        )  # fmt: skip
    header = ["rows", "objective at the start", "by SVP", "SVP's time", "RCG gets there in", "RCG's time",
              "times as fast"]  # fmt: skip
    return "Processor time of one thread.\n\n" + table(header, rows)


def cost() -> str:
    """An iteration of conjugate gradients against |Ω|·r."""
    rows = []
    for n_neighbors in (25, 50, 100, 200, 400):
        for rank in (32, 100):
            Y, pairs, _ = max(clusters_of("EURLex-4K", n_neighbors=n_neighbors), key=lambda c: c[0].shape[0])
            Z = start(Y, rank, "labels", 0)
            started = time.process_time()
            _, history = fit_rcg(pairs, Z, 15)
            each = (time.process_time() - started) / (len(history) - 1)
            n_pairs = len(pairs.indices)
            rows.append([str(n_neighbors), str(rank), f"{n_pairs:,}", f"{each * 1e3:.1f} ms",
                         f"{each / (n_pairs * rank) * 1e9:.2f} ns"])  # fmt: skip
    header = ["n_neighbors", "rank", "pairs", "an iteration", "per pair and dimension"]
    return "Processor time of one thread.\n\n" + table(header, rows)


def index() -> str:
    train, test = read("EURLex-4K")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        settings = {"lambda_": 1.0, "knn": 12, "sharpness": 15, "similarity": "cosine", "n_clusters": 1}
        umpteen.RXML(threads=2, n_learners=2, **settings).fit(train.X, train.Y, Path(temporary) / "m")
        loaded = umpteen.load(Path(temporary) / "m")
        X = loaded.preprocessing.transform(test.X)
        for kind in ("exact", "usearch"):
            model = loaded.configured(index=kind)
            built = median_time(partial(model.predict_topk, test.X[:1], 5), 1)
            batch = median_time(partial(model.predict_topk, test.X, 5, threads=2), 3) / test.n_rows
            rows.append([kind, f"{built:.1f} s", f"{batch * 1e3:.3f}", f"{model.scorer.recall(X):.4f}",
                         at_k(measure(model, test))])  # fmt: skip
    header = ["index", "first row, with making the index", "predict ms/row, batch", "recall", "P@1 / 3 / 5"]
    return table(header, rows)


# --- Figures 1 and 2 ------------------------------------------------------------------------------------------------

#: What "auto" chooses for each set, so that only the studied setting changes.
FIXED = {
    "Bibtex": {"lambda_": 4.0, "similarity": "euclidean", "knn": 40, "sharpness": 20.0},
    "EURLex-4K": {"lambda_": 1.0, "similarity": "cosine", "knn": 16, "sharpness": 15.0},
}


def study(data: str, title: str, name: str, values: list[int], learners: int) -> str:
    """P@1 on the test rows against one setting."""
    train, test = read(data)
    models = (
        umpteen.RXML(**FIXED[data] | {name: value, "n_learners": learners}).fit(train.X, train.Y) for value in values
    )
    return describe_study(data, title, values, [measure(model, test) for model in models])


def learners(data: str, most: int) -> str:
    """One model of many learners, the first few of them at a time."""
    train, test = read(data)
    model = umpteen.RXML(**FIXED[data], n_learners=most).fit(train.X, train.Y)
    test = umpteen.Dataset(model.preprocessing_.transform(test.X), test.Y)
    counts, found = list(range(1, most + 1)), []
    for count in counts:
        clusters = [cluster for cluster in model.model_.scorer.clusters if cluster.learner < count]
        found.append(measure(EmbeddingModel(clusters, train.n_features, train.n_labels), test))
    return describe_study(data, "learners", counts, found)


def describe_study(data: str, title: str, values: list[int], found: list[umpteen.Metrics]) -> str:
    drawing = f"rxml-{title}{SUFFIXES[data]}.svg"
    draw_lines(drawing, values, {"P@1": [metrics["P@1"] for metrics in found]}, title, f"P@1 on {data}")
    rows = [[str(value), at_k(metrics)] for value, metrics in zip(values, found, strict=True)]
    return table([title, "P@1 / 3 / 5"], rows) + f"\n\n![P@1 against {title}]({drawing})"


SUFFIXES = {"Bibtex": "", "EURLex-4K": "-eurlex"}
STUDIES = {
    "iterations": ("Bibtex", partial(study, "Bibtex", "iterations", "iterations", [1, 2, 5, 10, 15, 30, 50], 2)),
    "rank": ("Bibtex", partial(study, "Bibtex", "rank", "rank", [10, 20, 40, 60, 80, 100, 150], 2)),
    "learners": ("Bibtex", partial(learners, "Bibtex", 10)),
    "clusters": ("Bibtex", partial(study, "Bibtex", "clusters", "n_clusters", [1, 2, 3, 5, 10], 2)),
    "iterations-eurlex": (
        "EURLex-4K", partial(study, "EURLex-4K", "iterations", "iterations", [1, 2, 5, 15, 30], 1),
    ),
    "rank-eurlex": ("EURLex-4K", partial(study, "EURLex-4K", "rank", "rank", [10, 25, 50, 100, 150], 1)),
    "learners-eurlex": ("EURLex-4K", partial(learners, "EURLex-4K", 6)),
    "clusters-eurlex": ("EURLex-4K", partial(study, "EURLex-4K", "clusters", "n_clusters", [1, 2, 3, 5], 1)),
}  # fmt: skip
PARTS = {
    "settings": ("Settings for Mediamill", settings),
    "optimisers": ("Conjugate gradients against singular value projection, clusters of EURLex-4K", optimisers),
    "cost": ("The cost of an iteration, EURLex-4K's largest cluster", cost),
    "index": ("Exact and approximate search, EURLex-4K, one cluster, 2 learners", index),
    **{name: (f"P@1 against {name.removesuffix('-eurlex')}, {data}", work) for name, (data, work) in STUDIES.items()},
}

if __name__ == "__main__":
    run_parts("rxml", "RXML", PARTS)
