"""The papers' protocol: random splits are kept and not taken twice; MLRF and LPSR are what they say."""

from __future__ import annotations

import json
import statistics

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import papers
from benchmarks.__main__ import app
from benchmarks.baselines.lpsr import LPSR
from benchmarks.baselines.mlrf import MLRF, score_gini, score_ndcg
from typer.testing import CliRunner

import umpteen
from umpteen.errors import ParamError


@pytest.fixture(scope="module")
def data():
    return tuple(
        umpteen.make_synthetic(300, 80, 12, labels_per_row=3, features_per_row=15, seed=4, part=part)
        for part in ("train", "test")
    )


@pytest.fixture
def splits_of():
    random = np.random.default_rng(1)
    Y = sp.csr_matrix((random.random((40, 9)) < 0.3).astype(float))
    return Y, random.random((40, 6)) < 0.4


def test_gini_by_definition(splits_of):
    Y, is_above = splits_of
    impurity = []
    for column in is_above.T:
        sides = [Y.toarray()[column], Y.toarray()[~column]]
        impurity.append(sum(len(side) * (side.mean(0) * (1 - side.mean(0))).sum() for side in sides))
    np.testing.assert_allclose(Y.sum() - score_gini(is_above, Y), impurity)


def ndcg(ranking, labels):
    """Of one row, by the definition in FastXML's paper."""
    if not len(labels):
        return 0.0
    place = {label: rank for rank, label in enumerate(ranking, 1)}
    return sum(1 / np.log2(1 + place[label]) for label in labels) / sum(
        1 / np.log2(1 + r) for r in range(1, len(labels) + 1)
    )


def test_ndcg_by_definition(splits_of):
    Y, is_above = splits_of
    expected = []
    for column in is_above.T:
        total = 0.0
        for rows in (np.flatnonzero(column), np.flatnonzero(~column)):
            votes = np.zeros(Y.shape[1])
            for row in rows:
                labels = Y[row].indices
                votes[labels] += 1 / sum(1 / np.log2(1 + r) for r in range(1, len(labels) + 1)) if len(labels) else 0
            ranking = np.argsort(-votes, kind="stable")
            total += sum(ndcg(ranking, Y[row].indices) for row in rows)
        expected.append(total)
    np.testing.assert_allclose(score_ndcg(is_above, Y), expected)


def test_depths_are_the_splits_that_rows_pass(data):
    train, _ = data
    forest = MLRF(n_trees=2, seed=1).fit(train.X, train.Y)
    dense = train.X.toarray()
    for tree, mean in zip(forest.trees, forest.mean_depths(train.X), strict=True):
        depths = []
        for row in dense:
            node, depth = tree, 0
            while node.feature >= 0:
                node = node.above if row[node.feature] > node.threshold else node.below
                depth += 1
            depths.append(depth)
        assert mean == pytest.approx(np.mean(depths))
        assert mean > 3
    parted = LPSR(None, max_leaf=40).fit(train.X, train.Y)
    leaves = parted.find_leaves(train.X)
    shares = np.bincount(leaves) / len(leaves)
    entropy = -(shares * np.log2(shares)).sum()  # no tree with these leaves has a lower mean depth
    assert entropy <= parted.mean_depth(train.X) < len(shares)
    assert LPSR(None, max_leaf=10_000).fit(train.X, train.Y).mean_depth(train.X) == 0


@pytest.mark.parametrize("split", ["gini", "ndcg"])
def test_a_forest_learns(split, data):
    train, test = data
    forest = MLRF(n_trees=8, split=split, seed=1).fit(train.X, train.Y)
    labels, scores = forest.predict_topk(test.X, 3)
    frequent = np.argsort(-train.label_counts())[:3]
    floor = umpteen.evaluate(test.Y, np.tile(frequent, (test.n_rows, 1)), k=1)["P@1"]
    assert umpteen.evaluate(test.Y, labels, k=1)["P@1"] > floor
    assert (np.diff(scores, axis=1) <= 0).all()
    again = MLRF(n_trees=8, split=split, seed=1).fit(train.X, train.Y).predict_topk(test.X, 3)[0]
    np.testing.assert_array_equal(labels, again)


