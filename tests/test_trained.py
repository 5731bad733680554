"""Trained models apart from what trained them: facts, newer versions, other settings, nesting, families."""

from __future__ import annotations

import copy
import inspect
import json
import pickle

import numpy as np
import pytest

import umpteen
from umpteen.errors import ModelCorruptError, ModelFormatError, NotFittedError, ParamError
from umpteen.methods import METHODS, method_class, method_of
from umpteen.models.families import FAMILIES, scorer_class
from umpteen.models.scorer import Scorer
from umpteen.trained.header import is_newer
from umpteen.trained.model import TrainedModel
from umpteen.trained.nesting import nest, unnest


def rewrite(path, change):
    """Changes a manifest's entries as another version of umpteen might have written them."""
    file = path / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))
    return path


def newer(manifest):
    manifest["umpteen_version"] = "99.1.0"


@pytest.fixture
def saved(tiny, tmp_path):
    umpteen.DiSMEC(C=0.5).fit(tiny.X, tiny.Y, tmp_path / "m", label_names=[f"n{i}" for i in range(40)])
    return tmp_path / "m"


# --- facts ----------------------------------------------------------------------------------------------------------


def test_load_gives_a_trained_model_and_no_trainer(saved, tiny):
    model = umpteen.load(saved)
    assert type(model) is TrainedModel
    assert not hasattr(model, "fit")
    assert (model.method, model.family, model.params["C"]) == ("dismec", "linear", 0.5)
    assert (model.n_features, model.n_labels, model.train_counts.n_rows) == (200, 40, tiny.n_rows)
    assert repr(model) == "<trained dismec model: 200 features, 40 labels>"
    model.params["C"] = 7  # facts are given as a copy
    assert model.params["C"] == 0.5


def test_a_method_answers_through_what_it_trained(tiny):
    method = umpteen.Centroid(threads=1).fit(tiny.X, tiny.Y)
    for got, want in zip(method.predict_topk(tiny.X), method.model_.predict_topk(tiny.X), strict=True):
        np.testing.assert_array_equal(got, want)
    assert method.fitted().threads == 1
    assert method.set_params(threads=2).fitted().threads == 2
    assert not hasattr(umpteen.Centroid(), "n_labels_")
    with pytest.raises(NotFittedError, match="this Centroid is not fitted; call fit first"):
        _ = umpteen.Centroid().train_counts_


def test_a_model_of_a_method_that_is_not_here_predicts_all_the_same(saved, tiny):
    want = umpteen.load(saved).predict_topk(tiny.X)[0]
    rewrite(saved, lambda manifest: manifest.update(method="telepathy"))
    model = umpteen.load(saved)
    np.testing.assert_array_equal(model.predict_topk(tiny.X)[0], want)
    with pytest.raises(ModelFormatError, match="the model's method is 'telepathy', which this umpteen does not have"):
        method_of(model)


# --- from a model to its method ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_made_of_a_model_where_one_is_asked_for(name, tiny):
    cls = method_class(name)
    settings = {"n_trees": 2} if "n_trees" in cls.param_defaults() else {}
    trained = cls(**settings).fit(tiny.X[:100], tiny.Y[:100])
    again = method_of(trained.model_)
    assert type(again) is cls
    assert again.facts() == trained.facts() == trained.model_.params
    assert cls.from_model(trained.model_).model_ is trained.model_


def test_a_method_is_not_made_of_another_ones_model(saved):
    with pytest.raises(ParamError, match="the model's method must be centroid, but is dismec"):
        umpteen.Centroid.from_model(umpteen.load(saved))


def test_a_renamed_parameter_orphans_no_model(tiny, tmp_path):
    umpteen.PfastreXML(n_trees=2, n_candidates=17).fit(tiny.X, tiny.Y, tmp_path / "forest")
    umpteen.PDSparse().fit(tiny.X, tiny.Y, tmp_path / "sparse")

    def before(manifest):
        manifest["umpteen_version"] = "0.1.0"
        manifest["params"]["candidates"] = manifest["params"].pop("n_candidates")

    model = umpteen.load(rewrite(tmp_path / "forest", before))
    assert model.predict_topk(tiny.X)[0].shape == (tiny.n_rows, 5)
    assert method_of(model).n_candidates == 17
    model = umpteen.load(rewrite(tmp_path / "sparse", lambda manifest: manifest["params"].update(search="full")))
    assert method_of(model).search == "exact"


