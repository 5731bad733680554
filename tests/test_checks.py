"""The contract of umpteen.checks over every exported method and over a blend; and that it finds what breaks it."""

from __future__ import annotations

import numpy as np
import pytest

import umpteen
from umpteen.checks import CHECKS, FITTED_CHECKS, Case, Trained, check_fitted, check_model
from umpteen.methods import METHODS, method_class
from umpteen.methods.base import Method
from umpteen.methods.estimator import Estimator

#: Settings that give several shards on the contract's data; RXMLGlobal solves for all labels in one.
MANY_SHARDS = {
    "fastxml": {"n_trees": 4},
    "label-tree": {"n_trees": 4},
    "pfastrexml": {"n_trees": 3},
    "rxml": {"n_learners": 4},
    "rxml-global": {},
    "sleec": {"n_learners": 4},
}
#: Fewer trees and learners than by default, where the contract has no need of more.
SETTINGS = {
    "fastxml": {"n_trees": 8},
    "pfastrexml": {"n_trees": 8},
    "rxml": {"n_learners": 2},
    "sleec": {"n_learners": 2},
}


#: Their learners solve for embeddings anew in every check.
SLOW = {"rxml", "sleec"}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in METHODS]
)
def case(request) -> Case:
    cls = method_class(request.param)
    return Case(cls(**SETTINGS.get(request.param, {})), MANY_SHARDS.get(request.param, {"labels_per_shard": 10}))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(case, check):
    check(case)


def test_every_exported_method_is_checked():
    exported = {value for name in umpteen.__all__ if isinstance(value := getattr(umpteen, name), type)}
    methods = {cls for cls in exported if issubclass(cls, Estimator)} - {umpteen.Method}  # the base of them all
    assert methods == {method_class(name) for name in METHODS} | {umpteen.Blend}
    assert not issubclass(umpteen.Blend, Method)  # it is made of trained models, not trained


@pytest.fixture(scope="module")
def blend() -> Trained:
    data = umpteen.make_synthetic(500, 200, 40, labels_per_row=3, features_per_row=20, seed=7)
    names = [f"label {i}" for i in range(40)]
    methods = (umpteen.DiSMEC(), umpteen.FastXML(n_trees=5), umpteen.LabelTree(), umpteen.RXML(rank=10))
    members = [method.fit(data.X[:300], data.Y[:300], label_names=names) for method in methods]
    return Trained(umpteen.Blend(members).fit(data.X[300:], data.Y[300:]), data.X[300:], data.Y[300:])


@pytest.mark.parametrize("check", FITTED_CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract_of_a_blend(blend, check):
    check(blend)


# --- breaches are found ---------------------------------------------------------------------------------------------


class Swaps(umpteen.Centroid):
    """Ranks by what stands around a row."""

    def predict_topk(self, X, top_k=5, **options):
        labels, scores = super().predict_topk(X, top_k, **options)
        if X.shape[0] == 300:
            labels[:, 0], labels[:, 1] = labels[:, 1].copy(), labels[:, 0].copy()
        return labels, scores


class Writes(umpteen.Centroid):
    """Scales the caller's rows in their place."""

    def fit(self, X, *args, **options):
        if hasattr(X, "data") and isinstance(X.data, np.ndarray):
            X.data *= 2
        return super().fit(X, *args, **options)


class Threaded(umpteen.Centroid):
    """Trains other weights on more threads."""

    def train_labels(self, data, labels, resources):
        trained = super().train_labels(data, labels, resources)
        trained.W.data *= np.float32(self.threads or 1)
        return trained


class Greedy(umpteen.Centroid):
    """Ranks labels nobody has."""

    def pack(self, data, labels, trained):
        trained.bias[:] = 0
        return umpteen.methods.one_vs_rest.LinearShard.from_weights(trained.W, trained.bias, labels, self.weight_type)


@pytest.mark.parametrize(
    ("cls", "found"),
    [
        (Swaps, "check_threads_and_batches_agree: row 0 alone: labels differ"),
        (Writes, "check_any_kind_of_matrix_is_taken: unsorted X must not be changed"),
        (Threaded, "check_bytes_do_not_depend_on_threads: on 2 threads: .* must have the same bytes"),
        (Greedy, "check_degenerate_data: .*no label may be ranked"),
    ],
)
def test_breaches_are_named(cls, found):
    with pytest.raises((AssertionError, ValueError), match=found):
        check_model(cls, many_shards={"labels_per_shard": 10})


def test_a_loaded_model_can_be_checked(tiny, tmp_path):
    umpteen.Centroid().fit(tiny.X, tiny.Y, tmp_path / "m")
    check_fitted(umpteen.load(tmp_path / "m"), tiny.X, tiny.Y)
