"""Transformers of scikit-learn as a tagger's features: the same rows, saved by skops or refused, never pickled."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder

import umpteen
from umpteen.errors import DataError, MissingExtraError, ModelCorruptError, ModelFormatError
from umpteen.text import skops_format
from umpteen.text.tfidf import MOST_WORDS

TEXTS = ["herring quotas at sea", "cod quotas in the sea", "a tax on wine", "wine and beer tax", "a red boat"] * 8
LABELS = [["fish", "sea"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"], ["sea"]] * 8
TABLE = pd.DataFrame({"title": TEXTS, "kind": ["law", "law", "tax", "tax", "news"] * 8})

TRANSFORMERS = {
    "tfidf": TfidfVectorizer(sublinear_tf=True),
    "hashing": HashingVectorizer(n_features=512),
    "pipeline": Pipeline([("count", CountVectorizer()), ("unit", Normalizer())]),
    "svd": Pipeline([("tfidf", TfidfVectorizer()), ("svd", TruncatedSVD(6, random_state=0))]),
    "union": FeatureUnion([("words", TfidfVectorizer()), ("chars", TfidfVectorizer(analyzer="char_wb"))]),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_rows_are_the_transformers_and_a_saved_model_answers_the_same(name, tmp_path):
    given = TRANSFORMERS[name]
    tagger = umpteen.Tagger(umpteen.DiSMEC(), features=given).fit(TEXTS, LABELS)
    rows = clone(given).fit(TEXTS).transform(TEXTS)
    rows = rows.toarray() if hasattr(rows, "toarray") else rows
    assert np.allclose(tagger.vectorize(TEXTS).X.toarray(), rows, atol=1e-6)
    assert not hasattr(given, "vocabulary_")  # a copy is fitted, not what was given
    tagger.save(tmp_path / "a.model")
    loaded = umpteen.load(tmp_path / "a.model")
    assert loaded.suggest(TEXTS[:5]) == tagger.suggest(TEXTS[:5])
    assert type(loaded.features) is type(given)
    assert "fish" in [label for label, _ in loaded.suggest("herring quotas")]
    assert str(loaded.explain("herring quotas at sea", "fish"))


def test_columns_of_a_table(tmp_path):
    parts = [("title", TfidfVectorizer(), "title"), ("kind", OneHotEncoder(handle_unknown="ignore"), ["kind"])]
    tagger = umpteen.Tagger("dismec", features=ColumnTransformer(parts)).fit(TABLE, LABELS, tmp_path / "a.model")
    loaded = umpteen.load(tmp_path / "a.model")
    assert loaded.predict(TABLE) == tagger.predict(TABLE)
    assert [sorted(row) for row in loaded.predict(TABLE)] == LABELS
    with pytest.raises(DataError, match="ColumnTransformer cannot turn this into rows"):
        loaded.suggest("herring")


def test_words_of_a_vectorizer_explain():
    tagger = umpteen.Tagger("dismec", features=TfidfVectorizer()).fit(TEXTS, LABELS)
    assert tagger.explain("herring at sea", "fish").words[0][0] in ("herring", "sea")
    hashed = umpteen.Tagger("dismec", features=HashingVectorizer(n_features=64)).fit(TEXTS, LABELS)
    assert hashed.explain("herring at sea", "fish").words[0][0].startswith("column ")


def test_a_text_without_a_known_word_gets_no_label():
    tagger = umpteen.Tagger("dismec", features=TfidfVectorizer()).fit(TEXTS, LABELS)
    assert tagger.suggest("zzz", top_k=3) == []


def test_settings_of_the_transformer_are_searched():
    tagger = umpteen.Tagger("dismec", features=TfidfVectorizer(), calibration=0)
    search = GridSearchCV(tagger, {"features__ngram_range": [(1, 1), (1, 2)]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_estimator_.features.ngram_range in [(1, 1), (1, 2)]


def test_new_labels_join_with_the_words_there_are():
    tagger = umpteen.Tagger("dismec", features=TfidfVectorizer()).fit(TEXTS, LABELS)
    tagger.add_labels(["a red boat", "red wine"], [["red"], ["red"]])
    red, herring = (dict(tagger.suggest(text, top_k=5)) for text in ("red wine", "herring quotas"))
    assert red["red"] > herring.get("red", 0)


@pytest.mark.parametrize(
    ("features", "named"),
    [
        (TfidfVectorizer(ngram_range=(1, MOST_WORDS + 1)), "ngram_range must be two numbers from 1 to"),
        (TfidfVectorizer(tokenizer=str.split, token_pattern=None), "method_descriptor"),
        (Pipeline([("low", FunctionTransformer(lambda x: x)), ("tfidf", TfidfVectorizer())]), "FunctionTransformer"),
        (ColumnTransformer([("title", umpteen.Tfidf(), "title")]), "umpteen.text.tfidf.Tfidf"),
    ],
)
def test_what_holds_code_or_unlisted_types_stays_in_memory(features, named, tmp_path):
    texts = TABLE if isinstance(features, ColumnTransformer) else TEXTS
    tagger = umpteen.Tagger("dismec", features=features).fit(texts, LABELS)
    assert tagger.predict(texts[:1])[0]
    with pytest.raises(ModelFormatError, match=f"cannot be saved.*({named})"):
        tagger.save(tmp_path / "a.model")
    with pytest.raises(ModelFormatError, match="cannot be saved"):  # before training, not after it
        umpteen.Tagger("dismec", features=features).fit(texts, LABELS, tmp_path / "b.model")
    assert list(tmp_path.iterdir()) == []


def test_without_skops_a_tagger_is_fitted_but_not_saved(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "skops.io", None)
    tagger = umpteen.Tagger("dismec", features=TfidfVectorizer()).fit(TEXTS, LABELS)
    with pytest.raises(MissingExtraError, match=r"umpteen\[skops\]"):
        tagger.save(tmp_path / "a.model")


def rewrite(data: bytes, change, compression: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of skops with another description."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(changed, "w", compression) as new:
        for member in old.infolist():
            content = old.read(member)
            if member.filename == "schema.json":
                content = change(content.decode()).encode()
            new.writestr(member.filename, content)
    return changed.getvalue()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.replace('"TfidfVectorizer"', '"DictVectorizer"'), "not opened: sklearn.*DictVectorizer"),
        (lambda s: s.replace('"ObjectNode"', '"FunctionNode"'), "not opened"),
        (lambda s: s.replace('"ObjectNode"', '"ReduceNode"'), "not opened"),
        (lambda s: s.replace('"builtins"', '"os"'), "not opened"),
        (lambda s: s.replace("content\\\"", "filename\\\""), "input must be 'content'"),
        (lambda s: s.replace("(?u)\\\\\\\\b\\\\\\\\w\\\\\\\\w+\\\\\\\\b", "(a+)+$"), "token_pattern"),
        (lambda s: "[" * 200_000, "cannot be read"),
        (lambda s: "{}", "cannot be read"),
    ],
)  # fmt: skip
def test_an_archive_with_anything_else_in_it_is_refused(change, message):
    data = skops_format.dump(TfidfVectorizer().fit(TEXTS))
    changed = rewrite(data, change)
    assert changed != rewrite(data, lambda s: s)
    with pytest.raises((ModelFormatError, ModelCorruptError), match=message):
        skops_format.load(changed)


def test_compressed_members_and_damage_are_refused():
    data = skops_format.dump(TfidfVectorizer().fit(TEXTS))
    with pytest.raises(ModelCorruptError, match="must not be compressed"):
        skops_format.load(rewrite(data, lambda s: s, zipfile.ZIP_DEFLATED))
    rng = np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(data)
        damaged[rng.integers(len(data))] ^= 1 << rng.integers(8)
        try:
            skops_format.load(bytes(damaged))
        except (ModelFormatError, ModelCorruptError):
            continue


def test_a_vocabulary_with_columns_that_are_not_there_is_refused():
    vectorizer = TfidfVectorizer().fit(TEXTS)
    data = skops_format.dump(vectorizer)
    column = max(vectorizer.vocabulary_.values())
    pattern = json.dumps(str(column))
    changed = rewrite(data, lambda s: s.replace(f'"content": {pattern}', '"content": "123456789"'))
    with pytest.raises(ModelCorruptError, match="vocabulary must have columns below"):
        skops_format.load(changed)
