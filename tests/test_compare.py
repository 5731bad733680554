"""Comparisons: programs run apart and measured, failures shown, studies by hand, the page and the page of results."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.comparing import studies
from umpteen.comparing.page import find_best_runs, render
from umpteen.comparing.programs import PEERS, Contestant, create_environment, parse_contestants, peer_python
from umpteen.comparing.running import Conditions, Contest, compare, last_line, unpack_hits
from umpteen.errors import ParamError, UmpteenError
from umpteen.evaluation import report

from .conftest import data_root

pytestmark = [pytest.mark.process, pytest.mark.foreign]

UMPTEEN = [sys.executable, "-c", "from umpteen.cli.main import main; main()"]


def run(*args, code=0):
    result = CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "200"})
    if code == 0 and isinstance(result.exception, UmpteenError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def peers(tmp_path_factory) -> Path:
    """Environments of the peers that this interpreter itself has."""
    root = tmp_path_factory.mktemp("peers")
    for peer, module in (("napkinxc", "napkinxc"), ("liblinear", "liblinear"), ("sklearn", "sklearn")):
        if importlib.util.find_spec(module) is not None:
            python = peer_python(peer, root)
            python.parent.mkdir(parents=True)
            python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
            python.chmod(0o755)
    return root


@pytest.fixture(scope="module")
def compared(tmp_path_factory, peers) -> tuple[Path, str]:
    """Bibtex with two of our methods, a real peer, one that fails and one that is not there."""
    folder = data_root() / "Bibtex"
    if not folder.exists():
        pytest.skip(f"no Bibtex in {data_root()}; set UMPTEEN_DATA to run this test")
    output = tmp_path_factory.mktemp("compare") / "out"
    before = os.environ.get("UMPTEEN_PEERS")
    os.environ["UMPTEEN_PEERS"] = str(peers)
    try:
        out = run(
            "compare", folder / "train.txt.xz", folder / "test.txt.xz", "--output", output,
            "--methods", "dismec,fastxml:n_trees=3", "--peers", "napkinxc,napkinxc:model=Nothing,omikuji",
            "--label-names", folder / "label_names.txt", "--baseline", "dismec", "--calibrate", "--threads", 2,
        )  # fmt: skip
    finally:
        os.environ.pop("UMPTEEN_PEERS") if before is None else os.environ.update(UMPTEEN_PEERS=before)
    return output, out


def entries(output: Path) -> dict[str, dict]:
    return {run["name"]: run for run in json.loads((output / "results.json").read_text())["runs"]}


def test_our_methods_are_judged_as_they_are_elsewhere(compared, bibtex):
    train, test = bibtex
    found = entries(compared[0])["dismec"]
    model = umpteen.DiSMEC().fit(train.X, train.Y)
    expected = umpteen.evaluate(test.Y, model.predict_topk(test.X, 5)[0], train.Y)
    for key, value in expected.items():
        assert found["metrics"][key] == pytest.approx(value, rel=1e-5)
    assert len(found["metrics"]["by_decile"]) == 10
    assert found["train_seconds"] > 0
    assert found["train_cpu_seconds"] > 0
    assert 0 < found["train_peak_bytes"] < found["estimate"]["peak_bytes"] + 50e6
    assert found["single_ms"]["p50"] <= found["single_ms"]["p95"]
    assert found["single_rows"] == 200
    assert 0 < found["predict_cpu_seconds"] < 100 * found["predict_seconds"]
    assert found["predict_cpu_ms_per_row"] == pytest.approx(
        1000 * found["predict_cpu_seconds"] / test.n_rows, rel=1e-4
    )
    assert found["predict_peak_bytes"] > 0
    kept = umpteen.load(compared[0] / "runs" / "dismec" / "model")
    np.testing.assert_array_equal(kept.predict_topk(test.X, 5)[0], model.predict_topk(test.X, 5)[0])


def test_a_peer_is_measured_alike(compared):
    found = entries(compared[0])["napkinxc"]
    if found["status"] == "failed" and "not installed" in found["error"]:
        pytest.skip("napkinxc is not installed")
    assert 62 < found["metrics"]["P@1"] < 65
    assert found["model_bytes"] > 100_000
    assert found["relative"]["train_seconds"] == pytest.approx(
        found["train_seconds"] / entries(compared[0])["dismec"]["train_seconds"], rel=1e-3
    )


def test_failures_are_shown_with_their_last_line(compared):
    output, out = compared
    found = entries(output)
    assert "not installed; run umpteen peers install omikuji" in found["omikuji"]["error"]
    if importlib.util.find_spec("napkinxc") is not None:
        error = found["napkinxc model=Nothing"]["error"]
        assert error == "exit code 1: AttributeError: module 'napkinxc.models' has no attribute 'Nothing'"
        assert error in out
    assert out.count("failed") >= 2
    assert "umpteen peers install omikuji" in (output / "report.html").read_text()


class Checker(HTMLParser):
    """Tags that are opened are closed, and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag not in ("meta", "br", "circle", "line", "rect", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("circle", "line", "rect", "polyline"):
            assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(compared):
    text = (compared[0] / "report.html").read_text()
    checker = Checker()
    checker.feed(text)
    assert not checker.open
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(drawing)
    for title in ("Accuracy", "How sure", "Time and memory", "Failed", "Time, accuracy, size", "Head and tail",
                  "Weights and pruning", "How many trees", "Can the probabilities be trusted?",
                  "Mistakes"):  # fmt: skip
        assert f"<h2>{title}</h2>" in text
    assert "fit, β = " in text
    assert "TAG_" in text


def test_studies_of_real_models(compared):
    found = entries(compared[0])
    curve = found["dismec"]["studies"]["pruning"]
    assert curve[0]["P@1"] == pytest.approx(found["dismec"]["metrics"]["P@1"], rel=1e-5)
    sizes = [at["bytes"] for at in curve]
    assert sizes == sorted(sizes, reverse=True)
    assert curve[-1]["weights"] < 0.011 * curve[0]["weights"] + 1
    assert sum(found["dismec"]["studies"]["weights"]["counts"]) == curve[0]["weights"]
    trees = found["fastxml n_trees=3"]["studies"]["trees"]
    assert [at["trees"] for at in trees] == [1, 2, 3]
    assert trees[-1]["P@1"] == pytest.approx(found["fastxml n_trees=3"]["metrics"]["P@1"], rel=1e-5)
    assert trees[0]["P@1"] < trees[-1]["P@1"]
    calibration = found["dismec"]["studies"]["calibration"]
    assert calibration["after"]["error"] < calibration["before"]["error"] / 2


def test_a_power_law_is_found_again():
    counts = (1000 * np.arange(1, 2001) ** -0.7).astype(int)
    law = studies.fit_power_law(counts)
    assert law["beta"] == pytest.approx(0.7, abs=0.03)
    assert law["first"] == pytest.approx(1000, rel=0.1)
    assert studies.fit_power_law(np.array([7]))["beta"] is None


def tiny_contest() -> Contest:
    """Label 0 is in five rows, where label 2 is given; label 1 is found always."""
    Y = sp.csr_matrix(np.array([[1, 1, 0]] * 5 + [[0, 1, 0]]))
    train = umpteen.Dataset(np.ones((3, 2)), np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1]]))
    return Contest("tiny", train, sp.csr_matrix(np.ones((6, 2), np.float32)), umpteen.Dataset(np.ones((6, 2)), Y).Y,
                   ["lost", "found", "wrong"], [f"text {i}" for i in range(6)])  # fmt: skip


