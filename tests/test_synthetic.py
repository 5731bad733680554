"""Synthetic data: same bytes for the same arguments, the asked shape, a long tail, and something to learn."""

import hashlib

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.synthetic import SHAPES, make_synthetic
from umpteen.errors import ParamError

# Two blocks of rows, so that a stream shared between blocks would show.
SMALL = {"n_rows": 3000, "n_features": 1000, "n_labels": 200}


def hash_bytes(data):
    digest = hashlib.sha256()
    for matrix in (data.X, data.Y):
        for array in (matrix.data, matrix.indices, matrix.indptr):
            digest.update(array.tobytes())
    return digest.hexdigest()


def assert_canonical(matrix):
    """Columns ascend strictly within each row: sorted, and none twice."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    assert np.all(np.diff(rows * np.int64(matrix.shape[1]) + matrix.indices) > 0)
    assert matrix.indices.min() >= 0
    assert matrix.indices.max() < matrix.shape[1]


def fit_centroids(train):
    """Label weights, n_labels x n_features: the mean of the label's unit-length rows."""
    counts = np.maximum(train.label_counts(), 1)
    return sp.diags_array(1 / counts) @ (train.Y.T @ to_unit_rows(train.X))


def to_unit_rows(X):
    return sp.diags_array(1 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())) @ X


def rank_labels(train, test, top_k):
    scores = (to_unit_rows(test.X) @ fit_centroids(train).T).toarray()
    return np.argsort(-scores, axis=1, kind="stable")[:, :top_k]


def fit_slope(counts, first, last):
    """Slope of log count over log rank, between two ranks."""
    ranks = np.arange(first, last)
    return np.polyfit(np.log(ranks + 1), np.log(np.sort(counts)[::-1][ranks]), 1)[0]


@pytest.mark.parametrize("part", ["train", "test"])
def test_same_arguments_give_the_same_bytes(part):
    first = make_synthetic(**SMALL, part=part, seed=7)
    np.random.seed(3)  # noqa: NPY002 -- numpy's global state must not matter
    assert hash_bytes(first) == hash_bytes(make_synthetic(**SMALL, part=part, seed=7))


def test_bytes_are_pinned():
    """Columns are pinned exactly; values only nearly, since logarithms differ in the last bit by machine."""
    data = make_synthetic(300, 500, 200, seed=1)
    columns = np.concatenate([data.X.indices, data.Y.indices]).astype("<i4")
    assert hashlib.sha256(columns.tobytes()).hexdigest()[:16] == "faf6664592abbd47"
    assert float(data.X.data.astype(np.float64).sum()) == pytest.approx(55909.7954, rel=1e-6)


@pytest.mark.parametrize("other", [{"seed": 1}, {"part": "test"}, {"noise": 0.3}, {"exponent": 0.5}])
def test_other_arguments_give_other_bytes(other):
    assert hash_bytes(make_synthetic(**SMALL)) != hash_bytes(make_synthetic(**SMALL, **other))


def test_seeds_beyond_32_bits_differ():
    assert hash_bytes(make_synthetic(50, 40, 10, seed=2**32)) != hash_bytes(make_synthetic(50, 40, 10, seed=0))


def test_noise_changes_features_only():
    quiet, noisy = make_synthetic(**SMALL, noise=0.0), make_synthetic(**SMALL, noise=0.5)
    assert (quiet.Y != noisy.Y).nnz == 0
    assert (quiet.X != noisy.X).nnz > 0


def test_blocks_have_streams_of_their_own():
    """Rows of the second block are not the first block's again, and more rows leave a full block as it is."""
    short = make_synthetic(2048, 1000, 200, part="test")
    long = make_synthetic(4096, 1000, 200, part="test")
    assert (long.X[:2048] != short.X).nnz == 0
    assert (long.Y[:2048] != short.Y).nnz == 0
    assert (long.Y[2048:] != short.Y).nnz > short.Y.nnz


