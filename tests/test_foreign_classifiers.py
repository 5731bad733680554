"""Classifiers of scikit-learn in place of a tagger's method: the same answers, in memory only."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import LinearSVC

import umpteen
from umpteen.errors import DataError, ModelFormatError, ParamError
from umpteen.methods.foreign import MOST_LABELS, ForeignClassifier

CLASSIFIERS = {
    "svm": LinearSVC(),
    "logistic": LogisticRegression(),
    "bayes": MultinomialNB(),
    "forest": RandomForestClassifier(10, random_state=0),
    "neighbours": KNeighborsClassifier(3),
    "wrapped": OneVsRestClassifier(LogisticRegression()),
    "pipeline": make_pipeline(MaxAbsScaler(), LinearSVC()),
}
TEXTS = ["herring quotas at sea", "cod quotas in the sea", "a tax on wine", "wine and beer tax", "a red boat"] * 8
LABELS = [["fish", "sea"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"], ["sea"]] * 8


def expected_scores(classifier, X, Y):
    """One classifier a label, by hand: margins, or log-odds."""
    found = []
    for y in Y.toarray().astype(int).T:
        own = clone(classifier).fit(X, y)
        if hasattr(own, "decision_function"):
            found.append(own.decision_function(X))
        else:
            p = np.clip(own.predict_proba(X)[:, 1], 1e-7, 1 - 1e-7)
            found.append(np.log(p / (1 - p)))
    return np.column_stack(found)


@pytest.mark.parametrize("name", ["svm", "logistic", "bayes", "neighbours", "pipeline"])
def test_scores_are_those_of_a_classifier_for_each_label(name, tiny):
    X, Y = tiny.X, tiny.Y
    method = ForeignClassifier(CLASSIFIERS[name]).fit(X, Y)
    labels, scores = method.predict_topk(X, Y.shape[1])
    expected = expected_scores(CLASSIFIERS[name], X, Y)
    assert np.allclose(np.take_along_axis(expected, labels, 1), scores, atol=1e-3)
    assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_tagger_with_a_classifier_tags(name):
    given = CLASSIFIERS[name]
    tagger = umpteen.Tagger(given, features=TfidfVectorizer()).fit(TEXTS, LABELS)
    assert [sorted(row) for row in tagger.predict(TEXTS)] == LABELS
    assert tagger.suggest("herring quotas", top_k=2)[0][1] <= 1
    assert not hasattr(given, "classes_")  # a copy is fitted
    only = tagger.suggest("herring quotas", top_k=5, include=["tax", "wine"])
    assert {label for label, _ in only} <= {"tax", "wine"}


def test_a_label_that_no_row_or_every_row_has(tiny):
    Y = tiny.Y.toarray()
    Y[:, 0], Y[:, 1] = 0, 1
    for name in ("svm", "forest"):
        labels, _ = ForeignClassifier(CLASSIFIERS[name]).fit(tiny.X, Y).predict_topk(tiny.X, 20)
        assert 0 not in labels
        assert (labels == 1).any(axis=1).all()


def test_a_single_label():
    for name in CLASSIFIERS:
        tagger = umpteen.Tagger(CLASSIFIERS[name]).fit(TEXTS, [["fish"], ["fish"], [], [], []] * 8)
        assert tagger.predict(TEXTS[:3]) == [["fish"], ["fish"], []]


def test_its_settings_are_searched():
    tagger = umpteen.Tagger(LinearSVC(), calibration=0)
    search = GridSearchCV(tagger, {"method__C": [0.1, 1.0]}, cv=2).fit(TEXTS, LABELS)
    assert search.best_estimator_.method.C in (0.1, 1.0)


def test_it_stays_in_memory(tmp_path, monkeypatch):
    tagger = umpteen.Tagger(LinearSVC()).fit(TEXTS, LABELS)
    with pytest.raises(ModelFormatError, match="LinearSVC cannot be saved.*from_weights"):
        tagger.save(tmp_path / "a.model")
    monkeypatch.setattr(LinearSVC, "fit", lambda *_: pytest.fail("refused before anything is fitted"))
    with pytest.raises(ModelFormatError, match="LinearSVC cannot be saved"):
        umpteen.Tagger(LinearSVC(), features="word").fit(TEXTS, LABELS, tmp_path / "b.model")
    assert list(tmp_path.iterdir()) == []


def test_a_file_cannot_name_this_family(tmp_path, tiny):
    umpteen.Centroid().fit(tiny.X, tiny.Y).save(tmp_path / "a.model")
    manifest = tmp_path / "a.model" / "manifest.json"
    header = json.loads(manifest.read_text())
    assert header["family"] == "linear"
    manifest.write_text(manifest.read_text().replace('"linear"', '"sklearn"'))
    with pytest.raises(ModelFormatError, match="are not stored"):
        umpteen.load(tmp_path / "a.model")


def test_too_many_labels_and_what_is_no_classifier_are_refused(tiny):
    import scipy.sparse as sp

    Y = sp.csr_matrix((np.ones(300, np.float32), (np.arange(300), np.arange(300))), shape=(300, MOST_LABELS + 1))
    with pytest.raises(DataError, match=f"at most {MOST_LABELS} labels, but there are {MOST_LABELS + 1}"):
        ForeignClassifier(LinearSVC()).fit(tiny.X, Y)
    with pytest.raises(ParamError, match="method must be .* classifier by scikit-learn's rules"):
        umpteen.Tagger(MaxAbsScaler()).fit(TEXTS, LABELS)
    with pytest.raises(ParamError, match="cannot explain its scores"):
        umpteen.Tagger(LinearSVC()).fit(TEXTS, LABELS).explain("herring", "fish")
