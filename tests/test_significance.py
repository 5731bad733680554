"""How sure figures are: intervals as SciPy has them, and tests as a count of all signs has them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats

import umpteen
from umpteen.data.propensity import LabelCounts
from umpteen.evaluation.decisions import evaluate_decisions
from umpteen.evaluation.significance import (
    bootstrap_intervals,
    bootstrap_label_intervals,
    compare_with_best,
    find_best,
    paired_tests,
    score_discounted,
    score_rows,
)


@pytest.fixture(scope="module")
def judged():
    """True labels with rows that have none, counts of training labels, and a ranking with short rows."""
    random = np.random.default_rng(5)
    Y = umpteen.Dataset(np.ones((300, 1)), random.random((300, 30)) < 0.1).Y
    labels = np.array([random.permutation(30)[:5] for _ in range(300)], np.int32)
    labels[::2, 0] = [row.indices[0] if row.nnz and row.indices[0] not in rest else first
                      for row, first, rest in zip(Y[::2], labels[::2, 0], labels[::2, 1:], strict=True)]  # fmt: skip
    labels[7, 3:] = -1
    return Y, labels, LabelCounts(random.integers(0, 50, 30), 400)


def test_rows_add_up_to_the_metrics(judged):
    Y, labels, counts = judged
    expected = umpteen.evaluate(Y, labels, counts, A=0.5, B=0.4)
    scores = score_rows(Y, labels, counts, A=0.5, B=0.4)
    assert len(scores) == 9
    for name, rows in scores.items():
        assert rows.value == pytest.approx(expected[name], rel=1e-9), name


def test_intervals_are_scipys(judged):
    scores = score_rows(*judged)
    found = bootstrap_intervals(scores, resamples=4000)
    for name, rows in scores.items():
        theirs = scipy.stats.bootstrap(
            (rows.gain, rows.ideal), lambda gain, ideal, axis: 100 * gain.sum(axis) / ideal.sum(axis), paired=True,
            method="percentile", n_resamples=4000, vectorized=True, random_state=1,
        ).confidence_interval  # fmt: skip
        width = theirs.high - theirs.low
        assert found[name] == pytest.approx((theirs.low, theirs.high), abs=0.06 * width), name
        assert found[name][0] < rows.value < found[name][1]


def count_signs(difference):
    """p by trying all signs, one by one."""
    sums = [abs(sum(s * d for s, d in zip(signs, difference, strict=True)))
            for signs in product((1, -1), repeat=len(difference))]  # fmt: skip
    return np.mean([each >= abs(sum(difference)) - 1e-9 for each in sums])


def test_few_differences_are_tested_by_all_signs():
    for seed in range(5):
        difference = np.round(np.random.default_rng(seed).normal(0.4, 1, 10), 1)
        padded = np.concatenate([difference, np.zeros(50)])  # rows on which both are alike tell nothing
        assert paired_tests([padded]) == [pytest.approx(count_signs(difference))]
    assert paired_tests([np.zeros(4)]) == [1.0]


def test_many_differences_are_tested_by_random_signs():
    differences = [np.random.default_rng(seed).normal(0.35, 1, 14) for seed in range(6)]
    found = paired_tests(differences, flips=9999)
    for difference, p in zip(differences, found, strict=True):
        exact = count_signs(difference)
        assert p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 9999) + 1e-3)
    assert paired_tests(differences) == paired_tests(differences)


def test_random_signs_agree_with_scipy():
    difference = np.random.default_rng(2).normal(0.1, 1, 300)
    theirs = scipy.stats.permutation_test(
        (difference,), lambda x, axis: x.sum(axis), permutation_type="samples", vectorized=True, n_resamples=9999,
        random_state=3,
    ).pvalue  # fmt: skip
    assert paired_tests([difference], flips=9999)[0] == pytest.approx(theirs, abs=0.02)


def test_chance_alone_is_rarely_significant():
    random = np.random.default_rng(0)
    p = np.array([paired_tests([random.choice([-1.0, 0, 1], 200)], flips=199)[0] for _ in range(200)])
    assert (p < 0.05).mean() < 0.1
    assert 0.4 < p.mean() < 0.65


def test_the_best_are_those_that_rows_cannot_tell_apart():
    random = np.random.default_rng(1)
    good = (random.random(2000) < 0.7).astype(float)
    same = good.copy()
    same[:10] = 1 - same[:10]
    worse = (random.random(2000) < 0.6).astype(float)
    gains = {"worse": worse, "good": good, "same": same}
    best, p = compare_with_best(gains)
    assert best in ("good", "same")
    assert p["worse"] < 0.01
    assert find_best(gains) == {"good", "same"}
    assert find_best({"good": good, "same": same}) == set()  # nobody is better than anybody
    assert find_best({"good": good}) == set()


def test_p_is_corrected_for_many_tests():
    random = np.random.default_rng(4)
    base = (random.random(400) < 0.65).astype(float)
    gains = {f"other {i}": (random.random(400) < 0.5).astype(float) for i in range(5)}
    best, corrected = compare_with_best({"base": base} | gains)
    assert best == "base"
    names = list(gains)
    plain = dict(zip(names, paired_tests([base - gains[name] for name in names]), strict=True))
    ordered = sorted(names, key=plain.get)
    last = 0.0
    for i, name in enumerate(ordered):
        last = max(last, min(1, plain[name] * (5 - i)))
        assert corrected[name] == pytest.approx(last)


def test_psndcg_of_rows_adds_up_to_evaluates():
    Y, ranked = draw_population(400, seed=3)
    train = LabelCounts(np.arange(Y.shape[1]) * 7 + 1, 5000)
    metrics = umpteen.evaluate(Y, ranked, train, k=(1, 3, 5))
    for name, score in score_discounted(Y, ranked, train, k=(1, 3, 5)).items():
        assert score.value == pytest.approx(metrics[name]), name


def draw_population(n_rows, seed):
    """Rows with labels of very different frequency, and rankings that are often right."""
    random = np.random.default_rng(seed)
    shares = 0.5 / np.arange(1, 31)
    Y = random.random((n_rows, 30)) < shares
    scores = 0.7 * Y + random.random((n_rows, 30))
    return sp.csr_matrix(Y.astype(np.float32)), np.argsort(-scores, axis=1)[:, :5].astype(np.int32)


def test_intervals_of_macro_averages_have_the_spread_of_other_samples():
    """The deviation of measures over 200 samples of one population is the one that a single sample tells."""
    Y, ranked = draw_population(300, seed=0)
    given = np.where(np.arange(5) < 2, ranked, -1).astype(np.int32)
    told = bootstrap_label_intervals(Y, ranked, given, k=(1, 5))
    seen = {name: [] for name in told}
    for seed in range(1, 201):
        other, order = draw_population(300, seed)
        metrics = umpteen.evaluate(other, order, k=(1, 5))
        macro = evaluate_decisions(other, np.where(np.arange(5) < 2, order, -1).astype(np.int32)).macro
        for name, values in seen.items():
            values.append(metrics[name] if "@" in name else getattr(macro, name.removeprefix("macro ")))
    for name, (low, high) in told.items():
        if name == "coverage@5":  # nearly 100 always
            continue
        assert (high - low) / (2 * 1.96 * np.std(seen[name])) == pytest.approx(1, abs=0.4), name
    own = umpteen.evaluate(Y, ranked, k=(1, 5))
    for name in ("macroF1@1", "macroF1@5"):
        assert sum(told[name]) / 2 == pytest.approx(own[name])
