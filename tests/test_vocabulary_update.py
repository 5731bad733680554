"""New editions of a vocabulary: concepts and labels keep their numbers, whatever happens to their names."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.learning import update_vocabulary as update_directory
from umpteen.storage.store import Part, read_version
from umpteen.tagging.updating import RETIRED
from umpteen.trained.model import TrainedModel
from umpteen.vocabulary.concepts import Concept, Term, Vocabulary
from umpteen.vocabulary.updating import update_vocabulary

from .test_vocabulary import everything, real

TEXTS = [
    "herring quotas",
    "cod quotas in the sea",
    "a tax on wine",
    "wine and beer tax",
    "the salt of the ocean",
] * 10
LABELS = [["fish"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"], ["ocean"]] * 10


def concept(name, *alternative, language="en", uri=None, **more):
    terms = [Term(name, language, "preferred"), *(Term(text, language, "alternative") for text in alternative)]
    return Concept(f"u:{name}" if uri is None else uri, terms, **more)


def vocabulary(*concepts):
    return Vocabulary.build(concepts, language="en")


def edition(**changes):
    """The concepts of TEXTS, with some replaced by name, or left out with None."""
    found = {name: changes.get(name, concept(name)) for name in ("fish", "ocean", "sea", "tax", "wine")}
    extra = [made for name, made in changes.items() if name not in found]
    return vocabulary(*(made for made in [*found.values(), *extra] if made is not None))


@pytest.fixture
def tagger():
    return umpteen.Tagger("dismec", vocabulary=edition()).fit(TEXTS, LABELS)


def names(tagger, text, **more):
    return [name for name, _ in tagger.suggest(text, top_k=6, **more)]


# --- concepts ------------------------------------------------------------------------------------------------------


def test_concepts_keep_their_numbers():
    new = vocabulary(concept("lake"), concept("deep sea", uri="u:sea"), concept("tax", broader=["u:lake"]))
    old = edition()
    updated = update_vocabulary(old, new)
    assert list(updated.uris) == [*old.uris, "u:lake"]
    assert updated.names() == ["fish", "ocean", "deep sea", "tax", "wine", "lake"]
    assert updated.deprecated.tolist() == [True, True, False, False, True, False]
    assert updated.broader(3) == [5]
    assert everything(update_vocabulary(updated, new)) == everything(updated)  # the same edition again


def test_a_list_follows_names_and_gets_uris():
    old = Vocabulary.build([Concept("", [Term(name, "", "preferred")]) for name in ("fish", "fishes", "sea")])
    updated = update_vocabulary(old, Vocabulary.build([concept("fish", "fishes")]))
    assert list(updated.uris) == ["u:fish", "", ""]
    assert [updated.current(i) for i in range(3)] == [0, 0, 2]
    assert updated.deprecated.tolist() == [False, True, True]


def test_an_edition_in_another_language_is_refused():
    with pytest.raises(ParamError, match="must have names in the language of the old one.*fi, but is 'en'"):
        update_vocabulary(edition(), Vocabulary.build([concept("kala", language="fi")]))


# --- labels --------------------------------------------------------------------------------------------------------


def test_renamed_concepts_keep_their_ids_and_scores(tagger):
    before = tagger.suggest("cod in the sea", top_k=5)
    change = tagger.update_vocabulary(edition(sea=concept("seas and oceans", uri="u:sea")))
    assert change.renamed == [("sea", "seas and oceans")]
    assert list(tagger.classes_) == ["fish", "ocean", "seas and oceans", "tax", "wine"]
    after = tagger.suggest("cod in the sea", top_k=5)
    assert [value for _, value in after] == [value for _, value in before]
    assert change.retired == change.added == change.removed == []
    assert "seas and oceans" not in names(tagger, "sea", exclude=["u:sea"])


@pytest.mark.parametrize("made", [None, concept("sea", deprecated=True)])
def test_what_is_gone_or_deprecated_is_suggested_no_more(tagger, made):
    assert "sea" in names(tagger, "sea")
    change = tagger.update_vocabulary(edition(sea=made))
    assert change.retired == ["sea"]
    assert (change.removed, change.deprecated) == ((["sea"], []) if made is None else ([], ["sea"]))
    assert change.n_after == change.n_before - 1
    assert names(tagger, "sea", include=["sea", "fish"]) == ["fish"]
    assert "sea" not in names(tagger, "sea")
    assert 2 not in tagger.model_.predict_topk(tagger.vectorize(TEXTS).X, 5)[0]
    assert tagger.model_.n_labels == 5
    again = tagger.update_vocabulary(edition())
    assert again.restored == ["sea"]
    assert "sea" in names(tagger, "sea")


def test_a_replaced_concept_passes_its_label_on_unless_there_is_one(tagger):
    water = concept("water")
    change = tagger.update_vocabulary(
        edition(
            wine=concept("wine", replaced_by="u:water"),
            water=water,
            ocean=concept("ocean", deprecated=True, replaced_by="u:sea"),
        )
    )  # fmt: skip
    assert change.added == ["water"]
    assert change.renamed == [("wine", "water")]
    assert change.merged == [("ocean", "sea")]
    assert change.retired == ["ocean"]
    assert list(tagger.classes_) == ["fish", "ocean", "sea", "tax", "water"]
    assert names(tagger, "wine")[0] in ("tax", "water")
    assert "ocean" not in names(tagger, "the salt of the ocean")
    assert names(tagger, "wine", include="u:wine") == ["water"]


def test_of_two_that_are_merged_into_a_third_the_more_frequent_stays(tagger):
    gone = {"deprecated": True, "replaced_by": "u:water"}
    change = tagger.update_vocabulary(
        edition(sea=concept("sea", **gone), fish=concept("fish", **gone), water=concept("water"))
    )
    assert change.merged == [("sea", "water")]
    assert change.renamed == [("fish", "water")]


def test_two_concepts_with_one_name_stay_apart(tagger):
    change = tagger.update_vocabulary(edition(bank=concept("sea", uri="u:bank")))
    assert list(tagger.classes_) == ["fish", "ocean", "sea (u:sea)", "tax", "wine"]
    assert change.renamed == [("sea", "sea (u:sea)")]


def test_a_label_that_was_no_concept_may_become_one(tagger):
    with pytest.warns(UserWarning, match="salt"):
        tagger = umpteen.Tagger("dismec", vocabulary=edition()).fit(TEXTS, [[*row, "salt"] for row in LABELS])
    tagger.add_labels(["salt and pepper"] * 3, [["salt"]] * 3)
    assert tagger.suggest("pepper", include="salt", top_k=1).uris == [""]
    tagger.update_vocabulary(edition(salt=concept("salt", "sodium chloride")))
    assert tagger.suggest("pepper", include="sodium chloride", top_k=1).uris == ["u:salt"]


def test_a_model_without_vocabulary_refuses_an_edition():
    with pytest.raises(ParamError, match="must have been trained with a vocabulary"):
        umpteen.Tagger("dismec").fit(TEXTS, LABELS).update_vocabulary(edition())


@pytest.mark.parametrize("labels", [[-1], [5], [2, 1], [1, 1]])
def test_damaged_retired_labels_are_refused(tagger, labels):
    model = tagger.model_
    with pytest.raises(ModelCorruptError, match=r"retired labels must rise within \[0, 5\)"):
        model.with_part(RETIRED, Part({"labels": np.array(labels, np.int32)}))


def test_retired_labels_have_no_probability(tagger):
    tagger.update_vocabulary(edition(sea=None))
    X = tagger.vectorize(["sea"]).X
    assert tagger.model_.predict_proba(X)[0, 2] == 0
    assert tagger.model_.predict_proba(X)[0, 0] > 0


# --- a directory ---------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tagger, tmp_path):
    tagger.save(tmp_path / "model")
    return tmp_path / "model"


def write(path, *concepts):
    umpteen.write_vocabulary(vocabulary(*concepts), path)
    return path


def test_a_directory_is_replaced_whole_or_not_at_all(saved, tmp_path, monkeypatch):
    new = write(tmp_path / "new.csv", concept("fish"), concept("taxes", uri="u:tax"), concept("wine"), concept("ale"))
    before = read_version(saved)
    with monkeypatch.context() as patch:
        patch.setattr(TrainedModel, "save", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            update_directory(saved, new)
    assert read_version(saved) == before
    with pytest.raises(DataError, match=r"broken\.csv:1"):
        update_directory(saved, _broken(tmp_path))
    assert read_version(saved) == before
    change = umpteen.update_vocabulary(saved, new)
    assert change.added == ["ale"]
    assert sorted(change.retired) == ["ocean", "sea"]
    again = umpteen.load(saved)
    assert list(again.classes_) == ["fish", "ocean", "sea", "taxes", "wine"]
    assert "sea" not in names(again, "sea")
    assert umpteen.load(saved, checksums=True).vocabulary.find("ale") == 5


def _broken(tmp_path):
    (tmp_path / "broken.csv").write_text("url,label_en\nu:1,fish\n")
    return tmp_path / "broken.csv"


def run(*arguments):
    return CliRunner().invoke(app, ["vocabulary", *map(str, arguments)])


def test_update_at_the_command_line(saved, tmp_path):
    new = write(tmp_path / "new.csv", concept("fish"), concept("taxes", uri="u:tax"), concept("wine"), concept("ale"))
    before = read_version(saved)
    tried = run("update", saved, new, "--dry-run")
    assert tried.exit_code == 0, tried.output
    assert read_version(saved) == before
    done = run("update", saved, new, "--model", tmp_path / "other")
    assert done.output.splitlines()[:-1] == tried.output.splitlines()[:-1]
    assert read_version(saved) == before
    words = " ".join(done.output.split())
    assert "concepts 4 in use, before 5" in words
    assert "tax → taxes" in words
    assert "2 labels are suggested no more: ocean sea" in words
    assert list(umpteen.load(tmp_path / "other").classes_) == ["fish", "ocean", "sea", "taxes", "wine"]


def test_search_and_export_at_the_command_line(saved, tmp_path):
    rich = umpteen.Tagger("dismec", vocabulary=edition(sea=concept("sea", "deep waters"))).fit(TEXTS, LABELS)
    rich.save(tmp_path / "rich")
    found = run("search", tmp_path / "rich", "WATERS")
    assert found.output == "sea  deep waters (en)  u:sea\n"
    assert run("search", tmp_path / "rich", "fihs").output == "fish  u:fish\n"
    done = run("export", tmp_path / "rich", tmp_path / "out.nt")
    assert done.exit_code == 0, done.output
    again = umpteen.read_vocabulary(tmp_path / "out.nt", language="en")
    assert sorted(everything(again)) == sorted(everything(rich.vocabulary))
    plain = tmp_path / "plain"
    umpteen.Tagger("dismec").fit(TEXTS, LABELS).save(plain)
    assert "must be a model with a vocabulary" in str(run("search", plain, "sea").exception)


# --- a real one ----------------------------------------------------------------------------------------------------


def test_an_edition_of_yso_with_everything_that_happens():
    old = umpteen.read_vocabulary(real("YSO-Finna-EN", "vocabulary.tsv.xz"), language="en")
    concepts = [old.concept(i) for i in range(len(old))]
    renamed = [c._replace(terms=[Term("the " + t.text, *t[1:]) for t in c.terms]) for c in concepts[100:110]]
    new = Vocabulary.build([*renamed, *concepts[1000:], concept("never there before")], language="en")
    updated = update_vocabulary(old, new)
    assert len(updated) == len(old) + 1
    assert list(updated.uris[: len(old)]) == list(old.uris)
    assert int(updated.deprecated.sum()) == 990
    assert updated.name(100) == "the " + old.name(100)
    assert updated.name(2000, "fi") == old.name(2000, "fi")
    assert sum(array.nbytes for array in updated.to_part().arrays.values()) < 6_000_000
