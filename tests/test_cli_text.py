"""The command line on texts."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.demo import gather_corpus
from umpteen.storage.store import kept_metrics

TEXTS = ["herring quotas in the north sea", "cod quotas in the sea", "a tax on wine", "wine and beer tax", "the sea"]
LABELS = [["fish", "sea"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"], ["sea"]]


def run(*args, code=0):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    if code == 0 and result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    rows = [{"text": text, "labels": labels} for text, labels in zip(TEXTS * 8, LABELS * 8, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m"
    run("train", corpus, "--method", "dismec", "--model", path)
    return path


def test_a_text_becomes_a_row_once(model, monkeypatch):
    """However much is asked of it: labels, words, reasons."""
    from umpteen.serving.schema import ExplainRequest
    from umpteen.serving.served import OpenModel
    from umpteen.text.tfidf import Tfidf
    from umpteen.trained.model import TrainedModel

    served = OpenModel(str(model), threads=1)
    calls = []
    for cls, name in ((Tfidf, "transform"), (TrainedModel, "explain")):
        whole = getattr(cls, name)
        monkeypatch.setattr(cls, name, lambda *a, _f=whole, _n=name, **k: (calls.append(_n), _f(*a, **k))[1])
    run("suggest", model, "wine tax in the sea", "--top-k", 2, "--explain")
    assert calls == ["transform", "explain", "explain"]
    calls.clear()
    served.explain(ExplainRequest(text="wine tax"))
    assert calls == ["transform", "explain"]


def test_train_says_what_it_reads_and_how_good_it_is(corpus, tmp_path):
    out = run("train", corpus, "--method", "dismec", "--model", tmp_path / "m", "--valid", corpus,
              "--features", "ngram_range=[1,2]", "--features", "min_df=2")  # fmt: skip
    assert "40 texts, 18 characters each" in out
    assert "40 rows ×" in out
    assert "estimate   at most" in out
    assert "P         100.00" in out
    tagger = umpteen.load(tmp_path / "m")
    assert tagger.get_params()["features__ngram_range"] == (1, 2)
    assert "north sea" in tagger.features_.get_feature_names_out()


def test_train_says_what_few_texts_cannot_show(tmp_path):
    file = tmp_path / "few.jsonl"
    file.write_text(
        "".join(json.dumps({"text": f"a cat {word}", "labels": ["cat"]}) + "\n" for word in ("purrs", "eats"))
    )
    output = run("train", file, "--model", tmp_path / "m")
    assert "note: 1 labels on every row: nothing shows when they are wrong" in output
    assert "too few texts with labels to learn probabilities: labels get scores between 0 and 1" in output


def test_suggest(model, tmp_path):
    out = run("suggest", model, "wine tax", "--top-k", "2")
    assert {line.split()[0] for line in out.splitlines()} == {"tax", "wine"}
    out = run("suggest", model, "wine tax floob", "--explain", "--html", tmp_path / "why.html", "--json", "-")
    facts = json.loads(out)
    assert facts["unknown_words"] == 1
    assert facts["suggestions"][0]["label"] in ("tax", "wine")
    assert facts["explanations"][0]["words"][0]["word"] in ("tax", "wine")
    assert "<mark" in (tmp_path / "why.html").read_text()
    assert "no label is likely enough" in run("suggest", model, "wine", "--threshold", "1")
    assert "sea" not in run("suggest", model, "the sea", "--exclude", "sea", "--top-k", "auto")
    assert "tax" in run("suggest", model, "wine tax", "--explain")


def test_predict_and_evaluate_texts(corpus, model, tmp_path):
    run("predict", model, corpus, "--top-k", "2", "--output", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == 40
    assert rows[2]["labels"] == LABELS[2]  # as it was
    assert sorted(rows[2]["suggested_labels"]) == ["tax", "wine"]
    assert all(0 <= value <= 1 for value in rows[2]["probabilities"])
    run("evaluate", model, corpus, "--json", tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["P@1"] == 100


def test_metrics_can_be_kept_with_the_model(corpus, tmp_path):
    run("train", corpus, "--method", "centroid", "--model", tmp_path / "m", "--valid", corpus)
    assert kept_metrics(tmp_path / "m")["P@1"] == 100
    run("train", corpus, "--method", "centroid", "--model", tmp_path / "n")
    assert kept_metrics(tmp_path / "n") is None
    run("evaluate", tmp_path / "n", corpus, "--keep", "--json", tmp_path / "m.json")
    assert kept_metrics(tmp_path / "n") == json.loads((tmp_path / "m.json").read_text())
    assert umpteen.load(tmp_path / "n", checksums=True).suggest("wine", 1)


def test_other_shapes_of_corpora(model, tmp_path):
    table = tmp_path / "table.csv"
    rows = zip(TEXTS * 4, LABELS * 4, strict=True)
    table.write_text("title,body,tags\n" + "".join(f"{text},more,{';'.join(names)}\n" for text, names in rows))
    options = ("--text-field", "title", "--text-field", "body", "--label-field", "tags", "--label-delimiter", ";")
    run("train", table, "--method", "centroid", "--model", tmp_path / "m", "--calibration", "0", *options)
    assert "P         100.00" in run("evaluate", tmp_path / "m", table, *options)


def test_prune_and_add_labels_keep_a_model_of_texts(model, tmp_path):
    run("prune", model, "--delta", "0.05", "--model", tmp_path / "small")
    assert umpteen.load(tmp_path / "small").suggest("wine tax", 1)[0][0] in ("tax", "wine")
    new = tmp_path / "new.jsonl"
    new.write_text('{"text": "whales in the sea", "labels": ["whale"]}\n{"text": "wine", "labels": ["wine"]}\n')
    out = run("add-labels", model, new, "--model", tmp_path / "grown")
    assert "4 as before, and new: whale" in out
    assert list(umpteen.load(tmp_path / "grown").classes_) == ["fish", "sea", "tax", "wine", "whale"]
    assert "tfidf" in run("inspect", tmp_path / "grown")


def test_options_of_numbers_are_refused(corpus, tmp_path):
    from umpteen.errors import ParamError

    with pytest.raises(ParamError, match="--one-based is for files of numbers"):
        run("train", corpus, "--one-based", "--model", tmp_path / "m")


@pytest.mark.slow
def test_the_demo(tmp_path):
    out = run("demo", tmp_path / "d", "--package", "email", "--package", "logging", "--threads", "2")
    for expected in (
        "docstrings",
        "centroid",
        "dismec",
        "fastxml",
        "auto is ",
        "PSP@5",
        "why",
        "umpteen suggest",
        "umpteen serve",
    ):
        assert expected in out
    report = (tmp_path / "d" / "report.html").read_text()
    assert report.count("<svg") == 4
    assert "<mark" in report
    assert "http" not in report.replace("http://www.w3.org/2000/svg", "")  # opens offline
    assert umpteen.load(tmp_path / "d" / "dismec.model").suggest("Parse the header of a message", 3)
    from umpteen.errors import ModelExistsError

    with pytest.raises(ModelExistsError, match="is not empty"):
        run("demo", tmp_path / "d")


@pytest.mark.slow
def test_the_demo_corpus_is_the_same_each_time():
    one, two = (gather_corpus(200, packages=["asyncio"]) for _ in range(2))
    assert one.texts == two.texts
    assert one.labels == two.labels
    assert len(set(one.texts)) == len(one.texts)  # no text in both halves of a split
