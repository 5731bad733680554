"""Reports: figures by hand, and a page that a browser shows."""

from __future__ import annotations

import csv
import json
import re
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.errors import ParamError
from umpteen.evaluation.metrics import find_hits
from umpteen.evaluation.per_label import find_confusions, judge_labels, sweep_thresholds
from umpteen.reporting.findings import examine_texts
from umpteen.reporting.page import render

from .contrast import find_faint
from .test_cli_text import LABELS, TEXTS, run

Y = sp.csr_matrix(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], np.float32))
GIVEN = np.array([[0, 2], [2, -1], [2, -1], [-1, -1]], np.int32)


def test_labels_by_hand():
    probabilities = np.array([[0.9, 0.6], [0.8, 0], [0.7, 0], [0, 0]])
    found = judge_labels(Y, GIVEN, GIVEN, probabilities)
    assert found.support.tolist() == [2, 2, 1]
    assert found.tp.tolist() == [1, 0, 1]
    assert found.fp.tolist() == [0, 0, 2]
    assert found.fn.tolist() == [1, 2, 0]
    assert found.precision.tolist() == [1, 0, pytest.approx(1 / 3)]
    assert found.recall.tolist() == [0.5, 0, 1]
    assert found.F1.tolist() == [pytest.approx(2 / 3), 0, 0.5]
    assert found.calibration[0] == pytest.approx(-0.1)
    assert np.isnan(found.calibration[1])
    assert found.calibration[2] == pytest.approx(0.7 - 1 / 3)


def test_confusions_by_hand_and_against_loops():
    assert find_confusions(Y, GIVEN) == [(1, 2, 2)]
    random = np.random.default_rng(0)
    dense = random.random((40, 6)) < 0.4
    given = np.array([random.permutation(6)[:3] for _ in range(40)], np.int32)
    expected = {}
    for row, ids in zip(dense, given.tolist(), strict=True):
        for missed in set(np.flatnonzero(row).tolist()) - set(ids):
            for wrong in [label for label in ids if not row[label]]:
                expected[missed, wrong] = expected.get((missed, wrong), 0) + 1
    found = find_confusions(sp.csr_matrix(dense.astype(np.float32)), given, 1000)
    assert {(a, b): n for a, b, n in found} == expected
    assert [n for _, _, n in found] == sorted(expected.values(), reverse=True)


def test_other_thresholds_against_counting():
    random = np.random.default_rng(1)
    dense = sp.csr_matrix((random.random((30, 8)) < 0.3).astype(np.float32))
    ranked = np.array([random.permutation(8)[:5] for _ in range(30)], np.int32)
    values = -np.sort(-random.random((30, 5)))
    found = sweep_thresholds(dense, ranked, values, points=7)
    hits = find_hits(dense, ranked)
    for i, threshold in enumerate(found["threshold"]):
        given = values >= threshold
        right = (given & hits).sum()
        assert found["precision"][i] == pytest.approx(right / max(given.sum(), 1))
        assert found["recall"][i] == pytest.approx(right / dense.nnz)
        assert found["labels_per_row"][i] == pytest.approx(given.sum() / 30)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    rows = [
        {"text": text, "labels": labels, "n": i} for i, (text, labels) in enumerate(zip(TEXTS, LABELS, strict=True))
    ]
    rows += [{"text": "wine <b>in</b> the sea", "labels": ["fish", "never seen"], "n": 99}]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    umpteen.Tagger("dismec").fit(TEXTS * 8, LABELS * 8).save(folder / "m")
    return folder


def test_figures_are_those_of_evaluate(place):
    tagger = umpteen.load(place / "m")
    corpus = umpteen.read_corpus(place / "test.jsonl", id="n")
    found = examine_texts(tagger, corpus.texts, corpus.labels, corpus.ids, k=(1, 2))
    assert dict(found.metrics) == dict(tagger.evaluate(corpus.texts, corpus.labels, k=(1, 2)))
    assert found.metrics.decisions == tagger.evaluate(corpus.texts, corpus.labels).decisions
    for name, (low, high) in found.intervals.items():
        kind, _, measure = name.rpartition(" ")
        value = (
            getattr(getattr(found.metrics.decisions, kind.replace(" ", "_")), measure)
            if kind
            else found.metrics[name]
        )
        assert low - 1e-9 <= value <= high + 1e-9, name
    decided = {f"{kind} {name}" for kind in ("micro", "macro", "per row") for name in ("precision", "recall", "F1")}
    assert set(found.intervals) == set(found.metrics) | decided  # every measure has one
    text = render(found, "a <title>", ["facts & figures"])
    assert "a &lt;title&gt;" in text
    assert "<b>in</b>" not in text
    assert "no training row had this label" in text
    assert "99: wine &lt;b&gt;in" in text


