"""A model scored in parts gives the answers of the whole, to the last bit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import umpteen
from umpteen.methods import METHODS, method_class
from umpteen.models.partial import Share, merge_rankings, share_out, take_part

#: Settings that give several units on the data called tiny.
SETTINGS = {
    "fastxml": {"n_trees": 7},
    "pfastrexml": {"n_trees": 5, "n_candidates": 8},
    "rxml": {"n_learners": 4, "n_clusters": 3},
    "sleec": {"n_learners": 3, "rank": 8},
    "rxml-global": {},
}


def fit(name, data):
    settings = SETTINGS.get(name, {"labels_per_shard": 7} if name not in SETTINGS else {})
    if "labels_per_shard" in settings and "labels_per_shard" not in method_class(name).param_defaults():
        settings = {}
    return method_class(name)(**settings).fit(data.X, data.Y)


def in_parts(model, X, top_k, n_parts, **options):
    """As an engine does it, but that every piece goes through pickle."""
    options = {"exclude": None, "include": None, "threads": 2, **options}
    parts = [pickle.loads(pickle.dumps(take_part(model, share))) for share in share_out(model, n_parts)]
    merger = pickle.loads(pickle.dumps(model.merger()))
    answers = [pickle.loads(pickle.dumps(part.score_part(X, top_k, **options))) for part in parts]
    return len(parts), merger.merge(X, answers, top_k, **options)


@pytest.mark.parametrize("name", [name for name in METHODS if hasattr(method_class(name).scorer_class, "units")])
def test_parts_say_what_the_whole_says(name, tiny):
    method = fit(name, tiny)
    X = method.preprocessing_.transform(tiny.X)
    n_units = len(method.model_.scorer.units())
    assert n_units > 1 or name in ("rxml-global", "label-tree")
    for options in ({}, {"exclude": [0, 3, 17]}, {"include": np.arange(1, 40, 2)}):
        for top_k in (1, 5, 50):
            want = method.model_.scorer.predict_topk(X, top_k, **options)
            for n_parts in (1, 2, 3, n_units):
                count, got = in_parts(method.model_.scorer, X, top_k, n_parts, **options)
                assert count == min(n_parts, n_units)
                np.testing.assert_array_equal(got[0], want[0])
                np.testing.assert_array_equal(got[1], want[1])
                assert [array.dtype for array in got] == [array.dtype for array in want]


def test_an_approximate_index_is_asked_in_parts_too(tiny):
    method = umpteen.RXML(n_learners=3, rank=8, index="usearch").fit(tiny.X, tiny.Y)
    X = method.preprocessing_.transform(tiny.X)
    parts = [take_part(method.model_.scorer, share) for share in share_out(method.model_.scorer, 3)]
    answers = [part.score_part(X, 5, exclude=None, include=None, threads=1) for part in parts]
    got = method.model_.scorer.merger().merge(X, answers, 5, exclude=None, include=None, threads=1)
    for mine, whole in zip(got, method.model_.scorer.predict_topk(X, 5), strict=True):
        np.testing.assert_array_equal(mine, whole)


@pytest.mark.slow
def test_real_data_in_parts(bibtex):
    train, test = bibtex
    for method in (umpteen.PfastreXML(n_trees=6), umpteen.DiSMEC(labels_per_shard=20), umpteen.RXML(n_learners=3)):
        method.fit(train.X, train.Y)
        X = method.preprocessing_.transform(test.X)
        want = method.model_.scorer.predict_topk(X, 5)
        _, got = in_parts(method.model_.scorer, X, 5, 3)
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])


class Sized:
    """Stands for a model whose shards have these sizes."""

    def __init__(self, sizes):
        self.sizes = sizes

    def to_parts(self):
        return [umpteen.storage.store.Part({"a": np.zeros(size, np.uint8)}) for size in self.sizes]

    def units(self):
        return [[i] for i in range(len(self.sizes))]


@pytest.mark.parametrize("n_parts", [1, 2, 3, 5, 9])
def test_shares_are_in_order_whole_and_about_equal(n_parts):
    random = np.random.default_rng(0)
    for _ in range(50):
        sizes = random.integers(1, 100, random.integers(1, 12)).tolist()
        shares = share_out(Sized(sizes), n_parts)
        assert [i for share in shares for i in share.shards] == list(range(len(sizes)))
        assert len(shares) == min(n_parts, len(sizes))
        assert max(share.n_bytes for share in shares) <= sum(sizes) / len(shares) + max(sizes)
    assert share_out(Sized([5, 5]), 1) == [Share((0, 1), 10)]


def test_rankings_merge_by_score_then_label():
    left = (np.array([[4, 1], [2, -1]], np.int32), np.array([[2, 1], [3, -np.inf]], np.float32))
    right = (np.array([[0, 3], [-1, -1]], np.int32), np.array([[2, 1], [-np.inf, -np.inf]], np.float32))
    labels, scores = merge_rankings([left, right], 3)
    assert labels.tolist() == [[0, 4, 1], [2, -1, -1]]
    assert scores.tolist() == [[2, 2, 1], [3, -np.inf, -np.inf]]
