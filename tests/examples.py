"""The code of the documentation as files, for a type checker.

python -m tests.examples FOLDER
"""

from __future__ import annotations

import importlib.resources
import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Pages whose blocks continue each other.
WHOLE = {"from_text_to_tags.md"}
#: What a page takes for granted.
GIVEN = {"index.md": "import umpteen\n\ntexts: list[str] = []\nlabels: list[list[str]] = []\n\n"}
#: Packages without types of their own: whatever they give counts as Any.
UNTYPED = re.compile(r"^(?:from|import) ((?:sklearn)[\w.]*)", re.MULTILINE)


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def write_examples(folder: Path) -> list[Path]:
    """The examples, the package with the types of its kernels, and the settings of pyright."""
    written = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        code = blocks(page)
        for i, block in enumerate(["\n".join(code)] if code and page.name in WHOLE else code):
            file = folder / "examples" / f"{page.stem}_{i}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(GIVEN.get(page.name, "") + block)
            written.append(file)
    for module in {name for file in written for name in UNTYPED.findall(file.read_text())} | {"sklearn"}:
        place = folder / "typings" / Path(*module.split(".")) / "__init__.pyi"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n")
    shutil.copytree(ROOT / "src" / "umpteen", folder / "package" / "umpteen")
    stub = importlib.resources.files("umpteen") / "_native.pyi"
    (folder / "package" / "umpteen" / "_native.pyi").write_text(stub.read_text())
    settings = {
        "include": ["examples"],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "stubPath": "typings",
        "extraPaths": ["package"],
        "reportMissingTypeStubs": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return written


if __name__ == "__main__":
    print(f"{len(write_examples(Path(sys.argv[1])))} examples")
