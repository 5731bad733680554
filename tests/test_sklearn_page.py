"""Each row of the page's table, "you had" and "you write now", tried on questions about cooking."""

from __future__ import annotations

import itertools
import re

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, make_scorer, ndcg_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.svm import LinearSVC

import umpteen

from .conftest import ROOT, data_root

PAGE = (ROOT / "docs" / "scikit_learn.md").read_text()
TABLE = PAGE.partition("| you had | you write now |\n|---|---|\n")[2].partition("\n\n")[0]


class Questions:
    """Texts, labels in every form, and rows of features."""

    def __init__(self):
        folder = data_root() / "StackExchange-Cooking"
        if not folder.exists():
            pytest.skip(f"no StackExchange-Cooking in {data_root()}; set UMPTEEN_DATA to run this test")
        questions = list(itertools.islice(umpteen.iter_corpus(folder / "train.jsonl.xz"), 500))
        binarizer = MultiLabelBinarizer()
        Y = binarizer.fit_transform([question.labels for question in questions])
        frequent = np.sort(np.argsort(-Y.sum(axis=0), kind="stable")[:8])
        kept = Y[:, frequent].any(axis=1)
        self.texts = [question.text for question, has in zip(questions, kept, strict=True) if has]
        self.Y, self.names = Y[kept][:, frequent], binarizer.classes_[frequent]
        self.lists = [self.names[row > 0].tolist() for row in self.Y]
        self.y = self.names[self.Y.argmax(axis=1)]
        self.X = TfidfVectorizer().fit_transform(self.texts)
        self.table = pd.DataFrame({"title": self.texts, "end": [text[-30:] for text in self.texts]})


@pytest.fixture(scope="module")
def q():
    return Questions()


ROWS = {}


def row(had):
    """Registers the try-out of the table's row that begins so."""

    def register(function):
        ROWS[had] = function
        return function

    return register


def agrees(now, had, q, share=0.97):
    """Whether what both predict for the rows they were fitted to is nearly the same."""
    return np.mean(now.fit(q.X, q.Y).predict(q.X) == had.fit(q.X, q.Y).predict(q.X)) > share


@row("`OneVsRestClassifier(LinearSVC(C=1))`")
def _(q):
    assert agrees(umpteen.DiSMEC(C=1), OneVsRestClassifier(LinearSVC(C=1)), q)


@row("`OneVsRestClassifier(LinearSVC(penalty=")
def _(q):
    assert agrees(umpteen.DiSMEC(penalty="l1"), OneVsRestClassifier(LinearSVC(penalty="l1", dual=False)), q)


@row("`OneVsRestClassifier(LogisticRegression(C=10))`")
def _(q):
    assert agrees(umpteen.DiSMEC(loss="logistic", C=10), OneVsRestClassifier(LogisticRegression(C=10)), q)


@row("`OneVsRestClassifier(…, n_jobs=-1)`")
def _(q):
    assert umpteen.DiSMEC().threads is None
    assert (
        umpteen.DiSMEC(n_jobs=2).threads == umpteen.Tagger(threads=2).n_jobs == umpteen.Tfidf(n_jobs=2).threads == 2
    )


@row('`Pipeline([("tfidf", TfidfVectorizer())')
def _(q):
    had = make_pipeline(TfidfVectorizer(), OneVsRestClassifier(LinearSVC())).fit(q.texts, q.Y).predict(q.texts)
    for now in (make_pipeline(umpteen.Tfidf(), umpteen.DiSMEC()), umpteen.Tagger("dismec", calibration=0)):
        assert np.mean(now.fit(q.texts, q.Y).predict(q.texts) == had) > 0.97


@row("a `TfidfVectorizer` or `ColumnTransformer` you want to keep")
def _(q, tmp_path):
    tagger = umpteen.Tagger("dismec", features=TfidfVectorizer(min_df=2)).fit(q.texts, q.lists)
    tagger.save(tmp_path / "a.model")
    assert umpteen.load(tmp_path / "a.model").predict(q.texts) == tagger.predict(q.texts)


