"""How long shards take on a cluster: a discrete-event model of what the Ray engine does.

Nodes get X over the network, from the driver or from nodes that have it; then their workers take shards in order, one
after the other, until none is left. A finished shard travels to the driver, which writes one at a time.

    simulate([3.0, 1.0, 1.0], Machines(nodes=2), Costs(x_bytes=1e9))
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Machines:
    nodes: int
    workers: int = 1  # of each node
    threads: int = 1  # of each worker

    @property
    def cores(self) -> int:
        return self.nodes * self.workers * self.threads


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes, measured where they can be."""

    x_bytes: float = 0.0
    shard_bytes: float = 0.0  # of a finished shard, on average
    bandwidth: float = 1.25e9  # bytes a second of one node's link; 10 Gbit/s
    start: float = 0.0  # to connect, and for a worker to be there
    task: float = 0.0  # to hand one shard out and take its result
    write: float = 0.0  # of one byte of a shard, by the driver
    thread_share: float = 1.0  # of a core that a thread beyond the first gives
    pieces: int = 1_000_000  # of a shard, each the work of one thread


@dataclass(frozen=True)
class Outcome:
    seconds: float
    efficiency: float  # work done over cores times seconds


def simulate(work: list[float], machines: Machines, costs: Costs) -> Outcome:
    """The run of shards, in this order, each so many seconds of one core."""
    busy = costs.pieces / math.ceil(costs.pieces / machines.threads)  # threads at work, on average
    speed = 1 + (busy - 1) * costs.thread_share
    # Whoever has X can give it on, so the number of nodes that have it doubles in the time one copy takes.
    copy = costs.x_bytes / costs.bandwidth
    free = []
    for node in range(machines.nodes):
        rounds = (node + 1).bit_length()  # the first node gets it in the first round
        for _ in range(machines.workers):
            heapq.heappush(free, costs.start + rounds * copy)
    results = []
    for seconds in work:
        begin = heapq.heappop(free)
        end = begin + costs.task + seconds / speed
        heapq.heappush(free, end)
        results.append(end)
    link = disk = 0.0
    for end in sorted(results):
        link = max(link, end) + costs.shard_bytes / costs.bandwidth
        disk = max(disk, link) + costs.shard_bytes * costs.write
    return Outcome(disk, sum(work) / (machines.cores * disk))


def largest_first(work: list[float]) -> list[float]:
    return sorted(work, reverse=True)


def shuffled(work: list[float], seed: int) -> list[float]:
    order = list(work)
    random.Random(seed).shuffle(order)
    return order
