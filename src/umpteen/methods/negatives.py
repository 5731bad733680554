"""What new labels are trained against, so that their scores are on the scale of the old labels' scores.

A label alone with its own few rows gives every row a high score. It needs rows that lack it, about as many as the old
labels had. Those are, in this order:

rows given   All of them, for each label they lack.
rows kept    The model's own sample of its training rows, where it has one.
weights      Where there are fewer than the model was trained on, rows made from what the model knows:
             *documents*, whose features are drawn as often as they occurred in training (their idf says so) and, in
             part, from the positive weights of an old label, drawn by its rows; and *label rows*, the positive
             weights of an old label scaled to unit length, which are the hardest negatives.

Rows given are enough where they are as many as those of training and a tenth of that lacks every new label: then they
are, or could be, the rows of training. Rows that all have some new label do not show what the others look like.

Fewer negatives than training rows count more often each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, as_csr, make_csr
from umpteen.methods.kept_rows import KeptRows
from umpteen.methods.training_data import TrainingData
from umpteen.models.linear import LinearModel
from umpteen.trained.model import TrainedModel

KINDS = ("auto", "rows", "kept", "weights")

#: At most so many documents, and label rows of the most frequent labels.
MOST_DOCUMENTS, MOST_LABEL_ROWS = 10_000, 2000
#: The part of a document's features that comes from an old label.
_TOPICAL = 0.3
#: How many times a made row counts as a real one; found on held-out training rows.
_MADE_WEIGHT = 3.0
#: Denser rows than this have no features that a document could have or lack.
_DENSE = 0.25


class Background(NamedTuple):
    """How often features occur in rows, and their value where they do, before the model's own preprocessing."""

    share: NDArray[np.float64]  # of the rows
    value: NDArray[np.float64]
    unit_length: bool  # whether rows have it


class Negatives(NamedTuple):
    """Rows without any new label, preprocessed, and how many times each negative counts."""

    X: Csr
    weight: float


def gather_negatives(
    model: TrainedModel, X: Csr, Y: Csr, kind: str, background: Background | None, kept: KeptRows | None
) -> Negatives:
    """The negatives to train new labels against, beside the rows given.

    Parameters
    ----------
    X, Y
        The rows given, as for `fit`, and their new labels.
    kind
        One of `KINDS`; "auto" takes rows given, rows kept and then weights, until there are enough.
    background
        What is known of the features; None takes it from the idf of the model's preprocessing, or, without one,
        from the rows given and the old labels' weights.
    kept
        The model's training rows, or some of them; None if it keeps none.
    """
    n_train, n_given = model.train_counts.n_rows, X.shape[0]
    n_plain = int((np.diff(Y.indptr) == 0).sum())
    none = Negatives(make_rows(model.n_features), 1.0)
    if kind == "rows" or (kind == "auto" and n_given >= n_train and 10 * n_plain >= n_train):
        return none
    rows, made = [], 0
    if kept is not None and kind != "weights":
        rows.append(model.preprocessing.transform(kept.X))
    n_real_parts = len(rows)
    wanted = min(n_train, MOST_DOCUMENTS) - n_plain - sum(part.shape[0] for part in rows)
    if kind != "kept" and wanted > 0:
        rows += make_negatives(model, X, wanted, background)
        made = sum(part.shape[0] for part in rows[n_real_parts:])
    if not rows:
        return none
    found: Csr = sp.vstack(rows, format="csr", dtype=np.float32)
    n_real = n_given + found.shape[0] - made
    weight = max(1.0, (n_given + n_train) / (n_given + found.shape[0]))
    # The more of them are made, the more each counts.
    return Negatives(as_csr(found, "negatives"), weight * _MADE_WEIGHT ** (made / (made + n_real)))


def join_negatives(model: TrainedModel, X: Csr, Y: Csr, others: Negatives, threads: int | None) -> TrainingData:
    """The rows given and then the other negatives. Old labels have no rows here; their columns give the new labels
    the right ids."""
    n_old, n_rows = model.n_labels, X.shape[0] + others.X.shape[0]
    steps = model.preprocessing
    given = steps.transform(X, threads=threads)
    rows = given if not others.X.shape[0] else as_csr(sp.vstack([given, others.X], format="csr"), "X")
    indptr = np.append(Y.indptr, np.full(others.X.shape[0], Y.indptr[-1], Y.indptr.dtype))
    labels = make_csr(Y.data, Y.indices + np.int32(n_old), indptr, (n_rows, n_old + Y.shape[1]))
    return TrainingData(rows, labels, steps.bias, others.weight)


def make_negatives(model: TrainedModel, X: Csr, n_rows: int, background: Background | None) -> list[Csr]:
    """Documents and label rows from a model's weights and what is known of its features; none if nothing is."""
    W, counts = positive_weights(model)
    if not W.nnz:
        return []
    steps = model.preprocessing
    length = 1.0 if steps.normalize else _mean_length(steps.transform(X))
    rows = [_scale(W, length)]
    if X.nnz < _DENSE * X.shape[0] * X.shape[1]:
        background = background or _find_background(model, X, W, counts)
        rows.insert(0, steps.transform(_draw_documents(background, W, counts, n_rows)))
    return rows


