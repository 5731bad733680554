"""The weight of dense vectors beside terms: chosen on held-out rows, kept, saved, and left alone where given."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

import umpteen
from umpteen.choosing.dense_weight import WEIGHTS, weigh_dense
from umpteen.errors import ParamError
from umpteen.text.features import describe, restore
from umpteen.text.union import TfidfUnion

N = 1200
LETTERS = "abcdefghijkl"


def made(words_tell):
    """Texts that end in a letter which says the label, and is no word; so many of the other words say it too."""
    random = np.random.default_rng(5)
    labels = random.integers(0, 12, N)
    words = np.where(random.random(N) < words_tell, labels, random.integers(0, 12, N))
    texts = [
        f"word{word} filler{random.integers(40)} {LETTERS[label]}" for word, label in zip(words, labels, strict=True)
    ]
    return texts, [[f"label {label}"] for label in labels]


def noise(texts):
    """Vectors that know nothing; the same for the same text."""
    return np.array([np.random.default_rng(crc32(text.encode())).standard_normal(12) for text in texts])


def telling(texts):
    """Vectors that know the label, dimly."""
    return np.eye(12)[[max(LETTERS.find(text[-1:]), 0) for text in texts]] + 0.6 * noise(texts)


def fit(encoder, words_tell, **params):
    union = TfidfUnion(["word", encoder], **params)
    return umpteen.Tagger("dismec", union, calibration=0).fit(*made(words_tell))


def test_what_helps_counts_more_and_noise_does_not():
    assert fit(telling, 0).features_.dense_weight_ == 2.0
    assert fit(noise, 0.7).features_.dense_weight_ <= 1.0


def test_rows_are_those_that_new_texts_get():
    tagger = fit(telling, 0)
    texts, labels = made(0)
    union = TfidfUnion(["word", telling], dense_weight=2.0)
    X = union.fit_transform(texts)
    np.testing.assert_allclose(tagger.vectorize(texts).X.data, X.data, rtol=1e-6)
    _, data = tagger.prepare(texts, labels)
    np.testing.assert_allclose(data.X.data, X.data, rtol=1e-6)
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1, rtol=1e-5)


def test_the_choice_does_not_depend_on_threads():
    texts, labels = made(0)
    union = TfidfUnion(["word", "svd:8"])
    X = union.fit_transform(texts)
    Y = umpteen.Tagger("dismec").prepare(texts, labels)[1].Y
    found = [weigh_dense(union, X, Y, 0, threads) for threads in (1, 3)]
    np.testing.assert_array_equal(found[0].data, found[1].data)
    assert union.dense_weight_ in WEIGHTS


@pytest.mark.parametrize("params", [{"weights": [1, 1]}, {"dense_weight": 1.0}, {"dense_weight": 3}])
def test_given_weights_stay(params):
    features = fit(telling, 0, **params).features_
    assert features.dense_weight_ == params.get("dense_weight", 1)


def test_few_texts_and_single_kinds_have_nothing_to_choose():
    texts, labels = made(0)
    few = umpteen.Tagger("dismec", ["word", "svd:4"], calibration=0).fit(texts[:200], labels[:200])
    assert few.features_.dense_weight_ == 1
    for features in (["svd:4"], ["word", "char"]):
        tagger = umpteen.Tagger("centroid", features, calibration=0).fit(texts, labels)
        assert tagger.features_.dense_weight_ == 1


def test_kept_in_the_model_and_while_it_grows(tmp_path):
    tagger = umpteen.Tagger("dismec", ["word", "svd:4"], calibration=0).fit(*made(1))
    tagger.features_.set_dense_weight(0.5)
    grown = tagger.features_.grown(["word3 entirely different"])
    assert grown is not tagger.features_
    before, after = (np.unique(union.column_weights(), return_counts=True) for union in (tagger.features_, grown))
    np.testing.assert_array_equal(before[0], after[0])
    assert before[1][0] == after[1][0] == 4
    again = TfidfUnion.from_part(tagger.features_.to_part())
    np.testing.assert_array_equal(again.column_weights(), tagger.features_.column_weights())


def test_described_and_refused():
    union = TfidfUnion(["word", "svd:4"], dense_weight=0.5)
    assert restore(describe(union)).dense_weight == 0.5
    assert restore(describe(TfidfUnion(["word", "svd:4"]))).dense_weight == "auto"
    for wrong in (0, -1, "much", np.nan):
        with pytest.raises(ParamError, match="dense_weight must be a finite number above 0"):
            TfidfUnion(["word", "svd:4"], dense_weight=wrong).fit(["herring"])
