"""What a blend stores and how it scores: trained models, a probability curve for each, and the rule to combine them.

The shards of a blend are those of its members, one after the other; its part ``rule`` is the rule, and the parts of
member i are named ``member<i>-<name>`` (nesting.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umpteen.data.matrix import Csr
from umpteen.errors import ModelCorruptError
from umpteen.models.calibration import Calibration
from umpteen.models.explanation import Explanation
from umpteen.models.scorer import Ranking, Scorer, check_ranking_fits, logistic
from umpteen.params import check_count
from umpteen.storage.store import Part
from umpteen.trained.blend_rule import Rule, measure_frequency, pair, rank
from umpteen.trained.model import TrainedModel
from umpteen.trained.nesting import count_shards, nest, unnest

#: Parts that must be the same in all members, and that the blend keeps once.
COMMON_PARTS = ("names", "vocabulary", "concepts")
DEFAULT_N_CANDIDATES = 30
#: Pairs of a row and a proposed label ranked at a time.
PAIRS_AT_A_TIME = 1_000_000


class BlendModel(Scorer):
    """Several trained models at once.

    Parameters
    ----------
    members
        Models with the same features and labels.
    curves
        From scores to probabilities, one for each member.
    rule
        Combines the probabilities into one score.
    n_candidates
        How many labels each member proposes for a row; only these are ranked.
    """

    family = "blend"

    def __init__(
        self,
        members: Sequence[TrainedModel],
        curves: Sequence[Calibration],
        rule: Rule,
        n_candidates: int = DEFAULT_N_CANDIDATES,
    ) -> None:
        self.members = list(members)
        self.curves = list(curves)
        self.rule = rule
        self.n_features, self.n_labels = members[0].n_features, members[0].n_labels
        self.n_candidates = n_candidates
        self.frequency = label_frequency(self.members)

    # --- storage ------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, header: Mapping[str, Any], parts: Mapping[str, Part], shards: Sequence[Part]) -> Self:
        records = header.get("members")
        if not isinstance(records, list) or len(records) < 2:
            raise ModelCorruptError("a blend's manifest must list at least two members")
        counts = [count_shards(record, len(shards)) for record in records]
        if sum(counts) != len(shards):
            raise ModelCorruptError(
                f"a blend must have the {sum(counts)} shards of its members, but has {len(shards)}"
            )
        rule_part = parts.get("rule", parts.get("weights"))  # the first blends of format 1 had weights only
        if rule_part is None:
            raise ModelCorruptError("the part with the blend's rule is missing")
        common = {name: parts[name] for name in COMMON_PARTS if name in parts}
        members, curves, used = [], [], 0
        for i, (record, n_shards) in enumerate(zip(records, counts, strict=True)):
            inner = unnest(record, header, parts, _prefix(i), shards[used : used + n_shards])
            if inner.header.get("family") == cls.family or "calibration" not in inner.parts:
                raise ModelCorruptError(f"member {i} of a blend must be calibrated and must not be a blend")
            members.append(TrainedModel.open(inner.header, inner.parts | common, inner.shards))
            curves.append(Calibration.from_part(inner.parts["calibration"]))
            used += n_shards
        rule = Rule.from_part(rule_part, len(members))
        return cls(members, curves, rule).configured(header["params"])

    @classmethod
    def from_parts(cls, parts: Sequence[Part], n_features: int, n_labels: int) -> Self:
        raise ModelCorruptError("a blend must be opened with its manifest, not from its shards alone")

    def to_parts(self) -> list[Part]:
        return [part for member in self.members for part in member.scorer.to_parts()]

    def to_header_and_parts(self) -> tuple[dict[str, Any], dict[str, Part]]:
        """The manifest entries and the parts that store the members and the rule."""
        records, parts = [], {"rule": self.rule.to_part()}
        for i, (member, curve) in enumerate(zip(self.members, self.curves, strict=True)):
            curved = member.with_part("calibration", curve.to_part())
            nested = nest(curved, _prefix(i), without=COMMON_PARTS)
            records.append(nested.record)
            parts |= nested.parts
        return {"members": records}, parts

    # --- prediction ---------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        return {"n_candidates": self.n_candidates}

    def configured(self, params: Mapping[str, Any]) -> Self:
        """`n_candidates` is how many labels each member proposes; earlier models call it `candidates`."""
        given = params.get("n_candidates", params.get("candidates", self.n_candidates))
        n_candidates = check_count("n_candidates", given)
        return self if n_candidates == self.n_candidates else self._altered(n_candidates=n_candidates)

    def predict_topk(
        self,
        X: Csr,
        top_k: int = 5,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        """As for every scorer; only labels that a member proposes are ranked."""
        top_k = check_count("top_k", top_k)
        check_ranking_fits(X.shape[0], 2 * top_k)
        at_a_time = max(1, PAIRS_AT_A_TIME // (len(self.members) * min(self.n_candidates, self.n_labels)))
        blocks = []
        for start in range(0, max(X.shape[0], 1), at_a_time):
            rows = X if X.shape[0] <= at_a_time else X[start : start + at_a_time]
            pairs = pair(self.propose(rows, exclude=exclude, include=include, threads=threads), self.n_labels)
            log_odds = self.rule.score(pairs.probabilities, self.frequency[pairs.labels])
            blocks.append(rank(pairs, log_odds, rows.shape[0], top_k))
        return np.concatenate([block[0] for block in blocks]), np.concatenate([block[1] for block in blocks])

    def propose(self, X: Csr, **options: Any) -> list[Ranking]:
        """Each member's best labels, with probabilities."""
        n_candidates = min(self.n_candidates, self.n_labels)
        proposals = []
        for member, curve in zip(self.members, self.curves, strict=True):
            labels, scores = member.predict_topk(X, n_candidates, **options)
            proposals.append((labels, curve.to_probabilities(scores)))
        return proposals

    to_unit = staticmethod(logistic)

    # --- explanation --------------------------------------------------------------------------------------------

    def explain(self, x: Csr, label: int) -> Explanation:
        """The members' explanations, each scaled to what the member adds to the score: features move the blend's
        score in proportion to how they move the member's own."""
        proposals = self.propose(x, threads=1)
        if not any(label in labels for labels, _ in proposals):  # score the label alone
            proposals = self.propose(x, include=[label], threads=1)
        frequency = self.frequency[label : label + 1]
        base, votes, notes = float(self.rule.of_label(frequency)[0]), [], []
        score, parts = base, np.zeros(x.shape[1])
        for m, (labels, probabilities) in enumerate(proposals):
            p = probabilities[labels == label] if label in labels else np.zeros(1)
            after = float(self.rule.of_member(m, p, frequency)[0])
            score += after
            if not self.rule.coefficients[m].any() or p[0] == 0:
                base += after
                continue
            member = self.members[m]
            found = member.explain(x, label)
            before = float(self.rule.of_member(m, self.curves[m].to_probabilities([found.base]), frequency)[0])
            moved = float(found.contributions.sum())
            if moved == 0 or not np.isfinite((after - before) / moved):
                base += after
            else:
                base += before
                parts[found.features] += found.contributions * ((after - before) / moved)
            votes += [{"member": member.method, **vote} for vote in found.votes]
            notes += [f"{member.method}: {found.note}"] if found.note else []
        return Explanation.build(
            label, score, self.family, base, x.indices, parts[x.indices], votes, "; ".join(notes)
        )

    def describe(self) -> dict[str, Any]:
        weights = zip(self.members, self.rule.weights, strict=True)
        return {"members": ", ".join(f"{weight:.3f} {member.method}" for member, weight in weights)}


def label_frequency(members: Sequence[TrainedModel]) -> NDArray[np.float64]:
    """The frequency of labels, in the form the rule takes."""
    return measure_frequency([member.train_counts.counts for member in members])


def _prefix(member: int) -> str:
    return f"member{member}-"
