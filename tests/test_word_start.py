"""The start of each word as a term: equal to scikit-learn with the same words, saved, grown, told as words."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

import umpteen
from umpteen import Tfidf, TfidfUnion
from umpteen.errors import ModelCorruptError, ParamError
from umpteen.storage.store import Part

from .test_tfidf import assert_like_sklearn

TEXTS = [
    "Fishing quotas for the herring fleet", "herrings, fished at sea", "Übermäßige Überfischung", "naïve cafés",
    "漁業 漁業権 大西洋漁業協定", "a \ud800lone surrogate", "", "?!", "x" * 300, "the_end 1234567", "Σίσυφος ΣΊΣΥΦΟΣ",
]  # fmt: skip


@pytest.mark.parametrize("start", [1, 2, 4, 50])
@pytest.mark.parametrize("params", [{}, {"ngram_range": (1, 2)}, {"stop_words": ["the", "fishing"]}], ids=str)
def test_equal_to_sklearn_with_the_same_words(start, params):
    plain = TfidfVectorizer().build_tokenizer()
    stop = params.get("stop_words", ())
    theirs = TfidfVectorizer(
        tokenizer=lambda text: [word[:start] for word in plain(text) if word not in stop], token_pattern=None,
        ngram_range=params.get("ngram_range", (1, 1)),
    )  # fmt: skip
    ours = Tfidf(word_start=start, threads=2, **params)
    expected = theirs.fit_transform(TEXTS)
    assert_like_sklearn(ours.fit_transform(TEXTS), expected)
    assert_like_sklearn(ours.transform(TEXTS), expected)
    assert list(ours.feature_names_) == list(theirs.get_feature_names_out())


def test_words_given_by_other_patterns_and_stems_are_cut_too():
    by_pattern = Tfidf(word_start=3, token_pattern=r"\w+(?:-\w+)*").fit(["non-stick pans", "panic"])
    assert list(by_pattern.feature_names_) == ["non", "pan"]
    stems = Tfidf(word_start=3, language="en").fit(["ties tied tie"])
    assert list(stems.feature_names_) == ["tie"]


def test_spans_are_whole_words_and_columns_those_of_rows():
    tfidf = Tfidf(word_start=4).fit(TEXTS)
    text = "A FISHERMAN's Herring, unknown"
    found = [(text[span.begin : span.end], span.column >= 0) for span in tfidf.spans(text)]
    assert found == [("FISHERMAN", True), ("Herring", True), ("unknown", False)]
    assert {span.column for span in tfidf.spans(text)} - {-1} == set(tfidf.transform([text]).indices.tolist())
    assert tfidf.unknown_words(text) == ["a", "unknown"]


def test_tagger_saved_grown_and_told_as_words(tmp_path):
    texts = ["fishing quotas", "the fishery", "wine tax", "taxes on wines"] * 10
    labels = [["fish"], ["fish"], ["tax"], ["tax"]] * 10
    tagger = umpteen.Tagger(umpteen.DiSMEC(), TfidfUnion(["word", "start"], weights=[1, 0.7])).fit(texts, labels)
    tagger.save(tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m", checksums=True)
    assert loaded.suggest("the fishes and wine", top_k=2) == tagger.suggest("the fishes and wine", top_k=2)
    found = loaded.explain("the fishes and wine", "fish")
    words = dict(found.words)
    assert set(words) == {"the", "fishes", "wine"}
    assert words["fishes"] > 0 > words["wine"]
    assert sum(words.values()) + found.base == pytest.approx(found.explained, abs=1e-4)
    assert found.unknown == ["fishes", "and"]
    grown = loaded.learn("goldfish bowl", labels=["pets"])
    assert "gold" in list(grown.features_.feature_names_)
    assert grown.suggest("goldfish", top_k=1)[0][0] == "pets"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"word_start": 0}, "word_start must be an integer of at least 1"),
        ({"word_start": 2.5}, "word_start must be an integer"),
        ({"word_start": "4"}, "word_start must be an integer"),
        ({"word_start": 4, "analyzer": "char"}, "word_start is for analyzer='word'"),
    ],
)
def test_bad_parameters(params, said):
    with pytest.raises(ParamError, match=said):
        Tfidf(**params).fit(TEXTS)


def test_models_from_before_have_whole_words():
    part = Tfidf().fit(["fishing quotas"]).to_part()
    before = {name: value for name, value in part.scalars["tfidf"].items() if name != "word_start"}
    opened = Tfidf.from_part(Part(part.arrays, part.scalars | {"tfidf": before}))
    np.testing.assert_array_equal(opened.transform(["fishing fish"]).toarray(), [[1, 0]])
    with pytest.raises(ModelCorruptError, match="word_start"):
        Tfidf.from_part(Part(part.arrays, part.scalars | {"tfidf": before | {"word_start": -1}}))