def test_parts_share_the_concept_but_no_rows():
    train, test = make_synthetic(**SMALL), make_synthetic(**{**SMALL, "n_rows": 2500}, part="test")
    assert test.n_rows == 2500
    assert (test.n_features, test.n_labels) == (train.n_features, train.n_labels)
    label_correlation = np.corrcoef(train.label_counts(), test.label_counts())[0, 1]
    feature_correlation = np.corrcoef(train.X.getnnz(axis=0), test.X.getnnz(axis=0))[0, 1]
    assert label_correlation > 0.95
    assert feature_correlation > 0.95
    other = make_synthetic(**SMALL, seed=1)
    assert abs(np.corrcoef(train.label_counts(), other.label_counts())[0, 1]) < 0.5
    seen = {row.tobytes() for row in np.split(train.X.indices, train.X.indptr[1:-1])}
    assert not any(row.tobytes() in seen for row in np.split(test.X.indices, test.X.indptr[1:-1]))


def test_idf_is_the_same_in_both_parts():
    """A feature's smallest value is that of one mention, which is its idf."""
    parts = make_synthetic(**SMALL), make_synthetic(500, 1000, 200, part="test")
    smallest = []
    for data in parts:
        values = np.full(data.n_features, np.inf, np.float32)
        np.minimum.at(values, data.X.indices, data.X.data)
        smallest.append(values)
    often = np.minimum(parts[0].X.getnnz(axis=0), parts[1].X.getnnz(axis=0)) >= 20
    assert often.sum() > 100
    np.testing.assert_array_equal(smallest[0][often], smallest[1][often])


def test_values_are_log_frequency_times_idf():
    data = make_synthetic(**SMALL)
    assert data.X.dtype == np.float32
    column = data.X.tocsc()[:, int(np.argmax(data.X.getnnz(axis=0)))].data
    frequencies = np.exp(column / column.min() - 1)
    np.testing.assert_allclose(frequencies, np.round(frequencies), rtol=1e-4)
    assert frequencies.max() > 1.5
    # Rarer features weigh more.
    rows_of = data.X.getnnz(axis=0)
    mean_value = np.bincount(data.X.indices, weights=data.X.data, minlength=1000) / np.maximum(rows_of, 1)
    order = np.argsort(rows_of)
    assert mean_value[order[100:300]].mean() > 1.2 * mean_value[order[-100:]].mean()


@pytest.mark.parametrize(
    ("sizes", "labels_per_row", "features_per_row"),
    [
        ((3000, 1000, 200), 5.0, 50.0),
        ((3000, 1000, 200), 1.0, 1.0),
        ((1000, 5000, 300), 20.0, 300.0),
        ((1000, 100, 300), 2.5, 45.0),
        ((1000, 100, 300), 2.5, 70.0),
        ((1000, 40, 30), 3.0, 40.0),
        ((3000, 300, 2900), 1.2, 10.0),
    ],
)
@pytest.mark.parametrize("part", ["train", "test"])
def test_shape_and_averages(sizes, labels_per_row, features_per_row, part):
    data = make_synthetic(*sizes, labels_per_row=labels_per_row, features_per_row=features_per_row, part=part, seed=5)
    assert (data.n_rows, data.n_features, data.n_labels) == sizes
    assert data.Y.nnz / data.n_rows == pytest.approx(labels_per_row, rel=0.15)
    assert data.X.nnz / data.n_rows == pytest.approx(features_per_row, rel=0.15)
    assert np.diff(data.X.indptr).min() >= 1
    assert np.diff(data.Y.indptr).min() >= 1
    assert_canonical(data.X)
    assert_canonical(data.Y)
    if part == "train":
        assert data.label_counts().min() >= 1


def test_dense_rows_hold_every_feature():
    data = make_synthetic(200, 30, 20, features_per_row=30.0)
    assert data.X.nnz == 200 * 30
    # Words still say which labels a row has: not all values are those of a single mention.
    assert np.mean(data.X.data > 1.5) > 0.1


