"""Methods and formats of other packages: declared, looked up by name, never imported by a name in a file."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import umpteen
from umpteen.comparing.programs import peer_class
from umpteen.data.reading import read
from umpteen.errors import DataError, ModelFormatError, ParamError
from umpteen.extensions import API_VERSION, Registry, all_declared, api_versions, declared
from umpteen.methods import METHODS, method_class, method_of
from umpteen.text.encoding import open_encoder

from .conftest import ROOT
from .serving import LABELS, TEXTS, serving

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


# --- a class of one's own at the command line -----------------------------------------------------------------------

COMMAND = ("-c", "from umpteen.cli.main import main; main()")


@pytest.mark.slow
@pytest.mark.process
def test_a_class_of_ones_own_in_every_command(tmp_path, tiny):
    (tmp_path / "my_method.py").write_text(MINE)
    texts = [{"text": text, "labels": labels} for text, labels in zip(TEXTS, LABELS, strict=True)] * 20
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in texts))
    umpteen.write_xc(umpteen.Dataset(tiny.X, tiny.Y), tmp_path / "train.txt")

    def command(*arguments, **options):
        return run(sys.executable, *COMMAND, *arguments, cwd=tmp_path, **options)

    said = command("train", "train.txt", "--method", "my_method:Mine", "--set", "power=0.5", "--model", "rows.model")
    assert "Mine(power=0.5)" in said
    command("train", "train.jsonl", "--method", "my_method:Mine", "--model", "texts.model")
    assert "mine" in command("inspect", "texts.model")
    assert command("suggest", "texts.model", "herring quotas", "--top-k", 1).split()[0] in ("fish", "sea")
    assert json.loads(command("evaluate", "rows.model", "train.txt", "--json", "-"))["P@1"] > 80
    tuned = command("tune", "train.txt", "--method", "my_method:Mine", "--trials", 2, "--model", "tuned.model")
    assert "settings   --method my_method:Mine" in tuned
    assert "mine" in command("inspect", "tuned.model")
    methods = "centroid,my_method:Mine,my_method:Mine:power=0.5"
    command(
        "compare", "train.txt", "train.txt", "--methods", methods, "--calibrate", "--baseline", "my_method:Mine",
        "--output", "out",
    )  # fmt: skip
    result = json.loads((tmp_path / "out" / "results.json").read_text())
    runs = {run["name"]: run for run in result["runs"]}
    assert list(runs) == ["centroid", "my_method:Mine", "my_method:Mine power=0.5"]
    assert {run["status"] for run in runs.values()} == {"done"}, runs
    assert result["baseline"] == "my_method:Mine"
    assert runs["my_method:Mine"]["metrics"] == runs["centroid"]["metrics"]
    assert "pruning" in runs["my_method:Mine"]["studies"]
    with serving(str(tmp_path / "texts.model"), str(tmp_path / "rows.model")) as server, server.client() as client:
        found = client.post("/v1/suggest", json={"text": "wine tax", "top_k": 1, "model": "texts"}).json()
        assert found["results"][0]["label"] in ("tax", "wine")
        assert {model["method"] for model in client.get("/v1/models").json()["models"]} == {"mine"}
    for methods, message in (
        ("my_method:Other", "cannot be imported"),
        ("my_method:Mine:power", "a setting must be name=value, but is 'power'"),
        ("my_method:Mine:nothing=1", "has no parameter 'nothing'"),
        ("centroid:Mine", "a setting must be name=value, but is 'Mine'"),
        ("dismek", "or module:Class, but is 'dismek'; did you mean 'dismec'?"),
        ("dismek:C=1", "or module:Class, but is 'dismek'; did you mean 'dismec'?"),
        ("my_method:", "cannot be imported"),
        (":Mine", "cannot be imported"),
        ("my_method:Mine,my_method:Mine", "is named twice"),
    ):
        refused = command("compare", "train.txt", "train.txt", "--methods", methods, "--output", "no", fails=True)
        assert message in " ".join(refused.split()), methods
        assert "Traceback" not in refused


# --- versions of what packages are written for ----------------------------------------------------------------------


@pytest.fixture
def package(folder, monkeypatch):
    """Declares my_method as an installed package would, of the versions given."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(declared("umpteen.methods"), "mine", "my_method:Mine")

    def declare(*versions):
        monkeypatch.setitem(api_versions(), "my_method", set(versions))

    return declare


