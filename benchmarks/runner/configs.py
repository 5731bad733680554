"""A benchmark as a file: a data set, what to compare on it, and the paper's settings where they differ from ours.

name = "EURLex-4K"              # a folder of the data root, with train.txt.xz and test.txt.xz
label_names = true              # the folder has label_names.txt
methods = ["dismec", "fastxml:n_trees=50"]
peers = ["omikuji", "pecos"]
[propensity]                    # where it is not the default
A = 0.5
B = 0.4

A set that does not come with the project also says what its files are and what must be in them, so that figures are
of the set they name:

train = "aloi.bin.train"        # by default train.txt; compressed too (.gz, .bz2, .xz, .zst)
test = "aloi.bin.test"
format = "svmlight"             # by default "xc", text of the Extreme Classification Repository
[sizes]                         # any of these; labels_per_row to 2 %, because sources round, and count test rows too
train_rows = 100000
test_rows = 8000
n_features = 636911
n_labels = 1000
labels_per_row = 1.0

Labels of svmlight files are any whole numbers; those of the training rows are numbered anew from 0, in rising order.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from umpteen.comparing.programs import BASELINE, Contestant, parse_contestants
from umpteen.comparing.running import Contest
from umpteen.data.dataset import Dataset
from umpteen.data.files import read_names
from umpteen.data.svmlight import read_svmlight
from umpteen.data.xc_text import read_xc
from umpteen.errors import DataError, ParamError

_KEYS = {"name", "label_names", "methods", "peers", "propensity", "train", "test", "format", "sizes"}
_SIZES = {"train_rows", "test_rows", "n_features", "n_labels", "labels_per_row"}
_ENDS = ("", ".xz", ".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class Config:
    """What a file says."""

    name: str
    contestants: list[Contestant]
    label_names: bool = False
    constants: dict[str, float] = field(default_factory=dict)
    train: str = "train.txt"
    test: str = "test.txt"
    format: str = "xc"
    sizes: dict[str, float] = field(default_factory=dict)

    def contest(self, root: Path) -> Contest:
        """Its data, read."""
        folder = root / self.name
        if not folder.exists():
            raise DataError(f"no {self.name} in {root}; set UMPTEEN_DATA to where data sets are")
        names = tuple(read_names(folder / "label_names.txt")) if self.label_names else None
        paths = find_file(folder / self.train), find_file(folder / self.test)
        train, test = (read_classes if self.format == "svmlight" else read_pair)(*paths, self.sizes.get("n_features"))
        self.check_sizes(train, test)
        return Contest(self.name, Dataset(train.X, train.Y, names), test.X, test.Y, names, constants=self.constants)

    def check_sizes(self, train: Dataset, test: Dataset) -> None:
        """Refuses data that is not the set of this name."""
        found = {"train_rows": train.n_rows, "test_rows": test.n_rows, "n_features": train.n_features}
        found |= {"n_labels": train.n_labels, "labels_per_row": train.Y.nnz / max(train.n_rows, 1)}
        for name, expected in self.sizes.items():
            if abs(found[name] - expected) > (0.02 * expected if name == "labels_per_row" else 0):
                raise DataError(f"{self.name} must have {name} {expected:,}, but these files have {found[name]:,g}")

    def choose(self, names: str) -> list[Contestant]:
        """Those of some names, with commas between, a program's or one's with its settings; and the baseline, in
        whose time the others' is given."""
        wanted = [name.strip() for name in names.split(",")]
        for name in wanted:
            if not any(name in (contestant.program, contestant.name) for contestant in self.contestants):
                raise ParamError(f"{name!r} is none of {', '.join(each.name for each in self.contestants)}")
        wanted.append(BASELINE)
        return [each for each in self.contestants if {each.program, each.name} & {*wanted}]


def find_file(path: Path) -> Path:
    """The file, plain or compressed."""
    for end in _ENDS:
        if (found := path.with_name(path.name + end)).exists():
            return found
    raise DataError(f"{path}: no such file, nor one with {', '.join(filter(None, _ENDS))} after its name")


def read_pair(train: Path, test: Path, n_features: float | None = None) -> tuple[Dataset, Dataset]:
    first = read_xc(train)
    return first, read_xc(test, n_features=first.n_features, n_labels=first.n_labels)


def read_classes(train: Path, test: Path, n_features: float | None = None) -> tuple[Dataset, Dataset]:
    """Files of svmlight, with labels numbered anew. Test rows with a label that no training row has stay, without
    labels."""
    width = None if n_features is None else int(n_features)
    first = read_svmlight(train, n_features=width)
    second = read_svmlight(test, n_features=first.n_features)
    used = np.flatnonzero(first.label_counts())
    wide = sp.csr_matrix((second.n_rows, max(first.n_labels, second.n_labels)), dtype=np.float32)
    wide = sp.csr_matrix((second.Y.data, second.Y.indices, second.Y.indptr), wide.shape)
    return Dataset(first.X, first.Y[:, used]), Dataset(second.X, wide[:, used])


def read_config(path: Path) -> Config:
    try:
        found = tomllib.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path}: not TOML ({error})") from error
    unknown = sorted(set(found) - _KEYS)
    if unknown or not isinstance(found.get("name"), str):
        raise DataError(f"{path}: needs a name, and knows no keys but {', '.join(sorted(_KEYS))}; it has {unknown}")
    if unknown := sorted(set(found.get("sizes", {})) - _SIZES):
        raise DataError(f"{path}: sizes are any of {', '.join(sorted(_SIZES))}, but has {unknown}")
    if (format := found.get("format", "xc")) not in ("xc", "svmlight"):
        raise DataError(f"{path}: format must be xc or svmlight, but is {format!r}")
    contestants = parse_contestants(found.get("methods", [])) + parse_contestants(found.get("peers", []), peers=True)
    files = {key: found[key] for key in ("train", "test", "format", "sizes") if key in found}
    constants = dict(found.get("propensity", {}))
    return Config(found["name"], contestants, bool(found.get("label_names")), constants, **files)
