"""Text features: equal to scikit-learn's and to the slow twin, the same on any number of threads, safe to load."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

import umpteen
from umpteen.errors import DataError, ModelCorruptError, ModelFormatError, NotFittedError, ParamError
from umpteen.storage.store import ModelReader, ModelWriter, Part
from umpteen.text import reading
from umpteen.text.patterns import run_length
from umpteen.text.reading import TextReader
from umpteen.text.words import N_CHARACTERS, word_table

from . import reference
from .conftest import data_root

# Final sigma, dotted I, ligatures, combining marks, digits and letters of other scripts, emoji, a lone surrogate.
STRANGE = [
    "ΟΔΥΣΣΕΥΣ ὈΔΥΣΣΕΎΣ Σίσυφος",
    "İstanbul ISTANBUL ıssız",
    "Straße STRASSE ﬁsh ﬃ ǅ",
    "cafe\u0301 café CAFÉ naïve",
    "漢字 かな 한국어 日本語テキスト",
    "١٢٣ ४५६ ²³ ½ Ⅳ ℡ ™",
    "snake_case __init__ a_ _ x 1 22",
    "na\u00adive zero\u200bwidth non\u00a0break",
    "😀 emoji 👩‍👩‍👧 family",
    "lone \ud800 surrogate\udfff",
    "\x00 nul\x00inside \x7f",
    "don't e-mail user@example.org C++",
    "",
    " \t\n",
]
PLAIN = [
    "The herring and the quota of the herring",
    "A quota for herring; a QUOTA for cod",
    "no fish, no law",
    "law law law and the sea",
]


def corpus(name: str, part: str = "train") -> list[str]:
    path = data_root() / name / f"{part}.jsonl.xz"
    if not path.exists():
        pytest.skip(f"no {name} in {data_root()}; set UMPTEEN_DATA to run this test")
    return umpteen.read_corpus(path).texts


@pytest.fixture(scope="module")
def nuclei() -> list[str]:
    return corpus("Nuclei-Tags")[::3]


def same_rows(left, right):
    assert left.shape == right.shape
    np.testing.assert_array_equal(left.indptr, right.indptr)
    np.testing.assert_array_equal(left.indices, right.indices)
    np.testing.assert_array_equal(left.data, right.data)


def assert_like_sklearn(X, expected):
    """The same entries, and values that are the same once rounded; one unit in the last place allows for another
    logarithm."""
    assert isinstance(X, sp.csr_matrix)
    assert (X.data.dtype, X.indices.dtype) == (np.float32, np.int32)
    assert X.has_canonical_format
    expected = expected.tocsr()
    expected.sum_duplicates()
    assert X.shape == expected.shape
    np.testing.assert_array_equal(X.indptr, expected.indptr)
    np.testing.assert_array_equal(X.indices, expected.indices)
    np.testing.assert_array_max_ulp(X.data, expected.data.astype(np.float32), 1)


def compare(texts, other=(), **params):
    """Fits both, compares vocabulary, idf and rows, of `texts` and of `other` texts."""
    theirs = TfidfVectorizer(**params)
    expected = theirs.fit_transform(texts)
    ours = umpteen.Tfidf(**params, threads=2)
    X = ours.fit_transform(texts)
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())
    assert_like_sklearn(X, expected)
    if params.get("use_idf", True):
        np.testing.assert_allclose(ours.idf_, theirs.idf_, rtol=1e-15)
    same_rows(umpteen.Tfidf(**params, threads=2).fit(texts).transform(texts), X)
    if other:
        assert_like_sklearn(ours.transform(other), theirs.transform(other))
    return ours


# --- equal to scikit-learn --------------------------------------------------------------------------------------

SETTINGS = [
    {},
    {"sublinear_tf": True, "min_df": 2, "max_df": 0.7},
    {"ngram_range": (1, 2), "min_df": 2},
    {"ngram_range": (2, 3), "norm": "l1", "max_df": 0.01},
    {"use_idf": False, "norm": None},
    {"smooth_idf": False, "min_df": 0.001, "max_df": 500},
    {"lowercase": False, "stop_words": ["the", "The", "of", "and"]},
    {"strip_accents": "unicode", "token_pattern": r"(?u)\b\w+\b"},
    {"strip_accents": "ascii", "token_pattern": r"\w{3,}"},
    {"token_pattern": r"(?u)\b[a-z]+\b"},
    {"token_pattern": r"\S+", "ngram_range": (1, 2), "min_df": 3},
    {"token_pattern": r"(\w)\w+"},
    {"stop_words": ["for", "to"], "ngram_range": (1, 3), "min_df": 5},
    {"analyzer": "char_wb", "ngram_range": (3, 5), "min_df": 2, "sublinear_tf": True},
    {"analyzer": "char", "ngram_range": (1, 4), "min_df": 2},
]
CHARACTERS = [
    {"analyzer": "char"},
    {"analyzer": "char", "ngram_range": (2, 5), "lowercase": False},
    {"analyzer": "char_wb", "ngram_range": (1, 3), "strip_accents": "unicode"},
    {"analyzer": "char_wb", "ngram_range": (4, 10), "strip_accents": "ascii"},
]


@pytest.mark.slow
@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_equal_to_sklearn_on_real_text(nuclei, params):
    compare(nuclei[:1500], nuclei[1500:1800], **params)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["StackExchange-Cooking", "Debian-Tags", "Tate-Subjects"])
def test_equal_to_sklearn_on_whole_corpora(name):
    """All of the test part; Tate has many texts beyond ASCII."""
    texts = corpus(name, "test")
    ours = compare(texts, sublinear_tf=True, min_df=2)
    assert name != "Tate-Subjects" or sum(not text.isascii() for text in texts) > 1000
    assert ours.n_rows_ == len(texts)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(("name", "min_df"), [("StackExchange-Cooking", 1), ("Nuclei-Tags", 2)])
def test_makes_the_numbers_that_come_with_the_texts(name, min_df):
    """Those of the data sets, made by others: column by column, to the six digits they are written with."""
    pattern = r"[^\W_]+(?:[-.+'#][^\W_]+)*[+#]*"
    tfidf = umpteen.Tfidf(sublinear_tf=True, min_df=min_df, max_df=0.7, token_pattern=pattern)
    tfidf.fit(corpus(name, "train"))
    for part in ("train", "test"):
        ours, theirs = tfidf.transform(corpus(name, part)), umpteen.read_xc(data_root() / name / f"{part}.txt.xz").X
        assert np.array_equal(ours.indptr, theirs.indptr)
        assert np.array_equal(ours.indices, theirs.indices)
        assert np.abs(ours.data - theirs.data).max() < 1e-6


@pytest.mark.parametrize(
    "params", SETTINGS[:1] + SETTINGS[4:5] + SETTINGS[6:10] + [{"ngram_range": (1, 4)}, *CHARACTERS], ids=str
)
def test_equal_to_sklearn_on_strange_text(params):
    compare(STRANGE[:-4] + PLAIN, STRANGE + PLAIN, **params)


@pytest.mark.parametrize("analyzer", ["char", "char_wb"])
def test_white_space_is_what_python_says(analyzer):
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and (chr(c).isspace() or c % 97 == 0)]
    compare([f"a{c}b a{c}{c}b" for c in every], analyzer=analyzer, ngram_range=(2, 3))


def test_terms_of_a_function():
    texts = ["Herring quota, herring", "quota"]
    ours = compare(texts, ["QUOTA soup"], analyzer=str.split)
    assert list(ours.feature_names_) == ["Herring", "herring", "quota", "quota,"]
    assert ours.spans("quota soup") == [(0, 10, 2), (0, 10, -1)]
    with pytest.raises(ModelFormatError, match="a saved model holds no code"):
        ours.to_part()
    with pytest.raises(DataError, match="analyzer must give a list of strings, but for text 0 gives"):
        umpteen.Tfidf(analyzer=lambda text: [1]).fit(texts)


def test_words_are_what_pythons_re_says():
    table = np.unpackbits(word_table().astype("<u4").view(np.uint8), bitorder="little").astype(bool)
    is_word = re.compile(r"\w").match
    step = range(0, N_CHARACTERS, 7)
    assert [bool(is_word(chr(c))) for c in step] == table[::7].tolist()
    assert not table[0xD800:0xE000].any()


def test_patterns_matched_in_cpp():
    assert {p: run_length(p) for p in (r"(?u)\b\w\w+\b", r"\w+", r"\b\w{4,}\b", r"\w\w\w+")} == {
        r"(?u)\b\w\w+\b": 2,
        r"\w+": 1,
        r"\b\w{4,}\b": 4,
        r"\w\w\w+": 3,
    }
    for pattern in (r"\w", r"\w*", r"\w{0,}", r"(?u)\b[\w-]+\b", r"(?a)\w+", r"\W+", r"\w{2,5}", r"\b\w\w\b"):
        assert run_length(pattern) is None
    for pattern in (r"\w\w+", r"\b\w\w+", r"\w\w+\b", r"\w{2,}"):  # these are all one and the same
        same_rows(
            umpteen.Tfidf(token_pattern=pattern).fit_transform(STRANGE),
            umpteen.Tfidf(token_pattern=r"(?:\w\w+)").fit_transform([t.replace("\0", " ") for t in STRANGE]),
        )


def test_max_features_keeps_the_first_of_equals(nuclei):
    texts = nuclei[:150]
    for limit in (1, 100, 400):
        theirs = TfidfVectorizer(max_features=limit).fit(texts)
        ours = umpteen.Tfidf(max_features=limit).fit(texts)
        terms, X = reference.tfidf(texts, max_features=limit)
        assert list(ours.feature_names_) == terms
        np.testing.assert_allclose(ours.transform(texts).toarray(), X, atol=1e-6)
        # scikit-learn may choose others among terms as frequent as the rarest one kept, and no others
        full = TfidfVectorizer(use_idf=False, norm=None).fit(texts)
        n_times = dict(zip(full.get_feature_names_out(), full.transform(texts).sum(axis=0).flat, strict=True))
        rarest = min(n_times[term] for term in terms)
        differing = set(terms) ^ set(theirs.get_feature_names_out())
        assert {n_times[term] for term in differing} <= {rarest}
    counts = sorted(n_times.values(), reverse=True)
    limit = next(k for k in range(50, 400) if counts[k - 1] > counts[k])  # no ties there
    compare(texts, max_features=limit)


@pytest.mark.parametrize("params", [{}, {"ngram_range": (1, 2), "sublinear_tf": True}, {"use_idf": False}], ids=str)
def test_hashing_equal_to_sklearn(nuclei, params):
    texts = nuclei[:800] + STRANGE[:-5]
    rest = {k: v for k, v in params.items() if k != "ngram_range"}
    theirs = make_pipeline(
        HashingVectorizer(
            n_features=5000, alternate_sign=False, norm=None, ngram_range=params.get("ngram_range", (1, 1))
        ),
        TfidfTransformer(**rest),
    )
    ours = umpteen.Tfidf(**params, hashing=5000, threads=2)
    X = ours.fit_transform(texts)
    assert_like_sklearn(X, theirs.fit_transform(texts))
    same_rows(ours.transform(texts), X)
    assert_like_sklearn(ours.transform(nuclei[800:900]), theirs.transform(nuclei[800:900]))
    same_rows(umpteen.Tfidf.from_part(ours.to_part()).transform(texts), X)
    with pytest.raises(NotFittedError, match="hashed columns have no names"):
        ours.get_feature_names_out()


# --- equal to the slow twin -------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["a", "ab", "AB", "é", "éa", "Σς", "ba b", "漢字", "_", "a1", "\ud800", "x" * 9, "x" * 17, "\0"]
)
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(lambda words: " ".join(words)), min_size=1, max_size=12)


@given(
    TEXTS,
    st.sampled_from(["char", "char_wb"]),
    st.sampled_from([(1, 1), (1, 3), (2, 4), (5, 6)]),
    st.booleans(),
    st.sampled_from([1, 3]),
)
def test_characters_equal_to_sklearn(texts, analyzer, ngram_range, lowercase, threads):
    params = {"analyzer": analyzer, "ngram_range": ngram_range, "lowercase": lowercase}
    try:
        theirs = TfidfVectorizer(**params).fit(texts)
    except ValueError:
        with pytest.raises(DataError, match="no terms are left"):
            umpteen.Tfidf(**params, threads=threads).fit(texts)
        return
    ours = umpteen.Tfidf(**params, threads=threads)
    assert_like_sklearn(ours.fit_transform(texts), theirs.transform(texts))
    assert list(ours.feature_names_) == list(theirs.get_feature_names_out())
    for text in texts:
        spans = ours.spans(text)
        assert sorted({span.column for span in spans}) == ours.transform([text]).indices.tolist()
        assert all(0 <= span.begin <= span.end <= len(text) for span in spans)


@given(
    TEXTS,
    st.fixed_dictionaries(
        {
            "ngram_range": st.sampled_from([(1, 1), (1, 2), (2, 2), (1, 3)]),
            "min_df": st.sampled_from([1, 2, 0.3]),
            "max_df": st.sampled_from([1.0, 0.8, 6]),
            "max_features": st.sampled_from([None, 3]),
            "sublinear_tf": st.booleans(),
            "use_idf": st.booleans(),
            "smooth_idf": st.booleans(),
            "norm": st.sampled_from(["l1", "l2", None]),
            "lowercase": st.booleans(),
            "stop_words": st.sampled_from([None, ["ab", "a1"]]),
            "token_pattern": st.sampled_from([r"(?u)\b\w\w+\b", r"\w+"]),
        }
    ),
    st.sampled_from([1, 3]),
)
def test_equal_to_the_slow_twin(texts, params, threads):
    terms, expected = reference.tfidf(texts, **params)
    ours = umpteen.Tfidf(**params, threads=threads)
    limits = [df * len(texts) if isinstance(df, float) else df for df in (params["min_df"], params["max_df"])]
    if limits[1] < limits[0]:
        with pytest.raises(ParamError, match="max_df must not be below min_df"):
            ours.fit(texts)
    elif not terms:
        with pytest.raises(DataError, match="no terms are left"):
            ours.fit(texts)
    else:
        X = ours.fit_transform(texts)
        assert list(ours.feature_names_) == terms
        np.testing.assert_allclose(X.toarray(), expected, rtol=1e-6)
        assert X.nnz == np.count_nonzero(expected)


# --- all scripts ------------------------------------------------------------------------------------------------

SCRIPTS = st.text(
    "ab Zß-_1é\u0301\u0308ﬁＡ日本語のテ々ภาษ\u0e35\u0e48ไहि\u0928\u094d\u0926\u0940한글\ufe0f\U00020000\ud800.",
    max_size=30,
)


@given(
    st.lists(SCRIPTS, min_size=1, max_size=6),
    st.sampled_from([(1, 1), (1, 2), (2, 2)]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, ["本語", "ab"]]),
    st.sampled_from([r"(?u)\b\w\w+\b", r"\w+", r"\S+", r"(?u)\b\w{3,}\b"]),
    st.sampled_from([1, 3]),
)
def test_terms_of_all_scripts_are_those_of_the_slow_reader(texts, n, start, stop_words, pattern, threads):
    tfidf = umpteen.Tfidf(
        all_scripts=True, ngram_range=n, word_start=start, stop_words=stop_words, token_pattern=pattern,
        use_idf=False, norm=None, threads=threads,
    )  # fmt: skip
    slow = [Counter(term for term, _, _ in TextReader(tfidf).find_terms(text)) for text in texts]
    if not any(slow):
        with pytest.raises(DataError, match="no terms are left"):
            tfidf.fit(texts)
        return
    X = tfidf.fit_transform(texts)
    terms = sorted(set().union(*slow))
    assert list(tfidf.feature_names_) == terms
    assert X.toarray().tolist() == [[counts[term] for term in terms] for counts in slow]
    assert np.array_equal(tfidf.transform(texts).toarray(), X.toarray())
    for text in texts:
        assert all(0 <= span.begin <= span.end <= len(text) for span in tfidf.spans(text))


def test_scripts_without_spaces_become_pairs_and_marks_stay_with_their_words():
    tfidf = umpteen.Tfidf(all_scripts=True)
    tfidf.fit(["東京タワー by night, 京", "हिन्दी भाषा", "ภาษาไทย", "한국어 문서"])
    words = ["by", "night", "हिन्दी", "भाषा", "한국어", "문서"]
    pairs = ["東京", "京タ", "タワ", "ワー", "京", "ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]
    assert list(tfidf.feature_names_) == sorted(words + pairs)
    assert tfidf.unknown_words("東京の夜 by day") == ["京の", "の夜", "day"]


def test_what_looks_the_same_has_one_column():
    tfidf = umpteen.Tfidf(all_scripts=True).fit(["Straße", "ﬁsh", "cafe\u0301", "ΛΌΓΟΣ"])
    for same in ("STRASSE", "fish", "CAFÉ", "λόγος", "ｆｉｓｈ"):
        assert tfidf.transform([same]).nnz == 1, same
    assert umpteen.Tfidf().fit(["cafe\u0301"]).transform(["CAFÉ"]).nnz == 0  # as scikit-learn has it


def test_ascii_texts_are_the_same_with_all_scripts(nuclei):
    texts = [text.encode("ascii", "ignore").decode() for text in nuclei[:500]]
    plain, every = umpteen.Tfidf(), umpteen.Tfidf(all_scripts=True)
    same_rows(plain.fit_transform(texts), every.fit_transform(texts))
    assert saved_bytes(plain)[0] == saved_bytes(every)[0]


# --- the same whatever the threads, the batches, the source -----------------------------------------------------


def saved_bytes(tfidf):
    part = tfidf.to_part()
    return {name: array.tobytes() for name, array in part.arrays.items()}, part.scalars


@pytest.mark.parametrize(
    "params",
    [{"ngram_range": (1, 2), "min_df": 2}, {"analyzer": "char_wb", "ngram_range": (3, 5)}, {"hashing": 1000}],
    ids=str,
)
def test_same_bytes_on_any_number_of_threads_and_batches(nuclei, monkeypatch, params):
    one = umpteen.Tfidf(**params, threads=1)
    X = one.fit_transform(nuclei)
    monkeypatch.setattr(reading, "BATCH_TEXTS", 157)
    for threads in (1, 2, 7):
        many = umpteen.Tfidf(**params, threads=threads)
        same_rows(many.fit_transform(text for text in nuclei), X)  # a generator, read once
        assert saved_bytes(many) == saved_bytes(one)
        same_rows(many.transform(iter(nuclei)), X)
        assert saved_bytes(umpteen.Tfidf(**params, threads=threads).fit(iter(nuclei))) == saved_bytes(one)


@pytest.mark.process
@pytest.mark.measured("memory")
@pytest.mark.parametrize("features", ["Tfidf(threads=2)", 'TfidfUnion(["word", "start"], threads=2)'])
def test_texts_are_forgotten_while_they_are_read(features):
    """Fitting on a stream needs the memory of the terms, not of the texts."""
    code = (
        f"features = lambda: umpteen.{features}"
        + """