def test_a_tree_that_parts_nothing_ranks_as_its_base(data):
    train, test = data
    base = umpteen.DiSMEC().fit(train.X, train.Y)
    whole = LPSR(base, max_leaf=10_000, labels_per_leaf=100).fit(train.X, train.Y)
    np.testing.assert_array_equal(whole.predict_topk(test.X, 3)[0], base.predict_topk(test.X, 3)[0])


def test_a_leafs_labels_are_those_of_its_rows(data):
    train, test = data
    base = umpteen.DiSMEC().fit(train.X, train.Y)
    tree = LPSR(base, max_leaf=40, labels_per_leaf=4).fit(train.X, train.Y)
    leaves = tree.find_leaves(train.X)
    assert len(tree.labels) > 3
    for leaf, labels in enumerate(tree.labels):
        counts = np.asarray((train.Y[leaves == leaf] != 0).sum(axis=0)).ravel()
        assert 0 < (leaves == leaf).sum() <= 40
        assert counts[labels].min() >= np.sort(counts)[-4]
    found = tree.predict_topk(test.X, 3)[0]
    for row, leaf in enumerate(tree.find_leaves(test.X)):
        assert set(found[row]) <= {*tree.labels[leaf], -1}


def test_splits_are_kept_and_not_taken_twice(data, tmp_path, monkeypatch):
    asked = []

    def make(train, seed):
        asked.append((train.n_rows, seed))
        return umpteen.Centroid().fit(train.X, train.Y)

    monkeypatch.setattr(papers, "read", lambda name: data)
    monkeypatch.setitem(papers.METHODS, "mlrf", (make, "mlrf"))
    kept, page = tmp_path / "papers.json", tmp_path / "papers.md"
    papers.run_splits("Bibtex", ["mlrf"], 2, kept)
    papers.run_splits("Bibtex", ["mlrf"], 3, kept)
    n_train = data[0].n_rows
    assert asked == [(n_train, 0), (n_train, 0), (n_train, 1), (n_train, 2)]  # its own split, then random ones
    taken = json.loads(kept.read_text())["splits"]["Bibtex"]["mlrf"]
    assert list(taken) == ["own", "0", "1", "2"]
    assert {"taken", "umpteen_version", "machine"} < set(taken["0"])
    papers.write_page(kept, page)
    first = [taken[str(i)]["P"][0] for i in range(3)]
    assert f"| mlrf | {statistics.fmean(first):.2f} ± {statistics.stdev(first):.2f} / " in page.read_text()
    assert "62.81 ± 0.84 / 38.74 ± 0.69 / 28.45 ± 0.43 |" in page.read_text()  # what the paper has
    day, machine = taken["0"]["taken"][:10], taken["0"]["machine"]
    assert f"Taken on {machine}; {day}.\n\n`python -m benchmarks papers Bibtex --splits 10`\n" in page.read_text()


def test_days_of_figures_are_told_by_machine():
    figures = {"a": {"0": {"taken": "2026-11-18T09:18:27+00:00", "machine": "one"}, "1": {"P": [1.0]}},
               "b": {"own": {"taken": "2026-11-17T01:00:00+00:00", "machine": "one"}},
               "c": {"taken": "2026-11-19T00:00:00+00:00", "machine": "two"}, "rows": [1, 2]}  # fmt: skip
    assert papers.describe_stamps(figures) == "Taken on one; 2026-11-17, 2026-11-18.<br>Taken on two; 2026-11-19."


def test_random_splits_part_the_rows(data):
    rows = papers.pool(*data)
    first, second = papers.part(rows, 300, 0), papers.part(rows, 300, 1)
    assert first[0].n_rows == 300
    assert first[0].n_rows + first[1].n_rows == rows.n_rows
    assert first[0].X.nnz + first[1].X.nnz == rows.X.nnz
    assert (first[0].Y != second[0].Y).nnz > 0


def test_unknown_sets_are_refused():
    result = CliRunner().invoke(app, ["papers", "Biptex"])
    assert isinstance(result.exception, ParamError)
    assert "'Biptex' is none of Bibtex, Delicious, Mediamill, classes" in str(result.exception)


@pytest.mark.skipif(not papers.KEPT.exists(), reason="this copy of the project has no benchmarks/results")
def test_the_page_is_what_the_figures_say(tmp_path):
    papers.write_page(papers.KEPT, tmp_path / "papers.md")
    assert (tmp_path / "papers.md").read_text() == papers.PAGE.read_text()
