"""Blends of trained models: their probabilities, weighted and summed.

Models of different kinds err differently, so that together they rank better than each alone. On rows none of them was
trained on,

    p_m(l) = the share of hits among predictions of model m with about that score     (models/calibration.py)
    score(l) = Σ_m w_m p_m(l),  w ≥ 0,  Σ w = 1

where p_m(l) is 0 for labels that are not among the model's best `candidates`. The weights are those that rank the
held-out rows best, by P@1 + P@3 + P@5, found by changing one at a time.
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
from umpteen.memory import Estimate
from umpteen.methods.base import Method, TrainingData, fingerprint_parts
from umpteen.models.calibration import Calibration
from umpteen.models.explanation import Explanation
from umpteen.models.model import check_ranking_fits
from umpteen.models.store import Part
from umpteen.params import check_count
from umpteen.progress import Listener

#: A model's parts that all members must have in common, and that the blend keeps once.
_COMMON = ("names", "vocabulary")
#: What a weight is multiplied by in the search for a better one.
_FACTORS = (0.0, 0.25, 0.5, 0.7, 0.85, 1.2, 1.4, 2.0, 4.0)
_ROUNDS = 4
_ROWS_AT_A_TIME = 4096
_KS = (1, 3, 5)

Ranking = tuple[NDArray[np.int32], NDArray[np.float32]]


class Blend(Method):
    """Ranks by several trained models at once.

    Parameters
    ----------
    members
        Trained models with the same features and labels, as methods, taggers, or both.
    candidates
        How many labels each member proposes for a row.
    threads
        How to compute; the result does not depend on it.

    Attributes
    ----------
    weights_ : array
        One per member; they add up to 1.
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

    def __init__(self, members: Iterable[Any] = (), candidates: int = 50, threads: int | None = None) -> None:
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
        members = len(list(self.members))
        return Estimate(_ROWS_AT_A_TIME * members * int(self.candidates) * 64, 0)

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
        """Finds the weights on rows that no member was trained on, and what the blend's scores are worth.

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
            raise DataError("weights are found on rows with labels, but there is none")
        n_true = np.bincount(Y.indices, minlength=Y.shape[1])
        top_k = min(int(self.candidates), Y.shape[1])
        rankings = [member.predict_topk(X, top_k, threads=self.threads) for member in members]
        curves = [
            Calibration.fit(labels, scores, find_hits(Y, labels, self.threads), n_true) for labels, scores in rankings
        ]
        said = [
            (labels, curve.to_probabilities(scores)) for (labels, scores), curve in zip(rankings, curves, strict=True)
        ]
        weights = find_weights(said, Y, self.threads)
        self._build(members, weights, curves)
        self.calibrate(X, Y)
        if model_dir is not None:
            self.save(model_dir)
        return self

    def over(self, members: Iterable[Any]) -> Blend:
        """The same weights and curves over other models of the same methods: those trained on all rows, say."""
        self._check_fitted()
        others = self._check_members(members)
        names, wanted = [member.name for member in others], [member.name for member in self.members_]
        if names != wanted:
            raise ParamError(
                f"members must be models of {', '.join(wanted)}, in this order, but are of {', '.join(names)}"
            )
        copy = Blend(others, self.candidates, self.threads)
        copy._build(others, self.weights_, self.model_.curves)
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

    def _build(self, members: Sequence[Method], weights: NDArray[np.float64], curves: Sequence[Calibration]) -> None:
        """Attaches the model a blend of these members is."""
        first = members[0]
        header = self._header(
            (first.train_counts_.n_rows, first.n_features_in_), first.n_labels_, self.preprocessing()
        )
        header |= {"family": BlendModel.family, "members": []}
        if "text" in first._fitted_header:
            header["text"] = first._fitted_header["text"]
        shared = {"labels": first._shared["labels"], **{p: first._shared[p] for p in _COMMON if p in first._shared}}
        shared["weights"] = Part({"weights": np.asarray(weights, np.float64)})
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
        self.members_, self.weights_ = model.members, model.weights
        return model


class BlendModel:
    """The members, their curves and their weights."""

    family = "blend"

    def __init__(
        self,
        members: Sequence[Method],
        curves: Sequence[Calibration],
        weights: NDArray[np.float64],
        n_labels: int,
        candidates: int,
    ) -> None:
        self.members = list(members)
        self.curves = list(curves)
        self.weights = weights
        self.n_labels = n_labels
        self.candidates = candidates

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
            if len(mine["labels"].arrays["counts"]) != header["n_labels"]:
                raise ModelCorruptError(f"member {i} must have {header['n_labels']} label counts")
            member._attach(
                own, mine | {name: shared[name] for name in _COMMON if name in shared}, shards[used:][:n_shards]
            )
            members.append(member)
            curves.append(Calibration.from_part(mine["calibration"]))
            used += n_shards
        weights = shared["weights"].arrays["weights"]
        sound = weights.shape == (len(members),) and bool((weights >= 0).all()) and abs(weights.sum() - 1) < 1e-6
        if used != len(shards) or not sound:
            raise ModelCorruptError(
                "a blend needs a weight of at least 0 for each member, 1 in all, and no other shards"
            )
        return cls(members, curves, weights, header["n_labels"], candidates)

    def to_parts(self) -> list[Part]:
        return [part for member in self.members for part in member.model_.to_parts()]

    def describe(self) -> dict[str, Any]:
        weights = zip(self.members, self.weights, strict=True)
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
        """The best labels of each row, best first, by the weighted sum of the members' probabilities."""
        top_k = check_count("top_k", top_k)
        check_ranking_fits(X.shape[0], 2 * top_k)
        wanted = max(min(self.candidates, self.n_labels), min(top_k, self.n_labels))
        blocks = []
        for start in range(0, max(X.shape[0], 1), _ROWS_AT_A_TIME):
            rows = X if X.shape[0] <= _ROWS_AT_A_TIME else X[start : start + _ROWS_AT_A_TIME]
            said = []
            for member, curve in zip(self.members, self.curves, strict=True):
                labels, scores = member.predict_topk(rows, wanted, exclude=exclude, include=include, threads=threads)
                said.append((labels, curve.to_probabilities(scores)))
            blocks.append(merge(said, self.weights, self.n_labels, top_k))
        return np.concatenate([block[0] for block in blocks]), np.concatenate([block[1] for block in blocks])

    def explain(self, x: Csr, label: int) -> Explanation:
        """The members' explanations, each in parts of the probability it adds: what features moved its score by, they
        moved the probability by, in proportion."""
        base, votes = 0.0, []
        parts = np.zeros(x.shape[1])
        for member, curve, weight in zip(self.members, self.curves, self.weights, strict=True):
            found = member.explain(x, label)
            if weight == 0 or not np.isfinite(found.score):
                continue
            before, after = (float(p) for p in weight * curve.to_probabilities(np.array([found.base, found.score])))
            moved = float(found.contributions.sum())
            if moved == 0 or not np.isfinite((after - before) / moved):
                base += after
            else:
                base += before
                parts[found.features] += found.contributions * ((after - before) / moved)
            votes += [{"member": member.name, **vote} for vote in found.votes]
        score = float(self.predict_topk(x, 1, include=[label], threads=1)[1][0, 0])
        return Explanation.build(label, score, self.family, base, x.indices, parts[x.indices], votes)


