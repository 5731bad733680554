"""LexicalMatcher: ranks concepts by the terms a text has, learns from few texts and many, is opened safely."""

from __future__ import annotations

import json
import lzma
import random

import numpy as np
import pytest

import umpteen
from umpteen.errors import DataError, ModelCorruptError, ModelError, ParamError
from umpteen.lexical.candidates import FEATURES, Neighbours, find_candidates
from umpteen.lexical.counts import N_FOLDS
from umpteen.lexical.rule import Rule
from umpteen.lexical.terms import TermTable
from umpteen.vocabulary.concepts import Concept, Term, Vocabulary

from .conftest import data_root
from .files import read_files

FISH, TRADE, COD, TAX, REPORT = (f"u:{name}" for name in ("fish", "trade", "cod", "tax", "report"))


@pytest.fixture
def vocabulary():
    return Vocabulary.build(
        [
            Concept(FISH, [Term("fish", "en", "preferred"), Term("kala", "fi", "preferred")]),
            Concept(TRADE, [Term("fish trade", "en", "preferred")], broader=[FISH]),
            Concept(COD, [Term("cod", "en", "preferred"), Term("codfish", "en", "hidden")], broader=[FISH]),
            Concept(TAX, [Term("taxes", "en", "preferred"), Term("duties", "en", "alternative")], related=[TRADE]),
            Concept(REPORT, [Term("reports", "en", "preferred")]),
        ],
        language="en",
    )


def draw(n, seed=0):
    """Texts whose annotators never choose "reports", and choose "fish" only if "cod" is not there."""
    rng = random.Random(seed)
    texts, labels = [], []
    for _ in range(n):
        there = {name for name in ("fish", "cod", "tax", "report") if rng.random() < 0.5}
        words = [*there, *rng.choices(["the", "of", "north", "sea", "wine"], k=5)]
        rng.shuffle(words)
        texts.append(" ".join(words))
        labels.append([f"u:{name}" for name in sorted(there - {"report"} - ({"fish"} if "cod" in there else set()))])
    return texts, labels


def test_untrained_a_longer_term_comes_first(vocabulary):
    matcher = umpteen.LexicalMatcher(vocabulary)
    assert [name for name, _ in matcher.suggest("The fish trade of the North")] == ["fish trade", "fish"]
    assert matcher.suggest("Nothing of this") == matcher.suggest("") == []
    assert [name for name, _ in matcher.suggest("Fish trade: reports", language="fi")][1] == "reports"
    both = matcher.suggest(["cod", "duty on cod"])
    assert [[name for name, _ in row] for row in both] == [["cod"], ["cod", "taxes"]]
    assert all(0 < value < 1 for row in both for _, value in row)


def test_training_learns_which_terms_annotators_follow(vocabulary):
    matcher = umpteen.LexicalMatcher(vocabulary).fit(*draw(400))
    assert matcher.n_rows_ == 400
    found = dict(matcher.suggest("a report on cod and fish and tax"))
    assert found["cod"] > 0.9
    assert found["taxes"] > 0.9
    assert found["fish"] < 0.4
    assert found["reports"] > found["fish"]  # nobody has it as a label: it may be new
    assert dict(matcher.suggest("fish of the sea"))["fish"] > 0.7
    likely = dict(matcher.suggest("a report on cod and fish and tax", threshold=0.9))
    assert likely == {name: value for name, value in found.items() if value >= 0.9}
    assert "cod" in likely
    assert "fish trade" in dict(matcher.suggest("the fish trade"))  # never a label in training


def test_a_concept_that_annotators_chose_once_and_then_no_more_is_known(vocabulary):
    texts, labels = draw(400)
    labels[texts.index(next(text for text in texts if "report" in text))].append(REPORT)
    found = dict(umpteen.LexicalMatcher(vocabulary).fit(texts, labels).suggest("a report on cod and fish and tax"))
    assert found["reports"] < 0.1


def test_few_texts_do_no_harm(vocabulary):
    untrained = umpteen.LexicalMatcher(vocabulary)
    trained = umpteen.LexicalMatcher(vocabulary).fit(["cod"], [["cod"]])
    text = "The fish trade and a report"
    assert [name for name, _ in trained.suggest(text)] == [name for name, _ in untrained.suggest(text)]


