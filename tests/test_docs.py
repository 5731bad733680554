"""The code in the documentation runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import umpteen
from umpteen.methods import METHODS

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


#: Pages whose blocks belong together, or need another process; tests of their own run them.
APART = {"from_text_to_tags.md", "many_machines.md"}
PAGES = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) and page not in APART])
def test_blocks_run_by_themselves(page):
    code = blocks(page)
    assert code
    for block in code:
        exec(compile(block, f"docs/{page}", "exec"), {})


@pytest.mark.parametrize("page", [*PAGES, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md"])
def test_links_lead_somewhere(page):
    file = ROOT / "docs" / page
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", file.read_text()):
        assert (file.parent / target).exists(), target


def test_every_method_has_a_page():
    for name in METHODS:
        page = f"methods/{name.replace('-', '_')}.md"
        assert page in PAGES
        assert f"<!-- numbers: {name} -->" in (ROOT / "docs" / page).read_text()
        assert page in (ROOT / "mkdocs.yml").read_text()


def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("mkdocstrings", reason="mkdocs is not installed; pip install 'umpteen[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "methods" / "dismec.html").read_text()
    assert "Bibtex" in page  # figures are those that are kept
    assert "positive_weight" in page  # and settings those of the class


def test_many_machines(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed; pip install 'umpteen[ray]'")
    (code,) = blocks("many_machines.md")
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(Path(umpteen.__file__).parent.parent)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert umpteen.load(tmp_path / "laptop.model").n_labels == 100
