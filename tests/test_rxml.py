"""RXML and SLEEC: search and vote, damaged models, degenerate data, accuracy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.data.matrix import offsets
from umpteen.errors import ModelCorruptError, ParamError
from umpteen.methods.training_data import TrainingData

from .files import read_files
from .reference import embedding_vote, nearest_rows

# --- search and vote ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("sharpness", [0.0, 20.0])
def test_search_and_vote_against_numpy(simd, tiny, similarity, sharpness):
    model = umpteen.RXML(
        n_learners=3, rank=21, n_clusters=3, lambda_=0.5, knn=7, similarity=similarity, sharpness=sharpness
    ).fit(tiny.X, tiny.Y)
    X = model.preprocessing_.transform(tiny.X)
    clusters, rows, similar = model.model_.scorer.near_rows(X)
    want_clusters, want_similar = nearest_rows(model.model_.scorer, X)
    np.testing.assert_array_equal(clusters, want_clusters)
    np.testing.assert_allclose(similar, want_similar, atol=3e-3)
    labels, scores = model.predict_topk(tiny.X, 5)
    want = embedding_vote(model.model_.scorer, clusters, rows, similar, sharpness)
    for i in range(tiny.n_rows):
        order = sorted(np.flatnonzero(want[i]), key=lambda label, i=i: (-np.float32(want[i, label]), label))[:5]
        assert labels[i, : len(order)].tolist() == order
        np.testing.assert_allclose(scores[i, : len(order)], want[i, order], rtol=1e-5)


@pytest.mark.slow
def test_bits_do_not_depend_on_threads(tiny, tmp_path):
    for cls in (umpteen.RXML, umpteen.SLEEC, umpteen.RXMLGlobal):
        made = []
        for threads in (1, 3):
            extra = {"n_clusters": 2, "n_learners": 2} if cls is not umpteen.RXMLGlobal else {}
            cls(threads=threads, rank=20, seed=5, **extra).fit(tiny.X, tiny.Y, tmp_path / f"{cls.name}{threads}")
            made.append(read_files(tmp_path / f"{cls.name}{threads}"))
        assert made[0] == made[1]
        other = cls(rank=20, seed=6, **extra).fit(tiny.X, tiny.Y)
        other.save(tmp_path / f"{cls.name}-other")
        assert read_files(tmp_path / f"{cls.name}-other") != made[0]


def test_saved_and_loaded(tiny, tmp_path):
    for cls in (umpteen.RXML, umpteen.SLEEC, umpteen.RXMLGlobal):
        model = cls(rank=10).fit(tiny.X, tiny.Y)
        model.save(tmp_path / cls.name)
        loaded = umpteen.load(tmp_path / cls.name, checksums=True)
        for a, b in zip(loaded.predict_topk(tiny.X), model.predict_topk(tiny.X), strict=True):
            np.testing.assert_array_equal(a, b)
        assert "auto" not in [v for k, v in loaded.params.items() if k != "n_clusters"]


def test_damaged_clusters_are_refused(tiny):
    from dataclasses import replace

    from umpteen.models.embedding import EmbeddingModel

    model = umpteen.RXML(n_learners=1, rank=8, knn=3, lambda_=1, sharpness=1, similarity="cosine")
    (one,) = model.fit(tiny.X, tiny.Y).model_.scorer.clusters
    for change in (
        {"features": one.features[::-1].copy()},
        {"features": one.features[:-1]},
        {"offsets": one.offsets[:-1]},
        {"label_ptr": one.label_ptr[:-1]},
        {"label_ptr": one.label_ptr[::-1].copy()},
        {"labels": one.labels[:-1]},
        {"labels": one.labels.astype(np.float32)},
        {"regressor": one.regressor.astype(np.float32)},
        {"regressor": one.regressor[:, :-1].copy()},
        {"embedded": one.embedded[:-1]},
        {"knn": 0},
        {"knn": 65537},
        {"learner": 1},
        {"learner": 2**31 - 1},  # made a set of as many
    ):
        with pytest.raises(ModelCorruptError):
            EmbeddingModel([replace(one, **change)], 200, 40)
    for rank in (one.rank + 1, one.rank - 1, float(one.rank), True):  # broke explanations
        part = one.to_part()
        part.scalars["rank"] = rank
        with pytest.raises(ModelCorruptError, match="embeddings and V of a cluster must have rank"):
            EmbeddingModel.from_parts([part], 200, 40)
    # A label beyond the model's is passed over, not counted.
    labels = one.labels.copy()
    labels[:] = 999
    broken = EmbeddingModel([replace(one, labels=labels)], 200, 40)
    assert (broken.predict_topk(tiny.X)[0] == -1).all()


def test_the_approximate_index_finds_nearly_the_same(tiny, tmp_path):
    pytest.importorskip("usearch", reason="usearch is not installed")
    for similarity in ("cosine", "euclidean"):
        exact = umpteen.RXML(n_learners=2, rank=20, knn=10, similarity=similarity).fit(
            tiny.X, tiny.Y, tmp_path / similarity
        )
        assert exact.model_.scorer.recall(exact.preprocessing_.transform(tiny.X)) == 1
        found = umpteen.load(tmp_path / similarity).configured(index="usearch")
        recall = found.scorer.recall(found.preprocessing.transform(tiny.X))
        assert 0.95 < recall <= 1
        same = found.predict_topk(tiny.X, 3)[0] == exact.predict_topk(tiny.X, 3)[0]
        assert same.mean() > 0.95
    model = umpteen.RXML(n_learners=1, rank=8, index="usearch").fit(tiny.X, tiny.Y)
    assert model.predict_topk(tiny.X[:1])[0].shape == (1, 5)
    assert model.predict_topk(tiny.X, 3, include=[4])[0].max() == 4


# --- degenerate data ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("embedding", ["rcg", "svp"])
def test_clusters_smaller_than_the_rank_and_empty_ones(tiny, embedding):
    model = umpteen.RXML(n_learners=2, n_clusters=60, rank=100, embedding=embedding).fit(tiny.X, tiny.Y)
    clusters = model.model_.scorer.clusters
    assert all(c.n_rows > 0 and c.rank <= c.n_rows for c in clusters)
    assert sum(c.n_rows for c in clusters) == 2 * tiny.n_rows
    assert model.score(tiny.X, tiny.Y) > 0.5
    assert umpteen.RXML(n_clusters=10**6, rank=10**6).fit(tiny.X[:30], tiny.Y[:30]).model_.scorer.n_learners == 5
    same = umpteen.RXML(n_learners=1, n_clusters=5).fit(np.ones((40, 3)), np.eye(40, 4))
    assert len(same.model_.scorer.clusters) == 1  # all rows are nearest to one centre; four clusters were empty


def test_rows_without_labels_are_left_out(tiny):
    Y = tiny.Y.tolil()
    Y[::3] = 0
    model = umpteen.RXML(n_learners=1, rank=10).fit(tiny.X, Y.tocsr())
    assert sum(c.n_rows for c in model.model_.scorer.clusters) == 200
    alone = umpteen.RXML(n_learners=1, rank=10).fit(
        tiny.X[Y.tocsr().getnnz(axis=1) > 0], Y.tocsr()[Y.tocsr().getnnz(axis=1) > 0]
    )
    np.testing.assert_array_equal(model.predict_topk(tiny.X)[0], alone.predict_topk(tiny.X)[0])


def test_rows_that_all_have_the_same_labels(tiny):
    Y = np.zeros((300, 5))
    Y[:, [1, 3]] = 1
    for cls in (umpteen.RXML, umpteen.SLEEC, umpteen.RXMLGlobal):
        labels, _ = cls().fit(tiny.X, Y).predict_topk(tiny.X, 2)
        assert (np.sort(labels, axis=1) == [1, 3]).all()


def test_rows_without_features(tiny):
    X = tiny.X.tolil()
    X[:50] = 0
    for bias in (0.0, 1.0):
        model = umpteen.RXML(n_learners=2, rank=10, bias=bias).fit(X.tocsr(), tiny.Y)
        assert model.predict_topk(sp.csr_matrix((3, 200)))[0].shape == (3, 5)
        assert np.isfinite(model.predict_topk(X.tocsr(), 1)[1]).all()


@pytest.mark.parametrize(
    "bad",
    [{"n_learners": 0}, {"rank": 0}, {"n_clusters": "many"}, {"n_clusters": 0}, {"n_neighbors": 0}, {"knn": 0},
     {"knn": "all"}, {"embedding": "svd"}, {"start": "zero"}, {"lambda_": 0}, {"lambda_": "some"}, {"mu": -1},
     {"rho": 0}, {"sharpness": -1}, {"similarity": "dot"}, {"line_search": "no"}, {"index": "faiss"},
     {"iterations": 0}, {"seed": -1}],
)  # fmt: skip
def test_parameters_are_checked(tiny, bad):
    (name,) = bad
    with pytest.raises(ParamError, match=f"{name} must be .*, but is"):
        umpteen.RXML(**bad).fit(tiny.X, tiny.Y)


# --- real data ------------------------------------------------------------------------------------------------------


def precision(model, test):
    labels, _ = model.predict_topk(test.X, 5)
    metrics = umpteen.evaluate(test.Y, labels, deciles=False)
    return [metrics[f"P@{k}"] for k in (1, 3, 5)]


@pytest.mark.slow
def test_accuracy_on_bibtex(bibtex):
    train, test = bibtex
    weighted = precision(umpteen.RXML().fit(train.X, train.Y), test)
    assert np.greater_equal(weighted, [65.5, 40.1, 29.3]).all(), weighted
    paper = umpteen.RXML(n_neighbors=250, lambda_=2.5, knn=25, sharpness=0, similarity="euclidean")
    uniform = precision(paper.fit(train.X, train.Y), test)
    assert np.greater_equal(uniform, [65.2, 39.9, 29.2]).all(), uniform


def test_a_cluster_is_planned_for_every_few_thousand_rows(bibtex):
    train, _ = bibtex
    data = TrainingData(train.X, train.Y, 1.0)
    model = umpteen.RXML(n_learners=2, lambda_=1, knn=5, sharpness=0, similarity="cosine")
    assert len(model.plan(data)) == 2
    tasks = model.set_params(n_clusters=4).plan(data)
    assert {task.plan.learner for task in tasks} == {0, 1}
    for learner in range(2):
        rows = np.concatenate([task.plan.rows for task in tasks if task.plan.learner == learner])
        np.testing.assert_array_equal(np.sort(rows), np.arange(train.n_rows))
    assert offsets(train.X)[0] == 0
