"""Several kinds of terms side by side: each part as scikit-learn makes it, saved, grown and explained as one."""

from __future__ import annotations

import json
import unicodedata

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion
from typer.testing import CliRunner

import umpteen
from umpteen.choosing.features import MIXED
from umpteen.cli.main import app
from umpteen.errors import ModelCorruptError, NotFittedError, ParamError
from umpteen.storage.store import Part
from umpteen.text.features import describe, make_features, restore
from umpteen.text.union import NAMED, TfidfUnion

from .conftest import data_root

TEXTS = ["Herring quotas in the sea", "cod quotas at sea", "a tax on wine", "wine and beer taxes"] * 10
LABELS = [["fish", "sea"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10


@pytest.fixture(scope="module")
def cooking():
    path = data_root() / "StackExchange-Cooking" / "train.jsonl.xz"
    if not path.exists():
        pytest.skip(f"no StackExchange-Cooking in {data_root()}; set UMPTEEN_DATA to run this test")
    return umpteen.read_corpus(path)


def assert_same(left, right):
    assert left.shape == right.shape
    np.testing.assert_array_equal(left.indptr, right.indptr)
    np.testing.assert_array_equal(left.indices, right.indices)
    np.testing.assert_array_equal(left.data, right.data)


@pytest.mark.data
def test_equal_to_a_union_of_sklearns(cooking):
    texts = cooking.texts[:2000]
    folded = {"preprocessor": lambda text: unicodedata.normalize("NFKC", text).casefold()}
    settings = {"w": dict(NAMED["word"]), "c": dict(NAMED["char_wb"])}
    assert all(params.pop("all_scripts") for params in settings.values())
    theirs = FeatureUnion(
        [(name, TfidfVectorizer(**folded, **params)) for name, params in settings.items()],
        transformer_weights={"w": 3 / 5, "c": 4 / 5},
    )
    ours = TfidfUnion(["word", "char_wb"], weights=[3, 4])
    expected, X = theirs.fit_transform(texts), ours.fit_transform(texts)
    assert X.has_canonical_format
    assert abs(X - expected).max() < 1e-6
    assert list(ours.get_feature_names_out()) == [name[3:] for name in theirs.get_feature_names_out()]
    assert_same(ours.transform(texts), X)
    assert_same(TfidfUnion(["word", "char_wb"], weights=[3, 4], threads=1).fit(iter(texts)).transform(iter(texts)), X)
    lengths = np.asarray(X.multiply(X).sum(axis=1)).ravel()
    assert np.abs(lengths[np.diff(X.indptr) > 0] - 1).max() < 1e-5  # of unit length, if both parts have terms


def test_saved_grown_and_saved_again():
    union = TfidfUnion(["word", "char_wb"], weights=[1, 0.5]).fit(TEXTS)
    X = union.transform(TEXTS)
    new = ["goldfish in a bowl", "the goldfish swims"]
    grown = union.grown(new)
    assert union.grown(TEXTS) is union
    assert grown.n_features_ > union.n_features_
    old = union.n_features_
    assert list(grown.feature_names_[:old]) == list(union.feature_names_)
    assert_same(grown.transform(TEXTS)[:, :old].tocsr(), X)
    again = TfidfUnion.from_part(grown.to_part())
    assert_same(again.transform(new), grown.transform(new))
    assert list(again.feature_names_) == list(grown.feature_names_)
    column = list(grown.feature_names_).index("goldfish")
    assert column >= old
    assert {span.column for span in again.spans("goldfish") if span.end - span.begin == 8} == {column}
    twice = again.grown(["a shark"])  # blocks of both parts follow each other
    assert_same(twice.transform(new)[:, : again.n_features_].tocsr(), again.transform(new))
    assert twice.transform(["shark goldfish herring"]).has_sorted_indices


def test_rows_as_new_texts_have_them():
    union = TfidfUnion(["word", "char_wb"])
    X = union.fit_transform(TEXTS)
    rows = np.arange(0, 40, 4)  # only the first text's words
    seen, left = X[rows], X[[2, 3]]
    new = union.as_new(seen, left)
    parts = [
        part.as_new(part.transform([TEXTS[i] for i in rows]), part.transform(TEXTS[2:4])) for part in union.parts_
    ]
    expected = sp.hstack(parts).tocsr() / np.sqrt(2)
    assert abs(new - expected).max() < 1e-6
    assert new.nnz < left.nnz


@given(st.lists(st.text(alphabet="abé \n", max_size=12), min_size=2, max_size=6), st.integers(1, 3))
def test_parts_are_those_of_single_features(texts, threads):
    texts = [*texts, "some words here"]
    parts = [umpteen.Tfidf(), umpteen.Tfidf(analyzer="char", ngram_range=(1, 3))]
    union = TfidfUnion(parts, threads=threads)
    expected = sp.hstack([part.fit_transform(texts) for part in parts]).tocsr() / np.sqrt(2)
    X = union.fit_transform(texts)
    assert abs(X - expected).max() < 1e-6
    for i, text in enumerate(texts):
        known = {span.column for span in union.spans(text)} - {-1}
        assert known == set(X[i].indices.tolist())


def test_tagger_round_trip_and_reasons_add_up(tmp_path):
    tagger = umpteen.Tagger(umpteen.DiSMEC(), ["word", "char_wb"]).fit(TEXTS, LABELS, tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m")
    text = "Herrings, quotas and wines!"
    assert loaded.suggest(text, top_k=3) == tagger.suggest(text, top_k=3)
    found = loaded.explain(text, label="fish")
    words = dict(found.words)
    assert set(words) == {"herrings", "quotas", "and", "wines"}  # characters are told as the words they stand in
    assert words["herrings"] > 0 > words["wines"]
    assert abs(sum(words.values()) + found.base - found.score) < 1e-4
    assert found.unknown == ["herrings", "wines"]
    assert loaded.suggest("xyzzy") == []  # no known word
    assert loaded.method.get_params() == tagger.method.get_params()
    assert [part.analyzer for part in loaded.features.parts] == ["word", "char_wb"]


def test_labels_are_added_to_a_union(tmp_path):
    tagger = umpteen.Tagger(umpteen.DiSMEC(), ["word", "char_wb"], keep_rows=100).fit(TEXTS, LABELS)
    before = tagger.suggest(TEXTS[0], top_k=3)
    tagger.add_labels(["goldfish in a bowl", "a goldfish swims", "feed the goldfish"] * 3, [["goldfish"]] * 9)
    assert tagger.suggest("my goldfish", top_k=1)[0][0] == "goldfish"
    assert [name for name, _ in tagger.suggest(TEXTS[0], top_k=2)] == [name for name, _ in before[:2]]
    tagger.save(tmp_path / "grown")
    assert umpteen.load(tmp_path / "grown").suggest("my goldfish") == tagger.suggest("my goldfish")


def test_parameters():
    union = TfidfUnion(["word", umpteen.Tfidf(analyzer="char")], weights=[1, 2])
    assert clone(union).get_params()["weights"] == [1, 2]
    assert describe(union) == {"parts": ["word", {"analyzer": "char"}], "weights": [1.0, 2.0]}
    assert describe(restore(json.loads(json.dumps(describe(union))))) == describe(union)
    assert describe(make_features("pairs")) == {
        "sublinear_tf": True,
        "all_scripts": True,
        "ngram_range": [2, 2],
        "min_df": 2,
    }
    with pytest.raises(NotFittedError, match="call fit first"):
        union.transform(["a"])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"parts": "word"}, "parts must be a list of 1 to 8 names, Tfidf or Encoding, but is 'word'"),
        ({"parts": []}, "parts must be a list of 1 to 8"),
        ({"parts": ["words"]}, "or one of word, start, pairs, char, char_wb, but is 'words'"),
        ({"parts": [3]}, "or one of word, start, pairs, char, char_wb, but is 3"),
        ({"parts": [umpteen.Tfidf(min_df=-1)]}, "min_df must be"),
        ({"parts": [umpteen.Tfidf(hashing=10)]}, "must have a vocabulary, but one is hashed"),
        ({"weights": [1]}, "weights must be 2 numbers, one for each part, but is .1."),
        ({"weights": [1, 0]}, "weights must be a finite number above 0"),
    ],
    ids=str,
)
def test_bad_parameters(params, message):
    with pytest.raises(ParamError, match=message):
        TfidfUnion(**params).fit(TEXTS)


