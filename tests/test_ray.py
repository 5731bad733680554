"""The Ray engine on a real cluster of several nodes on this machine: the local engine's bytes, whatever breaks."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import umpteen
from umpteen.engines import make_engine
from umpteen.engines.base import Task
from umpteen.errors import MissingExtraError, ModelChangedError, ModelError, ParamError, ShardError, UmpteenError
from umpteen.methods import METHODS, method_class
from umpteen.methods.training import ShardWork
from umpteen.methods.training_data import TrainingData
from umpteen.storage.store import ModelWriter, Part

from .conftest import ROOT
from .files import read_files

pytestmark = [
    pytest.mark.process,
    pytest.mark.foreign,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="Ray has no package for this Python or platform; pip install 'umpteen[ray]' where it has",
    ),
]
# Ray leaves the closing of its sockets and logs to the end of the process.
quiet = pytest.mark.filterwarnings("ignore")

#: Settings that give several shards on the data called tiny.
SETTINGS = {
    "fastxml": {"n_trees": 4},
    "pfastrexml": {"n_trees": 3},
    "rxml": {"n_learners": 2, "n_clusters": 2},
    "sleec": {"n_learners": 2},
    "rxml-global": {},
}


def settings_for(name):
    params = method_class(name).param_defaults()
    return SETTINGS.get(name, {"labels_per_shard": 9} if "labels_per_shard" in params else {})


def assert_same_model(a: Path, b: Path) -> None:
    left, right = read_files(a), read_files(b)
    assert len(left) > 3
    assert left.keys() == right.keys()
    assert not [name for name in left if left[name] != right[name]]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes, of two cores and of one, and a head without any. Tests that break nodes add their own."""
    from .ray_cluster import running_cluster

    with running_cluster() as cluster:
        cluster.nodes = [cluster.add_node(2), cluster.add_node(1)]
        yield cluster


