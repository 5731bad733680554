"""The code in the documentation runs."""

from __future__ import annotations

import csv
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import umpteen
from umpteen.data.tables.reading import open_table
from umpteen.methods import METHODS, method_class
from umpteen.models.families import FAMILIES

from .conftest import ROOT
from .test_tagger import cooking  # noqa: F401  (a fixture)


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_from_text_to_tags(cooking, tmp_path, monkeypatch):  # noqa: F811
    for part, corpus, n in (("train", cooking[0], 4000), ("test", cooking[1], 1000)):
        rows = (json.dumps({"text": text, "labels": labels}) for text, labels in list(corpus)[:n])
        (tmp_path / f"{part}.jsonl").write_text("\n".join(rows))
    monkeypatch.chdir(tmp_path)
    code = blocks("from_text_to_tags.md")
    assert len(code) >= 10
    names: dict = {}
    for block in code:
        exec(compile(block, "docs/from_text_to_tags.md", "exec"), names)
    assert names["metrics"]["P@1"] > 50
    assert "goldfish" in [name for name, _ in names["tagger"].suggest("a goldfish", 5)]
    assert names["tagger"].suggest("How do I season a cast iron pan?", 1)[0][0] == "cast-iron"


def commands(page: str) -> list[str]:
    """The command lines of a page, in order."""
    found = re.findall(r"^```bash\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in found for line in block.splitlines()]


def write_records(corpus, path, *, labelled=True, encoding="utf-8-sig"):
    """Questions about cooking as Excel would write them in Germany."""
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["number", "title", *(["subjects"] if labelled else [])])
        for i, (text, labels) in enumerate(corpus):
            writer.writerow([f"q{i}", text, *(["|".join(labels)] if labelled else [])])


def run_page(page):
    """Runs the commands of a page, and returns what each printed."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return {
        line: subprocess.run(line, shell=True, env=environment, capture_output=True, text=True, check=True).stdout
        for line in commands(page)
    }


@pytest.mark.slow
@pytest.mark.process
def test_your_spreadsheet(cooking, tmp_path, monkeypatch):  # noqa: F811
    train = list(cooking[0])[:1500]
    test = list(cooking[1])[:200]
    write_records(train, tmp_path / "records.csv")
    write_records(test, tmp_path / "new.csv", labelled=False)
    write_records(test[:20], tmp_path / "corrected.csv", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    printed = run_page("spreadsheet.md")
    assert (
        "csv, semicolon between columns, UTF-8 with a byte order mark; 1,500 rows, 3 columns"
        in printed["umpteen inspect records.csv"]
    )
    assert "cast-iron" in printed["umpteen labels books.model cast-irn"]
    for name in ("labelled.csv", "labelled.xlsx", "lists.csv", "labelled-too.csv", "baking.csv"):
        rows = [row for _, row in open_table(tmp_path / name)]
        assert [row["number"] for row in rows] == [f"q{i}" for i in range(200)], name
    allowed = {*(tmp_path / "baking.txt").read_text().splitlines(), ""}
    assert {row["label_1"] for row in rows} <= allowed
    assert len(allowed) > 2
    assert len(list(open_table(tmp_path / "lines.tsv"))) > 200


@pytest.mark.slow
@pytest.mark.process
def test_reports(cooking, tmp_path, monkeypatch):  # noqa: F811
    write_records(list(cooking[1])[:300], tmp_path / "test.csv")
    train = cooking[0]
    fields = umpteen.read_corpus([], text="title", labels="subjects", label_delimiter="|").fields
    umpteen.Tagger("centroid").fit(train.texts[:1500], train.labels[:1500], fields=fields).save(
        tmp_path / "books.model"
    )
    monkeypatch.chdir(tmp_path)
    run_page("reports.md")
    page = (tmp_path / "report.html").read_text()
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")  # opens offline
    for title in re.findall(r"^\| ([A-Z][^|]+?) \|", (ROOT / "docs" / "reports.md").read_text(), re.MULTILINE):
        assert f"<h2>{title.split(',')[0]}" in page
    assert (tmp_path / "labels.csv").read_text().startswith("label,training_rows,support,tp,fp,fn,precision,recall")
    assert "P@10" in json.loads((tmp_path / "metrics.json").read_text())


def test_home():
    (code,) = blocks("index.md")
    texts = ["cast iron rusts in water", "season a cast iron pan", "scrambled eggs", "eggs and a pan"] * 25
    labels = [["cast-iron"], ["cast-iron", "pan"], ["eggs"], ["eggs", "pan"]] * 25
    names: dict = {"umpteen": umpteen, "texts": texts, "labels": labels}
    exec(compile(code, "docs/index.md", "exec"), names)
    assert names["tagger"].suggest("How do I season a cast iron pan?", 1)[0][0] == "cast-iron"


#: Pages whose blocks belong together, or need another process; tests of their own run them.
APART = {"index.md", "from_text_to_tags.md", "many_machines.md"}
PAGES = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) and page not in APART])
def test_blocks_run_by_themselves(page, tmp_path):
    code = blocks(page)
    assert code
    for i, block in enumerate(code):
        file = tmp_path / f"block_{i}.py"
        file.write_text(block)
        runpy.run_path(str(file), run_name=file.stem)  # as a module, whose classes can be pickled


@pytest.mark.parametrize("page", [*PAGES, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md"])
def test_links_lead_somewhere(page):
    file = ROOT / "docs" / page
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", file.read_text()):
        assert (file.parent / target).exists(), target


def test_every_public_name_is_in_the_reference():
    pages = "".join((ROOT / "docs" / page).read_text() for page in PAGES)
    described = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE)}
    assert described >= {*umpteen.__all__} - {"__version__"}


def test_every_method_has_a_page():
    for name in METHODS:
        page = f"methods/{name.replace('-', '_')}.md"
        assert page in PAGES
        assert f"<!-- numbers: {name} -->" in (ROOT / "docs" / page).read_text()
        assert page in (ROOT / "mkdocs.yml").read_text()


def test_the_architecture_page_has_all_rooms_in_order_and_all_families():
    page = (ROOT / "docs" / "architecture.md").read_text()
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [name.removeprefix("umpteen.") for layer in contract["layers"] for name in layer.split(" | ")]
    table = page.split("| room in")[1].split("\n\n")[0]
    listed = re.findall(r"`(\w+)(?:/|\.py)`", "\n".join(row.split(" | ")[0] for row in table.splitlines()[2:]))
    assert listed == layers
    for family, place in FAMILIES.items():
        file = place.split(":")[0].removeprefix("umpteen.").replace(".", "/")
        assert re.search(rf"^\| `{family}`: [\w, ]+ \| `{file}\.py` \|", page, re.MULTILINE)


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_page_lists_what_the_method_has(name):
    page = (ROOT / "docs" / "methods" / f"{name.replace('-', '_')}.md").read_text()
    (listed,) = re.findall(r"members: \[(.*)\]", page)
    has = [member for member in ("add_labels", "add_trees", "pruned") if hasattr(method_class(name), member)]
    assert listed.split(", ") == ["fit", "predict_topk", *has]


@pytest.mark.foreign
@pytest.mark.process
def test_many_machines(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed; pip install 'umpteen[ray]'")
    (code,) = blocks("many_machines.md")
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(Path(umpteen.__file__).parent.parent)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert umpteen.load(tmp_path / "laptop.model").n_labels == 100
