"""Probabilities and decisions: how far they hold, from 50 texts on.

    python benchmarks/decisions.py [probabilities | first | full | chance | decisions]

probabilities: taggers of a few training texts, judged on other training texts, never on test rows. Cross-fitted by
five folds, beside a tenth held out. Calibration error of the five best labels and of all above 0.05, and log loss of
the fifty best; means over some draws. Every second text is left out: the others chose how probabilities are learned.

first: the same models and rows, and the defaults of today against the first version: an isotonic curve alone, from a
tenth of the rows, whose texts kept words that no other text has.

full: the same on all training texts, judged on the test texts.

chance: as probabilities for 50 texts, but they are learned from 50 texts that the model has never seen: what so few
texts leave to chance, however probabilities are learned.

decisions: micro F1 of the labels given to test rows: by a model without calibration, by one with it, five for every
row, and scikit-learn's one-vs-rest.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from common import RESULTS, data_root, run_parts, table
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import umpteen
from umpteen.data.label_lists import encode_labels, to_label_matrix
from umpteen.data.split import split_rows
from umpteen.evaluation.calibration import reliability
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
    few, unseen, others = draw(corpus, n_texts, n_unseen, seed)
    tagger = train(corpus, few, calibration)
    model = tagger.fitted()
    if n_unseen:
        model = model.calibrate(*to_rows(tagger, corpus, unseen))
    labels, scores, hit = rank(model, *to_rows(tagger, corpus, others))
    return measure(model.to_unit(scores), labels >= 0, hit)


def draw(corpus: Any, n_texts: int, n_unseen: int, seed: int) -> Any:
    """Texts to train on, more to learn probabilities from, and others to judge by."""
    drawn = np.random.default_rng(seed).permutation(np.arange(1, len(corpus.texts), 2))
    return np.split(drawn[: n_texts + n_unseen + OTHERS], [n_texts, n_texts + n_unseen])


def train(corpus: Any, chosen: Any, calibration: Any) -> umpteen.Tagger:
    tagger = umpteen.Tagger(umpteen.DiSMEC(threads=2), calibration=calibration)
    return tagger.fit([corpus.texts[i] for i in chosen], [corpus.labels[i] for i in chosen])


def rank(model: Any, X: Any, Y: Any) -> tuple[Any, Any, Any]:
    """Labels, scores, and which are right."""
    labels, scores = model.predict_topk(X, min(TOP_K, model.n_labels))
    return labels, scores, find_hits(Y, labels).astype(float)


def measure(p: Any, given: Any, hit: Any) -> tuple[float, float, float]:
    """The two errors and the log loss."""
    five, likely = given & (np.arange(p.shape[1]) < 5), given & (p > 0.05)
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


def fit_first(X: Any, Y: Any, groups: int = 500, per_group: int = 20) -> Any:
    """Scores to probabilities as the first version learned them: means of groups of similar scores, pooled until they
    rise, with straight lines between."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fewer rows than a tenth
        held_out = split_rows(Y, 0.1)
    model = umpteen.DiSMEC(threads=2).fit(X[~held_out], Y[~held_out]).fitted()
    labels, scores, hits = rank(model, X[held_out], Y[held_out])
    order = np.argsort(scores[labels >= 0], kind="stable")
    score, hit = scores[labels >= 0][order].astype(np.float64), hits[labels >= 0][order]
    edges = np.linspace(0, len(score), max(1, min(groups, len(score) // per_group)) + 1).astype(int)[1:-1]
    edges = np.unique(np.searchsorted(score, score[edges]))  # equal scores stay together
    starts = np.concatenate([[0], edges[edges > 0]])
    sizes = np.diff(np.append(starts, len(score)))
    middle, share = np.add.reduceat(score, starts) / sizes, np.add.reduceat(hit, starts) / sizes
    pooled = IsotonicRegression().fit_transform(middle, share, sample_weight=sizes)
    blocks = np.flatnonzero(np.append(True, np.diff(pooled) > 1e-12))
    knots = np.add.reduceat(middle * sizes, blocks) / np.add.reduceat(sizes, blocks)
    least = 0.5 / (len(score) + 1)
    return partial(np.interp, xp=knots, fp=np.clip(pooled[blocks], least, 1 - least))


def against_first(corpus: Any, few: Any, judged: Any, others: Any) -> tuple[Any, Any, Any]:
    """Two rows of errors and log loss, the first version's and today's; and each one's probabilities, and hits, of
    the five best labels."""
    tagger = train(corpus, few, "auto")
    labels, scores, hit = rank(tagger.fitted(), *to_rows(tagger, judged, others))
    given = labels >= 0
    both = [fit_first(*to_rows(tagger, corpus, few))(scores), tagger.fitted().to_unit(scores)]
    five = given & (np.arange(labels.shape[1]) < 5)
    return np.array([measure(p, given, hit) for p in both]), [p[five] for p in both], hit[five]


#: Columns of `against_first`.
PAIRS = [f"{what}, {which}" for what in ("five best", "above 0.05", "log loss") for which in ("first", "today")]


def first() -> str:
    rows = []
    for name in SETS:
        corpus = umpteen.read_corpus(data_root() / name / "train.jsonl.xz")
        for n_texts, draws in SIZES.items():
            found = []
            for seed in range(draws):
                few, _, others = draw(corpus, n_texts, 0, seed)
                found.append(against_first(corpus, few, corpus, others)[0])
            rows.append([name, f"{n_texts:,}", *(f"{value:.4f}" for value in np.mean(found, axis=0).T.ravel())])
    return table(["set", "texts", *PAIRS], rows)


def full() -> str:
    rows, drawings = [], []
    for name in SETS:
        corpus, test = (umpteen.read_corpus(data_root() / name / f"{part}.jsonl.xz") for part in ("train", "test"))
        every = range(len(corpus.texts))
        found, both, hit = against_first(corpus, every, test, range(len(test.texts)))
        rows.append([name, f"{len(every):,}", *(f"{value:.4f}" for value in found.T.ravel())])
        for which, p in zip(("first", "today"), both, strict=True):
            file = f"reliability_{name.lower()}_{which}.svg"
            (RESULTS / file).write_text(reliability(p, hit).to_svg().replace("currentColor", "#777") + "\n")
            drawings.append(f"![{name}, {which}]({file})")
    return (
        f"{table(['set', 'texts', *PAIRS], rows)}\n\nThe test texts of Tate-Subjects come from other sketchbooks "
        "than its training texts, and those of Debian-Tags from other source packages: a shift that no held-out "
        "training text shows.\n\nReliability of the five best labels, of the first version and today: "
        + " ".join(drawings)
    )


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
    "first": ("Few texts: the first version's probabilities against today's", first),
    "full": ("All training texts: the first version's probabilities against today's", full),
    "chance": ("Probabilities of 50 texts, learned from 50 others", chance),
    "decisions": ("Micro F1 of the labels given, 6,000 training texts", decisions),
}

if __name__ == "__main__":
    run_parts("decisions", "Probabilities and decisions", PARTS)
