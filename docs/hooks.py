"""What the site does to pages on the way: figures from kept results, and links that lead out of the site as text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    markdown = re.sub(r"<!-- numbers: ([a-z-]+) -->", lambda found: numbers(found[1]), markdown)
    markdown = re.sub(r"<!-- results: ([a-z_]+) -->", lambda found: results(found[1]), markdown)
    markdown = re.sub(r"<!-- figures: ([\w-]+), ([a-z-]+) -->", lambda found: figures(*found.groups()), markdown)
    up = "../" * page.file.src_uri.count("/")
    return re.sub(rf"(?<!!)\[([^\]]+)\]\({re.escape(up)}\.\./[^)]*\)", r"\1", markdown)


def numbers(method: str) -> str:
    """A table of what a method reached, from benchmarks/results; nothing is typed by hand."""
    rows = []
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        result = json.loads(path.read_text())
        for run in result.get("runs", ()):
            if run["program"] != method or run["peer"] or run["status"] != "done":
                continue
            metrics = run["metrics"]
            p, psp = (" / ".join(f"{metrics[f'{m}@{k}']:.2f}" for k in (1, 3, 5)) for m in ("P", "PSP"))
            settings = ", ".join(f"{name}={value}" for name, value in run["params"].items()) or "the defaults"
            rows.append(f"| {result['data']['name']} | {settings} | {p} | {psp} | {_size(run['model_bytes'])} |")
    if not rows:
        return "None are kept yet; `python -m benchmarks run` keeps them."
    head = ["| data | settings | P@1 / 3 / 5 | PSP@1 / 3 / 5 | model |", "| --- | --- | --- | --- | --- |"]
    foot = "\n\nIn percent, from `benchmarks/results`; all methods side by side in [Results](../RESULTS.md)."
    return "\n".join([*head, *rows]) + foot


def figures(data: str, program: str) -> str:
    """Accuracy, training time and size of one program, as RESULTS.md has them: three cells of a table."""
    section = (ROOT / "docs" / "RESULTS.md").read_text().split(f"\n## {data}\n")[1].split("\n## ")[0]
    tables = [[line.strip("| ").split(" | ") for line in table.splitlines()] for table in section.split("\n\n")]
    for head, *rows in tables:
        for row in rows:
            if re.fullmatch(rf"{program}(?: [\d.]+)?", row[0]):  # peers have a version
                return " | ".join(row[head.index(name)] for name in ("P@1 / 3 / 5", "O", "model"))
    raise ValueError(f"docs/RESULTS.md has no {program} under {data}")


def results(name: str) -> str:
    """A page of benchmarks/results, without its heading."""
    return (ROOT / "benchmarks" / "results" / f"{name}.md").read_text().partition("\n")[2]


def _size(n_bytes: float) -> str:
    return next((f"{n_bytes / unit:.1f} {name}" for unit, name in _UNITS if n_bytes >= unit), f"{n_bytes} B")