def test_every_cut_has_intervals_and_groups_of_labels(place):
    """Also one beyond the number of labels, which is four."""
    tagger = umpteen.load(place / "m")
    corpus = umpteen.read_corpus(place / "test.jsonl")
    found = examine_texts(tagger, corpus.texts, corpus.labels, k=(2, 7, 60))
    low, high = found.intervals["P@7"]
    assert low <= found.metrics["P@7"] <= high
    assert set(found.metrics) <= set(found.intervals)
    shown = render(found, "", [])
    groups = shown.partition('<table class="groups">')[2].partition("</table>")[0]
    assert groups.count('colspan="3"') == 4
    for cut in (2, 7, 60):
        assert groups.count(f'<th scope="col">@{cut}</th>') == 4
    numbers = [re.findall("<td>(.*?)</td>", row) for row in groups.partition("<tbody>")[2].split("</tr>")[:-1]]
    assert [row[4:] for row in numbers] == [
        [f"{each[f'{name}@{cut}']:.2f}" for name in ("P", "recall", "microF1", "coverage") for cut in (2, 7, 60)]
        for each in found.metrics.by_decile
    ]


def test_unknown_words_are_counted_by_rows(place, monkeypatch):
    tagger = umpteen.load(place / "m")
    texts = ["zebra <i> zebra wine", "zebra quark", "wine", "yak"]
    found = examine_texts(tagger, texts, [["wine"]] * 4)
    assert found.unknown_words == [("zebra", 2), ("quark", 1), ("yak", 1)]  # a single letter is no word
    assert "zebra (2), quark (1), yak (1)" in render(found, "", [])
    monkeypatch.setattr("umpteen.reporting.findings._MOST_TEXTS", 2)
    found = examine_texts(tagger, texts, [["wine"]] * 4)
    assert found.unknown_words == [("yak", 1), ("zebra", 1)]  # of the first row and the last
    assert "Counted in 2 of 3 such rows." in render(found, "", [])


def test_a_label_comes_with_three_rows_at_most(place):
    tagger = umpteen.load(place / "m")
    texts = [f"wine tax number {i}" for i in range(5)]
    shown = render(examine_texts(tagger, texts, [["fish"]] * 5), "", [])
    missed = shown.partition("<h2>Most missed")[2].partition("<h2>Most over")[0]
    assert "fish: missed in 5 of 5 rows" in missed
    assert [f"number {i}" in missed for i in range(5)] == [True, True, True, False, False]


def test_the_command_and_its_csv(place):
    out = run("report", place / "m", place / "test.jsonl", "--output", place / "r.html", "--k", "1,2",
              "--per-label", place / "l.csv", "--id-field", "n")  # fmt: skip
    assert f"report     {place / 'r.html'}" in out
    with (place / "l.csv").open(newline="") as file:
        found = {row["label"]: row for row in csv.DictReader(file)}
    assert found["never seen"]["fn"] == "1"
    assert found["sea"]["support"] == "3"
    run("evaluate", place / "m", place / "test.jsonl", "--per-label", place / "e.csv", "--json", place / "m.json")
    assert (place / "e.csv").read_text() == (place / "l.csv").read_text()
    all_given = run("evaluate", place / "m", place / "test.jsonl", "--threshold", "0")
    assert "labels given, from 0.00 on: 4.00 a row" in all_given
    for bad in ("0", "a", "1,5000", ""):
        with pytest.raises(ParamError, match="--k must be whole numbers from 1 to 1000"):
            run("evaluate", place / "m", place / "test.jsonl", "--k", bad)


def test_models_of_numbers_have_reports_too(tmp_path):
    data = umpteen.make_synthetic(300, 100, 12, seed=3)
    umpteen.DiSMEC().fit(data.X, data.Y).save(tmp_path / "m")
    umpteen.write_xc(data, tmp_path / "test.txt")
    run("report", tmp_path / "m", tmp_path / "test.txt", "--output", tmp_path / "r.html")
    assert "<h2>Most missed labels</h2>" in (tmp_path / "r.html").read_text()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.foreign
def test_the_page_sorts_and_fits_a_telephone(place):
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium")
    if browser_path is None:
        pytest.skip("there is no Chromium")
    run("report", place / "m", place / "test.jsonl", "--output", place / "p.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        problems = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or problems.append(request.url))
        page.goto((place / "p.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert find_faint(page, 200) == [], scheme
        label = page.locator("table.sortable tbody td").first
        before = label.bounding_box()
        page.locator(".tall").evaluate("box => { box.scrollLeft = 200; }")
        assert label.bounding_box() == before  # what a row is about stays in sight
        column = page.locator("table.sortable tbody tr td:first-child")
        page.click("table.sortable th:first-child")
        down = column.all_inner_texts()
        page.click("table.sortable th:first-child")
        assert down == sorted(down, reverse=True)
        assert column.all_inner_texts() == sorted(down)
        browser.close()
    assert not problems
