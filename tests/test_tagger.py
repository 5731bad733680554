"""Text in, label names out."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import umpteen
from umpteen.data.label_lists import encode_labels
from umpteen.errors import DataError, ModelCorruptError, ModelExistsError, NotFittedError, ParamError, ShardError
from umpteen.evaluation.metrics import find_hits

from .conftest import data_root
from .files import read_files

METHODS = [umpteen.Centroid(), umpteen.DiSMEC(), umpteen.PPDSparse(), umpteen.FastXML(n_trees=10, normalize=True)]
every_method = pytest.mark.parametrize("method", METHODS, ids=[method.name for method in METHODS])


@pytest.fixture(scope="session")
def cooking():
    folder = data_root() / "StackExchange-Cooking"
    if not folder.exists():
        pytest.skip(f"no StackExchange-Cooking in {data_root()}; set UMPTEEN_DATA to run this test")
    return tuple(umpteen.read_corpus(folder / f"{part}.jsonl.xz") for part in ("train", "test"))


@pytest.fixture(scope="session")
def cook(cooking):
    """A tagger trained on a part of the questions."""
    train, _ = cooking
    return umpteen.Tagger(umpteen.DiSMEC(), umpteen.Tfidf(min_df=2)).fit(train.texts[:4000], train.labels[:4000])


SHORT = (
    ["herring quotas in the north sea", "cod quotas in the sea", "a tax on wine", "wine and beer tax", "the sea"]
    * 10,
    [["fish", "sea"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"], ["sea"]] * 10,
)


@every_method
def test_names_in_and_names_out(method):
    tagger = umpteen.Tagger(clone(method)).fit(*SHORT)
    assert list(tagger.classes_) == ["fish", "sea", "tax", "wine"]
    best = tagger.suggest("tax on beer and wine", top_k=2)
    assert {name for name, _ in best} == {"tax", "wine"}
    assert all(0 <= value <= 1 for _, value in best)
    several = tagger.suggest(["tax on wine", "herring in the sea"], top_k=2)
    assert several[0][0][0] in ("tax", "wine")
    assert {name for name, _ in several[1]} == {"fish", "sea"}
    assert tagger.predict(["tax on wine"])[0][:2] in (["tax", "wine"], ["wine", "tax"])


def test_filters_and_thresholds(cook, cooking):
    text = cooking[1].texts[0]
    names = [name for name, _ in cook.suggest(text, 10)]
    assert names[0] not in [name for name, _ in cook.suggest(text, 10, exclude=names[0])]
    assert [name for name, _ in cook.suggest(text, 10, include=names[2:4])] == names[2:4]
    some = cook.suggest(text, 10, threshold=0.1)
    assert some == [pair for pair in cook.suggest(text, 10) if pair[1] >= 0.1]
    assert len(cook.suggest(text, 10, threshold=1.0)) == 0
    with pytest.raises(ParamError, match="exclude holds the unknown label 'floob'"):
        cook.suggest(text, exclude=["floob"])
    with pytest.raises(ParamError, match='threshold must be a probability, "micro" or "macro", but is \'best\''):
        cook.suggest(text, threshold="best")
    with pytest.raises(ParamError, match="top_k must be a number, \"auto\" or None, but is 'all'"):
        cook.suggest(text, "all")


def count_right(tagger, test, **options):
    """(micro F1, macro F1) of what is suggested."""
    labels, _ = tagger.rank(test.texts, **options)
    Y = tagger._encode(test.labels)
    given = labels >= 0
    hits = find_hits(Y, np.where(given, labels, 0).astype(np.int32)) & given
    n = Y.shape[1]
    right, n_given, true = (np.bincount(ids, minlength=n) for ids in (labels[hits], labels[given], Y.indices))
    return 2 * right.sum() / (n_given.sum() + true.sum()), float(np.mean(2 * right / np.maximum(n_given + true, 1)))


def test_learned_thresholds_beat_a_fixed_number_of_labels(cook, cooking):
    test = cooking[1]
    micro, macro = zip(*(count_right(cook, test, top_k=k) for k in (1, 2, 3, 5)), strict=True)
    assert count_right(cook, test, top_k=50, threshold="micro")[0] > max(micro)
    assert count_right(cook, test, top_k=50, threshold="macro")[1] > max(macro)
    assert count_right(cook, test, top_k="auto")[0] > max(micro)


def test_probabilities_can_be_believed(cook, cooking):
    before, after = cook.reliability(cooking[1].texts, cooking[1].labels)
    assert after.error < 0.03 < before.error


def test_explanations_name_the_words(cook):
    text = "How do I season a cast-iron pan?"
    found = cook.explain(text, "cast-iron")
    assert found.words[0][0] in ("cast", "iron")
    assert found.base + sum(value for _, value in found.words) == pytest.approx(found.score, abs=1e-5)
    assert [text[start:end] for start, end, _ in found.spans if text[start:end] == "cast"] == ["cast"]
    total = sum(value for _, _, value in found.spans)
    assert total == pytest.approx(sum(value for _, value in found.words), abs=1e-6)
    assert cook.explain(text).label == cook.suggest(text, 1)[0][0]
    json.dumps(found.as_dict())
    assert "cast" in str(found)


def test_html_is_escaped_and_highlighted(cook):
    found = cook.explain('cast <script>alert("iron")</script> pan & iron', "cast-iron")
    page = found.to_html()
    assert "<script" not in page
    assert "&amp;" in page
    assert page.count("<mark") >= 2


def test_terminal_text_is_coloured(cook):

    console = Console(force_terminal=True, color_system="truecolor", width=100)
    with console.capture() as capture:
        console.print(cook.explain("a cast iron pan", "cast-iron"))
    assert "\x1b[" in capture.get()
    assert "cast" in capture.get()


def test_every_account_of_reasons_adds_up(cook):
    text = "How do I season a cast iron pan so that eggs do not stick and the oil does not smoke in my small oven?"
    found = cook.explain(text, "cast-iron")
    lines = found.account()
    assert [line.kind for line in lines] == ["word"] * 8 + ["rest", "base", "sum"]
    assert sum(line.value for line in lines[:-1]) == pytest.approx(found.score, abs=1e-5)
    assert lines[-1][:2] == ("score", pytest.approx(found.score, abs=1e-5))
    shown = str(found).splitlines()[1 : 1 + len(lines)]
    assert shown == [f"  {line.value:+8.3f}  {line.text}" for line in lines]
    printed = io.StringIO()
    Console(file=printed, width=120).print(found)
    page = found.to_html()
    for line in lines:
        assert f"{line.value:+.3f}" in printed.getvalue()
        assert f"{line.value:+.3f}" in page
    assert found.as_dict()["explained"] == found.explained


@pytest.mark.parametrize(
    ("method", "adds_up"),
    [("dismec", True), ("rxml-global", True), ("fastxml", True), ("rxml", True), ("label-tree", False)],
)
def test_a_sum_that_is_no_score_is_not_called_one(method, adds_up):
    tagger = umpteen.Tagger(method, calibration=0).fit(*SHORT)
    last = tagger.explain(SHORT[0][0]).account()[-1]
    assert last.text == ("score" if adds_up else "sum")


def test_forests_explain_by_words_too(cooking):
    train, _ = cooking
    tagger = umpteen.Tagger(umpteen.FastXML(n_trees=10, normalize=True), calibration=0)
    found = tagger.fit(train.texts[:3000], train.labels[:3000]).explain("cookies baking in the oven", "baking")
    assert found.family == "forest"
    assert found.words[0][0] in ("baking", "cookies")
    assert any("baking" in split["features"] for vote in found.votes for split in vote["splits"])


def test_unknown_words_are_counted(cook):
    assert cook.count_unknown(["salt and floobdoodle", ""]) == [(1, 3), (0, 0)]
    assert cook.explain("salt and floobdoodle").unknown == ["floobdoodle"]
    assert cook.suggest("floobdoodle") == []


def test_save_and_load(cook, cooking, tmp_path):
    cook.save(tmp_path / "m")
    assert not list((tmp_path / "m").rglob("*.pkl"))
    for loaded in (umpteen.load(tmp_path / "m"), umpteen.Tagger.load(tmp_path / "m", checksums=True)):
        assert isinstance(loaded, umpteen.Tagger)
        texts = cooking[1].texts[:20]
        assert loaded.suggest(texts) == cook.suggest(texts)
        assert loaded.suggest(texts, "auto", "macro") == cook.suggest(texts, "auto", "macro")
        assert loaded.explain(texts[0]).as_dict() == cook.explain(texts[0]).as_dict()
        assert loaded.get_params()["method__C"] == 1.0
        assert loaded.get_params()["features__min_df"] == 2


def test_fit_to_a_directory_is_the_same_model(tmp_path):
    one = umpteen.Tagger().fit(*SHORT, tmp_path / "a")
    two = umpteen.Tagger().fit(*SHORT)
    two.save(tmp_path / "b")
    assert one.suggest("the sea") == two.suggest("the sea")
    assert read_files(tmp_path / "a", "*.npy") == read_files(tmp_path / "b", "*.npy")


@pytest.mark.slow
@pytest.mark.parametrize("n_whole", [1, 3, 11], ids=["in the first model", "in the second", "in the last"])
def test_an_interruption_costs_nothing_that_was_finished(tmp_path, monkeypatch, n_whole):
    make = lambda: umpteen.Tagger(umpteen.DiSMEC(labels_per_shard=2, threads=1))  # noqa: E731
    whole = make().fit(*SHORT, tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["whole"]
    train_shard, n_trained = umpteen.DiSMEC.train_shard, []

    def train_and_count(self, data, task, resources):
        if len(n_trained) == n_whole:
            raise RuntimeError("stopped")
        part = train_shard(self, data, task, resources)
        n_trained.append(task.name)
        return part

    monkeypatch.setattr(umpteen.DiSMEC, "train_shard", train_and_count)
    with pytest.raises(ShardError, match="stopped"):
        make().fit(*SHORT, tmp_path / "stopped")
    assert len(n_trained) == n_whole
    n_whole = -1  # never again
    again = make().fit(*SHORT, tmp_path / "stopped")
    assert len(n_trained) == 12  # five folds and the model, of two shards each, none of them trained twice
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stopped", "whole"]
    assert again.suggest(SHORT[0]) == whole.suggest(SHORT[0])


def test_a_finished_model_is_refused_before_anything_is_trained(tmp_path):
    umpteen.Tagger(umpteen.Centroid()).fit(*SHORT, tmp_path / "m")
    events = []
    with pytest.raises(ModelExistsError, match="a finished model is already there"):
        umpteen.Tagger(umpteen.Centroid()).fit(*SHORT, tmp_path / "m", progress=events.append)
    assert not events


def test_a_loaded_tagger_has_its_settings(tmp_path):
    umpteen.Tagger("centroid", calibration=0.3, seed=7).fit(*SHORT, tmp_path / "m")
    loaded = umpteen.Tagger.load(tmp_path / "m")
    assert (loaded.calibration, loaded.seed, loaded.method.name) == (0.3, 7, "centroid")
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    manifest["text"]["calibration"] = "often"
    (tmp_path / "m" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelCorruptError, match="calibration must be .auto., a share"):
        umpteen.Tagger.load(tmp_path / "m")


def test_a_model_without_text_is_no_tagger(tiny, tmp_path):
    umpteen.Centroid().fit(tiny.X, tiny.Y).save(tmp_path / "m")
    with pytest.raises(ParamError, match="not trained on text"):
        umpteen.Tagger.load(tmp_path / "m")


def test_a_damaged_vocabulary_is_refused(cook, tmp_path):
    cook.save(tmp_path / "m")
    file = tmp_path / "m" / "manifest.json"
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps(manifest | {"text": "x"}))
    with pytest.raises(ModelCorruptError, match="a model of texts needs label names"):
        umpteen.load(tmp_path / "m")
    manifest["parts"]["vocabulary"]["scalars"]["tfidf"]["floob"] = 1
    file.write_text(json.dumps(manifest))
    with pytest.raises(ModelCorruptError, match="floob"):
        umpteen.load(tmp_path / "m")
    manifest["parts"].pop("vocabulary")
    file.write_text(json.dumps(manifest))
    with pytest.raises(ModelCorruptError, match="vocabulary"):
        umpteen.load(tmp_path / "m")


def test_new_labels(cook, cooking, tmp_path):
    train, _ = cooking
    cook.save(tmp_path / "m")
    tagger = umpteen.load(tmp_path / "m")
    old, before = list(tagger.classes_), tagger.suggest(train.texts[0], 3)
    texts = ["how to clean a fishbowl", "goldfish in a bowl", *train.texts[:200]]
    tagger.add_labels(texts, [["goldfish"], ["goldfish", "bowls-of-glass"], *train.labels[:200]])
    assert list(tagger.classes_) == [*old, "bowls-of-glass", "goldfish"]
    assert tagger.suggest(train.texts[0], 3, include=old) == before
    assert "goldfish" in [name for name, _ in tagger.suggest("goldfish bowl", threshold="macro", top_k=5)]
    with pytest.raises(DataError, match="a label the model does not have"):
        tagger.add_labels(["goldfish"], [["goldfish"]])
    forest = umpteen.Tagger(umpteen.FastXML(n_trees=2)).fit(*SHORT)
    with pytest.raises(ParamError, match="only one-vs-rest methods"):
        forest.add_labels(["x"], [["y"]])


def test_evaluate_counts_labels_never_seen(cook, cooking):
    test = cooking[1]
    metrics = cook.evaluate(test.texts, test.labels)
    assert metrics["P@1"] > 60
    strange = cook.evaluate(test.texts, [[*row, "never-seen"] for row in test.labels])
    assert strange["P@1"] == metrics["P@1"]
    assert strange["recall@5"] < metrics["recall@5"]
    assert cook.score(test.texts, test.labels) == pytest.approx(metrics["P@1"] / 100)


def test_precomputed_features(tiny, tmp_path):
    labels = [[f"label {l}" for l in row.indices] for row in tiny.Y]  # noqa: E741
    tagger = umpteen.Tagger(umpteen.DiSMEC(), "precomputed").fit(tiny.X.toarray(), labels)
    assert tagger.evaluate(tiny.X, labels)["P@1"] > 80
    tagger.save(tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.rank(tiny.X)[0], tagger.rank(tiny.X)[0])
    with pytest.raises(ParamError, match="has no words"):
        loaded.explain("text")


def test_scikit_learn_conventions():
    tagger = umpteen.Tagger(umpteen.DiSMEC(C=2.0))
    assert clone(tagger).get_params()["method__C"] == 2.0
    assert repr(tagger) == "Tagger(method=DiSMEC(C=2.0))"
    tagger.set_params(method__C=3.0, calibration=0)
    assert tagger.method.C == 3.0
    with pytest.raises(ParamError, match="Tagger has no parameter 'colour'"):
        tagger.set_params(colour=1)
    with pytest.raises(NotFittedError, match="not fitted"):
        tagger.suggest("x")
    grid = {"method__C": [0.01, 1.0], "features__min_df": [1, 2]}
    search = GridSearchCV(umpteen.Tagger(umpteen.DiSMEC(), umpteen.Tfidf(), calibration=0), grid, cv=2)
    search.fit(np.array(SHORT[0]), np.array([set(row) for row in SHORT[1]]))
    assert search.best_score_ > 0.9
    upper = FunctionTransformer(lambda texts: [text.upper() for text in texts])
    pipeline = make_pipeline(upper, umpteen.Tagger()).fit(*SHORT)
    assert pipeline.predict(["wine tax"])[0][0] in ("tax", "wine")


def test_refusals():
    for labels, message in (
        ([["fish"], "tax"], "text 1 has the string 'tax'"),
        ([[1]], "a label must be a non-empty string"),
        ([[""]], "a label must be a non-empty string"),
        ([None], "text 0 has None"),
    ):
        with pytest.raises(DataError, match=message):
            umpteen.Tagger().fit(["a text"], labels)
    with pytest.raises(DataError, match="each of the 2 texts needs a list of labels, but there are 1"):
        umpteen.Tagger().fit(["a text", "another text"], [["x"]])
    for params, message in (
        ({"method": "dismek"}, "method must be"),
        ({"features": "words"}, "features must be"),
        ({"calibration": 1.0}, "below 1"),
        ({"seed": -1}, "seed must be"),
    ):
        with pytest.raises(ParamError, match=message):
            umpteen.Tagger(**params).fit(*SHORT)
    uncalibrated = umpteen.Tagger(calibration=0).fit(*SHORT)
    with pytest.raises(ParamError, match="needs a calibrated model"):
        uncalibrated.suggest("x", threshold="micro")
    with pytest.raises(ParamError, match="needs a calibrated model"):
        uncalibrated.suggest("x", "auto")
    assert all(0 <= value <= 1 for _, value in uncalibrated.suggest("the sea"))


def test_so_few_rows_that_none_can_be_held_out():
    tagger = umpteen.Tagger().fit(["red apple", "green pear"], [["apple"], ["pear"]])
    assert tagger.model_.calibration is None
    assert tagger.suggest("apple", 1)[0][0] == "apple"


def test_encode_labels():
    names, Y = encode_labels([["b", "a", "b"], [], ["c"]])
    assert names == ["a", "b", "c"]
    assert Y.toarray().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("method", ["dismec", "label-tree", "fastxml", "rxml-global"])
def test_scores_of_models_that_are_not_calibrated_are_told_apart(method):
    tagger = umpteen.Tagger(method, calibration=0).fit(*SHORT)
    assert tagger.model_.calibration is None
    values = np.array([value for row in tagger.suggest(SHORT[0], 2) for _, value in row])
    assert ((values >= 0) & (values <= 1)).all()
    assert len(np.unique(values)) > 2
    raw = np.sort(tagger.model_.predict_topk(tagger.features_.transform(SHORT[0]), 2)[1].ravel())
    assert (np.diff(tagger.model_.scorer.to_unit(raw)) >= 0).all()