def test_a_package_of_this_version_is_taken(package):
    package("0", str(API_VERSION))
    assert method_class("mine").__name__ == "Mine"


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        (("2",), "my_method is written for version 2 of umpteen.plugin, but this umpteen has version 1"),
        (("0", "2"), "for version 0 and 2 of"),
        ((), r"my_method must say which version .* \[project.entry-points.\"umpteen.api\"\] needs 1 = .my_method"),
    ],
)
def test_a_package_of_another_version_is_refused_before_it_is_imported(versions, message, package, monkeypatch):
    package(*versions)
    for group in ("encoders", "readers", "peers"):
        monkeypatch.setitem(declared(f"umpteen.{group}"), "mine", "my_method.part:it")
    for use in (
        lambda: method_class("mine"),
        lambda: peer_class("mine"),
        lambda: read("a", format="mine"),
        lambda: open_encoder("mine:x"),
    ):
        with pytest.raises(ParamError, match=message):
            use()
    assert "my_method" not in sys.modules


def test_a_class_by_its_module_is_of_another_version_only_if_its_package_says_so(package):
    assert method_class("my_method:Mine").__name__ == "Mine"  # no version is said
    package("2")
    with pytest.raises(ParamError, match="written for version 2"):
        method_class("my_method:Mine")


def test_a_model_whose_method_is_of_another_version_suggests(package, folder):
    package(str(API_VERSION))
    umpteen.Tagger("mine").fit(TEXTS * 20, LABELS * 20).save(folder / "a.model")
    package("2")
    with pytest.warns(UserWarning, match=r"written for version 2 .* can suggest, but cannot be trained further"):
        tagger = umpteen.load(folder / "a.model")
    assert tagger.suggest("herring quotas", top_k=1)[0][0] in ("fish", "sea")


def test_versions_are_those_of_installed_packages(tmp_path, monkeypatch):
    info = tmp_path / "other-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[umpteen.api]\n1 = other\n2 = other\n3 = some.where\n")
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    try:
        found = api_versions()
        assert (found["other"], found["some.where"]) == ({"1", "2"}, {"3"})
    finally:
        forget()


