"""What every method must honour, and what centroids are."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.errors import DataError, MemoryLimitError, ModelExistsError, NotFittedError, ParamError
from umpteen.memory import Estimate, available_memory, check_fits, format_bytes
from umpteen.methods import METHODS, method_class
from umpteen.methods.one_vs_rest import OneVsRest

from .reference import unit_rows

ALL = [method_class(name) for name in METHODS]
#: Settings that give four shards on the data called tiny.
FOUR_SHARDS = {
    "label-tree": {"n_trees": 4},
    "fastxml": {"n_trees": 4},
    "pfastrexml": {"n_trees": 3},
    "rxml": {"n_learners": 4},
    "sleec": {"n_learners": 4},
}
#: Methods that train all labels in one shard, and a count among their parameters.
ONE_SHARD = {"rxml-global": "rank"}
every_method = pytest.mark.parametrize("cls", ALL, ids=list(METHODS))


@every_method
def test_parameters_follow_scikit_learn(cls):
    from sklearn.base import clone

    defaults = cls.param_defaults()
    model = cls()
    assert model.get_params() == defaults
    for name, value in defaults.items():
        assert getattr(model, name) is value or getattr(model, name) == value
    model.set_params(threads=1)
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    assert repr(cls()) == f"{cls.__name__}()"
    assert repr(model) == f"{cls.__name__}(threads=1)"
    with pytest.raises(ParamError, match=f"{cls.name} has no parameter 'colour'; its parameters are "):
        model.set_params(colour=1)


@every_method
def test_works_in_a_pipeline_and_a_grid_search(cls, tiny):
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    pipeline = make_pipeline(MaxAbsScaler(), cls()).fit(tiny.X, tiny.Y)
    assert pipeline.predict(tiny.X).shape == tiny.Y.shape
    search = GridSearchCV(cls(), {"normalize": [True, False]}, cv=2).fit(tiny.X, tiny.Y)
    assert 0 < search.best_score_ <= 1


@every_method
def test_inputs_are_not_changed(cls, tiny):
    X, Y = tiny.X.copy(), tiny.Y.copy()
    cls(tfidf=True).fit(X, Y).predict_topk(X)
    for mine, original in ((X, tiny.X), (Y, tiny.Y)):
        np.testing.assert_array_equal(mine.data, original.data)
        np.testing.assert_array_equal(mine.indices, original.indices)
        np.testing.assert_array_equal(mine.indptr, original.indptr)


@every_method
def test_any_kind_of_matrix_is_taken(cls, tiny):
    want = cls().fit(tiny.X, tiny.Y).predict_topk(tiny.X)
    kinds = [
        (sp.csr_array(tiny.X), sp.csr_array(tiny.Y)),
        (tiny.X.tocsc(), tiny.Y.tocoo()),
        (tiny.X.toarray(), tiny.Y.toarray().astype(bool)),
        (tiny.X.astype(np.float64), tiny.Y.astype(np.int64)),
    ]
    shuffled = tiny.X.copy()
    for i in range(tiny.n_rows):
        row = slice(*shuffled.indptr[i : i + 2])
        shuffled.indices[row], shuffled.data[row] = (
            shuffled.indices[row][::-1].copy(),
            shuffled.data[row][::-1].copy(),
        )
    shuffled.has_sorted_indices = False
    kinds.append((shuffled, tiny.Y))
    for X, Y in kinds:
        got = cls().fit(X, Y).predict_topk(X)
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])
    assert not shuffled.has_sorted_indices  # the caller's matrix is left as it was


@every_method
def test_bad_input_is_refused(cls, tiny):
    for X, Y, message in [
        (tiny.X[:10], tiny.Y, "X and Y must have as many rows, but have 10 and 300"),
        (tiny.X[:0], tiny.Y[:0], "training needs at least one row, but there is none"),
        (tiny.X[:, :0], tiny.Y, "training needs at least one feature, but there is none"),
        (tiny.X, tiny.Y[:, :0], "training needs at least one label, but there is none"),
        (
            np.full((2, 2), np.nan),
            np.eye(2),
            "X must hold finite 32-bit numbers, no NaN or inf, but row 0, column 0 is nan",
        ),
        (
            np.full((2, 2), 1e39),
            np.eye(2),
            "X must hold finite 32-bit numbers, no NaN or inf, but row 0, column 0 is 1e",
        ),
        (np.ones(3), np.eye(3), "X must have two dimensions, but has 1"),
        (np.array([["a", "b"]]), np.eye(1), "X must hold real numbers, but its type is <U1"),
    ]:
        with pytest.raises(DataError, match=message):
            cls().fit(X, Y)
    with pytest.raises(DataError, match="there must be 40 label names, but there are 1"):
        cls().fit(tiny.X, tiny.Y, label_names=["one"])
    model = cls().fit(tiny.X, tiny.Y)
    with pytest.raises(DataError, match="X must have 200 columns, but has 7"):
        model.predict_topk(tiny.X[:, :7])
    for top_k in (0, -1, 2.5, True):
        with pytest.raises(ParamError, match="top_k must be an integer of at least 1, but is"):
            model.predict_topk(tiny.X, top_k)
    with pytest.raises(NotFittedError, match="is not fitted; call fit first"):
        cls().predict_topk(tiny.X)
    with pytest.raises(ParamError, match="threads must be an integer of at least 1, but is 0"):
        cls(threads=0).fit(tiny.X, tiny.Y)


@every_method
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 5, 3), (5, 1, 1), (20, 3, 1)])
def test_tiny_and_degenerate_data(cls, shape):
    n, d, n_labels = shape
    model = cls().fit(np.ones((n, d)), np.ones((n, n_labels)))
    labels, scores = model.predict_topk(np.ones((n, d)), 2)
    assert labels.shape == scores.shape == (n, 2)
    assert (labels[:, 0] == 0).all()
    empty = cls().fit(sp.csr_matrix((n, d)), sp.csr_matrix((n, n_labels)))
    assert (empty.predict_topk(np.ones((n, d)), 2)[0] == -1).all()  # nothing was trained, nothing is ranked


@every_method
def test_a_label_without_rows_is_never_ranked(cls, tiny):
    Y = sp.hstack([tiny.Y[:, :20], sp.csr_matrix((300, 1)), tiny.Y[:, 20:]], format="csr")
    labels, _ = cls().fit(tiny.X, Y).predict_topk(tiny.X, 41)
    assert 20 not in labels
    assert (labels[:, -1] == -1).all()


@every_method
def test_threads_and_batches_agree(cls, tiny):
    model = cls().fit(tiny.X, tiny.Y)
    want = model.predict_topk(tiny.X, 6, threads=1)
    for threads in (2, 7):
        for a, b in zip(model.predict_topk(tiny.X, 6, threads=threads), want, strict=True):
            np.testing.assert_array_equal(a, b)
    for i in range(0, 300, 13):
        labels, scores = model.predict_topk(tiny.X[i], 6)
        np.testing.assert_array_equal(labels[0], want[0][i])
        np.testing.assert_array_equal(scores[0], want[1][i])


@every_method
def test_broken_sparse_matrices_are_refused_not_crashed_on(cls, tiny):
    def broken(matrix, part, at, value):
        matrix = matrix.copy()
        getattr(matrix, part)[at] = value
        return matrix

    for part, at, value, message in [
        ("indices", 2, 50_000_000, r"indices must be in \[0, \d+\), but one is 50000000"),
        ("indices", 2, -7, r"indices must be in \[0, \d+\), but one is -7"),
        ("indptr", 5, 10**6, "indptr must rise from 0 to its .* indices, but does not"),
        ("indptr", -1, 1, "indptr must rise from 0 to its .* indices, but does not"),
    ]:
        for kind in ("tocsr", "tocsc"):
            with pytest.raises(DataError, match=f"X's {message}"):
                cls().fit(broken(getattr(tiny.X, kind)(), part, at, value), tiny.Y)
            with pytest.raises(DataError, match=f"Y's {message}"):
                cls().fit(tiny.X, broken(getattr(tiny.Y, kind)(), part, at, value))
    for value in (np.nan, np.inf, -1):
        with pytest.raises(
            DataError, match="Y must hold 0 where a row lacks a label and 1 where it has it, but holds"
        ):
            cls().fit(tiny.X, broken(tiny.Y, "data", 0, value))


@every_method
def test_any_number_of_labels_may_be_asked_for(cls, tiny):
    model = cls().fit(tiny.X, tiny.Y)
    labels, scores = model.predict_topk(tiny.X[:3], 1000)
    assert labels.shape == scores.shape == (3, 1000)
    assert (labels[:, 40:] == -1).all()
    for top_k in (2**31, 2**62, 2**70):
        with pytest.raises(ParamError, match="top_k must be at most 2147483647, but is"):
            model.predict_topk(tiny.X[:3], top_k)
    with pytest.raises(MemoryLimitError, match="ask for fewer labels or fewer rows"):
        model.predict_topk(tiny.X, 2**31 - 1)
    for top_k in ("abc", None, float("nan")):
        with pytest.raises(ParamError, match="top_k must be an integer of at least 1, but is"):
            model.predict_topk(tiny.X, top_k)


@every_method
def test_copies_and_pickles(cls, tiny):
    import copy
    import pickle

    from sklearn.base import clone

    model = cls().fit(tiny.X, tiny.Y, label_names=[f"n{i}" for i in range(40)])
    want = model.predict_topk(tiny.X, 5, exclude=["n3"])
    for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for a, b in zip(same.predict_topk(tiny.X, 5, exclude=["n3"]), want, strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(NotFittedError):
        clone(model).predict_topk(tiny.X)


@every_method
def test_parameters_are_checked_for_their_kind(cls, tiny):
    (count,) = [ONE_SHARD[cls.name]] if cls.name in ONE_SHARD else FOUR_SHARDS.get(cls.name, {"labels_per_shard": 10})
    for bad in ({count: "abc"}, {count: 1.5}, {count: True}, {"tfidf": 1}, {"normalize": "no"},
                {"threads": "x"}, {"threads": float("inf")}, {"threads": 99999}):  # fmt: skip
        (name,) = bad
        with pytest.raises(ParamError, match=f"{name} must be .*, but is"):
            cls(**bad).fit(tiny.X, tiny.Y)


@every_method
def test_ctrl_c_stops_real_training_within_a_second(cls):
    import signal
    import subprocess
    import sys
    import time

    # One shard, one thread, rows shared by many labels: several seconds of work in one piece.
    code = f"""
