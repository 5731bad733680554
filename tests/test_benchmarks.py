"""benchmarks/: each script can be imported, and no page, section or file outlives what makes it."""

from __future__ import annotations

import importlib
import json
import re
import sys

import pytest
from benchmarks.runner.configs import read_config

from .conftest import ROOT

FOLDER = ROOT / "benchmarks"
RESULTS = FOLDER / "results"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("__"))
if not RESULTS.exists():
    pytest.skip("results are not part of the source distribution", allow_module_level=True)


@pytest.fixture
def load(monkeypatch):
    """Imports a script as one that is run does its neighbours, and leaves no trace."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in SCRIPTS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in SCRIPTS:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_page_has_only_sections_that_its_script_writes(load, name):
    script = load(name)
    if not hasattr(script, "PARTS"):
        assert name in {"cluster_model", "common", "papers", "ray_scaling", "scale", "serve_versions"}
        return
    headings = [heading for heading, _ in script.PARTS.values()]
    common, page = load("common"), RESULTS / f"{name}.md"
    sections = common.read_sections(page)
    assert list(sections) == [heading for heading in headings if heading in sections]
    title = page.read_text().splitlines()[0].removeprefix("# ")
    assert page.read_text() == common.join_sections(name, title, script.PARTS, sections)
    named = set(re.findall(r" \[([\w-]+)\]", script.__doc__))
    assert named <= set(script.PARTS)


def test_each_section_says_when_and_where_it_was_taken(load, tmp_path, monkeypatch):
    common = load("common")
    page = tmp_path / "study.md"
    page.write_text(
        "# A study\n\n`python benchmarks/study.py`\n\nan old machine\n\n## First\n\n1\n\n## Second\n\n2\n"
    )
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["study.py", "second"])
    common.run_parts("study", "A study", {"first": ("First", lambda: "1"), "second": ("Second", lambda: "3")})
    sections = common.read_sections(page)
    assert sections == {"First": "1\n\nTaken on an old machine.", "Second": f"3\n\n{common.stamp()}"}
    assert page.read_text().startswith("# A study\n\n`python benchmarks/study.py`\n\n## First\n")
    assert page.read_text().endswith(f"\n{common.stamp()}\n\n`python benchmarks/study.py second`\n")


def test_every_page_and_drawing_has_its_script():
    assert {page.stem for page in RESULTS.glob("*.md")} <= set(SCRIPTS)
    for page in RESULTS.glob("*.md"):
        for drawing in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text()):
            assert (RESULTS / drawing).exists(), drawing
    shown = "".join(page.read_text() for page in RESULTS.glob("*.md"))
    for drawing in RESULTS.glob("*.svg"):
        assert drawing.name in shown


def test_no_drawing_is_kept_twice():
    pictures = [
        path for place in (FOLDER, ROOT / "docs") for kind in ("svg", "png") for path in place.rglob(f"*.{kind}")
    ]
    assert len(pictures) > 20
    assert len({path.read_bytes() for path in pictures}) == len(pictures)


def test_kept_figures_are_of_a_data_set_with_a_file():
    configs = {path.stem: read_config(path) for path in FOLDER.glob("*.toml")}
    for name, config in configs.items():
        assert name == config.name.lower()
        assert config.contestants
    for path in RESULTS.glob("*.json"):
        if path.stem not in SCRIPTS:
            assert json.loads(path.read_text())["data"]["name"] == configs[path.stem].name


def test_the_readme_names_every_script_and_page():
    text = (FOLDER / "README.md").read_text()
    for name in set(SCRIPTS) - {"common"}:
        assert f"`{name}.py" in text
    for page in RESULTS.glob("*.md"):
        assert f"(results/{page.name})" in text
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (FOLDER / link).exists(), link
