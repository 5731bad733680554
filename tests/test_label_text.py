"""LabelText: its weights against a dense twin, labels without rows, taggers whose labels are a whole vocabulary."""

from __future__ import annotations

import hashlib
import json
import lzma

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.errors import DataError, ModelCorruptError, ModelExistsError, ParamError
from umpteen.methods.label_text import LABEL_TERMS
from umpteen.storage.store import Part
from umpteen.tagging.label_terms import describe_labels
from umpteen.vocabulary.concepts import Concept, Term, Vocabulary

from .reference import label_text_weights
from .test_vocabulary import real

TEXTS = ["herring in the sea", "cod in the sea", "a tax on wine", "beer tax", "salt tax", "sea salt"] * 5
LABELS = [["sea fish"], ["sea fish"], ["wine tax"], ["tax"], ["tax"], ["sea"]] * 5


def random_case(seed=0, n_rows=200, n_features=60, n_labels=30):
    data = umpteen.make_synthetic(n_rows, n_features, n_labels, labels_per_row=2, features_per_row=10, seed=seed)
    generator = np.random.default_rng(seed)
    terms = sp.random(n_labels, n_features, 0.04, random_state=generator, format="csr", dtype=np.float32)
    Y = data.Y.tolil()
    Y[:, :4] = 0  # of no row
    return data.X, sp.csr_matrix(Y), terms


# --- the weights ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"own_rows": 0.0}, {"word_rows": 0.0, "match": 1.5}, {"own_rows": 40.0}])
def test_the_weights_are_those_of_the_twin(settings):
    X, Y, terms = random_case()
    method = umpteen.LabelText(terms, prune=0, weight_type="float32", **settings).fit(X, Y)
    W, bias = method.model_.to_weights()
    plain = {"lambda_": method.lambda_, "tau": method.tau, "prune": 0, "weight_type": "float32"}
    expected, level = label_text_weights(
        X.toarray(), Y.toarray(), terms.toarray(), method.match, method.word_rows, method.own_rows, plain
    )
    np.testing.assert_allclose(bias, level, atol=1e-5)
    np.testing.assert_allclose(W.toarray()[np.isfinite(level)], expected[np.isfinite(level)], atol=1e-5)
    assert np.isinf(level).any()
    assert np.isfinite(level[:4]).any()


def test_without_terms_it_is_ppdsparse():
    X, Y, _ = random_case()
    labels, scores = umpteen.LabelText(prune=0.001).fit(X, Y).predict_topk(X, 5)
    others = umpteen.PPDSparse().fit(X, Y).predict_topk(X, 5)
    np.testing.assert_array_equal(labels, others[0])
    np.testing.assert_allclose(scores, others[1], atol=2e-3)


def test_scale_of_terms_does_not_matter():
    X, Y, terms = random_case()
    one, other = (umpteen.LabelText(some).fit(X, Y).predict_topk(X, 5) for some in (terms, terms * 8))
    np.testing.assert_array_equal(one[0], other[0])


def test_a_label_without_rows_is_ranked_by_its_words_and_by_what_others_taught_them():
    tagger = umpteen.Tagger(umpteen.LabelText(), calibration=0)
    v = Vocabulary.build(
        [
            Concept(f"u:{name}", [Term(name, "en", "preferred")])
            for name in ("sea", "sea fish", "tax", "wine", "wine tax", "fish tax")
        ],
        language="en",
    )
    tagger.set_params(vocabulary=v).fit(TEXTS, LABELS)
    assert tagger.model_.train_counts.counts[tagger.classes_.index("fish tax")] == 0
    assert tagger.suggest("wine", top_k=2, include=["wine", "fish tax"])[0][0] == "wine"
    found = [name for name, _ in tagger.suggest("a tax on herring", top_k=6)]
    assert found.index("fish tax") < found.index("wine")  # herring is said of fish, though not in its name


# --- what it is given ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (np.ones((3, 60)), "label_terms must be 30 labels x 60 features, as Y and X are, but is 3 x 60"),
        (-np.ones((30, 60)), "label_terms must not be negative, but one is -1"),
        (np.full((30, 60), np.nan), "label_terms must hold finite"),
        ("words", "label_terms must"),
    ],
)
def test_bad_terms_are_refused(terms, message):
    X, Y, _ = random_case()
    with pytest.raises(DataError, match=message):
        umpteen.LabelText(terms).fit(X, Y)