import numpy as np, scipy.sparse as sp, umpteen
rng = np.random.default_rng(0)
n, d, l = 30_000, 2_000, 400
values = rng.random(n * 200, dtype=np.float32)
X = sp.csr_matrix((values, rng.integers(0, d, n * 200), np.arange(0, n * 200 + 1, 200)), (n, d))
Y = sp.csr_matrix((np.ones(n * 40), rng.integers(0, l, n * 40), np.arange(0, n * 40 + 1, 40)), (n, l))
X.sum_duplicates(); Y.sum_duplicates()
print("ready", flush=True)
umpteen.{cls.__name__}(threads=1).fit(X, Y)
print("done", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.7)
    assert process.poll() is None, "the work was meant to take long"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - started < 1.5
    assert "KeyboardInterrupt" in err
    assert "done" not in out


@every_method
def test_labels_by_name(cls, tiny):
    names = [f"n{i}" for i in range(40)]
    model = cls().fit(tiny.X, tiny.Y, label_names=names)
    best = model.predict_topk(tiny.X, 1)[0][:, 0]
    by_name = model.predict_topk(tiny.X, 1, exclude=[names[best[0]]])[0][:, 0]
    np.testing.assert_array_equal(by_name, model.predict_topk(tiny.X, 1, exclude=[best[0]])[0][:, 0])
    assert by_name[0] != best[0]
    assert set(np.unique(model.predict_topk(tiny.X, 5, include="n3")[0])) == {-1, 3}
    for same in (3, {3}, (3,), {3: "x"}.keys(), frozenset({"n3"}), np.array([3])):
        assert set(np.unique(model.predict_topk(tiny.X, 5, include=same)[0])) == {-1, 3}
    with pytest.raises(ParamError, match="exclude holds the unknown label 'law'"):
        model.predict_topk(tiny.X, exclude=["law"])
    with pytest.raises(ParamError, match="include holds label names, but the model has none"):
        cls().fit(tiny.X, tiny.Y).predict_topk(tiny.X, include=["n3"])


