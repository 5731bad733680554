"""FastXML against peers, and the paper's studies again. One command each:

python benchmarks/fastxml.py speed [--pecos PYTHON]     EURLex-4K beside omikuji, PECOS and napkinXC
python benchmarks/fastxml.py trees [--data Bibtex]      accuracy against the number of trees (Figure 1), and an SVG
python benchmarks/fastxml.py balance                    balance of the trees (Table 6)
python benchmarks/fastxml.py threads [--data Bibtex]    time against threads (Table 4)
python benchmarks/fastxml.py losses [--data Bibtex]     nDCG over all labels or five, precision (Table 7)
python benchmarks/fastxml.py sides                      what balancing the sides does; PfastreXML beside it
python benchmarks/fastxml.py settings [--pfastrexml]    settings chosen on held-out training rows, and their accuracy
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from common import RESULTS, data_root, table, version, write_result
from dismec import quiet

import umpteen
from umpteen.data.preprocessing import Preprocessing
from umpteen.models.forest import ForestModel
from umpteen.models.store import ModelReader

PECOS = """
import sys, time
import numpy as np, scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
folder = sys.argv[1]
X, Y, test = (sp.load_npz(f"{folder}/{n}.npz").astype(np.float32) for n in ("tX", "tY", "X"))
started = time.perf_counter()
model = XLinearModel.train(X, Y, Indexer.gen(LabelEmbeddingFactory.create(Y, X)), threads=2)
trained = time.perf_counter() - started
model.save(f"{folder}/pecos")
model = XLinearModel.load(f"{folder}/pecos", is_predict_only=True)
best = []
for _ in range(5):
    started = time.perf_counter()
    model.predict(test, only_topk=5, beam_size=10, threads=2)
    best.append(time.perf_counter() - started)