import umpteen
def peak(): return 1024 * int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])
def texts():
    for i in range(20_000): yield f"word{i % 1000} other{i % 77} " * 300
tfidf = features().fit(text for text, _ in zip(texts(), range(2000)))
before = peak()
X = features().fit_transform(texts())
print(peak() - before, sum(len(t) for t in texts()), X.nnz)
"""
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    grown, n_bytes, nnz = map(int, out.split())
    assert nnz == 40_000 * (1 + ("start" in features))
    assert grown < n_bytes / 2


def test_rows_of_a_stream_with_labels(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"text": "{text}", "labels": ["x"]}}\n' for text in PLAIN))
    X = umpteen.Tfidf().fit_transform(record.text for record in umpteen.iter_corpus(path))
    same_rows(X, umpteen.Tfidf().fit_transform(PLAIN))


# --- unknown words, places of words -----------------------------------------------------------------------------


def test_unknown_words_are_counted():
    tfidf = umpteen.Tfidf(stop_words=["the"]).fit(PLAIN)
    X, words = tfidf.transform(["the herring of mars", "", "x yz yz", "law"], return_unknown=True)
    assert words.unknown.tolist() == [1, 0, 2, 0]
    assert words.total.tolist() == [3, 0, 2, 1]
    assert X.shape[0] == 4
    assert X[1].nnz == X[2].nnz == 0
    pairs = umpteen.Tfidf(ngram_range=(2, 3)).fit(PLAIN)
    _, words = pairs.transform(["the herring swims"], return_unknown=True)
    assert (words.unknown.tolist(), words.total.tolist()) == ([1], [2])
    X, words = tfidf.transform([], return_unknown=True)
    assert X.shape == (0, tfidf.n_features_)
    assert words.unknown.shape == (0,)


@pytest.mark.parametrize("params", [{}, {"ngram_range": (1, 2)}, {"stop_words": ["the", "of"]}], ids=str)
def test_spans_say_where_terms_stand(params):
    tfidf = umpteen.Tfidf(**params).fit(PLAIN + STRANGE)
    names = list(tfidf.feature_names_)
    for text in [*PLAIN, *STRANGE, "Herring of MARS"]:
        spans = tfidf.spans(text)
        row = tfidf.transform([text])
        assert sorted({span.column for span in spans} - {-1}) == row.indices.tolist()
        for begin, end, column in spans:
            if params == {} and column >= 0 and "İ" not in text:
                assert text[begin:end].lower() in (names[column], names[column].replace("ς", "σ"))
    assert [(s.begin, s.end, s.column < 0) for s in tfidf.spans("Herring MARS")][:2] == [(0, 7, False), (8, 12, True)]


def test_spans_over_hashed_columns():
    tfidf = umpteen.Tfidf(hashing=50, ngram_range=(1, 2)).fit(PLAIN)
    for text in PLAIN:
        columns = {span.column for span in tfidf.spans(text)}
        assert sorted(columns) == tfidf.transform([text]).indices.tolist()


def test_spans_where_lower_case_changes_the_length():
    tfidf = umpteen.Tfidf().fit(["İstanbul fish"])
    assert list(tfidf.feature_names_) == ["fish", "stanbul"]
    text = "İİİ İstanbul fish"
    found = {tfidf.feature_names_[s.column]: text[s.begin : s.end] for s in tfidf.spans(text)}
    assert found == {"fish": "fish", "stanbul": "stanbul"}
    stripped = umpteen.Tfidf(strip_accents="ascii").fit(["naive cafe"])
    text = "漢字 cafe\u0301 naïve"
    assert [text[s.begin : s.end] for s in stripped.spans(text)] == ["cafe", "naïve"]


# --- saving -----------------------------------------------------------------------------------------------------


def store(tfidf, path):
    with ModelWriter.create(path, {}, ["text"]) as writer:
        writer.write_part("text", tfidf.to_part())
        writer.finish()
    return umpteen.Tfidf.from_part(ModelReader(path, checksums=True).part("text"))


def test_saved_and_mapped(tmp_path, nuclei):
    params = {"ngram_range": (1, 2), "min_df": np.int64(2), "stop_words": {"the", "of"}, "sublinear_tf": True}
    tfidf = umpteen.Tfidf(**params, threads=2)
    X = tfidf.fit_transform(nuclei)
    loaded = store(tfidf, tmp_path / "m")
    same_rows(loaded.transform(nuclei), X)
    assert not loaded._arrays["slots"].flags.writeable
    assert not loaded._arrays["slots"].flags.owndata
    assert list(loaded.feature_names_) == list(tfidf.feature_names_)
    assert loaded.n_rows_ == len(nuclei)
    assert loaded.get_params() == tfidf.get_params() | {"stop_words": ["of", "the"], "threads": None}
    assert store(loaded, tmp_path / "again").to_part().scalars == loaded.to_part().scalars
    same_rows(pickle.loads(pickle.dumps(loaded)).transform(nuclei), X)
    assert pickle.loads(pickle.dumps(umpteen.Tfidf(min_df=3))).min_df == 3


def test_hash_of_terms_is_part_of_the_format():
    """With another hash, words of vocabularies saved by an older version would not be found."""
    texts = ["a bc def ghij klmno pqrstu vwxyzab cdefghij klmnopqrs tuvwxyzabcdefghijklmn é漢字", *PLAIN, *STRANGE]
    tfidf = umpteen.Tfidf(token_pattern=r"\w+", ngram_range=(1, 2)).fit(texts)
    slots = tfidf.to_part().arrays["slots"]
    hashes = {tfidf.feature_names_[i - 1]: h for h, i in slots.tolist() if i}
    assert hashes == {name: reference.hash_term(name) for name in tfidf.feature_names_}
    assert (hashes["a"], hashes["klmno"]) == (0x9D7D212D, 0x4F92621D)


@pytest.mark.parametrize("seed", range(40))
def test_hostile_arrays_never_crash(seed):
    """Any arrays: refused, or used without reading outside of them."""
    rng = np.random.default_rng(seed)
    tfidf = umpteen.Tfidf(ngram_range=(1, 2)).fit(PLAIN)
    part = tfidf.to_part()
    arrays = {name: array.copy() for name, array in part.arrays.items()}
    name = ["data", "ends", "slots", "idf"][seed % 4]
    kind = rng.integers(5)
    if kind == 0:
        flat = arrays[name].reshape(-1).view(np.uint8)
        flat[rng.integers(len(flat), size=8)] = rng.integers(256, size=8)
    elif kind == 1:
        arrays[name] = arrays[name][: len(arrays[name]) // 2].copy()
    elif kind == 2:
        arrays[name] = rng.integers(256, size=arrays[name].nbytes).astype(np.uint8).view(arrays[name].dtype)
    elif kind == 3:
        arrays[name] = arrays[name].astype(np.int16)
    else:
        arrays[name] = np.concatenate([arrays[name]] * 2)
    with np.errstate(all="ignore"):
        try:
            loaded = umpteen.Tfidf.from_part(Part(arrays, part.scalars))
        except ModelCorruptError:
            return
        X = loaded.transform(PLAIN + STRANGE)
        assert X.shape[1] == loaded.n_features_
        assert (X.indices < X.shape[1]).all()


@pytest.mark.parametrize("full", [0, 1, 2**32 - 1])
def test_slots_without_an_empty_one_end_the_search(full):
    tfidf = umpteen.Tfidf().fit(PLAIN)
    part = tfidf.to_part()
    slots = np.full_like(part.arrays["slots"], full)
    slots[:, 1] = full
    loaded = umpteen.Tfidf.from_part(Part({**part.arrays, "slots": slots}, part.scalars))
    assert loaded.transform(["herring quota"]).nnz == 0


@pytest.mark.parametrize(
    "change",
    [
        {"tfidf": None},
        {"n_rows": "many"},
        {"tfidf": {"magic": 1}},
        {"tfidf": {"ngram_range": [2]}},
        {"tfidf": {"ngram_range": 3}},
        {"tfidf": {"token_pattern": "("}},
        {"tfidf": {"token_pattern": 3}},
        {"tfidf": {"stop_words": [1]}},
        {"tfidf": {"use_idf": False}},
        {"tfidf": {"hashing": 7}},
        {"tfidf": {"norm": ["l2"]}},
        {"tfidf": {"max_features": float("nan")}},
    ],
    ids=str,
)
def test_hostile_scalars_are_refused(change):
    part = umpteen.Tfidf().fit(PLAIN).to_part()
    with pytest.raises((ModelCorruptError, ModelFormatError)):
        umpteen.Tfidf.from_part(Part(part.arrays, part.scalars | change))


# --- parameters and what is refused -----------------------------------------------------------------------------


def test_parameters_follow_sklearns_conventions():
    tfidf = umpteen.Tfidf(min_df=2, stop_words=["a"])
    copy = clone(tfidf).set_params(min_df=3)
    assert (tfidf.min_df, copy.min_df, copy.stop_words) == (2, 3, ["a"])
    assert repr(copy) == "Tfidf(min_df=3, stop_words=['a'])"
    theirs = TfidfVectorizer().get_params()
    ours = umpteen.Tfidf().get_params()
    assert {k: v for k, v in ours.items() if k in theirs} == {k: theirs[k] for k in ours if k in theirs}
    assert set(ours) - set(theirs) == {"all_scripts", "hashing", "language", "threads", "word_form", "word_start"}
    with pytest.raises(ParamError, match="tfidf has no parameter 'decode_error'"):
        tfidf.set_params(decode_error="ignore")


def test_in_a_pipeline():
    Y = sp.csr_matrix([[1, 0], [1, 1], [0, 1], [0, 1]])
    pipeline = make_pipeline(umpteen.Tfidf(), umpteen.Centroid()).fit(PLAIN, Y)
    assert pipeline.predict(["herring"]).shape == (1, 2)
    assert clone(pipeline).get_params()["tfidf__norm"] == "l2"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"ngram_range": 2}, "ngram_range must be a pair of integers, but is 2"),
        ({"ngram_range": (0, 1)}, r"ngram_range\[0\] must be an integer of at least 1, but is 0"),
        ({"ngram_range": (2, 1)}, r"ngram_range\[1\] must be an integer of at least 2, but is 1"),
        ({"min_df": 0}, "min_df must be an integer of at least 1, but is 0"),
        ({"max_df": 1.5}, "max_df must be between 0.0 and 1.0, or an integer, but is 1.5"),
        ({"max_df": True}, "max_df must be an integer of at least 1, but is True"),
        ({"max_df": 1, "min_df": 2}, "max_df must not be below min_df, but for 4 rows they are 1 and 2"),
        ({"max_features": 0}, "max_features must be an integer of at least 1, but is 0"),
        ({"sublinear_tf": 1}, "sublinear_tf must be true or false, but is 1"),
        ({"norm": "max"}, "norm must be 'l2', 'l1' or None, but is 'max'"),
        ({"strip_accents": "all"}, "strip_accents must be 'unicode', 'ascii' or None, but is 'all'"),
        ({"token_pattern": "("}, "token_pattern must be a regular expression, but is '\\('"),
        ({"token_pattern": "(a)(b)"}, "token_pattern must be a string with at most one group"),
        ({"token_pattern": b"a"}, "token_pattern must be a string with at most one group"),
        (
            {"analyzer": "chars"},
            "analyzer must be one of word, char, char_wb, or a function, but is .chars.; did you mean .char. or",
        ),
        (
            {"analyzer": str.split, "ngram_range": (1, 2)},
            "must be .1, 1. where analyzer is a function",
        ),
        ({"analyzer": "char", "stop_words": ["a"]}, "stop_words are left out of words only, but analyzer is .char."),
        (
            {"stop_words": "english"},
            "stop_words must be a list of words, or the code of a language, one of af, .*'english'",
        ),
        ({"stop_words": 3}, "stop_words must be a list of words, the code of a language or None, but is 3"),
        ({"hashing": 0}, "hashing must be an integer of at least 1, but is 0"),
        ({"hashing": 2**25}, "hashing must be at most 16777216"),
        ({"hashing": 10, "min_df": 2}, "min_df chooses terms of a vocabulary, but with hashing there is none"),
        ({"hashing": 10, "smooth_idf": False}, "smooth_idf must be true with hashing"),
        ({"threads": 0}, "threads must be an integer of at least 1, but is 0"),
    ],
    ids=str,
)
def test_bad_parameters(params, message):
    with pytest.raises(ParamError, match=message):
        umpteen.Tfidf(**params).fit(PLAIN)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "texts must be a list or another iterable of strings, but is a str"),
        (3, "texts must be a list or another iterable of strings, but is a int"),
        (["a text", None], "text 1 must be a string, but is None"),
        ([b"bytes"], "text 0 must be a string, but is b'bytes'"),
        ([], "there must be at least one text, but there are none"),
        (["a", "!"], "no terms are left from 2 texts; try a lower min_df"),
    ],
)
def test_bad_texts(texts, message):
    with pytest.raises(DataError, match=message):
        umpteen.Tfidf().fit(texts)


def test_other_refusals():
    with pytest.raises(NotFittedError, match="call fit first"):
        umpteen.Tfidf().transform(["a"])
    with pytest.raises(DataError, match="text 1 must not have NUL inside a word"):
        umpteen.Tfidf(token_pattern=r"\S+").fit(["fine", "a\0b"])


def test_a_failed_fit_leaves_the_old_one():
    tfidf = umpteen.Tfidf().fit(PLAIN)
    before = saved_bytes(tfidf)
    with pytest.raises(DataError):
        tfidf.fit(["!"])
    assert saved_bytes(tfidf) == before


@pytest.mark.process
@pytest.mark.measured
def test_ctrl_c_is_heard():
    code = """
import os, signal, threading, time, umpteen
tfidf = umpteen.Tfidf(threads=1, ngram_range=(1, 10))
text = "word " * 8_000_000
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
t = time.perf_counter()
try:
    tfidf.fit([text])
except KeyboardInterrupt:
    print(time.perf_counter() - t)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert float(out.stdout) < 15, out.stderr