@pytest.fixture(scope="module")
def engine(cluster):
    from umpteen.engines.ray import RayEngine

    with RayEngine(cluster.address, cpus=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Data whose shards take long enough to be disturbed, and the model the local engine makes of them."""
    data = umpteen.make_synthetic(20000, 8000, 320, labels_per_row=4, features_per_row=60, seed=7)
    path = tmp_path_factory.mktemp("local") / "model"
    umpteen.DiSMEC(labels_per_shard=20).fit(data.X, data.Y, path)
    return data, path


def disturbed_fit(engine, work, path, disturb):
    """Trains what `work` has, and calls `disturb` between shards until it says that it did what it wanted."""
    done = []

    def listen(progress):
        if not done and progress.shards_done < progress.shards_total and disturb(progress.shards_done):
            done.append(progress.shards_done)

    umpteen.DiSMEC(labels_per_shard=20, engine=engine).fit(work[0].X, work[0].Y, path, progress=listen)
    assert done, "nothing was disturbed"
    assert_same_model(work[1], path)


# --- the same bytes -------------------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("name", list(METHODS))
def test_trains_the_local_engine_s_bytes(name, engine, tiny, tmp_path):
    cls = method_class(name)
    local = cls(**settings_for(name)).fit(tiny.X, tiny.Y, tmp_path / "local")
    trained = cls(**settings_for(name), engine=engine).fit(tiny.X, tiny.Y, tmp_path / "ray")
    assert_same_model(tmp_path / "local", tmp_path / "ray")
    for attribute in ("stats_", "history_", "active_weights_"):  # what solvers say comes back too
        assert repr(getattr(trained, attribute, None)) == repr(getattr(local, attribute, None))


@quiet
def test_two_threads_a_worker_written_by_workers(engine, cluster, tiny, tmp_path):
    from umpteen.engines.ray import RayEngine

    umpteen.PPDSparse(labels_per_shard=9).fit(tiny.X, tiny.Y, tmp_path / "local")
    two = RayEngine(cluster.address, cpus=2, write="workers")
    umpteen.PPDSparse(labels_per_shard=9, engine=two).fit(tiny.X, tiny.Y, tmp_path / "ray")
    assert_same_model(tmp_path / "local", tmp_path / "ray")


@quiet
@pytest.mark.parametrize("write", ["driver", "workers"])
def test_writes_to_a_url(write, engine, cluster, tiny, tmp_path):
    from umpteen.engines.ray import RayEngine

    pytest.importorskip("fsspec", reason="fsspec is not installed; pip install 'umpteen[fsspec]'")
    umpteen.Centroid(labels_per_shard=9).fit(tiny.X, tiny.Y, tmp_path / "local")
    where = RayEngine(cluster.address, write=write)
    model = umpteen.Centroid(labels_per_shard=9, engine=where).fit(tiny.X, tiny.Y, f"file://{tmp_path}/ray")
    assert_same_model(tmp_path / "local", tmp_path / "ray")
    with engine.hold(f"file://{tmp_path}/ray", parts=2) as held:
        got, want = model.predict_topk(tiny.X, engine=held), model.predict_topk(tiny.X)
        np.testing.assert_array_equal(got[1], want[1])


@quiet
def test_without_a_directory_and_with_labels_added_later(engine, tiny, tmp_path):
    whole = umpteen.DiSMEC(labels_per_shard=9).fit(tiny.X, tiny.Y[:, :30]).add_labels(tiny.X, tiny.Y[:, 30:])
    model = umpteen.DiSMEC(labels_per_shard=9, engine=engine).fit(tiny.X, tiny.Y[:, :30])
    model.add_labels(tiny.X, tiny.Y[:, 30:])
    for path, one in (("local", whole), ("ray", model)):
        one.save(tmp_path / path)
    assert_same_model(tmp_path / "local", tmp_path / "ray")


@quiet
def test_a_tagger_trains_on_ray(engine, tmp_path):
    texts = ["herring quotas", "cod quotas in the sea", "a tax on wine", "wine and beer tax"] * 10
    labels = [["fish"], ["fish", "sea"], ["tax", "wine"], ["tax", "wine"]] * 10
    for path, where in (("local", "local"), ("ray", engine)):
        umpteen.Tagger(umpteen.DiSMEC(engine=where)).fit(texts, labels, tmp_path / path)
    assert_same_model(tmp_path / "local", tmp_path / "ray")


def look(task, resources):
    """What a worker sees: who it is, how many threads it has, and how the array it was given lies in memory."""
    import re

    import ray

    array = BIG[0]  # noqa: F821
    total = float(array.sum())
    time.sleep(1)  # until its neighbour has read the array too
    address = array.__array_interface__["data"][0]
    sizes = {}
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
        elif inside and (found := re.match(r"(Rss|Pss|Private_Dirty|Private_Clean):\s+(\d+)", line)):
            sizes[found[1]] = 1024 * int(found[2])
    node = ray.get_runtime_context().get_node_id()
    return os.getpid(), node, resources.threads, array.flags.writeable, total, sizes


@quiet
def test_one_copy_of_the_data_on_each_node(engine):
    import functools
    import types

    import ray

    array = np.ones(5_000_000, np.float64)  # 40 MB
    # The function, not the test module, which workers do not have, with the array as what all tasks share.
    names = {"BIG": [array], "os": os, "time": time, "Path": Path}
    work = types.FunctionType(look.__code__, names, "look")
    before = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    tasks = [Task(f"shard-{i:05d}", i, 1.0) for i in range(6)]
    seen = [result for _, result in engine.run(functools.partial(work), tasks, "inside")]
    by_node = {}
    for pid, node, threads, writeable, total, sizes in seen:
        assert (threads, writeable, total) == (1, False, 5e6)
        assert sizes["Rss"] >= array.nbytes * 0.95  # it did read all of it,
        assert sizes["Private_Dirty"] + sizes["Private_Clean"] < 2**21  # from pages it shares
        by_node.setdefault(node, {})[pid] = sizes["Pss"]
    assert set(by_node) <= before
    assert sorted(len(workers) for workers in by_node.values()) == [1, 2]  # as many workers as cores
    for workers in by_node.values():
        assert sum(workers.values()) <= 1.05 * array.nbytes  # one copy, however many read it


def test_labels_travel_with_their_shard_only(tiny):
    method = umpteen.DiSMEC(labels_per_shard=9).fit(tiny.X, tiny.Y)
    data = TrainingData(tiny.X, tiny.Y, 1.0)
    tasks = method.plan(data)
    shared = pickle.loads(pickle.dumps(ShardWork(method, data, None).share(writes=False)))
    assert shared.data.Y.nnz == 0
    assert shared.data.Y.shape == tiny.Y.shape
    assert not hasattr(shared.method, "model_")  # what it had learned before stays here
    total = 0
    for task in tasks:
        picked = ShardWork(method, data, None).pick(task)
        received = shared.receive(picked).data
        assert (tiny.Y.multiply(np.isin(np.arange(40), task.plan)) != received.Y).nnz == 0
        total += len(picked.rows)
    assert total == tiny.Y.nnz


@quiet
def test_starts_the_largest_first(engine):
    tasks = [Task(f"shard-{i:05d}", i, cost) for i, cost in enumerate([1, 5, 2, 9, 7, 3])]
    first = [task.cost for task, _ in engine.run(lambda task, _: time.sleep(0.4), tasks, "across")][:3]
    assert sorted(first) == [5, 7, 9]


@quiet
def test_never_more_work_than_cores(engine):
    def clock(task, resources):
        begin = time.time()
        time.sleep(0.3)
        return begin, time.time(), resources.threads

    tasks = [Task(f"shard-{i:05d}", i, 1.0) for i in range(8)]
    spans = [result for _, result in engine.run(clock, tasks, "across")]
    for begin, _, threads in spans:
        assert threads == 1
        assert sum(other[0] <= begin < other[1] for other in spans) <= 3


# --- what fails -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def poisoned():
    """Data of which one label cannot be trained: the sum of its rows is beyond the largest 32-bit float."""
    data = umpteen.make_synthetic(300, 200, 40, labels_per_row=3, features_per_row=20, seed=7)
    rows = data.Y[:, [11]].indices
    big = sp.csr_matrix(
        (np.full(len(rows), 3e38), (np.arange(len(rows)), np.zeros(len(rows), int))), shape=(len(rows), 200)
    )
    extra = sp.csr_matrix((np.ones(len(rows)), (np.arange(len(rows)), np.full(len(rows), 11))), shape=(len(rows), 40))
    return sp.vstack([data.X, big], "csr"), sp.vstack([data.Y, extra], "csr")


@quiet
def test_a_shard_that_cannot_be_trained_is_named_with_its_labels(engine, poisoned, tmp_path):
    method = umpteen.Centroid(normalize=False, labels_per_shard=1, engine=engine)
    with pytest.raises(
        ShardError, match=r"shard-\d+ \(labels 11\) failed: DataError: weights must be finite"
    ) as caught:
        method.fit(*poisoned, tmp_path / "model")
    assert "In the worker:" in caught.value.__cause__.__notes__[0]


@quiet
@pytest.mark.parametrize("where", ["ray", "local"])
def test_the_rest_goes_on_if_asked(where, cluster, engine, poisoned, tmp_path, caplog):
    from umpteen.engines.local import LocalEngine
    from umpteen.engines.ray import RayEngine

    keep = RayEngine(cluster.address, cpus=1, keep_going=True) if where == "ray" else LocalEngine(2, keep_going=True)
    method = umpteen.Centroid(normalize=False, labels_per_shard=1, engine=keep)
    with caplog.at_level(logging.ERROR, "umpteen"), pytest.raises(ShardError, match="1 of 40 shards failed and the"):
        method.fit(*poisoned, tmp_path / "model")
    assert [record.getMessage().count("(labels 11) failed") for record in caplog.records] == [1]
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    assert not manifest["complete"]
    assert len([name for name in manifest["planned"] if (tmp_path / "model" / name).exists()]) == 39


@quiet
def test_a_worker_is_killed(engine, cluster, work, tmp_path):
    def kill(_):
        for pid in cluster.workers_at_work()[:1]:
            os.kill(pid, signal.SIGKILL)
            return True

    disturbed_fit(engine, work, tmp_path / "model", kill)


@quiet
@pytest.mark.parametrize("write", ["driver", "workers"])
def test_a_node_is_killed(write, cluster, engine, work, tmp_path):
    from umpteen.engines.ray import RayEngine

    node = cluster.add_node(2)

    def kill(_):
        if cluster.workers_at_work(node):
            cluster.kill_node(node)
            return True

    disturbed_fit(RayEngine(cluster.address, cpus=1, write=write), work, tmp_path / "model", kill)


@quiet
def test_a_node_s_network_is_cut(cluster, engine, work, tmp_path):
    node = cluster.add_node(2, behind_cable=True)
    if cluster.why_no_cable:
        print(f"the node is stopped instead: {cluster.why_no_cable}")

    def cut(_):
        if cluster.workers_at_work(node):
            cluster.silence(node)
            return True

    try:
        disturbed_fit(engine, work, tmp_path / "model", cut)
    finally:
        cluster.kill_node(node)


@quiet
def test_the_object_store_is_full(engine, cluster, work, tmp_path):
    import ray

    from .ray_cluster import STORE_BYTES

    hoard = []

    def fill(_):
        # More than the stores of all nodes hold together: Ray has to move things, X among them, to disk.
        while sum(ref_bytes for _, ref_bytes in hoard) < 3 * STORE_BYTES:
            hoard.append((ray.put(np.random.default_rng(len(hoard)).random(2_000_000)), 16_000_000))
        return True

    disturbed_fit(engine, work, tmp_path / "model", fill)
    first = ray.get(hoard[0][0])
    assert float(first[0]) == np.random.default_rng(0).random(1)[0]


DRIVER = """
import json, sys, umpteen
from umpteen.engines.ray import RayEngine
data = umpteen.make_synthetic(20000, 8000, 320, labels_per_row=4, features_per_row=60, seed=7)
show = lambda p: print("shards", p.shards_done, flush=True)
engine = RayEngine(sys.argv[1], cpus=1)
umpteen.DiSMEC(labels_per_shard=20, engine=engine).fit(data.X, data.Y, sys.argv[2], progress=show)
print("finished", flush=True)
"""


def start_driver(cluster, path):
    command = [sys.executable, "-c", DRIVER, cluster.address, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            env={**os.environ, **cluster.environment})  # fmt: skip


def wait_for(process, line):
    for printed in process.stdout:
        if printed.strip() == line:
            return
    raise AssertionError(f"the driver ended without saying {line!r}")


@quiet
@pytest.mark.parametrize(("how", "seconds"), [(signal.SIGKILL, 2), (signal.SIGINT, 8)])
def test_the_driver_is_stopped_and_run_again(how, seconds, cluster, engine, work, tmp_path):
    path = tmp_path / "model"
    process = start_driver(cluster, path)
    wait_for(process, "shards 3")
    process.send_signal(how)
    started = time.monotonic()
    process.wait(20)
    assert time.monotonic() - started < seconds
    process.stdout.close()
    manifest = json.loads((path / "manifest.json").read_text())
    finished = {name: (path / name).stat().st_ino for name in manifest["planned"] if (path / name).exists()}
    assert 3 <= len(finished) < 16
    deadline = time.monotonic() + 20
    while cluster.workers_at_work() and time.monotonic() < deadline:  # the job's workers stop with it
        time.sleep(0.1)
    assert not cluster.workers_at_work()
    umpteen.DiSMEC(labels_per_shard=20, engine=engine).fit(work[0].X, work[0].Y, path)
    assert_same_model(work[1], path)
    for name, inode in finished.items():  # they were not trained again
        assert (path / name).stat().st_ino == inode


# --- prediction -----------------------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("name", list(METHODS))
def test_predicts_the_local_engine_s_answers(name, engine, tiny, tmp_path, monkeypatch):
    from umpteen.engines import ray_work as module

    monkeypatch.setattr(module, "_ROWS_PER_BLOCK", 128)  # several blocks
    model = method_class(name)(**settings_for(name)).fit(tiny.X, tiny.Y, tmp_path / "model")
    for options in ({}, {"exclude": [1, 2, 3]}):
        want = model.predict_topk(tiny.X, 7, **options)
        for got in (model.predict_topk(tiny.X, 7, engine=engine, **options),):
            np.testing.assert_array_equal(got[0], want[0])
            np.testing.assert_array_equal(got[1], want[1])


@quiet
def test_a_model_held_in_parts_survives_its_node(engine, cluster, work, monkeypatch):
    from umpteen.engines import ray_work as module

    monkeypatch.setattr(module, "_ROWS_PER_BLOCK", 1000)
    data, path = work
    model = umpteen.load(path)
    want = model.predict_topk(data.X, 5)
    node = cluster.add_node(1)
    with engine.hold(path, parts=4) as held:
        sizes = held.n_bytes
        assert len(sizes) == 4
        assert max(sizes) < 0.4 * sum(sizes)
        for again in (False, True):
            got = model.predict_topk(data.X, 5, engine=held)
            np.testing.assert_array_equal(got[0], want[0])
            np.testing.assert_array_equal(got[1], want[1])
            if not again:
                assert any("_Holder" in command for command in cluster.processes(node).values())
                cluster.kill_node(node)
        other = umpteen.Centroid().fit(data.X[:, :50], data.Y)
        with pytest.raises(ParamError, match=r"the model held has .* features and labels, but this one has \(50, "):
            other.predict_topk(data.X[:, :50], engine=held)
    with pytest.raises(ParamError, match="a held model can only be used within its with-block"):
        model.predict_topk(data.X, 5, engine=held)


@quiet
def test_versions_of_a_held_model_are_never_mixed(engine, tiny, tmp_path):
    """Same shapes, other weights: neither a part that is opened anew nor the caller's model may be of another one."""
    path = tmp_path / "held.model"
    one = umpteen.Centroid(labels_per_shard=10).fit(tiny.X, tiny.Y, path)
    opened = umpteen.load(path)
    two = umpteen.Centroid(labels_per_shard=10).fit(tiny.X * np.float32(0.5), tiny.Y[::-1])
    with engine.hold(path, parts=4) as held:
        for model in (one, opened, umpteen.Centroid(labels_per_shard=10).fit(tiny.X, tiny.Y)):
            np.testing.assert_array_equal(model.predict_topk(tiny.X, engine=held)[1], one.predict_topk(tiny.X)[1])
        two.save(path, overwrite=True)
        for model in (two, umpteen.load(path)):
            with pytest.raises(ModelChangedError, match=r"the model held, version \w{12}, is another than this one"):
                model.predict_topk(tiny.X, engine=held)
        np.testing.assert_array_equal(opened.predict_topk(tiny.X, engine=held)[1], one.predict_topk(tiny.X)[1])
        import ray

        ray.kill(held._actors[1], no_restart=False)  # opened anew, from what is there by now
        with pytest.raises(UmpteenError, match=r"could not be scored: .*"):
            opened.predict_topk(tiny.X, engine=held)


@quiet
def test_a_label_tree_is_held_whole_and_a_blend_is_refused(engine, tiny, tmp_path):
    tree = umpteen.LabelTree(n_trees=2, branching=4, max_leaf=5, beam=3).fit(tiny.X, tiny.Y, tmp_path / "tree")
    with engine.hold(tmp_path / "tree", parts=2) as held:
        assert len(held.n_bytes) == 1  # a search goes through all of it
        got, want = tree.predict_topk(tiny.X, 5, engine=held), tree.predict_topk(tiny.X, 5)
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])
    members = [tree, umpteen.Centroid().fit(tiny.X, tiny.Y)]
    umpteen.Blend(members).fit(tiny.X, tiny.Y, tmp_path / "blend")
    with (
        pytest.raises(ParamError, match="blend: a blend model cannot be held in parts"),
        engine.hold(tmp_path / "blend"),
    ):
        pass


