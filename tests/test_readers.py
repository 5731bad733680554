"""Every format: what it reads, what it writes, what it refuses and how it says so."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import struct
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import umpteen
from umpteen import _native
from umpteen.data.reading import format_of

from .conftest import same_dataset
from .reference import nearest_float32, parse_xc

GOOD = "3 5 4\n2,0 4:1.25 1:0.5\n 0:2\n3\n"


def write(tmp_path: Path, content: str | bytes, name: str = "data.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# --- Extreme Classification Repository text ------------------------------------------------------------------------


def test_reads_header_missing_labels_missing_features_and_any_order(tmp_path):
    data = umpteen.read_xc(write(tmp_path, GOOD))
    assert (data.n_rows, data.n_features, data.n_labels) == (3, 5, 4)
    np.testing.assert_array_equal(data.X.toarray(), [[0, 0.5, 0, 0, 1.25], [2, 0, 0, 0, 0], [0] * 5])
    np.testing.assert_array_equal(data.Y.toarray(), [[1, 0, 1, 0], [0] * 4, [0, 0, 0, 1]])
    assert data.X.dtype == np.float32
    assert data.X.indices.dtype == np.int32


def test_types_are_as_designed(tmp_path):
    data = umpteen.read_xc(write(tmp_path, GOOD))
    for matrix in (data.X, data.Y):
        assert matrix.has_sorted_indices
        assert matrix.has_canonical_format
        assert (matrix.dtype, matrix.indices.dtype) == (np.float32, np.int32)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("0 1:1\n1 2:1\n", (2, 3, 2)),  # no header
        ("0 1:1\r\n1 2:1\r\n", (2, 3, 2)),  # Windows
        ("2 3 2\r\n0 1:1\r\n1 2:1\r\n", (2, 3, 2)),
        ("0 1:1\n1 2:1", (2, 3, 2)),  # no end of line at the end
        ("0\t1:1\t2:3 \n1   2:1\n", (2, 3, 2)),  # tabs, several spaces, a space at the end
        ("0 1:1\n1 2:1\n\n\n", (2, 3, 2)),  # empty lines at the end
        ("1:1\n 2:1\n", (2, 3, 0)),  # no labels at all
        ("5\n", (1, 0, 6)),  # one integer is a row with one label
        ("2 3 2\n\n\n", (2, 3, 2)),  # the header counts empty lines as rows
        ("0 1:1\n\n1 2:1\n", (3, 3, 2)),  # an empty line between rows is a row
        ("0 5 3\n", (0, 5, 3)),
        ("1 7 9\n8 6:1e-3\n", (1, 7, 9)),
    ],
)
def test_shapes_the_format_allows(tmp_path, text, shape):
    data = umpteen.read_xc(write(tmp_path, text))
    assert (data.n_rows, data.n_features, data.n_labels) == shape


def test_one_based(tmp_path):
    path = write(tmp_path, "2 3 2\n1 1:5\n2 3:7\n")
    data = umpteen.read_xc(path, one_based=True)
    np.testing.assert_array_equal(data.X.toarray(), [[5, 0, 0], [0, 0, 7]])
    np.testing.assert_array_equal(data.Y.toarray(), [[1, 0], [0, 1]])


def test_sizes_given_by_the_caller(tmp_path):
    data = umpteen.read_xc(write(tmp_path, "1 0:1\n"), n_features=10, n_labels=20)
    assert (data.n_features, data.n_labels) == (10, 20)
    with pytest.raises(umpteen.errors.DataError, match=r"data.txt:1: label id 1 is out of range; there are 1 labels"):
        umpteen.read_xc(tmp_path / "data.txt", n_labels=1)


BAD = {
    "header_rows": ("4 5 4\n0 1:1\n", 1, "the header declares 4 rows, but the file has 1"),
    "header_rows_too_few": ("1 5 4\n0 1:1\n1 2:1\n", 1, "the header declares 1 rows, but the file has 2"),
    "header_counts": (
        "4 5\n0 1:1\n",
        1,
        r"the header must have 3 counts \(rows, features, labels\), but has 2",
    ),
    "header_four": ("1 5 4 3\n0 1:1\n", 1, "the header must have 3 counts .*, but has 4"),
    "header_huge": ("1 99999999999 4\n0 1:1\n", 1, "declares 99999999999 features, more than 2147483647"),
    "label_range": ("2 5 4\n0 1:1\n4 1:1\n", 3, "label id 4 is out of range; the header declares 4 labels"),
    "feature_range": ("1 5 4\n0 5:1\n", 2, "feature id 5 is out of range; the header declares 5 features"),
    "feature_negative": ("0 -1:1\n", 1, "feature id '-1:1' is negative"),
    "label_negative": ("-2 1:1\n", 1, "label id '-2' is negative"),
    "nan": ("0 1:nan\n", 1, "the value of feature 1 must be a finite number, but is 'nan'"),
    "inf": ("0 1:1\n0 1:-inf\n", 2, "the value of feature 1 must be a finite number, but is '-inf'"),
    "overflow": ("0 1:1e39\n", 1, "the value of feature 1 is '1e39', too large for a 32-bit float"),
    "duplicate_feature": ("0 3:1 1:1 3:2\n", 1, "feature 3 comes twice in this row"),
    "duplicate_sorted": ("0 3:1 3:2\n", 1, "feature 3 comes twice in this row"),
    "duplicate_label": ("2,1,2 3:1\n", 1, "label 2 comes twice in this row"),
    "cut_value": ("0 1:1\n0 1:\n", 2, "the value of feature 1 must be a finite number, but is missing"),
    "cut_pair": ("0 1:1 2\n", 1, "expected ':' after feature id 2, found the end of the line"),
    "cut_labels": ("0, 1:1\n", 1, "expected a label id, found ' '|expected a label id, found ''"),
    "bad_label": ("a,b 1:1\n", 1, "expected a label id, found 'a,b'"),
    "bad_separator": ("0;1 1:1\n", 1, "expected ',' or a space after a label id, found ';1'"),
    "bad_value": ("0 1:1x\n", 1, "the value of feature 1 must be a finite number, but is '1x'"),
    "bad_feature": ("0 x:1\n", 1, "expected a feature id, found 'x:1'"),
    "id_overflow": ("0 2147483648:1\n", 1, "feature id '2147483648:1' is above 2147483646, the largest id"),
    "label_overflow": (
        "99999999999999999999 1:1\n",
        1,
        "label id '99999999999999999999' is above 2147483646",
    ),
    "binary": (b"\x00\x01\x02\xff\xfe\n\x80\n", 1, r"expected a label id, found '\\x00\\x01\\x02\\xff\\xfe'"),
    "zero_in_one_based": ("0 1:1\n", 1, "label id 0 is below 1, the first id of a one-based file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_text_names_file_line_rule_and_value(tmp_path, case):
    content, line, message = BAD[case]
    path = write(tmp_path, content)
    with pytest.raises(umpteen.errors.DataError, match=rf"data\.txt:{line}: .*({message})"):
        umpteen.read_xc(path, one_based=case == "zero_in_one_based")


def test_the_error_on_the_lowest_line_wins_whatever_the_threads(tmp_path):
    lines = ["0 1:1"] * 400_000
    lines[150_000] = "0 1:first"
    lines[350_000] = "0 1:second"
    path = write(tmp_path, "\n".join(lines) + "\n")
    for threads in (1, 2, 5):
        with pytest.raises(umpteen.errors.DataError, match=r"data\.txt:150001: .*'first'"):
            umpteen.read_xc(path, threads=threads)


def test_largest_id_is_allowed(tmp_path):
    data = umpteen.read_xc(write(tmp_path, "2147483646 2147483646:1\n"))
    assert data.X.indices.dtype == np.int32
    umpteen.write_xc(data, tmp_path / "again.txt")
    same_dataset(umpteen.read_xc(tmp_path / "again.txt"), data)
    with pytest.raises(umpteen.errors.MemoryLimitError, match="are there really so many"):
        umpteen.Centroid().fit(data.X, data.Y)
    assert (data.n_features, data.n_labels) == (2**31 - 1, 2**31 - 1)


def test_empty_file_directory_and_missing_file(tmp_path):
    with pytest.raises(umpteen.errors.DataError, match=r"data\.txt: the file is empty"):
        umpteen.read_xc(write(tmp_path, ""))
    with pytest.raises(umpteen.errors.DataError, match="is a directory, but must be a file"):
        umpteen.read_xc(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        umpteen.read_xc(tmp_path / "nowhere.txt")


@pytest.mark.slow
def test_a_row_with_a_million_features(tmp_path):
    n = 1_000_000
    order = np.random.default_rng(0).permutation(n)
    path = write(tmp_path, "7 " + " ".join(f"{f}:{f % 97 + 1}" for f in order) + "\n")
    data = umpteen.read_xc(path)
    assert data.X.nnz == n
    np.testing.assert_array_equal(data.X.indices, np.arange(n))
    np.testing.assert_array_equal(data.X.data, np.arange(n) % 97 + 1)


@pytest.mark.slow
def test_random_bytes_never_do_worse_than_an_error(tmp_path):
    rng = np.random.default_rng(1)
    alphabet = np.frombuffer(b"0123456789:,.-+eE \t\n\r#naif\x00\xff", np.uint8)
    outcomes = set()
    for _ in range(3000):
        text = rng.choice(alphabet, rng.integers(1, 60)).tobytes()
        path = write(tmp_path, text)
        for reader in (umpteen.read_xc, umpteen.read_svmlight):
            try:
                reader(path)
                outcomes.add("read")
            except umpteen.errors.DataError as error:
                if str(path) not in str(error):
                    raise
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.slow
def test_matches_the_slow_twin_on_any_number_of_threads(tmp_path):
    rng = np.random.default_rng(2)
    lines = []
    for _ in range(6_000):
        labels = rng.permutation(30)[: rng.integers(0, 4)]
        features = rng.permutation(50)[: rng.integers(0, 6)]
        cells = [f"{f}:{rng.normal() * 10.0 ** rng.integers(-6, 6):.{rng.integers(1, 12)}g}" for f in features]
        lines.append(",".join(map(str, labels)) + " " + " ".join(cells))
    text = "\n".join(lines) + "\n"
    expected = parse_xc(text) * 10
    path = write(tmp_path, text * 10)
    assert path.stat().st_size > 2 << 20  # several chunks, which cut the rows elsewhere each time
    for threads in (1, 2, 7):
        data = umpteen.read_xc(path, threads=threads)
        assert data.n_rows == len(expected)
        X, Y = data.X, data.Y
        values, features, labels = X.data.tolist(), X.indices.tolist(), Y.indices.tolist()
        for i, row in enumerate(expected):
            at = slice(X.indptr[i], X.indptr[i + 1])
            assert labels[Y.indptr[i] : Y.indptr[i + 1]] == row[0]
            assert dict(zip(features[at], values[at], strict=True)) == row[1]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(1, 17))
def test_numbers_are_rounded_once_to_float32(value, digits):
    text = f"{value:.{digits}g}"
    expected = nearest_float32(text)
    if np.isfinite(expected):
        assert _parse(f"0:{text}")["X_data"][0] == expected
    else:
        with pytest.raises(_native.ParseError, match="too large"):
            _parse(f"0:{text}")


def _parse(text):
    return _native.parse_text(
        np.frombuffer(text.encode(), np.uint8), labels=False, header=False, comments=False, first_feature=0,
        first_label=0, n_features=-1, n_labels=-1, column_kind="feature", threads=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["0.1", "16777217", "1e-45", "1e-46", "1e-400", "3.4028235e38", "0.000000000000000000000000000001", "1.",
             ".5", "+2", "-0", "123456789012345678901234567890", "1.00000005960464477539062500000001"],
)  # fmt: skip
def test_numbers_at_the_edges(tmp_path, text):
    data = umpteen.read_xc(write(tmp_path, f"0 0:{text}\n"))
    assert data.X.data[0] == nearest_float32(text)


# --- pair, splits, names --------------------------------------------------------------------------------------------


def test_pair_of_files(tmp_path):
    write(tmp_path, "2 3\n0:1 2:5\n \n", "trn_X_Xf.txt")
    write(tmp_path, "2 4\n3:1 0:1\n1:1\n", "trn_X_Y.txt")
    data = umpteen.read_xc(tmp_path / "trn_X_Xf.txt")
    np.testing.assert_array_equal(data.X.toarray(), [[1, 0, 5], [0, 0, 0]])
    np.testing.assert_array_equal(data.Y.toarray(), [[1, 0, 0, 1], [0, 1, 0, 0]])


def test_pair_that_does_not_fit(tmp_path):
    features = write(tmp_path, "2 3\n0:1 2:5\n1:1\n", "trn_X_Xf.txt")
    with pytest.raises(umpteen.errors.DataError, match=r"its labels .*trn_X_Y\.txt are missing"):
        umpteen.read_xc(features)
    write(tmp_path, "1 4\n3:1\n", "trn_X_Y.txt")
    with pytest.raises(umpteen.errors.DataError, match=r"trn_X_Y\.txt: must have 2 rows, .* but has 1"):
        umpteen.read_xc(features)


def test_split_files(tmp_path):
    data = write(tmp_path, "4 1 4\n0 0:1\n1 0:2\n2 0:3\n3 0:4\n")
    train = write(tmp_path, "1 2\n4 3\n", "tr.txt")
    test = write(tmp_path, "2 1\n3 4\n", "te.txt")
    first, second = umpteen.read_xc_split(data, train, test, column=1)
    np.testing.assert_array_equal(first.X.toarray().ravel(), [2, 3])
    np.testing.assert_array_equal(second.Y.indices, [0, 3])
    np.testing.assert_array_equal(umpteen.read_split(train), [0, 3])


@pytest.mark.parametrize(
    ("content", "column", "message"),
    [("1 2\n0 3\n", 0, r"tr\.txt:2: a row number must be an integer of at least 1, but is '0'"),
     ("1 x\n", 1, r"tr\.txt:1: .* but is 'x'"),
     ("1 2\n", 2, r"tr\.txt:1: column must be in \[0, 2\), but is 2"),
     ("9\n", 0, r"tr\.txt: rows must be in .*, which has 2, but one is 9"),
     ("9" * 23, 0, r"tr\.txt:1: a row number must be"),
     ("", 0, r"tr\.txt: the file is empty")],
)  # fmt: skip
def test_bad_split_files(tmp_path, content, column, message):
    data = write(tmp_path, "2 1 4\n0 0:1\n1 0:2\n")
    split = write(tmp_path, content, "tr.txt")
    with pytest.raises(umpteen.errors.UmpteenError, match=message):
        umpteen.read_xc_split(data, split, split, column=column)


def test_names(tmp_path):
    data = write(tmp_path, GOOD)
    names = write(tmp_path, "α\nb c\r\n\nd\n", "names.txt")
    assert umpteen.read_xc(data, label_names=names).label_names == ("α", "b c", "", "d")
    write(tmp_path, b"a\n\xff\nc\nd\n", "names.txt")
    with pytest.raises(umpteen.errors.DataError, match=r"names\.txt:2: names must be UTF-8, but byte 0xff is not"):
        umpteen.read_xc(data, label_names=names)
    with pytest.raises(umpteen.errors.DataError, match="there must be 4 label names, but there are 1"):
        umpteen.read_xc(data, label_names=["a"])


# --- svmlight -------------------------------------------------------------------------------------------------------


def test_svmlight_comments_and_bases(tmp_path):
    path = write(tmp_path, "# made by hand\n1,0 1:2 3:4 # first\n\n 2:1\n")
    data = umpteen.read_svmlight(path)
    np.testing.assert_array_equal(data.X.toarray(), [[2, 0, 4], [0, 1, 0]])
    np.testing.assert_array_equal(data.Y.toarray(), [[1, 1], [0, 0]])
    with pytest.raises(umpteen.errors.DataError, match=r"data\.txt:2: label id 0 is below 1"):
        umpteen.read_svmlight(path, one_based_labels=True)


def test_svmlight_agrees_with_scikit_learn(tmp_path, tiny):
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file

    rows = [tuple(map(int, tiny.Y[i].indices)) for i in range(tiny.n_rows)]
    dump_svmlight_file(tiny.X, tiny.Y, str(tmp_path / "theirs.svm"), zero_based=False, multilabel=True)
    same_dataset(umpteen.read_svmlight(tmp_path / "theirs.svm", n_features=200, n_labels=40), tiny)
    umpteen.write_svmlight(tiny, tmp_path / "ours.svm")
    X, y = load_svmlight_file(
        tmp_path / "ours.svm", n_features=200, dtype=np.float32, multilabel=True, zero_based=False
    )
    assert (X != tiny.X).nnz == 0
    assert [tuple(map(int, labels)) for labels in y] == rows


# --- npz ------------------------------------------------------------------------------------------------------------


def test_npz_that_is_not_one(tmp_path):
    for content in (b"", b"junk", b"PK\x03\x04 cut short"):
        with pytest.raises(umpteen.errors.DataError, match=r"d\.npz: not an \.npz file"):
            umpteen.read_npz(write(tmp_path, content, "d.npz"))
    with pytest.raises(umpteen.errors.DataError, match="is a directory"):
        umpteen.read_npz(tmp_path)
    sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(np.eye(2)))
    with pytest.raises(umpteen.errors.DataError, match="the file has no labels"):
        umpteen.read_npz(tmp_path / "X.npz")


def test_npz_with_indices_out_of_range(tmp_path, tiny):
    umpteen.write_npz(tiny, tmp_path / "d.npz")
    arrays = dict(np.load(tmp_path / "d.npz"))
    arrays["X_indices"] = arrays["X_indices"] + 1000
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(umpteen.errors.DataError, match=r"d\.npz: not a data set .*indices"):
        umpteen.read_npz(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label_names": np.array([["a"]])}, "label_names must be one dimension of text, but are 2"),
        ({"label_names": np.arange(3)}, "label_names must be one dimension of text, but are 1 of int64"),
        ({"label_names": np.array(["a"])}, "there must be 3 label names"),
        ({"X_data": np.full(1, np.nan, np.float32)}, "X must hold finite"),
        ({"X_shape": np.array([1, 2**62])}, "X may have at most"),
    ],
)
def test_what_is_wrong_in_an_npz_is_said_with_its_name(tmp_path, change, message):
    one = {"data": np.ones(1, np.float32), "indices": np.zeros(1, np.int32), "indptr": [0, 1], "shape": [1, 3]}
    arrays = {f"{name}_{part}": value for name in "XY" for part, value in one.items()}
    np.savez(tmp_path / "d.npz", **(arrays | change))
    with pytest.raises(umpteen.errors.DataError, match=rf"d\.npz: .*{message}"):
        umpteen.read_npz(tmp_path / "d.npz")


@pytest.mark.parametrize("compress", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("member", ["X_indices", "Y_shape", "label_names"])
def test_damage_in_an_npz_is_told_with_its_member_and_place(tmp_path, tiny, compress, member):
    data = umpteen.Dataset(tiny.X, tiny.Y, label_names=[f"label {i}" for i in range(tiny.n_labels)])
    umpteen.write_npz(data, tmp_path / "d.npz")
    compress(tmp_path / "d.npz", **np.load(tmp_path / "d.npz"))
    damage = damage_member(tmp_path / "d.npz", f"{member}.npy")
    with pytest.raises(umpteen.errors.DataError, match=rf"d\.npz: its member {member}\.npy, {damage}, is damaged \("):
        umpteen.read_npz(tmp_path / "d.npz")


def test_damage_in_scipys_npz_is_told_likewise(tmp_path, tiny):
    umpteen.write_npz(tiny, tmp_path / "X.npz", labels=tmp_path / "Y.npz")
    damage = damage_member(tmp_path / "Y.npz", "indptr.npy")
    with pytest.raises(umpteen.errors.DataError, match=rf"Y\.npz: its member indptr\.npy, {damage}, is damaged \("):
        umpteen.read_npz(tmp_path / "X.npz", labels=tmp_path / "Y.npz")
    content = (tmp_path / "X.npz").read_bytes()
    (tmp_path / "X.npz").write_bytes(content[:5_000])
    with pytest.raises(umpteen.errors.DataError, match=r"X\.npz: .* cut short: .* 5,000 bytes"):
        umpteen.read_npz(tmp_path / "X.npz", labels=tmp_path / "Y.npz")


def damage_member(file, name: str) -> str:
    """Changes a byte in the middle of a member; gives where the error should say that it begins."""
    with zipfile.ZipFile(file) as archive:
        found = archive.getinfo(name)
    content = bytearray(file.read_bytes())
    head = found.header_offset
    start = head + 30 + sum(struct.unpack("<HH", content[head + 26 : head + 30]))
    content[start + found.compress_size * 3 // 4] ^= 0xFF
    file.write_bytes(content)
    return f"which begins at byte {head}"


def test_npz_never_unpickles(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "pwned"),))

    np.savez(tmp_path / "d.npz", X_data=np.array([Bomb()], dtype=object))
    with pytest.raises(umpteen.errors.DataError):
        umpteen.read_npz(tmp_path / "d.npz")
    assert not (tmp_path / "pwned").exists()


# --- all formats ----------------------------------------------------------------------------------------------------


@st.composite
def datasets(draw):
    n, d, n_labels = draw(st.integers(1, 6)), draw(st.integers(1, 7)), draw(st.integers(1, 5))
    values = st.floats(width=32, allow_nan=False, allow_infinity=False)
    X = draw(hnp.arrays(np.float32, (n, d), elements=values, fill=st.just(0.0)))
    Y = draw(hnp.arrays(np.int8, (n, n_labels), elements=st.integers(0, 1)))
    names = st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=n_labels, max_size=n_labels
    )
    return umpteen.Dataset(X, Y), draw(names)


ROUND_TRIPS = {
    "xc": (lambda d, p: umpteen.write_xc(d, p), lambda d, p: umpteen.read_xc(p)),
    "xc_one_based": (
        lambda d, p: umpteen.write_xc(d, p, one_based=True),
        lambda d, p: umpteen.read_xc(p, one_based=True),
    ),
    "xc_no_header": (
        lambda d, p: umpteen.write_xc(d, p, header=False),
        lambda d, p: umpteen.read_xc(p, n_features=d.n_features, n_labels=d.n_labels),
    ),
    "xc_pair": (
        lambda d, p: umpteen.write_xc(d, f"{p}_X", labels=f"{p}_Y"),
        lambda d, p: umpteen.read_xc(f"{p}_X", labels=f"{p}_Y"),
    ),
    "svmlight": (
        lambda d, p: umpteen.write_svmlight(d, p),
        lambda d, p: umpteen.read_svmlight(p, n_features=d.n_features, n_labels=d.n_labels),
    ),
    "npz": (lambda d, p: umpteen.write_npz(d, p), lambda d, p: umpteen.read_npz(p)),
    "npz_pair": (
        lambda d, p: umpteen.write_npz(d, f"{p}_X", labels=f"{p}_Y"),
        lambda d, p: umpteen.read_npz(f"{p}_X", labels=f"{p}_Y"),
    ),
}


@pytest.mark.parametrize("how", ROUND_TRIPS)
@given(datasets())
def test_every_format_round_trips(tmp_path_factory, how, drawn):
    data, _ = drawn
    path = tmp_path_factory.getbasetemp() / f"round-{how}"
    writer, reader = ROUND_TRIPS[how]
    writer(data, path)
    same_dataset(reader(data, path), data)


@given(datasets())
def test_npz_keeps_names(tmp_path_factory, drawn):
    data, names = drawn
    named = umpteen.Dataset(
        data.X, data.Y, label_names=names, feature_names=[f"f{i}" for i in range(data.n_features)]
    )
    path = tmp_path_factory.getbasetemp() / "names.npz"
    umpteen.write_npz(named, path)
    same_dataset(umpteen.read_npz(path), named)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_compression_is_transparent_and_reproducible(tmp_path, tiny, suffix):
    path = tmp_path / f"d.txt{suffix}"
    umpteen.write_xc(tiny, path)
    first = path.read_bytes()
    same_dataset(umpteen.read_xc(path), tiny)
    umpteen.write_xc(tiny, path)
    assert path.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # no temporary file left


COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda b: zstandard.ZstdCompressor(write_checksum=True).compress(b),
}


@pytest.mark.parametrize("kind", COMPRESS)
def test_damaged_and_joined_compressed_files(tmp_path, kind):
    whole = COMPRESS[kind](GOOD.encode())
    half = len(GOOD) // 2
    joined = COMPRESS[kind](GOOD[:half].encode()) + COMPRESS[kind](GOOD[half:].encode())
    same_dataset(umpteen.read_xc(write(tmp_path, joined, "a")), umpteen.read_xc(write(tmp_path, GOOD, "b")))
    with pytest.raises(umpteen.errors.DataError, match="c: the compressed data .* is damaged or cut short"):
        umpteen.read_xc(write(tmp_path, whole[: len(whole) * 2 // 3], "c"))
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    with pytest.raises(umpteen.errors.DataError, match="c: the compressed data .* is damaged"):
        umpteen.read_xc(write(tmp_path, bytes(broken), "c"))


def test_reads_a_pipe(tmp_path):
    for content in (GOOD.encode(), gzip.compress(GOOD.encode())):
        path = tmp_path / "pipe"
        os.mkfifo(path)
        writer = threading.Thread(target=lambda p=path, c=content: p.write_bytes(c))
        writer.start()
        assert umpteen.read_xc(path).n_rows == 3
        writer.join()
        path.unlink()


def test_format_by_name():
    names = {"a.txt": "xc", "a.txt.xz": "xc", "a.npz": "npz", "a.npy": "npy", "a.svm.gz": "svmlight"}
    names["a.libsvm"] = "svmlight"
    assert {name: format_of(name) for name in names} == names
    with pytest.raises(umpteen.errors.ParamError, match="must be one of xc, svmlight, npz, npy, but is 'arff'"):
        umpteen.read("a.txt", format="arff")


@pytest.mark.process
@pytest.mark.measured("memory")
def test_reader_memory_is_bounded_by_the_arrays(tmp_path, eurlex):
    """Beyond file and result the parser allocates next to nothing: the peak is measured in a fresh process."""
    import subprocess
    import sys

    path = tmp_path / "big.txt"
    umpteen.write_xc(eurlex[0], path)
    script = """
