"""Words of a language in one form: the packages' own stems and lemmas, saved by name."""

from __future__ import annotations

import json
import sys
from contextlib import chdir
from pathlib import Path

import pytest
import simplemma
import Stemmer
from sklearn.feature_extraction.text import TfidfVectorizer
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.errors import MissingExtraError, ModelCorruptError, ParamError
from umpteen.storage.store import Part
from umpteen.text.languages import LEMMATISED, STEMMED
from umpteen.text.tfidf import Tfidf

from .conftest import data_root
from .test_tfidf import assert_like_sklearn

ENGLISH = ["Baking cakes and baked bread", "she bakes", "The ﬁsh is fishing", "no cake!"]


def test_stems_are_those_of_snowball():
    tfidf = Tfidf(language="en").fit(ENGLISH)
    assert list(tfidf.feature_names_) == ["and", "bake", "bread", "cake", "fish", "is", "no", "she", "the"]
    assert tfidf.transform(["a bakers' bake"]).nnz == 1  # "baker" is another stem
    assert tfidf.spans("BAKING now") == [(0, 6, 1), (7, 10, -1)]
    assert tfidf.unknown_words("BAKING now") == ["now"]


@pytest.mark.data
@pytest.mark.parametrize(("language", "form"), [("en", "stem"), ("en", "lemma"), ("fi", "stem")])
def test_equal_to_sklearn_with_the_same_words(language, form):
    path = data_root() / "StackExchange-Cooking" / "train.jsonl.xz"
    if not path.exists():
        pytest.skip(f"no StackExchange-Cooking in {data_root()}; set UMPTEEN_DATA to run this test")
    texts = umpteen.read_corpus(path).texts[:1500]
    if form == "stem":
        reduce = Stemmer.Stemmer(STEMMED[language]).stemWord
    else:
        reduce = lambda word: simplemma.lemmatize(word, language).lower()  # noqa: E731
    plain = TfidfVectorizer().build_tokenizer()
    theirs = TfidfVectorizer(
        tokenizer=lambda text: [reduce(word) for word in plain(text) if word != "the"], token_pattern=None
    )
    ours = Tfidf(language=language, word_form=form, stop_words=["the"], threads=2)
    assert_like_sklearn(ours.fit_transform(texts), theirs.fit_transform(texts))
    assert list(ours.feature_names_) == list(theirs.get_feature_names_out())


def test_other_spellings_of_the_same_word():
    tfidf = Tfidf(language="fr").fit(["cafe\u0301 noir", "ﬁn"])
    assert tfidf.transform(["CAFÉ"]).nnz == tfidf.transform(["fin"]).nnz == 1
    (span,) = tfidf.spans("cafe\u0301")
    assert (span.begin, span.end) == (0, 5)
    assert span.column >= 0


def test_stop_words_of_a_language(tmp_path):
    tfidf = Tfidf(stop_words="en").fit(ENGLISH)
    assert list(tfidf.feature_names_) == ["baked", "bakes", "baking", "bread", "cake", "cakes", "fishing", "ﬁsh"]
    part = tfidf.to_part()
    assert "the" in part.scalars["tfidf"]["stop_words"]  # the words themselves: another edition changes no model
    again = Tfidf.from_part(part)
    assert (again.transform(ENGLISH) != tfidf.transform(ENGLISH)).nnz == 0
    assert Tfidf(stop_words="fi", language="fi").fit(["ja kala, sekä kalat"]).n_features_ == 1
    args = ["train", "c.jsonl", "--model", "m", "--method", "dismec", "--features", "stop_words=sv"]
    with chdir(tmp_path):
        rows = [{"text": text, "labels": ["x"]} for text in ("fisk och bröd", "bröd", "fisk", "kött och fisk") * 5]
        Path("c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = CliRunner().invoke(app, args)
        assert found.exit_code == 0, found.output
        assert set(umpteen.load("m").features_.feature_names_) == {"bröd", "fisk", "kött"}


def test_a_missing_list_of_stop_words_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "stopwordsiso", None)
    with pytest.raises(MissingExtraError, match=r"stop_words='en' needs stopwordsiso.*umpteen\[languages\]"):
        Tfidf(stop_words="en").fit(ENGLISH)


def test_saved_by_name(tmp_path):
    tagger = umpteen.Tagger(umpteen.DiSMEC(), Tfidf(language="en", sublinear_tf=True))
    tagger.fit(ENGLISH * 10, [["cake", "bread"], ["cake"], ["fish"], ["cake"]] * 10, tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m")
    assert loaded.features_.language == "en"
    assert loaded.suggest("two bakes") == tagger.suggest("two bakes")
    assert loaded.explain("two bakes", label="cake").words[0][0] == "bake"


@pytest.mark.parametrize("value", ["xx", "english", 3, ["en"], "../en"])
def test_unknown_languages_in_a_model_are_refused(value):
    part = Tfidf(language="en").fit(ENGLISH).to_part()
    changed = part.scalars | {"tfidf": part.scalars["tfidf"] | {"language": value}}
    with pytest.raises(ModelCorruptError, match="language must be one of"):
        Tfidf.from_part(Part(part.arrays, changed))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"language": "xx"}, "language must be one of ar, ca, .* for word_form='stem', but is 'xx'"),
        ({"language": "uk"}, "for word_form='stem', but is 'uk'"),
        ({"language": "en", "word_form": "root"}, "word_form must be 'stem' or 'lemma', but is 'root'"),
        ({"language": "en", "analyzer": "char"}, "language is for analyzer='word', but analyzer is 'char'"),
    ],
    ids=str,
)
def test_bad_parameters(params, message):
    with pytest.raises(ParamError, match=message):
        Tfidf(**params).fit(ENGLISH)


@pytest.mark.parametrize(("form", "module"), [("stem", "Stemmer"), ("lemma", "simplemma")])
def test_a_missing_package_is_named(monkeypatch, form, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'umpteen\[languages\]'"):
        Tfidf(language="en", word_form=form).fit(ENGLISH)


def test_languages_are_those_of_the_packages():
    assert set(STEMMED.values()) <= set(Stemmer.algorithms())
    from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

    assert set(SUPPORTED_LANGUAGES) >= LEMMATISED


def test_strange_texts_are_read():
    texts = ["lone \ud800 surrogate\udfff", "\x00 nul", "", "١٢٣ 漢字", "x" * 100_000]
    assert Tfidf(language="en").fit(texts).transform(texts).shape[0] == 5
