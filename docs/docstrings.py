"""What Griffe reads otherwise than Python: parameters that share a description, docstrings taken from elsewhere."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

#: Names of one entry of a numpydoc section, its type, and its text: the lines that are indented deeper.
_ENTRY = re.compile(r"^(?P<names>\w+(?:, \w+)+)(?P<rest>(?: : .*)?\n(?:(?:[ ]{4}.*)?\n)*)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Gives each parameter the default of its own, and methods the docstring they have at run time."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        for name, member in list(cls.members.items()):
            if not member.is_function or member.docstring is not None:
                continue
            found = inspect.getattr_static(_at_run_time(cls), name)
            text = inspect.getdoc(found) if found.__doc__ else None
            if text is None:
                continue
            if member.parameters[-1].kind is griffe.ParameterKind.var_keyword and "**" not in text:
                cls.del_member(name)  # it passes everything on: the parent's signature is what counts
            else:
                member.docstring = griffe.Docstring(_apart(text), parent=member, parser="numpy")

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _apart(obj.docstring.value)


def _at_run_time(cls: griffe.Class) -> Any:
    return getattr(importlib.import_module(cls.module.path), cls.name)


def _apart(text: str) -> str:
    """An entry for each name: Griffe would show the type and the default of the first for all of them."""

    def repeat(entry: re.Match[str]) -> str:
        return "".join(name + entry["rest"] for name in entry["names"].split(", "))

    return _ENTRY.sub(repeat, inspect.cleandoc(text) + "\n")
