"""Terms of a vocabulary in texts: the kernel beside its twin."""

from __future__ import annotations

import json
import lzma
import random

import numpy as np
import pytest

import umpteen
from umpteen import _native
from umpteen.errors import DataError, ParamError
from umpteen.lexical.terms import SHORTENED, TermTable, find_reader
from umpteen.text.languages import fold
from umpteen.text.words import word_table
from umpteen.vocabulary.concepts import Concept, Term, Vocabulary

from .conftest import data_root
from .reference import match_terms, read_sentences

WORDS = ["sea", "fish", "cod", "tax", "wine", "Straße", "étang", "år", "x", "日本", "oil", "salt", "new", "york"]
MARKS = [" ", " ", " ", "  ", ". ", ".", "! ", "?\n", "\n\n", "\r\n\r\n", ", ", " . ", "\n", "-", ".\t", "… ", " ?"]


def make_vocabulary(names, language="en", **more):
    listed = [
        Concept(f"u:{i}", [Term(name, language, "preferred")], **{key: more[key].get(i, ()) for key in more})
        for i, name in enumerate(names)
    ]
    return Vocabulary.build(listed, language=language)


def draw_text(rng, n):
    return "".join(word for _ in range(n) for word in (rng.choice(WORDS), rng.choice(MARKS)))


def slow_matches(table, texts):
    """What the twin finds: by text and term the six numbers of the kernel."""
    found = {}
    for place, language in enumerate(table.languages):
        stem = find_reader(language)
        numbers = [i for i in range(table.n_terms) if table.stems_of(i)[1] == place]
        terms = [table.stems_of(i)[0] for i in numbers]
        for row, text in enumerate(texts):
            sentences = [[stem(word) for word in words] for words in read_sentences(fold(text))]
            for i, entry in match_terms(terms, sentences).items():
                found[row, numbers[i]] = entry
    return found


def fast_matches(table, texts, threads=1):
    found, first = {}, 0
    for matches in table.match(texts, threads):
        for text, row in zip(matches.texts.tolist(), matches.rows.tolist(), strict=True):
            found[first + text, row[0]] = row[1:]
        first += len(matches.n_words)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_finds_what_its_twin_finds(seed):
    rng = random.Random(seed)
    names = {" ".join(rng.choices(WORDS, k=rng.choice([1, 1, 2, 2, 3, 4]))) for _ in range(40)}
    table = TermTable.build(make_vocabulary(sorted(names)))
    texts = ["", "...", "\n", *(draw_text(rng, rng.randrange(1, 40)) for _ in range(60)), draw_text(rng, 700)]
    expected = slow_matches(table, texts)
    assert len(expected) > 300
    assert any(entry[1] for entry in expected.values())
    assert any(entry[5] for entry in expected.values())
    assert fast_matches(table, texts) == expected


def test_sentences_end_where_the_twin_says():
    rng = random.Random(5)
    texts = [draw_text(rng, rng.randrange(1, 30)) for _ in range(300)]
    texts += [
        "cod.",
        "wine.",
        "wine. ",
        "wine!",
        "St. Petersburg wine. x",
        "wine\n",
        "wine\r\n",
        "wine\n\r\nx",
        " ".join("x" * 600),
    ]
    raw = [fold(text).encode() for text in texts]
    words, ends, tokens, sentence_ends, text_ends = _native.read_words(raw, word_table(), 1)
    listed = [words[begin:end].decode() for begin, end in zip([0, *ends], ends, strict=False)]
    sentences = [
        [listed[i] for i in tokens[begin:end]] for begin, end in zip([0, *sentence_ends], sentence_ends, strict=False)
    ]
    found = [sentences[begin:end] for begin, end in zip([0, *text_ends], text_ends, strict=False)]
    assert found == [read_sentences(fold(text)) for text in texts]
    assert ["st", "petersburg", "wine"] in found[304]


def test_threads_change_nothing():
    rng = random.Random(9)
    table = TermTable.build(make_vocabulary(["sea fish", "fish", "new york", "cod", "tax", "Étang"]))
    texts = [draw_text(rng, 300) for _ in range(300)]  # several blocks
    one, *others = (list(table.match(texts, threads)) for threads in (1, 2, 5))
    for other in others:
        for expected, found in zip(one, other, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))


def test_each_language_has_stems_of_its_own():
    fish = Concept("u:1", [Term("fishing boats", "en", "preferred"), Term("kalastusveneet", "fi", "preferred")])
    die = Concept("u:2", [Term("die", "de", "preferred"), Term("dice", "en", "alternative")])
    table = TermTable.build(Vocabulary.build([fish, die]), ["en", "fi", "de"])
    texts = ["Boats for fishing", "Uusi kalastusvene", "die Fische", "a die"]
    assert fast_matches(table, texts) == slow_matches(table, texts)
    concepts = {key: table.entry_concepts[key[1]] for key in fast_matches(table, texts)}
    assert sorted((row, concept) for (row, _), concept in concepts.items()) == [(0, 0), (1, 0), (2, 1), (3, 1)]


def test_a_qualifier_in_brackets_may_be_missing():
    vocabulary = make_vocabulary(["cranes (birds)", "cranes (machines)", "(birds)"])
    table = TermTable.build(vocabulary)
    entries = list(zip(table.entry_concepts.tolist(), table.entry_kinds.tolist(), strict=True))
    assert [(i, SHORTENED) in entries for i in range(3)] == [True, True, False]
    shared = np.diff(table.entry_ends, prepend=0).max()
    assert shared == 2  # "cranes" is a term of two concepts


def test_deprecated_concepts_are_not_looked_for():
    vocabulary = Vocabulary.build(
        [
            Concept("u:1", [Term("cod", "en", "preferred")], deprecated=True),
            Concept("u:2", [Term("cod", "en", "preferred")]),
        ]
    )
    assert TermTable.build(vocabulary).entry_concepts.tolist() == [1]


def test_languages_and_texts_are_checked():
    vocabulary = make_vocabulary(["cod"])
    with pytest.raises(ParamError, match="languages must be the vocabulary's, en, but one is 'fi'"):
        TermTable.build(vocabulary, ["fi"])
    with pytest.raises(ParamError, match="languages must be a list of codes"):
        TermTable.build(vocabulary, "en")
    with pytest.raises(DataError, match="must have terms in the languages"):
        TermTable.build(make_vocabulary(["..."]))
    table = TermTable.build(vocabulary)
    for wrong, message in (("cod", "must be a list"), ([1], "text 0 must be a string")):
        with pytest.raises(DataError, match=message):
            list(table.match(wrong))


@pytest.mark.data
def test_real_titles_have_the_terms_that_the_twin_finds():
    folder = data_root() / "YSO-Finna-EN"
    if not folder.exists():
        pytest.skip(f"no YSO-Finna-EN in {data_root()}")
    with lzma.open(folder / "test.jsonl.xz", "rt") as lines:
        texts = [json.loads(next(lines))["text"] for _ in range(150)]
    whole = umpteen.read_vocabulary(folder / "vocabulary.tsv.xz", language="en")
    names = [whole.name(i) for i in range(0, len(whole), 40)] + ["women", "history", "world war", "war"]
    table = TermTable.build(make_vocabulary(list(dict.fromkeys(names))))
    found = fast_matches(table, texts)
    assert len(found) > 20
    assert found == slow_matches(table, texts)
