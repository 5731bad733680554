"""Every value of a manifest and every array of a model, replaced one at a time by each of the worst there are.

Random damage (loader.py) seldom meets arrays of another type or shape under headers that fit them. Here files and
manifest always agree, so that what is tried is the code behind the storage.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from umpteen.storage.arrays import DTYPES, write_array

from .families import questions
from .inputs import VALUES, to_json
from .loader import Directory, families

Place = tuple[Any, ...]


def every_case(every: int = 1) -> Iterator[tuple[str, Callable[[], str]]]:
    """What is done to which model, and what does it; with `every`, only one in so many."""
    cases = itertools.chain.from_iterable(_cases_of(name, home) for name, home in sorted(families().copies.items()))
    return itertools.islice(cases, 0, None, every)


def _cases_of(name: str, home: Directory) -> Iterator[tuple[str, Callable[[], str]]]:
    manifest = json.loads((home.path / "manifest.json").read_bytes())
    for place in _places(manifest):
        for value in VALUES:
            yield f"{name}: {'.'.join(map(str, place))} = {value!r:.40}", partial(_try_value, home, place, value)
        yield f"{name}: {'.'.join(map(str, place))} is gone", partial(_try_value, home, place, Ellipsis)
    for part, record in manifest["parts"].items():
        for key in record["arrays"]:
            array = np.load(home.path / part / f"{key}.npy")
            for what, other in _other_arrays(array):
                yield f"{name}: {part}/{key} {what}", partial(_try_array, home, part, key, other)


def _places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Every value of a manifest; of the arrays' entries, whose grammar is one, those of the first array only."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for number, (key, item) in enumerate(below):
        if path[-1:] == ("arrays",) and (number > 0 or path[1] != "labels"):
            continue
        yield (*path, key)
        yield from _places(item, (*path, key))


def _other_arrays(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    for dtype in DTYPES:
        if dtype != array.dtype.name:
            with np.errstate(all="ignore"):
                yield f"as {dtype}", array.astype(dtype)
    flat = array.ravel()
    yield "empty", array[:0]
    yield "one shorter", array[:-1]
    yield "one longer", np.concatenate([array, array[-1:]])
    yield "of no dimension", np.zeros((), array.dtype)
    yield "of two dimensions", array.reshape(1, -1)
    yield "of four dimensions", array.reshape(1, 1, 1, -1)
    yield "backwards", array[::-1]
    extremes: tuple[Any, ...] = (np.nan, np.inf, -np.inf, 65504.0, -1.0)
    if array.dtype.kind in "iu":
        extremes = (0, 1, 7, np.iinfo(array.dtype).max, np.iinfo(array.dtype).max - 1, np.iinfo(array.dtype).min)
    for value in extremes:
        yield f"all {value}", np.full_like(array, value)
        for at in {0, len(flat) // 2, len(flat) - 1} if len(flat) else ():
            other = array.copy()
            other.ravel()[at] = value
            yield f"with {value} at {at}", other


def _try_value(home: Directory, place: Place, value: Any) -> str:
    file = home.path / "manifest.json"
    manifest = json.loads(file.read_bytes())
    holder = manifest
    for key in place[:-1]:
        holder = holder[key]
    if value is Ellipsis:
        del holder[place[-1]]
    else:
        holder[place[-1]] = copy.deepcopy(value)
    file.write_bytes(to_json(manifest))
    return _ask(home)


def _try_array(home: Directory, part: str, key: str, array: np.ndarray) -> str:
    file = home.path / "manifest.json"
    manifest = json.loads(file.read_bytes())
    manifest["parts"][part]["arrays"][key] = write_array(Path(home.path / part / f"{key}.npy"), key, array)
    file.write_text(json.dumps(manifest))
    return _ask(home)


def _ask(home: Directory) -> str:
    import umpteen
    from umpteen.errors import MemoryLimitError, UmpteenError

    try:
        questions(umpteen.load(home.path))
        return "answered"
    except (UmpteenError, MemoryLimitError):
        return "refused"
    finally:
        home.restore()
