"""The command line: options and JSON keys scripts depend on, messages, exit codes."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.main import get_command
from typer.testing import CliRunner

import umpteen
from umpteen.cli.defaults import Default
from umpteen.cli.main import app, main

UMPTEEN = [sys.executable, "-c", "from umpteen.cli.main import main; main()"]


def run(*args, code=0):
    """The command in this process; its output."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if isinstance(result.exception, umpteen.errors.UmpteenError) and code == 0:
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def fails(capsys, monkeypatch, *args):
    """The command as the shell runs it: exit code and what stands on standard error."""
    monkeypatch.setattr(sys, "argv", ["umpteen", *map(str, args)])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code, capsys.readouterr().err


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Data and a model, which tests get copies of."""
    folder = tmp_path_factory.mktemp("made")
    run("synthetic", folder / "data", "--like", "bibtex", "--scale", "0.1", "--seed", "3")
    run("train", folder / "data" / "train.txt", "--method", "centroid", "--model", folder / "m.model")
    return folder


@pytest.fixture
def files(tmp_path, made):
    folder = Path(shutil.copytree(made / "data", tmp_path / "data"))
    return folder / "train.txt", folder / "test.txt"


@pytest.fixture
def model(tmp_path, made):
    return Path(shutil.copytree(made / "m.model", tmp_path / "m.model"))


@pytest.mark.process
def test_help_is_worth_reading():
    out = subprocess.run([*UMPTEEN, "--help"], capture_output=True, text=True, check=True).stdout
    for command in ("train", "predict", "evaluate", "inspect", "prune", "add-labels"):
        assert command in out


def test_help_imports_nothing_that_computes():
    code = "import sys, umpteen.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "rich.table", "umpteen.methods", "umpteen._native"} & set(loaded)


#: Options whose default lives in the signature of what their command calls.
BORROWED = [
    pytest.param(command.name, option, id=f"{command.name} {option.name}")
    for command in get_command(app).commands.values()
    for option in command.params
    if isinstance(option.default, Default)
]


@pytest.mark.parametrize(("command", "option"), BORROWED)
def test_a_default_is_that_of_what_the_command_calls(command, option, monkeypatch):
    module, _, path = option.default.home.partition(":")
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    signature = inspect.signature(getattr(owner, name))
    usual = signature.parameters[option.default.parameter].default
    assert usual is not None
    other = 987 if isinstance(usual, int | float) else "another"

    def changed() -> None:
        """The same, with another default."""

    parameters = {**signature.parameters}
    parameters[option.default.parameter] = parameters[option.default.parameter].replace(default=other)
    changed.__signature__ = signature.replace(parameters=list(parameters.values()))
    for value in (usual, other):
        found = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300", "TERM": "dumb"}).output
        (line,) = re.findall(rf"^\W+{option.opts[0]}\s.*$", found, re.MULTILINE)
        assert f"[default: {value}]" in line
        monkeypatch.setattr(owner, name, changed)


def test_commands_that_borrow_defaults():
    commands = {param.values[0] for param in BORROWED}
    assert commands >= {"tune", "blend", "serve", "compare", "evaluate", "train", "predict", "demo"}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("train", ["--method", "--model", "--set", "--valid", "--threads", "--seed", "--engine", "--resume"]),
        ("predict", ["--top-k", "--output"]),
        ("evaluate", ["--json"]),
        ("inspect", []),
        ("prune", ["--delta", "--model"]),
        ("add-labels", ["--model", "--label-names", "--threads", "--resume"]),
    ],
)
def test_options_are_those_of_the_design(command, options):
    out = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    for option in options:
        assert option in out
    assert f"umpteen {command}" in out  # an example of use


def test_version():
    assert run("--version") == f"umpteen {umpteen.__version__}\n"


def test_train_says_what_it_reads_estimates_and_writes(tmp_path, files):
    out = run("train", files[0], "--method", "centroid", "--model", tmp_path / "m.model", "--valid", files[1])
    assert re.search(r"488 rows × 184 features × 16 labels", out)
    assert re.search(r"per row [\d.]+ features and [\d.]+ labels; per label", out)
    assert re.search(r"estimate   at most .* of memory \(.* free\), model at most", out)
    assert re.search(rf"model      {tmp_path / 'm.model'} \(.*B, 1 shard, [\d.]+ s\)", out)
    assert re.search(r"^P +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d$", out, re.M)
    assert re.search(r"propensities: A=0.55, B=1.5", out)


def test_valid_data_is_read_once_and_checked_before_training(tmp_path, files, monkeypatch):
    from umpteen.data import reading

    read, original = [], reading.read
    monkeypatch.setattr(reading, "read", lambda path, **options: (read.append(path), original(path, **options))[1])
    run("train", files[0], "--model", tmp_path / "m", "--valid", files[1])
    assert read == [files[0], files[1]]
    test = umpteen.read_xc(files[1])
    umpteen.write_npz(umpteen.Dataset(test.X[:, :100], test.Y), tmp_path / "narrow.npz")
    with pytest.raises(umpteen.errors.DataError, match="must have 184 features and 16 labels, but has 100 and 16"):
        run("train", files[0], "--model", tmp_path / "n", "--valid", tmp_path / "narrow.npz")
    assert not (tmp_path / "n").exists()


def test_set_reaches_the_method(tmp_path, files):
    run(
        "train",
        files[0],
        "--method",
        "centroid",
        "--model",
        tmp_path / "m",
        "--set",
        "tfidf=true",
        "--set",
        "weight_type=float32",
    )
    params = umpteen.load(tmp_path / "m").params
    assert params["tfidf"] is True
    assert params["weight_type"] == "float32"


def test_evaluate_gives_the_documented_json(tmp_path, files, model):
    run("evaluate", model, files[1], "--json", tmp_path / "out.json")
    metrics = json.loads((tmp_path / "out.json").read_text())
    for name in ("P", "nDCG", "PSP", "PSnDCG", "recall", "macroF1", "microF1", "coverage"):
        for k in (1, 3, 5):
            assert 0 <= metrics[f"{name}@{k}"] <= 100
    assert metrics["propensity"] == {"A": 0.55, "B": 1.5}
    assert json.loads(run("evaluate", model, files[1], "--json", "-")) == metrics
    train, test = (umpteen.read_xc(file) for file in files)
    labels, _ = umpteen.load(model).predict_topk(test.X, 5)
    by_hand = umpteen.evaluate(test.Y, labels, train_Y=train.Y)
    assert {key: metrics[key] for key in by_hand} == dict(by_hand)
    other = json.loads(run("evaluate", model, files[1], "--json", "-", "--A", "0.6", "--B", "2.6"))
    assert other["PSP@1"] != metrics["PSP@1"]
    assert other["P@1"] == metrics["P@1"]


def test_predict_writes_text_json_lines_and_matrices(tmp_path, files, model):
    test = umpteen.read_xc(files[1])
    labels, scores = umpteen.load(model).predict_topk(test.X, 3)
    text = run("predict", model, files[1], "--top-k", "3")
    assert text.count("\n") == test.n_rows
    first = [cell.split(":") for cell in text.splitlines()[0].split()]
    assert [int(label) for label, _ in first] == labels[0].tolist()
    assert [float(score) for _, score in first] == pytest.approx(scores[0].tolist(), rel=1e-5)
    run("predict", model, files[1], "--top-k", "3", "--output", tmp_path / "p.txt.gz")
    run("predict", model, files[1], "--top-k", "3", "--output", tmp_path / "p.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [row["labels"] for row in rows] == labels.tolist()
    run("predict", model, files[1], "--top-k", "3", "--output", tmp_path / "p.npz")
    matrix = sp.load_npz(tmp_path / "p.npz")
    assert matrix.shape == test.Y.shape
    np.testing.assert_array_equal(matrix[0].indices[np.argsort(-matrix[0].data)], labels[0])


def test_predict_on_features_alone(tmp_path, files, model):
    data = umpteen.read_xc(files[1])
    umpteen.write_npz(data, tmp_path / "X.npz", labels=tmp_path / "Y.npz")
    umpteen.write_xc(data, tmp_path / "tst_X_Xf.txt", labels=tmp_path / "Y.txt")
    want = run("predict", model, files[1])
    assert run("predict", model, tmp_path / "X.npz") == want
    assert run("predict", model, tmp_path / "tst_X_Xf.txt") == want
    out = run("train", files[0], "--model", tmp_path / "m2", "--valid", tmp_path / "tst_X_Xf.txt",
              "--valid-labels", tmp_path / "Y.txt")  # fmt: skip
    assert "nDCG" in out


def test_label_names_and_filters(tmp_path, files):
    names = tmp_path / "names.txt"
    names.write_text("".join(f"thing {i}\n" for i in range(16)))
    run("train", files[0], "--method", "centroid", "--model", tmp_path / "m", "--label-names", names)
    out = tmp_path / "p.jsonl"
    run("predict", tmp_path / "m", files[1], "--exclude", "thing 0", "--exclude", "1", "--output", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(row["names"] == [f"thing {label}" for label in row["labels"]] for row in rows)
    assert not {0, 1} & {label for row in rows for label in row["labels"]}
    run("predict", tmp_path / "m", files[1], "--include", "thing 3", "--top-k", "1", "--output", out,
        "--overwrite")  # fmt: skip
    assert {tuple(json.loads(line)["labels"]) for line in out.read_text().splitlines()} == {(3,)}


def test_inspect_model_and_data(files, model):
    out = run("inspect", model, "--checksums")
    for fact in ("centroid", "n_labels             16", "trained_labels", "float16", "all right"):
        assert fact in out
    facts = json.loads(run("inspect", model, "--json", "-"))
    assert facts["method"] == "centroid"
    assert facts["params"]["normalize"] is True
    assert "488 rows × 184 features × 16 labels" in run("inspect", files[0])
    assert json.loads(run("inspect", files[0], "--json", "-"))["n_rows"] == 488


def test_prune_makes_a_smaller_model(tmp_path, files, model):
    out = run("prune", model, "--delta", "0.1", "--model", tmp_path / "small")
    whole, small = umpteen.load(model), umpteen.load(tmp_path / "small", checksums=True)
    assert 0 < small.scorer.nnz < whole.scorer.nnz
    assert re.search(rf"before     {model} \([\d.]+ KB, {whole.scorer.nnz:,} weights\)", out)
    assert re.search(rf"after      {tmp_path / 'small'} \([\d.]+ KB, {small.scorer.nnz:,} weights\)", out)
    assert "note" not in out
    again = run("prune", tmp_path / "small", "--delta", "0.01", "--model", tmp_path / "same")
    assert "note: no weight is smaller than 0.01, so nothing was dropped" in again
    assert "nDCG" in run("evaluate", tmp_path / "small", files[1])


def test_add_labels_refuses_a_forest(capsys, monkeypatch, tmp_path, files):
    run("train", files[0], "--method", "fastxml", "--set", "n_trees=1", "--model", tmp_path / "forest")
    arguments = ("add-labels", tmp_path / "forest", files[0], "--model", tmp_path / "new")
    code, error = fails(capsys, monkeypatch, *arguments)
    assert code == 1
    assert "labels can be added to one-vs-rest models, but this is fastxml" in error
    assert not (tmp_path / "new").exists()


def test_add_labels_grows_a_model(tmp_path, files):
    data = umpteen.read_xc(files[0])
    names = [f"thing {i}" for i in range(16)]
    for part, kept in (("old", slice(0, 12)), ("new", slice(12, 16))):
        umpteen.write_xc(umpteen.Dataset(data.X, data.Y[:, kept]), tmp_path / f"{part}.txt")
        (tmp_path / f"{part}.names").write_text("".join(f"{name}\n" for name in names[kept]))
    run("train", tmp_path / "old.txt", "--method", "centroid", "--model", tmp_path / "m",
        "--label-names", tmp_path / "old.names")  # fmt: skip
    out = run("add-labels", tmp_path / "m", tmp_path / "new.txt", "--label-names", tmp_path / "new.names",
              "--model", tmp_path / "grown")  # fmt: skip
    assert "488 rows × 184 features × 4 labels" in out
    assert re.search(r"estimate   at most .* of memory .*, new shards at most", out)
    assert re.search(rf"model      {tmp_path / 'grown'} \(.*B, 2 shards, [\d.]+ s\)", out)
    assert "labels     12 as before, and the new ones 12 to 15" in out
    grown, together = umpteen.load(tmp_path / "grown", checksums=True), umpteen.Centroid().fit(data.X, data.Y)
    assert list(grown.label_names) == names
    for a, b in zip(grown.predict_topk(data.X, 16), together.predict_topk(data.X, 16), strict=True):
        np.testing.assert_array_equal(a, b)
    assert umpteen.load(tmp_path / "m").n_labels == 12
    assert "nDCG" in run("evaluate", tmp_path / "grown", files[1])


def test_other_formats(tmp_path, files):
    data = umpteen.read_xc(files[0])
    umpteen.write_npz(data, tmp_path / "d.npz")
    umpteen.write_npz(data, tmp_path / "X.npz", labels=tmp_path / "Y.npz")
    umpteen.write_svmlight(data, tmp_path / "d.svm")
    umpteen.write_xc(data, tmp_path / "one.txt", one_based=True)
    for name, *options in [
        ("d.npz",), ("X.npz", "--labels", tmp_path / "Y.npz"), ("d.svm",), ("one.txt", "--one-based"),
        ("d.svm", "--format", "svmlight", "--one-based"),
    ]:  # fmt: skip
        assert json.loads(run("inspect", tmp_path / name, "--json", "-", *options))["n_rows"] == 488


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["train", "nowhere.txt"], 1, r"error: nowhere\.txt: No such file or directory"),
        (
            ["train", "{train}", "--method", "telepathy"],
            1,
            "error: --method must be one of centroid.*, but is 'telepathy'",
        ),
        (
            ["train", "{train}", "--method", "centroid", "--set", "colour=1"],
            1,
            "error: centroid has no parameter 'colour'; its parameters are",
        ),
        (
            ["train", "{train}", "--method", "centroid", "--set", "tfidf"],
            1,
            "error: --set must be name=value, but is 'tfidf'",
        ),
        (["train", "{train}", "--method", "centroid", "--seed", "1"], 1, "error: centroid has no parameter 'seed'"),
        (["train", "{train}", "--engine", "slurm"], 1, "error: --engine must be one of local, ray, but is 'slurm'"),
        (["train", "{train}", "--model", "{model}"], 1, "error: .*a finished model is already there"),
        (
            ["train", "{train}", "--method", "centroid", "--set", "threads=1"],
            1,
            "error: --set threads=… is not possible; use --threads",
        ),
        (
            ["train", "{train}", "--method", "centroid", "--set", "labels_per_shard=abc"],
            1,
            "error: labels_per_shard must be an integer",
        ),
        (
            ["train", "{train}", "--method", "centroid", "--set", "normalize=maybe"],
            1,
            "error: normalize must be true or false, but is 'maybe'",
        ),
        (["train", "{train}", "--threads", "99999999999"], 1, "error: --threads must be at most 4096"),
        (["train", "{train}", "--valid", "nowhere.txt", "--model", "new"], 1, "error: nowhere.txt: No such file"),
        (["predict", "{model}", "{train}", "--top-k", "4611686018427387904"], 1, "error: --top-k must be at most"),
        (["predict", "{model}", "{train}", "--exclude", "²"], 1, "error: --exclude"),
        (["predict", "{model}", "{train}", "--output", "nodir/x.txt"], 1, "error: nodir/x.txt: No such file"),
        (["train", "{train}", "--colour"], 2, "No such option"),
        (["evaluate", "{train}", "{train}"], 1, "error: .*must be a directory, but is a file"),
        (["evaluate", "nowhere", "{train}"], 1, "error: nowhere: there is no such model directory"),
        (
            ["evaluate", "{model}", "{bad}"],
            1,
            r"error: .*bad\.txt:2: feature id 9999 is out of range; there are 184",
        ),
        (["prune", "{model}", "--delta", "-1", "--model", "new"], 2, "Invalid value for .--delta."),
        (["prune", "{model}", "--delta", "0.1", "--model", "{model}"], 1, "or replace it with --overwrite\n$"),
        (["prune", "{model}", "--delta", "0.1", "--model", "{train}"], 1, "must be a directory, but this is a f"),
        (["prune", "nowhere", "--delta", "0.1", "--model", "new"], 1, "error: nowhere: there is no such model"),
        (["prune", "{model}", "--model", "new"], 2, "Missing option '--delta'"),
        (["add-labels", "{model}", "{bad}", "--model", "new"], 1, "error: .*feature id 9999 is out of range"),
        (["add-labels", "{model}", "{train}", "--model", "{model}"], 1, "error: .*a finished model is already there"),
        (
            ["add-labels", "{model}", "{train}", "--model", "new", "--label-names", "{bad}"],
            1,
            "error: there must be 16 label names, but there are 2",
        ),
        (["predict", "{model}", "{train}", "--top-k", "0"], 1, "error: --top-k must be an integer of at least 1"),
        (["predict", "{model}", "{train}", "--exclude", "law"], 1, "error: --exclude"),
        (["inspect", "{bad}", "--format", "arff"], 1, "error: --format must be one of xc, svmlight, npz"),
        (["inspect", "{train}.svm", "--labels", "{train}"], 1, "--labels cannot be used with svmlight"),
        (["inspect", "x.npz", "--one-based"], 1, "are for text files, not for .npz"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(capsys, monkeypatch, tmp_path, files, model, args, code, message):
    (tmp_path / "bad.txt").write_text("1 10000 16\n0 9999:1\n")
    places = {"train": files[0], "model": model, "bad": tmp_path / "bad.txt"}
    monkeypatch.chdir(tmp_path)
    got, err = fails(capsys, monkeypatch, *(arg.format(**places) for arg in args))
    assert got == code
    assert re.search(message, err), err
    if code == 1:
        assert err.count("\n") == 1
        assert "Traceback" not in err


def test_a_blend_is_not_pruned(capsys, monkeypatch, tmp_path, tiny):
    members = [umpteen.Centroid().fit(tiny.X[:200], tiny.Y[:200]), umpteen.DiSMEC().fit(tiny.X[:200], tiny.Y[:200])]
    umpteen.Blend(members).fit(tiny.X[200:], tiny.Y[200:], tmp_path / "blend")
    command = ("prune", tmp_path / "blend", "--delta", "0.1", "--model", tmp_path / "new")
    got, err = fails(capsys, monkeypatch, *map(str, command))
    assert got == 1
    assert err == "error: only linear models have weights to prune, but this model's family is blend\n"


@pytest.mark.slow
@pytest.mark.process
def test_no_progress_bar_where_there_is_no_terminal(tmp_path, files):
    done = subprocess.run(
        [*UMPTEEN, "train", files[0], "--model", tmp_path / "quiet"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.process
def test_a_progress_bar_with_an_estimate_at_a_terminal(tmp_path, files):
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*UMPTEEN, "train", files[0], "--method", "centroid", "--model", str(tmp_path / "m"),
         "--set", "labels_per_shard=1"],
        stdout=subprocess.PIPE, stderr=child, env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(child)
    shown = b""
    try:
        while chunk := os.read(parent, 4096):
            shown += chunk
    except OSError:
        pass  # the terminal is gone with the process
    process.communicate()
    os.close(parent)
    assert process.returncode == 0
    assert b"training centroid" in shown
    assert b"16/16" in shown
    assert b"left" in shown


@pytest.mark.slow
@pytest.mark.process
def test_interrupt_says_how_to_resume_and_resume_works(tmp_path, files):
    code = (
        "import time, umpteen\n"
        "original = umpteen.Centroid.train_labels\n"
        "def slow(self, *args):\n    time.sleep(0.1)\n    return original(self, *args)\n"
        "umpteen.Centroid.train_labels = slow\n"
        "from umpteen.cli.main import main\nmain()"
    )
    args = [
        "train",
        str(files[0]),
        "--method",
        "centroid",
        "--model",
        str(tmp_path / "m"),
        "--set",
        "labels_per_shard=1",
        "--threads",
        "1",
    ]
    process = subprocess.Popen([sys.executable, "-c", code, *args], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not list((tmp_path / "m").glob("shard-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.strip() == f"interrupted; finished shards are kept in {tmp_path / 'm'}: run again with --resume"
    facts = json.loads(run("inspect", tmp_path / "m", "--json", "-"))
    assert 0 < facts["shards_done"] < facts["shards_planned"] == 16
    with pytest.raises(umpteen.errors.ModelExistsError, match="an unfinished model is there; resume"):
        run(*args)
    assert "16 shards" in run(*args, "--resume")


@pytest.mark.slow
@pytest.mark.process
def test_output_to_a_reader_that_leaves(files, model):
    command = " ".join(f"'{part}'" for part in [*UMPTEEN, "predict", model, files[1]])
    done = subprocess.run(["bash", "-c", f"{command} | head -n 1"], capture_output=True, text=True)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_synthetic_data_is_the_same_for_the_same_seed(tmp_path):
    for name in ("a", "b"):
        run("synthetic", tmp_path / name, "--like", "bibtex", "--scale", "0.05", "--seed", "1")
    for part in ("train.txt", "test.txt"):
        assert (tmp_path / "a" / part).read_bytes() == (tmp_path / "b" / part).read_bytes()


@pytest.mark.slow
@pytest.mark.process
def test_bash_completes_commands_options_and_values(tmp_path):
    bash = shutil.which("bash") or pytest.skip("no bash on this machine")
    program = tmp_path / "umpteen"
    program.write_text(f"#!{sys.executable}\nfrom umpteen.cli.main import main\nmain()\n")
    program.chmod(0o755)
    asked = (
        ("predict", "pre"),
        ("--overwrite", "predict --over"),
        ("search", "vocabulary s"),
        ("label-tree label-text", "train --method label"),
        ("wide", "predict m t.csv --labels w"),
        ("", "train records"),  # left to bash, which knows files
    )
    lines = "".join(f"ask umpteen {words}\n" for _, words in asked)
    script = f"""
        eval "$(umpteen --show-completion bash)"
        ask() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _umpteen_completion umpteen
                 echo "${{COMPREPLY[@]}}"; }}
        {lines}complete -p umpteen"""
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True, timeout=300)
    *found, registered = done.stdout.splitlines()
    assert found == [answer for answer, _ in asked], done.stderr
    assert registered.startswith("complete -o default ")
