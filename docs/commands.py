"""The reference of the command line, from the commands themselves: it says what `--help` says."""

from __future__ import annotations

import re
from typing import Any

import typer

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace(MARK, describe_commands()) if MARK in markdown else markdown


def describe_commands() -> str:
    from umpteen.cli.main import app

    group: Any = typer.main.get_command(app)
    context = group.make_context("umpteen", [], resilient_parsing=True)
    sections = [_table("Command", [_summary(*found) for found in _commands(group, context)])]
    for name, command, own in _commands(group, context):
        usage = " ".join([name, *_usage(command, own)])
        sections += [f"## {name}", f"```\n{usage}\n```", *_texts(command), *_tables(command, own)]
    return "\n\n".join(sections)


def _summary(name: str, command: Any, _: Any) -> str:
    return f"| [`{name}`](#{name.replace(' ', '-')}) | {_cell(_paragraphs(command)[0])} |"


def _commands(group: Any, context: Any) -> list[tuple[str, Any, Any]]:
    """Every command that does something, with its name and its context; groups come before what is in them."""
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        own = command.make_context(name, [], parent=context, resilient_parsing=True)
        found.append((own.command_path, command, own))
        if hasattr(command, "list_commands"):
            found += _commands(command, own)
    return found


def _usage(command: Any, context: Any) -> list[str]:
    arguments = []
    for param in _params(command, context):
        if _is_argument(param):
            name, _ = _record(param, context)
            arguments.append(name if param.required else f"[{name}]")
    return [*arguments, "[OPTIONS]", *(["COMMAND"] if hasattr(command, "list_commands") else [])]


def _paragraphs(command: Any) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")]


def _texts(command: Any) -> list[str]:
    """The paragraphs of the help; examples, which come last, as one block of code."""
    texts = [paragraph for paragraph in _paragraphs(command) if not paragraph.startswith("umpteen ")]
    examples = [paragraph for paragraph in _paragraphs(command) if paragraph.startswith("umpteen ")]
    return [*texts, "```\n" + "\n".join(examples) + "\n```"] if examples else texts


def _tables(command: Any, context: Any) -> list[str]:
    """Arguments and options, a table for each panel of the help."""
    panels: dict[str, list[str]] = {}
    for param in _params(command, context):
        title = "Arguments" if _is_argument(param) else getattr(param, "rich_help_panel", None) or "Options"
        name, text = _record(param, context)
        panels.setdefault(title, []).append(f"| `{name}` | {_cell(text)} |")
    return [_table(title, rows) for title, rows in panels.items()]


def _table(title: str, rows: list[str]) -> str:
    return "\n".join([f"| {title} | |", "|---|---|", *rows])


def _params(command: Any, context: Any) -> list[Any]:
    shown = [param for param in command.get_params(context) if param.get_help_record(context) is not None]
    return [param for param in shown if param.name != "help"]


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _record(param: Any, context: Any) -> tuple[str, str]:
    """How it is written, and what its help says."""
    name, text = param.get_help_record(context)
    if _is_argument(param):
        return name.partition(" ")[0], text.removesuffix("[required]")  # as the usage shows
    return re.sub(r"<(?:list\[(\w+)\]|(\w+) range)>", r"<\1\2>", name), text


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
