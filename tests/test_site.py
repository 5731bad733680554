"""The built site: no warnings, and what it shows is what the code has."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from typing import Any

import pytest
import typer

from umpteen.cli.main import app
from umpteen.methods import METHODS, method_class

from .conftest import ROOT

pytestmark = [pytest.mark.process, pytest.mark.foreign]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Where the site is."""
    pytest.importorskip("mkdocstrings", reason="mkdocs is not installed; pip install 'umpteen[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page, as text."""
    return [
        [
            " ".join(html.unescape(re.sub(r"<[^>]+>", "", cell)).split())
            for cell in re.findall(r"(?s)<t[dh]\b.*?</t[dh]>", row)
        ]
        for row in re.findall(r"(?s)<tr\b.*?</tr>", page)
    ]


def test_the_site_is_built_without_a_warning(site):
    assert "Bibtex" in (site / "methods" / "dismec.html").read_text()  # figures are those that are kept


def test_the_home_page_shows_the_figures_of_the_results(site):
    (results,) = re.findall(r"(?s)\n## EURLex-4K\n(.*?)\n## ", (ROOT / "docs" / "RESULTS.md").read_text())
    kept = results.replace("*", "").splitlines()
    programs = re.findall(r"figures: EURLex-4K, ([a-z-]+)", (ROOT / "docs" / "index.md").read_text())
    shown = [figures for name, *figures in rows((site / "index.html").read_text()) if name]
    assert programs
    for program, figures in zip(programs, shown, strict=True):
        own = [line.split(" | ") for line in kept if re.match(rf"\| {program}( [\d.]+)? \|", line)]
        assert any({*figures} <= {*line} for line in own), program


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_page_shows_each_default(site, name):
    cls = method_class(name)
    page = (site / "methods" / f"{name.replace('-', '_')}.html").read_text()
    shown = {row[0]: row[-1] for row in reversed(rows(page)) if len(row) == 4}  # the class comes before its methods
    passed_on = cls.__mro__[1].param_defaults() if any(parameter.startswith("**") for parameter in shown) else {}
    for parameter, default in cls.param_defaults().items():
        if parameter in shown or parameter not in passed_on:
            assert shown[parameter] == repr(default), parameter


def all_commands(group: Any, name: str) -> dict[str, Any]:
    """Commands and groups, by what is typed to run them; groups come before what is in them."""
    found: dict[str, Any] = {}
    for key, command in group.commands.items():
        found[f"{name} {key}"] = command
        found |= all_commands(command, f"{name} {key}") if hasattr(command, "commands") else {}
    return found


def test_the_command_line_is_described_by_the_commands(site):
    page = (site / "cli.html").read_text()
    sections = dict(re.findall(r'(?s)<h2 id="([a-z-]+)">(.*?)(?=<h2|</article)', page))
    commands = all_commands(typer.main.get_command(app), "umpteen")
    assert list(sections) == [name.replace(" ", "-") for name in commands]
    for name, command in commands.items():
        section = sections[name.replace(" ", "-")]
        described = {row[0]: row[1] for row in rows(section) if len(row) == 2}
        for param in command.params:
            names = {*param.opts, param.metavar, param.name.upper()}
            (text,) = [text for written, text in described.items() if written.split(" ")[0] in names]
            assert " ".join(param.help.replace("`", "").split()) in text
