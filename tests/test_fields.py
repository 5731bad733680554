"""Records with fields: features of each, dictionaries and tables in place of texts, saved and explained."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.data.tables.fields import Fields
from umpteen.data.tables.record_text import FieldText
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.storage.store import Part
from umpteen.text.features import describe, make_features, restore
from umpteen.text.union import TfidfUnion

RECORDS = [
    {"title": "Herring quotas", "abstract": "in the sea"},
    {"title": "cod at sea", "abstract": "quotas"},
    {"title": "a tax", "abstract": "on wine and herring"},
    {"title": "wine and beer taxes", "abstract": None},
] * 10
LABELS = [["fish", "sea"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10
FEATURES = {"title^3": "word", "abstract": ["word", "svd:4"]}


@pytest.fixture(scope="module")
def tagger():
    return umpteen.Tagger(umpteen.DiSMEC(), FEATURES).fit(RECORDS, LABELS)


@given(st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.text(max_size=9))), st.integers(1, 4))
def test_a_joined_record_knows_its_fields(record, weight):
    record = {"a": None, "b": None, "c": None} | record
    text = Fields.make({"a": weight, "b": 1, "c": 2}, None).read_texts(record, "row 0")
    assert {name: text[slice(*text.place(name))] for name in record} == {n: v or "" for n, v in record.items()}
    assert text == "\n".join(
        v for n, k in (("a", weight), ("b", 1), ("c", 2)) for v in [record[n]] * k if v is not None
    )
    for same in (pickle.loads(pickle.dumps(text)), copy.deepcopy(text)):
        assert (same, same.places) == (text, text.places)


def test_each_field_has_words_of_its_own(tagger):
    features = tagger.features_
    title = umpteen.Tfidf(sublinear_tf=True).fit([record["title"] for record in RECORDS])
    abstract = umpteen.Tfidf(sublinear_tf=True).fit([record["abstract"] or "" for record in RECORDS])
    words = [f"title: {word}" for word in title.feature_names_] + [f"abstract: {w}" for w in abstract.feature_names_]
    assert list(features.feature_names_)[: len(words)] == words
    X = tagger.vectorize(RECORDS[:4]).X.toarray()
    own = title.transform([record["title"] for record in RECORDS[:4]]).toarray()
    np.testing.assert_allclose(X[:, : own.shape[1]], own * 3 / np.sqrt(11), rtol=1e-6)
    both = tagger.suggest(
        [{"title": "herring", "abstract": "wine"}, {"title": "wine", "abstract": "herring"}], top_k=1
    )
    assert [row[0][0] for row in both] != ["fish", "fish"]
    assert both[0][0][0] == "fish"


def test_words_of_all_fields_are_counted(tagger):
    record = {"title": "", "abstract": "wine goldfish"}
    assert tagger.count_unknown([record]) == [(1, 2)]
    assert tagger.suggest(record, top_k=1)
    assert tagger.explain(record).unknown == ["goldfish"]
    assert tagger.suggest({"title": "", "abstract": None}) == []
    whole = TfidfUnion(["word", "word"], fields=["title", None]).fit([FieldText("a cod\nsea", (("title", 0, 5),))])
    assert whole.transform(["cod sea shark"], return_unknown=True)[1].total.tolist() == [3]


def test_reasons_name_the_field_and_add_up(tagger):
    record = {"title": "herring", "abstract": "wine"}
    found = tagger.explain(record, label="fish")
    assert found.text == "herring\nwine"
    words = dict(found.words)
    (meaning,) = set(words) - {"title: herring", "abstract: wine"}
    assert meaning.startswith("(meaning) near ")
    assert words["title: herring"] > 0 > words["abstract: wine"]
    assert sum(words.values()) + found.base == pytest.approx(found.score, abs=1e-5)
    assert [(s, e) for s, e, _ in found.spans] == [(0, 7), (8, 12)]


def test_a_text_without_fields_is_the_first(tagger):
    alone, record = tagger.vectorize(["herring sea"]), tagger.vectorize([{"title": "herring sea", "abstract": None}])
    np.testing.assert_array_equal(alone.X.toarray(), record.X.toarray())
    assert [(s, e) for s, e, _ in tagger.explain("herring sea").spans] == [(0, 7), (8, 11)]


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "iterator"])
def test_tables_and_iterators(tagger, kind):
    want = tagger.suggest(RECORDS[:4], top_k=2)
    table = pd.DataFrame(RECORDS[:4])
    if kind == "polars":
        table = pytest.importorskip("polars").DataFrame(RECORDS[:4])
    elif kind == "pyarrow":
        table = pytest.importorskip("pyarrow").Table.from_pylist(RECORDS[:4])
    elif kind == "iterator":
        table = iter(RECORDS[:4])
    assert tagger.suggest(table, top_k=2) == want


def test_saved_grown_and_corrected(tagger, tmp_path):
    tagger.save(tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m")
    assert loaded.suggest(RECORDS[:4], top_k=3) == tagger.suggest(RECORDS[:4], top_k=3)
    assert loaded.fields_.text_names() == ["title", "abstract"]
    assert list(loaded.features_.feature_names_) == list(tagger.features_.feature_names_)
    new = {"title": "goldfish", "abstract": "a bowl of herring"}
    loaded.learn(new, labels=["pet"])
    assert loaded.suggest(new, top_k=1)[0][0] == "pet"
    names = set(loaded.features_.feature_names_)
    assert {"title: goldfish", "abstract: bowl"} <= names
    assert not {"abstract: goldfish", "title: bowl"} & names
    loaded.add_labels([{"title": "a shark", "abstract": "bites"}], [["shark"]], tmp_path / "n")
    again = umpteen.load(tmp_path / "n")
    assert again.suggest({"title": "shark", "abstract": ""}, top_k=1)[0][0] == "shark"


def test_fields_that_share_their_words():
    tagger = umpteen.Tagger(umpteen.DiSMEC()).fit(RECORDS, LABELS, fields=["title^3", "abstract"])
    texts = ["\n".join([r["title"]] * 3 + ([r["abstract"]] if r["abstract"] else [])) for r in RECORDS]
    plain = umpteen.Tagger(umpteen.DiSMEC()).fit(texts, LABELS)
    assert tagger.suggest(RECORDS[:4], top_k=3) == plain.suggest(texts[:4], top_k=3)


def test_settings_are_described_and_restored():
    features = make_features(FEATURES)
    assert describe(restore(json.loads(json.dumps(describe(features))))) == describe(features)
    assert features.fields == ["title", "abstract", "abstract"]
    assert features.weights == [3, 1, 1]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({}, "features must be the name of a field"),
        ({"title": "wrd"}, "a part must be a Tfidf"),
        ({"title^0": "word"}, "weight of features 'title' must be a whole number"),
        ({1: "word"}, "features must be the name"),
        (TfidfUnion(["word", "word"], fields=["title"]), "fields must be 2 names"),
        (TfidfUnion(["word"], fields=[3]), "a field must be a name"),
        (TfidfUnion(["word"], fields="a"), "fields must be 1 names"),
    ],
)
def test_wrong_features_are_refused(features, message):
    with pytest.raises(ParamError, match=message):
        umpteen.Tagger(umpteen.DiSMEC(), features).fit(RECORDS, LABELS)


def test_wrong_records_are_refused(tagger):
    new = umpteen.Tagger(umpteen.DiSMEC(), FEATURES)
    with pytest.raises(DataError, match="text 0 must be a record with title, abstract, but is 'x'"):
        new.fit(["x"], [["a"]])
    with pytest.raises(ParamError, match="fields must have 'abstract', which the features read"):
        new.fit(RECORDS, LABELS, fields=["title"])
    with pytest.raises(DataError, match="text 1: there must be a field 'title'"):
        tagger.suggest([RECORDS[0], {"titel": "x", "abstract": ""}])
    with pytest.raises(DataError, match="text 0: title must be a string, but is 3"):
        tagger.suggest([{"title": 3, "abstract": ""}])
    with pytest.raises(DataError, match="field 'abstract'"):
        new.fit([{"title": "cod", "abstract": ""}] * 3, [["a"]] * 3)
    with pytest.raises(ParamError, match=r"texts are records, but this tagger does not know which fields"):
        umpteen.Tagger(umpteen.DiSMEC()).fit(RECORDS, LABELS)
    with pytest.raises(DataError, match="text 0 must be a string, but is 5"):
        tagger.suggest([5])


def test_a_damaged_model_is_refused(tagger):
    part = tagger.features_.to_part()
    for fields in (["title"], [1, 2, 3], "abc", {"a": 1}, ["", "a", "b"], ["x" * 20_000] * 3):
        with pytest.raises(ModelCorruptError, match="field"):
            TfidfUnion.from_part(Part(part.arrays, part.scalars | {"fields": fields}))


def test_on_the_command_line(tmp_path):
    rows = [
        {"id": i, **record, "labels": labels} for i, (record, labels) in enumerate(zip(RECORDS, LABELS, strict=True))
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train = [
        "train",
        str(tmp_path / "c.jsonl"),
        "--method",
        "dismec",
        "--model",
        str(tmp_path / "m"),
        "--separate-fields",
    ]
    runner = CliRunner()
    columns = ["--text-field", "title^3", "--text-field", "abstract"]
    done = runner.invoke(app, [*train, *columns, "--features", "word", "--features", "svd:4"])
    assert done.exit_code == 0, done.output
    loaded = umpteen.load(tmp_path / "m")
    assert loaded.features_.fields == ["title", "title", "abstract", "abstract"]
    assert loaded.suggest({"title": "herring", "abstract": ""}, top_k=1)[0][0] == "fish"
    done = runner.invoke(
        app, ["predict", str(tmp_path / "m"), str(tmp_path / "c.jsonl"), "--output", str(tmp_path / "o.csv")]
    )
    assert done.exit_code == 0, done.output
    assert pd.read_csv(tmp_path / "o.csv")["labels"].notna().all()
    done = runner.invoke(app, [*train[:-2], str(tmp_path / "n"), "--separate-fields", "--text-field", "title"])
    assert done.exit_code != 0
    assert "--separate-fields needs several --text-field" in str(done.exception)
