"""Which text features: words as usual, their starts, pairs of words or characters too, or plain counts; compared on
held-out texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umpteen.choosing.budget import Clock
from umpteen.choosing.contest import Contest, Contestant, rank
from umpteen.data.matrix import Csr
from umpteen.methods.dismec import DiSMEC
from umpteen.methods.label_tree import LabelTree
from umpteen.text.features import TextFeatures, make_features
from umpteen.text.tfidf import Tfidf
from umpteen.text.union import TfidfUnion

#: Words, their starts, and pairs of words that five texts have: the best on held-out rows of several sets, of what
#: takes at most three times as long as words alone.
MIXED = TfidfUnion(["word", "start", make_features("pairs").set_params(min_df=5)], weights=[1, 1, 0.4])
#: What is compared, the usual first: it stays unless another is better.
VARIANTS: list[Any] = [
    "word",
    MIXED,
    ["word", "char_wb"],
    make_features("pairs").set_params(ngram_range=(1, 2)),
    Tfidf(all_scripts=True),
]
#: The share of the budget for this, and rows that are trained on at most.
_SHARE = 0.2
_MOST_ROWS = 20_000
#: With more labels than this a tree judges, because one-vs-rest takes too long.
_MANY_LABELS = 10_000


def choose_features(
    texts: Sequence[str], Y: Csr, budget: float, seed: int, threads: int | None = None
) -> tuple[TextFeatures, Csr]:
    """The features that rank the labels of held-out texts best, and the rows they make of all texts.

    The first variant is used if there are too few texts to compare; a variant that would not fit into a fifth of the
    budget is left out.
    """
    clock, found = Clock(threads), []
    for variant in VARIANTS:
        begun = clock()
        features = make_features(variant).set_params(threads=threads)
        X = features.fit_transform(texts)
        contest = Contest(X, Y, seed, threads)
        if not contest.possible:
            return features, X
        judge = LabelTree(threads=threads) if Y.shape[1] > _MANY_LABELS else DiSMEC(threads=threads)
        contestant = Contestant(judge, 0)
        contest.train(contestant, min(max(contest.steps), _MOST_ROWS))
        found.append((contestant, features, X))
        if clock() + 2 * (clock() - begun) > _SHARE * budget:
            break
    best = rank([contestant for contestant, _, _ in found])[0]
    return next((features, X) for contestant, features, X in found if contestant is best)
