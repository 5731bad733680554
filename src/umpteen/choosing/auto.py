"""Chooses the method: from the data's shape, the memory and a budget of time."""

from __future__ import annotations

from typing import Any

from umpteen.choosing.blending import find_blend
from umpteen.choosing.budget import Clock, format_seconds, parse_budget
from umpteen.choosing.choice import Choice, Option, describe_method
from umpteen.choosing.contest import FEWEST_ROWS, Contest, Contestant
from umpteen.choosing.contestants import challengers, exact_methods, smaller_methods, tree_methods
from umpteen.choosing.pilot import estimate_one_vs_rest
from umpteen.data.matrix import Csr, as_csr
from umpteen.errors import MemoryLimitError
from umpteen.memory import available_memory, format_bytes
from umpteen.methods.base import Method
from umpteen.methods.one_vs_rest import OneVsRest
from umpteen.methods.training import check_training
from umpteen.params import check_count

#: The share of the budget that comparing may take.
_COMPARING = 0.5
#: Below so many seconds it does not matter which exact method is quicker; above, the other must be this much quicker.
_QUICK = 10.0
_QUICKER = 0.7


def choose_method(
    X: Any,
    Y: Any,
    budget: float | str | None = None,
    threads: int | None = None,
    *,
    seed: int = 0,
    trainings: int = 1,
    tune: bool = False,
    weighs_rows: bool = False,
) -> Choice:
    """The method to train on some data, why, and what else was possible.

    Exact one-vs-rest is the first choice if its training fits the budget, a label tree if it does not. Methods that
    may be better, as the data goes, are compared with it on held-out training rows, in at most half of the budget.
    What would not fit into memory is left out.

    Parameters
    ----------
    X, Y
        Training rows. Do not pass test rows.
    budget
        How long choosing and training may take: seconds, or text such as "90s", "10m" or "1h"; by default 10 minutes.
        Time is the processor time of all threads divided by their number, so that a busy machine makes no difference.
    threads
        As for methods.
    seed
        Seeds the choice of held-out rows, and the methods.
    trainings
        How often the chosen method will be trained: 2 if a first model is trained for calibration.
    tune
        Compare more methods and settings, and blend the best if that is better.
    weighs_rows
        Only consider methods that take `sample_weight`. They are compared on rows that count once each.

    Examples
    --------
    >>> import umpteen
    >>> data = umpteen.make_synthetic(500, 300, 20, seed=1)
    >>> choice = umpteen.choose_method(data.X, data.Y, budget="1m")
    >>> choice.name
    'dismec'
    >>> model = choice.method.fit(data.X, data.Y)
    """
    seconds = parse_budget(budget)
    check_count("trainings", trainings)
    check_count("seed", seed, low=0)
    X, Y = as_csr(X, "X"), as_csr(Y, "Y", values=False)
    if X.shape[0] != Y.shape[0] or 0 in (*X.shape, *Y.shape):
        check_training(exact_methods(threads)[0], X, Y, Y.shape[1], None)  # says what is wrong
    return _Chooser(X, Y, seconds, threads, seed, trainings, tune, weighs_rows).choose()


