"""Probabilities and thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

import umpteen
import umpteen.models.calibration as module
from umpteen.data.split import split_rows
from umpteen.errors import DataError, ModelCorruptError, NotFittedError
from umpteen.evaluation.calibration import reliability
from umpteen.evaluation.metrics import find_hits
from umpteen.models.calibration import Calibration, _fit_curve, count_labels_to_give
from umpteen.storage.store import Part


def draw(n_rows=400, top_k=6, n_labels=30, seed=0):
    """Ranked predictions whose chance of being right rises with their score."""
    rng = np.random.default_rng(seed)
    labels = np.stack([rng.choice(n_labels, top_k, replace=False) for _ in range(n_rows)]).astype(np.int32)
    scores = -np.sort(-rng.normal(size=(n_rows, top_k)).astype(np.float32), axis=1)
    hits = rng.random((n_rows, top_k)) < 1 / (1 + np.exp(-3 * scores))
    n_true = np.bincount(labels[hits], minlength=n_labels) + rng.integers(0, 3, n_labels)
    return labels, scores, hits, n_true


def test_the_curve_without_its_prior_is_isotonic_regression(monkeypatch):
    score = np.repeat(np.arange(40.0), 1)
    hit = np.random.default_rng(1).random(40) < score / 40
    # Groups of one, so that nothing but pooling happens.
    monkeypatch.setattr(module, "_PER_GROUP", 1)
    monkeypatch.setattr(module, "_PRIOR", 0)
    knots, values, support = _fit_curve(score, hit)
    knots, values, support = knots[:-2], values[:-2], support[:-2]  # without those above the topmost group
    assert support.sum() == 40
    fitted = IsotonicRegression().fit_transform(score, hit.astype(float))
    pooled = {}
    for x, y in zip(score, fitted, strict=True):
        pooled.setdefault(round(y, 9), []).append(x)
    np.testing.assert_allclose(knots, [np.mean(xs) for xs in pooled.values()], rtol=1e-6)
    np.testing.assert_allclose(values[1:-1], list(pooled)[1:-1], rtol=1e-6)
    assert (min(pooled), max(pooled)) == (0, 1)
    odds = np.log(values / (1 - values))  # nothing is certain
    assert (np.abs(odds[[0, -1]]) < np.log(40.5 / 0.5) + 1).all()


def test_probabilities_are_close_to_the_shares_they_were_drawn_from():
    labels, scores, hits, n_true = draw(4000)
    found = Calibration.fit(labels, scores, hits, n_true)
    at = np.linspace(-1.5, 1.5, 13)
    np.testing.assert_allclose(found.to_probabilities(at), 1 / (1 + np.exp(-3 * at)), atol=0.06)
    assert (np.diff(found.to_probabilities(np.linspace(-9, 9, 500))) >= 0).all()
    assert found.to_probabilities(-np.inf) == 0


@given(
    n_rows=st.integers(1, 60),
    distinct=st.integers(1, 300),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    chance=st.sampled_from(["rises", "falls", "even", "never", "always"]),
    seed=st.integers(0, 10**6),
)
def test_scores_that_differ_never_share_a_probability(n_rows, distinct, scale, chance, seed):
    """Not in the tails, not beyond all scores seen, and not where held-out rows say nothing or the opposite."""
    rng = np.random.default_rng(seed)
    scores = -np.sort(-rng.integers(0, distinct, (n_rows, 5)) / distinct).astype(np.float32) * np.float32(scale)
    share = {"rises": scores / scale, "falls": 1 - scores / scale, "even": 0.3, "never": 0.0, "always": 1.0}[chance]
    hits = rng.random(scores.shape) < share
    labels = np.tile(np.arange(5, dtype=np.int32), (n_rows, 1))
    found = Calibration.fit(labels, scores, hits, np.bincount(labels[hits], minlength=5))
    assert (np.diff(found.scores) > 0).all()
    assert (np.diff(found.probabilities) > 0).all()
    at = np.unique(np.concatenate([scores.ravel(), np.linspace(-3 * scale, 4 * scale, 50)]).astype(np.float32))
    probabilities = found._interpolate(at[np.append(True, np.diff(at) > 1e-3 * scale)].astype(np.float64))
    assert (np.diff(probabilities) > 0).all()  # in 32 bits, those that are very close share one
    assert probabilities[0] > 0
    assert probabilities[-1] < 1
    assert found.to_probabilities([np.inf])[0] >= probabilities[-1]
    assert found.to_probabilities([-np.inf])[0] == 0
    part = found.to_part()
    assert (Calibration.from_part(part).to_probabilities(at) == found.to_probabilities(at)).all()
    del part.scalars["rises_on"]  # as earlier versions wrote it: flat beyond the knots, and so it stays
    flat = Calibration.from_part(part).to_probabilities([-9 * scale, found.scores[0], found.scores[-1], 9 * scale])
    np.testing.assert_array_equal(flat, found.probabilities[[0, 0, -1, -1]])


def f1(labels, hits, given, n_true, label=None):
    if label is not None:
        given, n_true = given & (labels == label), n_true[label]
    right = (hits & given).sum()
    return 2 * right / (given.sum() + np.sum(n_true))


def test_the_logistic_curve_follows_odds_that_rise_faster_than_low_scores():
    """As one-vs-rest scores do just above -1, where most are: a straight line through them is far off."""
    rng = np.random.default_rng(1)
    score = np.sort(np.minimum(-1 + rng.exponential(0.15, 40_000), 2))
    odds = np.exp(1.5 + 1.3 * np.log(np.maximum(score + 1, 1e-3)))
    right = (rng.random(len(score)) < odds / (1 + odds)).astype(float)
    few = np.sort(rng.choice(len(score), 1000, replace=False))
    _, (offset, slope, _) = module._descend([np.ones(1000), score[few], score[few]], right[few], [0, 1])
    straight = 1 / (1 + np.exp(-offset - slope * score))
    found = np.interp(score, score[few], module._fit_logistic(score[few], right[few]))
    error, error_of_straight = (np.abs(curve - odds / (1 + odds)).mean() for curve in (found, straight))
    assert error < 0.8 * error_of_straight
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_logistic_curve_never_falls(seed):
    """Not even where high scores are the wrong ones: then it is flat."""
    rng = np.random.default_rng(seed)
    score = np.sort(rng.normal(size=200))
    for right in (score < 0, score > 0, np.abs(score) < 0.5, np.zeros(200, bool), np.ones(200, bool)):
        found = module._fit_logistic(score, right.astype(float))
        assert np.isfinite(found).all()
        assert (np.diff(found) >= 0).all()
    assert module._fit_logistic(np.zeros(1), np.ones(1)).shape == (1,)


def test_thresholds_are_the_best_there_are():
    labels, scores, hits, n_true = draw()
    found = Calibration.fit(labels, scores, hits, n_true)
    # Every cut between two scores, tried one by one.
    best = max(f1(labels, hits, scores >= cut, n_true) for cut in np.unique(scores))
    reached = f1(labels, hits, found.to_probabilities(scores) >= found.threshold, n_true)
    assert reached == pytest.approx(best, abs=0.003)  # the curve has flat parts that no probability can divide
    # Thresholds by label gain macro F1 over the common one, and the more rows a label has the nearer to its own best.
    common, own = (found.to_probabilities(scores) >= found.thresholds(labels, each) for each in (False, True))
    macro = [np.mean([f1(labels, hits, given, n_true, label) for label in range(30)]) for given in (common, own)]
    assert macro[1] > macro[0]
    for label in np.flatnonzero(n_true >= 40):
        best = max(f1(labels, hits, scores >= cut, n_true, label) for cut in scores[labels == label])
        assert f1(labels, hits, own, n_true, label) >= best - 0.06


def test_how_many_labels():
    counts = count_labels_to_give(np.array([[0.9, 0.9, 0.05, 0.0], [0.3, 0.3, 0.3, 0.3], [0, 0, 0, 0]], np.float32))
    assert counts.tolist() == [2, 4, 0]


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=8))
def test_how_many_labels_is_the_best_prefix(values):
    falling = -np.sort(-np.array([values], np.float32))
    [k] = count_labels_to_give(falling)
    total = falling.sum(dtype=np.float64)
    if total == 0:
        assert k == 0
        return
    gains = [2 * falling[0, :n].sum(dtype=np.float64) / (n + total) for n in range(1, len(values) + 1)]
    assert gains[k - 1] == pytest.approx(max(gains))


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [umpteen.DiSMEC(C=0.3), umpteen.FastXML(n_trees=10), umpteen.PfastreXML(n_trees=10)]
)
def test_probabilities_on_real_rows(bibtex, method, tmp_path):
    train, test = bibtex
    held_out = split_rows(train.Y, 0.1)
    model = method.fit(train.X[~held_out], train.Y[~held_out])
    with pytest.raises(NotFittedError, match="not calibrated"):
        model.predict_topk_proba(test.X)
    model.calibrate(train.X[held_out], train.Y[held_out])
    labels, _ = model.predict_topk(test.X, 5)
    same, probabilities = model.predict_topk_proba(test.X, 5)
    np.testing.assert_array_equal(labels, same)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert (np.diff(probabilities, axis=1) <= 0).all()
    given, hits = labels >= 0, find_hits(test.Y, labels)
    assert reliability(probabilities[given], hits[given]).error < 0.05
    model.save(tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict_topk_proba(test.X, 5)[1], probabilities)
    np.testing.assert_array_equal(loaded.calibration.label_thresholds, model.calibration_.label_thresholds)


def test_reliability():
    found = reliability([0.0, 0.05, 0.5, 0.52, 1.0], [0, 1, 1, 0, 1], bins=10)
    np.testing.assert_allclose(found.predicted, [0.025, 0.51, 1.0])
    np.testing.assert_allclose(found.true, [0.5, 0.5, 1.0])
    assert found.count.tolist() == [2, 2, 1]
    assert found.error == pytest.approx((0.475 * 2 + 0.01 * 2) / 5)
    assert found.to_svg().count("<circle") == 3
    with pytest.raises(DataError, match="same number of entries, at least one, but have"):
        reliability([0.5], [])
    with pytest.raises(DataError, match=r"in \[0, 1\], but one is 1.5"):
        reliability([1.5], [True])


@pytest.mark.parametrize(
    ("change", "scalars"),
    [
        ({"scores": np.array([1, 0], np.float32)}, {}),
        ({"scores": np.array([0, np.nan], np.float32)}, {}),
        ({"probabilities": np.array([0.5, 1.5], np.float32)}, {}),
        ({"probabilities": np.array([0.5], np.float32)}, {}),
        ({"probabilities": np.array([np.inf, np.inf], np.float32)}, {}),
        ({}, {"threshold": 2.0}),
        ({}, {"threshold": None}),
        ({}, {"rises_on": 1}),
    ],
)
def test_damaged_calibrations_are_refused(change, scalars):
    part = Part(
        {"scores": np.array([0, 1], np.float32), "probabilities": np.array([0.1, 0.9], np.float32),
         "label_thresholds": np.zeros(3, np.float32)} | change,
        {"threshold": 0.5, "n_rows": 10} | scalars,
    )  # fmt: skip
    with pytest.raises(ModelCorruptError, match="calibration"):
        Calibration.from_part(part)


def test_calibration_needs_a_prediction():
    with pytest.raises(DataError, match="at least one prediction"):
        Calibration.fit(
            np.full((3, 2), -1, np.int32),
            np.full((3, 2), -np.inf, np.float32),
            np.zeros((3, 2), bool),
            np.zeros(4, int),
        )
