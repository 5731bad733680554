"""Models that grow: new words, and new labels that are told from the old ones."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.errors import DataError, ModelCorruptError, ParamError
from umpteen.methods import growing
from umpteen.methods.kept_rows import KEPT_ROWS, KeptRows
from umpteen.methods.training_data import TrainingData
from umpteen.methods.trust import draw_to_rest, find_trust
from umpteen.storage.store import Part, read_version
from umpteen.text.growing import _make_slots, grow_vocabulary

from .files import read_files
from .test_cli_text import run
from .test_tagger import cooking  # noqa: F401  (a fixture)

pytestmark = pytest.mark.slow

GOLDFISH = (
    ["my goldfish looks sad", "feeding a goldfish", "how to roast a chicken"],
    [["goldfish"], ["goldfish"], []],
)


@pytest.fixture(scope="module")
def saved(cooking, tmp_path_factory):  # noqa: F811
    """A model of a part of the questions, as a directory; it keeps some of them."""
    train, _ = cooking
    path = tmp_path_factory.mktemp("growth") / "m"
    tagger = umpteen.Tagger(umpteen.DiSMEC(), keep_rows=300).fit(train.texts[:4000], train.labels[:4000])
    tagger.save(path)
    return path


@pytest.fixture
def tagger(saved):
    return umpteen.load(saved)


def write_lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def probability(tagger, text, label):
    return tagger.suggest(text, top_k=1, include=[label])[0][1]


# --- new labels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("negatives", ["auto", "kept", "weights"])
def test_not_everything_is_a_goldfish(tagger, cooking, negatives):  # noqa: F811
    questions = cooking[1].texts[:300]
    before = [[name for name, _ in row] for row in tagger.suggest(questions, 3)]
    tagger.add_labels(*GOLDFISH, negatives=negatives)
    assert probability(tagger, "Parse ISO dates", "goldfish") < 0.05  # was 0.86
    assert tagger.suggest("a goldfish", 1)[0][0] == "goldfish"
    assert tagger.suggest("Is my goldfish ill?", 1)[0][0] == "goldfish"
    assert tagger.suggest("How do I season a cast iron pan?", 1)[0][0] == "cast-iron"
    after = [[name for name, _ in row] for row in tagger.suggest(questions, 3)]
    assert sum("goldfish" in row for row in after) <= 3
    assert sum(old == new for old, new in zip(before, after, strict=True)) >= 297


@pytest.mark.parametrize("negatives", ["auto", "kept", "weights"])
def test_a_word_that_only_a_new_label_knows_gets_no_old_label(tagger, negatives):
    """The most frequent old labels came with .50: their bias, which no word spoke for or against."""
    assert tagger.suggest("goldfish", 5) == []
    tagger.add_labels(*GOLDFISH, negatives=negatives)
    for text in ("goldfish", "Goldfish, GOLDFISH!", "xyzzy goldfish"):
        assert [name for name, _ in tagger.suggest(text, 5)] == ["goldfish"]
    assert [name for name, _ in tagger.suggest("goldfish", 5, exclude=["goldfish"])] == []
    assert [name for name, _ in tagger.suggest("goldfish", 5, include=["bread"])] == []
    # A known word beside it is enough, and of many texts each gets what it gets alone.
    texts = ["goldfish", "a goldfish in bread", "bread", "", "xyzzy"]
    together = tagger.suggest(texts, 5)
    assert together == [tagger.suggest(text, 5) for text in texts]
    assert [len(row) for row in together] == [1, 5, 5, 0, 0]


def test_each_generation_of_labels_knows_its_own_words(tagger, tmp_path):
    tagger.add_labels(*GOLDFISH)
    tagger.add_labels(["an axolotl in a goldfish bowl", "feeding my axolotl"], [["axolotl"], ["axolotl"]])
    tagger.learn("quokka quokka", accepted=["bread"])
    tagger.save(tmp_path / "m")
    for model in (tagger, umpteen.load(tmp_path / "m")):
        found = {text: {name for name, _ in model.suggest(text, 5)} for text in ("goldfish", "axolotl", "quokka")}
        assert found == {"goldfish": {"goldfish", "axolotl"}, "axolotl": {"axolotl"}, "quokka": {"bread"}}


@pytest.mark.parametrize("steps", [7, [[1]], [[5, 9], [5, 10]], [[5, 10**9]], [[10**9, 5]], [[True, 5]], [[0, 5]]])
def test_damaged_facts_of_growth_are_refused(tiny, steps):
    model = umpteen.DiSMEC().fit(tiny.X, tiny.Y).fitted()
    with pytest.raises(ModelCorruptError, match="grown must be rising pairs of at most 40 labels"):
        umpteen.TrainedModel(model.header | {"grown": steps}, model.parts, model.scorer)


def test_only_the_rows_given_make_everything_a_goldfish(tagger):
    """What the other sources are for; and the same as before there were any."""
    tagger.add_labels(*GOLDFISH, negatives="rows")
    assert probability(tagger, "Parse ISO dates", "goldfish") > 0.2


def test_added_labels_are_scored_as_if_trained_from_the_start(cooking):  # noqa: F811
    texts, labels = cooking[0].texts[:3000], cooking[0].labels[:3000]
    hidden = {"bread", "eggs", "chicken", "sauce", "rice", "cheese", "pasta", "coffee"}
    rows = [i for i in range(3000) if hidden.isdisjoint(labels[i])]
    new = [i for i in range(3000) if not hidden.isdisjoint(labels[i])][:120]
    make = umpteen.Tagger(umpteen.DiSMEC(), calibration=0)
    base = make.fit([texts[i] for i in rows], [labels[i] for i in rows]).fitted()
    start = umpteen.Tagger(umpteen.DiSMEC(), calibration=0).fit(
        [texts[i] for i in rows + new], [labels[i] for i in rows + new]
    )
    test = cooking[1].texts[:500]
    want = mean_scores(start, test, hidden)
    far = {}
    for negatives in ("weights", "rows"):
        grown = umpteen.Tagger.from_model(base)
        grown.add_labels([texts[i] for i in new], [labels[i] for i in new], negatives=negatives)
        far[negatives] = abs(mean_scores(grown, test, hidden) - want).mean()
    assert far["weights"] < 0.06
    assert far["rows"] > 0.2  # the rows alone do not do it


def mean_scores(tagger, texts, names):
    X, model = tagger.vectorize(texts).X, tagger.fitted()
    return np.array([model.predict_topk(X, 1, include=[name])[1].mean() for name in sorted(names)])


def test_scores_of_new_labels_are_drawn_towards_rest_by_trust(tiny):
    data = TrainingData(tiny.X, tiny.Y, 1.0, trust=0.5)
    n_rows = np.diff(tiny.Y.tocsc().indptr)
    labels = np.flatnonzero(n_rows > 1)[:3].astype(np.int32)
    W, bias = sp.csr_matrix(np.ones((3, 2), np.float32)), np.array([-1, 0, 1], np.float32)
    drawn, rest = draw_to_rest(data, labels, W, bias)
    trust = 0.5 ** ((1.5 * n_rows[labels] - 1) / (n_rows[labels] + 1))
    np.testing.assert_allclose(drawn.toarray(), np.repeat(trust[:, None], 2, 1), rtol=1e-6)
    np.testing.assert_allclose(rest, (bias + 1) * trust - 1, rtol=1e-6)


def test_rows_kept_say_how_far_new_labels_are_trusted(cooking, monkeypatch):  # noqa: F811
    train, test = cooking
    base = umpteen.Tagger(umpteen.DiSMEC(), calibration=0, keep_rows=400).fit(train.texts[:4000], train.labels[:4000])
    new = [["new"] if i < 20 else [] for i in range(40)]
    found = []
    monkeypatch.setattr(growing, "find_trust", lambda *given: found.append(find_trust(*given)) or found[-1])
    trusted = umpteen.Tagger.from_model(base.fitted()).add_labels(train.texts[4000:4040], new, negatives="kept")
    assert 0.5 <= found[0] < 1
    monkeypatch.setattr(growing, "find_trust", lambda *given: 1.0)
    plain = umpteen.Tagger.from_model(base.fitted()).add_labels(train.texts[4000:4040], new, negatives="kept")
    low, high = (
        t.fitted().predict_topk(t.vectorize(test.texts[:300]).X, 1, include=["new"])[1] for t in (trusted, plain)
    )
    np.testing.assert_allclose(low + 1, found[0] ** (29 / 21) * (high + 1), atol=5e-3)


def test_probabilities_of_labels_with_few_rows_are_not_too_high(cooking):  # noqa: F811
    """Summed over the new labels of new texts they come to how many of these are right, or to less."""
    train, test = cooking
    rng, counts = np.random.default_rng(0), Counter(name for row in train.labels[:4000] for name in row)
    hidden = {name for name in counts if counts[name] >= 8 and rng.random() < 0.1}
    old = [i for i in range(4000) if hidden.isdisjoint(train.labels[i])]
    base = umpteen.Tagger(umpteen.DiSMEC(), keep_rows=1000)
    base.fit([train.texts[i] for i in old], [train.labels[i] for i in old])
    texts, truth = test.texts[:1500], [hidden.intersection(row) for row in test.labels[:1500]]
    for n in (1, 5):
        rows = sorted({i for name in hidden for i in [i for i in range(4000) if name in train.labels[i]][:n]})
        new, labels = [train.texts[i] for i in rows], [train.labels[i] for i in rows]
        expected, right = {}, {}
        for negatives in ("auto", "rows"):
            tagger = umpteen.Tagger.from_model(base.fitted()).add_labels(new, labels, negatives=negatives)
            given = zip(tagger.suggest(texts, 5, threshold=0.2), truth, strict=True)
            judged = [(p, name in own) for row, own in given for name, p in row if name in hidden]
            expected[negatives], right[negatives] = (sum(column) for column in zip(*judged, strict=True))
        assert right["auto"] >= 5
        assert expected["auto"] < 1.2 * right["auto"]
        assert expected["auto"] / right["auto"] < expected["rows"] / right["rows"]


def test_what_is_too_little_is_refused(tagger, tiny):
    with pytest.raises(DataError, match="each new label needs rows that lack it, but 'goldfish' is on all 1 rows"):
        tagger.add_labels(["a goldfish"], [["goldfish"]], negatives="rows")
    with pytest.raises(ParamError, match="negatives must be one of auto, rows, kept, weights, but is 'some'"):
        tagger.add_labels(["a goldfish"], [["goldfish"]], negatives="some")
    assert "goldfish" not in tagger.classes_
    assert tagger.features_.n_features_ == tagger.fitted().n_features
    tagger.add_labels(["a goldfish"], [["goldfish"]])  # against what the model knows it can be learnt
    method = umpteen.DiSMEC().fit(tiny.X, tiny.Y[:, :30])
    with pytest.raises(DataError, match="needs at least one row that has it, but label 32 has none"):
        method.add_labels(tiny.X, sp.hstack([tiny.Y[:, 30:32], sp.csr_matrix((300, 1))]))
    with pytest.raises(ParamError, match="needs a model that keeps training rows; train it with keep_rows"):
        method.add_labels(tiny.X[:9], tiny.Y[:9, 30:], negatives="kept")
    with pytest.raises(ParamError, match="keep_rows is for methods that labels can be added to"):
        umpteen.FastXML(n_trees=2).fit(tiny.X, tiny.Y, keep_rows=9)
    with pytest.raises(ParamError, match="keep_rows must be an integer of at least 0"):
        umpteen.Tagger(keep_rows=-1).fit(["x y"], [["a"]])


def test_a_growing_model_of_texts_resumes_and_is_the_same(saved, tmp_path):
    class Stop(Exception):
        pass

    def stop(progress):
        if progress.shards_done:
            raise Stop

    with pytest.raises(Stop):
        umpteen.load(saved).add_labels(*GOLDFISH, tmp_path / "a", progress=stop)
    version = read_version(saved)
    umpteen.load(saved).add_labels(*GOLDFISH, tmp_path / "a")
    umpteen.load(saved).add_labels(*GOLDFISH).save(tmp_path / "b")
    assert read_files(tmp_path / "a", "*.npy") == read_files(tmp_path / "b", "*.npy")
    assert read_version(saved) == version
    again = umpteen.load(tmp_path / "a", checksums=True)
    assert again.suggest("a goldfish", 1)[0][0] == "goldfish"


# --- kept rows ----------------------------------------------------------------------------------------------------


def test_rows_are_kept_only_if_asked_for(tiny, tmp_path):
    umpteen.DiSMEC().fit(tiny.X, tiny.Y, tmp_path / "none")
    assert KEPT_ROWS not in umpteen.load(tmp_path / "none").parts
    umpteen.DiSMEC().fit(tiny.X, tiny.Y, tmp_path / "some", keep_rows=50)
    kept = KeptRows.of(umpteen.load(tmp_path / "some"))
    assert kept.X.shape == (50, 200)
    assert kept.Y.shape == (50, 40)
    dense = tiny.X.toarray()
    places = [int(np.flatnonzero((dense == row).all(axis=1))[0]) for row in kept.X.toarray()]
    assert places == sorted(places)
    np.testing.assert_array_equal(tiny.Y[places].toarray(), kept.Y.toarray())
    everything = umpteen.DiSMEC().fit(tiny.X, tiny.Y, keep_rows=10_000)
    assert KeptRows.of(everything.fitted()).X.shape[0] == 300


@pytest.mark.parametrize("change", ["indptr", "indices", "label_indices", "data"])
def test_damaged_rows_are_refused_not_followed(tiny, change):
    model = umpteen.DiSMEC().fit(tiny.X, tiny.Y, keep_rows=50).fitted()
    arrays = {name: np.array(array) for name, array in model.parts[KEPT_ROWS].arrays.items()}
    arrays[change][-1] = 2**30 if change != "data" else np.nan
    with pytest.raises(ModelCorruptError):
        KeptRows.of(model.with_part(KEPT_ROWS, Part(arrays)))
    arrays.pop(change)
    with pytest.raises(ModelCorruptError):
        KeptRows.of(model.with_part(KEPT_ROWS, Part(arrays)))


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ngram_range", [(1, 1), (1, 2), (2, 3)])
def test_new_terms_come_after_the_old_ones(cooking, ngram_range):  # noqa: F811
    texts = cooking[0].texts[:1200]
    old = umpteen.Tfidf(ngram_range=ngram_range).fit(texts[:600])
    grown, whole = grow_vocabulary(old, texts[600:]), umpteen.Tfidf(ngram_range=ngram_range).fit(texts)
    n, names = old.n_features_, list(grown.feature_names_)
    assert names[:n] == list(old.feature_names_)
    assert sorted(names) == sorted(whole.feature_names_)
    assert list(grown.idf_[:n]) == list(old.idf_)
    found = grown._vectorizer.find([name.encode() for name in names])
    np.testing.assert_array_equal(found, np.arange(len(names)))
    # Texts of old words alone are the rows they were; those of new ones have entries there.
    np.testing.assert_array_equal(grown.transform(texts[:600])[:, :n].toarray(), old.transform(texts[:600]).toarray())
    assert grown.transform(texts[600:])[:, n:].nnz > 0
    assert grow_vocabulary(grown, texts) is grown
    # Rows are counted beside those of training, none of which had the term.
    term = names[n]
    rows_with = sum(term in umpteen.Tfidf(ngram_range=ngram_range).fit([t]).feature_names_ for t in texts[600:]
                    if all(word in t.lower() for word in term.split()))  # fmt: skip
    assert grown.idf_[n] == pytest.approx(1 + np.log(1201 / (rows_with + 1)))


def test_the_vocabulary_grows_by_its_own_rules():
    texts = ["the cat sat", "the dog sat", "the cow sat"]
    old = umpteen.Tfidf(max_df=0.7).fit(texts)
    assert list(old.feature_names_) == ["cat", "cow", "dog"]
    grown = grow_vocabulary(old, ["the goldfish", "the goldfish", "the bowl"])
    assert list(grown.feature_names_) == ["cat", "cow", "dog", "bowl", "goldfish"]  # not "the"
    pairs = umpteen.Tfidf(ngram_range=(1, 2), min_df=2).fit(texts)
    grown = grow_vocabulary(pairs, ["a red fish", "one red fish", "a blue fish"])
    assert list(grown.feature_names_)[-5:] == ["blue", "fish", "one", "red", "red fish"]  # not "blue fish"
    for settings in ({"max_features": 2}, {"hashing": 64}):
        fixed = umpteen.Tfidf(**settings).fit(texts)
        assert grow_vocabulary(fixed, ["goldfish"]) is fixed
    with pytest.raises(DataError, match="text 0 must be a string"):
        grow_vocabulary(old, [7])


def test_terms_are_found_though_their_slots_run_over_the_end():
    hashes = (2**32 - 1 - np.random.default_rng(0).integers(0, 40, 400)).astype(np.uint32)
    slots = _make_slots(hashes)
    for term, value in enumerate(hashes.tolist()):
        at = value & (len(slots) - 1)
        while slots[at, 1] != term + 1:
            assert slots[at, 1] != 0
            at = (at + 1) & (len(slots) - 1)


def test_an_idf_of_the_method_grows_too():
    texts = ["herring quotas", "cod quotas in the sea", "a tax on wine", "wine and beer tax"] * 10
    labels = [["fish"], ["fish"], ["tax"], ["tax"]] * 10
    tagger = umpteen.Tagger(umpteen.DiSMEC(tfidf=True), umpteen.Tfidf(use_idf=False)).fit(texts, labels)
    n = tagger.fitted().n_features
    tagger.add_labels(["a goldfish in a bowl"], [["pets"]])
    model = tagger.fitted()
    assert model.n_features == tagger.features_.n_features_ == n + 2
    np.testing.assert_allclose(model.preprocessing.idf[n:], 1 + np.log(42 / 2), rtol=1e-6)
    X = tagger.vectorize(["my goldfish", "wine"]).X
    goldfish, wine = model.predict_topk(X, 1, include=["pets"])[1].ravel()
    assert goldfish > wine + 0.3


# --- the command line ---------------------------------------------------------------------------------------------


def test_the_command_keeps_rows_and_adds_labels(tmp_path):
    texts = ["herring quotas in the north sea", "a tax on wine", "wine and beer tax", "the sea"] * 8
    labels = [["fish", "sea"], ["tax"], ["tax"], ["sea"]] * 8
    write_lines(tmp_path / "t.jsonl", *({"text": t, "labels": own} for t, own in zip(texts, labels, strict=True)))
    run("train", tmp_path / "t.jsonl", "--method", "dismec", "--model", tmp_path / "m", "--keep-rows", 10)
    assert "kept_rows            10" in run("inspect", tmp_path / "m")
    write_lines(tmp_path / "n.jsonl", {"text": "a goldfish", "labels": ["pets"]})
    run("add-labels", tmp_path / "m", tmp_path / "n.jsonl", "--model", tmp_path / "g", "--negatives", "kept")
    tagger = umpteen.load(tmp_path / "g")
    assert tagger.suggest("goldfish", 1)[0][0] == "pets"
    assert tagger.suggest("the wine tax", 1)[0][0] == "tax"