# --- the example, in an environment of its own ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory, tiny):
    """The interpreter of an environment in which the example is built and installed, and files to use it with."""
    place = tmp_path_factory.mktemp("plugin")
    python = make_environment(place / "venv")
    plugin = shutil.copytree(PLUGIN, place / "plugin")  # a copy: building leaves files behind
    run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", plugin)
    rows = [(y.indices, x.indices) for y, x in zip(tiny.Y, tiny.X, strict=True)]
    lines = [f"{' '.join(map(str, y))}\t{' '.join(map(str, x))}\n" for y, x in rows]
    (place / "train.pairs").write_text("".join(lines))
    texts = [{"text": text, "labels": labels} for text, labels in zip(TEXTS, LABELS, strict=True)]
    (place / "train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in texts * 20))
    return python, place


@pytest.fixture(scope="module")
def tags(installed):
    """A model of texts with the example's method and encoder."""
    python, place = installed
    model = place / "tags.model"
    run(
        python, *COMMAND, "train", place / "train.jsonl", "--method", "rocchio", "--features", "word",
        "--features", "trigrams:64", "--model", model,
    )  # fmt: skip
    return model


@pytest.mark.slow
@pytest.mark.process
def test_the_example_trains_and_is_a_method_again(installed):
    python, place = installed
    model = place / "a.model"
    done = run(
        python, *COMMAND, "train", place / "train.pairs", "--format", "pairs", "--method", "rocchio", "--set",
        "beta=0.3", "--model", model,
    )  # fmt: skip
    assert model.is_dir(), done
    assert "rocchio" in run(python, *COMMAND, "inspect", model)
    code = f"import umpteen.methods as m; found = m.method_of(umpteen.load({str(model)!r}))"
    said = run(python, "-c", f"import umpteen; {code}; print(type(found).__module__, found)")
    assert said.strip() == "umpteen_rocchio Rocchio(beta=0.3)"
    unknown = run(
        python, *COMMAND, "train", place / "train.pairs", "--method", "nothing", "--model", place / "b", fails=True
    )
    assert "rocchio" in unknown
    tuned = run(
        python, *COMMAND, "tune", place / "train.pairs", "--format", "pairs", "--method", "rocchio", "--trials", 2,
        "--journal", place / "journal",
    )  # fmt: skip
    assert "settings   --method rocchio" in tuned
    assert "beta=" in tuned
    assert "rocchio" not in declared("umpteen.methods")  # here it is not installed


@pytest.mark.slow
@pytest.mark.process
def test_the_examples_own_tests_pass(installed):
    python, place = installed
    assert "passed" in run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", place / "plugin" / "tests")


@pytest.mark.slow
@pytest.mark.process
def test_help_names_what_the_example_adds(installed):
    python, _ = installed
    said = run(python, *COMMAND, "train", "--help")
    for word in ("rocchio", "packages add trigrams", "packages add pairs"):
        assert word in " ".join(said.replace("│", " ").split()), word
    for command in ("tune", "compare"):
        assert "rocchio" in run(python, *COMMAND, command, "--help")
    assert "naive-bayes scikit-learn" in run(python, *COMMAND, "peers")


@pytest.mark.slow
@pytest.mark.process
def test_texts_by_its_encoder_are_suggested_and_served(installed, tags):
    python, _ = installed
    assert run(python, *COMMAND, "suggest", tags, "herring quotas", "--top-k", 1).split()[0] in ("fish", "sea")
    with serving(str(tags), python=python) as server, server.client() as client:
        found = client.post("/v1/suggest", json={"text": "wine tax", "top_k": 1}).json()
        assert found["results"][0]["label"] in ("tax", "wine")
        assert client.get("/v1/models").json()["models"][0]["method"] == "rocchio"
    with pytest.raises(ModelFormatError, match="needs the encoder it was trained with, 'trigrams:64'"):
        umpteen.load(tags)  # here it is not installed


@pytest.mark.slow
@pytest.mark.process
def test_its_peer_runs_in_an_environment_without_it(installed, monkeypatch):
    python, place = installed
    monkeypatch.setenv("UMPTEEN_PEERS", str(place / "peers"))
    compare = (
        python, *COMMAND, "compare", place / "train.pairs", place / "train.pairs", "--format", "pairs", "--methods",
        "rocchio", "--peers", "naive-bayes:alpha=0.1", "--no-studies", "--output",
    )  # fmt: skip
    assert "not installed; run umpteen peers install naive-bayes" in run(*compare, place / "without")
    # This interpreter has scikit-learn, and isolated it sees nothing of the example.
    own = place / "peers" / "naive-bayes" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    run(*compare, place / "out")
    runs = {run["program"]: run for run in json.loads((place / "out" / "results.json").read_text())["runs"]}
    assert {run["status"] for run in runs.values()} == {"done"}, runs
    assert runs["naive-bayes"]["metrics"]["P@1"] > 60
    assert runs["naive-bayes"]["params"] == {"alpha": 0.1}
    assert runs["rocchio"]["metrics"]["P@1"] > 60


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


def run(*command: object, fails: bool = False, cwd: Path | str = "/") -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"COLUMNS": "200"}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=environment, cwd=cwd, check=False
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "raised", ["RuntimeError('no licence')", "KeyError('no licence')", "ImportError('no licence')"]
)
def test_a_package_that_fails_as_it_is_imported_is_named(raised, tmp_path, monkeypatch):
    (tmp_path / "broken_plugin.py").write_text(f"raise {raised}\n")
    monkeypatch.syspath_prepend(tmp_path)
    place = "broken_plugin:Mine"
    for group in ("methods", "encoders", "readers", "peers"):
        monkeypatch.setitem(declared(f"umpteen.{group}"), "broken", place)
    monkeypatch.setitem(api_versions(), "broken_plugin", {str(API_VERSION)})
    for use in (
        lambda: method_class("broken"),
        lambda: method_class(place),
        lambda: peer_class("broken"),
        lambda: read(tmp_path / "a", format="broken"),
        lambda: open_encoder("broken:x"),
    ):
        with pytest.raises(ParamError, match=r"cannot be imported.*no licence"):
            use()


