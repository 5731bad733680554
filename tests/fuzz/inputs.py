"""What inputs are made of: choices taken from bytes, and changes to JSON."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any


class Finding(Exception):
    """What must not happen."""


def scratch() -> Path:
    """A place for files that are written often."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="umpteen-fuzz-", dir=memory if os.access(memory, os.W_OK) else None))
    atexit.register(shutil.rmtree, place, ignore_errors=True)  # children that are forked end without it
    return place


class Bytes:
    """Choices taken from bytes, as long as there are any; then always the first."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, below: int) -> int:
        size = 1 if below <= 256 else 2 if below <= 65536 else 4
        piece = self._data[self._at : self._at + size]
        self._at += size
        return int.from_bytes(piece, "little") % below

    def pick(self, choices: Any) -> Any:
        return choices[self.number(len(choices))]

    def some(self, most: int) -> bytes:
        n = self.number(most + 1)
        piece = self._data[self._at : self._at + n]
        self._at += n
        return piece

    def rest(self) -> bytes:
        piece, self._at = self._data[self._at :], len(self._data)
        return piece

    def __bool__(self) -> bool:
        return self._at < len(self._data)


class Raw(str):
    """A number as it is written in a file, which no Python value need be."""


#: What a value in a manifest is replaced by.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 255, 65536, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**70, 0.5, -0.0, 1e-30,
    1e30, 1e308, float("inf"), float("nan"), "", "x", "float16", "float32", "int64", "uint8", "cosine", "auto",
    "../../../etc/passwd", "/dev/zero", "shard-00000", "labels", "é\ud800", [], [0], [1, 2], ["shard-00000"], {},
    {"a": 1}, [[[[]]]], 2**63 - 1, -(2**63), Raw("9" * 400), Raw("-" + "9" * 400), Raw("1e400"), Raw("9" * 5000),
    Raw("NaN"), Raw("0." + "0" * 400 + "1"), [1, 1000], [1, 10], "(?:|(?:)){60}x", r"\w{32,}", r"(\w+)+x",
    r"\w+(?:-\w+)*",
)  # fmt: skip


def to_json(value: Any) -> bytes:
    """JSON with its raw numbers as they are written."""
    text = json.dumps(value)
    for raw in {item for item in VALUES if isinstance(item, Raw)}:
        text = text.replace(f'"{raw}"', raw)
    return text.encode("utf-8", "surrogatepass")


def change_json(value: Any, choices: Bytes) -> str:
    """Changes one value somewhere below, or all that have the same name."""
    top, path = value, list[Any]()
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return "nothing"
        key = choices.pick(keys)
        path.append(key)
        below = value[key]
        if isinstance(below, (dict, list)) and below and choices.number(6):
            value = below
            continue
        how = choices.number(8)
        if how == 0:
            del value[key]
        elif how == 1 and isinstance(value, dict):
            value[choices.pick(("x", "scale", "shape", "members", "text", "seed"))] = deepcopy(choices.pick(VALUES))
        elif how == 2 and isinstance(below, (int, float)) and not isinstance(below, bool):
            value[key] = below + choices.pick((1, -1, 0.5, 2**31))
        elif how == 3 and len(keys) > 1:
            other = choices.pick(keys)
            value[key], value[other] = value[other], value[key]
        elif how == 4 and isinstance(key, str):
            _set_everywhere(top, key, choices.pick(VALUES))
        else:
            value[key] = deepcopy(choices.pick(VALUES))
        return f"{how} at {'/'.join(map(str, path))}"


def change_number(manifest: Any, choices: Bytes) -> str:
    """Another number wherever it has the same name, but for those of arrays, which are compared with their files."""
    names = set[str]()

    def find(value: Any) -> None:
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(below, (dict, list)) and key != "arrays":
                find(below)
            elif isinstance(key, str) and isinstance(below, (int, float)):
                names.add(key)

    find(manifest)
    if not names:
        return "nothing"
    name, value = choices.pick(sorted(names)), choices.pick([v for v in VALUES if isinstance(v, (int, float, Raw))])
    _set_everywhere(manifest, name, value)
    return f"{name} = {value}"


def _set_everywhere(value: Any, key: str, new: Any) -> None:
    for name, below in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if name == key:
            value[name] = deepcopy(new)
        elif isinstance(below, (dict, list)):
            _set_everywhere(below, key, new)
