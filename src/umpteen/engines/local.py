"""Trains shards on this machine's threads. The kernels release the GIL, so threads suffice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from umpteen import _native
from umpteen.engines.base import Engine, Failures, Parallelism, Resources, Task, Work, largest_first
from umpteen.params import check_flag
from umpteen.threads import resolve_threads


class LocalEngine(Engine):
    """Runs tasks in threads of this process.

    Parameters
    ----------
    threads
        How many at most; by default one per core.
    keep_going
        Whether to continue after a shard fails. Failures are logged at once and raised at the end.
    """

    def __init__(self, threads: int | None = None, *, keep_going: bool = False) -> None:
        self.threads = resolve_threads(threads)
        self.keep_going = check_flag("keep_going", keep_going)

    def run(self, work: Work, tasks: Sequence[Task], parallelism: Parallelism) -> Iterator[tuple[Task, Any]]:
        n_workers = max(1, min(self.threads, len(tasks))) if parallelism == "across" else 1
        token = _native.CancelToken()
        threads = 1 if parallelism == "across" else self.threads
        queue = iter(largest_first(tasks))
        failures = Failures(self.keep_going)
        # The work runs off the main thread even with one worker, so that the main thread can react to Ctrl-C.
        pool = ThreadPoolExecutor(n_workers, thread_name_prefix="umpteen-shard")
        running: dict[Future[Any], Task] = {}
        try:
            while True:
                # One task waits for each running one; a longer queue would only delay a stop.
                while len(running) < 2 * n_workers and (task := next(queue, None)) is not None:
                    running[pool.submit(work, task, Resources(threads, token))] = task
                if not running:
                    failures.raise_if_any(len(tasks))
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    task = running.pop(future)
                    if (cause := future.exception()) is not None:
                        failures.add(task, cause)
                    else:
                        yield task, future.result()
        finally:
            token.cancel()
            pool.shutdown(wait=True, cancel_futures=True)
