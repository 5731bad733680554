"""Splitting: random, repeatable, in order, and no label leaves the training part."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from umpteen.data.dataset import Dataset
from umpteen.data.split import split_rows, train_test_split
from umpteen.data.synthetic import make_synthetic
from umpteen.errors import DataError, ParamError

DATA = Path(os.environ.get("UMPTEEN_DATA", Path(__file__).parents[2] / "shared" / "data"))

label_matrices = st.tuples(st.integers(2, 12), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.sampled_from([0, 0, 0, 1]))
)


def hold_out_slowly(Y, order, n_wanted, keep):
    """What the kernel does, said in the plainest way."""
    left = [int(n) for n in Y.sum(axis=0)]
    heldout = np.zeros(len(Y), bool)
    for row in order:
        labels = np.flatnonzero(Y[row])
        if heldout.sum() < n_wanted and all(left[label] > keep for label in labels):
            heldout[row] = True
            for label in labels:
                left[label] -= 1
    return heldout


def make_easy(n_rows=40, n_labels=4):
    """Every label in many rows, so that any number of rows up to n_rows - n_labels can be held out."""
    Y = np.eye(n_labels)[np.arange(n_rows) % n_labels]
    # The only feature says which row it is.
    return Dataset(np.arange(1.0, n_rows + 1).reshape(-1, 1), Y, list("abcd")[:n_labels], ["row"])


@pytest.mark.filterwarnings("ignore:held out")
@settings(deadline=None, max_examples=200)
@given(Y=label_matrices, test_size=st.floats(0.05, 0.95), seed=st.integers(0, 2**70), keep=st.integers(0, 3))
def test_every_label_keeps_its_rows(Y, test_size, seed, keep):
    heldout = split_rows(Y, test_size, seed=seed, keep=keep)
    assert heldout.dtype == np.bool_
    assert heldout.shape == (len(Y),)
    assert np.all(Y[~heldout].sum(axis=0) >= np.minimum(Y.sum(axis=0), keep))
    n_asked = max(1, round(test_size * len(Y)))
    assert heldout.sum() <= n_asked
    assert not heldout.all()
    if heldout.sum() < min(n_asked, len(Y) - 1):
        # As many as possible: no row in the training part could still be moved.
        left = Y[~heldout].sum(axis=0)
        assert not any(np.all(left[Y[row] > 0] > keep) for row in np.flatnonzero(~heldout))


@pytest.mark.filterwarnings("ignore:held out")
@settings(deadline=None)
@given(Y=label_matrices, seed=st.integers(0, 1000), keep=st.integers(0, 2))
def test_equals_the_slow_twin(Y, seed, keep):
    order = np.argsort(np.random.Generator(np.random.PCG64(seed)).random(len(Y)), kind="stable")
    expected = hold_out_slowly(Y, order, min(max(1, round(0.5 * len(Y))), len(Y) - 1), keep)
    np.testing.assert_array_equal(split_rows(Y, 0.5, seed=seed, keep=keep), expected)


@pytest.mark.parametrize(
    ("test_size", "n_test"),
    [(0.2, 8), (0.5, 20), (0.001, 1), (1, 1), (36, 36), (np.int64(7), 7), (np.float32(0.25), 10)],
)
def test_sizes(test_size, n_test):
    train, test = train_test_split(make_easy(), test_size)
    assert (train.n_rows, test.n_rows) == (40 - n_test, n_test)


def test_default_holds_out_a_fifth():
    assert train_test_split(make_easy())[1].n_rows == 8
    assert split_rows(make_easy().Y).sum() == 8


def test_same_seed_same_split():
    data = make_easy()
    masks = [split_rows(data.Y, seed=seed) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(masks[0], masks[1])
    assert np.any(masks[0] != masks[2])


def test_split_is_random():
    """Over many seeds each row is held out about as often as any other."""
    Y = make_easy().Y
    shares = np.mean([split_rows(Y, 0.2, seed=seed) for seed in range(400)], axis=0)
    assert shares.min() > 0.1
    assert shares.max() < 0.3


def test_rows_keep_their_order_and_names():
    data = make_easy()
    parts = train_test_split(data, 0.3, seed=2)
    rows = [part.X.toarray().ravel() for part in parts]
    for part, ids in zip(parts, rows, strict=True):
        assert np.all(np.diff(ids) > 0)
        assert part.label_names == ("a", "b", "c", "d")
        assert part.feature_names == ("row",)
        # Labels went with their rows.
        np.testing.assert_array_equal(part.Y.toarray(), data.Y.toarray()[ids.astype(int) - 1])
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(1, 41))


def test_mask_and_data_set_agree():
    data = make_synthetic(300, 100, 40)
    train, test = train_test_split(data, 0.25, seed=9, keep=2)
    heldout = split_rows(data.Y, 0.25, seed=9, keep=2)
    assert (data.X[~heldout] != train.X).nnz == 0
    assert (data.Y[heldout] != test.Y).nnz == 0


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_matrix, sp.coo_array, np.asarray])
def test_matrix_kinds_agree(make):
    Y = make_synthetic(200, 50, 20).Y.toarray()
    np.testing.assert_array_equal(split_rows(make(Y), seed=1), split_rows(Y, seed=1))


def test_warns_with_numbers_when_too_few_rows_can_go():
    # The one frequent label can spare 3 of its 4 rows; the other six rows have a label of their own.
    Y = np.zeros((10, 7))
    Y[:4, 0] = 1
    Y[np.arange(4, 10), np.arange(1, 7)] = 1
    with pytest.warns(UserWarning, match="held out 3 of 10 rows instead of 5") as caught:
        train, test = train_test_split(Dataset(np.ones((10, 1)), Y), 0.5)
    assert (train.n_rows, test.n_rows) == (7, 3)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="held out 3 of 10 rows instead of 5") as caught:
        split_rows(Y, 5)
    assert caught[0].filename == __file__


def test_nothing_can_go_when_every_label_has_one_row():
    with pytest.warns(UserWarning, match="held out 0 of 5 rows instead of 1"):
        train, test = train_test_split(Dataset(np.eye(5), np.eye(5)))
    assert (train.n_rows, test.n_rows) == (5, 0)
    assert (test.n_features, test.n_labels) == (5, 5)


def test_keep_zero_is_a_plain_random_split():
    assert split_rows(np.eye(5), 2, keep=0).sum() == 2


def test_huge_keep_keeps_everything():
    with pytest.warns(UserWarning, match="held out 0 of 6 rows instead of 2"):
        assert not split_rows(np.ones((6, 1)), 2, keep=2**80).any()


def test_rows_without_labels_can_go_but_not_all():
    assert split_rows(np.zeros((5, 2)), 4).sum() == 4
    with pytest.warns(UserWarning, match="held out 4 of 5 rows instead of 5"):
        assert split_rows(np.zeros((5, 2)), 0.95).sum() == 4


@pytest.mark.parametrize("Y", [[[1.0]], [[0.0]]])
def test_one_row_stays_in_the_training_part(Y):
    with pytest.warns(UserWarning, match="held out 0 of 1 rows instead of 1"):
        assert split_rows(Y).tolist() == [False]


def test_no_rows_is_an_error():
    with pytest.raises(DataError, match="Y must have at least one row to split, but has none"):
        split_rows(sp.csr_array((0, 3)))


@pytest.mark.parametrize("test_size", [0, 40, 41, -1, 0.0, 1.0, 1.5, -0.2, float("nan"), True, "0.2", None])
def test_bad_test_size(test_size):
    with pytest.raises(
        ParamError, match=r"test_size must be a fraction .* less than 40, the number of all rows, but is"
    ) as caught:
        train_test_split(make_easy(), test_size)
    assert str(caught.value).endswith(repr(test_size))


@pytest.mark.parametrize("name", ["seed", "keep"])
@pytest.mark.parametrize("value", [-1, 0.5, None, True])
def test_bad_seed_and_keep(name, value):
    with pytest.raises(ParamError, match=f"{name} must be an integer of at least 0, but is {value}"):
        split_rows(np.ones((4, 1)), **{name: value})


def test_long_tail_keeps_every_label():
    """A plain random split of the same data would lose labels; this one does not."""
    data = make_synthetic(2000, 300, 1500)
    train, test = train_test_split(data, 0.2)
    assert test.n_rows == 400
    assert train.label_counts().min() >= 1
    assert data.take(~split_rows(data.Y, 0.2, keep=0)).label_counts().min() == 0


@pytest.mark.data
@pytest.mark.skipif(not (DATA / "Bibtex" / "train.txt.xz").exists(), reason="no Bibtex in UMPTEEN_DATA")
def test_real_data():
    read_xc = pytest.importorskip("umpteen.data.xc_text").read_xc
    data = read_xc(DATA / "Bibtex" / "train.txt.xz")
    train, test = train_test_split(data, 0.3, keep=10)
    assert test.n_rows == round(0.3 * data.n_rows)
    assert train.n_rows + test.n_rows == data.n_rows
    assert np.all(train.label_counts() >= np.minimum(data.label_counts(), 10))
    np.testing.assert_array_equal(train.label_counts() + test.label_counts(), data.label_counts())