import sys, numpy, scipy.sparse, umpteen, umpteen.data.xc_text
def peak():  # of this process alone: getrusage would also know the parent's
    return 1024 * int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
before = peak()
data = umpteen.read_xc(sys.argv[1])
arrays = sum(a.nbytes for m in (data.X, data.Y) for a in (m.data, m.indices, m.indptr))
print(peak() - before, arrays)
"""
    out = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    peak, arrays = map(int, out.stdout.split())
    assert peak > arrays, "the measurement sees nothing"
    assert peak <= path.stat().st_size + 1.5 * arrays


def test_writing_follows_links_keeps_modes_and_spares_devices(tmp_path, tiny):
    target = write(tmp_path, "old", "real.txt")
    target.chmod(0o600)
    (tmp_path / "link.txt").symlink_to(target)
    umpteen.write_xc(tiny, tmp_path / "link.txt")
    assert (tmp_path / "link.txt").is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    same_dataset(umpteen.read_xc(target), tiny)
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    umpteen.write_xc(tiny, tmp_path / "pipe")
    reader.join()
    assert (tmp_path / "pipe").is_fifo()
    assert got[0] == target.read_bytes()


def test_features_alone(tmp_path, tiny):
    from umpteen.data.reading import read_features

    umpteen.write_xc(tiny, tmp_path / "d.txt")
    umpteen.write_xc(tiny, tmp_path / "tst_X_Xf.txt", labels=tmp_path / "elsewhere.txt")
    umpteen.write_npz(tiny, tmp_path / "d.npz")
    umpteen.write_npz(tiny, tmp_path / "X.npz", labels=tmp_path / "Y.npz")
    umpteen.write_svmlight(tiny, tmp_path / "d.svm")
    for name in ("d.txt", "tst_X_Xf.txt", "d.npz", "X.npz", "d.svm"):
        assert (read_features(tmp_path / name, n_features=200) != tiny.X).nnz == 0
    write(tmp_path, "999999 1:1\n", "d.txt")
    assert read_features(tmp_path / "d.txt", n_features=200).shape == (1, 200)


def test_labels_of_a_pair_are_called_labels(tmp_path):
    write(tmp_path, "1 3\n0:1\n", "a_X_Xf.txt")
    write(tmp_path, "1 2\n7:1\n", "a_X_Y.txt")
    with pytest.raises(umpteen.errors.DataError, match=r"a_X_Y\.txt:2: label id 7 is out of range; .* 2 labels"):
        umpteen.read_xc(tmp_path / "a_X_Xf.txt")


@pytest.mark.parametrize("bad", [{"n_features": "5"}, {"n_features": -5}, {"n_labels": 1.5}, {"threads": 0}])
def test_options_are_checked(tmp_path, bad):
    (name,) = bad
    with pytest.raises(umpteen.errors.ParamError, match=f"{name} must be an integer of at least"):
        umpteen.read_xc(write(tmp_path, GOOD), **bad)


def test_a_file_of_empty_lines_has_no_rows(tmp_path):
    with pytest.raises(umpteen.errors.DataError, match=r"data\.txt: the file has no rows"):
        umpteen.read_xc(write(tmp_path, "\n\n"))


def test_writing_fails_without_leaving_anything(tmp_path, tiny):
    with pytest.raises(umpteen.errors.DataError, match="is a directory"):
        umpteen.write_xc(tiny, tmp_path)
    with pytest.raises(FileNotFoundError):
        umpteen.write_xc(tiny, tmp_path / "no" / "d.txt")
    assert list(tmp_path.iterdir()) == []


def test_sink_that_fails_half_way_keeps_the_old_file(tmp_path):
    from umpteen.data.files import write_bytes

    path = write(tmp_path, "old")

    def parts():
        yield b"new"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_bytes(path, parts())
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["data.txt"]