print(trained, sorted(best)[2])
"""


def read(name: str) -> tuple[umpteen.Dataset, umpteen.Dataset]:
    folder = data_root() / name
    return umpteen.read_xc(folder / "train.txt.xz"), umpteen.read_xc(folder / "test.txt.xz")


def measure(model, train, test) -> umpteen.Metrics:
    return umpteen.evaluate(test.Y, model.predict_topk(test.X, 5)[0], train.Y, deciles=False)


def triple(metrics, name: str = "P") -> str:
    return " / ".join(f"{metrics[f'{name}@{k}']:.2f}" for k in (1, 3, 5))


def median_time(job, repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        job()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


# --- speed ----------------------------------------------------------------------------------------------------------


def speed(options) -> None:
    train, test = read("EURLex-4K")
    unit = Preprocessing(normalize=True)
    train_X, X = unit.transform(train.X), unit.transform(test.X)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        umpteen.write_xc(umpteen.Dataset(train_X, train.Y), place / "train.txt")
        for name, matrix in (("tX", train_X), ("tY", train.Y), ("X", X)):
            sp.save_npz(place / f"{name}.npz", matrix)
        one_o, omikuji_row = run_omikuji(place, X)
        for cls in (umpteen.FastXML, umpteen.PfastreXML):
            path = place / f"{cls.name}.model"
            started = time.perf_counter()
            cls(threads=2).fit(train.X, train.Y, path)
            seconds = time.perf_counter() - started
            model = umpteen.load(path)
            batch = median_time(lambda model=model: model.predict_topk(test.X, 5, threads=2)) / test.n_rows
            metrics = measure(model, train, test)
            size = ModelReader(path).n_bytes() / 1e6
            rows.append(
                [f"umpteen {cls.__name__}, 50 trees", f"{seconds:.1f} s", f"{seconds / one_o:.2f} O",
                 f"{batch * 1e3:.3f}", triple(metrics), triple(metrics, "PSP"), f"{size:.1f} MB"]
            )  # fmt: skip
            shutil.rmtree(path)
        rows.append(omikuji_row)
        if options.pecos:
            out = subprocess.run([options.pecos, "-c", PECOS, temporary], capture_output=True, text=True, check=True)
            seconds, batch = map(float, out.stdout.split()[-2:])
            rows.append(
                ["PECOS XR-Linear", f"{seconds:.1f} s", f"{seconds / one_o:.2f} O",
                 f"{batch / test.n_rows * 1e3:.3f}", "", "", ""]
            )  # fmt: skip
        rows.append(run_napkinxc(place, train_X, train, X, one_o))
    header = ["program", "train", "in O", "predict ms/row, batch", "P@1 / 3 / 5", "PSP@1 / 3 / 5", "model"]
    text = "2 threads. 1 O is omikuji's default run, here in the same run.\n\n" + table(header, rows)
    write_result("fastxml", "FastXML on EURLex-4K", text, "python benchmarks/fastxml.py speed --pecos PYTHON")


def run_omikuji(place: Path, X) -> tuple[float, list[str]]:
    import omikuji

    with quiet():
        started = time.perf_counter()
        model = omikuji.Model.train_on_data(
            str(place / "train.txt"), omikuji.Model.default_hyper_param(), n_threads=2
        )
        model.save(str(place / "omikuji"))
        seconds = time.perf_counter() - started
    lists = [list(zip(X[i].indices.tolist(), X[i].data.tolist(), strict=True)) for i in range(X.shape[0])]
    batch = median_time(lambda: [model.predict(row, top_k=5) for row in lists], 1) / X.shape[0]
    return seconds, [version("omikuji"), f"{seconds:.1f} s", "1.00 O", f"{batch * 1e3:.3f} (a loop)", "", "", ""]


def run_napkinxc(place: Path, train_X, train, X, one_o: float) -> list[str]:
    from napkinxc.models import PLT

    labels = [train.Y[i].indices.tolist() for i in range(train.n_rows)]
    with quiet():
        model = PLT(str(place / "napkinxc"), threads=2)
        started = time.perf_counter()
        model.fit(train_X, labels)
        seconds = time.perf_counter() - started
        model.predict(X[:10], top_k=5)
        batch = median_time(lambda: model.predict(X, top_k=5), 3) / X.shape[0]
    return [
        f"{version('napkinxc')} PLT",
        f"{seconds:.1f} s",
        f"{seconds / one_o:.2f} O",
        f"{batch * 1e3:.3f}",
        "",
        "",
        "",
    ]


# --- the paper's studies --------------------------------------------------------------------------------------------


def trees(options) -> None:
    """Figure 1: trees in random order, and those first that are best on the training rows."""
    train, test = read(options.data)
    model = umpteen.FastXML().fit(train.X, train.Y)
    forest = model.model_.trees

    def accuracy(chosen, data) -> float:
        part = ForestModel(chosen, train.n_features, train.n_labels)
        return umpteen.evaluate(data.Y, part.predict_topk(data.X, 5)[0], deciles=False)["P@5"]

    alone = [accuracy([tree], train) for tree in forest]
    best = [forest[i] for i in np.argsort(-np.array(alone), kind="stable")]
    counts = [1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 50]
    lines = {"random order": [accuracy(forest[:n], test) for n in counts],
             "best on the training rows first": [accuracy(best[:n], test) for n in counts]}  # fmt: skip
    draw(RESULTS / "fastxml-trees.svg", counts, lines, "trees", f"P@5 on {options.data}")
    rows = [[str(n), *(f"{values[i]:.2f}" for values in lines.values())] for i, n in enumerate(counts)]
    text = table(["trees", *lines], rows) + "\n\n![P@5 against trees](fastxml-trees.svg)"
    write_result("fastxml-trees", f"P@5 against the number of trees, {options.data}", text,
                 f"python benchmarks/fastxml.py trees --data {options.data}")  # fmt: skip


def balance(options) -> None:
    """Table 6: the mean depth of a row's leaf against that of a balanced tree."""
    rows = []
    for name in options.sets:
        train, _ = read(name)
        model = umpteen.FastXML(n_trees=options.n_trees).fit(train.X, train.Y)
        ideal = math.log2(train.n_rows / model.max_leaf)
        depths = np.array([tree.mean_depth for tree in model.model_.trees])
        leaves = np.array([tree.n_leaves for tree in model.model_.trees])
        ratio = depths / ideal
        rows.append([name, f"{depths.mean():.2f}", f"{ideal:.2f}", f"{ratio.mean():.3f} ± {ratio.std():.3f}",
                     f"{train.n_rows / leaves.mean():.1f}"])  # fmt: skip
    header = ["data", "mean depth H", "log2(N / 10)", "H / log2(N / 10)", "rows per leaf"]
    write_result(
        "fastxml-balance",
        "Balance of FastXML's trees",
        table(header, rows),
        f"python benchmarks/fastxml.py balance --sets {' '.join(options.sets)} --n-trees {options.n_trees}",
    )