# --- newer versions -------------------------------------------------------------------------------------------------


def test_versions_are_compared_by_their_numbers():
    for version in ("99.0.0", "0.100.0", "99.1"):
        assert is_newer({"umpteen_version": version})
    for version in ("0.0.1", umpteen.__version__, "?", None, []):
        assert not is_newer({"umpteen_version": version})


def test_an_unknown_parameter_of_a_newer_version_is_a_fact_like_others(saved, tiny):
    def change(manifest):
        newer(manifest)
        manifest["params"]["colour"] = "green"

    model = umpteen.load(rewrite(saved, change))
    assert model.params["colour"] == "green"
    assert model.predict_topk(tiny.X)[0].shape == (tiny.n_rows, 5)
    with pytest.raises(ModelFormatError, match=r"made by a newer umpteen, 99\.1\.0; .* no parameter 'colour'"):
        method_of(model)


def test_an_unknown_step_of_a_newer_version_is_named_as_that(saved):
    def change(manifest):
        newer(manifest)
        manifest["preprocessing"]["whiten"] = True

    with pytest.raises(ModelFormatError, match=r"m: made by a newer umpteen, 99\.1\.0; .*whiten") as refused:
        umpteen.load(rewrite(saved, change))
    assert not isinstance(refused.value, ModelCorruptError)
    rewrite(saved, lambda manifest: manifest.update(umpteen_version=umpteen.__version__))
    with pytest.raises(ModelCorruptError, match="preprocessing must have"):
        umpteen.load(saved)


def test_an_unknown_family_of_a_newer_version_is_named_as_that(saved):
    def change(manifest):
        newer(manifest)
        manifest["family"] = "quantum"

    with pytest.raises(ModelFormatError, match=r"made by a newer umpteen, 99\.1\.0; .* 'quantum'"):
        umpteen.load(rewrite(saved, change))


def test_a_tagger_with_unknown_parameters_suggests_and_warns(tmp_path):
    texts, labels = ["herring quotas", "wine tax"] * 10, [["fish"], ["tax"]] * 10
    want = umpteen.Tagger("centroid").fit(texts, labels, tmp_path / "m").suggest("a tax on wine")

    def change(manifest):
        newer(manifest)
        manifest["params"]["colour"] = "green"

    rewrite(tmp_path / "m", change)
    with pytest.warns(UserWarning, match=r"made by a newer umpteen.* cannot be trained further here"):
        tagger = umpteen.load(tmp_path / "m")
    assert tagger.suggest("a tax on wine") == want


@pytest.mark.parametrize("version", ["99.0.0rc1", "99.0.dev3", "v99.0.0"])
def test_versions_before_a_release_are_newer_too(version):
    assert is_newer({"umpteen_version": version})


@pytest.mark.parametrize(("key", "value"), [("normalize", "l1"), ("power", 2.0)])
def test_unknown_values_of_a_newer_version_are_named_as_that(saved, key, value):
    def change(manifest):
        newer(manifest)
        manifest["preprocessing"][key] = value

    with pytest.raises(ModelFormatError, match="made by a newer umpteen"):
        umpteen.load(rewrite(saved, change))


def test_damaged_parameters_are_the_models_fault(saved):
    def change(manifest):
        manifest["params"] |= {"C": "x", "prune": ["y"]}

    model = umpteen.load(rewrite(saved, change))
    with pytest.raises(ModelCorruptError, match="the model's parameters cannot be used: C must be"):
        method_of(model)
    with pytest.raises(ParamError, match="prune must be a finite number"):
        model.pruned(0.1)
    rewrite(saved, lambda manifest: manifest["params"].update(engine="ray"))  # a file does not say how to compute
    with pytest.raises(ModelFormatError, match="no parameter 'engine'"):
        method_of(umpteen.load(saved))


