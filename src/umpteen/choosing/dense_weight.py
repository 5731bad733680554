"""How much dense vectors count beside the terms of texts: compared on held-out rows."""

from __future__ import annotations

import numpy as np

from umpteen.choosing.contest import Contest, Contestant, is_as_good
from umpteen.data.matrix import Csr, make_csr
from umpteen.methods.dismec import DiSMEC
from umpteen.methods.label_tree import LabelTree
from umpteen.text.features import TextFeatures
from umpteen.text.union import AUTO_WEIGHT, TfidfUnion

#: What is compared, the usual first: it stays unless another is better.
WEIGHTS = (1.0, 0.5, 2.0)
#: Rows that are trained on at most: more do not change which weight is best.
_MOST_ROWS = 5000
#: With more labels than this a tree judges.
_MANY_LABELS = 3000


def weigh_dense(features: TextFeatures | None, X: Csr, Y: Csr, seed: int, threads: int | None = None) -> Csr:
    """The rows that features made, with the weight of dense vectors that ranks the labels of held-out texts best.

    Where there is nothing to choose, or too few rows to choose by, they are returned as they are. The choice depends
    on rows and seed, not on clocks or threads.
    """
    if not isinstance(features, TfidfUnion) or features.dense_weight != AUTO_WEIGHT or not features.has_both:
        return X
    contest = Contest(X, Y, seed, threads)
    if not contest.possible:
        return X
    rows, found = X, []
    for weight in WEIGHTS:
        rows = _reweigh(features, weight, rows)
        contest.X = rows
        judge = LabelTree(threads=threads, seed=seed) if Y.shape[1] > _MANY_LABELS else DiSMEC(threads=threads)
        contestant = Contestant(judge, 0)
        contest.train(contestant, min(max(contest.steps), _MOST_ROWS))
        found.append(contestant)
    best = max(found, key=lambda contestant: contestant.value or 0.0)
    chosen = WEIGHTS[0] if is_as_good(found[0], best) else WEIGHTS[found.index(best)]
    return _reweigh(features, chosen, rows)


def _reweigh(features: TfidfUnion, weight: float, X: Csr) -> Csr:
    before = features.column_weights()
    features.set_dense_weight(weight)
    data = X.data * (features.column_weights() / before)[X.indices]
    return make_csr(data.astype(np.float32), X.indices, X.indptr, X.shape)
