"""Defaults of options, read from the signature of what the command calls, so that each is typed once."""

from __future__ import annotations

import importlib
import inspect
from typing import Any


class Default:
    """A parameter's default. Its module is imported when a command is run or shows its help, not before."""

    def __init__(self, home: str, parameter: str) -> None:
        self.home, self.parameter = home, parameter

    def __call__(self) -> Any:
        module, _, path = self.home.partition(":")
        found = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
        return inspect.signature(found).parameters[self.parameter].default  # type: ignore[arg-type]

    def __str__(self) -> str:  # for the help
        return str(self())


def default_of(home: str, parameter: str) -> Any:
    """The default of a parameter of `module:function` or `module:Class`, for an option of a command."""
    return Default(home, parameter)


class Extensible:
    """A default whose help also says what else there is to choose from, what installed packages add included. It is
    looked up when a command shows its help, not before."""

    def __init__(self, shown: object, default: Any, registry: str) -> None:
        self.shown, self.default, self.registry = shown, default, registry

    def __call__(self) -> Any:
        return self.default() if isinstance(self.default, Default) else self.default

    def __str__(self) -> str:
        module, colon, name = self.registry.partition(":")
        if colon:
            return f"{self.shown}; there are {', '.join(getattr(importlib.import_module(module), name))}"
        from umpteen.extensions import declared

        added = ", ".join(sorted(declared(self.registry)))
        return f"{self.shown}; packages add {added}" if added else str(self.shown)


def extensible(shown: object, registry: str, default: Any = None) -> Any:
    """A default as it is shown, beside all names of a registry, `module:NAME`, or those that packages add to a
    group."""
    return Extensible(shown, default, registry)
