"""New labels for a model that is already trained."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.errors import DataError, ModelExistsError, NotFittedError, ParamError
from umpteen.methods import METHODS, method_class, method_of
from umpteen.methods.one_vs_rest import OneVsRest

from .files import read_files

GROWING = [cls for cls in map(method_class, METHODS) if issubclass(cls, OneVsRest)]
every_method = pytest.mark.parametrize("cls", GROWING, ids=lambda cls: cls.name)
N_OLD = 25


def same_bytes(left, right):
    """Of all arrays of two model directories."""
    assert read_files(left, "*.npy") == read_files(right, "*.npy")


def all_scores(model, X):
    """Every label's score of every row, labels in order; -inf for those that are not ranked."""
    labels, scores = model.predict_topk(X, model.n_labels_)
    table = np.full((X.shape[0], model.n_labels_ + 1), -np.inf, np.float32)  # pads fall into the last column
    np.put_along_axis(table, labels, scores, axis=1)
    return table[:, :-1]


@every_method
def test_old_labels_stay_and_new_ones_follow(cls, tiny):
    model = cls(tfidf=True, labels_per_shard=10).fit(tiny.X, tiny.Y[:, :N_OLD])
    before, n_shards = all_scores(model, tiny.X), len(model.model_.scorer.shards)
    assert model.add_labels(tiny.X, tiny.Y[:, N_OLD:]) is model
    after = all_scores(model, tiny.X)
    assert after.shape == (300, 40)
    np.testing.assert_array_equal(after[:, :N_OLD], before)
    assert len(model.model_.scorer.shards) == n_shards + 2  # 15 labels, 10 a shard
    assert model.n_labels_ == model.model_.scorer.n_labels == 40
    np.testing.assert_array_equal(model.train_counts_.counts, tiny.label_counts())
    assert model.train_counts_.n_rows == 300
    together = cls(tfidf=True, labels_per_shard=10).fit(tiny.X, tiny.Y)
    np.testing.assert_allclose(after, all_scores(together, tiny.X), atol=0.01)
    assert model.score(tiny.X, tiny.Y) == pytest.approx(together.score(tiny.X, tiny.Y), abs=0.02)


@every_method
def test_the_same_blocks_of_labels_give_the_same_bytes(cls, tiny, tmp_path):
    """Labels in order of frequency, cut where a shard ends: training in two steps is training in one."""
    Y = tiny.Y[:, np.argsort(-tiny.label_counts(), kind="stable")]
    names = [f"n{i}" for i in range(40)]
    kinds = [{}, {"tfidf": True}] + [{"propensity": True}] * ("propensity" in cls.param_defaults())
    for options in kinds:
        model = cls(labels_per_shard=8, **options)
        place = tmp_path / "-".join(["m", *options])
        model.fit(tiny.X, Y, place / "one", label_names=names)
        model.fit(tiny.X, Y[:, :24], place / "two", label_names=names[:24])
        method_of(umpteen.load(place / "two")).add_labels(tiny.X, Y[:, 24:], names[24:], place / "grown")
        same_bytes(place / "one", place / "grown")
        in_memory = method_of(umpteen.load(place / "two")).add_labels(tiny.X, Y[:, 24:], names[24:])
        in_memory.save(place / "saved")
        same_bytes(place / "one", place / "saved")
        # Over the very files its old shards are mapped from.
        in_memory.save(place / "two", overwrite=True)
        same_bytes(place / "one", place / "two")
        headers = []
        for name in ("one", "grown", "saved", "two"):
            manifest = json.loads((place / name / "manifest.json").read_text())
            manifest.pop("fingerprint", None)
            manifest.pop("manifest_sha256")  # of the fingerprint too
            headers.append(manifest)
        assert headers[0] == headers[1] == headers[2] == headers[3]


@every_method
def test_a_loaded_model_grows_twice(cls, tiny, tmp_path):
    names = [f"n{i}" for i in range(40)]
    cls(labels_per_shard=16).fit(tiny.X, tiny.Y[:, :20], tmp_path / "m", label_names=names[:20])
    model = method_of(umpteen.load(tmp_path / "m"))
    assert model.predict_topk(tiny.X, 5, include=["n3"])[0].max() == 3
    model.add_labels(tiny.X, tiny.Y[:, 20:30], names[20:30])
    model.add_labels(tiny.X, tiny.Y[:, 30:], names[30:], tmp_path / "grown")
    again = method_of(umpteen.load(tmp_path / "grown", checksums=True))
    for grown in (model, again):
        assert list(grown.label_names_) == names
        assert grown.predict_topk(tiny.X, 5, include=["n35"])[0].max() == 35
        np.testing.assert_array_equal(grown.train_counts_.counts, tiny.label_counts())
    np.testing.assert_array_equal(all_scores(model, tiny.X), all_scores(again, tiny.X))
    # The model it came from is still what it was.
    assert umpteen.load(tmp_path / "m", checksums=True).n_labels == 20


