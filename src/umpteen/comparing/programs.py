"""What can be compared, methods of this package and peers, by the names users give; and where peers are installed.

A peer is a class as child.py describes, ours or one that an installed package declares as an entry point of
`umpteen.peers`. Each has its own environment, since some need old packages: `create_environment` makes it with
Python's venv and installs the versions that the class names. Environments are in $UMPTEEN_PEERS, else in the user's
cache directory. A peer that names no packages runs in the environment that it is declared in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from umpteen.comparing.child import Program
from umpteen.data.files import cache_folder
from umpteen.errors import ParamError
from umpteen.extensions import PEERS_GROUP, Registry
from umpteen.methods import METHODS, method_class
from umpteen.params import check_choice

#: The program that times and sizes are compared with, unless another is chosen.
BASELINE = "omikuji"
#: Name -> where its class is: our adapters, and those that installed packages declare.
PEERS = Registry(
    PEERS_GROUP,
    {
        "omikuji": "umpteen.comparing.child:Omikuji",
        "napkinxc": "umpteen.comparing.child:NapkinXC",
        "pecos": "umpteen.comparing.child:Pecos",
        "liblinear": "umpteen.comparing.child:Liblinear",
        "sklearn": "umpteen.comparing.child:Sklearn",
    },
)


@dataclass(frozen=True)
class Contestant:
    """One program with its settings, as `fastxml:n_trees=20` names it; or its paper's, `fastxml:preset=paper`."""

    program: str  # a method, by its name or as module:Class, or a peer
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return " ".join(
            [self.program, *(f"{key}={json.dumps(value)}" for key, value in self.params.items())]
        ).replace('"', "")

    @property
    def is_peer(self) -> bool:
        return self.program in PEERS

    def check(self) -> None:
        """Raises for settings the method does not have. Peers check their own settings."""
        if self.is_peer:
            peer_class(self.program)
            return
        cls = method_class(self.program)
        for name in ("threads", "engine"):
            if name in self.params:
                raise ParamError(f"{self.program}:{name}=… is not possible: a comparison sets it for all programs")
        cls.make(**self.params).validate()


def parse_contestants(texts: Iterable[str], *, peers: bool = False) -> list[Contestant]:
    """Parses `name[:setting=value…]`, separated by commas; a value is JSON if possible, else text."""
    found = []
    for text in texts:
        for item in _split(text, ","):
            program, *settings = _split(item.strip(), ":")
            if peers:
                peer_class(program)  # refuses what is none
            elif program not in METHODS:
                if settings and "=" not in settings[0]:  # module:Class
                    program = f"{program}:{settings.pop(0)}"
                method_class(program)
            contestant = Contestant(program, dict(_parse_setting(program, setting) for setting in settings))
            contestant.check()
            found.append(contestant)
    names = [contestant.name for contestant in found]
    for name in names:
        if names.count(name) > 1:
            raise ParamError(f"{name} is named twice")
    return found


def _split(text: str, mark: str) -> list[str]:
    """Splits at marks outside brackets and quotes."""
    parts, depth, quoted = [""], 0, False
    for c in text:
        quoted ^= c == '"'
        depth += (c in "[{") - (c in "]}")
        if c == mark and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def _parse_setting(program: str, setting: str) -> tuple[str, Any]:
    name, equals, value = setting.partition("=")
    if not equals or not name:
        raise ParamError(f"{program}: a setting must be name=value, but is {setting!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, {"True": True, "False": False, "None": None}.get(value, value)


def peers_root() -> Path:
    """Where peers' environments are."""
    if named := os.environ.get("UMPTEEN_PEERS"):
        return Path(named)
    return cache_folder() / "peers"


def peer_class(peer: str) -> type[Program]:
    """A peer's adapter, by name."""
    check_choice("peer", peer, PEERS)
    try:
        cls = PEERS.load(peer)
    except ParamError as error:
        raise ParamError(f"peer {peer} cannot be used: {error}") from error
    if not (isinstance(cls, type) and issubclass(cls, Program)):
        raise ParamError(
            f"peer {peer} must be a class derived from {Program.__module__}.Program, but is {cls!r:.100}"
        )
    return cls


def peer_python(peer: str, root: Path | None = None) -> Path:
    """The interpreter of a peer's environment, whether it exists or not."""
    if peer in PEERS and not peer_class(peer).packages:
        return Path(sys.executable)
    place = (peers_root() if root is None else root) / peer
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def create_environment(peer: str, root: Path | None = None) -> Path:
    """Makes or completes a peer's environment and returns its interpreter. CalledProcessError has pip's output."""
    cls, python = peer_class(peer), peer_python(peer, root)
    if not cls.packages:
        return python
    commands = [[sys.executable, "-m", "venv", str(python.parent.parent)]] if not python.exists() else []
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands += [[*pip, *packages] for packages in (cls.packages_before, cls.packages) if packages]
    for command in commands:
        subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return python
