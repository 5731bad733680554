"""Calibration from rows a model has not seen: a share of them set aside, or all of them by turns (cross-fitting)."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr
from umpteen.data.split import split_rows
from umpteen.errors import ParamError
from umpteen.evaluation.metrics import find_hits
from umpteen.methods.training import check_training, train_model
from umpteen.models.calibration import Calibration
from umpteen.params import check_number
from umpteen.progress import Listener
from umpteen.storage.remote import is_url
from umpteen.storage.store import Part, refuse_finished
from umpteen.trained.model import TrainedModel

if TYPE_CHECKING:
    from umpteen.methods.base import Method

Mask = NDArray[np.bool_]

#: With fewer rows than this, "auto" takes turns: a tenth of them would say too little, and training is quick.
_FEW_ROWS = 5000
_FOLDS = 5
_SHARE = 0.1
#: Of more rows, folds are drawn without regard to labels.
_MOST_SPREAD = 20_000
#: Fewer rows with labels say nothing about probabilities.
_LEAST_ROWS = 10
#: How far down each row's ranking to look.
_TOP_K = 50


def check_calibration(calibration: Any) -> None:
    """Raises ParamError for a bad value of the parameter `calibration`."""
    if calibration == "auto":
        return
    value = check_number("calibration", calibration, 0) if not isinstance(calibration, str) else None
    if value is None or not (value < 1 or (value >= 2 and value == int(value))):
        raise ParamError(
            'calibration must be "auto", a share of the rows below 1, or a number of folds from 2 on, '
            f"but is {calibration!r}"
        )


def draw_held_out(Y: Csr, calibration: Any, seed: int) -> list[Mask]:
    """The rows to hold out, once for each model to train: none where none can be spared.

    Parameters
    ----------
    calibration : float, int or "auto"
        A share of the rows, held out once, where every label keeps a row to train from; or a number of folds, so that
        each row is held out by one of so many models. "auto" takes five folds of fewer than 5,000 rows, else a share
        of 0.1.
    """
    n_rows = Y.shape[0]
    if calibration == "auto":
        calibration = _FOLDS if n_rows < _FEW_ROWS else _SHARE
    has_labels = np.diff(Y.indptr) > 0
    if calibration == 0 or has_labels.sum() < _LEAST_ROWS:
        return []
    if calibration < 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # fewer rows than requested are fine here
            masks = [split_rows(Y, calibration, seed=seed)]
    else:
        fold = draw_folds(Y, int(min(calibration, n_rows)), seed)
        masks = [fold == i for i in range(int(fold.max()) + 1)]
    return [mask for mask in masks if (mask & has_labels).any() and (~mask & has_labels).any()]


def draw_folds(Y: Csr, n_folds: int, seed: int) -> NDArray[np.int64]:
    """A fold for each row, at random, but so that each label's rows are spread over them as evenly as they can be.

    Else a model that misses a row of a label would also miss others of it more often than not, and its scores for
    that row would be lower than those of the model that is kept: probabilities of few texts came out too low.
    """
    order = np.random.default_rng(seed).permutation(Y.shape[0])
    if Y.shape[0] > _MOST_SPREAD:  # chance spreads them well enough
        return np.argsort(order) % n_folds
    share = 1 / np.maximum(np.bincount(Y.indices, minlength=Y.shape[1]), 1)
    placed = np.zeros((n_folds, Y.shape[1]))
    fold, sizes = np.zeros(Y.shape[0], np.int64), np.zeros(n_folds, np.int64)
    for i, row in enumerate(order.tolist()):
        own = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        full = sizes > i // n_folds  # folds stay of one size
        cost = np.where(full, np.inf, (placed[:, own] * share[own]).sum(axis=1))
        fold[row] = chosen = int(np.argmin(cost))
        placed[chosen, own] += 1
        sizes[chosen] += 1
    return fold


def train_calibrated(
    method: Method,
    X: Csr,
    Y: Csr,
    model_dir: PathLike | None = None,
    *,
    calibration: Any,
    seed: int = 0,
    as_new: Callable[[Csr, Csr], Csr] | None = None,
    row_costs: NDArray[np.float32] | None = None,
    fold_header: Mapping[str, Any] | None = None,
    label_names: Sequence[str] | None = None,
    resume: bool = True,
    progress: bool | Listener = False,
    extra_parts: Mapping[str, Part] | None = None,
    **options: Any,
) -> TrainedModel:
    """Trains models without the rows that `calibration` holds out, learns probabilities from them, then trains the
    model that is kept, on all rows.

    The first ones stay beside the last until that is finished, so that an interruption loses none.

    Parameters
    ----------
    fold_header
        More to keep in the manifests of the first ones.
    row_costs
        How many times each row counts in training.
    label_names, resume, progress, extra_parts, options
        As for `train_model`, of the last one.
    """
    method.check_stored(model_dir)
    beside, parts = None, dict(extra_parts or {})
    if calibration != 0:  # all that can be wrong is found before the long work, not after it
        method.validate()
        check_training(method, X, Y, Y.shape[1], label_names)
        if model_dir is not None and not is_url(model_dir):
            refuse_finished(model_dir)
        beside = calibration_dir(model_dir)
        found = calibrate_held_out(
            method, X, Y, draw_held_out(Y, calibration, seed),
            beside=beside, as_new=as_new, row_costs=row_costs, resume=resume, progress=progress,
            extra_header=fold_header,
        )  # fmt: skip
        if found is not None:
            parts["calibration"] = found
    model = train_model(
        method, X, Y, model_dir,
        label_names=label_names, resume=resume, progress=progress, extra_parts=parts, row_costs=row_costs, **options,
    )  # fmt: skip
    if beside is not None:
        shutil.rmtree(beside, ignore_errors=True)
    return model


def calibrate_held_out(
    method: Method,
    X: Csr,
    Y: Csr,
    masks: Sequence[Mask],
    *,
    beside: Path | None = None,
    as_new: Callable[[Csr, Csr], Csr] | None = None,
    row_costs: NDArray[np.float32] | None = None,
    resume: bool = True,
    progress: bool | Listener = False,
    extra_header: Mapping[str, Any] | None = None,
) -> Part | None:
    """Trains a model without each of the masks' rows, and learns from its predictions for them how scores become
    probabilities. None if there is nothing to learn from.

    Parameters
    ----------
    beside
        Where to keep these models until the last one is trained, so that an interruption loses none.
    extra_header
        More to keep in the manifests of these models.
    as_new
        Given the rows a model is trained on and the rows held out: the latter as they would look if they had come
        after training.
    """
    found, possible = [], 0
    for i, mask in enumerate(masks):
        model = train_model(
            type(method)(**method.get_params()), X[~mask], Y[~mask], beside / f"fold-{i}" if beside else None,
            resume=resume, progress=progress, accept_finished=resume, extra_header=extra_header,
            row_costs=None if row_costs is None else row_costs[~mask],
        )  # fmt: skip
        rows = X[mask] if as_new is None else as_new(X[~mask], X[mask])
        labels, scores = model.predict_topk(rows, min(_TOP_K, Y.shape[1]))
        # A label whose rows are all held out was not trained, so its score says nothing.
        labels = np.where(model.train_counts.counts[labels] > 0, labels, -1).astype(np.int32)
        possible += int((model.train_counts.counts[Y[mask].indices] > 0).sum())
        found.append((labels, scores, find_hits(Y[mask], labels, method.threads)))
    if not possible or not any((labels >= 0).any() for labels, _, _ in found):
        return None  # labels of one row each: whoever lacks the row cannot know the label
    labels, scores, hits = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    n_true = np.bincount(np.concatenate([Y[mask].indices for mask in masks]), minlength=Y.shape[1])
    return Calibration.fit(labels, scores, hits, n_true).to_part()


def calibration_dir(model_dir: PathLike | None) -> Path | None:
    """Where to keep the models that are only trained for calibration: beside a model on this machine."""
    if model_dir is None or is_url(model_dir):
        return None
    return Path(f"{os.fspath(model_dir).rstrip(os.sep)}.calibration")


def first_fold(model_dir: PathLike | None) -> Path | None:
    """Where the first of these models is."""
    beside = calibration_dir(model_dir)
    return None if beside is None else beside / "fold-0"