# --- taggers --------------------------------------------------------------------------------------------------------

TEXTS, LABELS = ["herring quotas", "wine tax", "herring tax"] * 8, [["fish"], ["tax"], ["fish", "tax"]] * 8


def test_a_tagger_that_cannot_be_trained_refuses(tmp_path):
    members = [umpteen.Tagger(name, calibration=0).fit(TEXTS, LABELS) for name in ("dismec", "centroid")]
    umpteen.Blend(members).fit(*members[0].encode(TEXTS, LABELS), tmp_path / "blend")
    tagger = umpteen.load(tmp_path / "blend")
    assert tagger.suggest("wine tax", 1)[0][0] == "tax"
    with pytest.raises(ParamError, match="cannot be trained: its method is blend"):
        tagger.fit(TEXTS, LABELS)
    with pytest.raises(ParamError, match="only one-vs-rest methods can learn new labels alone, .* is blend"):
        tagger.add_labels(["whale"], [["mammal"]])


def test_a_tagger_adds_labels_with_its_own_method():
    trained = []

    class Mine(umpteen.DiSMEC):
        name = "mine"

        def train_labels(self, data, labels, resources):
            trained.append(len(labels))
            return super().train_labels(data, labels, resources)

    tagger = umpteen.Tagger(Mine(), calibration=0).fit(TEXTS, LABELS)
    tagger.add_labels([*TEXTS, "whale watching"], [*LABELS, ["mammal"]])
    assert trained == [2, 1]
    assert list(tagger.classes_) == ["fish", "tax", "mammal"]


@pytest.mark.parametrize("damage", [{"text": 5}, {"text": {"features": "wordpiece"}}])
def test_damaged_facts_of_text_are_refused(tmp_path, damage):
    umpteen.Tagger("centroid").fit(TEXTS, LABELS, tmp_path / "m")
    with pytest.raises((ModelCorruptError, ModelFormatError), match=r"m: "):
        umpteen.load(rewrite(tmp_path / "m", lambda manifest: manifest.update(damage)))


# --- other settings -------------------------------------------------------------------------------------------------


def test_settings_of_prediction_make_another_model(tiny):
    tree = umpteen.LabelTree(branching=4, max_leaf=5, beam=2).fit(tiny.X, tiny.Y)
    narrow = tree.model_
    wide = narrow.configured(beam=40)
    assert (narrow.params["beam"], wide.params["beam"]) == (2, 40)
    assert (narrow.predict_topk(tiny.X, 10)[0] == -1).sum() > (wide.predict_topk(tiny.X, 10)[0] == -1).sum()
    assert narrow.scorer.beam == 2  # nothing was changed in place
    np.testing.assert_array_equal(tree.set_params(beam=40).predict_topk(tiny.X)[0], wide.predict_topk(tiny.X)[0])
    with pytest.raises(ParamError, match="a label-tree model has no prediction setting 'n_candidates'; it has beam"):
        narrow.configured(n_candidates=3)
    with pytest.raises(ParamError, match="beam must be an integer of at least 1, but is 0"):
        narrow.configured(beam=0)
    with pytest.raises(ParamError, match="a centroid model has no prediction setting 'beam'; it has none"):
        umpteen.Centroid().fit(tiny.X, tiny.Y).model_.configured(beam=3)


def test_copies_and_pickles_keep_their_settings(tiny):
    model = umpteen.LabelTree(branching=4, max_leaf=5).fit(tiny.X, tiny.Y).model_.configured(beam=3)
    for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert same.scorer.beam == 3
        np.testing.assert_array_equal(same.predict_topk(tiny.X)[1], model.predict_topk(tiny.X)[1])


def test_a_subclass_trains_what_its_parent_does(tiny):
    class Mine(umpteen.FastXML):
        name = "mine"

    own = Mine(n_trees=2).fit(tiny.X, tiny.Y).predict_topk(tiny.X)
    parents = umpteen.FastXML(n_trees=2).fit(tiny.X, tiny.Y).predict_topk(tiny.X)
    np.testing.assert_array_equal(own[1], parents[1])
    assert not umpteen.PfastreXML.divides_by_ideal


