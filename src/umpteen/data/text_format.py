"""Code that the two text formats share: one C++ parser, one C++ formatter, and errors that name file and line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from umpteen import _native
from umpteen.data.files import PathLike, read_bytes
from umpteen.data.matrix import Csr, make_csr, offsets
from umpteen.errors import DataError
from umpteen.params import check_count
from umpteen.threads import resolve_threads

_ROWS_PER_PART = 4096


def parse_file(
    path: PathLike,
    *,
    labels: bool,
    header: bool = True,
    comments: bool = False,
    first_feature: int = 0,
    first_label: int = 0,
    n_features: int | None = None,
    n_labels: int | None = None,
    column_kind: str = "feature",
    threads: int | None = None,
) -> tuple[Csr, Csr | None]:
    """X, and Y if rows start with labels. The grammar is in cpp/include/umpteen/text_reader.hpp."""
    for name, value in (("n_features", n_features), ("n_labels", n_labels)):
        if value is not None:
            check_count(name, value, low=0)
    text = read_bytes(path)
    if len(text) == 0:
        raise DataError(f"{path}: the file is empty")
    try:
        parsed: dict[str, Any] = _native.parse_text(
            text,
            labels=labels,
            header=header,
            comments=comments,
            first_feature=first_feature,
            first_label=first_label,
            n_features=-1 if n_features is None else n_features,
            n_labels=-1 if n_labels is None else n_labels,
            column_kind=column_kind,
            threads=resolve_threads(threads),
        )
    except _native.ParseError as error:
        line, message = error.args
        raise DataError(f"{path}:{line}: {message}") from None
    del text
    n_rows = parsed["n_rows"]
    if n_rows == 0 and not parsed["has_header"]:
        raise DataError(f"{path}: the file has no rows")
    X = make_csr(parsed["X_data"], parsed["X_indices"], parsed["X_indptr"], (n_rows, parsed["n_features"]))
    if not labels:
        return X, None
    ones = np.ones(len(parsed["Y_indices"]), np.float32)
    return X, make_csr(ones, parsed["Y_indices"], parsed["Y_indptr"], (n_rows, parsed["n_labels"]))


def format_matrix(X: Csr, Y: Csr | None, *, first_feature: int = 0, first_label: int = 0) -> Iterator[bytes]:
    """The rows as text, a few thousand at a time."""
    for begin in range(0, X.shape[0], _ROWS_PER_PART):
        end = min(begin + _ROWS_PER_PART, X.shape[0])
        x = X[begin:end]
        y = x if Y is None else Y[begin:end]
        yield _native.format_rows(
            offsets(x),
            x.indices,
            x.data,
            x.shape[1],
            offsets(y),
            y.indices,
            y.shape[1],
            labels=Y is not None,
            first_feature=first_feature,
            first_label=first_label,
            begin=0,
            end=end - begin,
        )