def test_what_tuning_tries_is_described_and_made_again():
    again = restore(json.loads(json.dumps(describe(MIXED))))
    texts = [*TEXTS, *TEXTS]
    np.testing.assert_array_equal(again.fit_transform(texts).data, make_features(MIXED).fit_transform(texts).data)
    assert again.weights == [1, 1, 0.4]
    assert list(again.parts[:2]) == ["word", "start"]


def test_bad_features_of_a_tagger():
    with pytest.raises(ParamError, match="features must be a Tfidf, a TfidfUnion, one of"):
        umpteen.Tagger(umpteen.DiSMEC(), "words").fit(TEXTS, LABELS)


@pytest.mark.parametrize(
    "change",
    [
        {"parts": None},
        {"parts": []},
        {"parts": [1, 2]},
        {"parts": [{}] * 9},
        {"weights": [1]},
        {"weights": [1, "x"]},
        {"weights": [1, -1]},
        {"weights": [1, float("nan")]},
        {"blocks": 3},
        {"blocks": [[0, 10**9], [1, 1]]},
        {"blocks": [[0, -1], [1, 1]]},
        {"blocks": [[0, True]]},
        {"blocks": [[9, 0]]},
        {"blocks": [[0, 1]] * 20_000},
    ],
    ids=str,
)
def test_hostile_scalars_are_refused(change):
    part = TfidfUnion().fit(TEXTS).to_part()
    with pytest.raises(ModelCorruptError):
        TfidfUnion.from_part(Part(part.arrays, part.scalars | change))


def test_blocks_of_a_part_that_is_not_there_are_refused():
    part = TfidfUnion().fit(TEXTS).to_part()
    with pytest.raises(ModelCorruptError, match="blocks must be of one of the 2 parts"):
        TfidfUnion.from_part(Part(part.arrays, part.scalars | {"blocks": [*part.scalars["blocks"], [2, 5]]}))
    with pytest.raises(ModelCorruptError, match="a union has no arrays"):
        TfidfUnion.from_part(Part(part.arrays | {"part7_data": part.arrays["part0_data"]}, part.scalars))


def test_on_the_command_line(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    rows = zip(TEXTS, LABELS, strict=True)
    corpus.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows))
    options = ["--features", "word", "--features", "char_wb", "--features", "char_wb.ngram_range=[3,3]"]
    run = CliRunner()
    done = run.invoke(app, ["train", str(corpus), "--method", "dismec", "--model", str(tmp_path / "m"), *options])
    assert done.exit_code == 0, done.output
    features = umpteen.load(tmp_path / "m").features_
    assert [part.ngram_range for part in features.parts_] == [(1, 1), (3, 3)]
    for wrong, message in (("words", "--features must be one of word"), ("char.min_df=2", "must begin with one of")):
        done = run.invoke(app, ["train", str(corpus), "--model", str(tmp_path / "n"), "--features", wrong])
        assert isinstance(done.exception, ParamError)  # what main() prints
        assert message in str(done.exception)
