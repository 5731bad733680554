"""Weights of other programs as models of ours."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import umpteen
from umpteen.errors import DataError, ModelFormatError, ParamError
from umpteen.methods import method_of
from umpteen.trained.liblinear import write_liblinear


@pytest.fixture(scope="module")
def peer(bibtex):
    train, _ = bibtex
    X, Y = train.X[:600], train.Y[:600, :20]
    Y = Y[:, np.flatnonzero(Y.getnnz(axis=0))]
    svms = OneVsRestClassifier(LinearSVC()).fit(X, Y)
    coef = np.vstack([svm.coef_ for svm in svms.estimators_])
    return X, svms.decision_function(X), coef, np.concatenate([svm.intercept_ for svm in svms.estimators_])


@pytest.mark.parametrize("weight_type", ["float32", "float16"])
def test_scores_are_those_of_the_original(weight_type, peer):
    X, scores, coef, intercept = peer
    model = umpteen.TrainedModel.from_weights(coef, intercept, weight_type=weight_type)
    digits = 1e-4 if weight_type == "float32" else 5e-3
    assert np.abs(model.decision_function(X) - scores).max() < digits * np.abs(scores).max()
    W, bias = model.to_weights()
    assert np.abs(W.toarray() - coef).max() < digits * np.abs(coef).max()
    assert np.allclose(bias, intercept, atol=1e-6)


def test_a_sparse_matrix_gives_the_same_model(peer):
    X, _, coef, intercept = peer
    dense, sparse = (umpteen.TrainedModel.from_weights(W, intercept) for W in (coef, sp.csr_array(coef)))
    assert np.array_equal(dense.decision_function(X), sparse.decision_function(X))


def test_it_is_pruned_saved_explained_and_calibrated(peer, tmp_path):
    X, scores, coef, intercept = peer
    names = [f"label {i}" for i in range(len(coef))]
    model = umpteen.TrainedModel.from_weights(coef, intercept, names, weight_type="float32")
    small = model.pruned(0.05, tmp_path / "a.model")
    assert small.scorer.nnz < 0.8 * model.scorer.nnz
    loaded = umpteen.load(tmp_path / "a.model")
    assert np.array_equal(loaded.decision_function(X), small.decision_function(X))
    assert loaded.explain(X[0], "label 3").score == pytest.approx(loaded.decision_function(X[0])[0, 3], abs=1e-4)
    calibrated = loaded.calibrate(X, sp.csr_matrix(scores > 0))
    assert calibrated.predict_proba(X).max() > 0.5
    with pytest.raises(ModelFormatError, match="method is 'imported', which this umpteen does not have"):
        method_of(loaded)


@pytest.mark.parametrize("n_labels", [1, 20])
def test_liblinear_reads_the_weights_and_gives_the_same_scores(n_labels, bibtex, tmp_path):
    from liblinear.liblinearutil import load_model, predict

    train, test = bibtex
    svm = umpteen.DiSMEC(prune=0).fit(train.X[:600], train.Y[:600, :n_labels])
    svm.to_liblinear(tmp_path / "a.model")
    theirs = load_model(str(tmp_path / "a.model"))
    rows = svm.preprocessing_.transform(test.X[:200])
    best, _, scores = predict([], sp.csr_matrix(rows, dtype=np.float64), theirs, "-q")
    ours = svm.decision_function(test.X[:200])[:, theirs.get_labels()]
    assert np.abs(np.array(scores) - ours).max() < 1e-5
    assert np.array_equal(np.array(best, int), svm.predict_topk(test.X[:200], 1)[0][:, 0])


def test_liblinear_has_both_of_two_labels(tmp_path):
    from liblinear.liblinearutil import load_model

    model = umpteen.TrainedModel.from_weights(np.array([[1.0, 0.0, 3.0], [0.0, 2.0, -4.0]]), [0.5, 0.25])
    model.to_liblinear(tmp_path / "a.model")
    theirs = load_model(str(tmp_path / "a.model"))
    assert [theirs.get_decfun(i) for i in range(2)] == [([1, 0, 3], 0.5), ([0, 2, -4], 0.25)]


def test_labels_that_are_never_ranked_are_not_written(tmp_path):
    from liblinear.liblinearutil import load_model

    model = umpteen.TrainedModel.from_weights(np.eye(4), [0.5, -np.inf, 0.25, -1e-20], weight_type="float32")
    model.to_liblinear(tmp_path / "a.model")
    theirs = load_model(str(tmp_path / "a.model"))
    assert theirs.get_labels() == [0, 2, 3]
    assert theirs.get_decfun(1) == ([0, 0, 1, 0], 0.25)
    assert theirs.get_decfun_bias(2) == pytest.approx(-1e-20)


def test_what_liblinear_cannot_hold_is_not_written(tmp_path):
    n = 2**16
    with pytest.raises(ParamError, match="LIBLINEAR holds at most 2147483647 weights"):
        write_liblinear(tmp_path / "a.model", sp.csr_matrix((n, n)), np.zeros(n, np.float32), np.arange(n))
    with pytest.raises(ParamError, match="must have a label"):
        umpteen.TrainedModel.from_weights(np.eye(2), -np.inf).to_liblinear(tmp_path / "a.model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("coef", "intercept", "names", "message"),
    [
        (np.ones((2, 3)), [1.0, 2.0, 3.0], None, "intercept must have a finite number"),
        (np.ones((2, 3)), [1.0, np.nan], None, "intercept must have a finite number"),
        (np.ones((2, 3)), None, ["a"], "there must be 2 label names, but there are 1"),
        (np.ones((0, 3)), None, None, "coef must be labels x features"),
        (np.array([[np.inf, 1.0]]), None, None, "weights must be finite"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(coef, intercept, names, message):
    with pytest.raises(DataError, match=message):
        umpteen.TrainedModel.from_weights(coef, intercept, names)


def test_other_types_of_weights_are_refused():
    with pytest.raises(ParamError, match="weight_type must be one of"):
        umpteen.TrainedModel.from_weights(np.ones((2, 3)), weight_type="int8")
