"""Rows of a sparse and a dense block: joined, read, written, refused; every method takes them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.data.blocks import count_dense, split_blocks
from umpteen.data.matrix import as_csr
from umpteen.data.npz import map_npy
from umpteen.data.reading import read, read_features
from umpteen.errors import DataError
from umpteen.methods import METHODS, method_class

WIDTH = 20


@pytest.fixture(scope="module")
def blocks(tiny):
    dense = np.random.default_rng(4).standard_normal((tiny.n_rows, WIDTH)).astype(np.float32)
    dense[::3, 5] = 0  # an entry all the same
    return tiny.X, dense


def assert_equal(left, right):
    assert left.shape == right.shape
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def test_the_dense_block_stands_behind_the_sparse_one(blocks):
    sparse, dense = blocks
    X = as_csr(blocks, "X")
    np.testing.assert_array_equal(X.toarray(), np.hstack([sparse.toarray(), dense]))
    assert X.nnz == sparse.nnz + dense.size
    assert X.has_canonical_format
    assert count_dense(X) == WIDTH
    assert count_dense(sparse) == 0
    without, block = split_blocks(X, WIDTH)
    assert_equal(without, sparse)
    np.testing.assert_array_equal(block, dense)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ">f4", np.int8, bool])
def test_other_types_are_converted(blocks, dtype):
    dense = (blocks[1] * 3).astype(dtype)
    X = as_csr((blocks[0].tocsc(), dense), "X")
    np.testing.assert_allclose(X[:, -WIDTH:].toarray(), dense.astype(np.float32))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_takes_both_blocks(tiny, blocks, name):
    method = method_class(name)
    joined = as_csr(blocks, "X")
    model = method().fit(blocks, tiny.Y)
    expected = method().fit(joined, tiny.Y).predict_topk(joined, 3)
    for got, want in zip(model.predict_topk(blocks, 3), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("dense", "said"),
    [
        (lambda d: d[:-1], "the same number of rows"),
        (lambda d: d[:, 0], "must be a matrix of real numbers, but has 1 dimensions"),
        (lambda d: d.astype(complex), "real numbers"),
        (lambda d: d.astype(str), "real numbers"),
        (lambda d: np.where(np.arange(WIDTH) == 7, np.nan, d), "row 0, column .* is nan"),
        (lambda d: np.full(d.shape, 1e300), "row 0, column .* is inf"),
        (lambda d: [[1.0], [1.0, 2.0]], "rows differ in length"),
    ],
)
def test_wrong_blocks_are_refused(blocks, dense, said):
    with pytest.raises(DataError, match=said):
        as_csr((blocks[0], dense(blocks[1])), "X")


def test_npz_keeps_the_blocks_apart(tmp_path, tiny, blocks):
    data = umpteen.Dataset(blocks, tiny.Y)
    umpteen.write_npz(data, tmp_path / "both.npz")
    with np.load(tmp_path / "both.npz") as file:
        np.testing.assert_array_equal(file["X_dense"], blocks[1])
    assert_equal(read(tmp_path / "both.npz").X, data.X)
    assert_equal(read_features(tmp_path / "both.npz"), data.X)
    umpteen.write_npz(tiny, tmp_path / "sparse.npz")
    with np.load(tmp_path / "sparse.npz") as file:
        assert "X_dense" not in file


def test_a_wrong_block_in_npz_is_refused(tmp_path, tiny, blocks):
    umpteen.write_npz(umpteen.Dataset(blocks, tiny.Y), tmp_path / "both.npz")
    with np.load(tmp_path / "both.npz") as file:
        arrays = dict(file)
    for wrong in (arrays["X_dense"][:-1], arrays["X_dense"][0], np.array(["x"]), arrays["X_dense"] * np.nan):
        np.savez(tmp_path / "wrong.npz", **(arrays | {"X_dense": wrong}))
        for reader in (read, read_features):
            with pytest.raises(DataError, match="wrong.npz"):
                reader(tmp_path / "wrong.npz")


def test_npy_is_mapped_and_read(tmp_path, tiny, blocks):
    sparse, dense = blocks
    np.save(tmp_path / "vectors.npy", dense)
    sp.save_npz(tmp_path / "labels.npz", tiny.Y)
    mapped = map_npy(tmp_path / "vectors.npy")
    assert isinstance(mapped, np.memmap)
    assert_equal(as_csr((sparse, mapped), "X"), as_csr(blocks, "X"))
    data = read(tmp_path / "vectors.npy", labels=tmp_path / "labels.npz")
    np.testing.assert_array_equal(data.X.toarray(), dense)
    assert_equal(data.Y, tiny.Y)
    np.testing.assert_array_equal(read_features(tmp_path / "vectors.npy").toarray(), dense)
    with pytest.raises(DataError, match="the file has no labels"):
        read(tmp_path / "vectors.npy")
    with pytest.raises(DataError, match="must have 3 columns"):
        read_features(tmp_path / "vectors.npy", n_features=3)


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}" + b" " * 99]
)
def test_a_damaged_npy_is_refused(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(DataError, match="x.npy"):
        read_features(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.array([["a"]]))
    with pytest.raises(DataError, match="must hold a matrix of real numbers"):
        read_features(tmp_path / "x.npy")


@pytest.mark.parametrize("fixed", [True, False])
def test_lists_of_parquet_are_vectors(tmp_path, tiny, blocks, fixed):
    dense = blocks[1].astype(np.float32)
    flat = pa.array(dense.ravel())
    lists = (
        pa.FixedSizeListArray.from_arrays(flat, WIDTH)
        if fixed
        else pa.ListArray.from_arrays(np.arange(len(dense) + 1, dtype=np.int32) * WIDTH, flat)
    )
    pq.write_table(pa.table({"vector": lists, "n": np.arange(len(dense))}), tmp_path / "v.parquet", row_group_size=50)
    X = as_csr(pq.read_table(tmp_path / "v.parquet"), "X")
    np.testing.assert_array_equal(X.toarray(), np.column_stack([dense, np.arange(len(dense))]))
    model = umpteen.DiSMEC().fit(pq.read_table(tmp_path / "v.parquet", columns=["vector"]), tiny.Y)
    expected = umpteen.DiSMEC().fit(dense, tiny.Y).predict_topk(dense, 3)
    for got, want in zip(model.predict_topk(pa.table({"vector": lists}), 3), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(DataError, match="column 'v' of X must hold lists of one length"):
        as_csr(pa.table({"v": [[1.0], [1.0, 2.0]]}), "X")
    with pytest.raises(DataError, match="column 'v' of X must hold a number in every place, but lacks one in row 1"):
        as_csr(pa.table({"v": [[1.0], None]}), "X")


MEASURE = """
import sys
import numpy as np, scipy.sparse as sp, umpteen
from umpteen.data.matrix import as_csr

random = np.random.default_rng(0)
dense = random.standard_normal((6000, 384), dtype=np.float32)
sparse = sp.random(6000, 3000, 0.005, format="csr", dtype=np.float32, random_state=1)
X = as_csr(dense if sys.argv[1] == "dense" else (sparse, dense), "X")
Y = sp.csr_matrix((random.random((6000, 15)) < 0.05).astype(np.float32))
method = umpteen.DiSMEC(threads=1)

def status(name):
    return 1024 * int(open("/proc/self/status").read().split(name + ":")[1].split()[0])

stated = method.estimate(X, Y).peak_bytes
method.fit(X[:200], Y[:200])  # what is loaded only once
open("/proc/self/clear_refs", "w").write("5")  # the peak is counted anew
before = status("VmRSS")
method.fit(X, Y)
print(stated, status("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["dense", "both"])
def test_training_needs_no_more_memory_than_stated(kind):
    found = subprocess.run([sys.executable, "-c", MEASURE, kind], capture_output=True, text=True, check=True).stdout
    stated, measured = map(int, found.split())
    assert 1e6 < measured < stated < 10 * measured