def threads(options) -> None:
    """Table 4: the same forest on more threads, and half of it."""
    train, _ = read(options.data)
    cores, half = os.cpu_count() or 1, options.n_trees // 2
    runs = [*((options.n_trees, n) for n in range(1, cores + 1)), (half, cores)]
    rows, first = [], None
    for trees, n in runs:
        seconds = median_time(
            lambda trees=trees, n=n: umpteen.FastXML(n_trees=trees, threads=n).fit(train.X, train.Y), 1
        )
        first = first or seconds
        rows.append([str(trees), str(n), f"{seconds:.1f} s", f"{first / seconds:.2f}"])
    text = f"{options.data}.\n\n" + table(["trees", "threads", "train", "times as fast"], rows)
    command = f"python benchmarks/fastxml.py threads --data {options.data} --n-trees {options.n_trees}"
    write_result("fastxml-threads", "FastXML's training time against threads and trees", text, command)


def losses(options) -> None:
    """Table 7."""
    train, test = read(options.data)
    rows = []
    for loss in ("ndcg", "ndcg5", "precision5"):
        model = umpteen.FastXML(split_loss=loss).fit(train.X, train.Y)
        rows.append([loss, triple(measure(model, train, test))])
    write_result("fastxml-losses", f"Split losses on {options.data}", table(["split_loss", "P@1 / 3 / 5"], rows),
                 f"python benchmarks/fastxml.py losses --data {options.data}")  # fmt: skip


def sides(options) -> None:
    rows = []
    for name in options.sets:
        train, test = read(name)
        for title, model in (
            ("FastXML, balanced sides", umpteen.FastXML(n_trees=options.n_trees)),
            ("FastXML, sides as they are", umpteen.FastXML(n_trees=options.n_trees, balance_sides=False)),
            ("PfastreXML, balanced sides", umpteen.PfastreXML(n_trees=options.n_trees)),
        ):
            metrics = measure(model.fit(train.X, train.Y), train, test)
            facts, n = model.model_.describe(), options.n_trees
            rows.append([name, title, triple(metrics), triple(metrics, "PSP"), f"{facts['weights'] / n:,.0f}",
                         f"{train.n_rows * n / facts['leaves']:.1f}"])  # fmt: skip
    header = ["data", "method", "P@1 / 3 / 5", "PSP@1 / 3 / 5", "weights per tree", "rows per leaf"]
    text = f"{options.n_trees} trees.\n\n" + table(header, rows)
    write_result(
        "fastxml-sides",
        "What balancing the sides does",
        text,
        f"python benchmarks/fastxml.py sides --sets {' '.join(options.sets)} --n-trees {options.n_trees}",
    )


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


def settings(options) -> None:
    """Settings chosen on a fifth of the training rows, and what they and the defaults reach on the test rows."""
    cls = umpteen.PfastreXML if options.pfastrexml else umpteen.FastXML
    rows = []
    for name in options.sets:
        train, test = read(name)
        sparse = train.X.nnz < train.n_rows * train.n_features / 2
        choices = [choice for choice in CHOICES if sparse or "tfidf" not in choice]
        make = lambda choice, split: cls(seed=split, n_trees=options.held_out_trees, **choice)  # noqa: E731
        found = [held_out(partial(make, choice), train) for choice in choices]
        best = int(np.argmax([scores.sum() for scores in found]))
        for i in sorted({0, best}):
            models = [cls(seed=seed, n_trees=options.n_trees, **choices[i]) for seed in range(options.seeds)]
            scores = np.array([precisions(model.fit(train.X, train.Y), test) for model in models])
            rows.append([name, describe(choices[i]), join(found[i]), join(scores.mean(axis=0)),
                         join(scores.std(axis=0)), join(scores[0])])  # fmt: skip
    header = ["data", "settings", "held-out rows", "test rows, mean of seeds", "standard deviation", "seed 0"]
    listed = "; ".join(map(describe, CHOICES))
    text = (
        f"{options.n_trees} trees, P@1 / 3 / 5, {options.seeds} seeds. Of these settings the best on a fifth of the "
        f"training rows ({options.held_out_trees} trees, two such fifths), by the sum of the three, beside the "
        f"defaults: {listed}. tf-idf only where most values are 0."
        f"\n\n{table(header, rows)}"
    )
    command = f"settings --sets {' '.join(options.sets)} --seeds {options.seeds}"
    command += f" --held-out-trees {options.held_out_trees}" + (" --pfastrexml" if options.pfastrexml else "")
    page = "-".join([cls.name, "settings", *options.sets]).lower()
    write_result(page, f"{cls.__name__}'s settings", text, f"python benchmarks/fastxml.py {command}")


