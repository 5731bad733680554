"""Rocchio's classifier (1971): a label's weights are the mean of its rows less a share of the mean of all rows."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from umpteen.plugin import (
    Estimate,
    LabelWeights,
    OneOf,
    OneVsRest,
    Resources,
    Space,
    TrainingData,
    check_number,
    count_weights_bound,
)


class Rocchio(OneVsRest):
    """Scores a label by how much nearer a row is to the label's rows than to all rows.

    Parameters
    ----------
    beta
        The share of the mean of all rows that is taken off.
    normalize, tfidf, power, weight_type, labels_per_shard, threads, engine
        As for umpteen's own methods.
    """

    name: ClassVar[str] = "rocchio"
    #: What `umpteen tune` tries.
    tuning_space: ClassVar[Space] = Space({"beta": OneOf((0.0, 0.25, 0.5, 1.0)), "power": OneOf((1.0, 0.5))})

    def __init__(
        self, beta=0.5, normalize=True, tfidf=False, power=1.0, weight_type="float16", labels_per_shard=None,
        threads=None, engine="local",
    ):  # fmt: skip
        self.beta = beta
        self.normalize = normalize
        self.tfidf = tfidf
        self.power = power
        self.weight_type = weight_type
        self.labels_per_shard = labels_per_shard
        self.threads = threads
        self.engine = engine

    def validate(self) -> None:
        super().validate()
        check_number("beta", self.beta, 0)

    def train_labels(self, data: TrainingData, labels: np.ndarray, resources: Resources) -> LabelWeights:
        members = data.rows_of[:, labels].T.tocsr()
        counts = np.maximum(np.diff(members.indptr), 1).astype(np.float32)
        means = (sp.diags(1 / counts) @ (members @ data.X)).tocsr()
        resources.raise_if_cancelled()
        # Only features of the label's own rows are kept, so that weights stay few.
        everywhere = np.asarray(data.X.mean(axis=0), np.float32).ravel()
        means.data -= np.float32(self.beta) * everywhere[means.indices]
        return LabelWeights(means, np.zeros(len(labels), np.float32))

    def estimate(self, X, Y) -> Estimate:
        bound = self.bound_size(count_weights_bound(X, Y), X.shape[1])
        return Estimate(32 * bound.in_work + 16 * X.nnz + 8 * Y.nnz + bound.model_bytes, bound.model_bytes)