def test_mistakes_by_hand():
    labels = np.array([[2, 1]] * 5 + [[1, -1]], np.int32)
    found = studies.find_mistakes(tiny_contest(), labels)
    assert found["worst"][0] == {
        "label": "lost", "train_rows": 1, "test_rows": 5, "found": 0, "wrongly_given": 0, "given_instead": ["wrong"],
    }  # fmt: skip
    assert [each["label"] for each in found["worst"]] == ["lost", "found"]  # "wrong" is in no test row
    (pair,) = found["confusions"]
    assert (pair["missed"], pair["given"], pair["rows"]) == ("lost", "wrong", 5)
    assert pair["example"] == {
        "row": 0, "true": ["lost", "found"], "text": "text 0",
        "given": [{"label": "wrong", "right": False}, {"label": "found", "right": True}],
    }  # fmt: skip


def test_texts_are_compared_by_name(tmp_path):
    rows = [{"text": "herring in the sea", "labels": ["fish", "sea"]}, {"text": "tax on wine", "labels": ["tax"]}]
    (tmp_path / "train.jsonl").write_text("\n".join(json.dumps(row) for row in rows * 20))
    more = [{"text": "wine on the sea", "labels": ["sea", "never seen"]}]
    (tmp_path / "test.jsonl").write_text("\n".join(json.dumps(row) for row in (rows + more) * 5))
    out = run("compare", tmp_path / "train.jsonl", tmp_path / "test.jsonl", "--methods", "centroid", "--name", "sea",
              "--output", tmp_path / "out", "--features", "min_df=2")  # fmt: skip
    assert "sea: 40 rows" in out
    result = json.loads((tmp_path / "out" / "results.json").read_text())
    assert result["data"]["labels_only_in_test"] == 1
    assert result["data"]["features"]["min_df"] == 2
    assert result["runs"][0]["metrics"]["n_labels"] == 4
    assert "never seen" not in (tmp_path / "out" / "report.html").read_text().split("Mistakes")[0]
    with pytest.raises(UmpteenError, match="is not empty; choose another"):
        run("compare", tmp_path / "train.jsonl", tmp_path / "test.jsonl", "--output", tmp_path / "out")


