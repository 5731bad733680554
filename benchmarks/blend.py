"""Blends against their members: weights from a held-out part of the training rows, then all rows for each member.

python benchmarks/blend.py [--sets Bibtex EURLex-4K]
"""

from __future__ import annotations

import argparse

import numpy as np
from common import table, write_result
from fastxml import join, precisions, read

import umpteen
from umpteen.data.split import split_rows

#: Settings from benchmarks/results: FastXML's and DiSMEC's of Bibtex were chosen on held-out training rows there.
MEMBERS = {
    "Bibtex": lambda: [
        umpteen.DiSMEC(C=0.3, threads=2),
        umpteen.RXML(threads=2),
        umpteen.FastXML(tfidf=True, C_delta=0.5, max_leaf=5, threads=2),
    ],
    "EURLex-4K": lambda: [
        umpteen.DiSMEC(threads=2),
        umpteen.DiSMEC(tfidf=True, threads=2),
        umpteen.RXML(threads=2),
        umpteen.FastXML(threads=2),
    ],
}
HELD_OUT = 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(MEMBERS))
    options = parser.parse_args()
    rows = []
    for name in options.sets:
        train, test = read(name)
        held_out = split_rows(train.Y, HELD_OUT, seed=0)
        some = [member.fit(train.X[~held_out], train.Y[~held_out]) for member in MEMBERS[name]()]
        blend = umpteen.Blend(some, threads=2).fit(train.X[held_out], train.Y[held_out])
        blend = blend.over([member.fit(train.X, train.Y) for member in MEMBERS[name]()])
        scores = [precisions(member, test) for member in blend.members_]
        for member, weight, score in zip(blend.members_, blend.weights_, scores, strict=True):
            rows.append([name, repr(member), f"{weight:.3f}", join(score)])
        together = precisions(blend, test)
        rows.append([name, "the blend", "", join(together)])
        rows.append([name, "more than the best member", "", join(together - np.max(scores, axis=0))])
    text = (
        f"Weights found on {HELD_OUT:.0%} of the training rows by members that do not know them; then every member "
        f"trained on all.\n\n{table(['data', 'model', 'weight', 'P@1 / 3 / 5'], rows)}"
    )
    write_result("blend", "Blends", text, f"python benchmarks/blend.py --sets {' '.join(options.sets)}")


if __name__ == "__main__":
    main()
