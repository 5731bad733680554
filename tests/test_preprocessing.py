"""What is done to X, recorded with the model, and done again."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.data.matrix import as_csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.errors import DataError, ParamError

from .reference import unit_rows


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_unit_rows_match_the_slow_twin(tiny, threads):
    got = Preprocessing(normalize=True).transform(tiny.X, threads=threads)
    np.testing.assert_array_equal(got.data, unit_rows(tiny.X).data)
    np.testing.assert_allclose(np.sqrt(got.multiply(got).sum(axis=1)), 1, rtol=1e-6)


def test_rows_of_zeros_stay():
    X = as_csr(sp.csr_matrix(np.array([[0.0, 0.0], [3.0, 4.0]])), "X")
    X = as_csr(sp.vstack([X, sp.csr_matrix(([0.0], [1], [0, 1]), shape=(1, 2))]), "X")
    got = Preprocessing(normalize=True).transform(X).toarray()
    np.testing.assert_array_equal(got, np.array([[0, 0], [0.6, 0.8], [0, 0]], np.float32))


def test_a_row_does_not_depend_on_the_rows_around_it(tiny):
    whole = Preprocessing(normalize=True).transform(tiny.X)
    for i in (0, 17, 299):
        alone = Preprocessing(normalize=True).transform(as_csr(tiny.X[i], "X"))
        np.testing.assert_array_equal(alone.data, whole[i].data)


def test_tfidf_agrees_with_scikit_learn():
    from sklearn.feature_extraction.text import TfidfTransformer

    rng = np.random.default_rng(0)
    counts = as_csr(rng.poisson(0.3, (50, 30)), "X")
    steps = Preprocessing(tfidf=True, normalize=True).fit(counts)
    theirs = TfidfTransformer().fit(counts).transform(counts)
    np.testing.assert_allclose(steps.transform(counts).toarray(), theirs.toarray(), rtol=1e-5)
    assert counts.data.max() > 1  # the caller's counts are still counts


@pytest.mark.parametrize("power", [0, 0.3, 0.5, 1])
def test_values_are_raised_to_a_power_and_keep_their_signs(power):
    X = as_csr(sp.csr_matrix(([4.0, -9.0, 0.0, 0.25], [0, 2, 1, 3], [0, 2, 4]), shape=(2, 4)), "X")
    before = X.data.copy()
    got = Preprocessing(normalize=False, power=power).transform(X).toarray()
    np.testing.assert_allclose(got, [[4**power, 0, -(9**power), 0], [0, 0, 0, 0.25**power]], rtol=1e-6)
    np.testing.assert_array_equal(X.data, before)


def test_power_comes_before_idf_and_length():
    rng = np.random.default_rng(0)
    counts = as_csr(rng.poisson(0.5, (50, 30)), "X")
    steps = Preprocessing(tfidf=True, power=0.5).fit(counts)
    roots = as_csr(counts.sqrt(), "X")
    plain = Preprocessing(tfidf=True).fit(roots)
    np.testing.assert_array_equal(steps.transform(counts).data, plain.transform(roots).data)


def test_a_model_remembers_its_power(tmp_path, tiny):
    model = umpteen.Centroid(power=0.5).fit(tiny.X, tiny.Y, tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m")
    assert loaded.preprocessing.to_json()["power"] == 0.5
    np.testing.assert_array_equal(model.predict_topk(tiny.X)[0], loaded.predict_topk(tiny.X)[0])
    by_hand = umpteen.Centroid().fit(as_csr(tiny.X.sqrt(), "X"), tiny.Y)
    np.testing.assert_array_equal(by_hand.predict_topk(as_csr(tiny.X.sqrt(), "X"))[1], model.predict_topk(tiny.X)[1])


@pytest.mark.process
@pytest.mark.measured("memory")
@pytest.mark.parametrize(
    "method", ["Centroid()", "FastXML(n_trees=1, threads=1)", "RXMLGlobal(rank=5, iterations=2)"]
)
@pytest.mark.parametrize("steps", [{}, {"power": 0.5}, {"power": 0.3, "tfidf": True, "normalize": True}])
def test_the_estimate_covers_what_the_steps_take(method, steps):
    """Where rows are most of what training takes; measured in a fresh process."""
    code = f"""
import umpteen
from umpteen.comparing.child import Usage
data = umpteen.make_synthetic(15_000, 3_000, 30, features_per_row=150, seed=3)
model = umpteen.{method}.set_params(**{steps})
type(model)(**model.get_params()).fit(data.X[:200], data.Y[:200])  # loads what is loaded once
with Usage() as usage:
    model.fit(data.X, data.Y)
print(usage.peak_bytes, model.estimate(data.X, data.Y).peak_bytes)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    peak, estimate = map(int, out.stdout.split())
    assert 0.2 * estimate < peak <= estimate


def test_bias_column_is_appended_last(tiny):
    X = Preprocessing(bias=2.5).append_bias(tiny.X)
    assert X.shape == (300, 201)
    np.testing.assert_array_equal(X[:, 200].toarray(), np.full((300, 1), 2.5))
    assert (X[:, :200] != tiny.X).nnz == 0
    assert Preprocessing(bias=0).append_bias(tiny.X) is tiny.X


def test_nothing_to_do_copies_nothing(tiny):
    assert Preprocessing(normalize=False).transform(tiny.X) is tiny.X


@pytest.mark.parametrize("bias", [-1, np.nan, np.inf])
def test_bias_is_checked(bias):
    with pytest.raises(ParamError, match="bias must be a finite number of at least 0, but is"):
        Preprocessing(bias=bias)


def test_negative_counts_are_refused(tiny):
    steps = Preprocessing(tfidf=True).fit(tiny.X)
    with pytest.raises(DataError, match="tf-idf needs values of at least 0, but X has -"):
        steps.transform(-tiny.X)
    with pytest.raises(DataError, match="X must have the .* features of the idf, but has 7"):
        steps.transform(as_csr(np.ones((1, 7)), "X"))


@pytest.mark.parametrize("tfidf", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_preprocessing_is_recorded_and_applied_again(tmp_path, tiny, tfidf, normalize):
    model = umpteen.Centroid(tfidf=tfidf, normalize=normalize).fit(tiny.X, tiny.Y, tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m")
    assert loaded.preprocessing.to_json() == {"tfidf": tfidf, "normalize": normalize, "bias": 0.0}
    steps = Preprocessing(tfidf=tfidf, normalize=normalize).fit(tiny.X)
    by_hand = model.model_.scorer.predict_topk(steps.transform(tiny.X), 5)
    for a, b in zip(loaded.predict_topk(tiny.X, 5), by_hand, strict=True):
        np.testing.assert_array_equal(a, b)
