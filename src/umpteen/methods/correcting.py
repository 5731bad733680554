"""Corrections of single rows: the labels concerned are improved, the others stay as they are.

A corrected row x with sign s (+1 where it has the label, -1 where it must not) is one more row of a label's problem,

    min over w   1/2 |w - w₀|² + C Σ_i max(0, 1 - s_i (w·x_i + b))²       over the corrected rows

which stays near w₀, the weights before any correction. Its dual is w = w₀ + Σ_i α_i s_i x_i with α_i ≥ 0: DiSMEC's
own dual with the variables of all training rows fixed. Coordinate descent in it starts from the α found before, so
that a new correction takes a few steps and the earlier ones are not forgotten. The bias is fixed, and C a quarter of
what it was in training: nothing here speaks for the rows of training, and either change loses accuracy.

A row whose labels are all known is a negative of every other label; those that it comes near to are concerned too.
Of a row with some labels judged nothing is known of the others. Those that people judge are not drawn at random: they
were suggested, or were missed. So what is learnt of a label from rows judged is held back by corrected rows that say
nothing of it: there its score must not rise above what it was. Without that, 2,000 rows with suggestions accepted and
rejected lowered P@k on Debian-Tags.

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
from umpteen.models.linear_labels import replace_labels, select_labels
from umpteen.storage.store import Part
from umpteen.trained.model import TrainedModel

#: The name of the part.
CORRECTIONS = "corrections"
#: So many rows are kept.
MOST_ROWS = 5000

#: C of a correction, as a part of the method's. This and the next: compared on held-out training rows of three sets.
_CAUTION = 0.25
#: A row is not worth a step for a label it lacks while its score is below the first - 1, nor for one it has while its
#: score is above 1 - the second.
_NEAR, _CLOSE = 0.2, 0.02
#: How many labels that a row lacks may be concerned.
_MOST_WRONG = 10
_ROUNDS = 2
#: The sign of a row that says nothing of a label, but whose score must not rise.
_HELD = -2


class Pairs(NamedTuple):
    """Pairs of a label and a row that says something of it, by label: sign, and what was learnt."""

    labels: NDArray[Any]
    rows: NDArray[Any]
    signs: NDArray[Any]
    alphas: NDArray[Any]

    @classmethod
    def none(cls) -> Pairs:
        nothing = np.zeros(0, np.int32)
        return cls(nothing, nothing, nothing, np.zeros(0, np.float32))


class Judgment(NamedTuple):
    """What is known of the labels of a row, by id."""

    accepted: Sequence[int]
    rejected: Sequence[int]
    complete: bool  # whether every other label is rejected too


@dataclass(eq=False)
class Said:
    """What rows say of one label, and what was learnt from each: an entry per corrected row."""

    signs: NDArray[np.int8]  # 0 where a row says nothing
    alphas: NDArray[np.float64]

    def __post_init__(self) -> None:
        self.had = self.signs > 0  # before this call


@dataclass(eq=False)
class Corrections:
    """Corrected rows, and what was learnt from them. Labels are opened as they are needed: a model may have thousands
    of corrections, of which a new one concerns few."""

    X: Csr  # as for `fit`
    complete: NDArray[np.bool_]
    pairs: Pairs

    def __post_init__(self) -> None:
        self.opened: dict[int, Said] = {}

    @classmethod
    def of(cls, model: TrainedModel) -> Corrections:
        """Those that a model keeps."""
        if CORRECTIONS not in model.parts:
            return cls(make_rows(model.n_features), np.zeros(0, bool), Pairs.none())
        return cls.from_part(model.parts[CORRECTIONS], model.n_features, model.n_labels)

    @classmethod
    def from_part(cls, part: Part, n_features: int, n_labels: int) -> Corrections:
        """What `to_part` has written, which is not trusted."""
        X = read_rows(part, "", n_features)
        try:
            complete = part.arrays["complete"]
            label, row, sign, alpha = (part.arrays[name] for name in Pairs._fields)
        except KeyError as error:
            raise ModelCorruptError(f"the model's corrections lack {error}") from error
        sizes = {array.shape for array in (label, row, sign, alpha)}
        if [array.dtype.kind for array in (label, row, sign, alpha, complete)] != ["i", "i", "i", "f", "u"]:
            raise ModelCorruptError("the arrays of the model's corrections must have their types, but do not")
        if complete.shape != (X.shape[0],) or len(sizes) != 1 or label.ndim != 1:
            raise ModelCorruptError("the arrays of the model's corrections must fit together")
        if ((label < 0) | (label >= n_labels) | (row < 0) | (row >= X.shape[0])).any():
            raise ModelCorruptError(f"corrections must be of {X.shape[0]} rows and {n_labels} labels")
        if not (np.isin(sign, (_HELD, -1, 1)).all() and np.isfinite(alpha).all() and (alpha >= 0).all()):
            raise ModelCorruptError("a correction must have the sign 1, -1 or -2, and a weight of at least 0")
        if (np.diff(label) < 0).any():
            raise ModelCorruptError("the labels of corrections must be in rising order")
        return cls(X, complete.astype(bool), Pairs(label, row, sign, alpha))

    def to_part(self) -> Part:
        """Of all rows, the latest."""
        drop = max(0, self.X.shape[0] - MOST_ROWS)
        pairs = self._all_pairs()
        if drop:
            pairs = Pairs(*(array[pairs.rows >= drop] for array in pairs))
        X = self.X[drop:]
        return Part(
            {
                "indptr": offsets(X),
                "indices": X.indices,
                "data": X.data,
                "complete": self.complete[drop:].astype(np.uint8),
                **(pairs._replace(rows=pairs.rows - np.int32(drop))._asdict()),
            }
        )

    def _all_pairs(self) -> Pairs:
        """Those as they were, and those of opened labels as they are; by label, then row."""
        closed = np.ones(max([*self.opened, *self.pairs.labels[-1:].tolist(), -1]) + 1, bool)
        closed[list(self.opened)] = False
        parts = [Pairs(*(array[closed[self.pairs.labels]] for array in self.pairs))]
        for label, said in sorted(self.opened.items()):
            rows = np.flatnonzero(said.signs)
            parts.append(
                Pairs(
                    np.full(len(rows), label, np.int32), rows.astype(np.int32),
                    said.signs[rows].astype(np.int32), said.alphas[rows].astype(np.float32),
                )
            )  # fmt: skip
        joined = Pairs(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        order = np.argsort(joined.labels, kind="stable")
        return Pairs(*(array[order] for array in joined))

    def of_label(self, label: int) -> Said:
        """What is known of a label, to be changed."""
        if label not in self.opened:
            begin, end = np.searchsorted(self.pairs.labels, (label, label + 1))
            signs, alphas = np.zeros(self.X.shape[0], np.int8), np.zeros(self.X.shape[0])
            rows = self.pairs.rows[begin:end]
            signs[rows], alphas[rows] = self.pairs.signs[begin:end], self.pairs.alphas[begin:end]
            self.opened[label] = Said(signs, alphas)
        return self.opened[label]

    def take(self, X: Csr) -> list[int]:
        """Takes up rows and returns their places; a row equal to one before has its place."""
        places: list[int] = []
        fresh: list[int] = []
        n_rows = self.X.shape[0]
        sums, new_sums = _sum_rows(self.X), _sum_rows(X)
        seen: dict[bytes, int] = {}
        for i in range(X.shape[0]):
            key = _key(X, i)
            same = (j for j in np.flatnonzero(sums == new_sums[i]).tolist() if _key(self.X, j) == key)
            place = seen.get(key, next(same, None))
            if place is None:
                place = n_rows + len(fresh)
                fresh.append(i)
            seen[key] = place
            places.append(place)
        if fresh:
            self.X = as_csr(sp.vstack([self.X, X[fresh]], format="csr"), "corrections")
            self.complete = np.append(self.complete, np.zeros(len(fresh), bool))
        return places

    def judge(self, places: Sequence[int], judgments: Sequence[Judgment], weights: Weights, rows: Csr) -> set[int]:
        """Takes up what is known of rows; of two judgments the later one counts. Returns the labels judged."""
        judged: set[int] = set()
        for place, judgment in zip(places, judgments, strict=True):
            signs = dict.fromkeys(judgment.rejected, -1) | dict.fromkeys(judgment.accepted, 1)
            if judgment.complete:
                self.complete[place] = True
                before = {*self.pairs.labels[self.pairs.rows == place].tolist(), *judged}
                signs |= {a: -1 for a in before if a not in signs and self.of_label(a).signs[place]}
            for label, sign in signs.items():
                said = self.of_label(label)
                before_sign = int(np.sign(said.signs[place]))
                if before_sign == -sign:  # what was learnt from the opposite is taken back
                    weights.add(label, rows[place], -said.alphas[place] * before_sign)
                    said.alphas[place] = 0
                said.signs[place] = sign
            judged |= signs.keys()
        return judged

    def rows_of(self, label: int) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
        """What each row says of a label: its sign; whether it is only held; and α. A row whose labels are all known
        lacks those that it does not name."""
        said = self.of_label(label)
        held = ~self.complete & ((said.signs == 0) | (said.signs == _HELD))
        return np.where(said.signs > 0, 1.0, -1.0), held, said.alphas.copy()

    def keep(self, label: int, signs: NDArray[Any], held: NDArray[np.bool_], alphas: NDArray[Any]) -> None:
        said = self.of_label(label)
        said.alphas[:] = alphas
        judged = ~held & (said.signs != 0)
        said.signs[:] = np.where((alphas > 0) | judged, np.where(held, _HELD, signs), 0)


class Weights:
    """The weights of a linear model, of which a few labels change."""

    def __init__(self, model: TrainedModel) -> None:
        scorer: Any = model.scorer
        self.shards = scorer.shards
        self.bias = np.full(model.n_labels, -np.inf)  # of labels in no shard too: they are not trained
        self.shard_of = np.zeros(model.n_labels, np.int64)
        for number, shard in enumerate(self.shards):
            self.bias[shard.label_ids] = shard.bias
            self.shard_of[shard.label_ids] = number
        self._rows: dict[int, NDArray[np.float32]] = {}
        self._read: dict[int, Csr] = {}
        self._changed: dict[int, Csr] = {}

    def read(self, labels: Sequence[int]) -> None:
        """Reads some labels at once, which takes no longer than one."""
        for number, own in self._by_shard(labels).items():
            shard = self.shards[number]
            found = select_labels(shard, np.searchsorted(shard.label_ids, own))
            self._read |= {label: found[i] for i, label in enumerate(own)}

    def row(self, label: int) -> NDArray[np.float32]:
        """The weights of a label, n_features."""
        if label not in self._changed and label not in self._read:
            self.read([label])
        row = self._changed.get(label, self._read.get(label))
        assert row is not None
        out: NDArray[np.float32] = row.toarray().ravel()
        return out

    def put(self, label: int, row: NDArray[np.float32]) -> None:
        columns = np.flatnonzero(row).astype(np.int32)
        self._changed[label] = make_csr(row[columns], columns, np.array([0, len(columns)]), (1, len(row)))

    def add(self, label: int, x: Csr, amount: float) -> None:
        row = self.row(label)
        row[x.indices] += np.float32(amount) * x.data
        self.put(label, row)

    def to_parts(self, prune: float, weight_type: str) -> list[Part]:
        """All shards; those without a changed label as they were."""
        for row in self._changed.values():
            row.data[np.abs(row.data) < prune] = 0
        changed = self._by_shard(sorted(self._changed))
        parts = []
        for number, shard in enumerate(self.shards):
            if number in changed:
                positions = np.searchsorted(shard.label_ids, changed[number])
                rows: Any = sp.vstack([self._changed[label] for label in changed[number]], format="csr")
                shard = replace_labels(shard, positions, rows, weight_type)
            parts.append(shard.to_part())
        return parts

    def _by_shard(self, labels: Sequence[int]) -> dict[int, list[int]]:
        out: dict[int, list[int]] = {}
        for label in labels:
            out.setdefault(int(self.shard_of[label]), []).append(label)
        return out


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
    weights, known = Weights(model), Corrections.of(model)
    n_before = known.X.shape[0]
    places = known.take(X)
    rows = model.preprocessing.transform(known.X)
    concerned = known.judge(places, judgments, weights, rows) | _find_wrong(model, X, judgments)
    trained = sorted(label for label in concerned if np.isfinite(weights.bias[label]))
    weights.read(trained)
    for label in trained:
        _improve(label, known, rows, weights, float(C) * _CAUTION)
    counts = model.train_counts.counts.copy()
    for label, said in known.opened.items():
        counts[label] += np.count_nonzero((said.signs > 0) & ~said.had)
    header = {key: value for key, value in model.header.items() if key != "fingerprint"}
    header["n_train_rows"] += known.X.shape[0] - n_before
    parts = model.parts | {"labels": Part({"counts": counts}), CORRECTIONS: known.to_part()}
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
    """Descends in the dual of one label, over the rows that are wrong or were. The margin of each is 1; of one that
    is only held, that its score is at most what it was, or low."""
    signs, held, alphas = known.rows_of(label)
    bias, w, changed = weights.bias[label], weights.row(label), False
    before = rows @ w + bias - rows @ (rows.T @ (alphas * signs))  # of w₀
    margin = np.where(held, -np.maximum(before, _NEAR - 1), 1.0)
    slack = np.where(held | (signs > 0), _CLOSE, _NEAR)
    for _ in range(_ROUNDS):
        gradient = signs * (rows @ w + bias) - margin + alphas / (2 * C)
        wrong = gradient < -slack
        if not wrong.any() and not ((alphas > 0) & (gradient > slack)).any():
            break
        active = np.flatnonzero(wrong | (alphas > 0))
        X, s = rows[active], signs[active]
        Q = (X @ X.T).toarray().astype(np.float64) * s[:, None] * s
        Q[np.diag_indices(len(active))] += 1 / (2 * C)
        found = _descend(Q, gradient[active], alphas[active])
        w += X.T @ ((found - alphas[active]) * s).astype(np.float32)
        alphas[active], changed = found, True
    if changed:
        weights.put(label, w)
    known.keep(label, signs, held, alphas)


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


def _sum_rows(rows: Csr) -> NDArray[np.int64]:
    """A number for each row that equal rows share."""
    ends = np.append(0, np.cumsum(rows.indices, dtype=np.int64))
    sums: NDArray[np.int64] = ends[rows.indptr[1:]] - ends[rows.indptr[:-1]]
    return sums
