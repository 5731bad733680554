"""Texts for a tagger that is already trained: the labels it lacks, its words, and corrections.

A word that is new to the vocabulary gets a column after the others; the weights of old labels stay as they are, since
none has a weight for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from umpteen.data.corrections import Correction
from umpteen.data.files import PathLike
from umpteen.data.label_lists import check_label_lists, encode_labels
from umpteen.data.matrix import Csr
from umpteen.errors import DataError, ParamError
from umpteen.methods import METHODS, method_of
from umpteen.methods.base import COMPUTE_PARAMS, Method
from umpteen.methods.correcting import Judgment, learn_corrections
from umpteen.methods.growing import append_labels, widen
from umpteen.methods.negatives import Background, shares_of_idf
from umpteen.methods.one_vs_rest import OneVsRest
from umpteen.progress import Listener
from umpteen.tagging.storage import VOCABULARY
from umpteen.text.features import TextFeatures
from umpteen.trained.model import TrainedModel

#: Corrections learnt before texts are ranked again.
_TOGETHER = 250


def method_with(model: TrainedModel, recipe: Any) -> Any:
    """The method that trained a model, with the model, and computing as a tagger's method does; None if unknown."""
    method: Any = type(recipe).from_model(model) if isinstance(recipe, Method) else None
    if method is None and model.method in METHODS:
        method = method_of(model)
    if isinstance(recipe, Method):  # how it computes, which models do not record
        method.set_params(**{name: getattr(recipe, name) for name in COMPUTE_PARAMS})
    return method


def encode_new_labels(model: TrainedModel, labels: Iterable[Iterable[str]]) -> tuple[list[str], Csr]:
    """The labels that a model lacks: their names, and Y."""
    names, Y = encode_labels(
        [name for name in row if name not in model.ids_by_name] for row in check_label_lists(labels)
    )
    if not names:
        raise DataError("labels must include a label the model does not have, but it has all of them")
    return names, Y


def make_corrections(texts: Any, labels: Any, accepted: Any, rejected: Any, added: Any) -> list[Correction]:
    """What `Tagger.learn` is given, as corrections: of one text, of several, or of rows by their numbers."""
    one = isinstance(texts, str)
    given = {"labels": labels, "accepted": accepted, "rejected": rejected, "added": added}
    given = {name: [value] if one else value for name, value in given.items() if value is not None}
    if not given or ("labels" in given and len(given) > 1):
        raise ParamError("learn needs either labels or some of accepted, rejected and added")
    rows = [texts] if one else list(texts)
    lists = {name: check_label_lists(value) for name, value in given.items()}
    for name, found in lists.items():
        if len(found) != len(rows):
            raise DataError(f"{name} must have a list for each of the {len(rows)} texts, but has {len(found)}")
    return [
        Correction.make(
            row,
            lists["labels"][i] if "labels" in lists else None,
            *(lists[name][i] if name in lists else [] for name in ("accepted", "rejected", "added")),
            where=f"text {i}",
        )
        for i, row in enumerate(rows)
    ]


def grow_features(
    model: TrainedModel, features: TextFeatures, texts: Sequence[str]
) -> tuple[TrainedModel, TextFeatures, Csr]:
    """The model and its vocabulary with the new words of texts, and the texts as rows."""
    grown = features.grown(texts)
    X = grown.transform(texts)
    if grown is features:
        return model, features, X
    return widen(model, X).with_part(VOCABULARY, grown.to_part()), grown, X


def add_new_labels(
    method: OneVsRest,
    features: TextFeatures,
    texts: Sequence[str],
    Y: Csr,
    names: Sequence[str],
    model_dir: PathLike | None,
    *,
    negatives: str,
    resume: bool,
    progress: bool | Listener,
) -> TextFeatures:
    """Trains the labels of texts that a method's model lacks; returns the vocabulary with their words."""
    before = method.fitted()
    method.model_, grown, X = grow_features(before, features, texts)
    try:
        method.grow(
            X, Y, names, model_dir,
            negatives=negatives, background=find_background(grown), resume=resume, progress=progress,
        )  # fmt: skip
    except BaseException:
        method.model_ = before
        raise
    return grown


def find_background(features: TextFeatures) -> Background | None:
    """How often terms occur in training texts, which their idf says; None without an idf."""
    idf: Any = features.idf_
    if idf is None:
        return None
    shares = shares_of_idf(idf, features.n_rows_, float(features.smooth_idf))
    return Background(shares, features.typical_values(shares), features.norm == "l2")


def can_learn(model: TrainedModel, recipe: Any) -> bool:
    """Whether a model learns from corrections; `recipe` is its tagger's method."""
    return _correction_cost(method_with(model, recipe)) is not None


def _correction_cost(method: Any) -> float | None:
    return method.correction_cost() if isinstance(method, OneVsRest) else None


def learn_texts(
    model: TrainedModel,
    method: Any,
    features: TextFeatures | None,
    corrections: Sequence[Correction],
    X: Csr | None = None,
) -> tuple[TrainedModel, TextFeatures | None]:
    """A model after some corrections, and its vocabulary with their words.

    Parameters
    ----------
    method
        That of the model, with the model; None if it is unknown here.
    X
        The rows of the corrections where they are no texts.
    """
    cost = _correction_cost(method)
    if cost is None:
        raise ParamError(
            f"corrections are learnt by dismec and ppdsparse, but this model's method is {model.method}; "
            "train it again with the corrected texts"
        )
    if features is not None:
        model, features, X = grow_features(model, features, [correction.text for correction in corrections])
    assert X is not None
    has_words = np.diff(X.indptr) > 0
    if not has_words.any():
        raise DataError("corrections must have a text with a word in it, but none of them has one")
    X, corrections = X[has_words], [said for said, learnt in zip(corrections, has_words, strict=True) if learnt]
    new = sorted({name for correction in corrections for name in correction.right} - set(model.ids_by_name))
    if new:
        method.check_can_grow(model)
        model = append_labels(model, new, method.weight_type)
    ids = model.ids_by_name
    judgments = [
        Judgment([ids[a] for a in said.right], [ids[a] for a in said.wrong if a in ids], said.complete)
        for said in corrections
    ]
    prune = float(getattr(method, "prune", 0.0))
    for begin in range(0, len(judgments), _TOGETHER):
        some = slice(begin, begin + _TOGETHER)
        model = learn_corrections(
            model, X[some], judgments[some], C=cost, prune=prune, weight_type=method.weight_type
        )
    return model, features
