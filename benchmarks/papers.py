"""The papers' tables by the papers' protocol: random splits of pooled rows, and one label per row.

python -m benchmarks papers Bibtex --splits 10
python -m benchmarks papers classes

FastXML's Tables 2 and 7 are means over ten random splits, so all rows of a set are pooled and parted anew, as many to
train on as in its own split. λ, τ and C are chosen on held-out training rows. Each figure is kept in
benchmarks/results/papers.json as it comes, with its date and version, and not taken twice; the page is written from
that file.
"""

from __future__ import annotations

import datetime
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import umpteen
from benchmarks.baselines.lpsr import LPSR
from benchmarks.baselines.mlrf import MLRF
from benchmarks.common import RESULTS, ROOT, UNIT, describe_machine, precisions, read, table
from umpteen.data.split import split_rows

KEPT = RESULTS / "papers.json"
PAGE = RESULTS / "papers.md"
SETS = ("Bibtex", "Delicious", "Mediamill")
COSTS = (0.1, 0.3, 1.0, 3.0, 10.0)
THREADS = 2

Data = umpteen.Dataset
#: What is trained, with a seed, and the name it has in published.json.
Make = Callable[[Data, int], Any]


def hold_out(train: Data) -> tuple[Data, Data]:
    """Four fifths of the training rows, and the rest."""
    held = split_rows(train.Y, 0.2)
    return train.take(~held), train.take(held)


def choose_dismec(train: Data, seed: int = 0) -> umpteen.DiSMEC:
    """With C chosen on held-out rows, as its paper does, and trained on all."""
    kept, held = hold_out(train)

    def quality(C: float) -> float:
        return float(precisions(umpteen.DiSMEC.paper(C=C, threads=THREADS).fit(kept.X, kept.Y), held).sum())

    return umpteen.DiSMEC.paper(C=max(COSTS, key=quality), threads=THREADS).fit(train.X, train.Y)


def choose_lpsr(train: Data, seed: int) -> LPSR:
    """With the sizes of leaves chosen on held-out rows."""
    kept, held = hold_out(train)
    base = choose_dismec(kept)
    sizes = [(rows, labels) for rows in (100, 400, 1600) for labels in (50, 200)]
    trees = {each: LPSR(base, *each, seed).fit(kept.X, kept.Y) for each in sizes}
    best = max(sizes, key=lambda each: float(precisions(trees[each], held).sum()))
    return LPSR(choose_dismec(train), *best, seed).fit(train.X, train.Y)


def fit(method: Any) -> Make:
    return lambda train, seed: method(seed).fit(train.X, train.Y)


METHODS: dict[str, tuple[Make, str]] = {
    "fastxml preset=paper": (fit(lambda seed: umpteen.FastXML.paper(seed=seed, threads=THREADS)), "fastxml"),
    "fastxml": (fit(lambda seed: umpteen.FastXML(seed=seed, threads=THREADS)), "fastxml"),
    "fastxml preset=paper split_loss=ndcg5": (
        fit(lambda seed: umpteen.FastXML.paper(seed=seed, split_loss="ndcg5", threads=THREADS)), "fastxml-ndcg5",
    ),
    "fastxml preset=paper split_loss=precision5": (
        fit(lambda seed: umpteen.FastXML.paper(seed=seed, split_loss="precision5", threads=THREADS)), "fastxml-p5",
    ),
    "mlrf": (fit(lambda seed: MLRF(seed=seed)), "mlrf"),
    "mlrf split=ndcg": (fit(lambda seed: MLRF(seed=seed, split="ndcg")), "mlrf-ndcg"),
    "lpsr": (choose_lpsr, "lpsr"),
    "dismec preset=paper, C chosen": (choose_dismec, "one-vs-all"),
    "ppdsparse preset=paper, λ and τ chosen": (
        fit(lambda seed: umpteen.PPDSparse.paper(lambda_="auto", tau="auto", seed=seed, threads=THREADS)),
        "ppdsparse",
    ),
    "pdsparse preset=paper": (fit(lambda seed: umpteen.PDSparse.paper(seed=seed, threads=THREADS)), "pdsparse"),
    "rxml preset=paper": (fit(lambda seed: umpteen.RXML.paper(seed=seed, threads=THREADS)), "rxml"),
    "rxml": (fit(lambda seed: umpteen.RXML(seed=seed, threads=THREADS)), "rxml"),
}  # fmt: skip


# --- random splits --------------------------------------------------------------------------------------------------