def test_defaults_are_written_once():
    own, parents = umpteen.PfastreXML.param_defaults(), umpteen.FastXML.param_defaults()
    assert {name: own[name] for name in parents} == parents
    assert list(own)[:5] == ["alpha", "gamma", "n_candidates", "A", "B"]
    assert umpteen.SLEEC.param_defaults() == umpteen.RXML.param_defaults() | {"embedding": "svp"}
    with pytest.raises(TypeError, match="colour"):
        umpteen.PfastreXML(colour=1)


def test_a_method_of_a_model_trains_its_tree_anew(tiny):
    tree = umpteen.LabelTree(branching=2, max_leaf=2)
    model = umpteen.DiSMEC(candidate_tree=tree, n_candidates=3).fit(tiny.X, tiny.Y).model_
    other = umpteen.make_synthetic(300, 200, 40, seed=99)
    again = umpteen.DiSMEC.from_model(model).fit(other.X, other.Y)
    fresh = umpteen.DiSMEC(candidate_tree=tree, n_candidates=3).fit(other.X, other.Y)
    assert again.score(other.X, other.Y) == fresh.score(other.X, other.Y)


def test_the_tree_of_a_model_can_be_configured_and_saved(tiny, tmp_path):
    tree = umpteen.LabelTree(branching=2, max_leaf=2, beam=5)
    model = umpteen.DiSMEC(candidate_tree=tree, n_candidates=10).fit(tiny.X, tiny.Y).model_
    other = model.configured(beam=np.int64(1), n_candidates=np.int64(4))
    assert model.settings() == {"beam": 5, "n_candidates": 10}
    assert other.settings() == {"beam": 1, "n_candidates": 4}
    other.save(tmp_path / "m")
    again = umpteen.load(tmp_path / "m")
    assert again.settings() == other.settings()
    np.testing.assert_array_equal(again.predict_topk(tiny.X)[0], other.predict_topk(tiny.X)[0])


def test_only_linear_models_have_a_tree(tiny):
    linear = umpteen.DiSMEC(candidate_tree=umpteen.LabelTree(), n_candidates=5).fit(tiny.X, tiny.Y).model_
    forest = umpteen.FastXML(n_trees=1).fit(tiny.X, tiny.Y).model_
    tree = {name: part for name, part in linear.parts.items() if name.startswith("candidates-")}
    header = forest.header | {"candidates": linear.header["candidates"]}
    header["params"]["n_candidates"] = 5
    with pytest.raises(ModelCorruptError, match="only linear models can have a candidate tree, but this is forest"):
        TrainedModel.open(header, forest.parts | tree, forest.scorer.to_parts())


def test_copies_share_no_facts_and_no_calibration(tiny):
    first = umpteen.DiSMEC().fit(tiny.X[:200], tiny.Y[:200])
    second = copy.copy(first)
    second.calibrate(tiny.X[200:], tiny.Y[200:])
    assert first.calibration_ is None
    assert second.calibration_ is not None
    other = first.model_.with_threads(2)
    other.header["params"]["C"] = 7
    assert first.model_.params["C"] == 1.0


def test_parameters_that_are_inherited_are_given_by_name():
    with pytest.raises(TypeError):
        umpteen.SLEEC(3)
    kinds = {p.name: p.kind.name for p in inspect.signature(umpteen.PfastreXML).parameters.values()}
    assert kinds["alpha"] == "POSITIONAL_OR_KEYWORD"
    assert kinds["n_trees"] == "KEYWORD_ONLY"


# --- nesting --------------------------------------------------------------------------------------------------------


