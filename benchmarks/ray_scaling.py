"""The Ray engine on 1 and 2 cores, measured, and on 10, 100 and 1000, modelled from what was measured.

python benchmarks/ray_scaling.py measure cores     # each of the measurements, on a machine with nothing else to do
python benchmarks/ray_scaling.py measure shapes
python benchmarks/ray_scaling.py measure network
python benchmarks/ray_scaling.py predict           # the model, the table and the drawing, from the numbers kept
"""

from __future__ import annotations

import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from cluster_model import Costs, Machines, Outcome, largest_first, shuffled, simulate
from common import RESULTS, ROOT, data_root, describe_machine, table, version

import umpteen
from umpteen import _native
from umpteen.engines.base import Resources, Task
from umpteen.engines.local import LocalEngine
from umpteen.methods.training_data import TrainingData

NUMBERS = RESULTS / "ray_scaling.json"
SHAPES = {
    # rows, features, labels, features and labels per row, as the repository of the field states them
    "Amazon-670K": (490_449, 135_909, 670_091, 75, 5.45),
    "WikiLSHTC-325K": (1_778_351, 1_617_899, 325_056, 42, 3.19),
}
#: Rows and labels of the made-up data are so many times fewer; the time of a label grows with the rows.
SHRINK = 10
#: Labels of a shard, and threads of a worker; a kernel gives each thread 32 labels at a time.
SHARDS = {"EURLex-4K": (40, 1), "Amazon-670K": (512, 5), "WikiLSHTC-325K": (1024, 10)}
#: Labels of a shard that is timed as a sample of the made-up data.
SAMPLE = 128
NODE_CORES = 10
PANEL = 32
#: Training times on 100 cores in the papers' tables.
PAPERS = {
    "EURLex-4K": "DiSMEC 76 s, PPDSparse 10 s",
    "Amazon-670K": "DiSMEC 48 h, PPDSparse 922 s",
    "WikiLSHTC-325K": "DiSMEC 75 h (3 h on 1000), PPDSparse 353 s",
}


def keep(**numbers: object) -> None:
    known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    NUMBERS.write_text(json.dumps(known | numbers | {"machine": describe_machine()}, indent=1) + "\n")
    print(json.dumps(numbers, indent=1)[:2000], file=sys.stderr)


def measure_cores() -> None:
    """A third of EURLex-4K's labels by the local engine, and by Ray with the same cores: training alone, start-up
    apart."""
    from umpteen.engines.ray import RayEngine

    train = umpteen.read_xc(data_root() / "EURLex-4K" / "train.txt.xz")
    Y = train.Y[:, ::3]
    seconds: dict[str, float] = {}
    nothing = [Task(f"shard-{i:05d}", i, 1.0) for i in range(50)]
    with tempfile.TemporaryDirectory() as place:

        def fit(name, engine) -> None:
            method = umpteen.DiSMEC(labels_per_shard=40, engine=engine)
            started = time.perf_counter()
            method.fit(train.X, Y, f"{place}/{len(seconds)}")
            seconds[name] = time.perf_counter() - started
            print(name, seconds[name], file=sys.stderr)

        for cores in (1, 2):
            fit(f"local, {cores} threads", LocalEngine(cores))
            engine = RayEngine("local", cpus=1, threads=cores)
            clock = time.perf_counter
            moments = [clock()]
            with engine:
                moments.append(clock())
                list(engine.run(do_nothing, nothing[:cores], "inside"))
                moments.append(clock())
                list(engine.run(do_nothing, nothing, "inside"))
                moments.append(clock())
                connect, worker, tasks = np.diff(moments).tolist()
                costs = {"connect": connect, "worker": worker, "task": tasks / len(nothing) * cores}
                fit(f"Ray, {cores} workers of 1 thread", engine)
                if cores == 2:
                    fit("Ray, 1 worker of 2 threads", RayEngine("local", cpus=2, threads=2))
    keep(cores=seconds, ray=costs)


def do_nothing(task, resources) -> None:
    pass


def measure_shapes() -> None:
    """Seconds of one core for labels of falling frequency: all of EURLex-4K, samples of the made-up shapes."""
    out = {}
    train = umpteen.read_xc(data_root() / "EURLex-4K" / "train.txt.xz")
    out["EURLex-4K"] = time_shards(train.X, train.Y, 40, 25) | {"x_bytes": n_bytes(train.X)}
    keep(shapes=out, two_threads=time_threads(train.X, train.Y))
    for name, (rows, features, labels, per_row, labels_per_row) in SHAPES.items():
        data = umpteen.make_synthetic(
            rows // SHRINK,
            features,
            labels // SHRINK,
            features_per_row=per_row,
            labels_per_row=labels_per_row,
            seed=1,
        )
        out[name] = time_shards(data.X, data.Y, SAMPLE, 5) | {"x_bytes": n_bytes(data.X) * SHRINK}
        keep(shapes=out)


