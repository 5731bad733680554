"""`python -m benchmarks`: comparisons that files describe, the figures kept of them, and the page of all results."""

from __future__ import annotations

import json

import pytest
from benchmarks.__main__ import app
from benchmarks.runner import figures
from benchmarks.runner.configs import Config
from benchmarks.runner.page import write_page
from typer.testing import CliRunner

from umpteen.comparing.programs import parse_contestants
from umpteen.errors import UmpteenError

from .conftest import ROOT, data_root


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


def test_figures_are_kept_for_the_page(tmp_path, has_bibtex):
    (tmp_path / "b.toml").write_text('name = "Bibtex"\nmethods = ["centroid"]\n')
    run("run", tmp_path / "b.toml", "--output", tmp_path / "out", "--result", tmp_path / "kept" / "b.json",
        "--no-studies", "--no-times")  # fmt: skip
    kept = json.loads((tmp_path / "kept" / "b.json").read_text())
    assert "train_seconds" not in kept["runs"][0]
    assert "by_decile" not in kept["runs"][0]["metrics"]
    run("results", "--results", tmp_path / "kept", "--published", ROOT / "benchmarks" / "published.json",
        "--output", tmp_path / "page.md")  # fmt: skip
    page = (tmp_path / "page.md").read_text()
    assert f"| centroid | **{kept['runs'][0]['metrics']['P@1']:.2f}**" in page
    assert "no times" in page
    (tmp_path / "b.toml").write_text('methods = ["centroid"]\nspeed = 1\n')
    with pytest.raises(UmpteenError, match=r"needs a name, and knows no keys but .* it has \['speed'\]"):
        run("run", tmp_path / "b.toml")


def test_the_page_of_results_is_what_the_figures_say():
    if not (ROOT / "benchmarks" / "results").exists():
        pytest.skip("this copy of the project has no benchmarks/results")
    page = write_page(ROOT / "benchmarks" / "results", ROOT / "benchmarks" / "published.json")
    assert page == (ROOT / "docs" / "RESULTS.md").read_text()


def test_some_runs_are_taken_anew_and_the_others_kept(tmp_path, has_bibtex):
    (tmp_path / "b.toml").write_text('name = "Bibtex"\nmethods = ["centroid", "dismec:C=0.3"]\n')
    order = ("run", tmp_path / "b.toml", "--result", tmp_path / "b.json", "--no-studies")
    run(*order, "--output", tmp_path / "first", "--only", "centroid")
    (first,) = json.loads((tmp_path / "b.json").read_text())["runs"]
    run(*order, "--output", tmp_path / "second", "--only", "dismec")
    kept = json.loads((tmp_path / "b.json").read_text())
    assert [each["name"] for each in kept["runs"]] == ["centroid", "dismec C=0.3"]
    assert kept["runs"][0] == first
    with pytest.raises(UmpteenError, match="'rxml' is none of centroid, dismec C=0.3"):
        run(*order, "--output", tmp_path / "third", "--only", "rxml")
    other = kept | {"data": kept["data"] | {"name": "EURLex-4K"}}
    with pytest.raises(UmpteenError, match="the figures kept are of EURLex-4K, these are of Bibtex"):
        figures.merge_figures(other, kept)


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


def test_a_baseline_taken_anew_alone_is_kept():
    old = {"data": {"name": "a"}, "baseline": "centroid", "runs": [{"name": "centroid", "at": 1}]}
    new = old | {"runs": [{"name": "centroid", "at": 2}]}
    assert figures.merge_figures(old, new)["runs"] == [{"name": "centroid", "at": 2}]
    old = old | {"baseline": "omikuji", "runs": [{"name": "omikuji", "at": 1}]}
    new = old | {"runs": [{"name": "omikuji", "at": 2}]}
    assert figures.merge_figures(old, new)["runs"] == [{"name": "omikuji", "at": 2}]
