"""Matrices of users: what is right is taken as it is, what is broken refused before SciPy or a kernel trusts it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.data.matrix import as_csr
from umpteen.errors import DataError

DENSE = np.array([[1, 0, 2], [0, 3, 0]], np.float64)


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">f2", ">i8", ">i4", ">u2", "<f8", "f2", "g", "O"])
def test_dense_of_any_byte_order(dtype):
    np.testing.assert_array_equal(as_csr(DENSE.astype(dtype), "X").toarray(), DENSE)
    np.testing.assert_array_equal(as_csr(DENSE.astype(dtype), "Y", values=False).toarray(), DENSE != 0)


def test_big_endian_rows_are_ranked_like_others(tiny):
    model = umpteen.Centroid().fit(tiny.X.toarray().astype(">f4"), tiny.Y.toarray().astype(">i4"))
    other = umpteen.Centroid().fit(tiny.X, tiny.Y)
    for a, b in zip(model.predict_topk(tiny.X.toarray().astype(">f8")), other.predict_topk(tiny.X), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
def test_every_format_of_scipy(format):
    matrix = sp.csr_matrix(DENSE).asformat(format)
    np.testing.assert_array_equal(as_csr(matrix, "X").toarray(), DENSE)
    np.testing.assert_array_equal(as_csr(matrix, "Y", values=False).toarray(), DENSE != 0)
    np.testing.assert_array_equal(as_csr(sp.csr_matrix((4, 5)).asformat(format), "X").toarray(), np.zeros((4, 5)))


def broken(format, **arrays):
    matrix = sp.csr_matrix(DENSE).asformat(format)
    for name, value in arrays.items():
        if isinstance(value, dict):
            for at, item in value.items():
                getattr(matrix, name)[at] = item
        else:
            setattr(matrix, name, value)
    return matrix


BROKEN = [
    (broken("lil", rows={0: [0]}), r"broken lil matrix \(each row must have as many columns as values\)"),
    (broken("lil", rows={0: [0, 99]}), r"indices must be in \[0, 3\), but one is 99"),
    (broken("lil", rows={0: [0, -1]}), r"indices must be in \[0, 3\), but one is -1"),
    (broken("lil", rows={0: [0, 2**70]}), "broken lil matrix"),
    (broken("lil", rows={0: [0, 1.5]}), "broken lil matrix"),
    (broken("lil", rows={0: None}), "broken lil matrix"),
    (broken("lil", data={0: ["a", "b"]}), "broken lil matrix"),
    (broken("lil", data={0: [[1], [2]]}), "broken lil matrix"),
    (broken("dok", _dict={(5, 7): 1.0}), r"indices must be in \[0, 2\), but one is 5"),
    (broken("dok", _dict={("a", 7): 1.0}), "broken dok matrix"),
    (broken("dok", _dict={(0, 0): "x"}), "broken dok matrix"),
    (broken("dia", offsets=np.array([0, 99, -50])), r"broken dia matrix \(each diagonal must have an offset\)"),
    (broken("dia", data=np.ones((1, 3))), "broken dia matrix"),
    (broken("bsr", indices=np.array([0, 55, 1])), r"outline of X's indices must be in \[0, 3\), but one is 55"),
    (broken("bsr", indptr=np.array([0, 999, 3])), "outline of X's indptr must rise"),
    (broken("bsr", data=np.ones((0, 1, 1))), r"broken bsr matrix \(its blocks must fill it\)"),
    (broken("coo", row=np.array([0])), "must have a row and a column for each of its 3 values"),
    (broken("csr", indices=np.array([0.5, 1, 2])), r"broken csr matrix \(its indices must be integers\)"),
    (broken("csr", indices=np.array([0, 2, 1], ">i4")), "in this machine's byte order: >i4"),
    (broken("csr", data=np.ones((1, 3))), "its arrays must have one dimension"),
    (broken("csr", data=np.ones(3, ">f4")), "in this machine's byte order: >f4"),
    (broken("csr", indptr=np.zeros(0, np.int32)), "indptr must rise"),
    (broken("csc", indices=None), "broken csc matrix"),
]


@pytest.mark.parametrize(("matrix", "said"), BROKEN, ids=lambda value: getattr(value, "format", None))
def test_broken_matrices_are_refused(matrix, said):
    with pytest.raises(DataError, match=said):
        as_csr(matrix, "X")
    with pytest.raises(DataError, match=said):
        as_csr(matrix, "X", values=False)


def test_numbers_that_no_float_holds():
    with pytest.raises(DataError, match="X must hold numbers only"):
        as_csr([[10**400, 1]], "X")


def test_damaged_parquet_is_a_data_error(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {"text": [f"text {i} é" * 5 for i in range(200)], "labels": [[f"l{i % 7}"] for i in range(200)]}
    rng = np.random.default_rng(0)
    refused = 0
    for compression in ("none", "zstd"):
        file = tmp_path / f"{compression}.parquet"
        parquet.write_table(pa.table(rows), file, compression=compression)
        whole = file.read_bytes()
        for attempt in range(150):
            content = bytearray(whole)
            if attempt % 4 == 0:
                content = content[: rng.integers(len(whole))]
            for at in rng.integers(0, len(content), 6 if content else 0):
                content[at] = rng.integers(256)
            file.write_bytes(content)
            try:
                umpteen.read_corpus(file)
            except DataError as error:
                refused += str(file) in str(error)
    assert refused > 100
