"""What a comparison shows beyond the figures: the label tail, weights and pruning, trees, probabilities, mistakes.

Each study is a function of a contest and a trained model or its predictions, and gives plain values for the report.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.comparing.running import Contest, read_predictions, run_place
from umpteen.evaluation.calibration import Reliability, reliability
from umpteen.evaluation.metrics import KS, evaluate, find_hits
from umpteen.methods import method_of
from umpteen.methods.held_out import calibrate_held_out, draw_held_out
from umpteen.models.calibration import Calibration
from umpteen.models.forest import ForestModel
from umpteen.models.linear import LinearModel
from umpteen.trained.loading import load_model
from umpteen.trained.model import TrainedModel

#: Shares of a linear model's weights to keep.
KEPT = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.03, 0.02, 0.01)
_MOST_WEIGHTS = 100_000_000  # pruning more would take longer than the training that is compared
_TREES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200)
_FEWEST_ROWS = 5  # that a label must have to be listed as badly learned
_N_WORST, _N_CONFUSIONS = 12, 10
_TEXT_SHOWN = 240

Pair = tuple[int, int]


def study(contest: Contest, result: dict[str, Any], output: Path, *, calibrate: bool = False) -> None:
    """Adds the studies to a result: those of the data, and those of each umpteen model to its run."""
    result["label_frequencies"] = fit_power_law(contest.train.label_counts())
    done = [run for run in result["runs"] if run["status"] == "done"]
    for run in done:
        if run["peer"]:
            continue
        model = load_model(run_place(output, run["name"]) / "model").with_threads(result["threads"])
        found = look_into(model, contest)
        if calibrate:
            found |= compare_reliability(model, contest, *read_predictions(run_place(output, run["name"])))
        run["studies"] = found
    if done:
        best = max(done, key=lambda run: run["metrics"]["P@1"])
        labels, _ = read_predictions(run_place(output, best["name"]))
        result["mistakes"] = {"run": best["name"], **find_mistakes(contest, labels)}


def fit_power_law(counts: NDArray[np.int64]) -> dict[str, Any]:
    """N_r = N_1 r^-β (DiSMEC, Fig 1): β by least squares over ranks that are evenly spaced on a log scale, so that
    the tail, where most labels are, does not decide alone."""
    ordered = -np.sort(-counts[counts > 0])
    ranks = np.unique(np.geomspace(1, len(ordered), 80).round().astype(int))
    found = ordered[ranks - 1]
    if len(ranks) < 2:
        return {"ranks": ranks.tolist(), "counts": found.tolist(), "beta": None, "first": None}
    slope, start = np.polyfit(np.log(ranks), np.log(found), 1)
    return {
        "ranks": ranks.tolist(),
        "counts": found.tolist(),
        "beta": float(-slope),
        "first": float(np.exp(start)),
    }


def look_into(model: TrainedModel, contest: Contest) -> dict[str, Any]:
    """The studies that a model's scorer allows."""
    scorer = model.scorer
    if isinstance(scorer, LinearModel) and scorer.nnz <= _MOST_WEIGHTS:
        return {"weights": weigh(scorer), "pruning": prune(model, scorer, contest)}
    if isinstance(scorer, ForestModel):
        return {"trees": fell(model, scorer, contest)}
    return {}


def weigh(scorer: LinearModel) -> dict[str, Any]:
    """A histogram of the weights' absolute values (DiSMEC, Fig 2), with ten bins per power of ten."""
    edges = np.round(np.arange(-60, 31) / 10, 1)
    counts = np.zeros(len(edges) - 1, np.int64)
    for shard in scorer.shards:
        sizes = np.abs(shard.to_weights()[0].data)
        counts += np.histogram(np.log10(sizes[sizes > 0]), edges)[0]
    used = np.flatnonzero(counts)
    if len(used) == 0:
        return {"edges": [], "counts": []}
    first, last = int(used[0]), int(used[-1]) + 1
    return {"edges": (10.0 ** edges[first : last + 1]).tolist(), "counts": counts[first:last].tolist()}


def prune(model: TrainedModel, scorer: LinearModel, contest: Contest) -> list[dict[str, float]]:
    """Size against accuracy (DiSMEC, Fig 5): the smallest weights dropped, share by share."""
    sizes = np.concatenate([np.abs(shard.to_weights()[0].data) for shard in scorer.shards])
    curve = []
    for share in KEPT:
        delta = 0.0 if share == 1 else float(np.quantile(sizes, 1 - share))
        smaller = model if share == 1 else model.pruned(delta)
        n_bytes = sum(part.n_bytes for part in smaller.scorer.to_parts())
        scores = _score(contest, smaller.predict_topk(contest.test_X, max(KS))[0])
        curve.append({"delta": delta, "weights": smaller.scorer.describe()["weights"], "bytes": n_bytes, **scores})
    return curve


def fell(model: TrainedModel, whole: ForestModel, contest: Contest) -> list[dict[str, float]]:
    """Accuracy against the number of trees (FastXML, Fig 1), in the order they were planted."""
    numbers = sorted({n for n in _TREES if n < len(whole.trees)} | {len(whole.trees)})
    X = model.preprocessing.transform(contest.test_X)
    curve = []
    for n in numbers:
        part = ForestModel(whole.trees[:n], whole.n_features, whole.n_labels, whole.centroids)
        curve.append({"trees": n, **_score(contest, part.predict_topk(X, max(KS))[0])})
    return curve


