"""A benchmark as a file: a data set, what to compare on it, and the paper's settings where they differ from ours.

name = "EURLex-4K"              # a folder of the data root, with train.txt.xz and test.txt.xz
label_names = true              # the folder has label_names.txt
methods = ["dismec", "fastxml:n_trees=50"]
peers = ["omikuji", "pecos"]
[propensity]                    # where it is not the default
A = 0.5
B = 0.4
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from umpteen.comparing.programs import BASELINE, Contestant, parse_contestants
from umpteen.comparing.running import Contest
from umpteen.data.dataset import Dataset
from umpteen.data.files import read_names
from umpteen.data.xc_text import read_xc
from umpteen.errors import DataError, ParamError

_KEYS = {"name", "label_names", "methods", "peers", "propensity"}


@dataclass(frozen=True)
class Config:
    """What a file says."""

    name: str
    contestants: list[Contestant]
    label_names: bool = False
    constants: dict[str, float] = field(default_factory=dict)

    def contest(self, root: Path) -> Contest:
        """Its data, read."""
        folder = root / self.name
        if not folder.exists():
            raise DataError(f"no {self.name} in {root}; set UMPTEEN_DATA to where data sets are")
        names = tuple(read_names(folder / "label_names.txt")) if self.label_names else None
        train = read_xc(folder / "train.txt.xz")
        test = read_xc(folder / "test.txt.xz", n_features=train.n_features, n_labels=train.n_labels)
        train = Dataset(train.X, train.Y, names)
        return Contest(self.name, train, test.X, test.Y, names, constants=self.constants)

    def choose(self, names: str) -> list[Contestant]:
        """Those of some names, with commas between, a program's or one's with its settings; and the baseline, in
        whose time the others' is given."""
        wanted = [name.strip() for name in names.split(",")]
        for name in wanted:
            if not any(name in (contestant.program, contestant.name) for contestant in self.contestants):
                raise ParamError(f"{name!r} is none of {', '.join(each.name for each in self.contestants)}")
        wanted.append(BASELINE)
        return [each for each in self.contestants if {each.program, each.name} & {*wanted}]


def read_config(path: Path) -> Config:
    try:
        found = tomllib.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path}: not TOML ({error})") from error
    unknown = sorted(set(found) - _KEYS)
    if unknown or not isinstance(found.get("name"), str):
        raise DataError(f"{path}: needs a name, and knows no keys but {', '.join(sorted(_KEYS))}; it has {unknown}")
    contestants = parse_contestants(found.get("methods", [])) + parse_contestants(found.get("peers", []), peers=True)
    return Config(found["name"], contestants, bool(found.get("label_names")), dict(found.get("propensity", {})))
