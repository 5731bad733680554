"""The page of the last long runs: one line for each target, replaced by the next run of the same target."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

import umpteen

HEAD = "| target | guided by | CPU minutes | inputs | coverage | findings | what came of it | umpteen, Python |"
_RULE = "|---|---|---:|---:|---:|---:|---|---|"


def keep_run(page: Path, found: dict[str, Any]) -> None:
    """Writes the line of a run into the page's table, which is made below all else where there is none."""
    text = page.read_text() if page.exists() else "# Fuzzed\n"
    if HEAD not in text:
        text = f"{text.rstrip()}\n\n## Last runs\n\n{HEAD}\n{_RULE}\n"
    line = _line(found)
    pattern = re.compile(rf"^\| {re.escape(found['target'])} \|.*$", re.MULTILINE)
    if pattern.search(text):
        text = pattern.sub(lambda _: line, text, count=1)
    else:
        above, _, below = text.partition(f"{_RULE}\n")
        text = f"{above}{_RULE}\n{line}\n{below}"
    page.write_text(text)


def _line(found: dict[str, Any]) -> str:
    outcomes = "; ".join(f"{count:,} {what}" for what, count in sorted(found.get("outcomes", {}).items()))
    cells = (
        found["target"], found.get("guided by", ""), found["cpu_minutes"], f"{found['inputs']:,}",
        found.get("coverage", ""), found["findings"], outcomes, f"{umpteen.__version__}, {platform.python_version()}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"
