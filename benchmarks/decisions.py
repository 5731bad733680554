"""Probabilities and decisions: how far they hold, from 50 texts on.

    python benchmarks/decisions.py [probabilities | chance | decisions]

probabilities: taggers of a few training texts, judged on other training texts, never on test rows. Cross-fitted by
five folds, beside a tenth held out. Calibration error of the five best labels and of all above 0.05, and log loss of
the fifty best; means over some draws. Every second text is left out: the others chose how probabilities are learned.

chance: the same for 50 texts, but probabilities are learned from 50 texts that the model has never seen: what so few
texts leave to chance, however probabilities are learned.

decisions: micro F1 of the labels given to test rows: by a model without calibration, by one with it, five for every
row, and scikit-learn's one-vs-rest.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from common import data_root, run_parts, table
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import umpteen
from umpteen.data.label_lists import encode_labels, to_label_matrix
from umpteen.evaluation.metrics import find_hits

SETS = ("StackExchange-Cooking", "Debian-Tags", "Nuclei-Tags", "Tate-Subjects")
SIZES = {50: 12, 200: 4, 1000: 2}  # texts -> draws
OTHERS = 1500
WAYS: dict[str, Any] = {"a tenth held out": 0.1, "five folds": 5}
TOP_K = 50


def error(probability: Any, hit: Any, bins: int = 15) -> float:
    """Expected calibration error over groups of equal size."""
    groups = np.array_split(np.argsort(probability, kind="stable"), bins)
    gaps = [len(group) * abs(probability[group].mean() - hit[group].mean()) for group in groups if len(group)]
    return float(sum(gaps) / max(len(probability), 1))


def log_loss(probability: Any, hit: Any) -> float:
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    return float(-(hit * np.log(p) + (1 - hit) * np.log(1 - p)).mean())


def judge(corpus: Any, n_texts: int, seed: int, calibration: Any, n_unseen: int = 0) -> tuple[float, float, float]:
    """Errors and log loss of a draw; probabilities are learned by `calibration`, or from other texts."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(np.arange(1, len(corpus.texts), 2))
    few, unseen, others = np.split(drawn[: n_texts + n_unseen + OTHERS], [n_texts, n_texts + n_unseen])
    tagger = umpteen.Tagger(umpteen.DiSMEC(threads=2), calibration=calibration)
    tagger.fit([corpus.texts[i] for i in few], [corpus.labels[i] for i in few])
    model = tagger.fitted()
    if n_unseen:
        model = model.calibrate(*to_rows(tagger, corpus, unseen))
    X, Y = to_rows(tagger, corpus, others)
    labels, scores = model.predict_topk(X, min(TOP_K, model.n_labels))
    given, hit = labels >= 0, find_hits(Y, labels).astype(float)
    p = model.to_unit(scores)
    five, likely = given & (np.arange(labels.shape[1]) < 5), given & (p > 0.05)
    return error(p[five], hit[five]), error(p[likely], hit[likely]), log_loss(p[given], hit[given])


def to_rows(tagger: umpteen.Tagger, corpus: Any, chosen: Any) -> tuple[Any, Any]:
    """Texts as rows, and those of their labels that the tagger has."""
    ids = tagger.fitted().ids_by_name
    Y = to_label_matrix([[ids[name] for name in corpus.labels[i] if name in ids] for i in chosen], len(ids))
    return tagger.vectorize([corpus.texts[i] for i in chosen]).X, Y


def probabilities() -> str:
    rows = []
    for name in SETS:
        corpus = umpteen.read_corpus(data_root() / name / "train.jsonl.xz")
        for n_texts, draws in SIZES.items():
            for way, calibration in WAYS.items():
                found = np.mean([judge(corpus, n_texts, seed, calibration) for seed in range(draws)], axis=0)
                rows.append([name, f"{n_texts:,}", way, *(f"{value:.4f}" for value in found)])
    return table(["set", "texts", "calibration", "error, five best", "error, above 0.05", "log loss"], rows)


def chance(n_texts: int = 50) -> str:
    rows = []
    for name in SETS:
        corpus = umpteen.read_corpus(data_root() / name / "train.jsonl.xz")
        found = np.mean([judge(corpus, n_texts, seed, 0, n_texts) for seed in range(4 * SIZES[n_texts])], axis=0)
        rows.append([name, f"{n_texts:,}", *(f"{value:.4f}" for value in found)])
    return table(["set", "texts", "error, five best", "error, above 0.05", "log loss"], rows)


def decisions(n_texts: int = 6000) -> str:
    rows = []
    for name in SETS[:3]:
        train, test = (umpteen.read_corpus(data_root() / name / f"{part}.jsonl.xz") for part in ("train", "test"))
        features = umpteen.Tfidf(sublinear_tf=True)
        X = features.fit_transform(train.texts[:n_texts])
        names, Y = encode_labels(train.labels[:n_texts])
        ids = {label: i for i, label in enumerate(names)}
        tX = features.transform(test.texts)
        tY = to_label_matrix([[ids[label] for label in row if label in ids] for row in test.labels], len(ids))
        f1 = partial(f1_score, tY, average="micro", zero_division=0)
        svm = OneVsRestClassifier(LinearSVC()).fit(X, Y.astype(int))
        plain, calibrated = umpteen.DiSMEC().fit(X, Y), umpteen.DiSMEC().fit(X, Y, calibration=5)
        given = svm.predict(tX), plain.predict(tX), calibrated.predict(tX), calibrated.predict(tX, 5)
        rows.append([name, *(f"{100 * f1(labels):.1f}" for labels in given)])
    return table(["set", "OneVsRest(LinearSVC)", "DiSMEC", "DiSMEC, calibrated", "five for every row"], rows)


PARTS = {
    "probabilities": ("Probabilities of few texts", probabilities),
    "chance": ("Probabilities of 50 texts, learned from 50 others", chance),
    "decisions": ("Micro F1 of the labels given, 6,000 training texts", decisions),
}

if __name__ == "__main__":
    run_parts("decisions", "Probabilities and decisions", PARTS)
