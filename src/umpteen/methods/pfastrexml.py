"""PfastreXML: FastXML for rare labels (Jain, Prabhu and Varma, KDD 2016).

Two changes. A correctly ranked label gains 1 / p_l, with p_l its propensity, and a row's gain is no longer divided by
the best possible one, so splits and leaves favour rare labels. And the labels from the trees are re-ranked by how
near the row is to each label's centroid m_l, the mean of the label's rows scaled to length 1:

    score = trees^α · (1 / (1 + exp(γ |x / |x| - m_l|²)))^(1 - α)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.matrix import Csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.propensity import LabelCounts, check_constants, propensities
from umpteen.engines.base import Resources, Task
from umpteen.errors import ParamError
from umpteen.memory import Estimate
from umpteen.methods.fastxml import FastXML
from umpteen.methods.one_vs_rest import count_weights_bound
from umpteen.methods.training_data import TrainingData
from umpteen.models.forest import Centroids
from umpteen.models.linear import LinearShard
from umpteen.params import check_count, check_number, inherits_parameters
from umpteen.storage.saving import shard_name
from umpteen.storage.store import Part

#: Labels whose centroids are stored together.
_LABELS_PER_SHARD = 16384
#: Products per piece of work: a few hundredths of a second.
_WORK_PER_PIECE = 2_000_000


@inherits_parameters
class PfastreXML(FastXML):
    """FastXML with gains divided by propensity, re-ranked by label centroids.

    Parameters
    ----------
    alpha
        The trees' share of the score, in [0, 1]; the centroids have the rest.
    gamma
        How fast a centroid's influence falls with its distance.
    n_candidates
        How many of the trees' best labels are re-ranked; the others are dropped.
    A, B
        The propensity's constants.
    **forest
        The parameters of `FastXML`, with its defaults.

    Examples
    --------
    >>> import umpteen
    >>> train = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> labels, scores = umpteen.PfastreXML(n_trees=10).fit(train.X, train.Y).predict_topk(train.X, top_k=3)
    >>> labels.shape
    (500, 3)
    """

    name: ClassVar[str] = "pfastrexml"
    has_boundary: ClassVar[bool] = False  # votes are multiplied by similarities
    renamed: ClassVar[Mapping[str, str]] = {"candidates": "n_candidates"}
    divides_by_ideal: ClassVar[bool] = False

    def __init__(
        self,
        alpha: float = 0.8,
        gamma: float = 30.0,
        n_candidates: int = 1000,
        A: float = 0.55,
        B: float = 1.5,
        **forest: Any,
    ) -> None:
        super().__init__(**forest)
        self.alpha = alpha
        self.gamma = gamma
        self.n_candidates = n_candidates
        self.A = A
        self.B = B

    def validate(self) -> None:
        super().validate()
        if check_number("alpha", self.alpha, 0) > 1:
            raise ParamError(f"alpha must be in [0, 1], but is {self.alpha!r}")
        check_number("gamma", self.gamma, 0)
        check_count("n_candidates", self.n_candidates)
        check_constants(self.A, self.B)

    def plan(self, data: TrainingData) -> list[Task]:
        """Blocks of centroids, then a shard per tree."""
        blocks = range(0, data.Y.shape[1], _LABELS_PER_SHARD)
        labels = [np.arange(begin, min(begin + _LABELS_PER_SHARD, data.Y.shape[1])) for begin in blocks]
        plans: list[tuple[Any, str]] = [(block, f"centroids of labels {block[0]} to {block[-1]}") for block in labels]
        plans += [(tree, f"tree {tree}") for tree in range(self.n_trees)]
        return [Task(shard_name(i), plan, 1.0, about) for i, (plan, about) in enumerate(plans)]

    def label_gains(self, Y: Csr) -> NDArray[np.float32]:
        """1 / p_l; all equal if there are too few rows for propensities."""
        if Y.shape[0] < 3:
            return np.ones(Y.shape[1], np.float32)
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        return (1 / propensities(LabelCounts(counts, Y.shape[0]), self.A, self.B)).astype(np.float32)

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        if not isinstance(task.plan, np.ndarray):
            return super().train_shard(data, task, resources)
        means = _mean_rows(data, task.plan, resources)
        squares = np.asarray(means.multiply(means).sum(axis=1)).ravel()
        shard = LinearShard.from_weights(means, -squares / 2, task.plan)
        return Centroids(shard, float(self.alpha), float(self.gamma), int(self.n_candidates)).to_part()

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        forest = super().estimate(X, Y)
        weights = int(count_weights_bound(X, Y).sum())
        model_bytes = forest.model_bytes + weights * 4 + (X.shape[1] + 2 * Y.shape[1]) * 8
        return Estimate(forest.peak_bytes + weights * 40 + X.nnz * 8, model_bytes)


def _mean_rows(data: TrainingData, labels: NDArray[Any], resources: Resources) -> Any:
    """The mean of each label's rows, scaled to length 1: sparse, n_labels x n_features."""
    unit = Preprocessing(normalize=True).transform(data.X, threads=resources.threads)
    members = data.rows_of[:, labels].T.tocsr()
    totals = np.diff(members.indptr).astype(np.float32)
    if data.row_costs is not None:
        members = members @ sp.diags(data.row_costs)
        totals = np.asarray(members.sum(axis=1), np.float32).ravel()
    # In pieces of about equal work, so that an interrupt takes effect between them.
    work = np.concatenate([[0], np.cumsum(np.diff(unit.indptr)[members.indices], dtype=np.int64)])[members.indptr]
    sums, begin = [], 0
    while begin < len(labels):
        resources.raise_if_cancelled()
        end = max(begin + 1, int(np.searchsorted(work, work[begin] + _WORK_PER_PIECE, side="right")) - 1)
        sums.append(members[begin:end] @ unit)
        begin = end
    return sp.diags(1 / np.where(totals > 0, totals, 1)) @ sp.vstack(sums, format="csr")
