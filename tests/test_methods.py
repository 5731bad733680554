"""Methods inside scikit-learn, interrupted and short of memory, pruned; and what centroids are.

What every method must honour is in umpteen.checks, and tests/test_checks.py runs it.
"""

from __future__ import annotations

import numpy as np
import pytest

import umpteen
from umpteen.errors import MemoryLimitError, ModelExistsError, NotFittedError, ParamError
from umpteen.memory import Estimate, available_memory, check_fits, format_bytes
from umpteen.methods import METHODS, method_class
from umpteen.methods.one_vs_rest import OneVsRest

from .reference import unit_rows

ALL = [method_class(name) for name in METHODS]
#: Fewer trees and learners than by default, where a few show the same.
FEWER = {
    "fastxml": {"n_trees": 10},
    "pfastrexml": {"n_trees": 10},
    "rxml": {"n_learners": 2},
    "sleec": {"n_learners": 2},
}
every_method = pytest.mark.parametrize("cls", ALL, ids=list(METHODS))


@pytest.mark.slow
@every_method
def test_works_in_a_pipeline_and_a_grid_search(cls, tiny):
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    method = cls(**FEWER.get(cls.name, {}))
    pipeline = make_pipeline(MaxAbsScaler(), method).fit(tiny.X, tiny.Y)
    assert pipeline.predict(tiny.X).shape == tiny.Y.shape
    search = GridSearchCV(method, {"normalize": [True, False]}, cv=2).fit(tiny.X, tiny.Y)
    assert 0 < search.best_score_ <= 1


@pytest.mark.process
@pytest.mark.measured
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
n, d, l = {120_000 if cls is umpteen.Centroid else 30_000}, 2_000, 400
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


@pytest.mark.parametrize("cls", [cls for cls in ALL if issubclass(cls, OneVsRest)])
def test_pruned_models_are_smaller_and_whole(cls, tiny, tmp_path):
    names = [f"n{i}" for i in range(40)]
    model = cls(tfidf=True, labels_per_shard=16).fit(tiny.X, tiny.Y, label_names=names)
    before = model.model_.scorer.to_weights()[0].toarray()
    small = model.pruned(0.1)
    np.testing.assert_array_equal(model.model_.scorer.to_weights()[0].toarray(), before)
    W = np.where(np.abs(before) < np.float32(0.1), 0, before)
    np.testing.assert_array_equal(small.model_.scorer.to_weights()[0].toarray(), W)
    assert 0 < small.model_.scorer.nnz < model.model_.scorer.nnz
    on_disk = model.pruned(0.1, tmp_path / "small.model")
    small.save(tmp_path / "saved.model")
    for same in (
        on_disk,
        umpteen.load(tmp_path / "small.model", checksums=True),
        umpteen.load(tmp_path / "saved.model"),
    ):
        assert list(getattr(same, "label_names", None) or same.label_names_) == names
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


@pytest.mark.slow
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
    assert small.scorer.nnz > 0.9 * model.scorer.nnz > 500_000
    assert peaks[0] > 2 * small.scorer.nnz  # all of it, 16 bits a weight and more
    assert peaks[1] < 2 * small.scorer.nnz / 2


def test_only_linear_models_are_pruned(tiny):
    with pytest.raises(
        ParamError, match="only linear models have weights to prune, but this model's family is forest"
    ):
        umpteen.FastXML(n_trees=1).fit(tiny.X, tiny.Y).model_.pruned(0.1)


@every_method
def test_memory_is_stated_and_what_does_not_fit_is_refused(cls, tiny, monkeypatch):
    monkeypatch.setattr("umpteen.memory.available_memory", lambda: 50_000)
    with pytest.raises(MemoryLimitError, match=r"would need .* of memory, but only 50.0 KB is available; use fewer"):
        cls().fit(tiny.X, tiny.Y)


@pytest.mark.slow
@every_method
def test_the_estimate_bounds_the_model(cls, bibtex, tmp_path):
    train, _ = bibtex
    method = cls(**FEWER.get(cls.name, {}))
    estimate = method.estimate(train.X, train.Y)
    method.fit(train.X, train.Y, tmp_path / "m.model")
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
    got = model.model_.scorer.to_weights()[0].toarray()
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