class _Chooser:
    def __init__(
        self, X: Csr, Y: Csr, budget: float, threads: int | None, seed: int, trainings: int, tune: bool,
        weighs_rows: bool,
    ) -> None:  # fmt: skip
        self.X, self.Y, self.budget, self.threads = X, Y, budget, threads
        self.seed, self.trainings, self.tune = seed, trainings, tune
        self.weighs_rows = weighs_rows
        self.clock = Clock(threads)
        self.available = available_memory()
        self.copies = sum(M.data.nbytes + M.indices.nbytes + M.indptr.nbytes for M in (X, Y))
        self.seen: list[Contestant] = []

    def choose(self) -> Choice:
        exact = self._choose_exact()
        if not self._has_room(exact):
            return self._choose_small(exact)
        trees = [self._consider(method) for method in tree_methods(self.threads, self.seed)]
        others = challengers(exact.method, self.X, self.threads, self.seed, tune=self.tune)[len(trees) :]
        others = [method for method in others if method.weighs_rows or not self.weighs_rows]
        rivals = [c for c in [*trees, *map(self._consider, others)] if self._has_room(c)]
        contest = Contest(self.X, self.Y, self.seed, self.threads, keep_models=self.tune)
        first = self._fits(exact)
        prior = exact if first else next((c for c in reversed(trees) if self._has_room(c)), exact)
        ranked: list[Contestant] = []
        if contest.possible:
            left = self.budget - self.clock() - (self.trainings * (prior.seconds or 0.0))
            entrants = [exact, *rivals] if first else rivals
            allowance = self.clock() + min(_COMPARING * self.budget, left)
            ranked = contest.run(entrants, prior, allowance, self._fits, self.clock)
        if len(ranked) > 1:
            found = find_blend(ranked, contest, self.budget - self.clock()) if self.tune else None
            if found is not None:
                return self._choice(found.members, found.reason, found.blend)
            return self._choice(ranked[:1], _why_best(ranked, exact, contest))
        return self._choice([prior], self._why_prior(prior, exact, contest))

    def _choose_exact(self) -> Contestant:
        """DiSMEC, or PPDSparse where that is much quicker."""
        known, quick = (self._consider(method) for method in exact_methods(self.threads))
        for contestant in (known, quick):
            method = contestant.method
            contestant.exact = True
            if self._has_room(contestant) and isinstance(method, OneVsRest):
                contestant.seconds = estimate_one_vs_rest(method, self.X, self.Y)
            if contestant is known and self._has_room(known) and (known.seconds or 0.0) <= _QUICK:
                self.seen.remove(quick)
                return known
        if known.seconds is None or (quick.seconds or 0.0) < _QUICKER * known.seconds:
            known.note = known.note or f"{quick.method.name} solves the same problem sooner"
            return quick
        quick.note = f"{known.method.name} solves the same problem as soon"
        return known

    def _consider(self, method: Method) -> Contestant:
        contestant = Contestant(method, method.estimate(self.X, self.Y).peak_bytes)
        self.seen.append(contestant)
        if not self._has_room(contestant):
            contestant.note = f"does not fit into memory, of which {format_bytes(self.available or 0)} are free"
        return contestant

    def _has_room(self, contestant: Contestant) -> bool:
        return self.available is None or contestant.peak_bytes + self.copies <= self.available

    def _fits(self, contestant: Contestant) -> bool:
        return self.clock() + self.trainings * (contestant.seconds or 0.0) <= self.budget

    def _choose_small(self, exact: Contestant) -> Choice:
        """What fits into memory, without a comparison."""
        methods = [*smaller_methods(self.threads, self.seed), *tree_methods(self.threads, self.seed)]
        found = [c for c in map(self._consider, methods) if self._has_room(c)]
        for contestant in found:
            if isinstance(contestant.method, OneVsRest):
                contestant.seconds = estimate_one_vs_rest(contestant.method, self.X, self.Y)
            if self._fits(contestant):
                free = f"the {format_bytes(self.available or 0)} of memory that are free"
                return self._choice([contestant], f"{exact.method.name} does not fit into {free}, this does")
        if found:
            limit = f"the budget of {format_seconds(self.budget)}"
            return self._choice(found[-1:], f"takes longer than {limit}, but nothing else fits into memory")
        least = min(self.seen, key=lambda c: c.peak_bytes)
        raise MemoryLimitError(
            f"the smallest method, {describe_method(least.method)}, would need {format_bytes(least.peak_bytes)} of "
            f"memory beside {format_bytes(self.copies)} for rows, but only {format_bytes(self.available or 0)} is "
            "available; use fewer rows, features or labels"
        )

    def _why_prior(self, prior: Contestant, exact: Contestant, contest: Contest) -> str:
        limit = f"the budget of {format_seconds(self.budget)}"
        if prior is exact:
            fits = f"exact one-vs-rest takes about {format_seconds(self.trainings * (exact.seconds or 0.0))}"
            if not self._fits(exact):
                return f"{fits}, more than {limit}, but trees do not fit into memory"
            if not contest.possible:
                return f"{fits}, and with fewer than {FEWEST_ROWS:,} rows held-out ones tell methods apart badly"
            return f"{fits}, within {limit}, which leaves no time to compare it with others"
        needed = format_seconds(self.trainings * (exact.seconds or 0.0))
        return f"exact one-vs-rest would take about {needed}, more than {limit}; a tree is quicker"

    def _choice(self, chosen: list[Contestant], reason: str, blend: Any = None) -> Choice:
        options = sorted(self.seen, key=lambda c: (c not in chosen, -(c.value or -1.0) if c.rows else 1.0))
        for contestant in chosen:
            contestant.note = "chosen"
        listed = [
            Option(describe_method(c.method), c.seconds, c.peak_bytes, c.value, c.note or "possible") for c in options
        ]
        return Choice([c.method for c in chosen], reason, listed, self.budget, blend=blend)


def _why_best(ranked: list[Contestant], exact: Contestant, contest: Contest) -> str:
    best = ranked[0]
    other = next((c for c in ranked if c is exact and c is not best), ranked[1])
    first = (best.value or 0.0) >= (other.value or 0.0)
    return (
        f"ranks {'best' if first else 'as well as any'} on {len(contest.judged):,} held-out rows after training on "
        f"{best.rows:,}: nDCG@5 {best.value:.1f}, {describe_method(other.method)} {other.value:.1f}"
    )
