"""Blends of trained models: their probabilities, weighed by what each of them knows.

Models of different kinds err differently, so that together they rank better than each alone. Their scores become
probabilities (models/calibration.py), and a rule found on rows none of them was trained on makes one score of them
(methods/blend_rule.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr, as_csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.engines.base import Resources, Task
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.evaluation.metrics import find_hits
from umpteen.memory import Estimate, check_fits
from umpteen.methods.base import Method
from umpteen.methods.blend_rule import Ranking, Rule, estimate_rule, find_rule, measure_frequency, pair, rank
from umpteen.methods.training_data import TrainingData
from umpteen.models.calibration import Calibration
from umpteen.models.explanation import Explanation
from umpteen.models.model import check_ranking_fits
from umpteen.params import check_count
from umpteen.progress import Listener
from umpteen.storage.store import Part, fingerprint_parts

#: A model's parts that all members must have in common, and that the blend keeps once.
_COMMON = ("names", "vocabulary")
#: Pairs of a row and a proposed label that are ranked at a time.
_PAIRS_AT_A_TIME = 1_000_000


class Blend(Method):
    """Ranks by several trained models at once.

    Parameters
    ----------
    members
        Trained models with the same features and labels, as methods, taggers, or both.
    candidates
        How many labels each member proposes for a row; no others are ranked.
    threads
        How to compute; the result does not depend on it.

    Attributes
    ----------
    weights_ : array
        How much each member moves scores, as shares of 1.
    members_ : list of Method

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

    def __init__(self, members: Iterable[Any] = (), candidates: int = 30, threads: int | None = None) -> None:
        self.members = members
        self.candidates = candidates
        self.threads = threads
        self.engine = "local"

    def validate(self) -> None:
        check_count("candidates", self.candidates)
        if self.threads is not None:
            check_count("threads", self.threads, high=4096)

    def preprocessing(self) -> Preprocessing:
        return Preprocessing(normalize=False)  # each member has its own

    def plan(self, data: TrainingData) -> list[Task]:
        self._refuse_training()

    def train_shard(self, data: TrainingData, task: Task, resources: Resources) -> Part:
        self._refuse_training()

    def _refuse_training(self) -> NoReturn:
        raise ParamError("a blend is made of trained models; train them first")

    def estimate(self, X: Csr, Y: Csr) -> Estimate:
        members = list(self.members)
        width = len(members) * min(int(self.candidates), Y.shape[1])
        rankings = X.shape[0] * width * 24  # labels, scores, and what scores become on the way to probabilities
        return Estimate(rankings + max(estimate_rule(X.shape[0], len(members), width), _PAIRS_AT_A_TIME * 160), 0)

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
        """Finds the rule on rows that no member was trained on, and what the blend's scores are worth.

        Parameters
        ----------
        X, Y
            Held-out rows and their labels. On rows the members know, those that learn by heart would win.
        model_dir
            Where the blend goes: a model of its own, with copies of its members.
        label_names, resume, progress
            Not used: names are the members', and there is nothing to continue.
        """
        self.validate()
        members = self._check_members(self.members)
        X = as_csr(X, "X", members[0].n_features_in_)
        Y = as_csr(Y, "Y", members[0].n_labels_, values=False)
        if X.shape[0] != Y.shape[0]:
            raise DataError(f"X and Y must have as many rows, but have {X.shape[0]} and {Y.shape[0]}")
        if not Y.nnz:
            raise DataError("a blend's rule is found on rows with labels, but there is none")
        check_fits(self.estimate(X, Y), "hold out fewer rows or take fewer candidates")
        n_true = np.bincount(Y.indices, minlength=Y.shape[1])
        top_k = min(int(self.candidates), Y.shape[1])
        rankings = [member.predict_topk(X, top_k, threads=self.threads) for member in members]
        curves = [
            Calibration.fit(labels, scores, find_hits(Y, labels, self.threads), n_true) for labels, scores in rankings
        ]
        said = [
            (labels, curve.to_probabilities(scores)) for (labels, scores), curve in zip(rankings, curves, strict=True)
        ]
        rule = find_rule(said, Y, _frequency_of_labels(members), self.threads)
        self._build(members, rule, curves)
        self.calibrate(X, Y)
        if model_dir is not None:
            self.save(model_dir)
        return self

    def over(self, members: Iterable[Any]) -> Blend:
        """The same rule and curves over other models of the same methods: those trained on all rows, say."""
        self._check_fitted()
        others = self._check_members(members)
        names, wanted = [member.name for member in others], [member.name for member in self.members_]
        if names != wanted:
            raise ParamError(
                f"members must be models of {', '.join(wanted)}, in this order, but are of {', '.join(names)}"
            )
        copy = Blend(others, self.candidates, self.threads)
        copy._build(others, self.model_.rule, self.model_.curves)
        if self.calibration_ is not None:
            copy.calibration_ = self.calibration_
            copy._shared = copy._shared | {"calibration": self.calibration_.to_part()}
        return copy

    def _check_members(self, members: Any) -> list[Method]:
        methods = [getattr(member, "method_", member) for member in members]
        if len(methods) < 2:
            raise ParamError(f"a blend needs at least two members, but has {len(methods)}")
        for method in methods:
            if not isinstance(method, Method) or isinstance(method, Blend):
                raise ParamError(f"members must be trained models that are no blends, but one is {method!r}"[:300])
            method._check_fitted()
        first = methods[0]
        for method in methods[1:]:
            for what, own, common in (
                ("features", method.n_features_in_, first.n_features_in_),
                ("labels", method.n_labels_, first.n_labels_),
            ):
                if own != common:
                    raise ParamError(f"members must have the same {what}, but one has {common} and one {own}")
            for part in _COMMON:
                if _fingerprint(method, part) != _fingerprint(first, part):
                    raise ParamError(f"members must have the same {part}, but those of {method.name} are others")
        return methods

    def _build(self, members: Sequence[Method], rule: Rule, curves: Sequence[Calibration]) -> None:
        """Attaches the model a blend of these members is."""
        first = members[0]
        header = self._header(
            (first.train_counts_.n_rows, first.n_features_in_), first.n_labels_, self.preprocessing()
        )
        header |= {"family": BlendModel.family, "members": []}
        if "text" in first._fitted_header:
            header["text"] = first._fitted_header["text"]
        shared = {"labels": first._shared["labels"], **{p: first._shared[p] for p in _COMMON if p in first._shared}}
        shared["rule"] = rule.to_part()
        shards: list[Part] = []
        for i, (member, curve) in enumerate(zip(members, curves, strict=True)):
            own = {name: part for name, part in member._shared.items() if name not in (*_COMMON, "calibration")}
            own["calibration"] = curve.to_part()
            parts = member.model_.to_parts()
            record = {
                key: value for key, value in member._fitted_header.items() if key not in ("text", "fingerprint")
            }
            header["members"].append({"header": record, "n_shards": len(parts), "shared": sorted(own)})
            shared |= {_part_name(i, name): part for name, part in own.items()}
            shards += parts
        self._attach(header, shared, shards)

    def _plain_params(self) -> dict[str, Any]:
        return {"candidates": int(self.candidates)}

    def _open_model(self, header: dict[str, Any], shared: dict[str, Part], shards: list[Part]) -> Any:
        model = BlendModel.open(header, shared, shards, int(self.candidates))
        self.members_, self.weights_ = model.members, model.rule.weights
        return model


