"""Models held in the memory of several nodes of a Ray cluster, in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import ArrayLike

from umpteen.data.files import PathLike
from umpteen.data.matrix import Csr
from umpteen.engines.base import Engine, Parallelism, Task, Work
from umpteen.engines.ray_work import check_signature, explain, in_blocks, merge, signature
from umpteen.errors import ModelChangedError, ModelError, ParamError
from umpteen.memory import format_bytes
from umpteen.models.families import scorer_class
from umpteen.models.partial import Share, share_out
from umpteen.models.scorer import Ranking, Scorer
from umpteen.params import check_count
from umpteen.storage.remote import is_url, open_model
from umpteen.storage.store import fingerprint_parts

if TYPE_CHECKING:
    from umpteen.engines.ray import RayEngine

#: Cores for actors and tasks that need a node with cores, but none for themselves.
_HARDLY_ANY = 0.001


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
            model, shares = self._divide()
            self._start(model, shares)
        except BaseException as error:
            self.__exit__()
            if isinstance(error, ray.exceptions.RayError):
                raise ModelError(
                    f"{self.path}: a part of the model could not be opened ({explain(error)})"
                ) from error
            raise
        return self

    def _divide(self) -> tuple[Any, list[Share]]:
        """The model, mapped and not read, and the shards of each part."""
        reader = self._reader = open_model(self.path)
        manifest = reader.manifest
        missing = [key for key in ("n_features", "n_labels", "family", "params") if key not in manifest]
        if missing or "candidates" in manifest:
            what = f"its manifest lacks {missing[0]}" if missing else "it has a candidate tree"
            raise ParamError(f"{self.path}: this model cannot be held in parts: {what}")
        self._shape = (manifest["n_features"], manifest["n_labels"])
        family = scorer_class(manifest["family"])
        if not hasattr(family, "units"):
            raise ParamError(f"{self.path}: a {family.family} model cannot be held in parts")
        parts = [reader.part(name) for name in reader.shard_names]
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
        return model, shares

    def _start(self, model: Any, shares: list[Share]) -> None:
        """Starts the actors and waits until each has opened its part.

        A part that is lost with its node is opened on another node, and its task runs again. It reserves memory, but
        next to no core: after nodes are lost, no core may be free.
        """
        import ray

        holder: Any = ray.remote(_Holder)
        for share in shares:
            options = {"num_cpus": _HARDLY_ANY, "memory": share.n_bytes, "scheduling_strategy": "SPREAD",
                       "max_restarts": -1, "max_task_retries": -1}  # fmt: skip
            shards = [self._reader.shard_names[i] for i in share.shards]
            self._actors.append(
                holder.options(**options).remote(
                    self.path, self._reader.version, type(model), shards, self._shape, self._settings, signature()
                )
            )
        self._merger = ray.put(model.merger())
        self.n_bytes = [int(size) for size in ray.get([actor.n_bytes.remote() for actor in self._actors])]

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
        join: Any = ray.remote(merge).options(num_cpus=_HARDLY_ANY, max_retries=self.engine.retries)

        def submit(rows: Any) -> Any:
            answers = [actor.score_part.remote(rows, top_k, options) for actor in self._actors]
            return join.remote(self._merger, rows, top_k, options, *answers)

        return in_blocks(X, top_k, submit, 4)

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
        check_signature(signature)
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
