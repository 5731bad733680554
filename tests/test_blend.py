"""Blends of trained models."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.errors import DataError, MemoryLimitError, ModelCorruptError, NotFittedError, ParamError
from umpteen.methods import find_rule as rule_finding
from umpteen.methods.find_rule import find_rule, fit_rule, regress
from umpteen.storage.store import Part
from umpteen.trained.blend import BlendModel
from umpteen.trained.blend_rule import Pairs, Rule, measure_frequency, pair, rank

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
    assert (together > alone.max(axis=0)).all()
    assert blend.weights_.sum() == pytest.approx(1)
    assert (blend.weights_ >= 0).all()


def random_proposals(n_rows, n_labels=9):
    random = np.random.default_rng(0)
    proposals = []
    for width in (4, 6):
        ids = np.array([random.permutation(n_labels)[:width] for _ in range(n_rows)], np.int32).reshape(n_rows, width)
        ids[random.random(ids.shape) < 0.3] = -1
        proposals.append((ids, random.random(ids.shape).astype(np.float32)))
    return proposals


def slow_ranking(proposals, rule, frequency, top_k):
    """One row and one label at a time, by the definition."""
    labels, scores = [], []
    for row in range(len(proposals[0][0])):
        total = {}
        for label in {int(label) for ids, _ in proposals for label in ids[row] if label >= 0}:
            z = frequency[label]
            total[label] = rule.intercept[0] + rule.intercept[1] * z
            for (ids, values), coefficients in zip(proposals, rule.coefficients, strict=True):
                p = sum(float(value) for i, value in zip(ids[row], values[row], strict=True) if i == label)
                forms = np.array([p, p**0.5, np.log(p + 1e-4)])
                total[label] += (coefficients[:3] + coefficients[3:] * z) @ forms
        best = sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:top_k]
        best += [(-1, -np.inf)] * (top_k - len(best))
        labels.append([label for label, _ in best])
        scores.append([score for _, score in best])
    return np.array(labels, np.int32), np.array(scores, np.float32)


@pytest.mark.parametrize("n_rows", [0, 1, 50])
def test_the_rule_is_its_definition(n_rows):
    proposals = random_proposals(n_rows)
    random = np.random.default_rng(1)
    rule = Rule(random.normal(size=(2, 6)), random.normal(size=2), np.array([0.5, 0.5]))
    frequency = measure_frequency([random.integers(0, 50, 9)])
    pairs = pair(proposals, 9)
    for top_k in (1, 3, 12):
        labels, scores = rank(pairs, rule.score(pairs.probabilities, frequency[pairs.labels]), n_rows, top_k)
        if n_rows:
            expected, values = slow_ranking(proposals, rule, frequency, top_k)
            np.testing.assert_array_equal(labels, expected)
            np.testing.assert_allclose(scores, values, rtol=1e-5)
        assert labels.shape == scores.shape == (n_rows, top_k)


def test_frequencies():
    np.testing.assert_allclose(measure_frequency([[0, 9, 99]]), [-3, -1, 1])  # labels of no row do not count
    np.testing.assert_allclose(measure_frequency([[0, 9, 0], [0, 3, 99]]), [-3, -1, 1])  # the most that a member has
    assert measure_frequency([[0, *[10**6] * 9, 10**6 + 1]]).min() == -5
    for alike in ([0, 0, 0], [5, 5, 5], [0, 5, 5]):
        np.testing.assert_array_equal(measure_frequency([alike]), [0, 0, 0])


def with_ones(X):
    return np.column_stack([np.ones(len(X)), X])


def test_the_regression_is_that_of_scikit_learn():
    random = np.random.default_rng(2)
    X = random.normal(size=(4000, 6)) * [1, 10, 0.1, 1, 1, 1] + [0, 5, 0, 1, 0, 0]
    X[:, 5] = np.sqrt(0.07)  # says nothing, and its deviation is not 0 but as good as that
    hit = random.random(4000) < 1 / (1 + np.exp(-(X @ [1, -0.2, 3, 0, 0.5, 0] - 1)))
    found = regress(with_ones(X), hit)
    assert found[6] == 0
    yardstick = make_pipeline(StandardScaler(), LogisticRegression(C=10, tol=1e-10, max_iter=1000)).fit(X, hit)
    np.testing.assert_allclose(found[0] + X @ found[1:], yardstick.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("hit", [np.zeros(20, bool), np.ones(20, bool), np.arange(20) >= 10])
def test_the_regression_ends_where_all_is_told_apart(hit):
    found = regress(with_ones(np.arange(20.0)), hit)
    assert np.isfinite(found).all()
    score = found[0] + np.arange(20) * found[1]
    assert ((score > 0) == hit).all()


def test_a_member_that_guesses_gets_no_weight(parts):
    Y = parts[3]
    right = np.array([row.indices[0] if row.nnz else 0 for row in Y], np.int32)[:, None]
    random = np.random.default_rng(0)
    guess = random.integers(0, 159, right.shape).astype(np.int32)
    sure = np.full(right.shape, 0.6, np.float32)
    proposals = [(guess, random.random(guess.shape).astype(np.float32)), (right, sure)]
    assert find_rule(proposals, Y, np.zeros(159)).weights[1] > 0.8


def test_a_member_alone_where_nothing_is_better(parts):
    """Of some rows a regression would learn accidents: the other rows tell."""
    Y = parts[3][:12]
    right = np.array([row.indices[0] if row.nnz else 0 for row in Y], np.int32)[:, None]
    wrong = (right + 1) % 159
    sure = np.ones_like(right, np.float32)
    rule = find_rule([(wrong, sure), (right, sure * 0.5)], Y, np.zeros(159))
    np.testing.assert_array_equal(rule.weights, [0, 1])
    np.testing.assert_array_equal(rule.coefficients, [[0] * 6, [1, 0, 0, 0, 0, 0]])


def test_of_many_rows_some_are_used(monkeypatch):
    proposals, frequency = random_proposals(3000), np.linspace(-1, 1, 9)
    truth = np.zeros((3000, 9), np.float32)
    for ids, values in proposals:
        row, place = np.nonzero((ids >= 5) & (np.random.default_rng(3).random(ids.shape) < values / 2))
        truth[row, ids[row, place]] = 1
    Y = sp.csr_matrix(truth)
    whole = find_rule(proposals, Y, frequency)
    assert np.count_nonzero(whole.coefficients) > 2
    for most, rows in ((30_000, 3000), (29_999, 1500), (10, 1000)):
        monkeypatch.setattr(rule_finding, "_MOST_PAIRS", most)
        step = 3000 // rows
        again = find_rule([(labels[::step], p[::step]) for labels, p in proposals], Y[::step], frequency)
        np.testing.assert_array_equal(find_rule(proposals, Y, frequency).coefficients, again.coefficients)
        assert np.array_equal(again.coefficients, whole.coefficients) == (rows == 3000)


def test_saved_and_loaded(blend, parts, tmp_path):
    X = parts[4].X[:300]
    blend.save(tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m", checksums=True)
    for a, b in zip(blend.predict_topk(X, 7), loaded.predict_topk(X, 7), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(blend.predict_topk_proba(X)[1], loaded.predict_topk_proba(X)[1])
    one_by_one = np.concatenate([loaded.predict_topk(X[i], 7)[1] for i in range(20)])
    np.testing.assert_array_equal(one_by_one, blend.predict_topk(X[:20], 7)[1])
    assert loaded.scorer.describe()["members"].count("dismec") == 1


def test_filters(blend, parts):
    X = parts[4].X[:50]
    best, _ = blend.predict_topk(X, 3)
    first = int(best[0, 0])
    assert first not in blend.predict_topk(X, 3, exclude=[first])[0]
    assert set(blend.predict_topk(X, 3, include=[first, 7])[0].ravel()) <= {first, 7, -1}
    many, scores = blend.predict_topk(X, 200)
    assert many.shape == (50, 200)
    np.testing.assert_array_equal(
        many[:, :3], best
    )  # what is ranked, and how, does not depend on how many are asked for
    assert (scores[:, 1:] <= scores[:, :-1]).all()
    assert 30 <= (many >= 0).sum(axis=1).min() <= 90


def test_explanations_add_up(blend, parts):
    x = parts[4].X[3]
    labels, scores = blend.predict_topk(x, 80)
    proposed = [set(member.predict_topk(x, 30)[0][0]) for member in blend.members_]
    some = [
        int(label) for label in labels[0] if label >= 0 and 0 < sum(label in of_member for of_member in proposed) < 3
    ]
    assert len(some) > 5
    for label in [*labels[0, :5], *some[:3], some[-1]]:  # also labels that not all of them propose
        found = blend.explain(x, label)
        assert found.score == pytest.approx(scores[0][labels[0] == label][0], rel=1e-4)
        assert found.base + found.contributions.sum() == pytest.approx(found.score, rel=1e-4)
        assert {vote["member"] for vote in found.votes} <= {"fastxml", "rxml"}
    rest = next(label for label in range(159) if label not in labels[0])
    assert blend.explain(x, rest).score == pytest.approx(blend.predict_topk(x, 1, include=[rest])[1][0, 0], rel=1e-4)


def test_threads_do_not_matter(members, parts):
    X, Y = parts[2][:200], parts[3][:200]
    rules = [umpteen.Blend(members, threads=threads).fit(X, Y).model_.scorer.rule for threads in (1, 3)]
    np.testing.assert_array_equal(rules[0].coefficients, rules[1].coefficients)


def test_memory_is_stated_and_kept_to(members, parts, monkeypatch):
    X, Y = parts[2], parts[3]
    blend = umpteen.Blend(members)
    stated = blend.estimate(X, Y).peak_bytes
    tracemalloc.start()
    blend.fit(X, Y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < stated < 10 * peak
    monkeypatch.setattr("umpteen.memory.available_memory", lambda: 1_000_000)
    with pytest.raises(MemoryLimitError, match="hold out fewer rows or use fewer candidates"):
        blend.fit(X, Y)


def test_the_same_weights_over_other_models(blend, parts, bibtex):
    train = bibtex[0]
    others = [
        umpteen.DiSMEC(C=0.3).fit(train.X, train.Y),
        umpteen.FastXML(n_trees=20, tfidf=True).fit(train.X, train.Y),
        umpteen.RXML(n_learners=2, lambda_=4.0, knn=25, sharpness=15.0, similarity="euclidean").fit(train.X, train.Y),
    ]
    grown = blend.over(others)
    np.testing.assert_array_equal(grown.weights_, blend.weights_)
    np.testing.assert_array_equal(grown.model_.scorer.rule.coefficients, blend.model_.scorer.rule.coefficients)
    np.testing.assert_array_equal(grown.model_.scorer.rule.intercept, blend.model_.scorer.rule.intercept)
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
        ([members[0], other], "must have the same number of features"),
        ([members[0], named], "must have the same names"),
        ([members[0], "dismec"], "must be trained models"),
    ):
        with pytest.raises(ParamError, match=message):
            umpteen.Blend(wrong).fit(X, Y)
    with pytest.raises(NotFittedError, match="not fitted"):
        umpteen.Blend([members[0], umpteen.Centroid()]).fit(X, Y)
    with pytest.raises(DataError, match="same number of rows"):
        umpteen.Blend(members).fit(X, Y[:5])
    with pytest.raises(DataError, match="no row has one"):
        umpteen.Blend(members).fit(X, Y * 0)
    with pytest.raises(NotFittedError):
        umpteen.Blend(members).predict_topk(X)


@pytest.mark.parametrize("wrong", ["coefficients", "intercept", "weights", "not finite"])
def test_a_damaged_rule_is_refused(blend, wrong):
    arrays = dict(blend.model_.scorer.rule.to_part().arrays)
    if wrong == "not finite":
        arrays["coefficients"] = arrays["coefficients"] * np.inf
    else:
        arrays[wrong] = arrays[wrong][:-1]
    with pytest.raises(ModelCorruptError, match="a blend must have"):
        Rule.from_part(Part(arrays), 3)


def test_the_first_blends_were_sums():
    rule = Rule.from_part(Part({"weights": np.array([0.25, 0.75])}), 2)
    probabilities = np.array([[0.5, 0.1], [0.0, 1.0]])
    np.testing.assert_array_equal(rule.score(probabilities, np.array([1.0, -2.0])), probabilities @ [0.25, 0.75])


@pytest.mark.parametrize("damage", ["members", "labels", "family", "shards", "steps", "power", "params"])
def test_a_damaged_blend_is_refused(blend, tmp_path, damage):
    blend.save(tmp_path / "m")
    path = tmp_path / "m" / "manifest.json"
    manifest = json.loads(path.read_text())
    if damage == "members":
        manifest["members"] = manifest["members"][:1]
    elif damage == "labels":
        manifest["members"][0]["shared"].remove("labels")
    elif damage == "family":
        manifest["members"][0]["header"]["family"] = "blend"
    elif damage == "shards":
        manifest["members"][0]["n_shards"] = 10**9
    elif damage == "steps":
        del manifest["members"][0]["header"]["preprocessing"]["normalize"]
    elif damage == "power":
        manifest["members"][0]["header"]["preprocessing"]["power"] = 10**400
    else:
        manifest["members"][0]["header"]["params"] = 1
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


@pytest.mark.parametrize("wrong", ["shape", "dtype", "negative"])
def test_damaged_counts_of_a_member_are_refused(blend, wrong):
    shared = dict(blend.model_.parts)
    counts = shared["member1-labels"].arrays["counts"]
    damaged = {"shape": counts[:, None], "dtype": counts / 3, "negative": counts - 10**9}[wrong]
    shared["member1-labels"] = Part({"counts": damaged})
    with pytest.raises(ModelCorruptError, match="there must be .* label counts|counts must be (int64|at least 0)"):
        BlendModel.open(blend.model_.header, shared, blend.model_.scorer.to_parts())


def test_labels_rarer_than_all_that_were_right_count_as_these():
    """The line through frequency is known as far as labels were right, and not drawn on."""
    rng = np.random.default_rng(0)
    pairs = Pairs(np.repeat(np.arange(200), 2), np.tile([0, 1], 200), rng.random((400, 2)))
    z, hit = np.where(pairs.labels == 0, 0.3, -0.7), pairs.probabilities[:, 0] > 0.5
    rule = fit_rule(pairs, hit, z, np.ones(400, bool))
    assert rule.lowest == -0.7
    p = np.array([[0.9, 0.1], [0.2, 0.4]])
    assert (rule.score(p, np.full(2, -5.0)) == rule.score(p, np.full(2, -0.7))).all()
    again = Rule.from_part(rule.to_part(), 2)
    assert (again.score(p, np.full(2, -5.0)) == rule.score(p, np.full(2, -5.0))).all()
    for wrong in ("x", 9.0, float("nan"), None):
        with pytest.raises(ModelCorruptError, match="the lowest z of a blend's rule"):
            Rule.from_part(Part(rule.to_part().arrays, {"lowest": wrong}), 2)
    earlier = Rule.from_part(Part(rule.to_part().arrays, {}), 2)
    assert earlier.score(p, np.full(2, -5.0)).tolist() != rule.score(p, np.full(2, -5.0)).tolist()
