"""The code in the documentation runs."""

from __future__ import annotations

import html
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

import umpteen
from umpteen.cli.main import app
from umpteen.methods import METHODS, method_class
from umpteen.models.families import FAMILIES

from .conftest import ROOT
from .test_tagger import cooking  # noqa: F401  (a fixture)


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


def test_from_text_to_tags(cooking, tmp_path, monkeypatch):  # noqa: F811
    for part, corpus, n in (("train", cooking[0], 4000), ("test", cooking[1], 1000)):
        rows = (json.dumps({"text": text, "labels": labels}) for text, labels in list(corpus)[:n])
        (tmp_path / f"{part}.jsonl").write_text("\n".join(rows))
    monkeypatch.chdir(tmp_path)
    code = blocks("from_text_to_tags.md")
    assert len(code) >= 10
    names: dict = {}
    for block in code:
        exec(compile(block, "docs/from_text_to_tags.md", "exec"), names)
    assert names["metrics"]["P@1"] > 50
    assert "goldfish" in [name for name, _ in names["tagger"].suggest("a goldfish", 5)]
    assert names["tagger"].suggest("How do I season a cast iron pan?", 1)[0][0] == "cast-iron"


def test_home():
    (code,) = blocks("index.md")
    texts = ["cast iron rusts in water", "season a cast iron pan", "scrambled eggs", "eggs and a pan"] * 25
    labels = [["cast-iron"], ["cast-iron", "pan"], ["eggs"], ["eggs", "pan"]] * 25
    names: dict = {"umpteen": umpteen, "texts": texts, "labels": labels}
    exec(compile(code, "docs/index.md", "exec"), names)
    assert names["tagger"].suggest("How do I season a cast iron pan?", 1)[0][0] == "cast-iron"


#: Pages whose blocks belong together, or need another process; tests of their own run them.
APART = {"index.md", "from_text_to_tags.md", "many_machines.md"}
PAGES = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) and page not in APART])
def test_blocks_run_by_themselves(page, tmp_path):
    code = blocks(page)
    assert code
    for i, block in enumerate(code):
        file = tmp_path / f"block_{i}.py"
        file.write_text(block)
        runpy.run_path(str(file), run_name=file.stem)  # as a module, whose classes can be pickled


@pytest.mark.parametrize("page", [*PAGES, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md"])
def test_links_lead_somewhere(page):
    file = ROOT / "docs" / page
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", file.read_text()):
        assert (file.parent / target).exists(), target


def test_every_public_name_is_in_the_reference():
    pages = "".join((ROOT / "docs" / page).read_text() for page in PAGES)
    described = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE)}
    assert described >= {*umpteen.__all__} - {"__version__"}


def test_every_method_has_a_page():
    for name in METHODS:
        page = f"methods/{name.replace('-', '_')}.md"
        assert page in PAGES
        assert f"<!-- numbers: {name} -->" in (ROOT / "docs" / page).read_text()
        assert page in (ROOT / "mkdocs.yml").read_text()


def test_the_architecture_page_has_all_rooms_in_order_and_all_families():
    page = (ROOT / "docs" / "architecture.md").read_text()
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [name.removeprefix("umpteen.") for layer in contract["layers"] for name in layer.split(" | ")]
    table = page.split("| room in")[1].split("\n\n")[0]
    listed = re.findall(r"`(\w+)(?:/|\.py)`", "\n".join(row.split(" | ")[0] for row in table.splitlines()[2:]))
    assert listed == layers
    for family, place in FAMILIES.items():
        file = place.split(":")[0].removeprefix("umpteen.").replace(".", "/")
        assert re.search(rf"^\| `{family}`: [\w, ]+ \| `{file}\.py` \|", page, re.MULTILINE)


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_page_lists_what_the_method_has(name):
    page = (ROOT / "docs" / "methods" / f"{name.replace('-', '_')}.md").read_text()
    (listed,) = re.findall(r"members: \[(.*)\]", page)
    has = [member for member in ("add_labels", "add_trees", "pruned") if hasattr(method_class(name), member)]
    assert listed.split(", ") == ["fit", "predict_topk", *has]


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
    """Commands and groups, by what is typed to run them."""
    found = {f"{name} {key}": command for key, command in group.commands.items()}
    for key, command in list(found.items()):
        found |= all_commands(command, key) if hasattr(command, "commands") else {}
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


def test_many_machines(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed; pip install 'umpteen[ray]'")
    (code,) = blocks("many_machines.md")
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(Path(umpteen.__file__).parent.parent)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert umpteen.load(tmp_path / "laptop.model").n_labels == 100
