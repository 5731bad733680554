"""Explanations of every family add up to what they explain."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.errors import ParamError


@pytest.mark.parametrize("method", [umpteen.DiSMEC(), umpteen.PPDSparse(lambda_=0.1), umpteen.Centroid()])
def test_linear_contributions_are_weight_times_value_and_add_up(tiny, method):
    model = method.fit(tiny.X, tiny.Y)
    W, bias = model.model_.scorer.to_weights()
    X = model.preprocessing_.transform(tiny.X)
    labels, scores = model.predict_topk(tiny.X, 3)
    for i in range(20):
        row = X[i].toarray().ravel().astype(np.float64)
        for label, score in zip(labels[i], scores[i], strict=True):
            found = model.explain(tiny.X[i], label)
            terms = W[label].toarray().ravel() * row
            expected = np.flatnonzero(terms)
            assert sorted(found.features.tolist()) == expected.tolist()
            np.testing.assert_allclose(found.contributions, terms[found.features], rtol=1e-6)
            assert (np.diff(np.abs(found.contributions)) <= 0).all()
            assert found.base == pytest.approx(float(bias[label]))
            assert found.explained == pytest.approx(float(score), abs=1e-5)
            assert found.score == pytest.approx(float(score), abs=1e-5)


def test_a_label_that_cannot_be_ranked(tiny):
    Y = sp.hstack([tiny.Y, sp.csr_matrix((tiny.n_rows, 1))]).tocsr()
    found = umpteen.DiSMEC().fit(tiny.X, Y).explain(tiny.X[0], tiny.n_labels)
    assert found.score == -np.inf
    assert len(found.features) == 0
    assert found.as_dict()["score"] is None


@pytest.mark.parametrize("method", [umpteen.FastXML(n_trees=5), umpteen.PfastreXML(n_trees=5)])
def test_forest_votes_add_up_and_follow_the_splits(tiny, method):
    model = method.fit(tiny.X, tiny.Y)
    X = model.preprocessing_.transform(tiny.X)
    labels, scores = model.predict_topk(tiny.X, 3)
    leaves = model.model_.scorer.find_leaves(X)
    voted = 0
    for i in range(20):
        dense = np.append(X[i].toarray().ravel(), model.model_.scorer.trees[0].bias)
        for label, score in zip(labels[i], scores[i], strict=True):
            if label < 0:
                continue
            found = model.explain(tiny.X[i], label)
            assert found.score == score
            votes = [vote["score"] for vote in found.votes]
            assert votes == sorted(votes, reverse=True)
            assert found.explained == pytest.approx(sum(votes) / 5)
            if method.name == "fastxml":
                assert found.explained == pytest.approx(float(score), abs=1e-4)
            assert (found.contributions >= 0).all()
            for vote in found.votes:
                voted += 1
                tree = model.model_.scorer.trees[vote["tree"]]
                assert vote["leaf"] == leaves[i, vote["tree"]]
                child = 0
                for split in vote["splits"]:
                    assert split["node"] == child
                    features, weights = tree.node_weights(child)
                    assert (weights @ dense[features] > 0) == (split["side"] == 0)
                    child = tree.children[2 * child + split["side"]]
                assert child == ~vote["leaf"] or not vote["splits"]
    assert voted > 50


def test_neighbours_votes_add_up(tiny):
    model = umpteen.RXML(n_learners=3, rank=10, n_clusters=2, sharpness=5.0).fit(tiny.X, tiny.Y)
    labels, scores = model.predict_topk(tiny.X, 3)
    led = 0
    for i in range(20):
        for label, score in zip(labels[i], scores[i], strict=True):
            if label < 0:
                continue
            found = model.explain(tiny.X[i], label)
            assert found.score == pytest.approx(float(score), rel=1e-5)
            assert sum(vote["vote"] for vote in found.votes) == pytest.approx(float(score), rel=1e-4)
            assert all(label in vote["labels"] for vote in found.votes)
            assert found.explained == pytest.approx(float(score), rel=1e-4)
            assert set(found.features) <= set(tiny.X[i].indices)
            led += len(found.features) > 0
    assert led > 50


def test_low_rank_contributions_add_up(tiny):
    model = umpteen.RXMLGlobal(rank=8).fit(tiny.X, tiny.Y)
    labels, scores = model.predict_topk(tiny.X, 3)
    for i in range(20):
        for label, score in zip(labels[i], scores[i], strict=True):
            found = model.explain(tiny.X[i], label)
            assert found.explained == pytest.approx(float(score), abs=2e-3 * max(1, abs(float(score))))


def test_one_row_and_one_label_at_a_time(tiny):
    model = umpteen.Centroid().fit(tiny.X, tiny.Y)
    with pytest.raises(ParamError, match="one row and one label"):
        model.explain(tiny.X[:2], 0)
    with pytest.raises(ParamError, match="one row and one label"):
        model.explain(tiny.X[0], [0, 1])
    with pytest.raises(ParamError, match="label must hold label ids"):
        model.explain(tiny.X[0], tiny.n_labels)
