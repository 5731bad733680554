"""DiSMEC: exact one-vs-rest, pruned (Babbar and Schölkopf, WSDM 2017).

Each label has its own support vector machine with squared hinge loss:

    min over (w, b)   1/2 |w|² + 1/2 b² + C Σ_i c_i max(0, 1 - s_i (w·x_i + b))²

with s_i = +1 for rows that have the label and -1 for all others. The bias is one more constant feature, regularised
as in LIBLINEAR. The problem is strictly convex, so any solver that reaches its optimum is DiSMEC; ours is Newton's
method (cpp/include/umpteen/newton_near_margin.hpp), stopped by LIBLINEAR's rule, or, usually faster, PPDSparse's
descent in the dual without its L1 term, stopped by the duality gap. Then weights smaller than `prune` are dropped.

With ``loss="logistic"`` the sum is C Σ_i c_i log(1 + exp(-s_i (w·x_i + b))) and everything else is the same
(cpp/include/umpteen/newton_all_rows.hpp).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen import _native
from umpteen.data.matrix import Csr, offsets
from umpteen.data.propensity import LabelCounts, check_constants, propensities
from umpteen.engines.base import Engine, Resources, Task
from umpteen.errors import ParamError
from umpteen.memory import Estimate
from umpteen.methods.dual import DualOneVsRest, bound_dual_memory, solve_dual
from umpteen.methods.label_tree import LabelTree
from umpteen.methods.label_weights import PositiveWeight, check_positive_weight, weigh_labels
from umpteen.methods.one_vs_rest import PANEL_LABELS, LabelWeights, count_weights_bound
from umpteen.methods.training_data import TrainingData
from umpteen.params import check_choice, check_count, check_flag, check_number
from umpteen.progress import Listener
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads
from umpteen.trained.model import TrainedModel
from umpteen.trained.nesting import nest_candidate_tree

LOSSES = ("squared_hinge", "logistic")


class DiSMEC(DualOneVsRest):
    """One-vs-rest squared-hinge SVMs or logistic regressions, solved exactly and pruned.

    Parameters
    ----------
    C
        Weight of the loss against the regulariser.
    prune
        Weights smaller than this are dropped; the paper's Δ. 0 keeps all.
    loss
        The loss of a row with margin m, s_i times its score: "squared_hinge" is the paper's ``max(0, 1 - m)²``;
        "logistic" is ``log(1 + exp(-m))``, which needs a larger C, such as 10.
    penalty
        "l2" as above, or "l1": Σ|w_f| + |b| instead of the squares. With "l1" most weights are 0: 8 to
        60 times fewer on seven of eight sets, as accurate where rows are short and labels few, less so where labels
        are many.
    bias
        The value of the constant feature; 0 leaves it out.
    solver
        "newton" stops when the gradient has shrunk to ``eps · min(n⁺, n⁻) / n`` of that at zero, LIBLINEAR's rule.
        "dual" stops when the duality gap shows the objective is within ``eps / 10`` of its minimum. "auto" uses the
        dual unless rows are dense.
    eps
        How exactly labels are solved; see `solver`.
    positive_weight : number, "balanced" or one number for each label
        How many times a row counts for the labels it has. "balanced" makes a label's rows together count as much as
        all others, as scikit-learn's ``class_weight`` does, up to a factor of C.
    propensity
        Whether rows also count ``2 / p_l - 1`` times for label l, with p_l its propensity, which favours rare labels.
    A, B
        The propensity's constants.
    max_rounds
        At most this many rounds per label: some Newton steps near the margin, then a pass over all rows. Three are
        usual. With logistic loss a round is one Newton step.
    normalize, tfidf, power
        Preprocessing, in this order: raise values to `power`, from 0 to 1 (0.5 damps large values); with `tfidf`,
        weight counts by inverse document frequency; with `normalize`, scale rows to unit length.
    weight_type
        How weights are stored: "float16" or "float32".
    labels_per_shard
        Labels trained and stored together; by default chosen from the number of labels.
    candidate_tree
        A `LabelTree`: prediction then ranks only the labels that the tree ranks first, which is far faster with very
        many labels and loses little. A tree that is not fitted is trained on the same data. The model keeps it.
    n_candidates
        How many labels the tree proposes.
    threads, engine
        How to compute; the model does not depend on them.

    Examples
    --------
    >>> import umpteen
    >>> train = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> test = umpteen.make_synthetic(200, 300, 20, seed=1, part="test")
    >>> labels, _ = umpteen.DiSMEC().fit(train.X, train.Y).predict_topk(test.X, top_k=3)
    >>> floor, _ = umpteen.Centroid().fit(train.X, train.Y).predict_topk(test.X, top_k=3)
    >>> umpteen.evaluate(test.Y, labels, k=1)["P@1"] > umpteen.evaluate(test.Y, floor, k=1)["P@1"]
    True
    """

    name: ClassVar[str] = "dismec"
    weighs_rows: ClassVar[bool] = True
    kept_as_parts: ClassVar[tuple[str, ...]] = ("candidate_tree",)
    #: LIBLINEAR's route, Algorithm 1's batches, and weights that are not rounded.
    paper_settings: ClassVar[Mapping[str, Any]] = {
        "solver": "newton",
        "labels_per_shard": 1000,
        "weight_type": "float32",
    }

    def __init__(
        self,
        C: float = 1.0,
        prune: float = 0.01,
        loss: str = "squared_hinge",
        penalty: str = "l2",
        bias: float = 1.0,
        solver: str = "auto",
        eps: float = 0.01,
        positive_weight: PositiveWeight = 1.0,
        propensity: bool = False,
        A: float = 0.55,
        B: float = 1.5,
        max_rounds: int = 100,
        normalize: bool = True,
        tfidf: bool = False,
        power: float = 1.0,
        weight_type: str = "float16",
        labels_per_shard: int | None = None,
        candidate_tree: LabelTree | None = None,
        n_candidates: int = 50,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> None:
        self.C = C
        self.prune = prune
        self.loss = loss
        self.penalty = penalty
        self.bias = bias
        self.solver = solver
        self.eps = eps
        self.positive_weight = positive_weight
        self.propensity = propensity
        self.A = A
        self.B = B
        self.max_rounds = max_rounds
        self.normalize = normalize
        self.tfidf = tfidf
        self.power = power
        self.weight_type = weight_type
        self.labels_per_shard = labels_per_shard
        self.candidate_tree = candidate_tree
        self.n_candidates = n_candidates
        self.threads = threads
        self.engine = engine

    def validate(self) -> None:
        super().validate()
        check_choice("loss", self.loss, LOSSES)
        for name in ("C", "eps"):
            check_number(name, getattr(self, name), 0, above=True)
        check_positive_weight(self.positive_weight)
        check_number("prune", self.prune, 0)
        for name, allowed in (("penalty", ("l2", "l1")), ("solver", ("auto", "newton", "dual"))):
            check_choice(name, getattr(self, name), allowed)
        if self.loss == "logistic" and self.penalty == "l1":
            raise ParamError("loss 'logistic' needs penalty 'l2', but penalty is 'l1'")
        if self.solver == "dual" and (self.loss, self.penalty) != ("squared_hinge", "l2"):
            raise ParamError(
                "solver 'dual' needs loss 'squared_hinge' and penalty 'l2', "
                f"but they are {self.loss!r} and {self.penalty!r}"
            )
        check_count("max_rounds", self.max_rounds)
        check_count("n_candidates", self.n_candidates)
        if not isinstance(self.candidate_tree, (LabelTree, NoneType)):
            raise ParamError(f"candidate_tree must be a LabelTree or None, but is {self.candidate_tree!r}"[:200])
        check_flag("propensity", self.propensity)
        check_constants(self.A, self.B)

    def positive_costs(self, counts: NDArray[np.int64], n_rows: int) -> NDArray[np.float32]:
        """How many times a row counts for each label it has: c_i of the objective."""
        costs = weigh_labels(self.positive_weight, counts, n_rows)
        if self.propensity:
            costs *= 2 / propensities(LabelCounts(counts, n_rows), self.A, self.B) - 1
        return costs.astype(np.float32)

    def plan(self, data: TrainingData, first_label: int = 0, first_shard: int = 0) -> list[Task]:
        weigh_labels(self.positive_weight, np.diff(data.rows_of.indptr), data.X.shape[0])  # refuses before any work
        return super().plan(data, first_label, first_shard)

    def uses_dual(self, X: Csr) -> bool:
        if self.solver != "auto":
            return self.solver == "dual"
        # If rows are dense, nearly all stay active, and descent row by row is slow.
        return self.loss == "squared_hinge" and self.penalty == "l2" and X.nnz < 0.25 * X.shape[0] * X.shape[1]

    def train_labels(self, data: TrainingData, labels: NDArray[np.int32], resources: Resources) -> LabelWeights:
        counts = np.diff(data.rows_of.indptr).astype(np.int64)
        # A negative that counts twice is a positive that counts half, with twice the C.
        costs = self.positive_costs(counts, data.X.shape[0])[labels] / np.float32(data.negative_weight)
        C = float(self.C) * data.negative_weight
        shape = (len(labels), data.X.shape[1])
        if self.uses_dual(data.X):
            # The dual solver's problem is ours divided by 2C.
            solved = solve_dual(
                data,
                labels,
                costs,
                squared=True,
                lambda_=0.0,
                tau=1 / (2 * C),
                eps=0.1 * float(self.eps),
                prune=float(self.prune),
                max_rounds=int(self.max_rounds),
                threads=resources.threads,
                token=resources.token,
                **self.start_of(labels),
            )
            self.keep_alphas(labels, solved)
            return LabelWeights(sp.csr_matrix(solved["weights"], shape), solved["bias"])
        rows_of = data.rows_of[:, labels]
        solve, kind = self._newton(data)
        solved = solve(
            offsets(data.X),
            data.X.indices,
            data.X.data,
            data.X.shape[1],
            rows_of.indptr.astype(np.int64),
            rows_of.indices.astype(np.int32),
            costs,
            C=C,
            bias=data.bias,
            eps=float(self.eps),
            prune=float(self.prune),
            max_rounds=int(self.max_rounds),
            **kind,
            threads=resources.threads,
            token=resources.token,
        )
        return LabelWeights(
            sp.csr_matrix((solved["data"], solved["indices"], solved["indptr"]), shape), solved["bias"]
        )

    def _newton(self, data: TrainingData) -> tuple[Any, dict[str, Any]]:
        """The Newton kernel for the loss, penalty and rows, and its own arguments."""
        if self.loss == "squared_hinge" and data.row_costs is None:
            return _native.solve_svms, {"l1": self.penalty == "l1"}
        # The kernel near the margin knows rows by their number only; this one reaches the same optimum.
        kind = {"squared_hinge": self.loss == "squared_hinge", "row_cost": data.row_costs}
        return _native.solve_panels, kind | ({"l1": True} if self.penalty == "l1" else {})

    # --- the candidate tree ---------------------------------------------------------------------------------------

    def train_companions(self, X: Csr, Y: Csr, progress: bool | Listener) -> tuple[dict[str, Any], dict[str, Part]]:
        if self.candidate_tree is None:
            return {}, {}
        tree = self.candidate_tree
        if not tree.__sklearn_is_fitted__():
            tree = LabelTree(**tree.get_params()).fit(X, Y, progress=progress)
        elif (tree.n_features_in_, tree.n_labels_) != (X.shape[1], Y.shape[1]):
            raise ParamError(
                f"candidate_tree must have {X.shape[1]} features and {Y.shape[1]} labels, "
                f"but has {tree.n_features_in_} and {tree.n_labels_}"
            )
        return nest_candidate_tree(tree.fitted())

    @classmethod
    def from_model(cls, model: Any) -> Self:
        method = super().from_model(model)
        model = method.model_
        if model.candidate_tree is not None:
            # Not fitted: a method trained on other data trains its tree on them too.
            method.candidate_tree = LabelTree(**LabelTree.from_model(model.candidate_tree).get_params())
        return method

    @property
    def has_margin(self) -> bool:
        return self.loss == "squared_hinge"

    def correction_cost(self) -> float | None:
        return float(self.C) if self.loss == "squared_hinge" else 1.0

    def check_can_grow(self, model: TrainedModel) -> None:
        if model.candidate_tree is not None:
            raise ParamError(
                "labels can only be added to a model without a candidate_tree: the tree would never propose them"
            )

    # --- memory -------------------------------------------------------------------------------------------------

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        own = self._estimate_own(X, Y)
        if self.candidate_tree is None:
            return own
        tree = self.candidate_tree.estimate(X, Y)  # trained first, and kept
        peak = max(tree.peak_bytes, tree.model_bytes + own.peak_bytes)
        return Estimate(peak, tree.model_bytes + own.model_bytes)

    def _estimate_own(self, X: Csr, Y: Csr) -> Estimate:
        n_rows, n_features = X.shape
        # After pruning, weights are mostly on the features of the label's own rows and of its nearest negatives.
        weights = np.minimum(count_weights_bound(X, Y) + 1000, n_features)
        bound = self.bound_size(weights, n_features)
        vectors = 5 if self.loss == "logistic" else 4  # as long as w, per label
        # Weights, directions and scores of a panel, and the rows near one label's margin in their packed form.
        panel = 4 * PANEL_LABELS * (vectors * n_features + 3 * n_rows) + min(8 * X.nnz, 32_000_000)
        threads = resolve_threads(self.threads)
        work = bound_dual_memory(X, Y, threads) if self.uses_dual(X) else threads * panel
        if self.penalty == "l1":  # X by columns, if rows count more or less than once
            work += 8 * (X.nnz + n_rows + n_features)
        peak = work + bound.in_work * 40 + X.nnz * 8 + Y.nnz * 8 + n_rows * 8
        return Estimate(peak + bound.model_bytes, bound.model_bytes)