@row('`ColumnTransformer([("title", TfidfVectorizer(), "title")')
def _(q, tmp_path):
    columns = ColumnTransformer([("title", umpteen.Tfidf(), "title"), ("end", umpteen.Tfidf(), "end")])
    assert make_pipeline(columns, umpteen.DiSMEC()).fit(q.table, q.Y).score(q.table, q.Y) > 0.9
    tagger = umpteen.Tagger("dismec", features={"title": "word", "end": "word"}).fit(q.table, q.lists)
    tagger.save(tmp_path / "a.model")
    assert umpteen.load(tmp_path / "a.model").predict(q.table) == tagger.predict(q.table)


@row("another classifier, to compare with")
def _(q):
    assert umpteen.Tagger(LogisticRegression(C=10)).fit(q.texts, q.lists).score(q.texts, q.lists) > 0.9


@row("`MultiLabelBinarizer().fit_transform(labels)`")
def _(q):
    assert (
        umpteen.DiSMEC().fit(q.X, q.lists).predict(q.X)[0]
        == umpteen.Tagger("dismec").fit(q.texts, q.lists).predict(q.texts)[0]
    )


@row("a pandas, polars or Arrow table")  # the other kinds are in test_sklearn_tools.py
def _(q):
    frame = pd.DataFrame(q.Y, columns=q.names)
    assert umpteen.Tagger("dismec").fit(q.table["title"], frame).predict(q.table["title"]).shape == q.Y.shape


@row("`csr_array` instead of `csr_matrix`")
def _(q):
    for kind in (sp.csr_array, sp.csr_matrix):
        svm = umpteen.DiSMEC().fit(kind(q.X), kind(q.Y))
        assert type(svm.predict(kind(q.X))) is kind
        assert type(umpteen.Tagger("dismec").fit(q.texts, kind(q.Y)).predict(q.texts)) is kind
        assert type(svm.coef_) is type(umpteen.Tfidf().fit_transform(q.texts)) is sp.csr_matrix


@row("`fit(X, y)` with one class for each row")
def _(q):
    for now in (umpteen.Tagger("dismec"), make_pipeline(umpteen.Tfidf(), umpteen.DiSMEC())):
        assert set(now.fit(q.texts, q.y).predict(q.texts)) <= set(q.names)
        assert now.score(q.texts, q.y) == np.mean(now.predict(q.texts) == q.y) > 0.9


@row("`fit(X, Y, sample_weight=w)`")
def _(q):
    weights = np.linspace(0, 1, len(q.texts))
    for now in (umpteen.Tagger("dismec"), umpteen.DiSMEC(penalty="l1"), umpteen.LabelTree(), umpteen.FastXML()):
        now.fit(q.texts if isinstance(now, umpteen.Tagger) else q.X, q.Y, sample_weight=weights)
    pipeline = make_pipeline(umpteen.Tfidf(), umpteen.DiSMEC())
    pipeline.fit(q.texts, q.Y, dismec__sample_weight=weights)
    for none in (umpteen.RXML(), umpteen.SLEEC()):
        with pytest.raises(TypeError, match="sample_weight"):
            none.fit(q.X, q.Y, sample_weight=weights)


@row('`class_weight="balanced"`')
def _(q):
    had = OneVsRestClassifier(LinearSVC(class_weight={0: 1, 1: 5}))
    assert agrees(umpteen.DiSMEC(positive_weight=5), had, q)
    labels = [1.0 + 4 * (name == q.names[0]) for name in q.names]
    for method in (umpteen.DiSMEC, umpteen.PPDSparse):
        plain, some, even = (
            method(positive_weight=weight).fit(q.X, q.Y).predict(q.X).sum(axis=0)
            for weight in (1.0, labels, "balanced")
        )
        assert even.sum() >= some.sum() >= plain.sum()


@row("`decision_function(X)`")
def _(q):
    svm = umpteen.DiSMEC().fit(q.X, q.Y)
    assert np.array_equal(svm.decision_function(q.X).argmax(axis=1), svm.predict_topk(q.X, 5)[0][:, 0])