@pytest.mark.parametrize("name", ["match", "word_rows", "own_rows", "lambda_", "tau", "prune"])
def test_bad_settings_are_refused(name):
    X, Y, _ = random_case()
    for value in (-1, float("nan"), "x"):
        with pytest.raises(ParamError, match=f"{name} must be"):
            umpteen.LabelText(**{name: value}).fit(X, Y)


def test_terms_are_kept_and_another_run_is_not_continued_with_others(tmp_path):
    X, Y, terms = random_case()
    method = umpteen.LabelText(terms).fit(X, Y, tmp_path / "model")
    again = umpteen.LabelText.from_model(umpteen.load(tmp_path / "model"))
    sums = np.asarray(terms.sum(axis=1)).ravel()
    np.testing.assert_allclose(again.label_terms.sum(axis=1).A1, (sums > 0).astype(float), atol=1e-6)
    np.testing.assert_array_equal(again.predict_topk(X, 3)[0], method.predict_topk(X, 3)[0])
    assert repr(again) == "LabelText(label_terms=<30 x 60>)"
    assert (
        umpteen.LabelText(terms, prune=0.1).estimate(X, Y).peak_bytes > umpteen.LabelText().estimate(X, Y).peak_bytes
    )

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        umpteen.LabelText(terms).fit(X, Y, tmp_path / "other", progress=stop)
    with pytest.raises(ModelExistsError):
        umpteen.LabelText(terms[::-1]).fit(X, Y, tmp_path / "other")


@pytest.mark.parametrize("damage", [{"indices": np.array([99], np.int32)}, {"indptr": np.zeros(3, np.int64)}])
def test_damaged_terms_are_refused(damage):
    X, Y, terms = random_case()
    model = umpteen.LabelText(terms).fit(X, Y).model_
    part = model.parts[LABEL_TERMS]
    with pytest.raises(ModelCorruptError, match="the terms of labels are not usable"):
        umpteen.LabelText.from_model(model.with_part(LABEL_TERMS, Part({**part.arrays, **damage})))


# --- taggers -------------------------------------------------------------------------------------------------------


def vocabulary():
    def concept(name, *others, deprecated=False):
        terms = [Term(name, "en", "preferred"), *(Term(text, "en", "alternative") for text in others)]
        return Concept(f"u:{name}", [*terms, Term(f"{name}-fi", "fi", "preferred")], deprecated=deprecated)

    return Vocabulary.build(
        [
            concept("sea", "ocean"), concept("sea fish"), concept("tax"), concept("wine tax"), concept("wine"),
            concept("beer", "ale", "herring"), concept("old", deprecated=True),
        ],
        language="en",
    )  # fmt: skip


def test_words_of_labels_are_those_of_all_their_terms():
    words = umpteen.Tfidf().fit(TEXTS)
    rows = describe_labels(vocabulary(), words, ["beer", "sea", "nowhere"])
    names = [[words.feature_names_[i] for i in rows[k].indices] for k in range(3)]
    assert names == [["beer", "herring"], ["sea"], []]
    plain = describe_labels(None, words, ["beer", "wine tax"])
    assert (plain[1] != words.transform(["wine tax"])).nnz == 0


def test_a_tagger_suggests_concepts_that_no_text_has(tmp_path):
    tagger = umpteen.Tagger("label-text", vocabulary=vocabulary()).fit(TEXTS, LABELS)
    assert list(tagger.classes_) == [
        "sea",
        "sea fish",
        "tax",
        "wine tax",
        "wine",
        "beer",
    ]  # but not what is deprecated
    tagger.save(tmp_path / "model")
    again = umpteen.load(tmp_path / "model")
    found = again.suggest("beer", top_k=3, language="fi")
    assert "beer-fi" in [name for name, _ in found]
    assert again.explain("beer and wine", label="beer").words[0][0] == "beer"
    for label in again.classes_:  # with rows and without
        why = again.explain("the herring and beer tax", label=label)
        assert why.words
        assert why.base + sum(value for _, value in why.words) == pytest.approx(why.score, abs=1e-5)
    assert clone(again).fit(TEXTS, LABELS).suggest("beer") == tagger.suggest("beer")
    change = again.update_vocabulary(vocabulary())
    assert change.retired == change.renamed == []


