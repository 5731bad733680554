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


@pytest.mark.parametrize("page", ["scikit_learn.md", "tuning_and_blending.md"])
def test_blocks_run_by_themselves(page):
    code = blocks(page)
    assert code
    for block in code:
        exec(compile(block, f"docs/{page}", "exec"), {})


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / "docs" / page).read_text()):
        assert (ROOT / "docs" / target).exists(), target


def test_many_machines(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed; pip install 'umpteen[ray]'")
    (code,) = blocks("many_machines.md")
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(Path(umpteen.__file__).parent.parent)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert umpteen.load(tmp_path / "laptop.model").n_labels_ == 100
