"""Blends of trained models."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.errors import DataError, ModelCorruptError, NotFittedError, ParamError
from umpteen.methods.blend import find_weights, merge

from .test_tagger import SHORT


@pytest.fixture(scope="module")
def parts(bibtex):
    train, test = bibtex
    held_out = np.arange(train.n_rows) % 5 == 0
    return train.X[~held_out], train.Y[~held_out], train.X[held_out], train.Y[held_out], test


@pytest.fixture(scope="module")
def members(parts):
    X, Y = parts[:2]
    return [
        umpteen.DiSMEC(C=0.3).fit(X, Y),
        umpteen.FastXML(n_trees=20, tfidf=True).fit(X, Y),
        umpteen.RXML(n_learners=2, lambda_=4.0, knn=25, sharpness=15.0, similarity="euclidean").fit(X, Y),
    ]


@pytest.fixture(scope="module")
def blend(members, parts):
    return umpteen.Blend(members).fit(parts[2], parts[3])


def measure(model, test):
    metrics = umpteen.evaluate(test.Y, model.predict_topk(test.X, 5)[0], deciles=False)
    return np.array([metrics[f"P@{k}"] for k in (1, 3, 5)])


def test_better_than_each_member(blend, members, parts):
    alone = np.array([measure(member, parts[4]) for member in members])
    together = measure(blend, parts[4])
    assert together.sum() > alone.sum(axis=1).max() + 1  # held-out rows decide P@1 by a few rows only
    assert (together > alone.max(axis=0))[1:].all()
    assert blend.weights_.sum() == pytest.approx(1)
    assert (blend.weights_ >= 0).all()


def slow_merge(said, weights, n_labels, top_k):
    """One row at a time, by the definition."""
    labels, scores = [], []
    for row in range(len(said[0][0])):
        total = {}
        for (ids, values), weight in zip(said, weights, strict=True):
            for label, value in zip(ids[row].tolist(), values[row].tolist(), strict=True):
                if label >= 0:
                    total[label] = total.get(label, 0.0) + weight * value
        best = sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:top_k]
        best += [(-1, -np.inf)] * (top_k - len(best))
        labels.append([label for label, _ in best])
        scores.append([score for _, score in best])
    return np.array(labels, np.int32), np.array(scores, np.float32)


@pytest.mark.parametrize("n_rows", [0, 1, 50])
def test_merge_is_the_weighted_sum(n_rows):
    random = np.random.default_rng(0)
    said = []
    for width in (4, 6):
        ids = np.array([random.permutation(9)[:width] for _ in range(n_rows)], np.int32).reshape(n_rows, width)
        ids[random.random(ids.shape) < 0.3] = -1
        said.append((ids, random.random(ids.shape).astype(np.float32)))
    weights = np.array([0.25, 0.75])
    for top_k in (1, 3, 12):
        labels, scores = merge(said, weights, 9, top_k)
        if n_rows:
            expected, values = slow_merge(said, weights, 9, top_k)
            np.testing.assert_array_equal(labels, expected)
            np.testing.assert_allclose(scores, values, rtol=1e-6)
        assert labels.shape == scores.shape == (n_rows, top_k)


def test_a_member_that_guesses_gets_no_weight(parts):
    Y = parts[3]
    right = np.array([row.indices[0] if row.nnz else 0 for row in Y], np.int32)[:, None]
    wrong = np.array([next(i for i in range(159) if i not in set(row.indices)) for row in Y], np.int32)[:, None]
    sure = np.ones_like(right, np.float32)
    weights = find_weights([(wrong, sure), (right, sure)], Y)
    assert weights[1] > weights[0]


def test_saved_and_loaded(blend, parts, tmp_path):
    X = parts[4].X[:300]
    blend.save(tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m", checksums=True)
    for a, b in zip(blend.predict_topk(X, 7), loaded.predict_topk(X, 7), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(blend.predict_topk_proba(X)[1], loaded.predict_topk_proba(X)[1])
    one_by_one = np.concatenate([loaded.predict_topk(X[i], 7)[1] for i in range(20)])
    np.testing.assert_array_equal(one_by_one, blend.predict_topk(X[:20], 7)[1])
    assert loaded.model_.describe()["members"].count("dismec") == 1


def test_filters(blend, parts):
    X = parts[4].X[:50]
    best, _ = blend.predict_topk(X, 3)
    first = int(best[0, 0])
    assert first not in blend.predict_topk(X, 3, exclude=[first])[0]
    assert set(blend.predict_topk(X, 3, include=[first, 7])[0].ravel()) <= {first, 7, -1}
    assert blend.predict_topk(X, 200)[0].shape == (50, 200)


def test_explanations_add_up(blend, parts):
    x = parts[4].X[3]
    label = int(blend.predict_topk(x, 1)[0][0, 0])
    found = blend.explain(x, label)
    assert found.base + found.contributions.sum() == pytest.approx(found.score, rel=1e-4)
    assert {vote["member"] for vote in found.votes} <= {"fastxml", "rxml"}


def test_the_same_weights_over_other_models(blend, parts, bibtex):
    train = bibtex[0]
    others = [
        umpteen.DiSMEC(C=0.3).fit(train.X, train.Y),
        umpteen.FastXML(n_trees=20, tfidf=True).fit(train.X, train.Y),
        umpteen.RXML(n_learners=2, lambda_=4.0, knn=25, sharpness=15.0, similarity="euclidean").fit(train.X, train.Y),
    ]
    grown = blend.over(others)
    np.testing.assert_array_equal(grown.weights_, blend.weights_)
    assert measure(grown, parts[4])[2] > measure(blend, parts[4])[2]
    assert grown.calibration_ is not None
    with pytest.raises(ParamError, match="members must be models of dismec, fastxml, rxml, in this order"):
        blend.over(others[::-1])


def test_refusals(members, parts, tiny, tmp_path):
    X, Y = parts[2], parts[3]
    other = umpteen.Centroid().fit(tiny.X, tiny.Y)
    named = umpteen.Centroid().fit(parts[0], parts[1], label_names=[f"l{i}" for i in range(159)])
    for wrong, message in (
        (members[:1], "at least two members, but has 1"),
        ([members[0], other], "must have the same features"),
        ([members[0], named], "must have the same names"),
        ([members[0], "dismec"], "must be trained models"),
    ):
        with pytest.raises(ParamError, match=message):
            umpteen.Blend(wrong).fit(X, Y)
    with pytest.raises(NotFittedError, match="not fitted"):
        umpteen.Blend([members[0], umpteen.Centroid()]).fit(X, Y)
    with pytest.raises(DataError, match="as many rows"):
        umpteen.Blend(members).fit(X, Y[:5])
    with pytest.raises(DataError, match="there is none"):
        umpteen.Blend(members).fit(X, Y * 0)
    with pytest.raises(NotFittedError):
        umpteen.Blend(members).predict_topk(X)


@pytest.mark.parametrize("damage", ["members", "weights", "method", "shards", "params"])
def test_a_damaged_blend_is_refused(blend, tmp_path, damage):
    blend.save(tmp_path / "m")
    path = tmp_path / "m" / "manifest.json"
    manifest = json.loads(path.read_text())
    if damage == "members":
        manifest["members"] = manifest["members"][:1]
    elif damage == "weights":
        manifest["members"][0]["shared"].remove("labels")
    elif damage == "method":
        manifest["members"][0]["header"]["method"] = "blend"
    elif damage == "shards":
        manifest["members"][0]["n_shards"] = 10**9
    else:
        manifest["members"][0]["header"]["params"] = {"nonsense": 1}
    path.write_text(json.dumps(manifest))
    with pytest.raises(ModelCorruptError):
        umpteen.load(tmp_path / "m")


def test_command_line_on_texts(tmp_path):
    rows = [json.dumps({"text": t, "labels": names}) for t, names in zip(*SHORT, strict=True)]
    (tmp_path / "held.jsonl").write_text("\n".join(rows))
    for name in ("dismec", "centroid"):
        umpteen.Tagger(name).fit(*SHORT, tmp_path / name)
    run = lambda *words: CliRunner().invoke(app, ["blend", *map(str, words)])  # noqa: E731
    models = [tmp_path / "dismec", tmp_path / "centroid"]
    done = run(*models, "--heldout", tmp_path / "held.jsonl", "--model", tmp_path / "both")
    assert done.exit_code == 0, done.output
    assert "(dismec)" in done.output
    assert "(centroid)" in done.output
    tagger = umpteen.load(tmp_path / "both")
    assert {name for name, _ in tagger.suggest("tax on beer and wine", 2)} == {"tax", "wine"}
    assert tagger.explain("tax on wine", "tax").to_html()
    again = run(*models, "--like", tmp_path / "both", "--model", tmp_path / "again")
    assert again.exit_code == 0, again.output
    assert umpteen.load(tmp_path / "again").suggest(SHORT[0]) == tagger.suggest(SHORT[0])
    for words in ([*models, "--model", tmp_path / "x"], [*models, "--like", models[0], "--model", tmp_path / "x"]):
        assert isinstance(run(*words).exception, ParamError)
