"""LabelText: labels are known by their words, on which those of few rows lean and those of none depend.

A label's terms are a sparse row z_l over the features of the texts, scaled to sum 1. Three steps:

1. Words. For each word g of labels, w_g is trained to tell the rows that have a label with g from all others, as
   PPDSparse trains a label. A word that few rows speak for, n_g, leans on what holds of words in general: the text
   that has a label's word may have the label. With e_g the feature itself,

       w_g ← n_g / (n_g + word_rows) w_g + word_rows / (n_g + word_rows) (match e_g, -1)

2. Labels from words: v_l = Σ_g z_lg w_g. This sparse map, one row per word, is all that labels share: of a label
   that no row has, it knows what labels with the same words have taught it.

3. Own weights u_l, trained from the label's n_l rows, count for more the more rows there are:

       w_l = n_l / (n_l + own_rows) u_l + own_rows / (n_l + own_rows) v_l

The result is a linear model, a weight per (feature, label): scored through its inverted index like any other, exactly
explained in words of the text, and no larger than `prune` lets it be. A label without terms has its own weights only.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.matrix import Csr, as_csr, fingerprint, make_csr
from umpteen.engines.base import Engine, Resources, Task
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.memory import Estimate
from umpteen.methods.dual import bound_dual_memory
from umpteen.methods.one_vs_rest import LabelBlocks, LabelWeights, count_weights_bound
from umpteen.methods.ppdsparse import PPDSparse
from umpteen.methods.training_data import TrainingData
from umpteen.models.linear import LinearShard
from umpteen.params import check_count, check_number
from umpteen.progress import Listener
from umpteen.storage.store import Part
from umpteen.threads import resolve_threads
from umpteen.trained.model import TrainedModel

#: The part of a model that keeps the terms, and the entry of its manifest that identifies them.
LABEL_TERMS = "label_terms"
#: The score of a word that nothing in a row speaks for: beyond the margin of a row without it.
_ABSENT = -1.0


class LabelText(LabelBlocks):
    """One-vs-rest over labels and over their words, so that labels with few rows or none are ranked too.

    Parameters
    ----------
    label_terms : sparse, n_labels x n_features, or None
        The words of labels as rows of the features of X, such as ``tagger.features_.transform(names)``: how much each
        counts. `Tagger` makes them from names, or from all terms of a vocabulary. Without them, and for a label that
        has none, this is PPDSparse.
    match
        The weight of a label's word in a text where no row has taught otherwise.
    word_rows
        So many rows count as much as that for a word.
    own_rows
        So many rows of a label count as much as its words.
    lambda_, tau
        As for PPDSparse.
    prune
        Weights smaller than this are dropped.
    bias
        The value of the constant feature; 0 leaves it out.
    normalize, tfidf, power
        Preprocessing of rows, in this order: raise values to `power`, from 0 to 1; with `tfidf`, weight counts by
        inverse document frequency; with `normalize`, scale rows to unit length. Terms are taken as they are.
    weight_type
        How weights are stored: "float16" or "float32".
    labels_per_shard
        Labels trained and stored together; by default chosen from the number of labels.
    seed
        Seeds the order in which rows are visited.
    threads, engine
        How to compute; the model does not depend on them. Words are trained on this machine.

    Examples
    --------
    >>> import umpteen
    >>> texts = ["herring in the sea", "cod in the sea", "a tax on wine", "beer tax", "salt tax", "sea salt"] * 5
    >>> labels = [["sea fish"], ["sea fish"], ["wine tax"], ["tax"], ["tax"], ["sea"]] * 5
    >>> names = ["sea", "sea fish", "tax", "wine", "wine tax"]  # wine: of no text
    >>> words = umpteen.Tfidf().fit(texts)
    >>> Y = [[name in row for name in names] for row in labels]
    >>> method = umpteen.LabelText(words.transform(names)).fit(words.transform(texts), Y, label_names=names)
    >>> ids, _ = method.predict_topk(words.transform(["wine"]), top_k=2)
    >>> sorted(names[i] for i in ids[0])
    ['wine', 'wine tax']
    """

    name: ClassVar[str] = "label-text"
    weighs_rows: ClassVar[bool] = True
    takes_label_terms: ClassVar[bool] = True
    kept_as_parts: ClassVar[tuple[str, ...]] = (LABEL_TERMS,)

    def __init__(
        self,
        label_terms: Any = None,
        match: float = 5.0,
        word_rows: float = 30.0,
        own_rows: float = 1.0,
        lambda_: float = 0.005,
        tau: float = 0.5,
        prune: float = 0.01,
        bias: float = 1.0,
        normalize: bool = True,
        tfidf: bool = False,
        power: float = 1.0,
        weight_type: str = "float16",
        labels_per_shard: int | None = None,
        seed: int = 0,
        threads: int | None = None,
        engine: str | Engine = "local",
    ) -> None:
        self.label_terms = label_terms
        self.match = match
        self.word_rows = word_rows
        self.own_rows = own_rows
        self.lambda_ = lambda_
        self.tau = tau
        self.prune = prune
        self.bias = bias
        self.normalize = normalize
        self.tfidf = tfidf
        self.power = power
        self.weight_type = weight_type
        self.labels_per_shard = labels_per_shard
        self.seed = seed
        self.threads = threads
        self.engine = engine

    def __repr__(self) -> str:
        if self.label_terms is None:
            return super().__repr__()
        plain = type(self)(**self.get_params() | {LABEL_TERMS: None})
        shown = f"label_terms=<{' x '.join(map(str, np.shape(self.label_terms)))}>"
        return repr(plain).replace("(", f"({shown}, ", 1).replace(", )", ")")

    def validate(self) -> None:
        super().validate()
        for name in ("match", "word_rows", "own_rows", "lambda_", "prune"):
            check_number(name, getattr(self, name), 0)
        check_number("tau", self.tau, 0, above=True)
        check_count("seed", self.seed, low=0)
        if self.label_terms is not None:
            self._read_terms()

    def _read_terms(self) -> Csr:
        return as_csr(self.label_terms, LABEL_TERMS)

    def _scaled_terms(self, n_labels: int, n_features: int) -> Csr:
        """z: rows of non-negative numbers with sum 1, or empty."""
        if self.label_terms is None:
            return make_csr(
                np.zeros(0, np.float32),
                np.zeros(0, np.int32),
                np.zeros(n_labels + 1, np.int64),
                (n_labels, n_features),
            )
        terms = self._read_terms()
        if terms.shape != (n_labels, n_features):
            raise DataError(
                f"{LABEL_TERMS} must be {n_labels} labels x {n_features} features, as Y and X are, but is "
                f"{terms.shape[0]} x {terms.shape[1]}"
            )
        if terms.nnz and terms.data.min() < 0:
            raise DataError(f"{LABEL_TERMS} must not be negative, but one is {terms.data.min()}")
        sums = np.asarray(terms.sum(axis=1), np.float64).ravel()
        scaled = (_diagonal(np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)) @ terms).tocsr()
        scaled.eliminate_zeros()
        return as_csr(scaled.astype(np.float32), LABEL_TERMS)

    # --- train ---------------------------------------------------------------------------------------------------

    def train_companions(self, X: Csr, Y: Csr, progress: bool | Listener) -> tuple[dict[str, Any], dict[str, Part]]:
        if self.label_terms is None:
            return {}, {}
        terms = self._scaled_terms(Y.shape[1], X.shape[1])
        part = Part({"data": terms.data, "indices": terms.indices, "indptr": terms.indptr.astype(np.int64)})
        return {LABEL_TERMS: fingerprint(terms)}, {LABEL_TERMS: part}

    def plan(self, data: TrainingData, first_label: int = 0, first_shard: int = 0) -> list[Task]:
        self._terms = self._scaled_terms(data.Y.shape[1], data.X.shape[1])
        self._words = train_words(
            data, self._terms, self._solver(), match=float(self.match), word_rows=float(self.word_rows),
            threads=resolve_threads(self.threads),
        )  # fmt: skip
        return super().plan(data, first_label, first_shard)

    def _solver(self) -> PPDSparse:
        return PPDSparse(
            lambda_=float(self.lambda_), tau=float(self.tau), prune=min(0.001, float(self.prune)), bias=self.bias,
            seed=self.seed,
        )  # fmt: skip

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        labels: NDArray[np.int32] = task.plan
        own = solve_labels(self._solver(), data, labels, resources.threads, resources.token)
        trained = join_weights(own, self._words, self._terms[labels], data, labels, float(self.own_rows))
        trained.W.data[np.abs(trained.W.data) < self.prune] = 0
        return LinearShard.from_weights(trained.W, trained.bias, labels, self.weight_type).to_part()

    @classmethod
    def from_model(cls, model: Any) -> Self:
        method = super().from_model(model)
        trained: TrainedModel = method.model_
        if LABEL_TERMS in trained.parts:
            method.label_terms = _open_terms(trained)
        return method

    # --- memory --------------------------------------------------------------------------------------------------

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        terms = self._scaled_terms(Y.shape[1], X.shape[1])
        words = _count_words(Y, terms)
        of_word = np.minimum(count_weights_bound(X, words) + 1000, X.shape[1])
        of_word[np.bincount(words.indices, minlength=X.shape[1]) == 0] = 1
        shared = sp.csr_array((of_word[terms.indices], terms.indices, terms.indptr), shape=terms.shape).sum(axis=1)
        own = count_weights_bound(X, Y) + 1000
        bound = self.bound_size(np.minimum(own + np.asarray(shared).ravel(), X.shape[1]), X.shape[1])
        used = int(of_word[np.unique(terms.indices)].sum())
        work = bound.in_work * 40 + 24 * used + X.nnz * 8 + (Y.nnz + words.nnz) * 8
        solved = max(Y, words, key=lambda labels: labels.nnz)  # one after the other
        peak = bound_dual_memory(X, solved, resolve_threads(self.threads)) + work + bound.model_bytes
        return Estimate(peak, bound.model_bytes)


def train_words(
    data: TrainingData, terms: Csr, solver: PPDSparse, *, match: float, word_rows: float, threads: int
) -> LabelWeights:
    """Step 1: the weights of every feature as a word of labels, n_features x n_features."""
    n_features = data.X.shape[1]
    targets = _count_words(data.Y, terms)
    counts = np.bincount(targets.indices, minlength=n_features)
    taught = np.flatnonzero(counts).astype(np.int32)
    W, bias = sp.csr_array((0, n_features), dtype=np.float32), np.zeros(0, np.float32)
    if len(taught):
        some = TrainingData(data.X, targets[:, taught], data.bias, row_costs=data.row_costs)
        W, bias = solve_labels(solver, some, np.arange(len(taught), dtype=np.int32), threads)
    trust = counts / (counts + word_rows) if word_rows else (counts > 0).astype(float)
    place = sp.csr_array((trust[taught], (taught, np.arange(len(taught)))), shape=(n_features, len(taught)))
    needed = np.zeros(n_features)
    needed[np.unique(terms.indices)] = 1
    shared = place @ sp.csr_array(W) + _diagonal(match * (1 - trust) * needed)
    level = np.full(n_features, _ABSENT)
    level[taught] = trust[taught] * bias + (1 - trust[taught]) * _ABSENT
    return LabelWeights(sp.csr_array(shared), level.astype(np.float32))


def join_weights(
    own: LabelWeights, words: LabelWeights, terms: Any, data: TrainingData, labels: NDArray[np.int32], own_rows: float
) -> LabelWeights:
    """Steps 2 and 3: the weights of labels from their own and from those of their words."""
    counts = np.diff(data.rows_of.indptr)[labels].astype(np.float64)
    has_terms = np.diff(terms.indptr) > 0
    trust = np.where(has_terms & (counts > 0), counts / np.maximum(counts + own_rows, 1e-9), counts > 0)
    shared, own_part = _diagonal((1 - trust) * has_terms), _diagonal(trust.astype(np.float64))
    W = sp.csr_array(own_part @ sp.csr_array(own.W) + shared @ (sp.csr_array(terms) @ words.W), dtype=np.float32)
    bias = trust * np.where(counts > 0, own.bias, 0) + (1 - trust) * (terms @ words.bias)
    bias[(counts == 0) & ~has_terms] = -np.inf  # nothing is known of it, so it must not be ranked
    return LabelWeights(W, bias.astype(np.float32))


def solve_labels(
    solver: PPDSparse, data: TrainingData, labels: NDArray[np.int32], threads: int, token: Any = None
) -> LabelWeights:
    solved = solver.solve(
        data, labels, lambda_=float(solver.lambda_), tau=float(solver.tau), threads=threads, token=token
    )
    return LabelWeights(sp.csr_array(solved["weights"], shape=(len(labels), data.X.shape[1])), solved["bias"])


def _count_words(Y: Csr, terms: Csr) -> Csr:
    """Rows x features: 1 where a row has a label with the word."""
    pattern = make_csr(np.ones_like(terms.data), terms.indices, terms.indptr, terms.shape)
    found = as_csr(Y @ pattern, "the words of labels")
    return make_csr(np.ones(found.nnz, np.float32), found.indices, found.indptr, found.shape)


def _open_terms(model: TrainedModel) -> Csr:
    """The terms that a model keeps, which is not trusted."""
    part = model.parts[LABEL_TERMS]
    arrays = (part.array("data", "float32"), part.array("indices", "int32"), part.array("indptr", "int64"))
    try:
        matrix = sp.csr_matrix(arrays, shape=(model.n_labels, model.n_features))
        return as_csr(matrix, LABEL_TERMS)
    except (ValueError, DataError, ParamError) as error:
        raise ModelCorruptError(f"the terms of labels are not usable: {error}") from error


def _diagonal(values: NDArray[np.float64]) -> Any:
    """A matrix with these values on its diagonal, which SciPy has a function for from 1.12 on."""
    return sp.dia_array((values[np.newaxis], [0]), shape=(len(values), len(values)))
