"""benchmarks/scale.py: what it makes, what it extrapolates, and that the page says what was measured."""

from __future__ import annotations

import importlib.util
import json
import sys
import time

import numpy as np
import pytest

from .conftest import ROOT

PATH = ROOT / "benchmarks" / "scale.py"
if not PATH.exists():
    pytest.skip("benchmarks are not part of the source distribution", allow_module_level=True)


@pytest.fixture(scope="module")
def scale():
    sys.path.insert(0, str(PATH.parent))
    try:
        spec = importlib.util.spec_from_file_location("scale", PATH)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(PATH.parent))
    return module


def test_the_sets_have_amazons_shape(scale):
    train = scale.make_data(1000, "train")
    assert (train.n_rows, train.n_features, train.n_labels) == (732, 135_909, 1000)
    assert train.Y.nnz / 732 == pytest.approx(5.45, rel=0.05)
    assert train.X.nnz / 732 == pytest.approx(75.7, rel=0.05)
    assert train.label_counts().min() >= 1


def test_a_sample_of_labels_is_as_frequent_as_all(scale):
    Y = scale.make_data(1000, "train").Y
    counts = np.bincount(Y.indices, minlength=1000)
    labels = scale.sample_labels(Y, 10)
    assert len(labels) == 100
    assert (np.diff(labels) > 0).all()
    assert counts[labels].mean() == pytest.approx(counts.mean(), rel=0.1)


def test_the_clock_tells_waiting_from_work(scale):
    with scale.Clock() as clock:
        time.sleep(0.3)
    assert clock.wall >= 0.3
    assert clock.cpu < 0.2
    assert clock.paused == 0


RUN = {
    "rows": 10, "wall": 130.0, "paused": 30.0, "cpu": 150.0, "peak": 3e9, "held": 1e9, "estimated_peak": 4e9,
    "model": 2e8, "fraction": 0.04,
}  # fmt: skip


def test_parts_are_extrapolated_and_said_to_be(scale):
    numbers = {"machine": "here", "fastxml/670091": RUN, "label-tree/1000": RUN | {"fraction": 1.0}}
    page = "".join(f"<!-- {n} -->\n<!-- end -->\n" for n in ("machine", "training", "serving", "published", "series"))
    text = scale.render(page, numbers)
    assert "| FastXML | 2 of 50 trees | 2 min (2 min of processors); all: 62 min of processors |" in text
    assert "| 670,091 | 10 | not run | not run | 62 min, from 2 of 50 trees; 3.0 GB |" in text
    assert "| 1,000 | 10 | 2 min; 3.0 GB | not run | not run |" in text
    assert scale.render(text, numbers) == text
    with pytest.raises(ValueError, match="the page has no place for 'series'"):
        scale.render(page.replace("series", "serious"), numbers)


def test_the_page_says_what_was_measured(scale):
    text = scale.PAGE.read_text()
    assert scale.render(text, json.loads(scale.NUMBERS.read_text())) == text