def test_what_is_known_of_a_text_does_not_count_its_own_labels(vocabulary):
    """One concept was found in one text only: whether it was chosen there must not be known when that text is
    learned from."""
    matcher = umpteen.LexicalMatcher(vocabulary)
    texts = ["cod", "tax", "fish", "report", "north"]
    rows = matcher.find_concepts([[COD], [], [FISH], [], []])
    counts, kept = matcher._count(texts, rows)
    X, chosen = matcher._join(kept, counts)
    assert chosen.tolist() == [True, False, True, False]
    for name in ("concept odds", "entry odds"):
        assert X[0, FEATURES.index(name)] < X[1, FEATURES.index(name)]  # of the others one of three, or two
    assert not X[:, FEATURES.index("found")].any()
    assert counts.concepts_chosen.sum(axis=0)[[0, 2]].tolist() == [1, 1]
    assert counts.n_texts.ravel().tolist() == [1] * N_FOLDS


def test_features_say_what_they_mean(vocabulary):
    table = TermTable.build(vocabulary)
    (matches,) = table.match(["Duties on the fish trade. Codfish as fish.", "reports"])
    found = find_candidates(matches, table, Neighbours(vocabulary))
    assert found.texts.tolist() == [0, 0, 0, 0, 1]
    assert found.concepts.tolist() == [0, 1, 2, 3, 4]
    columns = {name: found.X[:, i].tolist() for i, name in enumerate(FEATURES)}
    assert columns["free"] == [0.5, 1, 1, 1, 1]
    assert columns["words"] == [1, 2, 1, 1, 1]
    assert columns["hidden"] == [0, 0, 1, 0, 0]
    assert columns["alternative"] == [0, 0, 0, 1, 0]
    assert columns["narrower"] == [2, 0, 0, 0, 0]
    assert columns["broader"] == [0, 1, 1, 0, 0]
    assert columns["related"] == [0, 0, 0, 1, 0]
    assert np.allclose(np.exp(columns["frequency"]), [2, 1, 1, 1, 1])
    assert np.allclose(np.expm1(columns["first"]), [3, 3, 5, 0, 0])
    assert np.allclose(np.exp(columns["candidates"]), [4, 4, 4, 4, 1])


def test_explanations_name_the_term_its_language_and_its_place(vocabulary):
    matcher = umpteen.LexicalMatcher(vocabulary, ["en", "fi"])
    text = "Ström duties — the trade in FISH; kalan kauppa"
    found = matcher.explain(text, TAX)
    assert (found.term, found.words) == (Term("duties", "en", "alternative"), ["duties"])
    assert [text[begin:end] for begin, end in found.places] == found.words
    assert matcher.explain(text, "fish trade").words == ["trade", "FISH"]
    assert matcher.explain("Kalan kauppa", "fish").term == Term("kala", "fi", "preferred")
    assert matcher.explain(text, "cod") is None
    with pytest.raises(ParamError, match="must be a concept's number below 5, but is 5"):
        matcher.explain(text, 5)


def test_the_rule_draws_lines_between_knots():
    rng = np.random.default_rng(3)
    X = rng.random((2000, len(FEATURES)))
    chosen = rng.random(2000) < 1 / (1 + np.exp(-8 * (np.abs(X[:, 0] - 0.5) - 0.25)))
    rule = Rule.fit(X, chosen, 1)
    probe = np.full((3, len(FEATURES)), 0.5)
    probe[:, 0] = [0.02, 0.5, 0.98]
    low, middle, high = rule.score(probe)
    assert min(low, high) > 1 > -1 > middle  # no straight line could
    indptr, indices, data = rule._spread(X)
    for i in (0, 1999):  # the sparse rows that were trained on say the same as `score`
        row = slice(indptr[i], indptr[i + 1])
        assert np.isclose(rule.weights[indices[row]] @ data[row] + rule.bias, rule.score(X[i : i + 1])[0], atol=1e-4)


def test_threads_change_no_byte(vocabulary, tmp_path):
    texts, labels = draw(300)
    for threads in (1, 3):
        umpteen.LexicalMatcher(vocabulary, threads=threads).fit(texts, labels).save(tmp_path / f"m{threads}")
    one, three = (read_files(tmp_path / name, "*.npy") for name in ("m1", "m3"))
    assert len(one) > 20
    assert one == three


def test_saved_and_opened_it_says_the_same(vocabulary, tmp_path):
    matcher = umpteen.LexicalMatcher(vocabulary, ["en", "fi"]).fit(*draw(200))
    matcher.save(tmp_path / "m")
    opened = umpteen.LexicalMatcher.load(tmp_path / "m", checksums=True)
    assert repr(opened) == repr(matcher)
    texts = [*draw(30, seed=1)[0], "Kalan kauppa"]
    assert opened.suggest(texts) == matcher.suggest(texts)
    assert opened.explain(texts[-1], "fish") == matcher.explain(texts[-1], "fish")
    with pytest.raises(ModelError, match="already"):
        matcher.save(tmp_path / "m")
    umpteen.Tagger("centroid").fit(["one two", "three"] * 5, [["x"], ["y"]] * 5).save(tmp_path / "other")
    with pytest.raises(ModelError, match="must hold a LexicalMatcher"):
        umpteen.LexicalMatcher.load(tmp_path / "other")


