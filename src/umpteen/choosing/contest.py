"""Methods compared on held-out training rows, on more and more of the others.

A fifth of the rows is held out. The contestants train on some thousand of the others, then on four times as many, and
so on. Those far behind drop out, and so do those whose training on all rows would not fit the budget; the time of a
step is known from the one before it. The last step that was run decides.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.choosing.budget import Clock
from umpteen.choosing.contestants import preference
from umpteen.data.matrix import Csr
from umpteen.data.split import split_rows
from umpteen.evaluation.metrics import find_hits
from umpteen.methods.base import Method
from umpteen.trained.model import TrainedModel

#: With fewer rows than this, held-out ones say too little.
FEWEST_ROWS = 1000
_HELD_OUT = 0.2
_MOST_HELD_OUT = 5000
_FIRST_STEP = 2000
_GROWTH = 4
#: Training takes rows to this power.
_EXPONENT = 1.15
#: Points of nDCG@5 behind the best at which a contestant drops out before the last step.
_FAR_BEHIND = 3.0
#: Standard errors of the difference within which two contestants count as equal.
_AS_GOOD = 0.5
TOP_K = 5

Values = NDArray[np.float64]


@dataclass(eq=False)
class Contestant:
    """A method, and what is known of it."""

    method: Method
    peak_bytes: int
    seconds: float | None = None  # of training on all rows
    exact: bool = False  # its seconds come from its labels, not from its rows
    rows: int = 0  # trained on at its last step
    spent: float = 0.0  # at its last step
    values: Values = field(default_factory=lambda: np.zeros(0))  # nDCG@5 of each held-out row at that step
    note: str = ""
    model: TrainedModel | None = None

    @property
    def value(self) -> float | None:
        """nDCG@5 in percent."""
        return float(self.values.mean()) * 100 if len(self.values) else None

    def expect(self, rows: int) -> float:
        """Seconds of a step of so many rows."""
        return self.spent * (rows / self.rows) ** _EXPONENT if self.rows else 0.0


class Contest:
    """Rows to learn from and rows to judge by."""

    def __init__(self, X: Csr, Y: Csr, seed: int, threads: int | None, *, keep_models: bool = False) -> None:
        self.X, self.Y, self.threads, self.keep_models = X, Y, threads, keep_models
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # fewer held-out rows than requested are fine
            mask = split_rows(Y, _HELD_OUT, seed=seed)
        order = np.random.default_rng(seed).permutation(len(mask))
        kept, out = order[~mask[order]], order[mask[order]]
        with_labels = out[np.diff(Y.indptr)[out] > 0]
        self.judged = np.sort(with_labels[:_MOST_HELD_OUT])
        self._kept = kept

    @property
    def possible(self) -> bool:
        return self.X.shape[0] >= FEWEST_ROWS and len(self.judged) * 10 >= FEWEST_ROWS

    @property
    def steps(self) -> list[int]:
        """How many rows are trained on, step by step."""
        steps = [len(self._kept)]
        while steps[0] >= _GROWTH * _FIRST_STEP:
            steps.insert(0, steps[0] // _GROWTH)
        return steps

    def run(
        self, contestants: list[Contestant], prior: Contestant, allowance: float, fits: Any, clock: Clock
    ) -> list[Contestant]:
        """Those that ran the last step, the best first; empty if it cannot be afforded.

        Parameters
        ----------
        prior
            Goes on to every step, however it does: it is what would be chosen without a contest.
        allowance
            Seconds of `clock` that all steps may take.
        fits
            Whether a contestant's training on all rows fits the budget.
        """
        alive = contestants
        ranked: list[Contestant] = []
        for step in self.steps:
            running = self._affordable(alive, prior, step, allowance - clock())
            if len(running) < 2 and ranked:
                break
            done = []
            for contestant in running:
                if clock() > allowance:
                    break
                self.train(contestant, step)
                done.append(contestant)
            if len(done) < len(running):  # no fair comparison
                break
            for contestant in [c for c in done if not fits(c)]:
                contestant.note = "takes longer than the budget"
            ranked = rank([c for c in done if fits(c)])
            if not ranked:
                break
            alive = [c for c in ranked if c is prior or self._is_near(c, ranked[0])]
        return ranked

    def _is_near(self, contestant: Contestant, best: Contestant) -> bool:
        near = (best.value or 0.0) - (contestant.value or 0.0) <= _FAR_BEHIND
        if not near:
            contestant.note = f"far behind on {contestant.rows:,} rows"
        return near

    def _affordable(self, alive: list[Contestant], prior: Contestant, step: int, left: float) -> list[Contestant]:
        """The prior choice, and the best of the others that fit into the time left."""
        chosen = [c for c in alive if c is prior]
        for contestant in [c for c in alive if c is not prior]:
            if sum(c.expect(step) for c in [*chosen, contestant]) <= left:
                chosen.append(contestant)
            else:
                contestant.note = f"not compared on {step:,} rows, for lack of time"
        return chosen if sum(c.expect(step) for c in chosen) <= left else []

    def train(self, contestant: Contestant, step: int) -> None:
        rows = np.sort(self._kept[:step])
        X, Y = self.X[rows], self.Y[rows]
        last = step == len(self._kept)
        # Labels without rows cost time in every step but the last, which has nearly all.
        labels = np.arange(Y.shape[1]) if last else np.unique(Y.indices)
        method = type(contestant.method)(**contestant.method.get_params())
        clock = Clock(self.threads)
        model = method.fit(X, Y if last else Y[:, labels]).fitted()
        contestant.spent, contestant.rows = clock(), step
        found, _ = model.predict_topk(self.X[self.judged], min(TOP_K, len(labels)))
        ranked = np.where(found >= 0, labels[found], -1).astype(np.int32)
        contestant.values = ndcg_by_row(self.Y[self.judged], ranked)
        if not contestant.exact:
            contestant.seconds = contestant.expect(self.X.shape[0])
        if self.keep_models and last:
            contestant.model = model


def ndcg_by_row(Y: Csr, labels: NDArray[np.int32]) -> Values:
    """nDCG of each row, from 0 to 1; every row must have a label."""
    gains = 1 / np.log2(np.arange(2, labels.shape[1] + 2))
    n_true = np.minimum(np.diff(Y.indptr), labels.shape[1])
    found: Values = find_hits(Y, labels) @ gains / np.cumsum(gains)[n_true - 1]
    return found


def rank(contestants: list[Contestant]) -> list[Contestant]:
    """The best first. What is as good as the best, as far as these rows can tell, goes before it if preferred."""
    if not contestants:
        return []
    by_value = sorted(contestants, key=lambda c: -(c.value or 0.0))
    best = by_value[0]
    equal = [c for c in by_value if is_as_good(c, best)]
    first = min(equal, key=lambda c: (preference(c.method), by_value.index(c)))
    return [first, *(c for c in by_value if c is not first)]


def is_as_good(one: Contestant, best: Contestant) -> bool:
    """Whether held-out rows cannot tell one from the best."""
    difference = best.values - one.values
    error = float(difference.std()) / np.sqrt(max(len(difference), 1))
    return bool(difference.mean() <= _AS_GOOD * error)