def pool(train: Data, test: Data) -> Data:
    return Data(sp.vstack([train.X, test.X], format="csr"), sp.vstack([train.Y, test.Y], format="csr"))


def part(rows: Data, n_train: int, seed: int) -> tuple[Data, Data]:
    """Rows in random order, the first of them to train on."""
    order = np.random.default_rng(seed).permutation(rows.n_rows)
    return rows.take(np.sort(order[:n_train])), rows.take(np.sort(order[n_train:]))


def run_splits(name: str, methods: Sequence[str], n_splits: int, kept: Path = KEPT) -> None:
    """Takes the figures that are not kept yet: of the set's own split, and of random ones."""
    train, test = read(name)
    rows = pool(train, test)
    for split in ("own", *map(str, range(n_splits))):
        for method in methods:
            found = read_kept(kept)
            taken = found.setdefault("splits", {}).setdefault(name, {}).setdefault(method, {})
            if split in taken:
                continue
            learned, judged = (train, test) if split == "own" else part(rows, train.n_rows, int(split))
            model = METHODS[method][0](learned, 0 if split == "own" else int(split))
            taken[split] = {"P": [round(float(p), 4) for p in precisions(model, judged)], **stamp()}
            write_kept(found, kept)
            print(f"  {name}, {method}, split {split}: {taken[split]['P']}", file=sys.stderr, flush=True)


def stamp() -> dict[str, str]:
    taken = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"taken": taken, "umpteen_version": umpteen.__version__, "machine": describe_machine()}


def read_kept(path: Path = KEPT) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def write_kept(found: dict[str, Any], path: Path = KEPT) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


# --- one label per row ----------------------------------------------------------------------------------------------


