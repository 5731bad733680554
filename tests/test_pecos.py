"""XR-Linear models that PECOS trained, opened as ours: the same predictions. tests/peers/pecos/make.py made them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.errors import DataError, MemoryLimitError

HERE = Path(__file__).parent / "peers" / "pecos"
MODELS = sorted(place.name for place in HERE.iterdir() if (place / "ranker").exists())
ROW = sp.csr_matrix(np.ones((1, 40), np.float32))


def read(name):
    """The model, rows, and what PECOS says of them, no logarithms."""
    model = umpteen.TrainedModel.from_pecos(HERE / name)
    found = json.loads((HERE / name / "predictions.json").read_text())
    X = sp.lil_matrix((len(found), model.n_features), dtype=np.float32)
    for i, entry in enumerate(found):
        for feature, value in entry["row"]:
            X[i, feature] = value
        if name.startswith("log-"):
            entry |= {key: [[label, np.exp(score)] for label, score in entry[key]] for key in ("all", "five")}
    return model, X.tocsr(), found


def test_all_kinds_are_there():
    assert MODELS == ["l3-hinge", "log-l2-hinge", "sigmoid"]
    biases = [json.loads((HERE / name / "ranker" / "0.model" / "param.json").read_text())["bias"] for name in MODELS]
    assert biases == [1.0, -1.0, 0.5]


@pytest.mark.parametrize("name", MODELS)
def test_every_score_is_pecos(name):
    model, X, found = read(name)
    labels, scores = model.configured(beam=100).predict_topk(X, model.n_labels)
    for i, entry in enumerate(found):
        theirs = dict(map(tuple, entry["all"]))
        ours = dict(zip(labels[i].tolist(), scores[i].tolist(), strict=True))
        assert len(theirs) > 10
        for label, score in theirs.items():
            assert np.exp(ours[label]) == pytest.approx(score, rel=1e-2, abs=1e-5)  # weights have 16 bits here


@pytest.mark.parametrize("name", MODELS)
def test_a_narrow_beam_finds_the_same_labels(name):
    model, X, found = read(name)
    labels, scores = model.predict_topk(X, 5)
    for i, entry in enumerate(found):
        theirs = sorted((score for _, score in entry["five"]), reverse=True)
        assert np.exp(scores[i]) == pytest.approx(theirs, rel=1e-2, abs=1e-4)
        sure = {label for label, score in entry["five"] if score > 1.02 * theirs[-1]}  # not tied with the last
        assert sure <= set(labels[i].tolist())


def test_it_is_saved_and_explained_like_any_other(tmp_path):
    model, X, _ = read("l3-hinge")
    names = [f"label {i}" for i in range(model.n_labels)]
    umpteen.TrainedModel.from_pecos(HERE / "l3-hinge", names).save(tmp_path / "a.model")
    loaded = umpteen.load(tmp_path / "a.model")
    assert loaded.label_names[3] == "label 3"
    assert all(map(np.array_equal, loaded.predict_topk(X, 5), model.predict_topk(X, 5)))
    labels, scores = loaded.predict_topk(X[0], 1)
    assert loaded.explain(X[0], int(labels[0, 0])).score == pytest.approx(float(scores[0, 0]), rel=1e-5)


@pytest.fixture
def place(tmp_path):
    shutil.copytree(HERE / "l3-hinge", tmp_path / "m")
    return tmp_path / "m"


def change(file, **settings):
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def rewrite(file, edit):
    """Writes an .npz again with other arrays."""
    with np.load(file) as found:
        arrays = dict(found)
    edit(arrays)
    np.savez(file, **arrays)


def move(arrays):
    arrays["indices"][0] = 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda ranker: shutil.rmtree(ranker), "ranker"),
        (lambda ranker: (ranker / "param.json").write_text("{"), "Expecting property name"),
        (lambda ranker: change(ranker / "param.json", depth=10**9), "depth must be a whole number from 1 to 64"),
        (lambda ranker: change(ranker / "param.json", depth=5), "3.model"),
        (lambda ranker: change(ranker / "param.json", depth=True), "depth must be a whole number"),
        (lambda ranker: change(ranker / "param.json", nr_features=41), r"W.npz must be \(42, "),
        (lambda ranker: change(ranker / "0.model" / "param.json", bias=-1.0), r"W.npz must be \(40, "),
        (lambda ranker: change(ranker / "0.model" / "param.json", bias=float("nan")), "bias must be a finite number"),
        (
            lambda ranker: change(ranker / "0.model" / "param.json", pred_kwargs={"post_processor": "noop"}),
            "post_processor must be one of l3-hinge",
        ),
        (
            lambda ranker: change(ranker / "0.model" / "param.json", pred_kwargs={"post_processor": "sigmoid"}),
            "all levels must have one post_processor, but have cubed, logistic",
        ),
        (lambda ranker: (ranker / "1.model" / "W.npz").write_bytes(b"PK"), "not a SciPy sparse matrix"),
        (lambda ranker: (ranker / "1.model" / "C.npz").unlink(), "C.npz"),
        (lambda ranker: rewrite(ranker / "1.model" / "C.npz", lambda a: a["data"].fill(2)), "in which one cluster"),
        (lambda ranker: rewrite(ranker / "0.model" / "C.npz", move), "in which one cluster"),
        (lambda ranker: rewrite(ranker / "1.model" / "W.npz", lambda a: a["indices"].fill(99)), "not a SciPy sparse"),
        (lambda ranker: rewrite(ranker / "1.model" / "W.npz", lambda a: a["data"].fill(np.inf)), "must be finite"),
        (
            lambda ranker: rewrite(ranker / "1.model" / "W.npz", lambda a: a["shape"].fill(2**40)),
            "not a SciPy sparse",
        ),
        (
            lambda ranker: sp.save_npz(ranker / "1.model" / "W.npz", sp.eye_array(4, format="dia")),
            "must be compressed columns of real numbers, but is dia",
        ),
        (
            lambda ranker: rewrite(ranker / "1.model" / "W.npz", lambda a: a.update(data=np.array([{}], object))),
            "not a SciPy sparse matrix",  # which would be pickled
        ),
    ],
)
def test_what_is_no_model_is_refused(damage, message, place):
    damage(place / "ranker")
    with pytest.raises(DataError, match=message):
        umpteen.TrainedModel.from_pecos(place)


@pytest.mark.parametrize("name", ["param.json", "W.npz"])
def test_only_plain_files_are_opened(name, place):
    (place / "ranker" / "0.model" / name).unlink()
    os.mkfifo(place / "ranker" / "0.model" / name)
    with pytest.raises(DataError, match="must be a regular file, but is a pipe"):
        umpteen.TrainedModel.from_pecos(place)


def test_a_matrix_that_no_memory_holds_is_refused(place, monkeypatch):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.npy", bytes(10**7))
    (place / "ranker" / "0.model" / "W.npz").write_bytes(content.getvalue())
    monkeypatch.setattr("umpteen.memory.available_memory", lambda: 10**7)
    with pytest.raises(MemoryLimitError, match="would need 30"):
        umpteen.TrainedModel.from_pecos(place)


def test_every_changed_byte_is_read_or_refused(place):
    draw = np.random.default_rng(1)
    for file in [*place.rglob("*.npz"), *place.rglob("param.json")]:
        whole = file.read_bytes()
        for _ in range(15):
            content = bytearray(whole)
            content[draw.integers(len(content))] = draw.integers(256)
            file.write_bytes(content)
            with contextlib.suppress(DataError, MemoryLimitError):
                umpteen.TrainedModel.from_pecos(place).predict_topk(ROW, 3)
        file.write_bytes(whole)
