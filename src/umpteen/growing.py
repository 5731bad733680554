"""Texts for a tagger that is already trained: the labels it lacks, and their words.

A word that is new to the vocabulary gets a column after the others; the weights of old labels stay as they are, since
none has a weight for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr
from umpteen.methods.growing import widen
from umpteen.methods.negatives import Background, shares_of_idf
from umpteen.methods.one_vs_rest import OneVsRest
from umpteen.progress import Listener
from umpteen.text.growing import grow_vocabulary
from umpteen.text.tfidf import Tfidf
from umpteen.trained.model import TrainedModel

#: The part of a model that has the vocabulary.
VOCABULARY = "vocabulary"


def grow_features(model: TrainedModel, features: Tfidf, texts: Sequence[str]) -> tuple[TrainedModel, Tfidf, Csr]:
    """The model and its vocabulary with the new words of texts, and the texts as rows."""
    grown = grow_vocabulary(features, texts)
    X = grown.transform(texts)
    if grown is features:
        return model, features, X
    return widen(model, X).with_part(VOCABULARY, grown.to_part()), grown, X


def add_new_labels(
    method: OneVsRest,
    features: Tfidf,
    texts: Sequence[str],
    Y: Csr,
    names: Sequence[str],
    model_dir: PathLike | None,
    *,
    negatives: str,
    resume: bool,
    progress: bool | Listener,
) -> Tfidf:
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


def find_background(features: Tfidf) -> Background | None:
    """How often terms occur in training texts, which their idf says; None without an idf."""
    idf: Any = features.idf_
    if idf is None:
        return None
    shares = shares_of_idf(idf, features.n_rows_, float(features.smooth_idf))
    return Background(shares, np.asarray(idf, np.float64), features.norm == "l2")
