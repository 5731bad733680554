"""svmlight (LIBSVM) text with several labels per row: ``1,5 3:0.5 7:1  # comment``.

There is no header. Features count from 1, labels from 0, as in the LIBSVM data sets; parameters change this. Empty
lines and lines with only a comment are not rows; a line of spaces is an empty row.
"""

from __future__ import annotations

from collections.abc import Sequence

from umpteen.data.dataset import Dataset
from umpteen.data.files import PathLike, write_bytes
from umpteen.data.text_format import format_matrix, parse_file


def read_svmlight(
    path: PathLike,
    *,
    one_based: bool = True,
    one_based_labels: bool = False,
    n_features: int | None = None,
    n_labels: int | None = None,
    label_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    threads: int | None = None,
) -> Dataset:
    """Reads multi-label svmlight text, plain or compressed.

    Without `n_features` and `n_labels` the largest id in the file decides, so pass them if train and test are two
    files.
    """
    X, Y = parse_file(
        path,
        labels=True,
        header=False,
        comments=True,
        first_feature=int(one_based),
        first_label=int(one_based_labels),
        n_features=n_features,
        n_labels=n_labels,
        threads=threads,
    )
    return Dataset(X, Y, label_names, feature_names)


def write_svmlight(data: Dataset, path: PathLike, *, one_based: bool = True, one_based_labels: bool = False) -> None:
    """Writes multi-label svmlight text, compressed if the name ends in .gz, .bz2, .xz or .zst."""
    write_bytes(
        path,
        format_matrix(data.X, data.Y, first_feature=int(one_based), first_label=int(one_based_labels)),
    )