def test_per_row_averages_are_capped_by_the_sizes():
    data = make_synthetic(500, 10, 8, labels_per_row=100.0, features_per_row=1000.0)
    assert data.X.nnz == 500 * 10
    assert data.Y.nnz / 500 == pytest.approx(4.0, rel=0.15)


def test_smallest_data_set():
    data = make_synthetic(1, 1, 1)
    assert data.X.nnz == data.Y.nnz == 1


def test_labels_have_a_power_law_tail():
    counts = make_synthetic(20_000, 1000, 2000).label_counts()
    assert -1.15 < fit_slope(counts, 30, 1500) < -0.8
    assert counts.max() > 30 * np.median(counts)


def test_exponent_sets_the_slope():
    slopes = [
        fit_slope(make_synthetic(10_000, 500, 1000, exponent=exponent, part="test").label_counts(), 20, 500)
        for exponent in (0.0, 0.7, 1.3)
    ]
    assert slopes[0] > -0.2
    assert slopes[1] == pytest.approx(-0.7, abs=0.2)
    assert slopes[2] == pytest.approx(-1.3, abs=0.3)


@pytest.mark.parametrize("n_rows", [45, 100, 1000])
def test_every_label_has_a_training_row_when_there_are_entries_enough(n_rows):
    train, test = make_synthetic(n_rows, 300, 200), make_synthetic(n_rows, 300, 200, part="test")
    assert train.label_counts().min() >= 1
    assert_canonical(train.Y)
    # By chance alone, some labels would have no row.
    assert n_rows == 1000 or test.label_counts().min() == 0


def test_too_few_entries_leave_the_power_law_alone():
    counts = make_synthetic(20, 300, 200).label_counts()
    assert counts.min() == 0
    assert counts.max() > 1


def test_labels_of_a_topic_occur_together():
    """200 labels at five a row make five topics, so a fifth of the pairs share one."""
    Y = make_synthetic(20_000, 1000, 200, exponent=0.0).Y
    together = (Y.T @ Y).toarray()
    counts = together.diagonal()
    ratio = np.sort((together * Y.shape[0] / np.outer(counts, counts))[np.triu_indices(200, k=1)])
    n_together = len(ratio) // 5
    assert ratio[-n_together:].mean() > 1.8
    assert ratio[:-n_together].mean() < 1.0


def test_centroids_beat_the_most_frequent_labels():
    train, test = make_synthetic(2000, 1000, 200), make_synthetic(1000, 1000, 200, part="test")
    top = rank_labels(train, test, top_k=5)
    truth = test.Y.toarray() > 0
    hits = np.take_along_axis(truth, top, axis=1)
    frequent = np.argsort(-train.label_counts(), kind="stable")
    popular_precision = truth[:, frequent[0]].mean()
    assert popular_precision < 0.3
    assert 0.6 < hits[:, 0].mean() < 0.9

    # The rarer half of the labels is found as well: recall among the first five.
    found = np.zeros_like(truth)
    np.put_along_axis(found, top, True, axis=1)
    tail = frequent[100:]
    assert (found & truth)[:, tail].sum() / truth[:, tail].sum() > 0.5


def test_centroids_of_the_training_part_do_not_fit_another_seed():
    """The scores above come from the concept, not from something all data sets share."""
    train, other = make_synthetic(2000, 1000, 200), make_synthetic(500, 1000, 200, part="test", seed=1)
    hits = np.take_along_axis(other.Y.toarray(), rank_labels(train, other, top_k=1), axis=1)
    assert hits.mean() < 0.2


def test_more_noise_means_less_precision():
    precision = []
    for noise in (0.0, 0.2, 0.5):
        train = make_synthetic(2000, 1000, 200, noise=noise)
        test = make_synthetic(500, 1000, 200, noise=noise, part="test")
        hits = np.take_along_axis(test.Y.toarray(), rank_labels(train, test, top_k=1), axis=1)
        precision.append(hits.mean())
    assert precision[0] > 0.95
    assert precision[0] > precision[1] + 0.1 > precision[2] + 0.2