def digits() -> tuple[Data, Data]:
    """Pictures of digits, with scikit-learn."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return part(Data(X, np.eye(10)[y]), 1200, 0)


def first_labels(name: str) -> tuple[Data, Data]:
    """A set with only the most frequent label of each row; rows without labels are left out."""
    train, test = read(name)
    counts = train.label_counts()

    def first(data: Data) -> Data:
        rows = np.flatnonzero(np.diff(data.Y.indptr) > 0)
        best = [max(data.Y[row].indices, key=lambda label: (counts[label], -label)) for row in rows]
        Y = sp.csr_matrix((np.ones(len(rows)), (np.arange(len(rows)), best)), (len(rows), train.n_labels))
        return Data(data.X[rows], Y)

    return first(train), first(test)


class CrammerSinger:
    """LIBLINEAR's multiclass support vector machine (-s 4), on rows of unit length."""

    def fit(self, X: Any, Y: Any) -> CrammerSinger:
        from liblinear.liblinearutil import parameter, problem, train

        self.model = train(problem(np.asarray(Y.argmax(axis=1)).ravel(), _unit(X)), parameter("-s 4 -B 1 -q"))
        return self

    def predict_topk(self, X: Any, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        from liblinear.liblinearutil import predict

        labels, _, scores = predict([], _unit(X), self.model, "-q")
        return np.array(labels, np.int32)[:, None], np.max(scores, axis=1)[:, None]


def _unit(X: Any) -> Any:
    return sp.csr_matrix(UNIT.transform(X))


CLASSES: dict[str, Make] = {
    "dismec preset=paper, C chosen": choose_dismec,
    "ppdsparse preset=paper": fit(lambda seed: umpteen.PPDSparse.paper(threads=THREADS)),
    "pdsparse preset=paper": fit(lambda seed: umpteen.PDSparse.paper(threads=THREADS)),
    "pdsparse": fit(lambda seed: umpteen.PDSparse(threads=THREADS)),
    "LIBLINEAR, Crammer-Singer": fit(lambda seed: CrammerSinger()),
}
CLASS_SETS: dict[str, Callable[[], tuple[Data, Data]]] = {
    "digits": digits,
    "StackExchange-Cooking, first label": lambda: first_labels("StackExchange-Cooking"),
    "Debian-Tags, first label": lambda: first_labels("Debian-Tags"),
}


def run_classes(names: Iterable[str], kept: Path = KEPT) -> None:
    for name in names:
        train, test = CLASS_SETS[name]()
        for method, make in CLASSES.items():
            found = read_kept(kept)
            of_set = found.setdefault("classes", {}).setdefault(name, {"rows": [train.n_rows, test.n_rows]})
            if method in of_set:
                continue
            labels = make(train, 0).predict_topk(test.X, 1)[0]
            accuracy = umpteen.evaluate(test.Y, labels, k=1, deciles=False)["P@1"]
            of_set[method] = {"accuracy": round(accuracy, 4), **stamp()}
            of_set["classes"] = int((train.label_counts() > 0).sum())
            write_kept(found, kept)
            print(f"  {name}, {method}: {accuracy:.2f}", file=sys.stderr, flush=True)


# --- the page -------------------------------------------------------------------------------------------------------


def write_page(kept: Path = KEPT, page: Path = PAGE) -> None:
    found = read_kept(kept)
    parts = [
        "# The papers' tables again",
        "`python -m benchmarks papers SET … --splits 10`, `python -m benchmarks papers classes`",
    ]
    for name, methods in found.get("splits", {}).items():
        command = f"`python -m benchmarks papers {name} --splits 10`"
        parts += [f"## {name}", _splits_table(name, methods), describe_stamps(methods), command]
    if "classes" in found:
        parts += ["## One label per row", _classes_table(found["classes"]), describe_stamps(found["classes"])]
        parts += ["`python -m benchmarks papers classes`"]
    page.write_text("\n\n".join(parts) + "\n")


def _splits_table(name: str, methods: dict[str, Any]) -> str:
    rows = []
    for method in (each for each in METHODS if each in methods):
        taken = methods[method]
        splits = [figure["P"] for split, figure in taken.items() if split != "own"]
        rows.append(
            [method, describe_spread(splits), str(len(splits)), _join(taken.get("own", {}).get("P")),
             _in_papers(name, METHODS[method][1])]
        )  # fmt: skip
    header = [
        "method",
        "P@1 / 3 / 5 on random splits",
        "splits",
        "on the set's own split",
        "FastXML's paper, Tables 2 and 7",
    ]
    note = (
        "Mean ± standard deviation over random splits of the pooled rows, as many to train on as in the set's own "
        "split. What is chosen is chosen on held-out training rows."
    )
    return f"{note}\n\n{table(header, rows)}"


def describe_stamps(figures: dict[str, Any]) -> str:
    """On which days and machines figures were taken, whatever they are filed under."""
    todo, days = [figures], set[tuple[str, str]]()
    while todo:
        each = todo.pop()
        if "taken" in each:
            days.add((each["taken"][:10], each["machine"]))
        todo += [inner for inner in each.values() if isinstance(inner, dict)]
    machines = {machine: sorted(day for day, other in days if other == machine) for _, machine in sorted(days)}
    return "<br>".join(f"Taken on {machine}; {', '.join(dates)}." for machine, dates in machines.items())


def describe_spread(splits: Sequence[Sequence[float]]) -> str:
    if not splits:
        return "–"
    columns = list(zip(*splits, strict=True))
    spread = [f" ± {statistics.stdev(each):.2f}" if len(splits) > 1 else "" for each in columns]
    return " / ".join(f"{statistics.fmean(each):.2f}{more}" for each, more in zip(columns, spread, strict=True))


def _join(values: Sequence[float] | None) -> str:
    return " / ".join(f"{value:.2f}" for value in values) if values else "–"


def _in_papers(data: str, method: str) -> str:
    entries = json.loads((ROOT / "benchmarks" / "published.json").read_text())["entries"]
    cells = []
    for entry in entries:
        if entry["kind"] == "paper" and (entry["data"], entry["method"], entry["source"]) == (
            data,
            method,
            "fastxml",
        ):
            figures = zip(entry["P"], entry["deviation"], strict=True)
            cells.append(
                " / ".join(f"{p:.2f} ± {d:.2f}" for p, d in figures)
                + (" (tuned)" if "tuned" in entry["note"] else "")
            )
    return "<br>".join(cells) or "–"


def _classes_table(sets: dict[str, Any]) -> str:
    header = ["data", "training and test rows, classes", *CLASSES]
    rows = [
        [name, "{:,} and {:,}, {:,}".format(*of_set["rows"], of_set["classes"])]
        + [f"{of_set[method]['accuracy']:.2f}" if method in of_set else "–" for method in CLASSES]
        for name, of_set in sets.items()
    ]
    return (
        "Accuracy in percent, as in Table 1 of PD-Sparse's and Table 3 of PPDSparse's paper, whose own sets have run "
        'files: `python -m benchmarks run benchmarks/sector.toml`. A set "first label" has, of each row\'s labels, '
        f"the one with most training rows.\n\n{table(header, rows)}"
    )
