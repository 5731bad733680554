"""FastXML: a forest whose splits optimise nDCG (Prabhu and Varma, KDD 2014).

Each row i of a node goes to one of two sides, δ_i = ±1; each side ranks all labels, r±; and a hyperplane w separates
the sides:

    min  |w|₁ + Σ_i C_δ log(1 + e^(-δ_i w·x_i)) - C_r Σ_i ½(1 + δ_i) nDCG(r⁺, y_i) - C_r Σ_i ½(1 - δ_i) nDCG(r⁻, y_i)

Training starts at w = 0 and a random δ. It alternates between rankings (each side's labels by the sum of its rows'
1 / ideal DCG) and sides (each row to the ranking that serves it better) until no row moves; only then is w trained,
by coordinate Newton with line search (cpp/include/umpteen/l1_newton.hpp). No step raises the objective. Rows with
w·x > 0 go to one child, the others to the other, until at most `max_leaf` are left, or w cannot separate them; a leaf
keeps the mean of its rows' labels. Trees differ only in their random starts, and a row's prediction is the mean of
the leaves it falls into.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, as_csr, fingerprint, fingerprint_array, offsets
from umpteen.data.propensity import count_labels
from umpteen.engines.base import Engine, Parallelism, Resources, Task
from umpteen.errors import DataError
from umpteen.memory import Estimate, check_fits
from umpteen.methods.base import Method
from umpteen.methods.row_costs import weigh_rows
from umpteen.methods.training import train_shards
from umpteen.methods.training_data import TrainingData
from umpteen.models.forest import ForestModel, Tree, leaf_depths
from umpteen.params import check_choice, check_count, check_flag, check_number
from umpteen.progress import Listener, listening
from umpteen.storage.saving import shard_name
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads
from umpteen.trained.model import TrainedModel

SPLIT_LOSSES = ("ndcg", "ndcg5", "precision5")


class FastXML(Method):
    """A forest of trees that split rows so that both sides' labels are easy to rank.

    Parameters
    ----------
    n_trees
        More are better and slower; 25 lose little.
    max_leaf
        The most rows a leaf may have, whatever they weigh.
    C_delta, C_r
        Weights of the logistic loss and of the ranking gain against |w|₁. With one update of w, C_r has no effect:
        rankings and sides are settled before w is.
    labels_per_leaf
        How many labels a leaf keeps, the most frequent ones.
    balance_sides
        Whether a row counts ``n / n_side`` times in the loss, so that both sides count the same, as in the authors'
        program. Without it w tends to send all rows of an uneven node to one side, which ends the tree there.
    w_updates
        How often a node's w is trained; sides and rankings are settled again in between.
    split_loss
        What the rankings optimise: "ndcg" over all labels, or "ndcg5" or "precision5" over the first five, which the
        paper shows to be worse.
    bias
        The value of the constant feature; 0 leaves it out.
    eps, max_outer, max_inner
        The training of w ends when violations are ``eps · min(n⁺, n⁻) / n`` of those at zero (LIBLINEAR's rule), or
        after `max_outer` quadratic models with `max_inner` passes over each. Only the sign of w·x counts, so the
        defaults stop before the optimum, as the authors' program does (10 models, 10 passes): within 3 % of it at
        Bibtex's nodes, but well above it at the root of EURLex-4K, where values are large. They were chosen on
        held-out rows: more are slower and no better there, but a little better on Mediamill, whose rows are dense.
    seed
        Seeds the random starts. Tree t depends only on the seed and t.
    normalize, tfidf, power
        Preprocessing, in this order: raise values to `power`, from 0 to 1 (0.5 damps large values); with `tfidf`,
        weight counts by inverse document frequency; with `normalize`, scale rows to unit length. By default values
        are unchanged.
    threads, engine
        How to compute; the model does not depend on them.

    Examples
    --------
    >>> import umpteen
    >>> train = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> model = umpteen.FastXML(n_trees=10).fit(train.X, train.Y)
    >>> labels, scores = model.predict_topk(train.X, top_k=3)
    >>> labels.shape
    (500, 3)
    >>> model.add_trees(5, train.X, train.Y).model_.scorer.describe()["trees"]
    15
    """

    name: ClassVar[str] = "fastxml"
    parallelism: ClassVar[Parallelism] = "across"
    scorer_class = ForestModel
    weighs_rows: ClassVar[bool] = True
    #: Section 5's parameters (e) and (h), and the objective (5), which does not weigh sides.
    paper_settings: ClassVar[Mapping[str, Any]] = {
        "labels_per_leaf": 20,
        "balance_sides": False,
        "max_outer": 10,
        "max_inner": 10,
    }
    #: Whether a row's gain is divided by the best it could be, as nDCG's is.
    divides_by_ideal: ClassVar[bool] = True

    def __init__(
        self,
        n_trees: int = 50,
        max_leaf: int = 10,
        C_delta: float = 1.0,
        C_r: float = 1.0,
        labels_per_leaf: int = 100,
        balance_sides: bool = True,
        w_updates: int = 1,
        split_loss: str = "ndcg",
        bias: float = 1.0,
        eps: float = 0.01,
        max_outer: int = 6,
        max_inner: int = 3,
        seed: int = 0,
        normalize: bool = False,
        tfidf: bool = False,
        power: float = 1.0,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> None:
        self.n_trees = n_trees
        self.max_leaf = max_leaf
        self.C_delta = C_delta
        self.C_r = C_r
        self.labels_per_leaf = labels_per_leaf
        self.balance_sides = balance_sides
        self.w_updates = w_updates
        self.split_loss = split_loss
        self.bias = bias
        self.eps = eps
        self.max_outer = max_outer
        self.max_inner = max_inner
        self.seed = seed
        self.normalize = normalize
        self.tfidf = tfidf
        self.power = power
        self.threads = threads
        self.engine = engine

    def validate(self) -> None:
        for name in ("n_trees", "max_leaf", "labels_per_leaf", "w_updates", "max_outer", "max_inner"):
            check_count(name, getattr(self, name))
        check_count("seed", self.seed, low=0)
        for name in ("C_delta", "C_r", "eps"):
            check_number(name, getattr(self, name), 0, above=True)
        check_flag("balance_sides", self.balance_sides)
        self.preprocessing()  # checks its own parameters
        check_choice("split_loss", self.split_loss, SPLIT_LOSSES)
        if self.threads is not None:
            check_count("threads", self.threads, high=4096)

    # --- training -----------------------------------------------------------------------------------------------

    def plan(self, data: TrainingData) -> list[Task]:
        """A shard is a tree."""
        return [Task(shard_name(tree), tree, 1.0, f"tree {tree}") for tree in range(self.n_trees)]

    def label_gains(self, Y: Csr) -> NDArray[np.float32]:
        """The gain of each label when it is ranked right."""
        return np.ones(Y.shape[1], np.float32)

    def tree_input(self, data: TrainingData) -> _native.TreeInput:
        """The data and the parameters as the kernels take them."""
        gains = self.label_gains(data.Y)
        return _native.TreeInput(
            offsets(data.X),
            data.X.indices,
            data.X.data,
            data.X.shape[1],
            offsets(data.Y),
            data.Y.indices,
            gains,
            ideal=self.divides_by_ideal,
            leaf_scale=float(gains.max()),
            bias=data.bias,
            max_leaf=int(self.max_leaf),
            labels_per_leaf=int(self.labels_per_leaf),
            C_delta=float(self.C_delta),
            C_r=float(self.C_r),
            balance=bool(self.balance_sides),
            w_updates=int(self.w_updates),
            split_loss=self.split_loss,
            eps=float(self.eps),
            max_outer=int(self.max_outer),
            max_inner=int(self.max_inner),
            row_cost=data.row_costs,
        )

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        tree: int = task.plan
        seed = int(np.random.SeedSequence([int(self.seed), tree]).generate_state(1, np.uint64)[0])
        arrays: dict[str, Any] = _native.grow_tree(self.tree_input(data), seed, resources.token)
        rows = arrays.pop("leaf_rows")
        depths = leaf_depths(arrays["children"])
        arrays["weights"] = arrays["weights"].view(np.float16)
        return Tree(
            **arrays,
            bias=data.bias,
            scale=float(self.label_gains(data.Y).max()),
            mean_depth=float((depths * rows).sum() / rows.sum()),
        ).to_part()

    def add_trees(
        self, n: int, X: Any, Y: Any, *, progress: bool | Listener = False, sample_weight: Any = None
    ) -> Self:
        """Grows n more trees on the data the forest was trained on, with the same `sample_weight`. The result is the
        same as training them all at once. It stays in memory until `save`."""
        model = self.fitted()
        n = check_count("n", n)
        X, Y = as_csr(X, "X", model.n_features), as_csr(Y, "Y", model.n_labels, values=False)
        X, Y, row_costs = weigh_rows(self, X, Y, sample_weight)
        _check_same_data(model, X, Y, row_costs)
        check_fits(self.estimate(X, Y), "use fewer threads")
        self.set_params(**self.from_model(model).facts())
        old = model.scorer.to_parts()
        self.n_trees += n
        steps = model.preprocessing
        data = TrainingData(steps.transform(X, threads=self.threads), Y, steps.bias, row_costs=row_costs)
        tasks = self.plan(data)[len(old) :]
        with listening(progress, f"training {self.name}") as listener:
            new = train_shards(self, data, tasks, set(), None, listener)
        header = model.header | {"params": model.params | {"n_trees": self.n_trees}}
        shards = old + [new[task.name] for task in tasks]
        self.model_ = TrainedModel.open(header, model.parts, shards, self.threads)
        return self

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        # The rows by column, a child's rows again, those of the quadratic model, and the data per row and label.
        work = (X.nnz + X.shape[0]) * 20 + (Y.nnz + X.shape[0]) * 60 + (X.shape[1] + Y.shape[1]) * 60
        leaves = 2 * X.shape[0] / self.max_leaf + 1
        # Measured: a tree has from a tenth (EURLex-4K) to three tenths (40,000 labels with Amazon-670K's shape) as
        # many weights as X has entries, more if it is deeper; and a leaf rarely has the same label from two rows.
        weights = min(0.45 * X.nnz * max(1.0, math.sqrt(self.C_delta)), 2 * leaves * X.shape[1])
        model_bytes = int(self.n_trees * (weights * 4 + Y.nnz * 4 + leaves * 24))
        copies = X.nnz * self.preprocessing().bytes_per_value()
        return Estimate(int(work) * resolve_threads(self.threads) + copies + model_bytes, model_bytes)


def _check_same_data(model: TrainedModel, X: Csr, Y: Csr, row_costs: NDArray[np.float32] | None) -> None:
    """Refuses data that the forest was not trained on."""
    known = model.header.get("fingerprint", {"X": None, "Y": None})
    same = X.shape[0] == Y.shape[0] == model.train_counts.n_rows
    same = same and np.array_equal(count_labels(Y, "Y").counts, model.train_counts.counts)
    for name, matrix in (("X", X), ("Y", Y)):
        same = same and known[name] in (None, fingerprint(matrix))
    if not same:
        raise DataError("add_trees needs the data the forest was trained on, but X or Y differs")
    weights = None if row_costs is None else fingerprint_array(row_costs)
    if known["X"] is not None and known.get("sample_weight") != weights:
        raise DataError("add_trees needs the sample_weight the forest was trained with, but it differs")