@row("`CalibratedClassifierCV(…)`, `predict_proba(X)`")
def _(q):
    for now, X in ((umpteen.Tagger("dismec"), q.texts), (make_pipeline(umpteen.Tfidf(), umpteen.DiSMEC()), q.texts)):
        assert CalibratedClassifierCV(now, cv=2).fit(X, q.y).predict_proba(X).shape == (len(q.y), len(set(q.y)))
    svm = umpteen.DiSMEC().fit(q.X, q.Y, calibration=5)
    assert np.array_equal(svm.predict_proba(q.X).max(axis=1), svm.predict_topk_proba(q.X, 5)[1][:, 0])
    pipeline = make_pipeline(umpteen.Tfidf(), umpteen.DiSMEC()).fit(q.texts, q.Y, dismec__calibration=5)
    assert pipeline.predict_proba(q.texts).shape == q.Y.shape
    assert umpteen.Tagger("dismec").fit(q.texts, q.lists).predict_proba(q.texts).shape == q.Y.shape


@row("`coef_`, `intercept_`")
def _(q):
    svm = umpteen.DiSMEC(normalize=False).fit(q.X, q.Y)
    had = OneVsRestClassifier(LinearSVC(C=1)).fit(q.X, q.Y)
    assert np.abs(svm.coef_.toarray() - np.vstack([one.coef_ for one in had.estimators_])).max() < 0.05
    assert np.allclose(svm.intercept_, np.concatenate([one.intercept_ for one in had.estimators_]), atol=0.05)


@row("`sparsify()`")
def _(q):
    svm = umpteen.DiSMEC().fit(q.X, q.Y)
    assert sp.issparse(svm.coef_)
    assert svm.pruned(0.05).coef_.nnz < svm.coef_.nnz < LinearSVC().fit(q.X, q.y).coef_.size


@row('`GridSearchCV(…, scoring="f1_micro")`')
def _(q):
    tagger = umpteen.Tagger("dismec", calibration=0)
    frame = pd.DataFrame(q.Y, columns=q.names)
    had = GridSearchCV(tagger, {"method__C": [0.3, 1]}, cv=KFold(2), scoring="f1_micro").fit(q.texts, frame)
    measure = umpteen.make_scorer("f1_micro")
    now = GridSearchCV(tagger, {"method__C": [0.3, 1]}, cv=KFold(2), scoring=measure).fit(q.texts, q.lists)
    assert now.best_score_ == pytest.approx(had.best_score_)
    assert now.best_params_ == had.best_params_


@row("`scoring=make_scorer(ndcg_score, …)`")
def _(q):
    svm = umpteen.DiSMEC()
    has = q.Y.any(axis=1)
    had = make_scorer(ndcg_score, k=5, response_method="decision_function")
    scores = [
        cross_val_score(svm, q.X[has], q.Y[has], cv=KFold(2), scoring=scoring)
        for scoring in (had, umpteen.make_scorer("nDCG@5"))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@row("`SelectFromModel(LinearSVC(…))`")
def _(q):
    pipeline = Pipeline([("some", SelectFromModel(umpteen.DiSMEC())), ("svm", umpteen.DiSMEC())]).fit(q.X, q.Y)
    assert pipeline[-1].n_features_in_ < q.X.shape[1] / 2
    assert f1_score(q.Y, pipeline.predict(q.X), average="micro") > 0.8


@row("`joblib.dump(model, path)`")
def _(q, tmp_path):
    svm = umpteen.DiSMEC().fit(q.X, q.Y)
    svm.save(tmp_path / "a.model")
    joblib.dump(svm, tmp_path / "a.joblib")
    loaded, unpickled = umpteen.load(tmp_path / "a.model"), joblib.load(tmp_path / "a.joblib")
    assert np.array_equal(loaded.decision_function(q.X), unpickled.decision_function(q.X))


def _begins(cell):
    found = [had for had in ROWS if cell.startswith(had)]
    assert len(found) == 1, f"the table's row {cell!r} must be tried here once, but is so {len(found)} times"
    return found[0]


CELLS = [re.split(r" \| ", line.strip("| "))[0] for line in TABLE.splitlines()]


@pytest.mark.parametrize("cell", CELLS)
def test_row(cell, q, tmp_path):
    tried = ROWS[_begins(cell)]
    tried(q, tmp_path) if tried.__code__.co_argcount == 2 else tried(q)


def test_every_row_that_is_tried_is_in_the_table():
    assert sorted(map(_begins, CELLS)) == sorted(ROWS)
    assert len(CELLS) >= 20