def time_threads(X, Y) -> list[float]:
    """Seconds of a shard of 512 labels with one thread and with two."""
    method = umpteen.DiSMEC(labels_per_shard=512)
    data = TrainingData(method.preprocessing().transform(X), Y, method.preprocessing().bias)
    task = method.plan(data)[1]
    seconds = []
    for threads in (1, 2):
        started = time.perf_counter()
        method.train_shard(data, task, Resources(threads, _native.CancelToken()))
        seconds.append(time.perf_counter() - started)
    return seconds


def n_bytes(X) -> int:
    return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes


def time_shards(X, Y, size: int, samples: int | None) -> dict:
    """Times shards, all or some from the most to the least frequent labels, after one that warms up."""
    method = umpteen.DiSMEC(labels_per_shard=size)
    steps = method.preprocessing()
    data = TrainingData(steps.transform(X), Y, steps.bias)
    tasks = method.plan(data)
    n = sum(len(task.plan) == len(tasks[0].plan) for task in tasks)  # without a last one of a few labels
    places = list(range(n)) if samples is None else sorted({int((n - 1) * i / (samples - 1)) for i in range(samples)})
    seconds, sizes = [], []
    for place in (places[-1], *places):
        resources = Resources(1, _native.CancelToken())
        started = time.perf_counter()
        part = method.train_shard(data, tasks[place], resources)
        seconds.append(time.perf_counter() - started)
        sizes.append(part.n_bytes)
        print(place, len(tasks[place].plan), f"{seconds[-1]:.3f}", file=sys.stderr)
    labels = [len(tasks[place].plan) for place in places]
    return {
        "rank": [place / max(n - 1, 1) for place in places],
        "seconds_per_label": [s / k for s, k in zip(seconds[1:], labels, strict=True)],
        "bytes_per_label": statistics.mean(b / k for b, k in zip(sizes[1:], labels, strict=True)),
        "table_bytes": 8 * (X.shape[1] + 1),
    }


def measure_network() -> None:
    """From the store of one node to that of another, over loopback: what Ray itself can do."""
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))  # which Ray's nodes share
    from tests.ray_cluster import running_cluster

    with running_cluster() as cluster:
        import ray

        node = cluster.add_node(1)
        ray.init(cluster.address, log_to_driver=False, logging_level="error")
        reach = ray.remote(lambda array: float(array[0])).options(num_cpus=1, resources={f"node:{node}": 0.001})
        ray.get(reach.remote(np.ones(1)))
        times = []
        for i in range(3):
            ref = ray.put(np.full(6_000_000, float(i)))
            started = time.perf_counter()
            ray.get(reach.remote(ref))
            times.append(time.perf_counter() - started)
        ray.shutdown()
    keep(bandwidth=48_000_000 / statistics.median(times))


# --- the model ------------------------------------------------------------------------------------------------------


def shards_of(name: str, numbers: dict) -> tuple[list[float], float]:
    """Seconds of one core for every shard of the whole set, in the order of the plan, and the bytes of one."""
    shape = numbers["shapes"][name]
    n_labels = 3_956 if name == "EURLex-4K" else SHAPES[name][2]
    scale = 1 if name == "EURLex-4K" else SHRINK
    size = SHARDS[name][0]
    ranks = (np.arange(n_labels) + 0.5) / n_labels
    logs = np.interp(ranks, shape["rank"], np.log(shape["seconds_per_label"]))
    seconds = np.exp(logs) * scale
    # Of samples the table of features is in the bytes of each; of the whole set in those of a shard.
    per_label = shape["bytes_per_label"] - shape["table_bytes"] / (size if name == "EURLex-4K" else SAMPLE)
    bytes_of_one = per_label * size + shape["table_bytes"]
    return [float(seconds[i : i + size].sum()) for i in range(0, n_labels, size)], bytes_of_one


CORES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
#: Of the driver, into the model directory: an assumption, as the link is.
WRITE = 500e6
LINK = 1.25e9


