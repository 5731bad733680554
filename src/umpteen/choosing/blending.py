"""Whether a blend of the best contestants is better than the best alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from umpteen.choosing.choice import describe_method
from umpteen.choosing.contest import TOP_K, Contest, Contestant, ndcg_by_row
from umpteen.methods.blend import Blend

_MOST_MEMBERS = 3
#: Standard errors by which a blend must be better: it takes as long to answer as all its members.
_BETTER = 2.0


class Blended(NamedTuple):
    """A blend that is better than each member."""

    members: list[Contestant]
    blend: Blend
    reason: str


def find_blend(ranked: list[Contestant], contest: Contest, left: float) -> Blended | None:
    """The blend of the best contestants of different methods; None if it does not pay, or training its members would
    not fit into the seconds left.

    Its rule is found on every second held-out row, and judged on the others.
    """
    members: list[Contestant] = []
    for contestant in ranked:
        used = sum(c.seconds or 0.0 for c in [*members, contestant])
        new = all(c.method.name != contestant.method.name for c in members)
        if contestant.model is not None and new and used <= left and len(members) < _MOST_MEMBERS:
            members.append(contestant)
    if len(members) < 2:
        return None
    found, judged = contest.judged[::2], contest.judged[1::2]
    models = [c.model for c in members]
    blend = Blend(models, threads=contest.threads).fit(contest.X[found], contest.Y[found])
    labels, _ = blend.predict_topk(contest.X[judged], min(TOP_K, contest.Y.shape[1]))
    values, alone = ndcg_by_row(contest.Y[judged], labels), ranked[0].values[1::2]
    gain = values - alone
    if gain.mean() <= _BETTER * gain.std() / np.sqrt(len(gain)):
        return None
    reason = (
        f"together they rank better on {len(judged):,} held-out rows than the best alone: nDCG@5 "
        f"{100 * values.mean():.1f}, {describe_method(ranked[0].method)} {100 * alone.mean():.1f}"
    )
    whole = Blend(models, threads=contest.threads).fit(contest.X[contest.judged], contest.Y[contest.judged])
    return Blended(members, whole, reason)