def _score(contest: Contest, labels: NDArray[np.int32]) -> dict[str, float]:
    metrics = evaluate(contest.test_Y, labels, contest.train_counts(), k=KS, deciles=False, **contest.constants)
    return {key: metrics[key] for key in ("P@1", "P@3", "P@5", "PSP@5")}


def compare_reliability(
    model: TrainedModel, contest: Contest, labels: NDArray[np.int32], scores: NDArray[np.float32]
) -> dict[str, Any]:
    """The reliability of raw scores and of probabilities, which are learned as ``fit(calibration=0.1)`` learns them:
    from a tenth of the training rows and a second model, trained without them. Empty if no rows can be spared."""
    X, Y = contest.train.X, contest.train.Y
    learned = calibrate_held_out(method_of(model), X, Y, draw_held_out(Y, 0.1, seed=0))
    if learned is None:
        return {}
    given = labels >= 0
    hits = find_hits(contest.test_Y, labels)[given]
    before, after = model.scorer.to_unit(scores), Calibration.from_part(learned).to_probabilities(scores)
    judged = {"before": before, "after": after}
    return {"calibration": {name: _plain(reliability(values[given], hits)) for name, values in judged.items()}}


def _plain(found: Reliability) -> dict[str, Any]:
    return {
        "predicted": found.predicted.tolist(),
        "true": found.true.tolist(),
        "count": found.count.tolist(),
        "error": found.error,
    }


def find_mistakes(contest: Contest, labels: NDArray[np.int32]) -> dict[str, Any]:
    """The labels that are missed most, and which others are given in their place."""
    names = _names(contest)
    hits = find_hits(contest.test_Y, labels)
    n_labels = int(contest.test_Y.shape[1])
    n_true = np.bincount(contest.test_Y.indices, minlength=n_labels)
    n_found = np.bincount(labels[hits], minlength=n_labels)
    n_given = np.bincount(labels[labels >= 0], minlength=n_labels)
    train_counts = contest.train_counts().counts
    recall = n_found / np.maximum(n_true, 1)
    known = np.flatnonzero((n_true >= _FEWEST_ROWS) & (train_counts > 0))
    worst = known[np.lexsort((-n_true[known], recall[known]))][:_N_WORST]
    confused, examples = _count_confusions(contest, labels, hits)
    given_for: dict[int, list[int]] = {}
    for (missed, given), _ in confused.most_common():
        given_for.setdefault(missed, []).append(given)
    return {
        "worst": [
            {
                "label": names[label],
                "train_rows": int(train_counts[label]),
                "test_rows": int(n_true[label]),
                "found": int(n_found[label]),
                "wrongly_given": int(n_given[label] - n_found[label]),
                "given_instead": [names[other] for other in given_for.get(int(label), [])[:3]],
            }
            for label in worst
        ],
        "confusions": [
            {
                "missed": names[missed],
                "given": names[given],
                "rows": confused[missed, given],
                "example": _describe_row(contest, labels, hits, examples[missed, given], names),
            }
            for missed, given in _most_surprising(confused)
        ],
    }


def _names(contest: Contest) -> list[str]:
    if contest.label_names is None:
        return [f"label {i}" for i in range(contest.test_Y.shape[1])]
    return list(contest.label_names)


def _count_confusions(
    contest: Contest, labels: NDArray[np.int32], hits: NDArray[np.bool_]
) -> tuple[Counter[Pair], dict[Pair, int]]:
    """Pairs of a missed label and one given instead: how often each occurs, and its first row.

    Of a row with n labels, the n best predictions count as given; labels not among the five best count as missed.
    """
    Y = contest.test_Y
    found: Counter[Pair] = Counter()
    first: dict[Pair, int] = {}
    for row in range(Y.shape[0]):
        true = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        cut = min(len(true), labels.shape[1])
        wrong = labels[row, :cut][~hits[row, :cut] & (labels[row, :cut] >= 0)].tolist()
        for pair in itertools.product(np.setdiff1d(true, labels[row]).tolist(), wrong):
            found[pair] += 1
            first.setdefault(pair, row)
    return found, first


def _most_surprising(confused: Counter[Pair]) -> list[Pair]:
    """The pairs that stand out: frequent, and more frequent than chance would make them."""
    by_missed: Counter[int] = Counter()
    by_given: Counter[int] = Counter()
    for (missed, given), count in confused.items():
        by_missed[missed] += count
        by_given[given] += count
    total = sum(confused.values())

    def surprise(pair: Pair) -> float:
        expected = by_missed[pair[0]] * by_given[pair[1]] / total
        return confused[pair] * float(np.log(confused[pair] / expected))

    return sorted(confused, key=lambda pair: (-surprise(pair), pair))[:_N_CONFUSIONS]


def _describe_row(
    contest: Contest, labels: NDArray[np.int32], hits: NDArray[np.bool_], row: int, names: list[str]
) -> dict[str, Any]:
    true = contest.test_Y.indices[contest.test_Y.indptr[row] : contest.test_Y.indptr[row + 1]]
    described: dict[str, Any] = {
        "row": row,
        "true": [names[label] for label in true],
        "given": [
            {"label": names[label], "right": bool(hit)}
            for label, hit in zip(labels[row], hits[row], strict=True)
            if label >= 0
        ],
    }
    if contest.test_texts is not None:
        text = " ".join(contest.test_texts[row].split())
        described["text"] = text if len(text) <= _TEXT_SHOWN else text[:_TEXT_SHOWN].rsplit(" ", 1)[0] + " …"
    return described