@every_method
def test_the_rows_may_be_others(cls, tiny):
    """The idf is the model's, not one counted on the new rows; propensities of old labels do not change."""
    model = cls(tfidf=True).fit(tiny.X, tiny.Y[:, :N_OLD])
    before = all_scores(model, tiny.X)
    rows = np.arange(0, 300, 2)
    model.add_labels(tiny.X[rows], tiny.Y[rows, N_OLD:], negatives="rows")
    np.testing.assert_array_equal(all_scores(model, tiny.X)[:, :N_OLD], before)
    assert model.train_counts_.n_rows == 300
    np.testing.assert_array_equal(model.train_counts_.counts[N_OLD:], tiny.take(rows).label_counts()[N_OLD:])
    # By hand: rows weighted by the model's idf and trained alone.
    weighted = sp.csr_matrix(tiny.X.multiply(model.preprocessing_.idf))[rows]
    alone = cls().fit(weighted, tiny.Y[rows, N_OLD:])
    np.testing.assert_allclose(
        model.model_.scorer.to_weights()[0][N_OLD:].toarray(),
        alone.model_.scorer.to_weights()[0].toarray(),
        rtol=0.01,
        atol=0.03,
    )


def test_rows_that_all_have_a_new_label_are_not_enough(tiny):
    """However many they are."""
    rows = np.flatnonzero(np.diff(tiny.Y[:, N_OLD:].indptr))
    base = umpteen.DiSMEC().fit(tiny.X[:100], tiny.Y[:100, :N_OLD])
    assert len(rows) > 100
    scores = {}
    for negatives in ("auto", "rows"):
        model = umpteen.DiSMEC.from_model(base.fitted()).add_labels(
            tiny.X[rows], tiny.Y[rows, N_OLD:], negatives=negatives
        )
        scores[negatives] = all_scores(model, tiny.X)[:, N_OLD:].mean()
    assert scores["auto"] < scores["rows"] - 0.02


@every_method
def test_fewer_rows_are_joined_by_other_negatives(cls, tiny):
    """With nine rows alone, a label is given to half of all rows; with negatives, to about as many as have it."""
    rows = np.arange(9)
    own = np.flatnonzero(np.bincount(tiny.Y[rows, N_OLD:].indices, minlength=15))
    scores = {}
    for negatives in ("rows", "weights", "kept"):
        model = cls().fit(tiny.X, tiny.Y[:, :N_OLD], keep_rows=100)
        before = all_scores(model, tiny.X)
        model.add_labels(tiny.X[rows], tiny.Y[rows][:, N_OLD + own], negatives=negatives)
        after = all_scores(model, tiny.X)
        np.testing.assert_array_equal(after[:, :N_OLD], before)
        scores[negatives] = after[9:, N_OLD:].mean()
    if cls.needs_negatives:
        assert scores["weights"] < scores["rows"] - 0.02
        assert scores["kept"] < scores["rows"] - 0.02
    else:
        assert scores["weights"] == scores["kept"] == scores["rows"]


@every_method
def test_bad_input_is_refused_and_changes_nothing(cls, tiny, tmp_path):
    X, Y = tiny.X, tiny.Y[:, N_OLD:]
    plain = cls().fit(X, tiny.Y[:, :N_OLD])
    names = [f"n{i}" for i in range(40)]
    named = cls().fit(X, tiny.Y[:, :N_OLD], label_names=names[:N_OLD])
    new = names[N_OLD:]
    before = all_scores(plain, X)
    for model, arguments, message in [
        (plain, (X[:, :7], Y), "X must have 200 columns, but has 7"),
        (plain, (X[:9], Y), "X and Y must have the same number of rows, but have 9 and 300"),
        (plain, (X, Y[:, :0]), "training needs at least one label, but there are none"),
        (plain, (X[:0], Y[:0]), "training needs at least one row, but there are none"),
        (plain, (X, Y * -1), "Y_new must hold 0 where a row lacks a label"),
        (plain, (X, Y, new), "names must be None, because the model's labels have no names"),
        (named, (X, Y), "the new labels need names, because the model's labels have names"),
        (named, (X, Y, new[1:]), "there must be 15 label names, but there are 14"),
        (named, (X, Y, ["n3", *new[1:]]), "label names must be unique, but 'n3' already exists"),
        (named, (X, Y, [new[1], *new[1:]]), "label names must be unique, but 'n26' already exists"),
    ]:
        with pytest.raises(DataError, match=message):
            model.add_labels(*arguments)
        with pytest.raises(DataError, match=message):
            model.add_labels(*arguments, *[None] * (3 - len(arguments)), tmp_path / "never")
    assert not (tmp_path / "never").exists()
    with pytest.raises(NotFittedError):
        cls().add_labels(X, Y)
    other = "float32" if plain.weight_type == "float16" else "float16"
    with pytest.raises(ParamError, match="parameters of the model, but weight_type was 'float16' and is 'float32'"):
        plain.set_params(weight_type=other).add_labels(X, Y)
    plain.set_params(weight_type="float16")
    plain.save(tmp_path / "m")
    with pytest.raises(ModelExistsError, match="a finished model is already there"):
        method_of(umpteen.load(tmp_path / "m")).add_labels(X, Y, None, tmp_path / "m")
    assert plain.n_labels_ == named.n_labels_ == N_OLD
    np.testing.assert_array_equal(all_scores(plain, X), before)


