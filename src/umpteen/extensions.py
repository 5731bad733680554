"""What other packages add: they declare it as entry points, and it is looked up here by name.

    [project.entry-points."umpteen.methods"]
    rocchio = "umpteen_rocchio:Rocchio"

A package is imported when the name it declares is asked for, and only then. A model that names a method is looked up
the same way: a name in a file never decides what is imported, only what is installed and declares itself does.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator, MutableMapping
from importlib import metadata
from pathlib import Path
from typing import Any

from umpteen.errors import ParamError, UmpteenError

METHODS_GROUP = "umpteen.methods"
READERS_GROUP = "umpteen.readers"
ENCODERS_GROUP = "umpteen.encoders"
PEERS_GROUP = "umpteen.peers"

#: Changes when a method written for one version would not work with another; see `umpteen.plugin`.
API_VERSION = 1


@functools.cache
def declared(group: str) -> dict[str, str]:
    """What installed packages declare in a group: name -> "module:attribute". Nothing is imported."""
    return {point.name: point.value for point in metadata.entry_points(group=group)}


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


def import_object(place: str) -> Any:
    """What "module:attribute" names."""
    try:
        return _import(place)
    except UmpteenError:
        raise
    except Exception as error:  # a package's module may raise anything
        raise ParamError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error


def _import(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def import_given(place: str) -> Any:
    """What a user names as "module:attribute", looked for beside installed packages in the current directory too."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return _import(place)
    except UmpteenError:
        raise
    except Exception as error:  # likewise
        raise ParamError(f"{place!r} must name a class as module:Class, but cannot be imported: {error}") from error
    finally:
        sys.path.remove(here)