@every_method
def test_predict_and_score(cls, tiny):
    model = cls().fit(tiny.X, tiny.Y)
    labels, _ = model.predict_topk(tiny.X, 3)
    predicted = model.predict(tiny.X, 3)
    for i in range(tiny.n_rows):
        assert sorted(labels[i]) == predicted[i].indices.tolist()
    metrics = umpteen.evaluate(tiny.Y, labels, k=(1,))
    assert model.score(tiny.X, tiny.Y) == pytest.approx(metrics["P@1"] / 100)
    assert cls().fit(tiny.X, sp.csr_matrix((300, 2))).score(tiny.X, np.ones((300, 2))) == 0  # nothing is ranked
    with pytest.raises(DataError, match="X and Y must have as many rows, but have 300 and 10"):
        model.score(tiny.X, tiny.Y[:10])


@pytest.mark.parametrize("cls", [cls for cls in ALL if issubclass(cls, OneVsRest)])
def test_pruned_models_are_smaller_and_whole(cls, tiny, tmp_path):
    names = [f"n{i}" for i in range(40)]
    model = cls(tfidf=True, labels_per_shard=16).fit(tiny.X, tiny.Y, label_names=names)
    before = model.model_.to_weights()[0].toarray()
    small = model.pruned(0.1)
    np.testing.assert_array_equal(model.model_.to_weights()[0].toarray(), before)
    W = np.where(np.abs(before) < np.float32(0.1), 0, before)
    np.testing.assert_array_equal(small.model_.to_weights()[0].toarray(), W)
    assert 0 < small.model_.nnz < model.model_.nnz
    on_disk = model.pruned(0.1, tmp_path / "small.model")
    small.save(tmp_path / "saved.model")
    for same in (
        on_disk,
        umpteen.load(tmp_path / "small.model", checksums=True),
        umpteen.load(tmp_path / "saved.model"),
    ):
        assert list(same.label_names_) == names
        for a, b in zip(same.predict_topk(tiny.X, 7), small.predict_topk(tiny.X, 7), strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(ModelExistsError, match="small.model: already exists"):
        model.pruned(0.2, tmp_path / "small.model")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    for bad in (-0.1, np.nan, "a", True):
        with pytest.raises(ParamError, match="delta must be a finite number of at least 0, but is"):
            model.pruned(bad)
    with pytest.raises(NotFittedError):
        cls().pruned(0.1)


def test_pruning_to_a_directory_takes_the_memory_of_a_shard(tmp_path):
    import tracemalloc

    rng = np.random.default_rng(0)
    X, Y = rng.random((2000, 500), np.float32), rng.random((2000, 2000)) < 0.002
    umpteen.Centroid(labels_per_shard=50).fit(X, Y, tmp_path / "m")
    model = umpteen.load(tmp_path / "m")
    peaks = []
    for place in (None, tmp_path / "small"):
        tracemalloc.start()
        small = model.pruned(0.001, place)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert small.model_.nnz > 0.9 * model.model_.nnz > 500_000
    assert peaks[0] > 2 * small.model_.nnz  # all of it, 16 bits a weight and more
    assert peaks[1] < 2 * small.model_.nnz / 2


def test_only_linear_models_are_pruned(tiny):
    with pytest.raises(ParamError, match="only linear models have weights to prune, but .* of the family forest"):
        umpteen.FastXML(n_trees=1).fit(tiny.X, tiny.Y).pruned(0.1)


@every_method
def test_progress_is_told(cls, tiny):
    told = []
    settings = {} if cls.name in ONE_SHARD else FOUR_SHARDS.get(cls.name, {"labels_per_shard": 10})
    cls(**settings).fit(tiny.X, tiny.Y, progress=told.append)
    assert [p.shards_done for p in told] == ([0, 1] if cls.name in ONE_SHARD else [0, 1, 2, 3, 4])
    assert told[0].done == 0
    assert told[-1].done == told[-1].total


@every_method
def test_memory_is_stated_and_what_does_not_fit_is_refused(cls, tiny, monkeypatch):
    monkeypatch.setattr("umpteen.memory.available_memory", lambda: 50_000)
    with pytest.raises(MemoryLimitError, match=r"this would need .* of memory, but 50.0 KB are available; use fewer"):
        cls().fit(tiny.X, tiny.Y)


@every_method
def test_the_estimate_bounds_the_model(cls, bibtex, tmp_path):
    train, _ = bibtex
    estimate = cls().estimate(train.X, train.Y)
    cls().fit(train.X, train.Y, tmp_path / "m.model")
    real = sum(f.stat().st_size for f in (tmp_path / "m.model").rglob("*.npy"))
    assert real * 0.2 < estimate.model_bytes
    assert real < estimate.model_bytes + 100_000
    assert estimate.peak_bytes < 100 * real


def test_the_bound_takes_the_largest_shards_to_be_in_work():
    weights = np.array([5, 1, 9, 2, 7])
    method = umpteen.Centroid(labels_per_shard=2)
    assert [method.bound_size(weights, 100, n).in_work for n in (1, 2, 3)] == [16, 23, 24]
    want = 24 * 4 + 3 * (8 * 101 + 16 * 4) + 5 * 16
    assert method.bound_size(weights, 100).model_bytes == want
    assert method.set_params(weight_type="float32").bound_size(weights, 100).model_bytes == want + (24 + 3 * 16) * 2
    assert method.bound_size(weights[:0], 100) == (0, 0)


def test_memory_helpers():
    assert available_memory() > 1_000_000
    check_fits(Estimate(0, 0), "")
    assert [format_bytes(n) for n in (7, 1500, 123_456, 2.5e9, 3e12)] == [
        "7 B",
        "1.5 KB",
        "123 KB",
        "2.5 GB",
        "3.0 TB",
    ]


def test_unknown_method():
    with pytest.raises(ParamError, match="method must be one of centroid.*, but is 'telepathy'"):
        method_class("telepathy")


# --- centroid -------------------------------------------------------------------------------------------------------


def test_centroids_are_means_of_rows(tiny):
    model = umpteen.Centroid(weight_type="float32", labels_per_shard=16).fit(tiny.X, tiny.Y)
    X, Y = unit_rows(tiny.X).toarray(), tiny.Y.toarray()
    means = (Y.T @ X) / Y.sum(axis=0)[:, None]
    got = model.model_.to_weights()[0].toarray()
    np.testing.assert_allclose(got, means, rtol=1e-5, atol=1e-7)
    _, scores = model.predict_topk(tiny.X, 40)
    np.testing.assert_allclose(scores, -np.sort(-(X @ means.T), axis=1), rtol=1e-4, atol=1e-6)


def test_centroid_beats_the_most_frequent_labels_on_bibtex(bibtex):
    train, test = bibtex
    model = umpteen.Centroid().fit(train.X, train.Y)
    labels, _ = model.predict_topk(test.X, 5)
    metrics = umpteen.evaluate(test.Y, labels, train_Y=train.Y)
    frequent = np.tile(np.argsort(-train.label_counts(), kind="stable")[:5], (test.n_rows, 1))
    floor = umpteen.evaluate(test.Y, frequent, train_Y=train.Y)
    assert metrics["P@1"] > floor["P@1"] + 20


@pytest.mark.parametrize("bad", [{"weight_type": "int8"}, {"labels_per_shard": 0}, {"labels_per_shard": 65537}])
def test_centroid_parameters_are_checked(tiny, bad):
    (name,) = bad
    with pytest.raises(ParamError, match=f"{name} must be .*, but is"):
        umpteen.Centroid(**bad).fit(tiny.X, tiny.Y)
