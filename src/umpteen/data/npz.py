"""NumPy ``.npz`` files: SciPy's (one matrix per file), or one file with a whole data set; and ``.npy``, dense rows.

A whole data set has the arrays ``X_data, X_indices, X_indptr, X_shape``, the same for ``Y``, and optionally
``label_names`` and ``feature_names``; and ``X_dense`` if the last columns of X, behind those of ``X_shape``, are in
all rows. No kind is ever unpickled.
"""

from __future__ import annotations

import contextlib
import io
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from umpteen.data.blocks import count_dense, split_blocks
from umpteen.data.dataset import Dataset
from umpteen.data.files import PathLike, atomic_path
from umpteen.data.matrix import Csr, as_csr
from umpteen.errors import DataError, UmpteenError
from umpteen.memory import Estimate, check_fits

# What NumPy, SciPy and zipfile raise on damaged or foreign content.
_BAD_CONTENT = (ValueError, KeyError, TypeError, EOFError, IndexError, AttributeError, NotImplementedError,
                zipfile.BadZipFile, zlib.error, OverflowError, SyntaxError, MemoryError, RuntimeError, OSError,
                tokenize.TokenError)  # fmt: skip
_ZIP = b"PK\x03\x04"


def read_npz(
    path: PathLike,
    *,
    labels: PathLike | None = None,
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
) -> Dataset:
    """Reads a data set from one ``.npz``, or X and Y from two SciPy ``.npz`` files."""
    if labels is not None:
        X, Y = _load_scipy(path), _load_scipy(labels)
        if X.shape[0] != Y.shape[0]:
            raise DataError(f"{labels}: must have {X.shape[0]} rows, as {path} has, but has {Y.shape[0]}")
        return _dataset(path, X, Y, label_names, feature_names)
    with _open(path) as file:
        if "X_data" not in file:
            raise DataError(f"{path}: the file has no labels; pass the file that has them")
        try:
            X, Y = _rows(path, file), _matrix(path, file, "Y")
            names = {key: _names(path, file, key) for key in ("label_names", "feature_names")}
        except _Damaged:
            raise
        except _BAD_CONTENT as error:
            raise DataError(f"{path}: not a data set ({_reason(error)})") from error
    return _dataset(
        path,
        X,
        Y,
        names["label_names"] if label_names is None else label_names,
        names["feature_names"] if feature_names is None else feature_names,
    )


def read_npz_features(path: PathLike) -> Csr:
    """Reads only X, from a whole data set or from SciPy's file."""
    with _open(path) as file:
        if "X_data" not in file:
            return as_csr(_load_scipy(path), f"{path}")
        try:
            return as_csr(_rows(path, file), f"{path}")
        except _Damaged:
            raise
        except _BAD_CONTENT as error:
            raise DataError(f"{path}: not a data set ({_reason(error)})") from error


def read_npy(path: PathLike, *, labels: PathLike | None = None, **names: Sequence[str] | None) -> Dataset:
    """Reads X from a ``.npy`` of dense rows and Y from SciPy's ``.npz``; `names` as for `read_npz`."""
    if labels is None:
        raise DataError(f"{path}: the file has no labels; pass the .npz file that has them")
    X, Y = map_npy(path), _load_scipy(labels)
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"{labels}: must have {X.shape[0]} rows, as {path} has, but has {Y.shape[0]}")
    return _dataset(path, X, Y, names.get("label_names"), names.get("feature_names"))


def map_npy(path: PathLike) -> Any:
    """The array of a ``.npy``, mapped: dense rows, or the dense block of a pair."""
    if not Path(path).is_file():
        raise DataError(f"{path}: must be a file")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except _BAD_CONTENT as error:
        raise DataError(f"{path}: not an .npy file ({_reason(error)})") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "biuf":
        raise DataError(f"{path}: must hold a matrix of real numbers")
    return array


