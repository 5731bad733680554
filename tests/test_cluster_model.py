"""The model of a cluster in benchmarks/, on runs that can be worked out by hand."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from .conftest import ROOT

PATH = ROOT / "benchmarks" / "cluster_model.py"
if not PATH.exists():
    pytest.skip("benchmarks are not part of the source distribution", allow_module_level=True)
spec = importlib.util.spec_from_file_location("cluster_model", PATH)
model = importlib.util.module_from_spec(spec)
sys.modules["cluster_model"] = model
spec.loader.exec_module(model)
Machines, Costs, simulate = model.Machines, model.Costs, model.simulate


def test_order_matters_where_one_shard_is_large():
    work = [1.0, 1.0, 1.0, 1.0, 4.0]
    assert simulate(work, Machines(2), Costs()).seconds == 6
    best = simulate(model.largest_first(work), Machines(2), Costs())
    assert (best.seconds, best.efficiency) == (4, 1)
    assert sorted(model.shuffled(work, 3)) == sorted(work)


def test_the_largest_shard_is_a_floor_and_the_work_another():
    work = [5.0] + [1.0] * 20
    for nodes in (1, 2, 5, 100):
        seconds = simulate(model.largest_first(work), Machines(nodes), Costs()).seconds
        assert seconds >= max(5, 25 / nodes)
    assert seconds == 5


def test_threads_start_up_and_the_way_of_the_data():
    assert simulate([3.0], Machines(1, threads=2), Costs(thread_share=0.5)).seconds == 2
    assert simulate([3.0, 3.0], Machines(1, workers=2), Costs()).seconds == 3
    # Three pieces on two threads take two rounds.
    assert simulate([3.0], Machines(1, threads=2), Costs(pieces=3)).seconds == 2
    costs = Costs(x_bytes=10, bandwidth=10, start=3, task=0.5)
    assert simulate([1.0], Machines(1), costs).seconds == 3 + 1 + 0.5 + 1
    # Two more nodes get X in the second round, from the first and the driver; four more in the third.
    ends = simulate([1.0] * 7, Machines(7), Costs(x_bytes=10, bandwidth=10)).seconds
    assert ends == 3 + 1


def test_results_wait_for_one_another():
    costs = Costs(shard_bytes=10, bandwidth=10, write=0.1)
    assert simulate([1.0, 1.0], Machines(2), costs).seconds == 1 + 1 + 1 + 1
