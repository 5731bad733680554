"""Weights of other programs as models of ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import umpteen
from umpteen.errors import DataError, ModelFormatError, ParamError
from umpteen.methods import method_of
from umpteen.trained.liblinear import write_liblinear

from .serving import serving


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


# --- what others trained, as any other model -----------------------------------------------------------------------

PEERS = Path(__file__).parent / "peers"


def weights_of_liblinear(X, Y):
    """One machine for each label, by LIBLINEAR itself."""
    from liblinear.liblinearutil import train

    found = []
    for label in range(Y.shape[1]):
        y = np.where(Y[:, label].toarray().ravel() > 0, 1, -1)
        machine = train(y, sp.csr_matrix(X, dtype=np.float64), "-s 2 -B 1 -q")
        weights, bias = machine.get_decfun(label_idx=machine.get_labels().index(1))
        found.append([*weights[: X.shape[1]], bias])
    return np.array(found)


def test_weights_of_liblinear_score_as_it_does(bibtex):
    from liblinear.liblinearutil import predict, train

    X, Y = bibtex[0].X[:300], bibtex[0].Y[:300]
    Y = Y[:, np.argsort(-Y.getnnz(axis=0), kind="stable")[:5]]
    weights = weights_of_liblinear(X, Y)
    model = umpteen.TrainedModel.from_weights(weights[:, :-1], weights[:, -1], weight_type="float32")
    y = np.where(Y[:, 2].toarray().ravel() > 0, 1, -1)
    machine = train(y, sp.csr_matrix(X, dtype=np.float64), "-s 2 -B 1 -q")
    _, _, scores = predict([], sp.csr_matrix(X, dtype=np.float64), machine, "-q")
    theirs = np.ravel(scores) * machine.get_labels()[0]
    assert np.abs(model.decision_function(X)[:, 2] - theirs).max() < 1e-5


def linear_model(peer):
    X, _, coef, intercept = peer
    names = [f"label {i}" for i in range(len(coef))]
    return umpteen.TrainedModel.from_weights(coef, intercept, names), X


def omikujis_model(peer):
    model = umpteen.TrainedModel.from_omikuji(PEERS / "omikuji" / "sparse", [f"label {i}" for i in range(20)])
    return model, sp.random(20, model.n_features, 0.1, format="csr", dtype=np.float32, rng=np.random.default_rng(1))


def pecos_model(peer):
    model = umpteen.TrainedModel.from_pecos(PEERS / "pecos" / "l3-hinge", [f"label {i}" for i in range(24)])
    return model, sp.random(20, model.n_features, 0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(1))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("make", [linear_model, omikujis_model, pecos_model])
def test_what_others_trained_is_served_and_explained(make, peer, tmp_path):
    model, X = make(peer)
    model.save(tmp_path / "theirs.model")
    row = {str(j): float(value) for j, value in zip(X[0].indices, X[0].data, strict=True)}
    labels, _ = model.predict_topk(X[0], 3)
    with serving(str(tmp_path / "theirs.model")) as server, server.client() as client:
        found = client.post("/v1/suggest", json={"features": row, "top_k": 3}).json()["results"]
        assert [hit["label"] for hit in found] == [model.label_names[label] for label in labels[0]]
        why = client.post("/v1/explain", json={"features": row, "label": found[0]["label"]}).json()
        score = model.explain(X[0], int(labels[0, 0])).score
        assert why["score"] == pytest.approx(float(model.to_unit(np.array([score], np.float32))[0]), abs=1e-5)
        assert client.get("/v1/models").json()["models"][0]["method"] == "imported"


def test_linear_weights_of_others_are_pruned_and_written_as_npz(peer, tmp_path):
    model, X = linear_model(peer)
    small = model.pruned(0.05)
    W, bias = small.to_weights()
    assert W.nnz < 0.8 * model.to_weights()[0].nnz
    sp.save_npz(tmp_path / "weights.npz", W)
    again = umpteen.TrainedModel.from_weights(sp.load_npz(tmp_path / "weights.npz"), bias)
    assert np.array_equal(again.decision_function(X), small.decision_function(X))
    dense = X @ sp.load_npz(tmp_path / "weights.npz").T.toarray() + bias
    assert np.abs(dense - small.decision_function(X)).max() < 1e-4


@pytest.mark.parametrize("make", [omikujis_model, pecos_model])
def test_trees_of_others_have_no_weights_for_each_label(make, peer):
    model, _ = make(peer)
    for use, what in ((lambda: model.pruned(0.05), "prune"), (model.to_weights, "export")):
        with pytest.raises(ParamError, match=f"only linear models have weights to {what}, but .* is label-tree"):
            use()
