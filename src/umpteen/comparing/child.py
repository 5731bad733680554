"""Trains and measures one program, in its own process, under the interpreter that has the program.

    python child.py JOB.json

So it imports this package only where that is the program measured. A program is a class derived from `Program` with
these methods, in the order they are called:

    prepare    turns the training data into what the program takes; not timed
    train      from there to a model in `self.model`; timed
    rows       turns rows into what the program takes; not timed
    load       opens that model as a new process would
    predict    the best labels and scores of the result of `rows`; timed

Packages add programs by declaring such a class as an entry point of `umpteen.peers`. Its module is run as a file of
its own under the interpreter that has the program: it may import `umpteen.comparing.child`, which is this file
wherever it runs, but else, at the top, only what both environments have.

All programs get the same data. Peers get rows of unit length, as their authors recommend for linear models; methods
of this package get raw rows and apply their default preprocessing.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import json
import os
import re
import resource
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

_MOST_PASSES = 3
_LONGEST = 10.0  # seconds after which no pass or row is added


class Program:
    """What all programs share."""

    #: The package whose version is shown, and what is installed for it with pip, with versions; none where the
    #: program is installed together with the class. Some need others before.
    package: str
    packages: tuple[str, ...] = ()
    packages_before: tuple[str, ...] = ()
    #: Whether rows have length 1.
    unit = True
    #: The name of the program's own setting for seeds, where it has one.
    seed_setting: str | None = None

    def __init__(
        self, data: Path, model: Path, threads: int, top_k: int, params: dict[str, Any], seed: int | None = None
    ) -> None:
        if seed is not None and self.seed_setting is not None:
            params = {**params, self.seed_setting: seed}
        self.data, self.model, self.threads, self.top_k, self.params = data, model, threads, top_k, params
        self.given_seed = seed
        self.seed: int | None = params.get(self.seed_setting or "seed")  # None if not given or not known

    def version(self) -> str:
        from importlib import metadata

        return metadata.version(self.package)

    def read(self, name: str) -> Any:
        return sp.csr_matrix(sp.load_npz(self.data / f"{name}.npz"))

    def read_X(self, part: str) -> Any:
        return self.read(f"{part}_X_unit" if self.unit else f"{part}_X")

    def prepare(self) -> None:
        self.X, self.Y = self.read_X("train"), self.read("train_Y")

    def train(self) -> None:
        raise NotImplementedError

    def load(self) -> None:
        raise NotImplementedError

    def rows(self, X: Any) -> Any:
        return X

    def predict(self, rows: Any) -> Any:
        raise NotImplementedError


class Umpteen(Program):
    package = "umpteen"
    unit = False

    def version(self) -> str:
        import umpteen

        return umpteen.__version__

    def prepare(self) -> None:
        super().prepare()
        from umpteen.methods import method_class

        params = dict(self.params)
        cls = method_class(params.pop("method"))
        if self.given_seed is not None and "seed" in cls.param_defaults():
            params["seed"] = self.given_seed
        self.method = cls.make(**params, threads=self.threads)
        self.seed = self.method.get_params().get("seed")
        estimate = self.method.estimate(self.X, self.Y)
        self.estimate = {"peak_bytes": estimate.peak_bytes, "model_bytes": estimate.model_bytes}

    def train(self) -> None:
        self.method.fit(self.X, self.Y, self.model)

    def load(self) -> None:
        from umpteen.trained.loading import load_model

        self.method = load_model(self.model)

    def predict(self, rows: Any) -> Any:
        return self.method.predict_topk(rows, self.top_k, threads=self.threads)


class Omikuji(Program):
    """Trees of linear models. Reads its training data from a text file, and predicts a row at a time."""

    package = "omikuji"
    packages = ("omikuji==0.5.2", "numpy", "scipy")

    def prepare(self) -> None:
        import omikuji

        self.settings = omikuji.Model.default_hyper_param()
        for name, value in self.params.items():
            if not hasattr(self.settings, name):
                raise ValueError(f"omikuji has no parameter {name!r}")
            setattr(self.settings, name, value)

    def train(self) -> None:
        import omikuji

        model = omikuji.Model.train_on_data(str(self.data / "train_unit.txt"), self.settings, n_threads=self.threads)
        model.save(str(self.model))

    def load(self) -> None:
        import omikuji

        self.trees = omikuji.Model.load(str(self.model))
        self.trees.init_prediction_thread_pool(self.threads)

    def rows(self, X: Any) -> Any:
        bounds = zip(X.indptr[:-1].tolist(), X.indptr[1:].tolist(), strict=True)
        return [list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)) for a, b in bounds]

    def predict(self, rows: Any) -> Any:
        return pad([self.trees.predict(row, top_k=self.top_k) for row in rows], self.top_k)


class NapkinXC(Program):
    """Probabilistic label trees (PLT), or binary relevance (BR)."""

    package = "napkinxc"
    packages = ("napkinxc==0.7.2", "numpy", "scipy")
    seed_setting = "seed"

    def make(self) -> Any:
        from napkinxc import models

        params = dict(self.params)
        kind = getattr(models, params.pop("model", "PLT"))
        return kind(str(self.model), threads=self.threads, verbose=False, **params)

    def train(self) -> None:
        self.make().fit(self.X, self.Y)

    def load(self) -> None:
        self.trees = self.make()
        self.trees.load()

    def predict(self, rows: Any) -> Any:
        return pad(self.trees.predict_proba(rows, top_k=self.top_k), self.top_k)


class Pecos(Program):
    """XR-Linear: one tree of linear models. Further parameters go to its indexer."""

    package = "libpecos"
    # None of the neural packages that PECOS asks for: XR-Linear needs none.
    packages = ("--no-deps", "libpecos==1.2.8")
    packages_before = ("numpy==1.26.4", "scipy==1.13.1", "scikit-learn>=1.4")
    seed_setting = "seed"

    def train(self) -> None:
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        chain = Indexer.gen(LabelEmbeddingFactory.create(self.Y, self.X), **self.params)
        XLinearModel.train(self.X, self.Y, chain, threads=self.threads).save(str(self.model))

    def load(self) -> None:
        from pecos.xmc.xlinear.model import XLinearModel

        self.tree = XLinearModel.load(str(self.model), is_predict_only=True)

    def predict(self, rows: Any) -> Any:
        found = self.tree.predict(rows, only_topk=self.top_k, beam_size=10, threads=self.threads)
        labels = np.full((found.shape[0], self.top_k), -1, np.int32)
        scores = np.full(labels.shape, -np.inf, np.float32)
        for i in range(found.shape[0]):
            run = slice(found.indptr[i], found.indptr[i + 1])
            order = np.argsort(-found.data[run], kind="stable")
            labels[i, : len(order)], scores[i, : len(order)] = found.indices[run][order], found.data[run][order]
        return labels, scores


class OneVsRest(Program):
    """Programs with a weight per feature and label: scores blocks of rows and picks the best labels."""

    def scores(self, X: Any) -> Any:
        raise NotImplementedError

    def predict(self, rows: Any) -> Any:
        blocks = [self.rank(self.scores(rows[i : i + 256])) for i in range(0, rows.shape[0], 256)]
        return np.concatenate([labels for labels, _ in blocks]), np.concatenate([scores for _, scores in blocks])

    def rank(self, scores: Any) -> Any:
        k = min(self.top_k, scores.shape[1])
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, 1)
        pads = ((0, 0), (0, self.top_k - k))
        values = np.take_along_axis(scores, best, 1).astype(np.float32)
        return (
            np.pad(best.astype(np.int32), pads, constant_values=-1),
            np.pad(values, pads, constant_values=-np.inf),
        )


class Liblinear(OneVsRest):
    """LIBLINEAR once per label, labels in parallel; weights kept as a sparse matrix of 32-bit floats."""

    package = "liblinear-official"
    packages = ("liblinear-official==2.50.0", "numpy", "scipy")

    def prepare(self) -> None:
        super().prepare()
        from liblinear import liblinear

        liblinear.parameter("-q")  # loads the library
        self.columns = self.Y.tocsc()

    def train(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        from liblinear.liblinear import liblinear, parameter, problem

        options = {"s": 1, "c": 1, "B": 1, **self.params}
        parsed = parameter(" ".join(f"-{name} {value}" for name, value in options.items()) + " -q")
        whole = problem(np.full(self.X.shape[0], -1.0), self.X)
        whole.set_bias(parsed.bias)

        def solve(label: int) -> Any:
            own: Any = problem.__new__(problem)  # without its constructor, which copies
            own.l, own.n, own.bias, own.x = whole.l, whole.n, whole.bias, whole.x
            sign = np.full(whole.l, -1.0)
            sign[self.columns.indices[self.columns.indptr[label] : self.columns.indptr[label + 1]]] = 1.0
            own.y = sign.ctypes.data_as(type(own.y))
            trained = liblinear.train(own, parsed)
            try:
                facts = trained.contents
                if facts.nr_class == 1:  # a label that no row has, or all rows: only one class
                    return sp.csr_matrix(np.zeros((1, whole.n), np.float32))
                w = np.ctypeslib.as_array(facts.w, (whole.n,)).astype(np.float32)
                return sp.csr_matrix(w if facts.label[0] == 1 else -w)
            finally:
                import ctypes

                liblinear.free_and_destroy_model(ctypes.byref(trained))

        with ThreadPoolExecutor(self.threads) as pool:
            W = sp.vstack(list(pool.map(solve, range(self.Y.shape[1]))), format="csr")
        self.model.mkdir()
        sp.save_npz(self.model / "W.npz", W, compressed=False)

    def load(self) -> None:
        W: Any = sp.csr_matrix(sp.load_npz(self.model / "W.npz"))
        n_features = W.shape[1] - 1
        bias = W[:, n_features].toarray().ravel()
        trained = np.diff(W.indptr) > 0
        self.bias = np.where(trained, bias, -np.inf)
        weights = W[:, :n_features].T.tocsr()
        self.W = weights.toarray() if np.prod(weights.shape) < 2.5e8 else weights

    def scores(self, X: Any) -> Any:
        product: Any = X @ self.W
        return np.asarray(product.toarray() if hasattr(product, "toarray") else product) + self.bias


class Sklearn(OneVsRest):
    """OneVsRestClassifier over LinearSVC, labels in parallel threads; the model is a pickle."""

    package = "scikit-learn"
    packages = ("scikit-learn==1.9.1", "numpy", "scipy")
    seed_setting = "random_state"

    def train(self) -> None:
        import warnings

        import joblib
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.svm import LinearSVC

        warnings.simplefilter("ignore")  # labels that no row has
        with joblib.parallel_config("threading"):
            model = OneVsRestClassifier(LinearSVC(**self.params), n_jobs=self.threads).fit(self.X, self.Y)
        self.model.mkdir()
        joblib.dump(model, self.model / "model.joblib")

    def load(self) -> None:
        import joblib

        self.classifier = joblib.load(self.model / "model.joblib")

    def scores(self, X: Any) -> Any:
        return self.classifier.decision_function(X)


def find_program(place: str, file: str | None) -> type[Program]:
    """The class that "module:Class" names: of this file, or of another."""
    name = place.partition(":")[2]
    if file is None:
        found: type[Program] = globals()[name]
        return found
    sys.modules["umpteen.comparing.child"] = sys.modules[
        __name__
    ]  # one `Program`, also where umpteen is not installed
    spec = importlib.util.spec_from_file_location("umpteen_peer", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)  # type: ignore[no-any-return]


def pad(found: Any, top_k: int) -> Any:
    """Lists of (label, score) as two arrays."""
    labels = np.full((len(found), top_k), -1, np.int32)
    scores = np.full(labels.shape, -np.inf, np.float32)
    for i, row in enumerate(found):
        for rank, (label, score) in enumerate(row[:top_k]):
            labels[i, rank], scores[i, rank] = label, score
    return labels, scores


class Usage:
    """Wall and CPU time of a block, and its memory growth; None where that cannot be measured."""

    def __enter__(self) -> Usage:
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # freed memory that is still held would hide growth
        self.peak_bytes: int | None = None
        self._before = self._memory("VmRSS")
        try:
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        except OSError:
            self._before = None
        self._cpu, self._wall = cpu_seconds(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = cpu_seconds() - self._cpu
        peak = self._memory("VmHWM")
        if self._before is not None and peak is not None:
            self.peak_bytes = max(0, peak - self._before)

    @staticmethod
    def _memory(what: str) -> int | None:
        try:
            found = re.search(what + r":\s+(\d+)", Path("/proc/self/status").read_text())
        except OSError:
            return None
        return 1024 * int(found[1]) if found else None


def cpu_seconds() -> float:
    """CPU time of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def size(path: Path) -> int:
    """Bytes of a file or of all files of a directory."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


def measure_batch(program: Any, rows: Any) -> tuple[Any, list[float], list[float]]:
    """The predictions for all rows at once, and the wall and CPU seconds of each pass."""
    times: list[float] = []
    processors: list[float] = []
    while not times or (len(times) < _MOST_PASSES and sum(times) < _LONGEST):
        used, started = cpu_seconds(), time.perf_counter()
        found = program.predict(rows)
        times.append(time.perf_counter() - started)
        processors.append(cpu_seconds() - used)
    return found, times, processors


def measure_single(program: Any, rows: list[Any]) -> list[float]:
    """Milliseconds per row, predicted one by one."""
    times: list[float] = []
    begun = time.perf_counter()
    for row in rows:
        started = time.perf_counter()
        program.predict(row)
        times.append(1000 * (time.perf_counter() - started))
        if time.perf_counter() - begun > _LONGEST:
            break
    return times


def end_with_parent() -> None:
    """Ends with the parent: standard input is a pipe from it, which closes when it ends."""
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    job = json.loads(Path(sys.argv[1]).read_text())
    out = Path(job["out"])
    program = find_program(job["program"], job["file"])(
        Path(job["data"]), out / "model", job["threads"], job["top_k"], job["params"], job["seed"]
    )
    program.prepare()
    with Usage() as training:
        program.train()
    program.X = program.Y = None
    X = program.read_X("test")
    rows = program.rows(X)
    with Usage() as predicting:  # memory of the model too, whether it is read at once or mapped
        started = time.perf_counter()
        program.load()
        load_seconds = time.perf_counter() - started
        (labels, scores), batch, processors = measure_batch(program, rows)
    n_single = min(job["n_single"], X.shape[0])
    single = measure_single(program, [program.rows(X[i]) for i in range(n_single)])
    np.savez(out / "predictions.npz", labels=labels, scores=scores)
    result = {
        "version": program.version(),
        "seed": program.seed,
        "train_seconds": training.seconds,
        "train_cpu_seconds": training.cpu_seconds,
        "train_peak_bytes": training.peak_bytes,
        "estimate": getattr(program, "estimate", None),
        "model_bytes": size(out / "model"),
        "load_seconds": load_seconds,
        "predict_seconds": statistics.median(batch),
        "predict_passes": len(batch),
        "predict_cpu_seconds": statistics.median(processors),
        "predict_peak_bytes": predicting.peak_bytes,
        "single_ms": {"p50": float(np.percentile(single, 50)), "p95": float(np.percentile(single, 95))},
        "single_rows": len(single),
    }
    (out / "measured.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
