"""Transformers of scikit-learn as a tagger's features: the same rows, saved by skops or refused, never pickled."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

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
        (
            ColumnTransformer([("title", umpteen.Tfidf(), "title")]),
            "umpteen.text.tfidf.Tfidf.* by columns",
        ),
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


# --- archives written by hand: each of these was opened once -----------------------------------------------------


def forge(transformer: Any, change: Callable[[Any], Any] = lambda schema: schema) -> bytes:
    """An archive by skops itself, without the checks of `dump`."""
    import skops.io

    data = skops.io.dumps(transformer, compression=zipfile.ZIP_STORED)
    return rewrite(data, lambda text: json.dumps(change(json.loads(text))))


def refused(data: bytes, message: str) -> None:
    with pytest.raises((ModelFormatError, ModelCorruptError), match=message):
        skops_format.load(data)


def make_list(number: int, content: list[Any]) -> dict[str, Any]:
    node = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": content}
    return node | {"__id__": number}


def test_nodes_that_stand_for_others_are_refused():
    def laugh(schema):  # each node names the one before twice: skops looks at 2^60 of them
        node = make_list(1, [])
        for number in range(2, 62):
            node = make_list(number, [node, {"__id__": number - 1}])
        return schema | node

    refused(forge(CountVectorizer().fit(TEXTS), laugh), "cannot be read")


def test_arrays_that_are_named_again_and_again_are_refused():
    vectorizer = TfidfVectorizer().fit(TEXTS)
    vectorizer._tfidf.idf_ = np.zeros(50_000)

    def repeat(schema):
        (array,) = [node for node in skops_format._nodes(schema) if node.get("__loader__") == "NdArrayNode"]
        schema["content"]["content"]["more"] = make_list(1, [array] * 40)
        return schema

    refused(forge(vectorizer, repeat), "must not be named more than 4 times")


def test_members_that_overlap_are_refused():
    changed = io.BytesIO(forge(TfidfVectorizer().fit(TEXTS)))
    with zipfile.ZipFile(changed, "a") as archive:  # many names for the same bytes
        array = next(member for member in archive.infolist() if member.filename.endswith(".npy"))
        for number in range(3000):
            twin = zipfile.ZipInfo(f"{number}.npy")
            twin.header_offset, twin.file_size, twin.compress_size, twin.CRC = (
                array.header_offset, 300, 300, array.CRC,
            )  # fmt: skip
            archive.filelist.append(twin)
        archive._didModify = True
    refused(changed.getvalue(), "overlap")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("build_analyzer", int, "replaces 'build_analyzer'"),
        ("tokenizer", str, "no plain value"),
        ("dtype", str, "dtype must be a type of numbers"),
        ("extra", np.array([CountVectorizer(input="filename"), 1], dtype=object), "input must be 'content'"),
    ],
)
def test_attributes_that_would_be_called_are_refused(name, value, message):
    vectorizer = CountVectorizer().fit(TEXTS)
    setattr(vectorizer, name, value)
    refused(forge(vectorizer), message)


def test_formats_of_names_are_refused_and_processes_are_not_started():
    columns = ColumnTransformer([("title", CountVectorizer(), "title")], n_jobs=64).fit(TABLE)
    assert skops_format.load(forge(columns)).n_jobs is None
    columns.verbose_feature_names_out = "{feature_name:>100000000}"
    refused(forge(columns), "verbose_feature_names_out must be True or False")


def test_hashes_have_a_bound():
    refused(forge(HashingVectorizer(n_features=2**31 - 2)), "n_features must be from 1 to 16777216")


def test_a_version_that_is_none_is_refused():
    def escape(schema):
        schema["content"]["content"]["_sklearn_version"]["content"] = json.dumps("\x1b]0;owned\x07")
        return schema

    refused(forge(CountVectorizer().fit(TEXTS), escape), "must be a version")

    def hide(schema):
        state = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": "{}"}
        return schema | {"content": state}

    refused(forge(CountVectorizer().fit(TEXTS), hide), "attributes of the features must be a dictionary")


KINDS = TABLE[["kind"]]
NUMBERS = np.array([[3.0], [1.0], [2.0], [np.nan]])


@pytest.mark.parametrize(
    ("attributes", "rows"),
    [
        ({"_n_features_outs": [1]}, KINDS),
        ({"_n_features_outs": [10**9]}, KINDS),
        ({"_n_features_outs": [3, 3]}, KINDS),
        ({"_drop_idx_after_grouping": np.array([7], dtype=object), "_n_features_outs": [2]}, KINDS),
        ({"categories_": [np.array([3.0, 2.0, 1.0, np.nan])]}, NUMBERS),
        ({"categories_": [np.array([1.0, np.nan, 2.0, 3.0])]}, NUMBERS),
        ({"categories_": [np.zeros((3, 1))]}, NUMBERS),
        ({"_infrequent_enabled": True, "_infrequent_indices": [np.array([99])],
          "_default_to_infrequent_mappings": [None]}, KINDS),
        ({"_infrequent_enabled": True, "_infrequent_indices": [np.array([1])],
          "_default_to_infrequent_mappings": [np.array([0, 1, 99])]}, KINDS),
    ],
)  # fmt: skip
def test_categories_without_a_column_are_refused(attributes, rows):
    """scikit-learn would make rows with columns that are not there, and read memory beyond the next step's."""
    encoder = OneHotEncoder(handle_unknown="ignore").fit(rows)
    skops_format.load(forge(encoder))
    vars(encoder).update(attributes)
    refused(forge(encoder), "categories of a OneHotEncoder are damaged")


@pytest.mark.parametrize(
    "encoder",
    [
        OneHotEncoder(drop="first"),
        OneHotEncoder(drop="if_binary"),
        OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist"),
        OneHotEncoder(max_categories=2),
    ],
)
@pytest.mark.parametrize("rows", [KINDS, np.array([[1.0], [2.0], [2.0]] * 8)])
def test_categories_of_every_kind_are_kept(encoder, rows):
    encoder = clone(encoder).fit(rows)
    assert (skops_format.load(skops_format.dump(encoder)).transform(rows) != encoder.transform(rows)).nnz == 0


def test_vocabularies_without_rare_words_and_with_any_word_are_kept():
    texts = [*TEXTS, "__class__ __loader__ __module__ _sklearn_version __id__ content file"] * 2
    vectorizer = TfidfVectorizer(min_df=2, max_features=20).fit(texts)
    assert "__class__" in vectorizer.vocabulary_
    assert (skops_format.load(skops_format.dump(vectorizer)).transform(texts) != vectorizer.transform(texts)).nnz == 0
