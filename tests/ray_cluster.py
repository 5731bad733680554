"""A real Ray cluster on one machine: several nodes with addresses of their own, one of them behind a cable that can
be pulled. Every process started carries a mark in its environment, so that all of them, and only they, can be found
and ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import umpteen

MARK = "UMPTEEN_RAY_TEST"
NODE = "UMPTEEN_RAY_NODE"
STORE_BYTES = 120_000_000
#: A node that does not answer is given up after some three seconds; Ray's own values are for networks that stutter.
ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_grpc_client_keepalive_time_ms": "2000",
    "RAY_grpc_client_keepalive_timeout_ms": "2000",
    "RAY_core_worker_rpc_server_reconnect_timeout_base_s": "1",
    "RAY_core_worker_rpc_server_reconnect_timeout_max_s": "2",
    "RAY_raylet_rpc_server_reconnect_timeout_base_s": "1",
    "RAY_raylet_rpc_server_reconnect_timeout_max_s": "2",
    "RAY_ENABLE_METRICS_COLLECTION": "0",
    "PYTHONWARNINGS": "ignore",
}


class Cable:
    """Two ends of a virtual wire: one here, with some addresses, the other in a network namespace of its own."""

    def __init__(self) -> None:
        number = os.getpid() % 250 + 1
        self.prefix = f"10.213.{number}."
        self.namespace = f"umpteen-{os.getpid()}"
        self.here, self.there = f"um{os.getpid()}a"[-15:], f"um{os.getpid()}b"[-15:]

    def plug(self) -> None:
        _ip("netns", "add", self.namespace)
        _ip("link", "add", self.here, "type", "veth", "peer", "name", self.there)
        _ip("link", "set", self.there, "netns", self.namespace)
        for host in (1, 11, 12, 13, 14, 15, 16):
            _ip("addr", "add", f"{self.prefix}{host}/24", "dev", self.here)
        _ip("link", "set", self.here, "up")
        for device, address in ((self.there, f"{self.prefix}2/24"), ("lo", None)):
            if address:
                _ip("-n", self.namespace, "addr", "add", address, "dev", device)
            _ip("-n", self.namespace, "link", "set", device, "up")

    def cut(self) -> None:
        _ip("-n", self.namespace, "link", "set", self.there, "down")

    def remove(self) -> None:
        for words in (("link", "del", self.here), ("netns", "del", self.namespace)):
            with contextlib.suppress(OSError, subprocess.CalledProcessError):
                _ip(*words)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Cluster:
    """A head without cores, where the driver is, and nodes that come and go."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(8)
        self.place = tempfile.mkdtemp(prefix="umray-")
        self.why_no_cable = ""
        self.cable: Cable | None = Cable()
        try:
            self.cable.plug()
        except (OSError, subprocess.CalledProcessError) as error:
            self.why_no_cable = f"no network namespace can be made here ({error})"
            self.cable.remove()
            self.cable = None
        self.prefix = self.cable.prefix if self.cable else f"127.213.{os.getpid() % 250 + 1}."
        self.address = f"{self.prefix}{1 if self.cable else 10}:6397"
        package = str(Path(umpteen.__file__).parent.parent)
        self.environment = {
            **ENVIRONMENT,
            MARK: self.mark,
            "RAY_AUTH_TOKEN": os.environ["RAY_AUTH_TOKEN"],
            "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")])),
        }
        self._next = 11

    def start(self) -> None:
        self._ray("head", "--head", f"--node-ip-address={self.address.split(':')[0]}", "--port=6397", "--num-cpus=0",
                  "--include-dashboard=false", f"--temp-dir={self.place}")  # fmt: skip

    def add_node(self, cpus: int = 1, *, behind_cable: bool = False) -> str:
        """Starts a node and returns its address."""
        host = 2 if behind_cable and self.cable else self._next
        self._next += host != 2
        address = f"{self.prefix}{host}"
        self._ray(address, f"--address={self.address}", f"--node-ip-address={address}", f"--num-cpus={cpus}",
                  within=self.cable.namespace if host == 2 and self.cable else None)  # fmt: skip
        return address

    def _ray(self, name: str, *options: str, within: str | None = None) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--object-store-memory={STORE_BYTES}",
                   "--disable-usage-stats", *options]  # fmt: skip
        if within:
            command = ["ip", "netns", "exec", within, *command]
        environment = {**os.environ, **self.environment, NODE: name}
        for _ in range(2):  # a port that Ray took for free may be gone by the time it is bound
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
            if done.returncode == 0:
                return
            self.kill_node(name)
        raise RuntimeError(done.stdout + done.stderr)

    def processes(self, node: str | None = None) -> dict[int, str]:
        """Command lines of the living processes of the cluster, or of one of its nodes."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                environment = (entry / "environ").read_bytes().split(b"\0")
                if f"{MARK}={self.mark}".encode() not in environment:
                    continue
                if node is not None and f"{NODE}={node}".encode() not in environment:
                    continue
                if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def workers_at_work(self, node: str | None = None) -> list[int]:
        """Worker processes that are training a shard right now: Ray shows it in their command line."""
        return [pid for pid, command in self.processes(node).items() if command.startswith("ray::umpteen-shard")]

    def kill_node(self, node: str) -> None:
        _end(self, node)

    def silence(self, node: str) -> None:
        """Cuts the node off: pulls its cable, or, where there is none, stops its processes from answering."""
        if self.cable and node == f"{self.cable.prefix}2":
            self.cable.cut()
        else:
            for pid in self.processes(node):
                os.kill(pid, signal.SIGSTOP)

    def stop(self) -> list[str]:
        """Ends everything; returns what would not end."""
        _end(self, None)
        deadline = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        if self.cable:
            self.cable.remove()
        shutil.rmtree(self.place, ignore_errors=True)
        return list(left.values())


def _end(cluster: Cluster, node: str | None) -> None:
    # Until none is left: a raylet that is still there would start workers anew.
    deadline = time.monotonic() + 10
    while (found := cluster.processes(node)) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


@contextlib.contextmanager
def running_cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    before = {name: os.environ.get(name) for name in cluster.environment}
    os.environ.update({k: v for k, v in cluster.environment.items() if k != MARK})
    try:
        cluster.start()
        yield cluster
    finally:
        left = cluster.stop()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    assert not left, f"processes were left behind: {left}"
