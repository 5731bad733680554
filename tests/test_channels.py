"""Channels: a tagger with a vocabulary ranks by rows, terms and words of labels in one list, and keeps what helps."""

from __future__ import annotations

import json
import pickle
import random
import runpy
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

import umpteen
from umpteen.cli.main import app
from umpteen.errors import ModelCorruptError, ModelError, ParamError
from umpteen.tagging import channels as channels_module
from umpteen.tagging import training
from umpteen.vocabulary.concepts import Concept, Term, Vocabulary

from .conftest import data_root

ALL = ("rows", "terms", "label-text")
NAMES = [
    f"{kind} {thing}"
    for thing in ("herring", "cod", "wine", "beer")
    for kind in ("fresh", "old", "salted", "cheap", "red")
]


def vocabulary() -> Vocabulary:
    concepts = [Concept(f"u:{i}", [Term(name, "en", "preferred")]) for i, name in enumerate(NAMES)]
    return Vocabulary.build(concepts, language="en")


def draw(n: int, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts that mostly name their labels; the last label is of one text, the one before it of none."""
    rng = random.Random(seed)
    texts, labels = [], []
    for _ in range(n):
        own = rng.sample(NAMES[:-2], 2)
        said = [name for name in own if rng.random() < 0.8]
        noise = rng.choices(["the", "of", "north", "sea", "quota", "report", *(name.split()[0] for name in own)], k=6)
        words = [*said, *noise]
        rng.shuffle(words)
        texts.append(" ".join(words))
        labels.append(own)
    labels[0] = [NAMES[-1]]
    return texts, labels


def train(n: int = 300, method: str = "dismec", **params) -> umpteen.Tagger:
    settings = {"method": method, "vocabulary": vocabulary(), "channels": ALL, **params}
    return umpteen.Tagger(**settings).fit(*draw(n))


@pytest.fixture(scope="module")
def tagger() -> umpteen.Tagger:
    return train()


def ranks(tagger: umpteen.Tagger, texts: list[str]) -> list[list[tuple[str, float]]]:
    return [list(row) for row in tagger.suggest(texts, top_k=5)]


def test_one_list_of_seen_and_unseen_labels_ranks_better_than_rows_alone(tagger):
    texts, labels = draw(200, seed=1)
    alone = umpteen.Tagger("dismec", vocabulary=vocabulary()).fit(*draw(300))
    assert tagger.evaluate(texts, labels)["P@1"] > alone.evaluate(texts, labels)["P@1"] + 3
    assert len(tagger.classes_) == len(NAMES)
    new = NAMES[-2]  # of no text
    assert tagger.model_.train_counts.counts[list(tagger.classes_).index(new)] == 0
    assert new in dict(tagger.suggest(f"{new} and {NAMES[0]}", top_k=2))
    assert new not in alone.classes_


def test_channels_say_what_became_of_them(tagger):
    assert [c.name for c in tagger.channels_] == list(ALL)
    assert sum(c.weight for c in tagger.channels_) == pytest.approx(1)
    entry = tagger.model_.header["channels"]
    assert [record["channel"] for record in entry] == list(ALL)
    kept = {c.name for c in tagger.channels_ if c.weight}
    assert "terms" in kept
    assert all((c.n_bytes > 0) == (c.name in kept) and c.seconds >= 0 for c in tagger.channels_)


def test_probabilities_are_those_of_held_out_texts(tagger):
    texts, labels = draw(400, seed=2)
    _, after = tagger.reliability(texts, labels)
    assert after.error < 8  # percent


def test_save_and_load_keep_every_channel(tagger, tmp_path):
    tagger.save(tmp_path / "m")
    loaded = umpteen.load(tmp_path / "m", checksums=True)
    texts = [*draw(50, seed=3)[0], "", "nothing known", NAMES[-2]]
    assert ranks(loaded, texts) == ranks(tagger, texts)
    assert loaded.explain(texts[0]).terms == tagger.explain(texts[0]).terms
    batch = loaded.suggest(texts, top_k=5)
    assert [list(loaded.suggest(text, top_k=5)) for text in texts] == [list(row) for row in batch]
    with pytest.raises(ParamError, match="only one-vs-rest methods"):
        loaded.add_labels(["tin"], [["tin"]])


def test_pickles(tagger):
    texts = draw(20, 7)[0]
    assert ranks(pickle.loads(pickle.dumps(tagger)), texts) == ranks(tagger, texts)


def test_a_new_edition_of_the_vocabulary_renames_labels(tagger):
    copy = pickle.loads(pickle.dumps(tagger))
    renamed = [Concept(f"u:{i}", [Term(f"{name} (food)", "en", "preferred")], deprecated=i == 1)
               for i, name in enumerate(NAMES)]  # fmt: skip
    change = copy.update_vocabulary(Vocabulary.build(renamed, language="en"))
    assert change.retired == [f"{NAMES[1]} (food)"]
    found = dict(copy.suggest(f"{NAMES[0]} and {NAMES[1]}", top_k=5))
    assert f"{NAMES[0]} (food)" in found
    assert NAMES[1] not in found


def test_labels_of_no_training_text_that_are_found_do_not_count_as_missed(tagger):
    texts, labels = [f"{NAMES[-2]} report", f"{NAMES[3]} of the sea"], [[NAMES[-2]], [NAMES[3]]]
    metrics = tagger.evaluate(texts, labels)
    assert metrics.n_unseen_found == 1
    assert "unseen in training: 1 label in 1 row, found 1 time" in str(metrics)


def test_a_url_is_refused_before_anything_is_trained(monkeypatch):
    monkeypatch.setattr(channels_module, "train_model", None)
    with pytest.raises(
        ModelError, match="memory://a/b: a blend of channels must be saved to a directory, but this is"
    ):
        umpteen.Tagger("dismec", vocabulary=vocabulary(), channels=ALL).fit(*draw(200), model_dir="memory://a/b")


def bytes_of(path) -> dict[str, bytes]:
    files = {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}
    return {name: data for name, data in files.items() if not name.endswith(".lock")}


def test_the_same_bytes_whatever_the_threads(tmp_path):
    for threads in (1, 3):
        umpteen.Tagger(
            umpteen.DiSMEC(threads=threads), umpteen.Tfidf(sublinear_tf=True, threads=threads),
            vocabulary=vocabulary(), channels=ALL,
        ).fit(*draw(300), model_dir=tmp_path / str(threads))  # fmt: skip
    assert bytes_of(tmp_path / "1") == bytes_of(tmp_path / "3")


def test_an_interrupted_run_continues(tmp_path, monkeypatch):
    whole = umpteen.Tagger("dismec", vocabulary=vocabulary(), channels=ALL).fit(*draw(300), model_dir=tmp_path / "a")
    real, done = channels_module.train_model, []

    def stop(method, *args, **options):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(method.name)
        return real(method, *args, **options)

    monkeypatch.setattr(channels_module, "train_model", stop)
    with pytest.raises(KeyboardInterrupt):
        umpteen.Tagger("dismec", vocabulary=vocabulary(), channels=ALL).fit(*draw(300), model_dir=tmp_path / "b")
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "b.calibration").is_dir()
    monkeypatch.undo()
    before = {f: f.stat().st_mtime_ns for f in (tmp_path / "b.calibration" / "fold-0").rglob("shard-*")}
    assert before

    def check(method, X, Y, place, **options):
        model = real(method, X, Y, place, **options)
        assert all(f.stat().st_mtime_ns == time for f, time in before.items())
        return model

    monkeypatch.setattr(channels_module, "train_model", check)
    again = umpteen.Tagger("dismec", vocabulary=vocabulary(), channels=ALL).fit(*draw(300), model_dir=tmp_path / "b")
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    assert ranks(again, draw(20, 4)[0]) == ranks(whole, draw(20, 4)[0])
    assert not (tmp_path / "b.calibration").exists()


def test_channels_that_do_not_help_are_left_out():
    labels = draw(400)[1]
    words = {name: f"q{i}x" for i, name in enumerate(NAMES)}  # no name is in the texts
    told = [" ".join(words[name] for name in row) for row in labels]
    with pytest.warns(UserWarning, match="only 0 of 799 labels stand in their texts .* language of the terms, 'en'"):
        found = umpteen.Tagger("dismec", vocabulary=vocabulary(), channels=("rows", "terms")).fit(told, labels)
    assert [(c.name, c.weight) for c in found.channels_] == [("rows", 1.0), ("terms", 0.0)]
    assert found.model_.method == "dismec"
    assert found.model_.n_features == found.features_.n_features_  # no columns of terms
    assert found.model_.calibration is not None
    assert found.suggest(told[1], top_k=2)[0][0] in labels[1]


@pytest.mark.parametrize("some", [("terms",), ("label-text",), ("rows", "label-text"), ("terms", "label-text")])
def test_each_channel_can_be_left_out(some, tmp_path):
    method = "dismec" if "rows" in some else "auto"
    found = train(200, method, channels=some)
    assert {c.name for c in found.channels_} == set(some)
    assert found.model_.calibration is not None
    found.save(tmp_path / "m")
    texts = draw(20, 5)[0]
    assert ranks(umpteen.load(tmp_path / "m"), texts) == ranks(found, texts)


def test_the_method_lexical_is_the_terms_alone():
    found, same = train(200, "lexical", channels=None), train(200, "auto", channels="terms")
    texts = draw(20, 6)[0]
    assert found.model_.method == "lexical"
    assert ranks(found, texts) == ranks(same, texts)
    matcher = umpteen.LexicalMatcher(vocabulary()).fit(*draw(200))
    assert [row[0][0] for row in ranks(found, texts)] == [row[0][0] for row in matcher.suggest(texts)]


def test_by_default_all_with_auto_and_the_method_alone_if_it_is_named(monkeypatch):
    assert umpteen.Tagger(vocabulary=vocabulary()).find_channels() == ALL
    for alone in (
        umpteen.Tagger(), umpteen.Tagger("dismec", vocabulary=vocabulary()),
        umpteen.Tagger(vocabulary=vocabulary(), tune=True), umpteen.Tagger(vocabulary=vocabulary(), keep_rows=5),
        umpteen.Tagger(vocabulary=vocabulary(), calibration=0),
        umpteen.Tagger(vocabulary=vocabulary(), channels="rows"),
    ):  # fmt: skip
        assert alone.find_channels() == ()
    found = umpteen.Tagger(vocabulary=vocabulary(), budget=20).fit(*draw(200))
    assert [c.name for c in found.channels_] == list(ALL)
    assert found.choice_.method.name == found.channels_[0].method
    with_terms = umpteen.Tagger(vocabulary=vocabulary(), budget=20)
    features, data = with_terms.prepare(*draw(200))
    seen = []
    monkeypatch.setattr(training, "choose_method", lambda X, *_, **__: seen.append(X.shape[1]))
    with_terms.choose(data, features=features)
    assert seen == [features.n_words]  # methods are compared on what they will learn from
    assert data.X.shape[1] == features.n_words + len(NAMES)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"channels": "row"}, "channels must be some of rows, terms, label-text, each once, but is 'row'"),
        ({"channels": []}, "each once, but is"),
        ({"channels": ["rows", "rows"]}, "each once, but is"),
        (
            {"vocabulary": None},
            "channels must go with a vocabulary, but there is none, and they are rows, terms, label-text",
        ),
        ({"features": "precomputed"}, "channels must be of texts, but features is 'precomputed'"),
        ({"calibration": 0}, "must have held-out texts to learn when to trust which, but calibration is 0"),
        ({"method": "auto", "tune": True}, "must be without tune and keep_rows"),
        (
            {"channels": ["terms", "label-text"]},
            "must have 'rows', which method dismec trains, but are terms, label-text",
        ),
        (
            {"method": "lexical"},
            "channels must be left out with method 'lexical', which is 'terms', but are rows, terms",
        ),
        ({"method": "lexical", "channels": "rows"}, "with method 'lexical', which is 'terms', but are rows"),
        ({"method": LinearSVC()}, "channels need one of this package's methods, but method is a LinearSVC"),
    ],
)
def test_what_does_not_go_together_is_refused(params, message):
    with pytest.raises(ParamError, match=message):
        train(20, **params)


def test_few_texts_and_features_that_are_no_words_leave_channels_out():
    with pytest.warns(
        UserWarning, match="left out: terms, label-text, as of 20 texts with labels too few can be held"
    ):
        found = umpteen.Tagger(vocabulary=vocabulary(), budget=5).fit(*draw(20))
    assert found.channels_ == []
    with pytest.raises(ParamError, match="channels must be without terms, as of 20 texts with labels too few"):
        train(20)
    with pytest.raises(ParamError, match="channels must be without label-text, as the features are not words"):
        train(200, features="svd:8")


def test_explanations_name_the_term_its_language_and_its_place(tagger):
    text = f"Report: {NAMES[3].title()} of the north"
    found = tagger.explain(text, NAMES[3])
    assert [word for word, _ in found.words if word.startswith("term ")] == [f"term {NAMES[3]!r} (en, preferred)"]
    (term,) = found.terms
    assert (term["text"], term["language"], term["kind"]) == (NAMES[3], "en", "preferred")
    assert [text[a:b] for a, b in term["places"]] == NAMES[3].title().split()
    assert found.explained == pytest.approx(found.score, rel=1e-3)
    json.dumps(found.as_dict())
    assert tagger.explain("north sea", NAMES[3]).terms == []


def test_a_damaged_matcher_is_refused(tagger, tmp_path):
    tagger.save(tmp_path / "m")
    for part in ("matcher-rule", "matcher-terms"):
        copy = tmp_path / part
        shutil.copytree(tmp_path / "m", copy)
        manifest = next(copy.rglob("manifest.json"))
        content = json.loads(manifest.read_text())
        shared = content["shared"] if "shared" in content else content["parts"]
        assert part in shared
        del shared[part]
        manifest.write_text(json.dumps(content))
        with pytest.raises(ModelCorruptError, match=r"the part matcher-\w+ is missing|does not have \d+ terms"):
            umpteen.load(copy)


def test_on_the_command_line(tmp_path):
    texts, labels = draw(300)
    rows = [json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True)]
    (tmp_path / "c.jsonl").write_text("\n".join(rows) + "\n")
    umpteen.write_vocabulary(vocabulary(), tmp_path / "v.csv")

    def run(*args: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*map(str, args)])
        assert result.exit_code == code, result.output
        return " ".join((result.output + str(result.exception or "")).split())

    corpus, terms = tmp_path / "c.jsonl", ("--vocabulary", tmp_path / "v.csv", "--language", "en")
    said = run("train", corpus, *terms, "--budget", "20s", "--model", tmp_path / "all")
    assert "channels rows, terms, label-text: each is trained twice" in said
    assert "of processor time" in said
    said = run("train", corpus, *terms, "--method", "lexical", "--model", tmp_path / "lexical")
    assert "lexical" in said
    said = run(
        "train", corpus, *terms, "--method", "dismec", "--channels", "rows, terms", "--model", tmp_path / "two"
    )
    assert "terms (lexical): weight" in said
    for name in ("all", "lexical", "two"):
        assert NAMES[-2] in run("suggest", tmp_path / name, f"{NAMES[-2]} here", "--top-k", "3")
    assert "term 'fresh cod' (en, preferred)" in run("suggest", tmp_path / "lexical", "fresh cod", "--explain")
    assert "--channels rows goes with --vocabulary" in run("train", corpus, "--channels", "rows", code=1)
    assert "--set goes with methods that learn" in run(
        "train", corpus, *terms, "--method", "lexical", "--set", "C=1", code=1
    )
    assert "must go with a vocabulary" in run(
        "train", corpus, "--method", "lexical", "--model", tmp_path / "x", code=1
    )


def test_cooking_ranks_better_with_all_channels():
    folder = data_root() / "StackExchange-Cooking"
    corpus = umpteen.read_corpus(folder / "train.jsonl.xz")
    names = sorted({label for row in corpus.labels for label in row})
    words = Vocabulary.build([Concept(f"l:{name}", [Term(name, "en", "preferred")]) for name in names], language="en")
    texts, labels = corpus.texts[:3000], corpus.labels[:3000]
    test = umpteen.read_corpus(folder / "test.jsonl.xz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        both = umpteen.Tagger("dismec", vocabulary=words, channels=("rows", "terms")).fit(texts, labels)
        alone = umpteen.Tagger("dismec", vocabulary=words).fit(texts, labels)
    found, before = both.evaluate(test.texts, test.labels), alone.evaluate(test.texts, test.labels)
    assert found["P@1"] > before["P@1"] + 3
    assert found["PSP@5"] > before["PSP@5"] + 4
    _, reliability = both.reliability(test.texts, test.labels)
    assert reliability.error < 3
    assert np.isfinite(found["nDCG@5"])


@pytest.mark.slow
def test_the_example_finds_labels_that_no_title_had(capsys):
    file = Path(__file__).parent.parent / "examples" / "new_labels.py"
    runpy.run_path(str(file))["main"](data_root() / "YSO-Finna-EN", 1000)
    said = capsys.readouterr().out
    assert "channels   rows (dismec): " in said
    assert "new and right: " in said
    assert "http://www.yso.fi/onto/yso/p" in said