@pytest.mark.parametrize("name", list(SHAPES))
def test_like_gives_the_scaled_shape(name):
    scale = 300 / SHAPES[name].n_train
    shape = SHAPES[name]
    for part, n_rows in (("train", shape.n_train), ("test", shape.n_test)):
        data = make_synthetic(like=name, scale=scale, part=part)
        assert data.n_rows == max(1, round(n_rows * scale))
        assert data.n_features == max(1, round(shape.n_features * scale))
        assert data.n_labels == max(1, round(shape.n_labels * scale))
        wanted = max(1.0, min(shape.labels_per_row, data.n_labels / 2))
        assert data.Y.nnz / data.n_rows == pytest.approx(wanted, rel=0.15)


def test_like_at_full_size():
    data = make_synthetic(like="Bibtex")
    assert (data.n_rows, data.n_features, data.n_labels) == (4880, 1836, 159)
    assert data.Y.nnz / data.n_rows == pytest.approx(2.40, rel=0.15)
    assert data.X.nnz / data.n_rows == pytest.approx(69, rel=0.15)


def test_given_sizes_override_like():
    data = make_synthetic(500, n_labels=60, like="amazon-670k", scale=0.01, labels_per_row=2.0, features_per_row=20)
    assert (data.n_rows, data.n_features, data.n_labels) == (500, 1359, 60)
    assert data.Y.nnz / 500 == pytest.approx(2.0, rel=0.15)
    assert data.X.nnz / 500 == pytest.approx(20.0, rel=0.15)


def test_shapes_cannot_be_changed():
    with pytest.raises(TypeError):
        SHAPES["bibtex"] = SHAPES["delicious"]
    with pytest.raises(AttributeError):
        SHAPES["bibtex"].n_labels = 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "n_rows must be given unless like names a data set, but is None"),
        ({"n_rows": 5, "n_features": 5}, "n_labels must be given"),
        ({**SMALL, "n_rows": 0}, "n_rows must be an integer from 1 to 2147483647, but is 0"),
        ({**SMALL, "n_features": 2.5}, r"n_features must be an integer .* but is 2\.5"),
        ({**SMALL, "n_labels": True}, "n_labels must be an integer .* but is True"),
        ({**SMALL, "n_labels": 2**31}, "n_labels must be an integer .* but is 2147483648"),
        (
            {**SMALL, "labels_per_row": 0.5},
            r"labels_per_row must be a finite number of at least 1, but is 0\.5",
        ),
        ({**SMALL, "features_per_row": float("inf")}, "features_per_row must be a finite .* but is inf"),
        ({**SMALL, "features_per_row": "many"}, "features_per_row must be a finite .* but is 'many'"),
        ({**SMALL, "scale": 0.5}, r"scale must be 1 unless like names a data set, but is 0\.5"),
        ({"like": "bibtex", "scale": 0}, "scale must be a finite number above 0, but is 0"),
        ({"like": "bibtex", "scale": float("nan")}, "scale must be a finite number above 0, but is nan"),
        ({**SMALL, "part": "dev"}, "part must be 'train' or 'test', but is 'dev'"),
        ({**SMALL, "part": ["train"]}, r"part must be 'train' or 'test', but is \['train'\]"),
        ({**SMALL, "exponent": -1}, "exponent must be from 0 to 10, but is -1"),
        ({**SMALL, "noise": 0.95}, r"noise must be from 0 to 0\.9, but is 0\.95"),
        ({**SMALL, "seed": -1}, "seed must be an integer of at least 0, but is -1"),
        ({**SMALL, "seed": None}, "seed must be an integer of at least 0, but is None"),
    ],
)
def test_bad_arguments_name_rule_and_value(arguments, message):
    with pytest.raises(ParamError, match=message):
        make_synthetic(**arguments)


def test_unknown_name_lists_the_names():
    with pytest.raises(ParamError) as caught:
        make_synthetic(like="amazon-3m")
    assert "'amazon-3m'" in str(caught.value)
    assert all(name in str(caught.value) for name in SHAPES)
