"""`python -m benchmarks`: comparisons that files describe, the figures kept of them, and the page of all results."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from benchmarks.__main__ import app
from benchmarks.runner import figures
from benchmarks.runner.configs import Config
from benchmarks.runner.page import write_page
from typer.testing import CliRunner

import umpteen
from umpteen.comparing.programs import parse_contestants
from umpteen.comparing.running import pack_bytes, pack_hits
from umpteen.errors import UmpteenError
from umpteen.evaluation.significance import score_hits

from .conftest import ROOT, data_root

RESULTS = ROOT / "benchmarks" / "results"


def run(*args):
    result = CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "200"})
    if isinstance(result.exception, UmpteenError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def has_bibtex(monkeypatch):
    if not (data_root() / "Bibtex").exists():
        pytest.skip(f"no Bibtex in {data_root()}; set UMPTEEN_DATA to run this test")
    monkeypatch.setenv("UMPTEEN_DATA", str(data_root()))


@pytest.mark.slow
def test_figures_are_kept_for_the_page(tmp_path, has_bibtex):
    (tmp_path / "b.toml").write_text('name = "Bibtex"\nmethods = ["centroid"]\n')
    run("run", tmp_path / "b.toml", "--output", tmp_path / "out", "--result", tmp_path / "kept" / "b.json",
        "--no-studies", "--no-times")  # fmt: skip
    kept = json.loads((tmp_path / "kept" / "b.json").read_text())
    assert "train_seconds" not in kept["runs"][0]
    assert kept["runs"][0]["train_cpu_seconds"] > 0
    assert "by_decile" not in kept["runs"][0]["metrics"]
    run("results", "--results", tmp_path / "kept", "--published", ROOT / "benchmarks" / "published.json",
        "--output", tmp_path / "page.md")  # fmt: skip
    page = (tmp_path / "page.md").read_text()
    assert f"| centroid | {kept['runs'][0]['metrics']['P@1']:.2f} /" in page  # alone it is not the best of several
    low, high = kept["runs"][0]["intervals"]["P@1"]
    assert f"| centroid | {low:.1f} to {high:.1f} |" in page
    assert "`python -m benchmarks run benchmarks/b.toml --result benchmarks/results/b.json`" in page
    assert "busy with other things too, so no times of the clock" in page
    (tmp_path / "b.toml").write_text('methods = ["centroid"]\nspeed = 1\n')
    with pytest.raises(UmpteenError, match=r"needs a name, and knows no keys but .* it has \['speed'\]"):
        run("run", tmp_path / "b.toml")


@pytest.mark.skipif(not RESULTS.exists(), reason="this copy of the project has no benchmarks/results")
def test_the_page_of_results_is_what_the_figures_say():
    page = write_page(RESULTS, ROOT / "benchmarks" / "published.json")
    assert page == (ROOT / "docs" / "RESULTS.md").read_text()


def published():
    return json.loads((ROOT / "benchmarks" / "published.json").read_text())


def test_every_published_figure_names_its_source():
    found = published()
    for entry in found["entries"]:
        assert entry["source"] in found["sources"], entry
        assert len(entry["P"]) == 3, entry
        assert all(value is None or 0 < value <= 100 for value in entry["P"]), entry
        if entry["kind"] == "paper":
            assert all(entry[key] for key in ("table", "row")), entry
    assert {entry["source"] for entry in found["entries"]} == set(found["sources"])


@pytest.mark.parametrize(
    ("data", "method", "own"),
    [
        ("EURLex-4K", "dismec", []),  # the paper has no EURLex
        ("EURLex-4K", "pdsparse", [76.3]),
        ("Bibtex", "pdsparse", [64.55]),
        ("EURLex-4K", "ppdsparse", [74.61]),
        ("Mediamill", "rxml", [86.9]),
    ],
)
def test_a_paper_is_credited_with_what_it_prints(data, method, own):
    of = [each for each in published()["entries"] if (each["data"], each.get("method")) == (data, method)]
    assert [each["P"][0] for each in of if each["source"] == method] == own


def test_disagreeing_tables_are_all_listed():
    of = [
        each for each in published()["entries"] if (each["data"], each.get("method")) == ("EURLex-4K", "pfastrexml")
    ]
    assert {each["source"]: each["P"][0] for each in of} == {"rxml": 70.07, "ppdsparse": 70.33, "repository": 75.45}


@pytest.mark.slow
def test_some_runs_are_taken_anew_and_the_others_kept(tmp_path, has_bibtex):
    (tmp_path / "b.toml").write_text('name = "Bibtex"\nmethods = ["centroid", "fastxml:n_trees=2:seed=3"]\n')
    order = ("run", tmp_path / "b.toml", "--result", tmp_path / "b.json", "--no-studies")
    run(*order, "--output", tmp_path / "first", "--only", "centroid")
    kept = json.loads((tmp_path / "b.json").read_text())
    (first,) = kept["runs"]
    assert first["umpteen_version"] == first["version"] == umpteen.__version__
    assert first["machine"]["cores"] >= 1
    assert first["seed"] is None  # centroids draw no random numbers
    first |= {"taken": "2001-02-03T04:05:06+00:00", "machine": first["machine"] | {"cpu": "abacus"}}
    first |= {"umpteen_version": "0.0.1", "threads": 77}
    (tmp_path / "b.json").write_text(json.dumps(kept))
    run(*order, "--output", tmp_path / "second", "--only", "fastxml")
    kept = json.loads((tmp_path / "b.json").read_text())
    assert [each["name"] for each in kept["runs"]] == ["centroid", "fastxml n_trees=2 seed=3"]
    assert kept["runs"][0] == first
    second = kept["runs"][1]
    assert second["seed"] == 3
    assert second["taken"] > "2026"
    assert (second["machine"]["cpu"], second["threads"]) != ("abacus", 77)
    page = write_page(tmp_path, ROOT / "benchmarks" / "published.json")
    assert re.search(r"^abacus, .*; 77 threads; umpteen 0.0.1. Taken: .* at 2001-02-03 04:05 UTC\.<br>", page, re.M)
    assert f"umpteen {umpteen.__version__}. Taken: fastxml n_trees=2 seed=3 at {second['taken'][:10]}" in page
    with pytest.raises(UmpteenError, match="'rxml' is none of centroid, fastxml n_trees=2 seed=3"):
        run(*order, "--output", tmp_path / "third", "--only", "rxml")
    other = kept | {"data": kept["data"] | {"name": "EURLex-4K"}}
    with pytest.raises(UmpteenError, match="the figures kept are of EURLex-4K, these are of Bibtex"):
        figures.merge_figures(other, kept)


def test_figures_with_one_date_for_all_runs_are_read(tmp_path):
    stamps = {"taken": "2026-01-02T03:04:05+00:00", "machine": {"cpu": "abacus"}, "threads": 2, "rounds": 1,
              "umpteen_version": "0.1.0", "baseline": "omikuji"}  # fmt: skip
    runs = [{"name": "centroid", "version": "0.1.0"}, {"name": "omikuji", "version": "0.5.2"}]
    old = {"format": 1, "data": {"name": "a"}, **stamps, "runs": runs}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(old))
    assert figures.read_figures(path) == {
        "format": 2, "data": {"name": "a"}, "runs": [each | stamps | {"timed": True} for each in runs],
    }  # fmt: skip
    path.write_text(json.dumps(old | {"format": 3}))
    with pytest.raises(UmpteenError, match="a.json: format must be 1 or 2, but is 3"):
        figures.read_figures(path)
    path.write_text("{")
    with pytest.raises(UmpteenError, match="a.json: not JSON"):
        figures.read_figures(path)


@pytest.mark.skipif(not RESULTS.exists(), reason="this copy of the project has no benchmarks/results")
def test_every_kept_run_says_where_it_is_from():
    kept = [found for path in RESULTS.glob("*.json") if (found := figures.read_figures(path)) is not None]
    runs = [each for found in kept for each in found["runs"]]
    assert len(runs) > 100
    for each in runs:
        assert {*figures.STAMPS, "version", "seed"} <= set(each), each["name"]


def test_the_baseline_runs_with_whatever_is_chosen():
    known = parse_contestants(["centroid,fastxml:n_trees=2,dismec"]) + parse_contestants(
        ["omikuji,pecos"], peers=True
    )
    chosen = Config("a", known).choose("fastxml n_trees=2,dismec")
    assert [each.name for each in chosen] == ["fastxml n_trees=2", "dismec", "omikuji"]
    runs = [{"name": "omikuji", "at": 1}, {"name": "dismec", "at": 1}]
    old = {"data": {"name": "a"}, "baseline": "omikuji", "runs": runs}
    new = old | {"runs": [{"name": "dismec", "at": 2}, {"name": "omikuji", "at": 2}]}
    assert figures.merge_figures(old, new)["runs"] == [{"name": "omikuji", "at": 1}, {"name": "dismec", "at": 2}]


def test_a_run_taken_anew_without_times_keeps_the_old_ones_if_it_is_the_same():
    def keep(value, **more):
        return {"data": {"name": "a"}, "runs": [{"name": "x", "metrics": {"P@1": value}, **more}]}

    old = keep(12.3457, train_seconds=7, taken="then", timed=True)
    new = keep(12.345678, hits="H", taken="now", timed=False)
    (run,) = figures.merge_figures(old, new)["runs"]
    assert run == old["runs"][0] | {"hits": "H"}
    (run,) = figures.merge_figures(old, keep(12.35, taken="now", timed=False))["runs"]
    assert run == {"name": "x", "metrics": {"P@1": 12.35}, "taken": "now", "timed": False}


def test_without_times_of_the_clock_the_page_has_ratios_of_processor_times(tmp_path):
    runs = []
    for name, seconds in (("dismec", 3.0), ("omikuji", 4.0)):
        times = {"train_seconds": 10 * seconds, "train_cpu_seconds": seconds}
        relative = {"train_seconds": 0.11, "train_cpu_seconds": seconds / 4, "model_bytes": 1.0}
        metrics = {f"{metric}@{k}": 50.0 for metric in ("P", "nDCG", "PSP") for k in (1, 3, 5)}
        run = {"name": name, "program": name, "peer": name == "omikuji", "status": "done", "model_bytes": 1}
        deciles = [{"lowest_frequency": 1, "highest_frequency": 2, "recall@5": 3.0}]
        runs.append(run | times | {"metrics": metrics | {"by_decile": deciles}, "relative": relative, "version": "1"})
    data = {"name": "a", "train_rows": 1, "test_rows": 5, "n_features": 1, "n_labels": 5, "labels_per_row": 1}
    machine = dict.fromkeys(("cpu", "cores", "memory_bytes", "simd", "system", "python"), 1)
    result = {"data": data, "runs": runs, "taken": "2026-01-02T03:04:05+00:00", "machine": machine, "threads": 2}
    result |= {"rounds": 1, "umpteen_version": "0", "baseline": "omikuji"}
    for times, shown in ((True, "0.11"), (False, "0.75 cpu")):
        kept = figures.keep_figures(result, times=times)
        assert ("train_seconds" in kept["runs"][0]) == times
        (tmp_path / "a.json").write_text(json.dumps(kept))
        page = write_page(tmp_path, ROOT / "benchmarks" / "published.json")
        assert f"| {shown} | – | " in next(line for line in page.splitlines() if line.startswith("| dismec |"))
        assert ("no times of the clock" in page) != times


def test_bold_is_what_kept_hits_show_to_be_best(tmp_path):
    random = np.random.default_rng(3)
    n_true = np.ones(500, np.int64)
    runs = []
    for name, rate in (("dismec", 0.8), ("ppdsparse", 0.79), ("centroid", 0.5)):
        hits = np.zeros((500, 5), bool)
        hits[:, 0] = random.random(500) < rate
        metrics = {key: each.value for key, each in score_hits(hits, n_true).items()}
        metrics |= {f"PSP@{k}": 1.0 for k in (1, 3, 5)}
        intervals = dict.fromkeys(metrics, (1, 2))
        stamps = dict.fromkeys(figures.STAMPS, 1) | {"taken": "2026-01-02T03:04:05+00:00", "baseline": None}
        stamps["machine"] = dict.fromkeys(("cpu", "cores", "memory_bytes", "simd", "system", "python"), 1)
        run = {"name": name, "program": name, "peer": False, "status": "done", "metrics": metrics, "model_bytes": 1}
        runs.append(run | {"hits": pack_hits(hits), "intervals": intervals, **stamps})
    data = {"name": "a", "train_rows": 1, "test_rows": 500, "n_features": 1, "n_labels": 5, "labels_per_row": 1,
            "n_true": pack_bytes(n_true)}  # fmt: skip
    (tmp_path / "a.json").write_text(json.dumps({"format": 2, "data": data, "runs": runs}))
    page = write_page(tmp_path, ROOT / "benchmarks" / "published.json")
    first = {run["name"]: f"{run['metrics']['P@1']:.2f}" for run in runs}
    for name in ("dismec", "ppdsparse"):
        assert f"| {name} | **{first[name]}** /" in page
    assert f"| centroid | {first['centroid']} /" in page
    assert re.search(r"\| centroid \| 1.0 to 2.0 .* \| < 0.01 / < 0.01 / < 0.01 \|", page)
    del runs[1]["hits"]  # a run that cannot be tested is not bold
    (tmp_path / "a.json").write_text(json.dumps({"format": 2, "data": data, "runs": runs}))
    assert f"| ppdsparse | {first['ppdsparse']} /" in write_page(tmp_path, ROOT / "benchmarks" / "published.json")


def test_a_baseline_taken_anew_alone_is_kept():
    old = {"data": {"name": "a"}, "baseline": "centroid", "runs": [{"name": "centroid", "at": 1}]}
    new = old | {"runs": [{"name": "centroid", "at": 2}]}
    assert figures.merge_figures(old, new)["runs"] == [{"name": "centroid", "at": 2}]
    old = old | {"baseline": "omikuji", "runs": [{"name": "omikuji", "at": 1}]}
    new = old | {"runs": [{"name": "omikuji", "at": 2}]}
    assert figures.merge_figures(old, new)["runs"] == [{"name": "omikuji", "at": 2}]
