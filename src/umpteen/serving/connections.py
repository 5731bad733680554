"""All connections of a worker: their number, which one makes room, and their time limits.

    fresh     no complete request yet: `timeout` seconds since it was opened, or since its first byte
    resting   between two requests: `idle_timeout`
    busy      a request is read (the application limits that), answered and written
    stalled   busy, but the client does not read: `timeout`
    parting   the last answer was written: two seconds for the client to end the connection too

A check twice a second finds those whose time is over: each state is a table in order of arrival, so the check ends at
the first that may stay. When there are too many, the one that has been resting or fresh longest is closed. So there
is always room, and a descriptor, for a new client.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from umpteen.serving.counts import Counts
from umpteen.serving.problems import Problem, log, overloaded
from umpteen.serving.settings import Settings

if TYPE_CHECKING:
    from umpteen.serving.connection import Connection

_LOOK = 0.5
#: Seconds for a client to end a connection after its last answer.
_PARTING = 2.0
#: Connections beyond the limit, for health checks.
_SPARE = 32
#: Descriptors for everything else: files, pipes, libraries.
_FILES = 96


class Connections:
    """The connections of a worker.

    Parameters
    ----------
    standing_headers
        Returns the first headers of every answer.
    """

    def __init__(self, settings: Settings, counts: Counts, standing_headers: Callable[[], bytes]) -> None:
        self.settings, self._counts, self.standing_headers = settings, counts, standing_headers
        self.most, self.backlog = share_descriptors(settings.max_connections)
        self.all: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.stopping = False
        self._clients: Counter[str] = Counter()
        self._fresh: dict[Connection, float] = {}
        self._resting: dict[Connection, float] = {}
        self._stalled: dict[Connection, float] = {}
        self._parting: dict[Connection, float] = {}
        self._states = (self._fresh, self._resting, self._stalled, self._parting)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_LOOK, self._look)

    # --- coming and going ---------------------------------------------------------------------------------------

    def enter(self, connection: Connection) -> None:
        self.all.add(connection)
        client = _client(connection)
        self._clients[client] += 1
        excess = max(self._clients[client] - self.settings.max_connections_per_client, len(self.all) - self.most)
        if excess > 0:
            of = client if self._clients[client] > self.settings.max_connections_per_client else None
            connection.crowded = not self._make_room(of)
        if connection.crowded and excess > _SPARE:
            connection.deny(overloaded("there are too many connections; try again later"))
        else:
            self._fresh[connection] = self._loop.time()

    def leave(self, connection: Connection) -> None:
        if connection in self.all:
            self.all.discard(connection)
            client = _client(connection)
            self._clients[client] -= 1
            if self._clients[client] <= 0:
                del self._clients[client]
        for state in self._states:
            state.pop(connection, None)

    def _make_room(self, client: str | None = None) -> bool:
        """Ends the connection that has waited longest, of one client if given. Returns whether there was one."""
        oldest = [
            next(((since, c) for c, since in state.items() if client is None or _client(c) == client), None)
            for state in (self._parting, self._resting, self._fresh)
        ]
        found = min((entry for entry in oldest if entry is not None), key=lambda entry: entry[0], default=None)
        if found is None:
            return False
        self.leave(found[1])
        self.refused("made_room")
        found[1].close()
        return True

    def refused(self, reason: str) -> None:
        self._counts.refused(reason)

    # --- states -------------------------------------------------------------------------------------------------

    def begin(self, connection: Connection) -> None:
        self._fresh.pop(connection, None)
        self._resting.pop(connection, None)

    def rest(self, connection: Connection) -> None:
        self._resting[connection] = self._loop.time()

    def wait_for_head(self, connection: Connection) -> None:
        self._resting.pop(connection, None)
        self._fresh.setdefault(connection, self._loop.time())

    def stall(self, connection: Connection) -> None:
        self._stalled[connection] = self._loop.time()

    def go_on(self, connection: Connection) -> None:
        self._stalled.pop(connection, None)

    def part(self, connection: Connection) -> None:
        self.begin(connection)
        self._parting[connection] = self._loop.time()

    # --- time ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        try:
            self._end_late(self._loop.time())
        except Exception as error:  # the next check must follow
            log.error("the check of the connections failed", exc_info=error)
        finally:
            self._timer = self._loop.call_later(_LOOK, self._look)

    def _end_late(self, now: float) -> None:
        timeout = self.settings.timeout
        for connection in _late(self._fresh, now - timeout):
            self._fresh.pop(connection, None)
            if connection.received_any:
                connection.deny(Problem(408, "timeout", f"the request did not arrive within {timeout:g} s"))
            else:
                self.refused("idle")
                connection.close()
        for connection in _late(self._resting, now - self.settings.idle_timeout):
            connection.close()
        for connection in _late(self._stalled, now - timeout):
            self.refused("not_read")
            connection.abort()
        for connection in _late(self._parting, now - _PARTING):
            # The last answer may still be on its way to a client that reads slowly.
            if not connection.unwritten or self._parting[connection] < now - timeout:
                connection.abort()

    # --- the end ------------------------------------------------------------------------------------------------

    async def drain(self, seconds: float, listeners_closed: Callable[[], None]) -> None:
        """Finishes accepted requests within some seconds. Idle connections stay open for a moment: a request may be
        on its way, and is answered that the server is stopping."""
        self.stopping = True
        began = self._loop.time()
        moment = min(1.0, seconds / 2)
        closed = False
        while self._loop.time() < began + seconds:
            past = self._loop.time() - began
            if not closed and past > min(0.3, moment / 2):
                listeners_closed()
                closed = True
            if closed and not self.all:
                break
            if past > moment:
                for connection in list(self.all):
                    connection.part_if_idle()
            await asyncio.sleep(0.02)
        if not closed:
            listeners_closed()
        for connection in list(self.all):
            connection.abort()
        for task in list(self.tasks):
            task.cancel()
        self._timer.cancel()


def _late(state: dict[Connection, float], limit: float) -> list[Connection]:
    found = []
    for connection, since in state.items():
        if since > limit:
            break
        found.append(connection)
    return found


def _client(connection: Connection) -> str:
    """Identifies the client. Whoever has one IPv6 address has 2⁶⁴ of them."""
    host = connection.client[0] if connection.client is not None else ""
    if ":" in host:
        with contextlib.suppress(ValueError):
            return str(ipaddress.ip_network(f"{host.partition('%')[0]}/64", strict=False))
    return host


def share_descriptors(wanted: int) -> tuple[int, int]:
    """How many connections this process may hold, and how many may wait to be accepted: all that are wanted if the
    limit of open files allows it, else most of that limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _SPARE + 2 * wanted
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    free = wanted * 4 if soft == resource.RLIM_INFINITY else max(32, soft - _FILES - _SPARE)
    backlog = max(16, min(512, free // 4))
    return max(8, min(wanted, free - backlog - 8)), backlog
