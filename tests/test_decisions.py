"""Which labels a row gets: one rule wherever one asks, and probabilities that hold on few rows."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score, precision_recall_fscore_support
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

import umpteen
import umpteen.models.calibration as calibration
from umpteen.cli.main import app
from umpteen.data.label_lists import encode_labels
from umpteen.data.matrix import as_csr
from umpteen.errors import ParamError
from umpteen.evaluation.calibration import reliability
from umpteen.evaluation.decisions import evaluate_decisions
from umpteen.evaluation.metrics import find_hits
from umpteen.methods.held_out import draw_folds, draw_held_out
from umpteen.models.calibration import Calibration, _fit_logistic
from umpteen.tagging.rows import why_none

from .conftest import data_root
from .test_tagger import cooking  # noqa: F401  (a fixture)

FISH = ["cod", "herring", "salmon", "trout", "boat", "net", "sea", "harbour"]
TAX = ["income", "wine", "duty", "levy", "rate", "return", "audit", "customs"]


def two_labels(n_texts: int) -> tuple[list[str], list[list[str]]]:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(FISH if i % 2 else TAX, 4)) for i in range(n_texts)]
    return texts, [["fish" if i % 2 else "tax"] for i in range(n_texts)]


@pytest.mark.parametrize("n_texts", [20, 40, 100])
@pytest.mark.parametrize("method", ["dismec", "label-tree", "fastxml"])
def test_two_labels_that_are_far_apart_are_told_apart(method, n_texts):
    tagger = umpteen.Tagger(method).fit(*two_labels(n_texts))
    for text, right, wrong in (("cod and herring", "fish", "tax"), ("income duty", "tax", "fish")):
        found = dict(tagger.suggest(text, 2))
        assert found[right] > 0.8
        assert found.get(wrong, 0) < 0.3
        assert tagger.predict([text]) == [[right]]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "n_texts", "error"),
    [
        ("StackExchange-Cooking", 50, 0.06),
        ("StackExchange-Cooking", 200, 0.05),
        ("StackExchange-Cooking", 1000, 0.05),
        ("Nuclei-Tags", 200, 0.05),
        ("Nuclei-Tags", 1000, 0.05),
    ],
)
def test_probabilities_hold_on_few_texts(name, n_texts, error):
    folder = data_root() / name
    if not folder.exists():
        pytest.skip(f"no {name} in {data_root()}; set UMPTEEN_DATA to run this test")
    train, test = (umpteen.read_corpus(folder / f"{part}.jsonl.xz") for part in ("train", "test"))
    drawn = np.random.default_rng(0).permutation(len(train.texts))[:n_texts]  # neighbours in a file are alike
    tagger = umpteen.Tagger("dismec").fit([train.texts[i] for i in drawn], [train.labels[i] for i in drawn])
    before, after = tagger.reliability(test.texts, test.labels)
    assert after.error < min(error, before.error)
    calibration = tagger.model_.calibration
    assert calibration.n_rows == n_texts
    assert len(calibration.scores) > 1


def test_the_logistic_curve_is_the_optimum():
    rng = np.random.default_rng(3)
    score = np.sort(rng.normal(size=300))
    right = (rng.random(300) < 1 / (1 + np.exp(1 - 3 * score))).astype(float)
    terms = [np.ones(300), score, calibration._tail(score)]
    np.testing.assert_allclose(terms[2], [-np.log(1 - (i + 0.5) / 301) for i in range(300)])

    def objective(weights):
        margin = np.array(terms).T @ weights
        ridge = 0.0005 * weights[0] ** 2 + weights[1] ** 2 / 2 + (weights[2] - 1) ** 2 / 2
        return np.logaddexp(0, np.where(right > 0, -margin, margin)).sum() + ridge

    best, weights = calibration._descend(terms, right, [0, 1, 2])
    assert best == pytest.approx(objective(weights))
    for step in (1e-3, 1e-2, 0.1):
        for direction in np.vstack([np.eye(3), -np.eye(3), [[1, 1, 1], [1, -1, 1]]]):
            assert objective(weights + step * direction) > best
    found = _fit_logistic(score, 1 - right)
    assert np.ptp(found) == 0  # a falling curve would turn rankings around
    assert found[0] == pytest.approx(1 - right.mean(), abs=1e-3)


def test_one_label_and_twenty_texts_are_told_apart():
    """Twenty predictions, one for each text, were one group and so one probability for all: 0.5 for cat and dog."""
    texts = ["a cat purrs", "the cat sleeps"] * 5 + ["a dog barks"] * 10
    tagger = umpteen.Tagger("dismec").fit(texts, [["cat"]] * 10 + [[]] * 10)
    ((_, cat),), ((_, dog),) = tagger.suggest("a cat", 1), tagger.suggest("a dog", 1)
    assert cat > 0.7
    assert dog < 0.3
    assert tagger.suggest("a dog") == []


def test_labels_of_one_text_each_are_given_by_their_scores():
    # No held-out text has a label that the others show, so nothing is known of probabilities.
    texts, labels = [f"word{i} thing" for i in range(12)], [[f"only{i}"] for i in range(12)]
    tagger = umpteen.Tagger(umpteen.DiSMEC()).fit(texts, labels)
    assert tagger.fitted().calibration is None
    assert [name for name, _ in tagger.suggest("word3 thing")] == ["only3"]
    assert tagger.suggest("thing") == []


def test_no_label_is_given_where_no_held_out_prediction_is_right():
    labels, scores = (
        np.array([[0, 1], [1, 0]] * 10, np.int32),
        np.linspace(-1, 0, 40).reshape(20, 2).astype(np.float32),
    )
    found = Calibration.fit(labels, scores, np.zeros(labels.shape, bool), np.array([10, 10]))
    assert found.threshold == 0.5
    assert (found.label_thresholds == 0.5).all()
    assert (found.to_probabilities(scores) < 0.1).all()


def test_scores_above_those_of_the_topmost_group_are_told_apart(cooking):  # noqa: F811
    texts, labels = cooking[0].texts, cooking[0].labels
    tagger = umpteen.Tagger(umpteen.DiSMEC()).fit(texts[:20], labels[:20])
    model = tagger.fitted()
    assert model.calibration is not None
    _, scores = model.predict_topk(tagger.vectorize(texts[20:220]).X, 5)
    between = np.unique(scores[(scores > model.calibration.scores[0]) & (scores < model.calibration.scores[-1])])
    assert (between > model.calibration.scores[-3]).sum() > 5  # above the mean of the topmost group
    assert (np.diff(model.calibration.to_probabilities(between)) > 0).mean() > 0.9  # but where 32 bits are too few


def test_how_many_predictions_a_probability_rests_on():
    rng = np.random.default_rng(0)
    scores = np.sort(rng.normal(size=(200, 5)).astype(np.float32))[:, ::-1]
    labels = np.tile(np.arange(5, dtype=np.int32), (200, 1))
    found = Calibration.fit(labels, scores, rng.random((200, 5)) < 0.3, np.full(5, 60))
    assert found.support[:-2].sum() == 1000  # the last two knots are above the topmost group
    counts = found.count_support(found.to_probabilities(scores))
    assert (counts >= 20).all()
    nearest = np.abs(scores[..., None] - found.scores).argmin(axis=2)
    assert (counts == found.support[nearest]).mean() > 0.99  # but between two knots, as 32 bits have it
    assert found.count_support([0]).tolist() == [0]
    old = found.to_part()
    del old.arrays["support"]  # as earlier versions wrote it
    assert Calibration.from_part(old).count_support([0.5, 0]).tolist() == [0, 0]


@pytest.mark.slow
@pytest.mark.data
def test_every_answer_says_on_how_many_predictions_a_probability_rests(cooking, tmp_path):  # noqa: F811
    train, test = cooking
    tagger = umpteen.Tagger("dismec").fit(train.texts[:1500], train.labels[:1500], tmp_path / "m")
    found = tagger.suggest(test.texts[0], 5)
    assert found.support == tagger.model_.calibration.count_support([p for _, p in found]).tolist()
    assert len(found.support) == 5
    assert min(found.support) > 0
    shown = CliRunner().invoke(app, ["suggest", f"{tmp_path}/m", test.texts[0], "--top-k", "5", "--json", "-"])
    assert [each["support"] for each in json.loads(shown.stdout)["suggestions"]] == found.support
    plain = umpteen.Tagger("dismec", calibration=0).fit(train.texts[:300], train.labels[:300], tmp_path / "p")
    assert plain.suggest(test.texts[0], 5).support == []
    shown = CliRunner().invoke(app, ["suggest", f"{tmp_path}/p", test.texts[0], "--top-k", "5", "--json", "-"])
    assert all("support" not in each for each in json.loads(shown.stdout)["suggestions"])


def test_rows_are_held_out_once_each(tiny):
    Y = as_csr(tiny.Y, "Y")
    folds = draw_held_out(Y, 4, 0)
    assert np.sum(folds, axis=0).tolist() == [1] * Y.shape[0]
    (share,) = draw_held_out(Y, 0.2, 0)
    assert 0 < share.mean() <= 0.2
    assert len(draw_held_out(Y, "auto", 0)) == 5
    assert draw_held_out(Y[:5], "auto", 0) == draw_held_out(Y, 0, 0) == []


def test_folds_spread_the_rows_of_every_label():
    """A label with ten rows has two in each of five folds, not five in one and none in another."""
    Y = sp.csr_matrix(np.random.default_rng(0).random((203, 12)) < np.linspace(0.02, 0.5, 12)).astype(np.float32)
    fold = draw_folds(Y, 5, seed=1)
    assert np.ptp(np.bincount(fold, minlength=5)) <= 1
    counts = np.array([np.bincount(fold[Y[:, label].toarray().ravel() > 0], minlength=5) for label in range(12)])
    by_chance = np.random.default_rng(1).permutation(203) % 5
    drawn = np.array([np.bincount(by_chance[Y[:, label].toarray().ravel() > 0], minlength=5) for label in range(12)])
    assert np.ptp(counts, axis=1).mean() < np.ptp(drawn, axis=1).mean() / 2
    np.testing.assert_array_equal(fold, draw_folds(Y, 5, seed=1))
    assert (fold != draw_folds(Y, 5, seed=2)).any()


@pytest.mark.parametrize("bad", [1, 1.5, 2.5, -0.1, "often", float("nan"), True])
def test_calibrations_that_are_none(tiny, bad):
    with pytest.raises(ParamError, match=r"calibration must be"):
        umpteen.DiSMEC().fit(tiny.X, tiny.Y, calibration=bad)


def test_methods_calibrate_by_folds_and_lose_nothing(tmp_path, tiny):
    method = umpteen.DiSMEC().fit(tiny.X, tiny.Y, tmp_path / "m", calibration=5)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    loaded = umpteen.load(tmp_path / "m")
    assert loaded.calibration.n_rows == tiny.X.shape[0]
    plain = umpteen.DiSMEC().fit(tiny.X, tiny.Y)
    for a, b in zip(loaded.predict_topk(tiny.X), plain.predict_topk(tiny.X), strict=True):
        np.testing.assert_array_equal(a, b)  # the model itself is trained on all rows
    labels, probabilities = method.predict_topk_proba(tiny.X, 16)
    given = (labels >= 0) & (probabilities >= loaded.calibration.threshold)
    assert method.predict(tiny.X).nnz == given.sum()


@pytest.mark.data
@pytest.mark.slow
def test_decisions_are_as_good_as_one_vs_rest_of_scikit_learn(cooking):  # noqa: F811
    train, test = cooking
    n = 4000
    features = umpteen.Tfidf(sublinear_tf=True)
    X, tX = features.fit_transform(train.texts[:n]), features.transform(test.texts)
    names = sorted({name for labels in train.labels[:n] for name in labels})
    ids = {name: i for i, name in enumerate(names)}

    def matrix(lists):
        pairs = [(row, ids[name]) for row, labels in enumerate(lists) for name in labels if name in ids]
        rows, columns = zip(*pairs, strict=True)
        return sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(lists), len(names)))

    Y, tY = matrix(train.labels[:n]), matrix(test.labels)
    svm = OneVsRestClassifier(LinearSVC()).fit(X, Y.astype(int))
    peer = f1_score(tY, svm.predict(tX), average="micro", zero_division=0)
    method = umpteen.DiSMEC()
    plain = f1_score(tY, method.fit(X, Y).predict(tX), average="micro", zero_division=0)
    calibrated = f1_score(tY, method.fit(X, Y, calibration=5).predict(tX), average="micro", zero_division=0)
    assert plain > peer - 0.02
    assert calibrated > peer + 0.02
    assert f1_score(tY, method.predict(tX, 5), average="micro", zero_division=0) < peer  # five for every row


@pytest.mark.slow
@pytest.mark.data
def test_one_decision_wherever_one_asks(cooking, tmp_path):  # noqa: F811
    train, test = cooking
    tagger = umpteen.Tagger("dismec").fit(train.texts[:1500], train.labels[:1500], tmp_path / "m")
    texts = test.texts[:40]
    decided = tagger.predict(texts)
    assert {len(labels) for labels in decided} > {0, 1}
    assert [[name for name, _ in row] for row in tagger.suggest(texts)] == decided
    rows = tagger.vectorize(texts).X
    matrix = tagger.model_.predict(rows)
    assert [{tagger.classes_[i] for i in matrix[r].indices} for r in range(40)] == [set(row) for row in decided]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = tmp_path / "out.jsonl"
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "m"), str(tmp_path / "in.jsonl"), "--output", str(out)])
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["labels"] for line in out.read_text().splitlines()] == decided
    one = next(i for i, labels in enumerate(decided) if labels)
    shown = CliRunner().invoke(app, ["suggest", str(tmp_path / "m"), texts[one], "--json", "-"])
    assert [each["label"] for each in json.loads(shown.stdout)["suggestions"]] == decided[one]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    "method",
    [
        umpteen.Centroid(),
        umpteen.PDSparse(),
        umpteen.PfastreXML(n_trees=5),
        umpteen.RXML(n_learners=1),
        umpteen.SLEEC(n_learners=1),
    ],
    ids=lambda method: method.name,
)
def test_where_scores_only_rank_rows_get_as_many_labels_as_training_rows(cooking, method, tmp_path):  # noqa: F811
    """Centroid gave every label to every row, RXML 15, PfastreXML none."""
    train, test = cooking
    features = umpteen.Tfidf()
    X = features.fit_transform(train.texts[:600])
    _, Y = encode_labels(train.labels[:600])
    tX = features.transform(test.texts[:200])
    method.fit(X, Y, tmp_path / "m")
    model = umpteen.TrainedModel.load(tmp_path / "m")
    assert round(Y.nnz / 600) == 2
    assert model.threshold is None
    for found in (method.predict(tX), model.predict(tX)):
        assert np.diff(found.indptr).tolist() == [2] * 200
        assert (found != model.predict(tX, 2)).nnz == 0
    assert ((model.decision_function(tX) > 0) != model.predict(tX).toarray()).sum() == 0  # as scikit-learn has it
    cut = model.predict(tX, threshold=0.9)  # what is asked for is given
    labels, values = model.rank(tX, threshold=0.9)
    assert cut.nnz == (labels >= 0).sum() == (values >= 0.9).sum()
    calibrated = model.calibrate(tX, model.predict(tX, 1))  # a threshold that is learned comes before the number
    assert calibrated.threshold is not None
    assert set(np.diff(calibrated.predict(tX).indptr)) != {2}
    assert "labels given: 2.00 a row" in str(model.judge_decisions(tX, model.predict(tX, 1)))


def test_more_labels_than_are_looked_at_first():
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(rng.random((60, 20)).astype(np.float32))
    Y = sp.csr_matrix(np.ones((60, 120), np.float32))
    Y[0, :] = 0
    Y.eliminate_zeros()
    model = umpteen.DiSMEC().fit(X, Y)
    assert np.diff(model.predict(X).indptr).max() == 120


def test_thresholds_that_differ_by_label_are_those_of_each_label():
    data = umpteen.make_synthetic(300, 100, 120, seed=1)
    model = umpteen.DiSMEC().fit(data.X, data.Y, calibration=5).model_
    rng = np.random.default_rng(0)
    own = rng.choice([0.0, 0.01, 0.2, 0.9], model.n_labels, p=[0.02, 0.3, 0.3, 0.38]).astype(np.float32)
    model = model.with_part("calibration", replace(model.calibration, label_thresholds=own).to_part())
    ranked, values = model.predict_topk_proba(data.X[:40], model.n_labels)
    labels, found = model.rank(data.X[:40], threshold="macro")
    holes = 0
    for i in range(40):
        given = (ranked[i] >= 0) & (values[i] >= own[ranked[i]])
        holes += int(np.flatnonzero(given)[-1] >= given.sum())
        n = given.sum()
        assert labels[i, :n].tolist() == ranked[i][given].tolist()  # however unlikely labels lie between them
        assert found[i, :n].tolist() == values[i][given].tolist()
        assert (labels[i, n:] == -1).all()
        alone, _ = model.rank(data.X[i], threshold="macro")  # the same without other rows
        assert alone[0, :n].tolist() == labels[i, :n].tolist()
    assert holes > 20


def test_texts_the_model_cannot_judge_get_no_label(tmp_path):
    tagger = umpteen.Tagger("dismec").fit(*two_labels(40), tmp_path / "m")
    for text in ("", "   ", "zebra giraffe", "1234567"):
        assert tagger.suggest(text, 5) == tagger.suggest(text) == []
    half = "cod zebra giraffe okapi"
    assert [name for name, _ in tagger.suggest(half)] == ["fish"]
    assert tagger.suggest(half, min_known=0.3) == []
    assert [name for name, _ in tagger.suggest(half, min_known=0.25)] == ["fish"]
    with pytest.raises(ParamError, match="min_known must be a share from 0 to 1, but is 30"):
        tagger.suggest(half, min_known=30)
    shown = CliRunner().invoke(app, ["suggest", str(tmp_path / "m"), "zebra"])
    assert why_none(0.0) in shown.output
    shown = CliRunner().invoke(app, ["suggest", str(tmp_path / "m"), half, "--min-known", "0.3", "--json", "-"])
    facts = json.loads(shown.stdout)
    assert facts["suggestions"] == []
    assert facts["note"] == "no label: the model knows 25% of the words, and at least 30% are asked for"
    assert (facts["unknown_words"], facts["words"]) == (3, 4)


def test_words_nobody_had_seen_are_not_there_for_rows_held_out():
    texts = ["alpha beta", "beta gamma", "gamma delta"]
    features = umpteen.Tfidf()
    X = features.fit_transform(texts)
    for new, names in ((0, {"beta"}), (2, {"gamma"})):
        others = [i for i in range(3) if i != new]
        row = features.as_new(X[others], X[[new]])
        assert {features.feature_names_[i] for i in row.indices} == names
        np.testing.assert_allclose(row.data, [1], rtol=1e-6)


def test_reliability_is_no_worse_than_that_of_scores(tiny):
    model = umpteen.DiSMEC().fit(tiny.X, tiny.Y, calibration=5)
    labels, probabilities = model.predict_topk_proba(tiny.X, 5)
    hits = find_hits(as_csr(tiny.Y, "Y"), labels)
    assert reliability(probabilities[labels >= 0], hits[labels >= 0]).error < 0.5


def test_measures_are_those_of_scikit_learn():
    rng = np.random.default_rng(5)
    true, given = rng.random((40, 12)) < 0.2, rng.random((40, 12)) < 0.25
    true[:, 3], given[:, 4], true[7], given[8] = False, False, False, False
    labels = np.where(given, np.arange(12), -1).astype(np.int32)
    found = evaluate_decisions(as_csr(true, "Y", values=False), labels, 0.5)
    for average, measures in (("micro", found.micro), ("macro", found.macro), ("samples", found.per_row)):
        judged = precision_recall_fscore_support(true, given, average=average, zero_division=0)
        np.testing.assert_allclose([measures.precision, measures.recall, measures.F1], 100 * np.array(judged[:3]))
    assert found.labels_given == pytest.approx(given.sum() / 40)


def test_evaluation_has_measures_of_decisions(tmp_path):
    texts, labels = two_labels(60)
    tagger = umpteen.Tagger("dismec").fit(texts[:40], labels[:40], tmp_path / "m")
    metrics = tagger.evaluate(texts[40:], [*labels[40:59], ["bird"]], k=1)
    assert metrics.decisions.micro.precision > 90
    assert metrics.decisions.micro.recall == pytest.approx(100 * 19 / 20)  # a label the model does not know is missed
    assert metrics.as_dict()["decisions"]["threshold"] == tagger.model_.calibration.threshold
    assert "labels given, from 0." in str(metrics)


def test_decisions_are_measured_with_and_without_what_no_model_could_give(tmp_path):
    texts, labels = two_labels(60)
    tagger = umpteen.Tagger("dismec").fit(texts[:40], labels[:40], tmp_path / "m")
    judged = [*labels[40:56], ["bird"], ["bird", *labels[57]], [], []]
    decided = tagger.evaluate(texts[40:], judged, k=1).decisions
    rows = [*range(16), 17]  # those with a label that the model knows, which is given to all of them
    alone = tagger.evaluate([texts[40 + i] for i in rows], [labels[40 + i] for i in rows], k=1).decisions
    assert alone.known_only is None
    assert decided.known_only == replace(alone, threshold=None)
    given = sum(map(len, tagger.predict(texts[40:])))
    assert decided.micro.precision == pytest.approx(100 * 17 / given)
    assert decided.micro.recall == pytest.approx(100 * 17 / 19)
    assert decided.known_only.micro.recall == decided.known_only.macro.recall == 100
    assert decided.macro.recall == pytest.approx(200 / 3)
    lines = [{"text": text, "labels": row} for text, row in zip(texts[40:], judged, strict=True)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = CliRunner().invoke(app, ["evaluate", f"{tmp_path}/m", f"{tmp_path}/t.jsonl"]).output
    assert "20 rows (2 without labels), 3 labels" in shown
    assert "unseen in training, so counted as missed: 1 label in 2 rows" in shown
    assert "only rows with a label seen in training, 17: P@1 100.00" in shown
    assert shown.count("only rows with a label seen in training") == 2
    shown = CliRunner().invoke(app, ["evaluate", f"{tmp_path}/m", f"{tmp_path}/t.jsonl", "--json", "-"]).stdout
    facts = json.loads(shown)
    assert (facts["n_unseen_labels"], facts["n_rows_with_unseen_labels"], facts["n_rows_without_labels"]) == (1, 2, 2)
    assert facts["decisions"]["known_only"]["micro"]["recall"] == 100


def test_training_without_calibration_leaves_what_lies_beside_the_model(tmp_path):
    (tmp_path / "m.calibration").mkdir()
    umpteen.Tagger("dismec", calibration=0).fit(*two_labels(20), tmp_path / "m")
    assert (tmp_path / "m.calibration").exists()