def merge(said: Sequence[Ranking], weights: NDArray[np.float64], n_labels: int, top_k: int) -> Ranking:
    """Of the labels that anybody proposed the best of each row, by the weighted sum of what was said of them.

    Parameters
    ----------
    said
        For each member labels (n_rows x candidates, -1 pads) and probabilities.
    """
    n_rows = len(said[0][0])
    keys, values = [], []
    for (labels, probabilities), weight in zip(said, weights, strict=True):
        given = labels >= 0
        rows = np.repeat(np.arange(n_rows, dtype=np.int64), given.sum(axis=1))
        keys.append(rows * n_labels + labels[given])
        values.append(weight * probabilities[given].astype(np.float64))
    key = np.concatenate(keys)
    order = np.argsort(key, kind="stable")  # members in order, so that sums are the same to the last bit
    key, value = key[order], np.concatenate(values)[order]
    firsts = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.zeros(0, np.int64)
    score = np.add.reduceat(value, firsts) if len(key) else value
    row, label = np.divmod(key[firsts], n_labels)
    best = np.lexsort((label, -score, row))
    row, label, score = row[best], label[best], score[best]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    kept = place < top_k
    out_labels, out_scores = np.full((n_rows, top_k), -1, np.int32), np.full((n_rows, top_k), -np.inf, np.float32)
    out_labels[row[kept], place[kept]] = label[kept]
    out_scores[row[kept], place[kept]] = score[kept]
    return out_labels, out_scores


def find_weights(said: Sequence[Ranking], Y: Csr, threads: int | None = None) -> NDArray[np.float64]:
    """The weights that rank best: from equal ones, and from each member alone, one is changed at a time."""
    n_rows, n_labels = Y.shape

    def quality(weights: NDArray[np.float64]) -> float:
        labels, _ = merge(said, weights, n_labels, max(_KS))
        hits = find_hits(Y, labels, threads).sum(axis=0).cumsum()
        return float(sum(hits[k - 1] / k for k in _KS)) / n_rows

    def improve(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        best = quality(weights)
        for _ in range(_ROUNDS):
            before = best
            for i in range(len(weights)):
                for factor in _FACTORS:
                    trial = weights.copy()
                    trial[i] *= factor
                    if trial.sum() == 0:
                        continue
                    trial /= trial.sum()
                    found = quality(trial)
                    if found > best:
                        best, weights = found, trial
            if best == before:
                break
        return best, weights

    n = len(said)
    alone = [(quality(weights), weights) for weights in np.eye(n)]
    return max([improve(np.full(n, 1 / n)), *alone], key=lambda found: found[0])[1]


def _part_name(member: int, name: str) -> str:
    return f"member{member}-{name}"


def _fingerprint(method: Method, name: str) -> str | None:
    return fingerprint_parts([method._shared[name]]) if name in method._shared else None
