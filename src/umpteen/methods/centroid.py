"""Centroids: a label's weights are the mean of its rows. The baseline every other method must beat."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.matrix import Csr
from umpteen.engines.base import Engine, Parallelism, Resources
from umpteen.memory import Estimate
from umpteen.methods.one_vs_rest import LabelWeights, OneVsRest, count_weights_bound
from umpteen.methods.training_data import TrainingData
from umpteen.threads import resolve_threads

#: Bytes per weight while a shard is trained: the product, its transpose and the packed copy.
_WORK_BYTES = 32
#: Products per piece of work: a few hundredths of a second.
_WORK_PER_PIECE = 2_000_000


class Centroid(OneVsRest):
    """Scores a label by its mean similarity to its training rows: ``w_l = mean of x_i over the rows with label l``.

    Parameters
    ----------
    normalize
        Scale rows to unit length, so that the similarity is the cosine.
    tfidf
        Before that, weight counts by inverse document frequency.
    power
        Before that, raise values to this power, from 0 to 1: 0.5 damps large values.
    weight_type
        How weights are stored: "float16" or "float32".
    labels_per_shard
        Labels trained and stored together; by default chosen from the number of labels.
    threads, engine
        How to compute; the model does not depend on them.

    Examples
    --------
    >>> import umpteen
    >>> train = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> model = umpteen.Centroid().fit(train.X, train.Y)
    >>> labels, scores = model.predict_topk(train.X, top_k=3)
    >>> labels.shape
    (500, 3)
    """

    name: ClassVar[str] = "centroid"
    has_boundary: ClassVar[bool] = False  # a similarity above 0 says nothing
    weighs_rows: ClassVar[bool] = True
    parallelism: ClassVar[Parallelism] = "across"
    needs_negatives: ClassVar[bool] = False

    def __init__(
        self,
        normalize: bool = True,
        tfidf: bool = False,
        power: float = 1.0,
        weight_type: str = "float16",
        labels_per_shard: int | None = None,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> None:
        self.normalize = normalize
        self.tfidf = tfidf
        self.power = power
        self.weight_type = weight_type
        self.labels_per_shard = labels_per_shard
        self.threads = threads
        self.engine = engine

    def train_labels(self, data: TrainingData, labels: NDArray[np.int32], resources: Resources) -> LabelWeights:
        members = data.rows_of[:, labels].T.tocsr()
        counts = np.diff(members.indptr).astype(np.float32)
        if data.row_costs is not None:
            members = members @ sp.diags(data.row_costs)
            counts = np.asarray(members.sum(axis=1), np.float32).ravel()
        # In pieces of about equal work, so that an interrupt takes effect between them.
        work = np.concatenate([[0], np.cumsum(np.diff(data.X.indptr)[members.indices], dtype=np.int64)])[
            members.indptr
        ]
        sums, begin = [], 0
        while begin < len(labels):
            resources.raise_if_cancelled()
            end = max(begin + 1, int(np.searchsorted(work, work[begin] + _WORK_PER_PIECE, side="right")) - 1)
            sums.append(members[begin:end] @ data.X)
            begin = end
        means = sp.diags(np.divide(1, counts, out=np.zeros_like(counts), where=counts > 0)) @ sp.vstack(
            sums, format="csr"
        )
        return LabelWeights(means, np.zeros(len(labels), np.float32))

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        bound = self.bound_size(count_weights_bound(X, Y), X.shape[1], resolve_threads(self.threads))
        copies = X.nnz * (4 + self.preprocessing().bytes_per_value()) + Y.nnz * 8
        # Without a model directory the finished shards stay in memory too.
        return Estimate(bound.in_work * _WORK_BYTES + copies + bound.model_bytes, bound.model_bytes)
