"""What a notebook shows."""

from __future__ import annotations

import sys

import pytest

import umpteen
from umpteen.progress import Progress, in_notebook, progress_bar, tell_in_lines
from umpteen.storage.names import Names
from umpteen.tagger import Suggestions

from .test_cli_text import LABELS, TEXTS


@pytest.fixture(scope="module")
def tagger():
    return umpteen.Tagger("dismec").fit(TEXTS * 8, [[*names, "<i>odd</i>"] for names in LABELS] * 8)


def test_suggestions_are_lists_and_tables(tagger):
    found = tagger.suggest("wine tax", 2)
    assert isinstance(found, Suggestions)
    assert found == list(found)
    several = tagger.suggest(["wine tax", "the sea"], 1)
    assert [type(each) for each in several] == [Suggestions, Suggestions]
    shown = tagger.suggest("wine", 5)._repr_html_()
    assert "&lt;i&gt;odd" in shown
    assert "<i>" not in shown


def test_taggers_metrics_and_methods_are_tables(tagger):
    shown = tagger._repr_html_()
    assert "<td>labels</td><td>5</td>" in shown
    assert "not fitted" in umpteen.Tagger()._repr_html_()
    metrics = tagger.evaluate(TEXTS, LABELS)
    for text in ("<td>nDCG</td>", "<td>per row</td>", f"<td>{metrics['P@3']:.2f}</td>"):
        assert text in metrics._repr_html_()
    method = umpteen.DiSMEC(C=0.25)._repr_html_()
    assert ">C</td><th " in method
    assert ">prune</td><td " in method


def test_progress_is_lines_of_text(capsys):
    times = iter([0.0, 2.0, 10.0, 20.0])
    listen = tell_in_lines("training", clock=lambda: next(times))
    for done in (0, 5, 10, 15, 50, 51, 100, 100):
        listen(Progress(done, 100, done // 50, 2))
    assert capsys.readouterr().out.splitlines() == [
        "training: 10%, shard 0/2, 2 s, 18 s left",
        "training: 50%, shard 1/2, 10 s, 10 s left",
        "training: 100%, shard 2/2, 20 s, 0 s left",
    ]


def test_without_a_notebook_or_a_terminal_nothing_is_printed(capsys, monkeypatch):
    assert not in_notebook()
    with progress_bar("training") as listen:
        listen(Progress(1, 1, 1, 1))
    assert capsys.readouterr() == ("", "")

    class ZMQInteractiveShell:
        pass

    ipython = type(sys)("IPython")
    ipython.get_ipython = ZMQInteractiveShell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert in_notebook()
    data = umpteen.make_synthetic(200, 50, 5, seed=0)
    umpteen.DiSMEC().fit(data.X, data.Y, progress=True)
    assert ": 100%, shard 1/1, " in capsys.readouterr().out


def test_explanations_and_lists_of_labels_are_shown(tagger):
    why = tagger.explain("wine tax", "wine")._repr_html_()
    assert "<table>" in why
    assert "wine" in why
    assert "<li>&lt;i&gt;odd&lt;/i&gt;</li>" in tagger.classes_._repr_html_()
    assert "more" not in tagger.classes_._repr_html_()
    many = Names.encode([f"label {i}" for i in range(1050)])._repr_html_()
    assert many.endswith("<li>label 19</li></ol><p>… and 1,030 more</p>")
