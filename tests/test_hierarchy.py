"""Labels above labels: closure, hierarchical precision and recall, and suggestions rolled up."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import umpteen
from umpteen.errors import DataError, ParamError
from umpteen.evaluation.hierarchy import close_upwards, evaluate_hierarchy
from umpteen.vocabulary.concepts import Concept, Term, Vocabulary

from .test_vocabulary import real

TEXTS = ["herring quotas", "cod quotas", "a tax on wine", "beer tax"] * 10
LABELS = [["herring", "law"], ["cod", "law"], ["wine"], ["beer"]] * 10


def vocabulary():
    above = {"herring": "fish", "cod": "fish", "fish": "animals", "wine": "drinks", "beer": "drinks"}
    names = ["herring", "cod", "wine", "beer", "law", "fish", "animals", "drinks"]
    return Vocabulary.build(
        [
            Concept(
                f"u:{name}", [Term(name, "en", "preferred"), Term(f"{name}-fi", "fi", "preferred")],
                broader=[f"u:{above[name]}"] if name in above else [],
            )
            for name in names
        ],
        language="en",
    )  # fmt: skip


def ancestors_of(i, broader):
    found, waiting = {i}, [i]
    while waiting:
        for j in np.flatnonzero(broader[waiting.pop()]).tolist():
            if j not in found:
                found.add(j)
                waiting.append(j)
    return found


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=14), st.randoms(use_true_random=False))
def test_closure_and_measures_are_those_of_sets(pairs, random):
    broader = np.zeros((8, 8))
    for below, above in pairs:  # with cycles, and labels above themselves
        broader[below, above] = 1
    closed = close_upwards(broader)
    sets = [ancestors_of(i, broader) for i in range(8)]
    assert [set(np.flatnonzero(row)) for row in closed.toarray()] == sets
    Y = np.array([[random.random() < 0.3 for _ in range(8)] for _ in range(5)], float)
    labels = np.array([random.sample(range(8), 3) for _ in range(5)])
    labels[0, 1:] = -1
    right = given_ = both = 0
    for row, found in zip(Y, labels, strict=True):
        true = set().union(*(sets[i] for i in np.flatnonzero(row)))
        said = set().union(*(sets[i] for i in found[:2] if i >= 0))
        right, given_, both = right + len(true), given_ + len(said), both + len(true & said)
    got = evaluate_hierarchy(Y, labels, closed, k=2)
    assert got.precision == pytest.approx(100 * both / given_)
    assert got.recall == pytest.approx(100 * both / right if right else 0)


def test_no_labels_and_bad_ones():
    closed = close_upwards(np.eye(3))
    assert evaluate_hierarchy(np.zeros((2, 3)), np.full((2, 1), -1), closed) == (0, 0, 0)
    with pytest.raises(DataError, match="labels must have 2 rows, as Y has"):
        evaluate_hierarchy(np.zeros((2, 3)), [[1]], closed)
    with pytest.raises(DataError, match="ids below 3, but one is 3"):
        evaluate_hierarchy(np.zeros((1, 3)), [[3]], closed)
    with pytest.raises(DataError, match="as wide as it is high"):
        close_upwards(np.ones((2, 3)))


def test_steps_limit_how_far_up():
    chain = sp.diags(np.ones(4), 1).tocsr()
    assert close_upwards(chain, 2)[0].indices.tolist() == [0, 1, 2]
    assert close_upwards(chain)[0].indices.tolist() == [0, 1, 2, 3, 4]


def test_ancestors_of_labels_skip_concepts_that_are_none():
    tagger = umpteen.Tagger("dismec", vocabulary=vocabulary()).fit(
        TEXTS, [[*row, "animals"] if "cod" in row else row for row in LABELS]
    )
    closed = tagger.concepts_.ancestors().toarray()
    names = list(tagger.classes_)
    assert closed[names.index("herring"), names.index("animals")] == 1  # over fish, which is no label
    assert closed.sum() == len(names) + 2
    found, _ = tagger.rank(["herring"], top_k=1)
    truth = np.array([[name == "animals" for name in names]], float)
    assert evaluate_hierarchy(truth, found, tagger.concepts_.ancestors(), k=1) == (50, 100, pytest.approx(200 / 3))


def test_suggestions_roll_up():
    tagger = umpteen.Tagger("dismec", vocabulary=vocabulary()).fit(TEXTS, LABELS)
    plain = dict(tagger.suggest("cod quotas", top_k=5))
    broader = tagger.suggest_broader("cod quotas", top_k=5)
    assert dict(broader) == pytest.approx(
        {
            "fish": max(plain["cod"], plain["herring"]),
            "drinks": max(plain["wine"], plain["beer"]),
            "law": plain["law"],
        }
    )
    assert broader.uris[0] in ("u:fish", "u:law")
    (two,) = tagger.suggest_broader(["cod quotas"], steps=2, top_k=5, language="fi")
    assert {name for name, _ in two} == {"animals-fi", "drinks-fi", "law-fi"}
    with pytest.raises(ParamError, match="steps must be"):
        tagger.suggest_broader("cod", steps=0)
    with pytest.raises(ParamError, match="must have a vocabulary with broader concepts"):
        umpteen.Tagger("dismec").fit(TEXTS, LABELS).suggest_broader("cod")


def test_a_piece_of_yso_is_closed_as_its_concepts_are_walked():
    pytest.importorskip("rdflib")
    found = umpteen.read_vocabulary(real("Annif-Archaeology", "yso-archaeology.ttl"))
    closed = close_upwards(found.broader_matrix())
    assert closed.nnz > len(found)
    for i in range(len(found)):
        assert set(closed[i].indices.tolist()) == {i, *found.ancestors(i)}
