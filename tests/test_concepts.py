"""Taggers with a vocabulary: labels in any form, names in any language, kept in the model."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.storage.store import Part
from umpteen.tagging.concepts import CONCEPTS, LabelConcepts
from umpteen.vocabulary.concepts import Concept, Term, Vocabulary

TEXTS = ["herring quotas", "cod quotas in the sea", "a tax on wine", "wine and beer tax"] * 10
CSV = """uri,notation,label_en,label_fi
http://ex.org/fish,QL,fish,kala
http://ex.org/sea,GC,sea,meri
http://ex.org/tax,,tax,vero
http://ex.org/wine,TP,wine,viini
http://ex.org/beer,TX,beer,olut
"""
NAMES = [["fish"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10
MIXED = [["http://ex.org/fish"], ["kala", "GC"], ["<http://ex.org/tax>", "WINE"], ["vero", "TP"]] * 10


@pytest.fixture
def path(tmp_path):
    (tmp_path / "v.csv").write_text(CSV)
    return tmp_path / "v.csv"


@pytest.fixture
def vocabulary(path):
    return umpteen.read_vocabulary(path, language="en")


def train(vocabulary, labels=NAMES, texts=TEXTS, **more):
    return umpteen.Tagger("dismec", vocabulary=vocabulary, **more).fit(texts, labels)


def test_labels_in_any_form_train_the_same_model(vocabulary):
    plain = umpteen.Tagger("dismec").fit(TEXTS, NAMES)
    tagger = train(vocabulary, MIXED)
    assert list(tagger.classes_) == list(plain.classes_) == ["fish", "sea", "tax", "wine"]
    assert tagger.suggest("cod in the sea", top_k=4) == plain.suggest("cod in the sea", top_k=4)


def test_a_blend_of_taggers_keeps_the_vocabulary(vocabulary, tmp_path):
    members = [train(vocabulary), umpteen.Tagger("centroid", vocabulary=vocabulary).fit(TEXTS, NAMES)]
    blend = umpteen.Blend(members).fit(*members[0].encode(TEXTS, NAMES))
    blend.save(tmp_path / "model")
    found = umpteen.load(tmp_path / "model").suggest("herring", top_k=1, language="fi")
    assert [name for name, _ in found] == ["kala"]
    assert found.uris == ["http://ex.org/fish"]


def test_members_of_a_blend_must_have_the_same_vocabulary(vocabulary):
    plain = umpteen.Tagger("centroid").fit(TEXTS, NAMES)
    with pytest.raises(ParamError, match="same concepts"):
        umpteen.Blend([train(vocabulary), plain]).fit(*plain.encode(TEXTS, NAMES))


@pytest.mark.parametrize("saved", [False, True])
def test_suggestions_carry_uri_notation_and_the_language_asked_for(vocabulary, tmp_path, saved):
    tagger = train(vocabulary)
    if saved:
        tagger.save(tmp_path / "model")
        tagger = umpteen.load(tmp_path / "model")
    found = tagger.suggest("herring", top_k=1, language="fi")
    assert [name for name, _ in found] == ["kala"]
    assert (found.uris, found.notations) == (["http://ex.org/fish"], ["QL"])
    assert [name for name, _ in tagger.suggest("herring", top_k=1)] == ["fish"]
    both = tagger.suggest(["herring", "zzz"], top_k=1, language="fi")
    assert [row.uris for row in both] == [["http://ex.org/fish"], []]
    with pytest.raises(ParamError, match="language must be one of the vocabulary's, en, fi, but is 'de'"):
        tagger.suggest("herring", language="de")
    assert tagger.vocabulary.name(4, "fi") == "olut"  # concepts that no text has are kept too


def test_a_file_may_be_given_and_the_tagger_cloned(path, vocabulary):
    tagger = train(path, [["fish"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10)
    assert clone(tagger).fit(TEXTS, NAMES).concepts_ is not None
    assert list(tagger.concepts_.numbers) == [0, 1, 2, 3]
    with pytest.raises(ParamError, match="vocabulary must be a Vocabulary or a file, but is a list"):
        train(["fish"])


def test_labels_to_leave_out_may_be_named_in_any_form(vocabulary):
    tagger = train(vocabulary)
    for label in ("fish", "kala", "QL", "http://ex.org/fish"):
        assert "fish" not in [name for name, _ in tagger.suggest("herring", top_k=3, exclude=[label])]
        assert [name for name, _ in tagger.suggest("herring", top_k=3, include=label)] == ["fish"]
    with pytest.raises(ParamError, match="unknown label 'beer'"):
        tagger.suggest("herring", include=["beer"])  # a concept, but no label of the model


def test_evaluation_takes_labels_in_any_form(vocabulary):
    tagger = train(vocabulary)
    assert tagger.evaluate(TEXTS, MIXED).as_dict() == tagger.evaluate(TEXTS, NAMES).as_dict()


def test_labels_that_join_later_are_concepts_too(vocabulary, tmp_path):
    tagger = train(vocabulary, keep_rows=100)
    tagger.add_labels(["beer and ale", "ale"] * 3, [["olut"], ["TX"]] * 3)
    tagger.learn("herring and ale", labels=["http://ex.org/fish", "olut"])
    tagger.save(tmp_path / "model")
    again = umpteen.load(tmp_path / "model")
    assert list(again.classes_) == ["fish", "sea", "tax", "wine", "beer"]
    assert [name for name, _ in again.suggest("ale", top_k=1, language="fi")] == ["olut"]
    assert again.suggest("ale", top_k=1).uris == ["http://ex.org/beer"]


def test_unknown_labels_are_reported_with_the_nearest(vocabulary):
    labels = [["fisch", "fish"], *NAMES[1:]]
    with pytest.warns(
        UserWarning,
        match=r"1 of 5 labels \(1 of 71 times\) are left out: 'fisch' is not in the vocabulary; did you mean 'fish'",
    ):
        tagger = train(vocabulary, labels)
    assert list(tagger.classes_) == ["fish", "sea", "tax", "wine"]


def test_a_vocabulary_of_other_labels_is_refused(vocabulary):
    with pytest.raises(
        DataError, match=r"most labels must be in the vocabulary, but 4 of 4 labels \(70 of 70 times\) are not"
    ):
        train(vocabulary, [[f"x{name}x" for name in row] for row in NAMES])


def test_labels_of_replaced_concepts_become_the_others():
    def concept(name, **more):
        return Concept(f"u:{name}", [Term(name, "en", "preferred")], **more)

    vocabulary = Vocabulary.build([
        concept("fish"), concept("sea"), concept("tax"), concept("wine"),
        concept("pisces", deprecated=True, replaced_by="u:old"), concept("old", replaced_by="u:fish"),
        concept("a", replaced_by="u:b"), concept("b", replaced_by="u:a"),
    ])  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger = train(vocabulary, [["pisces"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10)
    assert list(tagger.classes_) == ["fish", "sea", "tax", "wine"]
    assert vocabulary.current(vocabulary.find("u:a")) in (6, 7)  # ends


@pytest.mark.parametrize(
    "numbers", [np.array([0, 1, 2, 5], np.int32), np.array([-2, 0, 0, 0], np.int32), np.zeros(5, np.int32)]
)
def test_damaged_concepts_are_refused(vocabulary, numbers):
    model = train(vocabulary).model_
    part = model.parts[CONCEPTS]
    damaged = model.with_part(CONCEPTS, Part({**part.arrays, "labels": numbers}, part.scalars))
    with pytest.raises(ModelCorruptError, match="concepts must be in the vocabulary"):
        LabelConcepts.open(damaged)


def test_a_model_without_vocabulary_refuses_a_language():
    tagger = umpteen.Tagger("dismec").fit(TEXTS, NAMES)
    assert tagger.concepts_ is None
    assert tagger.suggest("herring", top_k=1).uris == []
    with pytest.raises(ParamError, match="since the model has no vocabulary"):
        tagger.suggest("herring", language="fi")


# --- command line --------------------------------------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path):
    lines = (json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, MIXED, strict=True))
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    return tmp_path / "corpus.jsonl"


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_train_and_suggest_at_the_command_line(path, corpus, tmp_path):
    model = tmp_path / "model"
    done = run("train", corpus, "--method", "dismec", "--model", model, "--vocabulary", path, "--language", "en")
    assert done.exit_code == 0, done.output
    assert "5 concepts, 10 terms, en, fi" in done.output
    shown = run("suggest", model, "herring", "--top-k", "1", "--language", "fi")
    assert shown.output.split()[0] == "kala"
    assert "QL http://ex.org/fish" in shown.output
    told = json.loads(run("suggest", model, "herring", "--top-k", "1", "--language", "fi", "--json", "-").output)
    (found,) = told["suggestions"]
    assert (found["label"], found["uri"], found["notation"]) == ("kala", "http://ex.org/fish", "QL")
    explained = run("suggest", model, "herring", "--top-k", "1", "--language", "fi", "--explain")
    assert explained.exit_code == 0
    assert "herring" in explained.output


def test_options_of_vocabularies_are_checked(path, corpus, tmp_path):
    alone = run("train", corpus, "--language", "en", "--model", tmp_path / "m")
    assert isinstance(alone.exception, ParamError)
    assert "--language en goes with --vocabulary" in str(alone.exception)
    wrong = run("train", corpus, "--vocabulary", path, "--language", "de", "--model", tmp_path / "m")
    assert isinstance(wrong.exception, ParamError)
    assert "en, fi, but is 'de'" in str(wrong.exception)


def test_unknown_labels_are_reported_at_the_command_line(path, tmp_path):
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, NAMES, strict=True)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join([*lines, json.dumps({"text": "herring", "labels": ["fisch"]})]))
    done = run("train", corpus, "--method", "dismec", "--model", tmp_path / "m", "--vocabulary", path, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "note       1 of 5 labels" in done.output
    assert "did you mean 'fish'" in done.output
    assert not (tmp_path / "m").exists()
