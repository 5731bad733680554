"""Directories compared byte by byte."""

from __future__ import annotations

from pathlib import Path


def read_files(path: Path, pattern: str = "*") -> dict[str, bytes]:
    """Every file below a directory, by name."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob(pattern)) if file.is_file()}
