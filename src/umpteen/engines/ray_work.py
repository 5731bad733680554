"""What runs on Ray's workers, and what the driver does with tasks that run there."""

from __future__ import annotations

import contextlib
import platform
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

from umpteen import __version__, _native
from umpteen.data.matrix import Csr
from umpteen.engines.base import Failures, Portable, Resources, Task
from umpteen.errors import UmpteenError
from umpteen.models.partial import Divisible, Merger
from umpteen.models.scorer import Ranking

_ROWS_PER_BLOCK = 4096
#: How long to wait for cancelled tasks to stop.
_CANCEL_SECONDS = 5.0


# --- in the workers -------------------------------------------------------------------------------------------------


def signature() -> tuple[str, str]:
    """What must be the same in workers and driver, or bytes might differ."""
    return __version__, _native.simd()


def check_signature(signature: tuple[str, str]) -> None:
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


def do_tasks(
    shared: Any, picked: list[tuple[Task, Any]], threads: int, signature: tuple[str, str]
) -> list[tuple[bool, Any]]:
    """For each task, whether it succeeded, and its result or error: an error in the work is not worth a retry."""
    check_signature(signature)
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


def score_part(part: Any, X: Csr, top_k: int, options: dict[str, Any], signature: tuple[str, str]) -> Any:
    check_signature(signature)
    if isinstance(part, Divisible):
        return part.score_part(X, top_k, **options)
    return part.predict_topk(X, top_k, **options)


def merge(merger: Merger, X: Csr, top_k: int, options: dict[str, Any], *answers: Any) -> Ranking:
    return merger.merge(X, answers, top_k, **options)


# --- in the driver --------------------------------------------------------------------------------------------------


def collect(ref: Any, group: list[Task], failures: Failures) -> Iterator[tuple[Task, Any]]:
    """The results of some tasks; failed ones go to `failures`."""
    import ray

    try:
        outcomes: list[tuple[bool, Any]] = ray.get(ref)
    except ray.exceptions.RayTaskError as error:  # outside the work itself; for example, it could not be unpacked
        failures.add(group[0], error.cause)
        return
    except ray.exceptions.RayError as error:
        failures.add(group[0], RuntimeError(explain(error)))
        return
    for task, (good, result) in zip(group, outcomes, strict=True):
        if good:
            yield task, result
        else:
            failures.add(task, result)


def explain(error: Any) -> str:
    """The error's type and its first non-empty line."""
    cause = getattr(error, "cause", None)
    lines = [line.strip() for line in str(cause or error).splitlines() if line.strip()]
    return f"{type(cause or error).__name__}: {lines[0] if lines else ''}"


def cancel(refs: list[Any]) -> None:
    import ray

    if not refs or not ray.is_initialized():
        return
    for ref in refs:
        with contextlib.suppress(Exception):
            ray.cancel(ref)
    ray.wait(refs, num_returns=len(refs), timeout=_CANCEL_SECONDS, fetch_local=False)


def in_blocks(X: Csr, top_k: int, submit: Any, n_blocks: int) -> Ranking:
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
                raise UmpteenError(f"rows {begin} to {last} could not be scored: {explain(error)}") from error
            labels[begin : begin + len(found[0])], scores[begin : begin + len(found[0])] = found
    finally:
        cancel(list(running))