def write_npz(data: Dataset, path: PathLike, *, labels: PathLike | None = None) -> None:
    """Writes a data set into one ``.npz``, or, with `labels`, X and Y into two SciPy ``.npz`` files."""
    if labels is not None:
        for target, matrix in ((path, data.X), (labels, data.Y)):
            with atomic_path(target) as temporary, temporary.open("wb") as file:
                sp.save_npz(file, matrix)
        return
    arrays: dict[str, Any] = {}
    X: Any = data.X
    if width := count_dense(X):
        X, arrays["X_dense"] = split_blocks(X, width)
    for name, matrix in (("X", X), ("Y", data.Y)):
        arrays |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
        arrays[f"{name}_shape"] = np.asarray(matrix.shape, np.int64)
    for key, value in (("label_names", data.label_names), ("feature_names", data.feature_names)):
        if value is not None:
            arrays[key] = np.asarray(value, np.str_)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


@contextlib.contextmanager
def _open(path: PathLike) -> Iterator[Any]:
    if Path(path).is_dir():
        raise DataError(f"{path}: is a directory, but must be a file")
    with Path(path).open("rb") as raw:
        try:
            file = np.load(raw, allow_pickle=False)
        except _BAD_CONTENT as error:
            raw.seek(0)
            if raw.read(len(_ZIP)) == _ZIP:
                n_bytes = raw.seek(0, io.SEEK_END)
                raise DataError(
                    f"{path}: not an .npz file, or one that is cut short: its list of members, at the end, cannot be "
                    f"read; it has {n_bytes:,} bytes"
                ) from error
            raise DataError(f"{path}: not an .npz file ({_reason(error)})") from error
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise DataError(f"{path}: not an .npz file")
        with file:
            yield file


def _dataset(path: PathLike, *content: Any) -> Dataset:
    try:
        return Dataset(*content)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


class _Damaged(DataError):
    """One member of an archive cannot be read."""


def _take(path: PathLike, file: Any, key: str) -> Any:
    """An array of an archive. If it is damaged, the error says where it begins: which of its bytes is wrong cannot be
    known from a checksum of them all."""
    try:
        return file[key]
    except KeyError:  # there is none
        raise
    except _BAD_CONTENT as error:
        member = file.zip.getinfo(key if key in file.zip.namelist() else f"{key}.npy")
        place = f"its member {member.filename}, which begins at byte {member.header_offset}"
        raise _Damaged(f"{path}: {place}, is damaged ({_reason(error)})") from error


def _names(path: PathLike, file: Any, key: str) -> list[str] | None:
    if key not in file:
        return None
    names = _take(path, file, key)
    if names.ndim != 1 or names.dtype.kind != "U":
        raise ValueError(f"{key} must be one dimension of text, but are {names.ndim} of {names.dtype}")
    found: list[str] = names.tolist()
    return found


def _rows(path: PathLike, file: Any) -> Any:
    """X, or its two blocks."""
    X = _matrix(path, file, "X")
    return (X, _take(path, file, "X_dense")) if "X_dense" in file else X


def _matrix(path: PathLike, file: Any, name: str) -> Csr:
    parts = ("data", "indices", "indptr", "shape")
    data, indices, indptr, shape = (_take(path, file, f"{name}_{part}") for part in parts)
    matrix = sp.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
    matrix.check_format(full_check=True)
    return matrix


def _load_scipy(path: PathLike) -> Csr:
    with _open(path):
        pass
    try:
        loaded = sp.load_npz(path)
        if hasattr(loaded, "check_format"):
            loaded.check_format(full_check=True)
        return sp.csr_matrix(loaded)
    except _BAD_CONTENT as error:
        with _open(path) as file:
            for key in file.files:
                _take(path, file, key)
        raise DataError(f"{path}: not a SciPy sparse matrix ({_reason(error)})") from error


def parse_csc(content: bytes) -> Any:
    """The matrix of SciPy's ``.npz`` with compressed columns of real numbers; no array is as long as its rows."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        check_fits(Estimate(3 * size, 0), "the matrix is too large")
        loaded: Any = sp.load_npz(io.BytesIO(content))
        if loaded.format != "csc" or loaded.dtype.kind not in "biuf":
            raise DataError(f"must be compressed columns of real numbers, but is {loaded.format} of {loaded.dtype}")
        loaded.check_format(full_check=True)
        loaded.sum_duplicates()
    except UmpteenError:
        raise
    except _BAD_CONTENT as error:
        raise DataError(f"not a SciPy sparse matrix ({_reason(error)})") from error
    return loaded


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