def held_out(make, train, splits: int = 2) -> np.ndarray:
    """P@1, 3 and 5 on a fifth of the training rows of what make(split) learns from the others."""
    scores = []
    for split in range(splits):
        order = np.random.default_rng(split).permutation(train.n_rows)
        left, kept = order[: train.n_rows // 5], np.sort(order[train.n_rows // 5 :])
        model = make(split).fit(train.X[kept], train.Y[kept])
        scores.append(precisions(model, umpteen.Dataset(train.X[left], train.Y[left])))
    return np.mean(scores, axis=0)


def describe(choice: dict) -> str:
    return ", ".join(f"{k}={v}" for k, v in choice.items()) or "the defaults"


def precisions(model, data) -> np.ndarray:
    metrics = umpteen.evaluate(data.Y, model.predict_topk(data.X, 5)[0], deciles=False)
    return np.array([metrics[f"P@{k}"] for k in (1, 3, 5)])


def join(scores) -> str:
    return " / ".join(f"{score:.2f}" for score in scores)


def draw(path: Path, x, lines: dict[str, list[float]], x_title: str, y_title: str) -> None:
    """A plain line chart."""
    width, height, margin = 480, 300, 45
    low, high = min(map(min, lines.values())), max(map(max, lines.values()))
    at_x = lambda v: margin + (width - 2 * margin) * v / max(x)  # noqa: E731
    at_y = lambda v: height - margin - (height - 2 * margin) * (v - low) / (high - low)  # noqa: E731
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" ',
             'font-family="sans-serif" font-size="11">',
             f'<rect width="{width}" height="{height}" fill="white"/>']  # fmt: skip
    for i in range(5):
        value = low + (high - low) * i / 4
        parts.append(f'<text x="5" y="{at_y(value) + 4:.1f}">{value:.1f}</text>')
        parts.append(f'<path d="M{margin} {at_y(value):.1f}H{width - margin}" stroke="#ddd"/>')
    for v in range(0, max(x) + 1, 10):
        parts.append(f'<text x="{at_x(v):.1f}" y="{height - margin + 16}" text-anchor="middle">{v}</text>')
    for k, (name, values) in enumerate(lines.items()):
        colour = ("#1f6feb", "#d1495b")[k]
        points = " ".join(f"{at_x(a):.1f},{at_y(b):.1f}" for a, b in zip(x, values, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{width - margin}" y="{height - margin - 30 + 15 * k}" text-anchor="end" '
            f'fill="{colour}">{name}</text>'
        )
    parts.append(f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">{x_title}</text>')
    parts.append(f'<text x="{margin}" y="20">{y_title}</text></svg>')
    path.write_text("\n".join(parts) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["speed", "trees", "balance", "threads", "losses", "sides", "settings"])
    parser.add_argument("--pecos", help="a Python interpreter that has libpecos")
    parser.add_argument("--data", default="Bibtex")
    parser.add_argument("--sets", nargs="+", default=["Bibtex", "Mediamill", "EURLex-4K"])
    parser.add_argument("--n-trees", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--held-out-trees", type=int, default=20, help="settings: trees to choose with")
    parser.add_argument("--pfastrexml", action="store_true", help="settings: of PfastreXML")
    options = parser.parse_args()
    globals()[options.study](options)


if __name__ == "__main__":
    main()