def run_on(n: int, threads: int, work: list[float], costs: Costs) -> tuple[Outcome, float]:
    """On so many cores: largest first, and the mean time of 20 random orders."""
    threads = min(threads, n)
    machines = Machines(max(1, n // NODE_CORES), min(n, NODE_CORES) // threads, threads)
    random_orders = [simulate(shuffled(work, seed), machines, costs).seconds for seed in range(20)]
    return simulate(largest_first(work), machines, costs), statistics.mean(random_orders)


def predict() -> None:
    numbers = json.loads(NUMBERS.read_text())
    measured, ray_costs = numbers["cores"], numbers["ray"]
    one = measured["local, 1 threads"]
    rows = []
    for name, seconds in measured.items():
        n = 1 if name in ("local, 1 threads", "Ray, 1 workers of 1 thread") else 2
        rows.append([name, f"{seconds:.1f} s", f"{one / seconds / n:.0%}"])
    single, double = numbers.get("two_threads") or (
        measured["Ray, 1 workers of 1 thread"],
        measured["Ray, 1 worker of 2 threads"],
    )
    thread_share = min(1.0, single / double - 1)
    bandwidth = min(LINK, numbers.get("bandwidth", LINK))
    reached = f"{numbers['bandwidth'] * 8e-9:.1f} Gbit/s" if "bandwidth" in numbers else "not measured yet"
    modelled, curves = [], {}
    for name, (n_labels, threads) in SHARDS.items():
        work, shard_bytes = shards_of(name, numbers)
        costs = Costs(
            x_bytes=numbers["shapes"][name]["x_bytes"],
            shard_bytes=shard_bytes,
            bandwidth=bandwidth,
            start=ray_costs["connect"] + ray_costs["worker"],
            task=ray_costs["task"],
            write=1 / WRITE,
            thread_share=thread_share,
            pieces=-(-n_labels // PANEL),
        )
        curves[name] = {n: run_on(n, threads, work, costs) for n in CORES}
        cells = [
            f"{spell(best.seconds)} ({best.efficiency:.0%}); {spell(naive)}"
            for best, naive in (curves[name][n] for n in (10, 100, 1000))
        ]
        shards = f"{len(work)} of {n_labels} labels, {threads} threads each"
        modelled.append([name, shards, spell(sum(work)), *cells, PAPERS[name]])
    columns = [f"{n} cores: largest first (efficiency); any order" for n in (10, 100, 1000)]
    text = [
        f"Measured: a third of EURLex-4K's labels, DiSMEC in shards of 40; {version('ray')}. Training alone: Ray "
        f"starts in {ray_costs['connect']:.1f} s and a worker in {ray_costs['worker']:.1f} s, once. To hand a shard "
        f"out and take its result costs {1000 * ray_costs['task']:.1f} ms.",
        table(["engine", "time", "efficiency"], rows),
        "Modelled by `cluster_model.py`, DiSMEC. Measured: shard times on one core, what Ray costs, that a second "
        f"thread gives {thread_share:.2f} of a core (from one Ray node to another on this machine: {reached}). "
        f"Assumed: nodes of {NODE_CORES} cores; that further threads give what the second does; links of "
        f"{LINK * 8e-9:.0f} Gbit/s, or Ray's own speed if lower; a driver that writes {WRITE / 1e6:.0f} MB/s. The "
        f"shapes of Amazon-670K and WikiLSHTC-325K are made up with 1/{SHRINK} of the rows and labels; labels are "
        f"timed on samples from the most to the least frequent, and the time of a label is taken {SHRINK} times, "
        f"since it grows with the rows. A sample has {SAMPLE} labels and bears what a call costs whatever the "
        "labels, which more of them share in a shard: the hours are rather too many. The papers' figures are of "
        "their own machines and of the real data.",
        table(["set", "shards", "on one core", *columns, "the papers, 100 cores"], modelled),
        "![time by cores](../../docs/ray_scaling.svg)",
    ]
    page = "# Ray on many cores\n\n`python benchmarks/ray_scaling.py predict`\n\n" + numbers["machine"] + "\n\n"
    (RESULTS / "ray_scaling.md").write_text(page + "\n\n".join(text) + "\n")
    print("\n\n".join(text))
    draw(curves)


def spell(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 7200 else f"{seconds:.0f} s"


def draw(curves: dict) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "umpteen"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for (name, runs), colour in zip(curves.items(), ("#1b6ca8", "#c1440e", "#3a7d44"), strict=True):
        best, naive = [best.seconds for best, _ in runs.values()], [naive for _, naive in runs.values()]
        axes.plot(CORES, best, "o-", color=colour, ms=4, label=f"{name}, largest first")
        axes.plot(CORES, naive, "x:", color=colour, ms=5, label=f"{name}, any order")
        axes.plot(CORES, [best[0] / n for n in CORES], "-", color=colour, alpha=0.2, lw=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("cores, in nodes of 10")
    axes.set_ylabel("seconds")
    axes.set_title("DiSMEC by the model; pale lines: perfect speed-up", fontsize=10)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=7, loc="lower left")
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "ray_scaling.svg", metadata={"Date": None})


MEASUREMENTS = {"cores": measure_cores, "shapes": measure_shapes, "network": measure_network}

if __name__ == "__main__":
    command, *names = sys.argv[1:] or ["help"]
    if command == "measure" and all(name in MEASUREMENTS for name in names):
        if len(names) == 1:
            MEASUREMENTS[names[0]]()
        else:  # each with a Ray of its own
            for name in names or MEASUREMENTS:
                subprocess.run([sys.executable, __file__, "measure", name], check=True)
    elif command == "predict":
        predict()
    else:
        sys.exit(__doc__)
