"""Models of every format that was released, to be read for as long as the format is.

    python -m tests.golden        # writes today's: tests/golden/format-1.tar.xz, once for each format version

An archive holds a small model of every family and, beside it, what it answered on the day it was written.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import umpteen
from umpteen.storage.manifest import FORMAT_VERSION

from .files import read_files
from .fuzz.families import questions, train_families

FOLDER = Path(__file__).parent / "golden"


def write(target: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        models = train_families(Path(name))
        answers = {family: questions(umpteen.load(path)) for family, path in models.items()}
        files = read_files(Path(name))
    files["answers.json"] = json.dumps({"umpteen": umpteen.__version__, "answers": answers}).encode()
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    target.write_bytes(lzma.compress(plain.getvalue(), preset=9))


def read(archive: Path, folder: Path) -> dict[str, Any]:
    """Unpacks an archive; returns what its models answered."""
    with tarfile.open(archive) as packed:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11 has it from 3.11.4 on
        packed.extractall(folder, **safely)
    answers: dict[str, Any] = json.loads((folder / "answers.json").read_text())["answers"]
    return answers


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write(FOLDER / f"format-{FORMAT_VERSION}.tar.xz")
