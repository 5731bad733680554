"""Fixtures every test file may use, and marks that follow from them."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

# Before numpy is first imported: tests run side by side, and the judges' matrices are small.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import umpteen
from umpteen import _native

from . import side_by_side
from .side_by_side import pytest_xdist_auto_num_workers  # noqa: F401  (a hook that is asked before plugins are configured)

# Ray reads these when it is first imported, by whichever test that is; those of a cluster come later.
os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))

settings.register_profile("umpteen", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("umpteen")

ROOT = Path(__file__).resolve().parent.parent

#: What a test is that uses one of these fixtures.
MARKS = {
    "data": {"bibtex", "compared", "cooking", "eurlex", "nuclei"},
    "process": {"browser", "cluster", "compared", "small_disk"},
    "foreign": {"browser", "cluster", "compared"},
    "slow": {"cook", "eurlex", "members"},
}


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(side_by_side)


@pytest.hookimpl(tryfirst=True)  # before tests are selected by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark, fixtures in MARKS.items():
            if fixtures & set(getattr(item, "fixturenames", ())):
                item.add_marker(mark)
        if item.get_closest_marker("foreign") or item.get_closest_marker("measured"):
            item.add_marker("slow")


def data_root() -> Path:
    """Where the real data sets are: $UMPTEEN_DATA, else shared/data beside the project."""
    return Path(os.environ.get("UMPTEEN_DATA", ROOT.parent / "shared" / "data"))


def read_pair(name: str) -> tuple[umpteen.Dataset, umpteen.Dataset]:
    folder = data_root() / name
    if not folder.exists():
        pytest.skip(f"no {name} in {data_root()}; set UMPTEEN_DATA to run this test")
    return umpteen.read_xc(folder / "train.txt.xz"), umpteen.read_xc(folder / "test.txt.xz")


@pytest.fixture(scope="session")
def bibtex() -> tuple[umpteen.Dataset, umpteen.Dataset]:
    return read_pair("Bibtex")


@pytest.fixture(scope="session")
def eurlex() -> tuple[umpteen.Dataset, umpteen.Dataset]:
    return read_pair("EURLex-4K")


@pytest.fixture(scope="session")
def tiny() -> umpteen.Dataset:
    """A few hundred rows that something can be learnt from."""
    return umpteen.make_synthetic(300, 200, 40, labels_per_row=3, features_per_row=20, seed=7)


@pytest.fixture(scope="session")
def served_models(tmp_path_factory) -> dict[str, str]:
    """Two models of texts and one of numbers, without label names."""
    from umpteen.serving.settings import name_models
    from umpteen.storage.store import keep_metrics

    from .serving import LABELS, TEXTS, train

    folder = tmp_path_factory.mktemp("served")
    train(umpteen.DiSMEC()).save(folder / "tags.model")
    train(umpteen.FastXML(n_trees=5, normalize=True)).save(folder / "trees.model")
    data = umpteen.make_synthetic(300, 200, 40, labels_per_row=3, features_per_row=20, seed=7)
    umpteen.DiSMEC().fit(data.X, data.Y).save(folder / "numbers.model")
    keep_metrics(folder / "tags.model", umpteen.load(folder / "tags.model").evaluate(TEXTS, LABELS).as_dict())
    return name_models([str(folder / name) for name in ("tags.model", "trees.model", "numbers.model")])


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in _native.available_simd() if name != _native.simd()]


@pytest.fixture(params=[_native.simd(), *OTHERS])
def simd(request):
    """Runs a test once per instruction set this machine has, in the quick loop with the one it would choose."""
    before = _native.simd()
    _native.use_simd(request.param)
    yield request.param
    _native.use_simd(before)


def same_dataset(a: umpteen.Dataset, b: umpteen.Dataset) -> None:
    for left, right in ((a.X, b.X), (a.Y, b.Y)):
        assert left.shape == right.shape
        np.testing.assert_array_equal(left.indptr, right.indptr)
        np.testing.assert_array_equal(left.indices, right.indices)
        np.testing.assert_array_equal(left.data, right.data)
    assert a.label_names == b.label_names
    assert a.feature_names == b.feature_names