def test_a_program_that_takes_too_long_is_ended(tmp_path):
    data = umpteen.make_synthetic(300, 200, 40, labels_per_row=3, features_per_row=20, seed=7)
    contest = Contest("tiny", data, data.X, data.Y)
    result = compare(contest, [Contestant("centroid")], tmp_path, Conditions(timeout=0.05))
    assert result["runs"][0]["error"] == "stopped after 0.05 s"
    assert result["baseline"] is None
    assert "stopped after 0.05 s" in render(result)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_comparisons_leave_nothing_running(sign, tmp_path, compared):
    folder = data_root() / "Bibtex"
    child = subprocess.Popen(
        [*UMPTEEN, "compare", folder / "train.txt.xz", folder / "test.txt.xz", "--methods", "fastxml:n_trees=2000",
         "--output", tmp_path / "out"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )  # fmt: skip
    job = tmp_path / "out" / "runs" / "fastxml_n_trees=2000" / "job.json"
    for _ in range(300):
        if job.exists():
            break
        time.sleep(0.1)
    time.sleep(1)
    child.send_signal(sign)
    try:
        _, errors = child.communicate(timeout=30)
    finally:
        child.kill()
    if sign == signal.SIGINT:
        assert child.returncode == 130
        assert "interrupted; finished runs are in" in errors
    for _ in range(50):
        if not is_running(job):
            break
        time.sleep(0.1)
    assert not is_running(job)


def is_running(job: Path) -> bool:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(job).encode() in process.read_bytes():
                return True
    return False


def small_contest() -> Contest:
    train, test = (
        umpteen.make_synthetic(300, 200, 12, labels_per_row=3, features_per_row=20, seed=7, part=part)
        for part in ("train", "test")
    )
    return Contest("small", train, test.X, test.Y)


def test_seeds_train_anew(tmp_path):
    seen = []
    contestants = parse_contestants(["fastxml:n_trees=2,centroid"])
    result = compare(small_contest(), contestants, tmp_path, Conditions(seeds=3, threads=1), seen.append)
    forest, centroid = result["runs"]
    assert forest["over_runs"]["seeds"] == [0, 1, 2]
    assert centroid["over_runs"]["seeds"] == [None] * 3  # it draws no random numbers
    each = [run["metrics"]["P@1"] for run in seen if run["program"] == "fastxml"]
    assert len(set(each)) > 1  # each run shows its own figures
    for seed, p in enumerate(each):
        model = umpteen.FastXML(n_trees=2, seed=seed).fit(small_contest().train.X, small_contest().train.Y)
        labels = model.predict_topk(small_contest().test_X, 5)[0]
        assert p == pytest.approx(umpteen.evaluate(small_contest().test_Y, labels)["P@1"])
    assert forest["over_runs"]["mean"]["P@1"] == pytest.approx(np.mean(each))
    assert forest["over_runs"]["deviation"]["P@1"] == pytest.approx(np.std(each, ddof=1))
    assert centroid["over_runs"]["deviation"]["P@1"] == 0
    assert f"{np.mean(each):.2f} ± {np.std(each, ddof=1):.2f}" in render(result)
    with pytest.raises(ParamError, match="fastxml:seed=… is not possible with several seeds"):
        compare(small_contest(), parse_contestants(["fastxml:seed=3"]), tmp_path, Conditions(seeds=2))
    with pytest.raises(ParamError, match="--rounds and --seeds cannot both be above 1, but are 2 and 3"):
        run("compare", tmp_path, tmp_path, "--rounds", 2, "--seeds", 3)


def test_only_what_is_significantly_best_is_marked(tmp_path):
    contestants = parse_contestants(["dismec,dismec:prune=0.011,dismec:prune=2"])
    result = compare(small_contest(), contestants, tmp_path, Conditions(threads=1))
    found = {each["name"]: each for each in result["runs"]}
    low, high = found["dismec prune=2"]["intervals"]["P@1"]
    assert low < found["dismec prune=2"]["metrics"]["P@1"] < high
    test = result["tests"]["P@5"]
    assert test["best"] != "dismec prune=2"
    assert find_best_runs(result["tests"], "P@5") == {"dismec", "dismec prune=0.011"}
    assert find_best_runs({"P@5": {"best": "a", "p": {"b": 0.4}}}, "P@5") == set()
    marked = re.findall(r"<td class=best>([^<]*)</td>", render(result).split("<h2>How sure</h2>")[0])
    assert f"{found['dismec prune=2']['metrics']['P@5']:.2f}" not in marked
    assert f"{found['dismec']['metrics']['P@5']:.2f}" in marked
    hits = unpack_hits(found["dismec"]["hits"])
    assert 100 * hits[:, 0].mean() == pytest.approx(found["dismec"]["metrics"]["P@1"])


def test_names_and_settings():
    found = parse_contestants(["dismec,fastxml:n_trees=20:normalize=true", 'rxml:index="exact"'])
    assert [each.name for each in found] == ["dismec", "fastxml n_trees=20 normalize=true", "rxml index=exact"]
    assert found[1].params == {"n_trees": 20, "normalize": True}
    for text, words in [
        ("telepathy", "method must be one of centroid, dismec"),
        ("dismec:D=1", "dismec has no parameter 'D'"),
        ("dismec:C=-1", "C must be a finite number above 0"),
        ("dismec:threads=1", "sets it for all programs"),
        ("dismec:C", "a setting must be name=value, but is 'C'"),
        ("dismec,dismec", "dismec is named twice"),
    ]:
        with pytest.raises(ParamError, match=words):
            parse_contestants([text])
    with pytest.raises(ParamError, match="peer must be one of omikuji, napkinxc, pecos, liblinear, sklearn"):
        parse_contestants(["fasttext"], peers=True)
    with pytest.raises(ParamError, match="peer must be one of"):
        create_environment("fasttext")
    assert last_line("bar 1%\rbar 99%\n\nTraceback\nValueError: no\n\n") == "ValueError: no"


def test_installing_a_peer_says_why_it_failed(tmp_path, monkeypatch):
    monkeypatch.setenv("UMPTEEN_PEERS", str(tmp_path))
    python = peer_python("omikuji")
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"; echo "ERROR: no network"; exit 1\n')
    python.chmod(0o755)
    assert "omikuji    failed: ERROR: no network" in run("peers", "install", "omikuji", code=1)
    python.write_text("#!/bin/sh\nexit 0\n")
    assert str(python) in run("peers", "install", "omikuji")
    with pytest.raises(ParamError, match="peer must be one of omikuji, .*, but is 'fasttext'"):
        run("peers", "install", "omikuji", "fasttext")


def test_a_peer_without_packages_runs_here(tmp_path, monkeypatch):
    (tmp_path / "my_peer.py").write_text(
        "from umpteen.comparing.child import Program\n\n"
        "class Mine(Program):\n    package = 'numpy'\n\nelsewhere = open\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name, place in (("mine", "my_peer:Mine"), ("odd", "my_peer:elsewhere"), ("gone", "no_such_module:Mine")):
        monkeypatch.setitem(PEERS.own, name, place)
    assert peer_python("mine") == create_environment("mine") == Path(sys.executable)
    assert parse_contestants(["mine:a=1"], peers=True) == [Contestant("mine", {"a": 1})]
    with pytest.raises(ParamError, match="peer odd must be a class derived from umpteen.comparing.child.Program"):
        parse_contestants(["odd"], peers=True)
    listed = run("peers")
    assert f"mine       numpy                        {Path(sys.executable).parent.parent}" in listed
    assert "gone       peer gone cannot be used: no_such_module:Mine cannot be imported" in listed


def test_peers_are_listed(tmp_path, monkeypatch):
    monkeypatch.setenv("UMPTEEN_PEERS", str(tmp_path))
    python = peer_python("pecos")
    python.parent.mkdir(parents=True)
    python.touch()
    lines = {line.split()[0]: line for line in run("peers").splitlines()}
    assert list(lines) == ["omikuji", "napkinxc", "pecos", "liblinear", "sklearn"]
    assert re.fullmatch(rf"pecos +libpecos==[\d.]+ +{tmp_path}/pecos", lines["pecos"])
    assert lines["omikuji"].endswith("not installed")


@pytest.mark.parametrize("log", [False, "x", "y", True])
def test_charts_of_few_and_of_equal_values(log):
    for lines in ({"a": ([1], [5])}, {"a": ([1, 1], [5, 5]), "b<": ([1], [5])}, {"a": ([1, 1e6], [0.001, 2000])}):
        ET.fromstring(report.line_chart(lines, x_label="x", y_label="y<", log=log))
    bubbles = {"a": (1.0, 50.0, 10.0), "b": (1.0, 50.0, 10.0)}
    drawing = ET.fromstring(report.bubble_chart(bubbles, x_label="x", y_label="y"))
    assert len(drawing.findall("{*}circle")) == 2


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(("low", "high"), [(1.01e-3, 1.02e-3), (0.4, 0.41), (8.1, 8.3), (23_400, 23_900), (1, 1e6)])
def test_an_axis_has_ticks_however_near_its_values_are(log, low, high):
    drawing = ET.fromstring(report.line_chart({"a": ([low, high], [low, high])}, x_label="x", y_label="y", log=log))
    texts = [node.text or "" for node in drawing.iter("{http://www.w3.org/2000/svg}text")]
    numbers = [float(text.replace(",", "")) for text in texts if text[0].isdigit()]
    assert len(numbers) >= 6
    assert len(set(numbers)) >= 3
    if log:  # other axes begin at 0
        assert all(low * 0.9 <= number <= high * 1.1 for number in numbers)
