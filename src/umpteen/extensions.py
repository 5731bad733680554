"""What other packages add: they declare it as entry points, and it is looked up here by name.

    [project.entry-points."umpteen.api"]
    1 = "umpteen_rocchio"

    [project.entry-points."umpteen.methods"]
    rocchio = "umpteen_rocchio:Rocchio"

The first says which version of `umpteen.plugin` the package is written for: one for another is refused before it is
imported. A package is imported when the name it declares is asked for, and only then. A model that names a method is
looked up the same way: a name in a file never decides what is imported, only what is installed and declares itself
does.
"""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Iterator, MutableMapping
from importlib import metadata
from pathlib import Path
from typing import Any

from umpteen.errors import DataError, ParamError, UmpteenError

METHODS_GROUP = "umpteen.methods"
READERS_GROUP = "umpteen.readers"
ENCODERS_GROUP = "umpteen.encoders"
PEERS_GROUP = "umpteen.peers"
API_GROUP = "umpteen.api"

#: Changes when what is written for one version would not work with another; see `umpteen.plugin`.
API_VERSION = 1


@functools.cache
def declared(group: str) -> dict[str, str]:
    """What installed packages declare in a group: name -> "module:attribute". Nothing is imported."""
    return {name: places[0] for name, places in all_declared(group).items()}


@functools.cache
def all_declared(group: str) -> dict[str, list[str]]:
    """The same with every place, if several packages declare a name."""
    found: dict[str, list[str]] = {}
    for point in _entry_points(group):
        place = point.value.partition("[")[0].strip()  # behind it extras may stand
        if place not in found.setdefault(point.name, []):
            found[point.name].append(place)
    return found


@functools.cache
def api_versions() -> dict[str, set[str]]:
    """The versions of `umpteen.plugin` that installed packages are written for, by the name of the package."""
    found: dict[str, set[str]] = {}
    for version, places in all_declared(API_GROUP).items():
        for place in places:
            found.setdefault(place.partition(":")[0].strip(), set()).add(version)
    return found


def _entry_points(group: str) -> list[metadata.EntryPoint]:
    """The entry points of installed packages, but for those that are damaged, which are named in a warning."""
    try:
        return list(metadata.entry_points(group=group))
    except Exception:  # says nothing of which package it is
        found: list[metadata.EntryPoint] = []
        for package in metadata.distributions():
            try:
                found += [point for point in package.entry_points if point.group == group]
            except Exception as error:
                warnings.warn(
                    f"the entry points of {package.name} cannot be read: {error}", UserWarning, stacklevel=2
                )
        return found


def _check_api(place: str, *, must_say: bool) -> None:
    """Refuses what is written for another version of `umpteen.plugin`."""
    module = place.partition(":")[0]
    packages = [package for package in api_versions() if f"{module}.".startswith(f"{package}.")]
    versions = set().union(*(api_versions()[package] for package in packages))
    if str(API_VERSION) in versions or not (versions or must_say):
        return
    package = max(packages, key=len, default=module.partition(".")[0])
    if versions:
        raise ParamError(
            f"{package} is written for version {' and '.join(sorted(versions))} of umpteen.plugin, but this umpteen "
            f"has version {API_VERSION}; install releases of the two that fit each other"
        )
    raise ParamError(
        f"{package} must say which version of umpteen.plugin it is written for, but does not; in its pyproject.toml, "
        f'[project.entry-points."{API_GROUP}"] needs {API_VERSION} = "{package}"'
    )


class Registry(MutableMapping[str, str]):
    """Names of our own, and those that packages declare; ours win. Values are "module:attribute"."""

    def __init__(self, group: str, own: dict[str, str]) -> None:
        self.group, self.own = group, own

    def __getitem__(self, name: str) -> str:
        return self.own[name] if name in self.own else declared(self.group)[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from (name for name in sorted(declared(self.group)) if name not in self.own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __setitem__(self, name: str, value: str) -> None:
        self.own[name] = value

    def __delitem__(self, name: str) -> None:
        del self.own[name]

    def load(self, name: str) -> Any:
        """What a name stands for."""
        return _import_object(self.own[name]) if name in self.own else load_declared(self.group, name)


def load_declared(group: str, name: str) -> Any:
    """What an installed package declares under a name."""
    place = declared(group)[name]
    if len(places := all_declared(group).get(name, [])) > 1:
        raise ParamError(
            f"{name!r} must be declared by one installed package in {group}, but is by "
            f"{' and '.join(sorted(places))}; uninstall one of them"
        )
    _check_api(place, must_say=True)
    return _import_object(place)


def call_declared(group: str, name: str, argument: Any) -> Any:
    """What a function that an installed package declares under a name makes of an argument."""
    function, place = load_declared(group, name), declared(group)[name]
    if not callable(function):
        raise ParamError(f"{place}, declared as {name!r}, must be a function, but is {function!r:.100}")
    try:
        return function(argument)
    except (UmpteenError, OSError):
        raise
    except Exception as error:  # a package's function may raise anything
        raise DataError(f"{place} failed on {str(argument)!r}: {type(error).__name__}: {error}") from error


def _import_object(place: str) -> Any:
    """What "module:attribute" names."""
    try:
        return _import(place)
    except UmpteenError:
        raise
    except (Exception, SystemExit) as error:  # a package's module may raise anything
        raise ParamError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error


def _import(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def import_given(place: str) -> Any:
    """What a user names as "module:attribute", looked for beside installed packages in the current directory too."""
    _check_api(place, must_say=False)
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return _import(place)
    except UmpteenError:
        raise
    except (Exception, SystemExit) as error:  # likewise
        raise ParamError(f"{place!r} must name a class as module:Class, but cannot be imported: {error}") from error
    finally:
        sys.path.remove(here)
