"""Many small requests become few kernel calls.

A lane has one working thread and a queue. Whatever arrives while the thread is busy becomes its next call: an idle
server answers at once, a busy one in batches, and no request ever waits for a batch to fill. The kernels release the
interpreter, so the event loop keeps reading and writing meanwhile. The queue is bounded: when it is full, requests
are refused at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from umpteen.serving.problems import Problem, overloaded

Job = TypeVar("Job")
#: The outcome of a job: the body of its answer, with the version of the model that gave it, or an error.
Outcome = bytes | tuple[bytes, str] | Exception


@dataclass(slots=True, eq=False)
class _Waiting(Generic[Job]):
    job: Job
    rows: int
    deadline: float
    answer: asyncio.Future[Any]


class Lane(Generic[Job]):
    """One thread and its queue; belongs to one event loop.

    Parameters
    ----------
    name
        The name of the thread, also used in messages.
    work
        Called in the thread with some jobs; returns one outcome for each.
    max_waiting
        Most rows that may wait; a job counts with all its rows.
    max_rows
        Most rows in one call, unless the first job alone has more.
    timeout
        Seconds after which an unfinished job fails.
    on_call
        Called with the number of rows of each call.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Job]], Sequence[Outcome]],
        *,
        max_waiting: int,
        max_rows: int,
        timeout: float,
        on_call: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self.name = name
        self._work = work
        self._max_waiting, self._max_rows, self._timeout = max_waiting, max_rows, timeout
        self._on_call = on_call
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._queue: deque[_Waiting[Job]] = deque()
        self._running: list[_Waiting[Job]] = []
        self._busy = False
        self._closed = False
        self._clock: asyncio.TimerHandle | None = None
        self._began = 0.0
        self.rows_waiting = 0

    @property
    def busy_for(self) -> float:
        """Seconds the current call has taken so far."""
        return asyncio.get_running_loop().time() - self._began if self._running else 0.0

    async def submit(self, job: Job, rows: int = 1) -> Any:
        """Queues a job and waits for its outcome."""
        if self._closed:
            raise overloaded("the server is stopping")
        if self.rows_waiting + rows > self._max_waiting:
            raise overloaded(f"{self.rows_waiting} texts are already waiting for {self.name}; try again later")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(job, rows, loop.time() + self._timeout, loop.create_future())
        self._queue.append(waiting)
        self.rows_waiting += rows
        if not self._busy:
            self._busy = True
            loop.call_soon(self._start)  # not at once, so that other requests of this turn of the loop join
        if self._clock is None:
            self._clock = loop.call_later(min(0.2, self._timeout / 4), self._give_up_late)
        try:
            return await waiting.answer
        finally:
            del waiting  # a failed answer's traceback holds this frame: the cycle would keep the job's text alive

    def _start(self) -> None:
        """Hands the waiting jobs to the thread."""
        batch: list[_Waiting[Job]] = []
        rows = 0
        while self._queue and (not batch or rows + self._queue[0].rows <= self._max_rows):
            waiting = self._queue.popleft()
            self.rows_waiting -= waiting.rows
            if not waiting.answer.done():  # else its client has left, or it has timed out
                batch.append(waiting)
                rows += waiting.rows
        self._running = batch
        if not batch:
            self._busy = False
            return
        self._on_call(rows)
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        future = self._thread.submit(self._work, [waiting.job for waiting in batch])
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._finish, batch, done))

    def _finish(self, batch: list[_Waiting[Job]], done: Future[Sequence[Outcome]]) -> None:
        self._start()  # first the thread, then the clients
        error = done.exception()
        outcomes: Sequence[Any] = [error] * len(batch) if error is not None else done.result()
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if waiting.answer.done():
                continue
            if isinstance(outcome, BaseException):
                waiting.answer.set_exception(outcome)
            else:
                waiting.answer.set_result(outcome)

    def _give_up_late(self) -> None:
        """Fails jobs that have timed out. There is one clock for all: a timer for each job would cost too much."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for waiting in (*self._running, *self._queue):
            if waiting.deadline <= now and not waiting.answer.done():
                late = Problem(503, "timeout", f"no answer within {self._timeout:g} s", {"Retry-After": "1"})
                waiting.answer.set_exception(late)
        self._clock = None
        if self._busy:
            self._clock = loop.call_later(min(0.2, self._timeout / 4), self._give_up_late)

    async def close(self) -> None:
        """Refuses new jobs, finishes the others, and ends the thread."""
        self._closed = True
        while self._busy:
            await asyncio.sleep(0.01)
        if self._clock is not None:
            self._clock.cancel()
        self._thread.shutdown(wait=False)