# --- settings and messages ------------------------------------------------------------------------------------------


def test_settings_are_checked(cluster, engine):
    from umpteen.engines.ray import RayEngine

    assert isinstance(make_engine("ray", 2), RayEngine)
    copy = pickle.loads(
        pickle.dumps(RayEngine("a:1", cpus=3, write="workers", keep_going=True, retries=7, threads=2))
    )
    assert (copy.address, copy.cpus, copy.write, copy.keep_going, copy.retries) == ("a:1", 3, "workers", True, 7)
    for options, message in [
        ({"write": "nobody"}, "write must be one of driver, workers, but is 'nobody'"),
        ({"cpus": 0}, "cpus must be an integer of at least 1, but is 0"),
        ({"retries": -1}, "retries must be an integer of at least 0, but is -1"),
        ({"keep_going": "yes"}, "keep_going must be true or false, but is 'yes'"),
    ]:
        with pytest.raises(ParamError, match=message):
            RayEngine(**options)
    tasks = [Task("shard-00000", 0, 1.0)]
    with pytest.raises(ParamError, match="cpus must be at most 2, the cores of the largest node, but is 3"):
        list(RayEngine(cluster.address, cpus=3).run(lambda *_: None, tasks, "inside"))
    with pytest.raises(ParamError, match="address is '127.0.0.9:1', but this program is already connected to Ray at"):
        list(RayEngine("127.0.0.9:1").run(lambda *_: None, tasks, "inside"))
    assert list(engine.run(lambda *_: None, [], "across")) == []


