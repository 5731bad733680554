"""Texts that count more or less than once: `sample_weight` of a tagger's `fit`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.methods.row_costs import check_weights
from umpteen.tagging.targets import LabelMatrix, check_rows


def weigh_texts(texts: Any, labels: Any, sample_weight: Any) -> tuple[Any, Any, NDArray[np.float32] | None]:
    """The texts that count, their labels, and how many times each counts; None if each counts once."""
    if sample_weight is None:
        return texts, labels, None
    if not isinstance(labels, LabelMatrix):
        labels = list(labels)
    n_texts = labels.Y.shape[0] if isinstance(labels, LabelMatrix) else len(labels)
    texts = texts if hasattr(texts, "shape") else list(texts)
    check_rows(texts.shape[0] if hasattr(texts, "shape") else len(texts), n_texts)
    weights = check_weights(sample_weight, n_texts)
    kept = np.flatnonzero(weights > 0)
    if len(kept) < n_texts:
        weights = weights[kept]
        texts = _take(texts, kept)
        labels = labels.take(kept) if isinstance(labels, LabelMatrix) else [labels[i] for i in kept]
    return texts, labels, None if (weights == 1).all() else weights


def _take(texts: Any, kept: NDArray[np.intp]) -> Any:
    """Some of the rows of a list, a matrix, or a table of pandas, Arrow or polars."""
    if isinstance(texts, list):
        return [texts[i] for i in kept]
    if hasattr(texts, "iloc"):
        return texts.iloc[kept]
    if hasattr(texts, "take") and not (sp.issparse(texts) or isinstance(texts, np.ndarray)):
        return texts.take(kept)
    return texts[kept]
