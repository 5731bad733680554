"""One function to read every format, for the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from umpteen.data.dataset import Dataset
from umpteen.data.files import COMPRESSED_SUFFIXES, PathLike
from umpteen.data.matrix import Csr, as_csr
from umpteen.data.npz import map_npy, read_npy, read_npz, read_npz_features
from umpteen.data.svmlight import read_svmlight
from umpteen.data.xc_text import read_xc, read_xc_features
from umpteen.errors import DataError, ParamError
from umpteen.extensions import READERS_GROUP, call_declared, declared
from umpteen.nearest import did_you_mean

FORMATS = ("xc", "svmlight", "npz", "npy")
#: Those of other spreadsheets, which are not read.
_SPREADSHEETS = (".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_SUFFIXES = {".npz": "npz", ".npy": "npy", ".svm": "svmlight", ".svmlight": "svmlight", ".libsvm": "svmlight"}


def format_of(path: PathLike) -> str:
    """The format that a file's name suggests; by default Extreme Classification Repository text."""
    name = Path(path).name
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    suffix = Path(name).suffix
    if suffix.lower() in _SPREADSHEETS:
        raise ParamError(
            f"{path}: a spreadsheet must be .xlsx, .csv or .tsv, but is {suffix}; save it as one of these"
        )
    return _SUFFIXES.get(suffix, "xc")


def read_features(path: PathLike, *, format: str | None = None, n_features: int | None = None, **options: Any) -> Csr:
    """Reads only X, in any format; `options` are one_based and threads, for text."""
    format = format_of(path) if format is None else format
    if format == "xc":
        return read_xc_features(path, n_features=n_features, **options)
    if format == "npz":
        if "one_based" in options:
            raise ParamError("one_based is for text files, not for .npz")
        return read_npz_features(path)
    if format == "npy":
        return as_csr(map_npy(path), f"{path}", n_features)
    return read(path, format=format, n_features=n_features, **options).X


def read(path: PathLike, *, format: str | None = None, **options: Any) -> Dataset:
    """Reads a data set in any format; `options` go to the format's own reader."""
    format = format_of(path) if format is None else format
    if format == "xc":
        return read_xc(path, **options)
    if format == "svmlight":
        return read_svmlight(path, **options)
    if format == "npz":
        return read_npz(path, **options)
    if format == "npy":
        return read_npy(path, **options)
    others = declared(READERS_GROUP)
    if format in others:
        return check_dataset(call_declared(READERS_GROUP, format, path), format)  # options are of our own formats
    hint = did_you_mean(format, known_formats())
    raise ParamError(f"format must be one of {', '.join(known_formats())}, but is {format!r}{hint}")


def known_formats() -> tuple[str, ...]:
    """The formats of files of numbers, those of other packages too."""
    return (*FORMATS, *declared(READERS_GROUP))


def check_dataset(data: Any, format: str) -> Dataset:
    """What another package's reader gave."""
    if not isinstance(data, Dataset):
        raise DataError(f"the reader of {format} must return a Dataset, but returned a {type(data).__name__}")
    return data
