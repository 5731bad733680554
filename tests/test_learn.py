"""Corrections: the labels concerned get better, the others stay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import umpteen
from umpteen.data.corrections import Correction, read_corrections
from umpteen.errors import DataError, ModelCorruptError, ModelExistsError, ParamError
from umpteen.methods import correcting
from umpteen.methods.correcting import CORRECTIONS, Corrections
from umpteen.storage.store import ModelWriter, Part, read_version

from .files import read_files
from .test_cli_text import run
from .test_growth import probability, write_lines
from .test_tagger import cooking  # noqa: F401  (a fixture)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def saved(cooking, tmp_path_factory):  # noqa: F811
    """A model of a part of the questions, as a directory; it keeps some of them."""
    train, _ = cooking
    path = tmp_path_factory.mktemp("learn") / "m"
    umpteen.Tagger(umpteen.DiSMEC(), keep_rows=300).fit(train.texts[:3000], train.labels[:3000], path)
    return path


@pytest.fixture
def tagger(saved):
    return umpteen.load(saved)


# --- corrections --------------------------------------------------------------------------------------------------


def test_learning_the_rest_improves_a_model(cooking):  # noqa: F811
    """Half of the way from a model of 1,500 texts to one of 2,100, without training the rest."""
    train, test = cooking
    tagger = umpteen.Tagger(umpteen.DiSMEC(), calibration=0).fit(train.texts[:1500], train.labels[:1500])
    whole = umpteen.Tagger(umpteen.DiSMEC(), calibration=0).fit(train.texts[:2100], train.labels[:2100])
    before, want = (model.evaluate(test.texts, test.labels, deciles=False) for model in (tagger, whole))
    tagger.learn(train.texts[1500:2100], train.labels[1500:2100])
    after = tagger.evaluate(test.texts, test.labels, deciles=False)
    for k in (1, 3, 5):
        assert after[f"P@{k}"] > (before[f"P@{k}"] + want[f"P@{k}"]) / 2


def test_suggestions_accepted_and_rejected_improve_a_model(saved, cooking, monkeypatch):  # noqa: F811
    """They are no random sample: without the other rows corrected, which hold labels back, P@5 fell."""
    texts, labels = cooking[0].texts[4000:4800], cooking[0].labels[4000:4800]
    before = umpteen.load(saved)
    suggested = [[name for name, _ in row] for row in before.suggest(texts, 5)]
    judged = [
        Correction(text, own, [name for name in found if name not in own])
        for text, own, found in zip(texts, labels, suggested, strict=True)
    ]
    tagger = umpteen.load(saved).learn_from(judged)
    metrics = [t.evaluate(cooking[1].texts, cooking[1].labels, deciles=False) for t in (before, tagger)]
    for name in ("P@1", "P@3", "P@5"):
        assert metrics[1][name] > metrics[0][name]
    # Rows that say nothing of a label hardly rise, however much others speak for it.
    bread = [Correction(text, ["bread"]) for text, own in zip(texts, labels, strict=True) if "cake" in own]
    others = [Correction(text, [own[0]]) for text, own in zip(texts, labels, strict=True) if "baking" in own]
    others = [said for said in others if said.text not in {said.text for said in bread}]
    assert min(len(bread), len(others)) >= 10
    rises = []
    for floor in (correcting._NEAR, 100.0):  # with and without holding
        monkeypatch.setattr(correcting, "_NEAR", floor)
        learnt = umpteen.load(saved).learn_from([*others, *bread])
        scores = [
            t.fitted().predict_topk(t.vectorize([said.text for said in others]).X, 1, include=["bread"])[1]
            for t in (umpteen.load(saved), learnt)
        ]
        rises.append(float(np.maximum(scores[1] - np.maximum(scores[0], -0.8), 0).mean()))
    assert rises[0] < 0.6 * rises[1]


def test_a_correction_concerns_its_labels_only(tagger):
    text = "How do I store tomatoes in a cast iron pan?"
    names = [name for name, _ in tagger.suggest(text, 2)]
    old, W = tagger.fitted(), tagger.fitted().scorer.to_weights()[0]
    before = {name: probability(tagger, text, name) for name in (*names, "bread")}
    tagger.learn(text, accepted=[names[0]], rejected=[names[1]], added=["bread"])
    model = tagger.fitted()
    assert probability(tagger, text, names[1]) < before[names[1]]
    assert probability(tagger, text, "bread") > before["bread"]
    assert probability(tagger, text, names[0]) >= before[names[0]]
    concerned = [model.ids_by_name[name] for name in (*names, "bread")]
    others = np.setdiff1d(np.arange(old.n_labels), concerned)
    changed = model.scorer.to_weights()[0][:, : old.n_features]
    assert abs(changed[others] - W[others]).max() == 0
    assert model.header["n_train_rows"] == old.header["n_train_rows"] + 1
    bread = model.ids_by_name["bread"]
    assert model.train_counts.counts[bread] == old.train_counts.counts[bread] + 1


def test_the_last_word_counts_and_earlier_ones_are_not_forgotten(tagger):
    tagger.learn("polishing a teapot", ["equipment", "teapots"])
    assert tagger.classes_[-1] == "teapots"
    assert [name for name, _ in tagger.suggest("polishing a teapot", 2)] == ["equipment", "teapots"]
    first = probability(tagger, "polishing a teapot", "teapots")
    for i in range(20):
        tagger.learn(f"question {10 + i} about a samovar", rejected=["teapots"], accepted=["tea"])
    assert probability(tagger, "polishing a teapot", "teapots") > 0.7 * first
    tagger.learn("polishing a teapot", ["equipment"])
    assert probability(tagger, "polishing a teapot", "teapots") < first / 3
    known = Corrections.of(tagger.fitted())
    assert known.X.shape[0] == 21
    assert known.of_label(tagger.fitted().ids_by_name["teapots"]).signs[0] == -1


def test_one_call_or_many_and_the_same_bytes(saved, cooking, tmp_path):  # noqa: F811
    texts, labels = cooking[0].texts[3000:3040], cooking[0].labels[3000:3040]
    for name in ("a", "b"):
        umpteen.load(saved).learn(texts, labels).save(tmp_path / name)
    assert read_files(tmp_path / "a", "*.npy") == read_files(tmp_path / "b", "*.npy")
    again = umpteen.load(tmp_path / "a", checksums=True)
    again.learn(texts[:3], labels[:3])
    assert Corrections.of(again.fitted()).X.shape[0] == 40  # texts it had
    one_by_one = umpteen.load(saved)
    for text, own in zip(texts, labels, strict=True):
        one_by_one.learn(text, own)
    wanted, got = (dict(model.suggest(texts[0], 5)) for model in (umpteen.load(tmp_path / "a"), one_by_one))
    assert len(wanted.keys() & got.keys()) >= 4


def test_only_the_latest_corrections_are_kept(tagger, monkeypatch):
    monkeypatch.setattr("umpteen.methods.correcting.MOST_ROWS", 3)
    for word in ("anvil", "bellows", "chisel", "drill", "engine"):
        tagger.learn(f"cleaning a {word}", [f"{word}s"])
    known = Corrections.of(tagger.fitted())
    assert known.X.shape[0] == 3
    assert known.pairs.rows.max() == 2
    assert tagger.suggest("anvil", 1)[0][0] == "anvils"  # what was learnt stays


def test_corrections_that_cannot_be_learnt(tagger, tiny):
    for arguments, error, message in [
        ({}, ParamError, "learn needs either labels or some of accepted, rejected and added"),
        ({"labels": [], "added": ["bread"]}, ParamError, "learn needs either labels or some"),
        ({"accepted": []}, DataError, "text 0: a correction must name a label, but names none"),
        ({"accepted": ["a"], "rejected": ["a"]}, DataError, "must not be both right and rejected, but 'a' is"),
        ({"labels": "bread"}, DataError, "labels must be a list of names for each text"),
    ]:
        with pytest.raises(error, match=message):
            tagger.learn("a text", **arguments)
    with pytest.raises(DataError, match="labels must have a list for each of the 2 texts, but has 1"):
        tagger.learn(["a", "b"], [["bread"]])
    with pytest.raises(DataError, match="at least one correction"):
        tagger.learn([], [])
    with pytest.raises(DataError, match="must have a text with a word in it, but none of them has one"):
        tagger.learn(["", "?!"], [["bread"], ["bread"]])
    texts, labels = ["red wine", "white wine", "a cod"] * 5, [["wine"], ["wine"], ["fish"]] * 5
    for method in (umpteen.Centroid(), umpteen.FastXML(n_trees=2)):
        other = umpteen.Tagger(method, calibration=0).fit(texts, labels)
        with pytest.raises(ParamError, match="corrections are learnt by dismec and ppdsparse"):
            other.learn("cod", ["fish"])


@pytest.mark.parametrize("method", [umpteen.PPDSparse(), umpteen.DiSMEC(loss="logistic", C=10)], ids=str)
def test_other_methods_with_a_margin_learn_too(method):
    texts, labels = (
        ["red wine", "white wine", "a cod", "the cod in the sea"] * 5,
        [["wine"], ["wine"], ["fish"], ["fish"]] * 5,
    )
    tagger = umpteen.Tagger(method, calibration=0).fit(texts, labels)
    before = probability(tagger, "a cod in red wine", "fish")
    tagger.learn("a cod in red wine", ["fish"])
    assert probability(tagger, "a cod in red wine", "fish") > before
    assert tagger.suggest("a cod in red wine", 1)[0][0] == "fish"


def test_a_model_of_an_unknown_method_says_that_it_does_not_learn(saved, tmp_path):
    model = Path(shutil.copytree(saved, tmp_path / "m"))
    manifest = json.loads((model / "manifest.json").read_text())
    (model / "manifest.json").write_text(json.dumps(manifest | {"method": "their-method"}))
    with pytest.raises(ParamError, match="but this model's method is their-method"):
        umpteen.load(model).learn("a teapot", ["teapots"])


def test_rows_of_numbers_are_corrected_too(tiny):
    labels = [[f"l{label}" for label in row] for row in np.split(tiny.Y.indices, tiny.Y.indptr[1:-1])]
    tagger = umpteen.Tagger(umpteen.DiSMEC(), "precomputed", calibration=0).fit(tiny.X[:200], labels[:200])
    before = tagger.score(tiny.X[200:], labels[200:])
    tagger.learn(tiny.X[200:], labels[200:])
    assert tagger.score(tiny.X[200:], labels[200:]) > before


@pytest.mark.parametrize("change", ["rows", "labels", "signs", "alphas", "complete", "indices"])
def test_damaged_corrections_are_refused_not_followed(tagger, change):
    tagger.learn("polishing a teapot", ["equipment", "teapots"])
    model = tagger.fitted()
    part = model.parts[CORRECTIONS]
    arrays = {name: np.array(array) for name, array in part.arrays.items()}
    arrays[change] = arrays[change][:-1] if change == "complete" else np.append(arrays[change][:-1], -7).astype(
        arrays[change].dtype
    )  # fmt: skip
    with pytest.raises(ModelCorruptError):
        Corrections.of(model.with_part(CORRECTIONS, Part(arrays)))


@pytest.mark.parametrize("name", ["labels", "rows", "signs", "alphas", "complete"])
def test_corrections_of_another_type_are_refused(tagger, name):
    tagger.learn("polishing a teapot", ["equipment", "teapots"])
    model = tagger.fitted()
    part = model.parts[CORRECTIONS]
    other = np.int32 if part.arrays[name].dtype.kind in "fu" else np.float32
    arrays = part.arrays | {name: np.asarray(part.arrays[name]).astype(other)}
    with pytest.raises(ModelCorruptError, match="must have their types"):
        Corrections.of(model.with_part(CORRECTIONS, Part(arrays)))


# --- the command line ---------------------------------------------------------------------------------------------


def test_the_command_learns_and_replaces(saved, tmp_path):
    model = tmp_path / "m"
    shutil.copytree(saved, model)
    file = write_lines(
        tmp_path / "c.jsonl",
        {"text": "polishing a teapot", "labels": ["equipment", "teapots"]},
        {"text": "a copper teapot", "accepted": ["equipment"], "rejected": ["baking"], "added": ["teapots"]},
    )
    output = run("learn", model, file, "--model", tmp_path / "new")
    assert "2 corrections" in output
    assert "new: teapots" in output
    assert read_version(model) == read_version(saved)
    with pytest.raises(ModelExistsError, match="already exists"):
        run("learn", model, file, "--model", tmp_path / "new")
    run("learn", model, file)
    assert read_files(model, "*.npy") == read_files(tmp_path / "new", "*.npy")
    assert umpteen.load(model).suggest("a teapot", 1)[0][0] in ("teapots", "equipment")
    facts = run("inspect", model)
    assert "kept_rows            300" in facts
    assert "corrections          2" in facts


def test_the_command_says_what_it_could_not_learn(saved, tmp_path):
    file = write_lines(
        tmp_path / "c.jsonl",
        {"text": "?!", "labels": ["bread"]},
        {"text": "a copper teapot", "accepted": ["equipment"], "rejected": ["teapotts"]},
    )
    output = run("learn", saved, file, "--model", tmp_path / "new")
    assert "note: 1 of them have no word, so nothing was learnt from those" in output
    assert "note: rejected labels that the model does not have: teapotts" in output
    old, new = (umpteen.load(path).fitted() for path in (saved, tmp_path / "new"))
    assert Corrections.of(new).X.shape[0] == 1
    assert new.train_counts.counts[new.ids_by_name["bread"]] == old.train_counts.counts[old.ids_by_name["bread"]]


def test_a_learning_that_is_stopped_leaves_the_old_model(saved, tmp_path, monkeypatch):
    model = tmp_path / "m"
    shutil.copytree(saved, model)
    file = write_lines(tmp_path / "c.jsonl", {"text": "a teapot", "labels": ["teapots"]})
    finish = ModelWriter.finish

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ModelWriter, "finish", stop)
    with pytest.raises(KeyboardInterrupt):
        umpteen.load(model).learn("a teapot", ["teapots"]).save(model, overwrite=True)
    assert read_version(model) == read_version(saved)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["m"]
    umpteen.load(model, checksums=True)
    monkeypatch.setattr(ModelWriter, "finish", finish)
    run("learn", model, file)
    assert "teapots" in umpteen.load(model, checksums=True).classes_


def test_lines_that_are_no_corrections(tmp_path):
    good = {"text": "a", "labels": []}
    for row, message in [
        ([], r"c\.jsonl:2: a line must hold a JSON object, but holds \[\]"),
        ({"labels": []}, "there must be a field 'text' with a string, but it is None"),
        ({"text": "a"}, "must have either 'labels' or some of 'accepted', 'rejected' and 'added', but has none"),
        ({"text": "a", "labels": [], "added": ["b"]}, "but has 'labels', 'added'"),
        ({"text": "a", "labels": "b"}, "labels must be a list of label names, but is 'b'"),
        ({"text": "a", "accepted": [7]}, "accepted must hold label names, but holds 7"),
        ({"text": "a", "accepted": []}, "a correction must name a label, but names none"),
        ({"text": "a", "accepted": ["b"], "rejected": ["b"]}, "must not be both right and rejected, but 'b' is"),
    ]:
        with pytest.raises(DataError, match=message):
            read_corrections(write_lines(tmp_path / "c.jsonl", good, row))
    (tmp_path / "c.jsonl").write_text('{"text": "a"\n')
    with pytest.raises(DataError, match=r"c\.jsonl:1: column .*: not valid JSON"):
        read_corrections(tmp_path / "c.jsonl")
    found = read_corrections(
        write_lines(tmp_path / "c.jsonl", good, {"text": "b", "added": ["x"], "rejected": ["y"]})
    )
    assert found == [Correction("a", [], (), True), Correction("b", ["x"], ["y"], False)]
