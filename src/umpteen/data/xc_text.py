"""The text format of the Extreme Classification Repository.

    3 5 4                     header: rows, features, labels; may be missing
    0,2 1:0.5 4:1.25          labels, then feature:value
     0:2                      a row without labels starts with a space
    3                         a row without features

Ids count from 0 (``one_based=True``: from 1). Newer data sets of the repository are a pair of files instead:
``trn_X_Xf.txt`` with the features and ``trn_X_Y.txt`` with ``label:1`` entries, each with a header of rows and
columns. Small old data sets are one data file and two split files, whose ten columns have the row numbers, from 1, of
ten splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset
from umpteen.data.files import PathLike, read_bytes, read_names, write_bytes
from umpteen.data.matrix import Csr
from umpteen.data.text_format import format_matrix, parse_file
from umpteen.errors import DataError, ParamError

_PAIR = ("_X_Xf.txt", "_X_Y.txt")


def read_xc(
    path: PathLike,
    *,
    labels: PathLike | None = None,
    label_names: PathLike | Sequence[str] | None = None,
    feature_names: PathLike | Sequence[str] | None = None,
    one_based: bool = False,
    n_features: int | None = None,
    n_labels: int | None = None,
    threads: int | None = None,
) -> Dataset:
    """Reads Extreme Classification Repository text, plain or compressed (.gz, .bz2, .xz, .zst).

    Parameters
    ----------
    path
        The file. If its name contains ``_X_Xf.txt``, the labels are read from the ``_X_Y.txt`` beside it.
    labels
        The file with the labels, if they are in a separate file.
    label_names, feature_names
        Names, or a file with one name per line.
    one_based
        Whether ids in the file count from 1.
    n_features, n_labels
        How many there are, if the file has no header or its header has fewer; larger ids are an error.

    Raises
    ------
    DataError
        With file, line, rule and value, for anything that is not in the format.
    """
    labels = _find_pair(path) if labels is None else labels
    base = 1 if one_based else 0
    X, Y = parse_file(
        path,
        labels=labels is None,
        first_feature=base,
        first_label=base,
        n_features=n_features,
        n_labels=n_labels,
        threads=threads,
    )
    if labels is not None:
        Y, _ = parse_file(
            labels, labels=False, first_feature=base, n_features=n_labels, column_kind="label", threads=threads
        )
        if X.shape[0] != Y.shape[0]:
            raise DataError(f"{labels}: must have {X.shape[0]} rows, as {path} has, but has {Y.shape[0]}")
    return Dataset(X, Y, _names(label_names), _names(feature_names))


def read_xc_features(
    path: PathLike, *, one_based: bool = False, n_features: int | None = None, threads: int | None = None
) -> Csr:
    """Reads only X, which is all prediction needs. Labels in the file, if any, are parsed and dropped."""
    base = int(one_based)
    apart = _PAIR[0] in Path(path).name
    X, _ = parse_file(
        path, labels=not apart, first_feature=base, first_label=base, n_features=n_features, threads=threads
    )
    return X


def _find_pair(path: PathLike) -> Path | None:
    path = Path(path)
    if _PAIR[0] not in path.name:
        return None
    other = path.with_name(path.name.replace(*_PAIR))
    if not other.exists():
        raise DataError(f"{path}: the file has only features, and its labels {other} are missing")
    return other


def _names(names: PathLike | Sequence[str] | None) -> Sequence[str] | None:
    return read_names(names) if isinstance(names, (str, Path)) else names  # type: ignore[return-value]


def write_xc(
    data: Dataset,
    path: PathLike,
    *,
    labels: PathLike | None = None,
    header: bool = True,
    one_based: bool = False,
) -> None:
    """Writes Extreme Classification Repository text, compressed if the name ends in .gz, .bz2, .xz or .zst.

    With `labels` the features go to `path` and the labels, as ``label:1``, to a separate file. Values are written so
    that they read back as the same float32. The file is written completely or not at all.
    """
    base = 1 if one_based else 0
    if labels is None:
        counts = [f"{data.n_rows} {data.n_features} {data.n_labels}\n".encode()] if header else []
        rows = format_matrix(data.X, data.Y, first_feature=base, first_label=base)
        write_bytes(path, _chain(counts, rows))
        return
    for matrix, target in ((data.X, path), (data.Y, labels)):
        counts = [f"{matrix.shape[0]} {matrix.shape[1]}\n".encode()] if header else []
        write_bytes(target, _chain(counts, format_matrix(matrix, None, first_feature=base)))


def _chain(*parts: Any) -> Any:
    for part in parts:
        yield from part


def read_split(path: PathLike, *, column: int = 0) -> NDArray[np.int64]:
    """The row ids, counted from 0, in one column of a split file, which counts rows from 1."""
    rows: list[int] = []
    for number, line in enumerate(read_bytes(path).tobytes().split(b"\n"), start=1):
        cells = line.split()
        if not cells:
            continue
        if not 0 <= column < len(cells):
            raise ParamError(f"{path}:{number}: column must be in [0, {len(cells)}), but is {column}")
        if not cells[column].isdigit() or len(cells[column]) > 10 or int(cells[column]) < 1:
            shown = cells[column][:40].decode("ascii", "backslashreplace")
            raise DataError(f"{path}:{number}: a row number must be an integer of at least 1, but is {shown!r}")
        rows.append(int(cells[column]) - 1)
    if not rows:
        raise DataError(f"{path}: the file is empty")
    return np.asarray(rows, np.int64)


def read_xc_split(
    path: PathLike, train_split: PathLike, test_split: PathLike, *, column: int = 0, **options: Any
) -> tuple[Dataset, Dataset]:
    """The training and test parts of a data file that comes with split files. `options` go to `read_xc`."""
    data = read_xc(path, **options)
    parts = []
    for split in (train_split, test_split):
        rows = read_split(split, column=column)
        if rows.max() >= data.n_rows:
            raise DataError(f"{split}: rows must be in {path}, which has {data.n_rows}, but one is {rows.max() + 1}")
        parts.append(data.take(rows))
    return parts[0], parts[1]
