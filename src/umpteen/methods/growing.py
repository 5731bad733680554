"""New labels for a trained one-vs-rest model: what is checked, what they are trained against, what is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen import __version__
from umpteen.data.matrix import Csr, as_csr, fingerprint, make_csr
from umpteen.data.propensity import count_labels
from umpteen.errors import DataError, ParamError
from umpteen.memory import check_fits
from umpteen.methods.kept_rows import KEPT_ROWS, KeptRows
from umpteen.methods.negatives import KINDS, Background, Negatives, gather_negatives, join_negatives, make_rows
from umpteen.methods.training import Target, check_training, train_tasks
from umpteen.methods.trust import find_trust
from umpteen.models.linear import MAX_LABELS_PER_SHARD, LinearModel, LinearShard
from umpteen.params import check_choice
from umpteen.storage.names import Names
from umpteen.storage.saving import shard_name
from umpteen.storage.store import Part, fingerprint_parts
from umpteen.trained.grown import with_features
from umpteen.trained.model import TrainedModel

if TYPE_CHECKING:
    from umpteen.methods.one_vs_rest import OneVsRest


def train_new_labels(
    method: OneVsRest,
    model: TrainedModel,
    X: Any,
    Y_new: Any,
    names: Sequence[str] | None,
    negatives: str,
    background: Background | None,
    target: Target,
) -> TrainedModel:
    """A model with the new labels after the old ones; see `OneVsRest.add_labels`."""
    check_choice("negatives", negatives, KINDS)
    if negatives == "kept" and KEPT_ROWS not in model.parts:
        raise ParamError('negatives="kept" needs a model that keeps training rows; train it with keep_rows=1000')
    X, Y = as_csr(X, "X", model.n_features), as_csr(Y_new, "Y_new", values=False)
    n_old, n_new = model.n_labels, Y.shape[1]
    check_training(method, X, Y, n_old + n_new, names)
    new_counts = count_labels(Y, "Y_new").counts
    grown_names = extend_names(model, names)
    _refuse_without_rows(new_counts, names, n_old)
    parts = model.parts | {"labels": Part({"counts": np.append(model.train_counts.counts, new_counts)})}
    if grown_names is not None:
        parts["names"] = grown_names.to_part()
    others, kept_rows = Negatives(make_rows(model.n_features), 1.0), None
    if method.needs_negatives:
        kept_rows = KeptRows.of(model) if negatives in ("auto", "kept") else None
        others = gather_negatives(model, X, Y, negatives, background, kept_rows)
        _refuse_without_negatives(new_counts, X.shape[0], others, names, n_old)
    kept = {shard_name(i): part for i, part in enumerate(model.scorer.to_parts())}
    header = {**model.header, "umpteen_version": __version__, "n_labels": n_old + n_new}
    header.pop("fingerprint", None)
    if target.model_dir is not None:
        old = fingerprint_parts([*kept.values(), *model.parts.values()])
        header["fingerprint"] = {"X": fingerprint(X), "Y": fingerprint(Y), "model": old, "negatives": negatives}
    data = join_negatives(model, X, Y, others, method.threads)
    check_fits(method.estimate(data.X, data.Y[:, n_old:]), method.memory_advice)
    if kept_rows is not None and others.X.shape[0] and method.has_margin:
        data = replace(data, trust=find_trust(method, model, X, Y, negatives, background, kept_rows))
    tasks = method.plan(data, n_old, len(kept))
    return train_tasks(method, data, tasks, kept, header, parts, target)


def _refuse_without_rows(counts: NDArray[np.int64], names: Sequence[str] | None, n_old: int) -> None:
    if (counts == 0).any():
        label = _show_label(int(np.argmin(counts)), names, n_old)
        raise DataError(f"each new label needs at least one row that has it, but {label} has none")


def _refuse_without_negatives(
    counts: NDArray[np.int64], n_rows: int, others: Negatives, names: Sequence[str] | None, n_old: int
) -> None:
    if not others.X.shape[0] and (counts == n_rows).any():
        label = _show_label(int(np.argmax(counts)), names, n_old)
        raise DataError(
            f"each new label needs rows that lack it, but {label} is on all {n_rows} rows given and there are no "
            'others; give rows without it, train the model with keep_rows=1000, or use negatives="weights"'
        )


def _show_label(i: int, names: Sequence[str] | None, n_old: int) -> str:
    return f"label {n_old + i}" if names is None else f"{names[i]!r}"


def extend_names(model: TrainedModel, names: Sequence[str] | None) -> Names | None:
    """The model's names and the new ones; None if the model has none."""
    if model.label_names is None:
        if names is not None:
            raise DataError("names must be None, because the model's labels have no names")
        return None
    if names is None:
        raise DataError("the new labels need names, because the model's labels have names, but names is None")
    new = [str(name) for name in names]
    known = set(model.ids_by_name)
    for name in new:
        if name in known:
            raise DataError(f"label names must be unique, but {name!r} already exists")
        known.add(name)
    return model.label_names.extended(new)


def widen(model: TrainedModel, X: Csr) -> TrainedModel:
    """The same model with columns after its own, as many as X has; no label has a weight for them yet.

    A preprocessing idf counts them in X and in the model's training rows, none of which had them.
    """
    scorer: Any = model.scorer
    assert isinstance(scorer, LinearModel)
    n_old, n_new = model.n_features, X.shape[1] - model.n_features
    parts = dict(model.parts)
    if (idf := model.preprocessing.idf) is not None:
        rows_with = np.bincount(X.indices[X.data != 0], minlength=X.shape[1])[n_old:]
        new = 1 + np.log((1 + model.train_counts.n_rows + X.shape[0]) / (1 + rows_with))
        parts["preprocessing"] = Part({"idf": np.append(idf, new.astype(np.float32))})
    shards = [shard.widened(n_new).to_part() for shard in scorer.shards]
    return TrainedModel.open(with_features(model.header, X.shape[1]), parts, shards, model.threads)


def append_labels(model: TrainedModel, names: Sequence[str], weight_type: str) -> TrainedModel:
    """The same model with labels that have no weights yet, only a bias like the others; corrections give them some.

    They join the last shard, so that labels that come one by one do not make a shard each.
    """
    scorer: Any = model.scorer
    assert isinstance(scorer, LinearModel)
    n_old, n_new = model.n_labels, len(names)
    shards = [shard.to_part() for shard in scorer.shards]
    ids = np.arange(n_old, n_old + n_new, dtype=np.int32)
    biases = np.concatenate([shard.bias[np.isfinite(shard.bias)] for shard in scorer.shards])
    bias = np.full(n_new, np.median(biases) if len(biases) else -1.0, np.float32)
    nothing = np.zeros(0, np.int32)
    W: Any = make_csr(nothing.astype(np.float32), nothing, np.zeros(n_new + 1, np.int64), (n_new, model.n_features))
    last = scorer.shards[-1]
    if len(last.label_ids) + n_new <= MAX_LABELS_PER_SHARD:
        own, own_bias = last.to_weights()
        W, bias = sp.vstack([own, W], format="csr"), np.append(own_bias, bias)
        ids = np.append(last.label_ids, ids)
        shards.pop()
    shards.append(LinearShard.from_weights(W, bias, ids, weight_type).to_part())
    grown = extend_names(model, names)
    assert grown is not None
    counts = np.append(model.train_counts.counts, np.zeros(n_new, np.int64))
    parts = model.parts | {"labels": Part({"counts": counts}), "names": grown.to_part()}
    return TrainedModel.open(model.header | {"n_labels": n_old + n_new}, parts, shards, model.threads)
