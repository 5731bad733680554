"""Methods and formats of other packages: declared, looked up by name, never imported by a name in a file."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import umpteen
from umpteen.errors import ModelFormatError, ParamError
from umpteen.extensions import Registry, declared
from umpteen.methods import METHODS, method_class, method_of

from .conftest import ROOT

PLUGIN = ROOT / "examples" / "plugin"

MINE = """
from umpteen import Centroid

class Mine(Centroid):
    name = "mine"

class Unnamed(Centroid):
    pass

elsewhere = open
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A current directory with a module of one's own."""
    (tmp_path / "my_method.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("my_method", None)
    METHODS.own.pop("mine", None)


def test_our_own_names_win():
    names = Registry("umpteen.methods", {"dismec": "ours:DiSMEC"})
    names.own["dismec"] = "ours:DiSMEC"
    assert names["dismec"] == "ours:DiSMEC"
    assert list(METHODS)[:2] == ["centroid", "dismec"]
    assert len(METHODS) == len(list(METHODS))


def test_a_class_of_ones_own_by_module_and_name(folder, tiny):
    tagger = umpteen.Tagger("my_method:Mine", features="precomputed")
    tagger.fit(tiny.X, [["a"] if i % 2 else ["b"] for i in range(300)]).save(folder / "a.model")
    loaded = umpteen.load(folder / "a.model")
    assert loaded.model_.method == "mine"
    assert type(loaded.method).__name__ == "Mine"
    assert str(folder) not in sys.path


def test_a_model_of_a_method_that_is_not_here_predicts(folder, tiny):
    method_class("my_method:Mine")().fit(tiny.X, tiny.Y).save(folder / "a.model")
    METHODS.own.pop("mine")
    model = umpteen.load(folder / "a.model")
    assert model.predict_topk(tiny.X, 3)[0].shape == (300, 3)
    with pytest.raises(ModelFormatError, match="method is 'mine', which this umpteen does not have"):
        method_of(model)


def test_a_name_in_a_file_is_never_imported(folder, tiny):
    umpteen.Centroid().fit(tiny.X, tiny.Y).save(folder / "a.model")
    manifest = folder / "a.model" / "manifest.json"
    text = manifest.read_text()
    assert text.count('"centroid"') == 1
    manifest.write_text(text.replace('"centroid"', '"my_method:Mine"'))
    model = umpteen.load(folder / "a.model")
    with pytest.raises(ModelFormatError, match="which this umpteen does not have"):
        method_of(model)
    assert "my_method" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my_method:Other", "cannot be imported"),
        ("no_such_module:Mine", "cannot be imported"),
        ("my_method:elsewhere", "must name a class derived from umpteen.Method"),
        ("my_method:Unnamed", "must have a name of its own"),
        ("mine", "method must be one of centroid, .*, or module:Class"),
    ],
)
def test_what_is_no_method_is_refused(name, message, folder):
    with pytest.raises(ParamError, match=message):
        method_class(name)


@pytest.mark.slow
@pytest.mark.process
def test_the_example_is_built_installed_and_used_in_an_environment_of_its_own(tmp_path, tiny):
    python = make_environment(tmp_path / "venv")
    run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", copy(tmp_path))
    data, model = tmp_path / "train.pairs", tmp_path / "a.model"
    rows = [(y.indices, x.indices) for y, x in zip(tiny.Y, tiny.X, strict=True)]
    data.write_text("".join(f"{' '.join(map(str, y))}\t{' '.join(map(str, x))}\n" for y, x in rows))
    command = (python, "-c", "from umpteen.cli.main import main; main()")
    done = run(
        *command, "train", data, "--format", "pairs", "--method", "rocchio", "--set", "beta=0.3", "--model", model
    )
    assert model.is_dir(), done
    assert "rocchio" in run(*command, "inspect", model)
    code = (
        f"import umpteen; m = umpteen.methods.method_of(umpteen.load({str(model)!r})); print(type(m).__module__, m)"
    )
    assert run(python, "-c", f"import umpteen.methods; {code}").strip() == "umpteen_rocchio Rocchio(beta=0.3)"
    unknown = run(*command, "train", data, "--method", "nothing", "--model", tmp_path / "b.model", fails=True)
    assert "rocchio" in unknown
    assert "passed" in run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "plugin" / "tests")
    assert "rocchio" not in declared("umpteen.methods")  # here it is not installed


def make_environment(place: Path) -> str:
    """A new environment that sees what this one has, our own package too, but not the other way round."""
    # Without a pip of its own it has no old setuptools of its own either, which could not build a wheel.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = str(place / "bin" / "python")
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    seen = [*site.getsitepackages(), sysconfig.get_path("platlib")]
    lines = "".join(f"import site; site.addsitedir({folder!r})\n" for folder in dict.fromkeys(seen))
    (Path(packages) / "parent.pth").write_text(lines)
    return python


def copy(tmp_path: Path) -> str:
    """The example as a copy: building leaves files behind."""
    import shutil

    return str(shutil.copytree(PLUGIN, tmp_path / "plugin"))


def run(*command: object, fails: bool = False) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"COLUMNS": "200"}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=environment, cwd="/", check=False
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr
