"""The package as a whole: light to import, its names, its types, its examples."""

from __future__ import annotations

import doctest
import importlib
import importlib.metadata
import importlib.resources
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import umpteen

from .conftest import ROOT

MODULES = [m.name for m in pkgutil.walk_packages(umpteen.__path__, "umpteen.") if not m.name.endswith("_native")]


@pytest.mark.process
def test_import_is_light():
    """`import umpteen` brings in nothing but itself: not even numpy."""
    code = "import sys; before = set(sys.modules); import umpteen; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {
        "numpy",
        "scipy",
        "sklearn",
        "ray",
        "fastapi",
        "matplotlib",
        "optuna",
        "typer",
        "rich",
        "zstandard",
    }
    assert not heavy & {name.split(".")[0] for name in loaded}


@pytest.mark.process
def test_using_it_needs_no_optional_package():
    code = (
        "import sys, umpteen; d = umpteen.make_synthetic(50, 30, 5); m = umpteen.Centroid().fit(d.X, d.Y);"
        "umpteen.evaluate(d.Y, m.predict_topk(d.X)[0], d.Y); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"sklearn", "ray", "fastapi", "matplotlib", "optuna", "typer"} & set(loaded)


@pytest.mark.process
def test_import_brings_nothing_that_takes_time():
    code = "import sys; before = set(sys.modules); import umpteen; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) <= {
        "umpteen",
        "umpteen.errors",
        "importlib",
        "importlib._bootstrap",
        "typing",
        "__future__",
    } | {name for name in loaded if name.split(".")[0] in sys.stdlib_module_names or "umpteen_editable" in name}


def test_public_names_exist_and_are_listed():
    for name in umpteen.__all__:
        assert getattr(umpteen, name) is not None
    assert set(umpteen.__all__) <= set(dir(umpteen))
    with pytest.raises(AttributeError, match="module 'umpteen' has no attribute 'telepathy'"):
        _ = umpteen.telepathy


def test_public_names_live_where_they_say():
    for name, home in umpteen._HOMES.items():
        assert getattr(importlib.import_module(home), name).__module__ == home


def test_nothing_shipped_needs_the_repository():
    """Its data sets and its figures are for tests and benchmarks."""
    folder = Path(umpteen.__file__).parent
    files = [path for path in folder.rglob("*") if path.suffix in (".py", ".js", ".html")]
    assert len(files) > 50
    for path in files:
        for word in ("shared/data", "../shared", "UMPTEEN_DATA", "benchmarks", "RESULTS.md"):
            assert word not in path.read_text(), f"{path}: {word}"


def test_version_is_said_once():
    assert importlib.metadata.version("umpteen") == umpteen.__version__


def test_typed_with_a_stub_for_the_native_module():
    files = importlib.resources.files("umpteen")
    assert (files / "py.typed").is_file()
    stub = (files / "_native.pyi").read_text()
    for name in ("parse_text", "LinearScorer", "find_hits", "parallel_for", "normalize_rows"):
        assert name in stub


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    assert module.__doc__ or name.endswith("__init__") or not (getattr(module, "__file__", "") or "").endswith(".py")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(("lock", "extras"), [("test", ["test"]), ("lint", ["lint", "cpp", "wheel", "docs"])])
def test_ci_has_a_hash_of_all_that_it_installs(lock, extras):
    """What is in an extra and not in the lock would be missing where CI installs by hashes alone."""
    file = ROOT / ".ci" / f"requirements-{lock}.txt"
    if not file.exists():
        pytest.skip("the lock is not part of the source distribution")
    lines = file.read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+!-]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    pinned = {line.split("==")[0] for line in lines}
    assert sorted(pinned) == [line.split("==")[0] for line in lines]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    todo, wanted = list(extras), set()
    while todo:
        for line in known[todo.pop()]:
            if own := re.match(r"umpteen\[(.*)\]", line):
                todo += own[1].split(",")
            else:
                wanted.add(re.match(r"[\w.-]+", line)[0].lower().replace("_", "-"))
    assert wanted <= pinned