class Stop(Exception):
    pass


@every_method
def test_an_interrupted_run_resumes_to_the_same_bytes(cls, tiny, tmp_path):
    def stop(progress):
        if progress.shards_done == 2:
            raise Stop

    cls(labels_per_shard=4).fit(tiny.X, tiny.Y[:, :N_OLD], tmp_path / "m")
    arguments = (tiny.X, tiny.Y[:, N_OLD:], None, tmp_path / "grown")
    model = method_of(umpteen.load(tmp_path / "m"))
    with pytest.raises(Stop):
        model.add_labels(*arguments, progress=stop)
    assert model.n_labels_ == N_OLD
    with pytest.raises(umpteen.errors.ModelUnfinishedError):
        umpteen.load(tmp_path / "grown")
    with pytest.raises(ModelExistsError, match="an unfinished model is there"):
        model.add_labels(*arguments, resume=False)
    # Neither other rows nor another model may continue it.
    with pytest.raises(ModelExistsError, match="has a different fingerprint"):
        model.add_labels(tiny.X[:299], tiny.Y[:299, N_OLD:], None, tmp_path / "grown")
    other = cls(labels_per_shard=4).fit(tiny.X[::-1], tiny.Y[:, :N_OLD])
    with pytest.raises(ModelExistsError, match=r"has a different fingerprint, .* \(model was"):
        other.add_labels(*arguments)
    events = []
    method_of(umpteen.load(tmp_path / "m")).add_labels(*arguments, progress=events.append)
    assert events[0].shards_done >= 2  # shards in work beside the second may have got done too
    assert events[-1].shards_done == 4
    method_of(umpteen.load(tmp_path / "m")).add_labels(*arguments[:3], tmp_path / "at once")
    same_bytes(tmp_path / "grown", tmp_path / "at once")


@pytest.mark.slow
def test_old_shards_are_mapped_not_read(tmp_path):
    """What it takes to grow a model does not depend on how large it is."""
    import tracemalloc

    rng = np.random.default_rng(0)
    X, Y = rng.random((1000, 500), np.float32), rng.random((1000, 4000)) < 0.004
    umpteen.Centroid(labels_per_shard=100).fit(X, Y, tmp_path / "m")
    model = method_of(umpteen.load(tmp_path / "m"))
    stored = sum(shard.weights.nbytes for shard in model.model_.scorer.shards)
    tracemalloc.start()
    model.add_labels(X[:20], np.eye(20, 1), None, tmp_path / "grown")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert stored > 3_500_000
    assert peak < stored / 3


def test_refitting_forgets_the_old_names(tiny):
    model = umpteen.Centroid().fit(tiny.X, tiny.Y, label_names=[f"a{i}" for i in range(40)])
    assert model.predict_topk(tiny.X, 1, include=["a7"])[0].max() == 7
    model.fit(tiny.X, tiny.Y, label_names=[f"b{i}" for i in range(40)])
    assert model.predict_topk(tiny.X, 1, include=["b8"])[0].max() == 8
    with pytest.raises(ParamError, match="unknown label 'a7'"):
        model.predict_topk(tiny.X, 1, include=["a7"])


def test_eurlex_labels_added_later_are_as_good(eurlex):
    """The rarer half of a sample of labels, added to a model of the more frequent half."""
    train, test = eurlex
    chosen = np.argsort(-train.label_counts(), kind="stable")[:800:4]
    Y, test_Y = train.Y[:, chosen], test.Y[:, chosen]
    together = umpteen.DiSMEC().fit(train.X, Y)
    grown = umpteen.DiSMEC().fit(train.X, Y[:, :100]).add_labels(train.X, Y[:, 100:])
    want = umpteen.evaluate(test_Y, together.predict_topk(test.X, 5)[0], deciles=False)
    got = umpteen.evaluate(test_Y, grown.predict_topk(test.X, 5)[0], deciles=False)
    for k in (1, 3, 5):
        assert got[f"P@{k}"] == pytest.approx(want[f"P@{k}"], abs=0.05)
