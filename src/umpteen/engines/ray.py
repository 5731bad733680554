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
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr
from umpteen.engines.base import (
    Engine,
    Failures,
    Parallelism,
    Portable,
    Task,
    Work,
    largest_first,
)
from umpteen.engines.ray_cluster import connect
from umpteen.engines.ray_held import HeldModel
from umpteen.engines.ray_work import cancel, collect, do_tasks, in_blocks, merge, score_part, signature
from umpteen.errors import MissingExtraError, ParamError
from umpteen.memory import format_bytes
from umpteen.models.partial import Divisible, Merger, RankingMerger, share_out, take_part
from umpteen.models.scorer import Ranking, Scorer
from umpteen.params import check_choice, check_count, check_flag

WRITERS = ("driver", "workers")


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
        check_choice("write", write, WRITERS)
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
            self._connection = connect(self.address, self.threads)
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
            remote: Any = ray.remote(do_tasks).options(num_cpus=cpus, max_retries=self.retries, name="umpteen-shard")
            groups = [list(tasks)] if parallelism == "together" else [[task] for task in largest_first(tasks)]
            # Ray starts tasks of one kind in the order they were submitted.
            running: dict[Any, list[Task]] = {}
            failures = Failures(self.keep_going)
            try:
                for group in groups:
                    picked = [(task, None if portable is None else portable.pick(task)) for task in group]
                    running[remote.remote(shared_ref, picked, cpus, signature())] = group
                while running:
                    (ref,), _ = ray.wait(list(running), num_returns=1)
                    group = running.pop(ref)
                    yield from collect(ref, group, failures)
                    del ref
                failures.raise_if_any(len(tasks))
            finally:
                cancel(list(running))

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
            score, join = ray.remote(score_part).options(**remote), ray.remote(merge).options(**remote)
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
                answers = [score.remote(part, rows, top_k, options, signature()) for part in refs]
                return join.remote(merger_ref, rows, top_k, options, *answers)

            return in_blocks(X, top_k, submit, max(2, n_workers))

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


def _make(address: str | None, settings: dict[str, Any]) -> RayEngine:
    return RayEngine(address, **settings)