def test_a_nested_model_is_the_model(tiny):
    model = umpteen.Centroid(labels_per_shard=9, tfidf=True).fit(tiny.X, tiny.Y).model_
    record, parts, shards = nest(model, "inner-")
    assert all(name.startswith("inner-") for name in parts)
    record = json.loads(json.dumps(record))
    inner = TrainedModel.open(*unnest(record, model.header, parts, "inner-", shards))
    np.testing.assert_array_equal(inner.predict_topk(tiny.X)[1], model.predict_topk(tiny.X)[1])
    for wrong, message in [
        ([], "must have a header"),
        (record | {"n_shards": 3}, "must have 3 shards, but has 5"),
        (record | {"n_shards": True}, r"n_shards of a nested model must be in \[1, 5\], but is True"),
        (record | {"n_shards": 2**31}, r"n_shards of a nested model must be in \[1, 5\], but is 2147483648"),
        (record | {"shared": 7}, "shared, the parts of a nested model, must be a list of names, but is 7"),
        (record | {"shared": ["labels", "other"]}, "part inner-other of a nested model is missing"),
        (record | {"header": record["header"] | {"n_labels": 7}}, "must have n_labels 40, but has 7"),
    ]:
        with pytest.raises(ModelCorruptError, match=message):
            unnest(wrong, model.header, parts, "inner-", shards)


def test_blends_are_not_pruned(tiny):
    members = [umpteen.Centroid().fit(tiny.X[:200], tiny.Y[:200]), umpteen.DiSMEC().fit(tiny.X[:200], tiny.Y[:200])]
    blend = umpteen.Blend(members).fit(tiny.X[200:], tiny.Y[200:])
    with pytest.raises(
        ParamError, match="only linear models have weights to prune, but this model's family is blend"
    ):
        blend.model_.pruned(0.1)


# --- families -------------------------------------------------------------------------------------------------------


def test_every_family_stands_in_the_table_by_its_own_name():
    for name in FAMILIES:
        assert scorer_class(name).family == name
        assert issubclass(scorer_class(name), Scorer)
    assert scorer_class("label tree") is scorer_class("label-tree")  # as models of 0.1 spell it
    for wrong in ("linear ", None, [], 3):
        with pytest.raises(ModelFormatError, match="family must be one of linear, forest"):
            scorer_class(wrong)


@pytest.mark.parametrize("name", ["dismec", "fastxml", "rxml", "rxml-global", "label-tree"])
def test_every_family_brings_scores_into_the_unit_interval(name, tiny):
    scorer = method_class(name)().fit(tiny.X, tiny.Y).model_.scorer
    scores = np.array([-np.inf, -1e30, -700, -1, 0, 0.3, 1, 2, 1e30], np.float32)
    scores = scores[(scores >= 0) | (scores == -np.inf)] if name == "rxml" else scores  # votes are not negative
    unit = scorer.to_unit(scores)
    assert unit.dtype == np.float32
    assert unit[0] == 0
    assert ((unit >= 0) & (unit <= 1)).all()
    assert (np.diff(unit) >= 0).all()


@pytest.mark.parametrize(
    ("name", "one"),
    [("dismec", ""), ("fastxml", "tree"), ("rxml", "neighbour"), ("label-tree", "tree"), ("rxml-global", "")],
)
def test_every_family_names_what_votes(name, one, tiny):
    method = method_class(name)().fit(tiny.X, tiny.Y)
    label = int(method.predict_topk(tiny.X[0], 1)[0][0, 0])
    found = method.explain(tiny.X[0], label)
    assert found.family == method.model_.family
    assert (one in found.note) if one else (found.note == "")
    assert method.model_.scorer.meaning.endswith(".")


def test_a_trained_model_is_opened_as_one_whatever_it_was_trained_on(tmp_path, tiny):
    names = [f"label {i:02}" for i in range(tiny.n_labels)]
    lists = [[names[label] for label in row.indices] for row in tiny.Y]
    umpteen.Tagger("centroid", features="precomputed").fit(tiny.X, lists).save(tmp_path / "a.model")
    model = umpteen.TrainedModel.load(tmp_path / "a.model", checksums=True)
    assert type(model) is umpteen.TrainedModel
    expected = umpteen.Tagger.load(tmp_path / "a.model").model_
    assert np.array_equal(model.decision_function(tiny.X), expected.decision_function(tiny.X))
