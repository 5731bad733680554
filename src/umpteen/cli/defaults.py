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