def test_names_are_words_without_a_vocabulary():
    tagger = umpteen.Tagger("label-text").fit(TEXTS, LABELS)
    assert LABEL_TERMS in tagger.model_.parts
    assert tagger.suggest("herring", top_k=1)[0][0] == "sea fish"


def test_texts_in_another_language_than_the_vocabulary_are_noticed():
    names = {"sea": "meri", "sea fish": "merikala", "tax": "vero", "wine tax": "viinivero"}
    finnish = Vocabulary.build(
        [Concept(f"u:{name}", [Term(text, "fi", "preferred")]) for name, text in names.items()], "fi"
    )
    labels = [[f"u:{name}" for name in row] for row in LABELS]
    with pytest.warns(UserWarning, match="4 of 4 labels, such as 'meri', have no word that is in the texts.*'fi',"):
        tagger = umpteen.Tagger("label-text", vocabulary=finnish, calibration=0).fit(TEXTS, labels)
    assert tagger.suggest("wine", top_k=1)[0][0] == "viinivero"  # from its own rows


@pytest.mark.parametrize("features", ["svd:2", {"a": "word"}])
def test_features_that_labels_do_not_have_are_refused(features):
    texts = [{"a": text} for text in TEXTS] if isinstance(features, dict) else TEXTS
    with pytest.raises(ParamError, match="label-text needs features that are words or characters of one text"):
        umpteen.Tagger("label-text", features=features).fit(texts, LABELS)


def test_label_text_at_the_command_line(tmp_path):
    lines = (json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, LABELS, strict=True))
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    (tmp_path / "v.txt").write_text("sea\nsea fish\ntax\nwine tax\nbeer\n")
    done = CliRunner().invoke(
        app,
        ["train", f"{tmp_path}/corpus.jsonl", "--method", "label-text", "--set", "own_rows=5",
         "--vocabulary", f"{tmp_path}/v.txt", "--model", f"{tmp_path}/model"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "beer" in umpteen.load(tmp_path / "model").classes_


# --- real data -----------------------------------------------------------------------------------------------------


def hidden(name):
    """A tenth of labels, whoever asks."""
    return int(hashlib.md5(f"0:{name}".encode()).hexdigest(), 16) % 10 == 0


def test_hidden_tags_of_cooking_are_found_better_than_by_bm25():
    with lzma.open(real("StackExchange-Cooking", "train.jsonl.xz"), "rt") as lines:
        rows = [json.loads(line) for line in lines][:6000]
    texts, labels = [row["text"] for row in rows], [row["labels"] for row in rows]
    names = sorted({name for row in labels for name in row})
    Y = sp.csr_matrix(np.array([[name in row for name in names] for row in labels], np.float32))
    new = np.flatnonzero([hidden(name) for name in names])
    words = umpteen.Tfidf().fit(texts[:5000])
    terms = words.transform([name.replace("-", " ") for name in names])
    seen = Y[:5000].tolil()
    seen[:, new] = 0
    model = umpteen.LabelText(terms).fit(words.transform(texts[:5000]), sp.csr_matrix(seen)).model_
    held_out = words.transform(texts[5000:])
    rows_with = np.flatnonzero(np.asarray(Y[5000:, new].sum(axis=1)).ravel() > 0)
    truth = Y[5000:][rows_with][:, new].toarray() > 0
    found, _ = model.predict_topk(held_out[rows_with], 10, include=new)
    pattern = (terms > 0).astype(np.float32)
    rarity = np.log1p((len(names) + 0.5) / (pattern.sum(axis=0).A1 + 0.5))
    lengths = pattern.sum(axis=1).A1
    bm25 = sp.diags(2.5 / (1 + 1.5 * (0.25 + 0.75 * lengths / lengths.mean()))) @ pattern @ sp.diags(rarity)
    scores = ((held_out[rows_with] > 0).astype(np.float32) @ bm25[new].T).toarray()
    others = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    places = np.searchsorted(new, found)

    def recall(which):
        return (np.take_along_axis(truth, which, 1).sum(axis=1) / truth.sum(axis=1)).mean()

    assert len(rows_with) > 60
    assert recall(places) > recall(others) + 0.03