def test_workers_must_match_the_driver():
    from umpteen import _native
    from umpteen.engines.ray_work import check_signature, signature

    check_signature(signature())
    with pytest.raises(UmpteenError, match="must have umpteen 0.0.7, like the driver, but has"):
        check_signature(("0.0.7", _native.simd()))
    with pytest.raises(UmpteenError, match="must have the driver's instruction set, avx1024, to give the same bytes"):
        check_signature((umpteen.__version__, "avx1024"))


def test_a_guest_writes_only_into_the_host_s_directory(tmp_path):
    part = Part({"a": np.arange(3)})
    with ModelWriter.create(tmp_path / "m", {"method": "x"}, ["shard-00000", "shard-00001"]) as writer:
        guest = pickle.loads(pickle.dumps(writer))
        guest.write_part("shard-00000", part)
        inode = (tmp_path / "m" / "shard-00000").stat().st_ino
        guest.write_part("shard-00000", part)  # a second try of the same task
        assert (tmp_path / "m" / "shard-00000").stat().st_ino == inode
        assert writer.finished() == ["shard-00000"]
        (tmp_path / "m" / "manifest.json").unlink()
        with pytest.raises(ModelError, match="this is not the model directory that the driver writes"):
            guest.write_part("shard-00001", part)


def test_without_ray_the_message_says_what_to_install():
    code = (
        "import sys; sys.modules['ray'] = None; import umpteen, importlib.util as u\n"
        "real = u.find_spec; u.find_spec = lambda name, *a: None if name == 'ray' else real(name, *a)\n"
        "d = umpteen.make_synthetic(50, 30, 5)\n"
        "umpteen.Centroid().fit(d.X, d.Y).predict_topk(d.X)\n"
        "try: umpteen.Centroid(engine='ray').fit(d.X, d.Y)\n"
        "except umpteen.errors.MissingExtraError as e: print(e)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "engine='ray' needs Ray. Install it with: pip install 'umpteen[ray]'"
    assert issubclass(MissingExtraError, ImportError)


LOCAL = """
import umpteen, os, sys
data = umpteen.make_synthetic(300, 200, 40, labels_per_row=3, features_per_row=20, seed=7)
umpteen.Centroid(labels_per_shard=9, engine="ray", threads=2).fit(data.X, data.Y, sys.argv[1])
"""


def test_ray_started_here_leaves_nothing_behind(tiny, tmp_path):
    umpteen.Centroid(labels_per_shard=9).fit(tiny.X, tiny.Y, tmp_path / "local")
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    with tempfile.TemporaryDirectory(prefix="um") as place:
        environment |= {"TMPDIR": place, "UMPTEEN_RAY_TEST": str(tmp_path), "HOME": str(tmp_path)}
        environment["PYTHONPATH"] = str(Path(umpteen.__file__).parent.parent)
        command = [sys.executable, "-c", LOCAL, str(tmp_path / "ray")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert_same_model(tmp_path / "local", tmp_path / "ray")
        assert list(Path(place).iterdir()) == []
    mark = f"UMPTEEN_RAY_TEST={tmp_path}".encode()
    left = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                left.append((entry / "cmdline").read_bytes())
    assert left == []


@quiet
def test_an_address_nobody_listens_at():
    code = (
        "import umpteen\nfrom umpteen.engines.ray import RayEngine\n"
        "d = umpteen.make_synthetic(50, 30, 5)\n"
        "try: umpteen.Centroid(engine=RayEngine('127.0.0.9:6399')).fit(d.X, d.Y)\n"
        "except umpteen.errors.UmpteenError as e: print(e)\n"
    )
    environment = {**os.environ, "RAY_py_gcs_connect_timeout_s": "2", "RAY_gcs_rpc_server_connect_timeout_s": "2"}
    environment["RAY_AUTH_TOKEN"] = "0" * 32
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("Ray cannot be reached at '127.0.0.9:6399'"), done.stdout + done.stderr


# --- command line ---------------------------------------------------------------------------------------------------


@quiet
def test_the_command_line_trains_and_predicts_on_a_cluster(cluster, engine, tiny, tmp_path):
    from typer.testing import CliRunner

    from umpteen.cli.main import app

    umpteen.write_xc(tiny, tmp_path / "train.txt")
    run = lambda *words: CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)  # noqa: E731
    common = ("--method", "dismec", "--set", "labels_per_shard=9")
    ray = ("--engine", "ray", "--address", cluster.address, "--cpus-per-worker", 1)
    assert run("train", tmp_path / "train.txt", *common, "--model", tmp_path / "a").exit_code == 0
    done = run("train", tmp_path / "train.txt", *common, "--model", tmp_path / "b", *ray, "--keep-going")
    assert done.exit_code == 0, done.output
    assert_same_model(tmp_path / "a", tmp_path / "b")
    outputs = []
    for i, more in enumerate(((), ray, (*ray, "--parts", 2))):
        out = tmp_path / f"out{i}.txt"
        done = run("predict", tmp_path / "a", tmp_path / "train.txt", *more, "--output", out)
        assert done.exit_code == 0, done.output
        outputs.append(out.read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]
    with pytest.raises(ParamError, match="--address needs --engine ray, but the engine is local"):
        run("train", tmp_path / "train.txt", "--model", tmp_path / "c", "--address", "x:1")


def test_ray_is_part_of_the_test_extra():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(line.startswith("ray") for line in extras["test"])
    assert any(line.startswith("ray") for line in extras["ray"])