class BlendModel:
    """The members, their curves and the rule that weighs them."""

    family = "blend"

    def __init__(
        self,
        members: Sequence[Method],
        curves: Sequence[Calibration],
        rule: Rule,
        n_labels: int,
        candidates: int,
    ) -> None:
        self.members = list(members)
        self.curves = list(curves)
        self.rule = rule
        self.n_labels = n_labels
        self.candidates = min(candidates, n_labels)
        self.frequency = _frequency_of_labels(self.members)

    @classmethod
    def open(cls, header: dict[str, Any], shared: dict[str, Part], shards: list[Part], candidates: int) -> BlendModel:
        """From the parts of a blend's directory, which may be anybody's."""
        from umpteen.methods import METHODS, method_class

        records, members, curves, used = header.get("members"), [], [], 0
        if not isinstance(records, list) or len(records) < 2:
            raise ModelCorruptError("a blend's manifest must list at least two members")
        for i, record in enumerate(records):
            own, n_shards, parts = record["header"], record["n_shards"], record["shared"]
            if own["method"] not in METHODS or own["n_labels"] != header["n_labels"]:
                raise ModelCorruptError(
                    f"member {i} must be a model of a known method with {header['n_labels']} labels"
                )
            if own["n_features"] != header["n_features"] or not isinstance(n_shards, int) or n_shards < 1:
                raise ModelCorruptError(f"member {i} must have shards, and {header['n_features']} features")
            member = method_class(own["method"])(**own["params"])
            member.validate()
            mine = {name: shared[_part_name(i, name)] for name in parts}
            common = {name: shared[name] for name in _COMMON if name in shared}
            member._attach(own, mine | common, shards[used:][:n_shards])
            members.append(member)
            curves.append(Calibration.from_part(mine["calibration"]))
            used += n_shards
        if used != len(shards):
            raise ModelCorruptError("a blend must have no other shards than its members'")
        # The first blends had weights only.
        rule = Rule.from_part(shared["rule" if "rule" in shared else "weights"], len(members))
        return cls(members, curves, rule, header["n_labels"], candidates)

    def to_parts(self) -> list[Part]:
        return [part for member in self.members for part in member.model_.to_parts()]

    def describe(self) -> dict[str, Any]:
        weights = zip(self.members, self.rule.weights, strict=True)
        return {"members": ", ".join(f"{weight:.3f} {member.name}" for member, weight in weights)}

    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        """The best labels of each row, best first, of those that a member proposes; -1 and -inf pad."""
        top_k = check_count("top_k", top_k)
        check_ranking_fits(X.shape[0], 2 * top_k)
        at_a_time = max(1, _PAIRS_AT_A_TIME // (len(self.members) * self.candidates))
        blocks = []
        for start in range(0, max(X.shape[0], 1), at_a_time):
            rows = X if X.shape[0] <= at_a_time else X[start : start + at_a_time]
            pairs = pair(self.ask(rows, exclude=exclude, include=include, threads=threads), self.n_labels)
            log_odds = self.rule.score(pairs.probabilities, self.frequency[pairs.labels])
            blocks.append(rank(pairs, log_odds, rows.shape[0], top_k))
        return np.concatenate([block[0] for block in blocks]), np.concatenate([block[1] for block in blocks])

    def ask(self, X: Csr, **options: Any) -> list[Ranking]:
        """What each member proposes, with probabilities."""
        said = []
        for member, curve in zip(self.members, self.curves, strict=True):
            labels, scores = member.predict_topk(X, self.candidates, **options)
            said.append((labels, curve.to_probabilities(scores)))
        return said

    def explain(self, x: Csr, label: int) -> Explanation:
        """The members' explanations, each in parts of what it adds to the score: what features moved the member's own
        score by, they moved the blend's by, in proportion."""
        said = self.ask(x, threads=1)
        if not any(label in labels for labels, _ in said):  # then what they would say of it alone
            said = self.ask(x, include=[label], threads=1)
        frequency = self.frequency[label : label + 1]
        base, votes = float(self.rule.of_label(frequency)[0]), []
        score, parts = base, np.zeros(x.shape[1])
        for m, (labels, probabilities) in enumerate(said):
            p = probabilities[labels == label] if label in labels else np.zeros(1)
            after = float(self.rule.of_member(m, p, frequency)[0])
            score += after
            if not self.rule.coefficients[m].any() or p[0] == 0:
                base += after
                continue
            found = self.members[m].explain(x, label)
            before = float(self.rule.of_member(m, self.curves[m].to_probabilities([found.base]), frequency)[0])
            moved = float(found.contributions.sum())
            if moved == 0 or not np.isfinite((after - before) / moved):
                base += after
            else:
                base += before
                parts[found.features] += found.contributions * ((after - before) / moved)
            votes += [{"member": self.members[m].name, **vote} for vote in found.votes]
        return Explanation.build(label, score, self.family, base, x.indices, parts[x.indices], votes)


def _part_name(member: int, name: str) -> str:
    return f"member{member}-{name}"


def _frequency_of_labels(members: Sequence[Method]) -> NDArray[np.float64]:
    return measure_frequency([member.train_counts_.counts for member in members])


def _fingerprint(method: Method, name: str) -> str | None:
    return fingerprint_parts([method._shared[name]]) if name in method._shared else None
