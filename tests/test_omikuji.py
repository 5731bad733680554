"""Trees that omikuji trained, opened as ours: the same predictions. tests/peers/omikuji/make.py made them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import umpteen
from umpteen.data.cbor import decode_cbor
from umpteen.errors import DataError, MemoryLimitError, ModelCorruptError, UmpteenError
from umpteen.models.label_tree import LINKS, LabelTreeModel, TreePart

HERE = Path(__file__).parent / "peers" / "omikuji"
MODELS = sorted(place.name for place in HERE.iterdir() if (place / "settings.json").exists())


def read(name):
    """The model, rows, and what omikuji says of them."""
    model = umpteen.TrainedModel.from_omikuji(HERE / name)
    found = json.loads((HERE / name / "predictions.json").read_text())
    X = sp.lil_matrix((len(found), model.n_features), dtype=np.float32)
    for i, entry in enumerate(found):
        for feature, value in entry["row"]:
            X[i, feature] = value
    return model, X.tocsr(), found


def test_all_kinds_are_there():
    assert MODELS == ["dense", "logistic", "sparse", "wide"]
    content = {name: (HERE / name / "tree0.cbor").read_bytes() for name in MODELS}
    assert b"Sparse" in content["sparse"]
    assert b"Dense" in content["dense"]


@pytest.mark.parametrize("name", MODELS)
def test_every_score_is_omikujis(name):
    model, X, found = read(name)
    labels, scores = model.configured(beam=100).predict_topk(X, model.n_labels)
    for i, entry in enumerate(found):
        theirs = dict(map(tuple, entry["all"]))
        ours = dict(zip(labels[i].tolist(), np.exp(scores[i]).tolist(), strict=True))
        assert set(theirs) == set(ours) - {-1}
        for label, score in theirs.items():
            assert ours[label] == pytest.approx(score, rel=4e-3, abs=1e-5)  # weights have 16 bits here


@pytest.mark.parametrize("name", MODELS)
def test_a_narrow_beam_finds_the_same_labels(name):
    model, X, found = read(name)
    labels, scores = model.predict_topk(X, 5)
    for i, entry in enumerate(found):
        theirs = [score for _, score in entry["five"]]
        assert np.exp(scores[i]) == pytest.approx(theirs, rel=4e-3, abs=1e-4)
        sure = {label for label, score in entry["five"] if score > 1.02 * theirs[-1]}  # not tied with the last
        assert sure <= set(labels[i].tolist())


def test_it_is_saved_and_explained_like_any_other(tmp_path):
    model, X, _ = read("sparse")
    names = [f"label {i}" for i in range(model.n_labels)]
    umpteen.TrainedModel.from_omikuji(HERE / "sparse", names).save(tmp_path / "a.model")
    loaded = umpteen.load(tmp_path / "a.model")
    assert loaded.method == "imported"
    assert loaded.label_names[3] == "label 3"
    assert all(map(np.array_equal, loaded.predict_topk(X, 5), model.predict_topk(X, 5)))
    label = int(model.predict_topk(X[0], 1)[0][0, 0])
    explained = loaded.explain(X[0], label)
    assert explained.score == pytest.approx(float(loaded.predict_topk(X[0], 1)[1][0, 0]), rel=1e-5)
    votes = [vote["score"] for vote in explained.votes]
    assert np.log(np.exp(votes).mean()) == pytest.approx(explained.score, rel=1e-3, abs=1e-5)


def test_links_are_what_the_kernel_computes():
    assert LINKS["squared"](0.5) == -0.25
    assert LINKS["squared"](3.0) == 0
    assert LINKS["cubed"](0.5) == -0.125
    assert LINKS["cubed"](3.0) == 0
    assert LINKS["logistic"](0.0) == pytest.approx(-np.log(2))


def test_an_unknown_link_is_refused():
    model, _, _ = read("dense")
    part = model.scorer.to_parts()[0]
    part.scalars["link"] = "cubist"
    with pytest.raises(
        ModelCorruptError, match="link of a label tree must be one of cubic, cubed, squared, logistic"
    ):
        TreePart.from_part(part)
    parts = read("dense")[0].scorer.to_parts()
    parts[1].scalars["link"] = "logistic"
    with pytest.raises(ModelCorruptError, match="must have one link, but have logistic, squared"):
        LabelTreeModel.from_parts(parts, 40, 24)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda place: (place / "settings.json").unlink(), "is not a model that omikuji saved"),
        (lambda place: (place / "settings.json").write_text('{"n_features": 40}'), "classifier_loss_type"),
        (lambda place: (place / "tree0.cbor").write_bytes(b"\xa1fBranch"), "is not a tree that omikuji saved"),
        (lambda place: [file.unlink() for file in place.glob("tree*")], "has no trees"),
        (
            lambda place: (place / "settings.json").write_text('{"n_features": 41, "classifier_loss_type": "Hinge"}'),
            "weights must be 42 x",
        ),
    ],
)
def test_what_is_no_model_is_refused(damage, message, tmp_path):
    shutil.copytree(HERE / "dense", tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(DataError, match=message):
        umpteen.TrainedModel.from_omikuji(tmp_path / "m")


def to_cbor(value) -> bytes:
    """The bytes of a value, of the kinds that a tree has."""
    if isinstance(value, float):
        return b"\xfa" + struct.pack(">f", value)
    if isinstance(value, int):
        return (
            bytes([0x1B]) + value.to_bytes(8, "big")
            if value >= 0
            else bytes([0x3B]) + (-1 - value).to_bytes(8, "big")
        )
    if isinstance(value, str):
        return bytes([0x60 | len(value)]) + value.encode()
    if isinstance(value, list):
        return b"\x9b" + len(value).to_bytes(8, "big") + b"".join(map(to_cbor, value))
    return bytes([0xA0 | len(value)]) + b"".join(to_cbor(part) for pair in value.items() for part in pair)


def leaf(labels, n_features=40, **weights):
    """A leaf whose labels have one weight each, of feature 3."""
    n = len(labels)
    sparse = {
        "outer_dim": n_features + 1, "inner_dim": n, "outer_inds": [3], "indptr": [0, n],
        "inner_inds": list(range(n)), "data": [0.5] * n,
    }  # fmt: skip
    return {"Leaf": {"labels": labels, "weights": {"Sparse": sparse | weights}}}


def write_model(place, root, n_features=40):
    place.mkdir()
    (place / "settings.json").write_text(json.dumps({"n_features": n_features, "classifier_loss_type": "Hinge"}))
    (place / "tree0.cbor").write_bytes(to_cbor(root))
    return place


def test_nothing_is_as_long_as_the_features_a_file_claims(tmp_path):
    n_features = 2**31 - 2
    leaves = [leaf([2 * i, 2 * i + 1], n_features) for i in range(50)]
    weights = leaf(list(range(50)), n_features)["Leaf"]["weights"]
    place = write_model(tmp_path / "m", {"Branch": {"weights": weights, "children": leaves}}, n_features)
    tracemalloc.start()
    try:
        model = umpteen.TrainedModel.from_omikuji(place)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert (model.n_features, model.n_labels) == (n_features, 100)


def test_a_written_tree_answers(tmp_path):
    model = umpteen.TrainedModel.from_omikuji(write_model(tmp_path / "m", leaf([1, 0], data=[0.5, -0.5])))
    X = sp.csr_matrix(([1.0], ([0], [3])), (1, 40), dtype=np.float32)
    labels, scores = model.predict_topk(X, 2)
    assert labels.tolist() == [[1, 0]]
    assert scores[0] == pytest.approx([-(0.5**2), -(1.5**2)], abs=1e-3)


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (leaf([2**32 + 5]), "a label must be from 0 to"),
        (leaf([-1]), "a label must be from 0 to"),
        (leaf([0.5]), "a label must be a whole number"),
        (leaf([0], outer_inds=[41]), "a feature of a node must be from 0 to 40"),
        (leaf([0], outer_inds=[2**62]), "a feature of a node must be from 0 to 40"),
        (leaf([0, 1], outer_inds=[3, 3], indptr=[0, 1, 2]), "features of a node must rise"),
        (leaf([0], inner_inds=[1]), "a child must be from 0 to 0"),
        (leaf([0], indptr=[0, 2**40]), "an offset must be from 0 to 1"),
        (leaf([0], indptr=[0.0, math.inf]), "an offset must be a whole number"),
        (leaf([0], outer_dim=2**62), "weights must be 41 x 1, but are 4611686018427387904 x 1"),
        (leaf([0], data=[math.nan]), "weights must be finite"),
        (leaf([0], outer_inds=[40], data=[math.inf]), "weights must be finite"),
    ],
)
def test_trees_that_are_written_by_hand_are_refused(root, message, tmp_path):
    with pytest.raises(DataError, match=message):
        umpteen.TrainedModel.from_omikuji(write_model(tmp_path / "m", root))


def test_a_label_that_no_memory_holds_is_refused(tmp_path, monkeypatch):
    place = write_model(tmp_path / "m", leaf([2**31 - 2]))
    monkeypatch.setattr("umpteen.memory.available_memory", lambda: 10**9)
    with pytest.raises(MemoryLimitError, match="has a label 2147483646"):
        umpteen.TrainedModel.from_omikuji(place)


@pytest.mark.parametrize(
    "n_features", ["1e400", "1" + "0" * 5000, "true", "40.5", '"40"', "-1", "4294967296", "[" * 100_000]
)
def test_settings_are_checked(n_features, tmp_path):
    place = write_model(tmp_path / "m", leaf([0]))
    (place / "settings.json").write_text(f'{{"classifier_loss_type": "Hinge", "n_features": {n_features}}}')
    with pytest.raises(DataError, match=r"settings\.json"):
        umpteen.TrainedModel.from_omikuji(place)


@pytest.mark.parametrize("name", ["settings.json", "tree0.cbor"])
@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_only_plain_files_are_opened(name, kind, tmp_path):
    place = write_model(tmp_path / "m", leaf([0]))
    (place / name).rename(tmp_path / name)
    if kind == "pipe":
        os.mkfifo(place / name)
    elif kind == "link":
        (place / name).symlink_to(tmp_path / name)
    else:
        (place / name).mkdir()
    with pytest.raises(DataError, match=f"must be a regular file, but is a {kind}"):
        umpteen.TrainedModel.from_omikuji(place)


def test_too_few_names_are_refused():
    with pytest.raises(DataError, match=r"at least \d+ label names, but there are 2"):
        umpteen.TrainedModel.from_omikuji(HERE / "dense", ["a", "b"])


# --- the format beneath ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("17", 23),
        ("1818", 24),
        ("3903e7", -1000),
        ("1b000000e8d4a51000", 10**12),
        ("fa47c35000", 100000.0),
        ("f93e00", 1.5),
        ("f5", True),
        ("f6", None),
        ("6449455446", "IETF"),
        ("4401020304", b"\x01\x02\x03\x04"),
        ("80", []),
        ("a26161016162820203", {"a": 1, "b": [2, 3]}),
        ("83f6f5f4", [None, True, False]),
    ],
)
def test_examples_of_the_standard(content, value):
    found = decode_cbor(bytes.fromhex(content))
    found = found | {"b": found["b"].tolist()} if isinstance(found, dict) else found
    assert found == value


def test_runs_of_numbers_of_several_widths():
    assert decode_cbor(bytes.fromhex("8601181819010020381805")).tolist() == [1, 24, 256, -1, -25, 5]
    mixed = decode_cbor(bytes.fromhex("84fa3f800000f9000002fb3ff8000000000000"))
    assert mixed.dtype == np.float32
    assert mixed.tolist() == [1.0, 0.0, 2.0, 1.5]
    n = 200_000
    long = b"\x9a" + n.to_bytes(4, "big") + bytes.fromhex("fa3f800000") * n
    assert len(decode_cbor(long)) == n


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content):
    with contextlib.suppress(DataError):
        decode_cbor(content)


@given(st.integers(0, 9000), st.integers(0, 255))
def test_a_damaged_tree_is_opened_or_refused(at, byte):
    from umpteen.trained.omikuji import _pack_tree

    content = bytearray((HERE / "dense" / "tree0.cbor").read_bytes())
    content[at % len(content)] = byte
    with contextlib.suppress(UmpteenError, ValueError, KeyError, TypeError):
        _pack_tree(decode_cbor(bytes(content)), 40, "squared")
