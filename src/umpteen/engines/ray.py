"""Trains shards on many machines with Ray: DiSMEC's two layers, machines and the cores of each.

What all shards need (mainly X) is put into Ray's object store once. Each node fetches one copy, and its workers read
that in place; the labels of a shard are sent with its task. A worker uses one thread per core. If a
worker or a node is lost, Ray runs its tasks again elsewhere; if the driver is lost, the model directory is the
checkpoint.

    fit in the driver ── ray.put(X) ──▶ one copy per node ──▶ workers ── shards ──▶ the driver, or the directory

This file is named after the engine; ``import ray`` in it imports Ray itself.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from umpteen import __version__, _native
from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr
from umpteen.engines.base import (
    Engine,
    Failures,
    Parallelism,
    Portable,
    Resources,
    Task,
    Work,
    largest_first,
)
from umpteen.errors import MissingExtraError, ModelChangedError, ModelError, ParamError, UmpteenError
from umpteen.memory import format_bytes
from umpteen.models.families import scorer_class
from umpteen.models.partial import Divisible, Merger, RankingMerger, share_out, take_part
from umpteen.models.scorer import Ranking, Scorer
from umpteen.params import check_count, check_flag
from umpteen.storage.remote import is_url, open_model
from umpteen.storage.store import fingerprint_parts

WRITERS = ("driver", "workers")
_ROWS_PER_BLOCK = 4096
#: Cores for actors and tasks that need a node with cores, but none for themselves.
_HARDLY_ANY = 0.001
#: How long to wait for cancelled tasks to stop.
_CANCEL_SECONDS = 5.0
#: Ray's settings in this process, unless the environment sets them. With its defaults, Ray waits minutes for a
#: machine whose network was cut before it gives the shards to others; with these, some twenty seconds.
_BEHAVIOUR = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_grpc_client_keepalive_time_ms": "10000",
    "RAY_grpc_client_keepalive_timeout_ms": "10000",
    "RAY_core_worker_rpc_server_reconnect_timeout_base_s": "5",
    "RAY_core_worker_rpc_server_reconnect_timeout_max_s": "10",
    "RAY_raylet_rpc_server_reconnect_timeout_base_s": "5",
    "RAY_raylet_rpc_server_reconnect_timeout_max_s": "10",
}


class RayEngine(Engine):
    """Runs tasks on a Ray cluster.

    Parameters
    ----------
    address
        The cluster: ``"host:6379"``, ``"auto"`` for the one on this machine, or ``"local"``, which starts Ray here
        for as long as it is needed. By default ``$RAY_ADDRESS``, which `ray job submit` sets, else "local". If the
        program is already connected to a cluster, that one is used.
    cpus
        Cores of a worker, and thus its threads. By default as many as the smallest node has for methods whose kernels
        use threads, and 1 for the others. Fewer and larger workers need less memory.
    write
        Where shards are written: "driver", which receives them through Ray; or "workers", which write them into the
        model directory, so all nodes must share it.
    keep_going
        Whether to continue after a shard fails. Failures are logged at once and raised at the end.
    retries
        How often to try a shard again after its worker or node was lost.
    threads
        Cores that Ray may use if it is started here; by default all.

    Notes
    -----
    Each run connects and disconnects. Within ``with engine:`` the connection stays.
    """

    elsewhere: ClassVar[bool] = True

    def __init__(
        self,
        address: str | None = None,
        *,
        cpus: int | None = None,
        write: str = "driver",
        keep_going: bool = False,
        retries: int = 3,
        threads: int | None = None,
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MissingExtraError("engine='ray' needs Ray. Install it with: pip install 'umpteen[ray]'")
        if write not in WRITERS:
            raise ParamError(f"write must be one of {', '.join(WRITERS)}, but is {write!r}")
        self.address = address
        self.cpus = None if cpus is None else check_count("cpus", cpus, high=4096)
        self.write = write
        self.keep_going = check_flag("keep_going", keep_going)
        self.retries = check_count("retries", retries, low=0)
        self.threads = None if threads is None else check_count("threads", threads, high=4096)
        self._users = 0
        self._connection: contextlib.ExitStack | None = None

    def __repr__(self) -> str:
        return f"RayEngine({self.address!r})" if self.address else "RayEngine()"

    def __reduce__(self) -> Any:
        # A copy, such as from scikit-learn's clone, has the settings but no connection.
        settings = {name: getattr(self, name) for name in ("cpus", "write", "keep_going", "retries", "threads")}
        return _make, (self.address, settings)

    # --- the cluster ---------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._users == 0:
            self._connection = _connect(self.address, self.threads)
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if self._users == 0 and self._connection is not None:
            self._connection.close()
            self._connection = None

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that have cores, as Ray describes them."""
        import ray

        return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]

    def _worker_cpus(self, parallelism: Parallelism) -> int:
        """Cores of a worker; checked, because Ray would wait forever for a node with more cores than any has."""
        sizes = [int(node["Resources"]["CPU"]) for node in self.nodes()]
        if self.cpus is not None:
            if sizes and self.cpus > max(sizes):
                raise ParamError(
                    f"cpus must be at most {max(sizes)}, the cores of the largest node, but is {self.cpus}"
                )
            return self.cpus if parallelism != "across" else 1
        if parallelism == "across" or not sizes:
            return 1
        return max(sizes) if parallelism == "together" else min(sizes)

    # --- training ------------------------------------------------------------------------------------------------

    def run(self, work: Work, tasks: Sequence[Task], parallelism: Parallelism) -> Iterator[tuple[Task, Any]]:
        if not tasks:
            return
        import ray

        with self:
            cpus = self._worker_cpus(parallelism)
            portable = work if isinstance(work, Portable) else None
            shared = work if portable is None else portable.share(writes=self.write == "workers")
            shared_ref = ray.put(shared)
            self._warn_if_large(shared_ref)
            remote: Any = ray.remote(_do_tasks).options(num_cpus=cpus, max_retries=self.retries, name="umpteen-shard")
            groups = [list(tasks)] if parallelism == "together" else [[task] for task in largest_first(tasks)]
            # Ray starts tasks of one kind in the order they were submitted.
            running: dict[Any, list[Task]] = {}
            failures = Failures(self.keep_going)
            try:
                for group in groups:
                    picked = [(task, None if portable is None else portable.pick(task)) for task in group]
                    running[remote.remote(shared_ref, picked, cpus, _signature())] = group
                while running:
                    (ref,), _ = ray.wait(list(running), num_returns=1)
                    group = running.pop(ref)
                    yield from _collect(ref, group, failures)
                    del ref
                failures.raise_if_any(len(tasks))
            finally:
                _cancel(list(running))

    def _warn_if_large(self, ref: Any) -> None:
        """Warns if X does not fit into a node's object store, so that Ray reads it from disk."""
        import ray

        n_bytes = ray.experimental.get_object_locations([ref])[ref]["object_size"] or 0
        for node in self.nodes():
            room = node["Resources"].get("object_store_memory", 0)
            if n_bytes > room:
                warnings.warn(
                    f"the data take {format_bytes(n_bytes)}, but the object store of node "
                    f"{node['NodeManagerAddress']} has {format_bytes(room)}, so Ray will read them from disk; start "
                    "nodes with a larger --object-store-memory",
                    stacklevel=3,
                )
                return

    # --- prediction ----------------------------------------------------------------------------------------------

    def predict_topk(
        self,
        model: Scorer,
        X: Csr,
        top_k: int,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        """The model's own results, from tasks over blocks of rows times parts of the model.

        The model's arrays go through the object store. Use `hold` for models that are larger or used again.
        """
        import ray

        with self:
            cpus = self._worker_cpus("inside")
            options: Any = {"exclude": exclude, "include": include, "threads": cpus}
            remote: Any = {"num_cpus": cpus, "max_retries": self.retries}
            score, merge = ray.remote(_score_part).options(**remote), ray.remote(_merge).options(**remote)
            n_workers = sum(int(node["Resources"]["CPU"]) // cpus for node in self.nodes())
            merger: Merger = RankingMerger()
            parts: list[Any] = [model]
            if isinstance(model, Divisible):
                merger = model.merger()
                parts = [take_part(model, share) for share in share_out(model, max(1, n_workers))]
            refs = [ray.put(part) for part in parts]
            del parts
            merger_ref = ray.put(merger)

            def submit(rows: Any) -> Any:
                answers = [score.remote(part, rows, top_k, options, _signature()) for part in refs]
                return merge.remote(merger_ref, rows, top_k, options, *answers)

            return _in_blocks(X, top_k, submit, max(2, n_workers))

    def hold(self, path: PathLike, parts: int | None = None) -> HeldModel:
        """Opens a model directory in parts, each held by an actor, for models larger than one node's memory.

        Parameters
        ----------
        path
            A model directory that all nodes have under this path, or an fsspec URL.
        parts
            How many parts; by default one for each node.

        Examples
        --------
        ::

            model = umpteen.load("wiki.model")  # mapped, not read
            with umpteen.RayEngine("auto") as engine, engine.hold("wiki.model") as held:
                labels, scores = model.predict_topk(X, engine=held)
        """
        return HeldModel(self, path, parts)


class HeldModel(Engine):
    """A model whose parts are in the memory of several nodes. An engine: pass it to the model's `predict_topk`."""

    elsewhere: ClassVar[bool] = True

    def __init__(self, engine: RayEngine, path: PathLike, parts: int | None) -> None:
        self.engine = engine
        self.path = path if is_url(path) else Path(path).resolve()
        self.parts = None if parts is None else check_count("parts", parts)
        self._actors: list[Any] = []

    def __enter__(self) -> Self:
        import ray

        self.engine.__enter__()
        try:
            reader = self._reader = open_model(self.path)
            manifest, names = reader.manifest, reader.shard_names
            missing = [key for key in ("n_features", "n_labels", "family", "params") if key not in manifest]
            if missing or "candidates" in manifest:
                what = f"its manifest lacks {missing[0]}" if missing else "it has a candidate tree"
                raise ParamError(f"{self.path}: this model cannot be held in parts: {what}")
            self._shape = (manifest["n_features"], manifest["n_labels"])
            family = scorer_class(manifest["family"])
            if not hasattr(family, "units"):
                raise ParamError(f"{self.path}: a {family.family} model cannot be held in parts")
            parts = [reader.part(name) for name in names]
            model: Any = family.from_parts(parts, *self._shape).configured(manifest["params"])
            self._settings = model.settings()
            nodes = self.engine.nodes()
            shares = share_out(model, self.parts or max(1, len(nodes)))
            room = max((node["Resources"].get("memory", 0) for node in nodes), default=0)
            largest = max(share.n_bytes for share in shares)
            if largest > room:
                raise ParamError(
                    f"{self.path}: the largest of {len(shares)} parts takes {format_bytes(largest)}, but no node has "
                    f"more than {format_bytes(room)} of memory; use more parts"
                )
            cores = sum(int(node["Resources"]["CPU"]) for node in nodes)
            self._threads = self.engine.cpus or max(1, cores // len(shares))
            # A part that is lost with its node is opened on another node, and its task runs again. It reserves
            # memory, but next to no core: after nodes are lost, no core may be free.
            holder: Any = ray.remote(_Holder)
            for share in shares:
                options = {"num_cpus": _HARDLY_ANY, "memory": share.n_bytes, "scheduling_strategy": "SPREAD",
                           "max_restarts": -1, "max_task_retries": -1}  # fmt: skip
                shards = [names[i] for i in share.shards]
                self._actors.append(
                    holder.options(**options).remote(
                        self.path, reader.version, type(model), shards, self._shape, self._settings, _signature()
                    )
                )
            self._merger = ray.put(model.merger())
            self.n_bytes = [int(size) for size in ray.get([actor.n_bytes.remote() for actor in self._actors])]
        except BaseException as error:
            self.__exit__()
            if isinstance(error, ray.exceptions.RayError):
                raise ModelError(
                    f"{self.path}: a part of the model could not be opened ({_explain(error)})"
                ) from error
            raise
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        for actor in self._actors:
            ray.kill(actor)
        self._actors.clear()
        self.engine.__exit__()

    def run(self, work: Work, tasks: Sequence[Task], parallelism: Parallelism) -> Iterator[tuple[Task, Any]]:
        return self.engine.run(work, tasks, parallelism)

    def predict_topk(
        self,
        model: Scorer,
        X: Csr,
        top_k: int,
        *,
        exclude: ArrayLike | None = None,
        include: ArrayLike | None = None,
        threads: int | None = None,
    ) -> Ranking:
        """The results of the held model; `model`, which must be the same one opened here, is not used."""
        import ray

        if not self._actors:
            raise ParamError("a held model can only be used within its with-block")
        self._refuse_another(model)
        options: Any = {"exclude": exclude, "include": include, "threads": self._threads}
        # Merging a block is little work beside scoring it.
        merge: Any = ray.remote(_merge).options(num_cpus=_HARDLY_ANY, max_retries=self.engine.retries)

        def submit(rows: Any) -> Any:
            answers = [actor.score_part.remote(rows, top_k, options) for actor in self._actors]
            return merge.remote(self._merger, rows, top_k, options, *answers)

        return _in_blocks(X, top_k, submit, 4)

    def _refuse_another(self, model: Scorer) -> None:
        """Names, counts and preprocessing are those of the caller's model, so it must be the one that is held."""
        shape = (getattr(model, "n_features", None), getattr(model, "n_labels", None))
        if shape != self._shape:
            raise ParamError(
                f"{self.path}: the model held has {self._shape} features and labels, but this one has {shape}"
            )
        if model.settings() != self._settings:
            raise ParamError(
                f"{self.path}: the model held has the settings {self._settings}, but this one {model.settings()}"
            )
        if model.version is not None:
            same = model.version == self._reader.version
        else:
            same = fingerprint_parts(model.to_parts()) == self._fingerprint
        if not same:
            raise ModelChangedError(
                f"{self.path}: the model held, version {self._reader.version[:12]}, is another than this one; open "
                "it again and hold it again"
            )

    @cached_property
    def _fingerprint(self) -> str:
        """Of what is held, for models that come from memory; reads all of it, once."""
        return fingerprint_parts(self._reader.part(name) for name in self._reader.shard_names)


# --- in the driver --------------------------------------------------------------------------------------------------


def _make(address: str | None, settings: dict[str, Any]) -> RayEngine:
    return RayEngine(address, **settings)


def _connect(address: str | None, threads: int | None) -> contextlib.ExitStack:
    """Connects to a cluster, or starts one; closing the stack undoes that completely."""
    import ray

    stack = contextlib.ExitStack()
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in ("auto", "local") and "://" not in address and address != here:
            raise ParamError(f"address is {address!r}, but this program is already connected to Ray at {here}")
        return stack
    options: dict[str, Any] = {"logging_level": "warning", "log_to_driver": False}
    if address == "local":
        # Sockets, logs and spilled objects go into their own directory, which is deleted when Ray stops.
        place = tempfile.mkdtemp(prefix="umpteen-ray-", dir=_short_directory())
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        options |= {"include_dashboard": False, "num_cpus": threads, "_temp_dir": place}
        if sys.platform == "linux":
            options["_node_ip_address"] = "127.0.0.2"  # this machine only; Ray takes 127.0.0.1 to mean "any"
    try:
        if found := re.fullmatch(r"([^/]+):(\d+)", address):  # Ray itself would keep trying for minutes
            socket.create_connection((found[1], int(found[2])), timeout=10).close()
        with _environment(_BEHAVIOUR):
            ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        stack.close()
        raise UmpteenError(f"Ray cannot be reached at {address!r} ({str(error).splitlines()[0]})") from error
    stack.callback(ray.shutdown)
    return stack


def _short_directory() -> str | None:
    """/tmp if the usual temporary directory's path is too long for Ray's sockets, which allow about 100 bytes."""
    return None if len(tempfile.gettempdir()) <= 24 or not Path("/tmp").is_dir() else "/tmp"


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Sets environment variables that are not set yet, within a with-block."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _signature() -> tuple[str, str]:
    """What must be the same in workers and driver, or bytes might differ."""
    return __version__, _native.simd()


def _collect(ref: Any, group: list[Task], failures: Failures) -> Iterator[tuple[Task, Any]]:
    """The results of some tasks; failed ones go to `failures`."""
    import ray

    try:
        outcomes: list[tuple[bool, Any]] = ray.get(ref)
    except ray.exceptions.RayTaskError as error:  # outside the work itself; for example, it could not be unpacked
        failures.add(group[0], error.cause)
        return
    except ray.exceptions.RayError as error:
        failures.add(group[0], RuntimeError(_explain(error)))
        return
    for task, (good, result) in zip(group, outcomes, strict=True):
        if good:
            yield task, result
        else:
            failures.add(task, result)


def _explain(error: Any) -> str:
    """The error's type and its first non-empty line."""
    cause = getattr(error, "cause", None)
    lines = [line.strip() for line in str(cause or error).splitlines() if line.strip()]
    return f"{type(cause or error).__name__}: {lines[0] if lines else ''}"


def _cancel(refs: list[Any]) -> None:
    import ray

    if not refs or not ray.is_initialized():
        return
    for ref in refs:
        with contextlib.suppress(Exception):
            ray.cancel(ref)
    ray.wait(refs, num_returns=len(refs), timeout=_CANCEL_SECONDS, fetch_local=False)


def _in_blocks(X: Csr, top_k: int, submit: Any, n_blocks: int) -> Ranking:
    """Calls `submit` with blocks of rows in the object store, some at a time, and joins the results."""
    import ray

    labels = np.full((X.shape[0], top_k), -1, np.int32)
    scores = np.full((X.shape[0], top_k), -np.inf, np.float32)
    waiting = iter(range(0, X.shape[0], _ROWS_PER_BLOCK))
    running: dict[Any, int] = {}
    try:
        while True:
            while len(running) < n_blocks and (begin := next(waiting, None)) is not None:
                running[submit(ray.put(X[begin : begin + _ROWS_PER_BLOCK]))] = begin
            if not running:
                return labels, scores
            (ref,), _ = ray.wait(list(running), num_returns=1)
            begin = running.pop(ref)
            try:
                found = ray.get(ref)
            except ray.exceptions.RayError as error:
                last = min(begin + _ROWS_PER_BLOCK, X.shape[0]) - 1
                raise UmpteenError(f"rows {begin} to {last} could not be scored: {_explain(error)}") from error
            labels[begin : begin + len(found[0])], scores[begin : begin + len(found[0])] = found
    finally:
        _cancel(list(running))


# --- in the workers -------------------------------------------------------------------------------------------------


def _check_signature(signature: tuple[str, str]) -> None:
    version, simd = signature
    where = f"the worker on {platform.node()}"
    if version != __version__:
        raise UmpteenError(f"{where} must have umpteen {version}, like the driver, but has {__version__}")
    if simd not in _native.available_simd():
        raise UmpteenError(
            f"{where} must have the driver's instruction set, {simd}, to give the same bytes, but has "
            f"{_native.available_simd()[-1]}; set UMPTEEN_SIMD to one that all nodes have"
        )
    if _native.simd() != simd:
        _native.use_simd(simd)


def _do_tasks(
    shared: Any, picked: list[tuple[Task, Any]], threads: int, signature: tuple[str, str]
) -> list[tuple[bool, Any]]:
    """For each task, whether it succeeded, and its result or error: an error in the work is not worth a retry."""
    _check_signature(signature)
    outcomes: list[tuple[bool, Any]] = []
    for task, own in picked:
        resources = Resources(threads, _native.CancelToken())
        work = shared.receive(own) if isinstance(shared, Portable) else shared
        try:
            outcomes.append((True, work(task, resources)))
        except Exception as error:
            error.add_note("In the worker:\n" + traceback.format_exc())
            outcomes.append((False, error))
    return outcomes


def _score_part(part: Any, X: Csr, top_k: int, options: dict[str, Any], signature: tuple[str, str]) -> Any:
    _check_signature(signature)
    if isinstance(part, Divisible):
        return part.score_part(X, top_k, **options)
    return part.predict_topk(X, top_k, **options)


def _merge(merger: Merger, X: Csr, top_k: int, options: dict[str, Any], *answers: Any) -> Ranking:
    return merger.merge(X, answers, top_k, **options)


class _Holder:
    """Holds some shards of a model."""

    def __init__(
        self,
        path: PathLike,
        version: str,
        family: type[Any],
        shards: list[str],
        shape: tuple[int, int],
        settings: dict[str, Any],
        signature: tuple[str, str],
    ) -> None:
        _check_signature(signature)
        reader = open_model(path)
        if reader.version != version:  # also when it is opened anew, after its node was lost
            raise ModelChangedError(
                f"{path}: must be version {version[:12]}, which the other parts hold, but was replaced by "
                f"{reader.version[:12]}; hold it again"
            )
        parts = [reader.part(name) for name in shards]
        self._n_bytes = sum(part.n_bytes for part in parts)
        self._part = family.from_some_parts(parts, *shape).configured(settings)

    def n_bytes(self) -> int:
        return self._n_bytes

    def score_part(self, X: Csr, top_k: int, options: dict[str, Any]) -> Any:
        return self._part.score_part(X, top_k, **options)
