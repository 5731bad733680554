"""Corrections of single rows: the labels concerned are improved, the others stay as they are.

A corrected row x with sign s (+1 where it has the label, -1 where it must not) is one more row of a label's problem,

    min over w   1/2 |w - w₀|² + C Σ_i max(0, 1 - s_i (w·x_i + b))²       over the corrected rows

which stays near w₀, the weights before any correction. Its dual is w = w₀ + Σ_i α_i s_i x_i with α_i ≥ 0: DiSMEC's
own dual with the variables of all training rows fixed. Coordinate descent in it starts from the α found before, so
that a new correction takes a few steps and the earlier ones are not forgotten. The bias is fixed, and C a quarter of
what it was in training: nothing here speaks for the rows of training, and either change loses accuracy.

A row whose labels are all known is a negative of every other label; those that it comes near to are concerned too.

The part `corrections` of a model directory has the rows as they were given (indptr, indices, data), whether all
labels of a row are known (complete), and pairs of label and row with sign and α, by label. Of many rows the latest
are kept; what was learnt from those before stays in the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, as_csr, make_csr, offsets
from umpteen.errors import ModelCorruptError
from umpteen.methods.kept_rows import read_rows
from umpteen.methods.negatives import make_rows
from umpteen.models.linear import LinearShard
from umpteen.storage.store import Part
from umpteen.trained.model import TrainedModel

#: The name of the part.
CORRECTIONS = "corrections"
#: So many rows are kept.
MOST_ROWS = 5000

#: C of a correction, as a part of the method's.
_CAUTION = 0.25
#: A row is not worth a step for a label it lacks while its score is below the first - 1, nor for one it has while its
#: score is above 1 - the second.
_NEAR, _CLOSE = 0.2, 0.02
#: How many labels that a row lacks may be concerned.
_MOST_WRONG = 10
_ROUNDS = 2


class Judgment(NamedTuple):
    """What is known of the labels of a row, by id."""

    accepted: Sequence[int]
    rejected: Sequence[int]
    complete: bool  # whether every other label is rejected too


@dataclass(eq=False)
class Corrections:
    """Corrected rows, and what was learnt from them."""

    X: Csr  # as for `fit`
    complete: NDArray[np.bool_]
    pairs: dict[int, dict[int, tuple[int, float]]]  # label -> row -> sign, α

    @classmethod
    def of(cls, model: TrainedModel) -> Corrections:
        """Those that a model keeps."""
        if CORRECTIONS not in model.parts:
            return cls(make_rows(model.n_features), np.zeros(0, bool), {})
        return cls.from_part(model.parts[CORRECTIONS], model.n_features, model.n_labels)

    @classmethod
    def from_part(cls, part: Part, n_features: int, n_labels: int) -> Corrections:
        """What `to_part` has written, which is not trusted."""
        X = read_rows(part, "", n_features)
        try:
            complete = part.arrays["complete"]
            columns = [part.arrays[name] for name in ("labels", "rows", "signs", "alphas")]
        except KeyError as error:
            raise ModelCorruptError(f"the model's corrections lack {error}") from error
        sizes = {array.shape for array in columns}
        if complete.shape != (X.shape[0],) or len(sizes) != 1 or columns[0].ndim != 1:
            raise ModelCorruptError("the arrays of the model's corrections must fit together")
        label, row, sign, alpha = columns
        if ((label < 0) | (label >= n_labels) | (row < 0) | (row >= X.shape[0])).any():
            raise ModelCorruptError(f"corrections must be of {X.shape[0]} rows and {n_labels} labels")
        if not (np.isin(sign, (-1, 1)).all() and np.isfinite(alpha).all() and (alpha >= 0).all()):
            raise ModelCorruptError("a correction must have the sign 1 or -1, and a weight of at least 0")
        pairs: dict[int, dict[int, tuple[int, float]]] = {}
        for a, i, s, value in zip(*(array.tolist() for array in columns), strict=True):
            pairs.setdefault(a, {})[i] = (int(s), float(value))
        return cls(X, complete.astype(bool), pairs)

    def to_part(self) -> Part:
        flat = [
            (label, row, sign, alpha)
            for label, own in sorted(self.pairs.items())
            for row, (sign, alpha) in sorted(own.items())
        ]
        label, row, sign, alpha = zip(*flat, strict=True) if flat else ((), (), (), ())
        return Part(
            {
                "indptr": offsets(self.X),
                "indices": self.X.indices,
                "data": self.X.data,
                "complete": self.complete.astype(np.uint8),
                "labels": np.array(label, np.int32),
                "rows": np.array(row, np.int32),
                "signs": np.array(sign, np.int32),
                "alphas": np.array(alpha, np.float32),
            }
        )

    def add(self, X: Csr, judgments: Sequence[Judgment], weights: Weights, steps: Any) -> set[int]:
        """Takes up rows; of two equal rows the later one counts. Returns the labels judged."""
        known = {_key(self.X, i): i for i in range(self.X.shape[0])}
        places = []
        n_rows = self.X.shape[0]
        for i in range(X.shape[0]):
            place = known.setdefault(_key(X, i), n_rows)
            places.append(place)
            n_rows = max(n_rows, place + 1)
        fresh = [places.index(place) for place in range(self.X.shape[0], n_rows)]
        self.X = as_csr(sp.vstack([self.X, X[fresh]], format="csr"), "corrections")
        self.complete = np.append(self.complete, np.zeros(len(fresh), bool))
        rows = steps.transform(self.X)
        judged: set[int] = set()
        for place, judgment in zip(places, judgments, strict=True):
            signs = dict.fromkeys(judgment.rejected, -1) | dict.fromkeys(judgment.accepted, 1)
            if judgment.complete:
                self.complete[place] = True
                signs |= {a: -1 for a, own in self.pairs.items() if place in own and a not in signs}
            for label, sign in signs.items():
                self._judge(label, place, sign, weights, rows)
            judged |= signs.keys()
        return judged

    def _judge(self, label: int, row: int, sign: int, weights: Weights, rows: Csr) -> None:
        own = self.pairs.setdefault(label, {})
        before, alpha = own.get(row, (sign, 0.0))
        if before != sign and alpha:  # what was learnt from the opposite is taken back
            weights.add(label, rows[row], np.array([-alpha * before]))
        own[row] = (sign, alpha if before == sign else 0.0)

    def rows_of(self, label: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """The rows that say something of a label, rising, their signs, and their α."""
        own = self.pairs.get(label, {})
        rows = np.union1d(np.flatnonzero(self.complete), np.fromiter(own, np.int64, len(own))).astype(np.int64)
        known = [own.get(row, (-1, 0.0)) for row in rows.tolist()]
        found = np.array(known, np.float64).reshape(-1, 2)
        return rows, found[:, 0], found[:, 1]

    def keep(self, label: int, rows: NDArray[np.int64], signs: NDArray[Any], alphas: NDArray[Any]) -> None:
        own = self.pairs.setdefault(label, {})
        for row, sign, alpha in zip(rows.tolist(), signs.tolist(), alphas.tolist(), strict=True):
            if alpha > 0 or row in own:
                own[row] = (int(sign), alpha)

    def latest(self, most: int) -> Corrections:
        """The latest rows, at most so many."""
        drop = self.X.shape[0] - most
        if drop <= 0:
            return self
        pairs = {a: {i - drop: pair for i, pair in own.items() if i >= drop} for a, own in self.pairs.items()}
        return Corrections(self.X[drop:], self.complete[drop:], {a: own for a, own in pairs.items() if own})


class Weights:
    """The weights of a linear model, of which a few labels change."""

    def __init__(self, model: TrainedModel) -> None:
        scorer: Any = model.scorer
        self.shards = scorer.shards
        self.place = {
            int(label): (number, position)
            for number, shard in enumerate(self.shards)
            for position, label in enumerate(shard.label_ids)
        }
        self._open: dict[int, tuple[Any, NDArray[np.float32]]] = {}
        self.changed: dict[int, Any] = {}

    def bias(self, label: int) -> float:
        number, position = self.place[label]
        return float(self.shards[number].bias[position])

    def row(self, label: int) -> Any:
        """The weights of a label, 1 x n_features."""
        if label in self.changed:
            return self.changed[label]
        number, position = self.place[label]
        if number not in self._open:
            self._open[number] = self.shards[number].to_weights()
        return self._open[number][0][position]

    def add(self, label: int, rows: Csr, amounts: NDArray[np.float64]) -> None:
        change = sp.csr_matrix(amounts[None].astype(np.float32)) @ rows
        self.changed[label] = sp.csr_matrix(self.row(label) + change)

    def to_parts(self, prune: float, weight_type: str) -> list[Part]:
        """All shards; those without a changed label as they were."""
        by_shard: dict[int, dict[int, Any]] = {}
        for label, row in self.changed.items():
            number, position = self.place[label]
            row.data[np.abs(row.data) < prune] = 0
            by_shard.setdefault(number, {})[position] = row
        parts = []
        for number, shard in enumerate(self.shards):
            if number not in by_shard:
                parts.append(shard.to_part())
                continue
            W, bias = self._open.get(number) or shard.to_weights()
            rows = _replace_rows(as_csr(W, "W"), by_shard[number])
            parts.append(LinearShard.from_weights(rows, bias, shard.label_ids, weight_type).to_part())
        return parts


def learn_corrections(
    model: TrainedModel, X: Csr, judgments: Sequence[Judgment], *, C: float, prune: float, weight_type: str
) -> TrainedModel:
    """The model after some corrections.

    Parameters
    ----------
    X
        Rows as for `fit`.
    judgments
        One for each of them.
    C, prune, weight_type
        As the labels were trained.
    """
    weights, steps = Weights(model), model.preprocessing
    known = Corrections.of(model)
    n_before = known.X.shape[0]
    had = {(a, i) for a, own in known.pairs.items() for i, (sign, _) in own.items() if sign > 0}
    concerned = known.add(X, judgments, weights, steps) | _find_wrong(model, X, judgments)
    rows = steps.transform(known.X)
    for label in sorted(a for a in concerned if a in weights.place and np.isfinite(weights.bias(a))):
        _improve(label, known, rows, weights, float(C) * _CAUTION)
    counts = model.train_counts.counts.copy()
    for label, own in known.pairs.items():
        counts[label] += sum(sign > 0 and (label, i) not in had for i, (sign, _) in own.items())
    header = {key: value for key, value in model.header.items() if key != "fingerprint"}
    header["n_train_rows"] += known.X.shape[0] - n_before
    parts = model.parts | {"labels": Part({"counts": counts}), CORRECTIONS: known.latest(MOST_ROWS).to_part()}
    return TrainedModel.open(header, parts, weights.to_parts(prune, weight_type), model.threads)


def _find_wrong(model: TrainedModel, X: Csr, judgments: Sequence[Judgment]) -> set[int]:
    """Labels that rows come near to and lack, for rows whose labels are all known."""
    whole = [i for i, judgment in enumerate(judgments) if judgment.complete]
    if not whole:
        return set()
    most = min(model.n_labels, _MOST_WRONG + max(len(judgments[i].accepted) for i in whole))
    labels, scores = model.scorer.predict_topk(model.preprocessing.transform(X[whole]), most, threads=model.threads)
    return {
        int(label)
        for i, row, values in zip(whole, labels, scores, strict=True)
        for label, value in zip(row.tolist(), values.tolist(), strict=True)
        if label >= 0 and value > _NEAR - 1 and label not in judgments[i].accepted
    }


def _improve(label: int, known: Corrections, rows: Csr, weights: Weights, C: float) -> None:
    """Descends in the dual of one label, over the rows that are wrong or were."""
    ids, signs, alphas = known.rows_of(label)
    bias, own = weights.bias(label), rows[ids]
    slack = np.where(signs > 0, _CLOSE, _NEAR)
    for _ in range(_ROUNDS):
        w = weights.row(label).toarray().ravel()
        gradient = signs * (own @ w + bias) - 1 + alphas / (2 * C)
        wrong = gradient < -slack
        if not wrong.any() and not ((alphas > 0) & (gradient > slack)).any():
            break
        active = np.flatnonzero(wrong | (alphas > 0))
        X, s = own[active], signs[active]
        Q = (X @ X.T).toarray().astype(np.float64) * s[:, None] * s
        Q[np.diag_indices(len(active))] += 1 / (2 * C)
        found = _descend(Q, gradient[active], alphas[active])
        weights.add(label, X, (found - alphas[active]) * s)
        alphas[active] = found
    known.keep(label, ids, signs, alphas)


def _descend(
    Q: NDArray[np.float64], gradient: NDArray[np.float64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Minimises 1/2 αᵀQα - Σα over α ≥ 0 by the coordinate that gains most; `gradient` is that at the start."""
    alphas, curvature = start.copy(), np.diag(Q).copy()
    gradient = gradient.copy()
    for _ in range(10 * len(alphas) + 100):
        step = np.maximum(alphas - gradient / curvature, 0) - alphas
        i = int(np.argmax(step * step * curvature))
        if abs(step[i]) * curvature[i] < _CLOSE:
            break
        gradient += step[i] * Q[i]
        alphas[i] += step[i]
    return alphas


def _key(rows: Csr, i: int) -> bytes:
    some = slice(rows.indptr[i], rows.indptr[i + 1])
    return rows.indices[some].tobytes() + rows.data[some].tobytes()


def _replace_rows(W: Csr, new: dict[int, Any]) -> Csr:
    """W with some rows replaced."""
    data = np.split(W.data, W.indptr[1:-1])
    indices = np.split(W.indices, W.indptr[1:-1])
    for i, row in new.items():
        row.eliminate_zeros()
        row.sort_indices()
        data[i], indices[i] = row.data, row.indices.astype(np.int32)
    indptr = np.append(0, np.cumsum([len(some) for some in indices], dtype=np.int64))
    return make_csr(np.concatenate(data).astype(np.float32), np.concatenate(indices), indptr, W.shape)