# --- packages that are not as they should be --------------------------------------------------------------------

WRONG = """
from umpteen import Centroid

class Mine(Centroid):
    name = "mine"

class Ours(Centroid):
    name = "dismec"

number = 3

def fails(argument):
    raise KeyError("no licence")

def gives_a_number(argument):
    return 3
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a package where installed ones are looked for, with the text of its entry_points.txt."""

    def write(name: str, points: str, code: str = WRONG) -> None:
        place = tmp_path / "installed"
        facts = place / f"{name}-1.0.dist-info"
        facts.mkdir(parents=True)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(points)
        (place / f"{name}.py").write_text(code)
        monkeypatch.syspath_prepend(place)
        forget()

    yield write
    monkeypatch.undo()
    forget()
    for name in ("first", "second", "third"):
        sys.modules.pop(name, None)


def forget():
    for found in (declared, all_declared, api_versions):
        found.cache_clear()


def test_a_name_that_two_packages_declare_is_refused(install):
    for name in ("first", "second"):
        install(name, f"[umpteen.api]\n1 = {name}\n[umpteen.methods]\nmine = {name}:Mine\n")
    with pytest.raises(ParamError, match=r"'mine' must be declared by one .* but is by first:Mine and second:Mine"):
        method_class("mine")
    assert not {"first", "second"} & set(sys.modules)


def test_a_name_of_ours_stays_ours(install):
    install("first", "[umpteen.api]\n1 = first\n[umpteen.methods]\ndismec = first:Ours\nmine = first:Mine [fast]\n")
    assert method_class("dismec") is umpteen.DiSMEC
    assert method_class("mine").__module__ == "first"


@pytest.mark.filterwarnings("ignore:the entry points of third cannot be read")
def test_entry_points_that_make_no_sense_are_named(install, tmp_path):
    points = "odd = 12 34:::\nmissing = first:Missing\nnumber = first:number\nours = first:Ours\n"
    install("first", f"[umpteen.api]\n1 = first\n[umpteen.methods]\n{points}")
    install("third", "[umpteen.methods]\nno equals sign\n")
    for name, message in (
        ("odd", "12 34 must say which version"),
        ("missing", "first:Missing cannot be imported: AttributeError"),
        ("number", "'number' must name a class derived from umpteen.Method, but is 3"),
        ("ours", "the method declared as 'ours' must have this name, but its name is 'dismec'"),
    ):
        with pytest.raises(ParamError, match=message):
            method_class(name)
    forget()
    with pytest.warns(UserWarning, match="the entry points of third cannot be read"):
        assert "missing" in METHODS


def test_a_package_that_leaves_as_it_is_imported_is_named(install):
    install("first", "[umpteen.api]\n1 = first\n[umpteen.methods]\nmine = first:Mine\n", "raise SystemExit(0)")
    with pytest.raises(ParamError, match="first:Mine cannot be imported: SystemExit"):
        method_class("mine")


def test_readers_and_encoders_that_fail_are_named(install, tmp_path):
    points = "".join(
        f"[umpteen.{group}]\nnumber = first:number\nfails = first:fails\nwrong = first:gives_a_number\n"
        for group in ("readers", "encoders")
    )
    install("first", f"[umpteen.api]\n1 = first\n{points}")
    for use, what in (
        (lambda name: read(tmp_path / "a", format=name), "reader"),
        (lambda name: open_encoder(f"{name}:x"), "encoder"),
    ):
        with pytest.raises(ParamError, match="first:number, declared as 'number', must be a function, but is 3"):
            use("number")
        with pytest.raises(DataError, match=r"first:fails failed on '.*': KeyError: 'no licence'"):
            use("fails")
        with pytest.raises((DataError, ParamError), match=f"{what}.* must"):
            use("wrong")
