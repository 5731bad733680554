"""Runs methods and peers on one data set, each in a process of its own, and judges them alike.

All programs train on the same rows and are measured by the same code (`child.py`). They only write their predictions:
the metrics are computed here, with intervals and tests of whether programs differ. With several rounds or seeds,
programs take turns, and each run is judged. A program that is not installed, fails or takes too long is part of the
result, with the last line it printed.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import inspect
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen import __version__, _native
from umpteen.comparing.child import Program, Umpteen
from umpteen.comparing.programs import BASELINE, Contestant, peer_class, peer_python
from umpteen.data.dataset import Dataset
from umpteen.data.files import write_bytes
from umpteen.data.matrix import Csr
from umpteen.data.preprocessing import Preprocessing
from umpteen.data.propensity import LabelCounts
from umpteen.data.xc_text import write_xc
from umpteen.errors import ParamError
from umpteen.evaluation.metrics import KS, evaluate, find_hits
from umpteen.evaluation.significance import RowScores, bootstrap_intervals, compare_with_best, score_rows
from umpteen.threads import resolve_threads

FORMAT = 1
_CHILD = Path(__file__).with_name("child.py")
_TIMES = ("train_seconds", "train_cpu_seconds", "predict_seconds", "predict_cpu_seconds", "load_seconds")


@dataclass(frozen=True)
class Contest:
    """What contestants compete on: rows to train on and rows to be judged by.

    test_Y may have labels that no training row has, in columns after the others: no program can predict them.
    """

    name: str
    train: Dataset
    test_X: Csr
    test_Y: Csr
    label_names: Sequence[str] | None = None  # one per column of test_Y
    test_texts: Sequence[str] | None = None
    features: dict[str, Any] = field(default_factory=dict)  # how texts became rows
    constants: dict[str, Any] = field(default_factory=dict)  # A and B, where they are not the default

    def train_counts(self) -> LabelCounts:
        counts = np.zeros(self.test_Y.shape[1], np.int64)
        counts[: self.train.n_labels] = self.train.label_counts()
        return LabelCounts(counts, self.train.n_rows)


@dataclass(frozen=True)
class Conditions:
    """How programs are run."""

    threads: int | None = None
    rounds: int = 1  # runs of each program, for the medians of their times
    timeout: float | None = None  # seconds per program
    n_single: int = 200  # rows to predict one by one
    launcher: str = ""  # a command that starts each program, such as "taskset -c 0,1"
    peers: Path | None = None  # where peers' environments are
    baseline: str | None = None  # what to compare times and sizes with; by default omikuji, else the first
    seeds: int = 1  # runs of each program, each with a seed of its own: 0, 1, …

    @property
    def n_runs(self) -> int:
        return max(self.rounds, self.seeds)


def compare(
    contest: Contest,
    contestants: Sequence[Contestant],
    output: Path,
    conditions: Conditions | None = None,
    on_run: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Runs all contestants. The result is plain values, also written to ``results.json`` after each run.

    `on_run` is called with each run as it ends. Models, predictions and logs stay in ``runs`` beside it.
    """
    conditions = conditions or Conditions()
    _check_seeds(contestants, conditions)
    result: dict[str, Any] = {
        "format": FORMAT,
        "umpteen_version": __version__,
        "taken": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "threads": resolve_threads(conditions.threads),
        "rounds": conditions.rounds,
        "seeds": conditions.seeds,
        "data": _describe_data(contest),
        "baseline": None,
        "runs": [],
    }
    rounds: dict[str, list[dict[str, Any]]] = {contestant.name: [] for contestant in contestants}
    entries: dict[str, dict[str, Any]] = {}
    with _data_for_children(contest, output, any(c.program == "omikuji" for c in contestants)) as data:
        for number, contestant in itertools.product(range(conditions.n_runs), contestants):
            name = contestant.name
            if number > 0 and entries[name]["status"] == "failed":
                continue
            place = run_place(output, name)
            here = place if number == 0 else place.with_name(f"{place.name}.again")
            seed = number if conditions.seeds > 1 else None
            rounds[name].append(_measure(contest, contestant, data, here, conditions, seed))
            if number > 0:
                shutil.rmtree(here)
            entries[name] = _judge(contest, contestant, rounds[name], place)
            result["runs"] = list(entries.values())
            _set_baseline(result, conditions.baseline)
            write_result(output / "results.json", result)
            if on_run is not None:
                on_run(_of_run(entries[name], rounds[name][-1]))
    result["tests"] = _test(contest, result["runs"], output)
    write_result(output / "results.json", result)
    return result


def _check_seeds(contestants: Sequence[Contestant], conditions: Conditions) -> None:
    if conditions.seeds > 1 and conditions.rounds > 1:
        raise ParamError(
            f"seeds and rounds cannot both be above 1, but are {conditions.seeds} and {conditions.rounds}"
        )
    for contestant in contestants:
        if conditions.seeds > 1 and "seed" in contestant.params:
            raise ParamError(f"{contestant.program}:seed=… is not possible with several seeds: each run has its own")


