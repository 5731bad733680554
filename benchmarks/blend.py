"""Blends against their members: the rule from a held-out part of the training rows, then all rows for each member.

python benchmarks/blend.py [Bibtex | EURLex-4K]
"""

from __future__ import annotations

from functools import partial

import numpy as np
from common import join, precisions, read, run_parts, table

import umpteen
from umpteen.data.split import split_rows

#: Chosen on held-out training rows, with their settings, which tuning.py and fastxml.py found.
MEMBERS = {
    "Bibtex": lambda: [
        umpteen.DiSMEC(C=0.129, positive_weight=2.2, bias=3.0, tfidf=True, threads=2),
        umpteen.RXML(rank=150, n_neighbors=50, tfidf=True, threads=2),
        umpteen.LabelTree(n_trees=3, C=0.312, bias=3.0, tfidf=True, threads=2),
        umpteen.FastXML(tfidf=True, C_delta=0.5, max_leaf=5, threads=2),
        umpteen.PfastreXML(threads=2),
    ],
    "EURLex-4K": lambda: [
        umpteen.DiSMEC(power=0.5, threads=2),
        umpteen.DiSMEC(threads=2),
        umpteen.RXML(power=0.5, threads=2),
        umpteen.LabelTree(n_trees=3, C=1.04, max_leaf=400, bias=0.3, power=0.5, threads=2),
        umpteen.FastXML(C_delta=1.41, max_leaf=3, normalize=True, threads=2),
    ],
}
HELD_OUT = 0.2


def measure(name: str) -> str:
    train, test = read(name)
    held_out = split_rows(train.Y, HELD_OUT, seed=0)
    some = [member.fit(train.X[~held_out], train.Y[~held_out]) for member in MEMBERS[name]()]
    blend = umpteen.Blend(some, threads=2).fit(train.X[held_out], train.Y[held_out])
    blend = blend.over([member.fit(train.X, train.Y) for member in MEMBERS[name]()])
    scores = [precisions(member, test) for member in blend.members_]
    rows = [
        [repr(member), f"{weight:.3f}", join(score)]
        for member, weight, score in zip(blend.members_, blend.weights_, scores, strict=True)
    ]
    together = precisions(blend, test)
    rows.append(["the blend", "", join(together)])
    rows.append(["more than the best member", "", join(together - np.max(scores, axis=0))])
    return (
        f"The rule is found on {HELD_OUT:.0%} of the training rows by members that do not know them; then every "
        f"member is trained on all. Shares say how much each moves scores.\n\n"
        f"{table(['model', 'share', 'P@1 / 3 / 5'], rows)}"
    )


PARTS = {name: (name, partial(measure, name)) for name in MEMBERS}

if __name__ == "__main__":
    run_parts("blend", "Blends", PARTS)