@pytest.mark.parametrize("seed", range(12))
def test_changed_arrays_are_an_error_or_an_answer(vocabulary, seed):
    """Whatever the arrays hold: no crash, no concept that is not there."""
    rng = np.random.default_rng(seed)
    parts = umpteen.LexicalMatcher(vocabulary).fit(*draw(60)).to_parts()
    n_errors = 0
    for _ in range(60):
        changed = {name: type(part)(dict(part.arrays), part.scalars) for name, part in parts.items()}
        part = changed[rng.choice(["terms", "counts", "rule", "new_rule", "concepts"])]
        key = rng.choice(sorted(part.arrays))
        array = part.arrays[key].copy()
        if len(array) and rng.random() < 0.8:
            array[rng.integers(len(array))] = (
                rng.choice([0, 1, 200, 255])
                if array.dtype == np.uint8
                else rng.choice([0, 1, 3, 7, 60_000] if array.dtype.kind == "u" else [-1, 0, 2, 9, 1 << 30])
            )
        else:
            array = array[:-1]
        part.arrays[key] = array
        try:
            matcher = umpteen.LexicalMatcher.from_parts(changed)
            found = matcher.rank(["Duties on the fish trade. Codfish as fish.", "tax reports"], 3)[0]
            matcher.explain("Codfish as fish and trade", 0)
        except ModelCorruptError:
            n_errors += 1
        else:
            assert found.min() >= -1
            assert found.max() < len(vocabulary)
    assert n_errors > 10


def test_input_is_checked(vocabulary):
    matcher = umpteen.LexicalMatcher(vocabulary)
    with pytest.raises(DataError, match="each of the 1 texts needs a list of labels, but there are 2"):
        matcher.fit(["cod"], [[COD], []])
    with pytest.raises(DataError, match="at least one text"):
        matcher.fit([], [])
    with pytest.raises(DataError, match="'herring' is not in the vocabulary"):
        matcher.fit(["cod"], [["herring"]])
    with pytest.raises(ParamError, match="threshold"):
        matcher.rank(["cod"], threshold=2)
    with pytest.raises(ParamError, match="top_k"):
        matcher.rank(["cod"], 0)
    assert matcher.rank([], 3)[0].shape == (0, 3)


@pytest.mark.data
def test_real_titles_get_subjects_and_training_helps():
    folder = data_root() / "YSO-Finna-EN"
    if not folder.exists():
        pytest.skip(f"no YSO-Finna-EN in {data_root()}")
    with lzma.open(folder / "train.jsonl.xz", "rt") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(6000), strict=False)]
    vocabulary = umpteen.read_vocabulary(folder / "vocabulary.tsv.xz", language="en")
    texts, labels = [row["text"] for row in rows], [row["labels"] for row in rows]
    matcher = umpteen.LexicalMatcher(vocabulary)
    wanted = matcher.find_concepts(labels[::4])

    def precision():
        best = matcher.rank(texts[::4], 1)[0][:, 0]
        return np.mean([i in row for i, row in zip(best, wanted, strict=True)])

    untrained = precision()
    assert untrained > 0.2
    train = [i for i in range(6000) if i % 4]
    matcher.fit([texts[i] for i in train], [labels[i] for i in train])
    assert precision() > untrained + 0.02


def test_texts_in_another_language_are_told_of(vocabulary):
    texts, labels = draw(100)
    with pytest.warns(
        UserWarning, match=r"only 0 of \d+ labels stand in their texts .* language of the terms, 'fi'\?"
    ):
        umpteen.LexicalMatcher(vocabulary, languages=["fi"]).fit(texts, labels)


def test_rows_of_training_texts_are_as_those_of_new_texts(vocabulary):
    """`fit_transform` gives each text what is known from texts of other folds."""
    texts, labels = draw(200)
    matcher = umpteen.LexicalMatcher(vocabulary)
    X = matcher.fit_transform(texts, labels)
    assert X.shape == (200, len(vocabulary))
    later = matcher.transform(texts)
    assert (X.indptr == later.indptr).all()
    assert (X.indices == later.indices).all()  # the same terms are there
    assert 0 < np.abs(X.data - later.data).max() < 3  # judged a little otherwise
    ids, _ = matcher.rank(texts, 1)
    best = np.array([row.indices[row.data.argmax()] if row.nnz else -1 for row in later])
    assert (ids[:, 0] == best).all()
    assert matcher.transform([]).shape == (0, len(vocabulary))
    again = umpteen.LexicalMatcher(vocabulary, threads=1).fit_transform(texts, labels)
    assert (again != X).nnz == 0
