"""Blends of trained models: their probabilities, each weighted by how good it is.

Models of different kinds make different mistakes, so together they rank better than each alone. Their scores become
probabilities (models/calibration.py), and a rule combines these into one score (trained/blend_rule.py). It is found
on rows that none of them was trained on (find_rule.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from umpteen import __version__
from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr, as_csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.errors import DataError, ParamError
from umpteen.evaluation.metrics import find_hits
from umpteen.memory import Estimate, check_fits
from umpteen.methods.estimator import Estimator
from umpteen.methods.find_rule import estimate_rule, find_rule
from umpteen.models.calibration import Calibration
from umpteen.params import check_count
from umpteen.progress import Listener
from umpteen.storage.store import fingerprint_parts
from umpteen.trained.blend import COMMON_PARTS, DEFAULT_N_CANDIDATES, PAIRS_AT_A_TIME, BlendModel, label_frequency
from umpteen.trained.model import TrainedModel


class Blend(Estimator):
    """Ranks with several trained models at once.

    Parameters
    ----------
    members
        Trained models with the same features and labels: results of `umpteen.load`, fitted methods, or taggers.
    n_candidates
        How many labels each member proposes for a row; only these are ranked.
    threads
        How to compute; the result does not depend on it.

    Attributes
    ----------
    weights_ : array
        How much each member moves scores; they add up to 1.
    members_ : list of TrainedModel

    Examples
    --------
    >>> import umpteen
    >>> data = umpteen.make_synthetic(600, 300, 20, seed=1)
    >>> linear = umpteen.DiSMEC().fit(data.X[:400], data.Y[:400])
    >>> forest = umpteen.FastXML(n_trees=5).fit(data.X[:400], data.Y[:400])
    >>> blend = umpteen.Blend([linear, forest]).fit(data.X[400:], data.Y[400:])  # rows neither of them has seen
    >>> labels, scores = blend.predict_topk(data.X[:3], top_k=2)
    >>> labels.shape
    (3, 2)
    """

    name: ClassVar[str] = "blend"

    def __init__(
        self, members: Iterable[Any] = (), n_candidates: int = DEFAULT_N_CANDIDATES, threads: int | None = None
    ) -> None:
        self.members = members
        self.n_candidates = n_candidates
        self.threads = threads

    def validate(self) -> None:
        check_count("n_candidates", self.n_candidates)
        if self.threads is not None:
            check_count("threads", self.threads, high=4096)

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        """Memory that `fit` needs beyond X, Y and the members."""
        members = list(self.members)
        width = len(members) * min(int(self.n_candidates), Y.shape[1])
        rankings = X.shape[0] * width * 24  # labels, scores, and copies on the way to probabilities
        return Estimate(rankings + max(estimate_rule(X.shape[0], len(members), width), PAIRS_AT_A_TIME * 160), 0)

    # --- fit ----------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        Y: Any,
        model_dir: PathLike | None = None,
        *,
        label_names: Sequence[str] | None = None,
        resume: bool = True,
        progress: bool | Listener = False,
    ) -> Self:
        """Finds the rule on rows that no member was trained on, and calibrates the blend's scores.

        Parameters
        ----------
        X, Y
            Held-out rows and their labels. On the members' training rows, those that overfit would win.
        model_dir
            Where to write the blend: a model of its own, with copies of its members.
        label_names, resume, progress
            Not used: the members have the names, and there is nothing to resume.
        """
        self.validate()
        members = _check_members(self.members)
        X = as_csr(X, "X", members[0].n_features)
        Y = members[0].check_targets(Y, X.shape[0])
        if not Y.nnz:
            raise DataError("a blend needs held-out rows with labels, but no row has one")
        check_fits(self.estimate(X, Y), "hold out fewer rows or use fewer candidates")
        n_true = np.bincount(Y.indices, minlength=Y.shape[1])
        top_k = min(int(self.n_candidates), Y.shape[1])
        rankings = [member.predict_topk(X, top_k, threads=self.threads) for member in members]
        curves = [
            Calibration.fit(labels, scores, find_hits(Y, labels, self.threads), n_true) for labels, scores in rankings
        ]
        proposals = [
            (labels, curve.to_probabilities(scores)) for (labels, scores), curve in zip(rankings, curves, strict=True)
        ]
        rule = find_rule(proposals, Y, label_frequency(members), self.threads)
        self.model_ = _build(BlendModel(members, curves, rule, int(self.n_candidates)), self.threads)
        self.calibrate(X, Y)
        if model_dir is not None:
            self.save(model_dir)
        return self

    @classmethod
    def from_model(cls, model: TrainedModel) -> Self:
        """A trained blend, such as `umpteen.load` returns, to apply its rule to other models with `over`."""
        scorer = model.scorer
        if not isinstance(scorer, BlendModel):
            raise ParamError(f"the model must be a blend, but its method is {model.method}")
        blend = cls(scorer.members, scorer.n_candidates)
        blend.model_ = model
        return blend

    def over(self, members: Iterable[Any]) -> Self:
        """The same rule and curves with other models of the same methods, such as ones trained on all rows."""
        scorer = self._scorer()
        others = _check_members(members)
        names, wanted = [member.method for member in others], [member.method for member in scorer.members]
        if names != wanted:
            raise ParamError(
                f"members must be models of {', '.join(wanted)}, in this order, but are {', '.join(names)}"
            )
        blend = type(self)(others, self.n_candidates, self.threads)
        model = _build(BlendModel(others, scorer.curves, scorer.rule, int(self.n_candidates)), self.threads)
        if "calibration" in self.model_.parts:
            model = model.with_part("calibration", self.model_.parts["calibration"])
        blend.model_ = model
        return blend

    # --- the trained blend --------------------------------------------------------------------------------------

    def _scorer(self) -> BlendModel:
        scorer = self.fitted().scorer
        assert isinstance(scorer, BlendModel)
        return scorer

    @property
    def members_(self) -> list[TrainedModel]:
        return self._scorer().members

    @property
    def weights_(self) -> Any:
        return self._scorer().rule.weights


def _check_members(members: Any) -> list[TrainedModel]:
    models = [_trained(member) for member in members]
    if len(models) < 2:
        raise ParamError(f"a blend needs at least two members, but has {len(models)}")
    first = models[0]
    for model in models[1:]:
        for what, own, common in (
            ("features", model.n_features, first.n_features),
            ("labels", model.n_labels, first.n_labels),
        ):
            if own != common:
                raise ParamError(f"members must have the same number of {what}, but one has {common} and one {own}")
        for part in COMMON_PARTS:
            if _fingerprint(model, part) != _fingerprint(first, part):
                raise ParamError(f"members must have the same {part}, but {model.method} has different {part}")
    return models


def _trained(member: Any) -> TrainedModel:
    """A member's trained model; the member may be an estimator, a tagger or the model itself."""
    if hasattr(member, "fitted"):
        member = member.fitted()
    if not isinstance(member, TrainedModel) or isinstance(member.scorer, BlendModel):
        raise ParamError(f"members must be trained models other than blends, but one is {member!r}"[:300])
    return member


def _build(scorer: BlendModel, threads: int | None) -> TrainedModel:
    """The blend as a trained model."""
    first = scorer.members[0]
    members, own = scorer.to_header_and_parts()
    header = {
        "umpteen_version": __version__,
        "method": Blend.name,
        "family": scorer.family,
        "params": scorer.settings(),
        "n_train_rows": first.train_counts.n_rows,
        "n_features": first.n_features,
        "n_labels": first.n_labels,
        "preprocessing": Preprocessing(normalize=False).to_json(),  # each member has its own
        **members,
    }
    if "text" in first.header:
        header["text"] = first.header["text"]
    parts = {"labels": first.parts["labels"], **{p: first.parts[p] for p in COMMON_PARTS if p in first.parts}}
    return TrainedModel(header, parts | own, scorer, threads)


def _fingerprint(model: TrainedModel, name: str) -> str | None:
    return fingerprint_parts([model.parts[name]]) if name in model.parts else None
