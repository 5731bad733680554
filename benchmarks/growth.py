"""Growing a model: labels added later, and corrections of single texts, beside training from the start.

    python benchmarks/growth.py [cooking | debian | debian-kept | nuclei | eurlex | corrections | corrections-debian]

A tenth of the labels is hidden, with all rows that have one. The model is trained on the others; then the hidden
labels are added with at most 1, 5 or 20 rows each, trained against all old rows again, which a user would not have,
against nothing but the rows given, a sample of rows that the model keeps, or rows made from its weights. "From the
start" trains old and new rows together, old labels too.

Corrections: a model of half of a corpus learns the other half text by text, all labels of a text at a time; or as a
person would judge what the model suggests: suggestions accepted or rejected, and labels added that were missing.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from common import data_root, join, read, run_parts, table

import umpteen
from umpteen.data.corrections import Correction
from umpteen.data.propensity import count_labels, propensities

ROWS, KEPT, KS = (1, 5, 20), 1000, (1, 3, 5)
SOURCES = {"the rows only": "rows", f"{KEPT:,} rows kept": "kept", "weights": "weights", "kept and weights": "auto"}
#: Of EURLex-4K, a slice: so many training and test rows.
SLICE = 6000, 2000
STREAM = (0, 500, 1000, 2000)


class Split(NamedTuple):
    """A set with its hidden labels last; texts, or rows of numbers."""

    X: Any
    Y: Any
    test_X: Any
    test_Y: Any
    n_old: int

    def take(self, rows) -> tuple[Any, Any]:
        X = [self.X[i] for i in rows] if isinstance(self.X, list) else self.X[rows]
        return X, self.Y[rows]


def open_set(name: str) -> Split:
    """The set with a tenth of its labels hidden, drawn from those with at least two training and one test row, and
    those that no other row has."""
    train, test = read(name)
    X, test_X, Y, test_Y = train.X, test.X, train.Y, test.Y
    if name == "EURLex-4K":
        X, Y, test_X, test_Y = X[: SLICE[0]], Y[: SLICE[0]], test_X[: SLICE[1]], test_Y[: SLICE[1]]
    else:
        X, test_X = (list(umpteen.read_corpus(data_root() / name / f"{part}.jsonl.xz").texts)
                     for part in ("train", "test"))  # fmt: skip
    counts, test_counts = (np.asarray(matrix.sum(axis=0)).ravel() for matrix in (Y, test_Y))
    used = np.flatnonzero(counts)
    candidates = used[(counts[used] >= 2) & (test_counts[used] > 0)]
    hidden = np.random.default_rng(0).choice(candidates, min(len(used) // 10, len(candidates)), replace=False)
    left = Y[np.asarray(Y[:, hidden].sum(axis=1)).ravel() == 0]
    hidden = np.union1d(hidden, used[np.asarray(left.sum(axis=0)).ravel()[used] == 0])  # never seen without one
    order = np.concatenate([np.setdiff1d(used, hidden), hidden])
    return Split(X, sp.csr_matrix(Y[:, order]), test_X, sp.csr_matrix(test_Y[:, order]), len(used) - len(hidden))


def study(name: str, kept: int = KEPT, sources: dict[str, str] = SOURCES) -> str:
    split = open_set(name)
    n_old, n_labels = split.n_old, split.Y.shape[1]
    hidden_rows = np.diff(split.Y[:, n_old:].indptr) > 0
    X, Y = split.take(np.flatnonzero(~hidden_rows))
    base = fit(X, Y[:, :n_old], kept)
    plain = np.diff(split.test_Y[:, n_old:].indptr) == 0
    every_row, first = np.ones(len(plain), bool), rank(base, split)
    before = precision(first, split, plain)
    rows = []
    for n in ROWS:
        chosen = choose_rows(split, n)
        new_X, new_Y = split.take(chosen)
        together = fit(together_rows(X, new_X), sp.vstack([Y, new_Y], format="csr"))
        start = rank(together, split)
        want, fall = psp(start, split), before - precision(start, split, plain)
        whole, alone = join(precision(start, split, every_row)), fall_alone(together, split, before, plain)
        rows.append([str(n), "from the start", join(fall), "", alone, whole, f"{want:.2f}", ""])
        show(rows[-1])
        every = together_rows(X, new_X), sp.vstack([Y, new_Y], format="csr")
        for title, negatives in {"all old rows": None, **sources}.items():
            given = every if negatives is None else (new_X, new_Y)
            model = grow(base, *given, n_old, negatives or "rows")
            grown, alone = rank(model, split), fall_alone(model, split, before, plain)
            lost, got = before - precision(grown, split, plain), psp(grown, split)
            fall = lost if negatives is None else fall
            more = "" if negatives is None else join(lost - fall)
            whole = join(precision(grown, split, every_row))
            rows.append([str(n), title, join(lost), more, alone, whole, f"{got:.2f}", f"{100 * got / want:.0f} %"])
            show(rows[-1])
    header = ["rows a label", "trained against", "old labels' P@1 / 3 / 5 fall by", "more than against all",
              "among old labels only",
              "P@1 / 3 / 5, all labels and rows", "new labels' PSP@5", "of that from the start"]  # fmt: skip
    return (
        f"{n_old:,} labels and {len(Y.indptr) - 1:,} rows; {n_labels - n_old:,} labels are added. Old labels are "
        f"measured on the {plain.sum():,} test rows without an added one, where P@1 / 3 / 5 was {join(before)}; new "
        f"ones on the {(~plain).sum():,} others. Among old labels only, a fall is one that new words cause. On "
        f"all test rows P@1 / 3 / 5 was {join(precision(first, split, every_row))}; added labels were missed there."
        f"\n\n{table(header, rows)}"
    )


def together_rows(X, more):
    return X + more if isinstance(X, list) else sp.vstack([X, more], format="csr")


def fit(X, Y, kept: int = 0):
    names = [f"l{i:05d}" for i in range(Y.shape[1])]
    if isinstance(X, list):
        return umpteen.Tagger(umpteen.DiSMEC(threads=2), calibration=0, keep_rows=kept).fit(X, to_names(Y, names))
    return umpteen.DiSMEC(threads=2).fit(X, Y, label_names=names, keep_rows=kept)


def grow(base, X, Y, n_old: int, negatives: str):
    """A copy of the base model with the new labels."""
    names = [f"l{i:05d}" for i in range(Y.shape[1])]
    if isinstance(X, list):
        return umpteen.Tagger.from_model(base.fitted()).add_labels(X, to_names(Y, names), negatives=negatives)
    method = umpteen.DiSMEC.from_model(base).set_params(threads=2)
    return method.add_labels(X, Y[:, n_old:], names[n_old:], negatives=negatives)


def to_names(Y, names: list[str]) -> list[list[str]]:
    return [[names[label] for label in row] for row in np.split(Y.indices, Y.indptr[1:-1])]


def choose_rows(split: Split, n: int) -> np.ndarray:
    """At most n rows of each hidden label."""
    rng, by_label = np.random.default_rng(1), split.Y.tocsc()
    chosen: set[int] = set()
    for label in range(split.n_old, split.Y.shape[1]):
        own = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
        chosen.update(rng.choice(own, min(n, len(own)), replace=False).tolist())
    return np.array(sorted(chosen))


def rank(model, split: Split, old_only: bool = False) -> np.ndarray:
    """The five best labels of each test row, by their ids in the split."""
    if not isinstance(model, umpteen.Tagger):
        return model.predict_topk(split.test_X, 5, include=range(split.n_old) if old_only else None)[0]
    ids = np.array([int(name[1:]) for name in model.classes_])
    include = np.flatnonzero(ids < split.n_old) if old_only else None
    labels = model.fitted().predict_topk(model.vectorize(split.test_X).X, 5, include=include)[0]
    return np.where(labels >= 0, ids[labels], -1)


def fall_alone(model, split: Split, before: np.ndarray, plain: np.ndarray) -> str:
    """How far P@1, 3 and 5 of old labels fall if only they are ranked."""
    return join(before - precision(rank(model, split, old_only=True), split, plain))


def precision(ranked: np.ndarray, split: Split, rows: np.ndarray) -> np.ndarray:
    """P@1, 3 and 5 of all labels on some test rows."""
    metrics = umpteen.evaluate(split.test_Y[rows], ranked[rows], deciles=False)
    return np.array([metrics[f"P@{k}"] for k in KS])


def psp(ranked: np.ndarray, split: Split) -> float:
    """PSP@5 of the hidden labels, among all labels, on the test rows that have one."""
    weight = 1 / propensities(count_labels(split.Y, "Y"))
    weight[: split.n_old] = 0
    rows = np.flatnonzero(np.diff(split.test_Y[:, split.n_old :].indptr))
    got = best = 0.0
    for row in rows:
        own = split.test_Y.indices[split.test_Y.indptr[row] : split.test_Y.indptr[row + 1]]
        got += weight[np.intersect1d(own, ranked[row])].sum()
        best += np.sort(weight[own])[::-1][:5].sum()
    return 100 * got / best


def judge(tagger: umpteen.Tagger, texts: list[str], labels: list[list[str]]) -> list[Correction]:
    """What a person says of the five best suggestions: which are right, which wrong, and which labels are missing."""
    found = [[name for name, _ in row] for row in tagger.suggest(texts, 5)]
    return [
        Correction(
            text,
            [name for name in suggested if name in own] + [name for name in own if name not in suggested],
            [name for name in suggested if name not in own],
            False,
        )
        for text, own, suggested in zip(texts, labels, found, strict=True)
    ]


def corrections(name: str, judged: bool = False) -> str:
    train, test = (umpteen.read_corpus(data_root() / name / f"{part}.jsonl.xz") for part in ("train", "test"))
    order = np.random.default_rng(0).permutation(len(train))
    half = len(order) // 2
    texts, labels = [train.texts[i] for i in order], [train.labels[i] for i in order]
    make = partial(umpteen.Tagger, umpteen.DiSMEC(threads=2), calibration=0)
    tagger, seconds, n_wrong, rows = make().fit(texts[:half], labels[:half]), 0.0, 0, []

    def score(model) -> np.ndarray:
        metrics = model.evaluate(test.texts, test.labels, deciles=False)
        return np.array([metrics[f"P@{k}"] for k in KS])

    for begin, end in zip((0, *STREAM), STREAM, strict=False):
        if end:
            some = range(half + begin, half + end)
            if judged:
                said = judge(tagger, [texts[i] for i in some], [labels[i] for i in some])
            else:
                said = [Correction(texts[i], labels[i], (), True) for i in some]
            n_wrong += sum(len(each.wrong) for each in said)
            started = time.process_time()
            tagger.learn_from(said)
            seconds += time.process_time() - started
        again = make().fit(texts[: half + end], labels[: half + end])
        each = f"{1000 * seconds / end:.1f} ms" if end else ""
        rows.append([f"{end:,}", join(score(tagger)), join(score(again)), each])
        show(rows[-1])
    rows.append(["all", "", join(score(make().fit(texts, labels))), ""])
    one = []
    for i in range(half + STREAM[-1], half + STREAM[-1] + 20):
        started = time.process_time()
        tagger.learn(texts[i], labels[i])
        one.append(time.process_time() - started)
    header = ["corrections", "learnt: P@1 / 3 / 5", "trained again: P@1 / 3 / 5", "processor time each"]
    how = (
        f"A correction says which of the five best suggestions are right and which are wrong, {n_wrong:,} in all, "
        "and names the labels that are missing; nothing is said of others. "
        if judged
        else ""
    )
    return (
        f"{half:,} texts are trained on; corrections come from the other half. {how}A single one after "
        f"{STREAM[-1]:,}, with a model that can be used at once, takes {1000 * np.median(one):.0f} ms of processor "
        f"time: labels are stored in blocks, and those that changed are packed again.\n\n{table(header, rows)}"
    )


def show(row: list[str]) -> None:
    print("  " + " | ".join(row), file=sys.stderr, flush=True)


PARTS = {
    "cooking": ("Labels added to StackExchange-Cooking", partial(study, "StackExchange-Cooking")),
    "debian": ("Labels added to Debian-Tags", partial(study, "Debian-Tags")),
    "debian-kept": (
        "Labels added to Debian-Tags, 4,000 rows kept",
        partial(study, "Debian-Tags", 4000, {"kept and weights": "auto"}),
    ),
    "nuclei": ("Labels added to Nuclei-Tags", partial(study, "Nuclei-Tags")),
    "eurlex": ("Labels added to a slice of EURLex-4K", partial(study, "EURLex-4K")),
    "corrections": ("Corrections of StackExchange-Cooking", partial(corrections, "StackExchange-Cooking")),
    "corrections-debian": (
        "Corrections of Debian-Tags, with suggestions accepted and rejected",
        partial(corrections, "Debian-Tags", judged=True),
    ),
}

if __name__ == "__main__":
    run_parts("growth", "Growing a model", PARTS)