def positive_weights(model: TrainedModel) -> tuple[Csr, NDArray[np.float64]]:
    """The positive weights of the most frequent labels, labels x features, and how many rows each had."""
    scorer: Any = model.scorer
    assert isinstance(scorer, LinearModel)
    counts = model.train_counts.counts
    frequent = np.zeros(model.n_labels, bool)
    frequent[np.argsort(-counts, kind="stable")[:MOST_LABEL_ROWS]] = True
    blocks: list[Any] = [make_rows(model.n_features)]
    ids: list[NDArray[Any]] = []
    for shard in scorer.shards:
        chosen = np.flatnonzero(frequent[shard.label_ids] & np.isfinite(shard.bias))
        if len(chosen):
            blocks.append(shard.to_weights()[0][chosen])
            ids.append(shard.label_ids[chosen])
    W = sp.csr_matrix(sp.vstack(blocks, format="csr", dtype=np.float32))
    W.data = np.maximum(W.data, 0)
    W.eliminate_zeros()
    labels = np.concatenate([np.zeros(0, np.int64), *ids])
    some = np.diff(W.indptr) > 0
    return W[some], counts[labels].astype(np.float64)[some]


def make_rows(n_features: int) -> Csr:
    """No rows of so many features."""
    return make_csr(np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(1, np.int64), (0, n_features))


def _find_background(model: TrainedModel, X: Csr, W: Csr, counts: NDArray[np.float64]) -> Background:
    """What the model's own idf says of features; else half of what the rows given do, half of what weights do."""
    given = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64)
    mean = float(X.data.mean()) if X.nnz else 1.0
    value = (np.bincount(X.indices, weights=X.data, minlength=X.shape[1]) + mean) / (given + 1)
    if (idf := model.preprocessing.idf) is not None:
        return Background(shares_of_idf(idf, model.train_counts.n_rows), value, False)
    mass = (counts / np.asarray(W.sum(axis=1)).ravel()) @ W
    shares = given / max(X.shape[0], 1)
    return Background((shares + mass * (shares.sum() / mass.sum())) / 2, value, False)


def shares_of_idf(idf: NDArray[Any], n_rows: int, one: float = 1.0) -> NDArray[np.float64]:
    """The share of rows with each feature, from ``idf = 1 + ln((n_rows + one) / (rows with it + one))``."""
    rows_with = (n_rows + one) / np.exp(np.asarray(idf, np.float64) - 1) - one
    return np.clip(rows_with, 0, n_rows) / max(n_rows, 1)


def _draw_documents(background: Background, W: Csr, counts: NDArray[np.float64], n_rows: int) -> Csr:
    """Rows of features as frequent as in training, a part of them those of one old label."""
    rng = np.random.default_rng(0)
    sizes = np.maximum(rng.poisson(background.share.sum(), n_rows), 1)
    row = np.repeat(np.arange(n_rows), sizes)
    topical = rng.random(len(row)) < _TOPICAL
    label = _draw(rng, counts, n_rows)[row]
    ends = np.concatenate([[0.0], np.cumsum(W.data, dtype=np.float64)])
    begin, end = ends[W.indptr[label]], ends[W.indptr[label + 1]]
    place = np.searchsorted(ends, begin + rng.random(len(row)) * (end - begin), side="right") - 1
    column = np.where(
        topical,
        W.indices[np.clip(place, W.indptr[label], W.indptr[label + 1] - 1)],
        _draw(rng, background.share, len(row)),
    )
    entries = np.unique(row * np.int64(W.shape[1]) + column)
    row, column = entries // W.shape[1], entries % W.shape[1]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n_rows))])
    data = background.value[column].astype(np.float32)
    documents = make_csr(data, column.astype(np.int32), indptr, (n_rows, W.shape[1]))
    return _scale(documents, 1.0) if background.unit_length else documents


def _draw(rng: np.random.Generator, mass: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Numbers drawn as often as their mass says."""
    ends = np.cumsum(mass)
    if ends[-1] <= 0:
        return rng.integers(0, len(mass), n)
    places: NDArray[np.int64] = np.searchsorted(ends, rng.random(n) * ends[-1], side="right")
    return np.minimum(places, len(mass) - 1)


def _scale(rows: Csr, length: float) -> Csr:
    """Rows scaled to a length."""
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    square = np.bincount(row, weights=rows.data.astype(np.float64) ** 2, minlength=rows.shape[0])
    factor = length / np.sqrt(np.maximum(square, 1e-30))
    return make_csr((rows.data * factor[row]).astype(np.float32), rows.indices, rows.indptr, rows.shape)


def _mean_length(rows: Csr) -> float:
    square = float((rows.data.astype(np.float64) ** 2).sum()) / max(rows.shape[0], 1)
    return float(np.sqrt(square)) or 1.0