def write_result(path: Path, result: dict[str, Any]) -> None:
    write_bytes(
        path, [(json.dumps(_rounded(result), indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")]
    )


def _rounded(value: Any) -> Any:
    """Floats to six digits: more would only look exact."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def describe_machine() -> dict[str, Any]:
    """What speed depends on."""
    cpu = platform.processor() or platform.machine()
    memory = None
    with contextlib.suppress(OSError):
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":")[1].strip() if names else cpu
    with contextlib.suppress(OSError, ValueError, AttributeError):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu,
        "cores": resolve_threads(None),
        "memory_bytes": memory,
        "simd": _native.simd(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _describe_data(contest: Contest) -> dict[str, Any]:
    train, counts = contest.train, contest.train_counts().counts
    return {
        "name": contest.name,
        "train_rows": train.n_rows,
        "test_rows": int(contest.test_X.shape[0]),
        "n_features": train.n_features,
        "n_labels": train.n_labels,
        "labels_only_in_test": int(contest.test_Y.shape[1]) - train.n_labels,
        "labels_per_row": train.Y.nnz / train.n_rows,
        "features_per_row": train.X.nnz / train.n_rows,
        "rows_per_label_median": float(np.median(counts[counts > 0])),
        "features": contest.features,
        "n_true": pack_bytes(np.minimum(np.diff(contest.test_Y.indptr), max(KS))),
    }


@contextlib.contextmanager
def _data_for_children(contest: Contest, output: Path, as_text: bool) -> Iterator[Path]:
    """The data as files that all programs can read, kept while they run."""
    import scipy.sparse as sp

    output.mkdir(parents=True, exist_ok=True)
    unit = Preprocessing(normalize=True)
    with tempfile.TemporaryDirectory(dir=output, prefix="data-") as temporary:
        place = Path(temporary)
        train_unit = unit.transform(contest.train.X)
        matrices = {
            "train_X": contest.train.X,
            "train_Y": contest.train.Y,
            "test_X": contest.test_X,
            "train_X_unit": train_unit,
            "test_X_unit": unit.transform(contest.test_X),
        }
        for name, matrix in matrices.items():
            sp.save_npz(place / f"{name}.npz", sp.csr_matrix(matrix), compressed=False)
        if as_text:
            write_xc(Dataset(train_unit, contest.train.Y), place / "train_unit.txt")
        yield place


def _measure(
    contest: Contest, contestant: Contestant, data: Path, place: Path, conditions: Conditions, seed: int | None
) -> dict[str, Any]:
    """One run of a program, and what its predictions reach."""
    run = _run(contestant, data, place, conditions, seed)
    if run["status"] == "failed":
        return run
    labels = read_predictions(place)[0]
    metrics = evaluate(contest.test_Y, labels, contest.train_counts(), k=KS, **contest.constants)
    return run | {"metrics": metrics.as_dict()}


def _run(contestant: Contestant, data: Path, place: Path, conditions: Conditions, seed: int | None) -> dict[str, Any]:
    """One program in a process of its own: what it measured, or why it failed."""
    place.mkdir(parents=True)
    params = contestant.params if contestant.is_peer else {"method": contestant.program, **contestant.params}
    job = {
        **_where(contestant),
        "params": params,
        "data": str(data.resolve()),
        "out": str(place.resolve()),
        "threads": resolve_threads(conditions.threads),
        "top_k": max(KS),
        "n_single": conditions.n_single,
        "seed": seed,
    }
    (place / "job.json").write_text(json.dumps(job))
    environment = dict(os.environ, PYTHONNOUSERSITE="1")
    if contestant.is_peer:
        python = peer_python(contestant.program, conditions.peers)
        if not python.exists():
            return _failed(f"not installed; run umpteen peers install {contestant.program}")
        command = [str(python), "-I", str(_CHILD)]
    else:
        # The same package as in this process, wherever it was imported from.
        own = str(Path(__file__).resolve().parent.parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [own, environment.get("PYTHONPATH")]))
        command = [sys.executable, "-P", str(_CHILD)]
    error = _call(
        [*shlex.split(conditions.launcher), *command, str(place / "job.json")], environment, place, conditions
    )
    if error is not None:
        return _failed(error)
    return {"status": "done", **json.loads((place / "measured.json").read_text())}


def _where(contestant: Contestant) -> dict[str, str | None]:
    """The class of a program, and the file it is in unless that is child.py."""
    if not contestant.is_peer:
        return {"program": f"{Umpteen.__module__}:{Umpteen.__name__}", "file": None}
    cls = peer_class(contestant.program)
    file = None if cls.__module__ == Program.__module__ else inspect.getfile(cls)
    return {"program": f"{cls.__module__}:{cls.__name__}", "file": file}


def _call(command: list[str], environment: dict[str, str], place: Path, conditions: Conditions) -> str | None:
    """Runs a command with its output in a log; None, or what went wrong. The command never outlives this call."""
    with (place / "log.txt").open("wb") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            code = child.wait(conditions.timeout)
        except subprocess.TimeoutExpired:
            return f"stopped after {conditions.timeout:g} s"
        finally:
            _end(child)
            assert child.stdin is not None
            child.stdin.close()
    if code == 0 and (place / "measured.json").exists():
        return None
    line = last_line((place / "log.txt").read_text(errors="replace"))
    ended = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return f"{ended}: {line}" if line else ended


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends a child and all it started: SIGTERM, then SIGKILL."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        os.killpg(child.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)


def last_line(log: str) -> str:
    """The last line that is not blank."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", log)]
    return next((line for line in reversed(lines) if line), "")[:300]


def _failed(error: str) -> dict[str, Any]:
    return {"status": "failed", "error": error}


def _judge(contest: Contest, contestant: Contestant, rounds: list[dict[str, Any]], place: Path) -> dict[str, Any]:
    """One contestant's entry of the result: medians of the times of its runs; metrics, intervals and hits of the
    first; and the mean and deviation of the metrics over all."""
    run: dict[str, Any] = {
        "name": contestant.name,
        "program": contestant.program,
        "peer": contestant.is_peer,
        "params": contestant.params,
    }
    if failed := [each for each in rounds if each["status"] == "failed"]:
        return run | failed[0]
    run |= rounds[0]
    for key in _TIMES:
        run[key] = statistics.median(each[key] for each in rounds)
    run["single_ms"] = {
        at: statistics.median(each["single_ms"][at] for each in rounds) for at in rounds[0]["single_ms"]
    }
    for key, seconds in (
        ("predict_ms_per_row", "predict_seconds"),
        ("predict_cpu_ms_per_row", "predict_cpu_seconds"),
    ):
        run[key] = 1000 * run[seconds] / contest.test_X.shape[0]
    if len(rounds) > 1:
        run["over_runs"] = _spread([each["metrics"] for each in rounds]) | {
            "seeds": [each["seed"] for each in rounds]
        }
    labels = read_predictions(place)[0]
    intervals = bootstrap_intervals(_score_rows(contest, labels))
    return run | {"intervals": intervals, "hits": pack_hits(find_hits(contest.test_Y, labels))}


def _of_run(entry: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    """An entry with the metrics and times of one run."""
    return entry | {key: last[key] for key in ("metrics", "train_seconds", "seed") if key in last}


def _spread(metrics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation (of a sample) of each metric over runs."""
    names = [name for name in metrics[0] if "@" in name]
    values = {name: [each[name] for each in metrics] for name in names}
    return {
        "mean": {name: statistics.fmean(each) for name, each in values.items()},
        "deviation": {name: statistics.stdev(each) for name, each in values.items()},
    }


def _score_rows(contest: Contest, labels: NDArray[np.int32]) -> dict[str, RowScores]:
    return score_rows(contest.test_Y, labels, contest.train_counts(), **contest.constants)


def _test(contest: Contest, runs: Sequence[dict[str, Any]], output: Path) -> dict[str, Any]:
    """For each metric the best run, and how likely each other differs from it by chance alone; see `significance`."""
    done = [run["name"] for run in runs if run["status"] == "done"]
    scores = {name: _score_rows(contest, read_predictions(run_place(output, name))[0]) for name in done}
    tests = {}
    for metric in next(iter(scores.values())) if len(done) > 1 else ():
        best, p = compare_with_best({name: each[metric].gain for name, each in scores.items()})
        tests[metric] = {"best": best, "p": p}
    return tests


def pack_hits(hits: NDArray[np.bool_]) -> str:
    """Which predictions are right, n_rows x 5, as text: a byte per row, compressed."""
    return pack_bytes(hits @ (1 << np.arange(hits.shape[1])))


def unpack_hits(text: str, width: int = max(KS)) -> NDArray[np.bool_]:
    return (unpack_bytes(text)[:, None] >> np.arange(width) & 1).astype(bool)


def pack_bytes(values: NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(values.astype(np.uint8).tobytes(), 9)).decode()


def unpack_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)


def read_predictions(place: Path) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Labels and scores that a program wrote."""
    with np.load(place / "predictions.npz") as file:
        return file["labels"], file["scores"]


def run_place(output: Path, name: str) -> Path:
    """Where a run keeps its model and predictions."""
    return output / "runs" / re.sub(r"[^A-Za-z0-9._=+-]+", "_", name)


def _set_baseline(result: dict[str, Any], chosen: str | None) -> None:
    """Adds times and sizes as multiples of the baseline's."""
    done = {run["name"]: run for run in result["runs"] if run["status"] == "done"}
    name = chosen or (BASELINE if BASELINE in done else next(iter(done), None))
    result["baseline"] = name if name in done else None
    for run in done.values():
        base = done.get(name) if name else None
        keys = ("train_seconds", "train_cpu_seconds", "predict_seconds", "model_bytes")
        run["relative"] = {key: run[key] / base[key] for key in keys if base and base[key]}
