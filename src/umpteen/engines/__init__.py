"""Where shards are trained."""

from __future__ import annotations

from umpteen.engines.base import Engine
from umpteen.errors import ParamError
from umpteen.nearest import did_you_mean

ENGINES = ("local", "ray")


def make_engine(engine: str | Engine, threads: int | None) -> Engine:
    """The engine with this name, or the given engine."""
    if isinstance(engine, Engine):
        return engine
    if engine == "local":
        from umpteen.engines.local import LocalEngine

        return LocalEngine(threads)
    if engine == "ray":
        from umpteen.engines.ray import RayEngine

        return RayEngine(threads=threads)
    raise ParamError(
        f"engine must be one of {', '.join(ENGINES)}, but is {engine!r}{did_you_mean(str(engine), ENGINES)}"
    )
